"""Reads the labels of a relation from arrays, frames, edge tables and sparse matrices."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse

from relpref.data.columns import numbers
from relpref.data.labels import LabelIndex, plain_labels
from relpref.data.messages import counted, shown
from relpref.data.relation_values import RelationValues
from relpref.data.tables import Table, as_table, check_columns
from relpref.errors import DataError

Positions = NDArray[np.intp]

EDGE_COLUMNS = ("source", "target", "value")
_NAME = "relation"


def read_relation(
    relation: Any, nodes: Sequence[Hashable], objects: Sequence[Hashable] | None = None
) -> RelationValues:
    """Read a relation's labels.

    Parameters
    ----------
    relation : array, DataFrame, sparse matrix or Table
        A (p, m) array in the order of nodes and objects, NaN = unknown; a DataFrame with their labels as index and columns; an
        edge table with the columns ``source``, ``target``, ``value``; or a sparse matrix, of which only the stored entries are
        known.
    nodes, objects : sequence of labels
        Conditioning nodes and objects; ``None`` where the nodes are ranked for one another.

    Raises
    ------
    DataError
        If the shape or the labels do not fit, a value is not a finite number, or nothing is known.
    """
    shape = (len(nodes), len(nodes) if objects is None else len(objects))
    if isinstance(relation, Table) or (
        isinstance(relation, pd.DataFrame)
        and _looks_like_edges(relation, nodes if objects is None else objects)
    ):
        values = _from_edges(as_table(relation, _NAME), nodes, objects, shape)
    elif isinstance(relation, pd.DataFrame):
        values = _from_frame(relation, nodes, objects)
    elif issparse(relation):
        entries = relation.tocoo()
        _check_shape(entries.shape, shape)
        _check_finite(entries.data, entries.row, entries.col)
        values = RelationValues.of_edges(
            shape,
            entries.row.astype(np.intp),
            entries.col.astype(np.intp),
            np.asarray(entries.data, np.float64),
        )
    else:
        values = _from_array(relation, shape)
    if not len(values.values):
        raise DataError("relation: not one label is known; give at least one value")
    values.values.flags.writeable = False
    return values


def _looks_like_edges(frame: pd.DataFrame, objects: Sequence[Hashable]) -> bool:
    """Whether columns are those of an edge table, or most likely meant to be, and not labels of objects."""
    columns = list(frame.columns)
    return bool(set(EDGE_COLUMNS) & {str(c) for c in columns}) and not set(columns) <= set(objects)


def _from_array(relation: Any, shape: tuple[int, int]) -> RelationValues:
    try:
        matrix = np.array(relation, dtype=np.float64)  # a copy: what the caller does to his later is his own
    except (TypeError, ValueError):
        raise DataError(
            f"relation: expected an array of numbers, a DataFrame or an edge table with the columns {', '.join(EDGE_COLUMNS)}, "
            f"got {type(relation).__name__}"
        ) from None
    _check_shape(matrix.shape, shape)
    if np.isinf(matrix).any():
        row, column = np.argwhere(np.isinf(matrix))[0]
        raise DataError(
            f"relation: row {row}, column {column} is {matrix[row, column]}; use NaN for what is not known"
        )
    return RelationValues.of_matrix(matrix)


def _check_shape(given: tuple[int, ...], shape: tuple[int, int]) -> None:
    if tuple(given) != shape:
        raise DataError(
            f"relation: the array has the shape {tuple(given)}; {counted(shape[0], 'conditioning node')} and "
            f"{counted(shape[1], 'object')} need {shape} (rows are conditioning nodes)"
        )


def _check_finite(values: Any, rows: Any, columns: Any) -> None:
    bad = ~np.isfinite(values)
    if bad.any():
        edge = int(np.argmax(bad))
        raise DataError(
            f"relation: the entry ({rows[edge]}, {columns[edge]}) is {values[edge]}; leave out what is not known"
        )


def _from_frame(
    frame: pd.DataFrame, nodes: Sequence[Hashable], objects: Sequence[Hashable] | None
) -> RelationValues:
    """A matrix with labels, in any order; nodes that it lacks are unobserved."""
    row_index = _index(nodes, "node")
    column_index = row_index if objects is None else _index(objects, "object")
    rows = _located(frame.index, row_index, "row")
    columns = _located(frame.columns, column_index, "column")
    matrix = np.full((len(nodes), len(column_index)), np.nan)
    cells = [
        numbers(
            frame.iloc[:, j].fillna(0.0),
            str(name),
            lambda row: f"relation, row {row}",
            text=False,
            remedy="give numbers",
        )
        for j, name in enumerate(frame.columns)
    ]
    block = np.column_stack(cells) if cells else np.zeros((len(rows), 0))
    block[frame.isna().to_numpy()] = np.nan
    matrix[np.ix_(rows, columns)] = block
    return RelationValues.of_matrix(matrix)


def _from_edges(
    table: Table, nodes: Sequence[Hashable], objects: Sequence[Hashable] | None, shape: tuple[int, int]
) -> RelationValues:
    check_columns(table, EDGE_COLUMNS, ())
    row_index = _index(nodes, "node")
    column_index = row_index if objects is None else _index(objects, "object")
    ends = []
    for name, index in (("source", row_index), ("target", column_index)):
        labels = plain_labels(table.frame[name], table.place)
        ends.append(
            index.locate(labels, _in_column(table, name), f"every {name} must be one of the labels given")
        )
    values = numbers(
        table.frame["value"], "value", table.place, text=table.text, remedy="leave out rows not known"
    )
    rows, columns = (end.astype(np.intp) for end in ends)
    return RelationValues.of_edges(shape, rows, columns, values)


def _in_column(table: Table, name: str) -> Callable[[int], str]:
    return lambda row: f"{table.place(row)}, column {name!r}"


def _index(labels: Sequence[Hashable], kind: str) -> LabelIndex:
    return LabelIndex(labels, lambda position: f"{kind} {position}")


def _located(labels: Any, index: LabelIndex, kind: str) -> Positions:
    def where(position: int) -> str:
        return f"relation, {kind} {position}"

    plain = plain_labels(labels, where)
    LabelIndex(plain, where)  # none twice
    try:
        return index.locate(plain, where, "give the relation of known nodes only").astype(np.intp)
    except DataError as error:
        raise DataError(
            f"{error}; the labels of the relation's {kind}s must be those of the nodes ({shown(index.labels[0])}, ...)"
        ) from None
