"""Solutions with a graph's Laplacian plus a multiple of the identity.

They are products with the covariance of a graph prior.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
import scipy.sparse.linalg
from numpy.typing import ArrayLike, NDArray

from relpref.errors import DataError, InferenceError
from relpref.limits import MAX_CACHED_POSITIONS, fits, require_memory
from relpref.linalg.cg import Block, Floats, Progress, block_cg, chunks, in_threads, inner
from relpref.linalg.factor import symmetric_lu

Positions = NDArray[np.intp]

Compute = Callable[[Positions, Positions], Iterator[tuple[slice, Floats]]]

# A product takes this many rows at a time, so that its result is still in the cache when the shift
# is added.
_RUN = 4096
# Components with fewer nodes share one pass over the vectors, and do not decide how systems are
# solved.
_LARGE = 10_000
# A graph is narrow up to so many links for each node and so many times √n nodes in a level; its
# factors then have up to so many entries for each node.
_LINKS, _WIDTH, _FILL = 4.0, 3.0, 150.0
# Up to so many nodes a factorization costs less than the iterations.
_SMALL = 500
# Single precision gains no more in one round (measured on hubs, random graphs and lattices with
# shortcuts).
_SINGLE = 3e-7
_MOST_STEPS, _MOST_ROUNDS = 3000, 20
# Columns solved together share each pass over the links; where their vectors would leave the cache,
# or for fewer than so many columns, one after the other takes no longer and less memory.
WIDTH, FEW, _BLOCK = 32, 12, 2**22
# Beyond this share of all pairs (and so many nodes) a graph is no sparse one.
_DENSE, _DENSE_SIZE = 0.1, 4000


@dataclass(frozen=True, eq=False)
class OrderedLaplacian:
    """Δ = D − W with large components first, and in each component the hubs first.

    Most products need the rows of hubs; side by side they stay in the cache.
    """

    order: NDArray[np.intp]  # which node is at each place
    matrix: Any  # Δ in this order, a scipy CSR array
    sizes: NDArray[np.intp]  # nodes of each component, in the order of the components

    @classmethod
    def of(cls, adjacency: Any) -> "OrderedLaplacian":
        """Lay out the graph of a symmetric matrix of positive weights without loops.

        DataError for any other matrix.
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
        """Whether few nodes separate any large component, so that factors are sparse.

        Examples are grids, road networks and chains. The levels of a breadth-first search from a
        far end are such separators: in a planar graph of s nodes the widest has some √s nodes, in a
        random one a large share of all. (A planar graph has fewer than 3 s links: a graph with more
        need not be searched.)
        """
        if self.links > _LINKS * self.size or self.sizes[0] < _LARGE:
            return False
        large = [slice(start, stop) for start, stop in self._large[0]]
        return all(_is_narrow(self.matrix[part, part]) for part in large) and fits(
            _FILL * 12.0 * self.size
        )

    @cached_property
    def degree(self) -> Floats:
        """Weighted degree of each node, in the order of the layout."""
        return np.asarray(self.matrix.diagonal())

    @cached_property
    def rank(self) -> NDArray[np.intp]:
        rank = np.empty(self.size, dtype=np.intp)
        rank[self.order] = np.arange(self.size)
        return rank

    def _rows(self, data: Any) -> list[Any]:
        """Runs of rows of Δ, without copies of the data."""
        runs = []
        for at in range(0, self.size, _RUN):
            pointers = self.matrix.indptr[at : at + _RUN + 1]
            inside = slice(pointers[0], pointers[-1])
            parts = (data[inside], self.matrix.indices[inside], pointers - pointers[0])
            runs.append(scipy.sparse.csr_array(parts, shape=(pointers.size - 1, self.size)))
        return runs

    @cached_property
    def _double(self) -> list[Any]:
        return self._rows(self.matrix.data)

    @cached_property
    def _single(self) -> list[Any]:
        return self._rows(self.matrix.data.astype(np.float32))

    def suits_single(self, shift: float) -> bool:
        """Whether single precision holds the entries of Δ + shift I and their products."""
        smallest, largest = self._extremes
        return min(smallest, shift) >= 1e-15 and largest + shift <= 1e15

    @cached_property
    def _extremes(self) -> tuple[float, float]:
        """Smallest weight and largest degree."""
        links = -self.matrix.data[self.matrix.data < 0]
        return float(links.min(initial=1.0)), float(self.degree.max(initial=1.0))

    def apply(self, shift: float, block: Block, out: Block) -> Block:
        """(Δ + shift I) times a block, in the precision of the block, written into ``out``."""
        runs = self._single if block.dtype == np.float32 else self._double
        for at, run in zip(range(0, self.size, _RUN), runs, strict=True):
            rows = slice(at, at + _RUN)
            np.multiply(block[rows], shift, out=out[rows])
            out[rows] += run @ block
        return out

    def center(self, block: Block) -> None:
        """Subtract each column's mean over each component, in place."""
        self.spread(block, -self.means(block))

    def jacobi(self, scale: Block) -> Callable[[Block, Block], Block]:
        """The diagonal as preconditioner, on the complement of the components' constants."""

        def precondition(block: Block, out: Block) -> Block:
            np.multiply(block, scale, out=out)
            self.center(out)
            return out

        return precondition

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
        """Add the components' ``means``, shape (c, k), to the entries of their nodes, in place."""
        means = means.astype(block.dtype)
        large, end = self._large
        for number, (start, stop) in enumerate(large):
            block[start:stop] += means[number]
        if end < self.size:
            block[end:] += np.repeat(means[len(large) :], self.sizes[len(large) :], axis=0)

    @cached_property
    def _large(self) -> tuple[list[tuple[int, int]], int]:
        """Start and end of each large component, and the start of the others."""
        ends = np.cumsum([0, *self.sizes[self.sizes >= _LARGE]]).tolist()
        return list(pairwise(ends)), ends[-1]


def _is_narrow(matrix: Any) -> bool:
    """Whether no level of a breadth-first search has more than some √n nodes.

    The search starts at the node where another one ended.
    """
    start = scipy.sparse.csgraph.breadth_first_order(
        matrix, 0, directed=False, return_predecessors=False
    )[-1]
    order, before = scipy.sparse.csgraph.breadth_first_order(matrix, start, directed=False)
    before[start] = start
    # Depths by pointer jumping: each round doubles the reach.
    depth = (np.arange(order.size) != start).astype(np.int64)
    while (before != start).any():
        depth += depth[before]
        before = before[before]
    return bool(np.bincount(depth).max() <= _WIDTH * np.sqrt(order.size))


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
            f"the link {row} - {weights.indices[at]} has the weight {weights.data[at]}; weights "
            "are positive and finite"
        )
    if weights.diagonal().any():
        raise DataError(
            f"node {int(np.argmax(weights.diagonal()))} has a link to itself; remove it"
        )
    other = weights.T.tocsr()
    same = all(
        np.array_equal(getattr(weights, part), getattr(other, part))
        for part in ("indptr", "indices")
    )
    if not (same and np.allclose(weights.data, other.data, rtol=1e-9, atol=0.0)):
        raise DataError(
            "the adjacency matrix is not symmetric; give each link in both directions, with one "
            "weight"
        )
    if not np.array_equal(weights.data, other.data):
        # They differ by rounding, for example of links added up in another order.
        weights = 0.5 * (weights + other)
        weights.sort_indices()
    return weights


class Solution(NamedTuple):
    """Solutions of (Δ + shift I) X = B.

    The residual is the largest √(rᵀM⁻¹r / bᵀM⁻¹b) of the columns with M = diag(Δ) + shift.
    """

    values: Floats  # of the shape of B
    iterations: int  # products with the Laplacian for the block of columns that needed most
    residual: float  # with r = b − (Δ + shift I) x recomputed in double precision
    method: str


def _weighted(block: Block, weight: Floats) -> Floats:
    """Σ_i w_i x_i² of each column."""
    total = np.zeros(block.shape[1])
    for rows in chunks(block):
        total += inner(block[rows], block[rows] * weight[rows])
    return total


@dataclass
class SeenBlock:
    """K_SS of a matrix K for the positions S seen so far, in the order of arrival.

    The entries are computed for the given shift and tolerance.
    """

    shift: float = np.nan
    tol: float = np.inf
    positions: Positions = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    _entries: Floats = field(default_factory=lambda: np.empty((0, 0)))
    # A loop asks for questions in one thread and refines in another.
    _growing: Any = field(default_factory=threading.RLock, repr=False)

    def entries(self, rows: Positions, columns: Positions, compute: Compute) -> Floats:
        """K[rows][:, columns], in any order, also repeated; only new entries are computed.

        ``compute`` takes columns and rows, ascending, and yields runs of the columns with their
        entries in the rows, as soon as they are computed.
        """
        with self._growing:
            row, row_at = np.unique(rows, return_inverse=True)
            column, column_at = np.unique(columns, return_inverse=True)
            union = np.union1d(self.positions, np.union1d(row, column))
            fresh = np.setdiff1d(union, self.positions)
            if fresh.size <= min(row.size, column.size) and union.size <= MAX_CACHED_POSITIONS:
                for part, values in compute(fresh, union):
                    self._add(fresh[part], union, values)
                order = np.argsort(self.positions)
                at = [
                    order[np.searchsorted(self.positions, some, sorter=order)]
                    for some in (rows, columns)
                ]
                return self._entries[np.ix_(*at)]
            # Many rows of few columns, or more than are kept: the fewer are computed in full.
            if row.size < column.size:
                return self.entries(columns, rows, compute).T
            block = np.empty((row.size, column.size))
            for part, values in compute(column, row):
                block[:, part] = values
            return block[np.ix_(row_at, column_at)]

    def _add(self, fresh: Positions, rows: Positions, columns: Floats) -> None:
        """Keep the columns K[rows, fresh]; ``rows``, ascending, holds S and ``fresh``."""
        count, total = self.positions.size, self.positions.size + fresh.size
        if total > self._entries.shape[0]:
            capacity = min(MAX_CACHED_POSITIONS, max(total + total // 4, 64))
            require_memory(8.0 * capacity**2, f"the covariance of {capacity} items")
            larger = np.empty((capacity, capacity))
            larger[:count, :count] = self._entries[:count, :count]
            self._entries = larger
        cross = columns[np.searchsorted(rows, self.positions)]
        corner = columns[np.searchsorted(rows, fresh)]
        self._entries[:count, count:total] = cross
        self._entries[count:total, :count] = cross.T
        self._entries[count:total, count:total] = 0.5 * (corner + corner.T)
        self.positions = np.concatenate([self.positions, fresh])


class LaplacianSolver:
    """Solver for Δ + shift I, Δ = D − W, of an undirected graph of up to millions of nodes.

    W is a scipy array of positive weights. Where a sparse factorization is cheap (few nodes, a
    forest), it is used; otherwise conjugate gradients on blocks of columns, with the diagonal as
    preconditioner, in single precision with residuals in double, on all cores that the process may
    use. The constants of each component are eigenvectors (Δ1 = 0) and are treated exactly, so that
    the smallest shift does no harm. DataError if W is not symmetric, has loops, or holds so many
    links that it is no sparse matrix.
    """

    _workers: ClassVar[int | None] = None  # all cores

    def __init__(self, adjacency: Any) -> None:
        self._laplacian = OrderedLaplacian.of(adjacency)
        self.size = self._laplacian.size
        links = self._laplacian.links
        if self.size >= _DENSE_SIZE and links > _DENSE * self.size * (self.size - 1) / 2:
            raise DataError(
                f"the graph has {links} links between {self.size} nodes, more than {_DENSE:.0%} of "
                "all pairs: too many for the sparse structure; drop weak links, or fit with "
                "structure='dense' where memory allows matrices of all"
            )
        self._lock = threading.Lock()
        self._factor: tuple[float, Any] = (np.nan, None)
        self._seen = SeenBlock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the links alone, without factors and computed entries."""
        laplacian = self.laplacian()
        return type(self), (
            scipy.sparse.csr_array(scipy.sparse.diags_array(laplacian.diagonal()) - laplacian),
        )

    @property
    def is_treelike(self) -> bool:
        """Whether factors of Δ + shift I are about as sparse as the graph.

        Examples are forests and road networks.
        """
        laplacian = self._laplacian
        return laplacian.is_forest or (laplacian.links <= 1.5 * self.size and laplacian.is_narrow)

    def laplacian(self) -> Any:
        """Δ as a SciPy CSR array, shape (n, n), in the order of the nodes; a copy."""
        rank = self._laplacian.rank
        return self._laplacian.matrix[rank][:, rank]

    @property
    def degree(self) -> Floats:
        """Weighted degree of each node, shape (n,)."""
        return np.asarray(self._laplacian.degree[self._laplacian.rank])

    @property
    def component_sizes(self) -> NDArray[np.intp]:
        """Number of nodes in the connected component of each node, shape (n,)."""
        sizes = self._laplacian.sizes
        return np.asarray(np.repeat(sizes, sizes)[self._laplacian.rank])

    def centred(self, vectors: ArrayLike) -> Floats:
        """Vectors of shape (n, k) without their mean over each component."""
        ordered = np.asarray(vectors, dtype=np.float64)[self._laplacian.order]
        self._laplacian.center(ordered)
        return np.asarray(ordered[self._laplacian.rank])

    def solve(
        self, shift: float, rhs: ArrayLike, tol: float = 1e-6, progress: Progress | None = None
    ) -> Solution:
        """Solve (Δ + shift I) X = B, shape (n,) or (n, k), to the residual ``tol``, see `Solution`.

        DataError if the shift is not positive, or B not finite or of another length; InferenceError
        if the tolerance was not reached. ``progress`` is called with the numbers of solved and of
        all columns.
        """
        given = np.asarray(rhs, dtype=np.float64)
        if given.ndim not in (1, 2) or given.shape[0] != self.size:
            raise DataError(
                f"a right-hand side has shape {given.shape}; its first dimension is the "
                f"{self.size} nodes"
            )
        if not np.all(np.isfinite(given)):
            raise DataError("a right-hand side is not finite everywhere; look for NaN in the data")
        matrix = given.reshape(self.size, -1)
        values, order = np.empty_like(matrix), self._laplacian.order

        def solve(part: slice) -> Solution:
            return self._checked_solve(shift, matrix[order, part], tol)

        iterations, residual, methods = 0, 0.0, {}
        parts = self._parts(matrix.shape[1])
        for part, solution in in_threads(solve, parts, progress, self._workers):
            values[order, part] = solution.values
            iterations = max(iterations, solution.iterations)
            residual = max(residual, solution.residual)
            methods[solution.method] = True
        return Solution(
            values.reshape(given.shape), iterations, residual, ", ".join(methods) or "none"
        )

    def block(
        self,
        shift: float,
        rows: ArrayLike,
        columns: ArrayLike,
        tol: float = 1e-6,
        progress: Progress | None = None,
    ) -> Floats:
        """Entries of the inverse, (Δ + shift I)⁻¹[rows][:, columns].

        The entries among the positions seen at the last shift are kept, so that a further position
        costs one solution. An interruption loses only the columns that were being solved. Positions
        may be in any order, also repeated; results with a larger tolerance are recomputed.
        """
        seen = self._seen
        if seen.shift != shift or tol < seen.tol:
            seen = self._seen = SeenBlock(shift, tol)

        def compute(fresh: Positions, rows: Positions) -> Iterator[tuple[slice, Floats]]:
            at, kept = self._laplacian.rank[fresh], self._laplacian.rank[rows]

            def solve(part: slice) -> Floats:
                units = np.zeros((self.size, at[part].size))
                units[at[part], np.arange(at[part].size)] = 1.0
                return self._checked_solve(shift, units, tol).values[kept]

            yield from in_threads(solve, self._parts(fresh.size), progress, self._workers)

        return seen.entries(self.positions(rows), self.positions(columns), compute)

    def positions(self, positions: ArrayLike) -> Positions:
        """Positions of nodes as an array, shape (k,); DataError if some are out of range."""
        given = np.asarray(positions, dtype=np.intp).reshape(-1)
        if given.size and (given.min() < 0 or given.max() >= self.size):
            raise DataError(
                f"positions lie between 0 and {self.size - 1}, not {given.min()} to {given.max()}"
            )
        return given

    def _parts(self, count: int) -> list[slice]:
        width = WIDTH if count >= FEW and WIDTH * self.size <= _BLOCK else 1
        return [slice(start, min(start + width, count)) for start in range(0, count, width)]

    def _checked_solve(self, shift: float, rhs: Floats, tol: float) -> Solution:
        """Solve for a block in the order of the layout; InferenceError above the tolerance."""
        if not (np.isfinite(shift) and shift > 0):
            raise DataError(
                f"the shift is {shift}; it is positive and finite (one over the range squared)"
            )
        # Δ1 = 0 on each component, which gives the constant part of the solution; the rest is
        # computed without it.
        laplacian = self._laplacian
        constant, rest = laplacian.means(rhs) / shift, rhs.copy()
        laplacian.center(rest)
        scale = (1.0 / (laplacian.degree + shift))[:, None]
        norm = np.sqrt(_weighted(rhs, scale))
        norm[norm == 0] = 1.0
        solution = self._refined(shift, rest, scale, norm, tol)
        laplacian.spread(solution.values, constant)
        if not solution.residual <= tol:
            raise InferenceError(
                f"{solution.method} left a residual of {solution.residual:.2g} after "
                f"{solution.iterations} products with the graph of {self.size} nodes, {tol:.2g} "
                "was "
                f"asked for; a shorter range (a larger shift, here {shift:.3g}), fewer links or a "
                "larger tolerance make that easier",
                solution,
            )
        return solution

    def _refined(
        self, shift: float, rhs: Floats, scale: Floats, norm: Floats, tol: float
    ) -> Solution:
        """Correct the solution until its residual relative to ``norm`` is ``tol`` or stalls.

        ``rhs`` has no constants on components, and ``scale`` is one over the diagonal of Δ + shift
        I.
        """
        laplacian = self._laplacian
        residual, values = rhs.copy(), np.zeros_like(rhs)
        direct = self.size <= _SMALL or laplacian.is_forest or laplacian.is_narrow
        precision: Any = np.float32 if laplacian.suits_single(shift) else np.float64
        steps, last = 0, np.inf
        for _ in range(_MOST_ROUNDS):
            left = np.sqrt(_weighted(residual, scale)) / norm
            worst = float(left.max(initial=0.0))
            if worst <= tol or not np.isfinite(worst) or steps >= _MOST_STEPS:
                break
            if worst > 0.3 * last:
                # Further rounds in this precision gain nothing.
                if direct or precision is np.float64:
                    break
                precision = np.float64
            last = worst
            if direct:
                correction = self._factorized(shift).solve(residual)
                steps += 1
            else:
                # Each column is scaled to length 1, because of the range of single precision;
                # columns within the tolerance do not change.
                length = np.where(left > tol, left, 1.0)
                residual /= length * norm
                floor = _SINGLE if precision is np.float32 else 1e-12
                result = block_cg(
                    lambda block, out: laplacian.apply(shift, block, out),
                    residual.astype(precision),
                    precondition=laplacian.jacobi(scale.astype(precision)),
                    tol=np.where(left > tol, np.maximum(0.7 * tol / length, floor), 1.0),
                    max_steps=_MOST_STEPS - steps,
                )
                correction = result.values * (length * norm)
                steps += result.steps
            laplacian.center(correction)
            values += correction
            laplacian.apply(shift, values, residual)
            np.subtract(rhs, residual, out=residual)
        method = "a sparse factorization" if direct else "conjugate gradients (Jacobi)"
        return Solution(values, steps, worst, method)

    def _factorized(self, shift: float) -> Any:
        with self._lock:
            if self._factor[0] != shift:
                # A shift that vanishes beside the degrees would leave a singular matrix; refinement
                # makes up for the larger.
                raised = max(shift, 1e-13 * float(self._laplacian.degree.max(initial=0.0)))
                identity = scipy.sparse.eye_array(self.size, format="csr")
                self._factor = (shift, symmetric_lu(self._laplacian.matrix + raised * identity))
            return self._factor[1]
