"""Many right-hand sides of one sparse positive definite system, by preconditioned conjugate gradients."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_WIDEST = 32  # columns in a block: wide enough to read the matrix seldom, narrow enough to stay in the cache
_NARROWEST = 8  # what a block of its own is worth
_MOST = 2000  # steps


class NotSolved(Exception):
    """Conjugate gradients did not reach the residual asked for; ``args`` are the residual and the steps."""


class Equations:
    """S x = b for a sparse symmetric positive definite S.

    The rows and columns are scaled to a unit diagonal, which is Jacobi's preconditioner: fit for sums of graph Laplacians, whose
    degrees differ by orders of magnitude, and a diagonal.

    Parameters
    ----------
    matrix : scipy CSR array, shape (d, d)
        S.
    """

    def __init__(self, matrix: Any) -> None:
        self._root = np.sqrt(1 / matrix.diagonal())
        rows = np.repeat(self._root, np.diff(matrix.indptr))
        data = matrix.data * rows * self._root[matrix.indices]
        self._scaled = scipy.sparse.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)

    def solve(self, rhs: Floats, start: Floats | None, tol: float) -> Floats:
        """Solve.

        Parameters
        ----------
        rhs : array, shape (d, k)
        start : array, shape (d, k), optional
            First guess.
        tol : float
            Of the residual relative to the right-hand side, column by column, both scaled as the rows are.

        Returns
        -------
        array, shape (d, k)

        Raises
        ------
        NotSolved
        """
        width = int(np.clip(-(-rhs.shape[1] // cores()), _NARROWEST, _WIDEST))
        blocks = [slice(first, first + width) for first in range(0, rhs.shape[1], width)]
        solution = np.empty_like(rhs)

        def one(block: slice) -> None:
            solution[:, block] = self._block(rhs[:, block], None if start is None else start[:, block], tol)

        if len(blocks) == 1 or cores() == 1:
            for block in blocks:
                one(block)
        else:
            # The products with a sparse matrix and the passes over the vectors let other threads run.
            with ThreadPoolExecutor(cores()) as pool:
                list(pool.map(one, blocks))
        return solution

    def _block(self, rhs: Floats, start: Floats | None, tol: float) -> Floats:
        """Hestenes & Stiefel's conjugate gradients, each column with its own steps."""
        target = rhs * self._root[:, None]
        enough = tol**2 * _squares(target)
        if start is None:
            solution, residual = np.zeros_like(target), target.copy()
        else:
            solution = np.where(enough > 0, start / self._root[:, None], 0.0)
            residual = target - self._scaled @ solution
        direction, scratch = residual.copy(), np.empty_like(target)
        squared = _squares(residual)
        steps = 0
        while not np.all(squared <= enough):
            image = self._scaled @ direction
            curvature = np.einsum("ij,ij->j", direction, image)
            if steps == _MOST or not np.all((curvature > 0) | (squared <= enough)):
                worst = np.sqrt(np.max(squared / np.where(enough > 0, enough, 1.0))) * tol
                raise NotSolved(float(worst), steps)
            length = _ratio(squared, curvature)
            solution += np.multiply(direction, length, out=scratch)
            residual -= np.multiply(image, length, out=scratch)
            before, squared = squared, _squares(residual)
            direction *= _ratio(squared, before)
            direction += residual
            steps += 1
        return solution * self._root[:, None]


def cores() -> int:
    """Number of cores this process may use."""
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


def _squares(columns: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->j", columns, columns))


def _ratio(over: Floats, under: Floats) -> Floats:
    return np.divide(over, under, out=np.zeros_like(over), where=under > 0)
