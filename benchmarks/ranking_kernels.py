"""Kernels on rankings: features and Gram matrices of every kind of ranking; ``python -m
benchmarks.ranking_kernels FILE.svg`` draws.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.measure import alternate, note, table
from relpref.data_loaders import rank_dishes
from relpref.kernels import cut_features, cut_kernel, item_graph, kendall_kernel, mallows_kernel

TITLE = "Kernels on rankings"
NOTES = """\
First table: random rankings; the cut's graph is a squared exponential of eight attributes, for
100 items its heaviest tenth. "Ranked": 10 of 100 items, sampled until the standard error is 5 %
of a ranking's features. Conserva et al. (2022), who publish the cut kernel, took 2.5 s for the
first row with their code on one core of such a machine, 0.33 s for each full ranking of 100
items and 4.2 hours for the sampled row at an error of 15 %; Kendall's kernel by enumeration of
linear extensions took 133 hours for 2500 rankings with ties.

Second table: seconds for a Gram matrix of rankings of the eight synthetic dishes, as in their
Figure 6, compilation not included. Sampled Mallows kernels (32 extensions of each ranking) are
left out where they would take minutes."""

SIZES = (100, 250, 500, 1000, 2500, 5000)
KINDS = ("full", "top-3", "exhaustive (4 blocks)", "non-exhaustive (4 of 8)")
MOST_SAMPLED = 250


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
    """Time all of them and write the tables."""
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
    header = ("kind", "kernel", *map(str, SIZES))
    rows = [
        [kind, kernel, *(f"{seconds:.3g}" if seconds is not None else "-" for seconds in line)]
        for (kind, kernel), line in scaling().items()
    ]
    return f"{first}\n\n{sampled}\n\n{table(header, rows)}"


def scaling() -> dict[tuple[str, str], list[float | None]]:
    """Seconds of the second of two Gram matrices, by kind and kernel, for each of the sizes."""
    everything = rank_dishes(max(SIZES), noise=1.0, seed=0)
    graph = item_graph(everything.items.attributes)
    strength = 4.0 / (8 * 7)
    kernels: dict[str, Callable[[Any], Any]] = {
        "cut": lambda rankings: cut_kernel(rankings, graph=graph),
        "Kendall": kendall_kernel,
        "Mallows": lambda rankings: mallows_kernel(rankings, concentration=strength),
    }
    kinds = dict(
        zip(
            KINDS,
            (everything, everything.top(3), everything.coarsened(4, 0), everything.subset(4, 0)),
            strict=True,
        )
    )
    result: dict[tuple[str, str], list[float | None]] = {}
    for kind, rankings in kinds.items():
        for name, kernel in kernels.items():
            line: list[float | None] = []
            for size in SIZES:
                too_many = name == "Mallows" and "non-" in kind and size > MOST_SAMPLED
                line.append(None if too_many else seconds(kernel, rankings[:size]))
            result[kind, name] = line
            note(f"{kind}, {name}: {line}")
    return result


def seconds(kernel: Callable[[Any], Any], rankings: Any) -> float:
    kernel(rankings)
    start = time.perf_counter()
    kernel(rankings)
    return time.perf_counter() - start


def draw(path: str) -> None:
    """Seconds against the number of rankings, a panel for each kind."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context({"svg.hashsalt": "ranking kernels", "font.size": 9}):
        figure, panels = pyplot.subplots(1, 4, figsize=(9, 2.6), sharey=True, layout="constrained")
        for (kind, kernel), line in scaling().items():
            panel = panels[KINDS.index(kind)]
            panel.loglog(
                SIZES, [np.nan if s is None else s for s in line], marker=".", label=kernel
            )
            panel.set_title(kind, fontsize=9)
            panel.set_xlabel("rankings")
        panels[0].set_ylabel("seconds, Gram matrix")
        panels[0].legend()
        figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)


if __name__ == "__main__":
    draw(sys.argv[1])
