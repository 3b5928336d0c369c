"""Reads tables of answers, in either of two forms."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from relpref.data.arrays import counted, listed, nearest, read_only, shown
from relpref.data.columns import counts, numbers
from relpref.data.labels import LabelIndex, is_missing, label_column, plain_labels
from relpref.data.tables import Table, as_table, check_columns, renamed
from relpref.errors import DataError
from relpref.pytree import register

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

    @cached_property
    def num_raters(self) -> int:
        return len(self.raters)

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


# Raters' labels never cause a compilation, but how many there are is the shape of a program.
register(Comparisons, leaves=COLUMNS, static=("num_raters", "strengths"), untraced=("raters",))


# More steps than people can tell apart; scores of games are to be binned.
MOST_STRENGTHS = 20
_WINNER_FORM = ("winner", "loser")
_PAIR_FORM = ("first", "second")
_EITHER = ("count", "rater", "shown_first", "list")
_ALL = (*_WINNER_FORM, *_PAIR_FORM, "tie", "strength", "probability", *_EITHER)


def read_comparisons(
    value: Any, entities: LabelIndex, columns: Mapping[str, str] | None = None
) -> tuple[Comparisons, tuple[str, ...]]:
    """Read a table of answers.

    Parameters
    ----------
    value : DataFrame, Table or None
        None where there are no answers yet. Either the columns winner, loser and, optionally, tie and strength; or the columns
        first and second with winner (one of the two; blank where the column tie says true) and, optionally, tie and strength, or
        with probability. Besides, in both: count, rater, shown_first, list.
    entities : LabelIndex
        The known labels.
    columns : mapping from str to str, optional
        What the table calls them.

    Returns
    -------
    comparisons : Comparisons
        Repeated rows are merged into one with the sum of their counts.
    notes : tuple of str
        What was tidied.

    Raises
    ------
    DataError
        If the columns are not these, there are no rows, a cell cannot be used or contradicts another, or an
        entity is compared with itself.
    UnknownLabelError
        If a label is no entity.
    """
    for name in columns or {}:
        if name not in _ALL:
            meant = nearest(name, _ALL, most=1)
            hint = f"did you mean {meant[0]!r}?" if meant else f"they are {', '.join(_ALL)}"
            raise DataError(f"columns: {name!r} is no column of comparisons; {hint}")
    if value is None:
        ends: dict[str, Any] = {name: np.zeros(0, np.int32) for name in (*_WINNER_FORM, "count")}
        return Comparisons(**{name: read_only(end) for name, end in ends.items()}), ()
    table = renamed(as_table(value, NAME), columns)
    names = _check_form(table)
    frame = table.frame
    if len(frame) == 0:
        raise DataError(f"{table.name}: the table has no rows; give at least one comparison, or no table")
    first, second = (_ends(table, name, entities) for name in names)
    if (first == second).any():
        row = int(np.argmax(first == second))
        raise DataError(
            f"{table.place(row)}: {shown(entities.labels[first[row]])} is compared with itself; drop the row"
        )
    named = _named_winner(table, entities, first, second) if names == _PAIR_FORM else None
    tie = _ties(table, named)
    found: dict[str, Any] = {
        "winner": first if named is None else np.where(named == second, second, first),
        "loser": second if named is None else np.where(named == second, first, second),
        "count": np.ones(len(frame), dtype=np.int64),
    }
    if "count" in frame.columns:
        found["count"] = counts(frame["count"], table.called("count"), table.place, text=table.text)
    if tie is not None:
        found["tie"] = tie
        winner, loser = found["winner"], found["loser"]
        swapped = tie & (winner > loser)  # a tie has no winner: one order, so that equal ties are merged
        found["winner"], found["loser"] = np.where(swapped, loser, winner), np.where(swapped, winner, loser)
    if "strength" in frame.columns:
        found["strength"] = _strengths(table, tie)
    if "probability" in frame.columns:
        found["probability"] = _probabilities(table)
    raters: tuple[Any, ...] = ()
    if "rater" in frame.columns:
        raters, found["rater"] = _raters(table)
    if "shown_first" in frame.columns:
        found["shown_first"] = _shown_first(table, entities, found["winner"], found["loser"])
    strengths = int(found["strength"].max()) if "strength" in found else 1
    answers = Comparisons(**merged(found, entities.labels), raters=raters, strengths=max(strengths, 1))
    return answers, _notes(table, answers)


def compared(value: Any, columns: Mapping[str, str] | None = None) -> list[Any]:
    """The labels of those that a table compares, see `read_comparisons`, in the order of its rows; some more than once.

    Raises
    ------
    DataError
        If the columns are not those of a table of answers, or a label is missing.
    """
    table = renamed(as_table(value, NAME), columns)
    ends = (plain_labels(table.frame[name], _where(table, name)) for name in _check_form(table))
    return list(chain.from_iterable(zip(*ends, strict=True)))


def _check_form(table: Table) -> tuple[str, str]:
    """The names of the two columns of entities; refuses columns that are in neither form."""
    given = set(table.frame.columns)
    if "loser" in given or not given & set(_PAIR_FORM):
        if "probability" in given:
            raise DataError(
                f"{table.name}: a table with the column 'probability' names no winner; name its columns first, second, "
                "probability (of the first being the better)"
            )
        check_columns(table, _WINNER_FORM, (*_EITHER, "tie", "strength"))
        return _WINNER_FORM
    if given.issuperset(_PAIR_FORM) and not given & {"winner", "probability"}:
        raise DataError(
            f"{table.name}: there is neither a column 'winner' nor 'probability' beside first and second; name the one that "
            "holds the answers"
        )
    if "probability" in given:
        check_columns(table, (*_PAIR_FORM, "probability"), _EITHER)
    else:
        check_columns(table, (*_PAIR_FORM, "winner"), (*_EITHER, "tie", "strength"))
    return _PAIR_FORM


def _where(table: Table, column: str, rows: NDArray[Any] | None = None) -> Callable[[int], str]:
    return lambda row: (
        f"{table.place(row if rows is None else int(rows[row]))}, column {table.called(column)!r}"
    )


def _ends(table: Table, column: str, entities: LabelIndex) -> NDArray[np.int32]:
    where = _where(table, column)
    labels = plain_labels(table.frame[column], where)
    return entities.locate(labels, where, "correct the label, add it to the entities, or drop the row")


def _one_of_two(
    table: Table, column: str, entities: LabelIndex, first: NDArray[np.int32], second: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Positions of the entities that a column names, −1 where it is blank; each must be one of the row's two."""
    cells = table.frame[column].tolist()
    filled = np.array([not _blank(cell, table.text) for cell in cells], dtype=bool)
    rows = np.flatnonzero(filled)
    where = _where(table, column, rows)
    labels = plain_labels([cells[row] for row in rows], where)
    found = np.full(len(cells), -1, dtype=np.int32)
    found[rows] = entities.locate(labels, where, "name one of the two entities of the row")
    wrong = filled & (found != first) & (found != second)
    if wrong.any():
        row = int(np.argmax(wrong))
        pair = " and ".join(shown(entities.labels[end[row]]) for end in (first, second))
        raise DataError(
            f"{_where(table, column)(row)}: {shown(cells[row])} is neither of the two that were compared, {pair}; "
            f"name one of them{'' if column == 'winner' else ' or leave the cell blank'}"
        )
    return found


def _blank(cell: Any, text: bool) -> bool:
    return not cell.strip() if text else is_missing(cell) or cell == ""


def _named_winner(
    table: Table, entities: LabelIndex, first: NDArray[np.int32], second: NDArray[np.int32]
) -> NDArray[np.int32] | None:
    if "winner" not in table.frame.columns:
        return None
    return _one_of_two(table, "winner", entities, first, second)


def _ties(table: Table, named: NDArray[np.int32] | None) -> NDArray[np.bool_] | None:
    """Which rows are ties; None if the table does not speak of them."""
    blank = None if named is None else named < 0
    if "tie" not in table.frame.columns:
        if blank is not None and blank.any():
            # A blank may be a cancelled game or an answer that was never given, which is no tie.
            raise DataError(
                f"{_where(table, 'winner')(int(np.argmax(blank)))}: the winner is blank; name the winner, drop the row if nobody "
                "answered, or, if it was a tie, add the column 'tie' with true in this row and false in the others"
            )
        return None
    remedy = "write true or false"
    values = numbers(table.frame["tie"], table.called("tie"), table.place, text=table.text, remedy=remedy)
    bad = (values != 0) & (values != 1)
    if bad.any():
        row = int(np.argmax(bad))
        cell = table.frame["tie"].tolist()[row]
        raise DataError(f"{_where(table, 'tie')(row)}: {shown(cell)} is neither true nor false; {remedy}")
    tie = values == 1
    if blank is not None and (tie != blank).any():
        row = int(np.argmax(tie != blank))
        said = "a tie, and yet it has a winner" if tie[row] else "no tie, and yet it has no winner"
        remedy = "correct one of the two cells" + ("" if tie[row] else ", or drop the row if nobody answered")
        raise DataError(f"{table.place(row)}: the answer is {said}; {remedy}")
    return tie


def _strengths(table: Table, tie: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    """Strengths from 1, and 0 for ties, whose cells are blank or 0."""
    column, cells = table.frame["strength"], table.frame["strength"].tolist()
    tied = np.zeros(len(cells), dtype=bool) if tie is None else tie
    for row in map(int, np.flatnonzero(tied)):
        if not _blank(cells[row], table.text) and cells[row] not in (0, "0"):
            raise DataError(
                f"{_where(table, 'strength')(row)}: {shown(cells[row])}, and yet the answer is a tie; "
                "leave the strength of a tie blank"
            )
    rows = np.flatnonzero(~tied)
    remedy = "write how strongly: 1, 2, 3, ... from slightly upwards"
    given = counts(
        column.iloc[rows],
        table.called("strength"),
        lambda row: table.place(int(rows[row])),
        text=table.text,
        remedy=remedy,
    )
    if given.size and given.max() > MOST_STRENGTHS:
        row = int(rows[np.argmax(given)])
        raise DataError(
            f"{_where(table, 'strength')(row)}: {shown(cells[row])} is above {MOST_STRENGTHS}, the most grades that are told "
            "apart; group the strengths into fewer"
        )
    strength = np.zeros(len(cells), dtype=np.int64)
    strength[rows] = given
    return strength


def _probabilities(table: Table) -> NDArray[np.float64]:
    remedy = "write the reported probability that the first is the better, between 0 and 1"
    column = table.frame["probability"]
    values = numbers(column, table.called("probability"), table.place, text=table.text, remedy=remedy)
    bad = (values <= 0) | (values >= 1)
    if bad.any():
        row = int(np.argmax(bad))
        certain = values[row] in (0, 1)
        remedy = (
            "a report of 0 or 1 leaves no room for error, so write what its rater could have meant, such as 0.99"
            if certain
            else remedy
        )
        raise DataError(
            f"{_where(table, 'probability')(row)}: {shown(column.tolist()[row])} is not strictly between 0 and 1; {remedy}"
        )
    return values


def _raters(table: Table) -> tuple[tuple[Any, ...], NDArray[np.int32]]:
    """Labels in an order that is not that of the rows, and the position of each row's."""
    where = _where(table, "rater")
    labels = plain_labels(table.frame["rater"], where)
    for row, label in enumerate(labels):
        if label == "":
            raise DataError(f"{where(row)}: the rater is blank; name one, such as 'unknown', or drop the row")
    raters = tuple(sorted(set(labels), key=lambda label: (type(label).__name__, _sortable(label))))
    positions = {label: position for position, label in enumerate(raters)}
    return raters, np.array([positions[label] for label in labels], dtype=np.int32)


def _sortable(label: Any) -> Any:
    return label if isinstance(label, str | int | float) else str(label)


def _shown_first(
    table: Table, entities: LabelIndex, winner: NDArray[np.int32], loser: NDArray[np.int32]
) -> NDArray[np.int8]:
    found = _one_of_two(table, "shown_first", entities, winner, loser)
    return np.where(found < 0, 0, np.where(found == winner, 1, -1)).astype(np.int8)


def _notes(table: Table, found: Comparisons) -> tuple[str, ...]:
    notes = []
    if found.winner.size < len(table.frame):
        rows = counted(len(table.frame), "row")
        distinct = counted(found.winner.size, "distinct one")
        notes.append(f"{NAME}: {rows} merged into {distinct}, counts added up")
    if "list" in table.frame.columns:
        lists = counted(table.frame["list"].nunique(), "choice or list", "choices or lists")
        notes.append(
            f"{NAME}: {counted(len(table.frame), 'pair')} {COMPOSED} {lists}; the pairs of one are treated as independent"
        )
    if found.tie is not None and found.tie.all():
        notes.append(
            f"{NAME}: every answer is a tie, which says that utilities are near, not whose is higher"
        )
    return tuple(notes)


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


_List = list  # `list` is the name of a parameter of `orderings`


def choices(table: Any, *, question: Hashable, item: Hashable, chosen: Hashable) -> pd.DataFrame:
    """Compose comparisons from choices of one among several: the chosen one is preferred to each of the others.

    Parameters
    ----------
    table : DataFrame
        Long: one row for each alternative of each question.
    question, item, chosen
        The columns that say to which question the row belongs, which entity it is, and whether that was chosen.

    Returns
    -------
    DataFrame
        Columns ``winner``, ``loser``, ``list`` for `PreferenceData.from_tables`; k − 1 rows for a choice among k.

    Raises
    ------
    DataError
        If a column is missing, a question has no chosen alternative or several, or has an entity twice.

    Notes
    -----
    The comparisons of one choice share their winner, and are treated as independent, which they are not: intervals come out somewhat
    too narrow where there are many alternatives. The data's notes say that the answers are composed.
    """
    read = _checked(table, "choices", question, item, chosen)
    picked = numbers(
        read.frame[chosen], str(chosen), read.place, text=read.text, remedy="write true or false"
    )
    rows: list[tuple[Any, Any, Any]] = []
    for label, members, items in _groups(read, question, item):
        winners = members[picked[members] == 1]
        if len(winners) != 1 or not np.isin(picked[members], (0, 1)).all():
            raise DataError(
                f"{read.place(int(members[0]))}: of the question {shown(label)}, {len(winners)} alternatives are chosen; "
                f"mark exactly one in the column {chosen!r}"
            )
        best = items[int(np.flatnonzero(members == winners[0])[0])]
        rows += [(best, other, label) for other in items if other != best]
    return pd.DataFrame(rows, columns=["winner", "loser", "list"], dtype=object)


def orderings(table: Any, *, list: Hashable, item: Hashable, position: Hashable) -> pd.DataFrame:
    """Compose comparisons from orderings, full or partial: of every two entities of a list, the higher is preferred.

    An ordering is a sequence of choices, the best of all, then the best of the rest, and so on; each choice prefers the winner to
    the rest (as `choices` does), which makes every pair of the list once.

    Parameters
    ----------
    table : DataFrame
        Long: one row for each entity of each list.
    list, item, position
        The columns that say to which list the row belongs, which entity it is, and its place, 1 for the best. Equal places are
        ties. A blank place is below all that are given; such entities are not compared with each other.

    Returns
    -------
    DataFrame
        Columns ``winner``, ``loser``, ``list`` and, where places are equal, ``tie``, for `PreferenceData.from_tables`.

    Raises
    ------
    DataError
        If a column is missing, a place is not a number, or a list has an entity twice or says nothing.

    Notes
    -----
    The comparisons of one list are treated as independent, which they are not: intervals come out somewhat too narrow where lists are
    long. The data's notes say that the answers are composed.
    """
    read = _checked(table, "orderings", list, item, position)
    cells = read.frame[position]
    given = np.array(
        [not (not c.strip() if read.text else is_missing(c) or c == "") for c in cells], dtype=bool
    )
    known = np.flatnonzero(given)
    places = np.full(len(cells), np.inf)
    places[known] = numbers(
        cells.iloc[known].infer_objects(),
        str(position),
        lambda row: read.place(int(known[row])),
        text=read.text,
        remedy="write the place, 1 for the best, or leave it blank",
    )
    rows: _List[tuple[Any, Any, Any, bool]] = []
    for label, members, items in _groups(read, list, item):
        order = np.argsort(places[members], kind="stable")
        found = [
            (
                items[order[i]],
                items[order[j]],
                label,
                bool(places[members[order[i]]] == places[members[order[j]]]),
            )
            for i in range(len(order))
            for j in range(i + 1, len(order))
            if np.isfinite(places[members[order[i]]])
        ]
        if not found:
            raise DataError(
                f"{read.place(int(members[0]))}: the list {shown(label)} orders nothing; give at least two entities, one with a place"
            )
        rows += found
    frame = pd.DataFrame(rows, columns=["winner", "loser", "list", "tie"], dtype=object)
    return frame.astype({"tie": bool}) if frame["tie"].any() else frame.drop(columns="tie")


def _checked(table: Any, name: str, *columns: Hashable) -> Table:
    read = as_table(table, name)
    for column in columns:
        if column not in read.frame.columns:
            raise DataError(
                f"{read.name}: there is no column {shown(column)} among {listed(read.frame.columns)}; "
                "name the column that holds it"
            )
    if read.frame.empty:
        raise DataError(f"{read.name}: the table has no rows; give at least one")
    return read


def _groups(
    read: Table, group: Hashable, item: Hashable
) -> Iterator[tuple[Any, np.ndarray[Any, Any], _List[Any]]]:
    """Every group's label, its rows, and its entities."""
    items = read.frame[item].tolist()
    members: dict[Any, _List[int]] = {}
    for row, label in enumerate(read.frame[group].tolist()):
        if is_missing(label):
            raise DataError(
                f"{read.place(row)}, column {group!r}: the cell is blank; say to which group the row belongs"
            )
        members.setdefault(label, []).append(row)
    for label, rows in members.items():
        inside: dict[Any, int] = {}
        for row in rows:
            if inside.setdefault(items[row], row) != row:
                raise DataError(
                    f"{read.place(row)}: {shown(items[row])} is in {shown(label)} twice; drop one of the rows"
                )
        yield label, np.asarray(rows), [items[row] for row in rows]
