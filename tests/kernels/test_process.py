from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from relpref.kernels import GaussianProcess
from relpref.linalg import Dense, NamedSum


def covariance(n: int = 4) -> Any:
    root = np.random.default_rng(0).standard_normal((n, n))
    return root @ root.T + np.eye(n)


def test_log_prob() -> None:
    matrix = covariance()
    values = np.random.default_rng(1).standard_normal((3, 2, 4))
    with jax.enable_x64(True):
        process = GaussianProcess(Dense(jnp.asarray(matrix)))
        assert (process.event_shape, process.batch_shape) == ((4,), ())
        assert_array_equal(process.mean, jnp.zeros(4))
        found = process.log_prob(jnp.asarray(values))
        assert found.shape == (3, 2)
        assert_allclose(
            found, stats.multivariate_normal(np.zeros(4), matrix).logpdf(values), rtol=1e-12
        )
        assert process.log_prob(jnp.asarray(values[0, 0])).shape == ()


def test_draws_have_the_covariance() -> None:
    matrix = covariance()
    draws = np.asarray(
        GaussianProcess(Dense(jnp.asarray(matrix))).sample(jax.random.key(0), (20_000,))
    )
    assert draws.shape == (20_000, 4)
    sd = np.sqrt(np.diag(matrix))
    assert np.max(np.abs(draws.mean(axis=0)) / sd) <= 5 / np.sqrt(20_000)
    difference = (np.cov(draws, rowvar=False) - matrix) / np.outer(sd, sd)
    assert np.max(np.abs(difference)) <= 5.5 * np.sqrt(2 / 20_000)


def test_it_is_a_pytree() -> None:
    process = GaussianProcess(NamedSum({"b": Dense(jnp.eye(3)), "a": Dense(2 * jnp.eye(3))}))
    through: Any = jax.jit(lambda one: one)(process)
    assert isinstance(through, GaussianProcess)
    assert list(getattr(through.covariance, "parts", {})) == ["b", "a"]
    assert_allclose(through.log_prob(jnp.ones(3)), process.log_prob(jnp.ones(3)), rtol=1e-6)
    leaves, structure = jax.tree.flatten(process)
    jax.tree.unflatten(structure, [object() for _ in leaves])
