"""The block of a symmetric matrix among the positions seen so far, which grows by columns."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relpref.memory import require_memory

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]
Compute = Callable[[Positions, Positions], Iterator[tuple[slice, Floats]]]

# 1.2 GB of entries at most; room is made a quarter at a time.
MOST = 12_000


@dataclass
class SeenBlock:
    """K_SS of a matrix K for the positions S seen so far, to a tolerance.

    Attributes
    ----------
    shift, tol : float
        What its entries were computed for; NaN before anything was.
    positions : array of int
        S, in the order of arrival.
    """

    shift: float = np.nan
    tol: float = np.inf
    positions: Positions = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    _entries: Floats = field(default_factory=lambda: np.empty((0, 0)))
    # A loop asks for questions in one thread and refines in another.
    _growing: Any = field(default_factory=threading.Lock, repr=False)

    def entries(self, rows: Positions, columns: Positions, compute: Compute) -> Floats:
        """K[rows][:, columns], computed as far as it was not seen.

        Parameters
        ----------
        rows, columns : array of int
            In any order, also repeated.
        compute : callable
            From columns and rows, ascending, to runs of the columns and their entries in the rows, as they come.
        """
        with self._growing:
            return self._found(rows, columns, compute)

    def _found(self, rows: Positions, columns: Positions, compute: Compute) -> Floats:
        row, row_at = np.unique(rows, return_inverse=True)
        column, column_at = np.unique(columns, return_inverse=True)
        fresh = self.missing(np.union1d(row, column))
        if fresh.size <= min(row.size, column.size) and self.takes(fresh.size):
            wanted = np.union1d(self.positions, fresh)
            for part, values in compute(fresh, wanted):
                self.add(fresh[part], wanted, values)
            return self.block(row, column)[np.ix_(row_at, column_at)]
        # Many rows of few columns, or more than are kept: the fewer are computed in full.
        if row.size < column.size:
            return self._found(columns, rows, compute).T
        found = np.empty((row.size, column.size))
        for part, values in compute(column, row):
            found[:, part] = values
        return found[np.ix_(row_at, column_at)]

    def missing(self, positions: Positions) -> Positions:
        """Those not seen yet, each once."""
        return np.setdiff1d(positions, self.positions)

    def takes(self, count: int) -> bool:
        """Whether so many more are kept."""
        return self.positions.size + count <= MOST

    def add(self, fresh: Positions, rows: Positions, columns: Floats) -> None:
        """Keep the columns K[rows, fresh]; ``rows``, ascending, holds S and ``fresh``."""
        count, total = self.positions.size, self.positions.size + fresh.size
        if total > self._entries.shape[0]:
            capacity = min(MOST, max(total + total // 4, 64))
            require_memory(8.0 * capacity**2, f"the covariance of {capacity} entities")
            larger = np.empty((capacity, capacity))
            larger[:count, :count] = self._entries[:count, :count]
            self._entries = larger
        old = columns[np.searchsorted(rows, self.positions)]
        own = columns[np.searchsorted(rows, fresh)]
        self._entries[:count, count:total] = old
        self._entries[count:total, :count] = old.T
        self._entries[count:total, count:total] = 0.5 * (own + own.T)
        self.positions = np.concatenate([self.positions, fresh])

    def block(self, rows: Positions, columns: Positions) -> Floats:
        """K[rows][:, columns] of positions seen."""
        order = np.argsort(self.positions)
        at_rows, at_columns = (
            order[np.searchsorted(self.positions, wanted, sorter=order)] for wanted in (rows, columns)
        )
        return self._entries[np.ix_(at_rows, at_columns)]
