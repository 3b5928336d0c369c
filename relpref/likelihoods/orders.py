"""Probabilities of ordered partitions of a few items, each seen with independent noise.

An ordered partition says that every item of a block is above every item of the next. With z = u +
noise, let H_j(t) be the probability that all items of the first j blocks are above t, and in their
order. Then H_1(t) = Π P(z_i > t), and

    H_{j+1}(t) = ∫_{x > t} H_j(x) d/dx Π_i (F_i(x) − F_i(t)) dx,    i over the block j + 1,

where the last block has t = −∞. With Gaussian noise all is done with logarithms, on a grid for each
list. A block of one item, such as in an order, and the last block, such as in a choice, need
one-dimensional integrals alone.

With Gumbel noise (Plackett and Luce) the probability is a product over the blocks: that all items
of a block are above all later ones. This factor is a softmax for a block of one item. For several,
with w_i = e^{u_i} and r the sum of w over the later items, it is ∫ Π_i (1 − e^{−y w_i/r}) e^{−y}
dy, y > 0.
"""

from enum import Enum
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from relpref.likelihoods.chances import NOISE
from relpref.likelihoods.tilted import log_ndtr
from relpref.linalg.arrays import Array, fori_loop, namespace

NODES = 128  # of a grid; 0.1 apart where utilities are near each other
_AT_ONCE = 2**22  # numbers of the grids of pairs of nodes that lie in memory together
_NOTHING = -1e30  # the logarithm of 0, of which differences are numbers
_REACH = 6 * NOISE  # of the grid, beyond the utilities
_SMALL = 1e-200  # probability whose parts may be smaller than the smallest number
# Probability that rounding may spoil, and items whose products of differences are multiplied out.
_SMALL_OF_TIES, _MOST_EXPANDED = 1e-12, 6
_IN_CACHE = 2**13  # numbers of an array
_TINY = np.finfo(float).tiny
_CONSTANT = NOISE * np.sqrt(2 * np.pi)


class Noise(Enum):
    """Noise of an item: Gaussian with variance ½, or standard Gumbel."""

    GAUSSIAN = "Gaussian"
    GUMBEL = "Gumbel"


GAUSSIAN, GUMBEL = Noise.GAUSSIAN, Noise.GUMBEL


class _State(NamedTuple):
    """Log H on the grid after some blocks and its derivative, shape (p, g), and results.

    ``result`` is the log probability of the lists that have no further blocks, shape (p,).
    """

    log_above: Array
    slope: Array
    result: Array


def log_probability(
    utility: Array,
    block: Array,
    noise: Noise = GAUSSIAN,
    *,
    tied: bool = True,
    nodes: int = NODES,
) -> Array:
    """Log probability of ordered partitions, shape (p,).

    With Gaussian noise and arrays of NumPy nothing is compiled.

    Parameters
    ----------
    utility : array, shape (p, k)
        Utilities of the items of each list, in units of a comparison's noise.
    block : array of int, shape (p, k)
        0 for the best, 1 for the next, ...; −1 where a list has fewer items.
    noise : Noise
        `GAUSSIAN`, Thurstone's model; or `GUMBEL`, the model of Plackett and Luce.
    tied : bool
        Whether a block that is neither the first nor the last may have several items, which takes
        the square of the time.
    nodes : int
        Number of nodes of each grid. Errors fall with its fourth power.

    Returns
    -------
    array
        Within 1e-5 with Gaussian noise and 128 nodes; 0 for a list without items.
    """
    if noise is GUMBEL:
        return _plackett_luce(utility, block, tied=tied)
    xp = namespace(utility, block)
    present = block >= 0
    low = xp.min(xp.where(present, utility, xp.inf), axis=1, initial=1e30)
    high = xp.max(xp.where(present, utility, -xp.inf), axis=1, initial=-1e30)
    low, high = (xp.where(present.any(axis=1), end, 0.0) for end in (low, high))
    if xp is jnp:  # the integrals do not depend on where their nodes are
        low, high = map(jax.lax.stop_gradient, (low, high))
    step = (high - low + 2 * _REACH) / (nodes - 1)
    grid = (low - _REACH)[:, None] + step[:, None] * np.arange(nodes)
    # A place without an item has no effect, but must be finite.
    near = xp.where(present, utility, low[:, None])
    if xp is np:
        result = _without_logarithms(near, block, grid, step)
        lost = np.isnan(result)
        if lost.any():
            result[lost] = _of_partitions(near[lost], block[lost], grid[lost], step[lost], tied)
        return result
    return _of_partitions(near, block, grid, step, tied)


def _of_partitions(utility: Array, block: Array, grid: Array, step: Array, tied: bool) -> Array:
    """Log probability of ordered partitions with Gaussian noise, shape (p,)."""
    xp = namespace(utility, block)
    distance = (grid[:, None, :] - utility[:, :, None]) / NOISE
    log_density = -(distance**2) / 2 - np.log(_CONSTANT)
    score = -distance / NOISE
    log_below, log_above = log_ndtr(xp.stack([distance, -distance]))
    last = xp.max(block, axis=1, initial=0)

    def members(number: Any) -> Array:
        return (block == number)[:, None, :].astype(utility.dtype)

    def total(weights: Array, values: Array) -> Array:
        return (weights @ values)[:, 0, :]

    hazard, log_rate = xp.exp(log_density - log_above), log_density - log_below
    first = members(0)
    start = _State(total(first, log_above), -total(first, hazard), 0.0 * step)

    def after(at: Any, state: _State) -> _State:
        number = at + 1
        inside = members(number)
        alone = inside.sum(axis=2) == 1
        # Density of the largest of the block, then times H, whose integral is the result of the
        # last block.
        rates = xp.where((block == number)[:, :, None], log_rate, _NOTHING)
        largest = total(inside, log_below) + _log_sum(rates, 1)
        log_flow = xp.where(alone, total(inside, log_density), largest) + state.log_above
        ended = xp.log(step) + _log_sum(log_flow, -1)
        if xp is np and not (number < last).any():
            return state._replace(result=np.where(number == last, ended, state.result))
        # ∫ from t on by the trapezoidal rule and the first term of Euler and Maclaurin's formula,
        # which need f and f' at t.
        steep = total(inside, score) + state.slope
        log_node = log_flow + xp.log(0.5 + xp.maximum(step[:, None] * steep / 12, -0.45))
        log_above = xp.log(step)[:, None] + xp.logaddexp(log_node, _beyond(log_flow))
        slope = -xp.exp(log_flow - log_above)

        if tied:
            several = _log_above_ties(
                log_density, log_below, state.log_above, block == number, step
            )
            steps = (several[:, 2:] - several[:, :-2]) / (2 * step[:, None])
            rates = xp.concatenate([steps[:, :1], steps, steps[:, -1:]], axis=1)
            log_above, slope = xp.where(alone, log_above, several), xp.where(alone, slope, rates)
        going = (number < last)[:, None]
        return _State(
            xp.where(going, log_above, state.log_above),
            xp.where(going, slope, state.slope),
            xp.where(number == last, ended, state.result),
        )

    return fori_loop(max(block.shape[1] - 1, 0), after, start).result


def _without_logarithms(utility: Array, block: Array, grid: Array, step: Array) -> Array:
    """Log probability of ordered partitions with Gaussian noise, of NumPy's arrays, shape (p,).

    It is that of `_of_partitions`; NaN where numbers are too small for this, or where a block that
    is neither the first nor the last has more than ``_MOST_EXPANDED`` items.
    """
    patterns, which = np.unique(_counts(block), axis=0, return_inverse=True)
    order = np.argsort(np.where(block < 0, block.shape[1], block), axis=1)
    utility, result = np.take_along_axis(utility, order, axis=1), np.empty(len(block))
    together = max(1, _IN_CACHE // grid.shape[1])
    for number, pattern in enumerate(patterns):
        sizes, same = pattern[pattern > 0], np.flatnonzero(which.ravel() == number)
        largest = max(sizes[1:-1], default=1)
        small = _SMALL if largest == 1 else _SMALL_OF_TIES
        for at in range(0, len(same), together):
            rows = same[at : at + together]
            chance: Any = np.nan
            if largest <= _MOST_EXPANDED:
                chance = _chance(utility[rows], np.cumsum(sizes), grid[rows], step[rows, None])
            result[rows] = np.log(np.where(chance < small, np.nan, chance))
    return result


def integrands(block: Array, nodes: int = NODES) -> int:
    """Number of integrands that the probabilities of ordered partitions take."""
    counts = _counts(block)
    last = (counts > 0).sum(axis=1, keepdims=True) - 1
    number = np.arange(counts.shape[1])
    several = (counts > 1) & (number > 0) & (number < last)
    each = np.where(counts > _MOST_EXPANDED, counts * nodes, 2.0**counts)
    return int(nodes * np.where(several, each, counts).sum())


def _counts(block: Array) -> Array:
    """Number of items in each block, shape (p, k)."""
    return np.stack([(block == number).sum(axis=1) for number in range(block.shape[1])], axis=1)


def _chance(utility: Array, ends: Array, grid: Array, step: Array) -> Array:
    """Probability that items, best first, are in blocks that end at given places, shape (p,)."""

    def members(start: int, end: int) -> list[tuple[Array, Array]]:
        """Distance of the grid from each item, and the density of its noisy utility there."""
        distances = [(grid - utility[:, at, None]) / NOISE for at in range(start, end)]
        return [(each, np.exp(-0.5 * each**2) / _CONSTANT) for each in distances]

    above, slope = np.ones_like(grid), np.zeros_like(grid)
    for distance, density in members(0, ends[0] if len(ends) else 0):
        survival = special.ndtr(-distance)
        above, slope = above * survival, slope * survival - above * density
    for start, end in pairwise(ends):
        block = members(start, end)
        if end == ends[-1]:
            below, rate = np.ones_like(grid), np.zeros_like(grid)
            for distance, density in block:
                share = special.ndtr(distance) if len(block) > 1 else 1.0
                below, rate = below * share, rate * share + below * density
            return step[:, 0] * (above * rate).sum(axis=1)
        if len(block) == 1:
            ((distance, density),) = block
            # ∫ from t on by the trapezoidal rule and the first term of Euler and Maclaurin's
            # formula, which need f and f' at t.
            flow = above * density
            steep = (density * slope - distance / NOISE * flow) * (step / 12)
            above = step * (_later(flow) - 0.5 * flow + np.maximum(steep, -0.45 * flow))
            slope = -flow
            continue
        # Π (P(z_i > t) − P(z_i > x)) is a sum of products of a function of t and one of x, whose
        # derivative is the third part of each term.
        terms = [(np.ones_like(grid), np.ones_like(grid), np.zeros_like(grid))]
        for distance, density in block:
            survival = special.ndtr(-distance)
            terms = [
                *((at_t * survival, at_x, rate) for at_t, at_x, rate in terms),
                *(
                    (at_t, -at_x * survival, at_x * density - rate * survival)
                    for at_t, at_x, rate in terms
                ),
            ]
        # The trapezoidal rule misses a twelfth of the square of the step for two items.
        missed = step**2 / 6 * above * block[0][1] * block[1][1] if len(block) == 2 else 0.0
        above = step * sum(at_t * _later(above * rate) for at_t, _, rate in terms[1:]) + missed
        slope = above * np.gradient(np.log(np.maximum(above, _TINY)), axis=1) / step
    return np.ones(len(grid))


def _later(flow: Array) -> Array:
    """Sum over a node and all later ones, shape (p, g)."""
    return np.cumsum(flow[:, ::-1], axis=1)[:, ::-1]


def _log_sum(values: Array, axis: int) -> Array:
    """Log of the sum of exponentials along an axis."""
    if namespace(values) is jnp:
        return jax.nn.logsumexp(values, axis=axis)
    highest = values.max(axis=axis, keepdims=True)
    return np.log(np.exp(values - highest).sum(axis=axis)) + highest.squeeze(axis)


def _beyond(log_flow: Array) -> Array:
    """Log of the sum of the exponentials at all later nodes, shape (p, g)."""
    if namespace(log_flow) is np:
        later = np.logaddexp.accumulate(log_flow[:, :0:-1], axis=1)[:, ::-1]
        return np.pad(later, ((0, 0), (0, 1)), constant_values=_NOTHING)
    # Node by node, which compiles in a quarter of the time of an associative scan.
    nothing = _NOTHING + 0 * log_flow[:, 0]
    return jax.lax.scan(_add, nothing, log_flow.T, reverse=True)[1].T


def _plackett_luce(utility: Array, block: Array, *, tied: bool) -> Array:
    """Log probability with Gumbel noise; parameters as of `log_probability`."""
    last = jnp.max(block, axis=1, initial=0)
    same = block[:, :, None] == block[:, None, :]
    single = (block >= 0) & (block < last[:, None]) & (same.sum(axis=2) == 1)
    left = block[:, None, :] >= jnp.maximum(block, 0)[:, :, None]
    log_left = jax.nn.logsumexp(jnp.where(left, utility[:, None, :], _NOTHING), axis=2)
    total = jnp.where(single, utility - log_left, 0.0).sum(axis=1)

    def add(number: Any, total: Array) -> Array:
        several = ((block == number).sum(axis=1) > 1) & (number < last)
        return total + jnp.where(several, _log_above_later(utility, block, number), 0.0)

    total = add(0, total)
    return jax.lax.fori_loop(1, max(utility.shape[1] - 1, 1), add, total) if tied else total


def _log_above_later(utility: Array, block: Array, number: Any) -> Array:
    """Log probability that a block is above all later ones with Gumbel noise, shape (p,).

    The integral over log y by the trapezoidal rule, whose error falls exponentially with the number
    of nodes.
    """
    members, later = block == number, block > number
    rest = jax.nn.logsumexp(jnp.where(later, utility, _NOTHING), axis=1)
    gap = jnp.where(members & later.any(axis=1)[:, None], utility - rest[:, None], 0.0)
    low = -18 - jax.lax.stop_gradient(jnp.max(gap, axis=1, initial=0.0))
    step = (4 - low) / (NODES - 1)
    log_y = low[:, None] + step[:, None] * np.arange(NODES)
    x = jnp.minimum(log_y[:, None, :] + gap[:, :, None], 5.0)
    small = x < -12  # log(1 − e^−y) = log y − y/2 + y²/24
    near = jnp.log(-jnp.expm1(-jnp.exp(jnp.where(small, 0.0, x))))
    log_above = jnp.where(small, x - 0.5 * jnp.exp(x), near)
    total = jnp.where(members[:, :, None], log_above, 0.0).sum(axis=1) + log_y - jnp.exp(log_y)
    return jnp.log(step) + jax.nn.logsumexp(total, axis=1)


def _add(sums: Array, node: Array) -> tuple[Array, Array]:
    return jnp.logaddexp(sums, node), sums


def _ties_of_numpy(
    log_density: Array, log_below: Array, log_above: Array, members: Array, step: Array
) -> Array:
    """Log H after a block of several items, shape (p, g), of NumPy's arrays."""
    density, below = (np.exp(each) * members[:, :, None] for each in (log_density, log_below))
    number = below.shape[-1]
    product: Array = np.tri(number, k=-1).T[None]  # 1 where x, along the last axis, is above t
    slope = np.zeros_like(product)
    for item in range(members.shape[1]):  # the derivative of Π (F(x) − F(t)) in x
        inside = members[:, item, None, None]
        between = np.where(inside, below[:, item, None, :] - below[:, item, :, None], 1.0)
        slope = slope * between + product * density[:, item, None, :]
        product = product * between
    above = np.exp(log_above)
    total = (slope @ above[:, :, None])[..., 0] * step[:, None]
    # As in `_log_above_ties`, a twelfth that the trapezoidal rule misses for two items.
    two = np.where(members[:, :, None], density, 1.0).prod(axis=1) * above / 6
    total += np.where(members.sum(axis=1) == 2, np.square(step), 0.0)[:, None] * two
    return np.log(np.maximum(total, np.finfo(float).tiny))


def _log_above_ties(
    log_density: Array, log_below: Array, log_above: Array, members: Array, step: Array
) -> Array:
    """Log H after a block of several items, shape (p, g).

    It takes an integral over x for each t, for some lists at a time.
    """
    number = log_below.shape[-1]
    if namespace(log_below) is np:
        together = max(1, _AT_ONCE // (8 * number**2))
        arrays = (log_density, log_below, log_above, members, step)
        starts = range(0, len(step), together)
        return np.concatenate(
            [_ties_of_numpy(*(each[at : at + together] for each in arrays)) for at in starts]
        )
    # Third derivatives of its logarithm are finite.
    floor = max(np.finfo(log_below.dtype).tiny, 1e-75)
    # x, along the second axis, above t.
    later = np.arange(number)[None, :] > np.arange(number)[:, None]

    def integrate(given: tuple[Array, ...]) -> Array:
        density, below, above, inside, width = given

        def add(at: Any, sums: tuple[Array, Array]) -> tuple[Array, Array]:
            # log (F(x) − F(t)) and f(x)/(F(x) − F(t))
            fall = jnp.where(later, below[at][:, None] - below[at][None, :], -1.0)
            log_between = below[at][None, :] + jnp.log(-jnp.expm1(jnp.minimum(fall, -1e-12)))
            share = jnp.exp(density[at][None, :] - log_between)
            return sums[0] + jnp.where(inside[at], log_between, 0.0), sums[1] + jnp.where(
                inside[at], share, 0.0
            )

        nothing = 0 * (below[0][:, None] + below[0][None, :])
        log_all, shares = jax.lax.fori_loop(0, len(inside), add, (nothing, nothing))
        terms = (
            above[None, :]
            + log_all
            + jnp.log(jnp.where(inside.any(), jnp.maximum(shares, floor), 1.0))
        )
        along = jax.nn.logsumexp(jnp.where(later, terms, _NOTHING), axis=-1) + jnp.log(width)
        # For two items the integrand leaves 0 with the slope 2 f₁ f₂ H, of which the trapezoidal
        # rule misses a twelfth.
        corner = (
            np.log(1 / 6)
            + 2 * jnp.log(width)
            + above
            + jnp.where(inside[:, None], density, 0.0).sum(axis=0)
        )
        return jnp.where(inside.sum() == 2, jnp.logaddexp(along, corner), along)

    together = max(1, _AT_ONCE // number**2)
    return jax.lax.map(
        jax.checkpoint(integrate),
        (log_density, log_below, log_above, members, step),
        batch_size=together,
    )
