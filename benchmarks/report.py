"""How long the report takes, after the fit."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.measure import Timing, note, table

TITLE = "The report, after the fit"
NOTES = (
    "First: in this process, the compilation of the diagnostics and the import of ArviZ included. "
    "Then: other answers of the same shape.\n"
    "Two attributes and a relation, hyperparameters given. Evidence: the model is also fitted "
    "again without each part, which is\n"
    "done when asked for."
)
SIZES = ((1000, 3000, False), (100, 1000, True))


def run(repeats: int) -> str:
    """Time the page at each size."""
    rows = []
    for items, answers, evidence in SIZES:
        timing, size = Timing(), 0
        for turn in range(min(repeats, 3) + 1):
            posterior = fitted(items, answers, turn)
            start = time.perf_counter()
            size = page(posterior, evidence)
            seconds = time.perf_counter() - start
            if turn:
                timing.warm.append(seconds)
            else:
                timing.cold = seconds
            note(f"{items} items, page {turn + 1}: {seconds:.1f} s")
        name = f"{items} items, {answers} answers{', with evidence' if evidence else ''}"
        rows.append([name, *timing.row()[:3], f"{size / 1000:.0f}"])
    return table(["", "first, s", "then, median s", "range (calls)", "size, kB"], rows)


def page(posterior: Any, evidence: bool) -> int:
    """Write the page; its size in bytes."""
    from relpref.report import write

    with tempfile.TemporaryDirectory() as folder:
        return (
            write(posterior, Path(folder) / "page.html", relations_evidence=evidence).stat().st_size
        )


def fitted(items: int, answers: int, seed: int) -> Any:
    """A posterior of answers by known utilities."""
    from relpref import PreferenceData
    from relpref.infer import EP
    from relpref.models import xpgp

    rng = np.random.default_rng(seed)
    names = [f"item {row}" for row in range(items)]
    attributes = pd.DataFrame(rng.standard_normal((items, 2)), index=names, columns=["x", "y"])
    utilities = attributes.to_numpy() @ [1.5, -0.8] + 0.3 * rng.standard_normal(items)
    first = rng.integers(0, items, answers)
    second = (first + rng.integers(1, items, answers)) % items
    wins = rng.standard_normal(answers) < utilities[first] - utilities[second]
    labels = np.array(names)
    ends = {
        "winner": labels[np.where(wins, first, second)],
        "loser": labels[np.where(wins, second, first)],
    }
    links = pd.DataFrame({"source": names[1:], "target": names[:-1]})
    data = PreferenceData.from_tables(attributes, pd.DataFrame(ends), {"near": links})
    given = {
        "attributes_amplitude": 1.5,
        "attributes_lengthscale": 1.5,
        "near_amplitude": 0.3,
        "near_range": 1.0,
        "individual_amplitude": 0.3,
    }
    return EP(xpgp, fixed=given).run(seed, data, progress_bar=False)
