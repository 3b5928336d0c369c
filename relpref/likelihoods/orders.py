"""Probabilities of ordered partitions of a few items, each seen with independent noise; of NumPy's arrays without JAX.

An ordered partition says that every item of a block is above every item of the next. With z = u + noise, let H_j(t) be the probability
that all items of the first j blocks are above t, and in their order. Then H_1(t) = Π P(z_i > t), and

    H_{j+1}(t) = ∫_{x > t} H_j(x) d/dx Π_i (F_i(x) − F_i(t)) dx,    i over the block j + 1,

where the last block has t = −∞. All is done with logarithms, on a grid for each list. A block of one item, such as in an order, and the
last block, such as in a choice, need one-dimensional integrals alone.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy import special

Array: TypeAlias = Any  # of NumPy or of JAX

# sd of the noise of an item: two items' noises together have the sd 1 of a comparison.
NOISE = float(np.sqrt(0.5))
NODES = 128  # of a grid; 0.1 apart where utilities are near each other
_PIECE = 16  # nodes of a piece, a divisor of their number
_AT_ONCE = 2**22  # numbers of the grids of pairs of nodes that lie in memory together
_NOTHING = -1e30  # the logarithm of 0, of which differences are numbers


class Noise(NamedTuple):
    """Logarithms of density and distribution function, at a distance from the utility, and how far they reach down and up."""

    gumbel: bool
    reach: tuple[float, float]

    def at(self, x: Array) -> tuple[Array, Array, Array, Array]:
        """Log density, its derivative, log P(z < x) and log P(z > x)."""
        xp = namespace(x)
        if self.gumbel:
            fall = xp.exp(-x)
            small = fall < 1e-5  # log(1 − e^−y) = log y − y/2 + y²/24
            near = xp.log1p(-xp.exp(-xp.where(small, 1.0, fall)))
            return -x - fall, fall - 1, -fall, xp.where(small, -x - 0.5 * fall, near)
        log_ndtr = special.log_ndtr
        if xp is not np:
            log_ndtr = import_module("relpref.likelihoods.tilted").log_ndtr
        z = x / NOISE
        return -(z**2) / 2 - np.log(NOISE * np.sqrt(2 * np.pi)), -z / NOISE, log_ndtr(z), log_ndtr(-z)


GAUSSIAN = Noise(False, (6 * NOISE, 6 * NOISE))
GUMBEL = Noise(True, (5.0, 24.0))


def namespace(array: Array) -> Any:
    """``numpy`` or ``jax.numpy``; `relpref.linalg.arrays` has it for code that needs JAX anyway."""
    return np if isinstance(array, np.ndarray) else import_module("jax.numpy")


def fori_loop(number: int, step: Callable[[Any, Any], Any], start: Any, xp: Any) -> Any:
    """A loop of JAX, or of Python."""
    if xp is not np:
        return import_module("jax").lax.fori_loop(0, number, step, start)
    state = start
    for at in range(number):
        state = step(at, state)
    return state


class _State(NamedTuple):
    """After some blocks: log H on the grid and its derivative, shape (p, g), and what was found of lists that have no more."""

    log_above: Array
    slope: Array
    found: Array


def log_probability(utility: Array, block: Array, noise: Noise = GAUSSIAN, *, tied: bool = True) -> Array:
    """Log probability of ordered partitions, shape (p,).

    Parameters
    ----------
    utility : array, shape (p, k)
        Of the items of each list, in units of a comparison's noise.
    block : array of int, shape (p, k)
        0 for the best, 1 for the next, ...; −1 where a list has fewer items.
    noise : Noise
        `GAUSSIAN` with variance ½, Thurstone's model; or `GUMBEL`, the model of Plackett and Luce.
    tied : bool
        Whether a block that is neither the first nor the last may have several items, which takes the square of the time.

    Returns
    -------
    array
        Within 1e-5; 0 for a list without items.
    """
    xp, (_, size) = namespace(utility), utility.shape
    there = block >= 0
    low = xp.min(xp.where(there, utility, xp.inf), axis=1, initial=1e30)
    high = xp.max(xp.where(there, utility, -xp.inf), axis=1, initial=-1e30)
    low, high = (xp.where(there.any(axis=1), end, 0.0) for end in (low, high))
    if xp is not np:  # the integrals do not depend on where their nodes are
        low, high = map(import_module("jax").lax.stop_gradient, (low, high))
    step = (high - low + sum(noise.reach)) / (NODES - 1)
    grid = (low - noise.reach[0])[:, None] + step[:, None] * np.arange(NODES)
    near = xp.where(there, utility, low[:, None])  # what is not there is not looked at, and finite
    log_density, score, log_below, log_above = noise.at(grid[:, None, :] - near[:, :, None])
    last = xp.max(block, axis=1, initial=0)

    def members(number: Any) -> Array:
        return (block == number)[:, None, :].astype(utility.dtype)

    def total(weights: Array, values: Array) -> Array:
        return (weights @ values)[:, 0, :]

    def logarithm(values: Array) -> Array:
        return xp.log(xp.maximum(values, np.finfo(utility.dtype).tiny))

    hazard, rate = xp.exp(log_density - log_above), xp.exp(log_density - log_below)
    first = members(0)
    start = _State(total(first, log_above), -total(first, hazard), 0.0 * low)

    def after(at: Any, state: _State) -> _State:
        number = at + 1
        its = members(number)
        one = its.sum(axis=2) == 1
        # Of the largest of the block, and with H: of the last block all there is.
        largest = total(its, log_below) + logarithm(total(its, rate))
        log_flow = xp.where(one, total(its, log_density), largest) + state.log_above
        ended = logarithm(step) + _log_sum(log_flow)
        # ∫ from t on by the trapezoidal rule and the first term of Euler and Maclaurin's formula, which need f and f' at t.
        steep = total(its, score) + state.slope
        own = log_flow + logarithm(0.5 + xp.maximum(step[:, None] * steep / 12, -0.45))
        beyond = xp.concatenate([_log_sums_from(log_flow)[:, 1:], _NOTHING + 0 * low[:, None]], axis=1)
        log_above = logarithm(step)[:, None] + xp.logaddexp(own, beyond)
        slope = -xp.exp(log_flow - log_above)

        if tied:
            several = _log_above_ties(log_density, log_below, state.log_above, block == number, step)
            steps = (several[:, 2:] - several[:, :-2]) / (2 * step[:, None])
            rates = xp.concatenate([steps[:, :1], steps, steps[:, -1:]], axis=1)
            log_above, slope = xp.where(one, log_above, several), xp.where(one, slope, rates)
        going = (number < last)[:, None]
        return _State(
            xp.where(going, log_above, state.log_above),
            xp.where(going, slope, state.slope),
            xp.where(number == last, ended, state.found),
        )

    return fori_loop(max(size - 1, 0), after, start, xp).found


def _log_sum(values: Array) -> Array:
    xp = namespace(values)
    top = values.max(axis=-1, keepdims=True)
    if xp is not np:
        return import_module("jax").nn.logsumexp(values, axis=-1)
    return np.log(np.exp(values - top).sum(axis=-1)) + top[..., 0]


def _log_sums_from(values: Array) -> Array:
    """Log Σ exp from each on, shape (p, g)."""
    if (xp := namespace(values)) is np:
        return np.logaddexp.accumulate(values[:, ::-1], axis=1)[:, ::-1]
    # By pieces, each relative to its largest term: a loop over all nodes would take JAX ten times as long.
    pieces = values.reshape(len(values), -1, _PIECE)
    top = import_module("jax").lax.stop_gradient(pieces.max(axis=2, keepdims=True))
    inside = xp.exp(pieces - top) @ np.tri(_PIECE, dtype=values.dtype)
    logs = top + xp.log(xp.maximum(inside, np.finfo(values.dtype).tiny))
    beyond = [xp.full_like(values[:, 0], _NOTHING)]
    for at in range(pieces.shape[1] - 1, 0, -1):
        beyond.append(xp.logaddexp(beyond[-1], logs[:, at, 0]))
    return xp.logaddexp(logs, xp.stack(beyond[::-1], axis=1)[:, :, None]).reshape(values.shape)


def _log_above_ties(log_density: Array, log_below: Array, log_above: Array, its: Array, step: Array) -> Array:
    """Log H after a block of several items, shape (p, g): an integral over x for each t, some lists at a time."""
    xp, number = namespace(log_below), log_below.shape[-1]
    later = np.arange(number)[None, :] > np.arange(number)[:, None]  # x, along the second axis, above t

    def one(given: tuple[Array, ...]) -> Array:
        density, below, above, inside, width = given

        def add(at: Any, sums: tuple[Array, Array]) -> tuple[Array, Array]:
            # log (F(x) − F(t)) and f(x)/(F(x) − F(t))
            fall = xp.where(later, below[at][:, None] - below[at][None, :], -1.0)
            log_between = below[at][None, :] + xp.log(-xp.expm1(xp.minimum(fall, -1e-12)))
            share = xp.exp(density[at][None, :] - log_between)
            return sums[0] + xp.where(inside[at], log_between, 0.0), sums[1] + xp.where(
                inside[at], share, 0.0
            )

        nothing = 0 * (below[0][:, None] + below[0][None, :])
        log_all, shares = fori_loop(len(inside), add, (nothing, nothing), xp)
        found = above[None, :] + log_all + xp.log(xp.where(shares > 0, shares, 1.0))
        along = _log_sum(xp.where(later, found, _NOTHING)) + xp.log(width)
        # Of two items the integrand leaves 0 with the slope 2 f₁ f₂ H, of which the trapezoidal rule misses a twelfth.
        corner = (
            np.log(1 / 6) + 2 * xp.log(width) + above + xp.where(inside[:, None], density, 0.0).sum(axis=0)
        )
        return xp.where(inside.sum() == 2, xp.logaddexp(along, corner), along)

    if xp is np:
        return np.stack(
            [one(given) for given in zip(log_density, log_below, log_above, its, step, strict=True)]
        )
    jax = import_module("jax")
    together = max(1, _AT_ONCE // number**2)
    return jax.lax.map(
        jax.checkpoint(one), (log_density, log_below, log_above, its, step), batch_size=together
    )
