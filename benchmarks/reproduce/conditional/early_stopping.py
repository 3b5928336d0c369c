"""Iterations stopped early in place of a regularization (Pahikkala et al. 2010, section 6.2 and
Fig. 3, right).

Two solvers of the same system without regularization, one product with the kernel of edges in each
iteration. Conjugate gradients make the error of the coefficients small, in a norm in which noise
that the kernel can hardly represent weighs most; conjugate residuals, the method of minimal
residuals, make the residual small, and leave such noise for last.

Without regularization conjugate gradients also magnify rounding, so that their errors differ from
one machine to another. Each run is repeated with the known nodes in other orders, which changes
nothing but rounding, and an error on which the orders disagree is not printed.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.measure import note, table
from benchmarks.reproduce.conditional.newsgroups import SET_2, Task
from benchmarks.reproduce.experiment import Experiment, Part
from benchmarks.reproduce.rows import Row
from relpref.data_loaders.newsgroups import load
from relpref.linalg.cg import Minimise
from relpref.rls import ConditionalRanker, per_node, ranking_error

Array = NDArray[np.float64]

NODES, TEST_NODES = 1000, 500
ITERATIONS, EVERY = 200, 5
QUICK_NODES, QUICK_ITERATIONS = 200, 40
SHOWN = (5, 20, 40, 100, 200)
ORDERS = 3  # of the known nodes
STABLE = 0.002  # the most by which errors that are printed differ between the orders
UNSTABLE = "rounding"
LOSSES = ("regression", "ranking")
EDGES = {"none": "ordinary", "symmetric": "symmetric"}
SOLVERS: dict[str, Minimise] = {"minimal residuals": "residual", "conjugate gradients": "error"}


def drawn(quick: bool) -> Task:
    """Messages of the same five groups: known ones and new ones."""
    nodes, new = (QUICK_NODES, QUICK_NODES // 2) if quick else (NODES, TEST_NODES)
    messages = load(SET_2)
    order = np.random.default_rng(2010).permutation(len(messages))
    return Task.of(messages.iloc[order[:nodes]], messages.iloc[order[nodes : nodes + new]])


def compute(part: Part, quick: bool) -> list[Row]:
    """The error on new nodes along the iterations, without any regularization, with the known nodes
    in several orders.
    """
    solver, loss, symmetry = map(str, part)
    task, rows = drawn(quick), list[Row]()
    for order in range(ORDERS):
        ordered = task.shuffled(np.random.default_rng(order)) if order else task
        found = _errors(ordered, solver, loss, symmetry, QUICK_ITERATIONS if quick else ITERATIONS)
        rows += [row | {"order": order} for row in found]
        note(f"{', '.join(map(str, part))}, order {order}: in the end {rows[-1]['error']:.4f}")
    return rows


def _errors(task: Task, solver: str, loss: str, symmetry: str, iterations: int) -> list[Row]:
    ranker = ConditionalRanker(kernel="precomputed", loss=loss, symmetry=symmetry, solver="cg")
    problem = ranker.problem(task.kernel, task.relation)
    asked = problem.nodes.ask(task.cross)
    rows: list[Row] = []

    def judge(iteration: int, dual: Array, residual: float) -> None:
        if iteration == 1 or iteration % EVERY == 0:
            scores = problem.kernel.scores(asked.side, asked.side, problem.dual_matrix(dual))
            rows.append(
                {"iteration": iteration, "error": per_node(ranking_error, task.judged, scores).mean}
            )

    problem.iterate(
        0.0, minimise=SOLVERS[solver], tol=1e-15, max_iterations=iterations, callback=judge
    )
    return rows


def markdown(rows: pd.DataFrame) -> str:
    """The error at some iterations, where it does not depend on the order of the nodes."""
    shown = [iteration for iteration in SHOWN if iteration in set(rows["iteration"])]
    found = rows.groupby(["solver", "loss", "symmetry", "iteration"])["error"].agg(
        ["min", "max", "mean"]
    )

    def cells(*run: Any) -> list[str]:
        errors = found.loc[run].loc[shown]
        # After errors that differ, others may agree by chance.
        stable = (errors["max"] - errors["min"]).cummax() <= STABLE
        return [
            f"{error:.3f}" if known else UNSTABLE
            for error, known in zip(errors["mean"], stable, strict=True)
        ]

    lines = [
        [solver, loss, EDGES[symmetry], *cells(solver, loss, symmetry)]
        for solver, loss, symmetry in itertools.product(SOLVERS, LOSSES, EDGES)
    ]
    return table(["solver", "loss", "kernel of edges", *(f"after {at}" for at in shown)], lines)


def draw(rows: pd.DataFrame, figure: Any) -> None:
    """Test error over iterations, a panel for each solver, a curve for each loss and kernel with
    the range over the orders of the nodes.
    """
    panels = figure.subplots(1, len(SOLVERS), sharey=True)
    for panel, solver in zip(panels, SOLVERS, strict=True):
        for (loss, symmetry), group in rows[rows["solver"] == solver].groupby(["loss", "symmetry"]):
            errors = group.groupby("iteration")["error"].agg(["min", "max", "mean"])
            colour = "C0" if loss == "regression" else "C1"
            panel.fill_between(
                errors.index, errors["min"], errors["max"], color=colour, alpha=0.3, linewidth=0
            )
            panel.plot(
                errors.index,
                errors["mean"],
                label=f"{loss}, {EDGES[str(symmetry)]} kernel",
                color=colour,
                linestyle="--" if symmetry == "symmetric" else "-",
            )
        panel.set(xlabel="iterations", title=solver, ylim=(0, None))
    panels[0].set_ylabel("ranking error on new nodes")
    panels[0].legend(frameon=False)


def parts(quick: bool) -> list[Part]:
    return [*itertools.product(SOLVERS, LOSSES, EDGES)]


EXPERIMENT = Experiment(
    name="early-stopping",
    title="20 Newsgroups, iterations stopped early",
    part=("solver", "loss", "symmetry"),
    key=("solver", "loss", "symmetry", "iteration", "order"),
    parts=parts,
    compute=compute,
    markdown=markdown,
    draw=draw,
)
