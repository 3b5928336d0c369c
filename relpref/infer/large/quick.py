"""A few answers more or less where there is no matrix of all entities: see `relpref.infer.quick`."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from relpref.infer.belief import Floats
from relpref.infer.large.belief import ImplicitBelief, PosteriorCovariance
from relpref.infer.quick import Site


@dataclass(frozen=True, eq=False)
class Changed:
    """Σ − W diag(c) Wᵀ: a covariance after k changes of rank one.

    Parameters
    ----------
    before : PosteriorCovariance
        Σ, of size n.
    columns : array, shape (n, k)
        W.
    weights : array, shape (k,)
        c; negative for an answer that was taken back.
    """

    before: PosteriorCovariance
    columns: Floats
    weights: Floats

    @property
    def size(self) -> int:
        """Number of rows, n."""
        return self.before.size

    def block(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        """Rows and columns of it, shape (r, c)."""
        left, right = self.columns[np.asarray(rows)], self.columns[np.asarray(columns)]
        return np.asarray(self.before.block(rows, columns) - (left * self.weights) @ right.T)

    def matmul(self, vectors: ArrayLike) -> Floats:
        """It times vectors."""
        seen = (self.columns.T @ np.asarray(vectors, dtype=np.float64)).T * self.weights
        return np.asarray(self.before.matmul(vectors) - self.columns @ seen.T)

    def row_means(self, rows: ArrayLike) -> Floats:
        """Covariance of some entries with the average of all."""
        return np.asarray(
            self.before.row_means(rows) - self.columns[np.asarray(rows)] @ (self.weights * self._average)
        )

    def average(self) -> float:
        """Variance of the average of all entries."""
        return float(self.before.average() - self.weights @ np.square(self._average))

    def relative_variance(self, rows: Any) -> Floats:
        """Variance of some entries less the average of all, shape (r,)."""
        found = (
            self.before.relative_variance(rows) - np.square(self.columns[rows] - self._average) @ self.weights
        )
        return np.maximum(found, 0.0)

    def shares(self, rows: Any) -> dict[str, Floats]:
        """Nothing: parts wait for the next full update."""
        return {}

    def scaled(self, factor: float) -> "Changed":
        """``factor`` times it."""
        scaled: Any = self.before.scaled(factor)
        return Changed(scaled, self.columns, factor * self.weights)

    def with_change(self, column: Floats, weight: float) -> "Changed":
        """Σ after one change more."""
        return Changed(self.before, np.column_stack([self.columns, column]), np.append(self.weights, weight))

    @property
    def _average(self) -> Floats:
        return np.asarray(self.columns.mean(axis=0))


class ImplicitRankOne:
    """A belief that is changed answer by answer, as `relpref.infer.quick.RankOne`; a product with the covariance for each.

    Parameters
    ----------
    belief : ImplicitBelief
        Stays as it is.
    """

    def __init__(self, belief: ImplicitBelief) -> None:
        self._belief = belief

    def belief(self) -> ImplicitBelief:
        """What is believed now."""
        return self._belief

    def gap(self, first: int, second: int) -> tuple[Floats, Floats]:
        """Mean and variance of u[first] − u[second], shape (1,)."""
        margins = self._belief.differences(np.array([first]), np.array([second]))
        return margins.mean, np.square(margins.sd)

    def weigh(self, log_probability: Floats) -> float:
        """There is one component; the log probability of an answer."""
        return float(log_probability[0])

    def add(self, first: int, second: int, site: Site) -> None:
        """Multiply by a site: Σ − τ/(1 + τv) wwᵀ with w = Σa and v = aᵀΣa, a the difference of the two."""
        implicit = self._belief.implicit
        difference = np.zeros(implicit.size)
        difference[first] += 1.0
        difference[second] -= 1.0
        change = implicit.matmul(difference)
        mean = float(self._belief.location[first] - self._belief.location[second])
        precision, shift = float(site.precision[0]), float(site.shift[0])
        left = 1 + precision * max(float(change[first] - change[second]), 0.0)
        none = np.zeros((implicit.size, 0))
        before = implicit if isinstance(implicit, Changed) else Changed(implicit, none, np.zeros(0))
        self._belief = ImplicitBelief(
            self._belief.location + (shift - precision * mean) / left * change,
            before.with_change(change, precision / left),
        )

    def remove(self, first: int, second: int, site: Site) -> None:
        """Divide by a site that is in it."""
        self.add(first, second, Site(-site.precision, -site.shift))
