"""The posterior covariance of all items, from a fit of the items that answers touch."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import block_diag

from relpref.errors import DataError, StorageError
from relpref.linalg import Covariance, NamedSum
from relpref.posterior.codec import sparse_arrays
from relpref.posterior.gaussian import Floats, GaussianBelief, Margins, MixtureBelief

_FEW = 1000  # entries of which covariances with the others are looked up
_PAIRS = 2000  # pairs whose covariances are computed together
_MOST = 3000  # values whose covariance is computed as a matrix

Positions = NDArray[np.integer[Any]]


class PosteriorCovariance(Covariance):
    """Posterior covariance of all items, without a matrix."""

    def scaled(self, factor: Any) -> Covariance:
        raise NotImplementedError  # only prior covariances are scaled

    def shares(self, rows: Any) -> dict[str, Floats]:
        """Covariance of each prior part with the total of some entries, (r,); {} if unknown."""
        return {}

    def changed(self, columns: Floats, weights: Floats) -> "Changed":
        """The covariance less W diag(c) Wᵀ."""
        return Changed(self, columns, np.diag(weights))

    def arrays(self) -> dict[str, Any]:
        """Arrays to be stored in a file, by name."""
        raise StorageError(
            "so many items without a covariance cannot be stored; fit again, and save what "
            "converged"
        )


class _Downdated(PosteriorCovariance):
    """Σ − U M Uᵀ for a covariance Σ."""

    before: Any
    weights: Floats  # M, shape (k, k)

    @property
    def size(self) -> int:
        return int(self.before.size)

    @abstractmethod
    def _columns(self, rows: ArrayLike) -> Floats:
        """Selected rows of U, shape (r, k)."""

    @property
    @abstractmethod
    def _average(self) -> Floats:
        """The average row of U."""

    def block(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        left = self._columns(rows)
        right = (
            left
            if np.array_equal(np.asarray(rows), np.asarray(columns))
            else self._columns(columns)
        )
        return np.asarray(self.before.block(rows, columns) - left @ (self.weights @ right.T))

    def row_means(self, rows: ArrayLike) -> Floats:
        return np.asarray(
            self.before.row_means(rows) - self._columns(rows) @ (self.weights @ self._average)
        )

    def average(self) -> float:
        return float(self.before.average() - self._average @ self.weights @ self._average)


@dataclass(frozen=True, eq=False)
class Conditioned(_Downdated):
    """K − K_·T Aᵀ M A K_T·, the covariance of a Gaussian given r projections of a few entries T."""

    before: NamedSum  # K, of size n
    touched: Positions  # T, shape (t,)
    # A, sparse, shape (r, t); the identity where there are more answers than entries
    projection: Any
    weights: Floats  # M, positive semidefinite, shape (r, r)

    def matmul(self, vectors: ArrayLike) -> Floats:
        rest = np.array(vectors, dtype=np.float64)
        used = np.flatnonzero(rest.reshape(self.size, -1).any(axis=1))
        if len(used) <= _FEW:  # two compared entities: stored, or two solutions at most
            once = self.before.block(self.touched, used) @ rest[used]
        else:
            once = self.before.matmul(rest)[self.touched]
        rest[self.touched] -= self.projection.T @ (self.weights @ (self.projection @ once))
        return self.before.matmul(rest)

    def _columns(self, rows: ArrayLike) -> Floats:
        return np.asarray((self.projection @ self.before.block(self.touched, rows)).T)

    @cached_property
    def _average(self) -> Floats:
        return np.asarray(self.projection @ self.before.row_means(self.touched))

    def shares(self, rows: Positions) -> dict[str, Floats]:
        """The diagonal of K_p − K_p R K."""
        pulled = self._columns(rows) @ self.weights
        shares = {}
        for name, part in self.before.parts.items():
            seen = part.block(rows, self.touched) @ self.projection.T
            shares[name] = part.variances(rows) - np.sum(seen * pulled, axis=1)
        return shares

    def arrays(self) -> dict[str, Any]:
        dual = {
            "touched": self.touched,
            "weights": self.weights,
            **sparse_arrays(self.projection, ""),
        }
        return {f"dual/{name}": value for name, value in dual.items()}


@dataclass(frozen=True, eq=False)
class Changed(_Downdated):
    """A covariance after k changes of rank one; M is diagonal, negative for a withdrawn answer."""

    before: PosteriorCovariance
    columns: Floats  # U, shape (n, k)
    weights: Floats

    def matmul(self, vectors: ArrayLike) -> Floats:
        seen = self.weights @ (self.columns.T @ np.asarray(vectors, dtype=np.float64))
        return np.asarray(self.before.matmul(vectors) - self.columns @ seen)

    def _columns(self, rows: ArrayLike) -> Floats:
        return np.asarray(self.columns[np.asarray(rows)])

    @property
    def _average(self) -> Floats:
        return np.asarray(self.columns.mean(axis=0))

    def changed(self, columns: Floats, weights: Floats) -> "Changed":
        both = block_diag(self.weights, np.diag(weights))
        return Changed(self.before, np.hstack([self.columns, columns]), both)

    def arrays(self) -> dict[str, Any]:
        raise StorageError(
            "quick updates of the covariance of more than 4000 items are not stored; call update() "
            "first"
        )


class Unknown(PosteriorCovariance):
    """A covariance of NaN, for a fit in which no sweep gave a posterior."""

    def __init__(self, size: int) -> None:
        self.size = size  # type: ignore[misc]

    def block(self, rows: Any, columns: Any) -> Floats:
        return np.full((np.size(rows), np.size(columns)), np.nan)

    def matmul(self, vectors: Any) -> Floats:
        return np.full(np.shape(vectors), np.nan)


class ImplicitBelief(GaussianBelief):
    """A Gaussian whose covariance is evaluated for selected entries, a few thousand at most."""

    large: ClassVar[bool] = True
    implicit: PosteriorCovariance

    def __init__(self, location: Floats, implicit: PosteriorCovariance) -> None:
        for name, value in {
            "locations": location[None],
            "weights": np.ones(1),
            "implicit": implicit,
        }.items():
            object.__setattr__(self, name, value)

    @property
    def scales(self) -> Floats:
        return self.scale[None]

    @property
    def scale(self) -> Floats:
        self._check(self.size, "the covariance of")
        return self.subset(slice(None)).scale

    def subset(self, positions: NDArray[np.integer[Any]] | slice) -> GaussianBelief:
        positions = np.arange(self.size)[positions]
        scale = self.implicit.block(positions, positions)
        return GaussianBelief(self.location[positions], 0.5 * (scale + scale.T))

    def relative(self, positions: NDArray[np.integer[Any]]) -> tuple[Floats, Floats]:
        """Mean and standard deviation of some entries less the average of all."""
        variance = self.implicit.relative_variance(positions)
        return self.location[positions] - self.location.mean(), np.sqrt(variance)

    def differences(
        self, first: NDArray[np.integer[Any]], second: NDArray[np.integer[Any]]
    ) -> Margins:
        means, variances = [], []
        groups = max(1, -(-len(first) // _PAIRS))  # of pairs whose covariances fit into memory
        for pairs in np.array_split(np.stack([first, second]), groups, axis=1):
            positions, places = np.unique(pairs, return_inverse=True)
            places = places.reshape(2, -1)
            margins = self.subset(positions).differences(places[0], places[1])
            means.append(margins.means)
            variances.append(margins.variances)
        return Margins.of(
            np.concatenate(means, axis=1), np.concatenate(variances, axis=1), self.weights
        )

    def pull(self, columns: Positions, entries: Floats) -> Floats:
        row = np.zeros(self.size)
        row[columns] = entries
        return self.implicit.matmul(row)[None]

    def changed(
        self, locations: Floats, columns: Floats, shares: Floats, weights: Floats
    ) -> "ImplicitBelief":
        return ImplicitBelief(locations[0], self.implicit.changed(columns[0], shares[0]))

    def project(self, weights: Floats) -> MixtureBelief:
        """The belief about ``weights @ u``, whose entries that are not 0 must be few."""
        used = np.flatnonzero(np.any(weights != 0, axis=0))
        self._check(len(used), "weights that are not 0 for")
        return self.subset(used).project(weights[:, used])

    def arrays(self) -> dict[str, Any]:
        return {"mean": self.location, **self.implicit.arrays()}

    def _check(self, number: int, what: str) -> None:
        if number > _MOST:
            raise DataError(
                f"{what} {number} items were requested; more than 4000 are computed in parts: "
                "posterior.subset(labels) is the posterior of those, and ranking(top=...) gives "
                "intervals of the best"
            )
