"""Tables of choices, orderings, and of the best and the worst, as tables of pairs."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import listed, shown
from relpref.data.labels import is_missing
from relpref.data.tables import Table, as_table
from relpref.errors import DataError

_List = list  # `list` is the name of a parameter of `orderings`


def choices(table: Any, *, question: Hashable, item: Hashable, chosen: Hashable) -> pd.DataFrame:
    """Compose answers from choices of one among several: the chosen one is preferred to each of the others.

    Parameters
    ----------
    table : DataFrame
        Long: one row for each alternative of each question.
    question, item, chosen
        The columns that say to which question the row belongs, which item it is, and whether that was chosen.

    Returns
    -------
    DataFrame
        Columns ``winner``, ``loser``, ``list`` for `PreferenceData.from_tables`; k − 1 rows for a choice among k.

    Raises
    ------
    DataError
        If a column is missing, a question has no chosen alternative or several, or has an item twice.

    Notes
    -----
    The answers of one choice share their winner, which `PreferenceData.from_tables` takes into account.
    """
    read = _checked(table, "choices", question, item, chosen)
    picked = read.numbers(chosen, "write true or false")
    rows = []
    for label, members, items in _groups(read, question, item):
        number = np.sum(picked[members] == 1)
        if number != 1 or not np.isin(picked[members], (0, 1)).all():
            raise DataError(
                f"{read.place(int(members[0]))}: of the question {shown(label)}, {number} alternatives are chosen; "
                f"mark exactly one in the column {chosen!r}"
            )
        places = np.where(picked[members] == 1, 1, np.inf)
        rows += [(winner, loser, label) for winner, loser, _ in _pairs(items, places)]
    return pd.DataFrame(rows, columns=["winner", "loser", "list"], dtype=object)


def orderings(table: Any, *, list: Hashable, item: Hashable, position: Hashable) -> pd.DataFrame:
    """Compose answers from orderings, full or partial: of every two items of a list, the higher is preferred.

    Parameters
    ----------
    table : DataFrame
        Long: one row for each item of each list.
    list, item, position
        The columns that say to which list the row belongs, which item it is, and its place, 1 for the best. Equal places
        are ties. A blank place is below all that are given; such items are not compared with each other.

    Returns
    -------
    DataFrame
        Columns ``winner``, ``loser``, ``list`` and, where places are equal, ``tie``, for `PreferenceData.from_tables`.

    Raises
    ------
    DataError
        If a column is missing, a place is not a number, or a list has an item twice or says nothing.

    Notes
    -----
    The answers of one list share their items, which `PreferenceData.from_tables` takes into account.
    """
    read = _checked(table, "orderings", list, item, position)
    known = np.flatnonzero(~read.blank(position))
    places = np.full(len(read.frame), np.inf)
    places[known] = read.numbers(position, "write the place, 1 for the best, or leave it blank", known)
    rows: _List[tuple[Any, Any, Any, bool]] = []
    for label, members, items in _groups(read, list, item):
        pairs = _pairs(items, places[members])
        if not pairs:
            raise DataError(
                f"{read.place(int(members[0]))}: the list {shown(label)} orders nothing; give at least two items, one with a place"
            )
        rows += [(winner, loser, label, tied) for winner, loser, tied in pairs]
    frame = pd.DataFrame(rows, columns=["winner", "loser", "list", "tie"], dtype=object)
    return frame.astype({"tie": bool}) if frame["tie"].any() else frame.drop(columns="tie")


def best_worst(table: Any, *, items: Sequence[Hashable], best: Hashable, worst: Hashable) -> pd.DataFrame:
    """Compose answers from the best and the worst of several: the best is preferred to each, and each to the worst.

    Parameters
    ----------
    table : DataFrame
        Wide: one row for each question.
    items
        The columns that hold the items that were shown; blank where there were fewer.
    best, worst
        The columns that hold the chosen two of them.

    Returns
    -------
    DataFrame
        Columns ``winner``, ``loser``, ``list`` for `PreferenceData.from_tables`; 2k − 3 rows for k items.

    Raises
    ------
    DataError
        If a column is missing, a question has fewer than two items or one of them twice, or its best or worst is blank, none of them, or
        both are one.
    """
    read = _checked(table, "best_worst", *items, best, worst)
    shown_items = [read.frame[column].tolist() for column in items]
    rows = []
    for row, (one, other) in enumerate(
        zip(read.frame[best].tolist(), read.frame[worst].tolist(), strict=True)
    ):
        inside = [column[row] for column in shown_items if not is_missing(column[row]) and column[row] != ""]
        wrong = next((item for item in inside if inside.count(item) > 1), None)
        if wrong is not None:
            raise DataError(f"{read.place(row)}: {shown(wrong)} is shown twice; correct one of the two cells")
        for column, item in ((best, one), (worst, other)):
            if is_missing(item) or item not in inside:
                raise DataError(
                    f"{read.cell(column)(row)}: {shown(item)} is none of the items of the row, {listed(inside)}; name one of them"
                )
        if one == other:
            raise DataError(
                f"{read.place(row)}: {shown(one)} is the best and the worst; correct one of the two cells, or drop the row"
            )
        between = [item for item in inside if item not in (one, other)]
        rows += [(one, item, row) for item in (*between, other)] + [(item, other, row) for item in between]
    return pd.DataFrame(rows, columns=["winner", "loser", "list"], dtype=object)


def _pairs(items: _List[Any], places: NDArray[np.float64]) -> _List[tuple[Any, Any, bool]]:
    """Every two of a list of which one has a place, the higher first, and whether they are tied."""
    order = np.argsort(places, kind="stable")
    return [
        (items[i], items[j], bool(places[i] == places[j]))
        for at, i in enumerate(order)
        if np.isfinite(places[i])
        for j in order[at + 1 :]
    ]


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
    """Every group's label, its rows, and its items."""
    items = read.frame[item].tolist()
    members: dict[Any, dict[Any, int]] = {}  # the row of each item of each group
    for row, label in enumerate(read.frame[group].tolist()):
        if is_missing(label):
            raise DataError(f"{read.cell(group)(row)}: the cell is blank; say to which group the row belongs")
        inside = members.setdefault(label, {})
        if items[row] in inside:
            raise DataError(f"{read.place(row)}: {shown(items[row])} is in {shown(label)} twice; drop a row")
        inside[items[row]] = row
    for label, inside in members.items():
        yield label, np.array([*inside.values()]), [*inside]
