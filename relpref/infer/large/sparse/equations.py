"""Many right-hand sides of one sparse positive definite system."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relpref.errors import InferenceError
from relpref.linalg import block_cg
from relpref.linalg.implicit.threads import cores, in_threads

Floats = NDArray[np.float64]

_WIDEST = 32  # columns in a block: wide enough to read the matrix seldom, narrow enough to stay in the cache
_NARROWEST = 8  # what a thread of its own is worth
_MOST_STEPS = 5000


class Equations:
    """S x = b for a sparse symmetric positive definite S, by conjugate gradients with the diagonal as preconditioner.

    Parameters
    ----------
    matrix : scipy CSR array, shape (d, d)
        S.
    """

    def __init__(self, matrix: Any) -> None:
        self._matrix = matrix
        self._inverse = 1 / matrix.diagonal()[:, None]

    def solve(self, rhs: Floats, start: Floats | None, tol: float) -> Floats:
        """Solve.

        Parameters
        ----------
        rhs : array, shape (d, k)
        start : array, shape (d, k), optional
            First guess.
        tol : float
            Bound on √(rᵀM⁻¹r / bᵀM⁻¹b) of each column, M = diag(S).

        Returns
        -------
        array, shape (d, k)

        Raises
        ------
        InferenceError
            If it is out of reach.
        """
        solution = np.zeros_like(rhs) if start is None else start.copy()
        width = int(np.clip(-(-rhs.shape[1] // cores()), _NARROWEST, _WIDEST))
        parts = [slice(first, first + width) for first in range(0, rhs.shape[1], width)]

        def solve(part: slice) -> None:
            solution[:, part] += self._correction(rhs[:, part], solution[:, part], tol)

        for _ in in_threads(solve, parts):
            pass
        return solution

    def _correction(self, rhs: Floats, start: Floats, tol: float) -> Floats:
        """What a first guess lacks."""
        residual = rhs - self._matrix @ start
        before, wanted = self._norms(residual), tol * self._norms(rhs)
        # A right-hand side of nothing has the solution zero, and no other is near enough.
        bound = np.divide(wanted, before, out=np.zeros_like(before), where=before > 0)
        bound = np.maximum(bound, np.finfo(np.float64).eps)
        found = block_cg(self._apply, self._precondition, residual, tol=bound, max_steps=_MOST_STEPS)
        if not np.all(found.residual <= bound):
            raise InferenceError(
                f"conjugate gradients left a residual of {np.max(found.residual):.2g} after {found.steps} products with the "
                f"posterior precision of {len(rhs)} unknowns, {np.min(bound):.2g} was asked for; shorter ranges, smaller "
                "amplitudes, fewer links or a larger tolerance make that easier",
                found,
            )
        return found.values

    def _norms(self, block: Floats) -> Floats:
        return np.asarray(
            np.sqrt(np.einsum("ij,ij,ij->j", block, block, np.broadcast_to(self._inverse, block.shape)))
        )

    def _apply(self, block: Any, out: Any) -> None:
        out[...] = self._matrix @ block

    def _precondition(self, block: Any, out: Any) -> None:
        np.multiply(block, self._inverse, out=out)
