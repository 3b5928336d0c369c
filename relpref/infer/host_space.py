"""Latent space in NumPy, with triangular matrices whose zeros are not computed.

With K = U Uᵀ for an upper triangular U, V = U chol(B)⁻ᵀ is upper triangular, too, and every product
and quotient takes a third of the operations. Where K is well-conditioned, V comes from K⁻¹
+ Q, which costs half of that.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from relpref.infer.rows import Rows
from relpref.infer.spaces import Factorised, LatentSpace
from relpref.linalg import Covariance
from relpref.linalg.arrays import solve_lower
from relpref.linalg.factor import cholesky

Floats = NDArray[np.float64]

# Condition number of K up to which K⁻¹ is used; variances and means are then off by that times
# rounding, less than 1e-9.
_WELL_CONDITIONED = 1e7
_PANEL = 128  # columns that are computed together


@dataclass(frozen=True)
class HostSpace(LatentSpace):
    """`LatentSpace` whose root and V are upper triangular."""

    inverse: Floats | None = None  # the upper triangle of K⁻¹, where it is accurate

    @classmethod
    def of(cls, covariance: Covariance, rows: Rows, accurate: bool = False) -> "HostSpace":
        """Factorise the prior."""
        # With rows and columns backwards, a lower triangular root becomes an upper one.
        backwards: Floats = covariance.dense()[::-1, ::-1]
        lower, jitter = cholesky(backwards)
        inverse = None if accurate else _inverse(lower, backwards)
        return cls(np.ascontiguousarray(lower[::-1, ::-1]), rows, jitter, accurate, inverse)

    def factorise(self, precision: Floats) -> Factorised:
        if not precision.any():
            return Factorised(np.eye(len(self.root)), self.root, precision, np.zeros(()))
        if self.inverse is None:
            return super().factorise(precision)
        total = self.inverse.copy()  # K⁻¹ + Q = (V Vᵀ)⁻¹, of which LAPACK sees the transpose
        self.rows.add_gram(precision, total)
        root, failed = lapack.dpotrf(total.T, lower=True, clean=True, overwrite_a=True)
        if not failed:
            white, failed = lapack.dtrtri(root, lower=True)
        if failed:
            nothing = np.full_like(total, np.nan)
            return Factorised(nothing, nothing, precision, np.array(np.nan))
        log_determinant = np.sum(np.log(np.diagonal(root)) + np.log(np.diagonal(self.root)))
        return Factorised(root, white.T, precision, log_determinant)

    def product(self, right: Floats) -> Floats:
        """Lower triangle of Uᵀ times an (n, n) array, if that is symmetric; above it anything."""
        size = len(right)
        result = np.empty((size, size))
        for start in range(0, size, _PANEL):
            panel = slice(start, start + _PANEL)
            seen = slice(start + _PANEL)  # below them the root's columns are 0
            np.matmul(right[seen, start:].T, self.root[seen, panel], out=result[start:, panel])
        return result

    def quotient(self, lower: Floats) -> Floats:
        """U times the transposed inverse of a lower triangular matrix."""
        result = np.zeros_like(lower)
        for start in range(0, len(lower), _PANEL):
            panel, seen = slice(start, start + _PANEL), slice(start + _PANEL)
            left = self.root[seen, panel].copy()
            for above in range(0, start, _PANEL):
                rows, columns = slice(above, above + _PANEL), slice(above, start)
                left[rows] -= result[rows, columns] @ lower[panel, columns].T
            corner = lower[panel, panel]
            result[seen, panel] = left @ solve_lower(corner, np.eye(len(corner))).T
        return result

    def covariance(self, factor: Factorised) -> Floats:
        upper = lapack.dlauum(factor.white.T, lower=True)[0].T
        result = upper + upper.T
        np.fill_diagonal(result, np.diagonal(upper))
        return result

    def weights(self, factor: Factorised, precision: Floats) -> Floats:
        if self.accurate:  # then Q is so large that QΣQ would cancel
            return np.asarray(super().weights(factor, precision))
        pulled = self.rows.times_gram(precision, self.covariance(factor))
        weights = -self.rows.times_gram(precision, pulled.T)
        self.rows.add_gram(precision, weights)
        return weights


def _inverse(lower: Any, matrix: Floats) -> Floats | None:
    """Upper triangle of the inverse of a matrix read backwards, from its lower triangular root.

    None where the matrix is ill-conditioned.
    """
    if not len(lower) or not np.isfinite(lower[-1, -1]):
        return None
    # LAPACK's upper triangle is the lower one in memory, and that the upper one backwards.
    reciprocal, _ = lapack.dpocon(lower.T, np.abs(matrix).sum(axis=0).max(), uplo="U")
    if not reciprocal * _WELL_CONDITIONED > 1:
        return None
    inverse, failed = lapack.dpotri(lower.T, lower=False)
    return None if failed else np.ascontiguousarray(inverse.T[::-1, ::-1])
