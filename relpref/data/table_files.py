"""Tables in files: delimited text, JSON, Excel and Parquet, read as frames."""

import codecs
import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from shlex import quote
from typing import IO, Any, NamedTuple
from zipfile import ZipFile

import numpy as np
import pandas as pd

from relpref.data.arrays import Integers, Texts, counted, listed, shown
from relpref.errors import DataError
from relpref.files import check_decompressed, decompressed, reading
from relpref.limits import MAX_CELLS_AT_ONCE, MAX_ROWS_AT_ONCE

_BLOCK = 1 << 23  # bytes that are read together
_SAMPLE = 1 << 16  # characters that show how a file is separated
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars", " ": "spaces"}
_JSON = (".json", ".jsonl", ".ndjson")
_TEXTS = (".csv", ".tsv", ".txt", *_JSON)
SUFFIXES = (*_TEXTS, *(f"{suffix}.gz" for suffix in _TEXTS), ".xlsx", ".parquet")
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # begins like the next one
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_EMPTY = "{}: the file is empty; write a header and at least one row"
_NAME_IT = "save it as UTF-8, or name its encoding, such as encoding='cp1252' (--encoding cp1252)"
_not_utf8 = re.compile("[\udc80-\udcff]").search  # bytes that "surrogateescape" keeps
_all_quoted = re.compile(r'"[^"]*"( "[^"]*")+').fullmatch
_comments = re.compile(
    r"((#(?![,;\t|])[^\r\n]*|sep=[^\r\n]*)?(\r\n|\r|\n))*"
).match  # also blank lines
_space = re.compile(r"\s*").match

Lines = range | Integers


class Piece(NamedTuple):
    """Rows of a file."""

    frame: pd.DataFrame
    lines: Lines | None = None  # line of the file on which each row begins; the header is line 1
    text: bool = False  # whether all cells are text, as in CSV
    separator: str = ","
    first: int = 0  # number of the first row
    notes: Texts = ()  # how the file was read, where that was not as usual


def suffix_of(path: str | PathLike[str]) -> str:
    """Return the ending of a file's name: ``.csv``, ``.csv.gz`` if it is compressed."""
    last = Path(path).suffix.lower()
    return (Path(path).with_suffix("").suffix.lower() if last == ".gz" else "") + last


def pieces_of(
    file: Path, encoding: str | None, max_columns: int | None, whole: bool, sheet: str | None = None
) -> Iterator[Piece]:
    """Read a file, whose first bytes say what it is, in pieces, at least one.

    Parameters
    ----------
    file : path
    encoding : str, optional
        Encoding of a text; see `_encoding_of` for the default.
    max_columns : int, optional
        Refuse wider tables.
    whole : bool
        Read Parquet at once.
    sheet : str, optional
        The sheet of an Excel file to read; by default the first.
    """
    with reading(file, "table"):
        opened = file.open("rb")
    with opened as stream, reading(file):
        head = stream.peek(8)
        if not head:
            raise DataError(_EMPTY.format(file))
        if suffix_of(file) == ".parquet" or head.startswith(b"PAR1"):
            yield from _read_parquet(file, stream, max_columns, at_once=whole)
        elif suffix_of(file) == ".xlsx" or head.startswith(b"PK\3\4"):
            yield _read_excel(file, stream, max_columns, sheet)
        elif sheet is not None:
            raise DataError(f"{file}: this is no Excel file; leave sheet= out")
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
            if suffix_of(file).removesuffix(".gz") in _JSON:
                yield _read_json(file, text.read(), notes)
            else:
                for piece in _read_csv(file, text, max_columns):
                    yield piece._replace(notes=(*notes, *piece.notes))
        except UnicodeDecodeError as error:
            offset = text.buffer.tell() - len(error.object) + error.start
            raise DataError(
                f"{file}: the byte {error.object[error.start]:#04x} at offset {offset} is not "
                f"{encoding.removesuffix('-sig')}; {_NAME_IT}"
            ) from error


def _encoding_of(file: Path, stream: IO[bytes], given: str | None) -> tuple[str, Texts]:
    """Find the encoding of a text, and a note if it is a guess.

    It is the one that is given or that a byte order mark says; otherwise UTF-8, or cp1252 where no
    character beyond ASCII is UTF-8.
    """
    if given is not None:
        try:
            name = codecs.lookup(given).name
        except LookupError:
            raise DataError(
                f"encoding: Python knows no encoding {given!r}; use 'utf-8', 'utf-16' or 'cp1252'"
            ) from None
        return "utf-8-sig" if name == "utf-8" else name, ()
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    beyond = set[str]()
    cells = dict[str, None]()
    size = 0
    for block in iter(lambda: stream.read(_BLOCK), b""):
        for mark, name in _MARKS.items():
            if not size and block.startswith(mark):
                return name, ()
        if b"\0" in block:
            raise DataError(
                f"{file}: there is a zero byte at offset {size + block.index(0)}; the file is "
                "damaged, or no text; if it is UTF-16, say so: encoding='utf-16-le' (--encoding "
                "utf-16-le)"
            )
        size += len(block)
        text = decoder.decode(block)
        if not text.isascii():
            beyond |= {char for char in set(text) if not char.isascii()}
        if _not_utf8(text):
            cells |= dict.fromkeys(filter(_not_utf8, re.split('[\n\r\t,;|"]', text)))
    if not cells:
        return "utf-8", ()
    guess = (cell.encode("utf-8", "surrogateescape").decode("cp1252", "replace") for cell in cells)
    examples = listed(islice(guess, 3))
    if not all(map(_not_utf8, beyond)):
        raise DataError(
            f"{file}: some cells are UTF-8, but not {examples} (as cp1252); if it is not "
            f"damaged, {_NAME_IT}"
        )
    note = f"the file is not UTF-8, and is read as cp1252: {examples}"
    return "cp1252", (f"{note}; if these are wrong, name its encoding in encoding=",)


class _Style(NamedTuple):
    """Form of a CSV file."""

    delimiter: str
    before: int  # cells that the header lacks at its beginning, as in files of R
    behind: int  # cells that the header lacks at its end: the rows end with a separator

    def columns(self, header: Sequence[str]) -> list[str]:
        """Return a name for each cell of a row; the first one may be empty."""
        names = [*[""] * self.before, *map(str.strip, header), *[""] * self.behind]
        return [name or (f"Unnamed: {at}" if at else "") for at, name in enumerate(names)]

    @property
    def notes(self) -> Texts:
        """Sentences about what is not usual."""
        sentences = {
            f"the file is separated by {_SEPARATORS[self.delimiter]}": self.delimiter != ",",
            "the header has no name for the first column, as in files of R": self.before,
        }
        return tuple(sentence for sentence, holds in sentences.items() if holds)


def _style_of(file: Path, sample: str, comment: str, *, complete: bool) -> _Style:
    """Find the separator that parts all rows alike; ``comment`` stands above the header."""
    head = sample.strip().partition("\n")[0].rstrip()
    if head.startswith("<"):
        raise DataError(
            f"{file}: it begins with a page (HTML or XML); begin with the names of the columns"
        )
    if re.match(r'\[\w+ "', head):
        raise DataError(
            f"{file}: these are games of chess in PGN; a table of them is written by "
            f"pandas.Series(pathlib.Path({str(file)!r}).read_text().split('[Event ')[1:])"
            """.str.extractall(r'\\[(White|Black|Result) "(.*)"]').droplevel(1)"""
            ".set_index(0, append=True)[1].unstack().to_csv('games.csv', index=False)"
        )
    tables = {}
    for mark in " " if _all_quoted(head) else ",;\t|":  # spaces are those of R
        reader = csv.reader(io.StringIO(sample, newline=""), delimiter=mark, skipinitialspace=True)
        try:
            rows = [row for row in islice(reader, 1000) if any(map(str.strip, row))]
        except csv.Error:  # refused when it is read
            rows = []
        tables[mark] = rows if complete or len(rows) < 3 else rows[:-1]
    width = {mark: len(rows[0]) if rows else 0 for mark, rows in tables.items()}
    more = {mark: {len(row) - width[mark] for row in rows[1:]} for mark, rows in tables.items()}
    fitting = [mark for mark in tables if width[mark] > 1 and more[mark] in (set(), {0}, {1})]
    if len(fitting) > 1:
        raise DataError(
            f"{file}: all rows can be parted by {' or by '.join(_SEPARATORS[m] for m in fitting)}; "
            "put quotation marks around the cells that hold the other one"
        )
    most = max(width, key=lambda mark: (mark == "," and width[mark] > 1, width[mark]))
    mark = fitting[0] if fitting else most
    rows = tables[mark]
    before = behind = 0
    cells = {cell for row in rows[1:] for cell in row}
    if width[mark] == len(comment.split(mark)) > 1 and cells.intersection(rows[0]):
        raise DataError(
            f"{file}: the comment {shown(comment)} may hold the names of the columns; remove the # "
            "before them, or the comment"
        )
    if fitting and more[mark] == {1}:
        numbered = [row[0] for row in rows[1:]] == [str(row) for row in range(1, len(rows))]
        blank = not any(row[-1].strip() for row in rows[1:])
        before, behind = (0, 1) if blank and not numbered else (int(mark != ","), 0)
    return _Style(mark, before, behind)


def _read_csv(file: Path, text: io.TextIOWrapper, max_columns: int | None) -> Iterator[Piece]:
    """Yield the pieces of a CSV file, at least one, which may have no rows."""
    sample = text.read(_SAMPLE)
    complete = len(sample) < _SAMPLE
    sample += text.readline()
    above = _comments(sample)[0]  # type: ignore[index]
    comments = re.split("\r\n|\r|\n", above)[:-1]
    sample = sample[len(above) :]
    style = _style_of(file, sample, "".join(comments[-1:]), complete=complete)
    skipped = len(comments)
    names = list[str]()
    line = 1 + skipped
    begins = list[int]()
    # One list of cells, not a list of rows, each of which Python's garbage collector would look at.
    cells: list[str] = []

    def piece() -> Piece:
        columns = {at: cells[at :: len(names)] for at in range(len(names))}
        frame = pd.DataFrame(columns, dtype=object).set_axis(pd.Index(names, dtype=object), axis=1)
        lines = np.array(begins, dtype=np.int64)
        return Piece(frame, lines, True, style.delimiter, notes=style.notes)

    reader = csv.reader(
        chain(io.StringIO(sample, newline=""), text),
        strict=True,
        delimiter=style.delimiter,
        skipinitialspace=True,
    )
    try:
        for row in reader:
            first = line
            line = reader.line_num + 1 + skipped
            if not any(row) and (names or len(row) != 1):  # blank, or separators alone
                continue
            if not names:
                names = style.columns(row)
                _check_header(file, names, max_columns)
                continue
            if len(row) != len(names):
                raise DataError(
                    f"{file}, line {first}: {counted(len(row), 'cell')} where the header has "
                    f"{len(names)}; complete the row (a truncated file?), quote cells that contain "
                    "the separator, or remove what stands above the header"
                )
            if len(cells) >= MAX_CELLS_AT_ONCE:
                yield piece()
                begins = []
                cells = []
            begins.append(first)
            cells += row
    except csv.Error as error:
        raise DataError(
            f"{file}, line {line}: the row that begins here is not valid CSV ({error}); "
            'check for a quotation mark that is not closed (inside a quoted cell, write "" for one)'
        ) from error
    if not names:
        raise DataError(_EMPTY.format(file))
    yield piece()


def _check_header(file: Path, header: Sequence[str], max_columns: int | None) -> None:
    if max_columns is not None and len(header) > max_columns:
        raise DataError(
            f"{file}: {counted(len(header), 'column')} are more than the limit of {max_columns}; "
            "select some"
        )


def _typed(rows: Sequence[Sequence[Any]], names: Sequence[str]) -> pd.DataFrame:
    """Return cells of JSON or Excel as a frame; whole numbers stay exact beside missing ones."""
    columns = {}
    for at, cells in enumerate(zip(*rows, strict=True)):
        column = pd.Series(cells, dtype=object)
        columns[at] = column if column.isna().any() else column.infer_objects()
    frame = pd.DataFrame(columns, columns=range(len(names)))
    return frame.set_axis(pd.Index(names, dtype=object), axis=1)


def _are_rows(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(row, dict) for row in value)


def _read_json(file: Path, text: str, notes: Texts) -> Piece:
    """Read a list of objects, objects one after the other, or columns."""
    decoder = json.JSONDecoder()
    values = []
    at = 0
    try:
        while (at := _space(text, at).end()) < len(text):  # type: ignore[union-attr]
            value, at = decoder.raw_decode(text, at)
            values.append(value)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file}: this is not valid JSON ({error}); write it again") from None
    lines = suffix_of(file).removesuffix(".gz") != ".json"
    value = values[0] if len(values) == 1 and not lines else values
    if isinstance(value, dict) and value:
        tables = {name: part for name, part in value.items() if part and _are_rows(part)}
        columns = [  # lists, or as pandas writes them, by the number of the row
            list(part.values())
            if isinstance(part, dict) and list(part) == list(map(str, range(len(part))))
            else part
            for part in value.values()
        ]
        if all(isinstance(part, list) and len(part) == len(columns[0]) for part in columns):
            value = [dict(zip(value, row, strict=True)) for row in zip(*columns, strict=True)]
        if len(tables) == 1:
            ((name, value),) = tables.items()
            notes = (*notes, f"of the object, only {name!r} was read")
    if not _are_rows(value):
        raise DataError(
            f"{file}: this JSON is no table; write a list of objects, such as "
            '[{"winner": "a", "loser": "b"}] (it may be the only list in an object), an object a '
            "line, or lists of equal length by column"
        )
    names = list(dict.fromkeys(chain.from_iterable(value)))
    kept = [
        name for name in names if not any(isinstance(row.get(name), dict | list) for row in value)
    ]
    if len(kept) < len(names):
        nested = listed(name for name in names if name not in kept)
        if len(kept) < 2:
            raise DataError(f"{file}: {nested} hold lists or objects; write a value in each cell")
        notes = (*notes, f"lists and objects are not used: {nested}")
    return Piece(_typed([[row.get(name) for name in kept] for row in value], kept), notes=notes)


def _read_excel(file: Path, stream: IO[bytes], max_columns: int | None, sheet: str | None) -> Piece:
    """Read a sheet of an Excel file."""
    try:
        with ZipFile(stream) as archive:
            check_decompressed(file, sum(entry.file_size for entry in archive.infolist()))
            names = archive.namelist()
        if not any(name.startswith("xl/") for name in names):
            what = "an OpenDocument table (.ods); save it as .xlsx or CSV"
            if "content.xml" not in names:
                what = f"an archive of {listed(names, 3)}; unpack it, and give a file of it"
            raise DataError(f"{file}: this is {what}")
        book = pd.ExcelFile(stream, engine="openpyxl")
    except DataError:
        raise
    except ImportError as error:
        raise DataError(
            f"{file}: reading Excel needs openpyxl; install it with: pip install 'relpref[excel]' "
            "(or save the sheet as CSV)"
        ) from error
    except Exception as error:  # of many types, which all mean the same to the reader
        raise DataError(
            f"{file}: this is not a readable Excel file ({error}); save it again"
        ) from error
    sheets = [*book.sheet_names]
    sheet = sheets[0] if sheet is None else sheet
    if sheet not in sheets:
        raise DataError(f"{file}: there is no sheet {sheet!r} among {listed(sheets)}; name another")
    sheets.remove(sheet)
    cells = pd.read_excel(
        book, sheet, header=None, dtype=object, keep_default_na=False, na_values=[""]
    )
    cells = cells.where(cells.notna(), None).dropna(how="all").dropna(axis=1, how="all")
    titled = (cells.notna().sum(axis=1) > 1).cummax()  # from the first row on that is no title
    cells = cells[titled] if titled.any() else cells
    lines = cells.index.to_numpy() + 1
    header, *rows = cells.to_numpy(dtype=object).tolist() or [[]]
    names = ["" if cell is None else str(cell).strip() for cell in header]
    _check_header(file, names, max_columns)
    notes = [
        f"the sheet {sheet!r} was read, and not {listed(sheets)}: sheet={name!r} "
        f"(--sheet {quote(name)})"
        for name in sheets[:1]
    ]
    notes += [f"the header is in row {row} of the sheet" for row in lines[:1] if row > 1]
    return Piece(_typed(rows, names), lines[1:], notes=tuple(notes))


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
        rows = opened.metadata.num_rows
        width = len(opened.schema_arrow.names)
        at_once = at_once or not rows
        # What is repeated takes no room in a Parquet file.
        check_decompressed(file, 8.0 * width * (rows if at_once else min(MAX_ROWS_AT_ONCE, rows)))
        _check_header(file, opened.schema_arrow.names, max_columns)
        problem = "the Parquet file is damaged"
        first = 0
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
