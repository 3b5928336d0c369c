"""Low rank instead of a kernel matrix, and what a low rank adds to a system that can be solved."""

from collections.abc import Callable

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from relpref.errors import DataError
from relpref.linalg.implicit.covariances import LowRank
from relpref.linalg.implicit.kernel_matrix import KernelMatrix
from relpref.linalg.pivoted import pivoted_cholesky

Floats = NDArray[np.float64]


def nystrom(
    matrix: KernelMatrix, most: int, tol: float = 1e-6, *, rng: np.random.Generator | None = None
) -> LowRank:
    """Replace K by ``K_·Z K_ZZ⁻¹ K_Z·``, with chosen points Z (Williams & Seeger 2001).

    Parameters
    ----------
    matrix : KernelMatrix
        K; n points.
    most : int
        Points to choose at most.
    tol : float
        Share of the trace that may be left out: with fewer points if they do.
    rng : Generator, optional
        Choose at random, in proportion to what the points chosen so far leave unexplained; else always what is explained
        worst, see `pivoted_cholesky`.

    Returns
    -------
    LowRank
        Its ``left_out`` is the share of the trace left out, which bounds the largest eigenvalue of the difference. The
        difference is positive semidefinite: no variance is overstated.
    """
    everyone = np.arange(matrix.size)
    chosen, left_out = pivoted_cholesky(
        matrix.diagonal(), lambda at: matrix.block(everyone, [at])[:, 0], most, tol, rng=rng
    )
    # No jitter: every point was chosen for what the others left of its variance.
    root = np.linalg.cholesky(matrix.block(chosen, chosen))
    columns = scipy.linalg.solve_triangular(root, matrix.block(chosen, everyone), lower=True)
    return LowRank(columns.T, left_out)


class Woodbury:
    """Solves with A + F Fᵀ, by solutions with A (Woodbury 1950): (A + FFᵀ)⁻¹ = A⁻¹ − A⁻¹F (I + FᵀA⁻¹F)⁻¹ FᵀA⁻¹.

    Parameters
    ----------
    solve : callable
        From vectors of shape (n,) or (n, k) to A⁻¹ times them, A symmetric positive definite: a sparse precision, a diagonal.
    factor : array, shape (n, r)
        F; costs r solutions.

    Raises
    ------
    DataError
        If I + FᵀA⁻¹F is not positive definite: A then was not.
    """

    def __init__(self, solve: Callable[[Floats], Floats], factor: Floats) -> None:
        self._solve, self._factor = solve, factor
        self._solved = np.asarray(solve(factor))
        inner = factor.T @ self._solved
        try:
            self._root = np.linalg.cholesky(np.eye(factor.shape[1]) + 0.5 * (inner + inner.T))
        except np.linalg.LinAlgError:
            raise DataError(
                "a low rank was added to a matrix that is not positive definite; look at the precision that is solved with"
            ) from None

    def solve(self, vectors: Floats) -> Floats:
        """(A + F Fᵀ)⁻¹ times vectors of shape (n,) or (n, k)."""
        small = scipy.linalg.cho_solve((self._root, True), self._solved.T @ vectors)
        return np.asarray(self._solve(vectors) - self._solved @ small)

    @property
    def log_determinant(self) -> float:
        """``log |A + F Fᵀ| − log |A| = log |I + FᵀA⁻¹F|``."""
        return 2.0 * float(np.log(np.diagonal(self._root)).sum())
