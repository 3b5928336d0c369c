"""The Gaussian posterior of all utilities by a sparse precision: a covariance that is never written out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.csgraph
from numpy.typing import ArrayLike, NDArray

from relpref.errors import DataError, InferenceError
from relpref.infer.large.covariance import PosteriorCovariance
from relpref.infer.spaces import Marginals
from relpref.linalg import block_cg
from relpref.linalg.cg import cores, in_threads
from relpref.linalg.factor import symmetric_lu

Floats = NDArray[np.float64]
Noise = tuple[Floats, Floats]  # draws from N(0, Q), shape (R·n, N), and from N(0, I), shape (m, N)

_DENSE = 3000  # unknowns up to which a dense factor is cheaper than iterations
_COLUMNS = 64  # that are solved for together
_CHUNK = 2**22  # numbers of an intermediate array at a time
# Columns of a block: wide enough to read the matrix seldom, narrow enough to stay in the cache; and what a thread of its own is worth.
_WIDEST, _NARROWEST = 32, 8
_MOST_STEPS = 5000
_RAISED, _ROUNDING = 1e-12, 1e-14
# ∫₀¹ f(λ) dλ with λ = x⁵ and twelve Gauss-Legendre nodes: log(1 + e) = ∫ e/(1 + λe) dλ comes out within 1e-4 up to e = 100 and
# within 0.02 up to 1e4.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_POSITIONS = ((1 + _NODES) / 2) ** 5
_LENGTHS = 2.5 * _WEIGHTS * ((1 + _NODES) / 2) ** 4
# Tolerances of the samples' solves, in sweeps and for the determinant: their own error is far larger.
_LOOSE, _LOOSER = 1e-5, 1e-3


@dataclass(frozen=True, eq=False)
class Latents:
    """One vector g_r ~ N(0, Q_r⁻¹) for each of R relations and w ~ N(0, I) for the attributes; answers see A u.

    The items' own parts are a relation without links: Q_r = I/scale_r. Vectors over all g_r have shape (R·n,) and lie one after
    the other.
    """

    size: int  # number of items n
    relations: Mapping[str, Any]  # SparsePrecision, Q_r = (Δ_r + s_r I)/scale_r, or Identity, I/scale_r
    factors: Mapping[str, Floats]  # shape (n, r) each; their columns together are Φ
    column: NDArray[np.integer]  # items that each row of A looks at, two different ones, shape (m, 2)
    entry: Floats  # with which weight, 0 where there is none, shape (m, 2)

    @classmethod
    def of(cls, parts: Mapping[str, Any], column: ArrayLike, entry: ArrayLike) -> "Latents":
        """Sort the parts of the prior; what has the scale 0 is left out, and DataError names what has no sparse form."""
        relations: dict[str, Any] = {}
        factors: dict[str, Floats] = {}
        size = next(iter(parts.values())).size
        for name, part in parts.items():
            if part.sparse_inverse:
                if part.scale > 0:
                    relations[name] = part
            elif part.factor is not None:
                factors[name] = part.factor
            else:
                raise DataError(
                    f"the part {name!r} of the prior is a {type(part).__name__}; many answers about many items need a sparse "
                    "precision or a low rank (relpref.linalg.nystrom makes one of a kernel)"
                )
        columns, entries = np.array(column, dtype=np.intp), np.array(entry, dtype=np.float64)
        same = columns[:, 0] == columns[:, 1]
        entries[same] = np.stack([entries[same].sum(axis=1), np.zeros(np.count_nonzero(same))], axis=1)
        columns[same, 1] = (columns[same, 0] + 1) % size
        return cls(size, relations, factors, columns, entries)

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
    def blocks(self) -> list[tuple[slice, Any, Any]]:
        """For each relation its rows, Q_r as a scipy CSR array, and the covariance itself."""
        places = [slice(place * self.size, (place + 1) * self.size) for place in range(self.copies)]
        parts = list(self.relations.values())
        return list(zip(places, [part.inverse() for part in parts], parts, strict=True))

    @cached_property
    def prior(self) -> Any:
        """The Q_r on a diagonal, scipy CSR, shape (R·n, R·n)."""
        if not self.relations:
            return scipy.sparse.csr_array((0, 0))
        precisions = [precision for _, precision, _ in self.blocks]
        return scipy.sparse.csr_array(scipy.sparse.block_diag(precisions, format="csr"))

    def precision(self, weights: Floats) -> Any:
        """S = Q + (11ᵀ) ⊗ AᵀTA, the posterior precision of the g_r given w, T = diag(weights); scipy CSR, shape (R·n, R·n)."""
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
        found = []
        for _, precision, _ in self.blocks:
            number, label = scipy.sparse.csgraph.connected_components(
                abs(precision) + answers, directed=False
            )
            entries = (np.ones(self.size), label, np.arange(self.size + 1))
            found.append(scipy.sparse.csr_array(entries, shape=(self.size, number)))
        return scipy.sparse.csr_array(scipy.sparse.block_diag(found, format="csr"))

    @cached_property
    def known_inverse(self) -> Floats:
        """One over the eigenvalues of `components`, by rows, shape (R·n, 1)."""
        return np.repeat([part.row_sum for part in self.relations.values()], self.size)[:, None]

    def spread(self, vectors: Floats) -> Floats:
        """The same (n, k) for every relation, shape (R·n, k)."""
        return np.tile(vectors, (self.copies, 1))

    def total(self, vectors: Floats) -> Floats:
        """Sum over relations of an (R·n, k) array, shape (n, k)."""
        return vectors.reshape(self.copies, self.size, vectors.shape[1]).sum(axis=0)

    def noise(self, generator: np.random.Generator, number: int) -> Noise:
        """So many draws; a Laplacian's root is its weighted incidence matrix, nothing is factorized."""
        drawn = np.empty((self.copies * self.size, number))
        for rows, precision, part in self.blocks:
            edges = scipy.sparse.triu(-precision, 1, format="coo")
            source, target = edges.coords
            across, within = np.sqrt(edges.data), np.sqrt(1 / part.row_sum)
            for column in range(number):
                flow = across * generator.standard_normal(len(across))
                ends = np.bincount(source, flow, self.size) - np.bincount(target, flow, self.size)
                drawn[rows, column] = ends + within * generator.standard_normal(self.size)
        return drawn, generator.standard_normal((len(self.column), number))


class Estimate(NamedTuple):
    """Numbers and their standard errors; 0 where they are exact."""

    value: Floats
    error: Floats


class Factorised:
    """Products with S⁻¹, S = Q + (11ᵀ) ⊗ AᵀTA and T = diag(weights), by a dense Cholesky factor of S."""

    def __init__(self, latents: Latents, weights: Floats) -> None:
        self._latents = latents
        self._lower = scipy.linalg.cholesky(
            latents.precision(weights).toarray(), lower=True, overwrite_a=True
        )
        self.deviations = np.zeros((len(weights), 0))

    def solve(self, rhs: Floats, purpose: str = "") -> Floats:
        return np.asarray(scipy.linalg.cho_solve((self._lower, True), rhs))

    @cached_property
    def variances(self) -> Estimate:
        """Squared rows of A V with V = (1ᵀ ⊗ I) L⁻ᵀ, so that items that are nearly the same do not cancel."""
        latents = self._latents
        spread = latents.spread(np.eye(latents.size))
        white = scipy.linalg.solve_triangular(self._lower, spread, lower=True, overwrite_b=True).T
        step = max(1, _CHUNK // max(1, white.shape[1]))
        found = np.zeros(len(latents.column))
        for start in range(0, len(found), step):
            rows = slice(start, start + step)
            found[rows] = np.sum((latents.projection[rows] @ white) ** 2, axis=1)
        return Estimate(found, np.zeros_like(found))

    def half_log_ratio(self) -> Estimate:
        prior = scipy.linalg.cholesky(self._latents.prior.toarray(), lower=True, overwrite_a=True)
        ratio = np.sum(np.log(np.diagonal(self._lower))) - np.sum(np.log(np.diagonal(prior)))
        return Estimate(ratio, np.zeros(()))


class Iterative:
    """Products with S⁻¹ by conjugate gradients.

    ``tol`` bounds √(rᵀM⁻¹r / bᵀM⁻¹b) of each column, M the preconditioner; ``last`` keeps solutions to start from, by purpose.
    """

    def __init__(
        self, latents: Latents, weights: Floats, tol: float, last: dict[str, Floats] | None = None
    ) -> None:
        self._latents, self._weights, self._tol = latents, weights, tol
        self._last = {} if last is None else last
        self._matrix = latents.precision(weights)
        diagonal = self._matrix.diagonal()
        self._inverse, self._factors = 1 / diagonal[:, None], []
        # A diagonal alone takes thousands of steps where ranges are long on a chain or a tree; their factors are sparse.
        for rows, block, part in latents.blocks:
            if part.is_treelike:
                # Without answers a small shift would leave a singular matrix.
                raised = diagonal[rows] * (1 + _RAISED) - block.diagonal()
                self._factors.append((rows, symmetric_lu(block + scipy.sparse.diags_array(raised))))

    def _precondition(self, block: Any, out: Any) -> Any:
        """M⁻¹ times a block: the diagonal of S, and in blocks with a sparse factor more of it."""
        np.multiply(block, self._inverse, out=out)
        for rows, factor in self._factors:
            out[rows] = factor.solve(np.ascontiguousarray(block[rows]))
        return out

    def solve(self, rhs: Floats, purpose: str = "", tol: float = 0.0) -> Floats:
        """S⁻¹ times an array; what is constant on components is divided by its eigenvalue."""
        rest, known = self._split(rhs)
        start, tol, found = self._last.get(purpose), max(tol, self._tol), np.empty_like(rhs)
        width = int(np.clip(-(-rhs.shape[1] // cores()), _NARROWEST, _WIDEST))

        def solve(part: slice) -> Any:
            return block_cg(
                lambda block, _: self._matrix @ block,
                np.array(rest[:, part]),
                precondition=self._precondition,
                start=None if start is None else start[:, part],
                tol=tol,
                max_steps=_MOST_STEPS,
            )

        parts = [slice(first, first + width) for first in range(0, rhs.shape[1], width)]
        for part, solved in in_threads(solve, parts):
            if not np.all(solved.residual <= tol):
                raise InferenceError(
                    f"conjugate gradients left a residual of {np.max(solved.residual):.2g} after {solved.steps} products with the "
                    f"posterior precision of {len(rhs)} unknowns, {tol:.2g} was asked for; shorter ranges, smaller "
                    "amplitudes, fewer links or a larger tolerance make that easier",
                    solved,
                )
            found[:, part] = solved.values
        found = self._split(found)[0]
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


class Sampled(Iterative):
    """By conjugate gradients and samples x = S⁻¹(Q^½ ε + Aᵀ T^½ ε'), whose covariance is S⁻¹ (Papandreou & Yuille 2010).

    Each gap's variance is Rao-Blackwellised: exact given everything but the two items, plus the variance over the samples of
    its mean given the others (Sidén et al. 2018, "Efficient covariance approximations for large sparse precision matrices"). The noise
    is the same in every sweep, so that there is a fixed point; ``loose`` is the tolerance of the samples' solves.
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
        self._noise, self._loose = noise, loose

    @cached_property
    def variances(self) -> Estimate:
        """Of the gaps, with standard errors."""
        local, drawn = self._conditional
        squared = np.mean(drawn**2, axis=1)
        # The conditional means are Gaussian: the variance of their square is twice its mean squared.
        return Estimate(local + squared, squared * np.sqrt(2 / drawn.shape[1]))

    @property
    def deviations(self) -> Floats:
        """Changes of the variances where each sample is left out in turn, shape (m, N)."""
        squared = self._conditional[1] ** 2
        return np.asarray((squared - np.mean(squared, axis=1, keepdims=True)) / squared.shape[1])

    def half_log_ratio(self) -> Estimate:
        """½ ∫₀¹ tr((Q + λAᵀTA)⁻¹ AᵀTA) dλ, the trace being the sum of the gaps' variances times their precisions."""
        each = np.zeros(self._noise[1].shape[1])
        for position, length in sorted(zip(_POSITIONS, _LENGTHS, strict=True), reverse=True):
            weights = position * self._weights
            part = Sampled(self._latents, weights, self._tol, self._last, self._noise, _LOOSER)
            local, drawn = part._conditional
            each += 0.5 * length * (self._weights @ local + self._weights @ drawn**2)
        return Estimate(np.asarray(np.mean(each)), np.asarray(np.std(each, ddof=1) / np.sqrt(len(each))))

    @cached_property
    def _conditional(self) -> tuple[Floats, Floats]:
        """Each gap given everything but its two items: its variance, shape (m,), and its mean at each sample, shape (m, N)."""
        latents, (prior, rows) = self._latents, self._noise
        pull = latents.projection.T @ (np.sqrt(self._weights)[:, None] * rows)
        rhs = prior + latents.spread(pull)
        drawn = self.solve(rhs, "samples", self._loose)
        # The block of S at the 2R unknowns of a pair, and the combination of them that is the gap.
        copies = latents.size * np.arange(latents.copies)[:, None]
        inside = (copies + latents.column[:, None, :]).reshape(len(rows), -1)
        at = np.broadcast_arrays(inside[:, :, None], inside[:, None, :])
        blocks = np.asarray(self._matrix[at[0].ravel(), at[1].ravel()]).reshape(at[0].shape)
        gap = np.tile(latents.entry, latents.copies)
        weights = np.linalg.solve(blocks, gap[:, :, None])[:, :, 0]
        # x_I − S_II⁻¹ (S x)_I is the mean of x_I given the others, and S x is the right-hand side.
        mean = latents.projection @ latents.total(drawn)
        for place in range(inside.shape[1]):
            mean -= weights[:, place, None] * rhs[inside[:, place]]
        return np.sum(gap * weights, axis=1), mean


@dataclass(frozen=True, eq=False)
class SparsePosterior(PosteriorCovariance):
    """Covariance of u = Σ_r g_r + Φ w under given sites; a covariance.

    The weights w are eliminated (Woodbury): with S⁻¹ the covariance of the g_r given w, and E = Φ − Σ_r (S⁻¹ (1 ⊗ AᵀTAΦ))_r,
    the covariance of w is (I + (AΦ)ᵀ T A E)⁻¹ and that of u is Σ_rr' (S⁻¹)_rr' + E cov(w) Eᵀ.
    """

    latents: Latents
    relations: Any  # Factorized or Iterative
    weights: Floats  # diagonal of T
    excess: Floats  # E, shape (n, r)
    lower: Floats  # Cholesky factor of the inverse of cov(w)

    @classmethod
    def at(
        cls,
        parts: Mapping[str, Any],
        column: ArrayLike,
        entry: ArrayLike,
        weights: ArrayLike,
        tol: float = 1e-8,
    ) -> Self:
        """The posterior under known sites, whose precisions times counts are the weights; other arguments as of `sparse_ep.fit`."""
        latents, weights = Latents.of(parts, column, entry), np.asarray(weights, np.float64)
        solves = Factorised(latents, weights) if latents.small else Iterative(latents, weights, tol)
        return cls.under(latents, solves, weights)

    def arrays(self) -> dict[str, Any]:
        return {"sparse/weights": self.weights}

    @classmethod
    def under(cls, latents: Latents, relations: Any, weights: Floats) -> Self:
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
        columns = given.reshape(self.size, -1)
        latents = self.latents
        weights = scipy.linalg.cho_solve((self.lower, True), self.excess.T @ columns)
        seen = self.weights[:, None] * (latents.seen @ weights)
        rest = latents.spread(columns - latents.projection.T @ seen)
        solved = self.relations.solve(rest, purpose).reshape(latents.copies, *columns.shape)
        found = dict(zip(latents.relations, solved, strict=True))
        ends = np.cumsum([factor.shape[1] for factor in latents.factors.values()])
        for (name, factor), some in zip(latents.factors.items(), np.split(weights, ends), strict=False):
            found[name] = factor @ some
        return {name: part.reshape(given.shape) for name, part in found.items()}

    def block(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        """Σ[rows][:, columns], shape (r, c): one solve for each of the fewer."""
        rows, columns = np.asarray(rows, dtype=np.intp), np.asarray(columns, dtype=np.intp)
        if rows.size < columns.size:
            return self.block(columns, rows).T
        parts = [self.matmul(units)[rows] for _, units in self._units(columns)]
        return np.hstack([np.empty((rows.size, 0)), *parts])

    def _units(self, columns: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], Floats]]:
        """Some columns of the identity at a time."""
        for first in range(0, columns.size, _COLUMNS):
            some = columns[first : first + _COLUMNS]
            units = np.zeros((self.size, some.size))
            units[some, np.arange(some.size)] = 1.0
            yield some, units

    def row_means(self, rows: ArrayLike) -> Floats:
        """Covariance of entries with the average of all, shape (r,)."""
        return self._averages[np.asarray(rows, dtype=np.intp)]

    @cached_property
    def _averages(self) -> Floats:
        return self.matmul(np.full(self.size, 1 / self.size))

    def shares(self, rows: ArrayLike) -> dict[str, Floats]:
        """Covariance of each part of some entries with their total, shape (r,): one solve for each."""
        found: dict[str, list[Floats]] = {}
        for some, units in self._units(np.asarray(rows, dtype=np.intp)):
            for name, part in self.by_part(units).items():
                found.setdefault(name, []).append(part[some, np.arange(some.size)])
        return {name: np.concatenate(part) for name, part in found.items()}

    def gap_variances(self) -> Estimate:
        """Of the rows of A u, shape (m,), from what they are with w known."""
        value, error = self.relations.variances
        seen = self.latents.projection @ self.excess
        half = scipy.linalg.solve_triangular(self.lower, seen.T, lower=True)
        return Estimate(value + np.sum(half**2, axis=0), error)

    def half_log_ratio(self) -> Estimate:
        """Half the log ratio of prior to posterior volume, shape ()."""
        value, error = self.relations.half_log_ratio()
        return Estimate(value + np.sum(np.log(np.diagonal(self.lower))), error)


@dataclass(frozen=True, eq=False)
class SparseSpace:
    """The algebra of `relpref.infer.sites` by a sparse posterior precision, on the host; a factor is a `SparsePosterior`."""

    jitter: ClassVar[float] = 0.0

    latents: Latents
    tol: float  # of every solve
    noise: Noise | None  # None for dense factors
    last: dict[str, Floats]  # solutions to start from

    def factorise(self, precision: Any, _: Any = None) -> SparsePosterior:
        weights = np.asarray(precision)
        if self.noise is None:
            return SparsePosterior.under(self.latents, Factorised(self.latents, weights), weights)
        solves = Sampled(self.latents, weights, self.tol, self.last, self.noise)
        return SparsePosterior.under(self.latents, solves, weights)

    def marginals(self, factor: SparsePosterior, shift: Any, _: Any = None) -> Marginals:
        """Without the determinant, which is needed once, at the end."""
        found: Any = Marginals
        return found(self.response(factor, shift), factor.gap_variances().value, np.zeros(()))

    def response(self, factor: SparsePosterior, shift: Any, projection: Any = None) -> Any:
        """Posterior covariance of the projections times a vector."""
        rows = self.latents.projection
        return rows @ np.asarray(sum(factor.by_part(rows.T @ shift, "mean").values()))

    def lasting(self, factor: SparsePosterior) -> SparsePosterior:
        """Without the random numbers and the solutions that only further sweeps would need."""
        if self.noise is None:
            return factor
        return replace(factor, relations=Iterative(self.latents, factor.weights, self.tol))
