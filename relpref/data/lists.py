"""Lists among answers: ordered partitions of a few items that were looked at together.

What is kept of a list are the pairs between neighboring blocks: every item of a block is preferred
to every item of the next. Other pairs follow from these, and items of one block have no pair.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relpref.data.arrays import counted
from relpref.data.columns import COLUMNS, NOT_COMPARED, Rows
from relpref.errors import DataError

Columns = dict[str, Any]
Positions = NDArray[np.int64]

NO_LISTS = {"list": None, "list_label": None}  # the columns, where no answer is in a list


def read_lists(rows: Rows) -> None:
    """Read which list each pair is part of; ``count`` repeats a list with fresh noise."""
    table, columns = rows.table, rows.columns
    stated = np.flatnonzero(~table.blank("list"))
    names = table.labels("list", stated)
    place_of = {label: place for place, label in enumerate(dict.fromkeys(names))}
    numbers = np.full(len(table.frame), -1)
    numbers[stated] = [place_of[label] for label in names]
    # A list with one pair is a list of two items: a comparison, or a tie, like any other.
    listed = (numbers >= 0) & (np.bincount(numbers + 1)[numbers + 1] > 1)
    numbers[~listed] = -1
    if listed.any():
        columns |= {"list": numbers, "list_label": numbers}
        rows.columns = numbered(_repeated(columns))
        rows.labels["lists"] = tuple(place_of)


def _repeated(columns: Columns) -> Columns:
    """Repeat lists that were given several times."""
    listed = columns["list"] >= 0
    times = np.where(listed, columns["count"], 1)
    columns = {name: np.repeat(column, times, axis=0) for name, column in columns.items()}
    copy = np.concatenate([np.arange(number) for number in times])
    listed = columns["list"] >= 0
    lists = int(columns["list"].max(initial=-1)) + 1
    return columns | {
        "count": np.where(listed, 1, columns["count"]),
        "list": np.where(listed, columns["list"] + lists * copy, -1),
    }


def numbered(columns: Columns) -> Columns:
    """Lists numbered by what they say, so that the order of the rows leaves no trace; without the column if there is none."""
    number = columns["list"]
    rows = np.flatnonzero(number >= 0)
    if not len(rows):
        return {name: column for name, column in columns.items() if name not in NO_LISTS}
    names, which = np.unique(number[rows], return_inverse=True)
    said = contents(columns, rows, which, len(names))
    rank = np.empty(len(names), dtype=np.int64)
    rank[np.lexsort(said.T[::-1])] = np.arange(len(names))
    found = number.copy()
    found[rows] = rank[which]
    return columns | {"list": found}


def contents(
    columns: Mapping[str, Any], rows: Positions, which: Positions, lists: int
) -> Positions:
    """Describe each list by whole numbers, shape (lists, ...), −1 where there are no more.

    They are the number of its entries, its rater, group and other columns, and the entries: the two
    items of each pair and the bits of its covariates.
    """
    winner, loser = (np.asarray(columns[end])[rows].astype(np.int64) for end in ("winner", "loser"))
    covariates = np.asarray(columns.get("covariates", np.zeros((len(columns["winner"]), 0))))
    entries = np.column_stack([winner, loser, covariates[rows].view(np.int64)])
    order = np.lexsort((loser, winner, which))
    sizes = np.bincount(which, minlength=lists)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    width, shared = entries.shape[1], _shared(columns)
    content = np.full(
        (lists, 1 + len(shared) + width * int(sizes.max(initial=0))), -1, dtype=np.int64
    )
    content[:, 0] = width * sizes
    for at, name in enumerate(shared, start=1):
        content[which, at] = np.asarray(columns[name], dtype=np.float64)[rows].view(np.int64)
    for at in range(width):
        content[which[order], 1 + len(shared) + at + width * place] = entries[order, at]
    return content


def _shared(columns: Mapping[str, Any]) -> list[str]:
    """Return the columns that are the same in all rows of a list."""
    apart = ("list", *NOT_COMPARED, "winner", "loser", "covariates")
    return [name for name in COLUMNS if name in columns and name not in apart]


def chosen_lists(columns: Columns, chosen: Positions) -> Columns:
    """Rows of answers by their positions, where a list that is named k times becomes k lists.

    Raises
    ------
    DataError
        If not all rows of a list are named equally often.
    """
    number = np.asarray(columns["list"]).astype(np.int64)
    times = np.bincount(chosen, minlength=len(number))
    lists = int(number.max(initial=-1)) + 1
    most, least = np.zeros(lists, dtype=np.int64), np.full(lists, np.iinfo(np.int64).max)
    listed = number >= 0
    np.maximum.at(most, number[listed], times[listed])
    np.minimum.at(least, number[listed], times[listed])
    if np.any(most != least):
        rows = counted(int(np.sum(number == np.argmax(most != least))), "row")
        raise DataError(
            f"chosen: a list is selected in part, of {rows} in which its items share their noise; "
            "select all of its rows or none, see "
            "data.comparisons.whole_lists"
        )
    order = np.argsort(chosen, kind="stable")
    starts = np.cumsum(times) - times
    copy = np.empty(len(chosen), dtype=np.int64)
    copy[order] = np.arange(len(chosen)) - starts[chosen[order]]
    taken = {name: np.asarray(column)[chosen] for name, column in columns.items()}
    number = number[chosen]
    return numbered(taken | {"list": np.where(number >= 0, number + lists * copy, -1)})


def joined_lists(columns: Columns, other: Mapping[str, Any]) -> Columns:
    """Answers and others after them, whose lists are others, too."""
    first, second = (np.asarray(each["list"]).astype(np.int64) for each in (columns, other))
    moved = np.where(second >= 0, second + first.max(initial=-1) + 1, -1)
    both = {name: np.concatenate([column, other[name]]) for name, column in columns.items()}
    found = numbered(both | {"list": np.concatenate([first, moved])})
    none = np.full(len(moved) + len(first), -1)
    return found if "list" in found else found | dict.fromkeys(NO_LISTS, none)


def known_lists(columns: Mapping[str, Any], other: Mapping[str, Any]) -> Positions:
    """For each row of other answers the list among these that says the same, −1 where there is none.

    Of equal lists it is one with the same label if there is any, and else the last; each is taken
    once.
    """
    places: dict[bytes, list[int]] = {}
    for number, said in enumerate(_said(columns)):
        places.setdefault(said, []).append(number)
    numbers, labels = [], _list_labels(columns)
    for said, label in zip(_said(other), _list_labels(other), strict=True):
        equal = places.get(said, [])
        chosen = max(equal, key=lambda number: (labels[number] == label, number), default=-2)
        if equal:
            equal.remove(chosen)
        numbers.append(chosen)
    listed = np.asarray(other["list"])
    return np.where(listed >= 0, np.array(numbers or [-1])[np.maximum(listed, 0)], -1)


def _list_labels(columns: Mapping[str, Any]) -> Positions:
    """The label of each list, by its number."""
    numbers, first = np.unique(columns["list"], return_index=True)
    return np.asarray(columns["list_label"])[first[numbers >= 0]]


def _said(columns: Mapping[str, Any]) -> list[bytes]:
    number = np.asarray(columns["list"]).astype(np.int64)
    rows = np.flatnonzero(number >= 0)
    said = contents(columns, rows, number[rows], int(number.max(initial=-1)) + 1)
    return [row[: 1 + len(_shared(columns)) + row[0]].tobytes() for row in said]


def sizes_of(winner: Any, loser: Any, number: Any) -> tuple[int, int, int, bool]:
    """How many lists there are, rounded up, rows and items of the longest, and whether a block between others has several items."""
    rows = np.flatnonzero(np.asarray(number) >= 0)
    winner, loser, number = (
        np.asarray(part)[rows].astype(np.int64) for part in (winner, loser, number)
    )
    lists = int(number.max(initial=-1)) + 1
    items = int(max(winner.max(initial=0), loser.max(initial=0))) + 1
    slots, which = np.unique(
        np.concatenate([number * items + winner, number * items + loser]), return_inverse=True
    )
    above, below = np.split(which, 2)
    wins = np.bincount(above, minlength=len(slots))
    between = bool(np.any((wins[below] > 0) & (wins[above] > 1)))
    longest = [int(np.bincount(part, minlength=1).max()) for part in (number, slots // items)]
    return 1 << max(lists - 1, 0).bit_length(), longest[0], longest[1], between


class Orders(NamedTuple):
    """Lists, and pairs as lists of two, with an entry for each item of each list."""

    row: Positions  # a row of the answers in which the item is
    number: Positions  # its list; those of the pairs come after the others
    item: Positions
    place: Positions
    covariates: Any  # shape (..., q), less those of an item of the list


def orders_of(columns: Mapping[str, Any]) -> Orders:
    """Return answers item by item, sorted by their lists."""
    ends = [np.asarray(columns[end]).astype(np.int64) for end in ("winner", "loser")]
    number = np.asarray(columns["list"]).astype(np.int64)
    alone = number < 0
    number = np.where(alone, number.max(initial=-1) + np.cumsum(alone), number)
    items = int(np.max(ends, initial=0)) + 1
    slots, first, which = np.unique(
        np.concatenate([number * items + end for end in ends]),
        return_index=True,
        return_inverse=True,
    )
    above, below = np.split(which, 2)
    strict = ~np.asarray(columns.get("tie", np.zeros(len(number), dtype=bool)))
    place = np.ones(len(slots), dtype=np.int64)
    while np.any(place[below[strict]] <= place[above[strict]]):
        np.maximum.at(place, below[strict], place[above[strict]] + 1)
    more = np.asarray(columns.get("covariates", np.zeros((len(number), 0))))
    covariates = np.zeros((len(slots), more.shape[1]))
    known = np.append(True, np.diff(slots // items) > 0)
    while not known.all():
        down, up = known[above] & ~known[below], known[below] & ~known[above]
        covariates[below[down]] = covariates[above[down]] - more[down]
        covariates[above[up]] = covariates[below[up]] + more[up]
        known[below[down]] = known[above[up]] = True
    return Orders(first % len(number), slots // items, slots % items, place, covariates)
