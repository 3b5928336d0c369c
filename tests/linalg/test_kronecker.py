"""The Kronecker operator against its matrix."""

import jax
import jax.numpy as jnp
import numpy as np

from relpref.linalg import Covariance, Dense, Kronecker


def test_every_answer_is_that_of_the_matrix() -> None:
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        left, right = (
            Dense(jnp.asarray(np.asarray(factor @ factor.T)))
            for factor in (rng.normal(size=(3, 3)), rng.normal(size=(2, 2)))
        )
        operator = Kronecker(left, right)
        assert isinstance(operator, Covariance)
        matrix = np.kron(np.asarray(left.matrix), np.asarray(right.matrix))
        vectors, weights, rows = (
            rng.normal(size=(6, 4)),
            rng.normal(size=(6, 6)),
            rng.normal(size=(5, 6)),
        )
        np.testing.assert_allclose(operator.dense(), matrix)
        np.testing.assert_allclose(operator.matmul(jnp.asarray(vectors)), matrix @ vectors)
        np.testing.assert_allclose(
            operator.matmul(jnp.asarray(vectors[:, 0])), matrix @ vectors[:, 0]
        )
        np.testing.assert_allclose(operator.inner(jnp.asarray(weights)), np.sum(weights * matrix))
        np.testing.assert_allclose(
            operator.congruence(lambda vector: jnp.asarray(rows) @ vector), rows @ matrix @ rows.T
        )
        root = operator.root()
        np.testing.assert_allclose(root.lower @ root.lower.T, matrix, atol=1e-12)
        np.testing.assert_allclose(operator.scaled(jnp.asarray(2.5)).dense(), 2.5 * matrix)
