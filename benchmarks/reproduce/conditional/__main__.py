"""Run the experiments of Pahikkala et al. 2010 on conditional ranking.

Every finished piece is written at once; the same command goes on where an earlier one stopped.
"""

from __future__ import annotations

import sys

from benchmarks.reproduce.suite import Suite

SUITE = Suite("benchmarks.reproduce.conditional", __doc__)

if __name__ == "__main__":
    sys.exit(SUITE.main())
