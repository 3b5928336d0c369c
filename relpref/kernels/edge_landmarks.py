"""Kernels of selected edges, entry by entry, and features of edges from a few of them."""

from dataclasses import dataclass, replace
from typing import Any, Self

import jax
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from relpref.errors import DataError
from relpref.kernels.features import Features, landmark_features
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
        """How many there are."""
        return len(self.rows)
