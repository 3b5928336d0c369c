"""Posterior moments of the scores where the relation is incomplete or the kernel is no Kronecker product: from the edges' own kernel."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cho_factor, solve_triangular

from relpref.data.relation_values import RelationValues
from relpref.errors import DataError
from relpref.infer.exact.closed import Loss
from relpref.infer.exact.closed_scores import QueryMoments
from relpref.infer.exact.domain import Asked, Domain, centred
from relpref.kernels.pairwise import Kronecker, PairwiseKernel, Side
from relpref.kernels.pairwise_products import Weights
from relpref.linalg import require_memory

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class EdgeScores:
    """Scores from q observed edges. Means need the dual alone; variances a q x q factor, made when first asked for.

    Parameters
    ----------
    kernel : PairwiseKernel
    nodes, objects : Domain
    values : RelationValues
    dual : array, shape (q,)
    loss : {"ranking", "regression"}
    regularization : float
        λ; variances need it positive.
    scale : float
        Common factor of prior and noise; variances are multiplied by it. NaN where the iterations ended before the solution.
    stopped : bool
        Whether the iterations ended before the solution and the scale was to be estimated from it: there are no variances then. (Where
        stopping early regularises there is no Gaussian model that they could come from.)
    """

    kernel: PairwiseKernel
    nodes: Domain
    objects: Domain
    values: RelationValues
    dual: Floats
    loss: Loss
    regularization: float
    scale: float
    stopped: bool = False

    @cached_property
    def dual_matrix(self) -> Weights:
        """The dual by node and object, shape (p, m)."""
        return weights_of(self.values, self.dual)

    def mean(self, left: Asked, right: Asked) -> Floats:
        """Σ_e a_e k((v, w), e), shape (a, b)."""
        side = right.side
        if self.loss == "ranking" and isinstance(self.kernel, Kronecker):
            side = Side(centred(side.kernel), side.index)  # as in the closed form
        return self.kernel.scores(left.side, side, self.dual_matrix)

    def variance(self, left: Asked, right: Asked) -> Floats:
        """Posterior variance of every score, shape (a, b)."""
        rows = [np.diagonal(self.query(left.row(row), right).covariance) for row in range(len(left.labels))]
        return np.stack(rows)

    def query(self, query: Asked, right: Asked) -> QueryMoments:
        """Mean and covariance over the objects for one conditioning node: prior − k P kᵀ, P as in `KroneckerFit`."""
        b = len(right.labels)
        first, second = np.zeros(b, dtype=np.intp), np.arange(b)
        cross = self.kernel.matrix(
            query.side, right.side, first, second, self.values.rows, self.values.columns
        )
        prior = self._prior(query, right)
        pulled = solve_triangular(self._factor, cross.T, lower=True, check_finite=False)
        reduction = pulled.T @ pulled
        if self.loss == "ranking":
            offsets = self._offset_basis.T @ pulled
            reduction -= offsets.T @ offsets
        covariance = prior - reduction
        return QueryMoments(self.mean(query, right)[0], self.scale * 0.5 * (covariance + covariance.T))

    def _prior(self, query: Asked, right: Asked) -> Floats:
        """Prior covariance of the scores asked for: the asked nodes take the training nodes' place."""
        b = len(right.labels)
        first, second = np.zeros(b, dtype=np.intp), np.arange(b)
        if not self.kernel.one_domain:
            left = Side(self.nodes.between(query, query), np.zeros(1, dtype=np.intp))
            side = Side(self.objects.between(right, right), second)
            return self.kernel.matrix(left, side, first, second, first, second)
        to_query, to_objects = self.nodes.between(query, query), self.nodes.between(query, right)
        left = Side(np.hstack([to_query, to_objects]), np.zeros(1, dtype=np.intp))
        side = Side(np.hstack([to_objects.T, self.nodes.between(right, right)]), second + 1)
        return self.kernel.matrix(left, side, first, second, first, second + 1)

    @cached_property
    def _factor(self) -> Floats:
        """Lower Cholesky factor of the edges' kernel plus λ, shape (q, q)."""
        if self.stopped:
            raise DataError(
                "the iterations ended before the solution, so there is no uncertainty of the scores, only their mean; fit without "
                "early stopping, callback or max_iter, at a regularization chosen by ConditionalRankerCV"
            )
        if not self.regularization > 0:
            raise DataError(
                f"regularization is {self.regularization}; uncertainty needs a positive value, the variance of the noise"
            )
        q = len(self.values.values)
        require_memory(24.0 * q * q, f"the uncertainty of a relation with {q} edges that has no closed form")
        self.nodes.require_semidefinite()
        self.objects.require_semidefinite()
        rows, columns = self.values.rows, self.values.columns
        left, right = Side.training(self.nodes.gram), Side.training(self.objects.gram)
        matrix = self.kernel.matrix(left, right, rows, columns, rows, columns)
        matrix[np.diag_indices(q)] += self.regularization
        try:
            return np.tril(cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)[0])
        except np.linalg.LinAlgError:
            raise DataError(
                f"regularization is {self.regularization}, which is lost in the rounding of the kernel of the edges; uncertainty needs "
                "a larger one"
            ) from None

    @cached_property
    def _offset_basis(self) -> Floats:
        """Orthonormal basis of the flat offsets as the factor sees them, shape (q, conditioning nodes)."""
        blocks, which = np.unique(self.values.rows, return_inverse=True)
        indicator = np.zeros((len(which), len(blocks)))
        indicator[np.arange(len(which)), which] = 1.0
        seen = solve_triangular(self._factor, indicator, lower=True, check_finite=False)
        return np.linalg.qr(seen)[0]

    def direct(self) -> "EdgeScores":
        """The same with the dual P y from the factor, where conjugate gradients would take too long."""
        white = solve_triangular(self._factor, self.values.values, lower=True, check_finite=False)
        if self.loss == "ranking":
            white -= self._offset_basis @ (self._offset_basis.T @ white)
        dual = solve_triangular(self._factor, white, lower=True, trans="T", check_finite=False)
        return replace(self, dual=dual, stopped=False)

    def precision_matrix(self) -> Floats:
        """P as in `KroneckerFit`, so that P y is the dual; shape (q, q), O(q³)."""
        q = len(self.values.values)
        require_memory(24.0 * q * q, f"hold-outs of a relation with {q} edges that has no closed form")
        white = solve_triangular(self._factor, np.eye(q), lower=True, overwrite_b=True, check_finite=False)
        if self.loss == "ranking":
            white -= self._offset_basis @ (self._offset_basis.T @ white)
        return np.asarray(white.T @ white)

    @cached_property
    def quadratic(self) -> float:
        """yᵀ P y: the labels' part of the evidence."""
        return float(self.values.values @ self.dual)


def weights_of(values: RelationValues, dual: Floats) -> Weights:
    """Coefficients of edges by node and object, shape (p, m); edges that occur several times add up."""
    if values.complete:
        return dual.reshape(values.shape)
    return sparse.coo_array((dual, (values.rows, values.columns)), shape=values.shape).tocsr()
