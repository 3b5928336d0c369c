"""Memory of one process that fits problems of many sizes, and of one that asks many questions.

python -m benchmarks.memory [--fits 200] [--answers 2000]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from relpref import PreferenceData
from relpref.ask.loop import Loop
from relpref.ask.store import AnswerStore
from relpref.infer import EP, UtilityPosterior
from relpref.limits import resident_memory
from relpref.models import xpgp

ITEMS, ANSWERS = 100, 40  # that a loop begins with
REFINE = 10  # answers between two full fits of the loop
RATERS = 100  # answers by each of its raters


def main() -> None:
    """Print the memory of this process in MB as it goes, and the largest."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument(
        "--fits", type=int, default=200, help="fits, each of another size (default: 200)"
    )
    parser.add_argument(
        "--answers", type=int, default=2000, help="answers in the loop (default: 2000)"
    )
    args = parser.parse_args()
    sys.stdout.write(f"before: {_megabytes():.0f} MB\n")
    largest = max([_fit(row) for row in range(args.fits)], default=0.0)
    largest = max([largest, *_ask(args.answers)])
    sys.stdout.write(f"largest: {largest:.0f} MB\n")


def _fit(row: int) -> float:
    _posterior(_data(10 + row, 20 + 2 * row, row)).ranking()
    return _said("fits", row, 20)


def _ask(answers: int) -> list[float]:
    data = _data(ITEMS, ANSWERS, 0)
    posterior = _posterior(data)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        table = data.comparisons.table(data.labels)
        store = AnswerStore.open(Path(folder) / "answers.sqlite", data.labels, table, files={})
        rng = np.random.default_rng(0)
        with Loop(store, posterior, store.changes(0).version) as loop:
            for row in range(answers):
                rater = f"rater {row // RATERS}"
                question = loop.question(rater)
                assert question is not None  # there are more pairs than answers
                loop.answer(question.id, ("first", "second")[rng.integers(2)], rater)
                if row % REFINE == 0:
                    loop.refine()
                found.append(_said("answers", row, 100))
    return found


def _posterior(data: PreferenceData) -> UtilityPosterior:
    found = EP(xpgp, throw=False).run(0, data, progress_bar=False)
    assert isinstance(found, UtilityPosterior)
    return found


def _said(what: str, row: int, every: int) -> float:
    now = _megabytes()
    if row % every == 0:
        sys.stdout.write(f"{row + 1} {what}: {now:.0f} MB\n")
        sys.stdout.flush()
    return now


def _megabytes() -> float:
    return (resident_memory() or 0.0) / 1e6


def _data(items: int, answers: int, seed: int) -> PreferenceData:
    rng = np.random.default_rng(seed)
    names = [f"e{row}" for row in range(items)]
    winner = rng.integers(0, items, answers)
    loser = (winner + 1 + rng.integers(0, items - 1, answers)) % items
    return PreferenceData.from_tables(
        pd.DataFrame(rng.standard_normal((items, 2)), index=names, columns=["x", "y"]),
        pd.DataFrame({"winner": np.take(names, winner), "loser": np.take(names, loser)}),
    )


if __name__ == "__main__":
    main()
