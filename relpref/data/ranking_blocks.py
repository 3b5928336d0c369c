"""Ordered partitions as arrays: the position of every item's block, 0 for the most preferred, −1 for an unranked item."""

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from relpref.data.arrays import read_only
from relpref.data.messages import counted
from relpref.errors import DataError

# From the narrowest to the widest: each kind is a special case of the next.
KINDS = ("full", "top-k", "exhaustive", "non-exhaustive")
_MOST_CELLS = 10**9
_ROWS_AT_ONCE = 2**22


def check_size(rankings: int, items: int) -> None:
    """Refuse more positions than a machine holds, before they are made."""
    if rankings * items > _MOST_CELLS:
        raise DataError(
            f"rankings: {counted(rankings, 'ranking')} of {counted(items, 'item')} are {rankings * items:.1e} positions, "
            f"more than the limit of {_MOST_CELLS:.0e}; keep fewer rankings, or only the items that most of them rank"
        )


def numbered(keys: Any) -> NDArray[np.int32]:
    """Return the blocks of keys, numbered without gaps.

    Parameters
    ----------
    keys : array, shape (m, n)
        The smaller, the more preferred; equal keys are a tie, NaN is an unranked item.

    Returns
    -------
    array of int32, shape (m, n)
        Read-only.
    """
    m, n = keys.shape
    positions = np.empty((m, n), dtype=np.int32)
    # A few rows at a time: the sorted copies are several times as large as the result.
    step = max(1, _ROWS_AT_ONCE // max(n, 1))
    for first in range(0, m, step):
        part = keys[first : first + step]
        order = np.argsort(part, axis=1, kind="stable")
        ordered = np.take_along_axis(part, order, axis=1)
        blocks = np.zeros(part.shape, dtype=np.int32)
        np.cumsum(ordered[:, 1:] > ordered[:, :-1], axis=1, out=blocks[:, 1:])
        np.put_along_axis(positions[first : first + step], order, blocks, axis=1)
        positions[first : first + step][np.isnan(part)] = -1
    return read_only(positions)


def renumbered(positions: Any, kept: Any) -> NDArray[np.int32]:
    """Return the blocks of the items that are kept, shape (m, n); the others become unranked."""
    return numbered(np.where(kept & (positions >= 0), positions, np.nan))


def kind_codes(positions: Any) -> NDArray[np.intp]:
    """Return the narrowest of `KINDS` that describes each ranking, as a position in it, shape (m,)."""
    n = positions.shape[1]
    last = positions.max(axis=1, keepdims=True, initial=-1)
    # Blocks have no gaps, so the blocks before the last one are single items where they have as many items as blocks.
    single = (positions < last).sum(axis=1) == last[:, 0]
    codes = np.where(single, np.where(last[:, 0] == n - 1, 0, 1), 2)
    return np.where((positions < 0).any(axis=1), 3, codes)


def generator(key: Any) -> np.random.Generator:
    """Return NumPy's generator for an integer seed or a JAX key."""
    if isinstance(key, int | np.integer):
        return np.random.default_rng(int(key))
    data = jax.random.key_data(key) if jax.numpy.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    return np.random.default_rng(np.asarray(data).tolist())
