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
from relpref.kernels.pairwise import (
    Edges,
    Floats,
    Indices,
    PairwiseKernel,
    Side,
    Weights,
    edge_diagonal,
    edge_kernel,
    is_dense,
)
from relpref.linalg import pivoted_cholesky
from relpref.skeleton import evaluated

Positions = NDArray[np.intp]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class EdgeLandmarks:
    """Edges that stand for all others, by the positions of their nodes and objects, shape (r,).

    ``error`` is the share of the observed edges' prior variance that they leave out, 0 to 1, at the
    hyperparameters for which they were chosen; at 0 the process is the exact one.
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
        """Choose some of the edges at random by `pivoted_cholesky`.

        The less the chosen edges explain of another one, the more likely it is. Arguments are those
        of `edge_kernel`; ``number``, how many landmarks at most, by default as many as it takes to
        leave nothing out; and ``weights``, shape (q,): how much it matters to explain each edge.
        Repeated edges count once.
        """
        left, right = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
        pairs, first = np.unique(edges[0] * right.shape[0] + edges[1], return_index=True)
        rows, columns = np.divmod(pairs, right.shape[0])
        scale = np.sqrt(np.ones(len(pairs)) if weights is None else np.asarray(weights)[first])

        def column(i: int) -> Any:
            """Column i of the kernel, scaled by the square roots of the weights."""
            edge = rows[[i]], columns[[i]]
            return scale * scale[i] * edge_kernel(left, right, sign, (rows, columns), edge)[:, 0]

        diagonal = edge_diagonal(left, right, sign, (rows, columns))
        chosen, error = pivoted_cholesky(
            np.square(scale) * diagonal,
            column,
            len(pairs) if number is None else number,
            rng=np.random.default_rng(seed),
        )
        if not len(chosen):
            raise DataError(
                "no edge varies under the kernel: it is 0 for every edge with itself; give another "
                "kernel or other edges"
            )
        landmarks = cls(rows[chosen], columns[chosen], np.float64(error))
        if weights is None:
            return landmarks
        left_out = landmarks.left_out(left, right, sign, (rows, columns))
        return replace(landmarks, error=np.float64(left_out))

    def features(self, left: Array, right: Array, sign: float, edges: Edges) -> Features:
        """Features of edges, see `landmark_features`; arguments as for `edge_kernel`."""
        landmarks = (self.rows, self.columns)
        return landmark_features(
            edge_kernel(left, right, sign, edges, landmarks),
            edge_kernel(left, right, sign, landmarks, landmarks),
            edge_diagonal(left, right, sign, edges),
        )

    def left_out(self, left: ArrayLike, right: ArrayLike, sign: float, edges: Edges) -> float:
        """Share of the edges' prior variance that the landmarks leave out, 0 to 1.

        Arguments are as for `edge_kernel`.
        """
        left, right = np.asarray(left), np.asarray(right)
        residual = evaluated(self.features, left, right, sign, edges).residual
        return float(np.sum(residual) / np.sum(edge_diagonal(left, right, sign, edges)))

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class EdgeGram:
    """The kernel matrix of q edges between training nodes, shape (q, q).

    The edges are given by their ``rows`` and ``columns``, shape (q,) each. A product costs O(p²m +
    pm²) for a complete graph and O(q (p + m)) for a sparse one, whichever is less by measured
    speeds; the memory is that of a few p x m matrices or less. ``left`` and ``right`` are the p
    conditioning nodes and the m objects (`Side.training`), the same for a kernel of one domain. An
    edge may occur several times.
    """

    kernel: PairwiseKernel
    left: Side
    right: Side
    rows: Indices
    columns: Indices
    complete: bool = field(init=False)
    """Whether the edges are all pairs of nodes, each once, row by row."""
    _distinct: tuple[Indices, Indices] = field(init=False, repr=False)
    """Rows and columns of the distinct pairs, row by row, where the edges are not complete."""
    _place: Indices | None = field(init=False, repr=False)
    """Number of the distinct pair that each edge joins; None if these are the edges in order."""

    def __post_init__(self) -> None:
        shape = self.shape
        pair, place = self.rows * shape[1] + self.columns, None
        complete = len(pair) == shape[0] * shape[1] and bool(np.all(pair == np.arange(len(pair))))
        if not np.all(pair[1:] > pair[:-1]):
            pair, place = np.unique(pair, return_inverse=True)
        object.__setattr__(self, "complete", complete)
        object.__setattr__(self, "_distinct", np.divmod(pair, shape[1]))
        object.__setattr__(self, "_place", place)

    @property
    def shape(self) -> tuple[int, int]:
        """(p, m): how many conditioning nodes and objects there are."""
        return len(self.left.index), len(self.right.index)

    def __len__(self) -> int:
        return len(self.rows)

    def weights(self, dual: Floats) -> Weights:
        """Matrix of the edges' coefficients, summed over equal edges, shape (p, m).

        It is a sparse array where that is faster.
        """
        if self.complete:
            return dual.reshape(self.shape)
        (rows, columns), shape = self._distinct, self.shape
        values = dual if self._place is None else np.bincount(self._place, dual, len(rows))
        if is_dense(len(rows), shape[0] * shape[1]):
            matrix = np.zeros(shape)
            matrix[rows, columns] = values
            return matrix
        starts = np.searchsorted(rows, np.arange(shape[0] + 1))
        return sparse.csr_array((values, columns, starts), shape=shape)

    def __matmul__(self, dual: Floats) -> Floats:
        """The scores of the edges, K a, shape (q,)."""
        weights = self.weights(dual)
        if self.complete:
            return self.kernel.scores(self.left, self.right, weights).ravel()
        scores = self.kernel.at(self.left, self.right, weights, *self._distinct)
        return scores if self._place is None else scores[self._place]
