"""The matrix of a kernel between very many points, evaluated block by block whenever it is needed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relpref.errors import DataError

Floats = NDArray[np.float64]

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
        """Check the points."""
        points = np.asarray(self.points, dtype=np.float64)
        if points.ndim != 2 or not np.all(np.isfinite(points)):
            raise DataError(
                f"a kernel matrix takes finite points of shape (n, d), not of shape {points.shape}"
                + (" with NaN or infinity" if points.ndim == 2 else "")
            )
        object.__setattr__(self, "points", points)

    @property
    def size(self) -> int:
        """Number of points n."""
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
        """K[rows][:, columns]."""
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
