"""Orders, best first, read as positions."""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import read_only
from relpref.data.entities import read_entities
from relpref.data.labels import LabelIndex, Place, plain_labels
from relpref.data.messages import counted, shown
from relpref.data.nodes import unanswered
from relpref.data.preference import PreferenceData
from relpref.data.ranking_blocks import check_size
from relpref.errors import DataError

REMEDY = "correct the label, or give the item in items"
Blocks = list[tuple[Any, ...]]


def read_items(items: Any) -> PreferenceData:
    """Return items, given as labels, as a DataFrame with attributes, or read before."""
    return items if isinstance(items, PreferenceData) else unanswered(read_entities(items), None)


def read_rankers(rankers: Any, number: int) -> tuple[Any, ...]:
    """Return the labels of those who gave the rankings, 0, 1, ... where none are given; they may repeat."""
    if rankers is None:
        return tuple(range(number))
    labels = plain_labels(in_order(rankers, "rankers"), lambda row: f"rankers, position {row}")
    if len(labels) != number:
        raise DataError(
            f"rankers: {counted(len(labels), 'label')} for {counted(number, 'ranking')}; give one label for each ranking"
        )
    return tuple(labels)


def in_order(values: Any, name: str) -> Any:
    """Return what has an order and one dimension; sets, mappings and tables would be read as something else."""
    listed = isinstance(values, Sequence) and not isinstance(values, str | bytes)
    if listed or getattr(values, "ndim", None) == 1:
        return values
    shape = f" of shape {values.shape}" if hasattr(values, "shape") else ""
    raise DataError(
        f"{name}: got {type(values).__name__}{shape}; give a list, a one-dimensional array or a Series, in the order of the rankings"
    )


def place_of(rankers: Sequence[Any], row: int) -> str:
    """Return the words that name a ranking."""
    by = "" if rankers[row] == row else f" (of {shown(rankers[row])})"
    return f"ranking {row}{by}"


def _at(where: str) -> Place:
    return lambda _: where


def read_orders(
    orders: Any, items: Any, rankers: Any
) -> tuple[PreferenceData, NDArray[np.int32], tuple[Any, ...]]:
    """Return items, positions and rankers; see `Rankings.from_orders`."""
    if isinstance(orders, str | pd.DataFrame | np.ndarray) or not isinstance(orders, Iterable):
        raise DataError(
            f"orders: got {type(orders).__name__}; give a list with one list of labels for each ranking, best first "
            "(tables are read by from_table, scores by from_scores)"
        )
    given = list(orders)
    if isinstance(orders, pd.Series) and rankers is None:
        rankers = orders.index
    by = read_rankers(rankers, len(given))
    read = [_blocks(order, place_of(by, row)) for row, order in enumerate(given)]
    if not read:
        raise DataError("orders: there are none; give at least one ranking")
    if items is None:
        # In order of appearance, but nothing may hang on the order inside a set, which is another in every process.
        seen = {label: None for blocks in read for block in blocks for label in block}
        known = read_items(list(seen))
    else:
        known = read_items(items)
    check_size(len(read), known.num_entities)
    return known, _positions(read, LabelIndex(known.entities, str), by), by


def _blocks(order: Any, where: str) -> Blocks:
    if isinstance(order, str | bytes | AbstractSet) or not isinstance(order, Iterable):
        raise DataError(
            f"{where}: got {shown(order)}; give a list of labels, best first, with a tuple for items that are tied"
        )
    blocks: Blocks = []
    for place, entry in enumerate(order):
        tied = isinstance(entry, tuple | list | AbstractSet)
        labels = plain_labels(list(entry) if tied else [entry], _at(f"{where}, place {place}"))
        if not labels:
            raise DataError(f"{where}, place {place}: the tie is empty; remove it")
        blocks.append(tuple(sorted(labels, key=repr) if isinstance(entry, AbstractSet) else labels))
    if not blocks:
        raise DataError(f"{where}: it ranks nothing; leave it out")
    return blocks


def _positions(read: list[Blocks], index: LabelIndex, rankers: Sequence[Any]) -> NDArray[np.int32]:
    positions = np.full((len(read), len(index)), -1, dtype=np.int32)
    for row, blocks in enumerate(read):
        labels = [label for block in blocks for label in block]
        found = index.locate(labels, _at(place_of(rankers, row)), REMEDY)
        if len(np.unique(found)) < len(found):
            twice = next(label for label in labels if labels.count(label) > 1)
            raise DataError(
                f"{place_of(rankers, row)}: the item {shown(twice)} is in it twice; remove one of the two"
            )
        positions[row, found] = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
    return read_only(positions)
