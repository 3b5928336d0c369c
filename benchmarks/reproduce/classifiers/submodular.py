"""Cut and another submodular function, Kendall and Mallows on some of the rankings of `dishes` and
`sushi`.
"""

from __future__ import annotations

import itertools

import pandas as pd

from benchmarks.measure import table
from benchmarks.reproduce.classifiers import dishes, sushi
from benchmarks.reproduce.classifiers.ranking_kernels import CONSTANT, NAMES, SCORES, spread
from benchmarks.reproduce.experiment import Experiment, Part
from benchmarks.reproduce.rows import Row

SETTINGS = ("full", "top-6", "top-3", "small, full", "small, top-6")


def compute(part: Part, quick: bool) -> list[Row]:
    """All kernels, for one setting and one seed; dishes at three levels of noise."""
    if part[0] in dishes.KINDS:
        return dishes.compute(part, quick=True)
    return [{"noise": 0} | row for row in sushi.compute(part, quick)]


def parts(quick: bool) -> list[Part]:
    if quick:
        return [("top-6", 0), ("small, full", 0)]
    return [*itertools.product(SETTINGS, dishes.SEEDS)]


def markdown(rows: pd.DataFrame) -> str:
    """Scores, mean and standard error over the seeds, and the log loss less that of cut."""
    scores = rows.groupby(["setting", "kernel", "seed"])[[*SCORES]].mean()
    lines = []
    for setting, kernel in itertools.product(SETTINGS, (*NAMES, CONSTANT)):
        if (setting, kernel) in scores.index:
            mine = scores.loc[setting, kernel]
            less = mine["log_loss"] - scores.loc[setting, NAMES[0]]["log_loss"]
            where = "dishes" if setting in dishes.KINDS else "sushi"
            shown = [spread(values) for values in (*(mine[score] for score in SCORES), less)]
            lines.append([f"{where}, {setting}", kernel, *shown])
    return table(["rankings", "kernel", *SCORES, "log_loss less that of cut"], lines)


EXPERIMENT = Experiment(
    name="submodular",
    title="Submodular functions",
    part=("setting", "seed"),
    key=("setting", "seed", "noise", "kernel"),
    parts=parts,
    compute=compute,
    markdown=markdown,
)
