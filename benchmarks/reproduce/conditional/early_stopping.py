"""Conjugate gradients stopped early in place of a regularisation (Pahikkala et al. 2010, section 6.2 and Fig. 3, right)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.measure import note, table
from benchmarks.reproduce.conditional.experiment import Experiment, Part
from benchmarks.reproduce.conditional.newsgroups import Task
from benchmarks.reproduce.rows import Row
from relpref.data_loaders import newsgroups
from relpref.rls import ConditionalRanker, per_node, ranking_error

NODES, TEST_NODES = 1000, 500
ITERATIONS, EVERY = 200, 5
QUICK_NODES, QUICK_ITERATIONS = 200, 40
LOSSES, SYMMETRIES = ("regression", "ranking"), ("none", "symmetric")


def drawn(quick: bool) -> Task:
    """Messages of the same five groups: known ones and new ones."""
    nodes, new = (QUICK_NODES, QUICK_NODES // 2) if quick else (NODES, TEST_NODES)
    messages = newsgroups.load(newsgroups.SET_2)
    order = np.random.default_rng(2010).permutation(len(messages.texts))
    return Task.of(messages.take(order[:nodes]), messages.take(order[nodes : nodes + new]))


def compute(part: Part, quick: bool) -> list[Row]:
    """The error on new nodes along the iterations, without any regularisation."""
    loss, symmetry = map(str, part)
    task = drawn(quick)
    ranker = ConditionalRanker(kernel="precomputed", loss=loss, symmetry=symmetry, solver="cg")
    problem = ranker.problem(task.kernel, task.relation)
    asked = problem.nodes.ask(task.cross)
    rows: list[Row] = []

    def judge(iteration: int, dual: NDArray[np.float64], residual: float) -> bool:
        if iteration == 1 or iteration % EVERY == 0:
            scores = problem.kernel.scores(asked.side, asked.side, problem.dual_matrix(dual))
            error = per_node(ranking_error, task.judged, scores).mean
            rows.append({"iteration": iteration, "error": error, "residual": residual})
            note(f"{loss}, {symmetry}: iteration {iteration}, error {error:.4f}")
        return False

    limit = QUICK_ITERATIONS if quick else ITERATIONS
    problem.iterate(0.0, tol=1e-15, max_iterations=limit, callback=judge)
    return rows


def markdown(rows: pd.DataFrame) -> str:
    """The best error along the iterations and the last one."""
    lines = []
    for (loss, symmetry), group in rows.groupby(["loss", "symmetry"], sort=False):
        best = group.loc[group["error"].idxmin()]
        last = group.loc[group["iteration"].idxmax()]
        kernel = "symmetric" if symmetry == "symmetric" else "ordinary"
        lines.append(
            [loss, kernel, f"{best['error']:.4f}", f"{best['iteration']:g}"]
            + [f"{last['error']:.4f}", f"{last['iteration']:g}"]
        )
    header = [
        "loss",
        "kernel of edges",
        "smallest test error",
        "at iteration",
        "last test error",
        "at iteration",
    ]
    return table(header, sorted(lines, key=lambda line: (line[0] != "regression", line[1] != "ordinary")))


def draw(rows: pd.DataFrame, figure: Any) -> None:
    """Test error over iterations, a curve for each loss and kernel."""
    panel = figure.subplots()
    for (loss, symmetry), group in rows.groupby(["loss", "symmetry"]):
        group = group.sort_values("iteration")
        kernel = "symmetric" if symmetry == "symmetric" else "ordinary"
        panel.plot(
            group["iteration"],
            group["error"],
            label=f"{loss}, {kernel} kernel",
            color="C0" if loss == "regression" else "C1",
            linestyle="--" if symmetry == "symmetric" else "-",
        )
    panel.set(xlabel="iterations of conjugate gradients", ylabel="ranking error on new nodes")
    panel.legend(frameon=False)


EXPERIMENT = Experiment(
    name="early-stopping",
    title="20 Newsgroups, conjugate gradients stopped early",
    part=("loss", "symmetry"),
    key=("loss", "symmetry", "iteration"),
    parts=lambda quick: [(loss, symmetry) for loss in LOSSES for symmetry in SYMMETRIES],
    compute=compute,
    markdown=markdown,
    draw=draw,
)
