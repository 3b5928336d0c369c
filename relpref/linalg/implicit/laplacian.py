"""A graph's Laplacian laid out for products with blocks of vectors."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
from numpy.typing import ArrayLike, NDArray

from relpref.errors import DataError
from relpref.linalg.implicit.block_cg import Block, chunks
from relpref.memory import fits

Floats = NDArray[np.float64]
# A product takes rows in runs of so many, so that its result is still in the cache when the shift is added.
_RUN = 4096
# Components with fewer nodes share one pass over the vectors, and do not decide how systems are solved.
_LARGE = 10_000
# A graph is narrow up to so many links for each node and so many times √n nodes in a level; its factors then have up to so many
# entries for each node.
_LINKS, _WIDTH, _FILL = 4.0, 3.0, 150.0


@dataclass(frozen=True, eq=False)
class OrderedLaplacian:
    """Δ = D − W with the nodes in an order of its own: large components first, in each the hubs first.

    The rows of hubs are wanted by most products; side by side they stay in the cache.

    Attributes
    ----------
    order : array of int, shape (n,)
        Which node is at each place.
    matrix : scipy CSR array, shape (n, n)
        Δ in this order.
    sizes : array of int, shape (c,)
        Nodes of each component, in the order of the components.
    """

    order: NDArray[np.intp]
    matrix: Any
    sizes: NDArray[np.intp]

    @classmethod
    def of(cls, adjacency: Any) -> "OrderedLaplacian":
        """Lay out the graph of a symmetric matrix of positive weights without loops.

        Raises
        ------
        DataError
            If the matrix is something else.
        """
        weights = _checked(adjacency)
        size = weights.shape[0]
        count, component = scipy.sparse.csgraph.connected_components(weights, directed=False)
        sizes = np.bincount(component, minlength=count)
        by_size = np.argsort(-sizes, kind="stable")
        place = np.empty(count, dtype=np.intp)
        place[by_size] = np.arange(count)
        order = np.lexsort((-np.diff(weights.indptr), place[component]))
        rank = np.empty(size, dtype=weights.indices.dtype)
        rank[order] = np.arange(size)
        ordered = weights[order]
        ordered = scipy.sparse.csr_array(
            (ordered.data, rank[ordered.indices], ordered.indptr), shape=ordered.shape
        )
        matrix = scipy.sparse.csr_array(scipy.sparse.diags_array(ordered.sum(axis=1)) - ordered)
        matrix.sort_indices()
        return cls(order, matrix, sizes[by_size])

    @property
    def size(self) -> int:
        return int(self.order.size)

    @property
    def links(self) -> int:
        # A node by itself has the degree 0, which may be stored or not.
        return int(np.count_nonzero(self.matrix.data) - np.count_nonzero(self.degree)) // 2

    @property
    def is_forest(self) -> bool:
        """Whether no component has a cycle."""
        return self.links == self.size - self.sizes.size

    @cached_property
    def is_narrow(self) -> bool:
        """Whether few nodes separate any large component, as in grids, road networks and chains: factors are sparse then.

        The levels of a breadth-first search from a far end are such separators: in a planar graph of s nodes the widest has
        some √s, in a random one a large share of all. (It has fewer than 3 s links: what has more need not be searched.)
        """
        if self.links > _LINKS * self.size:
            return False
        ends = np.cumsum(self.sizes)
        for size, end in zip(self.sizes, ends, strict=True):
            if size < _LARGE:
                break
            part = slice(int(end - size), int(end))
            if not _is_narrow(self.matrix[part, part]):
                return False
        return self.sizes[0] >= _LARGE and fits(_FILL * 12.0 * self.size)

    @cached_property
    def degree(self) -> Floats:
        """Weighted degree of each node, in the order of the layout."""
        return np.asarray(self.matrix.diagonal())

    @cached_property
    def rank(self) -> NDArray[np.intp]:
        rank = np.empty(self.size, dtype=np.intp)
        rank[self.order] = np.arange(self.size)
        return rank

    @cached_property
    def _double(self) -> list[Any]:
        return [_rows(self.matrix, self.matrix.data, at) for at in range(0, self.size, _RUN)]

    @cached_property
    def _single(self) -> list[Any]:
        data = self.matrix.data.astype(np.float32)
        return [_rows(self.matrix, data, at) for at in range(0, self.size, _RUN)]

    def suits_single(self, shift: float) -> bool:
        """Whether the entries of Δ + shift I and their products stay far from the ends of single precision's range."""
        smallest, largest = self._extremes
        return min(smallest, shift) >= 1e-15 and largest + shift <= 1e15

    @cached_property
    def _extremes(self) -> tuple[float, float]:
        """Smallest weight and largest degree; ones where there is no link."""
        sizes = np.abs(self.matrix.data[self.matrix.data < 0])
        return (float(sizes.min()), float(self.degree.max())) if sizes.size else (1.0, 1.0)

    def apply(self, shift: float, block: Block, out: Block) -> None:
        """Write (Δ + shift I) block into ``out``, in the precision of the block."""
        runs = self._single if block.dtype == np.float32 else self._double
        for at, run in zip(range(0, self.size, _RUN), runs, strict=True):
            rows = slice(at, at + _RUN)
            np.multiply(block[rows], shift, out=out[rows])
            out[rows] += run @ block

    def center(self, block: Block) -> None:
        """Take from each column its mean over each component, in place."""
        self.spread(block, -self.means(block))

    def means(self, block: Block) -> Floats:
        """Mean of each column over each component, shape (c, k)."""
        total = np.zeros((self.sizes.size, block.shape[1]))
        large, end = self._large
        for number, (start, stop) in enumerate(large):
            for rows in chunks(block[start:stop]):
                total[number] += block[start:stop][rows].sum(axis=0)
        if end < self.size:
            rest = self.sizes[len(large) :]
            total[len(large) :] = np.add.reduceat(block[end:], np.cumsum(rest) - rest, axis=0)
        return total / self.sizes[:, None]

    def spread(self, block: Block, means: Floats) -> None:
        """Add to each entry what its component has in ``means``, shape (c, k), in place."""
        means = means.astype(block.dtype)
        large, end = self._large
        for number, (start, stop) in enumerate(large):
            block[start:stop] += means[number]
        if end < self.size:
            block[end:] += np.repeat(means[len(large) :], self.sizes[len(large) :], axis=0)

    @cached_property
    def _large(self) -> tuple[list[tuple[int, int]], int]:
        """First and last place of each large component, and where the others begin."""
        count = int(np.count_nonzero(self.sizes >= _LARGE))
        ends = np.cumsum(self.sizes[:count])
        return [(int(end - size), int(end)) for size, end in zip(self.sizes[:count], ends, strict=True)], int(
            self.sizes[:count].sum()
        )


def _is_narrow(matrix: Any) -> bool:
    """Whether no level of a breadth-first search has more than some √n nodes; the search begins where another one ended."""
    start = scipy.sparse.csgraph.breadth_first_order(matrix, 0, directed=False, return_predecessors=False)[-1]
    order, before = scipy.sparse.csgraph.breadth_first_order(matrix, start, directed=False)
    before[start] = start
    # Depths by pointer jumping: each round doubles the reach.
    depth = (np.arange(order.size) != start).astype(np.int64)
    while (before != start).any():
        depth += depth[before]
        before = before[before]
    return bool(np.bincount(depth).max() <= _WIDTH * np.sqrt(order.size))


def _rows(matrix: Any, data: Any, at: int) -> Any:
    """Some rows of a CSR matrix, without a copy."""
    pointers = matrix.indptr[at : at + _RUN + 1]
    inside = slice(pointers[0], pointers[-1])
    parts = (data[inside], matrix.indices[inside], pointers - pointers[0])
    return scipy.sparse.csr_array(parts, shape=(pointers.size - 1, matrix.shape[1]))


def _checked(adjacency: Any) -> Any:
    """A symmetric matrix of positive weights without loops, as CSR array in float64."""
    weights = scipy.sparse.csr_array(adjacency, dtype=np.float64)
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1]:
        raise DataError(f"an adjacency matrix is square, this one has shape {weights.shape}")
    if not weights.has_canonical_format:
        weights = weights.copy()
        weights.sum_duplicates()
    bad = ~((weights.data > 0) & np.isfinite(weights.data))
    if bad.any():
        at = int(np.argmax(bad))
        row = int(np.searchsorted(weights.indptr, at, side="right")) - 1
        raise DataError(
            f"the link {row} - {weights.indices[at]} has the weight {weights.data[at]}; weights are positive and finite"
        )
    if weights.diagonal().any():
        raise DataError(f"node {int(np.argmax(weights.diagonal()))} has a link to itself; remove it")
    other = weights.T.tocsr()
    same = all(np.array_equal(getattr(weights, part), getattr(other, part)) for part in ("indptr", "indices"))
    if not (same and np.allclose(weights.data, other.data, rtol=1e-9, atol=0.0)):
        raise DataError(
            "the adjacency matrix is not symmetric; give each link in both directions, with one weight"
        )
    if not np.array_equal(weights.data, other.data):  # by rounding, as after adding up links in another order
        weights = 0.5 * (weights + other)
        weights.sort_indices()
    return weights


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """K by its entries.

    Parameters
    ----------
    matrix : scipy CSR array, shape (n, n)
        Symmetric, positive semidefinite.
    """

    matrix: Any

    @property
    def size(self) -> int:
        return int(self.matrix.shape[0])

    def matmul(self, vectors: ArrayLike) -> Floats:
        """K times vectors of shape (n,) or (n, k)."""
        return np.asarray(self.matrix @ np.asarray(vectors, dtype=np.float64))

    def block(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        return np.asarray(self.matrix[np.asarray(rows)][:, np.asarray(columns)].toarray())

    def row_means(self, rows: ArrayLike) -> Floats:
        """Mean of each of some rows."""
        return np.asarray(self.matrix[np.asarray(rows)].sum(axis=1)).reshape(-1) / self.size

    def average(self) -> float:
        return float(self.matrix.sum()) / self.size**2

    def scaled(self, factor: float) -> "SparseMatrix":
        """K times a positive number."""
        return replace(self, matrix=float(factor) * self.matrix)
