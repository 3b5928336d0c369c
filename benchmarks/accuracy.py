"""Accuracy on the problems with known answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from benchmarks import ours, peers
from benchmarks.cases import installed
from benchmarks.measure import table
from benchmarks.problems import Answer, Gold, read_gold

TITLE = "Accuracy against importance sampling (400,000 draws)"
NOTES = """\
Largest error of a mean, in posterior sd; range of the ratio of sds; largest error of a predicted
probability; error of the log evidence in nats; seconds, compilation included. The prior
covariance is given. The errors of NUTS are those of so many draws: one of its means is known to
about 0.02 posterior sd."""


def run(folder: Path) -> str:
    makers: Mapping[str, Callable[[], Callable[[Gold], Answer]]] = {
        "relpref EP": lambda: ours.gold("EP"),
        "relpref Laplace": lambda: ours.gold("Laplace"),
        "numpyro NUTS, 4000 draws": ours.gold_nuts,
        "BoTorch PairwiseGP, Laplace": peers.botorch_gold,
    }
    contestants, missing = installed(makers)
    problems = read_gold(folder)
    if not problems:
        missing.append(f"Skipped: no ep_*.npz in {folder} (name the folder with --gold).")
    header = ["problem", "", "mean", "sd ratio", "probability", "log evidence", "s"]
    rows = []
    for gold in problems:
        for name, contestant in contestants.items():
            start = time.perf_counter()
            answer = contestant(gold)
            rows.append(
                [gold.name, name, *_errors(gold, answer), f"{time.perf_counter() - start:.2g}"]
            )
    return "\n\n".join([table(header, rows), *missing])


def _errors(gold: Gold, answer: Answer) -> list[str]:
    mean = np.abs((answer.mean - gold.mean) / gold.sd).max()
    ratio = answer.sd / gold.sd
    cells = [f"{mean:.3f}", f"{ratio.min():.3f} to {ratio.max():.3f}"]
    if answer.probability is None:
        cells.append("-")
    else:
        cells.append(f"{np.abs(answer.probability - gold.probability).max():.4f}")
    cells.append(
        "-" if answer.log_evidence is None else f"{answer.log_evidence - gold.log_evidence:+.3f}"
    )
    return cells
