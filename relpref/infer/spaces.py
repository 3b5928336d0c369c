"""The algebra of Gaussian sites: in the space of latents, (n, n), or of observations, (m, m).

On the host, triangular matrices of the latent space have zeros that are not computed. With K = U Uᵀ
for an upper triangular U, V = U chol(B)⁻ᵀ is upper triangular, too, and every product and quotient
takes a third of the operations. Where K is well-conditioned, V comes from K⁻¹ + Q, which costs half
of that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from scipy.linalg import lapack

from relpref.data.arrays import Floats
from relpref.infer.rows import Rows
from relpref.linalg import Covariance
from relpref.linalg.arrays import Array, cond, factorize, fori_loop, namespace, solve_lower
from relpref.linalg.factor import cholesky

_MOST_PRECISE = 1.0001e10  # of a Gaussian site: noise/√count = 1e-5, and rounding of the square
_MOST_IN_DUAL_SPACE = 1e7  # times the prior variance: 3e-4 prior sds
_STIFF = 1e6  # diagonal of B above which its Cholesky factor would lose too many digits
_REFINEMENTS = 2
_BLOCK = 128  # below this size one product is as fast as its blocks
# Condition number of K up to which K⁻¹ is used; variances and means are then off by that times
# rounding, less than 1e-9.
_WELL_CONDITIONED = 1e7
_PANEL = 128  # columns that are computed together


class Marginals(NamedTuple):
    """Posterior of the m projections."""

    mean: Array  # shape (m,)
    variance: Array  # shape (m,)
    log_determinant: Array  # half the log ratio of prior to posterior volume


class Factorised(NamedTuple):
    """The posterior under sites of precision T, shape (m,)."""

    lower: Array  # chol(B)
    # In observation space W = chol(B)⁻¹ T^½ G, shape (m, m): the posterior covariance of the
    # projections is G − WᵀW. In latent space V = L chol(B)⁻ᵀ, shape (n, r): the posterior
    # covariance of the latent vector is VVᵀ.
    white: Array
    precision: Array
    log_determinant: Array  # Σ log diag chol(B)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DualSpace:
    """Observation space, for m ≤ n: everything in the m x m space of projections."""

    # Whether the latent vector's own mean and covariance are available
    latent: ClassVar[bool] = False

    gram: Array  # G = A K Aᵀ, and the noise that rows share, shape (m, m)
    rows: Rows  # the projection A
    jitter: Array  # 0; nothing is factorized but B = I + T^½ G T^½

    @classmethod
    def build(cls, covariance: Covariance, rows: Rows, noise: Any = 0.0) -> "DualSpace":
        """Build the Gram matrix.

        ``noise`` is the covariance of the noise that rows share, shape (m, m).
        """
        gram = rows.rows(rows.rows(covariance.dense()).T) + noise
        return cls(gram, rows, namespace(gram).zeros((), gram.dtype))

    def factorise(self, precision: Array) -> Factorised:
        """Factorise B = I + T^½ G T^½."""
        xp = namespace(precision, self.gram)
        root = xp.sqrt(precision)
        half = root[:, None] * self.gram
        lower = factorize(xp.eye(len(root), dtype=root.dtype) + half * root)
        return Factorised(lower, solve_lower(lower, half), precision, _log_determinant(lower))

    def marginals(self, factor: Factorised, shift: Array) -> Marginals:
        xp = namespace(shift, self.gram)
        before = xp.diagonal(self.gram)
        variance = before - xp.sum(xp.square(factor.white), axis=0)
        # Two items that are the same to the prior have a gap variance of 0 up to rounding, of
        # either sign.
        rounding = 10 * np.finfo(before.dtype).eps * xp.max(before, initial=0.0)
        variance = xp.where(xp.abs(variance) <= rounding, 0.0, variance)
        mean = self.response(factor, shift)
        # Prior and sites cancel where both are large; the mean solves m = G(h − T m), whose
        # residual corrects it.
        for _ in range(_REFINEMENTS):
            left = self.gram @ (shift - factor.precision * mean) - mean
            half = solve_lower(factor.lower, xp.sqrt(factor.precision) * left)
            mean = mean + left - factor.white.T @ half
        return Marginals(mean, variance, factor.log_determinant)

    def response(self, factor: Factorised, shift: Array) -> Array:
        """Posterior covariance of the projections times a vector."""
        return self.gram @ shift - factor.white.T @ (factor.white @ shift)

    def dual_weights(self, factor: Factorised) -> Array:
        """M = T^½ B⁻¹ T^½; the posterior covariance is K − K AᵀMA K."""
        xp = namespace(factor.precision, self.gram)
        half = solve_lower(factor.lower, xp.diag(xp.sqrt(factor.precision)))
        return half.T @ half

    def noise_weights(
        self, factor: Factorised, blocks: Any, factors: Sequence[Array]
    ) -> list[Array]:
        """Blocks of M for groups of rows times arrays of shape (g, p, r).

        ``blocks`` are `relpref.infer.arrow.Blocks`.
        """
        dual = self.dual_weights(factor)
        padded = namespace(dual).pad(dual, (0, 1))
        return [
            padded[group.rows[:, :, None], group.rows[:, None, :]] @ factor
            for group, factor in zip(blocks.groups, factors, strict=True)
        ]

    def weights(self, factor: Factorised) -> Array:
        """R = AᵀMA, shape (n, n)."""
        return self.rows.back(self.rows.back(self.dual_weights(factor)).T)

    def precision_limit(self) -> tuple[Array, float]:
        """Prior variances of the projections and the largest product with precisions.

        Beyond it digits cancel.
        """
        return namespace(self.gram).diagonal(self.gram), _MOST_IN_DUAL_SPACE


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LatentSpace:
    """Latent space, for m > n.

    Everything is in the space of the latent vector, whitened by the root of its covariance.
    """

    latent: ClassVar[bool] = True

    root: Array  # L with L Lᵀ = K, so that nothing is ever multiplied by K⁻¹, shape (n, r)
    rows: Rows  # the projection A
    jitter: Array  # what the root needed
    # Whether sites may be so precise that B is ill-conditioned: then it is factorized without being
    # formed, and means are refined.
    accurate: bool = field(default=False, metadata={"static": True})

    @classmethod
    def build(cls, covariance: Covariance, rows: Rows, accurate: bool = False) -> "LatentSpace":
        """Factorise the prior."""
        root, jitter = covariance.root()
        return cls(root, rows, jitter, accurate)

    def factorise(self, precision: Array) -> Factorised:
        """Factorise B = I + Lᵀ Q L with Q = AᵀTA."""
        xp = namespace(precision, self.root)
        pulled = self.rows.times_gram(precision, self.root)  # Q L
        gram = xp.eye(self.root.shape[1], dtype=self.root.dtype) + self.product(pulled)

        def by_qr() -> Array:
            # chol(B)ᵀ is the R of [T^½ A L; I], whose condition number is the root of that of B.
            half = xp.sqrt(precision)[:, None] * self.rows.rows(self.root)
            upper = xp.linalg.qr(xp.concatenate([half, xp.eye(half.shape[1])]), mode="r")
            return xp.sign(xp.diagonal(upper)) * upper.T

        if self.accurate:
            stiff = (xp.max(xp.diagonal(gram), initial=0.0) > _STIFF) & xp.all(precision >= 0)
            lower = cond(stiff, by_qr, partial(factorize, gram))
        else:
            lower = factorize(gram)
        return Factorised(lower, self.quotient(lower), precision, _log_determinant(lower))

    def product(self, right: Array) -> Array:
        """Lower triangle of Lᵀ times an (n, r) array, if that is symmetric; above it anything."""
        return lower_of_product(self.root, right)

    def quotient(self, lower: Array) -> Array:
        """L times the transposed inverse of a lower triangular matrix."""
        return solve_lower(lower, self.root.T).T

    def marginals(self, factor: Factorised, shift: Array) -> Marginals:
        variance = self.rows.variances(factor.white)
        mean = self.rows.apply(self.latent_mean(factor, shift))
        return Marginals(mean, variance, factor.log_determinant)

    def response(self, factor: Factorised, shift: Array) -> Array:
        """Posterior covariance of the projections times a vector."""
        return self.rows.apply(factor.white @ (factor.white.T @ self.rows.adjoint(shift)))

    def latent_mean(self, factor: Factorised, shift: Array) -> Array:
        """Posterior mean of the latent vector."""
        if not self.accurate:
            return factor.white @ (factor.white.T @ self.rows.adjoint(shift))

        # In coordinates w with mean L w: B w = Lᵀ Aᵀ h. The next round removes rounding errors in
        # directions that no answer depends on, as long as both ends of a row get the same number in
        # h − T A L w: carried by a loop, it is not computed and rounded twice.
        def refined(_: Any, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            white, left = carry
            half = solve_lower(factor.lower, self.root.T @ self.rows.adjoint(left) - white)
            white = white + solve_lower(factor.lower, half, transposed=True)
            return white, shift - factor.precision * self.rows.apply(self.root @ white)

        start = (namespace(shift, self.root).zeros(self.root.shape[1], self.root.dtype), shift)
        white, _ = fori_loop(_REFINEMENTS, refined, start)
        return self.root @ white

    def covariance(self, factor: Factorised) -> Array:
        """Σ = V Vᵀ, of the latent vector, shape (n, n)."""
        return factor.white @ factor.white.T

    def pulled(self, factor: Factorised, covariance: Array) -> Array:
        """R K = Q Σ, shape (n, n), from the covariance Σ."""
        return self.rows.times_gram(factor.precision, covariance)

    def weights(self, factor: Factorised) -> Array:
        """R = Q − QΣQ, shape (n, n)."""
        cross = self.rows.times_gram(factor.precision, factor.white)  # Q V
        return self.rows.gram(factor.precision) - cross @ cross.T

    def precision_limit(self) -> tuple[Array, float]:
        """Prior variances, at most 1, and the largest product with precisions.

        They refuse noise/√count below 1e-5 and below 1e-5 prior sds.
        """
        return namespace(self.root).minimum(1.0, self.rows.variances(self.root)), _MOST_PRECISE


Space = DualSpace | LatentSpace


def _log_determinant(lower: Array) -> Array:
    xp = namespace(lower)
    return xp.sum(xp.log(xp.diagonal(lower)))


def lower_of_product(root: Array, right: Array) -> Array:
    """Lower triangle of rootᵀ @ right for a lower triangular root; above it anything.

    Computed by blocks it takes a third of the operations.
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
    return namespace(root, right).block(
        [[top, np.zeros((half, n - half), root.dtype)], [left, bottom]]
    )


@dataclass(frozen=True)
class HostSpace(LatentSpace):
    """`LatentSpace` whose root and V are upper triangular."""

    inverse: Floats | None = None  # the upper triangle of K⁻¹, where it is accurate

    @classmethod
    def of(cls, covariance: Covariance, rows: Rows, accurate: bool = False) -> "HostSpace":
        """Factorise the prior."""
        # With rows and columns backwards, a lower triangular root becomes an upper one.
        backwards: Floats = covariance.dense()[::-1, ::-1]
        lower, jitter = cholesky(backwards)
        inverse = None if accurate else _inverse(lower, backwards)
        return cls(np.ascontiguousarray(lower[::-1, ::-1]), rows, jitter, accurate, inverse)

    def factorise(self, precision: Floats) -> Factorised:
        if not precision.any():
            return Factorised(np.eye(len(self.root)), self.root, precision, np.zeros(()))
        if self.inverse is None:
            return super().factorise(precision)
        total = self.inverse.copy()  # K⁻¹ + Q = (V Vᵀ)⁻¹, of which LAPACK sees the transpose
        self.rows.add_gram(precision, total)
        root, failed = lapack.dpotrf(total.T, lower=True, clean=True, overwrite_a=True)
        if not failed:
            white, failed = lapack.dtrtri(root, lower=True)
        if failed:
            nothing = np.full_like(total, np.nan)
            return Factorised(nothing, nothing, precision, np.array(np.nan))
        log_determinant = np.sum(np.log(np.diagonal(root)) + np.log(np.diagonal(self.root)))
        return Factorised(root, white.T, precision, log_determinant)

    def product(self, right: Floats) -> Floats:
        """Lower triangle of Uᵀ times an (n, n) array, if that is symmetric; above it anything."""
        size = len(right)
        result = np.empty((size, size))
        for start in range(0, size, _PANEL):
            panel = slice(start, start + _PANEL)
            seen = slice(start + _PANEL)  # below them the root's columns are 0
            np.matmul(right[seen, start:].T, self.root[seen, panel], out=result[start:, panel])
        return result

    def quotient(self, lower: Floats) -> Floats:
        """U times the transposed inverse of a lower triangular matrix."""
        result = np.zeros_like(lower)
        for start in range(0, len(lower), _PANEL):
            panel, seen = slice(start, start + _PANEL), slice(start + _PANEL)
            left = self.root[seen, panel].copy()
            for above in range(0, start, _PANEL):
                rows, columns = slice(above, above + _PANEL), slice(above, start)
                left[rows] -= result[rows, columns] @ lower[panel, columns].T
            corner = lower[panel, panel]
            result[seen, panel] = left @ solve_lower(corner, np.eye(len(corner))).T
        return result

    def covariance(self, factor: Factorised) -> Floats:
        upper = lapack.dlauum(factor.white.T, lower=True)[0].T
        result = upper + upper.T
        np.fill_diagonal(result, np.diagonal(upper))
        return result

    def weights(self, factor: Factorised) -> Floats:
        if self.accurate:  # then Q is so large that QΣQ would cancel
            return np.asarray(super().weights(factor))
        pulled = self.pulled(factor, self.covariance(factor))
        weights = -self.pulled(factor, pulled.T)
        self.rows.add_gram(factor.precision, weights)
        return np.asarray(weights)


def _inverse(lower: Any, matrix: Floats) -> Floats | None:
    """Upper triangle of the inverse of a matrix read backwards, from its lower triangular root.

    None where the matrix is ill-conditioned.
    """
    if not len(lower) or not np.isfinite(lower[-1, -1]):
        return None
    # LAPACK's upper triangle is the lower one in memory, and that the upper one backwards.
    reciprocal, _ = lapack.dpocon(lower.T, np.abs(matrix).sum(axis=0).max(), uplo="U")
    if not reciprocal * _WELL_CONDITIONED > 1:
        return None
    inverse, failed = lapack.dpotri(lower.T, lower=False)
    return None if failed else np.ascontiguousarray(inverse.T[::-1, ::-1])
