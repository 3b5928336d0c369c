"""Distinct answers among rows of pairs of items, and their unrolling to pairs for likelihoods.

A list is an ordering of several items, seen together, into blocks of tied items. It is kept as the
pairs of its neighboring blocks: every item of a block is preferred to every item of the next. Other
pairs follow from these, and items of one block have no pair. An answer about two items is one pair.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from relpref.data.arrays import Columns, Integers, Labels, read_only, shown
from relpref.data.columns import COLUMNS
from relpref.errors import DataError

_INT32_MAX = np.iinfo(np.int32).max


@dataclass(frozen=True, eq=False)
class Answers:
    """The n distinct answers among m rows of pairs, sorted: those about two items, then lists."""

    columns: Columns  # of the rows
    rows: Integers  # answer by answer, shape (m,); copies of a list follow one another
    position: Integers  # of the answers of these rows, ascending
    pairs: Integers  # number of pairs of each answer, shape (n,)
    count: Integers  # how often each answer was given
    labels: Mapping[int, list[Any]]  # of the copies of lists, by position

    @classmethod
    def of(cls, columns: Columns, labels: Labels = ()) -> "Answers":
        """Find the distinct answers, which differ in more than counts and labels.

        The pairs of a list have its number in ``list``, −1 is for single pairs, and ``labels`` are
        those of the lists. Counts are added up; those of answers taken back are negative.
        """
        size = len(columns["winner"])
        columns = {"list": np.full(size, -1)} | {n: np.asarray(c) for n, c in columns.items()}
        names = [name for name in COLUMNS if name in columns and name not in ("list", "count")]
        alone = columns["list"].max(initial=-1) + 1 + np.arange(size)
        number = np.where(columns["list"] < 0, alone, columns["list"])
        order = np.lexsort((columns["loser"], columns["winner"], number))
        length = np.bincount(number)[number[order]]
        parts = [np.zeros((3, 0), dtype=np.int64)]  # position, row and number of pairs of each row
        copies: dict[int, list[Any]] = defaultdict(list)
        start = 0
        for many in np.unique(length).tolist():
            of_copy = order[length == many].reshape(-1, many)
            # By all columns of the first pair, then by those of the second, and so on.
            cells = (
                columns[name][of_copy[:, pair]]
                for pair in range(many)
                for name in names
                if COLUMNS[name].of_pairs or not pair
            )
            keys = [key for column in cells for key in np.atleast_2d(column.T)]
            sort = np.lexsort(tuple(keys)[::-1])
            changes = [key[sort][1:] != key[sort][:-1] for key in keys]
            group = start + np.append(0, np.cumsum(np.any(changes, axis=0)))
            start = group[-1] + 1
            of_copy = of_copy[sort]
            position = np.repeat(group, many)
            parts.append(np.stack([position, of_copy.ravel(), np.full_like(position, many)]))
            for at, row in (
                zip(group.tolist(), of_copy[:, 0].tolist(), strict=True) if many > 1 else ()
            ):
                label = labels[number[row]]
                count = int(columns["count"][row])
                copies[at] += [label] * count
                if count < 0 and copies[at]:  # the copy of this label is taken back, or the last
                    copies[at].remove(label if label in copies[at] else copies[at][-1])
        position, rows, length = np.concatenate(parts, axis=1)
        pairs = length[np.searchsorted(position, np.arange(start))]
        count = np.bincount(position, columns["count"][rows], start).astype(np.int64) // pairs
        return cls(columns, rows, position, pairs, count, copies)

    def label(self, at: int) -> Any:
        """Label of the list at a position, a tuple if its copies have several; else None."""
        labels = tuple(dict.fromkeys(self.labels.get(at, [None])))
        return labels[0] if len(labels) == 1 else labels

    @property
    def sizes(self) -> Integers:
        """Number of rows of each answer in `unrolled` columns, shape (n,)."""
        return np.where(self.pairs > 1, self.pairs * self.count, self.count > 0)

    @property
    def of_rows(self) -> Integers:
        """Position of the answer of each row, shape (m,)."""
        position = np.empty_like(self.position)
        position[self.rows] = self.position
        return position

    def first(self, number: Any = 1, answers: Any = slice(None)) -> Integers:
        """Rows of the first pairs of answers; ``number`` says of how many of each."""
        start = np.searchsorted(self.position, np.arange(len(self.pairs)))[answers]
        number = np.broadcast_to(number, start.shape)
        shift = start - np.cumsum(number) + number
        return self.rows[np.arange(number.sum()) + np.repeat(shift, number)]

    def unrolled(self, items: Labels) -> dict[str, Any]:
        """Columns of `Comparisons` with a row for each pair, which likelihoods take.

        A list of count c becomes c lists of count 1, numbered from 0: the items of each copy have
        noise of their own. Answers of count 0 are left out. ``items`` are labels for the message
        about a count that is too large.
        """
        if self.count.max(initial=0) > _INT32_MAX:
            row = self.first()[np.argmax(self.count)]
            pair = shown(tuple(items[int(self.columns[end][row])] for end in ("winner", "loser")))
            raise DataError(
                f"answers: counts of {pair} add up to {self.count.max()}, above {_INT32_MAX}; "
                "scale them"
            )
        copies = np.repeat(np.arange(len(self.pairs)), self.sizes // self.pairs)
        pairs = self.pairs[copies]
        rows = self.first(pairs, copies)
        number = np.arange(len(copies)) - np.sum(pairs == 1)
        columns = {name: column[rows] for name, column in self.columns.items() if name in COLUMNS}
        columns["count"] = np.repeat(np.where(pairs > 1, 1, self.count[copies]), pairs)
        columns["list"] = np.repeat(np.maximum(number, -1), pairs)
        columns = {
            name: read_only(column.astype(COLUMNS[name].dtype)) for name, column in columns.items()
        }
        lists = tuple(chain(*self.labels.values()))
        return {**columns, "list": columns["list"] if lists else None, "lists": lists}


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
    """Answers as orders: arrays with an entry for each item of each answer."""

    row: Integers  # a row of the pairs with this item, in this answer
    number: Integers  # position of the answer
    item: Integers
    place: Integers  # 1 for the best
    covariates: Any  # shape (..., q), minus those of the first entry of the answer


def orders_of(columns: Columns, numbers: Integers) -> Orders:
    """Turn pairs of items into `Orders`, sorted by answer and item.

    ``numbers``, shape (m,), has the position of the answer of each pair.
    """
    ends = [np.asarray(columns[end]).astype(np.int64) for end in ("winner", "loser")]
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
        down = reached[above] & ~reached[below]
        up = reached[below] & ~reached[above]
        covariates[below[down]] = covariates[above[down]] - differences[down]
        covariates[above[up]] = covariates[below[up]] + differences[up]
        reached[below[down]] = reached[above[up]] = True
    return Orders(first % len(numbers), slots // items, slots % items, place, covariates)
