"""Rows that stand for no answer, so that a few more answers change no shape and nothing is compiled anew."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relpref.data import Comparisons, PreferenceData

_LEAST, _DOUBLING, _STEP = 16, 256, 256
# A reported 0 would have an infinite probit, and a strength of 0 is a tie, which may be impossible.
_NEUTRAL = {"probability": 0.5, "strength": 1}


def preference_data(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> PreferenceData | None:
    """The preference data among a program's arguments."""
    found = [a for a in (*args, *kwargs.values()) if isinstance(a, PreferenceData)]
    return found[0] if found else None


def room_for(rows: int) -> int:
    """How many rows there are to be: a power of two, from 256 on a multiple of 256."""
    if rows > _DOUBLING:
        return -(-rows // _STEP) * _STEP
    return max(_LEAST, 1 << max(rows - 1, 0).bit_length())


def padded(data: PreferenceData) -> PreferenceData:
    """The data with rows of count 0, in which an entity is compared with itself."""
    return replace(data, comparisons=padded_answers(data.comparisons))


def padded_answers(answers: Comparisons) -> Comparisons:
    """The answers with rows of count 0, in which an entity is compared with itself."""
    more = room_for(len(answers.winner)) - len(answers.winner)
    columns: dict[str, Any] = {
        name: np.concatenate([column, np.full(more, _NEUTRAL.get(name, 0), column.dtype)])
        for name, column in answers.columns.items()
    }
    return replace(answers, **columns)


def with_padding(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a program with padded data."""
    return (
        tuple(padded(a) if isinstance(a, PreferenceData) else a for a in args),
        {name: padded(a) if isinstance(a, PreferenceData) else a for name, a in kwargs.items()},
    )


def left_out(counts: NDArray[np.float64], data: PreferenceData) -> bool:
    """Whether a program makes nothing of the rows that were added: it may look at more than the counts of its answers."""
    known = data.num_comparisons
    return (
        len(counts) == room_for(known)
        and np.array_equal(counts[:known], data.count)
        and not counts[known:].any()
    )
