"""The Mallows kernel on rankings (Jiao & Vert 2015): exact for every exhaustive kind, sampled where items are not ranked."""

import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from relpref.data.ranking_blocks import generator
from relpref.errors import DataError
from relpref.kernels.positions import (
    exhaustive,
    exhaustive_only,
    in_double,
    padded,
    position_array,
    position_pair,
    traced,
)
from relpref.linalg import real, require_memory

MANY = 2**11  # full rankings on either side that are compared at once
_AT_ONCE = 64  # rankings whose draws are compared among themselves at once


def mallows_kernel(
    a: Any,
    b: Any = None,
    *,
    concentration: ArrayLike,
    samples: int = 32,
    key: Any = 0,
    return_error: bool = False,
) -> Any:
    """exp(−λ · discordant pairs), as a mean over the linear extensions of rankings of any kind.

    Parameters
    ----------
    a, b : Rankings or array of int, shape (m, n)
        Position of each item's block, 0 = most preferred; −1 = not ranked. ``b`` is ``a`` by default.
        Items of `Rankings` are matched by their labels; one that ``b`` lacks is not ranked by ``b``.
    concentration : float
        λ ≥ 0. A random full ranking is n(n − 1)/4 discordant pairs away on average.
    samples : int
        Linear extensions drawn for each non-exhaustive ranking; at least 2.
    key : int or JAX key
        For the sampling. The same key and ranking give the same draws whatever the other rankings are, so that all Gram matrices of
        a key belong to one kernel.
    return_error : bool

    Returns
    -------
    kernel : array, shape (m, m') or (m, m)
        NumPy, float64. Inside a trace a JAX array, differentiable with respect to λ; rankings are exhaustive there.
    error : array, shape (m, m') or (m, m)
        Only with ``return_error``: standard errors, 0 where nothing was sampled; for equal sampled rankings the root mean square error,
        with the surplus that the notes name.

    Raises
    ------
    DataError
        If rankings are of different items, λ is negative or not finite, or a traced call has rankings that are not exhaustive (where
        their positions are traced, too, the result is NaN).

    Notes
    -----
    Full, top-k and exhaustive rankings with blocks A and A' (exact): ``q^D Π_b ρ(|A_b|) Π_c ρ(|A'_c|) / Π_bc ρ(|A_b ∩ A'_c|)`` with q = e^−λ,
    ρ(t) = [t]_q!/t! and D the number of pairs ordered strictly in both, and differently. 1 on the diagonal for full rankings only.

    A sampled ranking stands for the mixture of its draws: every Gram matrix is positive semidefinite; the kernel of a sampled ranking
    with itself, and with an equal ranking of somebody else, which has the same draws, is too large by about (1 − k)/samples.
    """
    left, right = position_pair(a, b)
    if left.shape[1] != right.shape[1]:
        raise DataError(
            f"mallows_kernel: rankings of {left.shape[1]} and of {right.shape[1]} items; give the same items"
        )
    require_memory(
        24.0 * len(left) * len(right), f"the Mallows kernel of {len(left)} and {len(right)} rankings"
    )
    if traced(left, right, concentration):
        values = exhaustive_only(jnp.exp(log_mallows(concentration, left, right)), left, right)
        return (values, jnp.zeros_like(values)) if return_error else values
    strength = checked_concentration(concentration)
    if samples < 2:
        raise DataError(f"mallows_kernel: samples={samples}; draw 2 at least")
    if exhaustive(left).all() and exhaustive(right).all():
        values = _known(strength, left, right)
        return (values, np.zeros_like(values)) if return_error else values
    seed = int(generator(key).integers(2**63))
    values, error = over_extensions(strength, extended(left, samples, seed), extended(right, samples, seed))
    return (values, error) if return_error else values


def checked_concentration(given: ArrayLike) -> float:
    """λ ≥ 0."""
    strength = float(np.asarray(given, dtype=np.float64))
    if not 0 <= strength < np.inf:
        raise DataError(f"the Mallows kernel's concentration is {strength}; it is finite and not negative")
    return strength


def _known(strength: float, left: NDArray[np.int32], right: NDArray[np.int32]) -> NDArray[np.float64]:
    """Kernel between exhaustive rankings that are not traced."""
    require_memory(32.0 * len(left) * len(right), f"a Gram matrix of {len(left)} x {len(right)} rankings")
    logarithm = in_double(_log_mallows, strength, padded(left), padded(right))
    return np.asarray(np.exp(logarithm[: len(left), : len(right)]))


def mallows_variances(rankings: Any, *, concentration: ArrayLike, samples: int = 32, key: Any = 0) -> Any:
    """Diagonal of `mallows_kernel`, shape (m,), for rankings of any kind and with the same draws; arguments as there."""
    positions = position_array(rankings)
    if traced(positions, concentration):
        return exhaustive_only(mallows_diagonal(concentration, positions), positions)
    checked_concentration(concentration)
    known = exhaustive(positions)
    result = np.empty(len(positions))
    if known.any():
        result[known] = in_double(mallows_diagonal, concentration, padded(positions[known]))[: known.sum()]
    rest = np.flatnonzero(~known)
    seed = int(generator(key).integers(2**63))
    for first in range(0, rest.size, _AT_ONCE):
        rows = rest[first : first + _AT_ONCE]
        draws = np.stack(extended(positions[padded(rows)], samples, seed))
        result[rows] = in_double(_mean_within, concentration, draws)[: rows.size]
    return result


@jax.jit
def _mean_within(concentration: Any, draws: Array) -> Array:
    """Mean kernel of the draws of each ranking with each other and themselves, from shape (m, samples, n)."""
    return jax.lax.map(lambda part: jnp.mean(jnp.exp(_log_mallows(concentration, part, part))), draws)


@jax.custom_jvp
def log_mallows(concentration: Any, left: Array, right: Array) -> Array:
    """Logarithm of the kernel between exhaustive rankings, shape (m, m')."""
    return _log_mallows(concentration, left, right)


@log_mallows.defjvp
def _derivative(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    # One forward derivative in one number, instead of a backward pass through every cell of every pair of rankings.
    concentration, left, right = primals
    strength = real(concentration)
    value, slope = jax.jvp(lambda at: _log_mallows(at, left, right), (strength,), (jnp.ones_like(strength),))
    return value, slope * tangents[0]


@jax.jit
def _log_mallows(concentration: Any, left: Array, right: Array) -> Array:
    strength = real(concentration)
    left, right = jnp.asarray(left), jnp.asarray(right)
    table = _share_of_an_item(strength, left.shape[1])
    size, other_size = _block_sizes(left), _block_sizes(right)
    ties = jnp.any(size > 1) & jnp.any(other_size > 1)

    def add(sums: tuple[Array, Array], item: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        position, other = (part[:, None] for part in item)
        discordant, cells = sums
        # Counts of items: whole numbers, exact in single precision.
        below, above = (position < left).astype(jnp.float32), (other > right).astype(jnp.float32)
        discordant = discordant + (below @ above.T)

        def joint(cells: Array) -> Array:
            tied, also = (position == left).astype(jnp.float32), (other == right).astype(jnp.float32)
            return cells + table[(tied @ also.T).astype(jnp.int32)]

        return (discordant, jax.lax.cond(ties, joint, lambda cells: cells, cells)), None

    shape = (left.shape[0], right.shape[0])
    nothing = (jnp.zeros(shape, strength.dtype), jnp.zeros(shape, strength.dtype))
    (discordant, cells), _ = jax.lax.scan(add, nothing, (left.T, right.T))
    own = jnp.sum(table[size], axis=1)[:, None] + jnp.sum(table[other_size], axis=1)
    return own - cells - strength * discordant


@jax.jit
def mallows_diagonal(concentration: Any, positions: Array) -> Array:
    """Kernel of each exhaustive ranking with itself, shape (m,): Π_b ρ(|A_b|); 1 for full rankings."""
    positions = jnp.asarray(positions)
    table = _share_of_an_item(real(concentration), positions.shape[1])
    return jnp.exp(jnp.sum(table[_block_sizes(positions)], axis=1))


def _share_of_an_item(strength: Array, n: int) -> Array:
    """The table log ρ(t)/t for t = 0, ..., n: summed over the items of a block, the block's log ρ(t) = Σ_{u ≤ t} log([u]_q/u)."""
    u = jnp.arange(1, n + 1)
    quotient = jnp.cumsum(jnp.exp(-strength * (u - 1))) / u
    return jnp.concatenate([jnp.zeros(1, strength.dtype), jnp.cumsum(jnp.log(quotient)) / u])


def _block_sizes(positions: Array) -> Array:
    def add(size: Array, position: Array) -> tuple[Array, None]:
        return size + (position[:, None] == positions), None

    return jax.lax.scan(add, jnp.zeros(positions.shape, jnp.int32), positions.T)[0]


def extended(positions: Any, samples: int, seed: int) -> list[NDArray[np.int32]]:
    """Exhaustive rankings as they are, and of each other one some of its linear extensions, uniformly drawn."""
    require_memory(4.0 * samples * positions.size, f"{samples} extensions of {len(positions)} rankings")
    known = exhaustive(positions)
    result = []
    for row, complete in zip(positions, known, strict=True):
        if complete:
            result.append(row[None])
            continue
        stream = np.random.default_rng([seed, zlib.crc32(row.tobytes())])
        # The ranked items take the places that a random order gives them, in their own order; ties are broken at random.
        place = np.argsort(stream.random((samples, row.size)), axis=1)
        chosen = np.flatnonzero(row >= 0)
        order = np.argsort(row[chosen] + stream.random((samples, chosen.size)), axis=1)
        np.put_along_axis(place, chosen[order], np.sort(place[:, chosen], axis=1), axis=1)
        result.append(place.astype(np.int32))
    return result


def over_extensions(
    strength: float, left: list[NDArray[np.int32]], right: list[NDArray[np.int32]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means over all pairs of draws, and their standard errors."""
    values = np.empty((len(left), len(right)))
    error = np.empty_like(values)
    names = [[draws.tobytes() if len(draws) > 1 else None for draws in side] for side in (left, right)]
    for rows in _batches(left):
        for columns in _batches(right):
            one, other = [left[i] for i in rows], [right[j] for j in columns]
            kernel = _known(strength, np.concatenate(one), np.concatenate(other))
            starts = [np.cumsum([0, *map(len, side)]) for side in (one, other)]
            by_row, by_column = (
                np.add.reduceat(kernel, starts[1][:-1], axis=1) / np.diff(starts[1]),
                np.add.reduceat(kernel, starts[0][:-1], axis=0) / np.diff(starts[0])[:, None],
            )
            at = np.ix_(rows, columns)
            values[at] = np.add.reduceat(by_row, starts[0][:-1], axis=0) / np.diff(starts[0])[:, None]
            # Of a mean over all pairs of two samples, up to a term that is counted twice.
            variance = (
                _variance_of_mean(by_row, starts[0], 0) + _variance_of_mean(by_column.T, starts[1], 0).T
            )
            # The same draws on both sides: each counts twice, and their pairs with themselves are a surplus of (1 − k)/samples.
            columns_of: dict[Any, list[int]] = {}
            for place, column in enumerate(columns):
                columns_of.setdefault(names[1][column], []).append(place)
            for place, row in enumerate(rows):
                for same in columns_of.get(names[0][row], []) if names[0][row] is not None else []:
                    surplus = (1 - values[row, columns[same]]) / (len(left[row]) - 1)
                    variance[place, same] = 2 * variance[place, same] + surplus**2
            error[at] = np.sqrt(variance)
    return values, error


def _variance_of_mean(means: NDArray[np.float64], starts: NDArray[np.intp], axis: int) -> NDArray[np.float64]:
    sizes = np.diff(starts)[:, None]
    centre = np.add.reduceat(means, starts[:-1], axis=axis) / sizes
    squared = np.square(means - np.repeat(centre, sizes[:, 0], axis=0))
    return np.asarray(np.add.reduceat(squared, starts[:-1], axis=axis) / np.maximum(sizes - 1, 1) / sizes)


def _batches(draws: list[NDArray[np.int32]]) -> list[NDArray[np.intp]]:
    if not draws:
        return []
    ends = np.cumsum([len(part) for part in draws])
    return np.split(np.arange(len(draws)), np.flatnonzero(np.diff((ends - 1) // MANY)) + 1)
