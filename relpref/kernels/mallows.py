"""The Mallows and the Kendall kernel on rankings (Jiao & Vert 2015).

Where items are not ranked, the Mallows kernel is sampled; the Kendall kernel is always exact.
"""

import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from relpref.data.ranking_tables import generator
from relpref.errors import DataError
from relpref.kernels.positions import (
    by_rows,
    exhaustive,
    exhaustive_only,
    expected_sign,
    in_double,
    over_items,
    padded,
    position_array,
    position_pair,
    traced,
)
from relpref.lazy_jit import lazy_jit
from relpref.linalg import real, require_memory

Floats = NDArray[np.float64]

_DRAWS_AT_ONCE = 2**11  # on either side
_PAIRS_AT_ONCE = 512
_HELD_BYTES = 2**30  # of signs that are kept while columns are asked for
_RANKINGS_AT_ONCE = 64  # whose draws are compared among themselves at once


def mallows_kernel(
    a: Any,
    b: Any = None,
    *,
    concentration: ArrayLike,
    samples: int = 32,
    rng_key: Any = 0,
    return_error: bool = False,
) -> Any:
    """exp(−λ · discordant pairs), as a mean over the linear extensions of rankings of any kind.

    Parameters
    ----------
    a, b : Rankings or array of int, shape (m, n)
        See `kendall_kernel`.
    concentration : float
        λ ≥ 0. A random full ranking is n(n − 1)/4 discordant pairs away on average.
    samples : int
        Linear extensions drawn for each non-exhaustive ranking; at least 2.
    rng_key : int or JAX key
        For the sampling. The same key and ranking give the same draws whatever the other rankings
        are, so that all Gram matrices of a key belong to one kernel.
    return_error : bool

    Returns
    -------
    kernel : array, shape (m, m') or (m, m)
        NumPy, float64. Inside a trace a JAX array, differentiable with respect to λ; rankings are
        exhaustive there (others are refused; NaN where their positions are traced, too).
    error : array, shape (m, m') or (m, m)
        Only with ``return_error``: standard errors, 0 where nothing was sampled; for equal sampled
        rankings the root mean square error, with the surplus that the notes name.

    Notes
    -----
    Full, top-k and exhaustive rankings with blocks A and A' have the exact kernel
    ``q^D Π_b ρ(|A_b|) Π_c ρ(|A'_c|) / Π_bc ρ(|A_b ∩ A'_c|)`` with q = e^−λ, ρ(t) = [t]_q!/t! and D
    the number of pairs ordered strictly in both, and differently. Its diagonal is 1 for full
    rankings only.

    A sampled ranking stands for the mixture of its draws, so every Gram matrix is positive
    semidefinite. The kernel of a sampled ranking with itself, and with an equal ranking of another
    person, which has the same draws, is too large by about (1 − k)/samples.
    """
    left, right = position_pair(a, b)
    require_memory(
        32.0 * len(left) * len(right),
        f"the Mallows kernel of {len(left)} and {len(right)} rankings",
    )
    if traced(left, right, concentration):
        values = exhaustive_only(jnp.exp(log_mallows(concentration, left, right)), left, right)
        return (values, jnp.zeros_like(values)) if return_error else values
    strength = checked_concentration(concentration)
    if samples < 2:
        raise DataError(f"mallows_kernel: samples={samples}; draw 2 at least")
    if exhaustive(left).all() and exhaustive(right).all():
        values = _exhaustive_kernel(strength, left, right)
        return (values, np.zeros_like(values)) if return_error else values
    seed = int(generator(rng_key).integers(2**63))
    draws = (_linear_extensions(side, samples, seed) for side in (left, right))
    values, error = _over_extensions(strength, *draws)
    return (values, error) if return_error else values


def checked_concentration(concentration: ArrayLike) -> float:
    strength = float(np.asarray(concentration, dtype=np.float64))
    if not 0 <= strength < np.inf:
        raise DataError(
            f"the Mallows kernel's concentration is {strength}; it is finite and not negative"
        )
    return strength


def _exhaustive_kernel(
    strength: float, left: NDArray[np.int32], right: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Kernel between exhaustive rankings that are not traced."""
    logarithm = in_double(_log_mallows, strength, padded(left), padded(right))
    return np.asarray(np.exp(logarithm[: len(left), : len(right)]))


def mallows_variances(
    rankings: Any, *, concentration: ArrayLike, samples: int = 32, rng_key: Any = 0
) -> Any:
    """Diagonal of `mallows_kernel`, shape (m,), for rankings of any kind.

    Arguments and draws are those of `mallows_kernel`.
    """
    positions = position_array(rankings)
    if traced(positions, concentration):
        return exhaustive_only(mallows_diagonal(concentration, positions), positions)
    checked_concentration(concentration)
    complete = exhaustive(positions)
    result = np.empty(len(positions))
    if complete.any():
        result[complete] = in_double(mallows_diagonal, concentration, padded(positions[complete]))[
            : complete.sum()
        ]
    rest = np.flatnonzero(~complete)
    seed = int(generator(rng_key).integers(2**63))
    for first in range(0, rest.size, _RANKINGS_AT_ONCE):
        rows = rest[first : first + _RANKINGS_AT_ONCE]
        draws = np.stack(_linear_extensions(positions[padded(rows)], samples, seed))
        result[rows] = in_double(_mean_within, concentration, draws)[: rows.size]
    return result


@lazy_jit
def _mean_within(concentration: Any, draws: Array) -> Array:
    """Mean kernel over all pairs of draws of each ranking; draws have shape (m, samples, n)."""
    return jax.lax.map(
        lambda part: jnp.mean(jnp.exp(_log_mallows(concentration, part, part))), draws
    )


@jax.custom_jvp
def log_mallows(concentration: Any, left: Array, right: Array) -> Array:
    """Logarithm of the kernel between exhaustive rankings, shape (m, m')."""
    return _log_mallows(concentration, left, right)


@log_mallows.defjvp
def _derivative(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    # The logarithm is linear in the table and in the strength: its derivative is one more sum,
    # instead of a backward pass through every cell of every pair of rankings.
    concentration, left, right = primals
    strength = real(concentration)
    tables = jax.jvp(
        partial(_share_of_an_item, n=left.shape[1]), (strength,), (jnp.ones_like(strength),)
    )
    shares, discordant = _sums(jnp.stack(tables), left, right)
    return shares[0] - strength * discordant, (shares[1] - discordant) * tangents[0]


@lazy_jit
def _log_mallows(concentration: Any, left: Array, right: Array) -> Array:
    strength = real(concentration)
    left, right = jnp.asarray(left), jnp.asarray(right)
    shares, discordant = _sums(_share_of_an_item(strength, left.shape[1])[None], left, right)
    return shares[0] - strength * discordant


def _sums(tables: Array, left: Array, right: Array) -> tuple[Array, Array]:
    """Sums of k tables over the blocks of every two rankings, and numbers of discordant pairs.

    ``tables``, shape (k, n + 1), are as from `_share_of_an_item`; the sums have shape (k, m, m'),
    the numbers (m, m').
    """
    size, other_size = _block_sizes(left), _block_sizes(right)
    ties = jnp.any(size > 1) & jnp.any(other_size > 1)

    def add(sums: tuple[Array, Array], position: Array, other: Array) -> tuple[Array, Array]:
        discordant, cells = sums
        # Counts of items: whole numbers, exact in single precision.
        below, above = (position < left).astype(jnp.float32), (other > right).astype(jnp.float32)

        def joint(cells: Array) -> Array:
            tied, other_tied = (
                (position == left).astype(jnp.float32),
                (other == right).astype(jnp.float32),
            )
            return cells + tables[:, (tied @ other_tied.T).astype(jnp.int32)]

        return discordant + (below @ above.T), jax.lax.cond(ties, joint, lambda cells: cells, cells)

    nothing = jnp.zeros((left.shape[0], right.shape[0]), tables.dtype)
    discordant, cells = over_items(
        add, (nothing, jnp.zeros((len(tables), *nothing.shape), tables.dtype)), left, right
    )
    rows, columns = (jnp.sum(tables[:, sizes], axis=2) for sizes in (size, other_size))
    return rows[:, :, None] + columns[:, None] - cells, discordant


@lazy_jit
def mallows_diagonal(concentration: Any, positions: Array) -> Array:
    """Kernel of each exhaustive ranking with itself, shape (m,): Π_b ρ(|A_b|), 1 without ties."""
    positions = jnp.asarray(positions)
    table = _share_of_an_item(real(concentration), positions.shape[1])
    return jnp.exp(jnp.sum(table[_block_sizes(positions)], axis=1))


def _share_of_an_item(strength: Array, n: int) -> Array:
    """Table of log ρ(t)/t for t = 0, ..., n, the share of each item of a block of t items.

    The items of a block add up to log ρ(t) = Σ_{u ≤ t} log([u]_q/u).
    """
    u = jnp.arange(1, n + 1)
    quotient = jnp.cumsum(jnp.exp(-strength * (u - 1))) / u
    return jnp.concatenate([jnp.zeros(1, strength.dtype), jnp.cumsum(jnp.log(quotient)) / u])


def _block_sizes(positions: Array) -> Array:
    nothing = jnp.zeros(positions.shape, jnp.int32)
    return over_items(lambda size, position: size + (position == positions), nothing, positions)


def _linear_extensions(positions: Any, samples: int, seed: int) -> list[NDArray[np.int32]]:
    """Uniform draws of each ranking's linear extensions; an exhaustive ranking is its only draw."""
    require_memory(
        4.0 * samples * positions.size, f"{samples} extensions of {len(positions)} rankings"
    )
    result = []
    for row, complete in zip(positions, exhaustive(positions), strict=True):
        if complete:
            result.append(row[None])
            continue
        stream = np.random.default_rng([seed, zlib.crc32(row.tobytes())])
        # The ranked items take the places that a random order gives them, in their own order; ties
        # are broken at random.
        place = np.argsort(stream.random((samples, row.size)), axis=1)
        chosen = np.flatnonzero(row >= 0)
        order = np.argsort(row[chosen] + stream.random((samples, chosen.size)), axis=1)
        np.put_along_axis(place, chosen[order], np.sort(place[:, chosen], axis=1), axis=1)
        result.append(place.astype(np.int32))
    return result


Draws = list[NDArray[np.int32]]


def _over_extensions(strength: float, left: Draws, right: Draws) -> tuple[Floats, Floats]:
    """Means over all pairs of draws, and their standard errors."""
    values = np.empty((len(left), len(right)))
    error = np.empty_like(values)
    codes: dict[bytes, int] = {}

    def code(draws: NDArray[np.int32], exhaustive: int) -> int:
        return codes.setdefault(draws.tobytes(), len(codes)) if len(draws) > 1 else exhaustive

    same = np.equal.outer([code(draws, -1) for draws in left], [code(draws, -2) for draws in right])
    for rows in _batches(left):
        for columns in _batches(right):
            at = np.ix_(rows, columns)
            first, second = [left[i] for i in rows], [right[j] for j in columns]
            kernel = _exhaustive_kernel(strength, np.concatenate(first), np.concatenate(second))
            by_row, by_column = _means(kernel.T, second).T, _means(kernel, first)
            values[at] = _means(by_row, first)
            # The variance of a mean over all pairs of two samples, up to a term counted twice.
            variance = (
                _variances_of_means(by_row, first) + _variances_of_means(by_column.T, second).T
            )
            # Equal rankings have the same draws: each counts twice, and their pairs with themselves
            # are a surplus of (1 − k)/samples.
            surplus = (1 - values[at]) / np.maximum(_sizes(first) - 1, 1)
            error[at] = np.sqrt(np.where(same[at], 2 * variance + np.square(surplus), variance))
    return values, error


def _sizes(draws: Draws) -> NDArray[np.intp]:
    return np.array([len(part) for part in draws])[:, None]


def _means(values: Floats, draws: Draws) -> Floats:
    """Means over the draws of each ranking, one in each row."""
    sizes = _sizes(draws)
    return np.asarray(np.add.reduceat(values, np.cumsum(sizes) - sizes[:, 0]) / sizes)


def _variances_of_means(values: Floats, draws: Draws) -> Floats:
    sizes = _sizes(draws)
    deviation = values - np.repeat(_means(values, draws), sizes[:, 0], axis=0)
    return _means(np.square(deviation), draws) / np.maximum(sizes - 1, 1)


def _batches(draws: Draws) -> list[NDArray[np.intp]]:
    if not draws:
        return []
    ends = np.cumsum([len(part) for part in draws])
    return np.split(
        np.arange(len(draws)), np.flatnonzero(np.diff((ends - 1) // _DRAWS_AT_ONCE)) + 1
    )


def kendall_features(rankings: Any) -> Any:
    """Features of pairs of items, whose inner products are the Kendall kernel.

    Parameters
    ----------
    rankings : Rankings or array of int, shape (m, n)
        Position of each item's block, 0 = most preferred; −1 = not ranked.

    Returns
    -------
    array, shape (m, n(n − 1)/2)
        Pairs in the order (0, 1), (0, 2), ..., (1, 2), .... NumPy, float64; a JAX array inside a
        trace.

    Notes
    -----
    The mean over all full rankings that agree with a ranking (its linear extensions) of the sign of
    each pair, divided by the root of the number of pairs. Both items ranked: ±1, and 0 for a tie.
    One of them, at the mid-rank c among k ranked items: ±(k + 1 − 2c)/(k + 1), because the other
    one is as likely in each of the k + 1 gaps. None: 0.
    """
    positions = position_array(rankings)
    m, n = positions.shape
    _check_items(n)
    require_memory(8.0 * m * n * (n - 1), f"Kendall features of {m} rankings of {n} items")
    return _features(positions) if traced(positions) else by_rows(_features, positions)


def kendall_kernel(a: Any, b: Any = None) -> Any:
    """The Kendall kernel: (concordant − discordant pairs)/all pairs, for rankings of any kind.

    It is the mean over the linear extensions of both rankings.

    Parameters
    ----------
    a, b : Rankings or array of int, shape (m, n)
        Positions as for `kendall_features`; ``b`` is ``a`` by default. Items of `Rankings` are
        matched by their labels; one that ``b`` lacks is not ranked by ``b``.

    Returns
    -------
    array, shape (m, m') or (m, m)
        One matrix product of `kendall_features`, without holding those of all pairs.

    Raises
    ------
    DataError
        If rankings are of different items, or memory would not suffice.
    """
    left, right = position_pair(a, b)
    _check_items(left.shape[1])
    require_memory(
        24.0 * len(left) * len(right),
        f"the Kendall kernel of {len(left)} and {len(right)} rankings",
    )
    if traced(left, right):
        return _gram(left, right, False)
    gram = partial(_gram, integral=bool(exhaustive(left).all() and exhaustive(right).all()))
    return in_double(gram, padded(left), padded(right))[: len(left), : len(right)]


def kendall_columns(rankings: Any) -> Callable[[int], NDArray[np.float64]]:
    """Columns of `kendall_kernel` of rankings with themselves, one at a time.

    Signs of pairs are computed once if memory can hold them.
    """
    positions = position_array(rankings)
    m, n = positions.shape
    _check_items(n)
    number = n * (n - 1) // 2
    complete = bool(exhaustive(positions).all())
    if (4 if complete else 8) * m * number > _HELD_BYTES:
        return lambda row: np.asarray(kendall_kernel(positions, positions[[row]])[:, 0])
    if not complete:
        features = kendall_features(positions)
        return lambda row: np.asarray(features @ features[row])
    first, second = np.triu_indices(n, 1)
    signs = np.empty((m, number), np.float32)
    for sign, position in zip(signs, positions, strict=True):
        np.sign(position[second] - position[first], out=sign, casting="unsafe")
    # Whole numbers, whose sums are exact in single precision.
    return lambda row: (signs @ signs[row]).astype(np.float64) / number


@lazy_jit
def kendall_diagonal(positions: Array) -> Array:
    """Kernel of each ranking with itself, shape (m,): 1 for full rankings."""
    positions = jnp.asarray(positions)
    lead, n = _lead(positions), positions.shape[1]

    def add(total: Array, position: Array, ahead: Array) -> Array:
        return total + jnp.sum(jnp.square(expected_sign(positions, lead, position, ahead)), axis=1)

    return over_items(add, jnp.zeros(len(positions), lead.dtype), positions, lead) / (n * (n - 1))


@lazy_jit
def _features(positions: Array) -> Array:
    first, second = np.triu_indices(positions.shape[1], 1)
    return _signs(positions, first, second) / np.sqrt(first.size)


@partial(lazy_jit, static_argnames="integral")
def _gram(left: Array, right: Array, integral: bool) -> Array:
    """Mean product of the signs of all pairs of items, computed for some pairs at a time.

    Where all items are ranked, signs are integers, whose sums are exact in single precision.
    """
    signs = _integer_signs if integral else _signs
    pairs = np.stack(np.triu_indices(left.shape[1], 1))
    number = pairs.shape[1]
    # Filled up with pairs of an item and itself, whose sign is 0.
    pairs = np.pad(pairs, ((0, 0), (0, -number % min(_PAIRS_AT_ONCE, number))))
    parts = jnp.asarray(pairs.reshape(2, -1, min(_PAIRS_AT_ONCE, number)).transpose(1, 0, 2))

    def add(gram: Array, pair: Array) -> tuple[Array, None]:
        return gram + signs(left, *pair) @ signs(right, *pair).T, None

    gram, _ = jax.lax.scan(add, jnp.zeros((left.shape[0], right.shape[0]), float), parts)
    return gram / number


def _integer_signs(positions: Array, first: Array, second: Array) -> Array:
    return jnp.sign(positions[:, second] - positions[:, first]).astype(jnp.float32)


def _signs(positions: Any, first: Any, second: Any) -> Array:
    positions = jnp.asarray(positions)
    lead = _lead(positions)
    return expected_sign(positions[:, first], lead[:, first], positions[:, second], lead[:, second])


def _lead(positions: Array) -> Array:
    """(k + 1 − 2c)/(k + 1) of each ranked item: (items below − items above)/(k + 1)."""
    ranked = positions >= 0

    def add(lead: Array, position: Array) -> Array:
        return lead + jnp.where(position >= 0, jnp.sign(position - positions), 0)

    lead = over_items(add, jnp.zeros(positions.shape, float), positions)
    return jnp.where(ranked, lead / (jnp.sum(ranked, axis=1, keepdims=True) + 1), 0)


def _check_items(number: int) -> None:
    if number < 2:
        raise DataError(f"kernel on rankings of {number} items; give two at least")
