"""Answers as rows of tables, which are merged, joined, taken back, and unrolled to pairs of items.

A list is an ordering of several items, seen together, into blocks of tied items. It is kept as the
pairs of its neighboring blocks: every item of a block is preferred to every item of the next. Other
pairs follow from these, and items of one block have no pair.

Answers of p pairs are the rows of one table: ``winner`` and ``loser`` have the shape (n, p),
``covariates`` has (n, p, q), and other columns of the schema have one value for each answer. An
answer about two items is one of one pair. A kind of answers without pairs, such as scores of single
items, would be one more table with columns of its own.
"""

from collections.abc import Mapping, Sequence
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
    """Distinct answers; a position is that of an answer in the tables, one after the other."""

    # By number of pairs, ascending. Lists also have ``label``: a tuple with the label of each copy.
    tables: dict[int, dict[str, Any]]
    # Pairs answer by answer: their rows, in any order, and the positions of the answers, ascending.
    rows: Positions
    position: Positions

    @classmethod
    def of(cls, columns: Columns, labels: Sequence[Any] = ()) -> "Answers":
        """Find the distinct answers among rows of pairs in any order.

        The pairs of a list have the same number in ``list``, −1 is for single pairs, and
        ``list_label`` is the position of the list's label.
        """
        size = len(columns["winner"])
        number = np.asarray(columns.get("list", np.full(size, -1))).astype(np.int64)
        number = np.where(number < 0, number.max(initial=-1) + 1 + np.arange(size), number)
        order = np.lexsort((columns["loser"], columns["winner"], number))
        pairs = np.bincount(number)[number[order]]
        tables, rows, position, start = {}, [], [], 0
        for many in np.union1d(1, pairs).tolist():
            of_answer = order[pairs == many].reshape(-1, many)
            first = of_answer[:, 0]
            table = {
                name: np.asarray(columns[name])[of_answer if column.of_pairs else first]
                for name, column in COLUMNS.items()
                if name in columns and name != "list"
            }
            if many > 1:
                places = np.asarray(columns["list_label"])[first].tolist()
                copies = zip(places, table["count"].tolist(), strict=True)
                table["label"] = _cells((labels[place],) * count for place, count in copies)
            tables[many], group = merged(table)
            sort = np.argsort(group, kind="stable")
            rows.append(of_answer[sort].ravel())
            position.append(start + np.repeat(group[sort], many))
            start += len(tables[many]["count"])
        return cls(tables, np.concatenate(rows), np.concatenate(position))

    @property
    def count(self) -> Positions:
        """How often each answer was given, shape (n,)."""
        return np.concatenate([table["count"] for table in self.tables.values()])

    @property
    def labels(self) -> NDArray[Any]:
        """Label of each list, a tuple if it has several; None for an answer about two items."""
        labels = [
            dict.fromkeys(label)
            for table in self.tables.values()
            for label in table.get("label", [(None,)] * len(table["count"]))
        ]
        return _cells(next(iter(label)) if len(label) == 1 else tuple(label) for label in labels)

    @property
    def starts(self) -> Positions:
        """Place of the first pair of each answer in ``rows``, shape (n,)."""
        return np.searchsorted(self.position, np.arange(len(self.count)))

    @property
    def once(self) -> tuple[Positions, Positions]:
        """Rows of one copy of each answer, and the positions of their answers."""
        pairs = np.repeat(list(self.tables), [len(each["count"]) for each in self.tables.values()])
        copy = np.arange(len(self.rows)) - self.starts[self.position] < pairs[self.position]
        return self.rows[copy], self.position[copy]


def _cells(values: Any) -> NDArray[Any]:
    """Array of objects, which may be tuples."""
    return np.fromiter(values, dtype=object)


def merged(table: Columns) -> tuple[dict[str, Any], Positions]:
    """Sort the rows of a table and merge those that differ at most in counts and labels.

    Returns the table and the row in it of each row before. Counts are added up and labels appended.
    """
    size, pairs = table["winner"].shape
    names = [name for name in COLUMNS if name in table and name != "count"]
    # Answers are sorted by all columns of their first pair, then by those of the second, and so on.
    cells = (
        table[name][:, pair] if COLUMNS[name].of_pairs else table[name]
        for pair in range(pairs)
        for name in names
        if COLUMNS[name].of_pairs or not pair
    )
    keys = [key for column in cells for key in np.atleast_2d(column.T)]
    order = np.lexsort(tuple(keys)[::-1])
    differs = np.ones(size, dtype=bool)
    differs[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
    group = np.empty(size, dtype=np.int64)
    group[order] = np.cumsum(differs) - 1
    distinct = {name: column[order[differs]] for name, column in table.items()}
    count = np.bincount(group, table["count"], minlength=len(distinct["count"]))
    distinct["count"] = count.astype(np.int64)
    if "label" in table:
        labels: list[list[Any]] = [[] for _ in count]
        for row, label in zip(group.tolist(), table["label"], strict=True):
            labels[row].extend(label)
        distinct["label"] = _cells(map(tuple, labels))
    return distinct, group


def joined(
    table: Columns, other: Columns, *, withdraw: bool
) -> tuple[dict[str, Any], Positions, Positions]:
    """Add the answers of another table of as many pairs, or take them back.

    Returns
    -------
    table : dict
        All answers; an answer that was taken back more often than it was given has a count below 0.
    before : array of int, shape (n,)
        The row of each answer in the table before; −1 for a new one.
    rows : array of int
        The row of each answer of ``other`` in the returned table.
    """
    sign, size = -1 if withdraw else 1, len(table["count"])
    other = {**other, "count": sign * other["count"]}
    both = {name: np.concatenate([column, other[name]]) for name, column in table.items()}
    after, group = merged(both)
    before = np.full(len(after["count"]), -1)
    before[group[:size]] = np.arange(size)
    rows = group[size:]
    if withdraw and "label" in after:
        for row, labels in zip(rows.tolist(), other["label"], strict=True):
            kept = list(after["label"][row][: -len(labels)])
            for label in labels[: len(kept)]:
                kept.remove(label if label in kept else kept[-1])
            after["label"][row] = tuple(kept)
    return after, before, rows


def unrolled(tables: Mapping[int, Columns], items: Sequence[Any]) -> dict[str, Any]:
    """Columns of `Comparisons` with a row for each pair, which likelihoods take.

    A list of count c becomes c lists of count 1, numbered from 0: the items of each copy have noise
    of their own. Answers of count 0 are left out. ``items`` are labels for the message about a
    count that is too large.
    """
    parts, labels = [], list[Any]()
    for pairs, table in sorted(tables.items()):
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
        part["list"] = np.full(len(part["winner"]), -1)
        if pairs > 1:
            part["count"] = np.ones_like(part["count"])
            part["list"] = np.repeat(len(labels) + np.arange(len(row)), pairs)
            labels += chain(*table["label"])
        parts.append(part)
    columns: dict[str, Any] = {
        name: read_only(np.concatenate([part[name] for part in parts]).astype(COLUMNS[name].dtype))
        for name in parts[0]
    }
    numbers = columns["list"] if labels else None
    return {**columns, "list": numbers, "list_label": numbers, "lists": tuple(labels)}


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
