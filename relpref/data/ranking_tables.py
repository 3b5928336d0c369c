"""Tables of positions, long or wide, and matrices of scores, read as rankings."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import NDArray

from relpref.data.columns import numbers
from relpref.data.labels import LabelIndex, Place, is_missing, plain_labels
from relpref.data.messages import shown
from relpref.data.preference import PreferenceData
from relpref.data.ranking_blocks import check_size, numbered
from relpref.data.ranking_orders import REMEDY, place_of, read_items, read_rankers
from relpref.data.tables import Table, as_table, check_columns, renamed
from relpref.errors import DataError

_LONG = ("ranker", "item", "position")
_WHOLE = "write positions as whole numbers, 1 for the best (scores and average ranks are read by from_scores)"
Read = tuple[PreferenceData, NDArray[np.int32], tuple[Any, ...]]


def read_positions(value: Any, items: Any, columns: Mapping[str, str] | None) -> Read:
    """Return items, positions and rankers; see `Rankings.from_table`."""
    table = renamed(as_table(value, "table"), columns)
    if table.frame.empty:
        raise DataError(f"{table.name}: it has no rows or no columns; give at least one ranking of one item")
    if {"item", "position"} & set(table.frame.columns):
        return _read_long(table, items)
    rankers, labels, values = _wide(table)
    for row, column in np.argwhere(_not_a_place(values)):
        raise DataError(
            f"{place_of(rankers, row)}, item {shown(labels[column])}: {values[row, column]} is not a position; {_WHOLE}"
        )
    return _ranked(values, labels, items, rankers)


def read_scores(scores: Any, items: Any, rankers: Any) -> Read:
    """Return items, positions and rankers; see `Rankings.from_scores`."""
    labels: list[Any] | None = None
    values: Any
    if isinstance(scores, pd.DataFrame):
        by, labels, values = _wide(Table(scores, "scores"))
        if rankers is not None:
            by = read_rankers(rankers, len(by))
    else:
        values = _matrix(scores)
        by = read_rankers(rankers, values.shape[0])
    if 0 in values.shape:
        raise DataError(f"scores: their shape is {values.shape}; give at least one ranking of one item")
    given = values.data if scipy.sparse.issparse(values) else values
    if np.isinf(given).any():
        row, column = np.argwhere(np.isinf(values.toarray() if scipy.sparse.issparse(values) else values))[0]
        raise DataError(
            f"{place_of(by, row)}, column {column}: the score is {values[row, column]}; "
            "give finite scores, and NaN for an item that is not ranked"
        )
    return _ranked(-values, labels, items, by)


def _matrix(scores: Any) -> Any:
    if scipy.sparse.issparse(scores):
        matrix = scipy.sparse.coo_array(scores)
        if len(np.unique(matrix.row * np.int64(matrix.shape[1]) + matrix.col)) < matrix.nnz:
            raise DataError(
                "scores: the sparse matrix stores an entry twice; call sum_duplicates() if they are to be added"
            )
        return matrix.astype(np.float64)
    try:
        if np.iscomplexobj(scores):
            raise TypeError("complex numbers have no order")
        # What is masked is not ranked.
        values = np.ma.asarray(scores, dtype=np.float64).filled(np.nan)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"scores: they are not numbers ({error}); give numbers, and NaN for an item that is not ranked"
        ) from None
    if values.ndim != 2:
        raise DataError(
            f"scores: their shape is {values.shape}; give one row for each ranking, one column for each item"
        )
    return values


def _wide(table: Table) -> tuple[tuple[Any, ...], list[Any], NDArray[np.float64]]:
    """Rankers, labels of the columns, and cells, NaN where they are blank."""
    frame = table.frame
    by: Any = frame.index
    if "ranker" in frame.columns or table.text:
        name = "ranker" if "ranker" in frame.columns else frame.columns[0]
        by, frame = frame[name], frame.drop(columns=name)
    rankers = tuple(plain_labels(by, table.place))
    labels = plain_labels(frame.columns, lambda column: f"{table.name}, column {column}")
    LabelIndex(labels, lambda column: f"{table.name}, column {column}")
    values = np.full(frame.shape, np.nan)
    for column, label in enumerate(labels):
        cells = frame.iloc[:, column]
        known = np.flatnonzero((cells != "") if table.text else ~cells.isna())
        values[known, column] = numbers(
            cells.iloc[known],
            str(label),
            lambda row, known=known: place_of(rankers, int(known[row])),  # type: ignore[misc]
            text=table.text,
            remedy="write a number, or leave the cell blank where the item is not ranked (rankers belong into the index)",
        )
    return rankers, labels, values


def _ranked(keys: Any, labels: list[Any] | None, items: Any, rankers: tuple[Any, ...]) -> Read:
    """Rankings from keys, the smaller the better; ``labels`` are those of the columns, None if they are the items themselves."""
    width = keys.shape[1]
    known = read_items(items if items is not None else labels if labels is not None else list(range(width)))
    check_size(len(rankers), known.num_entities)
    if labels is not None:
        place = LabelIndex(known.entities, str).locate(labels, lambda column: f"column {column}", REMEDY)
    elif known.num_entities == width:
        place = np.arange(width, dtype=np.int32)
    else:
        raise DataError(
            f"items: there are {known.num_entities} for {width} columns of scores; give one for each column"
        )
    if scipy.sparse.issparse(keys):
        rows, columns, entries = keys.row, keys.col, keys.data
        stored = ~np.isnan(entries)
        rows, columns, entries = rows[stored], columns[stored], entries[stored]
    else:
        rows, columns = np.nonzero(~np.isnan(keys))
        entries = keys[rows, columns]
    empty = np.bincount(rows, minlength=len(rankers)) == 0
    if empty.any():
        raise DataError(f"{place_of(rankers, int(np.argmax(empty)))}: it ranks nothing; leave it out")
    return known, numbered(rows, place[columns], entries, (len(rankers), known.num_entities)), rankers


def _read_long(table: Table, items: Any) -> Read:
    check_columns(table, _LONG, ("ranking",))
    frame = table.frame
    places = numbers(frame["position"], "position", table.place, text=table.text, remedy=_WHOLE)
    wrong = _not_a_place(places)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(f"{table.place(row)}, column 'position': {places[row]} is not a position; {_WHOLE}")
    given = _labels(table, "item")
    known = read_items(list(dict.fromkeys(given)) if items is None else items)
    by = _labels(table, "ranker")
    keys = _labels(table, "ranking") if "ranking" in frame.columns else by
    rankers = dict(zip(reversed(keys), reversed(by), strict=True))
    for row, (key, ranker) in enumerate(zip(keys, by, strict=True)):
        if rankers[key] != ranker:
            raise DataError(
                f"{table.place(row)}: the ranking {shown(key)} is of {shown(ranker)}, but was of {shown(rankers[key])}; "
                "give every ranking a number of its own"
            )
    numbers_of = {key: row for row, key in enumerate(dict.fromkeys(keys))}
    shape = (len(numbers_of), known.num_entities)
    check_size(*shape)
    columns = LabelIndex(known.entities, str).locate(given, _cell(table, "item"), REMEDY)
    rows = np.fromiter((numbers_of[key] for key in keys), dtype=np.int64, count=len(keys))
    _refuse_twice(table, rows * shape[1] + columns)
    return known, numbered(rows, columns, places, shape), tuple(rankers[key] for key in numbers_of)


def _labels(table: Table, column: str) -> list[Any]:
    labels = plain_labels(table.frame[column], _cell(table, column))
    for row, label in enumerate(labels):
        if label == "" or is_missing(label):
            raise DataError(f"{_cell(table, column)(row)}: the label is missing; fill it in or drop the row")
    return labels


def _cell(table: Table, column: str) -> Place:
    return lambda row: f"{table.place(row)}, column {table.called(column)!r}"


def _refuse_twice(table: Table, cells: NDArray[np.int64]) -> None:
    order = np.argsort(cells, kind="stable")
    same = np.flatnonzero(np.diff(cells[order]) == 0)
    if len(same):
        first, second = order[same[0]], order[same[0] + 1]
        ranker, item = (table.frame[name].iloc[second] for name in ("ranker", "item"))
        raise DataError(
            f"{table.place(int(second))}: the item {shown(item)} of the ranker {shown(ranker)} was already at {table.place(int(first))}; "
            "remove one of the two"
        )


def _not_a_place(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Where a number, if there is one, is no position."""
    return ~np.isnan(values) & ((values < 0) | (values != np.floor(values)) | np.isinf(values))
