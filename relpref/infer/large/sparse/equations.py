"""Many right-hand sides of one sparse positive definite system."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from numpy.typing import NDArray

from relpref.errors import InferenceError
from relpref.linalg import block_cg
from relpref.linalg.implicit.threads import cores, in_threads

Floats = NDArray[np.float64]

_WIDEST = 32  # columns in a block: wide enough to read the matrix seldom, narrow enough to stay in the cache
_NARROWEST = 8  # what a thread of its own is worth
_MOST_STEPS = 5000
_RAISED = 1e-12


class Preconditioner:
    """M of conjugate gradients: the diagonal of S, and in some diagonal blocks more of it.

    A diagonal alone takes thousands of steps where ranges are long on a chain or a tree; factors of their precisions are sparse.

    Parameters
    ----------
    diagonal : array, shape (d,)
    blocks : sequence of (slice, scipy sparse array)
        Rows, and positive definite matrices whose factors are sparse; their diagonals are replaced by that of S.
    """

    def __init__(self, diagonal: Floats, blocks: Sequence[tuple[slice, Any]] = ()) -> None:
        self._inverse = 1 / diagonal[:, None]
        self._factors = []
        for rows, block in blocks:
            # Without answers a small shift would leave a singular matrix.
            raised = diagonal[rows] * (1 + _RAISED) - block.diagonal()
            matrix = scipy.sparse.csc_array(block + scipy.sparse.diags_array(raised))
            factor = scipy.sparse.linalg.splu(
                matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
            )
            self._factors.append((rows, factor))

    def __call__(self, block: Any, out: Any) -> None:
        """Write M⁻¹ times a block."""
        np.multiply(block, self._inverse, out=out)
        for rows, factor in self._factors:
            out[rows] = factor.solve(np.ascontiguousarray(block[rows]))


class Equations:
    """S x = b for a sparse symmetric positive definite S, by conjugate gradients.

    Parameters
    ----------
    matrix : scipy CSR array, shape (d, d)
        S.
    precondition : Preconditioner
    """

    def __init__(self, matrix: Any, precondition: Preconditioner) -> None:
        self._matrix, self._precondition = matrix, precondition

    def solve(self, rhs: Floats, start: Floats | None, tol: float) -> Floats:
        """Solve.

        Parameters
        ----------
        rhs : array, shape (d, k)
        start : array, shape (d, k), optional
            First guess.
        tol : float
            Bound on √(rᵀM⁻¹r / bᵀM⁻¹b) of each column.

        Returns
        -------
        array, shape (d, k)

        Raises
        ------
        InferenceError
            If it is out of reach.
        """
        # A right-hand side of nothing has the solution zero, and no guess is near enough.
        solution = np.zeros_like(rhs) if start is None else start * rhs.any(axis=0)
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
        image = np.empty_like(block)
        self._precondition(block, image)
        return np.asarray(np.sqrt(np.einsum("ij,ij->j", block, image)))

    def _apply(self, block: Any, out: Any) -> None:
        out[...] = self._matrix @ block
