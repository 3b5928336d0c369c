"""Log evidence while classifiers of sushi rankings are trained, and F1 of the same runs (Conserva
et al. 2022, Fig. 5).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from benchmarks.measure import table
from benchmarks.reproduce.classifiers import sushi
from benchmarks.reproduce.classifiers.ranking_kernels import CONSTANT, NAMES, spread
from benchmarks.reproduce.experiment import Experiment, Part
from benchmarks.reproduce.rows import Row
from relpref.classifiers.base import ENGINES
from relpref.infer import EP

# Numbers of rankings: of the large set fewer, because its kernels are sampled.
SETTINGS = {"small, full": 2500, "small, top-6": 2500, "large, interleaving": 1000}
KERNELS = NAMES[:3]  # the paper's
TICKS = (1, 2, 5, 10, 20)


@dataclass(eq=False, repr=False)
class Recorded(EP):
    """EP whose posterior has the log evidence of the search's evaluations in ``info``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.history: list[float] = []

    def evaluate(self, *args: Any, **keywords: Any) -> Any:
        evidence = EP.evaluate(*args, **keywords)
        self.history.append(float(evidence.log_evidence))
        return evidence

    def run(self, *args: Any, **keywords: Any) -> Any:
        posterior = super().run(*args, **keywords)
        # The evaluations after the search average over hyperparameters.
        history = self.history[: posterior.info["evaluations"]]
        return replace(posterior, info={**posterior.info, "history": history})


ENGINES["recorded"] = Recorded


def compute(part: Part, quick: bool) -> list[Row]:
    """A row for each evaluation of each kernel; the constant classifier has one."""
    number = sushi.QUICK_NUMBER if quick else SETTINGS[str(part[0])]
    return [
        {name: row[name] for name in ("kernel", "f1")} | {"evaluation": at, "log_evidence": value}
        for row in sushi.runs(part, number, engine="recorded", names=KERNELS)
        for at, value in enumerate(row.get("log_evidence", [None]), 1)
    ]


def markdown(rows: pd.DataFrame) -> str:
    """Evidence at the start and the end, and F1, mean and standard error over the seeds."""
    lines = []
    for setting, kernel in itertools.product(SETTINGS, (*KERNELS, CONSTANT)):
        runs = rows[(rows["setting"] == setting) & (rows["kernel"] == kernel)].groupby("seed")
        if len(runs):
            ends = (runs["log_evidence"].nth(at).mean() for at in (0, -1))
            lines.append(
                [
                    setting,
                    kernel,
                    f"{runs.size().median():.0f}",
                    *(f"{end:.1f}" for end in ends),
                    spread(runs["f1"].first()),
                ]
            )
    return table(["rankings", "kernel", "evaluations", "first", "last", "F1"], lines)


def draw(rows: pd.DataFrame, figure: Any) -> None:
    """Above the log evidence, a line for each seed; below F1, dashed for the constant answer."""
    panels = figure.subplots(2, len(SETTINGS))
    for (above, below), setting in zip(panels.T, SETTINGS, strict=True):
        for at, kernel in enumerate((*KERNELS, CONSTANT)):
            runs = rows[(rows["setting"] == setting) & (rows["kernel"] == kernel)].groupby("seed")
            scores = runs["f1"].first()
            if kernel == CONSTANT:
                below.axhline(scores.mean(), color="black", linewidth=0.8, linestyle="--")
                continue
            for _, run in runs:
                above.semilogx(run["evaluation"], run["log_evidence"], f"C{at}", linewidth=0.8)
            below.violinplot(scores, [at], showextrema=False, showmeans=True, points=12)
        above.set(title=setting, xlabel="evaluations")
        above.set_xticks(TICKS, TICKS)
        above.minorticks_off()
        below.set_xticks(range(len(KERNELS)), KERNELS)
    panels[0, 0].set_ylabel("log evidence")
    panels[1, 0].set_ylabel("F1")


def parts(quick: bool) -> list[Part]:
    return [*itertools.product(SETTINGS, sushi.SEEDS[:1] if quick else sushi.SEEDS)]


EXPERIMENT = Experiment(
    name="sushi-training",
    title="Sushi, training",
    part=("setting", "seed"),
    key=("setting", "seed", "kernel", "evaluation"),
    parts=parts,
    compute=compute,
    markdown=markdown,
    draw=draw,
    size=(8, 4.2),
)
