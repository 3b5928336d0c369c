"""Lists among answers: ordered partitions of a few items that were seen together.

A list is kept as the pairs of its neighboring blocks: every item of a block is preferred to every
item of the next. Other pairs follow from these, and items of one block have no pair.
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

NO_LISTS = {"list": None, "list_label": None}  # the columns, where no answer is in a list


def read_lists(rows: Rows) -> None:
    """Read which list each pair is part of; ``count`` repeats a list with fresh noise."""
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
    """Return answers in which a list that was given several times is so many lists."""
    times = np.where(columns["list"] >= 0, columns["count"], 1)
    row = np.repeat(np.arange(len(times)), times)
    copy = pd.Series(row).groupby(row).cumcount().to_numpy()
    repeated = {name: np.asarray(column)[row] for name, column in columns.items()}
    numbers = repeated["list"].astype(np.int64)
    repeated["list"] = np.where(numbers < 0, -1, numbers + (numbers.max(initial=-1) + 1) * copy)
    repeated["count"] = np.where(numbers < 0, repeated["count"], 1)
    return repeated


def _contents(columns: Columns) -> dict[int, tuple[Any, ...]]:
    """Return what each list says, by its number: how many pairs, and the columns of each."""
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
    """Return answers whose lists are numbered by what they say, whatever the order of the rows.

    Without lists the result lacks their columns.
    """
    contents = _contents(columns)
    if not contents:
        return {name: column for name, column in columns.items() if name not in NO_LISTS}
    places = np.full(max(contents) + 2, -1)  # the last one is that of no list
    places[sorted(contents, key=contents.__getitem__)] = np.arange(len(contents))
    return {**columns, "list": places[columns["list"]]}


def chosen_lists(columns: Columns, times: Positions) -> dict[str, Any]:
    """Return answers each of whose rows was selected so many times; a list becomes so many lists.

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
    """Return answers followed by others, whose lists are different ones."""
    first, second = (np.asarray(part["list"]).astype(np.int64) for part in (columns, other))
    numbers = np.where(second < 0, -1, second + first.max(initial=-1) + 1)
    both = {name: np.concatenate([column, other[name]]) for name, column in columns.items()}
    joined = numbered(both | {"list": np.append(first, numbers)})
    none = np.full(len(first) + len(second), -1)
    return joined if "list" in joined else joined | dict.fromkeys(NO_LISTS, none)


def known_lists(columns: Columns, other: Columns) -> Positions:
    """Return the list that says the same as that of each row of other answers; −2 if none does.

    Of equal lists it is one with the same label if there is any, and otherwise the last; each is
    taken once. Rows without a list have −1.
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
    """Return the sizes of lists, see `relpref.likelihoods.lists.ListSizes`.

    They are the number of lists, rounded up, the rows and the items of the longest, and whether a
    block between others has several items.
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
    """Lists, and pairs as lists of two, with an entry for each item of each list."""

    row: Positions  # a row of the answers in which the item is
    number: Positions  # its list; those of the pairs come after the others
    item: Positions
    place: Positions
    covariates: Any  # shape (..., q), less those of one item of the list


def orders_of(columns: Columns) -> Orders:
    """Return answers item by item, sorted by their lists."""
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
    while np.any(place[below[strict]] <= place[above[strict]]):
        np.maximum.at(place, below[strict], place[above[strict]] + 1)
    differences = np.asarray(columns.get("covariates", np.zeros((len(numbers), 0))))
    covariates = np.zeros((len(slots), differences.shape[1]))
    reached = np.append(True, np.diff(slots // items) > 0)  # from the first item of each list
    while not reached.all():
        down, up = reached[above] & ~reached[below], reached[below] & ~reached[above]
        covariates[below[down]] = covariates[above[down]] - differences[down]
        covariates[above[up]] = covariates[below[up]] + differences[up]
        reached[below[down]] = reached[above[up]] = True
    return Orders(first % len(numbers), slots // items, slots % items, place, covariates)
