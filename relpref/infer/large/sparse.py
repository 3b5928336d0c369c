"""The Gaussian posterior of all utilities by a sparse precision, without a dense covariance."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.csgraph
from numpy.typing import ArrayLike, NDArray

from relpref.data.arrays import Floats
from relpref.errors import DataError, InferenceError
from relpref.infer.arrow import Blocks, GroupedRows, Items
from relpref.infer.large.covariance import PosteriorCovariance
from relpref.infer.rows import SparseRows
from relpref.linalg import block_cg
from relpref.linalg.cg import cores, in_threads
from relpref.linalg.factor import symmetric_lu

Draws = tuple[Floats, Floats]  # from N(0, Q), shape (R·n, N), and from N(0, I), shape (m, N)

_DENSE = 3000  # unknowns up to which a dense factor is cheaper than iterations
_COLUMNS = 64  # that are solved for together
_CHUNK = 2**22  # numbers of an intermediate array at a time
# Columns of a block: wide enough to read the matrix seldom, narrow enough to stay in the cache; at
# least as many as are worth a thread.
_WIDEST, _NARROWEST = 32, 8
_MOST_STEPS = 5000
_RAISED, _ROUNDING = 1e-12, 1e-14
# ∫₀¹ f(λ) dλ with λ = x⁵ and twelve Gauss-Legendre nodes: log(1 + e) = ∫ e/(1 + λe) dλ comes out
# within 1e-4 up to e = 100 and within 0.02 up to 1e4.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_POSITIONS = ((1 + _NODES) / 2) ** 5
_LENGTHS = 2.5 * _WEIGHTS * ((1 + _NODES) / 2) ** 4
# Tolerances of the samples' solves, in sweeps and for the determinant: their own error is far
# larger.
_LOOSE, _LOOSER = 1e-5, 1e-3


@dataclass(frozen=True, eq=False)
class Latents:
    """Latent vectors of a prior with R relations and with attributes.

    They are g_r ~ N(0, Q_r⁻¹) for each relation and w ~ N(0, I) for the attributes, with the
    utilities u = Σ_r g_r + Φ w; answers are about A u. The items' own parts are a relation without
    links: Q_r = I/scale_r. Vectors over all g_r are concatenated, shape (R·n,).
    """

    size: int  # number of items n
    # SparsePrecision, Q_r = (Δ_r + s_r I)/scale_r, or Identity, I/scale_r
    relations: Mapping[str, Any]
    factors: Mapping[str, Floats]  # shape (n, r) each; their columns together are Φ
    rows: GroupedRows

    jitter: ClassVar[float] = 0.0

    @classmethod
    def of(cls, parts: Mapping[str, Any], rows: SparseRows, blocks: Blocks) -> "Latents":
        """Sort the parts of the prior, without those of scale 0.

        DataError names a part without a sparse form.
        """
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
                    f"the part {name!r} of the prior is a {type(part).__name__}; many answers "
                    "about many items need a sparse "
                    "precision or a low rank (relpref.linalg.nystrom makes one of a kernel)"
                )
        return cls(size, relations, factors, GroupedRows.by_blocks(rows, blocks))

    @property
    def copies(self) -> int:
        return len(self.relations)

    @property
    def small(self) -> bool:
        """Whether a dense factor of S is cheaper than solves by iteration."""
        return self.copies * self.size <= _DENSE

    @property
    def projection(self) -> Any:
        """A as a scipy CSR array, shape (m, n)."""
        return self.rows.matrix

    def response(self, factor: "SparsePosterior", shift: Floats) -> Floats:
        """Posterior covariance of the rows times a vector."""
        pulled = factor.by_part(self.projection.T @ shift, "mean")
        return np.asarray(self.projection @ sum(pulled.values()))

    @cached_property
    def factor(self) -> Floats:
        """Φ, shape (n, r)."""
        return np.hstack([np.zeros((self.size, 0)), *self.factors.values()])

    @cached_property
    def blocks(self) -> list[tuple[slice, Any, Any]]:
        """Rows of each relation, Q_r as a scipy CSR array, and the covariance itself."""
        places = [slice(place * self.size, (place + 1) * self.size) for place in range(self.copies)]
        parts = list(self.relations.values())
        return list(zip(places, [part.inverse() for part in parts], parts, strict=True))

    @cached_property
    def prior(self) -> Any:
        """Block-diagonal matrix of the Q_r, scipy CSR, shape (R·n, R·n)."""
        if not self.relations:
            return scipy.sparse.csr_array((0, 0))
        precisions = [precision for _, precision, _ in self.blocks]
        return scipy.sparse.csr_array(scipy.sparse.block_diag(precisions, format="csr"))

    def precision(self, root: "Root") -> Any:
        """Posterior precision of the g_r given w, S = Q + (11ᵀ) ⊗ AᵀMA, scipy CSR (R·n, R·n)."""
        gram = root.matrix.T @ root.matrix
        together = scipy.sparse.kron(np.ones((self.copies, self.copies)), gram, format="csr")
        return scipy.sparse.csr_array(self.prior + together)

    @cached_property
    def components(self) -> Any:
        """Eigenvectors of S for any weights, scipy CSR of zeros and ones, shape (R·n, c).

        A vector that is constant on a component of the relation and the answers together is in the
        null space of the relation's Laplacian and of every gap. None if a row of A is no gap.
        """
        if np.any(self.rows.entry.sum(axis=1) != 0):
            return None
        answers = abs(self.projection).T @ abs(self.projection)
        members = []
        for _, precision, _ in self.blocks:
            number, label = scipy.sparse.csgraph.connected_components(
                abs(precision) + answers, directed=False
            )
            entries = (np.ones(self.size), label, np.arange(self.size + 1))
            members.append(scipy.sparse.csr_array(entries, shape=(self.size, number)))
        return scipy.sparse.csr_array(scipy.sparse.block_diag(members, format="csr"))

    @cached_property
    def inverse_eigenvalues(self) -> Floats:
        """Inverse eigenvalues of `components` by row, shape (R·n, 1)."""
        return np.repeat([part.row_sum for part in self.relations.values()], self.size)[:, None]

    def spread(self, vectors: Floats) -> Floats:
        """Repeat an (n, k) array for every relation, shape (R·n, k)."""
        return np.tile(vectors, (self.copies, 1))

    def total(self, vectors: Floats) -> Floats:
        """Sum over relations of an (R·n, k) array, shape (n, k)."""
        return vectors.reshape(self.copies, self.size, vectors.shape[1]).sum(axis=0)

    def noise(self, generator: np.random.Generator, number: int) -> Draws:
        """Draw noise; a Laplacian has its weighted incidence matrix as a root, not a factor."""
        drawn = np.empty((self.copies * self.size, number))
        for rows, precision, part in self.blocks:
            edges = scipy.sparse.triu(-precision, 1, format="coo")
            source, target = edges.coords
            across, within = np.sqrt(edges.data), np.sqrt(1 / part.row_sum)
            for column in range(number):
                flow = across * generator.standard_normal(len(across))
                ends = np.bincount(source, flow, self.size) - np.bincount(target, flow, self.size)
                drawn[rows, column] = ends + within * generator.standard_normal(self.size)
        return drawn, generator.standard_normal((self.projection.shape[0], number))


class Variances(NamedTuple):
    """Variances of rows, standard errors, and deviations of each sample's estimate, (..., N)."""

    value: Floats
    error: Floats
    deviations: Floats


def rows_of(looks: Items, size: int) -> Any:
    """Matrix of p rows for each of g groups, a scipy CSR array of shape (g·p, n)."""
    columns, entries = looks
    number = entries.shape[0] * entries.shape[1]
    ends = np.arange(0, entries.size + 1, entries.shape[2])
    places = np.broadcast_to(columns[:, None, :], entries.shape).ravel()
    return scipy.sparse.csr_array((entries.ravel(), places, ends), shape=(number, size))


@dataclass(frozen=True, eq=False)
class Root:
    """Root LᵀA with LLᵀ = M, the precision of answers in blocks of rows that share noise."""

    looks: tuple[Items, ...]
    size: int  # number of items n

    @cached_property
    def matrix(self) -> Any:
        """LᵀA as a scipy CSR array, shape (m, n)."""
        return scipy.sparse.vstack(
            [rows_of(looks, self.size) for looks in self.looks], format="csr"
        )

    def scaled(self, factor: float) -> "Root":
        """Root of a multiple of M."""
        half = np.sqrt(factor)
        return Root(
            tuple(Items(columns, half * entries) for columns, entries in self.looks), self.size
        )


class Factorised:
    """Products with S⁻¹, S = Q + (11ᵀ) ⊗ AᵀMA, by a dense Cholesky factor of S."""

    def __init__(self, latents: Latents, root: Root) -> None:
        self._latents = latents
        self._lower = scipy.linalg.cholesky(
            latents.precision(root).toarray(), lower=True, overwrite_a=True
        )

    def solve(self, rhs: Floats, purpose: str = "") -> Floats:
        return np.asarray(scipy.linalg.cho_solve((self._lower, True), rhs))

    @cached_property
    def _white(self) -> Floats:
        """V = (1ᵀ ⊗ I) L⁻ᵀ, L the factor of S."""
        spread = self._latents.spread(np.eye(self._latents.size))
        return np.asarray(
            scipy.linalg.solve_triangular(self._lower, spread, lower=True, overwrite_b=True).T
        )

    def conditional(self, looks: Items) -> tuple[Floats, Floats]:
        """Exact variances of the rows, and no samples; see `Iterative.conditional`.

        They are squared rows of A V, in which nearly equal items do not cancel.
        """
        rows = rows_of(looks, self._latents.size)
        step = max(1, _CHUNK // max(1, self._white.shape[1]))
        variances = np.zeros(rows.shape[0])
        for start in range(0, len(variances), step):
            some = slice(start, start + step)
            variances[some] = np.sum((rows[some] @ self._white) ** 2, axis=1)
        shape = looks.entries.shape[:2]
        return variances.reshape(shape), np.zeros((*shape, 0))

    def half_log_ratio(self) -> tuple[Any, Any]:
        """Half the log ratio of volumes, and 0, its standard error."""
        prior = scipy.linalg.cholesky(self._latents.prior.toarray(), lower=True, overwrite_a=True)
        ratio = np.sum(np.log(np.diagonal(self._lower))) - np.sum(np.log(np.diagonal(prior)))
        return ratio, 0.0


class Iterative:
    """Products with S⁻¹ by conjugate gradients, and variances by samples if there is ``noise``.

    ``tol`` bounds √(rᵀM⁻¹r / bᵀM⁻¹b) of each column, M the preconditioner; ``last`` keeps solutions
    to start from, by purpose.

    Samples x = S⁻¹(Q^½ ε + AᵀL ε') have the covariance S⁻¹ (Papandreou & Yuille 2010). Each row's
    variance is Rao-Blackwellised: exact given everything but the items of its group, plus the
    variance over the samples of its mean given the others (Sidén et al. 2018, "Efficient covariance
    approximations for large sparse precision matrices"). The noise is the same in every sweep, so
    that a fixed point exists; ``loose`` is the tolerance of the samples' solves.
    """

    def __init__(
        self,
        latents: Latents,
        root: Root,
        tol: float,
        last: dict[str, Floats] | None = None,
        noise: Draws | None = None,
        loose: float = _LOOSE,
    ) -> None:
        self._latents, self._root, self._tol = latents, root, tol
        self._noise, self._loose = noise, loose
        self._last = {} if last is None else last
        self._matrix = latents.precision(root)
        diagonal = self._matrix.diagonal()
        self._inverse, self._factors = 1 / diagonal[:, None], []
        # A diagonal alone takes thousands of steps where ranges are long on a chain or a tree;
        # their factors are sparse.
        for rows, block, part in latents.blocks:
            if part.is_treelike:
                # Without answers a small shift would leave a singular matrix.
                raised = diagonal[rows] * (1 + _RAISED) - block.diagonal()
                self._factors.append((rows, symmetric_lu(block + scipy.sparse.diags_array(raised))))

    def _precondition(self, block: Any, out: Any) -> Any:
        """Multiply a block by M⁻¹: sparse factors for trees and chains, else the diagonal of S."""
        np.multiply(block, self._inverse, out=out)
        for rows, factor in self._factors:
            out[rows] = factor.solve(np.ascontiguousarray(block[rows]))
        return out

    def solve(self, rhs: Floats, purpose: str = "", tol: float = 0.0) -> Floats:
        """S⁻¹ times an array; its part constant on components is divided by the eigenvalue."""
        rest, constant = self._split(rhs)
        start, tol, solution = self._last.get(purpose), max(tol, self._tol), np.empty_like(rhs)
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
                    f"conjugate gradients left a residual of {np.max(solved.residual):.2g} after "
                    f"{solved.steps} products with the posterior precision of {len(rhs)} unknowns, "
                    f"{tol:.2g} was asked for; shorter ranges, smaller amplitudes, fewer links or "
                    "a larger tolerance make that easier",
                    solved,
                )
            solution[:, part] = solved.values
        solution = self._split(solution)[0]
        if purpose:
            self._last[purpose] = solution
        return solution + constant * self._latents.inverse_eigenvalues

    def _split(self, vectors: Floats) -> tuple[Floats, Floats]:
        """Split vectors into a rest and their part that is constant on components."""
        members = self._latents.components
        if members is None:
            return vectors, np.zeros((1, 1))
        constant = members @ ((members.T @ vectors) / members.sum(axis=0)[:, None])
        rest = vectors - constant
        # A rest of mere rounding errors is 0, so that no solve amplifies it.
        rounding = _ROUNDING * np.max(np.abs(vectors), axis=0, initial=0.0)
        return rest * (np.max(np.abs(rest), axis=0, initial=0.0) > rounding), constant

    def half_log_ratio(self) -> tuple[Any, Any]:
        """Half the log ratio of volumes, ½ ∫₀¹ tr((Q + λAᵀMA)⁻¹ AᵀMA) dλ, and its standard error.

        The trace is the sum of the variances of the rows of LᵀA.
        """
        assert self._noise is not None
        each = np.zeros(self._noise[1].shape[1])
        for position, length in sorted(zip(_POSITIONS, _LENGTHS, strict=True), reverse=True):
            root = self._root.scaled(position)
            part = Iterative(self._latents, root, self._tol, self._last, self._noise, _LOOSER)
            for looks in self._root.looks:
                local, drawn = part.conditional(looks)
                each += 0.5 * length * (np.sum(local) + np.sum(drawn**2, axis=(0, 1)))
        return np.mean(each), np.std(each, ddof=1) / np.sqrt(len(each))

    @cached_property
    def _drawn(self) -> tuple[Floats, Floats]:
        """The right-hand sides and the samples, shape (R·n, N) each."""
        assert self._noise is not None
        prior, rows = self._noise
        rhs = prior + self._latents.spread(self._root.matrix.T @ rows)
        return rhs, self.solve(rhs, "samples", self._loose)

    def conditional(self, looks: Items) -> tuple[Floats, Floats]:
        """Variances (g, p) and sampled means (g, p, N) of rows given items outside the group."""
        latents, (columns, entries), (rhs, drawn) = self._latents, looks, self._drawn
        # The block of S at the Rk unknowns of a group, and the combinations of them that are its
        # rows.
        copies = latents.size * np.arange(latents.copies)[:, None]
        inside = (copies + columns[:, None, :]).reshape(len(columns), -1)
        at = np.broadcast_arrays(inside[:, :, None], inside[:, None, :])
        blocks = np.asarray(self._matrix[at[0].ravel(), at[1].ravel()]).reshape(at[0].shape)
        # Smaller groups have places that no row looks at, which are left out.
        used = np.tile((entries != 0).any(axis=1), latents.copies)
        blocks = np.where(used[:, :, None] & used[:, None, :], blocks, np.eye(used.shape[1]))
        rows = np.tile(entries, latents.copies)
        weights = np.linalg.solve(blocks, rows.swapaxes(1, 2))
        # x_I − S_II⁻¹ (S x)_I is the mean of x_I given the others, and S x is the right-hand side.
        mean = rows_of(looks, latents.size) @ latents.total(drawn)
        mean = mean.reshape(*entries.shape[:2], -1)
        for place in range(inside.shape[1]):
            mean -= weights[:, place, :, None] * rhs[inside[:, place], None, :]
        return np.sum(rows * weights.swapaxes(1, 2), axis=2), mean


@dataclass(frozen=True, eq=False)
class SparsePosterior(PosteriorCovariance):
    """Covariance of u = Σ_r g_r + Φ w under given sites.

    The weights w are eliminated (Woodbury): with S⁻¹ the covariance of the g_r given w, and E = Φ −
    Σ_r (S⁻¹ (1 ⊗ AᵀMAΦ))_r, the covariance of w is (I + (AΦ)ᵀ M A E)⁻¹ and that of u is Σ_rr'
    (S⁻¹)_rr' + E cov(w) Eᵀ.
    """

    latents: Latents
    relations: Any  # Factorized or Iterative
    half: Root
    weights: Floats  # precisions of the sites, of which M is made
    excess: Floats  # E, shape (n, r)
    lower: Floats  # Cholesky factor of the inverse of cov(w)
    # M by its blocks, and the share of shared noise in half the log ratio of volumes.
    precision: Any = None
    log_determinant: float = 0.0

    def arrays(self) -> dict[str, Any]:
        return {"sparse/weights": self.weights}

    @classmethod
    def under(cls, latents: Latents, relations: Any, root: Root, weights: Floats) -> Self:
        if not latents.factors:
            return cls(latents, relations, root, weights, latents.factor, np.eye(0))
        seen = root.matrix @ latents.factor  # LᵀAΦ
        pulled = relations.solve(latents.spread(root.matrix.T @ seen), "weights")
        excess = latents.factor - latents.total(pulled)
        inner = seen.T @ (root.matrix @ excess)
        lower = scipy.linalg.cholesky(np.eye(len(inner)) + 0.5 * (inner + inner.T), lower=True)
        return cls(latents, relations, root, weights, excess, lower)

    @property
    def size(self) -> int:
        return self.latents.size

    def matmul(self, vectors: ArrayLike) -> Floats:
        """Σ times an array, shape (n,) or (n, k): one solve for each column."""
        return np.asarray(sum(self.by_part(vectors).values()))

    def by_part(self, vectors: ArrayLike, purpose: str = "") -> dict[str, Floats]:
        """Cov(part, u) times an array of shape (n,) or (n, k), for each part of the prior.

        They add up to Σ times the array.
        """
        given = np.asarray(vectors, dtype=np.float64)
        columns = given.reshape(self.size, -1)
        latents = self.latents
        weights = scipy.linalg.cho_solve((self.lower, True), self.excess.T @ columns)
        seen = self.half.matrix @ (latents.factor @ weights)
        rest = latents.spread(columns - self.half.matrix.T @ seen)
        solved = self.relations.solve(rest, purpose).reshape(latents.copies, *columns.shape)
        parts = dict(zip(latents.relations, solved, strict=True))
        ends = np.cumsum([factor.shape[1] for factor in latents.factors.values()])
        for (name, factor), some in zip(
            latents.factors.items(), np.split(weights, ends), strict=False
        ):
            parts[name] = factor @ some
        return {name: part.reshape(given.shape) for name, part in parts.items()}

    def block(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        """Σ[rows][:, columns], shape (r, c): one solve for each of the fewer."""
        rows, columns = np.asarray(rows, dtype=np.intp), np.asarray(columns, dtype=np.intp)
        if rows.size < columns.size:
            return self.block(columns, rows).T
        parts = [self.matmul(units)[rows] for _, units in self._units(columns)]
        return np.hstack([np.empty((rows.size, 0)), *parts])

    def _units(self, columns: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], Floats]]:
        """Iterate over blocks of columns of the identity, with their positions."""
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
        """Covariance of each part of some entries with their total, shape (r,), by a solve each."""
        shares: dict[str, list[Floats]] = {}
        for some, units in self._units(np.asarray(rows, dtype=np.intp)):
            for name, part in self.by_part(units).items():
                shares.setdefault(name, []).append(part[some, np.arange(some.size)])
        return {name: np.concatenate(part) for name, part in shares.items()}

    def variances_of(self, looks: Items) -> Variances:
        """Variances of rows that look at a few entries each, shape (g, p), from those given w."""
        local, drawn = self.relations.conditional(looks)
        half = scipy.linalg.solve_triangular(
            self.lower, (rows_of(looks, self.size) @ self.excess).T, lower=True
        )
        squared, number = drawn**2, max(drawn.shape[2], 1)
        mean = np.sum(squared, axis=2) / number
        value = local + mean + np.sum(half**2, axis=0).reshape(local.shape)
        # The conditional means are Gaussian: the variance of their square is twice its mean
        # squared.
        return Variances(value, mean * np.sqrt(2 / number), (squared - mean[:, :, None]) / number)

    def half_log_ratio(self) -> tuple[Any, Any]:
        """Half the log ratio of prior to posterior volume, and its standard error."""
        value, error = self.relations.half_log_ratio()
        return value + np.sum(np.log(np.diagonal(self.lower))) + self.log_determinant, error
