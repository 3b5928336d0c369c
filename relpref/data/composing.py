"""Tables of choices, orderings, and of the best and the worst, as tables of pairs."""

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import listed, refuse_first, shown
from relpref.data.labels import label_column, trimmed
from relpref.data.tables import Table, as_table
from relpref.errors import DataError

_List = list  # `list` is the name of a parameter of `orderings`
# Columns that say the same in every row of a list, some of which are refused later.
_OF_A_LIST = frozenset({"rater", "count", "group", "weight", "strength", "shown_first"})
# Winner, loser, whether they are tied, the list, and the number of its first row.
Rows = _List[tuple[Any, Any, bool, Any, int]]
# Names of the columns of what was shown, beside best and worst.
SHOWN = re.compile(r"item[ _]?\d+", re.IGNORECASE).fullmatch


def choices(table: Any, *, question: Hashable, item: Hashable, chosen: Hashable) -> pd.DataFrame:
    """Compose answers from choices of one among several: the chosen one is preferred to each of the others.

    Parameters
    ----------
    table : DataFrame
        Long: one row for each alternative of each question.
    question, item, chosen
        The columns that say to which question the row belongs, which item it is, and whether that
        was chosen.

    Returns
    -------
    DataFrame
        Columns ``winner``, ``loser``, ``list`` for `PreferenceData.from_tables`; k − 1 rows for a
        choice among k.

    Raises
    ------
    DataError
        If a column is missing, a question has no chosen alternative or several, or has an item
        twice.

    Notes
    -----
    The answers of one choice share their winner, which `PreferenceData.from_tables` takes into
    account.
    """
    return _table(
        _of_choices(_checked(table, "choices", question, item, chosen), question, item, chosen)
    )


def _of_choices(read: Table, question: Hashable, item: Hashable, chosen: Hashable) -> Rows:
    picked = read.numbers(chosen, "write true or false")
    rows: Rows = []
    for label, members, items in _groups(read, question, item):
        number = np.sum(picked[members] == 1)
        if len(members) < 2:
            raise DataError(
                f"{read.place(int(members[0]))}: the question {shown(label)} has one alternative "
                "alone, which says nothing; add the others "
                "that could have been chosen, or drop the row"
            )
        if number != 1 or not np.isin(picked[members], (0, 1)).all():
            raise DataError(
                f"{read.place(int(members[0]))}: of the question {shown(label)}, {number} "
                "alternatives are chosen; "
                f"mark exactly one in the column {chosen!r}"
            )
        places = np.where(picked[members] == 1, 1, np.inf)
        rows += [(*pair, label, members[0]) for pair in _pairs(items, places)]
    return rows


def orderings(table: Any, *, list: Hashable, item: Hashable, position: Hashable) -> pd.DataFrame:
    """Compose answers from orderings, full or partial: of every two items of a list, the higher is preferred.

    Parameters
    ----------
    table : DataFrame
        Long: one row for each item of each list.
    list, item, position
        The columns that say to which list the row belongs, which item it is, and its place, 1 for
        the best. Equal places are ties. A blank place is below all that are given; such items are
        not compared with each other.

    Returns
    -------
    DataFrame
        Columns ``winner``, ``loser``, ``list`` and, where places are equal, ``tie``, for
        `PreferenceData.from_tables`.

    Raises
    ------
    DataError
        If a column is missing, a place is not a number from 1 on, or a list has an item twice or
        says nothing.

    Notes
    -----
    The answers of one list share their items, which `PreferenceData.from_tables` takes into
    account.
    """
    return _table(
        _of_orderings(_checked(table, "orderings", list, item, position), list, item, position)
    )


def _of_orderings(read: Table, group: Hashable, item: Hashable, position: Hashable) -> Rows:
    known = np.flatnonzero(~read.blank(position))
    places = np.full(len(read.frame), np.inf)
    places[known] = read.numbers(
        position, "write the place, 1 for the best, or leave it blank", known
    )
    remedy = (
        "leave the cell empty if the item is below all others, such as one that did not finish, "
        "or drop the row"
    )
    read.refuse(position, places < 1, f" is no place, which start at 1; {remedy}")
    rows: Rows = []
    for label, members, items in _groups(read, group, item):
        pairs = _pairs(items, places[members])
        if not pairs:
            raise DataError(
                f"{read.place(int(members[0]))}: the list {shown(label)} orders nothing; give at "
                "least two items, one with a place"
            )
        rows += [(*pair, label, members[0]) for pair in pairs]
    return rows


def best_worst(
    table: Any, *, items: Sequence[Hashable], best: Hashable, worst: Hashable
) -> pd.DataFrame:
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
        Columns ``winner``, ``loser``, ``list`` for `PreferenceData.from_tables`; 2k − 3 rows for k
        items.

    Raises
    ------
    DataError
        If a column is missing, a question has fewer than two items or one of them twice, or its
        best or worst is blank, none of them, or both are one.
    """
    read = _checked(table, "best_worst", *items, best, worst)
    return _table(_of_best_worst(read, best, worst, items))


def _of_best_worst(
    read: Table, best: Hashable, worst: Hashable, items: Sequence[Hashable] | None = None
) -> Rows:
    if items is None:
        items = [column for column in read.frame.columns if SHOWN(str(column))]
        _checked(
            read,
            read.name,
            *(items or ["item_1"]),
            remedy="name the columns of what was shown item_1, item_2, ...",
        )
    inside_of: _List[_List[Any]] = [[] for _ in range(len(read.frame))]
    for column in items:
        there = np.flatnonzero(~read.blank(column))
        for row, label in zip(there.tolist(), read.labels(column, there), strict=True):
            inside_of[row].append(label)
    for column in (best, worst):
        read.refuse(
            column, read.blank(column), " is none of the items of the row; name one of them"
        )
    index = read.frame.index
    labels = index.tolist() if index.is_unique else range(len(index))
    rows: Rows = []
    for row, (one, other) in enumerate(zip(read.labels(best), read.labels(worst), strict=True)):
        inside = inside_of[row]
        wrong = next((item for item in inside if inside.count(item) > 1), None)
        if wrong is not None:
            raise DataError(
                f"{read.place(row)}: {shown(wrong)} is shown twice; correct one of the two cells"
            )
        for column, item in ((best, one), (worst, other)):
            if item not in inside:
                raise DataError(
                    f"{read.cell(column)(row)}: {shown(item)} is none of the items of the row, "
                    f"{listed(inside)}; name one of them"
                )
        if one == other:
            raise DataError(
                f"{read.place(row)}: {shown(one)} is the best and the worst; correct one of the "
                "two cells, or drop the row"
            )
        between = [item for item in inside if item not in (one, other)]
        pairs = [(one, item) for item in (*between, other)] + [(item, other) for item in between]
        rows += [(*pair, False, labels[row], row) for pair in pairs]
    return rows


# The columns that say that a table of answers is one of lists, how it is read, and what it is
# called.
_FORMS: dict[tuple[str, ...], tuple[Callable[..., Rows], str]] = {
    ("list", "item", "place"): (_of_orderings, "orders"),
    ("choice", "item", "chosen"): (_of_choices, "choices"),
    ("best", "worst"): (_of_best_worst, "the best and the worst of several"),
}


_TELLING = {
    form: set(form) - {"list", "item"} for form in _FORMS
}  # names that tables of pairs have not


def as_pairs(table: Table, covariates: Sequence[str] = ()) -> Table:
    """A table of orders, choices, or of the best and the worst, by its columns, as one of pairs; any other as it is.

    A pair is at the place of its list's first row. Of orders and choices each row has the
    covariates of its item.
    """
    there = set(table.frame.columns)
    form = next(
        (form for form in _FORMS if there & set(_TELLING[form]) or set(form[:2]) <= there), None
    )
    if form is None or there & {"winner", "loser", "first", "second"}:
        return table
    reader, what = _FORMS[form]
    more = ", item_1, item_2, ..." if form[0] == "best" else ""
    lacking = next((name for name in form if name not in there), form[0])
    remedy = (
        f"{what} have the columns {', '.join(form)}{more}: rename yours, or say which one it is, "
        "as in "
        f"columns={{{lacking!r}: 'name'}} (--columns {lacking}=name)"
    )
    rows = reader(_checked(table, table.name, *form, remedy=remedy), *form)
    columns: dict[str, Any] = dict(
        zip(("winner", "loser", "tie", "list", "at"), zip(*rows, strict=True), strict=True)
    )
    at = np.array(columns.pop("at"))
    if not any(columns["tie"]):
        del columns["tie"]
    if table.text:  # the numbers of the lists and the ties are read as cells of the file are
        columns = {name: [str(cell) for cell in cells] for name, cells in columns.items()}
    for name in there & _OF_A_LIST:
        columns[name] = table.frame[name].to_numpy(dtype=object)[at]
        if form[0] != "best":
            _refuse_several(table, name, form[0])
    for name in covariates:
        if form[0] == "best" or name not in there:
            raise DataError(
                f"{table.name}: there is no column {name!r} with the covariate of each item; "
                "orders and choices have it beside the item, "
                "and tables of the best and the worst have none"
            )
        keys = zip(table.labels(form[0]), table.labels(form[1]), strict=True)
        values = dict(zip(keys, table.frame[name].tolist(), strict=True))
        for end in ("winner", "loser"):
            sides = zip(columns["list"], columns[end], strict=True)
            columns[f"{name}_{end}"] = [values[side] for side in sides]
    used = {*form, *_OF_A_LIST, *covariates} | {column for column in there if SHOWN(str(column))}
    unused = [column for column in table.frame.columns if column not in used]
    notes = [f"the rows were read as {what}", *([f"not used: {listed(unused)}"] if unused else [])]
    return replace(
        table,
        frame=pd.DataFrame(columns, index=table.frame.index[at], dtype=object),
        lines=None if table.lines is None else np.asarray(table.lines)[at],
        rows=at,
        given=table.given
        if form[0] == "best"
        else {**table.given, **dict.fromkeys(("winner", "loser"), table.called(form[1]))},
        notes=(*table.notes, *notes),
    )


def _refuse_several(table: Table, name: str, group: str) -> None:
    """Refuse a list whose rows have different values in a column."""
    cells, of = (table.frame[column].map(trimmed) for column in (name, group))
    first = cells.groupby(of, sort=False).transform("first")
    table.refuse(
        name,
        np.asarray((cells != first) & ~(cells.isna() & first.isna())),
        f" is not the {name} of the first row of its {group}; a {group} has one",
    )


def pairs_of_rankings(rankings: Any, *, every: bool) -> pd.DataFrame:
    """Pairs of the items of each of `Rankings`: those of neighboring blocks, or with ``every`` all, and ties.

    Of a ranking that leaves two items tied alone the tie is a pair in any case.

    Raises
    ------
    DataError
        If a ranking is of one item alone.
    """
    parts, tied = [], []
    for number, places in enumerate(rankings.positions):
        items = np.flatnonzero(places >= 0)
        if len(items) < 2:
            raise DataError(
                f"rankings: that of {shown(rankings.rankers[number])}, number {number}, is of one "
                "item alone, and orders nothing; leave it "
                "out, or use rankings.completed() if all others are below (of a PrefLib file: "
                "incomplete='top-k', --incomplete top-k)"
            )
        order = items[np.argsort(places[items], kind="stable")]
        if every or len(order) == 2:
            above, below = np.triu_indices(len(order), 1)
        else:
            blocks = np.split(np.arange(len(order)), np.flatnonzero(np.diff(places[order])) + 1)
            both = [
                (np.repeat(one, len(other)), np.tile(other, len(one)))
                for one, other in pairwise(blocks)
            ]
            above, below = (
                np.concatenate([np.zeros(0, int), *(pair[end] for pair in both)]) for end in (0, 1)
            )
        parts.append(np.stack([order[above], order[below], np.full(len(above), number)]))
        tied.append(places[order[above]] == places[order[below]])
    winner, loser, number = np.concatenate(parts, axis=1)
    if not len(winner):
        raise DataError(
            "rankings: all items of each are tied, so they order nothing; leave such rankings out"
        )
    labels, ties = label_column(rankings.items.labels), np.concatenate(tied)
    rankers = label_column(rankings.rankers)
    lists = rankers.take(number) if rankers.is_unique else number
    table = {"winner": labels.take(winner), "loser": labels.take(loser), "list": lists}
    return pd.DataFrame(table | ({"tie": ties} if ties.any() else {}))


def _table(rows: Rows) -> pd.DataFrame:
    """Columns winner, loser, list, and tie where there are ties."""
    frame = pd.DataFrame(
        [row[:4] for row in rows], columns=["winner", "loser", "tie", "list"], dtype=object
    )
    frame = frame[["winner", "loser", "list", "tie"]].astype({"tie": bool})
    return frame if frame["tie"].any() else frame.drop(columns="tie")


def _pairs(items: _List[Any], places: NDArray[np.float64]) -> _List[tuple[Any, Any, bool]]:
    """Every two of a list of which one has a place, the higher first, and whether they are tied."""
    order = np.argsort(places, kind="stable")
    return [
        (items[i], items[j], bool(places[i] == places[j]))
        for at, i in enumerate(order)
        if np.isfinite(places[i])
        for j in order[at + 1 :]
    ]


def _checked(
    table: Any, name: str, *columns: Hashable, remedy: str = "name the column that holds it"
) -> Table:
    read = as_table(table, name)
    for column in columns:
        if column not in read.frame.columns:
            raise DataError(
                f"{read.name}: there is no column {shown(column)} among "
                f"{listed(read.frame.columns)}; {remedy}"
            )
    if read.frame.empty:
        raise DataError(f"{read.name}: the table has no rows; give at least one")
    return read


def _groups(
    read: Table, group: Hashable, item: Hashable
) -> Iterator[tuple[Any, NDArray[np.int64], _List[Any]]]:
    """Every group's label, its rows, and its items."""
    items = read.labels(item)
    members: dict[Any, dict[Any, int]] = {}  # the row of each item of each group
    place = read.cell(group)
    refuse_first(
        read.blank(group),
        lambda row: f"{place(row)}: the cell is blank; say to which group the row belongs",
    )
    for row, label in enumerate(read.labels(group)):
        inside = members.setdefault(label, {})
        if items[row] in inside:
            raise DataError(
                f"{read.place(row)}: {shown(items[row])} is in {shown(label)} twice; drop a row"
            )
        inside[items[row]] = row
    for label, inside in members.items():
        yield label, np.array([*inside.values()]), [*inside]
