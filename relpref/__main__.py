"""Entry point of ``python -m relpref``, the same as ``relpref``."""

import sys

from relpref.cli import main

sys.exit(main())
