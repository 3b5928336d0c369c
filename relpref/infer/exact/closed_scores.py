"""Posterior moments of the scores where the relation is complete and the kernel is a Kronecker product.

Variances are written without a difference of large numbers. With a = K(q, nodes) V and b = G(o, objects) U the prior of a node q is
K(q, q) = q⊥ + Σ_i a_i²/κ_i, where q⊥ is what the training nodes do not tell of it, 0 for one of them; the same for objects. Then

    Cov(f(q, o), f(q, o')) = q⊥ G(o, o') + (K(q, q) − q⊥) o⊥ + Σ_ij (a_i²/κ_i) (b_j b'_j/γ_j) λ D_ij,   D_ij = 1/(κ_i γ_j + λ),

and an unknown offset adds Σ_i (a_i²/c_i) t_i t'_i with t_i = Σ_j D_ij (Uᵀ1)_j b_j. All scores of a relation without a constraint
cost O(p³).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relpref.data.relation_values import SIGN
from relpref.infer.exact.closed import KroneckerFit
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

    @property
    def dual_matrix(self) -> Floats:
        """The dual by node and object, shape (p, m)."""
        return self.fit.dual

    def mean(self, left: Asked, right: Asked) -> Floats:
        """K(left, nodes) A G(objects, right), shape (a, b)."""
        system, cross = self.fit.system, right.side.kernel
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
        """Posterior variance of every score, shape (a, b); O(p²) for each score of a symmetric or reciprocal relation."""
        system, fit = self.fit.system, self.fit
        a, b = self._rotated(left, right)
        known_a, known_b = (
            np.square(a) * _inverse(system.left.values),
            np.square(b) * _inverse(system.right.values),
        )
        own_a, own_b = self.problem.nodes.diagonal(left), self.problem.objects.diagonal(right)
        told_a, told_b = known_a.sum(axis=1), known_b.sum(axis=1)
        variance = known_a @ (fit.regularization * fit.shrinkage) @ known_b.T
        variance += np.multiply.outer(_untold(own_a, told_a, left), own_b)
        variance += np.multiply.outer(np.minimum(told_a, own_a), _untold(own_b, told_b, right))
        if system.loss == "ranking":
            variance += (np.square(a) / fit.offset_precision) @ np.square(b @ self._offset_pull.T).T
        if system.symmetry != "none":
            cross = self.problem.nodes.between(left, right)
            between = np.empty_like(variance)
            for row, (mine, to_objects) in enumerate(zip(a, cross, strict=True)):
                both, told = mine * b, b @ (_inverse(system.left.values) * mine)
                between[row] = np.einsum("wi,ij,wj->w", both, self._swapped, both, optimize=True)
                if left.new or right.new:
                    between[row] += np.square(to_objects) - np.square(told)
            variance = 0.5 * (variance + SIGN[system.symmetry] * between)
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
        system, fit = self.fit.system, self.fit
        (a,), b = self._rotated(query, right)
        known = np.square(a) * _inverse(system.left.values)
        own, told = self.problem.nodes.diagonal(query), known.sum(keepdims=True)
        weights = (known @ fit.shrinkage) * fit.regularization * _inverse(system.right.values)
        covariance = (b * weights) @ b.T
        if query.new or right.new:
            prior = self.problem.objects.between(right, right)
            covariance += _untold(own, told, query) * prior
            if right.new:
                covariance += min(told[0], own[0]) * (prior - (b * _inverse(system.right.values)) @ b.T)
        if system.loss == "ranking":
            pull = b @ self._offset_pull.T
            covariance += (pull * (np.square(a) / fit.offset_precision)) @ pull.T
        if system.symmetry != "none":
            between = b @ (self._swapped * np.multiply.outer(a, a)) @ b.T
            if query.new or right.new:
                cross = self.problem.nodes.between(query, right)[0]
                seen = b @ (_inverse(system.left.values) * a)
                between += np.multiply.outer(cross, cross) - np.multiply.outer(seen, seen)
            covariance = 0.5 * (covariance + SIGN[system.symmetry] * between)
        return QueryMoments(self.mean(query, right)[0], self.scale * 0.5 * (covariance + covariance.T))

    def _rotated(self, left: Asked, right: Asked) -> tuple[Floats, Floats]:
        """K(left, nodes) V and G(right, objects) U."""
        system = self.fit.system
        return left.side.kernel @ system.left.vectors, right.side.kernel @ system.right.vectors

    @cached_property
    def _offset_pull(self) -> Floats:
        """D_ij (Uᵀ1)_j, shape (r, s): what an offset along eigenvector i does to the dual."""
        return self.fit.shrinkage * self.fit.system.ones

    @cached_property
    def _swapped(self) -> Floats:
        """λ D_ij/(κ_i κ_j), shape (r, r): between (v, w) and (w, v) of a constrained relation."""
        inverse = _inverse(self.fit.system.left.values)
        return self.fit.regularization * self.fit.shrinkage * np.multiply.outer(inverse, inverse)


def _inverse(eigenvalues: Floats) -> Floats:
    """1/κ_i, 0 where κ_i is."""
    return np.divide(1.0, eigenvalues, out=np.zeros_like(eigenvalues), where=eigenvalues > 0)


def _untold(own: Floats, told: Floats, asked: Asked) -> Floats:
    """Prior variance of nodes that the training nodes do not tell of: 0 for those themselves."""
    return np.maximum(own - told, 0.0) if asked.new else np.zeros_like(own)
