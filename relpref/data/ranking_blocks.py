"""Ordered partitions as arrays: the position of every item's block, 0 for the most preferred, −1 for an unranked item."""

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from relpref.data.arrays import read_only
from relpref.data.messages import counted, shown
from relpref.errors import DataError

# From the narrowest to the widest: each kind is a special case of the next.
KINDS = ("full", "top-k", "exhaustive", "non-exhaustive")
_MOST_CELLS = 10**9


def check_size(rankings: int, items: int) -> None:
    """Refuse more positions than a machine holds, before they are made."""
    if rankings * items > _MOST_CELLS:
        raise DataError(
            f"rankings: {counted(rankings, 'ranking')} of {counted(items, 'item')} are {rankings * items:.1e} positions, "
            f"more than the limit of {_MOST_CELLS:.0e}; keep fewer rankings, or only the items that most of them rank"
        )


def numbered(rows: Any, columns: Any, keys: Any, shape: tuple[int, int]) -> NDArray[np.int32]:
    """Return the blocks of the items that are ranked, numbered without gaps in each ranking.

    Parameters
    ----------
    rows, columns : array of int, length e
        Ranking and item of each entry; no two entries have both in common.
    keys : array, length e
        The smaller, the more preferred; equal keys are a tie.
    shape : (int, int)
        Number of rankings m and of items n.

    Returns
    -------
    array of int32, shape (m, n)
        Read-only; −1 where there is no entry.
    """
    positions = np.full(shape, -1, dtype=np.int32)
    order = np.lexsort((keys, rows))
    rows, keys = rows[order], keys[order]
    begins = np.ones(len(rows), dtype=bool)
    begins[1:] = rows[1:] != rows[:-1]
    blocks = np.zeros(len(rows), dtype=np.int64)
    blocks[1:] = np.cumsum(~begins[1:] & (keys[1:] > keys[:-1]))
    # The count runs on from one ranking to the next; where each begins, it has the value that is its zero.
    blocks -= np.maximum.accumulate(np.where(begins, blocks, 0))
    positions[rows, columns[order]] = blocks
    return read_only(positions)


def kind_codes(positions: Any) -> NDArray[np.intp]:
    """Return the narrowest of `KINDS` that describes each ranking, as a position in it, shape (m,)."""
    n = positions.shape[1]
    last = positions.max(axis=1, keepdims=True, initial=-1)
    # Blocks have no gaps, so the blocks before the last one are single items where they have as many items as blocks.
    single = (positions < last).sum(axis=1) == last[:, 0]
    codes = np.where(single, np.where(last[:, 0] == n - 1, 0, 1), 2)
    return np.where((positions < 0).any(axis=1), 3, codes)


def merged(positions: NDArray[np.int32], blocks: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Return the positions after cutting each ranking at random places, uniformly, into at most that many blocks."""
    m, n = positions.shape
    last = positions.max(axis=1, keepdims=True, initial=0)
    # Of the `last` places between two blocks, the blocks − 1 with the smallest draws are cut.
    draws = rng.random((m, max(n - 1, 0)))
    draws[np.arange(draws.shape[1]) >= last] = np.inf
    chosen = np.argsort(np.argsort(draws, axis=1), axis=1) < blocks - 1
    cuts = np.zeros((m, n), dtype=np.int32)
    np.cumsum(chosen & np.isfinite(draws), axis=1, out=cuts[:, 1:])
    return np.where(positions >= 0, np.take_along_axis(cuts, np.maximum(positions, 0), axis=1), np.int32(-1))


def chosen_rows(chosen: Any, number: int) -> NDArray[np.intp]:
    """Return the rows that an index means: a number, a slice, a mask or an array of numbers."""
    # scikit-learn indexes whatever has a shape as if it were an array: [rows, ...].
    if isinstance(chosen, tuple) and len(chosen) == 2 and chosen[1] is Ellipsis:
        chosen = chosen[0]
    if isinstance(chosen, tuple):
        raise DataError(
            f"rankings[{shown(chosen)[1:-1]}]: choose rankings, not items; a list chooses several"
        )
    if isinstance(chosen, list):
        chosen = np.asarray(chosen, dtype=None if len(chosen) else np.intp)
    try:
        rows = np.atleast_1d(np.arange(number)[chosen])
    except IndexError as error:
        raise DataError(f"rankings[...]: {error}; there are {number}") from None
    if rows.ndim > 1:
        raise DataError(f"rankings[...]: the shape is {rows.shape}; choose rankings, not items")
    return rows


def check_number(number: Any, what: str) -> None:
    """Refuse what is no whole number from 1 on."""
    if not isinstance(number, int | np.integer) or number < 1:
        raise DataError(f"{what}: {shown(number)} are to be kept; keep a whole number of them, at least 1")


def generator(key: Any) -> np.random.Generator:
    """Return NumPy's generator for an integer seed or a JAX key."""
    if isinstance(key, int | np.integer) and key >= 0:
        return np.random.default_rng(int(key))
    if not isinstance(key, jax.Array | np.ndarray):
        raise DataError(
            f"key is {shown(key)}; give a whole number from 0 on, or a JAX key: jax.random.key(0)"
        )
    data = jax.random.key_data(key) if jax.numpy.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    return np.random.default_rng(np.asarray(data).tolist())
