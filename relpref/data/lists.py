"""Lists among answers: items that were seen together, ordered into blocks of tied items.

A list is stored as the pairs of its neighboring blocks: every item of a block is preferred to every
item of the next. Other pairs follow from these, and items of one block have no pair.

``Columns`` are arrays of shape (m, ...) by column of the schema, with a row for each pair. In the
column ``list`` is the number of the pair's list, −1 if it is in none.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import counted
from relpref.data.columns import COLUMNS, NOT_COMPARED, Rows
from relpref.errors import DataError

Columns = Mapping[str, Any]
Positions = NDArray[np.int64]

NO_LISTS = {"list": None, "list_label": None}  # columns of answers without lists


def read_lists(rows: Rows) -> None:
    """Read which list each pair is part of, and number the lists by what they say.

    A count c > 1 gives c separate lists, as items of one list share their noise.
    """
    stated = np.flatnonzero(~rows.table.blank("list"))
    labels = rows.table.labels("list", stated)
    place_of = {label: place for place, label in enumerate(dict.fromkeys(labels))}
    numbers = np.full(len(rows.table.frame), -1)
    numbers[stated] = [place_of[label] for label in labels]
    # A list with one pair is a list of two items: a comparison, or a tie, like any other.
    numbers = np.where(np.bincount(numbers + 1)[numbers + 1] > 1, numbers, -1)
    if np.any(numbers >= 0):
        rows.columns = numbered(_repeated(rows.columns | {"list": numbers, "list_label": numbers}))
        rows.labels["lists"] = tuple(place_of)


def _repeated(columns: Columns) -> dict[str, Any]:
    """Return the columns with each list of count c repeated as c lists of count 1."""
    times = np.where(columns["list"] >= 0, columns["count"], 1)
    row = np.repeat(np.arange(len(times)), times)
    copy = pd.Series(row).groupby(row).cumcount().to_numpy()
    repeated = {name: np.asarray(column)[row] for name, column in columns.items()}
    numbers = repeated["list"].astype(np.int64)
    repeated["list"] = np.where(numbers < 0, -1, numbers + (numbers.max(initial=-1) + 1) * copy)
    repeated["count"] = np.where(numbers < 0, repeated["count"], 1)
    return repeated


def _contents(columns: Columns) -> dict[int, tuple[Any, ...]]:
    """Return the content of each list, by its number: its number of pairs, and their sorted cells.

    Contents are equal if and only if two lists say the same, and they have an order.
    """
    names = [name for name in COLUMNS if name in columns and name not in ("list", *NOT_COMPARED)]
    keys = [key for name in names for key in np.atleast_2d(np.asarray(columns[name]).T)]
    numbers = np.asarray(columns["list"])
    order = np.lexsort((*keys[::-1], numbers))
    order = order[numbers[order] >= 0]
    pairs: dict[int, list[Any]] = {int(number): [] for number in numbers[order]}
    cells = zip(*(key[order].tolist() for key in keys), strict=True)
    for number, pair in zip(numbers[order].tolist(), cells, strict=True):
        pairs[number].append(pair)
    return {number: (len(rows), *rows) for number, rows in pairs.items()}


def numbered(columns: Columns) -> dict[str, Any]:
    """Number the lists from 0, sorted by content, so that the order of the rows does not matter.

    Columns of lists are left out if no row is in a list.
    """
    contents = _contents(columns)
    if not contents:
        return {name: column for name, column in columns.items() if name not in NO_LISTS}
    places = np.full(max(contents) + 2, -1)  # the last entry is for rows with −1, in no list
    places[sorted(contents, key=contents.__getitem__)] = np.arange(len(contents))
    return {**columns, "list": places[columns["list"]]}


def chosen_lists(columns: Columns, times: Positions) -> dict[str, Any]:
    """Return the rows with their counts multiplied by ``times``, shape (m,).

    A list that is selected k times becomes k lists.

    Raises
    ------
    DataError
        If not all rows of a list are selected equally often.
    """
    numbers = np.asarray(columns["list"])
    per_list = pd.Series(times).groupby(numbers).nunique()
    parted = per_list.index[(per_list > 1) & (per_list.index >= 0)]
    if len(parted):
        several = counted(int(np.sum(numbers == parted[0])), "row")
        raise DataError(
            f"chosen: a list is selected in part, of {several} in which its items share their "
            "noise; select all of its rows or none, see data.comparisons.whole_lists"
        )
    counts = {"count": np.asarray(columns["count"], dtype=np.int64) * times}
    rows = np.flatnonzero(times)
    some = {name: np.asarray(column)[rows] for name, column in {**columns, **counts}.items()}
    return numbered(_repeated(some))


def joined_lists(columns: Columns, other: Columns) -> dict[str, Any]:
    """Append the rows of ``other`` to the columns; its lists are different ones, even if equal."""
    first, second = (np.asarray(part["list"]).astype(np.int64) for part in (columns, other))
    numbers = np.where(second < 0, -1, second + first.max(initial=-1) + 1)
    both = {name: np.concatenate([column, other[name]]) for name, column in columns.items()}
    joined = numbered(both | {"list": np.append(first, numbers)})
    none = np.full(len(first) + len(second), -1)
    return joined if "list" in joined else joined | dict.fromkeys(NO_LISTS, none)


def known_lists(columns: Columns, other: Columns) -> Positions:
    """Match the lists of ``other`` to equal lists in the columns; returns a number for each row.

    Each list is matched once, to an equal list with the same label if there is one, otherwise to
    the last equal list. The number of a row is −2 if its list has no match, and −1 without a list.
    """
    equal: dict[Any, list[int]] = {}
    for number, content in _contents(columns).items():
        equal.setdefault(content, []).append(number)
    labels, others = (
        dict(zip(part["list"].tolist(), part["list_label"].tolist(), strict=True))
        for part in (columns, other)
    )
    same = {-1: -1}
    for number, content in _contents(other).items():
        candidates = equal.get(content, [])
        label = others[number]
        same[number] = max(candidates, key=lambda at: (labels[at] == label, at), default=-2)
        equal[content] = [at for at in candidates if at != same[number]]
    return np.array([same[number] for number in other["list"].tolist()], dtype=np.int64)


def sizes_of(winner: Any, loser: Any, number: Any) -> tuple[int, int, int, bool]:
    """Return the sizes of the lists, see `relpref.likelihoods.lists.ListSizes`.

    They are the number of lists, rounded up to a power of 2, the largest number of rows and of
    items in a list, and whether a block that is neither first nor last in its list has several
    items.
    """
    rows = np.flatnonzero(np.asarray(number) >= 0)
    winner, loser, number = (
        np.asarray(part)[rows].astype(np.int64) for part in (winner, loser, number)
    )
    lists, items = (int(part.max(initial=0)) + 1 for part in (number, np.append(winner, loser)))
    slots, which = np.unique(
        np.append(number * items + winner, number * items + loser), return_inverse=True
    )
    above, below = np.split(which, 2)
    wins = np.bincount(above, minlength=len(slots))
    between = bool(np.any((wins[below] > 0) & (wins[above] > 1)))
    longest = [int(np.bincount(part, minlength=1).max()) for part in (number, slots // items)]
    return 1 << max(lists - 1, 0).bit_length(), longest[0], longest[1], between


class Orders(NamedTuple):
    """Answers as orders: arrays with an entry for each item of each list, a pair being a list."""

    row: Positions  # a row of the answers with this item, in this list
    number: Positions  # number of the list; pairs are numbered after the lists
    item: Positions
    place: Positions  # 1 for the best
    covariates: Any  # shape (..., q), minus those of the first entry of the list


def orders_of(columns: Columns) -> Orders:
    """Turn pairs of items into `Orders`, sorted by list and item."""
    ends = [np.asarray(columns[end]).astype(np.int64) for end in ("winner", "loser")]
    numbers = np.asarray(columns["list"]).astype(np.int64)
    alone = numbers < 0
    numbers = np.where(alone, numbers.max(initial=-1) + np.cumsum(alone), numbers)
    items = int(np.max(ends, initial=0)) + 1
    slots, first, which = np.unique(
        np.concatenate([numbers * items + end for end in ends]),
        return_index=True,
        return_inverse=True,
    )
    above, below = np.split(which, 2)
    strict = ~np.asarray(columns.get("tie", np.zeros(len(numbers), dtype=bool)))
    place = np.ones(len(slots), dtype=np.int64)
    # An item is placed below all items that were preferred to it: one block more in each round.
    while np.any(place[below[strict]] <= place[above[strict]]):
        np.maximum.at(place, below[strict], place[above[strict]] + 1)
    differences = np.asarray(columns.get("covariates", np.zeros((len(numbers), 0))))
    covariates = np.zeros((len(slots), differences.shape[1]))
    reached = np.append(True, np.diff(slots // items) > 0)  # entries with covariates so far
    while not reached.all():
        down, up = reached[above] & ~reached[below], reached[below] & ~reached[above]
        covariates[below[down]] = covariates[above[down]] - differences[down]
        covariates[above[up]] = covariates[below[up]] + differences[up]
        reached[below[down]] = reached[above[up]] = True
    return Orders(first % len(numbers), slots // items, slots % items, place, covariates)
