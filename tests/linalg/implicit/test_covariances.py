"""Covariances that are never written down, against those that are."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose

from relpref.errors import DataError
from relpref.linalg import KernelMatrix, LaplacianSolver, LowRank, NamedSum, SparsePrecision
from relpref.linalg import covariance as kernel_matrix

SIZE = 60


def laplace(left: Any, right: Any) -> Any:
    return np.exp(-np.abs(left[:, None, :] - right[None, :, :]).sum(axis=2))


def parts() -> dict[str, tuple[Any, Any]]:
    """Implicit covariances with their dense forms."""
    rng = np.random.default_rng(0)
    weights = np.triu(rng.random((SIZE, SIZE)) * (rng.random((SIZE, SIZE)) < 0.1), 1)
    weights += weights.T
    points, factor = rng.standard_normal((SIZE, 2)), rng.standard_normal((SIZE, 4))
    precision = np.diag(weights.sum(axis=1) + 0.3) - weights
    solver = LaplacianSolver(scipy.sparse.csr_array(weights))
    found: dict[str, tuple[Any, Any]] = {
        "cites": (SparsePrecision(solver, 0.3, 2.0, tol=1e-11), 2.0 * np.linalg.inv(precision)),
        "attributes": (KernelMatrix(laplace, points, 1.5), 1.5 * laplace(points, points)),
        "features": (LowRank(factor), factor @ factor.T),
    }
    implicit = NamedSum({name: part for name, (part, _) in found.items()})
    return found | {"sum": (implicit, sum(dense for _, dense in found.values()))}


@pytest.mark.parametrize("name", ["cites", "attributes", "features", "sum"])
def test_every_question(name: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(kernel_matrix, "_BLOCK", 7 * SIZE)
    rng = np.random.default_rng(1)
    covariance, dense = parts()[name]
    rows, columns = rng.integers(0, SIZE, 9), rng.integers(0, SIZE, 5)
    for factor, implicit in ((1.0, covariance), (3.0, covariance.scaled(3.0))):
        assert implicit.size == SIZE
        for shape in ((SIZE,), (SIZE, 3)):
            vectors = rng.standard_normal(shape)
            assert_allclose(implicit.matmul(vectors), factor * dense @ vectors, atol=1e-7)
        assert_allclose(
            implicit.block(rows, columns), factor * dense[np.ix_(rows, columns)], atol=1e-8
        )
        assert_allclose(implicit.row_means(rows), factor * dense.mean(axis=1)[rows], atol=1e-8)


def test_sampled_means_are_as_near_as_their_number_allows(monkeypatch: Any) -> None:
    """Rows of 400 points with means from 100 columns: of 400 errors, more than 25 % beyond two
    standard errors would be no accident.
    """
    points = np.random.default_rng(2).standard_normal((400, 1))
    covariance = KernelMatrix(laplace, points)
    exact = covariance.row_means(np.arange(400))
    monkeypatch.setattr(kernel_matrix, "_EVALUATIONS", 0)
    sampled = covariance.row_means(np.arange(400))
    error = laplace(points, points).std(axis=1) * np.sqrt(0.75 / 100)
    assert np.mean(abs(sampled - exact) > 2 * error) < 0.25
    assert abs(sampled - exact).max() > 0


def test_what_is_refused() -> None:
    with pytest.raises(DataError, match="one size"):
        NamedSum({"a": LowRank(np.ones((3, 1))), "b": LowRank(np.ones((4, 1)))})
    with pytest.raises(DataError, match="none at all"):
        NamedSum({})
    with pytest.raises(DataError, match="NaN or infinity"):
        KernelMatrix(laplace, np.array([[np.nan]]))
    bad = KernelMatrix(
        lambda left, right: np.full((len(left), len(right)), np.inf), np.ones((3, 1))
    )
    with pytest.raises(DataError, match="the kernel gave"):
        bad.matmul(np.ones(3))
