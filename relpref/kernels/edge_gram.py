"""The kernel matrix of the training edges as an operator: never formed, only multiplied with."""

from dataclasses import dataclass, field

import numpy as np
from scipy import sparse

from relpref.errors import DataError
from relpref.kernels.pairwise import PairwiseKernel, Side
from relpref.kernels.pairwise_products import Floats, Indices, Weights, is_dense


@dataclass(frozen=True)
class EdgeGram:
    """The q x q kernel matrix of q edges between training nodes.

    A product costs O(p²m + pm²) for a complete graph and O(q (p + m)) for a sparse one, whichever is less by measured
    speeds; the memory is that of a few p x m matrices or less.

    Parameters
    ----------
    kernel : PairwiseKernel
    left, right : Side
        The p conditioning nodes and the m objects (`Side.training`); the same for a kernel of one domain.
    rows, columns : array of int, shape (q,)
        The nodes that each edge joins. An edge may occur several times.

    Raises
    ------
    DataError
        If an edge joins nodes that are not there.
    """

    kernel: PairwiseKernel
    left: Side
    right: Side
    rows: Indices
    columns: Indices
    complete: bool = field(init=False)
    """Whether the edges are all pairs of nodes, each once, row by row."""
    _distinct: "_Distinct | None" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Find the distinct pairs of nodes."""
        shape = self.shape
        if self.rows.ndim != 1 or self.rows.shape != self.columns.shape:
            raise DataError(
                f"edges have rows of shape {self.rows.shape} and columns of shape {self.columns.shape}; "
                "give one number of each for every edge"
            )
        for name, found, size in zip(("row", "column"), (self.rows, self.columns), shape, strict=True):
            if np.any((found < 0) | (found >= size)):
                raise DataError(
                    f"edges have {name}s from {found.min()} to {found.max()}; they must be 0 to {size - 1}"
                )
        pair = self.rows * shape[1] + self.columns
        complete = len(pair) == shape[0] * shape[1] and bool(np.all(pair == np.arange(len(pair))))
        object.__setattr__(self, "complete", complete)
        object.__setattr__(self, "_distinct", None if complete else _Distinct.of(pair, shape))

    @property
    def shape(self) -> tuple[int, int]:
        """(p, m): how many conditioning nodes and objects there are."""
        return len(self.left.index), len(self.right.index)

    def __len__(self) -> int:
        """How many edges there are, q."""
        return len(self.rows)

    def weights(self, dual: Floats) -> Weights:
        """Each edge's coefficient at its place, shape (p, m): a sparse array where that is faster."""
        if self._distinct is None:
            return dual.reshape(self.shape)
        return self._distinct.weights(dual, self.shape)

    def __matmul__(self, dual: Floats) -> Floats:
        """The scores of the edges, K a, shape (q,)."""
        weights = self.weights(dual)
        if self._distinct is None:
            return self.kernel.scores(self.left, self.right, weights).ravel()
        distinct = self._distinct
        scores = self.kernel.at(self.left, self.right, weights, distinct.rows, distinct.columns)
        return scores if distinct.place is None else scores[distinct.place]


@dataclass(frozen=True)
class _Distinct:
    """The distinct pairs of nodes among the edges, row by row."""

    rows: Indices
    columns: Indices
    place: Indices | None
    """Which distinct pair each edge joins; None if the edges are the distinct pairs in their order."""

    @classmethod
    def of(cls, pair: Indices, shape: tuple[int, int]) -> "_Distinct":
        """From the edges' numbers in the p x m matrix."""
        if np.all(pair[1:] > pair[:-1]):
            return cls(*np.divmod(pair, shape[1]), None)
        distinct, place = np.unique(pair, return_inverse=True)
        return cls(*np.divmod(distinct, shape[1]), place)

    def weights(self, dual: Floats, shape: tuple[int, int]) -> Weights:
        """The coefficients, summed over the edges that join the same nodes, as a matrix."""
        count = len(self.rows)
        values = dual if self.place is None else np.bincount(self.place, dual, count)
        if is_dense(count, shape[0] * shape[1]):
            matrix = np.zeros(shape)
            matrix[self.rows, self.columns] = values
            return matrix
        starts = np.searchsorted(self.rows, np.arange(shape[0] + 1))
        return sparse.csr_array((values, self.columns, starts), shape=shape)
