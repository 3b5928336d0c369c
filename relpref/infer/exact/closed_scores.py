"""Posterior moments of the scores where the relation is complete and the kernel is a Kronecker product: O(p³) for all of them."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relpref.infer.exact.closed import SIGN, KroneckerFit
from relpref.infer.exact.domain import Asked, centred

if TYPE_CHECKING:
    from relpref.infer.exact.solve import RelationProblem

Floats = NDArray[np.float64]


class QueryMoments(NamedTuple):
    """The belief about the scores of b objects for one conditioning node.

    Attributes
    ----------
    mean : array, shape (b,)
    covariance : array, shape (b, b)
    """

    mean: Floats
    covariance: Floats


@dataclass(frozen=True, eq=False)
class ClosedScores:
    """Scores of a complete relation; computed when they are first asked for.

    Parameters
    ----------
    problem : RelationProblem
        With a closed form.
    regularization : float
        λ > 0.
    scale : float
        Common factor of prior and noise; variances are multiplied by it.
    solved : KroneckerFit, optional
        Where the solution is known already.
    """

    problem: "RelationProblem"
    regularization: float
    scale: float
    solved: KroneckerFit | None = None

    @cached_property
    def fit(self) -> KroneckerFit:
        """The solution."""
        return self.solved or self.problem.system().solve(self.regularization)

    def mean(self, left: Asked, right: Asked) -> Floats:
        """K(left, nodes) A G(objects, right), shape (a, b)."""
        system = self.fit.system
        cross = right.side.kernel
        if system.labels is not None:  # few eigenvalues: they say it with less work
            a, b = self._rotated(left, right)
            return self._constrained(a @ self.fit.rotated_dual @ b.T, left, right)
        dual = self.fit.dual
        if system.loss == "ranking":
            # The dual's rows add up to 0, so what is constant in G over training objects adds nothing but rounding.
            cross = centred(cross)
        if len(left.labels) <= len(right.labels):
            scores = (left.side.kernel @ dual) @ cross.T
        else:
            scores = left.side.kernel @ (dual @ cross.T)
        return self._constrained(scores, left, right)

    def _constrained(self, scores: Floats, left: Asked, right: Asked) -> Floats:
        """Scores whose rounding, too, obeys the constraint."""
        symmetry = self.fit.system.symmetry
        if symmetry != "none" and left.side is right.side:
            scores = 0.5 * (scores + SIGN[symmetry] * scores.T)
        return scores

    def variance(self, left: Asked, right: Asked) -> Floats:
        """Posterior variance of every score, shape (a, b)."""
        if self.fit.system.symmetry != "none":
            return np.stack(
                [np.diagonal(self.query(left.row(row), right).covariance) for row in range(len(left.labels))]
            )
        a, b = self._rotated(left, right)
        prior = np.multiply.outer(self.problem.nodes.diagonal(left), self.problem.objects.diagonal(right))
        variance = prior - np.square(a) @ self.fit.shrinkage @ np.square(b).T
        if self.fit.system.loss == "ranking":
            variance += (np.square(a) / self.fit.offset_precision) @ np.square(b @ self._offset_pull.T).T
        return self.scale * np.maximum(variance, 0.0)

    def query(self, query: Asked, right: Asked) -> QueryMoments:
        """Mean and covariance over the objects for one conditioning node.

        Parameters
        ----------
        query : Asked
            One node.
        right : Asked
            b objects.
        """
        a, b = self._rotated(query, right)
        prior = self.problem.nodes.diagonal(query)[0] * self.problem.objects.between(right, right)
        reduction = (b * (np.square(a[0]) @ self.fit.shrinkage)) @ b.T
        if self.fit.system.loss == "ranking":
            pull = b @ self._offset_pull.T
            reduction -= (pull * (np.square(a[0]) / self.fit.offset_precision)) @ pull.T
        if self.fit.system.symmetry != "none":
            # The kernel with a training pair is ½(a_i b_wj ± b_wi a_j) in the eigenbasis, and D is symmetric.
            sign = SIGN[self.fit.system.symmetry]
            cross = self.problem.nodes.between(query, right)[0]
            prior = 0.5 * (prior + sign * np.multiply.outer(cross, cross))
            reduction = 0.5 * (
                reduction + sign * b @ (self.fit.shrinkage * np.multiply.outer(a[0], a[0])) @ b.T
            )
        covariance = prior - reduction
        return QueryMoments(self.mean(query, right)[0], self.scale * 0.5 * (covariance + covariance.T))

    def _rotated(self, left: Asked, right: Asked) -> tuple[Floats, Floats]:
        """K(left, nodes) V and G(right, objects) U."""
        system = self.fit.system
        return left.side.kernel @ system.left.vectors, right.side.kernel @ system.right.vectors

    @cached_property
    def _offset_pull(self) -> Floats:
        """D_ij (Uᵀ1)_j, shape (p, m): what an offset along eigenvector i does to the dual."""
        return self.fit.shrinkage * self.fit.system.ones
