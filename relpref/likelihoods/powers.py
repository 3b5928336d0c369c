"""Tilted moments of powers of a likelihood, by quadrature.

A row that was answered n times has the likelihood p^n. Without lapses log p is concave, and so is
the tilted density. Edges of Gauss-Legendre panels lie on either side of its mode, where the tilted
density and p^n alone have fallen by given factors: far from the mode of a wide Gaussian p^n may
end within a small part of its width. With lapses there may be two more modes, near the mean of the
cavity and near that mode.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from relpref.likelihoods.quadrature import quadrature_moments
from relpref.likelihoods.tilted import TiltedMoments
from relpref.linalg.arrays import Array, fori_loop, namespace, while_loop


class Answer(NamedTuple):
    """The likelihood p of answers, as functions of points z, shape (..., m)."""

    point: Callable[[Array], TiltedMoments]  # log p and its derivatives
    log: Callable[[Array], Array]  # log p
    scale: Array  # of the noise: p changes within it, shape () or (m,)
    plain: Any = None  # the same without lapses; None where there are none


# Logarithms of the factors by which the tilted density has fallen at an edge, and p^n.
_LEVELS, _ONSET = np.array([0.002, 0.06, 0.6, 3.5, 12.0, 40.0]), np.array([0.001, 0.03, 0.4, 4.0])
_BEYOND = 120.0  # the last edge around the other modes, where there are lapses
_REACH = 9.0  # sds of the cavity, to the last edge of p^n
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)  # of a panel
_HALVED, _CLIMBED = 10, 40  # rounds, at most, of the searches for an edge and for a mode
# The trapezoidal rule is used where so many nodes on either side suffice. Their distance is in
# units of the narrowest that p^n under the cavity can be, and at most that of the noise's scale,
# from which the poles of log p are π/2 away at least; with lapses they are nearer.
_EVEN, _SPACED = 90, 0.6
_EVEN_WITH_LAPSES, _SPACED_WITH_LAPSES = 250, 0.25
_NEAR = 1e-2  # sds that a mode may be off
_WEAK = 1e-7  # variance that an answer takes, below which derivatives at the mean are more exact


def powered(
    likelihood: Any, value: Array, mean: Array, variance: Array, power: Any = 1.0
) -> TiltedMoments:
    """Moments of p^n of any likelihood under the cavity; n is ``power``, 1.0 or shape (m,)."""
    if hasattr(likelihood, "powered"):
        moments: TiltedMoments = likelihood.powered(value, mean, variance, power)
        return moments
    once: TiltedMoments = likelihood.tilted(value, mean, variance)
    if isinstance(power, float):
        return once

    def log_density(z: Array) -> Array:
        log_p: Array = likelihood.tilted(value, z, 0 * z).log_normalizer
        return power * log_p

    several = quadrature_moments(log_density, mean, variance)
    return TiltedMoments(
        *(namespace(p).where(power == 1, p, q) for p, q in zip(once, several, strict=True))
    )


@np.errstate(all="ignore")
def power_moments(
    answer: Answer,
    power: Array,
    mean: Array,
    variance: Array,
    still: Answer | None = None,
) -> TiltedMoments:
    """Moments of p^n under the cavity N(mean, variance), shape (m,) each.

    Parameters
    ----------
    answer : Answer
    power : Array
        n.
    mean, variance : Array
        A variance of 0 gives n log p and its derivatives.
    still : Answer, optional
        ``answer`` without derivatives in parameters, for the places of nodes.
    """
    xp = namespace(mean, variance)
    here = answer.point(mean)
    lapses = answer.plain is not None
    away, rule = nodes(still or answer, power, mean, variance, None if still or lapses else here)
    # The nodes stay where they are if the mean moves.
    if xp is not np:
        away = away + (jax.lax.stop_gradient(mean) - mean)
    total, share = _shares(answer, power, mean, variance, away, rule)
    safe = xp.where(variance > 0, variance, 1.0)
    moved = xp.sum(share * away, axis=0)
    left = xp.sum(share * xp.square(away - moved), axis=0)
    shrink = 1 - left / safe
    if not lapses:
        shrink = xp.maximum(shrink, 0.0)
    value, slope, bend = (power * moment for moment in here)
    taken = variance * (xp.square(slope) + xp.abs(bend)) + xp.abs(shrink)
    weak = (variance <= 0) | (taken + xp.square(moved) / safe < _WEAK)
    return TiltedMoments(
        xp.where(variance > 0, total, value),
        xp.where(weak, slope, moved / safe),
        xp.where(weak, bend, shrink / safe),
    )


@np.errstate(all="ignore")
def shares(answer: Answer, power: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
    """Nodes z and weights of the tilted density that add up to 1, shape (q, m) each."""
    away, rule = nodes(answer, power, mean, variance)
    return mean + away, _shares(answer, power, mean, variance, away, rule)[1]


def _shares(
    answer: Answer, power: Array, mean: Array, variance: Array, away: Array, rule: Array
) -> tuple[Array, Array]:
    """The logarithm of the integral and the nodes' shares of it."""
    xp = namespace(mean, variance)
    safe = xp.where(variance > 0, variance, 1.0)
    exponent = power * answer.log(mean + away) - 0.5 * xp.square(away) / safe
    exponent = xp.where(rule > 0, exponent, -xp.inf)
    highest = xp.max(exponent, axis=0)
    highest = xp.where(highest == -np.inf, 0.0, highest)  # an impossible answer: the integral is 0
    density = rule * xp.exp(exponent - highest)
    total = xp.sum(density, axis=0)
    return highest + xp.log(total) - 0.5 * xp.log(2 * np.pi * safe), density / total


def nodes(
    answer: Answer,
    power: Array,
    mean: Array,
    variance: Array,
    here: TiltedMoments | None = None,
) -> tuple[Array, Array]:
    """Nodes, from the mean, and weights for integrals of the tilted density, shape (q, m) each.

    ``here`` is log p without lapses at the mean and its derivatives, if that is known.
    """
    xp = namespace(mean, variance)
    if xp is not np:
        mean, variance = jax.lax.stop_gradient((mean, variance))
    lapses, smooth = answer.plain is not None, answer.plain or answer
    variance = xp.where(variance > 0, variance, 1.0)
    sd = xp.sqrt(variance)

    def column(values: Any) -> Array:
        return xp.reshape(xp.asarray(values, sd.dtype), (-1, *(1,) * sd.ndim))

    here = here or smooth.point(mean)
    side = xp.where(here.gradient < 0, -1.0, 1.0).astype(sd.dtype)
    # The slope of log p falls, so that a mode is at most where its slope at the mean leads.
    farthest = variance * power * xp.abs(here.gradient)

    def rise(of: Answer, distance: Array) -> tuple[Array, Array]:
        """Slope of the tilted density towards its mode, and minus its derivative."""
        _, gradient, curvature = of.point(mean + side * distance)
        slope = power * side * gradient - distance / variance
        return slope, power * curvature + 1 / variance

    if xp is np:
        closest = np.minimum(
            _SPACED / np.sqrt(1 / variance + power / np.square(answer.scale)),
            (_SPACED_WITH_LAPSES if lapses else _SPACED) * answer.scale,
        )
        reach = _REACH * sd + 0.5 * farthest  # from the middle of where modes are
        # A mean that is no number gives moments that are none.
        number = np.ceil(np.nanmax(reach / closest, initial=1.0))
        if number <= (_EVEN_WITH_LAPSES if lapses else _EVEN):
            spacing = reach / number
            away = 0.5 * side * farthest + spacing * column(np.arange(-number, number + 1.0))
            return away, spacing + 0 * away
    start = farthest / (1 + variance * power * xp.maximum(here.curvature, 0.0))
    distance = _climbed(lambda t: rise(smooth, t), start, farthest, False)
    center = side * distance
    levels = column([*_LEVELS, *_ONSET])[None]
    with_cavity = xp.arange(levels.shape[1]).reshape(levels.shape) < len(_LEVELS)
    sides = column([-1.0, 1.0])[:, None]
    top = smooth.log(mean + center)

    def fallen(x: Array) -> Array:
        drop = power * (top - smooth.log(mean + center + sides * x))
        tilted = drop + (2 * sides * x * center + xp.square(x)) / (2 * variance)
        drop = xp.where(with_cavity, tilted, xp.abs(drop)) / levels
        return xp.where(xp.isnan(drop), xp.inf, drop)

    high = xp.where(with_cavity, xp.sqrt(2 * levels) * sd, _REACH * sd) + 0 * sides
    edges = sides * _crossings(fallen, high)
    parts = [center + xp.reshape(edges, (-1, *sd.shape)), center[None]]
    if lapses:
        begins = xp.stack([xp.zeros_like(distance), distance])
        near = xp.reshape(xp.asarray([True, False]), (2, *(1,) * sd.ndim))
        modes = side * _climbed(lambda t: rise(answer, t), begins, distance + 0 * begins, near)
        away = sd * column(np.sqrt(2 * np.array([*_LEVELS[1:], _BEYOND])))
        parts += [modes, *(mode + side * away for mode in modes for side in (-1, 1))]
    edges = xp.sort(xp.concatenate(parts), axis=0)
    half = 0.5 * (edges[1:] - edges[:-1])
    away = edges[:-1] + half + half * column(_NODES)[:, None]
    rule = half * column(_WEIGHTS)[:, None]
    return xp.reshape(away, (-1, *sd.shape)), xp.reshape(rule, (-1, *sd.shape))


def _climbed(
    rise: Callable[[Array], tuple[Array, Array]], start: Array, farthest: Array, near: Any
) -> Array:
    """A distance between 0 and ``farthest`` where the slope is 0, by Newton's method.

    Where a step leaves the bracket, or leads to an end that was tried, the bracket is halved, and
    where the last one did not halve the slope; where ``near``, the first mode is sought, and the
    distance is ``farthest`` if there is none before the slope rises.
    """
    xp = namespace(start, farthest)

    def step(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        at, t, low, high, before, _ = carry
        slope, bend = rise(t)
        low = xp.where(slope > 0, xp.maximum(low, t), low)
        high = xp.where(slope > 0, high, xp.minimum(high, t))
        newton = t + slope / bend
        inside = (bend > 0) & (newton >= low) & (newton <= high)
        width = _NEAR / xp.sqrt(xp.abs(bend))
        left = ~((inside & (xp.abs(slope * width) < _NEAR**2)) | (high - low < width))
        least = xp.sqrt(xp.maximum(low, 1e-4 * high) * high)
        inside &= (newton - low > 1e-9 * high) & (newton < high)
        halved = xp.where(near, high, xp.where(low < 0.1 * high, least, 0.5 * (low + high)))
        falls = 2 * xp.abs(slope) < before
        moved = xp.where(inside & (falls | near), newton, halved)
        return at + 1, xp.where(left, moved, t), low, high, xp.abs(slope), left

    def more(carry: tuple[Array, ...]) -> Array:
        return xp.any(carry[5]) & (carry[0] < _CLIMBED)

    above = (1 + 1e-9) * farthest  # which was not tried
    steep = xp.full_like(start, xp.inf)
    first = (xp.asarray(0), start, 0 * start, above, steep, xp.ones(start.shape, bool))
    return while_loop(more, step, first)[1]


def _crossings(fallen: Callable[[Array], Array], high: Array) -> Array:
    """Distances up to ``high`` where a rising function is about 1.

    Brackets are halved, and cut where a logarithmic interpolation crosses 0, in turn.
    """
    xp = namespace(high)
    least = float(np.finfo(high.dtype).tiny)

    def step(at: Any, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        low, high, below, above = carry
        middle = xp.where(low < 0.1 * high, xp.sqrt(low * high), 0.5 * (low + high))
        up, down = xp.log(above), -xp.log(below)
        cut = xp.clip(down / (up + down), 0.02, 0.98)
        straight = (at % 2 == 1) & (below > least) & xp.isfinite(above)
        x = xp.where(straight, low + (high - low) * cut, middle)
        value = fallen(x)
        far = ~(value < 1)
        return (
            xp.where(far, low, x),
            xp.where(far, x, high),
            xp.where(far, below, xp.maximum(value, least)),
            xp.where(far, value, above),
        )

    start = (1e-7 * high, high, xp.full_like(high, least), xp.full_like(high, xp.inf))
    return fori_loop(_HALVED, step, start)[1]


def knows_derivatives(likelihood: Any) -> bool:
    """Whether moments and derivatives are NumPy's: a class from outside may need JAX."""
    each = getattr(likelihood, "each", likelihood)
    single = getattr(each, "single", each)
    return hasattr(likelihood, "pull") and type(single).__module__.startswith("relpref.")
