"""Pairwise kernels: how alike two edges are, from how alike their nodes are.

An edge (v, w) joins the conditioning node v to the object w. K is the kernel of the conditioning nodes, G that of the
objects. Where both are nodes of one domain, G = K.

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

The factors are fixed: with ½ the symmetric and the reciprocal kernel add up to the Kronecker kernel (other authors
have 1 or 2 in its place, which rescales the regularisation). No kernel of q edges is ever formed, unless `matrix` is
asked for: the sum Σ_e k(·, e) dual_e is made of products with node kernels (the "vec trick").

Kronecker, symmetric, reciprocal: Pahikkala, Waegeman, Airola, Salakoski & De Baets 2010. Cartesian: Kashima et al.
2009. MLPK: Vert, Qiu & Noble 2007. Preference: Herbrich, Graepel & Obermayer 2000.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from relpref.errors import DataError
from relpref.kernels.pairwise_products import Floats, Indices, Weights, product, product_at, quadratic, times


@dataclass(frozen=True)
class Side:
    """The nodes at one end of the edges asked for, as the kernel sees them.

    Parameters
    ----------
    kernel : array, shape (a, p)
        Kernel between the a nodes asked for and the p training nodes.
    index : array of int, shape (a,)
        Which training node each of them is; -1 for a new one.

    Raises
    ------
    DataError
        If the shapes do not fit, or an index is no training node.
    """

    kernel: Floats
    index: Indices

    def __post_init__(self) -> None:
        """Check the shapes."""
        if self.kernel.ndim != 2 or self.index.shape != self.kernel.shape[:1]:
            raise DataError(
                f"a side has a kernel of shape {self.kernel.shape} and an index of shape {self.index.shape}; "
                "give a row and an index for each node asked for"
            )
        if np.any((self.index < -1) | (self.index >= self.kernel.shape[1])):
            raise DataError(
                f"a side's index reaches from {self.index.min()} to {self.index.max()}; it must be a training "
                f"node, 0 to {self.kernel.shape[1] - 1}, or -1 for a new node"
            )

    @classmethod
    def training(cls, kernel: ArrayLike) -> "Side":
        """The training nodes themselves, from their kernel, shape (p, p)."""
        matrix = np.asarray(kernel, dtype=np.float64)
        return cls(matrix, np.arange(len(matrix)))


class PairwiseKernel(Protocol):
    """A kernel between edges, made of the kernels of their nodes.

    Throughout, ``left`` has the a conditioning nodes asked for and p training nodes, ``right`` the b objects asked for
    and m training objects. ``dual`` has a coefficient for each training pair, shape (p, m): an array or anything
    sparse of scipy's, whose repeated entries count as their sum. ``rows`` and ``columns`` select pairs asked for by
    their place in ``left`` and ``right``.
    """

    one_domain: ClassVar[bool]
    """Whether conditioning nodes and objects must be nodes of one domain, with one kernel."""

    def scores(self, left: Side, right: Side, dual: Weights) -> Floats:
        """Σ_e k((i, j), e) dual_e for every pair asked for, shape (a, b)."""

    def at(self, left: Side, right: Side, dual: Weights, rows: Indices, columns: Indices) -> Floats:
        """The same for q selected pairs, shape (q,); cheap where they or the dual coefficients are few."""

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


@dataclass(frozen=True)
class Kronecker:
    """K(v, v') G(w, w'): any relation."""

    one_domain: ClassVar[bool] = False

    def scores(self, left: Side, right: Side, dual: Weights) -> Floats:
        """K A Gᵀ."""
        return product(left.kernel, _fitting(self, dual, left, right), right.kernel)

    def at(self, left: Side, right: Side, dual: Weights, rows: Indices, columns: Indices) -> Floats:
        """Selected entries of K A Gᵀ."""
        return product_at(left.kernel, _fitting(self, dual, left, right), right.kernel, rows, columns)

    def matrix(
        self,
        left: Side,
        right: Side,
        rows: Indices,
        columns: Indices,
        edge_rows: Indices,
        edge_columns: Indices,
    ) -> Floats:
        """The kernel written out."""
        return left.kernel[np.ix_(rows, edge_rows)] * right.kernel[np.ix_(columns, edge_columns)]


@dataclass(frozen=True)
class Cartesian:
    """K(v, v') δ(w, w') + δ(v, v') G(w, w'): edges that share no node have nothing in common."""

    one_domain: ClassVar[bool] = False

    def scores(self, left: Side, right: Side, dual: Weights) -> Floats:
        """The rows' and the columns' scores, added."""
        by_left, by_right = self._halves(left, right, dual)
        return _known(by_left, right.index).T + _known(by_right, left.index)

    def at(self, left: Side, right: Side, dual: Weights, rows: Indices, columns: Indices) -> Floats:
        """Selected entries of the same sum."""
        by_left, by_right = self._halves(left, right, dual)
        object_, node = right.index[columns], left.index[rows]
        return np.where(object_ >= 0, by_left[object_, rows], 0.0) + np.where(
            node >= 0, by_right[node, columns], 0.0
        )

    def matrix(
        self,
        left: Side,
        right: Side,
        rows: Indices,
        columns: Indices,
        edge_rows: Indices,
        edge_columns: Indices,
    ) -> Floats:
        """The kernel written out."""
        same_object = right.index[columns][:, None] == edge_columns
        same_node = left.index[rows][:, None] == edge_rows
        return (
            left.kernel[np.ix_(rows, edge_rows)] * same_object
            + right.kernel[np.ix_(columns, edge_columns)] * same_node
        )

    def _halves(self, left: Side, right: Side, dual: Weights) -> tuple[Floats, Floats]:
        """(K A)ᵀ, shape (m, a), and A Gᵀ, shape (p, b): a row for each training node that an edge may share."""
        dual = _fitting(self, dual, left, right)
        return times(left.kernel, dual).T, times(right.kernel, dual.T).T


def _known(rows: Floats, index: Indices) -> Floats:
    """``rows[index]``, and zeros for new nodes."""
    found = rows[index]
    found[index < 0] = 0.0
    return found


@dataclass(frozen=True)
class Symmetric:
    """½ [K(v, v') K(w, w') + K(v, w') K(w, v')]: relations with h(v, w) = h(w, v)."""

    one_domain: ClassVar[bool] = True
    _sign: ClassVar[float] = 1.0

    def scores(self, left: Side, right: Side, dual: Weights) -> Floats:
        """K ½(A ± Aᵀ) Kᵀ."""
        return product(left.kernel, self._halved(dual, left, right), right.kernel)

    def at(self, left: Side, right: Side, dual: Weights, rows: Indices, columns: Indices) -> Floats:
        """Selected entries of the same product."""
        return product_at(left.kernel, self._halved(dual, left, right), right.kernel, rows, columns)

    def matrix(
        self,
        left: Side,
        right: Side,
        rows: Indices,
        columns: Indices,
        edge_rows: Indices,
        edge_columns: Indices,
    ) -> Floats:
        """The kernel written out."""
        straight = Kronecker().matrix(left, right, rows, columns, edge_rows, edge_columns)
        swapped = Kronecker().matrix(left, right, rows, columns, edge_columns, edge_rows)
        return 0.5 * (straight + self._sign * swapped)

    def _halved(self, dual: Weights, left: Side, right: Side) -> Weights:
        """½(A ± Aᵀ)."""
        dual = _fitting(self, dual, left, right)
        return 0.5 * (dual + self._sign * dual.T)


@dataclass(frozen=True)
class Reciprocal(Symmetric):
    """½ [K(v, v') K(w, w') − K(v, w') K(w, v')]: relations with h(v, w) = −h(w, v)."""

    _sign: ClassVar[float] = -1.0


@dataclass(frozen=True)
class Preference:
    """K(v, v') − K(v, w') − K(w, v') + K(w, w'): h(v, w) = f(v) − f(w), one utility for all conditioning nodes.

    With d_e = e_v − e_w this is d_eᵀ K d_e'.
    """

    one_domain: ClassVar[bool] = True

    def scores(self, left: Side, right: Side, dual: Weights) -> Floats:
        """f(v) − f(w), with f = K (A − Aᵀ) 1."""
        flow = self._flow(dual, left, right)
        return np.subtract.outer(left.kernel @ flow, right.kernel @ flow)

    def at(self, left: Side, right: Side, dual: Weights, rows: Indices, columns: Indices) -> Floats:
        """Selected differences."""
        flow = self._flow(dual, left, right)
        return (left.kernel @ flow)[rows] - (right.kernel @ flow)[columns]

    def matrix(
        self,
        left: Side,
        right: Side,
        rows: Indices,
        columns: Indices,
        edge_rows: Indices,
        edge_columns: Indices,
    ) -> Floats:
        """The kernel written out."""
        gap = left.kernel[rows] - right.kernel[columns]
        return gap[:, edge_rows] - gap[:, edge_columns]

    def _flow(self, dual: Weights, left: Side, right: Side) -> Floats:
        """Σ_e d_e dual_e = (A − Aᵀ) 1."""
        dual = _fitting(self, dual, left, right)
        ones = np.ones(len(left.kernel.T))
        return dual @ ones - dual.T @ ones


@dataclass(frozen=True)
class MLPK:
    """The metric learning pairwise kernel, the square of `Preference`: h(v, w) = (v − w)ᵀ M (v − w) in feature space.

    With k_v the kernel of v with the training nodes and the Laplacian Λ = diag(t) − (A + Aᵀ), t = (A + Aᵀ) 1, of the dual
    coefficients as weights of edges, Σ_e (d_eᵀ(k_v − k_w))² dual_e = (k_v − k_w)ᵀ Λ (k_v − k_w).
    """

    one_domain: ClassVar[bool] = True

    def scores(self, left: Side, right: Side, dual: Weights) -> Floats:
        """k_vᵀ Λ k_v + k_wᵀ Λ k_w − 2 k_vᵀ Λ k_w."""
        laplacian = self._laplacian(dual, left, right)
        of_left, of_right = self._own(left, right, laplacian)
        return np.add.outer(of_left, of_right) - 2.0 * product(left.kernel, laplacian, right.kernel)

    def at(self, left: Side, right: Side, dual: Weights, rows: Indices, columns: Indices) -> Floats:
        """Selected entries of the same form."""
        laplacian = self._laplacian(dual, left, right)
        of_left, of_right = self._own(left, right, laplacian)
        return (
            of_left[rows]
            + of_right[columns]
            - 2.0 * product_at(left.kernel, laplacian, right.kernel, rows, columns)
        )

    def matrix(
        self,
        left: Side,
        right: Side,
        rows: Indices,
        columns: Indices,
        edge_rows: Indices,
        edge_columns: Indices,
    ) -> Floats:
        """The kernel written out."""
        return Preference().matrix(left, right, rows, columns, edge_rows, edge_columns) ** 2

    def _own(self, left: Side, right: Side, laplacian: Weights) -> tuple[Floats, Floats]:
        """kᵀ Λ k of the nodes on either side."""
        of_left = quadratic(left.kernel, laplacian)
        return of_left, of_left if right is left else quadratic(right.kernel, laplacian)

    def _laplacian(self, dual: Weights, left: Side, right: Side) -> Weights:
        """Λ, sparse where the dual coefficients are."""
        dual = _fitting(self, dual, left, right)
        both = dual + dual.T
        degrees = both @ np.ones(both.shape[0])
        return (sparse.diags_array(degrees) if sparse.issparse(both) else np.diag(degrees)) - both


def _fitting(kernel: PairwiseKernel, dual: Weights, left: Side, right: Side) -> Weights:
    """The dual coefficients, their shape checked; sparse ones in a known format."""
    expected = (left.kernel.shape[1], right.kernel.shape[1])
    if kernel.one_domain and expected[0] != expected[1]:
        raise DataError(
            f"{type(kernel).__name__} is a kernel of one domain, but there are {expected[0]} training nodes on the "
            f"conditioning side and {expected[1]} on the other; use Kronecker or Cartesian for two domains"
        )
    if dual.shape != expected:
        raise DataError(
            f"dual coefficients have shape {dual.shape}; one for each training pair is {expected}"
        )
    return sparse.csr_array(dual) if sparse.issparse(dual) else np.asarray(dual, dtype=np.float64)
