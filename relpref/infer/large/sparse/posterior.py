"""The Gaussian posterior of all utilities: a covariance that is never written out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from relpref.infer.large.sparse.latents import Latents
from relpref.infer.large.sparse.relations import Estimate, Factorised, Iterative, Solver
from relpref.linalg import ImplicitCovariance

Floats = NDArray[np.float64]

_COLUMNS = 64  # that are solved for together


@dataclass(frozen=True, eq=False)
class SparsePosterior:
    """Covariance of u = Σ_r g_r + Φ w under given sites; an `ImplicitCovariance`.

    The weights w are eliminated (Woodbury): with S⁻¹ the covariance of the g_r given w, and E = Φ − Σ_r (S⁻¹ (1 ⊗ AᵀTAΦ))_r,
    the covariance of w is (I + (AΦ)ᵀ T A E)⁻¹ and that of u is Σ_rr' (S⁻¹)_rr' + E cov(w) Eᵀ.

    Attributes
    ----------
    latents : Latents
    relations : Solver
    weights : array, shape (m,)
        Diagonal of T.
    excess : array, shape (n, r)
        E.
    lower : array, shape (r, r)
        Cholesky factor of the inverse of cov(w).
    factor : float
        What the covariance is multiplied by.
    """

    latents: Latents
    relations: Solver
    weights: Floats
    excess: Floats
    lower: Floats
    factor: float = 1.0

    @classmethod
    def at(
        cls,
        parts: Mapping[str, ImplicitCovariance],
        column: ArrayLike,
        entry: ArrayLike,
        weights: ArrayLike,
        tol: float = 1e-8,
    ) -> Self:
        """The posterior under sites that are known, as those of a saved fit.

        Parameters
        ----------
        parts, column, entry
            As for `fit`.
        weights : array, shape (m,)
            The sites' precisions times their counts.
        tol : float
            Of every solve.
        """
        latents = Latents.of(parts, np.asarray(column), np.asarray(entry, np.float64))
        weights = np.asarray(weights, np.float64)
        return cls.under(
            latents,
            Factorised(latents, weights) if latents.small else Iterative(latents, weights, tol),
            weights,
        )

    @classmethod
    def under(cls, latents: Latents, relations: Solver, weights: Floats) -> Self:
        """Eliminate w: r solves."""
        if not latents.factors:
            return cls(latents, relations, weights, latents.factor, np.eye(0))
        pulled = latents.projection.T @ (weights[:, None] * latents.seen)
        excess = latents.factor - latents.total(relations.solve(latents.spread(pulled), "weights"))
        inner = (weights[:, None] * latents.seen).T @ (latents.projection @ excess)
        lower = scipy.linalg.cholesky(np.eye(len(inner)) + 0.5 * (inner + inner.T), lower=True)
        return cls(latents, relations, weights, excess, lower)

    @property
    def size(self) -> int:
        """Number of entities n."""
        return self.latents.size

    def matmul(self, vectors: ArrayLike) -> Floats:
        """Σ times an array, shape (n,) or (n, k): one solve for each column."""
        return np.asarray(sum(self.by_part(vectors).values()))

    def by_part(self, vectors: ArrayLike, purpose: str = "") -> dict[str, Floats]:
        """Cov(part, u) times an array of shape (n,) or (n, k), for each part of the prior; they add up to Σ times the array."""
        given = np.asarray(vectors, dtype=np.float64)
        columns = given.reshape(self.size, -1) * self.factor
        latents = self.latents
        weights = scipy.linalg.cho_solve((self.lower, True), self.excess.T @ columns)
        seen = self.weights[:, None] * (latents.seen @ weights)
        rest = latents.spread(columns - latents.projection.T @ seen)
        solved = self.relations.solve(rest, purpose).reshape(latents.copies, *columns.shape)
        found = dict(zip(latents.relations, solved, strict=True))
        first = 0
        for name, factor in latents.factors.items():
            found[name] = factor @ weights[first : first + factor.shape[1]]
            first += factor.shape[1]
        return {name: part.reshape(given.shape) for name, part in found.items()}

    def block(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        """Σ[rows][:, columns], shape (r, c): one solve for each of the fewer."""
        rows, columns = np.asarray(rows, dtype=np.intp), np.asarray(columns, dtype=np.intp)
        if rows.size < columns.size:
            return self.block(columns, rows).T
        found = np.empty((rows.size, columns.size))
        for first in range(0, columns.size, _COLUMNS):
            some = columns[first : first + _COLUMNS]
            units = np.zeros((self.size, some.size))
            units[some, np.arange(some.size)] = 1.0
            found[:, first : first + _COLUMNS] = self.matmul(units)[rows]
        return found

    def row_means(self, rows: ArrayLike) -> Floats:
        """Covariance of entries with the average of all, shape (r,)."""
        return self._averages[np.asarray(rows, dtype=np.intp)]

    def average(self) -> float:
        """Variance of the average of all."""
        return float(self._averages.mean())

    def relative_variance(self, rows: ArrayLike) -> Floats:
        """Variance of some entries less the average of all, shape (r,): one solve for each."""
        rows = np.asarray(rows, dtype=np.intp)
        found = np.empty(rows.size)
        for first in range(0, rows.size, _COLUMNS):
            some = rows[first : first + _COLUMNS]
            found[first : first + _COLUMNS] = np.diagonal(self.block(some, some))
        return np.maximum(found - 2 * self._averages[rows] + self.average(), 0.0)

    def shares(self, rows: ArrayLike) -> dict[str, Floats]:
        """Covariance of each part of some entries with their total, shape (r,): one solve for each."""
        rows = np.asarray(rows, dtype=np.intp)
        found: dict[str, list[Floats]] = {}
        for first in range(0, rows.size, _COLUMNS):
            some = rows[first : first + _COLUMNS]
            units = np.zeros((self.size, some.size))
            units[some, np.arange(some.size)] = 1.0
            for name, part in self.by_part(units).items():
                found.setdefault(name, []).append(part[some, np.arange(some.size)])
        return {name: np.concatenate(part) for name, part in found.items()}

    @cached_property
    def _averages(self) -> Floats:
        return self.matmul(np.full(self.size, 1 / self.size))

    def scaled(self, factor: float) -> Self:
        """A multiple of it."""
        return replace(self, factor=self.factor * factor)

    def gap_variances(self, relations: Estimate) -> Estimate:
        """Of the rows of A u, shape (m,), from what they are with w known."""
        seen = self.latents.projection @ self.excess
        half = scipy.linalg.solve_triangular(self.lower, seen.T, lower=True)
        return Estimate(relations.value + np.sum(half**2, axis=0), relations.error)

    def half_log_ratio(self, relations: Estimate) -> Estimate:
        """Half the log ratio of prior to posterior volume, shape (), from what it is with w known."""
        return Estimate(relations.value + np.sum(np.log(np.diagonal(self.lower))), relations.error)
