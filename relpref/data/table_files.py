"""Tables in files: delimited text, JSON, Excel and Parquet, read as frames."""

import codecs
import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import IO, Any, NamedTuple
from zipfile import BadZipFile, ZipFile

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import counted, listed, shown
from relpref.errors import DataError
from relpref.files import check_decompressed, decompressed, reading
from relpref.limits import MAX_CELLS_AT_ONCE, MAX_ROWS_AT_ONCE

_BLOCK = 1 << 23  # characters that are read together
_SAMPLE = 1 << 16  # characters that show how a file is separated
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars", " ": "spaces"}
_TEXTS = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson")
SUFFIXES = (*_TEXTS, *(f"{suffix}.gz" for suffix in _TEXTS), ".xlsx", ".parquet")
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # begins like the next one
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_WORD = re.compile(r'[^\s,;|"][^\n\r\t,;|"]*').finditer
_NOT_UTF8 = re.compile("[\udc80-\udcff]").search  # what "surrogateescape" makes of such bytes
_UTF8 = re.compile("[^\0-\x7f\udc80-\udcff]").search
_ALL_QUOTED = re.compile(r'"[^"]*"( "[^"]*")+').fullmatch

Lines = range | NDArray[np.int64]


class Piece(NamedTuple):
    """Rows of a file."""

    frame: pd.DataFrame
    lines: Lines | None = None  # line of the file on which each row begins; the header is line 1
    text: bool = False  # whether all cells are text, as in CSV
    separator: str = ","
    first: int = 0  # number of the first row
    notes: tuple[str, ...] = ()  # how the file was read, where that was not as usual


def suffix_of(path: str | PathLike[str]) -> str:
    """Return the ending of a file's name: ``.csv``, ``.csv.gz`` if it is compressed."""
    last = Path(path).suffix.lower()
    return (Path(path).with_suffix("").suffix.lower() if last == ".gz" else "") + last


def pieces_of(
    file: Path, encoding: str | None, max_columns: int | None, whole: bool
) -> Iterator[Piece]:
    """Read a file in pieces, at least one; Parquet at once if asked. Its first bytes say its kind.

    Parameters
    ----------
    file : path
    encoding : str, optional
        Encoding of text; see `_encoding_of` for the default.
    max_columns : int, optional
        Refuse wider tables.
    whole : bool
    """
    with reading(file, "table"):
        opened = file.open("rb")
    with opened as stream, reading(file):
        head = stream.peek(8)
        if not head:
            raise DataError(f"{file}: the file is empty; write a header and at least one row")
        if suffix_of(file) == ".parquet" or head.startswith(b"PAR1"):
            yield from _read_parquet(file, stream, max_columns, at_once=whole)
        elif head.startswith(b"PK\3\4"):
            yield _read_excel(file, stream, max_columns)
        elif head.startswith(b"\xd0\xcf\x11\xe0"):
            raise DataError(f"{file}: this is an old Excel file (.xls); save it as .xlsx or CSV")
        else:
            yield from _read_text(file, stream, encoding, max_columns)


def _read_text(
    file: Path, stream: IO[bytes], encoding: str | None, max_columns: int | None
) -> Iterator[Piece]:
    zipped = stream.read(2) == b"\x1f\x8b"

    def content() -> Any:
        stream.seek(0)
        return decompressed(file, stream) if zipped else stream

    encoding, notes = _encoding_of(file, content(), encoding)
    with io.TextIOWrapper(content(), encoding=encoding, newline="") as text:
        try:
            sample = text.read(_SAMPLE)
            if sample.lstrip()[:1] == "<":
                raise DataError(f"{file}: this is a page (HTML or XML); save the table as CSV")
            if suffix_of(file).removesuffix(".gz") in (".json", ".jsonl", ".ndjson"):
                yield _read_json(file, sample + text.read(), notes)
                return
            for piece in _csv_pieces(file, sample, text, max_columns):
                yield piece._replace(notes=(*notes, *piece.notes))
        except UnicodeDecodeError as error:
            offset = text.buffer.tell() - len(error.object) + error.start
            raise DataError(
                f"{file}: the byte {error.object[error.start]:#04x} at offset {offset} is not "
                f"{encoding.removesuffix('-sig')}; {_NAME_ENCODING}"
            ) from error


_NAME_ENCODING = "name the encoding, such as encoding='cp1252' (--encoding cp1252)"


def _encoding_of(file: Path, stream: IO[bytes], given: str | None) -> tuple[str, tuple[str, ...]]:
    """Find the encoding of a text, and a note if it is a guess.

    It is the one that is given or that a byte order mark says; otherwise UTF-8, or cp1252 where no
    character beyond ASCII is UTF-8.
    """
    if given is not None:
        try:
            name = codecs.lookup(given).name
        except LookupError:
            raise DataError(
                f"encoding: there is no encoding {given!r}; use 'utf-8', 'utf-16', 'cp1252' or "
                "another one that Python knows"
            ) from None
        return "utf-8-sig" if name == "utf-8" else name, ()
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    words: dict[str, None] = {}
    wrong, valid, before = -1, False, 0
    while block := stream.read(_BLOCK):
        if not before:
            for mark, name in _MARKS.items():
                if block.startswith(mark):
                    return name, ()
        start = before - len(decoder.getstate()[0])
        text = decoder.decode(block)
        before += len(block)
        if text.isascii():
            continue
        valid = valid or _UTF8(text) is not None
        bad = _NOT_UTF8(text)
        if bad and wrong < 0:
            wrong = start + len(text[: bad.start()].encode("utf-8", "surrogateescape"))
            byte = ord(text[bad.start()]) - 0xDC00
        if bad and len(words) < 3:
            odd = (match[0].strip() for match in _WORD(text) if _NOT_UTF8(match[0]))
            words |= dict.fromkeys(islice(odd, 100))
    if wrong < 0:
        return "utf-8", ()
    if valid:
        raise DataError(
            f"{file}: the byte {byte:#04x} at offset {wrong} is not UTF-8, and other characters "
            f"are; the file is damaged, or {_NAME_ENCODING}"
        )
    cells = (word.encode("utf-8", "surrogateescape").decode("cp1252", "replace") for word in words)
    note = f"the file is not UTF-8, and is read as cp1252: {listed(islice(cells, 3))}"
    return "cp1252", (f"{note}; if these are wrong, name its encoding (encoding=, --encoding)",)


class _Style(NamedTuple):
    """Form of a CSV file."""

    delimiter: str
    above: int = 0  # lines above the header
    spaced: bool = False  # spaces around the cells
    row_names: bool = False  # the header has no name for the first column
    trailing: bool = False  # the header lacks the separator at the end of the rows
    blank: frozenset[int] = frozenset()  # columns without a name and without cells
    notes: tuple[str, ...] = ()

    def columns(self, header: Sequence[str]) -> list[str]:
        """Return the name of each cell of a row, stripped, "" where there is none."""
        return [*[""] * self.row_names, *map(str.strip, header), *[""] * self.trailing]


def _style_of(file: Path, sample: str, complete: bool) -> _Style:
    """Find the separator that parts all rows alike, and what stands above the header."""
    lines = list(io.StringIO(sample, newline=""))
    above = 0
    while above < len(lines) and (not lines[above].strip() or lines[above].startswith("#")):
        above += 1
    if above == len(lines):  # comments alone, or a header that begins with #
        above = max((row for row, line in enumerate(lines) if line.strip()), default=0)
    said = re.fullmatch(r'"?sep=(.)"?', lines[above].strip(" \r\n")) if lines else None
    marks: Iterable[str] = ",;\t|"
    if said:  # Excel
        above, marks = above + 1, said[1]
    elif _ALL_QUOTED(lines[above].strip("\r\n") if lines else ""):  # R
        marks = " "
    tables = {mark: _split(lines[above:], mark, complete) for mark in marks}
    fitting = [mark for mark, rows in tables.items() if _extra(rows) is not None]
    if len(fitting) > 1:
        names = " or by ".join(_SEPARATORS[mark] for mark in fitting)
        raise DataError(
            f"{file}: all its rows can be parted by {names}; put quotation marks around the cells "
            "that hold the other one"
        )
    head = {mark: len(rows[0]) if rows else 0 for mark, rows in tables.items()}
    comma = head.get(",", 0) > 1
    mark = fitting[0] if fitting else "," if comma else max(head, key=lambda mark: head[mark])
    rows, extra = tables[mark], _extra(tables[mark]) or 0
    if above and not said and lines[above - 1].startswith("#") and rows:
        header = _split(lines[above - 1 : above], mark, True)[0]
        if len(header) > 1 and len(header) + extra == len(rows[0]):
            above, rows, extra = above - 1, [header, *rows], 0
    first = [row[0].strip() for row in rows[1:]]
    counted_on = first == [str(row) for row in range(1, len(rows))]
    trailing = extra == 1 and not any(row[-1].strip() for row in rows[1:]) and not counted_on
    style = _Style(mark, above, row_names=extra == 1 and not trailing, trailing=trailing)
    if not rows or (style.row_names and mark == ","):
        return style._replace(row_names=False)
    names = style.columns(rows[0])
    blank = frozenset(
        at
        for at, name in enumerate(names)
        if not name and len(rows) > 1 and not any(row[at : at + 1] != [""] for row in rows[1:])
    )
    header = lines[above].rstrip("\r\n").split(mark)
    spaced = mark != " " and len(header) > 1 and any(cell != cell.strip() for cell in header)
    notes = []
    if mark != ",":
        notes.append(f"the file is separated by {_SEPARATORS.get(mark, repr(mark))}")
    if any(line.startswith("#") for line in lines[:above]):
        notes.append(f"lines above the header that begin with # were left out: {listed(lines[:1])}")
    if style.row_names:
        notes.append("the header has no name for the first column, as in files of R")
    if spaced:
        notes.append("spaces around the cells of the file were left out")
    return style._replace(blank=blank, spaced=spaced, notes=tuple(notes))


def _split(lines: Iterable[str], mark: str, complete: bool) -> list[list[str]]:
    """Return the first rows that are not blank, parted by a mark."""
    reader = csv.reader(lines, delimiter=mark, skipinitialspace=mark != " ")
    try:
        rows = [row for row in islice(reader, 1000) if any(map(str.strip, row))]
    except csv.Error:  # refused when it is read
        return []
    return rows if complete or len(rows) < 2 else rows[:-1]


def _extra(rows: Sequence[Sequence[str]]) -> int | None:
    """Return how many cells each row has more than the header, 0 or 1; None if it is no table."""
    head = len(rows[0]) if rows else 0
    extra = {len(row) - head for row in rows[1:]} or {0}
    return min(extra) if head > 1 and extra in ({0}, {1}) else None


def _csv_pieces(
    file: Path, sample: str, text: io.TextIOWrapper, max_columns: int | None
) -> Iterator[Piece]:
    """Yield the pieces of a CSV file, at least one, which may have no rows."""
    complete = len(sample) < _SAMPLE
    sample += text.readline()
    style = _style_of(file, sample, complete)
    block = sample + text.read(_BLOCK) + text.readline()
    lines = io.StringIO(block, newline="")
    for _ in range(style.above):
        lines.readline()
    _, line, header = next(_rows(file, lines, style.above + 1, style), (0, 0, []))
    names = style.columns(header)
    width = len(names)
    kept = [at for at in range(width) if at not in style.blank]
    _check_header(file, [names[at] for at in kept], max_columns)

    def piece(lines: Lines, cells: list[str]) -> Piece:
        if style.spaced:
            cells = [cell.strip() for cell in cells]
        for at in style.blank:
            if any(cells[at::width]):
                row = next(row for row, cell in enumerate(cells[at::width]) if cell)
                raise DataError(
                    f"{file}, line {lines[row]}: {shown(cells[row * width + at])} is in a column "
                    "without a name; name it, or leave it empty"
                )
        columns = {names[at]: cells[at::width] for at in kept}
        index = pd.Index([names[at] for at in kept], dtype=object)
        frame = pd.DataFrame(columns, columns=index, dtype=object)
        return Piece(frame, lines, True, style.delimiter, notes=style.notes)

    block, rows_read = lines.read(), False
    while block:
        if cells := _plain_cells(block, width, style.delimiter):
            first, line, rows_read = line, line + len(cells) // width, True
            yield piece(range(first, line), cells)
        else:
            rows = _rows(file, chain(io.StringIO(block, newline=""), text), line, style, width)
            for begins, _, cells in rows:
                # One list of cells, not a list of rows, each of which Python's garbage collector
                # would look at.
                numbers, rows_read = [begins], True
                for begins, _, row in islice(rows, max(0, MAX_CELLS_AT_ONCE // width - 1)):
                    numbers.append(begins)
                    cells += row
                yield piece(np.asarray(numbers, dtype=np.int64), cells)
        block = text.read(_BLOCK) + text.readline()
    if not rows_read:
        yield piece(range(0), [])


def _plain_cells(block: str, width: int, delimiter: str) -> list[str] | None:
    """Return the cells of plain lines, ten times as fast as `_rows`; None if some are not plain."""
    if any(mark in block for mark in '"\0'):
        return None
    block = block.replace("\r\n", "\n").removesuffix("\n") + "\n"
    raw = np.frombuffer(block.encode(), dtype=np.uint8)
    ends = np.flatnonzero(raw == ord("\n"))
    # The length of a line, so more than that of its longest cell; no more than width if it is
    # blank.
    lengths = np.diff(ends, prepend=-1)
    separators = raw[(raw == ord(delimiter)) | (raw == ord("\n"))]
    if (
        "\r" in block
        or lengths.min() <= width
        or lengths.max() > csv.field_size_limit()
        or separators.size != width * ends.size
        or (separators[width - 1 :: width] != ord("\n")).any()
    ):
        return None
    return block[:-1].replace("\n", delimiter).split(delimiter)


def _rows(
    file: Path, text: Iterable[str], line: int, style: _Style, width: int | None = None
) -> Iterator[tuple[int, int, list[str]]]:
    """Yield the line, the next row's line, and the cells of rows that are not blank."""
    lines, before = _without_zeros(file, text, line), line - 1
    reader = csv.reader(
        lines, strict=True, delimiter=style.delimiter, skipinitialspace=style.spaced
    )
    try:
        for cells in reader:
            begins, line = line, before + reader.line_num + 1
            if not any(cells):  # separators alone
                continue
            if len(cells) != (width or len(cells)):
                raise DataError(
                    f"{file}, line {begins}: {counted(len(cells), 'cell')} where the header has "
                    f"{width}; complete the row (a truncated file?), quote cells that contain the "
                    "separator, or remove what stands above the header"
                )
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
                f"{file}, line {number}: there is a zero byte; the file is damaged or no text; "
                "of UTF-16 name the encoding, encoding='utf-16-le' (--encoding utf-16-le)"
            )
        yield line


def _check_header(file: Path, header: Sequence[str], max_columns: int | None) -> None:
    if not header:
        raise DataError(f"{file}: the file is empty; write a header and at least one row")
    _check_width(file, len(header), max_columns)
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise DataError(
            f"{file}, line 1: the column {shown(twice)} occurs twice; rename or remove one"
        )


def _check_width(file: Path, width: int, max_columns: int | None) -> None:
    if max_columns is not None and width > max_columns:
        raise DataError(
            f"{file}: {counted(width, 'column')} are more than the limit of {max_columns}; select "
            "some"
        )


def _typed(rows: Sequence[Sequence[Any]], names: Sequence[str]) -> pd.DataFrame:
    """Return cells of JSON or Excel as a frame; whole numbers stay exact beside missing ones."""
    columns = {}
    for name, *cells in zip(names, *rows, strict=True):
        column = pd.Series(cells, dtype=object)
        columns[name] = column if column.isna().any() else column.infer_objects()
    return pd.DataFrame(columns, columns=pd.Index(names, dtype=object))


def _read_json(file: Path, text: str, notes: tuple[str, ...]) -> Piece:
    """Read a list of objects, objects in lines, or columns."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(keys := dict(pairs)) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"{file}: an object has {twice!r} twice; remove one")
        return keys

    def parsed(text: str, line: int) -> Any:
        try:
            return json.loads(text, object_pairs_hook=unique)
        except RecursionError:
            raise DataError(f"{file}: it is nested too deeply; write a list of objects") from None
        except json.JSONDecodeError as error:
            raise DataError(
                f"{file}, line {line + error.lineno - 1}: this is not valid JSON ({error.msg}); "
                "write a list of objects, or an object a line"
            ) from None

    lines = None
    try:
        value = parsed(text, 1)
    except DataError:
        # An object a line.
        stated = [(at, line) for at, line in enumerate(text.split("\n"), 1) if line.strip()]
        if not all(line.lstrip().startswith("{") for _, line in stated) or not stated:
            raise
        value = [parsed(line, at) for at, line in stated]
        lines = np.array([at for at, _ in stated])
    if isinstance(value, dict) and value:
        tables = [name for name, part in value.items() if isinstance(part, list) and part]
        cells = [
            list(part.values())
            if isinstance(part, dict) and list(part) == list(map(str, range(len(part))))
            else part
            for part in value.values()
        ]
        if all(isinstance(part, list) and len(part) == len(cells[0]) for part in cells):
            value = [dict(zip(value, row, strict=True)) for row in zip(*cells, strict=True)]
        elif len(tables) == 1:  # beside what describes it
            rest = [name for name in value if name != tables[0]]
            notes = (*notes, f"the list {tables[0]!r} was read, and {listed(rest)} was not")
            value = value[tables[0]]
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise DataError(
            f"{file}: this JSON is no table; write a list of objects, such as "
            '[{"winner": "a", "loser": "b"}], an object a line, or lists of equal length by column'
        )
    names = list(dict.fromkeys(chain.from_iterable(value)))
    nested = [
        name for name in names if any(isinstance(row.get(name), dict | list) for row in value)
    ]
    kept = [name for name in names if name not in nested]
    if nested:
        what = f"the columns {listed(nested)} hold lists or objects"
        if len(kept) < 2:
            raise DataError(f"{file}: {what}; write a text or a number in each cell")
        notes = (*notes, f"{what}, and are not used")
    return Piece(
        _typed([[row.get(name) for name in kept] for row in value], kept), lines, notes=notes
    )


def _read_excel(file: Path, stream: IO[bytes], max_columns: int | None) -> Piece:
    """Read the first sheet of an Excel file."""
    try:
        with ZipFile(stream) as archive:
            check_decompressed(file, sum(entry.file_size for entry in archive.infolist()))
            names = archive.namelist()
    except BadZipFile as error:
        raise DataError(f"{file}: the file is damaged ({error}); save it again") from error
    if "xl/workbook.xml" not in names:
        raise DataError(
            f"{file}: this is an archive, of {listed(names, 3)}; unpack it, and give a file of it"
        )
    try:
        book = pd.ExcelFile(stream, engine="openpyxl")
    except ImportError as error:
        raise DataError(
            f"{file}: reading Excel needs openpyxl; install it with: pip install 'relpref[excel]' "
            "(or save the sheet as CSV)"
        ) from error
    except Exception as error:  # of many types, which all say that the file is damaged
        raise DataError(f"{file}: the Excel file is damaged ({error}); save it again") from error
    sheet, *rest = book.sheet_names
    cells = book.parse(sheet, header=None, dtype=object, keep_default_na=False, na_values=[""])
    cells = cells.where(cells.notna(), None).dropna(how="all").dropna(axis=1, how="all")
    lines = cells.index.to_numpy() + 1
    header, *rows = cells.to_numpy(dtype=object).tolist() or [[]]
    names = ["" if cell is None else str(cell).strip() for cell in header]
    _check_header(file, names, max_columns)
    notes = (f"the sheet {sheet!r} was read, and {listed(rest)} was not",) if rest else ()
    return Piece(_typed(rows, names), lines[1:], notes=notes)


def _read_parquet(
    file: Path, stream: IO[bytes], max_columns: int | None, *, at_once: bool
) -> Iterator[Piece]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise DataError(
            f"{file}: reading Parquet needs pyarrow; install it with: pip install "
            "'relpref[parquet]' (or save the table as CSV)"
        ) from error
    problem = "this is not a readable Parquet file"
    try:
        opened = parquet.ParquetFile(stream)
        rows, width = opened.metadata.num_rows, len(opened.schema_arrow.names)
        at_once = at_once or not rows
        # What is repeated takes no room in a Parquet file.
        check_decompressed(file, 8.0 * width * (rows if at_once else min(MAX_ROWS_AT_ONCE, rows)))
        _check_width(file, width, max_columns)
        problem, first = "the Parquet file is damaged", 0
        for batch in (
            [opened.read()] if at_once else opened.iter_batches(batch_size=MAX_ROWS_AT_ONCE)
        ):
            batch.validate(full=True)  # texts that are not UTF-8, which pandas would find later
            if at_once or batch.num_rows:
                frame = batch.to_pandas()
                if first and isinstance(frame.index, pd.RangeIndex):
                    frame.index = pd.RangeIndex(first, first + len(frame))
                yield Piece(frame, first=first)
                first += len(frame)
        if first != rows:
            raise ValueError(f"{first} of {rows} rows are there")
    except DataError:
        raise
    # A damaged file makes the decoder raise errors of many types; all of them mean the same to the
    # reader.
    except Exception as error:
        raise DataError(f"{file}: {problem} ({error}); write it again") from error
