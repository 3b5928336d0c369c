"""One more answer: the posterior after it, the ranking, and the next question, of 1000 items after
3000 comparisons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.cases import installed
from benchmarks.measure import alternate, table
from benchmarks.ours import data_of
from benchmarks.problems import Array, Problem, make

TITLE = "One more answer: 1000 items, 3000 comparisons"
NOTES = """\
At fixed hyperparameters, each time another answer to the same posterior, whose own fit is not
counted. BoTorch conditions on the answer (`condition_on_observations`) and is asked for means
and standard deviations. relpref quickly: a rank-one change of mean and covariance, the ranking's
means and intervals; with the next question, the default score of all 499,500 pairs, too.
Refined: EP until it has settled, as a full fit does. The error is the largest difference of a
mean from that of a full fit, in its standard deviations. The last column repeats all with one
comparison more known at the start, in the same process: who compiles for each number of answers
shows it there."""
ITEMS, COMPARISONS = 1000, 3000


@dataclass(frozen=True)
class Moments:
    """Of every utility."""

    mean: Array
    sd: Array


Contestant = Callable[[tuple[int, int]], Moments]


def run(repeats: int) -> str:
    """Time the contestants on the same answers in turn."""
    problem = make(ITEMS, COMPARISONS, 0)
    rng = np.random.default_rng(1)
    drawn = [rng.choice(ITEMS, 2, replace=False) for _ in range(repeats + 1)]
    pairs = [(int(first), int(second)) for first, second in drawn]
    more = make(ITEMS, COMPARISONS + 1, 0)
    contestants, missing = installed(makers(problem))
    timings, answers = alternate(contestants, pairs, None, repeats)
    others, _ = installed(makers(more))
    again, _ = alternate(others, pairs[:1] * 2, None, 1)
    truth = _afresh(problem, pairs[0])
    header = [
        "",
        "first call, s",
        "then, median s",
        "range (calls)",
        "CPU s",
        "largest error, sd",
        "one more, first, s",
    ]
    rows = []
    for name, timing in timings.items():
        error = f"{np.max(np.abs(answers[name].mean - truth.mean) / truth.sd):.1e}"
        if name.startswith("BoTorch"):
            error = "-"  # of Laplace's approximation, for which benchmarks/accuracy.py is
        rows.append([name, *timing.row(), error, f"{again[name].cold:.3g}"])
    return "\n\n".join([table(header, rows), *missing])


def makers(problem: Problem) -> dict[str, Callable[[], Contestant]]:
    return {
        "relpref, quickly": lambda: _ours(problem, _quickly),
        "relpref, quickly, with the next question": lambda: _ours(problem, _next_question),
        "relpref, refined": lambda: _ours(problem, _refined),
        "BoTorch PairwiseGP, conditioned": lambda: _botorch(problem),
    }


def _ours(problem: Problem, act: Callable[[Any, tuple[int, int]], Moments]) -> Contestant:
    posterior = _fit(data_of(problem.attributes, problem.comparisons), problem)
    return lambda pair: act(posterior, pair)


def _fit(data: Any, problem: Problem) -> Any:
    from relpref.infer import EP
    from relpref.kernels import SquaredExponential
    from relpref.models import preference_gp

    known = {
        "attributes_amplitude": problem.amplitude,
        "attributes_lengthscale": problem.lengthscale,
    }
    kernel = SquaredExponential(shared_lengthscale=True)
    return EP(preference_gp, fixed=known).run(
        0, data, attribute_kernel=kernel, standardize=False, individual=False
    )


def _moments(posterior: Any) -> Moments:
    found = posterior.utilities()
    return Moments(found["mean"].to_numpy(), found["sd"].to_numpy())


def _quickly(posterior: Any, pair: tuple[int, int]) -> Moments:
    return _moments(posterior.update([pair], quick=True))


def _next_question(posterior: Any, pair: tuple[int, int]) -> Moments:
    from relpref.explore import next_pairs

    updated = posterior.update([pair], quick=True)
    next_pairs(updated, 1)
    return _moments(updated)


def _refined(posterior: Any, pair: tuple[int, int]) -> Moments:
    return _moments(posterior.update([pair]))


def _afresh(problem: Problem, pair: tuple[int, int]) -> Moments:
    whole = np.concatenate([problem.comparisons, [pair]])
    return _moments(_fit(data_of(problem.attributes, whole), problem))


def _botorch(problem: Problem) -> Contestant:
    condition = peers.botorch_conditioned(problem)

    def run(pair: tuple[int, int]) -> Moments:
        return Moments(*condition(pair))

    return run
