"""The heat kernel of a graph with up to millions of nodes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import scipy.linalg
from numpy.polynomial.chebyshev import chebinterpolate
from numpy.typing import ArrayLike, NDArray

from relpref.linalg.implicit.lanczos import Tridiagonal, lanczos
from relpref.linalg.implicit.laplacian_solver import LaplacianSolver
from relpref.linalg.implicit.seen import SeenBlock
from relpref.linalg.implicit.threads import Progress

Floats = NDArray[np.float64]

# The Lanczos process runs on (Δ + s I)⁻¹ with s so many times 1/t (van den Eshof & Hochbruck 2006): fewest steps, 16 for 1e-6.
_SHIFT = 10.0
# Entries of all the vectors of a run: 0.5 GB.
_KEPT, _MOST_COLUMNS = 2**26, 64


@dataclass(frozen=True, eq=False)
class HeatKernel:
    """scale exp(−tΔ) of a graph (Kondor & Lafferty 2002), by solutions with Δ + 10/t.

    Parameters
    ----------
    solver : LaplacianSolver
        Of the graph.
    time, scale : float
        Positive.
    tol : float
        Bound on the error of a product, relative to the vector's length.
    progress : callable, optional
        Told how many columns of how many are done.
    """

    solver: LaplacianSolver
    time: float
    scale: float = 1.0
    tol: float = 1e-6
    progress: Progress | None = None
    _seen: SeenBlock = field(default_factory=SeenBlock, repr=False)

    @property
    def size(self) -> int:
        """Number of nodes n."""
        return self.solver.size

    def matmul(self, vectors: ArrayLike) -> Floats:
        """K times vectors of shape (n,) or (n, k)."""
        given = np.asarray(vectors, dtype=np.float64)
        columns = given.reshape(self.size, -1)
        product = np.empty(columns.shape)
        for part in self._parts(columns.shape[1]):
            product[:, part] = self.scale * self._flowed(columns[:, part])
        return product.reshape(given.shape)

    def block(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        """K[rows][:, columns]; what was asked for before is kept."""
        positions = self.solver.positions
        return self.scale * self._seen.entries(positions(rows), positions(columns), self._columns)

    def row_means(self, rows: ArrayLike) -> Floats:
        """Mean of each of some rows: every row adds up to the scale, as no heat is lost."""
        return np.full(np.size(rows), self.average())

    def average(self) -> float:
        """Mean of all entries."""
        return self.scale / self.size

    def scaled(self, factor: float) -> "HeatKernel":
        """K times a positive number."""
        return replace(self, scale=float(factor) * self.scale)

    def _columns(self, columns: NDArray[np.intp], rows: NDArray[np.intp]) -> Iterator[tuple[slice, Floats]]:
        for part in self._parts(columns.size):
            units = np.zeros((self.size, part.stop - part.start))
            units[columns[part], np.arange(units.shape[1])] = 1.0
            yield part, self._flowed(units)[rows]

    def _parts(self, count: int) -> Iterator[slice]:
        width = int(np.clip(_KEPT // (_steps(self.tol) * max(self.size, 1)), 1, _MOST_COLUMNS))
        for start in range(0, count, width):
            stop = min(start + width, count)
            yield slice(start, stop)
            if self.progress is not None:
                self.progress(stop, count)

    def _flowed(self, vectors: Floats) -> Floats:
        """exp(−tΔ) times vectors: what is constant on a component stays, the rest by its Krylov space."""
        solver, shift = self.solver, _SHIFT / self.time
        start = solver.centred(vectors)
        norm = np.linalg.norm(start, axis=0)

        def apply(block: Floats) -> Floats:
            return solver.centred(solver.solve(shift, block, tol=1e-2 * self.tol).values)

        found = lanczos(apply, start, _steps(self.tol), keep=True)
        weights = _weights(found, lambda nodes: np.exp(-self.time * np.maximum(1.0 / nodes - shift, 0.0)))
        flowed = np.asarray(vectors - start)
        for vector, weight in zip(found.vectors, weights, strict=True):
            flowed += vector * (weight * norm)
        return flowed


@cache
def _steps(tol: float) -> int:
    """How many steps any graph, time and vector take at most.

    With x = s/(λ + s) in (0, 1], exp(−tλ) = exp(st (1 − 1/x)) is one function as st is fixed. k steps are exact for polynomials in
    x of degree k − 1, and else err by twice what the best of these leaves of that function: at most its further
    Chebyshev coefficients.
    """

    def function(y: Any) -> Any:
        return np.exp(_SHIFT * (1 - 2 / np.maximum(1 + y, 1e-300)))  # x = (1 + y) / 2

    coefficients = chebinterpolate(function, 200)
    left = 2 * np.cumsum(np.abs(coefficients[::-1]))[::-1]
    return int(np.argmax(left <= tol)) or len(left)


def _weights(found: Tridiagonal, function: Callable[[Floats], Floats]) -> Floats:
    """f(T) e₁ of each process, shape (steps so far, p)."""
    weights = np.zeros((len(found.vectors), found.length.size))
    for number, end in enumerate(found.length):
        if end:
            values, vectors = scipy.linalg.eigh_tridiagonal(
                found.diagonal[number, :end], found.beside[number, : end - 1]
            )
            weights[:end, number] = vectors @ (function(values) * vectors[0])
    return weights
