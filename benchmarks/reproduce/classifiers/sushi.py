"""East and west of Japan told apart by how people rank sushi (Conserva et al. 2022, section 4.2 and
Fig. 5).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pandas as pd

from benchmarks.measure import note, table
from benchmarks.reproduce.classifiers.ranking_kernels import CONSTANT, NAMES, SCORES, judged, spread
from benchmarks.reproduce.experiment import Experiment, Part
from benchmarks.reproduce.rows import Row
from relpref import Rankings
from relpref.data_loaders import sushi

NUMBER, QUICK_NUMBER = 2500, 400
SEEDS = range(6)
KEPT = 4
# Of the 4950 edges between 100 sushis the paper keeps the heaviest tenth.
HEAVIEST = 0.1
LANDMARKS = {"a": 300, "b": 50}

Home = Literal["west_before_15", "west"]

# Set, where the class is taken from, and what is left of the rankings.
SETTINGS: dict[str, tuple[Literal["a", "b"], Home, Callable[[Rankings, int], Rankings]]] = {
    "small, full": ("a", "west_before_15", lambda rankings, seed: rankings),
    "small, full, present home": ("a", "west", lambda rankings, seed: rankings),
    "small, top-6": ("a", "west_before_15", lambda rankings, seed: rankings.top(6)),
    "small, top-3": ("a", "west_before_15", lambda rankings, seed: rankings.top(3)),
    "small, interleaving": (
        "a",
        "west_before_15",
        lambda rankings, seed: rankings.subset(KEPT, seed),
    ),
    "large, interleaving": ("b", "west_before_15", lambda rankings, seed: rankings),
}


def balanced(rankings: Rankings, number: int, seed: int) -> Rankings:
    """Equally many rankings of every class, drawn without replacement."""
    rng = np.random.default_rng((2022, seed))
    each = number // len(rankings.classes)
    of = [np.flatnonzero(rankings.label == code) for code in range(len(rankings.classes))]
    return rankings[np.sort(np.concatenate([rng.choice(rows, each, replace=False) for rows in of]))]


def compute(part: Part, quick: bool) -> list[Row]:
    """All kernels, for one setting and one seed."""
    return runs(part, QUICK_NUMBER if quick else NUMBER)


def runs(part: Part, number: int, **options: Any) -> list[Row]:
    """The same with a number of rankings and options of `judged`."""
    setting, seed = str(part[0]), int(part[1])
    which, home, censor = SETTINGS[setting]
    known = sushi.load(which)
    rankings = known.rankings.with_labels(np.where(known.users[home] == 1, "west", "east"))
    drawn = balanced(rankings, number, seed)
    keep = HEAVIEST if which == "b" else None
    rows = judged(censor(drawn, seed), seed, LANDMARKS[which], keep, **options)
    for row in rows:
        note(
            f"{setting}, seed {seed}, {row['kernel']}: accuracy {row['accuracy']:.3f}, log loss "
            f"{row['log_loss']:.4f}"
        )
    return rows


def markdown(rows: pd.DataFrame) -> str:
    """Every score, mean and standard error over the seeds."""
    lines = []
    for setting, kernel in itertools.product(SETTINGS, (*NAMES, CONSTANT)):
        mine = rows[(rows["setting"] == setting) & (rows["kernel"] == kernel)]
        if len(mine):
            seconds = "" if kernel == CONSTANT else f"{mine['seconds'].median():.2g}"
            lines.append([setting, kernel, *(spread(mine[score]) for score in SCORES), seconds])
    return table(["rankings", "kernel", *SCORES, "seconds"], lines)


def draw(rows: pd.DataFrame, figure: Any) -> None:
    """F1, the paper's measure, and log loss of every seed; lines at what the constant answers
    have.
    """
    panels = figure.subplots(2, len(SETTINGS), sharex=True, sharey="row")
    for column, setting in enumerate(SETTINGS):
        of = rows[rows["setting"] == setting]
        for row, score in enumerate(("f1", "log_loss")):
            panel = panels[row, column]
            for at, kernel in enumerate(NAMES):
                values = of.loc[of["kernel"] == kernel, score]
                panel.plot(np.full(len(values), at), values, "o", markersize=3, color=f"C{at}")
                panel.plot([at - 0.25, at + 0.25], [values.mean()] * 2, color=f"C{at}")
            panel.axhline(
                of.loc[of["kernel"] == CONSTANT, score].mean(),
                color="black",
                linewidth=0.8,
                linestyle="--",
            )
            panel.set(xticks=range(len(NAMES)), xlim=(-0.6, len(NAMES) - 0.4))
            panel.set_xticklabels(NAMES, fontsize=8)
        panels[0, column].set_title(setting, fontsize=9)
    panels[0, 0].set_ylabel("F1")
    panels[1, 0].set_ylabel("log loss")


def parts(quick: bool) -> list[Part]:
    return [*itertools.product(SETTINGS, SEEDS[:1] if quick else SEEDS)]


EXPERIMENT = Experiment(
    name="sushi",
    title="Sushi, east or west",
    part=("setting", "seed"),
    key=("setting", "seed", "kernel"),
    parts=parts,
    compute=compute,
    markdown=markdown,
    draw=draw,
    size=(11, 4.2),
)
