"""The answers as arrays: who was preferred to whom, how often, by whom, and how strongly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from relpref.data.arrays import read_only
from relpref.data.labels import label_column
from relpref.data.messages import shown
from relpref.data.untraced import Untraced
from relpref.errors import DataError

NAME = "comparisons"
COMPOSED = "composed from"  # in the note on answers that were choices or lists
_INT32_MAX = np.iinfo(np.int32).max


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Distinct answers, sorted by winner, then loser, then the other columns; a pytree of its arrays.

    Attributes
    ----------
    winner, loser : array of int32, shape (m,)
        Positions of the entities. A tie names the one that comes first in the data as its winner, and with probabilities
        they are simply the first and the second of the question.
    count : array of int32, shape (m,)
        How often the answer was given.
    tie : array of bool, shape (m,), or None
        Where neither was preferred. None if the table does not speak of ties, as with the columns below.
    strength : array of int32, shape (m,), or None
        How strongly, from 1; 0 for a tie.
    probability : array of float64, shape (m,), or None
        As reported, that the winner is the better.
    rater : array of int32, shape (m,), or None
        Who answered, as a position in ``raters``.
    shown_first : array of int8, shape (m,), or None
        1 where the winner was shown first, −1 where the loser was, 0 where that is not known.
    raters : tuple of hashable
        Labels.
    strengths : int
        The highest strength there can be; 1 without strengths.
    """

    winner: NDArray[np.int32]
    loser: NDArray[np.int32]
    count: NDArray[np.int32]
    tie: NDArray[np.bool_] | None = None
    strength: NDArray[np.int32] | None = None
    probability: NDArray[np.float64] | None = None
    rater: NDArray[np.int32] | None = None
    shown_first: NDArray[np.int8] | None = None
    raters: tuple[Any, ...] = ()
    strengths: int = 1

    @property
    def columns(self) -> dict[str, Any]:
        """The arrays that are there, by name."""
        return {name: getattr(self, name) for name in COLUMNS if getattr(self, name) is not None}

    def selected(self, rows: NDArray[np.int64], entities: Sequence[Any]) -> "Comparisons":
        """Some of the rows; one that is named k times counts k times as often."""
        columns: dict[str, Any] = merged(
            {name: np.asarray(column)[rows] for name, column in self.columns.items()}, entities
        )
        return replace(self, **columns)

    def single(self) -> "Comparisons":
        """Every single answer in a row of its own, those of one row after another."""
        ones = {**self.columns, "count": np.ones_like(self.count)}
        each: dict[str, Any] = {
            name: read_only(np.repeat(column, self.count)) for name, column in ones.items()
        }
        return replace(self, **each)

    def table(self, entities: Sequence[Any]) -> pd.DataFrame:
        """As a table with the entities' labels, from which the same answers can be read."""
        labels = label_column(entities)
        winner, loser = (labels.take(np.asarray(end)) for end in (self.winner, self.loser))
        names = ("winner", "loser") if self.probability is None else ("first", "second")
        columns: dict[str, Any] = dict(zip(names, (winner, loser), strict=True)) | {
            name: np.array(column) for name, column in self.columns.items() if name not in ("winner", "loser")
        }
        if self.strength is not None and self.tie is not None:
            columns["strength"] = pd.array(self.strength, dtype="Int64")
            columns["strength"][np.asarray(self.tie)] = pd.NA
        if self.rater is not None:
            columns["rater"] = label_column(self.raters).take(np.asarray(self.rater))
        if self.shown_first is not None:
            known = [None, *entities]  # by the position plus one
            ends = np.where(self.shown_first > 0, self.winner, self.loser) + 1
            shown_first = np.empty(len(ends), dtype=object)
            shown_first[:] = [known[end] for end in np.where(self.shown_first == 0, 0, ends)]
            columns["shown_first"] = shown_first
        return pd.DataFrame(columns)


COLUMNS = tuple(field.name for field in fields(Comparisons) if field.name not in ("raters", "strengths"))


def merged(columns: dict[str, NDArray[Any]], entities: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """Merge repeated answers and sort them, so that the order of the rows leaves no trace in a result.

    Parameters
    ----------
    columns : dict of str to array, shape (r,)
        Those of `Comparisons`; the types are made its own.
    entities : sequence of hashable
        Labels, for messages.

    Returns
    -------
    dict of str to array, shape (m,)
        The rows that differ in any column but ``count``, which is added up.

    Raises
    ------
    DataError
        If the counts of one answer add up to 2**31 or more.
    """
    order, starts = groups_of(columns)
    count = columns["count"].astype(np.int64)[order]
    total = np.add.reduceat(count, starts) if starts.size else count
    if total.size and total.max() > _INT32_MAX:
        row = order[starts[np.argmax(total)]]
        pair = shown((entities[columns["winner"][row]], entities[columns["loser"][row]]))
        raise DataError(
            f"{NAME}: the counts of {pair} add up to {total.max()}, more than {_INT32_MAX}; scale them down"
        )
    kept = {name: column[order[starts]] for name, column in columns.items() if name != "count"}
    kept["count"] = total
    return {name: read_only(kept[name].astype(_TYPES[name])) for name in columns}


def groups_of(columns: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sort rows by every column but ``count``: their order, and where in it each group of equal rows starts."""
    keys = [column for name, column in columns.items() if name != "count"]
    order = np.lexsort(tuple(keys)[::-1])
    differs = np.zeros(len(order), dtype=bool)
    differs[:1] = True
    for column in keys:
        differs[1:] |= column[order][1:] != column[order][:-1]
    return order, np.flatnonzero(differs)


_TYPES = {
    "winner": np.int32,
    "loser": np.int32,
    "count": np.int32,
    "tie": np.bool_,
    "strength": np.int32,
    "probability": np.float64,
    "rater": np.int32,
    "shown_first": np.int8,
}


def with_known_raters(answers: Comparisons, before: Comparisons) -> Comparisons:
    """Return answers in which the raters and the strengths of others have their place, too."""
    strengths = max(answers.strengths, before.strengths)
    if answers.rater is None:
        return replace(answers, strengths=strengths)
    raters = (*before.raters, *(label for label in answers.raters if label not in before.raters))
    place = np.array([raters.index(label) for label in answers.raters], dtype=np.int32)
    return replace(answers, rater=read_only(place[answers.rater]), raters=raters, strengths=strengths)


def chosen_rows(chosen: ArrayLike, size: int) -> NDArray[np.int64]:
    """Return the positions that a mask or a list of positions selects.

    Parameters
    ----------
    chosen : array of bool, shape (m,), or array of int
        Mask or positions; negative ones count from the end.
    size : int
        Number of rows m.

    Returns
    -------
    array of int64
        Positions.

    Raises
    ------
    DataError
        If the mask has another length, a position is out of range, or ``chosen`` is something else.
    """
    picked = np.asarray(chosen)
    if picked.dtype == np.bool_:
        if picked.shape != (size,):
            raise DataError(f"chosen: the mask has the shape {picked.shape}; give one of shape ({size},)")
        picked = np.flatnonzero(picked)
    elif picked.size == 0:
        picked = picked.astype(np.int64).reshape(-1)
    if picked.dtype.kind not in "iu" or picked.ndim != 1:
        raise DataError(
            f"chosen: an array of type {picked.dtype} and shape {picked.shape} selects nothing; "
            "give a mask of booleans or a list of integer positions"
        )
    outside = (picked < -size) | (picked >= size)
    if outside.any():
        raise DataError(
            f"chosen: the position {picked[np.argmax(outside)]} is out of range; there are {size} comparisons"
        )
    return picked.astype(np.int64)


def _flatten_with_keys(answers: Comparisons) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
    # Rater labels never cause a compilation, but how many there are is the shape of a program.
    static = (len(answers.raters), answers.strengths, Untraced(answers.raters))
    return [(jax.tree_util.GetAttrKey(name), getattr(answers, name)) for name in COLUMNS], static


def _unflatten(static: tuple[Any, ...], children: Any) -> Comparisons:
    _, strengths, raters = static
    columns = dict(zip(COLUMNS, children, strict=True))
    return Comparisons(**columns, raters=raters.content, strengths=strengths)


jax.tree_util.register_pytree_with_keys(Comparisons, _flatten_with_keys, _unflatten)
