"""``python -m relpref.cli`` is the same as ``relpref``."""

import sys

from relpref.cli.entry import main

sys.exit(main())
