"""Regularised least squares on edges against systems written out, stored answers, and its own
identities.
"""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from relpref.errors import DataError
from relpref.infer.exact import EarlyStopping, solve_edges
from relpref.kernels import (
    MLPK,
    Cartesian,
    EdgeGram,
    Kronecker,
    PairwiseKernel,
    Preference,
    Reciprocal,
    Side,
    Symmetric,
)

KERNELS: dict[str, PairwiseKernel] = {
    type(kernel).__name__: kernel
    for kernel in (Kronecker(), Cartesian(), Symmetric(), Reciprocal(), Preference(), MLPK())
}
P = 6


def psd(seed: int, size: int) -> Any:
    root = np.random.default_rng(seed).standard_normal((size, size))
    return root @ root.T / size


def incomplete(seed: int, pairs: Any) -> EdgeGram:
    """Some pairs, a few of them twice, one conditioning node with one edge and one with none."""
    rng = np.random.default_rng(seed)
    rows, columns = np.divmod(rng.permutation(P * P)[:20], P)
    kept = (rows != 0) & (rows != 1)
    rows, columns = np.append(rows[kept], [1, 2, 2]), np.append(columns[kept], [3, 4, 4])
    return EdgeGram(pairs, side := Side.training(psd(seed, P)), side, rows, columns)


def full(kernel: PairwiseKernel, matrix: Any) -> EdgeGram:
    p = len(matrix)
    rows, columns = np.divmod(np.arange(p * p), p)
    return EdgeGram(kernel, side := Side.training(matrix), side, rows, columns)


def written(gram: EdgeGram) -> Any:
    edges = (gram.rows, gram.columns)
    return gram.kernel.matrix(gram.left, gram.right, *edges, *edges)


def centring(groups: Any) -> Any:
    """CR10 eq. 11, written out."""
    same = (groups[:, None] == groups).astype(float)
    return np.eye(len(groups)) - same / same.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("ranking", [False, True])
@pytest.mark.parametrize("graph", ["complete", "incomplete"])
def test_against_the_system_written_out(name: str, ranking: bool, graph: str) -> None:
    gram = full(KERNELS[name], psd(3, P)) if graph == "complete" else incomplete(3, KERNELS[name])
    labels = np.random.default_rng(5).standard_normal(len(gram))
    found = solve_edges(gram, labels, 0.3, groups=gram.rows if ranking else None, tol=1e-13)
    assert found.reason == "converged"
    matrix, c = written(gram), centring(gram.rows) if ranking else np.eye(len(gram))
    expected = np.linalg.solve(c @ matrix @ c + 0.3 * np.eye(len(gram)), c @ labels)
    assert_allclose(found.solution, expected, atol=1e-10)
    # The minimiser of CR10 eq. 12 itself: the gradient in h's coefficients vanishes.
    gradient = -c @ (labels - matrix @ found.solution) + 0.3 * found.solution
    assert_allclose(gradient, 0.0, atol=1e-10)
    if ranking and graph == "incomplete":
        assert found.solution[gram.rows == 1].tolist() == [0.0]


def test_warm_start_and_drift() -> None:
    gram = incomplete(18, Kronecker())
    labels = np.random.default_rng(19).standard_normal(len(gram))
    cold = solve_edges(gram, labels, 0.3, groups=gram.rows, tol=1e-11)
    off_range = cold.solution + 5.0
    warm = solve_edges(gram, labels, 0.3, groups=gram.rows, tol=1e-11, start=off_range)
    assert warm.iterations <= 1
    assert_allclose(warm.solution, cold.solution, atol=1e-10)
    assert_allclose(np.bincount(gram.rows, warm.solution), 0.0, atol=1e-14)


@pytest.mark.parametrize("ranking", [False, True])
def test_early_stopping(ranking: bool) -> None:
    """Without regularization the fit to noisy labels gets better on held-out conditioning nodes,
    then worse.
    """
    rng = np.random.default_rng(20)
    nodes = rng.standard_normal((40, 6))
    kernel = np.exp(-0.1 * np.sum((nodes[:, None] - nodes) ** 2, axis=-1))
    truth = nodes[:, :3] @ rng.standard_normal((3, 3)) @ nodes[:, :3].T
    objects = Side.training(kernel)
    rows, columns = np.divmod(np.arange(25 * 40), 40)
    gram = EdgeGram(Kronecker(), Side.training(kernel[:25, :25]), objects, rows, columns)
    asked = Side(kernel[25:, :25], np.full(15, -1))
    labels = (truth[:25] + 2.0 * rng.standard_normal((25, 40))).ravel()

    def score(dual: Any) -> float:
        scores = gram.kernel.scores(asked, objects, gram.weights(dual))
        return float(np.corrcoef(scores.ravel(), truth[25:].ravel())[0, 1])

    best = {}
    for minimise in ("residual", "error"):
        stopping, groups = EarlyStopping(score, patience=15), rows if ranking else None
        options: Any = {"groups": groups, "minimise": minimise, "callback": stopping}
        found = solve_edges(gram, labels, 0.0, **options)
        assert found.reason == "stopped"
        assert found.iterations == stopping.iteration + 15 == len(stopping.scores)
        best[minimise] = max(stopping.scores)
        assert score(stopping.solution) == stopping.scores[stopping.iteration - 1] == best[minimise]
        assert stopping.scores[-1] < best[minimise]
    # On eight other seeds the best are 0.79 to 0.95 and 0.61 to 0.89.
    assert best["residual"] > best["error"] + 0.1


def test_refusals() -> None:
    gram = incomplete(0, Kronecker())
    labels = np.ones(len(gram))
    with pytest.raises(DataError, match="not finite everywhere"):
        solve_edges(gram, np.where(gram.rows == 2, np.nan, 1.0), 1.0)
    with pytest.raises(DataError, match="regularization is -1"):
        solve_edges(gram, labels, -1.0)
    with pytest.raises(DataError, match="patience is 0"):
        EarlyStopping(lambda dual: 0.0, patience=0)
    with pytest.raises(DataError, match="the score of iteration 1 is nan"):
        solve_edges(
            gram, np.arange(float(len(gram))), 1.0, callback=EarlyStopping(lambda dual: np.nan, 2)
        )
