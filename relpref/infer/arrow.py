"""The arrow: Gaussian noise that the rows of a group share, such as those of one list, integrated out group by group.

Rows are g = A u + w, where w ~ N(0, C) is independent of the latent vector u, and C is
block-diagonal with a block for each group. Under sites of precision T let M = (T⁻¹ + C)⁻¹, which is
block-diagonal, too. Then u has the precision K⁻¹ + AᵀMA, so all that is known of the latent space
holds with M in place of T, and

    h = (I − MC) ν,  u has mean Σ Aᵀh,  rows have mean A·mean + C (h − M A·mean) and covariance C −
    CMC + (I − CM) A Σ Aᵀ (I − MC),

Σ being the posterior covariance of u. Half the log determinant is that of the latent space plus
those of I + T^½ C T^½.

The noise of a group is F ε with independent standard normal ε, so C = FFᵀ. Where these are fewer
than its rows, as the items of a question with many answers, M = T − TF(I + FᵀTF)⁻¹FᵀT is not
written out: the cost is that of rows × values², not rows³.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from relpref.errors import UnsupportedProgramError
from relpref.infer.rows import SparseRows
from relpref.infer.spaces import Factorised, LatentSpace, Marginals
from relpref.lazy_jit import lazy_jit
from relpref.linalg import require_memory
from relpref.linalg.arrays import Array, namespace


class Kind(NamedTuple):
    """Which rows share noise of one kind: each is a sum of at most two of many independent values, which are of its group."""

    group: NDArray[np.int64]  # −1 where there is no such noise, shape (m,)
    column: NDArray[np.int64]  # shape (m, 2)
    entry: NDArray[np.float64]  # 0 where there is none, shape (m, 2)

    def cut(self, rows: int) -> "Kind":
        """Of the first rows alone."""
        return Kind(self.group[:rows], self.column[:rows], self.entry[:rows])

    @classmethod
    def of_gaps(cls, group: Any, first: Any, second: Any) -> "Kind":
        """Of the groups and items of a `relpref.likelihoods.SharedNoise`."""
        column = np.stack([first, second], axis=1)
        return cls(group, column, np.broadcast_to([1.0, -1.0], column.shape))

    @classmethod
    def of_values(cls, column: Any, entry: Any) -> "Kind":
        """Of rows by the values that they take: those are in one group that lead to each other by way of values."""
        there = entry != 0
        size = int(column.max(initial=0)) + 1
        ends = np.where(
            there, column, column[np.arange(len(column)), np.argmax(there, axis=1)][:, None]
        ).T
        graph = scipy.sparse.coo_array((np.ones(len(column)), tuple(ends)), shape=(size, size))
        group = connected_components(graph, directed=False)[1][ends[0]]
        return cls(np.where(there.any(axis=1), group, -1), column, entry)


_MATRICES = 8  # of a group's rows that are needed at once
_ROUNDING = 1e-14  # of the size of the largest of the squares whose rank is sought
_WIDTHS = 8  # different numbers of rows of groups that are kept apart; of more, they are rounded up


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Groups:
    """Groups of p rows each, and what their noise has in common."""

    rows: Array  # the number of all rows where a group has fewer, shape (g, p)
    # For each kind of noise what its rows take of independent values of sd 1, shape (g, p, r).
    shared: tuple[Array, ...]

    def factor(self, sds: Sequence[Array]) -> Array:
        """F, where the rows have these sds of each kind, shape (g, p, sum of r)."""
        kinds = [sd[:, :, None] * values for sd, values in zip(sds, self.shared, strict=True)]
        return namespace(*kinds).concatenate(kinds, axis=2)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Blocks:
    """Which rows share noise; rows without are ``alone``, and the others in groups, those of one size together."""

    alone: Array  # shape (a,)
    groups: tuple[Groups, ...]
    place: Array  # where each row is among those alone and then those of the groups, shape (m,)

    @classmethod
    def of(cls, kinds: Sequence[Kind]) -> "Blocks":
        """From the kinds of noise; a group of one that lies in one of the other is a part of that.

        Raises
        ------
        UnsupportedProgramError
            If groups of two kinds cross.
        """
        group = _joined([kind.group for kind in kinds])
        number = len(group)
        alone = np.flatnonzero(group < 0)
        order = np.argsort(group, kind="stable")[len(alone) :]
        _, starts, sizes = np.unique(group[order], return_index=True, return_counts=True)
        widths = np.unique(sizes)
        if len(widths) > _WIDTHS:  # 1, 2, 3, 4, 6, 8, 12, ...
            steps = np.unique([int(2**power * part) for power in range(31) for part in (1, 1.5)])
            widths = np.unique(steps[np.searchsorted(steps, widths)])
        groups, flat = [], [alone]
        for width, least in zip(widths, [0, *widths], strict=False):
            its = np.flatnonzero((sizes > least) & (sizes <= width))
            place = starts[its][:, None] + np.arange(width)
            there = np.arange(width) < sizes[its][:, None]
            rows = np.where(there, order[np.minimum(place, len(order) - 1)], number)
            groups.append(Groups(rows, tuple(_shared(kind, rows) for kind in kinds)))
            flat.append(rows.ravel())
        where = np.zeros(number + 1, dtype=np.int64)
        joined = np.concatenate(flat)
        where[joined] = np.arange(len(joined))
        return cls(alone, tuple(groups), where[:number])

    def cut(self, values: Array) -> list[Array]:
        """Values of rows, shape (m,), by groups; 0 where there is no row."""
        xp = namespace(values)
        room = xp.concatenate([values, xp.zeros(1, values.dtype)])
        return [room[group.rows] for group in self.groups]

    def joined(self, alone: Array, values: Sequence[Array]) -> Array:
        """Values of rows, shape (m,), from those alone and those of groups."""
        xp = namespace(alone)
        return xp.concatenate([alone, *(value.ravel() for value in values)])[self.place]

    def factors(self, sds: Sequence[Array]) -> tuple[Array, ...]:
        """The blocks of F, by the sd of each row's noise of each kind."""
        each = [self.cut(sd) for sd in sds]
        return tuple(group.factor([sd[at] for sd in each]) for at, group in enumerate(self.groups))

    def middle(self, precision: Array, factors: Sequence[Array]) -> "tuple[Weights, Array]":
        """M, and half the log determinant of I + TC."""
        xp = namespace(precision, *factors)
        found = [middle_of(*each) for each in zip(self.cut(precision), factors, strict=True)]
        total = 0.5 * sum((xp.sum(its.log_determinant) for its in found), xp.zeros(()))
        blocks = tuple(its.weights for its in found), tuple(its.pulled for its in found)
        return Weights(precision[self.alone], *blocks), total

    def matrix(self, factors: Sequence[Array]) -> Array:
        """C, shape (m, m)."""
        xp, size = namespace(self.place, *factors), len(self.place)
        found = xp.zeros((size + 1, size + 1))
        for group, factor in zip(self.groups, factors, strict=True):
            rows, columns = group.rows[:, :, None], group.rows[:, None, :]
            covariance = factor @ factor.swapaxes(1, 2)
            if xp is np:
                found[rows, columns] = covariance
            else:
                found = found.at[rows, columns].set(covariance)
        return found[:size, :size]


def _joined(groups: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """One group for rows that share any."""
    found = groups[0].astype(np.int64)
    for other in groups[1:]:
        rows = np.flatnonzero((found >= 0) & (other >= 0))
        names = np.stack([found[rows], other[rows]])
        pairs = np.unique(names, axis=1)
        if all(len(np.unique(end)) < pairs.shape[1] for end in pairs):
            raise UnsupportedProgramError(
                "the groups of answers that share noise cross: rows of one group of the first kind "
                "are in several of the second, and the "
                "other way round; leave one of the two out, make groups of one kind parts of the "
                "other's, or, of a site that is integrated, "
                "leave 'integrated' out of its infer, so that it is one more latent site"
            )
        # Rows, and then the groups of either kind, are joined where a row is in a group.
        size, graph = len(found), []
        start = size
        for one in (found, other):
            inside = np.flatnonzero(one >= 0)
            names, its = np.unique(one[inside], return_inverse=True)
            graph.append((inside, start + its))
            start += len(names)
        ends = np.concatenate(graph, axis=1)
        joined = scipy.sparse.coo_array((np.ones(ends.shape[1]), tuple(ends)), shape=(start, start))
        label = connected_components(joined, directed=False)[1][:size]
        found = np.where((found >= 0) | (other >= 0), label, -1)
    return found


def _shared(kind: Kind, rows: NDArray[Any]) -> NDArray[np.float64]:
    """What rows of groups take of independent values of sd 1, no more of these than their covariance has a rank, shape (g, p, r)."""
    group, column, entry = (
        np.append(part, np.full_like(part[:1], -1), axis=0)[rows] for part in kind
    )
    value = (column.max(initial=0) + 1) * group[
        :, :, None
    ] + column  # one for each column of each group
    taken = Items.of(value, np.where(group[:, :, None] >= 0, entry, 0.0)).entries
    sizes, basis = np.linalg.eigh(taken.swapaxes(1, 2) @ taken)
    rank = int(np.sum(sizes > _ROUNDING * sizes[:, -1:], axis=1).max(initial=0))
    return taken @ basis[:, :, basis.shape[2] - rank :]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Thin:
    """diag(d) + FNFᵀ, for each group, not written out."""

    diagonal: Array  # shape (g, p)
    factor: Array  # shape (g, p, r)
    inner: Array  # shape (g, r, r)

    def __matmul__(self, matrices: Array) -> Array:
        seen = self.inner @ (self.factor.swapaxes(1, 2) @ matrices)
        return self.diagonal[:, :, None] * matrices + self.factor @ seen

    def any(self) -> bool:
        """Whether anything is known, where this is M of precisions d; of NumPy."""
        return bool(self.diagonal.any())


class Weights(NamedTuple):
    """M, in place of a vector of precisions."""

    alone: Array  # shape (a,)
    groups: tuple[Array | Thin, ...]  # shape (g, p, p) each
    pulled: tuple[Array, ...] = ()  # MF, where groups have noise, shape (g, p, r) each

    def any(self) -> bool:
        """Whether anything is known; of NumPy."""
        return any(bool(part.any()) for part in (self.alone, *self.groups))


class Items(NamedTuple):
    """The latents, or values of noise, that a group of rows looks at, and how."""

    columns: Array  # shape (g, k)
    entries: Array  # shape (g, p, k)

    @classmethod
    def of(cls, column: NDArray[Any], entry: NDArray[Any]) -> "Items":
        """From the columns that each row looks at and its entries there, 0 where there is none, shape (g, p, c) each."""
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
class GroupedRows:
    """A projection whose weights are blocks: `relpref.infer.rows.SparseRows` with M for T."""

    whole: SparseRows
    alone: SparseRows
    items: tuple[Items, ...]

    @classmethod
    def of(cls, rows: SparseRows, blocks: Blocks) -> "GroupedRows":
        """Of NumPy's arrays."""
        column, entry = np.asarray(rows.column), np.asarray(rows.entry)
        alone = SparseRows(column[blocks.alone], entry[blocks.alone], rows.size)
        items = []
        for group in blocks.groups:
            there = group.rows < len(column)
            at = np.where(there, group.rows, 0)
            items.append(Items.of(column[at], np.where(there[:, :, None], entry[at], 0.0)))
        return cls(rows, alone, tuple(items))

    def add_gram(self, weights: Weights, matrix: Any) -> None:
        """Add AᵀMA to an (n, n) array of NumPy."""
        matrix += self.gram(weights)

    def gram(self, weights: Weights) -> Array:
        """AᵀMA, shape (n, n)."""
        size, found = self.whole.size.shape[0], self.alone.gram(weights.alone)
        for (columns, entries), block in zip(self.items, weights.groups, strict=True):
            seen = entries.swapaxes(1, 2) @ (block @ entries)
            if namespace(seen, columns) is np:
                places = size * columns[:, :, None] + columns[:, None, :]
                found += np.bincount(places.ravel(), seen.ravel(), size**2).reshape(size, size)
            else:
                found = found.at[columns[:, :, None], columns[:, None, :]].add(seen)
        return found

    def times_gram(self, weights: Weights, matrix: Array) -> Array:
        """AᵀMA times an (n, k) array."""
        return self.gram(weights) @ matrix

    def variances(self, white: Array) -> Array:
        """Diagonal of A V Vᵀ Aᵀ, shape (m,)."""
        return self.whole.variances(white)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Arrow:
    """Which rows of a program share noise, and what they look at."""

    kinds: tuple[Kind, ...]
    blocks: Blocks
    rows: GroupedRows | None  # None where the projection is not that of `SparseRows`

    @classmethod
    def of(cls, kinds: Sequence[Kind], rows: SparseRows | None) -> "Arrow":
        """Of NumPy's arrays; errors as of `Blocks.of`."""
        blocks = Blocks.of(kinds)
        return cls(tuple(kinds), blocks, None if rows is None else GroupedRows.of(rows, blocks))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ArrowSpace:
    """A latent space with noise that rows share."""

    latent: ClassVar[bool] = True

    inner: LatentSpace  # whose rows are `GroupedRows`
    blocks: Blocks
    factors: tuple[Array, ...]  # the blocks of F, where C = FFᵀ

    @property
    def jitter(self) -> Array:
        return self.inner.jitter

    @property
    def _rows(self) -> GroupedRows:
        rows: Any = self.inner.rows
        return rows

    def factorise(self, precision: Array, projection: Any) -> Factorised:
        """Find M, and factorize the latent space with it."""
        weights: Any
        weights, total = self.blocks.middle(precision, self.factors)
        factor = self.inner.factorise(weights, projection)
        return factor._replace(precision=weights, log_determinant=factor.log_determinant + total)

    def _pulled(self, factor: Factorised, vector: Array) -> Array:
        """(I − MC) times a vector."""
        weights: Any = factor.precision
        each = zip(self.blocks.cut(vector), weights.pulled, self.factors, strict=True)
        return self.blocks.joined(
            vector[self.blocks.alone],
            [its - _times(pulled, _seen(values, its)) for its, pulled, values in each],
        )

    def response(self, factor: Factorised, shift: Array, projection: Any) -> Array:
        """Posterior covariance of the rows times a vector: A u + C (h − M A u) with u = Σ Aᵀh."""
        weights: Any = factor.precision
        pull = self._pulled(factor, shift)
        seen = self.inner.response(factor, pull, projection)
        each = zip(
            self.blocks.cut(pull), self.blocks.cut(seen), weights.pulled, self.factors, strict=True
        )
        noise = [
            _times(values, _seen(values, its) - _seen(pulled, mean))
            for its, mean, pulled, values in each
        ]
        return seen + self.blocks.joined(0.0 * seen[self.blocks.alone], noise)

    def marginals(self, factor: Factorised, shift: Array, projection: Any) -> Marginals:
        """Means and variances of the rows."""
        covariance, variances = self.covariance(factor), []
        for (columns, left), own in self._left(factor.precision):
            prior = covariance[columns[:, :, None], columns[:, None, :]]
            variances.append(((left @ prior) * left).sum(axis=2) + own)
        variance = self.blocks.joined(self._rows.alone.variances(factor.white), variances)
        return Marginals(self.response(factor, shift, projection), variance, factor.log_determinant)

    def _left(self, weights: Any) -> "Iterator[tuple[Items, Array]]":
        """For groups of one size (I − CM) A and the variances C − CMC, shape (g, p)."""
        for items, pulled, values in zip(
            self._rows.items, weights.pulled, self.factors, strict=True
        ):
            back = pulled.swapaxes(1, 2)
            own = values - values @ (back @ values)  # C − CMC = (F − FFᵀMF)Fᵀ
            left = items.entries - values @ (back @ items.entries)
            yield Items(items.columns, left), (own * values).sum(axis=2)

    def latent_mean(self, factor: Factorised, shift: Array, projection: Any) -> Array:
        """Posterior mean of the latent vector."""
        return self.inner.latent_mean(factor, self._pulled(factor, shift), projection)

    def covariance(self, factor: Factorised) -> Array:
        """Of the latent vector, shape (n, n)."""
        return self.inner.covariance(factor)

    def weights(self, factor: Factorised, precision: Array, projection: Any) -> Array:
        """R = Q − QΣQ with Q = AᵀMA, shape (n, n)."""
        return self.inner.weights(factor, factor.precision, projection)

    def pulled(self, factor: Factorised, precision: Array) -> Array:
        """R K = Q Σ, shape (n, n)."""
        return self.inner.pulled(factor, factor.precision)

    def noise_weights(
        self, factor: Factorised, precision: Array, blocks: Blocks, factors: Sequence[Array]
    ) -> list[Array]:
        """The blocks of the dual weights M − M A Σ AᵀM times arrays, shape (g, p, r)."""
        weights: Any = factor.precision
        covariance, found = self.covariance(factor), []
        for items, block, values in zip(self._rows.items, weights.groups, factors, strict=True):
            prior, pulled = (
                covariance[items.columns[:, :, None], items.columns[:, None, :]],
                block @ values,
            )
            found.append(
                pulled - block @ (items.entries @ (prior @ (items.entries.swapaxes(1, 2) @ pulled)))
            )
        return found

    def precision_limit(self) -> tuple[Array, float]:
        """As in latent space."""
        return self.inner.precision_limit()


class Middle(NamedTuple):
    """M = (T⁻¹ + C)⁻¹ of groups, and what belongs to it."""

    weights: Array | Thin  # M, shape (g, p, p)
    pulled: Array  # MF, shape (g, p, r)
    log_determinant: Array  # log det(I + TC), shape (g,)


def middle_of(precision: Array, factor: Array) -> Middle:
    """From T, shape (g, p), some of which may be 0 or negative, and F."""
    xp = namespace(precision, factor)
    rows, values = factor.shape[1:]
    if values < rows:
        seen = precision[:, :, None] * factor
        middle = xp.eye(values) + factor.swapaxes(1, 2) @ seen
        inverse = xp.linalg.inv(middle)
        return Middle(Thin(precision, seen, -inverse), seen @ inverse, xp.linalg.slogdet(middle)[1])
    root = xp.sqrt(xp.abs(precision))
    half = root[:, :, None] * root[:, None, :]
    # With the signs S of T that is |T|^½ (S + |T|^½ C |T|^½)⁻¹ |T|^½.
    signs = xp.where(precision < 0, -1.0, 1.0)
    middle = xp.eye(rows) * signs[:, None, :] + half * (factor @ factor.swapaxes(1, 2))
    found = half * xp.linalg.inv(middle)
    return Middle(found, found @ factor, xp.linalg.slogdet(middle)[1])


def _times(blocks: Array | Thin, vectors: Array) -> Array:
    return (blocks @ vectors[:, :, None])[:, :, 0]


def _seen(factor: Array, vectors: Array) -> Array:
    return _times(factor.swapaxes(1, 2), vectors)


@lazy_jit
def offset_and_noise(program: Any) -> tuple[Array, Array, Array]:
    """The prior mean, shape (n,), the predictors there, shape (m,), and sds of the noise that rows share, shape (kinds, m)."""
    reading = program.read()
    return reading.location, reading.offset, jnp.stack(reading.noise)


def pull_of_noise(
    blocks: Blocks,
    sds: Sequence[Array],
    dual: Array,
    weights: Callable[[Sequence[Array]], list[Array]],
    pulled: Array | None = None,
) -> list[Array]:
    """Derivative of the log evidence, sites held constant, in each row's sd of each kind of noise, shape (m,) each.

    It is ½ tr((ββᵀ − M) ∂C) + vᵀ ∂C β with the dual vector β, the dual weights M, of which
    ``weights`` finds the products with arrays of the groups, and v what is ``pulled``, if anything.
    """
    xp = namespace(dual)
    vectors, found = blocks.cut(dual), []
    # ½ ββᵀ + vβᵀ, made symmetric, is ½ (β + v)(β + v)ᵀ − ½ vvᵀ.
    both = vectors if pulled is None else blocks.cut(dual + pulled)
    alone = [0.0 * its for its in vectors] if pulled is None else blocks.cut(pulled)
    for kind, sd in enumerate(sds):
        shared = [group.shared[kind] for group in blocks.groups]
        factors = [
            its[:, :, None] * values for its, values in zip(blocks.cut(sd), shared, strict=True)
        ]
        slopes = []
        for values, factor, its, less, weighed in zip(
            shared, factors, both, alone, weights(factors), strict=True
        ):
            left, right = (each[:, :, None] * (each[:, None, :] @ factor) for each in (its, less))
            slopes.append((values * (left - right - weighed)).sum(axis=2))
        found.append(blocks.joined(xp.zeros(len(blocks.alone)), slopes))
    return found
