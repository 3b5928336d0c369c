from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from relpref.errors import DataError
from relpref.linalg import pivoted_cholesky

RNG = np.random.default_rng(4)
POINTS = RNG.standard_normal((60, 2))
SMOOTH = np.exp(-0.5 * np.sum((POINTS[:, None] - POINTS) ** 2, axis=2)) * np.outer(
    *2 * [1 + np.arange(60) / 60]
)


def schur(matrix: NDArray[np.float64], chosen: list[int]) -> NDArray[np.float64]:
    """What the chosen rows leave of the diagonal, by least squares."""
    explained = (
        matrix[:, chosen]
        @ np.linalg.pinv(matrix[np.ix_(chosen, chosen)], hermitian=True)
        @ matrix[chosen]
    )
    return np.diagonal(matrix - explained)


def test_every_choice_is_the_one_that_is_explained_worst() -> None:
    indices, left_out = pivoted_cholesky(np.diagonal(SMOOTH), lambda i: SMOOTH[:, i], 12)
    for at, index in enumerate(indices):
        assert index == np.argmax(schur(SMOOTH, indices[:at].tolist()))
    assert left_out == pytest.approx(
        schur(SMOOTH, indices.tolist()).sum() / np.trace(SMOOTH), abs=1e-10
    )
    assert 0 < left_out < 0.1


def test_random_pivots_pass_outliers_by() -> None:
    # Ten clusters of twenty, and thirty rows by themselves, which are explained worst and explain
    # nothing else.
    matrix = np.kron(np.eye(10), np.full((20, 20), 0.9)) + 0.1 * np.eye(200)
    matrix = np.block([[matrix, np.zeros((200, 30))], [np.zeros((30, 200)), 1.01 * np.eye(30)]])
    arguments: tuple[Any, ...] = np.diagonal(matrix), lambda i: matrix[:, i], 30
    indices, random = pivoted_cholesky(*arguments, rng=np.random.default_rng(0))
    _, greedy = pivoted_cholesky(*arguments)
    assert random < 0.5 * greedy and len(set(indices)) == 30
    assert random == pytest.approx(
        schur(matrix, indices.tolist()).sum() / np.trace(matrix), abs=1e-10
    )
    again, _ = pivoted_cholesky(*arguments, rng=np.random.default_rng(0))
    assert_array_equal(again, indices)


def test_it_ends_when_enough_is_explained() -> None:
    few, left_out = pivoted_cholesky(np.diagonal(SMOOTH), lambda i: SMOOTH[:, i], 60, tol=0.05)
    _, before = pivoted_cholesky(np.diagonal(SMOOTH), lambda i: SMOOTH[:, i], len(few) - 1)
    assert left_out <= 0.05 < before


def test_a_smaller_rank_asks_for_fewer_columns() -> None:
    root = RNG.standard_normal((40, 3))[RNG.integers(0, 5, 40)]  # repeated rows, too
    asked = []

    def column(index: int) -> NDArray[np.float64]:
        asked.append(index)
        return root @ root[index]

    indices, left_out = pivoted_cholesky(np.sum(root**2, axis=1), column, 40)
    assert len(indices) == 3 and asked == indices.tolist()
    assert left_out == pytest.approx(0, abs=1e-12)


def test_a_matrix_of_zeros_needs_no_rows() -> None:
    indices, left_out = pivoted_cholesky(np.zeros(4), lambda i: np.zeros(4), 2)
    assert len(indices) == 0 and left_out == 0


def test_what_is_no_covariance_is_refused() -> None:
    indefinite = np.array([[2.0, 3.0], [3.0, 1.0]])
    with pytest.raises(DataError, match=r"not positive semidefinite: -3.5 remains .* entry 1"):
        pivoted_cholesky(np.diagonal(indefinite), lambda i: indefinite[i], 2)
    with pytest.raises(DataError, match="-1 remains"):
        pivoted_cholesky([1.0, -1.0], lambda i: indefinite[i], 2)
    with pytest.raises(DataError, match="the diagonal of the matrix holds nan at entry 1"):
        pivoted_cholesky([1.0, np.nan], lambda i: indefinite[i], 2)
    with pytest.raises(DataError, match="column 0 of the matrix holds inf at entry 1"):
        pivoted_cholesky([2.0, 1.0], lambda i: np.array([2.0, np.inf]), 2)
    with pytest.raises(DataError, match="different things of entry 0"):
        pivoted_cholesky([1.0, 1.0], lambda i: np.array([2.0, 0.0]), 2)
    with pytest.raises(DataError, match=r"column 0 has shape \(3,\)"):
        pivoted_cholesky([1.0, 1.0], lambda i: np.ones(3), 2)
    with pytest.raises(DataError, match="most >= 1"):
        pivoted_cholesky([1.0], lambda i: np.ones(1), 0)
