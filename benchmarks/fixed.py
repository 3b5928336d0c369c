"""Fixed hyperparameters: 1000 items, 3000 comparisons."""

from __future__ import annotations

from benchmarks import ours, peers
from benchmarks.cases import compare

TITLE = "Fixed hyperparameters: 1000 items, 3000 comparisons"
NOTES = """\
Mean and sd of every item's utility, at the true hyperparameters. choix has no attributes:
independent utilities of the same variance."""


def run(repeats: int) -> str:
    return compare(
        {
            "relpref EP": ours.fixed,
            "BoTorch PairwiseGP, Laplace": peers.botorch_fixed,
            "choix ep_pairwise": peers.choix_ep,
        },
        items=1000,
        comparisons=3000,
        repeats=repeats,
    )
