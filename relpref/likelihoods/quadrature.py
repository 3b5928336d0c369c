"""Tilted moments of any likelihood of one scalar, by adaptive quadrature.

In units of the cavity's sd the tilted density is exp(ℓ(m + s·x) − x²/2), ℓ the log likelihood. Its
modes lie between the cavity's mean and the mode of ℓ: there panels are laid whose widths grow
geometrically from the width of each mode, and those with the largest error (Gauss-Kronrod, 7 and 15
nodes) are halved. All rows do so at once.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from relpref.likelihoods.tilted import TiltedMoments

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
_REACH = 10.0  # sds beyond the outermost modes: nothing is left there
_WIDTHS = 7  # panels on either side of a mode
_ROUNDS, _HALVED = 10, 2  # how often panels are halved, and how many at once
_BISECTIONS = 48
_NEGLIGIBLE = 80.0  # below the largest log density
# Share of the variance that an answer takes, below which derivatives at the mean are the more
# exact.
_WEAK = 1e-7


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

    def slope(z: Array) -> Array:
        return jax.jvp(at, (z,), (jnp.ones_like(z),))[1]

    first, second = jax.jvp(slope, (mean,), (jnp.ones_like(mean),))
    near = TiltedMoments(at(mean), first, -second)

    def by_panels() -> TiltedMoments:
        sd = jnp.sqrt(jnp.where(v > 0, v, 1.0))
        x, log_weights, top = _mesh(frozen, m, sd)
        z = m + sd * x
        # Negligible nodes are moved to where nothing can overflow, so that their derivatives are
        # numbers, too.
        dead = jax.vmap(frozen)(z) - 0.5 * jnp.square(x) < top - _NEGLIGIBLE
        z = jnp.where(dead, m, z)
        safe = jnp.where(variance > 0, variance, 1.0)
        log_cavity = -0.5 * (jnp.square(z - mean) / safe + jnp.log(2 * jnp.pi * safe))
        exponent = (
            jnp.where(dead, -jnp.inf, jax.vmap(at)(z) + log_cavity) + log_weights + jnp.log(sd)
        )
        total = jax.nn.logsumexp(exponent, axis=0)
        weights = jnp.exp(exponent - total)
        moved = jnp.sum(weights * (z - mean), axis=0)
        left = jnp.sum(weights * jnp.square(z - mean - moved), axis=0)
        wide = TiltedMoments(total, moved / safe, (1 - left / safe) / safe)
        taken = v * (jnp.abs(wide.curvature) + jnp.square(wide.gradient))
        differ = v * jnp.abs(wide.curvature - near.curvature) + jnp.sqrt(v) * jnp.abs(
            wide.gradient - near.gradient
        )
        weak = (v <= 0) | ((taken < _WEAK) & (differ < 1e-3 * taken + 1e-13))
        return TiltedMoments(
            jnp.where(v > 0, total, near.log_normalizer),
            jnp.where(weak, near.gradient, wide.gradient),
            jnp.where(weak, near.curvature, wide.curvature),
        )

    return jax.lax.cond(jnp.any(v > 0), by_panels, lambda: near)


def _mesh(log: Log, mean: Array, sd: Array) -> tuple[Array, Array, Array]:
    """Nodes in sds from the mean, their log weights, and the largest exponent.

    The shapes are (q, m), (q, m) and (m,).
    """

    def slope(x: Array) -> Array:  # of ℓ, in x
        derivative = jax.jvp(lambda x: log(mean + sd * x), (x,), (jnp.ones_like(x),))[1]
        return jnp.where(jnp.isfinite(derivative), derivative, 0.0)

    side = jnp.where(slope(jnp.zeros_like(mean)) < 0, -1.0, 1.0).astype(mean.dtype)

    def uphill(t: Array) -> Array:  # at so many sds towards the mode of ℓ
        return side * slope(side * t)

    def bisect(low: Array, high: Array, pull: Any) -> Array:
        """Points between ``low`` and ``high`` where uphill(t) − pull·t falls to 0."""

        def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = 0.5 * (low + high)
            up = jax.vmap(uphill)(middle) - pull * middle > 0
            return jnp.where(up, middle, low), jnp.where(up, high, middle)

        low, high = jax.lax.fori_loop(0, _BISECTIONS, halve, (low, high))
        return 0.5 * (low + high)

    shape = (1,) * mean.ndim
    grid = jnp.reshape(jnp.r_[0.0, 2.0 ** np.arange(-10, _FARTHEST + 1)], (-1, *shape)).astype(
        mean.dtype
    )
    grid = jnp.broadcast_to(grid, (grid.shape[0], *mean.shape))
    climbs = jax.vmap(uphill)(grid)
    rises = climbs - grid > 0

    def bracket(index: Array) -> tuple[Array, Array]:
        low = jnp.take_along_axis(grid, index[None], axis=0)[0]
        return low, jnp.take_along_axis(grid, jnp.minimum(index + 1, len(grid) - 1)[None], axis=0)[
            0
        ]

    last_place = len(grid) - 1
    first = bracket(jnp.maximum(jnp.argmin(rises, axis=0) - 1, 0))
    last = bracket(last_place - jnp.argmax(rises[::-1], axis=0))
    summit = bracket(jnp.maximum(jnp.argmin(climbs > 0, axis=0) - 1, 0))  # of ℓ
    has_summit = jnp.any(climbs <= 0, axis=0)
    pull = jnp.reshape(jnp.asarray([1.0, 0.0], mean.dtype), (2, *shape))
    nearest, top = bisect(jnp.stack([first[0], summit[0]]), jnp.stack([first[1], summit[1]]), pull)
    # A narrow likelihood far off is a spike, just before whose summit the slope is upwards.
    before = jnp.reshape(1 - 0.5 ** np.arange(1, 46), (-1, *shape)) * top
    before = jnp.concatenate([before, top[None]])
    steep = jax.vmap(uphill)(before) - before > 0
    at = len(before) - 1 - jnp.argmax(steep[::-1], axis=0)
    spike = jnp.any(steep, axis=0) & has_summit
    ends = [
        jnp.where(spike, jnp.take_along_axis(before, place[None], axis=0)[0], end)
        for place, end in zip((at, jnp.minimum(at + 1, len(before) - 1)), last, strict=True)
    ]
    (farthest,) = bisect(ends[0][None], ends[1][None], 1.0)

    centers = side * jnp.stack([nearest, farthest])
    bend = jax.vmap(lambda x: jax.jvp(slope, (x,), (jnp.ones_like(x),))[1])(centers)
    width = jax.lax.rsqrt(jnp.maximum(jnp.where(jnp.isfinite(bend), 1 - bend, 1.0), 1.0))
    low = jnp.minimum(jnp.min(centers, axis=0), 0.0) - _REACH
    high = jnp.maximum(jnp.max(centers, axis=0), 0.0) + _REACH
    powers = jnp.reshape(jnp.arange(_WIDTHS + 1) / _WIDTHS, (-1, 1, *shape))
    offsets = width * ((high - low) / width) ** powers
    breaks = jnp.concatenate([centers, *(centers + offsets), *(centers - offsets)])
    breaks = jnp.sort(jnp.clip(breaks, low, high), axis=0)

    def exponent(x: Array) -> Array:
        return jax.vmap(log)(mean + sd * x) - 0.5 * jnp.square(x)

    peak = jnp.max(exponent(jnp.concatenate([centers, jnp.zeros_like(mean)[None]])), axis=0)
    nodes, rule, error = (
        jnp.reshape(jnp.asarray(w, mean.dtype), (-1, 1, *shape)) for w in (_NODES, _KRONROD, _ERROR)
    )

    def spread(low: Array, high: Array) -> Array:
        """Nodes of panels, shape (15, panels, m)."""
        return 0.5 * (low + high) + 0.5 * (high - low) * nodes

    def errors(low: Array, high: Array) -> Array:
        x = spread(low, high)
        flat = exponent(jnp.reshape(x, (-1, *mean.shape)))
        density = jnp.exp(jnp.minimum(jnp.reshape(flat, x.shape) - peak, _NEGLIGIBLE))
        # The error of the second moment counts, too.
        return jnp.abs(0.5 * (high - low) * jnp.sum(error * density * (1 + jnp.square(x)), axis=0))

    def halve(
        _: Any, panels: tuple[Array, Array, Array, Array]
    ) -> tuple[Array, Array, Array, Array]:
        low, high, wrong, filled = panels
        worst = jnp.moveaxis(jax.lax.top_k(jnp.moveaxis(wrong, 0, -1), _HALVED)[1], -1, 0)
        left, right = (jnp.take_along_axis(end, worst, axis=0) for end in (low, high))
        middle = 0.5 * (left + right)
        both = errors(jnp.concatenate([left, middle]), jnp.concatenate([middle, right]))

        def put(array: Array, old: Array, new: Array) -> Array:
            array = jnp.put_along_axis(array, worst, old, axis=0, inplace=False)
            return jax.lax.dynamic_update_slice_in_dim(array, new, filled, axis=0)

        return (
            put(low, left, middle),
            put(high, middle, right),
            put(wrong, both[:_HALVED], both[_HALVED:]),
            filled + _HALVED,
        )

    spare = jnp.broadcast_to(high, (_ROUNDS * _HALVED, *mean.shape))
    lows, highs = jnp.concatenate([breaks[:-1], spare]), jnp.concatenate([breaks[1:], spare])
    start = (lows, highs, errors(lows, highs), jnp.asarray(len(breaks) - 1))
    lows, highs, _, _ = jax.lax.fori_loop(0, _ROUNDS, halve, start)
    weights = jnp.log(0.5 * (highs - lows) * rule)
    flat = (-1, *mean.shape)
    return jnp.reshape(spread(lows, highs), flat), jnp.reshape(weights, flat), peak
