"""Tables from files: CSV read strictly, Parquet where pyarrow is installed."""

import csv
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.messages import counted, listed, nearest, shown
from relpref.errors import DataError

SUFFIXES = (".csv", ".parquet")


@dataclass(frozen=True, eq=False)
class Table:
    """A data frame that knows where its rows come from.

    Attributes
    ----------
    frame : pandas.DataFrame
        The rows; text only (``text=True``) if they come from a CSV file.
    name : str
        What to call the table in messages: a file or an argument.
    lines : array of int64, shape (rows,), optional
        Line of the file on which each row begins; the header is line 1.
    text : bool
        Whether every cell is text that still has to be read as a number where one is expected.
    given : mapping of str to str
        What the columns were called before they were renamed, for messages.
    """

    frame: Any
    name: str
    lines: NDArray[np.int64] | None = None
    text: bool = False
    given: Mapping[str, str] = field(default_factory=dict)

    def place(self, row: int) -> str:
        """Return the words that name a row (counted from 0) in a message."""
        if self.lines is not None:
            return f"{self.name}, line {self.lines[row]}"
        return f"{self.name}, row {row} (index label {shown(self.frame.index[row])})"

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


def read_table(path: str | os.PathLike[str], *, max_columns: int | None = None) -> Table:
    """Read a CSV or Parquet file.

    CSV is read strictly: UTF-8 (a byte order mark is accepted), separated by commas, a header line,
    the same number of cells in every row. Cells stay text, so that labels such as ``NA`` or ``007``
    survive.

    Parameters
    ----------
    path : path
        File whose name ends in ``.csv`` or ``.parquet``.
    max_columns : int, optional
        Refuse wider tables before reading their rows.

    Returns
    -------
    Table
        The rows and the lines on which they begin.

    Raises
    ------
    DataError
        If the file is missing, a directory, empty, damaged, of another kind, or too wide.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(
            f"{file}: tables are read from files ending in {' or '.join(SUFFIXES)}, not {suffix or 'no ending'!r}; "
            "convert or rename the file"
        )
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{file}: there is no such file; check the path") from None
    except IsADirectoryError:
        raise DataError(f"{file}: this is a directory, not a table; give the file inside it") from None
    except (OSError, ValueError) as error:
        raise DataError(
            f"{file}: the file cannot be read ({error}); check its name and permissions"
        ) from error
    if not content:
        raise DataError(f"{file}: the file is empty; write a header and at least one row")
    if suffix == ".csv":
        return _read_csv(file, content, max_columns)
    return _read_parquet(file, content, max_columns)


def _decode(file: Path, content: bytes) -> str:
    if b"\0" in content:
        raise DataError(
            f"{file}: there is a zero byte at offset {content.index(0)}; the file is damaged or not a CSV "
            "(perhaps UTF-16): save it again as comma-separated UTF-8 text"
        )
    try:
        # The mark is removed afterwards, so that the offset in the message is that in the file.
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file}: the byte {content[error.start]:#04x} at offset {error.start} is not UTF-8; "
            "save the file again with the encoding UTF-8"
        ) from error


def _check_header(file: Path, header: list[str], max_columns: int | None) -> None:
    if len(header) == 1 and any(separator in header[0] for separator in ";\t|"):
        raise DataError(
            f"{file}, line 1: the header {shown(header[0])} has no comma; save the table separated by commas"
        )
    if max_columns is not None and len(header) > max_columns:
        raise DataError(
            f"{file}: {counted(len(header), 'column')} are more than the limit of {max_columns}; "
            "select or reduce the columns"
        )
    seen: set[str] = set()
    for name in header:
        if name in seen:
            raise DataError(f"{file}, line 1: the column {shown(name)} occurs twice; rename or remove one")
        seen.add(name)


def _read_csv(file: Path, content: bytes, max_columns: int | None) -> Table:
    reader = csv.reader(io.StringIO(_decode(file, content), newline=""), strict=True)
    header: list[str] | None = None
    rows: list[list[str]] = []
    lines: list[int] = []
    line = 1
    try:
        for cells in reader:
            if not cells:  # a blank line
                pass
            elif header is None:
                header = cells
                _check_header(file, header, max_columns)
            elif len(cells) != len(header):
                raise DataError(
                    f"{file}, line {line}: {counted(len(cells), 'cell')} where the header has {len(header)}; "
                    "complete the row (a truncated file?) or quote cells that contain commas"
                )
            else:
                rows.append(cells)
                lines.append(line)
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{file}, line {line}: the row that begins here is not valid CSV ({error}); "
            'check for a quotation mark that is not closed (inside a quoted cell, write "" for one)'
        ) from error
    if header is None:
        raise DataError(f"{file}: the file is empty (only blank lines); write a header and at least one row")
    frame = pd.DataFrame(rows, columns=pd.Index(header, dtype=object), dtype=object)
    return Table(frame, str(file), np.asarray(lines, dtype=np.int64), text=True)


def _read_parquet(file: Path, content: bytes, max_columns: int | None) -> Table:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise DataError(
            f"{file}: reading Parquet needs pyarrow; install it with: pip install 'relpref[parquet]' "
            "(or save the table as CSV)"
        ) from error
    # A damaged file makes the decoder raise errors of many types; all of them mean the same to the reader.
    try:
        opened = parquet.ParquetFile(io.BytesIO(content))
        width = len(opened.schema_arrow.names)
    except Exception as error:
        raise DataError(f"{file}: this is not a readable Parquet file ({error}); write it again") from error
    if max_columns is not None and width > max_columns:
        raise DataError(
            f"{file}: {counted(width, 'column')} are more than the limit of {max_columns}; select or reduce the columns"
        )
    try:
        frame = opened.read().to_pandas()
    except Exception as error:
        raise DataError(f"{file}: the Parquet file is damaged ({error}); write it again") from error
    return Table(frame, str(file))
