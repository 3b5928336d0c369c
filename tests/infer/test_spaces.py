"""The two spaces give one answer, and their shortcuts leave out zeros only."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relpref.infer.spaces import EntitySpace, GapSpace, Map, lower_of_product
from relpref.linalg import Dense


@pytest.mark.parametrize("size", [1, 5, 128, 129, 300])
def test_the_lower_triangle_of_a_product(size: int) -> None:
    generator = np.random.default_rng(size)
    root = np.tril(generator.standard_normal((size, size)))
    right = generator.standard_normal((size, size))
    with jax.enable_x64(True):
        found = np.asarray(lower_of_product(jnp.asarray(root), jnp.asarray(right)))
    np.testing.assert_allclose(np.tril(found), np.tril(root.T @ right), rtol=0, atol=1e-11)


@pytest.fixture
def problem() -> dict[str, Any]:
    generator = np.random.default_rng(0)
    factor = generator.standard_normal((7, 7))
    return {
        "covariance": factor @ factor.T,
        "design": generator.standard_normal((9, 7)),
        "precision": generator.uniform(0, 2, 9),
        "shift": generator.standard_normal(9),
    }


@pytest.mark.parametrize("kind", [EntitySpace, GapSpace])
def test_against_dense_algebra(kind: Any, problem: dict[str, Any]) -> None:
    covariance, design, precision, shift = problem.values()
    with jax.enable_x64(True):
        matrix = jnp.asarray(design)
        projection = Map(lambda vector: matrix @ vector, lambda vector: matrix.T @ vector)
        space = kind.build(Dense(jnp.asarray(covariance)), projection)
        factor = space.factorise(jnp.asarray(precision), projection)
        marginals = space.marginals(factor, jnp.asarray(shift), projection)
        weights = np.asarray(space.weights(factor, jnp.asarray(precision), projection))
        response = np.asarray(space.response(factor, jnp.asarray(shift), projection))
    posterior = np.linalg.inv(np.linalg.inv(covariance) + design.T @ (precision[:, None] * design))
    gaps = design @ posterior @ design.T
    np.testing.assert_allclose(marginals.variance, np.diagonal(gaps), rtol=1e-9)
    np.testing.assert_allclose(marginals.mean, gaps @ shift, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(response, gaps @ shift, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(covariance - covariance @ weights @ covariance, posterior, rtol=0, atol=1e-9)
    half_log_ratio = 0.5 * (np.linalg.slogdet(covariance)[1] - np.linalg.slogdet(posterior)[1])
    np.testing.assert_allclose(marginals.log_determinant, half_log_ratio, rtol=1e-9)
