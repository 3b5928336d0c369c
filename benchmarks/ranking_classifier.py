"""Classifying those who gave 5000 rankings, hyperparameters included."""

from __future__ import annotations

import os
import time
from typing import Any

from benchmarks.measure import Timing, note, table
from relpref import Rankings
from relpref.classifiers import RankingGPClassifier
from relpref.data_loaders import rank_dishes, sushi
from relpref.data_loaders.registry import SETTING

TITLE = "Classifiers of 5000 rankings, hyperparameters included"
NOTES = (
    "Full rankings of ten sushis, east or west (of eight synthetic dishes where the sushi "
    "files are missing). The first fit compiles."
)
CASES: dict[str, dict[str, Any]] = {
    "kendall": {},
    "cut": {},
    "cut, a lengthscale for each attribute learned": {"lengthscale": "learn"},
    "mallows, 300 landmarks": {"landmarks": 300},
}


def run(repeats: int) -> str:
    data = _data()
    rows = []
    for name, options in CASES.items():
        timing = Timing()
        for turn in range(repeats + 1):
            begin = time.perf_counter()
            fitted = RankingGPClassifier(name.split(",")[0], **options).fit(data)
            seconds = time.perf_counter() - begin
            if turn:
                timing.warm.append(seconds)
            else:
                timing.cold = seconds
            note(f"{name}: {seconds:.1f} s")
        evidence = f"{fitted.posterior_.log_evidence:.1f}"
        rows.append([name, *timing.row()[:2], evidence, f"{fitted.landmark_error_:.0%}"])
    return table(["", "first, s", "then, median s", "log evidence", "variance left out"], rows)


def _data() -> Rankings:
    if os.environ.get(SETTING):
        return sushi.load("a").rankings
    return rank_dishes(5000, noise=1.0, seed=0)
