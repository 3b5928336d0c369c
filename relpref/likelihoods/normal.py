"""The standard normal distribution function, safe in both tails."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import erfc, erfcx

# r(z)(r(z) + z) for z → −∞ with x = −z: 1 − 1/x² + 6/x⁴ − 50/x⁶ + …, the derivative of the Mills ratio's series
# (Abramowitz & Stegun 26.2.12).
_CURVATURE_SERIES = (1.0, -1.0, 6.0, -50.0, 518.0, -6354.0, 89782.0)


@jax.custom_jvp
def log_ndtr(z: Array) -> Array:
    """Return log Φ(z), with relative accuracy for every finite z.

    Parameters
    ----------
    z : Array

    Returns
    -------
    Array
        Same shape. Its derivative is `mills_ratio`, computed without cancellation.
    """
    left = jnp.minimum(z, -1.0)
    right = jnp.maximum(z, -1.0)
    tail = -0.5 * left * left + jnp.log(0.5 * erfcx(-left * jnp.sqrt(0.5).astype(z.dtype)))
    body = jnp.log1p(-0.5 * erfc(right * jnp.sqrt(0.5).astype(z.dtype)))
    return jnp.where(z < -1.0, tail, body)


@log_ndtr.defjvp
def _log_ndtr_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (z,), (tangent,) = primals, tangents
    return log_ndtr(z), mills_ratio(z) * tangent


@jax.custom_jvp
def mills_ratio(z: Array) -> Array:
    """φ(z)/Φ(z), the derivative of log Φ."""
    return jnp.sqrt(2.0 / jnp.pi).astype(z.dtype) / erfcx(-z * jnp.sqrt(0.5).astype(z.dtype))


@mills_ratio.defjvp
def _mills_ratio_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (z,), (tangent,) = primals, tangents
    return mills_ratio(z), -log_ndtr_curvature(z) * tangent


def log_ndtr_curvature(z: Array) -> Array:
    """−(log Φ)''(z) = r(z)(z + r(z)) with r = φ/Φ; between 0 and 1.

    The product cancels for very negative z (in float64 it leaves [0, 1] near z = −1e5), so the asymptotic series takes
    over below −30 (−10 in float32), where both agree to the dtype's precision.
    """
    switch = -30.0 if z.dtype == jnp.float64 else -10.0
    near = jnp.maximum(z, switch)
    ratio = mills_ratio(near)
    inverse_square = 1.0 / jnp.square(jnp.minimum(z, switch))
    series = jnp.polyval(jnp.asarray(_CURVATURE_SERIES[::-1], z.dtype), inverse_square)
    return jnp.where(z < switch, series, ratio * (near + ratio))
