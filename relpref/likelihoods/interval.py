"""The probability that a Gaussian falls into an interval, safe in both tails and for narrow intervals."""

import jax.numpy as jnp
from jax import Array

from relpref.likelihoods.normal import log_ndtr, log_ndtr_curvature, mills_ratio
from relpref.likelihoods.tilted import TiltedMoments

_NARROW = 1e-2  # width times distance from 0 below which the series in the width is the more exact


def interval_moments(lower: Array, upper: Array) -> TiltedMoments:
    """log(Φ(upper) − Φ(lower)) and its derivatives in a common shift of both ends to the left.

    Parameters
    ----------
    lower, upper : Array
        lower < upper, in the same shape; −inf and inf are allowed.

    Returns
    -------
    TiltedMoments
        log(Φ(u − x) − Φ(l − x)) at x = 0, its first derivative in x, and minus the second (between 0 and 1).
    """
    # In the left half Φ keeps its digits: mirror intervals whose middle is positive.
    open_below, open_above = jnp.isneginf(lower), jnp.isposinf(upper)
    low, high = jnp.where(open_below, -1.0, lower), jnp.where(open_above, 1.0, upper)
    mirrored = ~open_below & (open_above | (low + high > 0))
    left, right = jnp.where(mirrored, -high, low), jnp.where(mirrored, -low, high)
    one_sided = open_below | open_above
    left = jnp.where(one_sided, right - 1.0, left)

    # With ρ = Φ(l)/Φ(u), r = φ/Φ and k = r(r + z), terms that cannot cancel:
    # φ(u)/(Φ(u) − Φ(l)) = r_u/(1 − ρ), and minus the second derivative is (k_u − ρ k_l)/(1 − ρ) + ρ (r_l − r_u)²/(1 − ρ)².
    width, middle = right - left, 0.5 * (left + right)
    narrow = ~one_sided & (width * jnp.maximum(jnp.abs(middle), 1.0) < _NARROW)
    left = jnp.where(narrow, right - 1.0, left)
    log_ratio = jnp.where(one_sided, -jnp.inf, log_ndtr(left) - log_ndtr(right))
    ratio, rest = jnp.exp(log_ratio), -jnp.expm1(log_ratio)
    mills, mills_left = mills_ratio(right), mills_ratio(left)
    value = log_ndtr(right) + jnp.log(rest)
    slope = -(mills - ratio * mills_left) / rest
    bend = (log_ndtr_curvature(right) - ratio * log_ndtr_curvature(left)) / rest + ratio * jnp.square(
        (mills_left - mills) / rest
    )

    # Narrow: log(w φ(c)) + w²(c² − 1)/24 for width w and middle c.
    square = jnp.square(width)
    density = -0.5 * jnp.square(middle) - 0.5 * jnp.log(2 * jnp.pi).astype(middle.dtype)
    near = jnp.log(jnp.where(narrow, width, 1.0)) + density + square * (jnp.square(middle) - 1) / 24
    value = jnp.where(narrow, near, value)
    slope = jnp.where(narrow, middle * (1 - square / 12), slope)
    bend = jnp.where(narrow, 1 - square / 12, bend)
    return TiltedMoments(value, jnp.where(mirrored, -slope, slope), jnp.clip(bend, 0.0, 1.0))
