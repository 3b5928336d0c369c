"""NumPy data on its way into JAX."""

import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike


def real(values: ArrayLike) -> Array:
    """Convert to JAX's default float, float64 inside ``enable_x64`` and float32 outside.

    The dtype is named because ``jnp.asarray`` alone may hand back the float64 version of an array that was a constant of a
    program compiled in double precision before.
    """
    return jnp.asarray(values, dtype=float)
