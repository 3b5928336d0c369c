"""Two types of eaters told apart by how they rank eight dishes (Conserva et al. 2022, section 4.2
and Fig. 4).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.measure import table
from benchmarks.reproduce.classifiers.ranking_kernels import CONSTANT, NAMES, SCORES, judged, spread
from benchmarks.reproduce.experiment import Experiment, Part
from benchmarks.reproduce.rows import Row
from relpref import Rankings
from relpref.data_loaders import rank_dishes

# Standard deviations of the noise, as in the code that the authors published.
NOISE = tuple(np.round(np.linspace(0.1, 3, 15), 2).tolist())
SHOWN = (0.1, 0.51, 0.93, 1.34, 1.96, 3.0)
SEEDS = range(6)
BLOCKS, KEPT = 5, 4
LANDMARKS = 100

Censor = Callable[[Rankings, int], Rankings]
KINDS: dict[str, tuple[int, Censor]] = {
    "full": (250, lambda full, seed: full),
    "top-6": (250, lambda full, seed: full.top(6)),
    "top-3": (250, lambda full, seed: full.top(3)),
    "exhaustive interleaving": (100, lambda full, seed: full.coarsened(BLOCKS, seed)),
    "interleaving": (250, lambda full, seed: full.subset(KEPT, seed)),
}


def compute(part: Part, quick: bool) -> list[Row]:
    """All kernels at all noise levels, for one kind of ranking and one seed."""
    kind, seed = str(part[0]), int(part[1])
    number, censor = KINDS[kind]
    rows = []
    for at, noise in enumerate(NOISE[::7] if quick else NOISE):
        drawn = censor(rank_dishes(number, noise, seed=(2022, seed, at)), seed)
        rows += [{"noise": noise} | row for row in judged(drawn, seed, LANDMARKS)]
    return rows


def markdown(rows: pd.DataFrame) -> str:
    """Accuracy at some noise levels, everything at the middle one, and the log loss over all."""
    shown = [noise for noise in SHOWN if noise in set(rows["noise"])]
    lines, middle = [], shown[len(shown) // 2]
    for kind, kernel in itertools.product(KINDS, (*NAMES, CONSTANT)):
        mine = rows[(rows["kind"] == kind) & (rows["kernel"] == kernel)]
        if len(mine):
            at = {noise: mine[mine["noise"] == noise] for noise in shown}
            accuracies = [f"{at[noise]['accuracy'].mean():.2f}" for noise in shown]
            scores = [spread(at[middle][score]) for score in SCORES[1:]]
            lines.append([kind, kernel, *accuracies, *scores, f"{mine['log_loss'].mean():.3f}"])
    header = [f"accuracy, σ = {noise:g}" for noise in shown] + [
        f"{score} at {middle:g}" for score in SCORES[1:]
    ]
    header.append("log_loss, mean over σ")
    return table(["ranking", "kernel", *header], lines)


def draw(rows: pd.DataFrame, figure: Any) -> None:
    """F1, the paper's measure, and log loss over the noise; a column for each kind of ranking,
    bands of one standard error.
    """
    panels = figure.subplots(2, len(KINDS), sharex=True, sharey="row")
    for column, kind in enumerate(KINDS):
        for row, score in enumerate(("f1", "log_loss")):
            for at, kernel in enumerate((*NAMES, CONSTANT)):
                mine = rows[(rows["kind"] == kind) & (rows["kernel"] == kernel)].groupby("noise")[
                    score
                ]
                mean, error = mine.mean(), mine.sem()
                colour = "black" if kernel == CONSTANT else f"C{at}"
                panels[row, column].plot(mean.index, mean, label=kernel, color=colour, linewidth=1)
                panels[row, column].fill_between(
                    mean.index, mean - error, mean + error, color=colour, alpha=0.2, linewidth=0
                )
        panels[0, column].set_title(kind, fontsize=9)
        panels[1, column].set_xlabel("noise σ")
    panels[0, 0].set_ylabel("F1")
    panels[1, 0].set_ylabel("log loss")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)


def parts(quick: bool) -> list[Part]:
    return [*itertools.product(KINDS, SEEDS[:1] if quick else SEEDS)]


EXPERIMENT = Experiment(
    name="dishes",
    title="Synthetic dishes",
    part=("kind", "seed"),
    key=("kind", "seed", "noise", "kernel"),
    parts=parts,
    compute=compute,
    markdown=markdown,
    draw=draw,
    size=(10, 4.6),
)
