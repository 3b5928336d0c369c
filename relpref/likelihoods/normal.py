"""The standard normal distribution function, safe in both tails."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import erfc, erfcx

# Asymptotic series in 1/x² for z = −x → −∞ (Abramowitz & Stegun 26.2.12): x Φ(z)/φ(z), and its consequence for
# r(z)(r(z) + z), the derivative of r = φ/Φ with the sign turned.
_TAIL_SERIES = (1.0, -1.0, 3.0, -15.0, 105.0, -945.0, 10395.0)
_CURVATURE_SERIES = (1.0, -1.0, 6.0, -50.0, 518.0, -6354.0, 89782.0)


def _switch(z: Array) -> float:
    """Where the series take over: both sides agree there to the dtype's precision."""
    return -30.0 if z.dtype == jnp.float64 else -10.0


def _series(coefficients: tuple[float, ...], z: Array) -> Array:
    inverse_square = 1.0 / jnp.square(jnp.minimum(z, _switch(z)))
    return jnp.polyval(jnp.asarray(coefficients[::-1], z.dtype), inverse_square)


def _scaled_tail(z: Array) -> Array:
    """2Φ(z)exp(z²/2) = erfcx(−z/√2), for z above the switch."""
    return erfcx(-jnp.maximum(z, _switch(z)) * jnp.sqrt(0.5).astype(z.dtype))


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
    far = jnp.minimum(z, _switch(z))
    left = jnp.minimum(z, -1.0)
    right = jnp.maximum(z, -1.0)
    half_log_two_pi = jnp.asarray(0.5 * jnp.log(2 * jnp.pi), z.dtype)
    asymptotic = -0.5 * far * far - jnp.log(-far) - half_log_two_pi + jnp.log(_series(_TAIL_SERIES, z))
    tail = -0.5 * left * left + jnp.log(0.5 * _scaled_tail(left))
    body = jnp.log1p(-0.5 * erfc(right * jnp.sqrt(0.5).astype(z.dtype)))
    return jnp.where(z < _switch(z), asymptotic, jnp.where(z < -1.0, tail, body))


@log_ndtr.defjvp
def _log_ndtr_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (z,), (tangent,) = primals, tangents
    return log_ndtr(z), mills_ratio(z) * tangent


@jax.custom_jvp
def mills_ratio(z: Array) -> Array:
    """φ(z)/Φ(z), the derivative of log Φ."""
    near = jnp.sqrt(2.0 / jnp.pi).astype(z.dtype) / _scaled_tail(z)
    return jnp.where(z < _switch(z), -jnp.minimum(z, _switch(z)) / _series(_TAIL_SERIES, z), near)


@mills_ratio.defjvp
def _mills_ratio_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (z,), (tangent,) = primals, tangents
    return mills_ratio(z), -log_ndtr_curvature(z) * tangent


def log_ndtr_curvature(z: Array) -> Array:
    """−(log Φ)''(z) = r(z)(z + r(z)) with r = φ/Φ; between 0 and 1.

    The product cancels for very negative z (in float64 it leaves [0, 1] near z = −1e5), so the asymptotic series takes
    over below −30 (−10 in float32).
    """
    near = jnp.maximum(z, _switch(z))
    ratio = mills_ratio(near)
    return jnp.where(z < _switch(z), _series(_CURVATURE_SERIES, z), ratio * (near + ratio))
