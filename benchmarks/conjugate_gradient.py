"""Conjugate gradients on edges: what an iteration costs beside the two dense products of node
kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measure import alternate, median, table
from relpref.infer.exact import solve_edges
from relpref.kernels import EdgeGram, Kronecker, PairwiseKernel, Side, Symmetric

TITLE = "Conjugate gradients: time of an iteration"
NOTES = """\
A complete relation of 500 nodes (250,000 edges), and 2 % of the 4 million pairs of 2000 nodes.
Beside it the least that dense algebra needs, the products K V K alone. Ten iterations in a call;
the ratio is of the medians."""
ITERATIONS = 10
CASES = (("500 nodes, all edges", 500, 1.0), ("2000 nodes, 2 % of the edges", 2000, 0.02))


@dataclass(frozen=True)
class Problem:
    """Nodes, some edges and labels of noise."""

    gram: Any
    rows: Any
    columns: Any
    labels: Any


def make(nodes: int, share: float, seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((nodes, 5))
    squared = np.sum(features**2, axis=1)
    gram = np.exp(-0.2 * np.maximum(squared[:, None] + squared - 2.0 * features @ features.T, 0.0))
    count = round(share * nodes**2)
    edges = (
        np.arange(count)
        if count == nodes**2
        else np.sort(rng.choice(nodes**2, count, replace=False, shuffle=False))
    )
    rows, columns = np.divmod(edges, nodes)
    return Problem(gram, rows, columns, rng.standard_normal(count))


def products(problem: Problem) -> Any:
    """What a dense method computes in each iteration, and nothing else."""
    dual = np.zeros(problem.gram.shape)
    dual[problem.rows, problem.columns] = problem.labels
    for _ in range(ITERATIONS):
        scores = problem.gram @ dual @ problem.gram
    return scores


def iterations(problem: Problem, kernel: PairwiseKernel, ranking: bool) -> Any:
    side = Side.training(problem.gram)
    gram = EdgeGram(kernel, side, side, problem.rows, problem.columns)
    groups = problem.rows if ranking else None
    found = solve_edges(
        gram, problem.labels, 1.0, groups=groups, tol=0.0, max_iterations=ITERATIONS
    )
    assert found.iterations == ITERATIONS
    return found.solution


def run(repeats: int) -> str:
    contestants: dict[str, Callable[[Problem], Any]] = {
        "two dense products": products,
        "Kronecker, regression": partial(iterations, kernel=Kronecker(), ranking=False),
        "Kronecker, ranking": partial(iterations, kernel=Kronecker(), ranking=True),
        "symmetric, ranking": partial(iterations, kernel=Symmetric(), ranking=True),
    }
    rows = []
    for name, nodes, share in CASES:
        problems = [make(nodes, share, seed) for seed in range(min(repeats, 2) + 1)]
        timings, _ = alternate(contestants, problems, None, repeats)
        base = median(timings["two dense products"].warm)
        for contestant, timing in timings.items():
            each = median(timing.warm)
            span = (
                f"{1e3 * min(timing.warm) / ITERATIONS:.3g} to "
                f"{1e3 * max(timing.warm) / ITERATIONS:.3g}"
            )
            row = [name, contestant, f"{1e3 * each / ITERATIONS:.3g}", span, f"{each / base:.2f}"]
            rows.append(row)
    return table(["edges", "", "median ms", "range, ms", "ratio"], rows)
