"""Answers that come later, and answers that are taken back."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relpref.data.answers import COLUMNS, NAME, Comparisons, groups_of, merged
from relpref.data.messages import shown
from relpref.errors import DataError

Positions = NDArray[np.int64]


class Change(NamedTuple):
    """Answers after a change.

    Attributes
    ----------
    answers : Comparisons
        m distinct ones.
    before : array of int, shape (m,)
        Which row each was before the change; −1 for a new one.
    rows : array of int, shape (k,)
        For each row of the change, where it is now; of what was taken back, where it was before.
    """

    answers: Comparisons
    before: Positions
    rows: Positions


def added(known: Comparisons, more: Comparisons, entities: Sequence[Any]) -> Change:
    """Answers and more of them; raters of ``more`` that are known have their places already.

    Raises
    ------
    DataError
        If the two do not say the same things.
    """
    known, more = _alike(known, more)
    size = len(known.winner)
    columns = _joined(known, more)
    order, starts = groups_of(columns)
    group = np.empty(len(order), dtype=np.int64)
    group[order] = np.repeat(np.arange(len(starts)), np.diff([*starts, len(order)]))
    before = np.full(len(starts), -1, dtype=np.int64)
    before[group[:size]] = np.arange(size)
    arrays: dict[str, Any] = merged(columns, entities)
    return Change(replace(more, **arrays), before, group[size:])


def withdrawn(known: Comparisons, fewer: Comparisons, entities: Sequence[Any]) -> Change:
    """Answers without some of them.

    Raises
    ------
    DataError
        If one is not there, or not so often; or if the two do not say the same things.
    """
    known, fewer = _alike(known, fewer)
    size = len(known.winner)
    columns = _joined(known, fewer)
    order, starts = groups_of(columns)
    count = np.array(known.count, dtype=np.int64)
    rows = np.full(len(fewer.winner), -1, dtype=np.int64)
    for members in np.split(order, starts[1:]):
        of_known, of_fewer = members[members < size], members[members >= size] - size
        if not of_fewer.size:
            continue
        there = int(known.count[of_known[0]]) if of_known.size else 0
        asked = int(fewer.count[of_fewer].sum())
        if asked > there:
            pair = shown(tuple(entities[end[of_fewer[0]]] for end in (fewer.winner, fewer.loser)))
            raise DataError(
                f"withdraw: the answer {pair} is to be taken back {asked} times and was given {there} times; "
                "name answers as they were given, with their rater and strength"
            )
        count[of_known[0]] -= asked
        rows[of_fewer] = of_known[0]
    left = np.flatnonzero(count)
    arrays: dict[str, Any] = {name: column[left] for name, column in known.columns.items()}
    arrays["count"] = count[left].astype(np.int32)
    return Change(replace(fewer, **arrays), left, rows)


def _joined(first: Comparisons, second: Comparisons) -> dict[str, NDArray[Any]]:
    return {name: np.concatenate([column, second.columns[name]]) for name, column in first.columns.items()}


def _alike(known: Comparisons, other: Comparisons) -> tuple[Comparisons, Comparisons]:
    """Give both the same columns, where what is missing can be known: no ties, and a position that nobody noted.

    The second keeps raters and strengths of both.
    """
    for name in COLUMNS:
        first, second = getattr(known, name), getattr(other, name)
        if (first is None) == (second is None):
            continue
        if first is None:
            column: dict[str, Any] = {name: _neutral(name, known, "the answers so far", "the new answers")}
            known = replace(known, **column)
        else:
            column = {name: _neutral(name, other, "the new answers", "the answers so far")}
            other = replace(other, **column)
    strengths = max(known.strengths, other.strengths)
    return known, replace(other, strengths=strengths, raters=other.raters or known.raters)


def _neutral(name: str, answers: Comparisons, these: str, those: str) -> NDArray[Any]:
    size = len(answers.winner)
    if name == "tie":
        return np.zeros(size, dtype=np.bool_)
    if name == "shown_first":
        return np.zeros(size, dtype=np.int8)
    all_tied = answers.tie is not None and bool(answers.tie.all())
    if size == 0 or (name == "strength" and all_tied):
        return np.zeros(size, dtype=np.float64 if name == "probability" else np.int32)
    raise DataError(
        f"{NAME}: {those} have the column {name!r} and {these} do not; give it for both, or leave it out of both"
    )
