"""Time of a Gram matrix by the number of rankings and by how much of them is known (Conserva et al.
2022, Fig. 6), and of kernels that enumerate linear extensions.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.measure import table
from benchmarks.reproduce.experiment import Experiment, Part
from benchmarks.reproduce.rows import Row
from relpref import Rankings
from relpref.data_loaders import rank_dishes
from relpref.kernels import cut_kernel, item_graph, kendall_kernel, mallows_kernel

LIMIT = 10.0  # CPU seconds, where a series ends
TRIALS = 3
NUMBER = 250  # of rankings where they are censored more and more
PAPER = 6.31 + 0.576  # seconds for 5000 rankings: features, and their products on a GPU
DISHES, PAIRS = 8, 28

SIZES = (100, 250, 500, 1000, 2500, 5000)
FEWER = range(DISHES - 1, 0, -1)
# The values along each panel's axis, from cheap to expensive, and the rankings there.
PANELS: dict[str, tuple[Sequence[int], Callable[[Rankings, int], Rankings]]] = {
    "full": (SIZES, lambda full, size: full[:size]),
    "top-3": (SIZES, lambda full, size: full[:size].top(3)),
    "4 blocks": (SIZES, lambda full, size: full[:size].coarsened(4, 0)),
    "4 of 8 dishes": (SIZES, lambda full, size: full[:size].subset(4, 0)),
    "k of top-k": (FEWER, lambda full, k: full[:NUMBER].top(k)),
    "blocks": (FEWER, lambda full, blocks: full[:NUMBER].coarsened(blocks, 0)),
    "ranked dishes": (FEWER, lambda full, length: full[:NUMBER].subset(length, 0)),
}
QUICK = ("full", "k of top-k")


def signs(positions: Any) -> Any:
    """1 where the first of a pair of items is preferred, -1 the second, 0 where it is open."""
    first, second = np.triu_indices(DISHES, 1)
    ranked = (positions[:, first] >= 0) & (positions[:, second] >= 0)
    return np.sign(positions[:, second] - positions[:, first]).astype(np.float32) * ranked


def enumerated(rankings: Rankings, of_share: Callable[[Any], Any] = np.asarray) -> Any:
    """Gram matrix of means over all pairs of linear extensions of two rankings.

    ``of_share`` goes from the Kendall kernel of full rankings to another.
    """
    end = time.process_time() + LIMIT
    every = signs(np.array([*itertools.permutations(range(DISHES))]))
    extensions = [every[every @ row == np.abs(row).sum()] for row in signs(rankings.positions)]
    gram = np.empty((len(rankings), len(rankings)))
    for i, j in itertools.combinations_with_replacement(range(len(rankings)), 2):
        if time.process_time() > end:
            raise TimeoutError
        share = extensions[i] @ extensions[j].T / PAIRS
        gram[i, j] = gram[j, i] = of_share(share).mean()
    return gram


ENUMERATED: dict[str, Callable[[Rankings], Any]] = {
    "Kendall, enumerated": enumerated,
    "Mallows, enumerated": lambda rankings: enumerated(
        rankings,
        lambda share: np.exp(share - 1),  # PAIRS (1 - share)/2 pairs are discordant
    ),
}
KERNELS = {
    "cut": lambda rankings: cut_kernel(rankings, graph=item_graph(rankings.items.attributes)),
    "Kendall": kendall_kernel,
    "Mallows": lambda rankings: mallows_kernel(rankings, concentration=2 / PAIRS),
} | ENUMERATED


def cpu_seconds(kernel: Callable[[Rankings], Any], rankings: Rankings) -> float:
    """Mean of some trials after a first call, which compiles; NaN above the limit."""
    times: list[float] = []
    for _ in range(TRIALS + 1):
        start = time.process_time()
        try:
            kernel(rankings)
        except TimeoutError:
            return np.nan
        times.append(time.process_time() - start)
        if times[-1] > LIMIT:
            return np.nan
    return float(np.mean(times[1:]))


def compute(part: Part, quick: bool) -> list[Row]:
    """A row for each value along the axis of a panel."""
    values, censor = PANELS[str(part[0])]
    full, seconds = rank_dishes(max(SIZES), noise=1.0), 0.0
    rows = []
    for value in values[:2] if quick else values:
        if not np.isnan(seconds):
            seconds = cpu_seconds(KERNELS[str(part[1])], censor(full, value))
        rows.append({"value": value, "seconds": seconds})
    return rows


def markdown(rows: pd.DataFrame) -> str:
    """A table for each axis; NA after the limit."""
    texts = []
    for panel in PANELS:
        mine = rows[rows["panel"] == panel].pivot(index="kernel", columns="value", values="seconds")
        lines = [
            [name, *("NA" if np.isnan(cell) else f"{cell:.2g}" for cell in mine.loc[name])]
            for name in KERNELS
            if name in mine.index
        ]
        texts.append(table([panel, *map(str, mine.columns)], lines))
    return "\n\n".join(texts)


def draw(rows: pd.DataFrame, figure: Any) -> None:
    """Above the number of rankings, below the censoring; dashed what enumerates, and a cross for
    the paper.
    """
    panels = figure.subplots(2, 4, sharey=True)
    for panel, name in zip(panels.flat, PANELS, strict=False):
        for at, kernel in enumerate(KERNELS):
            mine = rows[(rows["panel"] == name) & (rows["kernel"] == kernel)].sort_values("value")
            style = f"C{at}.-" if kernel not in ENUMERATED else f"C{at - 2}--"
            panel.plot(mine["value"], mine["seconds"], style, label=kernel)
        sizes = PANELS[name][0] is SIZES
        panel.set(yscale="log", xlabel="rankings" if sizes else name)
        if sizes:
            panel.set(xscale="log", title=name)
        panel.minorticks_off()
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_formatter("{x:g}")
    panels[0, 0].plot(max(SIZES), PAPER, "kx")
    for panel in panels[:, 0]:
        panel.set_ylabel("CPU seconds")
    panels[1, 3].axis("off")
    panels[1, 3].legend(*panels[0, 1].get_legend_handles_labels(), frameon=False)


def parts(quick: bool) -> list[Part]:
    """Panels and kernels; a full ranking is its only linear extension."""
    return [
        (panel, kernel)
        for panel, kernel in itertools.product(PANELS, KERNELS)
        if not (quick and panel not in QUICK or panel == "full" and kernel in ENUMERATED)
    ]


EXPERIMENT = Experiment(
    name="gram-times",
    title="Times of Gram matrices",
    part=("panel", "kernel"),
    key=("panel", "kernel", "value"),
    parts=parts,
    compute=compute,
    markdown=markdown,
    draw=draw,
    size=(9, 4.2),
)
