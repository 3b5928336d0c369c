"""A covariance that is given, not computed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
from numpy.typing import ArrayLike

from relpref.errors import DataError
from relpref.linalg import Dense, real


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Precomputed:
    """A covariance given as a matrix, whatever the attributes or links are.

    Parameters
    ----------
    covariance : array, shape (n, n), optional
        Symmetric positive semidefinite, in the order of the entities. By default it is what the data have as attributes: in the row of
        each entity its kernel with all of them.

    Raises
    ------
    DataError
        If it is not a square, finite and symmetric matrix.
    """

    covariance: ArrayLike | None = None

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

    def __call__(self, domain: Any, *, normalize: bool = True) -> Dense:
        """The matrix as it was given, or the attributes; nothing is scaled."""
        return Dense(real(domain if self.covariance is None else self.covariance))
