"""The Mallows and the Kendall kernel on rankings (Jiao & Vert 2015).

Where items are not ranked, the Mallows kernel is sampled; the Kendall kernel is always exact.
"""

import zlib
from collections.abc import Callable
from functools import lru_cache
from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from relpref.data.ranking_tables import generator
from relpref.errors import DataError
from relpref.kernels.positions import (
    by_rows,
    exhaustive,
    exhaustive_only,
    expected_sign,
    over_items,
    position_array,
    position_pair,
)
from relpref.linalg import require_memory
from relpref.linalg.arrays import namespace, scan, traced

Floats = NDArray[np.float64]

_DRAWS_AT_ONCE = 2**11  # on either side
_PAIRS_AT_ONCE = 512
_HELD_BYTES = 2**30  # of signs that are kept while columns are asked for
_COUNTED = 2**22  # counts of items and pairs for all pairs of rankings, at once


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
        values = np.exp(log_mallows(strength, left, right))
        return (values, np.zeros_like(values)) if return_error else values
    seed = int(generator(rng_key).integers(2**63))
    values, error = _over_extensions(strength, left, right, samples, seed)
    return (values, error) if return_error else values


def checked_concentration(concentration: ArrayLike) -> float:
    strength = float(np.asarray(concentration, dtype=np.float64))
    if not 0 <= strength < np.inf:
        raise DataError(
            f"the Mallows kernel's concentration is {strength}; it is finite and not negative"
        )
    return strength


def mallows_variances(
    rankings: Any, *, concentration: ArrayLike, samples: int = 32, rng_key: Any = 0
) -> Any:
    """Diagonal of `mallows_kernel`, shape (m,), for rankings of any kind.

    Arguments and draws are those of `mallows_kernel`.
    """
    positions = position_array(rankings)
    if traced(positions, concentration):
        return exhaustive_only(mallows_diagonal(concentration, positions), positions)
    strength = checked_concentration(concentration)
    result = mallows_diagonal(strength, positions)
    seed = int(generator(rng_key).integers(2**63))
    for row in np.flatnonzero(~exhaustive(positions)):
        draws = _linear_extensions(positions[row], samples, seed)
        result[row] = np.mean(np.exp(log_mallows(strength, draws, draws)))
    return result


def log_mallows(concentration: Any, left: Any, right: Any) -> Any:
    """Logarithm of the kernel between exhaustive rankings, shape (m, m').

    It is linear in numbers of items and pairs, which are counted once for many concentrations.
    """
    number, items = right.shape
    rows = max(1, _COUNTED // max(items * number, 1))
    if traced(left, right):
        counted = [_counted(left, right)]
    elif rows >= len(left):
        sides = (np.ascontiguousarray(side, np.int32).tobytes() for side in (left, right))
        counted = [_remembered(*sides, items)]
    else:
        counted = [
            _counted(left[start : start + rows], right) for start in range(0, len(left), rows)
        ]
    xp = namespace(concentration, left, right)
    table = _share_of_an_item(concentration, items)

    def block(size: Any, other_size: Any, discordant: Any, tied: Any) -> Any:
        sizes = (xp.take(table, each, mode="clip") for each in (size, other_size))
        shares, other_shares = (xp.sum(each, axis=1) for each in sizes)
        total = shares[:, None] + other_shares - concentration * xp.asarray(discordant, dtype=float)
        return total - xp.tensordot(table[2 : 2 + len(tied)], tied, 1) if len(tied) else total

    return xp.concatenate([block(*each) for each in counted])


def _counted(left: Any, right: Any) -> tuple[Any, Any, Any, Any]:
    """Sizes of the items' blocks in both sets of rankings, shapes (m, n) and (m', n), and counts.

    These are, for every two rankings, the number of discordant pairs, shape (m, m'), and of items
    whose blocks have t = 2, 3, ... items in common, up to the largest that there may be, shape
    (t, m, m').
    """
    xp = namespace(left, right)
    size, other_size = _block_sizes(left), _block_sizes(right)
    most = left.shape[1]
    small = np.min_scalar_type(most)
    if xp is np:
        most = min(size.max(initial=1), other_size.max(initial=1))
    several = np.arange(2, most + 1).astype(small)[:, None, None]

    def common(items: Any, other_items: Any) -> Any:
        # Counts of items: whole numbers, exact in single precision.
        return items.astype(np.float32) @ other_items.astype(np.float32).T

    def add(counts: tuple[Any, Any], position: Any, other: Any) -> tuple[Any, Any]:
        discordant, tied = counts
        discordant = discordant + common(position < left, other > right)
        if len(several):
            together = common(position == left, other == right).astype(small)
            tied = tied + (together == several)
        return discordant, tied

    shape = len(left), len(right)
    nothing = xp.zeros(shape, np.float32), xp.zeros((len(several), *shape), small)
    return size, other_size, *over_items(add, nothing, left, right)


@lru_cache(maxsize=4)
def _remembered(left: bytes, right: bytes, items: int) -> tuple[Any, Any, Any, Any]:
    """Counts for positions as bytes, see `_counted`."""
    return _counted(*(np.frombuffer(side, np.int32).reshape(-1, items) for side in (left, right)))


def mallows_diagonal(concentration: Any, positions: Any) -> Any:
    """Kernel of each exhaustive ranking with itself, shape (m,): Π_b ρ(|A_b|), 1 without ties."""
    xp = namespace(concentration, positions)
    table = _share_of_an_item(concentration, positions.shape[1])
    return xp.exp(xp.sum(xp.take(table, _block_sizes(positions), mode="clip"), axis=1))


def _share_of_an_item(concentration: Any, items: int) -> Any:
    """Table of log ρ(t)/t for t = 0, ..., n, the share of each item of a block of t items.

    The items of a block add up to log ρ(t) = Σ_{u ≤ t} log([u]_q/u).
    """
    xp, below = namespace(concentration), np.arange(items)
    sums = xp.cumsum(xp.exp(-xp.asarray(concentration, dtype=float) * below))
    return xp.pad(xp.cumsum(xp.log(sums / (below + 1))) / (below + 1), (1, 0))


def _block_sizes(positions: Any) -> Any:
    nothing = namespace(positions).zeros(positions.shape, np.int32)
    return over_items(lambda size, position: size + (position == positions), nothing, positions)


def _linear_extensions(ranking: NDArray[np.int32], samples: int, seed: int) -> NDArray[np.int32]:
    """Uniform draws of a ranking's linear extensions, shape (samples, n).

    An exhaustive ranking is its only draw.
    """
    if exhaustive(ranking[None])[0]:
        return ranking[None]
    stream = np.random.default_rng([seed, zlib.crc32(ranking.tobytes())])
    # The ranked items take the places that a random order gives them, in their own order; ties are
    # broken at random.
    place = np.argsort(stream.random((samples, ranking.size)), axis=1)
    chosen = np.flatnonzero(ranking >= 0)
    order = np.argsort(ranking[chosen] + stream.random((samples, chosen.size)), axis=1)
    np.put_along_axis(place, chosen[order], np.sort(place[:, chosen], axis=1), axis=1)
    return place.astype(np.int32)


def _batches(
    positions: NDArray[np.int32], samples: int, seed: int
) -> list[tuple[NDArray[np.intp], NDArray[np.int32]]]:
    """Rows of some rankings at a time, all or none of them exhaustive, and their draws.

    Draws have the shape (rankings, draws, n).
    """
    require_memory(
        4.0 * samples * positions.size, f"{samples} extensions of {len(positions)} rankings"
    )
    batches = []
    complete = exhaustive(positions)
    for rows, number in ((np.flatnonzero(complete), 1), (np.flatnonzero(~complete), samples)):
        together = max(1, _DRAWS_AT_ONCE // number)
        for start in range(0, len(rows), together):
            some = rows[start : start + together]
            draws = [_linear_extensions(row, samples, seed) for row in positions[some]]
            batches.append((some, np.stack(draws)))
    return batches


def _over_extensions(
    strength: float, left: NDArray[np.int32], right: NDArray[np.int32], samples: int, seed: int
) -> tuple[Floats, Floats]:
    """Means over all pairs of draws, and their standard errors."""
    values = np.empty((len(left), len(right)))
    error = np.empty_like(values)
    batches = (_batches(side, samples, seed) for side in (left, right))
    for (rows, first), (columns, second) in product(*batches):
        at, draws = np.ix_(rows, columns), (np.concatenate(side) for side in (first, second))
        kernel = np.exp(log_mallows(strength, *draws))
        kernel = kernel.reshape(first.shape[:2] + second.shape[:2])
        by_row, by_column = kernel.mean(axis=3), kernel.mean(axis=1)
        values[at] = by_row.mean(axis=1)
        # The variance of a mean over all pairs of two samples, up to a term counted twice.
        variance = _variances_of_means(by_row, 1) + _variances_of_means(by_column, 2)
        # Equal rankings have the same draws: each counts twice, and their pairs with themselves are
        # a surplus of (1 − k)/samples.
        same = (left[rows][:, None] == right[columns]).all(axis=2) & (first.shape[1] > 1)
        surplus = (1 - values[at]) / max(first.shape[1] - 1, 1)
        error[at] = np.sqrt(np.where(same, 2 * variance + np.square(surplus), variance))
    return values, error


def _variances_of_means(values: Floats, axis: int) -> Floats:
    number = values.shape[axis]
    return np.asarray(values.var(axis=axis) / max(number - 1, 1))


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
    complete = not traced(left, right) and exhaustive(left).all() and exhaustive(right).all()
    return _gram(left, right, _integer_signs if complete else _signs)


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


def kendall_diagonal(positions: Any) -> Any:
    """Kernel of each ranking with itself, shape (m,): 1 for full rankings."""
    xp = namespace(positions)
    lead, n = _lead(positions), positions.shape[1]

    def add(total: Any, position: Any, ahead: Any) -> Any:
        return total + xp.sum(xp.square(expected_sign(positions, lead, position, ahead)), axis=1)

    return over_items(add, xp.zeros(len(positions)), positions, lead) / (n * (n - 1))


def _features(positions: Any) -> Any:
    first, second = np.triu_indices(positions.shape[1], 1)
    return _signs(positions)(first, second) / np.sqrt(first.size)


def _gram(left: Any, right: Any, signs: Callable[[Any], Callable[[Any, Any], Any]]) -> Any:
    """Mean product of the signs of all pairs of items, computed for some pairs at a time."""
    xp = namespace(left, right)
    pairs = np.stack(np.triu_indices(left.shape[1], 1))
    number = pairs.shape[1]
    # Filled up with pairs of an item and itself, whose sign is 0.
    pairs = np.pad(pairs, ((0, 0), (0, -number % min(_PAIRS_AT_ONCE, number))))
    parts = pairs.reshape(2, -1, min(_PAIRS_AT_ONCE, number))
    of_left, of_right = signs(xp.asarray(left)), signs(xp.asarray(right))

    def add(gram: Any, pair: tuple[Any, ...]) -> tuple[Any, None]:
        return gram + of_left(*pair) @ of_right(*pair).T, None

    return scan(add, xp.zeros((len(left), len(right))), tuple(parts))[0] / number


def _integer_signs(positions: NDArray[np.int32]) -> Callable[[Any, Any], Any]:
    """Signs of pairs of items of exhaustive rankings, whose sums are exact in single precision."""
    return lambda first, second: np.sign(
        positions[:, second] - positions[:, first], dtype=np.float32
    )


def _signs(positions: Any) -> Callable[[Any, Any], Any]:
    """Expected signs of pairs of items."""
    lead = _lead(positions)
    return lambda first, second: expected_sign(
        positions[:, first], lead[:, first], positions[:, second], lead[:, second]
    )


def _lead(positions: Any) -> Any:
    """(k + 1 − 2c)/(k + 1) of each ranked item: (items below − items above)/(k + 1)."""
    xp = namespace(positions)
    ranked = positions >= 0

    def add(lead: Any, position: Any) -> Any:
        return lead + xp.where(position >= 0, xp.sign(position - positions), 0)

    lead = over_items(add, xp.zeros(positions.shape), positions)
    return xp.where(ranked, lead / (xp.sum(ranked, axis=1, keepdims=True) + 1), 0)


def _check_items(number: int) -> None:
    if number < 2:
        raise DataError(f"kernel on rankings of {number} items; give two at least")
