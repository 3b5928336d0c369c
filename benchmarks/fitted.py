"""Hyperparameters from the data: 300 items, 1000 comparisons."""

from __future__ import annotations

from benchmarks import ours, peers
from benchmarks.cases import compare

TITLE = "Hyperparameters from the data: 300 items, 1000 comparisons"
NOTES = """\
Each finds its hyperparameters by maximizing its own evidence (relpref, and BoTorch with its own
kernel: times priors), then gives the mean and sd of every item's utility. With one lengthscale,
or one for each of the four attributes."""


def run(repeats: int) -> str:
    return compare(
        {
            "relpref EP, one lengthscale": lambda: ours.fitted(shared_lengthscale=True),
            "BoTorch PairwiseGP, one lengthscale": lambda: peers.botorch_fitted(own_kernel=False),
            "relpref EP, its own kernel (four)": lambda: ours.fitted(shared_lengthscale=False),
            "BoTorch PairwiseGP, its own kernel (four)": lambda: peers.botorch_fitted(
                own_kernel=True
            ),
        },
        items=300,
        comparisons=1000,
        repeats=repeats,
    )
