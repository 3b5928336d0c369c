"""Iterative refinement: residuals in double precision, corrections by whatever suits the graph."""

import threading
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from numpy.typing import NDArray

from relpref.linalg.implicit.block_cg import Block, block_cg, chunks, inner
from relpref.linalg.implicit.laplacian import OrderedLaplacian

Floats = NDArray[np.float64]

# Up to so many nodes a factorisation costs less than the iterations.
_SMALL = 500
# Single precision gains no more in one round (measured on hubs, random graphs and lattices with shortcuts).
_SINGLE = 3e-7
_MOST_STEPS, _MOST_ROUNDS = 3000, 20


class Solved(NamedTuple):
    """A block of solutions, in the order of the layout, the products they took, the largest residual left, and the method."""

    values: Floats
    steps: int
    residual: float
    method: str


class Refinement:
    """Solves (Δ + shift I) X = B block by block; one instance serves all threads.

    Parameters
    ----------
    laplacian : OrderedLaplacian
    """

    def __init__(self, laplacian: OrderedLaplacian) -> None:
        self._laplacian = laplacian
        self._lock = threading.Lock()
        self._factor: tuple[float, Any] = (np.nan, None)

    def solve(self, shift: float, rhs: Floats, tol: float) -> Solved:
        """Correct the solution until its residual is small enough, or no smaller any more."""
        laplacian = self._laplacian
        scale = (1.0 / (laplacian.degree + shift))[:, None]
        norm = np.sqrt(_weighted(rhs, scale))
        norm[norm == 0] = 1.0
        # Δ1 = 0 on each component: the constant part of the solution is known, the rest is sought without it.
        constant = laplacian.means(rhs) / shift
        rhs = rhs.copy()
        laplacian.center(rhs)
        residual, values = rhs.copy(), np.zeros_like(rhs)
        direct = laplacian.size <= _SMALL or laplacian.is_forest or laplacian.is_narrow
        precision: Any = np.float32 if laplacian.suits_single(shift) else np.float64
        steps, last = 0, np.inf
        for _ in range(_MOST_ROUNDS):
            left = np.sqrt(_weighted(residual, scale)) / norm
            worst = float(left.max(initial=0.0))
            if worst <= tol or not np.isfinite(worst) or steps >= _MOST_STEPS:
                break
            if worst > 0.3 * last:
                # Single precision gains nothing any more; then double precision either.
                if direct or precision is np.float64:
                    break
                precision = np.float64
            last = worst
            if direct:
                correction = self._factorised(shift).solve(residual)
                steps += 1
            else:
                # Each column as long as 1, whatever the range of single precision; those that are done stay as they are.
                length = np.where(left > tol, left, 1.0)
                residual /= length * norm
                floor = _SINGLE if precision is np.float32 else 1e-12
                found = block_cg(
                    lambda block, out: laplacian.apply(shift, block, out),
                    self._jacobi(scale.astype(precision)),
                    residual.astype(precision),
                    tol=np.where(left > tol, np.maximum(0.7 * tol / length, floor), 1.0),
                    max_steps=_MOST_STEPS - steps,
                )
                correction = found.values * (length * norm)
                steps += found.steps
            laplacian.center(correction)
            values += correction
            laplacian.apply(shift, values, residual)
            np.subtract(rhs, residual, out=residual)
        laplacian.spread(values, constant)
        return Solved(
            values, steps, worst, "a sparse factorisation" if direct else "conjugate gradients (Jacobi)"
        )

    def _jacobi(self, scale: Block) -> Any:
        """The diagonal as preconditioner, on the complement of the components' constants."""

        def precondition(block: Block, out: Block) -> None:
            np.multiply(block, scale, out=out)
            self._laplacian.center(out)

        return precondition

    def _factorised(self, shift: float) -> Any:
        with self._lock:
            if self._factor[0] != shift:
                # A shift that vanishes beside the degrees would leave a singular matrix; refinement makes up for the larger.
                degree = self._laplacian.degree
                raised = max(shift, 1e-13 * float(degree.max(initial=0.0)))
                matrix = self._laplacian.matrix + raised * scipy.sparse.eye_array(
                    self._laplacian.size, format="csr"
                )
                factor = scipy.sparse.linalg.splu(
                    scipy.sparse.csc_array(matrix),
                    permc_spec="MMD_AT_PLUS_A",
                    diag_pivot_thresh=0.0,
                    options={"SymmetricMode": True},
                )
                self._factor = (shift, factor)
            return self._factor[1]


def _weighted(block: Block, weight: Floats) -> Floats:
    """Σ_i w_i x_i² of each column."""
    total = np.zeros(block.shape[1])
    for rows in chunks(block):
        total += inner(block[rows], block[rows] * weight[rows])
    return total
