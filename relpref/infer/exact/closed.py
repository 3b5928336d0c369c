"""Closed form of a complete relation under a Kronecker kernel, by two eigendecompositions.

Scores f(v, w) are a Gaussian field with covariance K(v, v') G(w, w'), and labels are scores plus
noise of variance λ; with the ranking loss each conditioning node also has a flat offset. With K = V
diag(κ) Vᵀ and G = U diag(γ) Uᵀ everything is diagonal in the basis V ⊗ U, except for that offset, a
correction of rank one for each eigenvector of K. V and U may hold only the eigenvectors whose
eigenvalues are not 0: λ alone acts outside their range, and enters through norms.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from relpref.data.arrays import Floats, Indices
from relpref.data.relation_data import SIGN, Symmetry
from relpref.errors import DataError
from relpref.linalg import Eigen

Loss = Literal["ranking", "regression"]


class EvidenceGradient(NamedTuple):
    """Derivatives of the log evidence by K, shape (p, p), G, shape (m, m), and λ.

    Under a constraint there is one kernel, whose derivative is ``left + right``.
    """

    left: Floats
    right: Floats
    noise: float


class KroneckerSystem:
    """Labels Y, shape (p, m), of a complete relation in the eigenbasis of its kernels, for every λ.

    ``left`` and ``right`` are one object where the nodes are ranked for one another. Under a
    constraint the kernel is ½(K⊗K ± swapped), and the ranking loss has no closed form. ``rotated``
    is Vᵀ Y U, shape (r, s) for r and s eigenvalues; ``labels`` are kept only where these are not
    all.
    """

    def __init__(
        self, left: Eigen, right: Eigen, labels: Floats, loss: Loss, symmetry: Symmetry = "none"
    ) -> None:
        self.left, self.right, self.loss, self.symmetry = left, right, loss, symmetry
        if symmetry != "none":
            # CR13 Prop. 4.7: the symmetric kernel on Y is the ordinary one on (Y ± Yᵀ)/2.
            labels = 0.5 * (labels + SIGN[symmetry] * labels.T)
        elif loss == "ranking":
            labels = labels - labels.mean(axis=1, keepdims=True)  # changes only rounding
        (p, r), (m, s) = left.vectors.shape, right.vectors.shape
        self.rotated: Floats = left.vectors.T @ labels @ right.vectors
        self.labels = labels if r < p or s < m else None
        self.shape = p, m
        self.ones: Floats = right.vectors.sum(axis=0)  # Uᵀ1
        # Squared norms of the parts of 1 and of Y outside the ranges of U and of V ⊗ U.
        self.ones_outside = float(max(m - self.ones @ self.ones, 0.0)) if s < m else 0.0
        self.labels_outside = 0.0
        if self.labels is not None:
            outside = np.vdot(labels, labels) - np.vdot(self.rotated, self.rotated)
            self.labels_outside = max(float(outside), 0.0)
        # Number of independent label values that the evidence is about.
        self.size = float(p * (m - 1) if loss == "ranking" else p * m)
        if symmetry != "none":
            self.size = 0.5 * p * (p + SIGN[symmetry])

    def solve(self, regularization: float) -> "KroneckerFit":
        """The minimizer of CR10 (2) with the loss (6) or (12), for λ > 0."""
        return KroneckerFit(self, regularization)


@dataclass(frozen=True, eq=False)
class KroneckerFit:
    """A `KroneckerSystem` at one λ, in the units of K⊗G."""

    system: KroneckerSystem
    regularization: float

    @cached_property
    def shrinkage(self) -> Floats:
        """D = 1/(κ_i γ_j + λ), shape (r, s)."""
        if not self.regularization > 0:
            raise DataError(
                f"regularization is {self.regularization}; the closed form needs a positive value"
            )
        inverse = np.multiply.outer(self.system.left.values, self.system.right.values)
        inverse += self.regularization
        return np.reciprocal(inverse, out=inverse)

    @cached_property
    def offset_precision(self) -> Floats:
        """Precisions c_i = 1ᵀ(κ_i G + λ)⁻¹1 of the offsets along eigenvectors of K, shape (r,)."""
        return (
            self.shrinkage @ np.square(self.system.ones)
            + self.system.ones_outside / self.regularization
        )

    @cached_property
    def offsets(self) -> Floats:
        """Offsets o_i = 1ᵀ(κ_i G + λ)⁻¹y_i / c_i of the centered labels, shape (r,).

        They are zero with the regression loss.
        """
        system = self.system
        if system.loss == "regression":
            return np.zeros(len(system.left.values))
        products = np.einsum("ij,ij,j->i", self.shrinkage, system.rotated, system.ones)
        # Labels are centered: the product of 1 and y outside the range is minus that inside.
        if system.ones_outside:
            products -= system.rotated @ system.ones / self.regularization
        return np.asarray(products / self.offset_precision)

    @cached_property
    def rotated_dual(self) -> Floats:
        """Dual in the eigenbasis, Vᵀ A U, shape (r, s).

        Row i is M_i y_i − M_i 1 (1ᵀ M_i y_i)/(1ᵀ M_i 1), with M_i = (κ_i G + λ)⁻¹; M_i y_i for
        regression.
        """
        dual = self.shrinkage * self.system.rotated
        if self.system.loss == "ranking":
            dual -= self.shrinkage * np.multiply.outer(self.offsets, self.system.ones)
        return dual

    @cached_property
    def dual(self) -> Floats:
        """Dual A, shape (p, m): the score of (v, w) is Σ K(v, v') A_v'w' G(w', w).

        Rows add up to 0 with the ranking loss.
        """
        system = self.system
        left, right = system.left.vectors, system.right.vectors
        dual = left @ self.rotated_dual @ right.T
        if system.labels is not None:
            # Outside the range the kernels are 0: the label less the offset, over λ.
            outside = system.labels - left @ (system.rotated @ right.T)
            if system.loss == "ranking":
                outside -= np.multiply.outer(left @ self.offsets, 1.0 - right @ system.ones)
            dual += outside / self.regularization
        if system.loss == "ranking":
            # The mean is 0 up to rounding, which a large constant in G would magnify.
            dual -= dual.mean(axis=1, keepdims=True)
        return np.asarray(dual)

    @cached_property
    def offset_pull(self) -> Floats:
        """Change of the dual by an offset along eigenvector i of K, D_ij (Uᵀ1)_j, shape (r, s)."""
        return self.shrinkage * self.system.ones

    @cached_property
    def _offset_rows(self) -> Floats:
        """Roots of the rank-one corrections of the precision for the offsets, shape (r, m)."""
        return (self.offset_pull @ self.system.right.vectors.T) / np.sqrt(self.offset_precision)[
            :, None
        ]

    @cached_property
    def block_diagonals(self) -> Floats:
        """Diagonals of the blocks (κ_i G + λ)⁻¹, one in each row; shape (r, m).

        With the ranking loss the part of the offsets is subtracted.
        """
        diagonals = self.shrinkage @ np.square(self.system.right.vectors).T
        return (
            diagonals - np.square(self._offset_rows) if self.system.loss == "ranking" else diagonals
        )

    def label_precision(self, rows: Indices, columns: Indices) -> Floats:
        """Divisors of the dual that give the residual of each label when it is left out.

        Each is the inverse of the variance of the label given all others; or of twice that variance
        under a constraint, where both directions are left out.
        """
        vectors, sign = self.system.left.vectors, SIGN[self.system.symmetry]
        diagonal = (np.square(vectors) @ self.block_diagonals)[rows, columns]
        if not sign:
            return np.asarray(diagonal)
        # Q_UU = [[q, c], [c, q]] and a_U = (a, ±a): the residual is a/(q ± c), with c = xᵀ D x and
        # x = V_v ∘ V_w; and a/q for a label on the diagonal, whose coefficients are zero for the
        # reciprocal kernel.
        first, second = np.minimum(rows, columns), np.maximum(rows, columns)
        distinct, place = np.unique(first * len(vectors) + second, return_inverse=True)
        first, second = np.divmod(distinct, len(vectors))
        between = np.zeros(len(distinct))
        starts = np.flatnonzero(np.diff(first, prepend=-1))
        for start, end in zip(starts, np.append(starts[1:], len(first)), strict=True):
            both = vectors[first[start]] * vectors[second[start:end]]
            between[start:end] = np.einsum("ij,ij->i", both @ self.shrinkage, both)
        between[first == second] = 0.0
        return np.asarray(diagonal + sign * between[place])

    def node_precision(self, node: int) -> Floats:
        """Precision matrix of the labels of one conditioning node, shape (m, m).

        Its diagonal is that of `label_precision`.
        """
        system, right = self.system, self.system.right.vectors
        squared = np.square(system.left.vectors[node])
        block = (right * (squared @ self.shrinkage)) @ right.T
        if system.loss == "ranking":
            block -= (self._offset_rows.T * squared) @ self._offset_rows
        if system.symmetry != "none":
            both = right * right[node]
            block += SIGN[system.symmetry] * (both @ self.shrinkage @ both.T)
        return np.asarray(block)

    @cached_property
    def quadratic(self) -> float:
        """yᵀ(K⊗G + λ)⁻¹y, of the centered labels with the ranking loss."""
        outside = self.system.labels_outside
        if self.system.ones_outside:
            outside += float(self.offsets @ (self.system.rotated @ self.system.ones))
        return (
            float(np.vdot(self.system.rotated, self.rotated_dual)) + outside / self.regularization
        )

    @property
    def scale(self) -> float:
        """Common factor s² of prior and noise that maximizes the evidence.

        It multiplies variances, and leaves means alone.
        """
        return self.quadratic / self.system.size

    def log_evidence(self, scale: float = 1.0) -> float:
        """Logarithm of p(Y | K, G, λ), all of them times ``scale``.

        With the ranking loss it is the restricted evidence, that of the p(m−1) contrasts within
        conditioning nodes; with a symmetric or reciprocal relation that of the distinct entries,
        each read once with noise λ/2 (λ on the diagonal). The three are about different numbers:
        never compare one kind with another. Infinite at scale 0, the estimate from labels that are
        all 0.
        """
        if scale == 0:
            return np.inf
        system = self.system
        (p, m), (r, count) = system.shape, self.shrinkage.shape
        rest = np.log(self.regularization)  # of each eigenvalue that is left out
        log_determinant = -float(np.sum(np.log(self.shrinkage))) + (p * m - r * count) * rest
        jacobian = 0.0
        if system.loss == "ranking":
            log_determinant += (
                float(np.sum(np.log(self.offset_precision))) - r * np.log(m) - (p - r) * rest
            )
        if system.symmetry != "none":
            # Coordinates are Y_ii and √2 Y_ij for i < j: Σ_{i≤j} = ½(Σ_ij + Σ_i), and none on the
            # diagonal if antisymmetric.
            diagonal = -float(np.sum(np.log(np.diagonal(self.shrinkage)))) + (p - r) * rest
            log_determinant = 0.5 * (log_determinant + SIGN[system.symmetry] * diagonal)
            jacobian = 0.25 * p * (p - 1) * np.log(2.0)
        constant = system.size * np.log(2 * np.pi * scale)
        return -0.5 * (self.quadratic / scale + log_determinant + constant) + jacobian

    def evidence_gradient(self) -> EvidenceGradient:
        """Gradient of `log_evidence` at scale 1: ½(A G Aᵀ − ∂ log det/∂K); G and λ likewise.

        V and U must be complete.
        """
        system, shrinkage, dual = self.system, self.shrinkage, self.rotated_dual
        kappa, gamma = system.left.values, system.right.values
        by_left, by_right = shrinkage @ gamma, shrinkage.T @ kappa
        by_noise = float(shrinkage.sum())
        spread_right: Any = 0.0
        if system.loss == "ranking":
            pulled = self.offset_pull
            squared = np.square(pulled) / self.offset_precision[:, None]
            by_left = by_left - squared @ gamma
            by_noise -= float(squared.sum())
            spread_right = (pulled * (kappa / self.offset_precision)[:, None]).T @ pulled
        if system.symmetry != "none":
            sign, diagonal = SIGN[system.symmetry], np.diagonal(shrinkage)
            by_left = 0.5 * (by_left + sign * kappa * diagonal)
            by_right = 0.5 * (by_right + sign * kappa * diagonal)
            by_noise = 0.5 * (by_noise + sign * float(diagonal.sum()))
        left = (dual * gamma) @ dual.T - np.diag(by_left)
        right = (dual.T * kappa) @ dual - np.diag(by_right) + spread_right
        return EvidenceGradient(
            0.5 * system.left.vectors @ left @ system.left.vectors.T,
            0.5 * system.right.vectors @ right @ system.right.vectors.T,
            0.5 * (float(np.sum(np.square(dual))) - by_noise),
        )
