"""The next question: every score among all pairs of 300, 1000 and 3000 items, batches, and what
further answers are worth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.measure import alternate, table
from benchmarks.ours import data_of
from benchmarks.problems import make
from relpref.explore import SCORES, expected_gain, next_pairs

TITLE = "The next question"
NOTES = """\
After 3000 comparisons at fixed hyperparameters, each time after another answer; neither the fit
nor the update is counted. All pairs that were not answered take part: 44,850, 499,500 and
4,498,500 less those. The first call compiles (and tabulates what an answer tells), once for all
numbers of items: larger ones come later."""
SIZES, COMPARISONS = (300, 1000, 3000), 3000

Contestant = Callable[[Any], Any]


def run(repeats: int) -> str:
    """Time all scores at all sizes."""
    rows = []
    for size in SIZES:
        posteriors = _posteriors(size, repeats + 1)
        contestants: dict[str, Contestant] = {name: _question(name) for name in SCORES}
        contestants["a batch of 10"] = lambda posterior: next_pairs(posterior, 10)
        contestants["worth of 10 answers"] = lambda posterior: expected_gain(posterior, 10)
        timings, _ = alternate(contestants, posteriors, None, repeats)
        rows += [[f"{size}", name, *timing.row()] for name, timing in timings.items()]
    header = ("entities", "score", "first call, s", "then, median s", "range (calls)", "CPU s")
    return table(header, rows)


def _question(name: str) -> Contestant:
    return lambda posterior: next_pairs(posterior, score=name)


def _posteriors(size: int, number: int) -> list[Any]:
    """One posterior, and what other single answers make of it."""
    from relpref.infer import EP
    from relpref.kernels import SquaredExponential
    from relpref.models import preference_gp

    problem = make(size, COMPARISONS, 0)
    known = {
        "attributes_amplitude": problem.amplitude,
        "attributes_lengthscale": problem.lengthscale,
    }
    posterior = EP(preference_gp, fixed=known).run(
        0,
        data_of(problem.attributes, problem.comparisons),
        attribute_kernel=SquaredExponential(shared_lengthscale=True),
        standardize=False,
        individual=False,
    )
    rng = np.random.default_rng(1)
    pairs = [tuple(map(int, rng.choice(size, 2, replace=False))) for _ in range(number)]
    return [posterior.update([pair], quick=True) for pair in pairs]
