"""Answers as rows of tables, which are merged, joined, taken back, and unrolled to pairs of items.

A list is an ordering of several items, seen together, into blocks of tied items. It is kept as the
pairs of its neighboring blocks: every item of a block is preferred to every item of the next. Other
pairs follow from these, and items of one block have no pair.

Answers of p pairs are the rows of one table: ``winner`` and ``loser`` have the shape (n, p),
``covariates`` has (n, p, q), and other columns of the schema have one value for each answer. An
answer about two items is one of one pair. A kind of answers without pairs, such as scores of single
items, would be one more table with columns of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relpref.data.arrays import read_only, shown
from relpref.data.columns import COLUMNS
from relpref.errors import DataError

Columns = Mapping[str, Any]
Positions = NDArray[np.int64]

_INT32_MAX = np.iinfo(np.int32).max


class Answers(NamedTuple):
    """Distinct answers; their positions count through the tables."""

    # By number of pairs, ascending. Lists also have ``label``: a tuple with the label of each copy.
    tables: dict[int, dict[str, Any]]
    # Pairs answer by answer: their rows, in any order, and the positions of the answers, ascending.
    rows: Positions
    position: Positions

    @classmethod
    def of(cls, columns: Columns, labels: Sequence[Any] = ()) -> "Answers":
        """Find the distinct answers among rows of pairs in any order.

        The pairs of a list have its number in ``list``, −1 is for single pairs, and ``labels`` are
        those of the lists. Counts are added up; those of answers taken back are negative.
        """
        size = len(columns["winner"])
        number = np.asarray(columns.get("list", np.full(size, -1))).astype(np.int64)
        number = np.where(number < 0, number.max(initial=-1) + 1 + np.arange(size), number)
        order = np.lexsort((columns["loser"], columns["winner"], number))
        pairs = np.bincount(number)[number[order]]
        tables, rows, position, start = {}, [], [], 0
        for many in np.union1d(1, pairs).tolist():
            of_answer = order[pairs == many].reshape(-1, many)
            table: dict[str, Any] = {
                name: np.asarray(columns[name])[of_answer if column.of_pairs else of_answer[:, 0]]
                for name, column in COLUMNS.items()
                if name in columns and name != "list"
            }
            group, row = _grouped(table)
            count = np.bincount(group, table["count"], minlength=len(row)).astype(np.int64)
            tables[many] = {**{name: table[name][row] for name in table}, "count": count}
            if many > 1:
                numbers = number[of_answer[:, 0]].tolist()
                copies = zip(group.tolist(), numbers, table["count"].tolist(), strict=True)
                tables[many]["label"] = _labels(labels, copies, len(row))
            sort = np.argsort(group, kind="stable")
            rows.append(of_answer[sort].ravel())
            position.append(start + np.repeat(group[sort], many))
            start += len(row)
        return cls(tables, np.concatenate(rows), np.concatenate(position))

    @property
    def count(self) -> Positions:
        """How often each answer was given, shape (n,)."""
        return np.concatenate([table["count"] for table in self.tables.values()])

    @property
    def pairs(self) -> Positions:
        """Number of pairs of each answer, shape (n,)."""
        return np.repeat(list(self.tables), [len(table["count"]) for table in self.tables.values()])

    @property
    def labels(self) -> NDArray[Any]:
        """Label of each list, a tuple if it has several; None for other answers; shape (n,)."""
        lists = (
            table.get("label", [(None,)] * len(table["count"])) for table in self.tables.values()
        )
        labels = map(tuple, map(dict.fromkeys, chain(*lists)))
        return np.fromiter((each[0] if len(each) == 1 else each for each in labels), dtype=object)

    @property
    def sizes(self) -> Positions:
        """Number of rows of each answer in `unrolled` columns, shape (n,)."""
        return np.where(self.pairs > 1, self.pairs * self.count, self.count > 0)

    @property
    def of_rows(self) -> Positions:
        """Position of the answer of each row, shape (m,)."""
        position = np.empty_like(self.position)
        position[self.rows] = self.position
        return position

    def first(self, number: Any = 1) -> Positions:
        """Rows of the first pairs of each answer, of as many as ``number`` says, shape (n,)."""
        number = np.broadcast_to(number, self.count.shape)
        shift = np.searchsorted(self.position, np.arange(len(number))) - np.cumsum(number) + number
        return self.rows[np.arange(number.sum()) + np.repeat(shift, number)]

    def unrolled(self, items: Sequence[Any]) -> dict[str, Any]:
        """Columns of `Comparisons` with a row for each pair, which likelihoods take.

        A list of count c becomes c lists of count 1, numbered from 0: the items of each copy have
        noise of their own. Answers of count 0 are left out. ``items`` are labels for the message
        about a count that is too large.
        """
        parts, labels = [], list[Any]()
        for pairs, table in self.tables.items():
            count = table["count"]
            if count.max(initial=0) > _INT32_MAX:
                ends = (int(table[end][np.argmax(count), 0]) for end in ("winner", "loser"))
                raise DataError(
                    f"answers: counts of {shown(tuple(items[end] for end in ends))} add up to "
                    f"{count.max()}, above {_INT32_MAX}; scale them"
                )
            row = np.repeat(np.arange(len(count)), count if pairs > 1 else count > 0)
            part = {
                name: table[name][row].reshape(-1, *table[name].shape[2:])
                if column.of_pairs
                else np.repeat(table[name][row], pairs)
                for name, column in COLUMNS.items()
                if name in table
            }
            part["list"] = np.full(len(row), -1)
            if pairs > 1:
                part["count"] = np.ones_like(part["count"])
                part["list"] = np.repeat(len(labels) + np.arange(len(row)), pairs)
                labels += chain(*table["label"])
            parts.append(part)
        columns: dict[str, Any] = {
            name: read_only(
                np.concatenate(
                    [part[name] for part in parts], dtype=COLUMNS[name].dtype, casting="unsafe"
                )
            )
            for name in parts[0]
        }
        return {**columns, "list": columns["list"] if labels else None, "lists": tuple(labels)}


def _grouped(table: Columns) -> tuple[Positions, Positions]:
    """Group answers that differ in counts alone, and sort the groups.

    Returns the group of each answer, and an answer of each group.
    """
    size, pairs = table["winner"].shape
    # Answers are sorted by all columns of their first pair, then by those of the second, and so on.
    cells = (
        table[name][:, pair] if column.of_pairs else table[name]
        for pair in range(pairs)
        for name, column in COLUMNS.items()
        if name in table and name != "count" and (column.of_pairs or not pair)
    )
    keys = [key for column in cells for key in np.atleast_2d(column.T)]
    order = np.lexsort(tuple(keys)[::-1])
    differs = np.ones(size, dtype=bool)
    differs[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
    group = np.empty(size, dtype=np.int64)
    group[order] = np.cumsum(differs) - 1
    return group, order[differs]


def _labels(labels: Sequence[Any], copies: Iterable[Any], size: int) -> NDArray[Any]:
    """Labels of the copies of each list, from the row, the number and the count of each.

    A list that is taken back takes its label along, if it is one of these, or the last.
    """
    kept: list[list[Any]] = [[] for _ in range(size)]
    for row, number, count in copies:
        label = labels[number]
        kept[row] += [label] * count
        if count < 0 and kept[row]:
            kept[row].remove(label if label in kept[row] else kept[row][-1])
    return np.fromiter(map(tuple, kept), dtype=object)


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

    row: Positions  # a row of the pairs with this item, in this answer
    number: Positions  # position of the answer
    item: Positions
    place: Positions  # 1 for the best
    covariates: Any  # shape (..., q), minus those of the first entry of the answer


def orders_of(columns: Columns, numbers: Positions) -> Orders:
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
        down, up = reached[above] & ~reached[below], reached[below] & ~reached[above]
        covariates[below[down]] = covariates[above[down]] - differences[down]
        covariates[above[up]] = covariates[below[up]] + differences[up]
        reached[below[down]] = reached[above[up]] = True
    return Orders(first % len(numbers), slots // items, slots % items, place, covariates)
