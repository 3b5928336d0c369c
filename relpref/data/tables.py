"""Data frames that know where their rows come from."""

import csv
import io
import os
import zlib
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import counted, listed, nearest, refuse_first, shown
from relpref.data.columns import numbers
from relpref.data.labels import Place, is_missing, plain_labels
from relpref.errors import DataError
from relpref.files import check_decompressed, decompressed
from relpref.limits import MAX_CELLS_AT_ONCE, MAX_ROWS_AT_ONCE

_BLOCK = 1 << 23  # characters that are read together
_FEW = 256  # rows that are turned into columns together: with many more, Python's garbage collector looks at each of them
_INT32_MAX = int(np.iinfo(np.int32).max)

Lines = range | NDArray[np.int64]


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
    given: Mapping[Any, str] = field(default_factory=dict)
    first: int = 0

    @property
    def place(self) -> Place:
        """Maps a row (counted from 0) to the words that name it in a message; does not keep the cells alive."""
        name, lines, first, index = self.name, self.lines, self.first, self.frame.index
        if lines is not None:
            return lambda row: f"{name}, line {lines[row]}"
        return lambda row: f"{name}, row {first + row} (index label {shown(index[row])})"

    def called(self, column: Hashable) -> Any:
        """Return the name that a column was given."""
        return self.given.get(column, column)

    def cell(self, column: Hashable, rows: Any = None) -> Place:
        """Maps a row, or one of some rows, to the words that name its cell in a column."""
        place, name = self.place, self.called(column)
        return lambda row: f"{place(row if rows is None else int(rows[row]))}, column {name!r}"

    def blank(self, column: Hashable) -> NDArray[np.bool_]:
        """Which cells of a column are empty or missing."""
        cells = self.frame[column].tolist()
        empty = (not cell.strip() if self.text else is_missing(cell) or cell == "" for cell in cells)
        return np.fromiter(empty, dtype=bool, count=len(cells))

    def labels(self, column: Hashable, rows: Any = None) -> list[Any]:
        """Return the labels in all or some cells of a column, see `plain_labels`."""
        cells = self.frame[column]
        return plain_labels(cells if rows is None else cells.iloc[rows], self.cell(column, rows))

    def numbers(self, column: Hashable, remedy: str, rows: Any = None) -> NDArray[np.float64]:
        """Return the numbers in all or some cells of a column, see `numbers`."""
        cells, place = self.frame[column], self.place
        if rows is None:
            return numbers(cells, self.called(column), place, text=self.text, remedy=remedy)
        cells, where = cells.iloc[rows].infer_objects(), lambda row: place(int(rows[row]))
        return numbers(cells, self.called(column), where, text=self.text, remedy=remedy)

    def counts(self, column: Hashable, remedy: str, rows: Any = None) -> NDArray[np.int64]:
        """Return positive whole numbers below 2**31 in all or some cells of a column."""
        values = self.numbers(column, remedy, rows)
        cells = self.frame[column] if rows is None else self.frame[column].iloc[rows]
        refuse_first(
            (values < 1) | (values != np.floor(values)) | (values > _INT32_MAX),
            lambda row: (
                f"{self.cell(column, rows)(row)}: {shown(cells.tolist()[row])} is not a positive whole number "
                f"up to {_INT32_MAX}; {remedy}"
            ),
        )
        return values.astype(np.int64)


def as_table(value: Any, name: str) -> Table:
    """Return a `Table` for a DataFrame (or a `Table`, unchanged)."""
    if isinstance(value, Table):
        return value
    if isinstance(value, pd.DataFrame):
        return Table(value, name)
    raise DataError(
        f"{name}: expected a pandas DataFrame, got {type(value).__name__}; build one with pandas.DataFrame"
    )


def renamed(table: Table, columns: Mapping[str, str] | None) -> Table:
    """Give columns the names by which they are known here."""
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
    """Refuse a table that lacks a required column, has one twice, or has one that would be ignored."""
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


SUFFIXES = (".csv", ".csv.gz", ".parquet")


def suffix_of(path: str | os.PathLike[str]) -> str:
    """Return the ending that says what a file is: ``.csv``, but ``.csv.gz`` where it is compressed."""
    last = Path(path).suffix.lower()
    return (Path(path).with_suffix("").suffix.lower() if last == ".gz" else "") + last


def read_table(path: str | os.PathLike[str], *, max_columns: int | None = None) -> Table:
    """Read a CSV or Parquet file.

    CSV is read strictly: UTF-8 (a byte order mark is accepted), separated by commas, a header line,
    the same number of cells in every row. Cells stay text, so that labels such as ``NA`` or ``007``
    survive.

    Parameters
    ----------
    path : path
        File whose name ends in ``.csv``, ``.csv.gz`` or ``.parquet``.
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
    pieces = list(_read(Path(path), max_columns, whole=True))
    if len(pieces) == 1:
        return pieces[0]
    frame = pd.concat([piece.frame for piece in pieces], ignore_index=True)
    lines = np.concatenate([np.asarray(piece.lines, dtype=np.int64) for piece in pieces])
    return Table(frame, pieces[0].name, lines, text=True)


def read_pieces(path: str | os.PathLike[str], *, max_columns: int | None = None) -> Iterator[Table]:
    """Read a CSV or Parquet file in pieces, see `read_table`."""
    return _read(Path(path), max_columns, whole=False)


def _read(file: Path, max_columns: int | None, *, whole: bool) -> Iterator[Table]:
    suffix = suffix_of(file)
    if suffix not in SUFFIXES:
        raise DataError(
            f"{file}: tables are read from files ending in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, "
            f"not {suffix or 'no ending'!r}; convert or rename the file"
        )
    try:
        opened = file.open("rb")
    except FileNotFoundError:
        raise DataError(f"{file}: there is no such file; check the path") from None
    except IsADirectoryError:
        raise DataError(f"{file}: this is a directory, not a table; give the file inside it") from None
    except (OSError, ValueError) as error:
        raise DataError(
            f"{file}: the file cannot be read ({error}); check its name and permissions"
        ) from error
    with opened as stream:
        if suffix == ".parquet":
            yield from _read_parquet(file, stream, max_columns, whole=whole)
        else:
            content = decompressed(file, stream) if suffix == ".csv.gz" else stream
            with io.TextIOWrapper(content, encoding="utf-8-sig", newline="") as text:
                yield from _read_csv(file, text, max_columns)


def _read_csv(file: Path, text: io.TextIOWrapper, max_columns: int | None) -> Iterator[Table]:
    """Pieces of a CSV file, at least one (which has no rows where there is only a header)."""
    line, found = 1, False
    try:
        rows = _rows(file, text, line)
        _, line, header = next(rows, (0, 0, []))
        _check_header(file, header, max_columns)
        while block := text.read(_BLOCK):
            block += text.readline()
            if columns := _plain_columns(block, len(header)):
                yield _piece(file, header, columns, range(line, line + len(columns[0])))
                line, found = line + len(columns[0]), True
                continue
            rows = _rows(file, chain(io.StringIO(block, newline=""), text), line)
            lines, some = list[int](), list[list[str]]()
            columns = [[] for _ in header]
            for begins, _, cells in rows:
                if len(cells) != len(header):
                    raise DataError(
                        f"{file}, line {begins}: {counted(len(cells), 'cell')} where the header has {len(header)}; "
                        "complete the row (a truncated file?) or quote cells that contain commas"
                    )
                lines.append(begins)
                some.append(cells)
                if len(some) == _FEW or len(lines) * len(header) >= MAX_CELLS_AT_ONCE:
                    _extend(columns, some)
                if len(lines) * len(header) >= MAX_CELLS_AT_ONCE:
                    yield _piece(file, header, columns, np.asarray(lines, dtype=np.int64))
                    columns, lines, found = [[] for _ in header], [], True
            if lines:
                _extend(columns, some)
                yield _piece(file, header, columns, np.asarray(lines, dtype=np.int64))
                found = True
    except UnicodeDecodeError as error:
        offset = text.buffer.tell() - len(error.object) + error.start  # type: ignore[attr-defined]
        raise DataError(
            f"{file}: the byte {error.object[error.start]:#04x} at offset {offset} is not UTF-8; "
            "save it again as comma-separated UTF-8 text (it may be UTF-16)"
        ) from error
    except (EOFError, zlib.error, OSError) as error:
        raise DataError(
            f"{file}: the file cannot be read to its end ({error}); it is damaged or cut off: fetch or write it again"
        ) from error
    if not found:
        yield _piece(file, header, [[] for _ in header], range(0))


def _plain_columns(block: str, width: int) -> list[list[str]] | None:
    """Columns of whole lines that are plain rows, ten times as fast as by the reader of rows; None if some are not."""
    if any(mark in block for mark in '"\0'):
        return None
    block = block.replace("\r\n", "\n").removesuffix("\n") + "\n"
    raw = np.frombuffer(block.encode(), dtype=np.uint8)
    ends = np.flatnonzero(raw == ord("\n"))
    # The length of a line, so more than that of its longest cell; 1 is a blank line.
    lengths = np.diff(ends, prepend=-1)
    separators = raw[(raw == ord(",")) | (raw == ord("\n"))]
    if (
        "\r" in block
        or lengths.min() == 1
        or lengths.max() > csv.field_size_limit()
        or separators.size != width * ends.size
        or (separators[width - 1 :: width] != ord("\n")).any()
    ):
        return None
    cells = block[:-1].replace("\n", ",").split(",")
    return [cells[column::width] for column in range(width)]


def _rows(file: Path, text: Iterable[str], line: int) -> Iterator[tuple[int, int, list[str]]]:
    """Rows that are not blank of a text that begins on a line: their line, that of the next row, and their cells."""
    reader, before = csv.reader(_without_zeros(file, text, line), strict=True), line - 1
    try:
        for cells in reader:
            begins, line = line, before + reader.line_num + 1
            if cells:
                yield begins, line, cells
    except csv.Error as error:
        raise DataError(
            f"{file}, line {line}: the row that begins here is not valid CSV ({error}); "
            'check for a quotation mark that is not closed (inside a quoted cell, write "" for one)'
        ) from error


def _without_zeros(file: Path, lines: Iterable[str], first: int) -> Iterator[str]:
    for number, line in enumerate(lines, start=first):
        if "\0" in line:
            raise DataError(
                f"{file}, line {number}: there is a zero byte; the file is damaged or not a CSV (perhaps UTF-16): "
                "save it again as comma-separated UTF-8 text"
            )
        yield line


def _check_header(file: Path, header: list[str], max_columns: int | None) -> None:
    if not header:
        raise DataError(f"{file}: the file is empty; write a header and at least one row")
    if len(header) == 1 and any(separator in header[0] for separator in ";\t|"):
        raise DataError(
            f"{file}, line 1: the header {shown(header[0])} has no comma; save the table separated by commas"
        )
    _check_width(file, len(header), max_columns)
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise DataError(f"{file}, line 1: the column {shown(twice)} occurs twice; rename or remove one")


def _check_width(file: Path, width: int, max_columns: int | None) -> None:
    if max_columns is not None and width > max_columns:
        raise DataError(
            f"{file}: {counted(width, 'column')} are more than the limit of {max_columns}; select or reduce the columns"
        )


def _extend(columns: list[list[str]], rows: list[list[str]]) -> None:
    """Move the cells of rows to the ends of the columns."""
    for column, cells in zip(columns, zip(*rows, strict=True), strict=False):
        column.extend(cells)
    rows.clear()


def _piece(file: Path, header: list[str], columns: list[list[str]], lines: Lines) -> Table:
    names = pd.Index(header, dtype=object)
    frame = pd.DataFrame(dict(zip(header, columns, strict=True)), columns=names, dtype=object)
    return Table(frame, str(file), lines, text=True)


def _read_parquet(file: Path, stream: IO[bytes], max_columns: int | None, *, whole: bool) -> Iterator[Table]:
    if not stream.read(1):
        raise DataError(f"{file}: the file is empty; write a header and at least one row")
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise DataError(
            f"{file}: reading Parquet needs pyarrow; install it with: pip install 'relpref[parquet]' "
            "(or save the table as CSV)"
        ) from error
    # A damaged file makes the decoder raise errors of many types; all of them mean the same to the reader.
    try:
        opened = parquet.ParquetFile(stream)
        width = len(opened.schema_arrow.names)
    except Exception as error:
        raise DataError(f"{file}: this is not a readable Parquet file ({error}); write it again") from error
    # What is repeated takes no room in a Parquet file.
    rows = opened.metadata.num_rows
    check_decompressed(file, 8.0 * width * (rows if whole else min(MAX_ROWS_AT_ONCE, rows)))
    _check_width(file, width, max_columns)
    first = 0
    for frame in _frames(file, opened, whole=whole or not rows):
        if first and isinstance(frame.index, pd.RangeIndex):
            frame.index = pd.RangeIndex(first, first + len(frame))
        yield Table(frame, str(file), first=first)
        first += len(frame)


def _frames(file: Path, opened: Any, *, whole: bool) -> Iterator[Any]:
    try:
        if whole:
            yield opened.read().to_pandas()
            return
        for batch in opened.iter_batches(batch_size=MAX_ROWS_AT_ONCE):
            if batch.num_rows:
                yield batch.to_pandas()
    except Exception as error:
        raise DataError(f"{file}: the Parquet file is damaged ({error}); write it again") from error
