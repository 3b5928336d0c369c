"""The same code on arrays of NumPy and of JAX."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from relpref.linalg.arrays import (
    block_diagonal,
    choose,
    cond,
    factorize,
    fori_loop,
    namespace,
    on_host,
    ravel,
    solve_lower,
    while_loop,
)


@pytest.fixture(params=["rows", "columns", "jax"])
def given(request: pytest.FixtureRequest) -> Any:
    """How a matrix lies in memory, and whose it is."""
    if request.param == "jax":
        return lambda matrix: jnp.asarray(matrix)
    return lambda matrix: np.array(matrix, order="C" if request.param == "rows" else "F")


def test_factors_and_solutions(given: Any) -> None:
    rng = np.random.default_rng(0)
    half = rng.standard_normal((7, 7))
    covariance = half @ half.T + np.eye(7)
    only_lower = np.where(np.tri(7) > 0, covariance, np.nan)
    with jax.enable_x64(True):
        lower = factorize(given(covariance))
        assert_allclose(lower, np.linalg.cholesky(covariance), rtol=1e-12)
        assert_allclose(factorize(given(only_lower)), lower, rtol=1e-12)
        for shape in ((7,), (7, 3), (7, 0)):
            right = rng.standard_normal(shape)
            there, back = (solve_lower(lower, given(right), transposed=t) for t in (False, True))
            assert_allclose(lower @ there, right, atol=1e-12)
            assert_allclose(lower.T @ back, right, atol=1e-12)
        assert not np.isfinite(np.diagonal(factorize(given(-covariance)))).all()
        assert factorize(given(np.zeros((0, 0)))).shape == (0, 0)


@pytest.mark.parametrize("kind", [np, jnp])
def test_control_flow(kind: Any) -> None:
    with jax.enable_x64(True):
        one: Any = kind.asarray(1.0)
        assert while_loop(lambda x: x < 100, lambda x: 3 * x, one) == 243
        assert fori_loop(4, lambda at, x: x + at, one) == 7
        assert [float(cond(one > edge, lambda x: -x, lambda x: x, one)) for edge in (0.5, 1.5)] == [
            -1,
            1,
        ]
        pair, other = (one, kind.arange(3.0)), (2 * one, -kind.arange(3.0))
        for condition, wanted in ((one > 0, pair), (one < 0, other)):
            assert_array_equal(choose(condition, pair, other)[1], wanted[1])
        by_row = choose(kind.asarray([True, False, True]), pair[1:], other[1:])[0]
        assert_array_equal(by_row, [0, -1, 2])
        assert_array_equal(
            block_diagonal([kind.ones((1, 2)), kind.ones((1, 1))]), [[1, 1, 0], [0, 0, 1]]
        )


def test_whose_arrays_they_are() -> None:
    assert namespace(np.ones(2), 1.0) is np and namespace(np.ones(2), jnp.ones(2)) is jnp
    assert on_host({"a": np.ones(2), "b": None}) and not on_host({"a": [jnp.ones(2)]})


def test_a_vector_and_back() -> None:
    values: dict[str, Any] = {
        "z": np.float64(3.0),
        "a": np.arange(4.0).reshape(2, 2),
        "none": np.empty(0),
    }
    vector, back = ravel(values)
    assert vector.tolist() == [0, 1, 2, 3, 3]
    again = back(2 * vector)
    assert {name: value.shape for name, value in again.items()} == {
        "a": (2, 2),
        "none": (0,),
        "z": (),
    }
    assert_array_equal(again["a"], 2 * values["a"])
    assert ravel({})[0].shape == (0,)
