"""Answers to "which of two?": read from tables, changed, and composed from choices and orderings."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from relpref.data.arrays import counted, listed, nearest, read_only, refuse_first, shown
from relpref.data.labels import LabelIndex, is_missing, label_column
from relpref.data.tables import Table, as_table, check_columns, renamed
from relpref.errors import DataError
from relpref.limits import MAX_STRENGTHS
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
    """Merge repeated answers and sort them, so that the order of the rows leaves no trace in a result."""
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
    """Return the positions that a mask or a list of positions selects."""
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
    refuse_first(
        (picked < -size) | (picked >= size),
        lambda at: f"chosen: the position {picked[at]} is out of range; there are {size} comparisons",
    )
    return picked.astype(np.int64)


# Raters' labels never cause a compilation, but how many there are is the shape of a program.
register(Comparisons, leaves=COLUMNS, static=("num_raters", "strengths"), untraced=("raters",))


_WINNER_FORM = ("winner", "loser")
_PAIR_FORM = ("first", "second")
_EITHER = ("count", "rater", "shown_first", "list")
_ALL = (*_WINNER_FORM, *_PAIR_FORM, "tie", "strength", "probability", *_EITHER)


def read_comparisons(
    value: Any, entities: LabelIndex, columns: Mapping[str, str] | None = None
) -> tuple[Comparisons, tuple[str, ...]]:
    """Read a table of answers; repeated rows become one with the sum of their counts. Return notes on what was tidied, too.

    The table has the columns winner and loser, or first and second with either winner (blank for a tie) or probability; see
    `PreferenceData.from_tables`.
    """
    for name in columns or {}:
        if name not in _ALL:
            meant = nearest(name, _ALL, most=1)
            hint = f"did you mean {meant[0]!r}?" if meant else f"they are {', '.join(_ALL)}"
            raise DataError(f"columns: {name!r} is no column of comparisons; {hint}")
    if value is None:
        return Comparisons(*(read_only(np.zeros(0, np.int32)) for _ in range(3))), ()
    table = renamed(as_table(value, NAME), columns)
    names = _check_form(table)
    given = table.frame.columns
    if table.frame.empty:
        raise DataError(f"{table.name}: the table has no rows; give at least one comparison, or no table")
    remedy = "correct the label, add it to the entities, or drop the row"
    first, second = (entities.locate(table.labels(name), table.cell(name), remedy) for name in names)
    refuse_first(
        first == second,
        lambda row: (
            f"{table.place(row)}: {shown(entities.labels[first[row]])} is compared with itself; drop the row"
        ),
    )
    winner, loser, blank = first, second, None
    if names == _PAIR_FORM and "winner" in given:
        named = _one_of_two(table, "winner", entities, first, second)
        blank, lost = named < 0, named == second
        winner, loser = np.where(lost, second, first), np.where(lost, first, second)
    tie = _ties(table, blank)
    found: dict[str, Any] = {"winner": winner, "loser": loser, "count": np.ones(len(winner), dtype=np.int64)}
    if "count" in given:
        found["count"] = table.counts("count", "write how often the answer was given: 1, 2, 3, ...")
    if tie is not None:
        swapped = tie & (winner > loser)  # a tie has no winner: one order, so that equal ties are merged
        found["winner"], found["loser"] = np.where(swapped, loser, winner), np.where(swapped, winner, loser)
        found["tie"] = tie
    if "strength" in given:
        found["strength"] = _strengths(table, tie)
    if "probability" in given:
        found["probability"] = _probabilities(table)
    raters: tuple[Any, ...] = ()
    if "rater" in given:
        raters, found["rater"] = _raters(table)
    if "shown_first" in given:
        side = _one_of_two(table, "shown_first", entities, found["winner"], found["loser"])
        found["shown_first"] = np.where(side < 0, 0, np.where(side == found["winner"], 1, -1))
    strengths = max(int(found["strength"].max()), 1) if "strength" in found else 1
    answers = Comparisons(**merged(found, entities.labels), raters=raters, strengths=strengths)
    return answers, _notes(table, answers)


def compared(value: Any, columns: Mapping[str, str] | None = None) -> list[Any]:
    """The labels of those that a table compares, see `read_comparisons`, in the order of its rows; some more than once."""
    table = renamed(as_table(value, NAME), columns)
    ends = (table.labels(name) for name in _check_form(table))
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


def _one_of_two(table: Table, column: str, entities: LabelIndex, first: Any, second: Any) -> Any:
    """Positions of the entities that a column names, −1 where it is blank; each must be one of the row's two."""
    blank = table.blank(column)
    rows = np.flatnonzero(~blank)
    found = np.full(len(blank), -1, dtype=np.int32)
    remedy = "name one of the two entities of the row"
    found[rows] = entities.locate(table.labels(column, rows), table.cell(column, rows), remedy)

    def said(row: int) -> str:
        pair = " and ".join(shown(entities.labels[end[row]]) for end in (first, second))
        return (
            f"{table.cell(column)(row)}: {shown(entities.labels[found[row]])} is neither of the two that were compared, "
            f"{pair}; name one of them{'' if column == 'winner' else ' or leave the cell blank'}"
        )

    refuse_first(~blank & (found != first) & (found != second), said)
    return found


def _ties(table: Table, blank: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """Which rows are ties; None if the table does not speak of them. ``blank`` are rows without a winner."""
    if "tie" not in table.frame.columns:
        if blank is not None:
            # A blank may be a cancelled game or an answer that was never given, which is no tie.
            refuse_first(
                blank,
                lambda row: (
                    f"{table.cell('winner')(row)}: the winner is blank; name the winner, drop the row if nobody answered, "
                    "or, if it was a tie, add the column 'tie' with true in this row and false in the others"
                ),
            )
        return None
    remedy = "write true or false"
    values = table.numbers("tie", remedy)
    refuse_first(
        (values != 0) & (values != 1),
        lambda row: (
            f"{table.cell('tie')(row)}: {shown(table.frame['tie'].tolist()[row])} is neither true nor false; {remedy}"
        ),
    )
    tie = values == 1

    def said(row: int) -> str:
        what = "a tie, and yet it has a winner" if tie[row] else "no tie, and yet it has no winner"
        more = "" if tie[row] else ", or drop the row if nobody answered"
        return f"{table.place(row)}: the answer is {what}; correct one of the two cells{more}"

    if blank is not None:
        refuse_first(tie != blank, said)
    return tie


def _strengths(table: Table, tie: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    """Strengths from 1, and 0 for ties, whose cells are blank or 0."""
    cells = table.frame["strength"].tolist()
    tied = np.zeros(len(cells), dtype=bool) if tie is None else tie
    blank = table.blank("strength")
    stated = [not empty and cell not in (0, "0") for cell, empty in zip(cells, blank, strict=True)]
    refuse_first(
        tied & np.array(stated, dtype=bool),
        lambda row: (
            f"{table.cell('strength')(row)}: {shown(cells[row])}, and yet the answer is a tie; "
            "leave the strength of a tie blank"
        ),
    )
    rows = np.flatnonzero(~tied)
    strength = np.zeros(len(cells), dtype=np.int64)
    strength[rows] = table.counts("strength", "write how strongly: 1, 2, 3, ... from slightly upwards", rows)
    refuse_first(
        strength > MAX_STRENGTHS,
        lambda row: (
            f"{table.cell('strength')(row)}: {shown(cells[row])} is above {MAX_STRENGTHS}, the most grades that are told "
            "apart; group the strengths into fewer"
        ),
    )
    return strength


def _probabilities(table: Table) -> NDArray[np.float64]:
    remedy = "write the reported probability that the first is the better, between 0 and 1"
    values = table.numbers("probability", remedy)

    def said(row: int) -> str:
        cell = shown(table.frame["probability"].tolist()[row])
        certain = "a report of 0 or 1 leaves no room for error, so write what its rater could have meant, such as 0.99"
        return (
            f"{table.cell('probability')(row)}: {cell} is not strictly between 0 and 1; "
            f"{certain if values[row] in (0, 1) else remedy}"
        )

    refuse_first((values <= 0) | (values >= 1), said)
    return values


def _raters(table: Table) -> tuple[tuple[Any, ...], NDArray[np.int32]]:
    """Labels in an order that is not that of the rows, and the position of each row's."""
    labels = table.labels("rater")
    refuse_first(
        np.array([label == "" for label in labels], dtype=bool),
        lambda row: (
            f"{table.cell('rater')(row)}: the rater is blank; name one, such as 'unknown', or drop the row"
        ),
    )

    def order(label: Any) -> tuple[str, Any]:
        return type(label).__name__, label if isinstance(label, str | int | float) else str(label)

    raters = tuple(sorted(set(labels), key=order))
    positions = {label: position for position, label in enumerate(raters)}
    return raters, np.array([positions[label] for label in labels], dtype=np.int32)


def _notes(table: Table, found: Comparisons) -> tuple[str, ...]:
    notes = []
    size = len(table.frame)
    if found.winner.size < size:
        distinct = counted(found.winner.size, "distinct one")
        notes.append(f"{NAME}: {counted(size, 'row')} merged into {distinct}, counts added up")
    if "list" in table.frame.columns:
        lists = counted(table.frame["list"].nunique(), "choice or list", "choices or lists")
        notes.append(
            f"{NAME}: {counted(size, 'pair')} {COMPOSED} {lists}; the pairs of one are treated as independent"
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
    """Answers and more of them; raters of ``more`` that are known have their places already."""
    more, columns, group = _together(known, more)
    size = len(known.winner)
    before = np.full(group.max(initial=-1) + 1, -1, dtype=np.int64)
    before[group[:size]] = np.arange(size)
    arrays: dict[str, Any] = merged(columns, entities)
    return Change(replace(more, **arrays), before, group[size:])


def withdrawn(known: Comparisons, fewer: Comparisons, entities: Sequence[Any]) -> Change:
    """Answers without some of them."""
    fewer, columns, group = _together(known, fewer)
    size = len(known.winner)
    place = np.full(group.max(initial=-1) + 1, -1, dtype=np.int64)
    place[group[:size]] = np.arange(size)
    rows = place[group[size:]]
    there = np.append(known.count, 0)[rows]  # 0 for what was never given
    asked = np.bincount(group[size:], weights=fewer.count, minlength=len(place))[group[size:]].astype(
        np.int64
    )
    refuse_first(
        asked > there,
        lambda row: (
            f"withdraw: the answer {shown((entities[fewer.winner[row]], entities[fewer.loser[row]]))} is to be taken back "
            f"{asked[row]} times and was given {there[row]} times; "
            "name answers as they were given, with their rater and strength"
        ),
    )
    count = np.array(known.count, dtype=np.int64)
    count[rows] -= asked  # of every row of a group the same
    left = np.flatnonzero(count)
    arrays: dict[str, Any] = {name: column[:size][left] for name, column in columns.items()}
    arrays["count"] = count[left].astype(np.int32)
    return Change(replace(fewer, **arrays), left, rows)


def _together(
    known: Comparisons, other: Comparisons
) -> tuple[Comparisons, dict[str, NDArray[Any]], Positions]:
    """The other answers with the known ones' raters and strengths, all rows, and which of them say the same.

    Where only one of the two has a column, the other one gets it if what is missing can be known: no ties, and a position
    that nobody noted.
    """
    for name in COLUMNS:
        first, second = getattr(known, name), getattr(other, name)
        if first is None and second is not None:
            column: dict[str, Any] = {name: _neutral(name, known, "the answers so far", "the new answers")}
            known = replace(known, **column)
        elif first is not None and second is None:
            column = {name: _neutral(name, other, "the new answers", "the answers so far")}
            other = replace(other, **column)
    strengths = max(known.strengths, other.strengths)
    other = replace(other, strengths=strengths, raters=other.raters or known.raters)
    columns = {name: np.concatenate([column, other.columns[name]]) for name, column in known.columns.items()}
    order, starts = groups_of(columns)
    group = np.empty(len(order), dtype=np.int64)
    group[order] = np.repeat(np.arange(len(starts)), np.diff([*starts, len(order)]))
    return other, columns, group


def _neutral(name: str, answers: Comparisons, these: str, those: str) -> NDArray[Any]:
    size = len(answers.winner)
    all_tied = answers.tie is not None and bool(answers.tie.all())
    if name in ("tie", "shown_first") or size == 0 or (name == "strength" and all_tied):
        return np.zeros(size, dtype=_TYPES[name])
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
    The comparisons of one choice share their winner, and are treated as independent, which they are not: intervals come out
    somewhat too narrow where there are many alternatives. The data's notes say that the answers are composed.
    """
    read = _checked(table, "choices", question, item, chosen)
    picked = read.numbers(chosen, "write true or false")
    rows: list[tuple[Any, Any, Any]] = []
    for label, members, items in _groups(read, question, item):
        winners = np.flatnonzero(picked[members] == 1)
        if len(winners) != 1 or not np.isin(picked[members], (0, 1)).all():
            raise DataError(
                f"{read.place(int(members[0]))}: of the question {shown(label)}, {len(winners)} alternatives are chosen; "
                f"mark exactly one in the column {chosen!r}"
            )
        best = items[winners[0]]
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
        The columns that say to which list the row belongs, which entity it is, and its place, 1 for the best. Equal places
        are ties. A blank place is below all that are given; such entities are not compared with each other.

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
    The comparisons of one list are treated as independent, which they are not: intervals come out somewhat too narrow where
    lists are long. The data's notes say that the answers are composed.
    """
    read = _checked(table, "orderings", list, item, position)
    known = np.flatnonzero(~read.blank(position))
    places = np.full(len(read.frame), np.inf)
    places[known] = read.numbers(position, "write the place, 1 for the best, or leave it blank", known)
    rows: _List[tuple[Any, Any, Any, bool]] = []
    for label, members, items in _groups(read, list, item):
        own = places[members]
        order = np.argsort(own, kind="stable")
        pairs = [(i, j) for at, i in enumerate(order) for j in order[at + 1 :] if np.isfinite(own[i])]
        if not pairs:
            raise DataError(
                f"{read.place(int(members[0]))}: the list {shown(label)} orders nothing; give at least two entities, one with a place"
            )
        rows += [(items[i], items[j], label, bool(own[i] == own[j])) for i, j in pairs]
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
) -> Iterator[tuple[Any, NDArray[np.int64], _List[Any]]]:
    """Every group's label, its rows, and its entities."""
    labels, items = read.frame[group].tolist(), read.frame[item].tolist()
    members: dict[Any, _List[int]] = {}
    for row, label in enumerate(labels):
        if is_missing(label):
            raise DataError(f"{read.cell(group)(row)}: the cell is blank; say to which group the row belongs")
        members.setdefault(label, []).append(row)
    for label, rows in members.items():
        inside: set[Any] = set()
        for row in rows:
            if items[row] in inside:
                raise DataError(
                    f"{read.place(row)}: {shown(items[row])} is in {shown(label)} twice; drop one of the rows"
                )
            inside.add(items[row])
        yield label, np.asarray(rows), [items[row] for row in rows]
