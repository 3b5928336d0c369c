"""The monotone fit along a ranking: weighted isotonic regression of many rankings at once, without sorting."""

import jax
import jax.numpy as jnp
from jax import Array


def pooled(gains: Array, positions: Array) -> Array:
    """Average gains over the pools of the best fit that does not rise from a more to a less preferred block.

    With F(B) the sum of the gains of the items in B, these are the slopes of the least concave majorant of the points
    (|B_k|, F(B_k)) over the prefixes B_k of a ranking, what the pool-adjacent-violators algorithm finds
    (GCK algorithm 1; Best & Chakravarti 1990).

    Parameters
    ----------
    gains : Array, shape (m, n)
        Only the sum over each block matters.
    positions : Array, shape (m, n)
        Any numbers that order the blocks, the smallest first; equal ones are a block.

    Returns
    -------
    Array, shape (m, n)
        The same for all items of a block.

    Notes
    -----
    A prefix is a vertex of the majorant if every chord that ends there is steeper than every chord that starts there. All
    chords of a ranking are looked at, O(n²), which has no branches and needs neither a sort nor a stack, so that it runs
    along all rankings at once. The result is linear in the gains as long as the pools stay the same, and is so
    differentiated: exact wherever a gradient exists.
    """
    fixed = jax.lax.stop_gradient(gains)
    (before, through), (fewer, size) = _prefix_sums(positions, fixed, jnp.ones_like(fixed))

    def chords(steepest: tuple[Array, Array], other: tuple[Array, ...]) -> tuple[tuple[Array, Array], None]:
        ending, starting = steepest
        position, sum_before, sum_through, size_before, size_through = (part[:, None] for part in other)
        earlier = position <= positions
        chord = (through - sum_before) / jnp.where(earlier, size - size_before, 1)
        ending = jnp.where(earlier, jnp.minimum(ending, chord), ending)
        chord = (sum_through - through) / jnp.where(earlier, 1, size_through - size)
        return (ending, jnp.where(earlier, starting, jnp.maximum(starting, chord))), None

    extremes = (jnp.full_like(fixed, jnp.inf), jnp.full_like(fixed, -jnp.inf))
    ends = (positions.T, before.T, through.T, fewer.T, size.T)
    (ending, starting), _ = jax.lax.scan(chords, extremes, ends)
    vertex = jnp.where(ending > starting, size, 0)

    def latest(start: Array, other: tuple[Array, Array]) -> tuple[Array, None]:
        position, size_through = (part[:, None] for part in other)
        return jnp.where(position < positions, jnp.maximum(start, size_through), start), None

    # A pool is known by the size of the vertex before it.
    start, _ = jax.lax.scan(latest, jnp.zeros_like(fixed), (positions.T, vertex.T))

    def average(sums: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        same = other[0][:, None] == start
        gain = jnp.where(same, other[1][:, None], 0)
        return (sums[0] + gain, sums[1] + same), None

    nothing = (jnp.zeros_like(gains), jnp.zeros_like(fixed))
    (total, members), _ = jax.lax.scan(jax.checkpoint(average), nothing, (start.T, gains.T))
    return total / members


def _prefix_sums(positions: Array, *values: Array) -> list[tuple[Array, Array]]:
    """Sums over the blocks before that of each item, and over these and its own, of each array of values."""

    def add(
        sums: list[tuple[Array, Array]], other: tuple[Array, ...]
    ) -> tuple[list[tuple[Array, Array]], None]:
        position = other[0][:, None]
        before, through = position < positions, position <= positions
        parts = zip(sums, (value[:, None] for value in other[1:]), strict=True)
        return [
            (low + jnp.where(before, value, 0), up + jnp.where(through, value, 0))
            for (low, up), value in parts
        ], None

    nothing = [(jnp.zeros_like(value), jnp.zeros_like(value)) for value in values]
    return jax.lax.scan(add, nothing, (positions.T, *(value.T for value in values)))[0]
