from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from relpref.linalg import cholesky

RNG = np.random.default_rng(0)
ROOT = RNG.standard_normal((6, 6))
SPD = ROOT @ ROOT.T + 0.1 * np.eye(6)
LOW_RANK = ROOT[:, :2] @ ROOT[:, :2].T


def factor(matrix: Any, dtype: Any = np.float64) -> tuple[Any, float]:
    with jax.enable_x64(dtype == np.float64):
        lower, jitter = cholesky(jnp.asarray(matrix, dtype))
        assert lower.dtype == jitter.dtype == dtype
        return np.asarray(lower), float(jitter)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_jitter_is_small_and_reported(dtype: Any, scale: float) -> None:
    # All ones, less a rounding error: the smallest eigenvalue is just below zero.
    n = 50
    matrix = scale * (np.ones((n, n)) - 20 * np.finfo(dtype).eps * np.eye(n))
    lower, jitter = factor(matrix, dtype)
    assert 0 < jitter <= 1e6 * n * np.finfo(dtype).eps * scale
    difference = lower.astype(float) @ lower.T.astype(float) - matrix - jitter * np.eye(n)
    assert np.max(np.abs(difference)) <= 20 * n * np.finfo(dtype).eps * scale


def test_a_singular_covariance() -> None:
    lower, jitter = factor(LOW_RANK)
    assert np.all(np.isfinite(lower))
    assert jitter <= 1e-10
    assert_allclose(lower @ lower.T, LOW_RANK, rtol=0, atol=1e-10)
    by_numpy = cholesky(LOW_RANK)
    assert isinstance(by_numpy.lower, np.ndarray)
    assert_allclose(by_numpy.lower @ by_numpy.lower.T, LOW_RANK, rtol=0, atol=1e-10)
    assert cholesky(SPD).jitter == 0


@pytest.mark.parametrize(
    "matrix", [-np.eye(4), np.diag([1.0, 1.0, -1e-3]), np.array([[1.0, 2.0], [2.0, 1.0]])]
)
def test_indefinite_matrices_give_no_factor(matrix: Any) -> None:
    lower, _ = factor(matrix)
    assert np.any(np.isnan(lower))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nor_do_matrices_that_are_not_finite(bad: float) -> None:
    matrix = SPD.copy()
    matrix[2, 1] = matrix[1, 2] = bad
    assert not np.all(np.isfinite(factor(matrix)[0]))
    matrix = SPD.copy()
    matrix[0, 0] = bad
    assert not np.all(np.isfinite(factor(matrix)[0]))


def test_only_the_lower_triangle_is_read() -> None:
    assert_array_equal(factor(np.tril(SPD))[0], factor(SPD)[0])


def test_derivative() -> None:
    direction = RNG.standard_normal((6, 6))
    direction = direction + direction.T
    with jax.enable_x64(True):
        _, slope = jax.jvp(
            lambda k: cholesky(k).lower, (jnp.asarray(SPD),), (jnp.asarray(direction),)
        )
    step = 1e-6
    ends = [np.linalg.cholesky(SPD + side * step * direction) for side in (1, -1)]
    assert_allclose(slope, (ends[0] - ends[1]) / (2 * step), rtol=0, atol=1e-7)


def test_gradient_of_a_singular_covariance_is_finite_up_to_its_jitter() -> None:
    def loss(amplitude: Any) -> Any:
        return jnp.sum(jnp.log(jnp.diagonal(cholesky(amplitude * jnp.asarray(LOW_RANK)).lower)))

    with jax.enable_x64(True):
        assert np.isfinite(float(jax.grad(loss)(jnp.asarray(1.0))))


def test_it_compiles_and_maps() -> None:
    with jax.enable_x64(True):
        stack = jnp.stack([jnp.asarray(SPD), 2 * jnp.asarray(SPD), jnp.asarray(LOW_RANK)])
        lower, jitter = jax.jit(jax.vmap(cholesky))(stack)
        assert lower.shape == (3, 6, 6)
        assert_allclose(lower[1], np.sqrt(2) * np.linalg.cholesky(SPD), rtol=1e-12)
        assert float(jitter[0]) == 0
