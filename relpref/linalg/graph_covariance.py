"""Covariances of a graph's nodes by its Laplacian: sparse precisions, and the heat kernel."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from numpy.polynomial.chebyshev import chebinterpolate
from numpy.typing import ArrayLike, NDArray

from relpref.linalg.cg import Floats, Progress
from relpref.linalg.covariance import ConstantRows
from relpref.linalg.graph_solver import LaplacianSolver, SeenBlock
from relpref.linalg.lanczos import Tridiagonal, lanczos

# The Lanczos process runs on (Δ + s I)⁻¹ with s so many times 1/t (van den Eshof & Hochbruck 2006):
# fewest steps, 16 for 1e-6.
_SHIFT = 10.0
# Entries of all the vectors of a run: 0.5 GB.
_KEPT, _MOST_COLUMNS = 2**26, 64


class _OfGraph(ConstantRows):
    """A function of a graph's Laplacian, by a solver.

    ``progress`` is called with the numbers of finished and of all columns.
    """

    solver: LaplacianSolver
    scale: float
    progress: Progress | None

    @property
    def size(self) -> int:
        return self.solver.size

    def scaled(self, factor: Any) -> Any:
        return replace(self, scale=float(factor) * self.scale)  # type: ignore[type-var]

    def showing(self, progress: Callable[[], Progress]) -> Any:
        return replace(self, progress=progress())  # type: ignore[type-var]


@dataclass(frozen=True, eq=False)
class SparsePrecision(_OfGraph):
    """scale (Δ + shift I)⁻¹ of a graph (XPGP eq. 2 with shift = 1/ι²): its inverse is sparse."""

    sparse_inverse: ClassVar[bool] = True
    solver: LaplacianSolver  # of the graph; shared by all shifts and scales
    shift: float
    scale: float = 1.0
    # Tolerance of the solutions, see `LaplacianSolver.solve`; three hundred-thousandths move a
    # posterior mean by less than a thousandth of its standard deviation, also where answers say
    # much more than the prior.
    tol: float = 3e-5
    progress: Progress | None = None

    def matmul(self, vectors: Any) -> Floats:
        return self.scale * self.solver.solve(self.shift, vectors, self.tol, self.progress).values

    def block(self, rows: Any, columns: Any) -> Floats:
        """K[rows][:, columns]; entries computed before are kept, see `LaplacianSolver.block`."""
        return self.scale * self.solver.block(self.shift, rows, columns, self.tol, self.progress)

    def inverse(self) -> Any:
        """K⁻¹ as a scipy CSR array."""
        identity = scipy.sparse.eye_array(self.size, format="csr")
        return (self.solver.laplacian() + self.shift * identity) / self.scale

    @property
    def row_sum(self) -> float:
        """The eigenvalue of vectors that are constant on components of K⁻¹."""
        return self.scale / self.shift

    @property
    def is_treelike(self) -> bool:
        """Whether a factor of K⁻¹ is about as sparse as it is and worth having."""
        return self.solver.is_treelike


@dataclass(frozen=True, eq=False)
class HeatKernel(_OfGraph):
    """scale exp(−tΔ) of a graph (Kondor & Lafferty 2002), by solutions with Δ + 10/t."""

    solver: LaplacianSolver
    time: float
    scale: float = 1.0
    tol: float = 1e-6  # bound on the error of a product, relative to the vector's length
    progress: Progress | None = None
    _seen: SeenBlock = field(default_factory=SeenBlock, repr=False)

    def matmul(self, vectors: ArrayLike) -> Floats:
        given = np.asarray(vectors, dtype=np.float64)
        columns = given.reshape(self.size, -1)
        product = np.empty(columns.shape)
        for part in self._parts(columns.shape[1]):
            product[:, part] = self.scale * self._flowed(columns[:, part])
        return product.reshape(given.shape)

    def block(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        """K[rows][:, columns]; entries computed before are kept."""
        positions = self.solver.positions
        return self.scale * self._seen.entries(positions(rows), positions(columns), self._columns)

    @property
    def row_sum(self) -> float:
        """The eigenvalue of vectors that are constant on components: no heat is lost."""
        return self.scale

    def _columns(
        self, columns: NDArray[np.intp], rows: NDArray[np.intp]
    ) -> Iterator[tuple[slice, Floats]]:
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
        """exp(−tΔ) times vectors, by the Krylov space of the part without constants.

        Vectors that are constant on a component do not change.
        """
        solver, shift = self.solver, _SHIFT / self.time
        start = solver.centred(vectors)
        norm = np.linalg.norm(start, axis=0)

        def apply(block: Floats) -> Floats:
            return solver.centred(solver.solve(shift, block, tol=1e-2 * self.tol).values)

        process = lanczos(apply, start, _steps(self.tol), keep=True)
        weights = _weights(
            process, lambda nodes: np.exp(-self.time * np.maximum(1.0 / nodes - shift, 0.0))
        )
        flowed = np.asarray(vectors - start)
        for vector, weight in zip(process.vectors, weights, strict=True):
            flowed += vector * (weight * norm)
        return flowed


@cache
def _steps(tol: float) -> int:
    """Number of steps that suffices for any graph, time and vector.

    With x = s/(λ + s) in (0, 1], exp(−tλ) = exp(st (1 − 1/x)) is one function, because st is fixed.
    k steps are exact for polynomials in x of degree k − 1; otherwise their error is at most twice
    that of the best of these polynomials, bounded by the further Chebyshev coefficients.
    """

    def function(y: Any) -> Any:
        return np.exp(_SHIFT * (1 - 2 / np.maximum(1 + y, 1e-300)))  # x = (1 + y) / 2

    coefficients = chebinterpolate(function, 200)
    left = 2 * np.cumsum(np.abs(coefficients[::-1]))[::-1]
    return int(np.argmax(left <= tol)) or len(left)


def _weights(process: Tridiagonal, function: Callable[[Floats], Floats]) -> Floats:
    """f(T) e₁ for each start vector, shape (steps so far, p)."""
    weights = np.zeros((len(process.vectors), process.length.size))
    for number, values, vectors in process.spectra():
        weights[: len(values), number] = vectors @ (function(values) * vectors[0])
    return weights
