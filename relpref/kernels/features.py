"""Features: a covariance as an inner product, and what of it a few landmarks leave out."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular

from relpref.linalg import cholesky


class Features(NamedTuple):
    """k(x, x') = φ(x)ᵀφ(x') for x ≠ x', and k(x, x) = φ(x)ᵀφ(x) + residual(x).

    Attributes
    ----------
    values : Array, shape (m, r)
        φ, a row for each example.
    residual : Array, shape (m,), or None
        Prior variance that the features leave out; None where they leave out nothing.
    """

    values: Array
    residual: Array | None = None


def landmark_features(cross: Array, corner: Array, diagonal: Array) -> Features:
    """Features from a kernel's values at r landmarks: φ(x) = L⁻¹ k(Z, x) with L Lᵀ = k(Z, Z).

    The prior that they and their residual stand for is the kernel's own at the landmarks and between landmark and example; between
    two other examples it is what the landmarks explain (Snelson & Ghahramani 2006, "Sparse Gaussian processes using
    pseudo-inputs"). If every example of the training data is a landmark, nothing is approximated, at new examples either.

    Parameters
    ----------
    cross : Array, shape (m, r)
        k(x, Z).
    corner : Array, shape (r, r)
        k(Z, Z).
    diagonal : Array, shape (m,)
        k(x, x).
    """
    return factored_features(cross, cholesky(corner).lower, diagonal)


def factored_features(cross: Array, lower: Array, diagonal: Array) -> Features:
    """`landmark_features` by the Cholesky factor L of k(Z, Z), which does not depend on the examples."""
    values = solve_triangular(lower, cross.T, lower=True).T
    return Features(values, jnp.maximum(diagonal - jnp.sum(jnp.square(values), axis=1), 0.0))
