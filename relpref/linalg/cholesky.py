"""Cholesky factors, and the one place where jitter is added."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

# Jitter tried in turn, as multiples of n·eps·mean(diag K): rounding alone makes the smallest eigenvalue of an
# n x n covariance uncertain by about n·eps times its largest one, so anything below the first step cannot help.
_STEPS = (0.0, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5)


class Factor(NamedTuple):
    """A Cholesky factor and the jitter it needed.

    Attributes
    ----------
    lower : Array, shape (n, n)
        Lower triangular L with L Lᵀ = K + jitter·I. Not finite when no jitter tried was enough.
    jitter : Array, shape ()
        What was added to the diagonal, in the units of K; 0 when nothing was needed.
    """

    lower: Array
    jitter: Array


@jax.jit
def cholesky(matrix: Array) -> Factor:
    """Factorise a covariance, adding the smallest jitter of a fixed ladder that makes it positive definite.

    The ladder is 0, then 1 to 1e5 times ``n * eps * mean(diag)``, with eps that of the matrix's dtype. The search is
    not differentiated; the factor is.

    Parameters
    ----------
    matrix : Array, shape (n, n)
        Symmetric; only the lower triangle is read.

    Returns
    -------
    Factor
        ``lower`` is NaN when the matrix is not finite or not positive semidefinite within the ladder.
    """
    n = matrix.shape[-1]
    fixed = jax.lax.stop_gradient(matrix)
    unit = n * np.finfo(matrix.dtype).eps * jnp.mean(jnp.abs(jnp.diagonal(fixed)))
    steps = jnp.asarray(_STEPS, matrix.dtype)

    identity = jnp.eye(n, dtype=matrix.dtype)

    def fails(state: tuple[Array, Array]) -> Array:
        tried, lower = state
        return ~jnp.all(jnp.isfinite(jnp.diagonal(lower))) & (tried < len(_STEPS))

    def harder(state: tuple[Array, Array]) -> tuple[Array, Array]:
        tried, _ = state
        jittered = fixed + steps[tried] * unit * identity
        return tried + 1, jnp.linalg.cholesky(jittered, symmetrize_input=False)

    tried, lower = jax.lax.while_loop(fails, harder, (jnp.asarray(0), jnp.full_like(fixed, jnp.nan)))
    jitter = steps[tried - 1] * unit
    return Factor(_attach(matrix, jitter, lower), jitter)


@jax.custom_jvp
def _attach(matrix: Array, jitter: Array, lower: Array) -> Array:
    """Return ``lower``, the factor already found, as a differentiable function of ``matrix``."""
    return lower


@_attach.defjvp
def _attach_jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    lower, tangent = primals[2], tangents[0]
    # dL = L Φ(L⁻¹ dK L⁻ᵀ), Φ = lower triangle with half the diagonal (Murray 2016, arXiv:1602.07527, eq. 8).
    symmetric = 0.5 * (tangent + tangent.T)
    left = jax.scipy.linalg.solve_triangular(lower, symmetric, lower=True)
    inner = jax.scipy.linalg.solve_triangular(lower, left.T, lower=True)
    phi = jnp.tril(inner) - 0.5 * jnp.diag(jnp.diagonal(inner))
    return lower, lower @ phi
