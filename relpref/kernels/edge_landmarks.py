"""Kernels of selected edges, entry by entry, and features of edges from a few of them."""

from dataclasses import dataclass, field, replace
from typing import Any, Self

import jax
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from relpref.errors import DataError
from relpref.kernels.graph import Features, landmark_features
from relpref.kernels.pairwise import Floats, Indices, PairwiseKernel, Side, Weights, is_dense
from relpref.linalg import pivoted_cholesky, real

Positions = NDArray[np.intp]
Matrix = Any  # an array of NumPy's or of JAX's
Edges = tuple[Any, Any]


def edge_kernel(left: Matrix, right: Matrix, sign: float, first: Edges, second: Edges) -> Any:
    """Kernel between a edges and b edges, shape (a, b); JAX in, JAX out.

    K(v, v') G(w, w') for ``sign`` 0; ½ [K(v, v') K(w, w') ± K(v, w') K(w, v')] for a symmetric (1) or reciprocal (−1)
    relation (CR10 section 3).

    Parameters
    ----------
    left, right : array, shape (p, p) and (m, m)
        Kernels of conditioning nodes and of objects; the same for a symmetric or reciprocal relation.
    sign : {0, 1, -1}
    first, second : (array of int, array of int)
        Conditioning node and object of each edge.
    """
    (rows, columns), (other_rows, other_columns) = first, second
    # The few columns first: what is gathered from then on has no more than the result's entries.
    straight = left[:, other_rows][rows] * right[:, other_columns][columns]
    if not sign:
        return straight
    return 0.5 * (straight + sign * left[:, other_columns][rows] * right[:, other_rows][columns])


def edge_diagonal(left: Matrix, right: Matrix, sign: float, edges: Edges) -> Any:
    """Kernel of every edge with itself, shape (a,); arguments as for `edge_kernel`."""
    rows, columns = edges
    straight = left[rows, rows] * right[columns, columns]
    return 0.5 * (straight + sign * left[rows, columns] * right[columns, rows]) if sign else straight


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class EdgeLandmarks:
    """Edges that stand for all others.

    Attributes
    ----------
    rows, columns : array of int, shape (r,)
        Conditioning node and object of each, by position.
    error : float
        Share of the observed edges' prior variance that the landmarks leave out, 0 to 1, at the hyperparameters for which they
        were chosen; at 0 the process is the exact one.
    """

    rows: Positions
    columns: Positions
    error: Any

    @classmethod
    def choose(
        cls,
        left: ArrayLike,
        right: ArrayLike,
        edges: Edges,
        number: int | None = None,
        *,
        sign: float = 0.0,
        weights: ArrayLike | None = None,
        seed: int = 0,
    ) -> Self:
        """Choose some of the edges at random, the less those chosen explain one the more likely it is (`pivoted_cholesky`).

        Parameters
        ----------
        left, right : array
            Kernels of conditioning nodes and of objects.
        edges : (array of int, array of int)
            To choose from; repeated ones count once.
        number : int, optional
            How many at most; by default as many as it takes to leave nothing out.
        sign : {0, 1, -1}
            As for `edge_kernel`.
        weights : array, shape (q,), optional
            How much it matters to explain each edge.
        seed : int

        Raises
        ------
        DataError
            If no edge varies under the kernel, or a kernel matrix is none.
        """
        left, right = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
        own, first = np.unique(edges[0] * right.shape[0] + edges[1], return_index=True)
        rows, columns = np.divmod(own, right.shape[0])
        scale = np.sqrt(np.ones(len(own)) if weights is None else np.asarray(weights)[first])

        def column(i: int) -> Any:
            """Of the kernel scaled by the square roots of the weights."""
            one = rows[[i]], columns[[i]]
            return scale * scale[i] * edge_kernel(left, right, sign, (rows, columns), one)[:, 0]

        diagonal = edge_diagonal(left, right, sign, (rows, columns))
        chosen, error = pivoted_cholesky(
            np.square(scale) * diagonal,
            column,
            len(own) if number is None else number,
            rng=np.random.default_rng(seed),
        )
        if not len(chosen):
            raise DataError(
                "no edge varies under the kernel: it is 0 for every edge with itself; give another kernel or other edges"
            )
        found = cls(rows[chosen], columns[chosen], np.float64(error))
        if weights is None:
            return found
        return replace(found, error=np.float64(found.left_out(left, right, sign, (rows, columns))))

    def features(self, left: Array, right: Array, sign: float, edges: Edges) -> Features:
        """Features of edges, see `landmark_features`; arguments as for `edge_kernel`."""
        own = (self.rows, self.columns)
        return landmark_features(
            edge_kernel(left, right, sign, edges, own),
            edge_kernel(left, right, sign, own, own),
            edge_diagonal(left, right, sign, edges),
        )

    def left_out(self, left: ArrayLike, right: ArrayLike, sign: float, edges: Edges) -> float:
        """Share of the prior variance of some edges that the landmarks leave out, 0 to 1; arguments as for `edge_kernel`."""
        with jax.enable_x64(True):
            left, right = real(left), real(right)
            residual = np.asarray(self.features(left, right, sign, edges).residual)
        total = float(np.sum(edge_diagonal(np.asarray(left), np.asarray(right), sign, edges)))
        return float(np.sum(residual)) / total

    def __len__(self) -> int:
        return len(self.rows)


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
