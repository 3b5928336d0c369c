"""Reads tables of answers, in either of two forms."""

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relpref.data.answers import COMPOSED, NAME, Comparisons, merged
from relpref.data.arrays import read_only
from relpref.data.columns import counts, numbers
from relpref.data.labels import LabelIndex, is_missing, plain_labels
from relpref.data.messages import counted, nearest, shown
from relpref.data.tables import Table, as_table, check_columns, renamed
from relpref.errors import DataError

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
