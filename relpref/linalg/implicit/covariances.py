"""Covariances of very many entities that are never written down: products and chosen blocks are all that is asked for."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.polynomial.chebyshev import chebinterpolate
from numpy.typing import ArrayLike, NDArray

from relpref.errors import DataError
from relpref.linalg.eigen import pivoted_cholesky
from relpref.linalg.implicit.block_cg import Progress
from relpref.linalg.implicit.lanczos import Tridiagonal, lanczos
from relpref.linalg.implicit.laplacian_solver import LaplacianSolver, SeenBlock

Floats = NDArray[np.float64]


@runtime_checkable
class ImplicitCovariance(Protocol):
    """A positive semidefinite K of shape (n, n) by what can be asked of it."""

    @property
    def size(self) -> int: ...

    def matmul(self, vectors: ArrayLike) -> Floats:
        """K times vectors of shape (n,) or (n, k)."""

    def block(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        """K[rows][:, columns] of positions of shapes (r,) and (c,)."""

    def row_means(self, rows: ArrayLike) -> Floats:
        """Mean of each of some rows, shape (r,): the covariance of an entity with the average of all."""

    def average(self) -> float:
        """Mean of all entries: the variance of the average."""

    def scaled(self, factor: float) -> "ImplicitCovariance":
        """K times a positive number."""


@dataclass(frozen=True, eq=False)
class Identity:
    """scale I: independent entries of one variance.

    Parameters
    ----------
    size : int
        Number of entities n.
    scale : float
        Positive.
    """

    size: int
    scale: float = 1.0

    def matmul(self, vectors: ArrayLike) -> Floats:
        """K times vectors of shape (n,) or (n, k)."""
        return self.scale * np.asarray(vectors, dtype=np.float64)

    def block(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        return self.scale * np.equal.outer(np.asarray(rows), np.asarray(columns))

    def row_means(self, rows: ArrayLike) -> Floats:
        """Mean of each of some rows."""
        return np.full(np.size(rows), self.average())

    def average(self) -> float:
        return self.scale / self.size

    def scaled(self, factor: float) -> "Identity":
        """K times a positive number."""
        return replace(self, scale=float(factor) * self.scale)

    def inverse(self) -> Any:
        """K⁻¹ as a scipy CSR array."""
        return scipy.sparse.eye_array(self.size, format="csr") / self.scale

    @property
    def of_constants(self) -> float:
        """The eigenvalue of vectors that are constant on components of K⁻¹, here of all vectors."""
        return self.scale

    @property
    def is_treelike(self) -> bool:
        """Whether a factor of K⁻¹ is about as sparse as it is and worth having; a diagonal needs none."""
        return False


@dataclass(frozen=True, eq=False)
class SparsePrecision:
    """scale (Δ + shift I)⁻¹ of a graph (XPGP eq. 2 with shift = 1/ι²): its inverse is sparse.

    Parameters
    ----------
    solver : LaplacianSolver
        Of the graph; shared by all shifts and scales.
    shift, scale : float
        Positive.
    tol : float
        Tolerance of the solutions, see `LaplacianSolver.solve`; three hundred-thousandths move a posterior mean by less than a thousandth
        of its standard deviation, also where answers say much more than the prior.
    progress : callable, optional
        Told how many columns of how many are solved.
    """

    solver: LaplacianSolver
    shift: float
    scale: float = 1.0
    tol: float = 3e-5
    progress: Progress | None = None

    @property
    def size(self) -> int:
        return self.solver.size

    def matmul(self, vectors: ArrayLike) -> Floats:
        """K times vectors of shape (n,) or (n, k)."""
        return self.scale * self.solver.solve(self.shift, vectors, self.tol, self.progress).values

    def block(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        """K[rows][:, columns]; what was asked for before is kept, see `LaplacianSolver.block`."""
        return self.scale * self.solver.block(self.shift, rows, columns, self.tol, self.progress)

    def row_means(self, rows: ArrayLike) -> Floats:
        """Mean of each of some rows: every row adds up to scale / shift, as Δ1 = 0."""
        return np.full(np.size(rows), self.average())

    def average(self) -> float:
        return self.of_constants / self.size

    def scaled(self, factor: float) -> "SparsePrecision":
        """K times a positive number."""
        return replace(self, scale=float(factor) * self.scale)

    def inverse(self) -> Any:
        """K⁻¹ as a scipy CSR array."""
        identity = scipy.sparse.eye_array(self.size, format="csr")
        return (self.solver.laplacian() + self.shift * identity) / self.scale

    @property
    def of_constants(self) -> float:
        """The eigenvalue of vectors that are constant on components of K⁻¹."""
        return self.scale / self.shift

    @property
    def is_treelike(self) -> bool:
        """Whether a factor of K⁻¹ is about as sparse as it is and worth having."""
        return self.solver.is_treelike


@dataclass(frozen=True, eq=False)
class LowRank:
    """F Fᵀ.

    Parameters
    ----------
    factor : array, shape (n, r)
        F.
    left_out : float
        Share of the trace that it leaves out of the matrix that it stands for.
    """

    factor: Floats
    left_out: float = 0.0

    @property
    def size(self) -> int:
        return int(self.factor.shape[0])

    def matmul(self, vectors: ArrayLike) -> Floats:
        """K times vectors of shape (n,) or (n, k)."""
        return np.asarray(self.factor @ (self.factor.T @ np.asarray(vectors, dtype=np.float64)))

    def block(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        return np.asarray(self.factor[np.asarray(rows)] @ self.factor[np.asarray(columns)].T)

    def row_means(self, rows: ArrayLike) -> Floats:
        """Mean of each of some rows."""
        return np.asarray(self.factor[np.asarray(rows)] @ self.factor.mean(axis=0))

    def average(self) -> float:
        return float(np.sum(np.square(self.factor.mean(axis=0))))

    def scaled(self, factor: float) -> "LowRank":
        """K times a positive number."""
        return replace(self, factor=np.sqrt(float(factor)) * self.factor)


@dataclass(frozen=True, eq=False)
class ImplicitSum:
    """A sum that remembers its parts.

    Parameters
    ----------
    parts : mapping of str to ImplicitCovariance
        At least one, all of one size.
    """

    parts: Mapping[str, ImplicitCovariance]

    def __post_init__(self) -> None:
        sizes = {name: part.size for name, part in self.parts.items()}
        if len(set(sizes.values())) != 1:
            raise DataError(f"the parts of a sum have one size, not {sizes or 'none at all'}")
        object.__setattr__(self, "parts", MappingProxyType(dict(self.parts)))

    def __reduce__(self) -> tuple[type["ImplicitSum"], tuple[dict[str, ImplicitCovariance]]]:
        """For other processes: a read-only mapping cannot travel."""
        return ImplicitSum, (dict(self.parts),)

    @property
    def size(self) -> int:
        return next(iter(self.parts.values())).size

    def matmul(self, vectors: ArrayLike) -> Floats:
        """K times vectors of shape (n,) or (n, k)."""
        return np.asarray(sum(part.matmul(vectors) for part in self.parts.values()))

    def block(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        return np.asarray(sum(part.block(rows, columns) for part in self.parts.values()))

    def row_means(self, rows: ArrayLike) -> Floats:
        """Mean of each of some rows."""
        return np.asarray(sum(part.row_means(rows) for part in self.parts.values()))

    def average(self) -> float:
        return float(sum(part.average() for part in self.parts.values()))

    def scaled(self, factor: float) -> "ImplicitSum":
        """K times a positive number."""
        return ImplicitSum({name: part.scaled(factor) for name, part in self.parts.items()})


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


# Entries of the matrix that exist at a time: 64 MB.
_BLOCK = 2**23
# Points whose variances are evaluated together, with their covariances: a call costs more than these.
_NEAR = 64
# Entries that may be evaluated for exact means of rows: a few minutes; beyond, the columns are sampled.
_EVALUATIONS = 5_000_000_000
# Rows whose means stand for all, and where all are too many: the average of their sampled means is off by 1/20 of their spread.
_SAMPLED = 400


@dataclass(frozen=True, eq=False)
class KernelMatrix:
    """K_ij = scale k(x_i, x_j), never stored.

    Parameters
    ----------
    function : callable
        From points of shapes (r, d) and (c, d) to their covariances, NumPy arrays of shape (r, c).
    points : array, shape (n, d)
    scale : float
        Positive.

    Attributes
    ----------
    means_error : array of float64, shape (r,)
        Standard errors of what `row_means` said last; zeros where it was exact.
    """

    function: Callable[[Any, Any], Any]
    points: Floats
    scale: float = 1.0
    means_error: Floats = field(init=False, repr=False, default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        points = np.asarray(self.points, dtype=np.float64)
        if points.ndim != 2 or not np.all(np.isfinite(points)):
            raise DataError(
                f"a kernel matrix takes finite points of shape (n, d), not of shape {points.shape}"
                + (" with NaN or infinity" if points.ndim == 2 else "")
            )
        object.__setattr__(self, "points", points)

    @property
    def size(self) -> int:
        return int(self.points.shape[0])

    def matmul(self, vectors: ArrayLike) -> Floats:
        """K times vectors of shape (n,) or (n, k); rows that are all 0 in them cost nothing."""
        given = np.asarray(vectors, dtype=np.float64)
        used = np.flatnonzero(given.reshape(self.size, -1).any(axis=1))
        product = np.empty(given.shape)
        for rows, entries in self._runs(np.arange(self.size), used):
            product[rows] = entries @ given[used]
        return product

    def block(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        row, column = (np.asarray(given, dtype=np.intp).reshape(-1) for given in (rows, columns))
        block = np.empty((row.size, column.size))
        for part, entries in self._runs(row, column):
            block[part] = entries
        return block

    def diagonal(self) -> Floats:
        """Variance of each entity, shape (n,)."""
        diagonal = np.empty(self.size)
        for start in range(0, self.size, _NEAR):
            part = np.arange(start, min(start + _NEAR, self.size))
            diagonal[part] = self.block(part, part).diagonal()
        return diagonal

    def row_means(self, rows: ArrayLike) -> Floats:
        """Mean of each of some rows; from a sample of the columns where they are too many, see ``means_error``."""
        row = np.asarray(rows, dtype=np.intp).reshape(-1)
        count = min(self.size, max(100, _EVALUATIONS // max(row.size, 1)))
        columns = np.arange(self.size)
        if count < self.size:
            columns = np.random.default_rng(0).choice(self.size, count, replace=False)
        means, error = np.empty(row.size), np.zeros(row.size)
        for part, entries in self._runs(row, columns):
            means[part] = entries.mean(axis=1)
            if count < self.size:
                error[part] = entries.std(axis=1, ddof=1) * np.sqrt((1 - count / self.size) / count)
        object.__setattr__(self, "means_error", error)
        return means

    def average(self) -> float:
        """Mean of all entries, from a sample of the rows where they are too many for exact means."""
        count = self.size if self.size**2 <= _EVALUATIONS // 20 else _SAMPLED
        rows = np.random.default_rng(0).choice(self.size, count, replace=False)
        return float(self.row_means(rows).mean())

    def scaled(self, factor: float) -> "KernelMatrix":
        """K times a positive number."""
        return replace(self, scale=float(factor) * self.scale)

    def _runs(self, rows: NDArray[Any], columns: NDArray[Any]) -> Iterator[tuple[slice, Floats]]:
        """Runs of rows with their entries in some columns."""
        step = max(1, _BLOCK // max(columns.size, 1))
        right = self.points[columns]
        for start in range(0, rows.size, step):
            entries = np.asarray(
                self.function(self.points[rows[start : start + step]], right), dtype=np.float64
            )
            if not np.all(np.isfinite(entries)):
                raise DataError(
                    "the kernel gave NaN or infinity; look at its hyperparameters and at extreme attributes"
                )
            yield slice(start, start + step), self.scale * entries


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
