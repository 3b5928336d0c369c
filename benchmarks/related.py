"""A problem with a relation: 1000 items, 3000 comparisons, hyperparameters from the data, and what
the relation is worth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from scipy.special import ndtr

from benchmarks import ours, peers
from benchmarks.cases import installed
from benchmarks.measure import alternate, table
from benchmarks.problems import Array, related

TITLE = "Hyperparameters from the data, with a relation: 1000 items, 3000 comparisons"
NOTES = """\
Utilities are a function of four attributes plus one that is smooth on a graph of nearest
neighbors. relpref's xpgp fits both; its preference_gp, and BoTorch, which knows no relations,
fit the attributes alone (four lengthscales each). Log loss: of 3000 further answers, mean and
standard error, from each one's own predictive probability. That of the true utilities is the
floor."""
ITEMS, COMPARISONS, HELD_OUT = 1000, 3000, 3000


def run(repeats: int) -> str:
    """One fit after the compilation, however many repeats are asked for: BoTorch takes a minute for
    each.
    """
    makers: Mapping[str, Callable[[], peers.Contestant]] = {
        "relpref EP, xpgp": lambda: ours.related("maximize"),
        "relpref EP, preference_gp": lambda: ours.fitted(shared_lengthscale=False),
        "BoTorch PairwiseGP, its own kernel": lambda: peers.botorch_fitted(own_kernel=True),
    }
    contestants, missing = installed(makers)
    problems = [related(ITEMS, COMPARISONS, HELD_OUT, seed) for seed in range(2)]
    timings, answers = alternate(contestants, problems, None, 1)
    rows = []
    for name, timing in timings.items():
        rows.append([name, *timing.row(), _loss(answers[name].probability)])
    first = problems[0]
    assert first.held_out is not None
    winner, loser = first.held_out.T
    rows.append(
        [
            "the true utilities",
            "",
            "",
            "",
            "",
            _loss(ndtr(first.utilities[winner] - first.utilities[loser])),
        ]
    )
    header = ["", "first call, s", "then, s", "range (calls)", "CPU s", "log loss"]
    return "\n\n".join([table(header, rows), *missing])


def _loss(probability: Array | None) -> str:
    """Of the answers held out, winner first."""
    assert probability is not None
    losses = -np.log(probability)
    return f"{losses.mean():.4f} ± {losses.std() / np.sqrt(len(losses)):.4f}"
