"""The Gaussian posterior of all utilities: a covariance that is never written out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.csgraph
import scipy.sparse.linalg
from numpy.typing import ArrayLike, NDArray

from relpref.errors import DataError, InferenceError
from relpref.infer.large.covariance import PosteriorCovariance
from relpref.linalg import block_cg
from relpref.linalg.cg import cores, in_threads

Floats = NDArray[np.float64]

_WIDEST = 32  # columns in a block: wide enough to read the matrix seldom, narrow enough to stay in the cache
_NARROWEST = 8  # what a thread of its own is worth
_MOST_STEPS = 5000
_RAISED = 1e-12


class Preconditioner:
    """M of conjugate gradients: the diagonal of S, and in some diagonal blocks more of it.

    A diagonal alone takes thousands of steps where ranges are long on a chain or a tree; factors of their precisions are sparse.

    Parameters
    ----------
    diagonal : array, shape (d,)
    blocks : sequence of (slice, scipy sparse array)
        Rows, and positive definite matrices whose factors are sparse; their diagonals are replaced by that of S.
    """

    def __init__(self, diagonal: Floats, blocks: Sequence[tuple[slice, Any]] = ()) -> None:
        self._inverse = 1 / diagonal[:, None]
        self._factors = []
        for rows, block in blocks:
            # Without answers a small shift would leave a singular matrix.
            raised = diagonal[rows] * (1 + _RAISED) - block.diagonal()
            matrix = scipy.sparse.csc_array(block + scipy.sparse.diags_array(raised))
            factor = scipy.sparse.linalg.splu(
                matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
            )
            self._factors.append((rows, factor))

    def __call__(self, block: Any, out: Any) -> Any:
        """M⁻¹ times a block, written into ``out``."""
        np.multiply(block, self._inverse, out=out)
        for rows, factor in self._factors:
            out[rows] = factor.solve(np.ascontiguousarray(block[rows]))
        return out


def solve_precision(
    matrix: Any, precondition: Preconditioner, rhs: Floats, start: Floats | None, tol: float
) -> Floats:
    """Solve S X = B for a sparse symmetric positive definite S by conjugate gradients.

    Parameters
    ----------
    matrix : scipy CSR array, shape (d, d)
        S.
    precondition : Preconditioner
    rhs : array, shape (d, k)
    start : array, shape (d, k), optional
        First guess.
    tol : float
        Bound on √(rᵀM⁻¹r / bᵀM⁻¹b) of each column.

    Raises
    ------
    InferenceError
        If it is out of reach.
    """
    solution = np.empty_like(rhs)
    width = int(np.clip(-(-rhs.shape[1] // cores()), _NARROWEST, _WIDEST))
    parts = [slice(first, first + width) for first in range(0, rhs.shape[1], width)]

    def solve(part: slice) -> None:
        found = block_cg(
            lambda block, _: matrix @ block,
            np.array(rhs[:, part]),
            precondition=precondition,
            start=None if start is None else start[:, part],
            tol=tol,
            max_steps=_MOST_STEPS,
        )
        if not np.all(found.residual <= tol):
            raise InferenceError(
                f"conjugate gradients left a residual of {np.max(found.residual):.2g} after {found.steps} products with the "
                f"posterior precision of {len(rhs)} unknowns, {tol:.2g} was asked for; shorter ranges, smaller "
                "amplitudes, fewer links or a larger tolerance make that easier",
                found,
            )
        solution[:, part] = found.values

    for _ in in_threads(solve, parts):
        pass
    return solution


Whole = NDArray[np.integer]

_DENSE = 3000  # unknowns


@dataclass(frozen=True, eq=False)
class Latents:
    """One vector g_r ~ N(0, Q_r⁻¹) for each of R relations and w ~ N(0, I) for the attributes; answers see A u.

    The entities' own parts are a relation without links: Q_r = I/scale_r.

    Vectors over all g_r have shape (R·n,) and lie one after the other.

    Parameters
    ----------
    size : int
        Number of entities n.
    relations : mapping from name to SparsePrecision or Identity
        Q_r = (Δ_r + s_r I)/scale_r, or I/scale_r.
    factors : mapping from name to array, shape (n, r)
        Their columns together are Φ.
    column : array of int, shape (m, 2)
        Entities that each row of A looks at, two different ones.
    entry : array, shape (m, 2)
        With which weight; 0 where there is none.
    """

    size: int
    relations: Mapping[str, Any]
    factors: Mapping[str, Floats]
    column: Whole
    entry: Floats

    @classmethod
    def of(cls, parts: Mapping[str, Any], column: Whole, entry: Floats) -> "Latents":
        """Sort the parts; what has the scale 0 is left out.

        Raises
        ------
        DataError
            If a part is neither a sparse precision nor of low rank.
        """
        relations: dict[str, Any] = {}
        factors: dict[str, Floats] = {}
        if not parts:
            raise DataError("the prior has no parts; give a relation or attributes")
        size = next(iter(parts.values())).size
        for name, part in parts.items():
            if part.sparse_inverse:
                if part.scale > 0:
                    relations[name] = part
            elif part.factor is not None:
                factors[name] = part.factor
            else:
                raise DataError(
                    f"the part {name!r} of the prior is a {type(part).__name__}; many answers about many entities need a sparse "
                    "precision or a low rank (relpref.linalg.nystrom makes one of a kernel)"
                )
        column, entry = np.array(column), np.array(entry, dtype=np.float64)
        same = column[:, 0] == column[:, 1]
        entry[same] = np.stack([entry[same].sum(axis=1), np.zeros(np.count_nonzero(same))], axis=1)
        column[same, 1] = (column[same, 0] + 1) % size
        return cls(size, relations, factors, column, entry)

    @property
    def copies(self) -> int:
        return len(self.relations)

    @property
    def small(self) -> bool:
        """Whether a dense factor of S is cheaper than solves by iteration."""
        return self.copies * self.size <= _DENSE

    @cached_property
    def projection(self) -> Any:
        """A as a scipy CSR array, shape (m, n)."""
        rows = len(self.column)
        ends = np.arange(0, 2 * rows + 1, 2)
        return scipy.sparse.csr_array(
            (self.entry.ravel(), self.column.ravel(), ends), shape=(rows, self.size)
        )

    @cached_property
    def factor(self) -> Floats:
        """Φ, shape (n, r)."""
        return np.hstack([np.zeros((self.size, 0)), *self.factors.values()])

    @cached_property
    def seen(self) -> Floats:
        """A Φ, shape (m, r)."""
        return np.asarray(self.projection @ self.factor)

    @cached_property
    def precisions(self) -> tuple[Any, ...]:
        """The Q_r as scipy CSR arrays, shape (n, n)."""
        return tuple(part.inverse() for part in self.relations.values())

    @cached_property
    def prior(self) -> Any:
        """The Q_r on a diagonal, scipy CSR, shape (R·n, R·n)."""
        if not self.relations:
            return scipy.sparse.csr_array((0, 0))
        return scipy.sparse.csr_array(scipy.sparse.block_diag(self.precisions, format="csr"))

    @cached_property
    def factorised_blocks(self) -> list[tuple[slice, Any]]:
        """Rows of the relations whose factors are about as sparse as they are, and their Q_r."""
        ranges = [slice(place * self.size, (place + 1) * self.size) for place in range(self.copies)]
        each = zip(ranges, self.precisions, self.relations.values(), strict=True)
        return [(rows, precision) for rows, precision, part in each if part.is_treelike]

    def precision(self, weights: Floats) -> Any:
        """S = Q + (11ᵀ) ⊗ AᵀTA, what is left of the posterior precision when w is known; scipy CSR, shape (R·n, R·n).

        Parameters
        ----------
        weights : array, shape (m,)
            Diagonal of T.
        """
        gram = self.projection.T @ (scipy.sparse.diags_array(weights) @ self.projection)
        together = scipy.sparse.kron(np.ones((self.copies, self.copies)), gram, format="csr")
        return scipy.sparse.csr_array(self.prior + together)

    @cached_property
    def components(self) -> Any:
        """Eigenvectors of S whatever the weights, scipy CSR of zeros and ones, shape (R·n, c); None if a row of A is no gap.

        Neither a relation's Laplacian nor a gap sees what is constant on a component of the relation and the answers together.
        """
        if np.any(self.entry.sum(axis=1) != 0):
            return None
        answers = abs(self.projection).T @ abs(self.projection)
        blocks = []
        for precision in self.precisions:
            number, label = scipy.sparse.csgraph.connected_components(
                abs(precision) + answers, directed=False
            )
            entries = (np.ones(self.size), label, np.arange(self.size + 1))
            blocks.append(scipy.sparse.csr_array(entries, shape=(self.size, number)))
        return scipy.sparse.csr_array(scipy.sparse.block_diag(blocks, format="csr"))

    @cached_property
    def known_inverse(self) -> Floats:
        """One over the eigenvalues of `components`, by rows, shape (R·n, 1)."""
        values = [part.row_sum for part in self.relations.values()]
        return np.repeat(values, self.size)[:, None]

    def spread(self, vectors: Floats) -> Floats:
        """The same (n, k) for every relation, shape (R·n, k)."""
        return np.tile(vectors, (self.copies, 1))

    def total(self, vectors: Floats) -> Floats:
        """Sum over relations of an (R·n, k) array, shape (n, k)."""
        return vectors.reshape(self.copies, self.size, vectors.shape[1]).sum(axis=0)

    def noise(self, generator: np.random.Generator, number: int) -> Floats:
        """Draws from N(0, Q), shape (R·n, number): a Laplacian's root is its weighted incidence matrix, nothing is factorised."""
        drawn = np.empty((self.copies * self.size, number))
        for place, (precision, part) in enumerate(zip(self.precisions, self.relations.values(), strict=True)):
            edges = scipy.sparse.triu(-precision, 1, format="coo")
            source, target = edges.coords
            across, within = np.sqrt(edges.data), np.sqrt(1 / part.row_sum)
            block = drawn[place * self.size : (place + 1) * self.size]
            for column in range(number):
                flow = across * generator.standard_normal(len(across))
                block[:, column] = np.bincount(source, flow, self.size) - np.bincount(target, flow, self.size)
                block[:, column] += within * generator.standard_normal(self.size)
        return drawn


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


class Factorised:
    """Products with S⁻¹, S = Q + (11ᵀ) ⊗ AᵀTA, by a dense Cholesky factor of S.

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
        return np.asarray(scipy.linalg.cho_solve((self._lower, True), rhs))

    @property
    def deviations(self) -> Floats:
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
        prior = scipy.linalg.cholesky(self._latents.prior.toarray(), lower=True, overwrite_a=True)
        ratio = np.sum(np.log(np.diagonal(self._lower))) - np.sum(np.log(np.diagonal(prior)))
        return Estimate(ratio, np.zeros(()))


class Iterative:
    """Products with S⁻¹ by conjugate gradients.

    Parameters
    ----------
    latents : Latents
    weights : array, shape (m,)
        Diagonal of T.
    tol : float
        See `solve_precision`.
    last : dict, optional
        Where solutions are kept, by purpose.
    """

    def __init__(
        self, latents: Latents, weights: Floats, tol: float, last: dict[str, Floats] | None = None
    ) -> None:
        self._latents, self._tol = latents, tol
        self._last = {} if last is None else last
        self._matrix = latents.precision(weights)
        self._precondition = Preconditioner(self._matrix.diagonal(), latents.factorised_blocks)

    def solve(self, rhs: Floats, purpose: str = "", tol: float = 0.0) -> Floats:
        """S⁻¹ times an array; what is constant on components is divided by its eigenvalue."""
        start = self._last.get(purpose)
        rest, known = self._split(rhs)
        rest = solve_precision(self._matrix, self._precondition, rest, start, max(tol, self._tol))
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


def exact_variances(latents: Latents, relations: "Factorised | Iterative") -> Floats:
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


@dataclass(frozen=True, eq=False)
class SparsePosterior(PosteriorCovariance):
    """Covariance of u = Σ_r g_r + Φ w under given sites; a covariance.

    The weights w are eliminated (Woodbury): with S⁻¹ the covariance of the g_r given w, and E = Φ − Σ_r (S⁻¹ (1 ⊗ AᵀTAΦ))_r,
    the covariance of w is (I + (AΦ)ᵀ T A E)⁻¹ and that of u is Σ_rr' (S⁻¹)_rr' + E cov(w) Eᵀ.

    Attributes
    ----------
    latents : Latents
    relations : Factorized or Iterative
    weights : array, shape (m,)
        Diagonal of T.
    excess : array, shape (n, r)
        E.
    lower : array, shape (r, r)
        Cholesky factor of the inverse of cov(w).
    factor : float
        What the covariance is multiplied by.
    """

    latents: Latents
    relations: "Factorised | Iterative"
    weights: Floats
    excess: Floats
    lower: Floats
    factor: float = 1.0

    @classmethod
    def at(
        cls,
        parts: Mapping[str, Any],
        column: ArrayLike,
        entry: ArrayLike,
        weights: ArrayLike,
        tol: float = 1e-8,
    ) -> Self:
        """The posterior under sites that are known, as those of a saved fit.

        Parameters
        ----------
        parts, column, entry
            As for `fit`.
        weights : array, shape (m,)
            The sites' precisions times their counts.
        tol : float
            Of every solve.
        """
        latents = Latents.of(parts, np.asarray(column), np.asarray(entry, np.float64))
        weights = np.asarray(weights, np.float64)
        return cls.under(
            latents,
            Factorised(latents, weights) if latents.small else Iterative(latents, weights, tol),
            weights,
        )

    def arrays(self) -> dict[str, Any]:
        """What a file holds of it, by name."""
        return {"sparse/weights": self.weights}

    @classmethod
    def under(cls, latents: Latents, relations: "Factorised | Iterative", weights: Floats) -> Self:
        if not latents.factors:
            return cls(latents, relations, weights, latents.factor, np.eye(0))
        pulled = latents.projection.T @ (weights[:, None] * latents.seen)
        excess = latents.factor - latents.total(relations.solve(latents.spread(pulled), "weights"))
        inner = (weights[:, None] * latents.seen).T @ (latents.projection @ excess)
        lower = scipy.linalg.cholesky(np.eye(len(inner)) + 0.5 * (inner + inner.T), lower=True)
        return cls(latents, relations, weights, excess, lower)

    @property
    def size(self) -> int:
        return self.latents.size

    def matmul(self, vectors: ArrayLike) -> Floats:
        """Σ times an array, shape (n,) or (n, k): one solve for each column."""
        return np.asarray(sum(self.by_part(vectors).values()))

    def by_part(self, vectors: ArrayLike, purpose: str = "") -> dict[str, Floats]:
        """Cov(part, u) times an array of shape (n,) or (n, k), for each part of the prior; they add up to Σ times the array."""
        given = np.asarray(vectors, dtype=np.float64)
        columns = given.reshape(self.size, -1) * self.factor
        latents = self.latents
        weights = scipy.linalg.cho_solve((self.lower, True), self.excess.T @ columns)
        seen = self.weights[:, None] * (latents.seen @ weights)
        rest = latents.spread(columns - latents.projection.T @ seen)
        solved = self.relations.solve(rest, purpose).reshape(latents.copies, *columns.shape)
        found = dict(zip(latents.relations, solved, strict=True))
        first = 0
        for name, factor in latents.factors.items():
            found[name] = factor @ weights[first : first + factor.shape[1]]
            first += factor.shape[1]
        return {name: part.reshape(given.shape) for name, part in found.items()}

    def block(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        """Σ[rows][:, columns], shape (r, c): one solve for each of the fewer."""
        rows, columns = np.asarray(rows, dtype=np.intp), np.asarray(columns, dtype=np.intp)
        if rows.size < columns.size:
            return self.block(columns, rows).T
        found = np.empty((rows.size, columns.size))
        for first in range(0, columns.size, _COLUMNS):
            some = columns[first : first + _COLUMNS]
            units = np.zeros((self.size, some.size))
            units[some, np.arange(some.size)] = 1.0
            found[:, first : first + _COLUMNS] = self.matmul(units)[rows]
        return found

    def row_means(self, rows: ArrayLike) -> Floats:
        """Covariance of entries with the average of all, shape (r,)."""
        return self._averages[np.asarray(rows, dtype=np.intp)]

    def average(self) -> float:
        """Variance of the average of all."""
        return float(self._averages.mean())

    def shares(self, rows: ArrayLike) -> dict[str, Floats]:
        """Covariance of each part of some entries with their total, shape (r,): one solve for each."""
        rows = np.asarray(rows, dtype=np.intp)
        found: dict[str, list[Floats]] = {}
        for first in range(0, rows.size, _COLUMNS):
            some = rows[first : first + _COLUMNS]
            units = np.zeros((self.size, some.size))
            units[some, np.arange(some.size)] = 1.0
            for name, part in self.by_part(units).items():
                found.setdefault(name, []).append(part[some, np.arange(some.size)])
        return {name: np.concatenate(part) for name, part in found.items()}

    @cached_property
    def _averages(self) -> Floats:
        return self.matmul(np.full(self.size, 1 / self.size))

    def scaled(self, factor: float) -> Self:
        return replace(self, factor=self.factor * factor)

    def gap_variances(self, relations: Estimate) -> Estimate:
        """Of the rows of A u, shape (m,), from what they are with w known."""
        seen = self.latents.projection @ self.excess
        half = scipy.linalg.solve_triangular(self.lower, seen.T, lower=True)
        return Estimate(relations.value + np.sum(half**2, axis=0), relations.error)

    def half_log_ratio(self, relations: Estimate) -> Estimate:
        """Half the log ratio of prior to posterior volume, shape (), from what it is with w known."""
        return Estimate(relations.value + np.sum(np.log(np.diagonal(self.lower))), relations.error)
