"""Every score on five simulators: how many answers each needs for the error that random questions
leave.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.measure import table
from benchmarks.reproduce.experiment import Experiment, Part
from benchmarks.reproduce.exploration.truths import TRUTHS
from benchmarks.reproduce.rows import Row
from benchmarks.simulation import answers_saved, learning_curves, simulate
from relpref.explore import SCORES

ANSWERS, SEEDS, BLOCK = 60, 50, 25
QUICK_ANSWERS, QUICK_SEEDS = 15, 3
BASELINE = "random"
MEASURES = ["error", "expected_error", "regret", "kendall", "top", "probability"]


def parts(quick: bool) -> list[Part]:
    """A block of seeds for a simulator and a score."""
    blocks = 1 if quick else SEEDS // BLOCK
    return [*itertools.product(TRUTHS, SCORES, range(blocks))]


def compute(part: Part, quick: bool) -> list[Row]:
    """Run the block."""
    simulator, score, block = str(part[0]), str(part[1]), int(part[2])
    first, last = (0, QUICK_SEEDS) if quick else (block * BLOCK, (block + 1) * BLOCK)
    answers = QUICK_ANSWERS if quick else ANSWERS
    rows = simulate(TRUTHS[simulator], [score], range(first, last), answers=answers)
    return rows.drop(columns="strategy").to_dict("records")


def markdown(rows: pd.DataFrame) -> str:
    """The error at the end, answers needed against random, and who needs fewest."""
    order = [name for name in SCORES if name in set(rows["strategy"])]
    simulators = [name for name in TRUTHS if name in set(rows["simulator"])]
    most = int(rows["answers"].max())
    ratios: dict[str, list[str]] = {name: [name] for name in order}
    errors: dict[str, list[str]] = {name: [name] for name in order}
    fewest = dict.fromkeys(order, 0)
    fewer = dict.fromkeys(order, 0)
    # By random questions, for the error that they end with: fewer than all where it stopped
    # falling.
    need = {}
    for simulator in simulators:
        mine = rows[rows["simulator"] == simulator]
        saved = {name: answers_saved(mine, name) for name in order}
        need[simulator] = saved[BASELINE].needed
        best = min((one.ratio for name, one in saved.items() if name != BASELINE), default=np.nan)
        last = mine[mine["answers"] == most].groupby("strategy")
        for name, one in saved.items():
            text = f"{_ratio(one.ratio)} ({_ratio(one.lower)} to {_ratio(one.upper)})"
            ratios[name].append(
                "1" if name == BASELINE else f"**{text}**" if one.ratio == best < np.inf else text
            )
            fewest[name] += name != BASELINE and one.ratio == best and np.isfinite(best)
            fewer[name] += one.upper < 1
            errors[name].append(
                " / ".join(f"{last[what].mean()[name]:.3f}" for what in MEASURES[:2])
            )
    for name in order:
        ratios[name] += ["", ""] if name == BASELINE else [f"{fewer[name]}", f"{fewest[name]}"]
    header = ["score", *simulators]
    flat = [f"{count:.0f} on {name}" for name, count in need.items() if count < most - 0.5]
    asked = (
        f"Answers needed for the error that random questions leave after {most}, as a share of "
        "those that random questions need for it, "
        f"{', '.join([str(most), *flat])} (> 1: it is not reached with {most}); bootstrap "
        "intervals of 95 % over paired seeds:"
    )
    wrong = (
        f"Share of pairs in the wrong order after {most} answers / what the posterior expects "
        "it to be:"
    )
    first = table([*header, "surely fewer than random", "fewest"], ratios.values())
    return "\n\n".join(
        [asked, first, wrong, table(header, errors.values()), _more(rows, order, most)]
    )


def _more(rows: pd.DataFrame, order: list[str], most: int) -> str:
    """The other measures, averaged over simulators."""
    last = rows[rows["answers"] == most].groupby("strategy")[["regret", "kendall", "top"]].mean()
    told = rows[rows["answers"] > 0].groupby("strategy")["probability"].mean()
    half = rows[rows["answers"] == most // 2].groupby("strategy")["error"].mean()
    lines = [
        [
            name,
            f"{half[name]:.3f}",
            *(f"{last.loc[name, what]:.3f}" for what in last.columns),
            f"{told[name]:.3f}",
        ]
        for name in order
    ]
    header = [
        "score",
        f"error after {most // 2}",
        f"regret after {most}",
        "Kendall's tau",
        "of the top tenth",
        "probability given to the answers",
    ]
    return (
        f"Averages over the simulators and {rows['seed'].nunique()} "
        f"seeds:\n\n{table(header, lines)}"
    )


def _ratio(value: float) -> str:
    return f"{value:.2f}" if np.isfinite(value) else "> 1"


def draw(rows: pd.DataFrame, figure: Any) -> None:
    """Mean error over the number of answers, one panel for each simulator; the band is the 95 %
    interval of random questions.
    """
    simulators = [name for name in TRUTHS if name in set(rows["simulator"])]
    panels = figure.subplots(1, len(simulators), sharex=True, squeeze=False)[0]
    for panel, simulator in zip(panels, simulators, strict=True):
        curves = learning_curves(rows[rows["simulator"] == simulator], resamples=500)
        for at, name in enumerate(one for one in SCORES if one in set(curves["strategy"])):
            mine = curves[curves["strategy"] == name]
            colour = "black" if name == BASELINE else f"C{at}"
            style = "--" if name == BASELINE else "-"
            panel.plot(
                mine["answers"], mine["mean"], style, color=colour, linewidth=1.1, label=name
            )
            if name == BASELINE:
                panel.fill_between(
                    mine["answers"], mine["lower"], mine["upper"], color="0.85", linewidth=0
                )
        panel.set(title=simulator, xlabel="answers", ylim=(0.1, 0.5))
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("pairs in the wrong order")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)


EXPERIMENT = Experiment(
    name="simulators",
    title="Five simulators",
    part=("simulator", "strategy", "block"),
    key=("simulator", "strategy", "block", "seed", "answers"),
    parts=parts,
    compute=compute,
    markdown=markdown,
    draw=draw,
    size=(11, 3.2),
)
