"""Kernels on rankings: features and Gram matrices of every kind of ranking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.measure import alternate, table
from relpref.kernels import cut_features, item_graph, kendall_kernel, mallows_kernel

TITLE = "Kernels on rankings"
NOTES = """\
Random rankings; the cut's graph is a squared exponential of eight attributes, for
100 items its heaviest tenth. "Ranked": 10 of 100 items, sampled until the standard error is 5 %
of a ranking's features. Conserva et al. (2022), who publish the cut kernel, took 2.5 s for the
first row with their code on one core of such a machine, 0.33 s for each full ranking of 100
items and 4.2 hours for the sampled row at an error of 15 %; Kendall's kernel by enumeration of
linear extensions took 133 hours for 2500 rankings with ties."""


@dataclass(frozen=True)
class Problem:
    """Random rankings: of 10 items and of 100, full, with ties, and 10 of 100."""

    ten: Any
    top: Any
    hundred: Any
    tied: Any
    ranked: Any
    graph: Any
    large_graph: Any


def make(seed: int) -> Problem:
    rng = np.random.default_rng(seed)

    def full(m: int, n: int) -> Any:
        return np.argsort(rng.random((m, n)), axis=1).astype(np.int32)

    ten, hundred = full(5000, 10), full(2500, 100)
    tied = np.stack(
        [np.unique(row, return_inverse=True)[1] for row in rng.integers(0, 20, (2500, 100))]
    )
    return Problem(
        ten,
        np.minimum(ten, 3),
        hundred,
        tied.astype(np.int32),
        np.where(hundred < 10, hundred, -1),
        item_graph(rng.standard_normal((10, 8))),
        item_graph(rng.standard_normal((100, 8)), keep=0.1),
    )


CASES: dict[str, Callable[[Problem], Any]] = {
    "cut features, 5000 full of 10": lambda p: cut_features(p.ten, p.graph),
    "cut features, 5000 top-3 of 10": lambda p: cut_features(p.top, p.graph),
    "cut features, 1000 full of 100": lambda p: cut_features(p.hundred[:1000], p.large_graph),
    "cut features, 1000 of 100, 20 blocks": lambda p: cut_features(p.tied[:1000], p.large_graph),
    "cut features, 2500 ranked": lambda p: cut_features(p.ranked, p.large_graph, return_error=True),
    "Kendall, Gram of 5000 full of 10": lambda p: kendall_kernel(p.ten),
    "Kendall, Gram of 2500 of 100, 20 blocks": lambda p: kendall_kernel(p.tied),
    "Kendall, Gram of 2500 ranked": lambda p: kendall_kernel(p.ranked),
    "Mallows, Gram of 2500 top-3 of 10": lambda p: mallows_kernel(p.top[:2500], concentration=0.05),
    "Mallows, Gram of 2500 full of 100": lambda p: mallows_kernel(p.hundred, concentration=4e-4),
    "Mallows, Gram of 2500 of 100, 20 blocks": lambda p: mallows_kernel(p.tied, concentration=4e-4),
}


def run(repeats: int) -> str:
    """Time all of them and write the table."""
    timings, answers = alternate(CASES, [make(seed) for seed in range(3)], None, repeats)
    first = table(
        ("", "first call, s", "then, s", "range", "CPU, s"),
        [[name, *timing.row()] for name, timing in timings.items()],
    )
    values, error = answers["cut features, 2500 ranked"]
    reported = np.linalg.norm(error, axis=1) / np.linalg.norm(values, axis=1)
    sampled = (
        "Reported relative standard error of the sampled features: median "
        f"{np.median(reported):.1%}, largest {reported.max():.1%}."
    )
    return f"{first}\n\n{sampled}"
