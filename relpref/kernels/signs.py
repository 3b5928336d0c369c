"""Whether of two items the first is the more preferred: the expected sign where one of them is not ranked."""

import jax.numpy as jnp
from jax import Array


def expected_sign(position: Array, lead: Array, other_position: Array, other_lead: Array) -> Array:
    """1 where the item is preferred to the other, −1 where it is the other way round, 0 for ties; elementwise, broadcast.

    Parameters
    ----------
    position, other_position : Array
        −1 for an item that is not ranked.
    lead, other_lead : Array
        P(preferred) − P(the other is preferred) against an item that is not ranked; 0 for one that is itself not ranked.
    """
    both = (position >= 0) & (other_position >= 0)
    return jnp.where(both, jnp.sign(other_position - position), lead - other_lead)
