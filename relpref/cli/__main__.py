"""``python -m relpref.cli`` is the same as ``relpref``."""

import sys

from relpref.cli import main

sys.exit(main())
