"""Expectation propagation: parallel site updates with a damping that adapts.

A sweep is *fresh* when it factorizes the posterior again, O(n³), and *held* when it keeps the covariance of the last fresh one: then
only the means follow the new sites, O(n²). Means need many sweeps to settle and variances few, so a few held sweeps after each fresh
one halve the number of factorizations (Seeger & Nickisch 2011, "Fast convergent algorithms for expectation propagation approximate
Bayesian inference"). Convergence is judged at fresh sweeps only.

On arrays of NumPy nothing is compiled, and the same code runs step by step; on arrays of JAX it can be compiled and mapped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from operator import add
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax.lax import optimization_barrier
from numpy.typing import NDArray

from relpref.infer.result import CODES, Result
from relpref.likelihoods import TiltedMoments
from relpref.linalg import Covariance, LinearMap
from relpref.linalg.arrays import (
    Array,
    choose,
    cond,
    factorize,
    fori_loop,
    namespace,
    on_host,
    solve_lower,
    while_loop,
)


class _Written:
    """What is common to projections that are written out."""

    rows: Callable[[Array], Array]

    def congruence(self, covariance: Covariance) -> Array:
        """A K Aᵀ, shape (m, m)."""
        return self.rows(self.rows(covariance.dense()).T)

    def written(self, size: int, dtype: Any) -> "Rows":
        """The projection as its rows."""
        return self  # type: ignore[return-value]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DenseRows(_Written):
    """Any projection, as a matrix of shape (m, n)."""

    matrix: Array

    def rows(self, vectors: Array) -> Array:
        """A times an array of shape (n,) or (n, k)."""
        return self.matrix @ vectors

    def back(self, vectors: Array) -> Array:
        """Aᵀ times an array of shape (m,) or (m, k)."""
        return self.matrix.T @ vectors

    apply, adjoint = rows, back

    def gram(self, precision: Array) -> Array:
        """AᵀTA, shape (n, n)."""
        return self.matrix.T @ (precision[:, None] * self.matrix)

    def add_gram(self, precision: Any, matrix: Any) -> None:
        """Add AᵀTA to an (n, n) array of NumPy."""
        matrix += self.gram(precision)

    def times_gram(self, precision: Array, matrix: Array) -> Array:
        """AᵀTA times an (n, k) array."""
        return self.gram(precision) @ matrix

    def variances(self, white: Array) -> Array:
        """Diagonal of A V Vᵀ Aᵀ, shape (m,)."""
        return namespace(white).sum(namespace(white).square(self.matrix @ white), axis=1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SparseRows(_Written):
    """A projection with few entries in each row: at most two, and those in some columns that all rows look at."""

    column: Array  # shape (m, k)
    entry: Array  # 0 where there is none, shape (m, k)
    size: Array  # only its length counts, the number of columns, shape (n,)

    @classmethod
    def find(
        cls,
        image: Callable[[NDArray[np.float64]], Any],
        shape: tuple[int, int],
        shared: Sequence[int] = (),
    ) -> "SparseRows | None":
        """Write out a linear map, shape (m, n), from the images of some 3 log₂ n vectors; None if a row has more than two entries.

        A vector that is random where a binary digit of the column is 1, and 0 elsewhere, is mapped to one of four values: 0, the
        share of either entry, or both. ``shared`` columns, whose entries do not count, are the images of unit vectors.
        """
        number, size = shape
        if len(shared):
            units = np.eye(size)[list(shared)]
            whole, rest = image, 1 - units.sum(axis=0)
            found = cls.find(lambda vector: whole(rest * vector), shape)
            if found is None:
                return None
            entries = np.stack([np.asarray(whole(unit)) for unit in units], axis=1)
            columns = np.broadcast_to(np.asarray(shared), entries.shape)
            both = zip((columns, entries), (found.column, found.entry), strict=True)
            column, entry = (np.concatenate(part, axis=1) for part in both)
            if np.count_nonzero(entry, axis=1).max(initial=0) > found.entry.shape[1]:
                return cls(column, entry, np.zeros(size))
        first, second = np.random.default_rng(0).uniform(1.0, 2.0, (2, size))
        total = np.asarray(image(first))
        columns, two = np.zeros((2, number), dtype=int), np.zeros(number, dtype=bool)
        entries = np.stack([np.asarray(image(np.ones(size))), np.zeros(number)])
        shares = np.stack([total, np.zeros(number)])
        for bit in range((size - 1).bit_length()):
            digit = (np.arange(size) >> bit & 1).astype(np.float64)
            seen = np.asarray(image(first * digit))
            rest = total - seen
            slack = 1e-9 * np.maximum(np.abs(seen), np.abs(total))
            new = ~two & (np.abs(seen) > slack) & (np.abs(rest) > slack)  # the two entries part here
            if new.any():
                two |= new
                columns[1, new] = columns[0, new]
                shares[:, new] = seen[new], rest[new]
                entries[:, new] = np.asarray(image(digit))[new], np.asarray(image(1 - digit))[new]
            choices = np.stack([np.zeros(number), *shares, total])
            which = np.argmin(np.abs(choices - seen), axis=0)
            columns[0] |= np.isin(which, (1, 3)).astype(int) << bit
            columns[1] |= (two & (which > 1)).astype(int) << bit
        columns = np.minimum(columns, max(size - 1, 0))
        error = np.asarray(image(second)) - np.sum(entries * second[columns], axis=0)
        if not np.all(np.abs(error) <= 1e-9 * np.sum(np.abs(entries), axis=0)):
            return None
        ahead = two & (columns[0] > columns[1])
        columns[:, ahead], entries[:, ahead] = columns[::-1, ahead], entries[::-1, ahead]
        return cls(np.ascontiguousarray(columns.T), np.ascontiguousarray(entries.T), np.zeros(size))

    @cached_property
    def matrix(self) -> Any:
        """A as a sparse matrix of SciPy, shape (m, n)."""
        number, size = len(self.column), len(self.size)
        width = self.column.shape[1]
        starts = np.arange(0, width * number + 1, width)
        return scipy.sparse.csr_array((self.entry.ravel(), self.column.ravel(), starts), shape=(number, size))

    @cached_property
    def places(self) -> tuple[Any, Any, Any, Any]:
        """Rows and columns of the entries of AᵀTA, row by row; and what each row of A adds, to which of them, at precision 1."""
        places = len(self.size) * self.column[:, :, None] + self.column[:, None, :]
        found, which = np.unique(places, return_inverse=True)
        return (
            *np.divmod(found, len(self.size)),
            which.ravel(),
            self.entry[:, :, None] * self.entry[:, None, :],
        )

    def entries(self, precision: Any) -> Any:
        """The entries of AᵀTA, of NumPy, at their ``places``."""
        rows, _, which, shares = self.places
        return np.bincount(which, (precision[:, None, None] * shares).ravel(), len(rows))

    def apply(self, vector: Array) -> Array:
        """A times a vector."""
        return namespace(vector, self.column).sum(self.entry * vector[self.column], axis=1)

    def adjoint(self, vector: Array) -> Array:
        """Aᵀ times a vector; of NumPy."""
        shares = (self.entry * vector[:, None]).ravel()
        return np.bincount(self.column.ravel(), shares, len(self.size))

    def rows(self, matrix: Array) -> Array:
        """A times an (n, k) array."""
        if namespace(matrix, self.column) is np:
            return self.matrix @ matrix
        each = (self.entry[:, k, None] * matrix[self.column[:, k]] for k in range(self.column.shape[1]))
        return reduce(add, each)

    def back(self, matrix: Array) -> Array:
        """Aᵀ times an (m, k) array; of NumPy."""
        return self.matrix.T @ matrix

    def add_gram(self, precision: Any, matrix: Any) -> None:
        """Add AᵀTA to an (n, n) array of NumPy."""
        matrix[self.places[:2]] += self.entries(precision)

    def gram(self, precision: Array) -> Array:
        """AᵀTA, shape (n, n)."""
        size = self.size.shape[0]
        if namespace(precision, self.column) is np:
            found = np.zeros((size, size))
            self.add_gram(precision, found)
            return found
        products = precision[:, None, None] * self.entry[:, :, None] * self.entry[:, None, :]
        rows = jnp.broadcast_to(self.column[:, :, None], products.shape)
        columns = jnp.broadcast_to(self.column[:, None, :], products.shape)
        return jnp.zeros((size, size), products.dtype).at[rows, columns].add(products)

    def times_gram(self, precision: Array, matrix: Array) -> Array:
        """AᵀTA times an (n, k) array."""
        size = len(self.size)
        if namespace(precision, self.column) is not np or size <= _SPARSE:
            return self.gram(precision) @ matrix
        starts = np.searchsorted(self.places[0], np.arange(size + 1))
        gram = scipy.sparse.csr_array((self.entries(precision), self.places[1], starts), shape=(size, size))
        return gram @ matrix

    def variances(self, white: Array) -> Array:
        """Diagonal of A V Vᵀ Aᵀ, shape (m,)."""
        # Not from the entries of VVᵀ, which would cancel for two items that are nearly the same.
        if namespace(white, self.column) is np:
            number, together = len(self.column), max(1, _TOGETHER // max(white.shape[1], 1))
            parts: Any = [self.matrix]
            if number > together:
                parts = (self.matrix[start : start + together] for start in range(0, number, together))
            seen = (part @ white for part in parts)
            return np.concatenate([np.einsum("ij,ij->i", part, part) for part in seen])
        # The barrier keeps XLA from fusing the gather of rows into the sum of squares, which is four times slower.
        return jnp.sum(jnp.square(optimization_barrier(self.rows(white))), axis=1)


Rows = DenseRows | SparseRows
_TOGETHER = 2**19  # numbers of A V that are written out at once
_SPARSE = 200  # columns above which SciPy's sparse products are faster than those of matrices


class Marginals(NamedTuple):
    """Posterior of the m projections."""

    mean: Array  # shape (m,)
    variance: Array  # shape (m,)
    log_determinant: Array  # half the log ratio of prior to posterior volume


class Factorised(NamedTuple):
    """The posterior under sites of precision T, shape (m,)."""

    lower: Array  # chol(B)
    # In observation space W = chol(B)⁻¹ T^½ G, shape (m, m): the posterior covariance of the projections is G − WᵀW.
    # In latent space V = L chol(B)⁻ᵀ, shape (n, r): the posterior covariance of the latent vector is VVᵀ.
    white: Array
    precision: Array
    log_determinant: Array  # Σ log diag chol(B)


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

    def congruence(self, covariance: Covariance) -> Array:
        """A K Aᵀ, shape (m, m)."""
        return covariance.congruence(self.apply)

    def written(self, size: int, dtype: Any) -> Rows:
        """The projection as its rows."""
        return DenseRows(self.rows(jnp.eye(size, dtype=dtype)))


# How a projection is given: of a program that JAX traces as maps, otherwise as its rows.
Projection = Map | Rows


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DualSpace:
    """Observation space, for m ≤ n: everything in the m x m space of projections."""

    latent: ClassVar[bool] = False  # whether the latent vector's own mean and covariance are available

    gram: Array  # G = A K Aᵀ, and the noise that rows share, shape (m, m)
    jitter: Array  # 0; nothing is factorized but B = I + T^½ G T^½

    @classmethod
    def build(cls, covariance: Covariance, projection: Projection, noise: Any = 0.0) -> "DualSpace":
        """``noise`` is the covariance of what rows have in common beyond the latent vector, shape (m, m)."""
        gram = projection.congruence(covariance) + noise
        return cls(gram, namespace(gram).zeros((), gram.dtype))

    def factorise(self, precision: Array, projection: Projection) -> Factorised:
        """Factorise B = I + T^½ G T^½."""
        xp = namespace(precision, self.gram)
        root = xp.sqrt(precision)
        half = root[:, None] * self.gram
        lower = factorize(xp.eye(len(root), dtype=root.dtype) + half * root)
        return Factorised(lower, solve_lower(lower, half), precision, _log_determinant(lower))

    def marginals(self, factor: Factorised, shift: Array, projection: Projection) -> Marginals:
        xp = namespace(shift, self.gram)
        before = xp.diagonal(self.gram)
        variance = before - xp.sum(xp.square(factor.white), axis=0)
        # Two items that are the same to the prior have a gap variance of 0 up to rounding, of either sign.
        rounding = 10 * np.finfo(before.dtype).eps * xp.max(before, initial=0.0)
        variance = xp.where(xp.abs(variance) <= rounding, 0.0, variance)
        mean = self.response(factor, shift, projection)
        # Prior and sites cancel where both are large; the mean solves m = G(h − T m), which says what is left.
        for _ in range(_REFINEMENTS):
            left = self.gram @ (shift - factor.precision * mean) - mean
            half = solve_lower(factor.lower, xp.sqrt(factor.precision) * left)
            mean = mean + left - factor.white.T @ half
        return Marginals(mean, variance, factor.log_determinant)

    def response(self, factor: Factorised, shift: Array, projection: Projection) -> Array:
        """Posterior covariance of the projections times a vector."""
        return self.gram @ shift - factor.white.T @ (factor.white @ shift)

    def dual_weights(self, factor: Factorised, precision: Array) -> Array:
        """M = T^½ B⁻¹ T^½; the posterior covariance is K − K AᵀMA K."""
        xp = namespace(precision, self.gram)
        half = solve_lower(factor.lower, xp.diag(xp.sqrt(precision)))
        return half.T @ half

    def noise_weights(
        self, factor: Factorised, precision: Array, blocks: Any, factors: Sequence[Array]
    ) -> list[Array]:
        """Blocks of M for groups of rows, `relpref.infer.arrow.Blocks`, times arrays of shape (g, p, r)."""
        dual = self.dual_weights(factor, precision)
        room = namespace(dual).pad(dual, (0, 1))
        each = zip(blocks.groups, factors, strict=True)
        return [room[group.rows[:, :, None], group.rows[:, None, :]] @ its for group, its in each]

    def weights(self, factor: Factorised, precision: Array, projection: Projection) -> Array:
        """R = AᵀMA, shape (n, n)."""
        return projection.back(projection.back(self.dual_weights(factor, precision)).T)

    def precision_limit(self) -> tuple[Array, float]:
        """Prior variances of the projections, and the largest product of these with precisions that does not cancel."""
        return namespace(self.gram).diagonal(self.gram), _MOST_IN_DUAL_SPACE


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LatentSpace:
    """Latent space, for m > n: everything in the space of the latent vector, whitened by the root of its covariance."""

    latent: ClassVar[bool] = True

    root: Array  # L with L Lᵀ = K, so that nothing is ever multiplied by K⁻¹, shape (n, r)
    rows: Rows  # the projection A
    jitter: Array  # what the root needed
    # Whether sites may be so precise that B is ill-conditioned: then it is factorized without being formed, and means are refined.
    accurate: bool = field(default=False, metadata={"static": True})

    @classmethod
    def build(
        cls,
        covariance: Covariance,
        projection: Projection,
        rows: Rows | None = None,
        accurate: bool = False,
    ) -> "LatentSpace":
        """Factorise the prior; without sparse rows the projection is written out."""
        root, jitter = covariance.root()
        return cls(root, rows or projection.written(root.shape[0], root.dtype), jitter, accurate)

    def factorise(self, precision: Array, projection: Projection) -> Factorised:
        """Factorise B = I + Lᵀ Q L with Q = AᵀTA."""
        xp = namespace(precision, self.root)
        pulled = self.rows.times_gram(precision, self.root)  # Q L
        gram = xp.eye(self.root.shape[1], dtype=self.root.dtype) + self.product(pulled)

        def by_qr() -> Array:
            # chol(B)ᵀ is the R of [T^½ A L; I], whose condition number is the root of that of B.
            half = xp.sqrt(precision)[:, None] * projection.rows(self.root)
            upper = xp.linalg.qr(xp.concatenate([half, xp.eye(half.shape[1])]), mode="r")
            return xp.sign(xp.diagonal(upper)) * upper.T

        if self.accurate:
            stiff = (xp.max(xp.diagonal(gram), initial=0.0) > _STIFF) & xp.all(precision >= 0)
            lower = cond(stiff, by_qr, partial(factorize, gram))
        else:
            lower = factorize(gram)
        return Factorised(lower, self.quotient(lower), precision, _log_determinant(lower))

    def product(self, right: Array) -> Array:
        """The lower triangle of Lᵀ times an (n, r) array, where that is symmetric; above it anything."""
        return lower_of_product(self.root, right)

    def quotient(self, lower: Array) -> Array:
        """L times the transposed inverse of a lower triangular matrix."""
        return solve_lower(lower, self.root.T).T

    def marginals(self, factor: Factorised, shift: Array, projection: Projection) -> Marginals:
        variance = self.rows.variances(factor.white)
        mean = projection.apply(self.latent_mean(factor, shift, projection))
        return Marginals(mean, variance, factor.log_determinant)

    def response(self, factor: Factorised, shift: Array, projection: Projection) -> Array:
        """Posterior covariance of the projections times a vector."""
        return projection.apply(factor.white @ (factor.white.T @ projection.adjoint(shift)))

    def latent_mean(self, factor: Factorised, shift: Array, projection: Projection) -> Array:
        """Posterior mean of the latent vector."""
        if not self.accurate:
            return factor.white @ (factor.white.T @ projection.adjoint(shift))

        # In coordinates w with mean L w: B w = Lᵀ Aᵀ h. What rounding leaves in directions that no answer sees, the next round removes,
        # as long as both ends of a row see the same number in h − T A L w: carried by a loop, it is not computed and rounded twice.
        def refined(_: Any, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            white, left = carry
            half = solve_lower(factor.lower, self.root.T @ projection.adjoint(left) - white)
            white = white + solve_lower(factor.lower, half, transposed=True)
            return white, shift - factor.precision * projection.apply(self.root @ white)

        start = (namespace(shift, self.root).zeros(self.root.shape[1], self.root.dtype), shift)
        white, _ = fori_loop(_REFINEMENTS, refined, start)
        return self.root @ white

    def covariance(self, factor: Factorised) -> Array:
        """Σ = V Vᵀ, of the latent vector, shape (n, n)."""
        return factor.white @ factor.white.T

    def pulled(self, factor: Factorised, precision: Array) -> Array:
        """R K = Q Σ, shape (n, n)."""
        return self.rows.times_gram(precision, self.covariance(factor))

    def weights(self, factor: Factorised, precision: Array, projection: Projection) -> Array:
        """R = Q − QΣQ, shape (n, n)."""
        cross = self.rows.times_gram(precision, factor.white)  # Q V
        return self.rows.gram(precision) - cross @ cross.T

    def precision_limit(self) -> tuple[Array, float]:
        """As in observation space; of variances of at most 1, for noise/√count below 1e-5 and below 1e-5 prior sds."""
        return namespace(self.root).minimum(1.0, self.rows.variances(self.root)), _MOST_PRECISE


Space = DualSpace | LatentSpace


def _log_determinant(lower: Array) -> Array:
    xp = namespace(lower)
    return xp.sum(xp.log(xp.diagonal(lower)))


_MOST_PRECISE = 1.0001e10  # of a Gaussian site: noise/√count = 1e-5, and rounding of the square
_MOST_IN_DUAL_SPACE = 1e7  # times the prior variance: 3e-4 prior sds
_STIFF = 1e6  # diagonal of B above which its Cholesky factor would lose too many digits
_REFINEMENTS = 2
_BLOCK = 128  # below this size one product is as fast as its blocks


def lower_of_product(root: Array, right: Array) -> Array:
    """The lower triangle of rootᵀ @ right, for a lower triangular root, by blocks: a third of the operations; above it anything."""
    n = root.shape[0]
    if n <= _BLOCK:
        return root.T @ right
    half = n // 2
    upper, lower = root[:half, :half], root[half:, half:]
    corner = root[half:, :half]
    top = lower_of_product(upper, right[:half, :half]) + corner.T @ right[half:, :half]
    left = lower.T @ right[half:, :half]
    bottom = lower_of_product(lower, right[half:, half:])
    return namespace(root, right).block([[top, np.zeros((half, n - half), root.dtype)], [left, bottom]])


# The damping shrinks by _BRAKE when a fresh sweep finds a larger residual and recovers by _RELAX when it finds a smaller one.
_BRAKE, _RELAX, _SMALLEST = 0.6, 1.15, 0.05
_HOPELESS = 1e-3  # damping after many steps in a row that led to unusable sites
# Held sweeps follow a fresh one with a residual below _HOLD_BELOW, at most _MOST_HELD of them, as long as they make headway
# and until the means have settled to within _SETTLED of it.
_HOLD_BELOW, _MOST_HELD, _SETTLED = 0.3, 6, 0.02
# Where factorizations are cheap, held sweeps come after so many fresh ones.
_SEVERAL = 10


class Sites(NamedTuple):
    """Natural parameters of the Gaussian sites, one for each *row* (a row of count k holds k identical sites)."""

    # precision and shift: τ and ν of exp(ν x − ½ τ x²), x = the projection less its prior mean, shape (m,)
    precision: Array
    shift: Array


class Cavity(NamedTuple):
    """A row's posterior with one copy of its site removed, if it has any."""

    mean: Array
    variance: Array


class Known(NamedTuple):
    """Rows whose likelihood is Gaussian in the predictor: their sites are the likelihoods themselves and need no iteration."""

    rows: Array  # shape (m,)
    peak: Array  # y, where the likelihood is largest, in the coordinates of the sites, shape (m,)
    sites: Sites  # τ = 1/noise² and ν = τ y; anything where ``rows`` is false


class Problem(NamedTuple):
    """What EP needs to know."""

    space: Space
    projection: Projection
    # How many identical answers each row stands for; 0 for a row that was not answered, which changes nothing, shape (m,).
    counts: Array
    # From cavity mean and variance, shape (m,) each, to `TiltedMoments`.
    tilted: Callable[[Array, Array], TiltedMoments]
    # Whether each row's likelihood is log-concave, so that a negative site precision is an error, shape (m,).
    log_concave: Any = True
    known: Known | None = None
    # From the projections to the derivatives of the curvatures there, shape (m,) each; for those who touch the likelihoods at a point.
    bends: Callable[[Array], Array] | None = None
    joint: Any = None  # a `relpref.infer.joint.Joint`, for those, too, where rows are one outcome
    # Whether a factorization costs more than a few sweeps without one; otherwise these wait until it takes long anyway.
    holding: bool = True


class Fit(NamedTuple):
    """Sites, and the posterior they stand for."""

    sites: Sites
    factor: Factorised
    marginals: Marginals


class State(NamedTuple):
    """What the next sweep needs."""

    sites: Sites  # where the next sweep evaluates
    fit: Fit  # of the last fresh sweep
    mean: Array  # of the projections, as the held sweeps moved it, shape (m,)
    # base and aim: those of the last usable fresh sweep and where their update points; a step to unusable sites is taken again, shorter
    base: Sites
    aim: Sites
    damping: Array  # fraction of an update that is taken
    log_normalizer: Array  # log Ẑ of every row at the last fresh sweep, shape (m,)
    # residual and held_residual: of the last usable fresh sweep, and of the last sweep
    residual: Array
    held_residual: Array
    held: Array  # number of held sweeps since; negative when the next sweep is fresh


class Info(NamedTuple):
    """How the sweeps went."""

    sweeps: Array  # fresh ones
    # Largest mismatch of tilted and posterior moments over the rows: of the mean in posterior sds, or of the variance relative to
    # itself. 0 at a fixed point.
    residual: Array
    damping: Array
    code: Array  # index into `relpref.infer.result.CODES`
    jitter: Array  # what was added to the prior's diagonal so that it could be factorized


def begin(sites: Sites, fit: Fit) -> State:
    """The state before the first sweep; the fit is there for its shapes."""
    xp = namespace(sites.precision)
    one = xp.ones((), sites.precision.dtype)
    mean, nowhere = fit.marginals.mean, one * xp.inf
    return State(sites, fit, mean, sites, sites, one, mean, nowhere, nowhere, xp.asarray(-1))


def with_known(known: Known | None, sites: Sites) -> Sites:
    """The sites, those of Gaussian likelihoods in closed form."""
    return sites if known is None else choose(known.rows, known.sites, sites)


def cavities(counts: Array, sites: Sites, marginals: Marginals) -> Cavity:
    """Remove one site from each row's marginal: 1/t = v/(1 − vτ), c/t = (m − vν)/(1 − vτ).

    Written so, it holds for v = 0, too: two items that are one and the same to the prior.
    """
    removed = marginals.variance * namespace(marginals.variance).minimum(counts, 1.0)
    left = 1 - removed * sites.precision
    mean = (marginals.mean - removed * sites.shift) / left
    return Cavity(mean, marginals.variance / left)


def matched(cavity: Cavity, moments: TiltedMoments) -> Sites:
    """The sites that take the cavities to the tilted moments."""
    shrink = 1 - cavity.variance * moments.curvature
    return Sites(moments.curvature / shrink, (moments.gradient + cavity.mean * moments.curvature) / shrink)


def advance(
    counts: Array,
    state: State,
    fit: Fit,
    marginals: Marginals,
    cavity: Cavity,
    moments: TiltedMoments,
    log_concave: Any = True,
    known: Known | None = None,
    holding: bool = True,
) -> tuple[State, Array]:
    """The part of a sweep that comes after the algebra: where the tilted moments take the sites.

    ``fit`` is that of the sweep, if it is a fresh one, else of the last fresh one; ``marginals`` are those under the state's sites,
    ``cavity`` follows from them, and ``moments`` from that.

    Returns
    -------
    state : State
    usable : Array
        Bit field of a fresh sweep, 7 of a held one: 1 = finite, 2 = no negative precision, 4 = the marginals were finite.
    """
    sites, xp = state.sites, namespace(counts, marginals.mean)
    fresh = state.held < 0
    shrink = 1 - cavity.variance * moments.curvature  # tilted variance over cavity variance
    target = with_known(known, matched(cavity, moments))
    sought = counts > 0 if known is None else (counts > 0) & ~known.rows
    tilted_mean = cavity.mean + cavity.variance * moments.gradient
    spread = xp.where(marginals.variance == 0, 1.0, xp.sqrt(marginals.variance))
    mean_error = abs(tilted_mean - marginals.mean) / spread
    variance_error = abs(shrink / (1 - marginals.variance * sites.precision) - 1)
    residual = xp.where(sought, xp.maximum(mean_error, variance_error), 0.0).max(initial=0.0)

    prior_ok = xp.isfinite(marginals.variance + marginals.mean).all()
    finite = prior_ok & xp.isfinite(residual) & xp.isfinite(target.shift + target.precision).all()
    # Without log-concavity a site may be negative, as long as cavities and posterior are proper; else the step is taken again, shorter.
    improper = (cavity.variance < 0) & sought
    finite &= ~(improper & xp.logical_not(log_concave)).any()
    positive = ~(((target.precision < 0) & sought | improper) & log_concave).any() | ~finite
    usable = choose(fresh, finite + 2 * positive + 4 * prior_ok, 7)
    good = finite & positive
    accepted = fresh & good

    # What the prior alone is off by does not say whether a step without damping is too long.
    shrinking = (residual < state.residual) | ~state.base.precision.any()
    adapted = choose(
        shrinking, xp.minimum(1.0, _RELAX * state.damping), xp.maximum(_BRAKE * state.damping, _SMALLEST)
    )
    damping = choose(fresh, choose(good, adapted, 0.5 * state.damping), state.damping)
    base, aim = choose(accepted, (sites, target), (state.base, state.aim))
    # A held sweep that went wrong moves nothing; the fresh one after it finds out where that is.
    start, end = choose(
        good | fresh, (choose(fresh, base, sites), choose(fresh, aim, target)), (sites, sites)
    )
    moved = Sites(*(old + damping * (new - old) for old, new in zip(start, end, strict=True)))

    settled = residual < _SETTLED * state.residual
    hold_on = good & (residual < state.held_residual) & ~settled & (state.held < _MOST_HELD)
    hold = choose(fresh, holding & good & (residual < _HOLD_BELOW), hold_on)
    return State(
        sites=moved,
        fit=fit,
        mean=marginals.mean,
        base=base,
        aim=aim,
        damping=damping,
        log_normalizer=choose(fresh, moments.log_normalizer, state.log_normalizer),
        residual=choose(accepted, residual, state.residual),
        held_residual=residual,
        held=choose(hold, xp.maximum(state.held, 0) + 1, -1),
    ), usable


def held(response: Callable[[Array], Array], counts: Array, fit: Fit, sites: Sites, mean: Array) -> Marginals:
    """Marginals under new sites, with the covariance Γ and the cavity precisions of the last fresh sweep.

    The mean solves m = m₀ + Γ(ν − ν₀ − (τ − τ₀) m), Γ and m₀ belonging to the sites τ₀ and ν₀; one step of that iteration is taken.
    ``response`` is Γ times a vector.
    """
    change, variance = sites.precision - fit.sites.precision, fit.marginals.variance
    pull = counts * (sites.shift - fit.sites.shift) - counts * change * mean
    moved = fit.marginals.mean + response(pull)
    return Marginals(moved, variance / (1 + variance * change), fit.marginals.log_determinant)


def posterior(problem: Problem, sites: Sites) -> Fit:
    """The posterior under the sites, each counted as often as its row."""
    precision, shift = problem.counts * sites.precision, problem.counts * sites.shift
    factor = problem.space.factorise(precision, problem.projection)
    return Fit(sites, factor, problem.space.marginals(factor, shift, problem.projection))


def run(
    problem: Problem,
    sites: Sites,
    tolerance: float | Array,
    max_sweeps: int | Array,
    progress: Callable[[int, float], object] | None = None,
) -> tuple[Fit, Array, Info]:
    """Sweep from given sites until the residual is within the tolerance, the sweeps are used up, or no damping helps.

    Returns the fit of the last fresh sweep, log Ẑ of every row there, and how it went. ``progress``, of NumPy alone, is told the number
    of each fresh sweep and its residual.
    """
    space, projection, counts = problem.space, problem.projection, problem.counts

    def more(carry: tuple[State, Array, Array]) -> Array:
        state, sweeps, usable = carry
        return unfinished(state, usable, tolerance) & (sweeps < max_sweeps)

    def fresh(state: State) -> tuple[Fit, Marginals]:
        fit = posterior(problem, state.sites)
        return fit, fit.marginals

    def hold(state: State) -> tuple[Fit, Marginals]:
        response = partial(space.response, state.fit.factor, projection=projection)
        return state.fit, held(response, counts, state.fit, state.sites, state.mean)

    def sweep(carry: tuple[State, Array, Array]) -> tuple[State, Array, Array]:
        state, sweeps, _ = carry
        fit, marginals = cond(state.held < 0, fresh, hold, state)
        cavity = cavities(counts, state.sites, marginals)
        moments = problem.tilted(*cavity)
        holding = problem.holding or sweeps >= _SEVERAL
        kinds = problem.log_concave, problem.known, holding
        after, usable = advance(counts, state, fit, marginals, cavity, moments, *kinds)
        sweeps = sweeps + (state.held < 0)
        if progress is not None and state.held < 0:
            progress(int(sweeps), float(after.held_residual))
        return after, sweeps, usable

    sites = with_known(problem.known, sites)
    if on_host(sites):
        number: Array = np.asarray(0)
        nothing: Any = Fit(sites, None, Marginals(sites.shift, sites.shift, None))  # type: ignore[arg-type]
    else:
        number = jnp.asarray(0)
        nothing = jax.tree.map(jnp.zeros_like, jax.eval_shape(partial(posterior, problem), sites))
    state, sweeps, usable = while_loop(more, sweep, (begin(sites, nothing), number, number + 7))
    ending = outcome(state, usable, tolerance)
    return state.fit, state.log_normalizer, Info(sweeps, state.residual, state.damping, ending, space.jitter)


def unfinished(state: State, usable: Array, tolerance: float | Array) -> Array:
    """Whether another sweep may bring the sites nearer to a fixed point."""
    stuck = state.damping < _HOPELESS
    hopeless = (usable != 7) & ~namespace(state.residual).isfinite(state.residual)
    arrived = (state.residual <= tolerance) & (usable == 7)
    return ~arrived & ~stuck & ~hopeless


def outcome(state: State, usable: Array, tolerance: float | Array) -> Array:
    """How sweeps that ended so ended: an index into `relpref.infer.result.CODES`."""
    finite = namespace(state.residual).isfinite(state.residual)
    no_step = (state.damping < _HOPELESS) & finite & (usable & 2 != 0)
    return ending(
        [
            (state.residual <= tolerance, Result.converged),
            (no_step, Result.diverged),
            (usable & 4 == 0, Result.prior_not_positive_definite),
            (usable & 1 == 0, Result.nonfinite),
            (usable & 2 == 0, Result.negative_precision),
            (state.damping < _HOPELESS, Result.diverged),
        ]
    )


def ending(reasons: list[tuple[Array, Result]]) -> Array:
    """The number of the first result whose reason holds; that of ``max_iterations`` where none does."""
    found: Array = CODES.index(Result.max_iterations)
    for reason, result in reversed(reasons):
        found = choose(reason, CODES.index(result), found)
    return found
