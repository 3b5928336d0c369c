"""What the cases share: make the contestants that are installed, time them, write the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from benchmarks.measure import alternate, table
from benchmarks.peers import Contestant
from benchmarks.problems import make

C = TypeVar("C")


def installed(makers: Mapping[str, Callable[[], C]]) -> tuple[dict[str, C], list[str]]:
    """Make each contestant; for those that cannot be imported, a line that says so."""
    found: dict[str, C] = {}
    missing = []
    for name, maker in makers.items():
        try:
            found[name] = maker()
        except ImportError as error:
            missing.append(f"Skipped: {name} ({error}).")
    return found, missing


def compare(
    makers: Mapping[str, Callable[[], Contestant]], items: int, comparisons: int, repeats: int
) -> str:
    """Time the contestants on problems of one shape, and on one of another shape."""
    contestants, missing = installed(makers)
    problems = [make(items, comparisons, seed) for seed in range(repeats + 1)]
    timings, answers = alternate(
        contestants, problems, make(items, comparisons + 1, repeats + 1), repeats
    )
    header = [
        "",
        "first call, s",
        "then, median s",
        "range (calls)",
        "CPU s",
        "other size, s",
        "correlation",
    ]
    rows = []
    for name, timing in timings.items():
        agreement = np.corrcoef(answers[name].mean, problems[0].utilities)[0, 1]
        rows.append([name, *timing.row(), f"{timing.resized:.3g}", f"{agreement:.3f}"])
    return "\n\n".join([table(header, rows), *missing])
