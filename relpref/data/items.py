"""The items: their labels and their numeric attributes."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from relpref.data.arrays import Floats, Texts, counted, shown
from relpref.data.attributes import Column, Known, aligned, encoded, linked, parsed, read_column
from relpref.data.edges import EdgeTable, read_edges
from relpref.data.labels import (
    GrowingIndex,
    LabelIndex,
    Place,
    blank_note,
    joined_places,
    read_labels,
    trimmed,
)
from relpref.data.relation import Relation
from relpref.data.tables import Table, as_table, from_text, is_path, is_table, read_pieces
from relpref.errors import DataError
from relpref.limits import MAX_ATTRIBUTE, MAX_ATTRIBUTES

_NAME = "items"
_NAMES = ("id", "item", "key", "label", "name")  # of columns that hold labels


@dataclass(frozen=True, eq=False)
class ItemTable:
    """Labels and attributes as read from a table; ``where`` names the place of a row in messages.

    ``relations`` link those that share the value of a column, see
    `relpref.data.attributes.encoded`.
    """

    labels: list[Any]
    attributes: Floats
    attribute_names: Texts
    where: Place
    relations: Mapping[str, Relation] = field(default_factory=dict)
    notes: Texts = ()

    def index(self) -> LabelIndex:
        return LabelIndex(self.labels, self.where)

    def refuse_known(self, known: LabelIndex, links: Mapping[str, EdgeTable]) -> None:
        """Refuse newcomers that are items already, or that items link to."""
        self.index()  # refuses labels that are there twice
        for row, label in enumerate(self.labels):
            if known.get(label) >= 0:
                raise DataError(f"{self.where(row)}: {shown(label)} is an item already; rename it")
            for name, edges in links.items():
                if label in edges.targets:
                    raise DataError(
                        f"{self.where(row)}: {shown(label)} is what items link to in the bipartite "
                        f"relation {name!r}, so it cannot be an item; give newcomers labels of "
                        "their own"
                    )


# Labels, columns, which may still be text, and the places of the rows.
_Piece = tuple[list[Any], dict[str, Any], Place]


def read_item_table(
    value: Any, known: Known | None = None, compared: Iterable[Hashable] = ()
) -> ItemTable:
    """Read labels and attributes from a path, a table or a sequence of labels.

    ``known`` is of those to which these items are newcomers. ``compared`` are the labels that
    answers are about: a table without an index has its labels in the column that holds these, if
    there is one.
    """
    framed = False
    if is_path(value):
        tables: Iterable[Table] = read_pieces(value, max_columns=MAX_ATTRIBUTES + 1)
    elif isinstance(value, Table):
        tables = [value]
    elif framed := is_table(value):
        tables = [_with_labels(as_table(value, _NAME), compared)]
    else:
        return _labels_alone(value, known)
    pieces = []
    notes = []
    blanks: set[str] = set()
    numbered = None
    for table in tables:
        if numbered is None:
            numbered = table.text and _numbers_rows(table.frame, compared)
            notes += ["the first column numbers the rows, and is not used"] if numbered else []
        if numbered:
            table = replace(table, frame=table.frame.iloc[:, 1:])
        pieces.append(_piece(table, framed, blanks))
        notes += table.notes
    notes += blank_note(blanks)
    labels, cells, places = zip(*pieces, strict=True)
    where = joined_places(list(map(len, labels)), places)
    hint = "labels belong into the index, see set_index"
    hint = "the labels are the first column" if table.text else hint
    remedy = f"encode the column as numbers or drop it ({hint})"
    unnamed = [name for name in cells[0] if name.startswith("Unnamed: ")]
    notes += [f"the column {name!r} has no name, and it is not used" for name in unnamed]
    columns = {
        name: read_column(
            [piece.pop(name) for piece in cells], name, where, text=table.text, remedy=remedy
        )
        for name in list(cells[0])
        if name not in unnamed
    }
    for name, column in columns.items():
        if column.kind == "category":
            continue
        large = np.abs(column.values) > MAX_ATTRIBUTE
        if large.any():
            row = int(np.argmax(large))
            cell = f"{where(row)}, column {name!r}: {column.values[row]}"
            raise DataError(f"{cell} exceeds {MAX_ATTRIBUTE}; rescale")
    return _described(list(chain(*labels)), columns, where, known, notes)


def _numbers_rows(frame: pd.DataFrame, compared: Iterable[Hashable]) -> bool:
    """Tell whether the first column of a file has no name, numbers the rows, and labels nothing."""
    if frame.shape[1] < 2 or frame.columns[0] != "" or frame.empty:
        return False
    numbers, labels = (frame.iloc[:, at].tolist() for at in (0, 1))
    numbered = numbers in [[str(row + start) for row in range(len(numbers))] for start in (0, 1)]
    named = len(set(labels)) == len(labels) and from_text(labels) is None
    return numbered and named and not set(compared) & set(numbers)


def _labels_alone(value: Any, known: Known | None) -> ItemTable:
    if isinstance(value, str | bytes) or not isinstance(
        value, Sequence | pd.Index | pd.Series | np.ndarray
    ):
        raise DataError(
            f"{_NAME}: expected a DataFrame (index = labels) or a sequence of labels, got "
            f"{type(value).__name__}; pass a list of labels"
        )
    if isinstance(value, pd.Series) and not isinstance(value.index, pd.RangeIndex):
        raise DataError(
            f"{_NAME}: a Series with an index may hold attributes or labels; pass "
            "series.to_frame() if its values are an attribute, series.tolist() if they are labels"
        )
    if isinstance(value, np.ndarray) and value.ndim != 1:
        raise DataError(
            f"{_NAME}: the labels have the shape {value.shape}; pass one label per item"
        )
    if len(value) == 0:
        raise DataError(f"{_NAME}: there are none; give at least one item")
    where = without_table(()).where
    blanks: set[str] = set()
    labels = read_labels(value, where, blanks=blanks)
    return _described(labels, {}, where, known, list(blank_note(blanks)))


def _described(
    labels: list[Any],
    columns: Mapping[str, Column],
    where: Place,
    known: Known | None,
    notes: list[str],
) -> ItemTable:
    size = len(labels)
    attributes = encoded(columns, size) if known is None else aligned(columns, known, size)
    links = {name: linked(values, labels) for name, values in attributes.shared.items()}
    relations = {
        name: Relation(table, "bipartite") for name, table in links.items() if table is not None
    }
    every = tuple(f"{_NAME}: {note}" for note in (*notes, *attributes.notes))
    return ItemTable(labels, attributes.values, attributes.names, where, relations, every)


def _with_labels(table: Table, compared: Iterable[Hashable]) -> Table:
    """Take the labels of a frame without an index from a column that holds those of answers."""
    frame = table.frame
    if frame.index.names != [None] or not frame.index.equals(pd.RangeIndex(len(frame))):
        return table
    labels = set(compared)
    lacking = len(labels.difference(frame.index))
    for position, name in enumerate(frame.columns):
        given = frame.iloc[:, position].tolist()
        cells = [trimmed(cell) for cell in given]
        kinds = set(map(type, cells))
        if not kinds <= {str, int} or len(kinds) != 1:
            continue
        absent = len(labels.difference(cells))
        if labels:
            better = absent < min(lacking, len(labels) / 2) or (
                not absent and str(name).lower() in _NAMES
            )
        else:
            better = kinds == {str} and len(set(cells)) == len(cells)
        if better:
            note = f"the labels are those of the column {str(name)!r}"
            rest = frame.drop(columns=name).set_axis(pd.Index(given, dtype=object), axis=0)
            return replace(table, frame=rest, notes=(*table.notes, note))
    return table


def _piece(table: Table, framed: bool, blanks: set[str]) -> _Piece:
    """Read some rows; labels are in the index of a frame, and in the first column of a file.

    ``blanks`` receives the labels that had blanks around them.
    """
    frame = table.frame
    if len(frame) == 0:
        raise DataError(f"{table.name}: the table has no rows; give at least one item")
    # Parquet keeps the index of a DataFrame; one with a name, or of text, was made on purpose.
    index = frame.index
    columns = frame
    labeled = index.names != [None] or not pd.api.types.is_integer_dtype(index.dtype)
    if table.text or not (framed or labeled):
        index = frame.iloc[:, 0]
        columns = frame.iloc[:, 1:]
    if columns.shape[1] > MAX_ATTRIBUTES:
        raise DataError(
            f"{table.name}: {counted(columns.shape[1], 'attribute')} are more than the limit of "
            f"{MAX_ATTRIBUTES}; select columns, or reduce them (for example with a truncated "
            "singular value decomposition)"
        )
    place = table.cell(frame.columns[0]) if table.text else table.place
    labels = read_labels(index, place, blanks=blanks)
    given = index.tolist()  # with the blanks around them
    called = table.name
    first = table.first
    at = None if table.lines is None else table.place

    def where(row: int) -> str:
        place = f"{called}, row {first + row}" if at is None else at(row)
        return f"{place} (label {shown(given[row])})"

    names = tuple(map(str, columns.columns))
    if "" in names:
        raise DataError(f"{table.name}: a column of attributes has no name; name it or remove it")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{table.name}: the attribute {twice!r} occurs twice; rename or remove one")
    cells = (table.points(columns.iloc[:, position]) for position in range(len(names)))
    kept = {
        name: parsed(column, text=table.text) for name, column in zip(names, cells, strict=True)
    }
    return labels, kept, where


def items_of(compared: Iterable[Hashable], relations: Mapping[str, Any]) -> ItemTable:
    """Return the items that answers and relations are about."""
    index = GrowingIndex(dict.fromkeys(compared))
    for name, value in relations.items():
        read_edges(name, value, index)
    if not len(index):
        raise DataError(
            "items: there are none; give items, or answers or relations, which name them"
        )
    return without_table(index.labels)


def without_table(labels: Sequence[Any]) -> ItemTable:
    """Return items without attributes."""
    return ItemTable(
        list(labels), np.zeros((len(labels), 0)), (), lambda row: f"{_NAME}, row {row}"
    )
