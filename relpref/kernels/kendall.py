"""The Kendall kernel on rankings of any kind (Jiao & Vert 2015), exact, from features of pairs of items."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from relpref.errors import DataError
from relpref.kernels.positions import (
    by_rows,
    exhaustive,
    in_double,
    padded,
    position_array,
    position_pair,
    traced,
)
from relpref.kernels.signs import expected_sign
from relpref.linalg import require_memory

_PAIRS_AT_ONCE = 512
_HELD = 2**30  # bytes of signs that are kept while columns are asked for


def kendall_features(rankings: Any) -> Any:
    """Features of pairs of items, whose inner products are the Kendall kernel.

    Parameters
    ----------
    rankings : Rankings or array of int, shape (m, n)
        Position of each item's block, 0 = most preferred; −1 = not ranked.

    Returns
    -------
    array, shape (m, n(n − 1)/2)
        Pairs in the order (0, 1), (0, 2), ..., (1, 2), .... NumPy, float64; a JAX array inside a trace.

    Raises
    ------
    DataError
        If memory would not suffice.

    Notes
    -----
    The mean over all full rankings that agree with a ranking (its linear extensions) of the sign of each pair, divided by the root of
    the number of pairs. Both items ranked: ±1, and 0 for a tie. One of them, at the mid-rank c among k ranked items: ±(k + 1 − 2c)/(k + 1),
    because the other one is as likely in each of the k + 1 gaps. None: 0.
    """
    positions = position_array(rankings)
    m, n = positions.shape
    _check_items(n)
    require_memory(8.0 * m * n * (n - 1), f"Kendall features of {m} rankings of {n} items")
    return _features(positions) if traced(positions) else by_rows(_features, positions)


def kendall_kernel(a: Any, b: Any = None) -> Any:
    """The Kendall kernel: (concordant − discordant pairs)/all pairs, as a mean over linear extensions of rankings of any kind.

    Parameters
    ----------
    a, b : Rankings or array of int, shape (m, n)
        ``b`` is ``a`` by default. Items of `Rankings` are matched by their labels; one that ``b`` lacks is not ranked by ``b``.

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
    _check_items(left.shape[1], right.shape[1])
    require_memory(
        24.0 * len(left) * len(right), f"the Kendall kernel of {len(left)} and {len(right)} rankings"
    )
    if traced(left, right):
        return _gram(left, right, False)
    whole = bool(exhaustive(left).all() and exhaustive(right).all())
    gram = partial(_gram, whole=whole)
    return in_double(gram, padded(left), padded(right))[: len(left), : len(right)]


def kendall_columns(rankings: Any) -> Callable[[int], NDArray[np.float64]]:
    """Columns of `kendall_kernel` of rankings with themselves, one at a time, by signs that are computed once if they can be held."""
    positions = position_array(rankings)
    m, n = positions.shape
    _check_items(n)
    number = n * (n - 1) // 2
    whole = bool(exhaustive(positions).all())
    if (4 if whole else 8) * m * number > _HELD:
        return lambda row: np.asarray(kendall_kernel(positions, positions[[row]])[:, 0])
    if not whole:
        features = kendall_features(positions)
        return lambda row: np.asarray(features @ features[row])
    first, second = np.triu_indices(n, 1)
    signs = np.empty((m, number), np.float32)
    for sign, position in zip(signs, positions, strict=True):
        np.sign(position[second] - position[first], out=sign, casting="unsafe")
    # Whole numbers, whose sums are exact in single precision.
    return lambda row: (signs @ signs[row]).astype(np.float64) / number


@jax.jit
def kendall_diagonal(positions: Array) -> Array:
    """Kernel of each ranking with itself, shape (m,): 1 for full rankings."""
    lead, n = _lead(positions), positions.shape[1]

    def add(total: Array, other: tuple[Array, Array]) -> tuple[Array, None]:
        sign = expected_sign(positions, lead, *(part[:, None] for part in other))
        return total + jnp.sum(jnp.square(sign), axis=1), None

    total, _ = jax.lax.scan(add, jnp.zeros(len(positions), lead.dtype), (positions.T, lead.T))
    return total / (n * (n - 1))


@jax.jit
def _features(positions: Array) -> Array:
    first, second = np.triu_indices(positions.shape[1], 1)
    return _signs(positions, first, second) / np.sqrt(first.size)


@partial(jax.jit, static_argnames="whole")
def _gram(left: Array, right: Array, whole: bool) -> Array:
    """Of all pairs of items, some at a time; where all items are ranked, signs are whole numbers, exact in single precision."""
    signs = _whole_signs if whole else _signs
    pairs = np.stack(np.triu_indices(left.shape[1], 1))
    number = pairs.shape[1]
    # Filled up with pairs of an item and itself, whose sign is 0.
    pairs = np.pad(pairs, ((0, 0), (0, -number % min(_PAIRS_AT_ONCE, number))))
    parts = jnp.asarray(pairs.reshape(2, -1, min(_PAIRS_AT_ONCE, number)).transpose(1, 0, 2))

    def add(gram: Array, pair: Array) -> tuple[Array, None]:
        return gram + signs(left, *pair) @ signs(right, *pair).T, None

    gram, _ = jax.lax.scan(add, jnp.zeros((left.shape[0], right.shape[0]), float), parts)
    return gram / number


def _whole_signs(positions: Array, first: Array, second: Array) -> Array:
    return jnp.sign(positions[:, second] - positions[:, first]).astype(jnp.float32)


def _signs(positions: Any, first: Any, second: Any) -> Array:
    lead = _lead(positions)
    positions = jnp.asarray(positions)
    return expected_sign(positions[:, first], lead[:, first], positions[:, second], lead[:, second])


def _lead(positions: Any) -> Array:
    """(k + 1 − 2c)/(k + 1) of each ranked item: the items below it less those above, over k + 1."""
    positions = jnp.asarray(positions)
    ranked = positions >= 0

    def add(lead: Array, other: tuple[Array, Array]) -> tuple[Array, None]:
        position, known = (part[:, None] for part in other)
        return lead + jnp.where(known, jnp.sign(position - positions), 0), None

    lead, _ = jax.lax.scan(add, jnp.zeros(positions.shape, float), (positions.T, ranked.T))
    return jnp.where(ranked, lead / (jnp.sum(ranked, axis=1, keepdims=True) + 1), 0)


def _check_items(*numbers: int) -> None:
    if len(set(numbers)) > 1 or numbers[0] < 2:
        raise DataError(
            f"kernel on rankings of {' and '.join(map(str, numbers))} items; give rankings of the same items, two at least"
        )
