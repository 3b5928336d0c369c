"""Rankings on their way into compiled functions: checked positions, float64, a few rows at a time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from relpref.data import Rankings
from relpref.data.messages import shown
from relpref.errors import DataError

_CELLS_AT_ONCE = 2**14


def position_array(rankings: Any) -> Any:
    """Positions of rankings or of an array of positions; those that are not traced are checked.

    Parameters
    ----------
    rankings : Rankings or array of int, shape (m, n)
        Position of each item's block, 0 = most preferred; −1 = not ranked.

    Raises
    ------
    DataError
        If it is no matrix of whole numbers from −1 on, or a ranking ranks nothing.
    """
    positions = getattr(rankings, "positions", rankings)
    if traced(positions):
        return positions
    array = np.asarray(positions)
    if positions is not rankings:  # rankings have checked them
        return array
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.integer):
        raise DataError(
            f"positions: shape {array.shape} and type {array.dtype}; give Rankings, or whole numbers, a row for each ranking "
            "and a column for each item: 0 for the most preferred block, -1 for an item that is not ranked"
        )
    ordered = np.sort(array, axis=1)
    steps = np.diff(np.maximum(ordered, -1), axis=1, prepend=-1)
    bad = (
        (ordered[:, :1] < -1).any(axis=1)
        | (ordered[:, -1:].max(axis=1, initial=-1) < 0)
        | (steps > 1).any(axis=1)
    )
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(
            f"positions of ranking {row} are {shown(array[row].tolist())}; blocks are numbered 0, 1, ... without gaps, "
            "-1 is an item that is not ranked, and a ranking has at least one item"
        )
    return array.astype(np.int32, copy=False)


def position_pair(a: Any, b: Any = None) -> tuple[Any, Any]:
    """Positions of two sets of rankings, the items of both in the order of the first; of the first twice, if it is alone."""
    left = position_array(a)
    return left, left if b is None else position_array(with_items_of(a, b))


def with_items_of(first: Any, rankings: Any) -> Any:
    """The rankings with the items of the first ones, in their order, where both know their items.

    Raises
    ------
    UnknownLabelError
        If they have an item that the first ones do not have.
    DataError
        If one of them is traced, and the items are not the same in the same order: labels cannot be asked there.
    """
    if not isinstance(first, Rankings) or not isinstance(rankings, Rankings):
        return rankings
    if not traced(first, rankings):
        return replace(rankings, features=None, residual=None).aligned(first.items)
    if first.items_code != rankings.items_code:
        raise DataError(
            "kernel on rankings: the two sets of rankings have different items, or the same items in another order, and inside a program "
            "they cannot be matched; match them before: rankings.aligned(others.items), also for the rankings of Landmarks"
        )
    return rankings


def traced(*values: Any) -> bool:
    """Whether any leaf belongs to a computation that JAX traces."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values))


def exhaustive(positions: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether each ranking has all items in some block, shape (m,)."""
    return np.asarray((positions >= 0).all(axis=1))


def exhaustive_only(values: Any, positions: Any, *more: Any) -> Any:
    """Features or kernel values, the first axis that of ``positions``, where all rankings have all items in some block.

    Others are refused, and become NaN where their positions are traced: never a plausible number.

    Raises
    ------
    DataError
        If the positions are known and not exhaustive.
    """
    for axis, part in enumerate((positions, *more)):
        if traced(part):
            shape = [1] * values.ndim
            shape[axis] = -1
            values = jnp.where(jnp.all(part >= 0, axis=1).reshape(shape), values, jnp.nan)
        elif not exhaustive(part).all():
            raise partial_in_a_program()
    return values


def partial_in_a_program() -> DataError:
    """The error of a kernel that cannot be evaluated there."""
    return DataError(
        "inside a program, features of non-exhaustive rankings cannot be enumerated or sampled: compute them before, "
        "rankings.with_features(cut_features(rankings, graph, normalize=True)), and use the kernel GivenFeatures(); or use "
        "Kendall(), which is exact for all kinds of ranking"
    )


def in_double(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of arrays: inside a trace as it is, otherwise in float64 and with NumPy arrays out."""
    if traced(*arguments):
        return function(*arguments)
    with _now():
        return jax.tree.map(np.asarray, function(*arguments))


def padded(positions: NDArray[Any]) -> NDArray[Any]:
    """Rankings and copies of the last one, up to a number that many sets of rankings share: few shapes, few compilations."""
    m = len(positions)
    step = max(16, 1 << max(m.bit_length() - 3, 0))
    return np.concatenate([positions, np.repeat(positions[-1:], -m % step, axis=0)])


def by_rows(
    function: Callable[..., Any], positions: NDArray[np.int32], *arguments: Any
) -> NDArray[np.float64]:
    """Call a compiled function on a few rows of positions after the other, in float64.

    Every call has the same shape, whatever the number of rankings, so that there is one compilation for each number of items;
    and what a call needs stays in the cache.

    Parameters
    ----------
    function : callable
        From positions, shape (rows, n), and the arguments to an array of shape (rows, r).
    positions : array, shape (m, n)
    *arguments
        Handed through.
    """
    m, n = positions.shape
    rows = max(1, min(512, _CELLS_AT_ONCE // max(n, 1)))
    parts = []
    with _now():
        for first in range(0, max(m, 1), rows):
            part = positions[first : first + rows]
            padded = np.concatenate([part, np.zeros((rows - len(part), n), dtype=positions.dtype)])
            parts.append(function(jnp.asarray(padded), *arguments)[: len(part)])
        return np.concatenate([np.asarray(part, dtype=np.float64) for part in parts])


@contextmanager
def _now() -> Iterator[None]:
    """Compute in float64, and at once, also where what is known stands beside what is traced."""
    # Only there, because at compile time JAX computes every constant of a function by itself.
    beside = jax.ensure_compile_time_eval() if traced(jnp.zeros(())) else nullcontext()
    with beside, jax.enable_x64(True):
        yield
