"""Run the experiments with the Gaussian process classifiers of rankings and of edges.

Every finished piece is written at once; the same command goes on where an earlier one stopped.
"""

from __future__ import annotations

import sys

from benchmarks.reproduce.suite import Suite

SUITE = Suite("benchmarks.reproduce.classifiers", __doc__)

if __name__ == "__main__":
    sys.exit(SUITE.main())
