"""Recognize tables of answers as people write them, and give their columns the names used here.

A form is recognized by the names of its columns and confirmed by their cells. A table that fits
two forms is refused with both, and a table that fits none is returned as it is.
"""

from dataclasses import replace

from relpref.data.order_readings import (
    best_and_worst,
    long_orders,
    orders_by_item,
    orders_by_place,
)
from relpref.data.pair_readings import pairs
from relpref.data.readings import cells_of, is_numeric
from relpref.data.tables import ROWS_LOOKED_AT, Table, column_option
from relpref.errors import DataError


def recognized(table: Table) -> Table:
    """Return a table of answers with the names used here, where its form is recognized.

    Raises
    ------
    DataError
        If it can be read in two ways.
    """
    if has_our_names(table):
        return table
    readings = list(best_and_worst(table)) or [
        reading
        for form in (pairs, long_orders, orders_by_place, orders_by_item)
        for reading in form(table)
    ]
    if len(readings) > 1:
        raise DataError(
            f"{table.name}: the table can be read in several ways: "
            f"{'; or '.join(reading.description for reading in readings)}. Say which columns are "
            f"meant, as in {column_option({'winner': 'name'})}"
        )
    if not readings:
        return table
    read = readings[0].table()
    return replace(read, notes=(*read.notes, f"the table was read as {readings[0].description}"))


def has_our_names(table: Table) -> bool:
    """Tell whether a table has the columns of a form already, with labels or numbers in them."""
    columns = set(table.frame.columns)
    forms = (
        {"winner", "loser"},
        {"first", "second", "probability"},
        {"list", "item", "place"},
        {"choice", "item", "chosen"},
    )
    if len(columns) < table.frame.shape[1] or any(columns >= form for form in forms):
        return True
    head = replace(table, frame=table.frame.iloc[:ROWS_LOOKED_AT])
    if columns >= {"best", "worst", "item_1"}:
        return _labels_in(head, "best", "item_")
    if columns >= {"first", "second", "result"}:
        return any(not cell or is_numeric([cell]) for cell in cells_of(head, "result"))
    return columns >= {"first", "second", "winner"} and _labels_in(
        head, "winner", ("first", "second")
    )


def _labels_in(table: Table, column: str, others: str | tuple[str, ...]) -> bool:
    """Tell whether some cell of a column is a label of its row."""
    columns = [name for name in table.frame.columns if str(name).startswith(others)]
    rows = zip(*(cells_of(table, name) for name in columns), strict=True)
    return any(cell in row for cell, row in zip(cells_of(table, column), rows, strict=True))
