from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import MultivariateNormal
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
        found = process.log_prob(jnp.asarray(values))
        assert found.shape == (3, 2)
        np.testing.assert_allclose(
            found, stats.multivariate_normal(np.zeros(4), matrix).logpdf(values), rtol=1e-12
        )
        assert process.log_prob(jnp.asarray(values[0, 0])).shape == ()


@pytest.mark.slow
def test_log_prob_is_differentiable_in_both() -> None:
    matrix, value = covariance(), np.random.default_rng(1).standard_normal(4)
    with jax.enable_x64(True):

        def ours(factor: Any, at: Any) -> Any:
            return GaussianProcess(
                NamedSum({"a": Dense(jnp.asarray(matrix)).scaled(factor)})
            ).log_prob(at)

        def theirs(factor: Any, at: Any) -> Any:
            return MultivariateNormal(jnp.zeros(4), factor * jnp.asarray(matrix)).log_prob(at)

        point = (jnp.asarray(1.7), jnp.asarray(value))
        for mine, other in zip(
            jax.grad(ours, (0, 1))(*point), jax.grad(theirs, (0, 1))(*point), strict=True
        ):
            np.testing.assert_allclose(mine, other, rtol=1e-10)


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


def test_shape_and_mean() -> None:
    process = GaussianProcess(Dense(jnp.eye(3)))
    assert (process.event_shape, process.batch_shape) == ((3,), ())
    np.testing.assert_array_equal(process.mean, jnp.zeros(3))
    assert process.sample(jax.random.key(0)).shape == (3,)


def test_it_is_a_pytree() -> None:
    process = GaussianProcess(NamedSum({"a": Dense(jnp.eye(3)), "b": Dense(2 * jnp.eye(3))}))
    through: Any = jax.jit(lambda one: one)(process)
    assert isinstance(through, GaussianProcess)
    assert list(getattr(through.covariance, "parts", {})) == ["a", "b"]
    np.testing.assert_allclose(
        through.log_prob(jnp.ones(3)), process.log_prob(jnp.ones(3)), rtol=1e-6
    )
    leaves, structure = jax.tree.flatten(process)
    jax.tree.unflatten(structure, [object() for _ in leaves])


def test_parts_keep_their_order_through_jax() -> None:
    process = GaussianProcess(NamedSum({"b": Dense(jnp.eye(2)), "a": Dense(2 * jnp.eye(2))}))
    through: Any = jax.jit(lambda one: one)(process)
    assert list(through.covariance.parts) == ["b", "a"]
