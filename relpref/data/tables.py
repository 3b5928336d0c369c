"""Data frames that know where their rows come from."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from relpref.data.csv_text import Lines
from relpref.data.labels import Place
from relpref.data.messages import listed, nearest, shown
from relpref.errors import DataError


@dataclass(frozen=True, eq=False)
class Table:
    """A data frame that knows where its rows come from.

    Attributes
    ----------
    frame : pandas.DataFrame
        The rows; text only (``text=True``) if they come from a CSV file.
    name : str
        What to call the table in messages: a file or an argument.
    lines : range or array of int64, shape (rows,), optional
        Line of the file on which each row begins; the header is line 1.
    text : bool
        Whether every cell is text that still has to be read as a number where one is expected.
    given : mapping of str to str
        What the columns were called before they were renamed, for messages.
    first : int
        Number of the first row where this is a piece of a larger table.
    """

    frame: Any
    name: str
    lines: Lines | None = None
    text: bool = False
    given: Mapping[str, str] = field(default_factory=dict)
    first: int = 0

    @property
    def place(self) -> Place:
        """Maps a row (counted from 0) to the words that name it in a message; does not keep the cells alive."""
        name, lines, first, index = self.name, self.lines, self.first, self.frame.index
        if lines is not None:
            return lambda row: f"{name}, line {lines[row]}"
        return lambda row: f"{name}, row {first + row} (index label {shown(index[row])})"

    def called(self, column: str) -> str:
        """Return the name that a column was given."""
        return self.given.get(column, column)


def as_table(value: Any, name: str) -> Table:
    """Return a `Table` for a DataFrame (or a `Table`, unchanged).

    Raises
    ------
    DataError
        If ``value`` is something else.
    """
    if isinstance(value, Table):
        return value
    if isinstance(value, pd.DataFrame):
        return Table(value, name)
    raise DataError(
        f"{name}: expected a pandas DataFrame, got {type(value).__name__}; build one with pandas.DataFrame"
    )


def renamed(table: Table, columns: Mapping[str, str] | None) -> Table:
    """Give columns the names by which they are known here.

    Parameters
    ----------
    table : Table
    columns : mapping from our name to the table's, optional

    Raises
    ------
    DataError
        If there is no such column, or the new name is taken.
    """
    given = list(table.frame.columns)
    for ours, theirs in (columns or {}).items():
        if theirs not in given:
            meant = nearest(theirs, given, most=1)
            hint = f"did you mean {meant[0]!r}?" if meant else f"it has {listed(given)}"
            raise DataError(
                f"columns: {ours!r} is to be {theirs!r}, but {table.name} has no such column; {hint}"
            )
        if ours != theirs and ours in given and ours not in (columns or {}).values():
            raise DataError(
                f"columns: {ours!r} is to be {theirs!r}, but {table.name} has a column {ours!r}, too; rename that one"
            )
    back = {theirs: ours for ours, theirs in (columns or {}).items()}
    return (
        replace(table, frame=table.frame.rename(columns=back), given=dict(columns or {})) if back else table
    )


def check_columns(table: Table, required: tuple[str, ...], optional: tuple[str, ...]) -> None:
    """Refuse a table that lacks a required column, has one twice, or has one that would be ignored.

    Raises
    ------
    DataError
        Naming the column, the name that was probably meant, and the remedy.
    """
    columns = list(table.frame.columns)
    allowed = required + optional
    extra = [column for column in columns if column not in allowed]
    for wanted in required:
        if wanted in columns:
            continue
        if wanted in [name for name in table.frame.index.names if name is not None]:
            hint = "it is in the index: call reset_index() first"
        else:
            meant = nearest(wanted, extra, most=1)
            hint = (
                f"did you mean {wanted!r} where it says {shown(meant[0])}? Rename that column"
                if meant
                else f"name a column {wanted!r}"
            )
        raise DataError(f"{table.name}: there is no column {wanted!r} among {listed(columns)}; {hint}")
    for column in extra:
        if column == "" or str(column).startswith("Unnamed: "):
            reason = "it has no name; if it is an index, save the table with index=False, otherwise name or remove it"
        else:
            meant = nearest(column, [name for name in optional if name not in columns], most=1)
            reason = f"did you mean {meant[0]!r}? Rename or remove it" if meant else "remove it"
        raise DataError(
            f"{table.name}: the column {shown(column)} is not used (only {', '.join(allowed)} are): {reason}"
        )
    for column in columns:
        if columns.count(column) > 1:
            raise DataError(f"{table.name}: the column {column!r} occurs twice; keep one of the two")
