"""The posterior covariance of all entities from what a fit of the touched ones left behind."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular

from relpref.errors import DataError, InferenceError, StorageError
from relpref.infer.result import Result
from relpref.linalg import Covariance, NamedSum
from relpref.posterior.codec import sparse_arrays
from relpref.posterior.gaussian import Floats, GaussianBelief, Margins

_FEW = 1000  # entries of which covariances with the others are looked up

Positions = NDArray[np.integer[Any]]


class PosteriorCovariance(Covariance):
    """A covariance that knows what people ask of it."""

    def shares(self, rows: Any) -> dict[str, Floats]:
        """Covariance of each part of the prior with the total of some entries, shape (r,); none where it is not known."""
        return {}

    def arrays(self) -> dict[str, Any]:
        """What a file holds of it, by name."""
        raise StorageError(
            "so many entities without a covariance cannot be stored; fit again, and save what converged"
        )


@dataclass(frozen=True, eq=False)
class Conditioned(PosteriorCovariance):
    """K − K_·T Aᵀ M A K_T·, the covariance of a Gaussian that was looked at through r projections of a few entries T.

    Parameters
    ----------
    prior : NamedSum
        K, of size n.
    touched : array of int, shape (t,)
        T.
    projection : sparse array, shape (r, t)
        A; the identity where there are more answers than entries.
    weights : array, shape (r, r)
        M, positive semidefinite.
    """

    prior: NamedSum
    touched: Positions
    projection: Any
    weights: Floats

    @property
    def size(self) -> int:
        return self.prior.size

    def block(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        """Rows and columns of it, shape (r, c)."""
        rows, columns = np.asarray(rows), np.asarray(columns)
        left = self._seen(rows)
        right = left if np.array_equal(rows, columns) else self._seen(columns)
        found: Floats = self.prior.block(rows, columns) - left @ (self.weights @ right.T)
        return found

    def matmul(self, vectors: ArrayLike) -> Floats:
        rest = np.array(vectors, dtype=np.float64)
        used = np.flatnonzero(rest.reshape(self.size, -1).any(axis=1))
        if len(used) <= _FEW:  # of two entities that are compared: known, or two solutions at most
            once = self.prior.block(self.touched, used) @ rest[used]
        else:
            once = self.prior.matmul(rest)[self.touched]
        rest[self.touched] -= self.projection.T @ (self.weights @ (self.projection @ once))
        return self.prior.matmul(rest)

    def row_means(self, rows: ArrayLike) -> Floats:
        """Covariance of some entries with the average of all."""
        found: Floats = self.prior.row_means(rows) - self._seen(rows) @ (self.weights @ self._average)
        return found

    def average(self) -> float:
        """Variance of the average of all entries."""
        return float(self.prior.average() - self._average @ self.weights @ self._average)

    @cached_property
    def _average(self) -> Floats:
        """What the projections have to do with the average of all entries."""
        return np.asarray(self.projection @ self.prior.row_means(self.touched))

    def scaled(self, factor: float) -> "Conditioned":
        """``factor`` times it."""
        return Conditioned(self.prior.scaled(factor), self.touched, self.projection, self.weights / factor)

    def shares(self, rows: Positions) -> dict[str, Floats]:
        """Covariance of each part of some entries with their total, shape (r,): K_p − K_p R K, the diagonal."""
        pulled = self._seen(rows) @ self.weights
        found = {}
        for name, part in self.prior.parts.items():
            seen = part.block(rows, self.touched) @ self.projection.T
            found[name] = part.variances(rows) - np.sum(seen * pulled, axis=1)
        return found

    def arrays(self) -> dict[str, Any]:
        dual = {"touched": self.touched, "weights": self.weights, **sparse_arrays(self.projection, "")}
        return {f"dual/{name}": value for name, value in dual.items()}

    def _seen(self, rows: ArrayLike) -> Floats:
        return np.asarray((self.projection @ self.prior.block(self.touched, rows)).T)


class Unknown(PosteriorCovariance):
    """Where no sweep gave a posterior: NaN throughout."""

    def __init__(self, size: int) -> None:
        self.size = size  # type: ignore[misc]

    def block(self, rows: Any, columns: Any) -> Floats:
        return np.full((np.size(rows), np.size(columns)), np.nan)

    def matmul(self, vectors: Any) -> Floats:
        return np.full(np.shape(vectors), np.nan)

    def scaled(self, factor: float) -> "Unknown":
        return self


def dual_weights(
    covariance: Floats, projection: Any, precision: Floats, gap_space: bool
) -> tuple[Any, Floats]:
    """Of the posterior precision K⁻¹ + AᵀTA, what `Conditioned` wants: a projection and its weights.

    Parameters
    ----------
    covariance : array, shape (t, t)
        K.
    projection : sparse array, shape (m, t)
        A.
    precision : array, shape (m,)
        Diagonal of T.
    gap_space : bool
        Work in the m x m space: weights T^½ (I + T^½ A K Aᵀ T^½)⁻¹ T^½ on the projections; or on the entries, R = Q − QΣQ.

    Raises
    ------
    InferenceError
        If the prior covariance is not positive definite.
    """
    try:
        if gap_space:
            root = np.sqrt(precision)
            gram = projection @ (projection @ covariance).T
            gram *= root[:, None] * root
            gram[np.diag_indices_from(gram)] += 1.0
            half = solve_triangular(
                cholesky(gram, lower=True, overwrite_a=True), np.diag(root), lower=True, overwrite_b=True
            )
            return projection, half.T @ half
        pulled = projection.T @ scipy.sparse.diags_array(precision) @ projection  # Q
        lower = cholesky(covariance, lower=True)
        cross = pulled @ lower
        inner = lower.T @ cross
        inner[np.diag_indices_from(inner)] += 1.0
        weights = pulled.toarray() - cross @ cho_solve(cho_factor(inner, lower=True), cross.T)
        return scipy.sparse.eye_array(len(covariance), format="csr"), 0.5 * (weights + weights.T)
    except np.linalg.LinAlgError:
        result = Result.prior_not_positive_definite
        raise InferenceError(f"{result.name}: {result.value}", result) from None


def means_by_part(parts: Mapping[str, Covariance], touched: Positions, alpha: Floats) -> dict[str, Floats]:
    """E[part | answers] = K_p α for all entities."""
    found = {}
    for name, part in parts.items():
        scattered = np.zeros(part.size)
        scattered[touched] = alpha
        found[name] = part.matmul(scattered)
    return found


_PAIRS = 2000  # of which covariances are worked out together
_MARGINS = tuple(field.name for field in fields(Margins) if field.name != "weights")
_WHOLE = 3000  # values of which the covariance is simply worked out


class ImplicitBelief(GaussianBelief):
    """A Gaussian whose covariance is evaluated where it is asked for; all of it for a few thousand entries at most.

    Parameters
    ----------
    location : array, shape (n,)
    implicit : PosteriorCovariance
        Of size n.
    """

    large: ClassVar[bool] = True
    implicit: PosteriorCovariance

    def __init__(self, location: Floats, implicit: PosteriorCovariance) -> None:
        object.__setattr__(self, "location", location)
        object.__setattr__(self, "implicit", implicit)

    @property
    def scale(self) -> Floats:
        self._check(self.size, "the covariance of")
        return self.subset(np.arange(self.size)).scale

    def subset(self, positions: NDArray[np.integer[Any]]) -> GaussianBelief:
        positions = np.asarray(positions)
        scale = self.implicit.block(positions, positions)
        return GaussianBelief(self.location[positions], 0.5 * (scale + scale.T))

    def relative(self, positions: NDArray[np.integer[Any]]) -> tuple[Floats, Floats]:
        """Mean and standard deviation of some entries less the average of all."""
        variance = self.implicit.relative_variance(positions)
        return self.location[positions] - self.location.mean(), np.sqrt(variance)

    def differences(self, first: NDArray[np.integer[Any]], second: NDArray[np.integer[Any]]) -> Margins:
        parts = []
        groups = max(1, -(-len(first) // _PAIRS))  # of pairs whose covariances have room
        for pairs in np.array_split(np.stack([first, second]), groups, axis=1):
            positions, places = np.unique(pairs, return_inverse=True)
            places = places.reshape(2, -1)
            parts.append(self.subset(positions).differences(places[0], places[1]))
        joined = (np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in _MARGINS)
        mean, sd, positive, means, variances = joined
        return Margins(mean, sd, positive, means, variances, self.weights)

    def project(self, weights: Floats) -> GaussianBelief:
        """The belief about ``weights @ u``, whose entries that are not 0 must be few."""
        used = np.flatnonzero(np.any(weights != 0, axis=0))
        self._check(len(used), "weights that are not 0 for")
        return self.subset(used).project(weights[:, used])

    def arrays(self) -> dict[str, Any]:
        return {"mean": self.location, **self.implicit.arrays()}

    def _check(self, number: int, what: str) -> None:
        if number > _WHOLE:
            raise DataError(
                f"{what} {number} entities were asked for; of so many they are worked out for some at a time: "
                "posterior.about(labels) is the posterior of those, and ranking(top=...) gives intervals of the best"
            )
