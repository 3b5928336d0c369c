"""Covariances of very many entities that are never written down: products and chosen blocks are all that is asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from relpref.errors import DataError
from relpref.linalg.implicit.laplacian_solver import LaplacianSolver
from relpref.linalg.implicit.threads import Progress

Floats = NDArray[np.float64]


@runtime_checkable
class ImplicitCovariance(Protocol):
    """A positive semidefinite K of shape (n, n) by what can be asked of it."""

    @property
    def size(self) -> int:
        """Number of entities n."""

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
        """K[rows][:, columns]."""
        return self.scale * np.equal.outer(np.asarray(rows), np.asarray(columns))

    def row_means(self, rows: ArrayLike) -> Floats:
        """Mean of each of some rows."""
        return np.full(np.size(rows), self.average())

    def average(self) -> float:
        """Mean of all entries."""
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
        """Number of nodes n."""
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
        """Mean of all entries."""
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
        """Number of rows n."""
        return int(self.factor.shape[0])

    def matmul(self, vectors: ArrayLike) -> Floats:
        """K times vectors of shape (n,) or (n, k)."""
        return np.asarray(self.factor @ (self.factor.T @ np.asarray(vectors, dtype=np.float64)))

    def block(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        """K[rows][:, columns]."""
        return np.asarray(self.factor[np.asarray(rows)] @ self.factor[np.asarray(columns)].T)

    def row_means(self, rows: ArrayLike) -> Floats:
        """Mean of each of some rows."""
        return np.asarray(self.factor[np.asarray(rows)] @ self.factor.mean(axis=0))

    def average(self) -> float:
        """Mean of all entries."""
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
        """Check the sizes."""
        sizes = {name: part.size for name, part in self.parts.items()}
        if len(set(sizes.values())) != 1:
            raise DataError(f"the parts of a sum have one size, not {sizes or 'none at all'}")
        object.__setattr__(self, "parts", MappingProxyType(dict(self.parts)))

    def __reduce__(self) -> tuple[type["ImplicitSum"], tuple[dict[str, ImplicitCovariance]]]:
        """For other processes: a read-only mapping cannot travel."""
        return ImplicitSum, (dict(self.parts),)

    @property
    def size(self) -> int:
        """Number of rows n."""
        return next(iter(self.parts.values())).size

    def matmul(self, vectors: ArrayLike) -> Floats:
        """K times vectors of shape (n,) or (n, k)."""
        return np.asarray(sum(part.matmul(vectors) for part in self.parts.values()))

    def block(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        """K[rows][:, columns]."""
        return np.asarray(sum(part.block(rows, columns) for part in self.parts.values()))

    def row_means(self, rows: ArrayLike) -> Floats:
        """Mean of each of some rows."""
        return np.asarray(sum(part.row_means(rows) for part in self.parts.values()))

    def average(self) -> float:
        """Mean of all entries."""
        return float(sum(part.average() for part in self.parts.values()))

    def scaled(self, factor: float) -> "ImplicitSum":
        """K times a positive number."""
        return ImplicitSum({name: part.scaled(factor) for name, part in self.parts.items()})
