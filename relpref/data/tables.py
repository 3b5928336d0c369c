"""Data frames that know where their rows come from, read from files and cell by cell, with every unusable cell refused by name."""

import csv
import io
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from numbers import Real
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import counted, did_you_mean, listed, nearest, shown
from relpref.data.labels import Place, is_missing, plain_labels
from relpref.errors import DataError
from relpref.files import check_decompressed, decompressed, reading
from relpref.limits import MAX_CELLS_AT_ONCE, MAX_ROWS_AT_ONCE

_BLOCK = 1 << 23  # characters that are read together
_INT32_MAX = int(np.iinfo(np.int32).max)
_TRUTH = {"True": 1.0, "true": 1.0, "TRUE": 1.0, "False": 0.0, "false": 0.0, "FALSE": 0.0}
_MISSING = frozenset({"", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "<NA>"})

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
        What the columns were called before they were renamed.
    first : int
        Number of the first row where this is a piece of a larger table.
    opening : Table, optional
        The first row of the file where this is a later piece of it.
    """

    frame: Any
    name: str
    lines: Lines | None = None
    text: bool = False
    given: Mapping[Any, str] = field(default_factory=dict)
    first: int = 0
    opening: "Table | None" = None

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

    def refuse(
        self, column: Hashable, wrong: NDArray[np.bool_], reason: str | Callable[[int], str], rows: Any = None
    ) -> None:
        """Raise a `DataError` for the first wrong cell in all or some rows; the reason may depend on the row."""
        if wrong.any():
            row = int(wrong.argmax()) if rows is None else int(rows[wrong.argmax()])
            reason = reason if isinstance(reason, str) else reason(row)
            raise DataError(f"{self.cell(column)(row)}: {shown(self.frame[column].tolist()[row])}{reason}")

    def blank(self, column: Hashable) -> NDArray[np.bool_]:
        """Which cells of a column are empty or missing."""
        cells = self.frame[column]
        if isinstance(cells.dtype, np.dtype) and cells.dtype.kind in "fiub":
            return np.asarray(cells.isna(), dtype=bool)
        empty = (not cell.strip() if self.text else is_missing(cell) or cell == "" for cell in cells.tolist())
        return np.fromiter(empty, dtype=bool, count=len(cells))

    def labels(self, column: Hashable, rows: Any = None) -> list[Any]:
        """Return the labels in all or some cells of a column, see `plain_labels`."""
        cells = self.frame[column]
        return plain_labels(cells if rows is None else cells.iloc[rows], self.cell(column, rows))

    def numbers(self, column: Hashable, remedy: str, rows: Any = None) -> NDArray[np.float64]:
        """Return the numbers in all or some cells of a column, see `numbers`."""
        cells, place = self.frame[column], self.place
        opening = None
        if rows is not None:
            cells, place = cells.iloc[rows].infer_objects(), lambda row: self.place(int(rows[row]))
        elif self.opening is not None:
            opening = replace(self.opening, name=self.name).place(0), self.opening.frame[column].iloc[0]
        return numbers(cells, self.called(column), place, text=self.text, remedy=remedy, opening=opening)

    def counts(self, column: Hashable, remedy: str, rows: Any = None) -> NDArray[np.int64]:
        """Return positive whole numbers below 2**31 in all or some cells of a column."""
        values = self.numbers(column, remedy, rows)
        wrong = (values < 1) | (values != np.floor(values)) | (values > _INT32_MAX)
        self.refuse(column, wrong, f" is not a positive whole number up to {_INT32_MAX}; {remedy}", rows)
        return values.astype(np.int64)


def numbers(
    column: Any, name: str, where: Place, *, text: bool, remedy: str, opening: tuple[str, str] | None = None
) -> NDArray[np.float64]:
    """Return a column as finite floating point numbers, or refuse its first cell that is none.

    ``where`` maps a row to the words that name its place, ``text`` says that cells come from a CSV file. ``opening`` are place and
    content of the file's first cell where this is a later piece: true and false are numbers where all cells of a column are.
    """
    true_or_false = opening is None or opening[1] in _TRUTH
    if opening is not None and true_or_false and not column.isin(list(_TRUTH)).all():
        raise DataError(f"{opening[0]}, column {name!r}: {shown(opening[1])} is not a number; {remedy}")
    cells = column.tolist()
    values = _from_text(cells, true_or_false) if text else _from_cells(column)
    if values is not None and np.isfinite(values).all():
        return values
    for row, cell in enumerate(cells):
        value = _number(cell, text)
        missing = cell.strip() in _MISSING if text else pd.api.types.is_scalar(cell) and pd.isna(cell)
        if not missing and value is not None and np.isfinite(value):
            continue
        here = f"{where(row)}, column {name!r}"
        if missing:
            raise DataError(f"{here}: the value is missing ({shown(cell)}); fill it in, or drop the row")
        if value is None:
            raise DataError(f"{here}: {shown(cell)} is not a number; {remedy}")
        raise DataError(f"{here}: {shown(cell)} is not finite; replace it by a finite number or drop the row")
    raise DataError(f"{where(0)}, column {name!r}: the type {column.dtype} is not a number; {remedy}")


def _from_text(cells: list[str], true_or_false: bool) -> NDArray[np.float64] | None:
    if cells and true_or_false and all(cell in _TRUTH for cell in cells):
        return np.asarray([_TRUTH[cell] for cell in cells])
    # Python reads 1_5 as 15; in a table it is a slip.
    if any("_" in cell for cell in cells):
        return None
    try:
        # Through Python's float, which rounds correctly.
        return np.asarray(list(map(float, cells)), dtype=np.float64)
    except ValueError:
        return None


def _from_cells(column: Any) -> NDArray[np.float64] | None:
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        dtype = dtype.categories.dtype
    if not isinstance(dtype, np.dtype):
        dtype = getattr(dtype, "numpy_dtype", getattr(dtype, "subtype", None))
    if not isinstance(dtype, np.dtype) or dtype.kind not in "fiubO" or column.isna().any():
        return None
    if dtype.kind == "O" and not all(isinstance(cell, Real | np.bool_) for cell in column.tolist()):
        return None
    try:
        return np.array(column, dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        return None


def _number(cell: Any, text: bool) -> float | None:
    """One cell among others that are not all true or false; None where it is no number."""
    if "_" in cell if text else not isinstance(cell, Real | np.bool_):
        return None
    try:
        return float(cell)
    except ValueError:
        return None
    except OverflowError:
        return np.inf


def as_table(value: Any, name: str) -> Table:
    """Return a `Table` for a DataFrame of pandas or another library, a list of rows, or columns by name (or a `Table`, unchanged)."""
    if isinstance(value, Table):
        return value
    if isinstance(value, Mapping) or (
        isinstance(value, list | tuple) and value and isinstance(value[0], Mapping)
    ):
        try:
            value = pd.DataFrame(value)
        except ValueError as error:
            raise DataError(f"{name}: this is no table ({error}); give columns of equal length") from None
    elif hasattr(value, "to_pandas"):  # Polars, Arrow
        value = value.to_pandas()
    if isinstance(value, pd.DataFrame):
        return Table(value, name)
    raise DataError(f"{name}: expected a table, got {type(value).__name__}; build a pandas DataFrame")


def renamed(table: Table, columns: Mapping[str, str] | None) -> Table:
    """Give columns the names by which they are known here."""
    there, names = list(table.frame.columns), columns or {}
    for ours, theirs in names.items():
        if theirs not in there:
            hint = did_you_mean(theirs, there, f"it has {listed(there)}")
            raise DataError(
                f"columns: {ours!r} is to be {theirs!r}, but {table.name} has no such column; {hint}"
            )
        if ours != theirs and ours in there and ours not in names.values():
            raise DataError(
                f"columns: {ours!r} is to be {theirs!r}, but there is a column {ours!r}, too; rename that"
            )
    back = {theirs: ours for ours, theirs in names.items()}
    return replace(table, frame=table.frame.rename(columns=back), given=dict(names)) if back else table


def check_columns(table: Table, required: tuple[str, ...], optional: tuple[str, ...]) -> None:
    """Refuse a table that lacks a required column, has one twice, or has one that would be ignored."""
    columns = list(table.frame.columns)
    allowed = required + optional
    extra = [column for column in columns if column not in allowed]
    for wanted in required:
        if wanted in columns:
            continue
        meant = nearest(wanted, extra, most=1)
        if wanted in [name for name in table.frame.index.names if name is not None]:
            hint = "it is in the index: call reset_index() first"
        elif meant:
            hint = f"did you mean {wanted!r} where it says {shown(meant[0])}? Rename that column"
        else:
            hint = f"name a column {wanted!r}"
        raise DataError(f"{table.name}: there is no column {wanted!r} among {listed(columns)}; {hint}")
    for column in extra:
        reason = did_you_mean(column, [name for name in optional if name not in columns], "remove it")
        if column == "" or str(column).startswith("Unnamed: "):
            reason = "it has no name; if it is an index, save the table with index=False, otherwise name or remove it"
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

    CSV is read strictly: UTF-8 (a byte order mark is accepted), separated by commas, a header line, the same number of cells in
    every row. Cells stay text, so that labels such as ``NA`` or ``007`` survive.

    Parameters
    ----------
    path : path
        File whose name ends in ``.csv``, ``.csv.gz`` or ``.parquet``.
    max_columns : int, optional
        Refuse wider tables before reading their rows.

    Raises
    ------
    DataError
        If the file is missing, a directory, empty, damaged, of another kind, or too wide.
    """
    pieces = list(read_pieces(path, max_columns=max_columns, whole=True))
    if len(pieces) == 1:
        return pieces[0]
    frame = pd.concat([piece.frame for piece in pieces], ignore_index=True)
    lines = np.concatenate([np.asarray(piece.lines, dtype=np.int64) for piece in pieces])
    return Table(frame, pieces[0].name, lines, text=True)


def read_pieces(
    path: str | os.PathLike[str], *, max_columns: int | None = None, whole: bool = False
) -> Iterator[Table]:
    """Read a CSV or Parquet file in pieces, see `read_table`; Parquet in one where it is wanted as a whole."""
    file, suffix = Path(path), suffix_of(path)
    if suffix not in SUFFIXES:
        raise DataError(
            f"{file}: tables are read from files ending in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, "
            f"not {suffix or 'no ending'!r}; convert or rename the file"
        )
    with reading(file, "table"):
        opened = file.open("rb")
    with opened as stream, reading(file):
        if suffix == ".parquet":
            yield from _read_parquet(file, stream, max_columns, whole=whole)
            return
        content = decompressed(file, stream) if suffix == ".csv.gz" else stream
        with io.TextIOWrapper(content, encoding="utf-8-sig", newline="") as text:
            opening = None
            for lines, frame in _csv_frames(file, text, max_columns):
                table = Table(frame, str(file), lines, text=True, opening=opening)
                opening = opening or replace(table, frame=frame.iloc[:1].copy(), lines=lines[:1])
                yield table


def _csv_frames(
    file: Path, text: io.TextIOWrapper, max_columns: int | None
) -> Iterator[tuple[Lines, pd.DataFrame]]:
    """Lines and cells of the pieces of a CSV file, at least one (which has no rows where there is only a header)."""

    def frame(cells: list[str]) -> pd.DataFrame:
        columns = {name: cells[column :: len(header)] for column, name in enumerate(header)}
        return pd.DataFrame(columns, columns=pd.Index(header, dtype=object), dtype=object)

    line, rows_found = 1, False
    try:
        _, line, header = next(_rows(file, text, line), (0, 0, []))
        _check_header(file, header, max_columns)
        width = len(header)
        while block := text.read(_BLOCK):
            block += text.readline()
            if cells := _plain_cells(block, width):
                first, line, rows_found = line, line + len(cells) // width, True
                yield range(first, line), frame(cells)
                continue
            rows = _rows(file, chain(io.StringIO(block, newline=""), text), line, width)
            for begins, _, cells in rows:
                # One list of cells, not a list of rows, each of which Python's garbage collector would look at.
                lines, rows_found = [begins], True
                for begins, _, row in islice(rows, max(0, MAX_CELLS_AT_ONCE // width - 1)):
                    lines.append(begins)
                    cells += row
                yield np.asarray(lines, dtype=np.int64), frame(cells)
    except UnicodeDecodeError as error:
        offset = text.buffer.tell() - len(error.object) + error.start  # type: ignore[attr-defined]
        raise DataError(
            f"{file}: the byte {error.object[error.start]:#04x} at offset {offset} is not UTF-8; "
            "save it again as comma-separated UTF-8 text (it may be UTF-16)"
        ) from error
    if not rows_found:
        yield range(0), frame([])


def _plain_cells(block: str, width: int) -> list[str] | None:
    """Cells of whole lines that are plain rows, ten times as fast as by the reader of rows; None if some are not."""
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
    return block[:-1].replace("\n", ",").split(",")


def _rows(
    file: Path, text: Iterable[str], line: int, width: int | None = None
) -> Iterator[tuple[int, int, list[str]]]:
    """Rows that are not blank of a text that begins on a line: their line, that of the next row, and their cells."""
    reader, before = csv.reader(_without_zeros(file, text, line), strict=True), line - 1
    try:
        for cells in reader:
            begins, line = line, before + reader.line_num + 1
            if cells and len(cells) != (width or len(cells)):
                raise DataError(
                    f"{file}, line {begins}: {counted(len(cells), 'cell')} where the header has {width}; "
                    "complete the row (a truncated file?) or quote cells that contain commas"
                )
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
        raise DataError(f"{file}, line 1: the header {shown(header[0])} has no comma; separate by commas")
    _check_width(file, len(header), max_columns)
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise DataError(f"{file}, line 1: the column {shown(twice)} occurs twice; rename or remove one")


def _check_width(file: Path, width: int, max_columns: int | None) -> None:
    if max_columns is not None and width > max_columns:
        raise DataError(
            f"{file}: {counted(width, 'column')} are more than the limit of {max_columns}; select some"
        )


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
    problem = "this is not a readable Parquet file"
    try:
        opened = parquet.ParquetFile(stream)
        rows, width = opened.metadata.num_rows, len(opened.schema_arrow.names)
        whole = whole or not rows
        # What is repeated takes no room in a Parquet file.
        check_decompressed(file, 8.0 * width * (rows if whole else min(MAX_ROWS_AT_ONCE, rows)))
        _check_width(file, width, max_columns)
        problem, first = "the Parquet file is damaged", 0
        for batch in [opened.read()] if whole else opened.iter_batches(batch_size=MAX_ROWS_AT_ONCE):
            if whole or batch.num_rows:
                frame = batch.to_pandas()
                if first and isinstance(frame.index, pd.RangeIndex):
                    frame.index = pd.RangeIndex(first, first + len(frame))
                yield Table(frame, str(file), first=first)
                first += len(frame)
    except DataError:
        raise
    # A damaged file makes the decoder raise errors of many types; all of them mean the same to the reader.
    except Exception as error:
        raise DataError(f"{file}: {problem} ({error}); write it again") from error
