"""CSV in pieces: strict, in bounded memory, and at the speed of ``str.split`` where nothing is quoted."""

import csv
import io
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relpref.data.messages import counted, shown
from relpref.errors import DataError

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
