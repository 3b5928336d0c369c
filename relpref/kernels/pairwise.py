"""Pairwise kernels: similarities of edges, computed from the similarities of their nodes.

An edge (v, w) joins the conditioning node v to the object w. K is the kernel of the conditioning
nodes, G that of the objects. Where both are nodes of one domain, G = K.

====================  ==========================================================  ==========
kernel                k((v, w), (v', w'))                                         domains
====================  ==========================================================  ==========
`Kronecker`           K(v, v') G(w, w')                                           one or two
`Cartesian`           K(v, v') δ(w, w') + δ(v, v') G(w, w')                       one or two
`Symmetric`           ½ [K(v, v') K(w, w') + K(v, w') K(w, v')]                   one
`Reciprocal`          ½ [K(v, v') K(w, w') − K(v, w') K(w, v')]                   one
`Preference`          K(v, v') − K(v, w') − K(w, v') + K(w, w')                   one
`MLPK`                the square of `Preference`                                  one
====================  ==========================================================  ==========

The factors are fixed: with ½ the symmetric and the reciprocal kernel add up to the Kronecker kernel
(other authors have 1 or 2 in its place, which rescales the regularization). No kernel of q edges is
ever formed, unless `matrix` is asked for: the sum Σ_e k(·, e) dual_e is made of products with node
kernels (the "vec trick").

Kronecker, symmetric, reciprocal: Pahikkala, Waegeman, Airola, Salakoski & De Baets 2010. Cartesian:
Kashima et al. 2009. MLPK: Vert, Qiu & Noble 2007. Preference: Herbrich, Graepel & Obermayer 2000.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from relpref.data import Graph
from relpref.description import Description, describe
from relpref.errors import DataError
from relpref.kernels.attribute import AttributeKernel, SquaredExponential
from relpref.kernels.graph import rescaled
from relpref.linalg import Dense, real

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Edges = tuple[Any, Any]  # arrays of their conditioning nodes and of their objects
Weights = Any  # Floats or a scipy sparse array or matrix; scipy has no types

SPARSE_COST = 10.0  # of a multiply-add with a stored entry of W
ENTRY_COST = 12.0  # of a multiply-add of a selected entry of the product
GROUP_COST = 5e4  # of a Python step for all selected entries of one row


def is_dense(entries: int, size: int) -> bool:
    """Whether a matrix of ``size`` places, ``entries`` of them not 0, is faster as a dense one."""
    return entries * SPARSE_COST > size


def product(left: Floats, weights: Weights, right: Floats) -> Floats:
    """L W Rᵀ, shape (a, b), for L (a, p), W (p, m) and R (b, m), in the cheaper order."""
    (a, p), (b, m), entries = left.shape, right.shape, _cost(weights)
    if a * (entries + m * b) <= b * (entries + p * a):
        return times(left, weights) @ right.T
    return left @ times(right, weights.T).T


def product_at(
    left: Floats, weights: Weights, right: Floats, rows: Indices, columns: Indices
) -> Floats:
    """(L W Rᵀ)[rows, columns], shape (q,), in the cheapest way.

    That is the full product, or an inner product for each entry, with L W or with W Rᵀ.
    """
    (a, p), (b, m), q, entries = left.shape, right.shape, len(rows), _cost(weights)
    full = min(a * (entries + m * b), b * (entries + p * a))
    by_row = a * entries + ENTRY_COST * q * m + GROUP_COST * min(a, q)
    by_column = b * entries + ENTRY_COST * q * p + GROUP_COST * min(b, q)
    if full <= min(by_row, by_column):
        return product(left, weights, right)[rows, columns]
    if by_row <= by_column:
        return _entries(times(left, weights), right, rows, columns)
    return _entries(times(right, weights.T), left, columns, rows)


def quadratic(left: Floats, weights: Weights) -> Floats:
    """diag(L W Lᵀ), shape (a,)."""
    return np.einsum("ij,ij->i", times(left, weights), left)


def times(left: Floats, weights: Weights) -> Floats:
    """L W, shape (a, m)."""
    if sparse.issparse(weights):
        if is_dense(weights.nnz, weights.shape[0] * weights.shape[1]):
            return left @ weights.toarray()
        return np.ascontiguousarray(left @ weights)
    return left @ weights


def _cost(weights: Weights) -> float:
    """Cost of the product of one row and W."""
    size = float(weights.shape[0] * weights.shape[1])
    return min(SPARSE_COST * weights.nnz, size) if sparse.issparse(weights) else size


def _entries(left: Floats, right: Floats, rows: Indices, columns: Indices) -> Floats:
    """(L Rᵀ)[rows, columns], by one matrix-vector product for the entries of each row."""
    entries = np.empty(len(rows))
    if np.any(rows[1:] < rows[:-1]):
        order = np.argsort(rows, kind="stable")
        entries[order] = _entries(left, right, rows[order], columns[order])
        return entries
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    ends = np.append(starts[1:], len(rows))
    half = len(right) // 2  # from here on the whole row costs less than gathering
    gathered = np.empty((min(half, int(np.max(ends - starts, initial=0))), right.shape[1]))
    for start, end in zip(starts, ends, strict=True):
        row, some = left[rows[start]], columns[start:end]
        if end - start > half:
            entries[start:end] = (right @ row)[some]
        else:
            # The mode matters: the default one, "raise", works on a copy of what it writes to.
            np.take(right, some, axis=0, out=gathered[: end - start], mode="clip")
            np.dot(gathered[: end - start], row, out=entries[start:end])
    return entries


def edge_kernel(left: Any, right: Any, sign: float, first: Edges, second: Edges) -> Any:
    """Kernel between a edges and b edges, shape (a, b); an array of JAX for arrays of JAX.

    ``first`` and ``second`` are the edges, each as (conditioning nodes, objects). The kernel is
    K(v, v') G(w, w') for ``sign`` 0; ½ [K(v, v') K(w, w') ± K(v, w') K(w, v')] for a symmetric (1)
    or reciprocal (−1) relation (CR10 section 3), with K and G, shapes (p, p) and (m, m), as
    ``left`` and ``right``.
    """
    (rows, columns), (other_rows, other_columns) = first, second
    # The few columns first: the arrays gathered after that are no larger than the result.
    straight = left[:, other_rows][rows] * right[:, other_columns][columns]
    if not sign:
        return straight
    return 0.5 * (straight + sign * left[:, other_columns][rows] * right[:, other_rows][columns])


def edge_diagonal(left: Any, right: Any, sign: float, edges: Edges) -> Any:
    """Kernel of every edge with itself, shape (a,); arguments as for `edge_kernel`."""
    rows, columns = edges
    straight = left[rows, rows] * right[columns, columns]
    return (
        0.5 * (straight + sign * left[rows, columns] * right[columns, rows]) if sign else straight
    )


@dataclass(frozen=True)
class Side:
    """The nodes at one end of the requested edges, with their kernel."""

    kernel: Floats  # between the a nodes asked for and the p training nodes, shape (a, p)
    index: Indices  # which training node each of them is, -1 for a new one, shape (a,)

    @classmethod
    def training(cls, kernel: ArrayLike) -> "Side":
        """The training nodes themselves, from their kernel, shape (p, p)."""
        matrix = np.asarray(kernel, dtype=np.float64)
        return cls(matrix, np.arange(len(matrix)))


class PairwiseKernel(ABC):
    """A kernel between edges, made of the kernels of their nodes.

    Throughout, ``left`` has the a conditioning nodes asked for and p training nodes, ``right`` the
    b objects asked for and m training objects. ``dual`` has a coefficient for each training pair,
    shape (p, m): an array or anything sparse of scipy's, whose repeated entries count as their sum.
    ``rows`` and ``columns`` select pairs asked for by their place in ``left`` and ``right``.
    """

    one_domain: ClassVar[bool] = True
    """Whether conditioning nodes and objects must be nodes of one domain, with one kernel."""
    sign: ClassVar[float | None] = None
    """Sign of the swapped product of node kernels, 0 without one; None if it is no such product."""

    def scores(self, left: Side, right: Side, dual: Weights) -> Floats:
        """Σ_e k((i, j), e) dual_e for every pair asked for, shape (a, b)."""
        weights, nodes = self._terms(left, right, _plain(dual))
        if weights is None:
            return np.add.outer(*nodes)
        scores = product(left.kernel, weights, right.kernel)
        return scores + np.add.outer(*nodes) if nodes else scores

    def at(self, left: Side, right: Side, dual: Weights, rows: Indices, columns: Indices) -> Floats:
        """Scores of q selected pairs, shape (q,); cheap for few pairs or few dual coefficients."""
        weights, nodes = self._terms(left, right, _plain(dual))
        of_nodes = nodes[0][rows] + nodes[1][columns] if nodes else 0.0
        if weights is None:
            return np.asarray(of_nodes)
        return product_at(left.kernel, weights, right.kernel, rows, columns) + of_nodes

    def _terms(self, left: Side, right: Side, dual: Weights) -> tuple[Weights, tuple[Floats, ...]]:
        """W (None for 0) and u, v (or neither), of scores that are L W Rᵀ + u 1ᵀ + 1 vᵀ."""
        raise NotImplementedError

    def matrix(
        self,
        left: Side,
        right: Side,
        rows: Indices,
        columns: Indices,
        edge_rows: Indices,
        edge_columns: Indices,
    ) -> Floats:
        """The kernel between selected pairs and training edges, written out, shape (q, q')."""
        return self._between(left, right, (rows, columns), (edge_rows, edge_columns))

    @abstractmethod
    def _between(self, left: Side, right: Side, pairs: Edges, edges: Edges) -> Floats: ...


def _plain(dual: Weights) -> Weights:
    """Coefficients as an array, sparse ones in a known format."""
    return sparse.csr_array(dual) if sparse.issparse(dual) else np.asarray(dual, dtype=np.float64)


@dataclass(frozen=True)
class Kronecker(PairwiseKernel):
    """K(v, v') G(w, w'): any relation."""

    one_domain: ClassVar[bool] = False
    sign: ClassVar[float] = 0.0

    def _terms(self, left: Side, right: Side, dual: Weights) -> tuple[Weights, tuple[Floats, ...]]:
        return 0.5 * (dual + self.sign * dual.T) if self.sign else dual, ()

    def _between(self, left: Side, right: Side, pairs: Edges, edges: Edges) -> Any:
        return edge_kernel(left.kernel, right.kernel, self.sign, pairs, edges)


@dataclass(frozen=True)
class Cartesian(PairwiseKernel):
    """K(v, v') δ(w, w') + δ(v, v') G(w, w'): edges that share no node have nothing in common."""

    one_domain: ClassVar[bool] = False

    def scores(self, left: Side, right: Side, dual: Weights) -> Floats:
        by_left, by_right = self._halves(left, right, dual)
        return _rows_or_zero(by_left, right.index).T + _rows_or_zero(by_right, left.index)

    def at(self, left: Side, right: Side, dual: Weights, rows: Indices, columns: Indices) -> Floats:
        by_left, by_right = self._halves(left, right, dual)
        return _rows_or_zero(by_left, right.index[columns], rows) + _rows_or_zero(
            by_right, left.index[rows], columns
        )

    def _between(self, left: Side, right: Side, pairs: Edges, edges: Edges) -> Floats:
        same_object = right.index[pairs[1]][:, None] == edges[1]
        same_node = left.index[pairs[0]][:, None] == edges[0]
        by_left = left.kernel[np.ix_(pairs[0], edges[0])] * same_object
        return by_left + right.kernel[np.ix_(pairs[1], edges[1])] * same_node

    def _halves(self, left: Side, right: Side, dual: Weights) -> tuple[Floats, Floats]:
        """(K A)ᵀ, shape (m, a), and A Gᵀ, shape (p, b): a row for each training node."""
        dual = _plain(dual)
        return times(left.kernel, dual).T, times(right.kernel, dual.T).T


def _rows_or_zero(matrix: Floats, index: Indices, columns: Any = ...) -> Floats:
    """Rows of a matrix, or one entry of each, and zeros for new nodes."""
    new = index < 0 if columns is not ... else (index < 0)[:, None]
    return np.where(new, 0.0, matrix[index, columns])


@dataclass(frozen=True)
class Symmetric(Kronecker):
    """½ [K(v, v') K(w, w') + K(v, w') K(w, v')]: relations with h(v, w) = h(w, v)."""

    one_domain: ClassVar[bool] = True
    sign: ClassVar[float] = 1.0


@dataclass(frozen=True)
class Reciprocal(Symmetric):
    """½ [K(v, v') K(w, w') − K(v, w') K(w, v')]: relations with h(v, w) = −h(w, v)."""

    sign: ClassVar[float] = -1.0


@dataclass(frozen=True)
class Preference(PairwiseKernel):
    """K(v, v') − K(v, w') − K(w, v') + K(w, w'): relations with h(v, w) = f(v) − f(w).

    All conditioning nodes share the utility f. With d_e = e_v − e_w this is d_eᵀ K d_e', and f = K
    (A − Aᵀ) 1.
    """

    def _terms(self, left: Side, right: Side, dual: Weights) -> tuple[Weights, tuple[Floats, ...]]:
        ones = np.ones(dual.shape[0])
        flow = dual @ ones - dual.T @ ones
        return None, (left.kernel @ flow, -(right.kernel @ flow))

    def _between(self, left: Side, right: Side, pairs: Edges, edges: Edges) -> Floats:
        gap = left.kernel[pairs[0]] - right.kernel[pairs[1]]
        return gap[:, edges[0]] - gap[:, edges[1]]


@dataclass(frozen=True)
class MLPK(PairwiseKernel):
    """The metric learning pairwise kernel, the square of `Preference`.

    In feature space h(v, w) = (v − w)ᵀ M (v − w). With k_v the kernel of v with the training nodes
    and the Laplacian Λ = diag(t) − (A + Aᵀ), t = (A + Aᵀ) 1, of the dual coefficients as weights of
    edges, Σ_e (d_eᵀ(k_v − k_w))² dual_e = (k_v − k_w)ᵀ Λ (k_v − k_w).
    """

    def _terms(self, left: Side, right: Side, dual: Weights) -> tuple[Weights, tuple[Floats, ...]]:
        """k_vᵀ Λ k_v + k_wᵀ Λ k_w − 2 k_vᵀ Λ k_w; Λ is sparse where the dual coefficients are."""
        both = dual + dual.T
        degrees = both @ np.ones(both.shape[0])
        laplacian = (
            sparse.diags_array(degrees) if sparse.issparse(both) else np.diag(degrees)
        ) - both
        of_left = quadratic(left.kernel, laplacian)
        of_right = of_left if right is left else quadratic(right.kernel, laplacian)
        return -2.0 * laplacian, (of_left, of_right)

    def _between(self, left: Side, right: Side, pairs: Edges, edges: Edges) -> Floats:
        return Preference()._between(left, right, pairs, edges) ** 2


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RelationVectors:
    """An attribute kernel on each item's row of the matrix of weights.

    Items are alike if they are linked to the same items (XPGP section 3.1).

    Parameters
    ----------
    attribute_kernel : AttributeKernel
        A kernel with one lengthscale for all columns (``shared_lengthscale=True``), because every
        item is a column.

    Raises
    ------
    DataError
        If the kernel has a parameter for each column; raised by ``parameters``.

    Notes
    -----
    With ``normalize`` the rows are divided by the root mean square length of those with a link, so
    that two rows without a common link are about √2 apart, as the prior of the lengthscale
    (median 1) expects; and the kernel is scaled like `RegularizedLaplacian`. Without it the rows
    are not scaled: give a prior that fits.
    """

    attribute_kernel: AttributeKernel = field(default=SquaredExponential(shared_lengthscale=True))

    def parameters(self, graph: Graph) -> Mapping[str, dist.Distribution]:
        """Priors of the attribute kernel's hyperparameters, for one attribute."""
        priors = self.attribute_kernel.parameters(1)
        for name, prior in priors.items():
            if prior.shape():
                raise DataError(
                    f"RelationVectors: {self.attribute_kernel} has one {name} for each column, and "
                    "every item is a column; pass a kernel with shared_lengthscale=True"
                )
        return priors

    def __call__(self, graph: Graph, *, normalize: bool = True, **parameters: Array) -> Dense:
        """Covariance matrix of the nodes."""
        rows = real(graph.weight_matrix)
        if not normalize:
            return Dense(self.attribute_kernel(rows, **parameters).dense())
        node = jnp.asarray(graph.reference.component) >= 0
        lengths = node * (jnp.square(rows[: node.size, : node.size]) @ node)
        mean = jnp.sum(lengths) / jnp.maximum(jnp.sum(lengths > 0), 1)
        covariance = self.attribute_kernel(
            rows / jnp.sqrt(jnp.where(mean > 0, mean, 1)), **parameters
        )
        return Dense(rescaled(covariance.dense(), graph))

    def describe(self) -> Description:
        inner = describe(self.attribute_kernel)
        return Description(
            f"Each item's links are taken for its attributes. {inner.sentence}",
            inner.citation,
            {
                **inner.parameters,
                "lengthscale": "Lengthscale of a relation: how different the links of two items "
                "can be while these are still alike; items without a link in common differ by "
                "about 1.4.",
            },
            unit="two of its items",
        )
