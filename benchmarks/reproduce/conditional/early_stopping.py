"""Iterations stopped early in place of a regularization (Pahikkala et al. 2010, section 6.2 and
Fig. 3, right).

Three solvers of the same system without regularization. BiCGSTAB, SciPy's, is that of the paper;
an iteration has two products with the kernel of edges, the others have one. Conjugate gradients
make the error of the coefficients small, in a norm in which noise that the kernel can hardly
represent weighs most; conjugate residuals, the method of minimal residuals, make the residual
small, and leave such noise for last.

On the range of the centering the system is symmetric, and the residual of BiCGSTAB is that of
conjugate gradients times a factor 1 - ωt, t the eigenvalue, for each iteration, with the ω that
makes the residual smallest. The table has the residual by eigenvalue, which shows what the factors
take away.

Without regularization the solvers also magnify rounding, so that their errors differ from one
machine to another. Each run is repeated with the known nodes in another order, which changes
only rounding; where the orders disagree, both errors are printed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, bicgstab

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
RESIDUALS = ("large", "small")  # at eigenvalues
ORDERS = 2  # of the known nodes
STABLE = 0.002  # the most by which the orders differ where a single error is printed
LARGE = 1e-4  # eigenvalues, of the largest
LOSSES = ("regression", "ranking")
EDGES = {"none": "ordinary", "symmetric": "symmetric"}
SOLVERS: dict[str, Minimise | None] = {
    "BiCGSTAB": None,
    "conjugate gradients": "error",
    "minimal residuals": "residual",
}


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
    system = System(task, loss, symmetry)
    rows: list[Row] = []

    def judge(iteration: int, dual: Array, residual: float = 0.0) -> None:
        if iteration == 1 or iteration % EVERY == 0:
            scores = problem.kernel.scores(asked.side, asked.side, problem.dual_matrix(dual))
            error = per_node(ranking_error, task.judged, scores).mean
            rows.append({"iteration": iteration, "error": error})
            if iteration == EVERY:
                rows[-1] |= system.residuals(dual)

    minimise = SOLVERS[solver]
    if minimise is None:
        system.stabilized(iterations, judge)
    else:
        problem.iterate(
            0.0, minimise=minimise, tol=1e-15, max_iterations=iterations, callback=judge
        )
    return rows


class System:
    """The system of the paper's section 5 for all pairs of nodes, C (K ⊗ K) S a = C y, with the
    identity for C in regression and for S with the ordinary kernel.
    """

    def __init__(self, task: Task, loss: str, symmetry: str) -> None:
        self.kernel, self.symmetric = task.kernel, symmetry == "symmetric"
        self.ranking = loss == "ranking"
        self.labels = self.centred(task.relation)

    def centred(self, edges: Array) -> Array:
        return edges - edges.mean(axis=1, keepdims=True) if self.ranking else edges

    def product(self, dual: Array) -> Array:
        edges = dual.reshape(self.labels.shape)
        if self.symmetric:
            edges = (edges + edges.T) / 2
        return self.centred(self.kernel @ edges @ self.kernel)

    def stabilized(self, iterations: int, judge: Callable[[int, Array], None]) -> None:
        """BiCGSTAB, with the solution after each iteration for the judge."""
        size, count = self.labels.size, itertools.count(1)
        matrix = LinearOperator((size, size), matvec=lambda dual: self.product(dual).ravel())
        bicgstab(
            matrix,
            self.labels.ravel(),
            rtol=1e-15,
            maxiter=iterations,
            callback=lambda dual: judge(next(count), dual),
        )

    def residuals(self, dual: Array) -> Row:
        """Norms of the relative residual on the eigenvectors of C (K ⊗ K) C with large and
        with small eigenvalues.
        """
        centred = self.centred(self.centred(self.kernel).T)
        left, right = np.linalg.eigh(self.kernel), np.linalg.eigh(centred)
        residual = left.eigenvectors.T @ (self.labels - self.product(dual)) @ right.eigenvectors
        residual /= np.linalg.norm(self.labels)
        values = np.multiply.outer(left.eigenvalues, right.eigenvalues)
        large = values >= LARGE * values.max()
        norms = [np.linalg.norm(residual[part]) for part in (large, ~large)]
        return dict(zip(RESIDUALS, norms, strict=True))


def markdown(rows: pd.DataFrame) -> str:
    """The error at some iterations, a range where it depends on the order of the nodes."""
    shown = [iteration for iteration in SHOWN if iteration in set(rows["iteration"])]
    runs = rows.groupby(["solver", "loss", "symmetry", "iteration"])
    found = runs["error"].agg(["min", "max", "mean"]).join(runs[[*RESIDUALS]].mean())

    def cells(*run: Any) -> list[str]:
        errors = found.loc[run].reindex(shown)
        # After errors that differ, others may agree by chance.
        stable = (errors["max"] - errors["min"]).cummax() <= STABLE
        return [
            f"{low:.3f} to {high:.3f}" if unstable else f"{error:.3f}"
            for (low, high, error), unstable in zip(
                errors[["min", "max", "mean"]].to_numpy(), ~stable, strict=True
            )
        ] + [f"{norm:.2f}" for norm in found.loc[(*run, EVERY), [*RESIDUALS]]]

    lines = [
        [solver, loss, EDGES[symmetry], *cells(solver, loss, symmetry)]
        for solver, loss, symmetry in itertools.product(SOLVERS, LOSSES, EDGES)
    ]
    residuals = [f"residual after {EVERY}, {part} eigenvalues" for part in RESIDUALS]
    header = ["solver", "loss", "kernel of edges", *(f"after {at}" for at in shown), *residuals]
    return table(header, lines)


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
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)


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
