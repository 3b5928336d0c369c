"""The posterior of the relations' vectors with the attributes' weights known: solves, variances of gaps, a determinant.

Exactly, by one dense factorisation, where the relations' vectors are short; otherwise by conjugate gradients, and variances and
determinant from posterior samples that are the same random numbers in every sweep.
"""

from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from relpref.infer.large.sparse.equations import Equations, Preconditioner
from relpref.infer.large.sparse.latents import Latents

Floats = NDArray[np.float64]

_COLUMNS = 64  # that are solved for together
_CHUNK = 2**22  # numbers of an intermediate array at a time
# ∫₀¹ f(λ) dλ with λ = x⁵ and twelve Gauss-Legendre nodes: log(1 + e) = ∫ e/(1 + λe) dλ comes out within 1e-4 up to e = 100 and
# within 0.02 up to 1e4.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_POSITIONS = ((1 + _NODES) / 2) ** 5
_LENGTHS = 2.5 * _WEIGHTS * ((1 + _NODES) / 2) ** 4
# Tolerances of the samples' solves, in sweeps and for the determinant: their own error is far larger.
_LOOSE, _LOOSER = 1e-5, 1e-3
_ROUNDING = 1e-14


class Estimate(NamedTuple):
    """Numbers and their standard errors; 0 where they are exact."""

    value: Floats
    error: Floats


class Solver(Protocol):
    """N(0, S⁻¹) with S = Q + (11ᵀ) ⊗ AᵀTA."""

    def solve(self, rhs: Floats, purpose: str = "") -> Floats:
        """S⁻¹ times an (R·n, k) array; what is solved again and again for one purpose starts where it was."""


class Relations(Solver, Protocol):
    """With what EP needs of it."""

    @property
    def variances(self) -> Estimate:
        """Of the m gaps, shape (m,)."""

    @property
    def deviations(self) -> Floats:
        """How much each of the N samples adds to the error of the m variances, shape (m, N)."""

    def half_log_ratio(self) -> Estimate:
        """½ log|S| − ½ log|Q|, shape ()."""


class Factorised:
    """By a dense Cholesky factor of S.

    Parameters
    ----------
    latents : Latents
    weights : array, shape (m,)
        Diagonal of T.
    """

    def __init__(self, latents: Latents, weights: Floats) -> None:
        self._latents = latents
        self._lower = scipy.linalg.cholesky(
            latents.precision(weights).toarray(), lower=True, overwrite_a=True
        )

    def solve(self, rhs: Floats, purpose: str = "") -> Floats:
        """S⁻¹ times an array."""
        return np.asarray(scipy.linalg.cho_solve((self._lower, True), rhs))

    @property
    def deviations(self) -> Floats:
        """None."""
        return np.zeros((len(self._latents.column), 0))

    @cached_property
    def variances(self) -> Estimate:
        """Squared rows of A V with V = (1ᵀ ⊗ I) L⁻ᵀ, so that entities that are nearly the same do not cancel."""
        latents = self._latents
        spread = latents.spread(np.eye(latents.size))
        white = scipy.linalg.solve_triangular(self._lower, spread, lower=True, overwrite_b=True).T
        found = np.empty(len(latents.column))
        step = max(1, _CHUNK // max(1, white.shape[1]))
        for start in range(0, len(found), step):
            rows = slice(start, start + step)
            first, second = (
                latents.entry[rows, end, None] * white[latents.column[rows, end]] for end in (0, 1)
            )
            found[rows] = np.sum((first + second) ** 2, axis=1)
        return Estimate(found, np.zeros_like(found))

    def half_log_ratio(self) -> Estimate:
        """From the factors' diagonals."""
        prior = scipy.linalg.cholesky(self._latents.prior.toarray(), lower=True, overwrite_a=True)
        ratio = np.sum(np.log(np.diagonal(self._lower))) - np.sum(np.log(np.diagonal(prior)))
        return Estimate(ratio, np.zeros(()))


class Iterative:
    """By conjugate gradients.

    Parameters
    ----------
    latents : Latents
    weights : array, shape (m,)
        Diagonal of T.
    tol : float
        See `Equations.solve`.
    last : dict, optional
        Where solutions are kept, by purpose.
    """

    def __init__(
        self, latents: Latents, weights: Floats, tol: float, last: dict[str, Floats] | None = None
    ) -> None:
        self._latents, self._tol = latents, tol
        self._last = {} if last is None else last
        self._matrix = latents.precision(weights)
        precondition = Preconditioner(self._matrix.diagonal(), latents.factorised_blocks)
        self._equations = Equations(self._matrix, precondition)

    def solve(self, rhs: Floats, purpose: str = "", tol: float = 0.0) -> Floats:
        """S⁻¹ times an array; what is constant on components is divided by its eigenvalue."""
        start = self._last.get(purpose)
        rest, known = self._split(rhs)
        rest = self._equations.solve(rest, start, max(tol, self._tol))
        found = self._split(rest)[0]
        if purpose:
            self._last[purpose] = found
        return found + known * self._latents.known_inverse

    def _split(self, vectors: Floats) -> tuple[Floats, Floats]:
        """What is not constant on components, and what is."""
        members = self._latents.components
        if members is None:
            return vectors, np.zeros((1, 1))
        known = members @ ((members.T @ vectors) / members.sum(axis=0)[:, None])
        rest = vectors - known
        # What rounding leaves of a constant may lie anywhere, and no solve is to follow it there.
        rounding = _ROUNDING * np.max(np.abs(vectors), axis=0, initial=0.0)
        return rest * (np.max(np.abs(rest), axis=0, initial=0.0) > rounding), known


class Noise(NamedTuple):
    """The random numbers of a fit, the same in every sweep: so there is a fixed point.

    Attributes
    ----------
    prior : array, shape (R·n, N)
        Draws from N(0, Q).
    rows : array, shape (m, N)
        Standard normal.
    """

    prior: Floats
    rows: Floats

    @classmethod
    def draw(cls, latents: Latents, generator: np.random.Generator, samples: int) -> "Noise":
        """Draw N of each."""
        return cls(
            latents.noise(generator, samples), generator.standard_normal((len(latents.column), samples))
        )


class Sampled(Iterative):
    """By conjugate gradients and samples x = S⁻¹(Q^½ ε + Aᵀ T^½ ε'), whose covariance is S⁻¹ (Papandreou & Yuille 2010).

    Each gap's variance is Rao-Blackwellised: exact given everything but the two entities, plus the variance over the samples of
    its mean given the others (Sidén et al. 2018, "Efficient covariance approximations for large sparse precision matrices").

    Parameters
    ----------
    latents, weights, tol, last
        As of `Iterative`.
    noise : Noise
    loose : float
        Tolerance of the samples' solves.
    """

    def __init__(
        self,
        latents: Latents,
        weights: Floats,
        tol: float,
        last: dict[str, Floats],
        noise: Noise,
        loose: float = _LOOSE,
    ) -> None:
        super().__init__(latents, weights, tol, last)
        self._weights, self._noise, self._loose = weights, noise, loose

    @cached_property
    def variances(self) -> Estimate:
        """Of the gaps, with standard errors."""
        local, drawn = self._conditional
        squared = np.mean(drawn**2, axis=1)
        # The conditional means are Gaussian: the variance of their square is twice its mean squared.
        return Estimate(local + squared, squared * np.sqrt(2 / drawn.shape[1]))

    @property
    def deviations(self) -> Floats:
        """From the squared conditional means."""
        squared = self._conditional[1] ** 2
        return np.asarray((squared - np.mean(squared, axis=1, keepdims=True)) / squared.shape[1])

    def half_log_ratio(self) -> Estimate:
        """½ ∫₀¹ tr((Q + λAᵀTA)⁻¹ AᵀTA) dλ, the trace being the sum of the gaps' variances times their precisions."""
        each = np.zeros(self._noise.rows.shape[1])
        for position, length in sorted(zip(_POSITIONS, _LENGTHS, strict=True), reverse=True):
            weights = position * self._weights
            part = Sampled(self._latents, weights, self._tol, self._last, self._noise, _LOOSER)
            local, drawn = part._conditional
            each += 0.5 * length * (self._weights @ local + self._weights @ drawn**2)
        return Estimate(np.asarray(np.mean(each)), np.asarray(np.std(each, ddof=1) / np.sqrt(len(each))))

    @cached_property
    def _conditional(self) -> tuple[Floats, Floats]:
        """Each gap given everything but its two entities: its variance, shape (m,), and its mean at each sample, shape (m, N)."""
        latents = self._latents
        root = np.sqrt(self._weights)[:, None]
        pull = latents.projection.T @ (root * self._noise.rows)
        rhs = self._noise.prior + latents.spread(pull)
        drawn = self.solve(rhs, "samples", self._loose)
        # The block of S at the 2R unknowns of a pair, and the combination of them that is the gap.
        inside = (latents.size * np.arange(latents.copies)[:, None] + latents.column[:, None, :]).reshape(
            len(root), -1
        )
        rows, columns = np.broadcast_arrays(inside[:, :, None], inside[:, None, :])
        blocks = np.asarray(self._matrix[rows.ravel(), columns.ravel()]).reshape(rows.shape)
        gap = np.tile(latents.entry, latents.copies)
        weights = np.linalg.solve(blocks, gap[:, :, None])[:, :, 0]
        # x_I − S_II⁻¹ (S x)_I is the mean of x_I given the others, and S x is the right-hand side.
        mean = latents.projection @ latents.total(drawn)
        for place in range(inside.shape[1]):
            mean -= weights[:, place, None] * rhs[inside[:, place]]
        return np.sum(gap * weights, axis=1), mean


def exact_variances(latents: Latents, relations: Solver) -> Floats:
    """Of the gaps given the attributes' weights, shape (m,): one solve for each entity that a row looks at."""
    touched = np.unique(latents.column)
    place = np.searchsorted(touched, latents.column)
    found = np.zeros(len(place))
    for first in range(0, len(touched), _COLUMNS):
        some = touched[first : first + _COLUMNS]
        units = np.zeros((latents.size, len(some)))
        units[some, np.arange(len(some))] = 1.0
        columns = latents.total(relations.solve(latents.spread(units)))
        for end, other in ((0, 1), (1, 0)):
            here = np.flatnonzero((place[:, end] >= first) & (place[:, end] < first + len(some)))
            column, entry = place[here, end] - first, latents.entry[here]
            found[here] += entry[:, end] ** 2 * columns[latents.column[here, end], column]
            # Σ_ij of a pair is met from both ends.
            found[here] += entry[:, 0] * entry[:, 1] * columns[latents.column[here, other], column]
    return found
