"""The arrow: Gaussian noise shared by the rows of a group, integrated out group by group.

The rows of a list are such a group.

Rows are g = A u + w, where w ~ N(0, C) is independent of the latent vector u, and C is
block-diagonal with a block for each group. Under sites of precision T let M = (T⁻¹ + C)⁻¹, which is
block-diagonal, too. Then u has the precision K⁻¹ + AᵀMA, so the formulas of the latent space hold
with M in place of T, and

    h = (I − MC) ν,  u has mean Σ Aᵀh,  rows have mean A·mean + C (h − M A·mean) and
    covariance C − CMC + (I − CM) A Σ Aᵀ (I − MC),

Σ being the posterior covariance of u. Half the log determinant is that of the latent space plus
those of I + T^½ C T^½.

The noise of a group is F ε with independent standard normal ε, so C = FFᵀ. If a group has fewer
entries of ε than rows, as for a question with few items and many answers, the matrix
M = T − TF(I + FᵀTF)⁻¹FᵀT is not formed: the cost grows as rows × values², not as rows³.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee

from relpref.errors import UnsupportedProgramError
from relpref.infer.rows import SparseRows
from relpref.infer.spaces import Factorised, LatentSpace, Marginals
from relpref.linalg import require_memory
from relpref.linalg.arrays import Array, namespace


class Kind(NamedTuple):
    """One kind of noise: a row's noise is a sum of at most two independent values.

    The values are numbered by columns and belong to the row's group.
    """

    group: NDArray[np.int64]  # −1 where there is no such noise, shape (m,)
    column: NDArray[np.int64]  # shape (m, 2)
    entry: NDArray[np.float64]  # 0 where there is none, shape (m, 2)

    def cut(self, rows: int) -> "Kind":
        """The noise of the first rows."""
        return Kind(self.group[:rows], self.column[:rows], self.entry[:rows])

    @classmethod
    def of_gaps(cls, group: Any, first: Any, second: Any) -> "Kind":
        """The kind with the groups and items of a `relpref.likelihoods.SharedNoise`."""
        column = np.stack([first, second], axis=1)
        return cls(group, column, np.broadcast_to([1.0, -1.0], column.shape))

    @classmethod
    def of_values(cls, column: Any, entry: Any) -> "Kind":
        """The kind whose groups are rows that are connected by common values."""
        present = entry != 0
        size = int(column.max(initial=0)) + 1
        first = column[np.arange(len(column)), np.argmax(present, axis=1)]
        ends = np.where(present, column, first[:, None]).T
        graph = scipy.sparse.coo_array((np.ones(len(column)), tuple(ends)), shape=(size, size))
        group = connected_components(graph, directed=False)[1][ends[0]]
        return cls(np.where(present.any(axis=1), group, -1), column, entry)


_MATRICES = 8  # number of matrices of a group's rows that are needed at once
_ROUNDING = 1e-14  # eigenvalues up to this share of the largest count as zero
_WIDTHS = 8  # different sizes of groups that are kept apart; if there are more, they are rounded up


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Groups:
    """Groups of p rows each, and the loadings of their noise."""

    # Shape (g, p); where a group has fewer than p rows, the number of all rows takes their place.
    rows: Array
    # For each kind of noise the rows' loadings on independent values of sd 1, shape (g, p, r).
    shared: tuple[Array, ...]
    # Whether only neighbors share noise, as in an order: then covariances are tridiagonal.
    chain: bool = field(default=False, metadata={"static": True})

    def factor(self, sds: Sequence[Array]) -> Array:
        """F, given the rows' sds of noise of each kind, shape (g, p, sum of r)."""
        kinds = [sd[:, :, None] * values for sd, values in zip(sds, self.shared, strict=True)]
        return namespace(*kinds).concatenate(kinds, axis=2)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Blocks:
    """Rows by the noise that they share.

    Rows without such noise are ``alone``; the others are in groups, which are put
    together by size.
    """

    alone: Array  # shape (a,)
    groups: tuple[Groups, ...]
    place: Array  # position of each row in the rows alone followed by the groups', shape (m,)

    @classmethod
    def of(cls, kinds: Sequence[Kind]) -> "Blocks":
        """The blocks of several kinds of noise; a group inside one of another kind joins it.

        Raises
        ------
        UnsupportedProgramError
            If groups of two kinds cross.
        """
        group = _joined([kind.group for kind in kinds])
        number = len(group)
        alone = np.flatnonzero(group < 0)
        order = np.lexsort([_along_chains(kinds), group])[len(alone) :]
        _, starts, sizes = np.unique(group[order], return_index=True, return_counts=True)
        widths = np.unique(sizes)
        if len(widths) > _WIDTHS:  # 1, 2, 3, 4, 6, 8, 12, ...
            steps = np.unique([int(2**power * part) for power in range(31) for part in (1, 1.5)])
            widths = np.unique(steps[np.searchsorted(steps, widths)])
        groups, flat = [], [alone]
        for width, least in zip(widths, [0, *widths], strict=False):
            chosen = np.flatnonzero((sizes > least) & (sizes <= width))
            place = starts[chosen][:, None] + np.arange(width)
            present = np.arange(width) < sizes[chosen][:, None]
            rows = np.where(present, order[np.minimum(place, len(order) - 1)], number)
            shared = tuple(_shared(kind, rows) for kind in kinds)
            groups.append(Groups(rows, shared, all(map(_is_chain, shared))))
            flat.append(rows.ravel())
        where = np.zeros(number + 1, dtype=np.int64)
        joined = np.concatenate(flat)
        where[joined] = np.arange(len(joined))
        return cls(alone, tuple(groups), where[:number])

    def cut(self, values: Array) -> list[Array]:
        """Values of rows, shape (m,), by groups; 0 in place of missing rows."""
        xp = namespace(values)
        padded = xp.concatenate([values, xp.zeros(1, values.dtype)])
        return [padded[group.rows] for group in self.groups]

    def joined(self, alone: Array, values: Sequence[Array]) -> Array:
        """Values of rows, shape (m,), from those alone and those of groups."""
        xp = namespace(alone)
        return xp.concatenate([alone, *(value.ravel() for value in values)])[self.place]

    def factors(self, sds: Sequence[Array]) -> tuple[Array, ...]:
        """The blocks of F, given the sd of each row's noise of each kind."""
        each = [self.cut(sd) for sd in sds]
        return tuple(group.factor([sd[at] for sd in each]) for at, group in enumerate(self.groups))

    def middle(self, precision: Array, factors: Sequence[Array]) -> "tuple[Weights, Array]":
        """M, and half the log determinant of I + TC."""
        xp = namespace(precision, *factors)
        each = zip(self.cut(precision), factors, self.groups, strict=True)
        middles = [middle_of(part, factor, group.chain) for part, factor, group in each]
        total = 0.5 * sum((xp.sum(middle.log_determinant) for middle in middles), xp.zeros(()))
        blocks = tuple(middle.weights for middle in middles), tuple(m.pulled for m in middles)
        return Weights(precision[self.alone], *blocks), total

    def matrix(self, factors: Sequence[Array]) -> Array:
        """C, shape (m, m)."""
        xp, size = namespace(self.place, *factors), len(self.place)
        matrix = xp.zeros((size + 1, size + 1))
        for group, factor in zip(self.groups, factors, strict=True):
            rows, columns = group.rows[:, :, None], group.rows[:, None, :]
            covariance = factor @ factor.swapaxes(1, 2)
            if xp is np:
                matrix[rows, columns] = covariance
            else:
                matrix = matrix.at[rows, columns].set(covariance)
        return matrix[:size, :size]


def _joined(groups: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Each row's group once groups that share rows are joined; −1 for rows in none."""
    joined = groups[0].astype(np.int64)
    for other in groups[1:]:
        rows = np.flatnonzero((joined >= 0) & (other >= 0))
        names = np.stack([joined[rows], other[rows]])
        pairs = np.unique(names, axis=1)
        if all(len(np.unique(end)) < pairs.shape[1] for end in pairs):
            raise UnsupportedProgramError(
                "the groups of answers that share noise cross: rows of one group of the first kind "
                "are in several of the second, and the other way round; leave one of the two out, "
                "make groups of one kind parts of the other's, or, of a site that is integrated, "
                "leave 'integrated' out of its infer, so that it is one more latent site"
            )
        # Rows, and then the groups of either kind, are joined where a row is in a group.
        size, edges = len(joined), []
        start = size
        for group in (joined, other):
            inside = np.flatnonzero(group >= 0)
            names, position = np.unique(group[inside], return_inverse=True)
            edges.append((inside, start + position))
            start += len(names)
        ends = np.concatenate(edges, axis=1)
        graph = scipy.sparse.coo_array((np.ones(ends.shape[1]), tuple(ends)), shape=(start, start))
        label = connected_components(graph, directed=False)[1][:size]
        joined = np.where((joined >= 0) | (other >= 0), label, -1)
    return joined


def _shared(kind: Kind, rows: NDArray[Any]) -> NDArray[np.float64]:
    """Loadings of the rows of groups on independent values of sd 1, shape (g, p, r).

    Their number r is the largest rank of a group's covariance.
    """
    group, column, entry = (
        np.append(part, np.full_like(part[:1], -1), axis=0)[rows] for part in kind
    )
    group = group[:, :, None]
    value = (column.max(initial=0) + 1) * group + column  # numbers the columns of each group
    loadings = Items.of(value, np.where(group >= 0, entry, 0.0)).entries
    sizes, basis = np.linalg.eigh(loadings.swapaxes(1, 2) @ loadings)
    rank = int(np.sum(sizes > _ROUNDING * sizes[:, -1:], axis=1).max(initial=0))
    return loadings @ basis[:, :, basis.shape[2] - rank :]


def _along_chains(kinds: Sequence[Kind]) -> NDArray[np.int64]:
    """Places of rows at which those with common noise are neighbors, if they form chains.

    Where a value is common to more than two rows, they stay in their order.
    """
    rows, values = [], []
    for kind_number, (group, column, entry) in enumerate(kinds):
        row, side = np.nonzero((entry != 0) & (group >= 0)[:, None])
        rows.append(row)
        values.append(np.stack([np.full_like(row, kind_number), group[row], column[row, side]]))
    places = np.arange(len(kinds[0].group))
    _, value, counts = np.unique(
        np.concatenate(values, axis=1), axis=1, return_inverse=True, return_counts=True
    )
    if counts.max(initial=0) <= 2:
        joined = np.ones(value.size), (np.concatenate(rows), value.ravel())
        shares = scipy.sparse.csr_array(joined, shape=(len(places), len(counts)))
        chain = reverse_cuthill_mckee(shares @ shares.T, symmetric_mode=True)
        places[chain] = np.arange(len(places))
    return places


def _is_chain(loadings: NDArray[np.float64]) -> bool:
    """Whether only neighboring rows of the groups have common noise."""
    covariance = loadings @ loadings.swapaxes(1, 2)
    apart = np.triu(np.abs(covariance), 2)
    return bool(apart.max(initial=0.0) <= 100 * _ROUNDING * covariance.max(initial=0.0))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Thin:
    """diag(d) + FNFᵀ for each group, without forming the matrix."""

    diagonal: Array  # shape (g, p)
    factor: Array  # shape (g, p, r)
    inner: Array  # shape (g, r, r)

    def __matmul__(self, matrices: Array) -> Array:
        seen = self.inner @ (self.factor.swapaxes(1, 2) @ matrices)
        return self.diagonal[:, :, None] * matrices + self.factor @ seen

    def any(self) -> bool:
        """Whether any precision d is not 0; for NumPy's arrays."""
        return bool(self.diagonal.any())


class Weights(NamedTuple):
    """The blocks of M, in place of a vector of precisions."""

    alone: Array  # shape (a,)
    groups: tuple[Array | Thin, ...]  # shape (g, p, p) each
    pulled: tuple[Array, ...] = ()  # MF, where groups have noise, shape (g, p, r) each

    def any(self) -> bool:
        """Whether any weight is not 0; for NumPy's arrays."""
        return any(bool(part.any()) for part in (self.alone, *self.groups))


class Items(NamedTuple):
    """The latents, or values of noise, that groups of rows depend on, with their coefficients."""

    columns: Array  # shape (g, k)
    entries: Array  # shape (g, p, k)

    @classmethod
    def of(cls, column: NDArray[Any], entry: NDArray[Any]) -> "Items":
        """The items of rows given by columns and entries, shape (g, p, c) each.

        An entry of 0 marks a column that is not used.
        """
        each = np.where(entry != 0, column, -1).reshape(len(column), -1)
        ordered = np.sort(each, axis=1)
        new = np.concatenate([ordered[:, :1] >= 0, np.diff(ordered, axis=1) > 0], axis=1)
        size = int(new.sum(axis=1).max(initial=1))
        number, rows = column.shape[:2]
        require_memory(
            8.0 * _MATRICES * number * rows * size, f"noise that up to {rows} answers share"
        )
        columns = np.full((number, size), -1)
        columns[np.nonzero(new)[0], (np.cumsum(new, axis=1) - 1)[new]] = ordered[new]
        seen = column[:, :, :, None] == columns[:, None, None, :]
        return cls(np.maximum(columns, 0), np.sum(entry[..., None] * seen, axis=2))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GroupedRows(SparseRows):
    """A projection whose weights are blocks, with M for T."""

    alone: SparseRows
    items: tuple[Items, ...]

    @classmethod
    def by_blocks(cls, rows: SparseRows, blocks: Blocks) -> "GroupedRows":
        """The grouped rows of a projection; for NumPy's arrays."""
        column, entry = np.asarray(rows.column), np.asarray(rows.entry)
        alone = SparseRows(column[blocks.alone], entry[blocks.alone], rows.size)
        items = []
        for group in blocks.groups:
            present = group.rows < len(column)
            at = np.where(present, group.rows, 0)
            items.append(Items.of(column[at], np.where(present[:, :, None], entry[at], 0.0)))
        return cls(column, entry, rows.size, alone, tuple(items))

    def add_gram(self, weights: Any, matrix: Any) -> None:
        """Add AᵀMA to an (n, n) array of NumPy."""
        matrix += self.gram(weights)

    def gram(self, weights: Any) -> Array:
        """AᵀMA, shape (n, n)."""
        size, gram = self.size.shape[0], self.alone.gram(weights.alone)
        for (columns, entries), block in zip(self.items, weights.groups, strict=True):
            seen = entries.swapaxes(1, 2) @ (block @ entries)
            if namespace(seen, columns) is np:
                places = size * columns[:, :, None] + columns[:, None, :]
                gram += np.bincount(places.ravel(), seen.ravel(), size**2).reshape(size, size)
            else:
                gram = gram.at[columns[:, :, None], columns[:, None, :]].add(seen)
        return gram

    def times_gram(self, weights: Any, matrix: Array) -> Array:
        """AᵀMA times an (n, k) array."""
        return self.gram(weights) @ matrix


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Arrow:
    """The noise that rows of a program share, and the latents that the rows depend on."""

    kinds: tuple[Kind, ...]
    blocks: Blocks
    rows: GroupedRows | None  # None if the projection is not a `SparseRows`

    @classmethod
    def of(cls, kinds: Sequence[Kind], rows: SparseRows | None) -> "Arrow":
        """The arrow of kinds of noise; for NumPy's arrays, with the errors of `Blocks.of`."""
        blocks = Blocks.of(kinds)
        return cls(
            tuple(kinds), blocks, None if rows is None else GroupedRows.by_blocks(rows, blocks)
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ArrowSpace:
    """A latent space with noise that rows share."""

    latent: ClassVar[bool] = True

    inner: LatentSpace  # with rows of `GroupedRows`
    blocks: Blocks
    factors: tuple[Array, ...]  # the blocks of F, where C = FFᵀ

    @property
    def jitter(self) -> Array:
        return self.inner.jitter

    @property
    def rows(self) -> GroupedRows:
        rows: Any = self.inner.rows
        return rows

    def factorise(self, precision: Array) -> Factorised:
        """Factorize the latent space with M."""
        weights: Any
        weights, total = self.blocks.middle(precision, self.factors)
        factor = self.inner.factorise(weights)
        return factor._replace(precision=weights, log_determinant=factor.log_determinant + total)

    def _pulled(self, factor: Factorised, vector: Array) -> Array:
        """(I − MC) times a vector."""
        weights: Any = factor.precision
        each = zip(self.blocks.cut(vector), weights.pulled, self.factors, strict=True)
        return self.blocks.joined(
            vector[self.blocks.alone],
            [part - _times(pulled, _seen(values, part)) for part, pulled, values in each],
        )

    def response(self, factor: Factorised, shift: Array) -> Array:
        """Posterior covariance of the rows times a vector.

        It is A u + C (h − M A u) with u = Σ Aᵀh.
        """
        weights: Any = factor.precision
        pull = self._pulled(factor, shift)
        seen = self.inner.response(factor, pull)
        each = zip(
            self.blocks.cut(pull), self.blocks.cut(seen), weights.pulled, self.factors, strict=True
        )
        noise = [
            _times(values, _seen(values, part) - _seen(pulled, mean))
            for part, mean, pulled, values in each
        ]
        return seen + self.blocks.joined(0.0 * seen[self.blocks.alone], noise)

    def marginals(self, factor: Factorised, shift: Array) -> Marginals:
        """Means and variances of the rows."""
        covariance, variances = self.covariance(factor), []
        for (columns, left), noise in self._left(factor.precision):
            prior = covariance[columns[:, :, None], columns[:, None, :]]
            variances.append(((left @ prior) * left).sum(axis=2) + noise)
        variance = self.blocks.joined(self.rows.alone.variances(factor.white), variances)
        return Marginals(self.response(factor, shift), variance, factor.log_determinant)

    def _left(self, weights: Any) -> "Iterator[tuple[Items, Array]]":
        """For groups of each size (I − CM) A and the diagonal of C − CMC, shape (g, p)."""
        for items, pulled, values in zip(
            self.rows.items, weights.pulled, self.factors, strict=True
        ):
            back = pulled.swapaxes(1, 2)
            rest = values - values @ (back @ values)  # C − CMC = (F − FFᵀMF)Fᵀ
            left = items.entries - values @ (back @ items.entries)
            yield Items(items.columns, left), (rest * values).sum(axis=2)

    def latent_mean(self, factor: Factorised, shift: Array) -> Array:
        """Posterior mean of the latent vector."""
        return self.inner.latent_mean(factor, self._pulled(factor, shift))

    def covariance(self, factor: Factorised) -> Array:
        """Posterior covariance of the latent vector, shape (n, n)."""
        return self.inner.covariance(factor)

    def weights(self, factor: Factorised) -> Array:
        """R = Q − QΣQ with Q = AᵀMA, shape (n, n)."""
        return self.inner.weights(factor)

    def pulled(self, factor: Factorised, covariance: Array) -> Array:
        """R K = Q Σ, shape (n, n), from the covariance Σ."""
        return self.inner.pulled(factor, covariance)

    def noise_weights(
        self, factor: Factorised, blocks: Blocks, factors: Sequence[Array]
    ) -> list[Array]:
        """The blocks of the dual weights M − M A Σ AᵀM times arrays, shape (g, p, r)."""
        weights: Any = factor.precision
        covariance, products = self.covariance(factor), []
        each = zip(self.rows.items, weights.groups, factors, strict=True)
        for (columns, entries), block, values in each:
            prior = covariance[columns[:, :, None], columns[:, None, :]]
            pulled = block @ values
            seen = prior @ (entries.swapaxes(1, 2) @ pulled)
            products.append(pulled - block @ (entries @ seen))
        return products

    def precision_limit(self) -> tuple[Array, float]:
        """The limit of the latent space."""
        return self.inner.precision_limit()


class Middle(NamedTuple):
    """M = (T⁻¹ + C)⁻¹ of groups, with MF and log det(I + TC)."""

    weights: Array | Thin  # M, shape (g, p, p)
    pulled: Array  # MF, shape (g, p, r)
    log_determinant: Array  # log det(I + TC), shape (g,)


def middle_of(precision: Array, factor: Array, chain: bool = False) -> Middle:
    """M of groups, from the precisions T, shape (g, p), of any sign or 0, and F.

    For ``chain`` see `Groups`.
    """
    xp = namespace(precision, factor)
    rows, values = factor.shape[1:]
    if values < rows:
        seen = precision[:, :, None] * factor
        middle = xp.eye(values) + factor.swapaxes(1, 2) @ seen
        inverse = xp.linalg.inv(middle)
        return Middle(Thin(precision, seen, -inverse), seen @ inverse, xp.linalg.slogdet(middle)[1])
    root = xp.sqrt(xp.abs(precision))
    half = root[:, :, None] * root[:, None, :]
    # Let S be the signs of T, then M = |T|^½ (S + |T|^½ C |T|^½)⁻¹ |T|^½.
    signs = xp.where(precision < 0, -1.0, 1.0)
    middle = xp.eye(rows) * signs[:, None, :] + half * (factor @ factor.swapaxes(1, 2))
    if chain and xp is np and not np.any(precision < 0):
        inverse, log_determinant = _inverse_of_chain(middle)
    else:
        inverse, log_determinant = xp.linalg.inv(middle), xp.linalg.slogdet(middle)[1]
    weights = half * inverse
    return Middle(weights, weights @ factor, log_determinant)


def _inverse_of_chain(matrices: Any) -> tuple[Any, Any]:
    """Inverses and log determinants of tridiagonal positive definite matrices, shape (g, p, p)."""
    pivots = np.diagonal(matrices, axis1=1, axis2=2).T.copy()
    beside = np.diagonal(matrices, 1, axis1=1, axis2=2).T
    for row, entry in enumerate(beside):
        pivots[row + 1] -= np.square(entry) / pivots[row]
    inverse, ratios = np.empty_like(matrices), -beside / pivots[:-1]
    inverse[:, -1, -1] = 1 / pivots[-1]
    for row in reversed(range(len(beside))):
        after = ratios[row][:, None] * inverse[:, row + 1, row + 1 :]
        inverse[:, row, row + 1 :] = inverse[:, row + 1 :, row] = after
        inverse[:, row, row] = 1 / pivots[row] + ratios[row] * after[:, 0]
    return inverse, np.sum(np.log(pivots), axis=0)


def _times(blocks: Array | Thin, vectors: Array) -> Array:
    return (blocks @ vectors[:, :, None])[:, :, 0]


def _seen(factor: Array, vectors: Array) -> Array:
    return _times(factor.swapaxes(1, 2), vectors)


def pull_of_noise(
    blocks: Blocks,
    sds: Sequence[Array],
    dual: Array,
    weights: Callable[[Sequence[Array]], list[Array]],
    pulled: Array | None = None,
) -> list[Array]:
    """Derivatives of the log evidence in the rows' sds of each kind of noise, shape (m,) each.

    The sites are held constant. The derivative is ½ tr((ββᵀ − M) ∂C) + vᵀ ∂C β, where β is the dual
    vector and M are the dual weights, whose products with arrays of the groups are computed by
    ``weights``; v is ``pulled``, or 0 if that is None.
    """
    xp = namespace(dual)
    vectors, pulls = blocks.cut(dual), []
    # ½ ββᵀ + vβᵀ, made symmetric, is ½ (β + v)(β + v)ᵀ − ½ vvᵀ.
    both = vectors if pulled is None else blocks.cut(dual + pulled)
    alone = [0.0 * vector for vector in vectors] if pulled is None else blocks.cut(pulled)
    for kind, sd in enumerate(sds):
        shared = [group.shared[kind] for group in blocks.groups]
        factors = [
            part[:, :, None] * values for part, values in zip(blocks.cut(sd), shared, strict=True)
        ]
        slopes = []
        for values, factor, more, less, weighed in zip(
            shared, factors, both, alone, weights(factors), strict=True
        ):
            left, right = (each[:, :, None] * (each[:, None, :] @ factor) for each in (more, less))
            slopes.append((values * (left - right - weighed)).sum(axis=2))
        pulls.append(blocks.joined(xp.zeros(len(blocks.alone)), slopes))
    return pulls
