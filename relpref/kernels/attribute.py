"""Kernels on attribute vectors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpy.typing import ArrayLike

from relpref.errors import DataError
from relpref.linalg import CovarianceOperator, Dense, real


class AttributeKernel(Protocol):
    """A covariance function of attributes, unit amplitude."""

    def parameters(self, num_attributes: int) -> Mapping[str, dist.Distribution]:
        """Its hyperparameters and their default priors; the site's name is ``attributes_<name>``."""

    def __call__(self, *args: Any, **parameters: Any) -> CovarianceOperator:
        """Covariance of n attribute vectors, from an (n, d) array and the hyperparameters by name."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SquaredExponential:
    """exp(−½ Σ_d (x_d − x'_d)²/ℓ_d²) (XPGP eq. 1, where ρ = 1/ℓ).

    Parameters
    ----------
    shared_lengthscale : bool
        One ℓ for all attributes, as in the paper; by default each attribute has its own, so that an attribute
        that does not matter can be switched off by a long one.

    Notes
    -----
    Prior of every ℓ: log-normal with median √d and log-sd 1. Two entities drawn at random from standardised attributes are
    √(2d) apart, so √d lets utility change over about that distance whatever the number of attributes, and two log-sds
    reach from a seventh of it to seven times it. Without the growth with d, the covariance of many attributes
    would be a diagonal matrix before any answer was seen (Hvarfner et al. 2024, arXiv:2402.02229).
    """

    shared_lengthscale: bool = field(default=False, metadata={"static": True})

    def parameters(self, num_attributes: int) -> Mapping[str, dist.Distribution]:
        """``lengthscale``, shape (d,) or () when shared."""
        prior = dist.LogNormal(0.5 * np.log(max(num_attributes, 1)), 1.0)
        return {
            "lengthscale": prior if self.shared_lengthscale else prior.expand([num_attributes]).to_event(1)
        }

    def __call__(self, attributes: Array, *, lengthscale: Array) -> Dense:
        """Covariance matrix; ``lengthscale`` is a scalar or has shape (d,)."""
        return Dense(jnp.exp(-0.5 * squared_distances(attributes / lengthscale)))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Precomputed:
    """A covariance given as a matrix, whatever the attributes or links are.

    Parameters
    ----------
    covariance : array, shape (n, n)
        Symmetric positive semidefinite, in the order of the entities.

    Raises
    ------
    DataError
        If it is not a square, finite and symmetric matrix.
    """

    covariance: ArrayLike

    def __post_init__(self) -> None:
        """Check the matrix where it is a concrete one (JAX also rebuilds this object around tracers)."""
        if isinstance(self.covariance, np.ndarray | list | tuple):
            matrix = np.asarray(self.covariance, dtype=np.float64)
            if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
                raise DataError(
                    f"Precomputed covariance has shape {matrix.shape}; it must be a square matrix"
                )
            if not np.all(np.isfinite(matrix)):
                row, column = np.argwhere(~np.isfinite(matrix))[0]
                raise DataError(
                    f"Precomputed covariance holds {matrix[row, column]} at row {row}, column {column}; "
                    "all entries must be finite"
                )
            if not np.allclose(matrix, matrix.T, rtol=1e-10, atol=1e-12 * np.abs(matrix).max(initial=0.0)):
                raise DataError(
                    "Precomputed covariance is not symmetric; give (K + K.T) / 2 if that is what you mean"
                )
            object.__setattr__(self, "covariance", matrix)

    def parameters(self, domain: object) -> Mapping[str, dist.Distribution]:
        """None."""
        return {}

    def __call__(self, domain: object, *, normalize: bool = True) -> Dense:
        """The matrix as it was given; attributes or graph are not looked at, and nothing is scaled."""
        return Dense(real(self.covariance))


def squared_distances(points: Array) -> Array:
    """Squared Euclidean distance of every two rows, shape (n, n); exactly 0 on the diagonal, never negative."""
    centred = points - jnp.mean(points, axis=0)  # less cancellation far from the origin
    norms = jnp.sum(jnp.square(centred), axis=1)
    squared = jnp.maximum(norms[:, None] + norms[None, :] - 2 * centred @ centred.T, 0.0)
    return squared * (1 - jnp.eye(points.shape[0], dtype=squared.dtype))
