from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from relpref.linalg import BlockDiagonal, Covariance, Dense, Kronecker, NamedSum, real

RNG = np.random.default_rng(0)


def spd(n: int) -> Any:
    root = RNG.standard_normal((n, n))
    return root @ root.T + np.eye(n)


A, B, C, D = spd(4), spd(4), spd(3), spd(2)
ZERO = np.zeros


def operators() -> dict[str, tuple[Any, Any]]:
    """Each kind of operator, with the matrix that it stands for."""
    a, b, c, d = (Dense(jnp.asarray(matrix)) for matrix in (A, B, C, D))
    block = np.block([[A + B, ZERO((4, 3))], [ZERO((3, 4)), C]])
    nested = np.block([[block, ZERO((7, 2))], [ZERO((2, 7)), D]])
    return {
        "dense": (a, A),
        "sum": (NamedSum({"second": b, "first": a}), A + B),
        "kronecker": (Kronecker(c, d), np.kron(C, D)),
        "sum of one": (NamedSum({"only": a}), A),
        "blocks": (BlockDiagonal((NamedSum({"x": a, "y": b}), c)), block),
        "one block": (BlockDiagonal((c,)), C),
        "nested": (BlockDiagonal((BlockDiagonal((NamedSum({"x": a, "y": b}), c)), d)), nested),
        "sum of blocks": (
            NamedSum({"x": BlockDiagonal((c, d)), "y": BlockDiagonal((c, d))}),
            2 * np.block([[C, ZERO((3, 2))], [ZERO((2, 3)), D]]),
        ),
    }


NAMES = list(operators())


@pytest.mark.parametrize("name", NAMES)
def test_against_dense_algebra(name: str) -> None:
    with jax.enable_x64(True):
        operator, matrix = operators()[name]
        n = len(matrix)
        assert isinstance(operator, Covariance)
        assert operator.size == n
        assert_allclose(operator.dense(), matrix, rtol=1e-13)
        vector, several = (np.asarray(RNG.standard_normal(s)) for s in (n, (n, 3)))
        assert_allclose(operator.matmul(jnp.asarray(vector)), matrix @ vector, rtol=1e-12)
        assert_allclose(operator.matmul(jnp.asarray(several)), matrix @ several, rtol=1e-12)
        design = RNG.standard_normal((5, n))
        found = operator.congruence(lambda v: jnp.asarray(design) @ v)
        assert_allclose(found, design @ matrix @ design.T, rtol=1e-11)
        lower, jitter = operator.root()
        assert float(jitter) == 0
        assert_allclose(lower @ lower.T, matrix, rtol=0, atol=1e-13 * matrix.max())
        scaled = operator.scaled(jnp.asarray(2.5))
        assert type(scaled) is type(operator)
        assert_allclose(scaled.dense(), 2.5 * matrix, rtol=1e-13)
        through = jax.jit(lambda one: one.scaled(2.0))(operator)
        assert type(through) is type(operator)
        assert_allclose(through.dense(), 2 * matrix, rtol=1e-13)
        slope = jax.grad(lambda factor: jnp.sum(operator.scaled(factor).dense()))(jnp.asarray(1.0))
        assert_allclose(slope, matrix.sum(), rtol=1e-12)


def test_names_are_kept_when_scaled() -> None:
    parts = NamedSum({"second": Dense(jnp.eye(2)), "first": Dense(jnp.eye(2))})
    assert list(parts.scaled(jnp.asarray(2.0)).parts) == ["second", "first"]


def test_real() -> None:
    assert real([1, 2]).dtype == jnp.float32
    with jax.enable_x64(True):
        assert real(np.ones(2, np.float32)).dtype == jnp.float64
    assert real(np.ones(2)).dtype == jnp.float32
