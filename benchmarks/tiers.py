"""Whether all statements of `tiers` hold together in simulated tables: python -m benchmarks.tiers

Every item takes part in the given number of answers, whose noise has the standard deviation 1. The
utilities are all equal (``ties``), normal with standard deviation 1 (``normal``), or normal and cut
at 0.6, so that 27 % are tied at the top (``crowded``). A statement says of two items which has the
higher utility; of items that are tied it is false.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks.measure import table

FIELDS = ("ties", "crowded", "normal")
ITEMS, ANSWERS = (20, 50, 100), (5, 10, 30)


class Outcome(NamedTuple):
    """Statements about one table."""

    held: bool  # whether all of them are true
    pairs: float  # share of the pairs of items that are told apart
    tiers: int
    first: int  # number of items in the first tier


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tiers", description=__doc__)
    parser.add_argument(
        "fields", nargs="*", metavar="field", help=f"of {', '.join(FIELDS)} (default: all)"
    )
    parser.add_argument("--items", type=int, nargs="+", default=ITEMS)
    parser.add_argument("--answers", type=int, nargs="+", default=ANSWERS)
    parser.add_argument("--tables", type=int, default=400)
    args = parser.parse_args()
    rows = []
    for cell in itertools.product(args.fields or FIELDS, args.items, args.answers):
        outcomes = [simulated(*cell, seed) for seed in range(args.tables)]
        held, pairs, tiers, first = np.mean(outcomes, axis=0)
        numbers = (f"{held:.3f}", f"{pairs:.3f}", f"{tiers:.1f}", f"{first:.1f}")
        rows.append([*map(str, cell), *numbers])
        print(" ".join(rows[-1]), file=sys.stderr, flush=True)
    headings = ["field", "items", "answers each", "all hold", "pairs told apart", "tiers"]
    print(table([*headings, "items in the first tier"], rows))


def simulated(field: str, items: int, answers: int, seed: int) -> Outcome:
    """Draw a table, fit it, and hold what is told apart against the truth."""
    import relpref
    from relpref.posterior.tiers import TIER_PROBABILITY, told_apart

    rng = np.random.default_rng(seed)
    utility = drawn(field, items, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = relpref.fit(answers=answered(utility, answers, rng), progress_bar=False)
    truth = utility[list(posterior.data.labels)]
    above = told_apart(posterior.belief.centred(), TIER_PROBABILITY)
    tiers = posterior.tiers()["tier"]
    return Outcome(
        held=bool(np.all(np.subtract.outer(truth, truth)[above] > 0)),
        pairs=float(above.sum() / (items * (items - 1) / 2)),
        tiers=int(tiers.max()),
        first=int((tiers == 1).sum()),
    )


def drawn(field: str, items: int, rng: np.random.Generator) -> Any:
    """Utilities of the items, shape (items,)."""
    normal = rng.standard_normal(items)
    return {"ties": 0 * normal, "crowded": np.minimum(normal, 0.6), "normal": normal}[field]


def answered(utility: Any, answers: int, rng: np.random.Generator) -> pd.DataFrame:
    """Table of answers, in which every item takes part about equally often."""
    items, rows = len(utility), len(utility) * answers // 2
    rounds = [rng.permutation(items) for _ in range(-(-rows // items))]
    first = np.concatenate(rounds)[:rows]
    second = (first + rng.integers(1, items, rows)) % items
    won = utility[first] - utility[second] + rng.standard_normal(rows) > 0
    ends = {"winner": np.where(won, first, second), "loser": np.where(won, second, first)}
    return pd.DataFrame(ends)


if __name__ == "__main__":
    main()
