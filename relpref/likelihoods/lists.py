"""Answers about lists: orders, choices, best and worst, whose rows share noise of items."""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from relpref.likelihoods.chances import NOISE
from relpref.likelihoods.comparison import Comparison, OfComparison
from relpref.likelihoods.orders import GUMBEL, NODES, integrands, log_probability
from relpref.likelihoods.tilted import (
    TiltedMoments,
    TreeDistribution,
    ndtr_moments,
)
from relpref.linalg.arrays import namespace
from relpref.linalg.covariance import Pulls, joined

# Nodes of lists of two blocks, such as choices, whose probability is one integral.
FEW_NODES = 32


def _nodes(block: Array) -> int:
    """Number of nodes for lists of NumPy's arrays."""
    return FEW_NODES if np.max(block, initial=0) <= 1 else NODES // 2


class ListSizes(NamedTuple):
    """Sizes of the lists among some answers.

    They are shapes of arrays, so each may be larger than the lists need. ``lists`` is the number of
    lists, ``rows`` and ``items`` are those of the longest, and ``tied`` is whether a block that is
    neither the first nor the last of its list has several items.
    """

    lists: int
    rows: int
    items: int
    tied: bool


class SharedNoise(NamedTuple):
    """Gaussian noise that rows share.

    Row r of a group has the noise sd_r (ε_first − ε_second), with ε ~ N(0, 1) for each item of the
    group. ``group``, ``first`` and ``second`` are whole numbers, ``group`` −1 where there is no
    such noise; all have the shape (m,).
    """

    group: Array
    first: Array
    second: Array
    sd: Array


class ListComparison(OfComparison):
    """Comparisons some of which are the rows of lists.

    A list is one look at a few items, each seen with its own noise. It is an ordered partition:
    every item of a block was above every item of the next. Each such pair is a row, whose value is
    1; the rows of a list share the noise of their items, so they are not independent, and the log
    probability of the whole list is that of its first row. Expectation propagation takes each row
    for the sign of a noisy gap, and `shared_noise` for their common noise.

    Parameters
    ----------
    single : Comparison
        The distribution of answers that are in no list. Its gaps are those of all rows, and its
        scale is that of the noise in lists.
    number : array of int, shape (m,)
        List of each row; −1 where it is in none.
    winner, loser : array of int, shape (m,)
        The items of a row. The rows of a list are sorted by them.
    sizes : ListSizes
    """

    leaves: ClassVar[tuple[str, ...]] = ("single", "number", "winner", "loser")
    static: ClassVar[tuple[str, ...]] = (*TreeDistribution.static, "sizes")

    def __init__(
        self,
        single: Comparison,
        number: ArrayLike,
        winner: ArrayLike,
        loser: ArrayLike,
        sizes: ListSizes,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.single, self.sizes = single, sizes
        self.number, self.winner, self.loser = (
            namespace(part).asarray(part) for part in (number, winner, loser)
        )
        super().__init__(batch_shape=single.batch_shape, validate_args=validate_args)

    @property
    def without_moments(self) -> str | None:
        """Reason why expectation propagation cannot fit these lists, or None."""
        if self.single.noise is not GUMBEL:
            return None
        return (
            "expectation propagation has no lists with logistic noise (Plackett and Luce): take "
            "the likelihood Probit(), whose lists are Thurstone's, fit with Laplace, or sample "
            "with numpyro's NUTS"
        )

    @property
    def without_mode(self) -> str | None:
        """Reason why Laplace's method cannot fit these lists, or None."""
        if self.single.noise is GUMBEL:
            return None
        return (
            "Laplace has no lists with Gaussian noise (Thurstone): fit with EP, or take the "
            "likelihood Logistic(), whose lists are those of Plackett and Luce"
        )

    @property
    def outcomes(self) -> Any:
        """Outcomes of single answers; a list has orders instead."""
        return self.single.outcomes

    @property
    def _scale(self) -> Array:
        xp = namespace(self.single.scale, self.single.gap)
        return xp.broadcast_to(self.single.scale, self.single.gap.shape)

    @property
    def shared_noise(self) -> tuple[SharedNoise, ...]:
        """Noise of the items of lists, of variance ½: the gap of two has that of a comparison."""
        return (SharedNoise(self.number, self.winner, self.loser, NOISE * self._scale),)

    @property
    def copied(self) -> Array:
        """Whether a row that was answered several times has a site for each, shape (m,)."""
        return (self.number >= 0) | self.single.copied

    def powered(self, value: Array, mean: Array, variance: Array, power: Any) -> TiltedMoments:
        """Moments of powers p^n of answers that are in no list; n is 1 in lists.

        Those of a list's row are of the sign of its predictor, noise included (z = m/√v).
        """
        xp, listed = namespace(mean, self.single.gap), self.number >= 0
        sign = xp.where(value, 1.0, -1.0).astype(mean.dtype)
        inverse = 1 / xp.sqrt(xp.where(listed & (variance > 0), variance, 1e-30))
        inverse = xp.where(listed, inverse, 1.0)
        z = sign * xp.where(listed, mean, 0.0) * inverse
        total, ratio, bend = ndtr_moments(z)
        hard = (total, sign * ratio * inverse, bend * inverse**2)
        alone = self.single.powered(value, mean, variance, power)
        return TiltedMoments(
            *(xp.where(listed, row, single) for row, single in zip(hard, alone, strict=True))
        )

    def pull(self, value: Array, mean: Array, variance: Array, weight: Array, *rest: Any) -> Pulls:
        """Derivatives, see `Comparison.pull`; rows of lists have those by the noise they share."""
        alone = namespace(weight, self.number).where(self.number >= 0, 0.0, weight)
        return joined(self.single.pull(value, mean, variance, alone, *rest), "single")

    def log_prob(self, value: ArrayLike) -> Array:
        """Log probability of answers; that of a list is at its first row.

        It is NaN where a row of the list has another value than 1.
        """
        alone = self.single.log_prob(value)
        listed = self.number >= 0
        lists = self.log_prob_of_lists(value, self.single.gap)
        # Indices beyond the rows are dropped.
        scores = jnp.where(listed, 0.0, alone).at[self.first_rows]
        return scores.set(lists.astype(alone.dtype), mode="drop")

    @property
    def integrands(self) -> int:
        """Number of integrands that the probabilities of all lists take, with NumPy."""
        rows, present = self._rows()
        gap: Any = np.zeros(len(self.number))
        block = self._slots(rows, present, gap)[1]
        return integrands(block, _nodes(block))

    @property
    def first_rows(self) -> Array:
        """First row of each list, the number of rows where there is no list, shape (lists,)."""
        rows, present = self._rows()
        return namespace(rows).where(present[:, 0], rows[:, 0], len(self.number))

    def log_prob_of_lists(self, value: ArrayLike, gap: Array) -> Array:
        """Log probability of each list at gaps of the rows.

        Gaps have the shape (..., m), the result (..., lists), which is 0 where there is no list.
        Arrays of NumPy are computed without JAX, on coarser grids, mostly within 1e-3.
        """
        xp = namespace(gap, self.number)
        rows, present = self._rows()
        utility, block = self._slots(rows, present, gap)
        which: Any = slice(None)
        nodes = NODES
        if xp is np:
            nodes = _nodes(block)
            # Equal lists are computed once.
            looks = utility.reshape(-1, *block.shape)[[0, -1]]
            keys = np.concatenate([*looks, block], axis=1)
            _, place, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
            utility, block, which = utility[..., place, :], block[place], which.ravel()
        flat = utility.reshape(-1, utility.shape[-1])
        blocks = xp.broadcast_to(block, utility.shape).reshape(flat.shape)
        tied, noise = self.sizes.tied, self.single.noise
        log_probabilities = log_probability(flat, blocks, noise, tied=tied, nodes=nodes)
        as_seen = xp.all(xp.where(present, xp.asarray(value)[rows] == 1, True), axis=1)
        each = log_probabilities.reshape(utility.shape[:-1])[..., which]
        return xp.where(as_seen, each, xp.nan)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of answers: whether the first item of each row is seen above the second.

        The rows of a list share their noise.
        """
        alone, among = jax.random.split(key)
        rows, present = self._rows()
        shape = (*sample_shape, self.sizes.lists, 2 * self.sizes.rows)
        gumbel, dtype = self.single.noise is GUMBEL, self.single.gap.dtype
        noise = (
            jax.random.gumbel(among, shape, dtype)
            if gumbel
            else NOISE * jax.random.normal(among, shape, dtype)
        )
        winner, loser = jnp.asarray(self.winner)[rows], jnp.asarray(self.loser)[rows]
        both = jnp.concatenate([winner, loser], axis=1)
        # The noise of an item is that of the first place where it stands.
        places = (
            jnp.argmax(each[:, :, None] == both[:, None, :], axis=2) for each in (winner, loser)
        )
        above, below = (
            jnp.take_along_axis(
                noise, jnp.broadcast_to(place, (*sample_shape, *place.shape)), axis=-1
            )
            for place in places
        )
        seen = (self.single.gap / self._scale)[rows] + above - below > 0
        at = jnp.where(present, rows, len(self.number))
        single = self.single.sample(alone, sample_shape)
        return single.at[..., at].set(seen.astype(single.dtype), mode="drop")

    def _rows(self) -> tuple[Array, Array]:
        """Rows of each list in order, and whether a place has a row; shape (lists, rows) each."""
        xp = namespace(self.number)
        order = xp.argsort(self.number, stable=True)
        ends = xp.searchsorted(self.number[order], np.arange(self.sizes.lists + 1))
        rows = ends[:-1, None] + np.arange(self.sizes.rows)
        return order[xp.minimum(rows, len(order) - 1)], rows < ends[1:, None]

    def _slots(self, rows: Array, present: Array, gap: Array) -> tuple[Array, Array]:
        """Utilities of each list's items, up to a constant, and the numbers of their blocks.

        The shapes are (..., lists, items) for gaps of shape (..., m), and (lists, items).
        """
        xp = namespace(gap, self.number)
        gap = xp.where(present, (gap / self._scale)[..., rows], 0.0)
        winner, loser = (
            xp.where(present, xp.asarray(item)[rows], -1) for item in (self.winner, self.loser)
        )
        at = xp.broadcast_to(np.arange(rows.shape[1]), rows.shape)

        def first(item: Array, other: Array) -> tuple[Array, Array]:
            """First row whose ``other`` is the ``item`` of each row, and whether there is any."""
            same = (item[:, :, None] == other[:, None, :]) & present[:, None, :]
            return xp.argmax(same, axis=2), same.any(axis=2)

        def take(values: Array, place: Array) -> Array:
            shape = (*values.shape[:-1], place.shape[-1])
            return xp.take_along_axis(values, xp.broadcast_to(place, shape), axis=-1)

        # A winner that is not in the first block lost in a row above. The path up to the first
        # block is found by doubling its length.
        before, lost = first(winner, loser)
        place, level = xp.where(lost, before, at), lost.astype(np.int32)
        below = xp.where(lost, take(gap, before), 0.0)
        for _ in range(max(rows.shape[1] - 1, 1).bit_length()):
            below, level = below + take(below, place), level + take(level, place)
            place = take(place, place)
        # An item of the first block is below the first item by the difference of their gaps to one
        # that lost to both.
        beside = take(gap, first(loser, loser)[0]) - gap
        utility = -(below + take(beside, place))
        of_winner = present & (first(winner, winner)[0] == at)
        of_loser = present & (first(loser, loser)[0] == at) & ~first(loser, winner)[1]
        valid = xp.concatenate([of_winner, of_loser], axis=1)
        chosen = xp.argsort(~valid, axis=1, stable=True)[:, : self.sizes.items]
        utilities = take(xp.concatenate([utility, utility - gap], axis=-1), chosen)
        blocks = take(xp.concatenate([level, level + 1], axis=1), chosen)
        return utilities, xp.where(take(valid, chosen), blocks, -1)
