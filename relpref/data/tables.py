"""Data frames that know where their rows come from."""

import csv
import gzip
import io
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import counted, listed, nearest, shown
from relpref.data.labels import Place
from relpref.errors import DataError
from relpref.files import Decompressed, check_decompressed

# Bytes of text, and rows where the text needs the slower reader, that are in memory at a time.
BLOCK = 1 << 23
ROWS = 1 << 18

Lines = range | NDArray[np.int64]


class Piece(NamedTuple):
    """Some consecutive rows.

    Attributes
    ----------
    header : list of str, length w
        Names of the columns.
    columns : list of w lists of str
        Their cells.
    lines : range or array of int64
        Line of the file on which each row begins; the first line is 1.
    """

    header: list[str]
    columns: list[list[str]]
    lines: Lines


def read_csv(file: Path, stream: IO[bytes], max_columns: int | None) -> Iterator[Piece]:
    """Read rows in pieces, at least one (which is empty where there is only a header).

    Parameters
    ----------
    file : path
        For messages.
    stream : binary stream
        Its content.
    max_columns : int or None
        Refuse wider tables.

    Raises
    ------
    DataError
        If it is no UTF-8, a row has more or fewer cells than the header, or the quotation marks are not those of CSV.
    """
    text = _Text(_blocks(file, stream))
    rows = _strict(file, text, 1)
    try:
        _, last, header = next(rows)
    except StopIteration:
        raise DataError(
            f"{file}: the file is empty (only blank lines); write a header and at least one row"
        ) from None
    _check_header(file, header, max_columns)
    line, found = last + 1, False
    while block := text.block():
        columns = _split(block, len(header))
        if columns is None:
            text.put_back(block)
            for piece in _in_pieces(file, header, _strict(file, text, line)):
                found = True
                yield piece
            break
        found = True
        yield Piece(header, columns, range(line, line + len(columns[0])))
        line += len(columns[0])
    if not found:
        yield Piece(header, [[] for _ in header], range(0))


class _Text:
    """Text that is taken line by line, with the ends of the lines, or in blocks of whole lines."""

    def __init__(self, blocks: Iterator[str]) -> None:
        self._blocks = blocks
        self.put_back("")

    def put_back(self, block: str) -> None:
        self._buffer = io.StringIO(block, newline="")

    def __iter__(self) -> "_Text":
        return self

    def __next__(self) -> str:
        while not (line := self._buffer.readline()):
            self.put_back(next(self._blocks))
        return line

    def block(self) -> str:
        """What is left of the block, the next one, or nothing at the end."""
        return self._buffer.read() or next(self._blocks, "")


def _blocks(file: Path, stream: IO[bytes]) -> Iterator[str]:
    """Text that ends where a line does: a character is never cut in two."""
    offset, rest = 0, b""
    while piece := _bytes(file, stream):
        if b"\0" in piece:
            raise DataError(
                f"{file}: there is a zero byte at offset {offset + len(rest) + piece.index(0)}; the file is damaged or not a CSV "
                "(perhaps UTF-16): save it again as comma-separated UTF-8 text"
            )
        rest += piece
        cut = rest.rfind(b"\n") + 1
        if cut:
            yield _decode(file, rest[:cut], offset)
            offset, rest = offset + cut, rest[cut:]
    if rest:
        yield _decode(file, rest, offset)


def _bytes(file: Path, stream: IO[bytes]) -> bytes:
    try:
        return stream.read(BLOCK)
    except (EOFError, zlib.error, OSError) as error:
        raise DataError(
            f"{file}: the file cannot be read to its end ({error}); it is damaged or cut off: fetch or write it again"
        ) from error


def _decode(file: Path, content: bytes, offset: int) -> str:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file}: the byte {content[error.start]:#04x} at offset {offset + error.start} is not UTF-8; "
            "save the file again with the encoding UTF-8"
        ) from error
    return text if offset else text.removeprefix("\ufeff")


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


def _split(block: str, width: int) -> list[list[str]] | None:
    """Columns of a block of plain rows; None where only the strict reader can tell what the rows are."""
    if '"' in block:
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


def _strict(file: Path, text: Iterator[str], line: int) -> Iterator[tuple[int, int, list[str]]]:
    """Rows that are not blank, with their first and last line, of a text that begins on a line."""
    reader = csv.reader(text, strict=True)
    before = line - 1
    try:
        for cells in reader:
            last = before + reader.line_num
            if cells:
                yield line, last, cells
            line = last + 1
    except csv.Error as error:
        raise DataError(
            f"{file}, line {line}: the row that begins here is not valid CSV ({error}); "
            'check for a quotation mark that is not closed (inside a quoted cell, write "" for one)'
        ) from error


def _in_pieces(file: Path, header: list[str], rows: Iterator[tuple[int, int, list[str]]]) -> Iterator[Piece]:
    taken: list[list[str]] = []
    lines: list[int] = []
    for line, _, cells in rows:
        if len(cells) != len(header):
            raise DataError(
                f"{file}, line {line}: {counted(len(cells), 'cell')} where the header has {len(header)}; "
                "complete the row (a truncated file?) or quote cells that contain commas"
            )
        taken.append(cells)
        lines.append(line)
        if len(lines) == ROWS:
            yield _piece(header, taken, lines)
            taken, lines = [], []
    if lines:
        yield _piece(header, taken, lines)


def _piece(header: list[str], rows: Sequence[Any], lines: list[int]) -> Piece:
    columns = [list(column) for column in zip(*rows, strict=True)]
    consecutive = lines[-1] - lines[0] == len(lines) - 1
    return Piece(
        header, columns, range(lines[0], lines[-1] + 1) if consecutive else np.asarray(lines, np.int64)
    )


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


SUFFIXES = (".csv", ".csv.gz", ".parquet")
# Rows of a Parquet file that are in memory at a time.
ROWS_AT_ONCE = 1 << 19


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
    """Read a CSV or Parquet file in pieces, see `read_table`.

    Yields
    ------
    Table
        Some consecutive rows; of a file without rows one table without rows.
    """
    return _read(Path(path), max_columns, whole=False)


def _read(file: Path, max_columns: int | None, *, whole: bool) -> Iterator[Table]:
    suffix = suffix_of(file)
    if suffix not in SUFFIXES:
        raise DataError(
            f"{file}: tables are read from files ending in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, "
            f"not {suffix or 'no ending'!r}; convert or rename the file"
        )
    with _opened(file, compressed=suffix.endswith(".gz")) as stream:
        if suffix == ".parquet":
            yield from _read_parquet(file, stream, max_columns, whole=whole)
        else:
            for piece in read_csv(file, stream, max_columns):
                yield _table(file, piece)


@contextmanager
def _opened(file: Path, *, compressed: bool) -> Iterator[IO[bytes]]:
    try:
        stream = file.open("rb")
        empty = not stream.read(1)
        stream.seek(0)
    except FileNotFoundError:
        raise DataError(f"{file}: there is no such file; check the path") from None
    except IsADirectoryError:
        raise DataError(f"{file}: this is a directory, not a table; give the file inside it") from None
    except (OSError, ValueError) as error:
        raise DataError(
            f"{file}: the file cannot be read ({error}); check its name and permissions"
        ) from error
    with stream:
        if empty:
            raise DataError(f"{file}: the file is empty; write a header and at least one row")
        if compressed:
            yield cast("IO[bytes]", Decompressed(file, cast("IO[bytes]", gzip.GzipFile(fileobj=stream))))
        else:
            yield stream


def _table(file: Path, piece: Piece) -> Table:
    cells = dict(zip(piece.header, piece.columns, strict=True))
    frame = pd.DataFrame(cells, columns=pd.Index(piece.header, dtype=object), dtype=object)
    return Table(frame, str(file), piece.lines, text=True)


def _read_parquet(file: Path, stream: IO[bytes], max_columns: int | None, *, whole: bool) -> Iterator[Table]:
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
    check_decompressed(
        file,
        8.0
        * width
        * (min(ROWS_AT_ONCE, opened.metadata.num_rows) if not whole else opened.metadata.num_rows),
    )
    if max_columns is not None and width > max_columns:
        raise DataError(
            f"{file}: {counted(width, 'column')} are more than the limit of {max_columns}; select or reduce the columns"
        )
    first = 0
    for frame in _frames(file, opened, whole=whole):
        if first and isinstance(frame.index, pd.RangeIndex):
            frame.index = pd.RangeIndex(first, first + len(frame))
        yield Table(frame, str(file), first=first)
        first += len(frame)


def _frames(file: Path, opened: Any, *, whole: bool) -> Iterator[Any]:
    batches = iter([]) if whole else opened.iter_batches(batch_size=ROWS_AT_ONCE)
    found = False
    while True:
        try:
            # A file without rows has no batches; what is read then has the columns all the same.
            batch = next((one for one in batches if one.num_rows), None)
            if batch is None and found:
                return
            frame = (opened.read() if batch is None else batch).to_pandas()
        except Exception as error:
            raise DataError(f"{file}: the Parquet file is damaged ({error}); write it again") from error
        yield frame
        if batch is None:
            return
        found = True
