"""Run the experiments with active exploration: five simulators, and the protocol of Kersting & Xu
2009, Fig. 4.

Every finished piece is written at once; the same command goes on where an earlier one stopped.
"""

from __future__ import annotations

import sys

from benchmarks.reproduce.suite import Suite

SUITE = Suite("benchmarks.reproduce.exploration", __doc__)

if __name__ == "__main__":
    sys.exit(SUITE.main())
