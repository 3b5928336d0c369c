"""Leave-pair-out of RankRLS: every pair of m examples, beside RLScore and beside training again."""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.cases import installed
from benchmarks.measure import note, table

TITLE = "Leave-pair-out: predictions for every pair of m examples by RankRLS without it"
NOTES = """\
Gaussian kernel, ten attributes, continuous labels. Decomposition: the kernel matrix and its
eigendecomposition, once for all values of the regularization. Product: the m x m matrix of one
value. Pairs: all m(m - 1)/2 held-out predictions and their concordance from that matrix.
Together: `leave_pair_out()` of a fitted estimator, one value. RLScore: its `leave_pair_out` of
all pairs after its training, up to 2000 examples. Training again: one pair (median of three),
times the number of pairs. Medians of the calls; exponents from the last two sizes."""
SIZES, LARGEST_OF_PEERS = (500, 1000, 2000, 5000), 2000
GAMMA, REGULARIZATION, PATH = 0.05, 10.0, np.logspace(-3, 6, 10)
HEADER = (
    "examples",
    "pairs",
    "decomposition, s",
    "product, s",
    "pairs, s",
    "together, s",
    "RLScore, s",
    "difference from RLScore",
    "training again, s",
)


def run(repeats: int) -> str:
    """Time every size, and ten values of the regularization at the largest."""
    contestants, missing = installed({"RLScore": rlscore})
    rows, timed = [], []
    for size in SIZES:
        x, y = problem(size)
        peer = contestants.get("RLScore") if size <= LARGEST_OF_PEERS else None
        row, seconds = measured(x, y, repeats, peer)
        rows.append([str(size), f"{size * (size - 1) // 2:,}", *row])
        timed.append(seconds)
        note(f"{size} examples: {row}")
    growth = np.log(np.divide(timed[-1], timed[-2])) / np.log(SIZES[-1] / SIZES[-2])
    rows.append(["exponent", "", *(f"{exponent:.2f}" for exponent in growth), "", "", ""])
    return "\n\n".join([table(HEADER, rows), *missing, path()])


def problem(size: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(size)
    x = rng.standard_normal((size, 10))
    return x, x[:, 0] + np.sin(x[:, 1]) + rng.standard_normal(size)


def measured(
    x: Any, y: Any, repeats: int, peer: Callable[..., Any] | None
) -> tuple[list[str], list[float]]:
    """One row, and the seconds of our own parts."""
    from relpref.rls import RankRLS
    from relpref.rls.spectrum import PairSystems

    ranker = RankRLS("gaussian", gamma=GAMMA, regularization=REGULARIZATION)
    decomposition = seconds(lambda: ranker.fit(x, y), 1)
    spectrum = ranker._spectrum
    systems = PairSystems(spectrum, np.arange(len(x)), spectrum.vectors, REGULARIZATION)
    product = seconds(systems.products, repeats)
    pairs = seconds(partial(systems.surplus, systems.products(), np.zeros(1)), repeats)
    ours = [decomposition, product, pairs, seconds(ranker.leave_pair_out, repeats)]
    theirs = ["-", "-"]
    if peer is not None:
        start = time.perf_counter()
        first, second, difference, lasted = peer(x, y)
        note(f"RLScore: {time.perf_counter() - start:.1f} s with its training")
        found = np.zeros((len(x), len(x)))
        for block in ranker.leave_pair_out().pairs():
            found[block.first, block.second] = block.predicted_first - block.predicted_second
        theirs = [f"{lasted:.3g}", f"{np.abs(found[first, second] - difference).max():.1e}"]
    extrapolated = "-"
    if len(x) <= LARGEST_OF_PEERS:
        again = seconds(
            lambda: RankRLS("gaussian", gamma=GAMMA).fit(x[2:], y[2:]).predict(x[:2]), 3
        )
        extrapolated = f"{again * len(x) * (len(x) - 1) / 2:.2g}"
    return [*(f"{value:.3g}" for value in ours), *theirs, extrapolated], ours


def seconds(call: Callable[[], Any], repeats: int) -> float:
    """Median over calls."""
    lasted = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        lasted.append(time.perf_counter() - start)
    return statistics.median(lasted)


def path() -> str:
    """Ten values of the regularization at the largest size, decomposition included."""
    from relpref.rls import RankRLS

    x, y = problem(SIZES[-1])
    start = time.perf_counter()
    concordance = RankRLS("gaussian", gamma=GAMMA).fit(x, y).leave_pair_out(PATH).concordance
    lasted = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
    return (
        f"{len(x)} examples, all {len(x) * (len(x) - 1) // 2:,} pairs, {len(PATH)} values of the "
        "regularisation, decomposition "
        f"included: {lasted:.1f} s; the largest memory of this process was {peak / 1e9:.2f} GB. "
        "Concordance from "
        f"{concordance.min():.3f} to {concordance.max():.3f}."
    )


def rlscore() -> Callable[[Any, Any], tuple[Any, Any, Any, float]]:
    """RLScore's RankRLS: first and second of each pair, the difference of their predictions, and
    the seconds that took.
    """
    from rlscore.learner import GlobalRankRLS

    def held_out(x: Any, y: Any) -> tuple[Any, Any, Any, float]:
        first, second = np.triu_indices(len(x), 1)
        learner = GlobalRankRLS(x, y, kernel="GaussianKernel", gamma=GAMMA, regparam=REGULARIZATION)
        start = time.perf_counter()
        left, right = learner.leave_pair_out(first, second)
        return first, second, np.ravel(left) - np.ravel(right), time.perf_counter() - start

    return held_out
