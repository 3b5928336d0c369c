"""Decompositions of kernel matrices, and what they say about matrices that are none."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from relpref import limits as memory
from relpref.errors import DataError
from relpref.linalg import nearest_semidefinite, require_memory, symmetric_eigen


def gram(n: int = 12, d: int = 3) -> np.ndarray:
    points = np.random.default_rng(0).normal(size=(n, d))
    return np.asarray(points @ points.T)


def test_decomposition_of_a_singular_kernel() -> None:
    kernel = gram()
    values, vectors = symmetric_eigen(kernel)
    assert np.sum(values == 0.0) == 9  # rank 3: what is only rounding is nothing
    assert_allclose((vectors * values) @ vectors.T, kernel, atol=1e-12)


def test_asymmetry_is_measured_and_placed() -> None:
    kernel = gram()
    kernel[2, 5] += 0.25
    with pytest.raises(DataError, match=r"not symmetric: entry \(2, 5\).*\(K \+ K.T\) / 2"):
        symmetric_eigen(kernel)


def test_indefinite_is_measured_and_the_remedy_works() -> None:
    kernel = gram() - 0.5 * np.eye(12)
    with pytest.raises(
        DataError, match=r"the similarity is indefinite: its smallest eigenvalue is -0\.5"
    ) as error:
        symmetric_eigen(kernel, "similarity")
    assert "nearest_semidefinite" in str(error.value)
    assert symmetric_eigen(nearest_semidefinite(kernel)).values.min() >= 0.0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_not_finite(bad: float) -> None:
    kernel = gram()
    kernel[3, 3] = bad
    with pytest.raises(DataError, match="row 3, column 3"):
        symmetric_eigen(kernel)
    with pytest.raises(DataError, match=r"shape \(2, 3\)"):
        symmetric_eigen(np.ones((2, 3)))


def test_memory_is_named_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 2e9)
    require_memory(1.9e9, "this")
    with pytest.raises(DataError, match=r"this needs 8.00 GB of memory and 2.00 GB are available"):
        require_memory(8e9, "this")
    monkeypatch.setattr(memory, "available_memory", lambda: np.inf)
    require_memory(8e15, "this")
