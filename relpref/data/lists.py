"""Lists among answers: ordered partitions of a few items that were looked at together.

What is kept of a list are the pairs between neighboring blocks: every item of a block is preferred
to every item of the next. Other pairs follow from these, and items of one block have no pair.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relpref.data.arrays import counted, refuse_first
from relpref.errors import DataError

Columns = dict[str, Any]
Positions = NDArray[np.int64]

NO_LISTS = {"list": None, "list_label": None}  # the columns, where no answer is in a list
_REMEDY = (
    "give every item of a place above every item of the next, as choices and orderings do, "
    "or read pairs as they are with lists='pairs'"
)


def read_lists(
    columns: Columns, number: Positions, place: Callable[[int], str]
) -> tuple[Columns, tuple[str, ...]]:
    """Columns of answers in which the pairs of lists are those that are kept, and notes on what was tidied.

    Parameters
    ----------
    columns : dict of arrays
        As of `relpref.data.Comparisons`, with ``list_label``; ``count`` repeats a list with fresh
        noise.
    number : array of int, shape (m,)
        The list of each row, −1 where there is none. A list of two is a comparison, or a tie, like
        any other.
    place : callable
        How a row is called in messages.

    Raises
    ------
    DataError
        If the pairs of a list are no ordered partition of its items, or a list has strengths or
        several raters.
    """
    rows = np.flatnonzero(number >= 0)
    winner, loser, of_row = (
        np.asarray(part)[rows].astype(np.int64)
        for part in (columns["winner"], columns["loser"], number)
    )
    _check_columns(columns, rows, of_row, place)

    def refuse(wrong: Any, reason: str) -> None:
        refuse_first(wrong, lambda row: f"{place(int(rows[row]))}: {reason}")

    items = int(max(winner.max(initial=0), loser.max(initial=0))) + 1
    pair = np.stack([of_row, np.minimum(winner, loser), np.maximum(winner, loser)])
    order = np.lexsort(pair[::-1])
    twice = np.zeros(len(rows), dtype=bool)
    twice[order[1:]] = (pair[:, order][:, 1:] == pair[:, order][:, :-1]).all(axis=0)
    refuse(twice, "the list has this pair of items twice; drop a row")
    slots, place_of = np.unique(
        np.concatenate([of_row * items + winner, of_row * items + loser]), return_inverse=True
    )
    above, below = np.split(place_of, 2)
    of_slot = slots // items
    size = np.bincount(of_slot)
    tied = np.asarray(columns["tie"])[rows] if "tie" in columns else np.zeros(len(rows), dtype=bool)
    strict = ~tied
    # The block of each item is the length of the longest path to it.
    block = np.zeros(len(slots), dtype=np.int64)
    for _ in range(int(size.max(initial=0))):
        further = block.copy()
        np.maximum.at(further, below[strict], block[above[strict]] + 1)
        if np.array_equal(further, block):
            break
        block = further
    fall = block[below] - block[above]
    refuse(strict & (fall <= 0), f"the pairs of the list contradict each other; {_REMEDY}")
    refuse(
        tied & (fall != 0),
        f"the two are tied, but not with the same items above or below them; {_REMEDY}",
    )
    width = int(block.max(initial=0)) + 2
    blocks = np.bincount(of_slot * width + block, minlength=len(size) * width).reshape(
        len(size), width
    )
    near = strict & (fall == 1)
    there = np.bincount(of_row[near] * width + block[above[near]], minlength=blocks.size).reshape(
        blocks.shape
    )
    wanted = blocks[:, :-1] * blocks[:, 1:]
    short = (there[:, :-1] != wanted).any(axis=1)
    refuse(
        short[of_row],
        f"some pairs of the list are missing, and its others do not tell them; {_REMEDY}",
    )

    two = size[of_row] == 2
    number = number.copy()
    number[rows[two]] = -1
    columns = columns | {"list_label": np.where(number < 0, -1, columns["list_label"])}
    kept = np.ones(len(number), dtype=bool)
    kept[rows] = two | near
    nothing = counted(len(np.unique(of_row[~two])) - len(np.unique(of_row[~two & near])), "list")
    notes = () if nothing.startswith("0") else (f"{nothing} with all items tied left out",)
    columns = {name: np.asarray(column)[kept] for name, column in columns.items()}
    if "tie" in columns and tied.any() and not columns["tie"].any():
        del columns["tie"]
    return numbered(_repeated(columns | {"list": number[kept]})), notes


def _check_columns(
    columns: Columns, rows: Positions, of_row: Positions, place: Callable[[int], str]
) -> None:
    """Refuse what lists have no place for."""
    for name in ("strength", "probability"):
        if name in columns and len(rows):
            raise DataError(
                f"{place(int(rows[0]))}: answers with the column {name!r} cannot be in lists; "
                "leave one of the two columns out"
            )
    if "shown_first" in columns:
        refuse_first(
            np.asarray(columns["shown_first"])[rows] != 0,
            lambda row: (
                f"{place(int(rows[row]))}: the effect of being shown first in a list is unknown; "
                "leave the cell blank"
            ),
        )
    _, first, which = np.unique(of_row, return_index=True, return_inverse=True)
    for name in ("rater", "count", "group"):
        values = np.asarray(columns[name])[rows] if name in columns else of_row
        wrong = np.flatnonzero(values != values[first][which])
        if len(wrong):
            raise DataError(
                f"{place(int(rows[wrong[0]]))}: the {name} is not that of the list's other rows; "
                "correct it"
            )


def _repeated(columns: Columns) -> Columns:
    """Lists that were given several times as so many lists."""
    listed = columns["list"] >= 0
    times = np.where(listed, columns["count"], 1)
    columns = {name: np.repeat(column, times, axis=0) for name, column in columns.items()}
    copy = np.concatenate([np.arange(number) for number in times] or [np.zeros(0, dtype=np.int64)])
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
    """What each list says: the number of its entries, its rater, its group, and its entries; −1 where there are no more, shape (lists, ...).

    The entries of a pair are its two items and the bits of its covariates.
    """
    winner, loser = (np.asarray(columns[end])[rows].astype(np.int64) for end in ("winner", "loser"))
    bits = np.asarray(columns.get("covariates", np.zeros((len(columns["winner"]), 0))))[rows].view(
        np.int64
    )
    said = np.column_stack([winner, loser, bits])
    order = np.lexsort((loser, winner, which))
    sizes = np.bincount(which, minlength=lists)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    width = said.shape[1]
    found = np.full((lists, 3 + width * int(sizes.max(initial=0))), -1, dtype=np.int64)
    found[:, 0] = width * sizes
    for at, name in enumerate(("rater", "group"), start=1):
        if name in columns:
            found[which, at] = np.asarray(columns[name])[rows]
    for at in range(width):
        found[which[order], 3 + at + width * place] = said[order, at]
    return found


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
    return [row[: 3 + row[0]].tobytes() for row in said]


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
