"""Data padded to round numbers of items and answers, so that many sizes share compiled code.

The padding carries no information: items without answers and links, and answers that were given 0
times. A Gaussian process gives the other items the same prior without them. Not so every program:
one may look at the mean of all items. So a program says that it may be given such data
(`allows_padding`), and its results are cut to the items and the answers that there are.
"""

from dataclasses import replace
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

from relpref.data.arrays import read_only
from relpref.data.columns import COLUMNS
from relpref.data.comparisons import Comparisons
from relpref.data.preference import PreferenceData

# Multiples of the step, and of a part of an octave where that is more. Matrices grow with the
# square of the items: above 500, there are at most an eighth too many of them. Answers are cheap,
# and every pair of two round numbers is a shape of its own: so these are fewer.
_STEP_OF_ITEMS, _PARTS_OF_ITEMS = 64, 8
_STEP_OF_ANSWERS, _PARTS_OF_ANSWERS = 256, 2
# A reported 0 would have an infinite probit, and a strength of 0 is a tie, which may be impossible.
_NEUTRAL = {name: column.absent or 0 for name, column in COLUMNS.items()} | {
    "probability": 0.5,
    "strength": 1,
}

# The attribute; where it depends on an object's fields, its class has a property of this name.
_NAME = "allows_padding"
Declared = TypeVar("Declared")


def allows_padding(declared: Declared) -> Declared:
    """Declare that a program, or the class of a kernel or a likelihood, may get padded data.

    What it says of items must depend on their own attributes and links, and on what data and graphs
    keep of the true items alone (``attribute_center``, ``attribute_scale``, ``graph.reference``),
    not on how many there are or on means over all of them; what it says of an answer must depend on
    its own columns. The utilities are the last Gaussian vector of a program, others do not grow
    with the items, and its answers are one site that counts rows as ``data.count`` says. A subclass
    declares it for itself.
    """
    setattr(declared, _NAME, True)
    return declared


def declares_padding(value: Any) -> bool:
    """Whether a function, or an object by its own class, declares what `allows_padding` says."""
    attributes = vars(value) if isinstance(value, FunctionType) else vars(type(value))
    return _NAME in attributes and bool(getattr(value, _NAME))


def room_for_items(number: int) -> int:
    """Return the number of items after padding."""
    return _round(number, _STEP_OF_ITEMS, _PARTS_OF_ITEMS)


def room_for(rows: int) -> int:
    """Return the number of rows of answers after padding."""
    return _round(rows, _STEP_OF_ANSWERS, _PARTS_OF_ANSWERS)


def _round(number: int, step: int, parts: int) -> int:
    step = max(step, (1 << max(number - 1, 0).bit_length()) // (2 * parts))
    return max(-(-number // step), 1) * step


def padded_answers(answers: Comparisons) -> Comparisons:
    """Return the answers with rows of count 0, in which an item is compared with itself."""
    more = room_for(len(answers.winner)) - len(answers.winner)
    columns: dict[str, Any] = {
        name: np.concatenate(
            [column, np.full((more, *column.shape[1:]), _NEUTRAL[name], column.dtype)]
        )
        for name, column in answers.columns.items()
    }
    spare = room_for(answers.num_effects) - answers.num_effects if answers.num_effects else 0
    return replace(answers, **columns, spare_effects=spare)


def padded(data: PreferenceData) -> PreferenceData:
    """Return the data with items and answers without information; labels are numbers."""
    size = room_for_items(data.num_items)
    # At the center, so that kernels of distances are computed from it as they were.
    rows = np.broadcast_to(
        data.attribute_center, (size - data.num_items, len(data.attribute_center))
    )
    labels: Any = range(size)
    return replace(
        data,
        labels=labels,
        attributes=read_only(np.concatenate([data.attributes, rows])),
        comparisons=padded_answers(data.comparisons),
        _graphs={name: graph.padded(size) for name, graph in data.relations.items()},
        notes=(),
    )
