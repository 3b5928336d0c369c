"""Training time over the number of nodes: closed form, ranking SVM, and RLScore where it is
installed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.svm import LinearSVC

from benchmarks.measure import note, table
from benchmarks.reproduce.experiment import Experiment, Part
from benchmarks.reproduce.rows import Row
from relpref.rls import ConditionalRanker

Array = NDArray[np.float64]

FEATURES = 8  # of a node, so that an edge has 64 products
NOISE = 0.5
SIZES = (25, 50, 100, 200, 500, 1000, 2000)
QUICK_SIZES = SIZES[:3]
# Pairs of edges grow with the cube of the nodes: 500,000 at 100, 4 million (and 2 GB) at 200.
LARGEST = {"ranking SVM": 100}
REPEATS = 3


def relation(size: int) -> tuple[Array, Array]:
    """Nodes and a relation that a linear kernel can represent, with noise."""
    rng = np.random.default_rng(size)
    nodes = rng.standard_normal((size, FEATURES))
    bilinear = nodes @ rng.standard_normal((FEATURES, FEATURES)) @ nodes.T / FEATURES
    return nodes, bilinear + NOISE * rng.standard_normal((size, size))


def _closed(loss: str) -> Callable[[Array, Array], Any]:
    ranker = ConditionalRanker(kernel="linear", standardize=False, loss=loss, regularization=1.0)
    return lambda nodes, labels: clone(ranker).fit(nodes, labels)


def _svm(nodes: Array, labels: Array) -> Any:
    """On the differences of all pairs of edges of a node: a squared hinge, which trains fastest."""
    products = (nodes[:, None, :, None] * nodes[None, :, None, :]).reshape(*labels.shape, -1)
    better, worse = np.triu_indices(len(nodes), 1)
    gaps = (products[:, better] - products[:, worse]).reshape(-1, products.shape[-1])
    sign = np.where(labels[:, better] > labels[:, worse], 1.0, -1.0).ravel()
    return LinearSVC(fit_intercept=False, dual=False, random_state=0).fit(gaps, sign)


def _rlscore_kernels(nodes: Array, labels: Array) -> Any:
    from rlscore.learner import KronRLS

    kernel = nodes @ nodes.T
    return KronRLS(K1=kernel, K2=kernel, Y=labels, regparam=1.0)


def _rlscore_features(nodes: Array, labels: Array) -> Any:
    """With few features of nodes it decomposes those, not the kernel matrix."""
    from rlscore.learner import KronRLS

    return KronRLS(X1=nodes, X2=nodes, Y=labels, regparam=1.0)


def methods() -> dict[str, Callable[[Array, Array], Any]]:
    """What can be trained here."""
    found: dict[str, Callable[[Array, Array], Any]] = {
        "regression, closed form": _closed("regression"),
        "ranking, closed form": _closed("ranking"),
        "ranking SVM": _svm,
    }
    try:
        import rlscore.learner  # noqa: F401
    except ImportError:
        note("RLScore is not installed; its column is left out")
    else:
        found["RLScore, regression, kernel matrices"] = _rlscore_kernels
        found["RLScore, regression, eight features"] = _rlscore_features
    return found


def compute(part: Part, quick: bool) -> list[Row]:
    """The shortest of a few trainings of every method."""
    size = int(part[0])
    nodes, labels = relation(size)
    rows: list[Row] = []
    for name, train in methods().items():
        if size > LARGEST.get(name, size):
            continue
        seconds = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            train(nodes, labels)
            seconds.append(time.perf_counter() - start)
        rows.append({"method": name, "seconds": min(seconds)})
        note(f"{name}, {size} nodes: {min(seconds):.3g} s")
    return rows


def markdown(rows: pd.DataFrame) -> str:
    """Seconds by method and size."""
    seconds = rows.pivot(index="size", columns="method", values="seconds")
    lines = [
        [f"{size:,}", f"{size * size:,}".replace(",", " ")]
        + ["" if np.isnan(value) else f"{value:.3g}" for value in seconds.loc[size]]
        for size in seconds.index
    ]
    return table(["nodes", "edges", *(f"{name}, s" for name in seconds)], lines)


def draw(rows: pd.DataFrame, figure: Any) -> None:
    """Seconds over nodes, both logarithmic."""
    panel = figure.subplots()
    for name, group in rows.groupby("method"):
        group = group.sort_values("size")
        panel.plot(group["size"], group["seconds"], marker="o", markersize=3, label=name)
    panel.set(
        xscale="log",
        yscale="log",
        xlabel="nodes (edges are their square)",
        ylabel="seconds to train",
    )
    figure.legend(*panel.get_legend_handles_labels(), loc="outside right upper", frameon=False)


EXPERIMENT = Experiment(
    name="scaling",
    title="Training time over the number of nodes",
    part=("size",),
    key=("size", "method"),
    parts=lambda quick: [(size,) for size in (QUICK_SIZES if quick else SIZES)],
    compute=compute,
    markdown=markdown,
    draw=draw,
)
