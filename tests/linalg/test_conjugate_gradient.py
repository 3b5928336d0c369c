from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse.linalg import minres

from relpref.errors import DataError
from relpref.linalg import conjugate_gradient


def system(seed: int, n: int, rank: int | None = None) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((n, rank or n))
    matrix = root @ root.T + (0.1 * np.eye(n) if rank is None else 0.0)
    return matrix, matrix @ rng.standard_normal(n)


@pytest.mark.parametrize("minimise", ["error", "residual"])
@pytest.mark.parametrize("rank", [None, 7])
def test_against_a_direct_solution(rank: int | None, minimise: Any) -> None:
    matrix, rhs = system(0, 30, rank)
    found = conjugate_gradient(lambda x: matrix @ x, rhs, minimise=minimise, tol=1e-11)
    assert found.reason == "converged"
    assert found.residual <= 1e-11
    assert found.residual == pytest.approx(
        np.linalg.norm(rhs - matrix @ found.solution) / np.linalg.norm(rhs)
    )
    # From zero, the solution of a singular system is the one of least norm.
    assert_allclose(found.solution, np.linalg.pinv(matrix) @ rhs, atol=1e-8)


def test_any_shape_and_nothing_given_is_changed() -> None:
    matrix, rhs = system(1, 12)
    start = np.ones((3, 4))
    kept = rhs.copy()
    found = conjugate_gradient(
        lambda x: (matrix @ x.ravel()).reshape(x.shape), rhs.reshape(3, 4), start=start, tol=1e-11
    )
    assert found.solution.shape == (3, 4)
    assert_allclose(found.solution.ravel(), np.linalg.solve(matrix, rhs), atol=1e-8)
    assert_array_equal(rhs, kept)
    assert_array_equal(start, 1.0)


def iterates(matrix: Any, rhs: Any, minimise: Any, count: int) -> Any:
    found: list[Any] = []
    conjugate_gradient(
        lambda x: matrix @ x,
        rhs,
        minimise=minimise,
        tol=0.0,
        max_iterations=count,
        callback=lambda iteration, solution, residual: found.append(solution.copy()),
    )
    return np.array(found)


def test_what_is_least_after_each_iteration() -> None:
    """Among all of b, A b, A² b, ...: the error in the norm of A, or the residual, as in another
    implementation.
    """
    matrix, rhs = system(5, 20)
    powers = [rhs]
    for _ in range(5):
        powers.append(matrix @ powers[-1] / np.linalg.norm(powers[-1]))
    exact = np.linalg.solve(matrix, rhs)
    for count in range(1, 6):
        basis = np.linalg.qr(np.column_stack(powers[:count]))[0]
        by_error = basis @ np.linalg.solve(basis.T @ matrix @ basis, basis.T @ matrix @ exact)
        by_residual = basis @ np.linalg.lstsq(matrix @ basis, rhs)[0]
        assert_allclose(iterates(matrix, rhs, "error", count)[-1], by_error, atol=1e-8)
        assert_allclose(iterates(matrix, rhs, "residual", count)[-1], by_residual, atol=1e-8)
    others: list[Any] = []
    minres(matrix, rhs, rtol=0.0, maxiter=8, callback=lambda x: others.append(x.copy()))
    assert_allclose(iterates(matrix, rhs, "residual", 8), others, atol=1e-8)


def test_least_squares_where_there_is_no_solution() -> None:
    matrix, rhs = system(6, 30, rank=7)
    rhs = rhs + np.random.default_rng(7).standard_normal(30)
    residuals = []
    found = conjugate_gradient(
        lambda x: matrix @ x,
        rhs,
        minimise="residual",
        callback=lambda iteration, solution, residual: residuals.append(residual),
    )
    assert found.reason == "breakdown"
    assert 7 <= found.iterations <= 12
    assert np.all(np.diff(residuals) <= 1e-12)
    # The residual is least; what A cannot see of the solution does not matter.
    expected = matrix @ np.linalg.pinv(matrix, rcond=1e-10) @ rhs
    assert_allclose(matrix @ found.solution, expected, atol=1e-7)


def test_warm_start_saves_iterations() -> None:
    matrix, rhs = system(2, 40)
    cold = conjugate_gradient(lambda x: matrix @ x, rhs)
    warm = conjugate_gradient(lambda x: matrix @ x, rhs * 1.001, start=cold.solution)
    assert 0 < warm.iterations < cold.iterations
    again = conjugate_gradient(lambda x: matrix @ x, rhs, start=cold.solution)
    assert (again.iterations, again.reason) == (0, "converged")


def test_zero_has_a_solution() -> None:
    found = conjugate_gradient(lambda x: x, np.zeros((2, 2)))
    assert (found.reason, found.residual, found.solution.tolist()) == (
        "converged",
        0.0,
        [[0, 0], [0, 0]],
    )


def test_stops_when_told_and_when_it_has_to() -> None:
    matrix, rhs = system(3, 40)
    seen = []

    def callback(iteration: int, solution: Any, residual: float) -> bool:
        seen.append(
            (iteration, residual, np.linalg.norm(rhs - matrix @ solution) / np.linalg.norm(rhs))
        )
        return iteration == 4

    found = conjugate_gradient(lambda x: matrix @ x, rhs, callback=callback)
    assert (found.reason, found.iterations) == ("stopped", 4)
    assert [iteration for iteration, *_ in seen] == [1, 2, 3, 4]
    assert_allclose([s[1] for s in seen], [s[2] for s in seen], rtol=1e-9)
    limited = conjugate_gradient(lambda x: matrix @ x, rhs, max_iterations=4)
    assert (limited.reason, limited.iterations) == ("max_iterations", 4)
    assert_array_equal(limited.solution, found.solution)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_breakdowns_keep_the_last_finite_solution() -> None:
    matrix, rhs = system(4, 20)
    indefinite = matrix - 5 * np.eye(20)
    found = conjugate_gradient(lambda x: indefinite @ x, rhs)
    assert found.reason == "breakdown"
    products = []

    def spoiled(x: Any) -> Any:
        products.append(1)
        return matrix @ x if len(products) < 4 else np.full(20, np.nan)

    found = conjugate_gradient(spoiled, rhs)
    assert (found.reason, found.iterations) == ("breakdown", 3)
    assert np.all(np.isfinite(found.solution))
    unreachable = conjugate_gradient(lambda x: matrix @ x, rhs, tol=1e-30)
    assert unreachable.reason == "breakdown"
    assert unreachable.residual < 1e-13
    for bad in (np.nan, np.inf):
        with pytest.raises(DataError, match="right-hand side .* not finite"):
            conjugate_gradient(lambda x: x, np.array([1.0, bad]))
        with pytest.raises(DataError, match="start .* not finite"):
            conjugate_gradient(lambda x: x, np.ones(2), start=np.array([1.0, bad]))
