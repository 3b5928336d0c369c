"""The expectation of a logistic function under a Gaussian, and its derivatives, by quadrature.

With L(m, v) = log E[σ(z)], z ~ N(m, v), two identities fold every mean into one where nothing cancels:
1 − E[σ] at m is E[σ] at −m (`_flipped`), and σ(z) = e^z σ(−z) gives L(m, v) = m + v/2 + L(−m−v, v) (`_reflected`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from relpref.likelihoods.normal import log_ndtr, mills_ratio

# For an sd up to _WIDE a trapezoidal rule around the mode converges geometrically (the poles of σ, at ±iπ, are π/sd away in units
# of the sd); beyond, e^(−v/2) is negligible.
_WIDE = 7.0
_STEPS = np.arange(-76, 77) * 0.11
# For wide Gaussians σ is a step and a remainder that falls like e^(−t/2) at least; Gauss-Legendre on (0, 60).
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_NODES, _WEIGHTS = 30 * (_NODES + 1), 30 * _WEIGHTS


class _Moments(NamedTuple):
    """L, its derivative g in the mean, and −L''."""

    value: Array
    gradient: Array
    curvature: Array


@jax.custom_jvp
def log_expected_sigmoid(mean: Array, variance: Array) -> Array:
    """Return L(mean, variance) = log E[σ(z)], z ~ N(mean, variance).

    Its derivatives are `sigmoid_moments`' own; ∂L/∂v = ½ (g² + L''), the heat equation of E[σ].
    """
    return sigmoid_moments(mean, variance)[0]


@log_expected_sigmoid.defjvp
def _jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    value, gradient, curvature = sigmoid_moments(*primals)
    return value, gradient * tangents[0] + 0.5 * (jnp.square(gradient) - curvature) * tangents[1]


def sigmoid_moments(mean: Array, variance: Array) -> tuple[Array, Array, Array]:
    """Return L(mean, variance), its derivative in the mean, and minus the second.

    Parameters
    ----------
    mean, variance : Array
        Of equal shapes; the variance is 0 or more.

    Returns
    -------
    value, gradient, curvature : Array
        Within 1e-9 (relative, where they exceed 1) in float64 up to means of 60 and variances of 1e4; the curvature is never negative.
    """
    lower = jnp.where(mean > 0, -mean, mean)
    wide = variance > _WIDE**2
    narrow = _by_trapezoid(lower, jnp.where(wide, 1.0, variance))
    broad = _by_parts(lower, jnp.where(wide, variance, 2 * _WIDE**2))
    below = _choose(wide, broad, narrow)
    value, gradient, curvature = _choose(mean > 0, _flipped(below), below)
    return value, gradient, jnp.maximum(curvature, 0.0)


def _by_trapezoid(mean: Array, variance: Array) -> _Moments:
    """For mean ≤ 0: the integrand is log-concave, and falls at least like a Gaussian of that variance around its mode."""
    sd = jnp.where(variance > 0, jnp.sqrt(jnp.where(variance > 0, variance, 1.0)), 0.0)
    # Of the mode from the mean, in sds, roughly: 0 clipped to [m, m + v]. The integral does not depend on it.
    offset = jax.lax.stop_gradient(jnp.minimum(sd, -mean / jnp.maximum(sd, 1e-30)))
    x = offset[..., None] + jnp.asarray(_STEPS, mean.dtype)
    z = mean[..., None] + sd[..., None] * x
    log_weights = jax.nn.log_sigmoid(z) - 0.5 * jnp.square(x)
    total = jax.nn.logsumexp(log_weights, axis=-1)
    weights = jnp.exp(log_weights - total[..., None])
    up, down = jax.nn.sigmoid(z), jax.nn.sigmoid(-z)
    gradient = jnp.sum(weights * down, axis=-1)
    spread = jnp.sum(weights * jnp.square(down - gradient[..., None]), axis=-1)
    step = float(np.log(_STEPS[1] - _STEPS[0]) - 0.5 * np.log(2 * np.pi))
    return _Moments(total + step, gradient, jnp.sum(weights * up * down, axis=-1) - spread)


def _by_parts(mean: Array, variance: Array) -> _Moments:
    """For mean ≤ 0 and a wide Gaussian: fold the mean into [−v/2, 0], there use the step and the remainder."""
    near = jnp.maximum(
        mean, jnp.where(mean < -variance, mean + variance, mean)
    )  # in [−v, 0], or E[σ] there is 0
    folded = jnp.clip(jnp.where(near < -variance / 2, -near - variance, near), -variance / 2, 0.0)
    inner = _step_and_remainder(folded, variance)
    inner = _choose(near < -variance / 2, _reflected(near, variance, inner), inner)
    nothing = near < -variance  # E[σ] < e^(−v/2)
    gone = _Moments(jnp.full_like(mean, -jnp.inf), jnp.ones_like(mean), jnp.zeros_like(mean))
    outer = _reflected(mean, variance, _flipped(_choose(nothing, gone, inner)))
    return _choose(mean < -variance, outer, inner)


def _step_and_remainder(mean: Array, variance: Array) -> _Moments:
    """For −v/2 ≤ mean ≤ 0; with b = |m|/v and N₀ = N(0; m, v) every term is positive.

    E[σ]/N₀   = Φ(m/√v)/N₀ + ∫ σ(−t) 2 sinh(bt) e^(−t²/2v) dt,
    E[σ']/N₀  = ∫ σ'(t) 2 cosh(bt) e^(−t²/2v) dt,    E[σ'']/N₀ = −∫ σ''(t) 2 sinh(bt) e^(−t²/2v) dt,    t from 0 to ∞.
    """
    sd = jnp.sqrt(variance)
    t, weights = jnp.asarray(_NODES, mean.dtype), jnp.asarray(_WEIGHTS, mean.dtype)
    tilt = (-mean / variance)[..., None] * t
    weights = 2 * weights * jnp.exp(-0.5 * jnp.square(t) / variance[..., None])
    up, down = jax.nn.sigmoid(t), jax.nn.sigmoid(-t)
    step = sd / mills_ratio(mean / sd)
    zeroth = step + jnp.sum(weights * down * jnp.sinh(tilt), axis=-1)
    gradient = jnp.sum(weights * up * down * jnp.cosh(tilt), axis=-1) / zeroth
    second = jnp.sum(weights * up * down * (up - down) * jnp.sinh(tilt), axis=-1) / zeroth
    value = log_ndtr(mean / sd) + jnp.log(zeroth / step)
    return _Moments(value, gradient, jnp.square(gradient) - second)


def _flipped(below: _Moments) -> _Moments:
    """At −m, from those at m ≤ 0: E[σ] there is 1 − q."""
    q = jnp.exp(below.value)
    odds = q / (1 - q)
    gradient = odds * below.gradient
    second = odds * (jnp.square(below.gradient) - below.curvature)
    return _Moments(jnp.log1p(-q), gradient, jnp.square(gradient) + second)


def _reflected(mean: Array, variance: Array, other: _Moments) -> _Moments:
    """At m, from those at −m − v."""
    return _Moments(mean + 0.5 * variance + other.value, 1 - other.gradient, other.curvature)


def _choose(condition: Array, yes: _Moments, no: _Moments) -> _Moments:
    return _Moments(*(jnp.where(condition, a, b) for a, b in zip(yes, no, strict=True)))
