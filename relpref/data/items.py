"""The items: their labels and their numeric attributes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import counted, listed, nearest, read_only, refuse_first, shown
from relpref.data.labels import LabelIndex, Place, joined_places, plain_labels
from relpref.data.tables import Table, numbers, read_pieces
from relpref.errors import DataError
from relpref.limits import MAX_ATTRIBUTE, MAX_ATTRIBUTES

_NAME = "items"


@dataclass(frozen=True, eq=False)
class ItemTable:
    """Labels and attributes as read from a table, and what maps a row to the words that name its place in a message."""

    labels: list[Any]
    attributes: NDArray[np.float64]
    attribute_names: tuple[str, ...]
    where: Place

    def index(self) -> LabelIndex:
        return LabelIndex(self.labels, self.where)


def read_item_table(value: Any) -> ItemTable:
    """Read labels and attributes."""
    if isinstance(value, Path):
        pieces = [_from_table(table) for table in read_pieces(value, max_columns=MAX_ATTRIBUTES + 1)]
        if len(pieces) == 1:
            return pieces[0]
        labels = list(chain.from_iterable(piece.labels for piece in pieces))
        attributes = np.concatenate([piece.attributes for piece in pieces])
        where = joined_places([len(piece.labels) for piece in pieces], [piece.where for piece in pieces])
        return ItemTable(labels, attributes, pieces[0].attribute_names, where)
    if isinstance(value, Table):
        return _from_table(value)
    if isinstance(value, pd.DataFrame):
        return _from_frame(value.index, value, Table(value, _NAME))
    if isinstance(value, str | bytes) or not isinstance(value, Sequence | pd.Index | pd.Series | np.ndarray):
        raise DataError(
            f"{_NAME}: expected a DataFrame (index = labels) or a sequence of labels, got {type(value).__name__}; "
            "pass a list of labels"
        )
    if isinstance(value, pd.Series) and not isinstance(value.index, pd.RangeIndex):
        raise DataError(
            f"{_NAME}: a Series with an index may hold attributes or labels; pass series.to_frame() if its values "
            "are an attribute, series.tolist() if they are the labels"
        )
    if isinstance(value, np.ndarray) and value.ndim != 1:
        raise DataError(f"{_NAME}: the labels have the shape {value.shape}; pass one label per item")
    if len(value) == 0:
        raise DataError(f"{_NAME}: there are none; give at least one item")
    return without_table(plain_labels(value, lambda row: f"{_NAME}, row {row}"))


def _from_table(table: Table) -> ItemTable:
    frame = table.frame
    # Parquet keeps the index of a DataFrame; one with a name, or of text, was made on purpose.
    index = frame.index
    if not table.text and (index.names != [None] or not pd.api.types.is_integer_dtype(index.dtype)):
        return _from_frame(index, frame, table)
    labels = frame.iloc[:, 0]
    if table.text:
        place = table.cell(frame.columns[0])
        empty = (labels == "").to_numpy(dtype=bool)
        refuse_first(empty, lambda row: f"{place(row)}: the label is empty; give every row a label")
    return _from_frame(labels, frame.iloc[:, 1:], table)


def _from_frame(index: Any, columns: Any, table: Table) -> ItemTable:
    if len(columns) == 0:
        raise DataError(f"{table.name}: the table has no rows; give at least one item")
    if columns.shape[1] > MAX_ATTRIBUTES:
        raise DataError(
            f"{table.name}: {counted(columns.shape[1], 'attribute')} are more than the limit of {MAX_ATTRIBUTES}; "
            "select columns, or reduce them (for example with a truncated singular value decomposition)"
        )
    labels = plain_labels(index, table.place)
    called, first, at = table.name, table.first, None if table.lines is None else table.place

    def where(row: int) -> str:
        place = f"{called}, row {first + row}" if at is None else at(row)
        return f"{place} (label {shown(labels[row])})"

    names = tuple(map(str, columns.columns))
    if "" in names:
        raise DataError(f"{table.name}: a column of attributes has no name; name it or remove it")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{table.name}: the attribute {twice!r} occurs twice; rename or remove one")
    attributes = np.empty((len(labels), len(names)))
    hint = "the labels are the first column" if table.text else "labels belong into the index, see set_index"
    remedy = f"encode the column as numbers or drop it ({hint})"
    opening, place = None, ""
    if table.opening is not None:
        opening = table.opening.frame.iloc[0]
        place = f"{table.opening.place(0)} (label {shown(opening.iloc[0])})"
    for position, name in enumerate(names):
        before = None if opening is None else (place, opening[name])
        cells = columns.iloc[:, position]
        values = numbers(cells, name, where, text=table.text, remedy=remedy, opening=before)
        large = np.abs(values) > MAX_ATTRIBUTE
        if large.any():
            row = int(np.argmax(large))
            raise DataError(f"{where(row)}, column {name!r}: {values[row]} exceeds {MAX_ATTRIBUTE}; rescale")
        attributes[:, position] = values
    return ItemTable(labels, attributes, names, where)


def without_table(labels: Sequence[Any]) -> ItemTable:
    """Items of which nothing is known but their labels."""
    return ItemTable(list(labels), np.zeros((len(labels), 0)), (), lambda row: f"{_NAME}, row {row}")


def standardization(attributes: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean and the population standard deviation of each column."""
    if attributes.shape[1] == 0:
        return read_only(np.zeros(0)), read_only(np.ones(0))
    constant = attributes.max(axis=0) == attributes.min(axis=0)
    center = np.where(constant, attributes[0], attributes.mean(axis=0))
    # Deviations are divided by the largest before they are squared: no overflow, no underflow.
    deviation = attributes - center
    largest = np.abs(deviation).max(axis=0)
    largest = np.where(constant | (largest == 0), 1.0, largest)
    scale = np.where(constant, 1.0, np.sqrt(np.mean((deviation / largest) ** 2, axis=0)) * largest)
    return read_only(center), read_only(np.where(scale > 0, scale, 1.0))


def align_attributes(newcomers: ItemTable, names: tuple[str, ...]) -> NDArray[np.float64]:
    """Return the attributes of new items in the order of the known columns."""
    theirs = newcomers.attribute_names
    extra = [name for name in theirs if name not in names]
    for name in names:
        if name not in theirs:
            meant = nearest(name, extra, most=1)
            hint = f" (or is {meant[0]!r} meant to be it?)" if meant else ""
            raise DataError(
                f"{_NAME}: the new items lack the attribute {name!r}{hint}; "
                f"give a DataFrame with the columns {listed(names)}"
            )
    if extra:
        known = f"only {listed(names)} are known" if names else "the known items have no attributes"
        raise DataError(f"{_NAME}: the new items have the attribute {extra[0]!r}, but {known}; drop it")
    return newcomers.attributes[:, [theirs.index(name) for name in names]]
