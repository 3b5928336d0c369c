"""How many landmark edges are enough: drugs and targets with both known, one third of the labels
held out.
"""

from __future__ import annotations

import time
from typing import Any

import pandas as pd

from benchmarks.measure import table
from benchmarks.reproduce.classifiers.drug_target import gaussian_process, held_out, least_squares
from benchmarks.reproduce.classifiers.metrics import judge
from benchmarks.reproduce.experiment import Experiment, Part
from benchmarks.reproduce.rows import Row
from relpref.data_loaders import drug_target

NUMBERS = {
    "nr": (50, 100, 200, 400, 0),
    "gpcr": (100, 300, 1000, 2000),
}  # 0: all that it takes to be exact
REFERENCE = -1  # least squares, which needs no landmarks


def compute(part: Part, quick: bool) -> list[Row]:
    """Scores with so many landmarks, and how long it took."""
    family, number = str(part[0]), int(part[1])
    data = drug_target.load(family)
    known, judged = held_out(data, "both known", 0)
    start = time.perf_counter()
    method = least_squares if number == REFERENCE else gaussian_process
    found, more = method(data, known, number or None)
    seconds = time.perf_counter() - start
    truth = data.interactions.to_numpy()[judged]
    return [judge(truth, found[judged]) | more | {"seconds": seconds}]


def parts(quick: bool) -> list[Part]:
    """A number of landmarks for a family."""
    if quick:
        return [("nr", REFERENCE), ("nr", 50)]
    return [
        (family, number) for family, numbers in NUMBERS.items() for number in (REFERENCE, *numbers)
    ]


def markdown(rows: pd.DataFrame) -> str:
    """A line for each number."""
    lines = []
    for _, row in rows.fillna({"landmarks": 0.0}).sort_values(["family", "landmarks"]).iterrows():
        reference = row["number"] == REFERENCE
        lines.append(
            [
                str(row["family"]),
                "RLS" if reference else f"{row['landmarks']:.0f}",
                "" if reference else f"{row['left_out']:.1%}",
                *(f"{row[measure]:.3f}" for measure in ("auc", "average_precision", "log_loss")),
                f"{row['seconds']:.1f}",
            ]
        )
    return table(["family", "landmarks", "left out", "AUC", "AUPR", "log loss", "seconds"], lines)


def draw(rows: pd.DataFrame, figure: Any) -> None:
    """AUPR over the landmarks, beside that of least squares."""
    families = list(dict.fromkeys(rows["family"]))
    for panel, family in zip(
        figure.subplots(1, len(families), squeeze=False)[0], families, strict=True
    ):
        of = rows[rows["family"] == family]
        reference, own = (
            of[of["number"] == REFERENCE],
            of[of["number"] != REFERENCE].sort_values("landmarks"),
        )
        panel.plot(own["landmarks"], own["average_precision"], marker="o", label="GP classifier")
        for value in reference["average_precision"]:
            panel.axhline(value, color="0.5", linestyle="--", label="RLS")
        panel.set(
            xscale="log",
            xlabel="landmarks",
            ylabel="AUPR",
            title=f"{family}: {drug_target.FAMILIES[family]}",
        )
        panel.legend(frameon=False)


EXPERIMENT = Experiment(
    name="landmark-edges",
    title="How many landmark edges are enough",
    part=("family", "number"),
    key=("family", "number"),
    parts=parts,
    compute=compute,
    markdown=markdown,
    draw=draw,
)
