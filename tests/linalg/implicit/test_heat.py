"""The heat kernel against the matrix exponential."""

from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from numpy.testing import assert_allclose

from relpref.linalg import HeatKernel, LaplacianSolver
from relpref.linalg import graph_covariance as heat


def graph(kind: str) -> Any:
    rng = np.random.default_rng(0)
    dense = np.triu(rng.random((90, 90)) * (rng.random((90, 90)) < 0.08), 1)
    if kind == "star":
        dense[:] = 0.0
        dense[0, 1:] = 1.0
    if kind == "components":
        block = np.repeat([0, 1, 2, 3, 4], [50, 30, 8, 1, 1])
        dense *= block[:, None] == block
    return dense + dense.T


@pytest.mark.parametrize("kind", ["random", "star", "components"])
@pytest.mark.parametrize("time", [1e-3, 0.4, 30.0])
def test_against_the_matrix_exponential(kind: str, time: float, monkeypatch: Any) -> None:
    monkeypatch.setattr(heat, "_MOST_COLUMNS", 4)
    rng = np.random.default_rng(1)
    weights = graph(kind)
    told: list[tuple[int, int]] = []
    kernel = HeatKernel(
        LaplacianSolver(scipy.sparse.csr_array(weights)),
        time,
        2.0,
        tol=1e-8,
        progress=lambda *done: told.append(done),
    )
    dense = 2.0 * scipy.linalg.expm(-time * (np.diag(weights.sum(axis=1)) - weights))
    vectors = rng.standard_normal((90, 5))
    bound = 1e-7 * np.linalg.norm(vectors, axis=0).max()
    assert_allclose(kernel.matmul(vectors), dense @ vectors, atol=bound)
    assert_allclose(kernel.matmul(vectors[:, 0]), dense @ vectors[:, 0], atol=bound)
    rows, columns = np.array([3, 70, 3, 89]), np.array([70, 2])
    told.clear()
    assert_allclose(kernel.block(rows, columns), dense[np.ix_(rows, columns)], atol=1e-7)
    assert told[-1] == (2, 2)
    assert_allclose(kernel.row_means(rows), dense.mean(axis=1)[rows], atol=1e-12)
    assert_allclose(
        kernel.scaled(3.0).block(columns, columns), 3 * dense[np.ix_(columns, columns)], atol=1e-7
    )


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-6])
def test_the_tolerance_bounds_the_error(tol: float) -> None:
    """Also of the worst vector: the spectral norm of the difference."""
    weights = graph("random")
    solver, laplacian = (
        LaplacianSolver(scipy.sparse.csr_array(weights)),
        np.diag(weights.sum(axis=1)) - weights,
    )
    for time in (0.01, 1.0, 100.0):
        found = HeatKernel(solver, time, tol=tol).matmul(np.eye(90))
        assert np.linalg.norm(found - scipy.linalg.expm(-time * laplacian), 2) <= 2 * tol
