"""Complete relations: what a fit costs beside the eigendecomposition and the matrix products that
it is made of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import eigh

from benchmarks.measure import alternate, median, table
from relpref.rls import ConditionalRanker

NODES = 2000
FURTHER = 5
TITLE = f"Complete relation of {NODES} nodes ({NODES**2:,} labels), closed form"
NOTES = f"""\
A fit includes the check of the kernel matrix and of the labels, the decomposition, dual
coefficients, the scale and the evidence; the kernel matrix is given. The least it needs are one
eigendecomposition and four products of {NODES} x {NODES} matrices; each further regularisation
needs two. RLScore, where it is installed, decomposes the same matrix twice for two domains."""


@dataclass(frozen=True)
class Problem:
    """A kernel matrix of nodes, and labels of noise."""

    gram: Any
    labels: Any


def make(seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((NODES, 20))
    squared = np.sum(features**2, axis=1)
    distances = np.maximum(squared[:, None] + squared - 2.0 * features @ features.T, 0.0)
    gram = np.exp(-0.05 * distances)
    return Problem(0.5 * (gram + gram.T), rng.standard_normal((NODES, NODES)))


def least(problem: Problem) -> Any:
    """One eigendecomposition and four products."""
    _, vectors = eigh(problem.gram, driver="evd", check_finite=False)
    rotated = vectors.T @ problem.labels @ vectors
    return vectors @ rotated @ vectors.T


def products(problem: Problem) -> Any:
    """What further regularizations need: two products each."""
    for _ in range(FURTHER):
        result = problem.gram @ problem.labels @ problem.gram.T
    return result


def fit(problem: Problem, loss: str) -> Any:
    return (
        ConditionalRanker("precomputed", loss=loss, regularization=1.0)
        .fit(problem.gram, problem.labels)
        .dual_coef_
    )


def path(problem: Problem, loss: str, systems: dict[Any, Any]) -> Any:
    """Dual coefficients for further regularizations, the decomposition known."""
    key = (id(problem), loss)
    if key not in systems:
        ranker = ConditionalRanker("precomputed", loss=loss, regularization=1.0)
        systems[key] = ranker.problem(problem.gram, problem.labels).system()
    return [systems[key].solve(2.0**power).dual for power in range(FURTHER)]


def rlscore_fit(problem: Problem) -> Any:
    from rlscore.learner import KronRLS

    return KronRLS(
        K1=problem.gram, K2=problem.gram, Y=problem.labels.ravel(order="F"), regparam=1.0
    ).predictor.A


def run(repeats: int) -> str:
    """Time all of them and write the tables."""
    problems = [make(seed) for seed in range(3)]
    fits: dict[str, Callable[[Problem], Any]] = {
        "eigendecomposition and 4 products": least,
        "regression fit": lambda problem: fit(problem, "regression"),
        "ranking fit": lambda problem: fit(problem, "ranking"),
    }
    try:
        import rlscore  # noqa: F401

        fits["RLScore, regression fit"] = rlscore_fit
    except ImportError:
        pass
    fitted, _ = alternate(fits, problems, None, repeats)
    systems: dict[Any, Any] = {}
    paths: dict[str, Callable[[Problem], Any]] = {
        f"{2 * FURTHER} products": products,
        f"{FURTHER} further values, regression": lambda problem: path(
            problem, "regression", systems
        ),
        f"{FURTHER} further values, ranking": lambda problem: path(problem, "ranking", systems),
    }
    for problem in problems:  # the decompositions are not what is timed
        for loss in ("regression", "ranking"):
            path(problem, loss, systems)
    further, _ = alternate(paths, problems, None, repeats)
    rows = []
    for group in (fitted, further):
        base = median(next(iter(group.values())).warm)
        rows += [
            [name, *timing.row(), f"{median(timing.warm) / base:.2f}"]
            for name, timing in group.items()
        ]
    return table(
        ("", "first call, s", "then, s", "range", "CPU, s", "ratio to the first row of its kind"),
        rows,
    )
