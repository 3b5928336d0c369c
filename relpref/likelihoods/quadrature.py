"""Tilted moments of any likelihood of one scalar, by quadrature.

In units of the cavity's sd the tilted density is exp(ℓ(m + s·x) − x²/2), ℓ the log likelihood. Its
modes lie between the cavity's mean and the mode of ℓ: there, and at the mode of ℓ itself, panels
are laid whose widths grow geometrically from the width of each mode, and those with the largest
error (Gauss-Kronrod, 7 and 15 nodes) are halved. All rows are treated at once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from relpref.likelihoods.tilted import TiltedMoments
from relpref.linalg.arrays import fori_loop, namespace, stop_gradient, while_loop

Log = Callable[[Array], Array]

# Gauss-Kronrod rule on (−1, 1): nodes from the outermost to the middle, weights, and weights of the
# seven Gauss nodes among them.
_POSITIVE = [0.991455371120812639, 0.949107912342758525, 0.864864423359769073, 0.741531185599394440]
_POSITIVE += [0.586087235467691130, 0.405845151377397167, 0.207784955007898468]
_OUTER = [0.022935322010529225, 0.063092092629978553, 0.104790010322250184, 0.140653259715525919]
_OUTER += [0.169004726639267903, 0.190350578064785410, 0.204432940075298892]
_GAUSS = [0.0, 0.129484966168869693, 0.0, 0.279705391489276668, 0.0, 0.381830050505118945, 0.0]
_NODES = np.array([*(-x for x in _POSITIVE), 0.0, *reversed(_POSITIVE)])
_KRONROD = np.array([*_OUTER, 0.209482141084727828, *reversed(_OUTER)])
_ERROR = _KRONROD - np.array([*_GAUSS, 0.417959183673469388, *reversed(_GAUSS)])

_FARTHEST = 20  # log2 of the largest distance of a mode from the cavity's mean, in sds
_FIRST = -11  # log2 of half the smallest
_REACH = 10.0  # sds beyond the outermost modes: nothing is left there
_WIDTHS = 6  # panels on either side of a mode
_ROUNDS, _HALVED = 5, 4  # how often panels are halved, and how many at once
_INSIDE, _NARROWED = 21, 11  # points inside of the bracket of a mode, and how often it is narrowed
_EXACT = 1e-12  # error of a panel, below which none is halved
_NEGLIGIBLE = 80.0  # below the largest log density
# Share of the variance that an answer takes, below which derivatives at the mean are the more
# exact.
_WEAK = 1e-7


class Density(NamedTuple):
    """The log likelihood ℓ at points, shape (k, m), and its first and second derivative."""

    height: Log
    slope: Log
    bend: Log


class ByQuadrature:
    """A likelihood p(y | z) that is given by its log density.

    The density maps values and predictors to log p(y | z), row by row.
    """

    def __init__(
        self,
        predictor: Array,
        log_density: Callable[[Array, Array], Array],
        *,
        log_concave: bool = False,
    ) -> None:
        self.predictor = predictor
        self.log_density = log_density
        self.log_concave = log_concave

    def tilted(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments under the cavity N(mean, variance), to about 1e-9."""
        return quadrature_moments(lambda z: self.log_density(value, z), mean, variance)

    def derivatives(self, value: Array, z: Array) -> tuple[Array, Array, Array]:
        """The log density at points, shape (k, ...), and two derivatives."""
        return derivatives(lambda z: self.log_density(value, z), z)

    def surrogate(self, value: Array, mean: Array, away: Array, share: Array) -> Array:
        """Σ log p at nodes that move with the mean, times their shares of the tilted density.

        Its derivative is that of Σ log Ẑ.
        """
        z = mean + jnp.reshape(away, (-1, *mean.shape))
        heights = jax.vmap(lambda z: self.log_density(value, z))(z)
        return jnp.vdot(jnp.reshape(share, z.shape), jnp.where(jnp.isfinite(heights), heights, 0.0))


def derivatives(log_density: Log, z: Array) -> tuple[Array, Array, Array]:
    """A log density, elementwise, and its first two derivatives at points, shape (k, ...)."""

    def slope(z: Array) -> tuple[Array, Array]:
        return jax.jvp(log_density, (z,), (jnp.ones_like(z),))

    def at(z: Array) -> tuple[Array, Array, Array]:
        (height, first), (_, second) = jax.jvp(slope, (z,), (jnp.ones_like(z),))
        return height, first, second

    return jax.vmap(at)(z)


def tilted_by_nodes(
    at: Callable[[Any], tuple[Any, Any, Any]], mean: Any, variance: Any, power: Any = 1.0
) -> tuple[TiltedMoments, Any, Any]:
    """Moments of p^n by NumPy, with the nodes less the mean and their shares of the tilted density.

    ``at`` gives log p and two derivatives at points, shape (k, m).
    """

    def part(number: int) -> Log:
        return lambda z: np.nan_to_num(power * at(z)[number], nan=-np.inf if not number else 0.0)

    density = Density(*map(part, range(3)))
    here = mean[None]
    near = TiltedMoments(*(each(here)[0] for each in density))
    near = near._replace(curvature=-near.curvature)
    if not np.any(variance > 0):
        return near, 0.0 * here, power * np.ones(here.shape)
    with np.errstate(all="ignore"):
        sd = np.sqrt(np.where(variance > 0, variance, 1.0))
        x, log_weights = _mesh(density, mean, sd)
        away = sd * x
        heights = density.height(mean + away)
        moments, share = _from_nodes(heights, away, log_weights, mean, variance, near)
    points = variance > 0
    return moments, np.where(points, away, 0.0), power * np.where(points, share, 1 / len(share))


def quadrature_moments(log_density: Log, mean: Array, variance: Array) -> TiltedMoments:
    """Return log ∫ exp(ℓ(z)) N(z; mean, variance) dz and its derivatives in the mean, row by row.

    Parameters
    ----------
    log_density : callable
        ℓ, elementwise: from an array in the shape of ``mean`` to one alike.
    mean, variance : Array, shape (m,)
        A variance of 0 gives ℓ and its derivatives.

    Returns
    -------
    TiltedMoments
        Their absolute error is below 1e-8 where ℓ has at most one mode, in units of the cavity's
        sd.
    """
    log, given = jax.closure_convert(log_density, mean)
    still = [jax.lax.stop_gradient(value) for value in given]
    m, v = jax.lax.stop_gradient((mean, variance))

    def at(z: Array) -> Array:
        value = log(z, *given)
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    def frozen(z: Array) -> Array:
        value = log(z, *still)
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    height, first, second = (part[0] for part in derivatives(at, mean[None]))
    near = TiltedMoments(height, first, -second)

    def by_panels() -> TiltedMoments:
        sd = jnp.sqrt(jnp.where(v > 0, v, 1.0))
        density = Density(
            jax.vmap(frozen),
            lambda z: derivatives(frozen, z)[1],
            lambda z: derivatives(frozen, z)[2],
        )
        x, log_weights = _mesh(density, m, sd)
        z = m + sd * x
        # Negligible nodes are moved to where nothing can overflow, so that their derivatives are
        # numbers, too.
        exponent = density.height(z) - 0.5 * jnp.square(x)
        dead = exponent < jnp.max(exponent, axis=0) - _NEGLIGIBLE
        z = jnp.where(dead, m, z)
        heights = jnp.where(dead, -jnp.inf, jax.vmap(at)(z))
        return _from_nodes(heights, z - mean, log_weights, mean, variance, near)[0]

    return jax.lax.cond(jnp.any(v > 0), by_panels, lambda: near)


def _from_nodes(
    heights: Any, away: Any, log_weights: Any, mean: Any, variance: Any, near: TiltedMoments
) -> tuple[TiltedMoments, Any]:
    """Moments from log p at nodes, and the nodes' shares of the tilted density.

    The nodes less the mean and the logarithms of their weights, in sds, have the shape (q, m).
    """
    xp = namespace(heights, mean, variance)
    safe = xp.where(variance > 0, variance, 1.0)
    exponent = heights - 0.5 * (xp.square(away) / safe + np.log(2 * np.pi)) + log_weights
    top = xp.max(exponent, axis=0)
    weights = xp.exp(exponent - stop_gradient(top))
    sums = xp.sum(weights, axis=0)
    total, share = stop_gradient(top) + xp.log(sums), weights / sums
    moved = xp.sum(share * away, axis=0)
    left = xp.sum(share * xp.square(away - moved), axis=0)
    wide = TiltedMoments(total, moved / safe, (1 - left / safe) / safe)
    taken = variance * (xp.abs(wide.curvature) + xp.square(wide.gradient))
    differ = variance * xp.abs(wide.curvature - near.curvature) + xp.sqrt(variance) * xp.abs(
        wide.gradient - near.gradient
    )
    weak = (variance <= 0) | ((taken < _WEAK) & (differ < 1e-3 * taken + 1e-13))
    moments = TiltedMoments(
        xp.where(variance > 0, total, near.log_normalizer),
        xp.where(weak, near.gradient, wide.gradient),
        xp.where(weak, near.curvature, wide.curvature),
    )
    return moments, share


def _mesh(density: Density, mean: Any, sd: Any) -> tuple[Any, Any]:
    """Nodes in sds from the mean, and their log weights, shape (q, m) each."""
    xp = namespace(mean, sd)

    def slope(x: Any) -> Any:  # of ℓ, in x
        derivative = sd * density.slope(mean + sd * x)
        return xp.where(xp.isfinite(derivative), derivative, 0.0)

    def column(values: Any) -> Any:
        return xp.reshape(xp.asarray(values, mean.dtype), (-1, *(1,) * mean.ndim))

    # Distances 0 and powers of 2, on both sides.
    place = column(np.arange(_FARTHEST - _FIRST + 1))

    def distance(place: Any) -> Any:
        return xp.where(place > 0, xp.exp2(place + _FIRST), 0.0)

    grid = distance(place) + 0.0 * mean
    above, below = xp.split(slope(xp.concatenate([grid, -grid])), 2)
    side = xp.where(above[0] < 0, -1.0, 1.0).astype(mean.dtype)
    climbs = xp.where(side < 0, -below, above)  # slope of ℓ towards its mode
    rises, end = climbs > grid, float(len(place) - 1)
    # The first place where the tilted density falls, the last where it rises, and the first where
    # ℓ falls.
    nearest = xp.min(xp.where(rises, end, place), axis=0) - 1
    farthest = xp.max(xp.where(rises, place, 0.0), axis=0)
    summit = xp.min(xp.where(climbs > 0, end, place), axis=0) - 1
    start = xp.maximum(xp.stack([nearest, farthest, summit]), 0.0)
    pull = column([1.0, 1.0, 0.0])

    def narrow(_: Any, ends: tuple[Any, Any]) -> tuple[Any, Any]:
        low, high = ends
        part = (high - low) / (_INSIDE + 1)
        number = column(np.arange(1.0, _INSIDE + 1))[:, None]
        inside = low + number * part
        climb = side * slope(side * xp.reshape(inside, (-1, *mean.shape)))
        up = xp.reshape(climb, inside.shape) > pull * inside
        rising = xp.min(xp.where(up, _INSIDE + 1.0, number), axis=0) - 1
        low = low + rising * part
        return low, low + part

    ends = distance(start), distance(xp.minimum(start + 1, end))
    low, high = fori_loop(_NARROWED, narrow, ends)
    # A narrow likelihood far off is a spike, whose mode is within its width of that of ℓ.
    centers = side * 0.5 * (low + high)
    bend = xp.square(sd) * density.bend(mean + sd * centers)
    width = 1 / xp.sqrt(xp.maximum(xp.where(xp.isfinite(bend), 1 - bend, 1.0), 1.0))
    low = xp.minimum(xp.min(centers[:2], axis=0), 0.0) - _REACH
    high = xp.maximum(xp.max(centers[:2], axis=0), 0.0) + _REACH
    powers = column(np.arange(_WIDTHS + 1) / _WIDTHS)[:, None]
    offsets = width * ((high - low) / width) ** powers
    breaks = xp.concatenate([centers, *(centers + offsets), *(centers - offsets)])
    breaks = xp.sort(xp.clip(breaks, low, high), axis=0)
    panels = len(breaks) - 1

    def spread(low: Any, high: Any) -> Any:
        """Nodes of panels, shape (15, panels, m)."""
        return 0.5 * (low + high) + 0.5 * (high - low) * column(_NODES)[:, None]

    def halve(state: tuple[Any, ...]) -> tuple[Any, ...]:
        at, low, high, top, _ = state
        x = spread(low, high)
        flat = xp.reshape(x, (-1, *mean.shape))
        height = density.height(mean + sd * flat) - 0.5 * xp.square(flat)
        top = xp.maximum(top, xp.max(height, axis=0))
        weight = xp.reshape(xp.exp(height - top), x.shape)
        # The error of the second moment counts, too.
        errors = xp.sum(column(_ERROR)[:, None] * weight * (1 + xp.square(x)), axis=0)
        errors = xp.abs((high - low) * errors)
        error = xp.max(errors)
        number = xp.arange(len(low)).reshape(-1, *(1,) * mean.ndim)
        for spare in range(_HALVED):
            largest = errors == xp.max(errors, axis=0)
            worst = number == xp.min(xp.where(largest, number, len(low)), axis=0)
            middle = 0.5 * xp.max(xp.where(worst, low + high, -xp.inf), axis=0)
            last = xp.max(xp.where(worst, high, -xp.inf), axis=0)
            added = number == panels + _HALVED * at + spare
            low = xp.where(added, middle, low)
            high = xp.where(added, last, xp.where(worst, middle, high))
            errors = xp.where(worst, 0.0, errors)
        return at + 1, low, high, top, error

    def wrong(state: tuple[Any, ...]) -> Any:
        return (state[0] < _ROUNDS) & (state[-1] > _EXACT)

    spare = xp.broadcast_to(high, (_ROUNDS * _HALVED, *mean.shape))
    lows, highs = xp.concatenate([breaks[:-1], spare]), xp.concatenate([breaks[1:], spare])
    start = xp.asarray(0), lows, highs, xp.full(mean.shape, -xp.inf), xp.asarray(np.inf)
    _, lows, highs, *_ = while_loop(wrong, halve, start)
    weights = xp.log(0.5 * (highs - lows) * column(_KRONROD)[:, None])
    flat = (-1, *mean.shape)
    return xp.reshape(spread(lows, highs), flat), xp.reshape(weights, flat)
