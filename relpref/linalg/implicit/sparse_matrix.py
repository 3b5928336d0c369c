"""A covariance most of whose entries are 0."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """K by its entries.

    Parameters
    ----------
    matrix : scipy CSR array, shape (n, n)
        Symmetric, positive semidefinite.
    """

    matrix: Any

    @property
    def size(self) -> int:
        """Number of rows n."""
        return int(self.matrix.shape[0])

    def matmul(self, vectors: ArrayLike) -> Floats:
        """K times vectors of shape (n,) or (n, k)."""
        return np.asarray(self.matrix @ np.asarray(vectors, dtype=np.float64))

    def block(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        """K[rows][:, columns]."""
        return np.asarray(self.matrix[np.asarray(rows)][:, np.asarray(columns)].toarray())

    def row_means(self, rows: ArrayLike) -> Floats:
        """Mean of each of some rows."""
        return np.asarray(self.matrix[np.asarray(rows)].sum(axis=1)).reshape(-1) / self.size

    def average(self) -> float:
        """Mean of all entries."""
        return float(self.matrix.sum()) / self.size**2

    def scaled(self, factor: float) -> "SparseMatrix":
        """K times a positive number."""
        return replace(self, matrix=float(factor) * self.matrix)
