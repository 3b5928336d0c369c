"""The probability that a Gaussian falls into an interval, safe in both tails and for narrow intervals."""

import jax.numpy as jnp
from jax import Array

from relpref.likelihoods.normal import log_ndtr, log_ndtr_curvature, mills_ratio
from relpref.likelihoods.tilted import TiltedMoments

_NARROW = 1e-2  # width times distance from 0 below which the series in the width is the more exact
_SHORT = 0.03  # width below which a difference of log Φ would lose digits


def interval_moments(lower: Array, width: Array) -> TiltedMoments:
    """log(Φ(lower + width) − Φ(lower)) and its derivatives in a shift of the interval to the left.

    Parameters
    ----------
    lower, width : Array
        In the same shape; a width may be infinite. Far out it would be lost in the difference of two ends.

    Returns
    -------
    TiltedMoments
        log(Φ(l + w − x) − Φ(l − x)) at x = 0, its first derivative in x, and minus the second (between 0 and 1).
    """
    is_open = jnp.isposinf(width)
    narrow = width * jnp.maximum(jnp.abs(lower), 1.0) < _NARROW
    upper = lower + jnp.where(is_open | narrow, 1.0, width)
    # In the left half Φ keeps its digits: mirror intervals whose middle is positive.
    mirrored = is_open | (lower + upper > 0)
    left, right = jnp.where(mirrored, -upper, lower), jnp.where(mirrored, -lower, upper)

    # With ρ = Φ(l)/Φ(u), r = φ/Φ and k = r(r + z), terms that cannot cancel:
    # φ(u)/(Φ(u) − Φ(l)) = r_u/(1 − ρ), and minus the second derivative is (k_u − ρ k_l)/(1 − ρ) + ρ (r_l − r_u)²/(1 − ρ)².
    mills, mills_left = mills_ratio(right), mills_ratio(left)
    bent, bent_left = log_ndtr_curvature(right), log_ndtr_curvature(left)
    # −log ρ is the integral of r over the interval; of a short one by Euler and Maclaurin's rule, r' being −k.
    short = jnp.where(is_open, 1.0, width) < _SHORT
    step = jnp.where(short, width, 0.0)
    integral = 0.5 * step * (mills_left + mills) + jnp.square(step) * (bent - bent_left) / 12
    log_ratio = jnp.where(short, -integral, log_ndtr(left) - log_ndtr(right))
    log_ratio = jnp.where(narrow, -1.0, jnp.where(is_open, -jnp.inf, log_ratio))
    ratio, rest = jnp.exp(log_ratio), -jnp.expm1(log_ratio)
    value = log_ndtr(right) + jnp.log(rest)
    # (φ(l) − φ(u))/φ(u) = exp((u² − l²)/2) − 1, and the two squares differ by twice the width times the middle.
    exponent = jnp.where(is_open, -jnp.inf, 0.5 * (left + right) * jnp.where(is_open | narrow, 1.0, width))
    slope = mills * jnp.expm1(exponent) / rest
    bend = (bent - ratio * bent_left) / rest + ratio * jnp.square((mills_left - mills) / rest)

    # Narrow: log(w φ(c)) + w²(c² − 1)/24 for width w and middle c.
    width = jnp.where(narrow, width, 1.0)
    middle, square = lower + 0.5 * width, jnp.square(width)
    density = -0.5 * jnp.square(middle) - 0.5 * jnp.log(2 * jnp.pi).astype(middle.dtype)
    near = jnp.log(width) + density + square * (jnp.square(middle) - 1) / 24
    return TiltedMoments(
        jnp.where(narrow, near, value),
        jnp.where(narrow, middle * (1 - square / 12), jnp.where(mirrored, -slope, slope)),
        jnp.clip(jnp.where(narrow, 1 - square / 12, bend), 0.0, 1.0),
    )
