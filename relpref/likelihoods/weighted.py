"""Weighted likelihoods, in which an answer counts for more or less than a single one."""

from copy import copy
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from relpref.likelihoods.comparison import Comparison, OfComparison
from relpref.likelihoods.tilted import TiltedMoments

# Gauss-Legendre panels: nodes of each; edges on either side of the mode, geometric from its width
# to the cavity's; and edges in units of the noise around a gap of 0, where the answer turns.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_STEPS, _REACH = 6, 9.0
_TURN = np.array([-9.0, -4.0, -1.5, 0.0, 1.5, 4.0, 9.0])
_NARROW = 1e-7  # variances of a cavity up to which derivatives at its mean will do
_ROUNDS = 14  # of Newton's method for the mode, which need not be exact


class WeightedComparison(OfComparison):
    """Powers p^w of the probability p of an answer.

    For weights other than 1 they do not add up to 1: a weighted likelihood, not a distribution of
    answers. `sample` draws from p.

    Parameters
    ----------
    single : Comparison
        p.
    weight : Array, shape (m,)
        w, above 0.
    """

    leaves: ClassVar[tuple[str, ...]] = ("single", "weight")

    def __init__(
        self, single: Comparison, weight: ArrayLike, *, validate_args: bool | None = None
    ) -> None:
        self.single, self.weight = single, jnp.asarray(weight, single.gap.dtype)
        super().__init__(batch_shape=single.batch_shape, validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        return self.single.sample(key, sample_shape)

    def log_prob(self, value: ArrayLike) -> Array:
        """Log probability of an answer times its weight."""
        return self.weight * self.single.log_prob(value)

    def tilted(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments of p^w under the cavity N(mean, variance), by quadrature.

        Those of a weight of 1 are those of p.
        """
        once = self.single.tilted(value, mean, variance)
        wide = variance > _NARROW
        powered = self._by_panels(value, mean, jnp.where(wide, variance, 1.0))
        return TiltedMoments(
            *(
                jnp.where(self.weight == 1, plain, jnp.where(wide, power, self.weight * plain))
                for plain, power in zip(once, powered, strict=True)
            )
        )

    def _log_p(self, value: Array, gap: Array) -> Array:
        moved = copy(self.single)
        moved.gap = gap
        return moved.log_prob(value)

    def _by_panels(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments by Gauss-Legendre panels around the mode of the tilted density without lapses.

        That is log-concave, and falls at least like the cavity on either side of the mode. With
        lapses there may be another mode at the cavity's mean, of the cavity's width.
        """
        m, v = jax.lax.stop_gradient((mean, variance))
        fixed = copy(jax.lax.stop_gradient(self))
        fixed.single = copy(fixed.single)
        fixed.single.lapse = None
        sd = jnp.sqrt(v)

        def slope(gap: Array) -> Array:
            log_p = partial(fixed._log_p, value)
            return fixed.weight * jax.jvp(log_p, (gap,), (jnp.ones_like(gap),))[1]

        # The slope of log p falls, so that the mode lies between the cavity's mean and where its
        # slope there leads.
        end = m + v * slope(m)

        def closer(
            _: Any, carry: tuple[Array, Array, Array, Array]
        ) -> tuple[Array, Array, Array, Array]:
            mode, low, high, _ = carry
            rise, change = jax.jvp(slope, (mode,), (jnp.ones_like(mode),))
            rise, bend = rise - (mode - m) / v, 1 / v - change
            low, high = jnp.where(rise > 0, mode, low), jnp.where(rise > 0, high, mode)
            step = mode + rise / bend
            inside = (step >= low) & (step <= high)
            return jnp.where(inside, step, 0.5 * (low + high)), low, high, jax.lax.rsqrt(bend)

        start = (m, jnp.minimum(m, end), jnp.maximum(m, end), sd)
        mode, _, _, width = jax.lax.fori_loop(0, _ROUNDS, closer, start)
        turning = fixed.single.scale + fixed.single.outermost
        powers = jnp.linspace(0.0, 1.0, _STEPS, dtype=m.dtype)[:, None]
        away = width * (_REACH * sd / width) ** powers
        near = turning * _TURN[:, None] - fixed.single.shift + jnp.zeros_like(m)
        least, most = mode - _REACH * sd, mode + _REACH * sd
        if not self.log_concave:
            least, most = jnp.minimum(least, m - _REACH * sd), jnp.maximum(most, m + _REACH * sd)
            near = jnp.concatenate([near, m + sd * _TURN[:, None]])
        edges = jnp.concatenate([mode[None], mode + away, mode - away, jnp.clip(near, least, most)])
        edges = jnp.sort(edges, axis=0)
        half = 0.5 * jnp.diff(edges, axis=0)
        middle = edges[:-1] + half
        z = (middle[None] + half[None] * _NODES[:, None, None]).reshape(-1, len(m))
        rule = (half[None] * _WEIGHTS[:, None, None]).reshape(-1, len(m))
        log_p = jax.vmap(partial(self._log_p, value))(z)
        exponent = self.weight * log_p - 0.5 * (
            jnp.square(z - mean) / variance + jnp.log(2 * jnp.pi * variance)
        )
        highest = jax.lax.stop_gradient(jnp.max(exponent, axis=0))
        density = rule * jnp.exp(exponent - highest)
        total = jnp.sum(density, axis=0)
        share = density / total
        moved = jnp.sum(share * (z - mean), axis=0)
        left = jnp.sum(share * jnp.square(z - mean - moved), axis=0)
        shrink = 1 - left / variance
        if self.log_concave:
            shrink = jnp.maximum(shrink, 0.0)
        return TiltedMoments(highest + jnp.log(total), moved / variance, shrink / variance)
