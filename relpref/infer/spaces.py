"""The Gaussian algebra of EP on one-dimensional projections, in the cheaper of two spaces.

A site sees the latent vector u ~ N(0, K) only through one projection a_sᵀu (for a comparison, the gap of two utilities).
Both spaces answer one question: with sites of precision T = diag(t) and shift h on the projections Au, what is the
posterior? `EntitySpace` factorises an r x r matrix, `GapSpace` an m x m matrix. In both

    posterior precision = K⁻¹ + Aᵀ T A,      posterior mean = K Aᵀ β  with the dual vector β = h − T·(mean of Au).
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax.linalg import triangular_solve
from jax.scipy.linalg import solve_triangular

from relpref.infer.rows import DenseRows, Rows
from relpref.linalg import CovarianceOperator, LinearMap


class Marginals(NamedTuple):
    """Posterior of the m projections.

    Attributes
    ----------
    mean, variance : Array, shape (m,)
    log_determinant : Array
        Σ log diag chol(B): half the log ratio of prior to posterior volume.
    """

    mean: Array
    variance: Array
    log_determinant: Array


class Factorised(NamedTuple):
    """What a space keeps of a factorisation.

    Attributes
    ----------
    lower : Array
        chol(B).
    white : Array
        In gap space W = chol(B)⁻¹ T^½ G, shape (m, m): the posterior covariance of the projections is G − WᵀW.
        In entity space V = L chol(B)⁻ᵀ, shape (n, r): the posterior covariance of the latent vector is VVᵀ.
    precision : Array, shape (m,)
        T.
    """

    lower: Array
    white: Array
    precision: Array


class Map(NamedTuple):
    """The projection A and its adjoint, neither of them a matrix."""

    apply: LinearMap
    adjoint: LinearMap

    def rows(self, matrix: Array) -> Array:
        """A times an (n, k) array."""
        return jax.vmap(self.apply, in_axes=1, out_axes=1)(matrix)

    def back(self, matrix: Array) -> Array:
        """Aᵀ times an (m, k) array."""
        return jax.vmap(self.adjoint, in_axes=1, out_axes=1)(matrix)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GapSpace:
    """For m ≤ n: everything in the m x m space of projections.

    Parameters
    ----------
    gram : Array, shape (m, m)
        G = A K Aᵀ.
    jitter : Array
        0; nothing is factorised but B = I + T^½ G T^½.
    """

    gram: Array
    jitter: Array

    @classmethod
    def build(cls, covariance: CovarianceOperator, projection: Map) -> "GapSpace":
        """Form A K Aᵀ."""
        gram = covariance.congruence(projection.apply)
        return cls(gram, jnp.zeros((), gram.dtype))

    def factorise(self, precision: Array, projection: Map) -> Factorised:
        """Factorise B = I + T^½ G T^½."""
        root = jnp.sqrt(precision)
        half = root[:, None] * self.gram
        gram = jnp.eye(len(root), dtype=root.dtype) + half * root
        lower = jnp.linalg.cholesky(gram, symmetrize_input=False)
        return Factorised(lower, solve_triangular(lower, half, lower=True), precision)

    def marginals(self, factor: Factorised, shift: Array, projection: Map) -> Marginals:
        """Posterior of the projections."""
        before = jnp.diagonal(self.gram)
        variance = before - jnp.sum(jnp.square(factor.white), axis=0)
        # Two entities that are the same to the prior have a gap variance of 0 but for rounding, of either sign.
        rounding = 10 * np.finfo(before.dtype).eps * jnp.max(before, initial=0.0)
        variance = jnp.where(jnp.abs(variance) <= rounding, 0.0, variance)
        mean = self.response(factor, shift, projection)
        # Prior and sites cancel where both are large; the mean solves m = G(h − T m), which says what is left.
        for _ in range(_REFINEMENTS):
            left = self.gram @ (shift - factor.precision * mean) - mean
            half = solve_triangular(factor.lower, jnp.sqrt(factor.precision) * left, lower=True)
            mean = mean + left - factor.white.T @ half
        return Marginals(mean, variance, jnp.sum(jnp.log(jnp.diagonal(factor.lower))))

    def response(self, factor: Factorised, shift: Array, projection: Map) -> Array:
        """Posterior covariance of the projections times a vector."""
        return self.gram @ shift - factor.white.T @ (factor.white @ shift)

    def gap_weights(self, factor: Factorised, precision: Array) -> Array:
        """M = T^½ B⁻¹ T^½; the posterior covariance is K − K AᵀMA K."""
        half = solve_triangular(factor.lower, jnp.diag(jnp.sqrt(precision)), lower=True)
        return half.T @ half

    def weights(self, factor: Factorised, precision: Array, projection: Map) -> Array:
        """R = AᵀMA, shape (n, n)."""
        return projection.back(projection.back(self.gap_weights(factor, precision)).T)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EntitySpace:
    """For m > n: everything in the space of the latent vector, whitened by the root of its covariance.

    Parameters
    ----------
    root : Array, shape (n, r)
        L with L Lᵀ = K, so that nothing is ever multiplied by K⁻¹.
    rows : Rows
        The projection A.
    jitter : Array
        What the root needed.
    accurate : bool
        Whether sites may be so precise that B is ill-conditioned: then it is factorised without being formed, and means are refined.
    """

    root: Array
    rows: Rows
    jitter: Array
    accurate: bool = field(default=False, metadata={"static": True})

    @classmethod
    def build(
        cls,
        covariance: CovarianceOperator,
        projection: Map,
        rows: Rows | None = None,
        accurate: bool = False,
    ) -> "EntitySpace":
        """Factorise the prior; without sparse rows the projection is written out."""
        root, jitter = covariance.root()
        if rows is None:
            rows = DenseRows(projection.rows(jnp.eye(root.shape[0], dtype=root.dtype)))
        return cls(root, rows, jitter, accurate)

    def factorise(self, precision: Array, projection: Map) -> Factorised:
        """Factorise B = I + Lᵀ Q L with Q = AᵀTA."""
        pulled = self.rows.gram(precision) @ self.root  # Q L
        gram = jnp.eye(self.root.shape[1], dtype=self.root.dtype) + lower_of_product(self.root, pulled)

        def by_cholesky() -> Array:
            return jnp.linalg.cholesky(gram, symmetrize_input=False)

        def by_qr() -> Array:
            # chol(B)ᵀ is the R of [T^½ A L; I], whose condition number is the root of that of B.
            half = jnp.sqrt(precision)[:, None] * projection.rows(self.root)
            upper = jnp.linalg.qr(jnp.concatenate([half, jnp.eye(half.shape[1])]), mode="r")
            return jnp.sign(jnp.diagonal(upper)) * upper.T

        if self.accurate:
            stiff = (jnp.max(jnp.diagonal(gram), initial=0.0) > _STIFF) & jnp.all(precision >= 0)
            lower = jax.lax.cond(stiff, by_qr, by_cholesky)
        else:
            lower = by_cholesky()
        white = triangular_solve(lower, self.root, left_side=False, lower=True, transpose_a=True)
        return Factorised(lower, white, precision)

    def marginals(self, factor: Factorised, shift: Array, projection: Map) -> Marginals:
        """Posterior of the projections."""
        variance = self.rows.variances(factor.white)
        mean = projection.apply(self.latent_mean(factor, shift, projection))
        return Marginals(mean, variance, jnp.sum(jnp.log(jnp.diagonal(factor.lower))))

    def response(self, factor: Factorised, shift: Array, projection: Map) -> Array:
        """Posterior covariance of the projections times a vector."""
        return projection.apply(factor.white @ (factor.white.T @ projection.adjoint(shift)))

    def latent_mean(self, factor: Factorised, shift: Array, projection: Map) -> Array:
        """Posterior mean of the latent vector."""
        if not self.accurate:
            return factor.white @ (factor.white.T @ projection.adjoint(shift))

        def solve(vector: Array) -> Array:
            half = solve_triangular(factor.lower, vector, lower=True)
            return solve_triangular(factor.lower, half, lower=True, trans=1)

        # In coordinates w with mean L w: B w = Lᵀ Aᵀ h. What rounding leaves in directions that no answer sees, the next round removes,
        # as long as both ends of a row see the same number in h − T A L w: carried by a loop, it is not computed and rounded twice.
        def refined(_: Any, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            white, left = carry
            white = white + solve(self.root.T @ projection.adjoint(left) - white)
            return white, shift - factor.precision * projection.apply(self.root @ white)

        start = (jnp.zeros(self.root.shape[1], self.root.dtype), shift)
        white, _ = jax.lax.fori_loop(0, _REFINEMENTS, refined, start)
        return self.root @ white

    def weights(self, factor: Factorised, precision: Array, projection: Map) -> Array:
        """R = Q − QΣQ, shape (n, n)."""
        gram = self.rows.gram(precision)
        cross = gram @ factor.white  # Q V
        return gram - cross @ cross.T


Space = GapSpace | EntitySpace

_STIFF = 1e6  # diagonal of B above which its Cholesky factor would lose too many digits
_REFINEMENTS = 2
_BLOCK = 128  # below this size one product is as fast as its blocks


def lower_of_product(root: Array, right: Array) -> Array:
    """The lower triangle of rootᵀ @ right, for a lower triangular root; what lies above is not meaningful.

    Blocks that are zero in the root, or above the diagonal of the result, are left out: a third of the operations of the
    full product is what remains in the limit.
    """
    n = root.shape[0]
    if n <= _BLOCK:
        return root.T @ right
    half = n // 2
    upper, lower = root[:half, :half], root[half:, half:]
    corner = root[half:, :half]
    top = lower_of_product(upper, right[:half, :half]) + corner.T @ right[half:, :half]
    left = lower.T @ right[half:, :half]
    bottom = lower_of_product(lower, right[half:, half:])
    return jnp.block([[top, jnp.zeros((half, n - half), root.dtype)], [left, bottom]])
