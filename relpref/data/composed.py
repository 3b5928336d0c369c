"""Choices and orderings as comparisons: one among several, or several in order."""

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from relpref.data.columns import numbers
from relpref.data.labels import is_missing
from relpref.data.messages import listed, shown
from relpref.data.tables import Table, as_table
from relpref.errors import DataError

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
