"""Data frames that know where their rows come from; unusable cells are refused by name."""

import os
import re
from collections.abc import Callable, Collection, Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from shlex import quote
from typing import Any, Self, TypeVar

import numpy as np
import pandas as pd

from relpref.data.arrays import (
    Columns,
    Floats,
    Integers,
    Mask,
    Texts,
    did_you_mean,
    listed,
    nearest,
    refuse_first,
    shown,
)
from relpref.data.labels import Place, is_missing, read_labels, trimmed
from relpref.data.table_files import Lines, Piece, pieces_of
from relpref.errors import DataError
from relpref.files import FilePath

_INT32_MAX = int(np.iinfo(np.int32).max)
TRUTH = {"True": 1.0, "true": 1.0, "TRUE": 1.0, "False": 0.0, "false": 0.0, "FALSE": 0.0}
MISSING = frozenset({"", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "<NA>"})

ROWS_LOOKED_AT = 10_000  # for the words of an error
_SLIP = 0.8  # similarity from which on a name is most likely a slip of the pen
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+\s*").fullmatch
_DECIMAL_POINT = re.compile(r"\s*[+-]?\d*\.\d+\s*").fullmatch
# Either thousands or a number with three decimals.
_IN_DOUBT = re.compile(r"\s*[+-]?[1-9]\d{0,2}([.,]\d{3})+\s*").fullmatch


@dataclass(frozen=True, eq=False)
class Table:
    """A data frame that knows where its rows come from."""

    frame: Any
    name: str  # what to call the table in messages: a file or an argument
    lines: Lines | None = None  # line of the file on which each row begins; the header is line 1
    # Whether cells come from a CSV file, and are read as numbers where these are expected.
    text: bool = False
    given: Mapping[Any, str] = field(
        default_factory=dict
    )  # what columns were called before they were renamed
    first: int = 0  # number of the first row where this is a piece of a larger table
    decimal: str = "."  # mark in text; "" where numbers such as 1.234 are in doubt
    notes: Texts = ()  # how the file was read, where that was not as usual
    rows: Any = None  # numbers of the rows as they were given, where these were made of them
    known: Container[Any] = ()  # labels that are read as they are, see `read_labels`
    recognized: bool = False  # whether its columns have been given the names of a form of answers
    # Whether its column ``list`` joins the pairs of neighboring blocks of a list.
    neighbors: bool = False
    blanks: set[str] = field(default_factory=set)  # labels read so far that had blanks around them
    # Labels of the columns read so far, and the frame that they are of.
    cached: dict[Any, tuple[Any, list[Any]]] = field(default_factory=dict)

    @property
    def columns(self) -> list[Any]:
        """Names of the columns."""
        return list(self.frame.columns)

    @property
    def place(self) -> Place:
        """Maps a row (from 0) to the words that name it in messages; does not hold the cells."""
        name = self.name
        lines = self.lines
        first = self.first
        index = self.frame.index
        if lines is not None:
            return lambda row: f"{name}, line {lines[row]}"
        rows = self.rows
        return lambda row: (
            f"{name}, row {first + (row if rows is None else int(rows[row]))} (index label "
            f"{shown(index[row])})"
        )

    def take(self, rows: Integers) -> Self:
        """Return some rows, in this order, which keep their places in messages."""
        if np.array_equal(rows, np.arange(len(self.frame))):
            return self
        return replace(
            self,
            frame=self.frame.iloc[rows],
            lines=None if self.lines is None else np.asarray(self.lines)[rows],
            rows=rows if self.rows is None else np.asarray(self.rows)[rows],
        )

    def without(self, columns: Collection[Any]) -> Self:
        """Return the table without some columns."""
        return replace(self, frame=self.frame.drop(columns=[*columns]))

    def rename(self, names: Mapping[Any, str]) -> Self:
        """Return the table with other names of columns; messages keep those that were given."""
        given = {ours: self.called(theirs) for theirs, ours in names.items()}
        return replace(self, frame=self.frame.rename(columns=names), given={**self.given, **given})

    def assign(self, **columns: Any) -> Self:
        """Return the table with these columns, whose cells are text if those of others are."""
        if self.text:
            columns = {
                name: ["" if is_missing(cell) else str(cell) for cell in cells]
                for name, cells in columns.items()
            }
        return replace(self, frame=self.frame.assign(**columns))

    def noted(self, *notes: str) -> Self:
        """Return the table with more notes."""
        return replace(self, notes=(*self.notes, *notes))

    def called(self, column: Hashable) -> Any:
        """Return the name that a column was given."""
        return self.given.get(column, column)

    def cell(self, column: Hashable, rows: Any = None) -> Place:
        """Maps a row, or one of some rows, to the words that name its cell in a column."""
        place = self.place
        name = self.called(column)
        return lambda row: f"{place(row if rows is None else int(rows[row]))}, column {name!r}"

    def refuse(
        self, column: Hashable, wrong: Mask, reason: str | Callable[[int], str], rows: Any = None
    ) -> None:
        """Raise a `DataError` for the first wrong cell; the reason may depend on the row."""
        if wrong.any():
            row = int(wrong.argmax()) if rows is None else int(rows[wrong.argmax()])
            reason = reason if isinstance(reason, str) else reason(row)
            raise DataError(
                f"{self.cell(column)(row)}: {shown(self.frame[column].tolist()[row])}{reason}"
            )

    def blank(self, column: Hashable) -> Mask:
        """Return a mask of the cells of a column that are empty or missing."""
        cells = self.frame[column]
        if isinstance(cells.dtype, np.dtype) and cells.dtype.kind in "fiub":
            return np.asarray(cells.isna(), dtype=bool)
        empty = (
            not cell.strip() if self.text else is_missing(cell) or cell == ""
            for cell in cells.tolist()
        )
        return np.fromiter(empty, dtype=bool, count=len(cells))

    def refuse_blank(self, column: Hashable, reason: str) -> None:
        """Raise a `DataError` for the first blank cell of a column."""
        place = self.cell(column)
        refuse_first(self.blank(column), lambda row: f"{place(row)}: {reason}")

    def labels(self, column: Hashable, rows: Any = None) -> list[Any]:
        """Return the labels in all or some cells of a column, see `read_labels`."""
        cells = self.frame[column]
        if rows is not None:
            return read_labels(cells.iloc[rows], self.cell(column, rows), self.known, self.blanks)
        frame, labels = self.cached.get(column, (None, []))
        if frame is not self.frame:
            labels = read_labels(cells, self.cell(column), self.known, self.blanks)
            self.cached[column] = self.frame, labels
        return labels

    def numbers(self, column: Hashable, remedy: str, rows: Any = None) -> Floats:
        """Return the numbers in all or some cells of a column, see `numbers`."""
        cells = self.points(self.frame[column])
        place = self.place
        if rows is not None:
            cells = cells.iloc[rows].infer_objects()
            place = lambda row: self.place(int(rows[row]))
        return numbers(cells, self.called(column), place, text=self.text, remedy=remedy)

    def truths(self, column: Hashable) -> Mask:
        """Return which cells of a column say true; 1 is true, and 0 is false."""
        remedy = "write true or false"
        cells = self.frame[column].tolist()
        if self.text and all(cell in TRUTH for cell in cells):
            return np.array([TRUTH[cell] == 1 for cell in cells], dtype=bool)
        values = self.numbers(column, remedy)
        self.refuse(column, ~np.isin(values, (0, 1)), f" is neither true nor false; {remedy}")
        return values == 1

    def check_marks(self, cells: Any, doubtful: Sequence[Callable[[str], Any]] = ()) -> None:
        """Refuse numbers such as 1.250 in a column: the mark may be decimal or between thousands.

        It may where other cells are whole numbers such as 980, or where ``doubtful`` matches.
        """
        distinct = {cell.strip() for cell in {*cells.tolist()} if isinstance(cell, str)}
        marked = {cell for cell in distinct if "." in cell or "," in cell}
        hundreds = any(cell.isdecimal() and int(cell) > 99 for cell in distinct)
        if hundreds and all(map(_IN_DOUBT, marked)):
            doubtful = (_IN_DOUBT,)
        if wrong := {cell for cell in marked if any(fits(cell) for fits in doubtful)}:
            mark = "," if "," in max(wrong) else "."
            self.refuse(
                cells.name,
                np.array([str(cell).strip() in wrong for cell in cells.tolist()]),
                ": the mark may be decimal or between thousands; write numbers without separators "
                "of thousands, and with one decimal mark throughout the file, or read it with "
                f"pandas.read_csv(file, sep=None, engine='python', thousands={mark!r}), or with "
                f"decimal={mark!r} instead",
            )

    def points(self, cells: Any) -> Any:
        """Return a column of numbers with decimal points; refuse those that have two readings."""
        if not self.text:
            return cells
        doubtful = {".": (), ",": (_DECIMAL_POINT,), "": (_IN_DOUBT, _DECIMAL_COMMA)}
        self.check_marks(cells, doubtful[self.decimal])
        if self.decimal != ",":
            return cells
        return cells.map(lambda cell: cell.replace(",", ".") if _DECIMAL_COMMA(cell) else cell)

    def counts(self, column: Hashable, remedy: str, rows: Any = None) -> Integers:
        """Return positive whole numbers below 2**31 in all or some cells of a column."""
        values = self.numbers(column, remedy, rows)
        wrong = (values < 1) | (values != np.floor(values)) | (values > _INT32_MAX)
        self.refuse(
            column, wrong, f" is not a positive whole number up to {_INT32_MAX}; {remedy}", rows
        )
        return values.astype(np.int64)


Kind = TypeVar("Kind", bound=Table)


def numbers(column: Any, name: str, where: Place, *, text: bool, remedy: str) -> Floats:
    """Return a column as finite floating point numbers, or refuse its first cell that is none.

    ``where`` maps a row to the words that name its place, ``text`` says that cells come from a CSV
    file.
    """
    cells = column.tolist()
    values = from_text(cells) if text else from_cells(column)
    if values is not None and np.isfinite(values).all():
        return values
    if not cells:
        return np.zeros(0)
    for row, cell in enumerate(cells):
        value = number(cell, text)
        if is_blank(cell, text):
            reason = f"the value is missing ({shown(cell)}); fill it in, or drop the row"
        elif value is None:
            reason = f"{shown(cell)} is not a number; {remedy}"
        elif not np.isfinite(value):
            reason = f"{shown(cell)} is not finite; replace it by a finite number or drop the row"
        else:
            continue
        raise DataError(f"{where(row)}, column {name!r}: {reason}")
    raise DataError(
        f"{where(0)}, column {name!r}: the type {column.dtype} is not a number; {remedy}"
    )


def is_blank(cell: Any, text: bool) -> bool:
    """Tell whether a cell is missing, or, in a file, a word that says so."""
    return cell.strip() in MISSING if text and isinstance(cell, str) else is_missing(cell)


def from_text(cells: list[str]) -> Floats | None:
    """Return the numbers in cells of a file; None if a cell is no number."""
    # Python reads 1_5 as 15; in a table it is a slip.
    if any("_" in cell for cell in cells):
        return None
    try:
        # Through Python's float, which rounds correctly.
        return np.asarray(list(map(float, cells)), dtype=np.float64)
    except ValueError:
        return None


def from_cells(column: Any) -> Floats | None:
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


def number(cell: Any, text: bool) -> float | None:
    """One cell among others that are not all true or false; None where it is no number."""
    if "_" in cell if text else not isinstance(cell, Real | np.bool_):
        return None
    try:
        return float(cell)
    except ValueError:
        return None
    except OverflowError:
        return np.inf


def is_table(value: Any) -> bool:
    """Whether `as_table` takes a value, and nothing else would."""
    rows = isinstance(value, list | tuple) and value and isinstance(value[0], Mapping)
    return bool(rows) or isinstance(value, Mapping | Table) or hasattr(type(value), "columns")


def as_table(value: Any, name: str) -> Table:
    """Return a `Table` for a file, a DataFrame of any library, a list of rows, or columns."""
    if isinstance(value, Table):
        return value
    if is_path(value):
        return read_table(value)
    if not is_table(value):
        raise DataError(
            f"{name}: expected a table, got {type(value).__name__}; build a pandas DataFrame "
            "(of a Series of counts: series.reset_index(name='count'))"
        )
    if not isinstance(value, list | tuple | Mapping | pd.DataFrame):
        value = _of_another_library(value, name)
    try:
        return Table(value if isinstance(value, pd.DataFrame) else pd.DataFrame(value), name)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{name}: this is no table ({error}); give columns of equal length"
        ) from None


def _of_another_library(value: Any, name: str) -> Any:
    """Return a frame of a library that narwhals knows in pandas or as columns by name."""
    import narwhals

    try:
        frame = narwhals.from_native(value)
    except TypeError:
        raise DataError(
            f"{name}: expected a table, got {type(value).__name__}; build a pandas DataFrame"
        ) from None
    if isinstance(frame, narwhals.LazyFrame):
        raise DataError(
            f"{name}: a {type(value).__name__} has no rows yet; compute them first, in Polars with "
            ".collect()"
        )
    if frame.implementation.is_pandas_like():
        return frame.to_pandas()
    categories = (narwhals.Categorical, narwhals.Enum)
    return {
        column.name: pd.Categorical(column.to_list())
        if column.dtype in categories
        else column.to_list()
        for column in frame.iter_columns()
    }


def renamed(table: Kind, columns: Mapping[str, str] | None) -> Kind:
    """Give columns the names by which they are known here."""
    columns_there = table.columns
    names = columns or {}
    for ours, theirs in names.items():
        if theirs not in columns_there:
            hint = did_you_mean(theirs, columns_there, f"it has {listed(columns_there)}")
            raise DataError(
                f"columns: {ours!r} is to be {theirs!r}, but {table.name} has no such column; "
                f"{hint}"
            )
    back = {theirs: ours for ours, theirs in names.items()}
    for ours, theirs in names.items():
        if back[theirs] != ours:
            raise DataError(
                f"columns: {theirs!r} is to be {ours!r} and {back[theirs]!r}; a column is one of "
                "them"
            )
        if ours in columns_there and ours not in back:  # another column of that name is not used
            back[ours] = f"other {ours}"
    return table.rename(back)


def known_names(table: Table, known: Collection[str]) -> Table:
    """Give columns the known names that differ in capitals and outer spaces alone, with a note."""
    columns = [column for column in table.columns if isinstance(column, str)]
    plain = [column.strip().lower() for column in columns]
    new = {
        column: name
        for column, name in zip(columns, plain, strict=True)
        if column != name and name in known and plain.count(name) == 1
    }
    if not new:
        return table
    note = f"{listed(new)} {'is' if len(new) == 1 else 'are'} read as {listed(new.values())}"
    return table.rename(new).noted(note)


def column_option(columns: Columns) -> str:
    """Return how a call and a command say what a table calls its columns."""
    option = ",".join(f"{ours}={theirs}" for ours, theirs in columns.items())
    return f"columns={dict(columns)!r} (--columns {quote(option)})"


def hold_one_set(table: Table, one: Any, other: Any) -> bool:
    """Tell whether two columns hold labels of one set, two in each row, by the first rows."""
    cells = [
        table.frame[column].iloc[:ROWS_LOOKED_AT].map(trimmed).tolist() for column in (one, other)
    ]
    rows = [
        row
        for row in zip(*cells, strict=True)
        if all(isinstance(cell, str) and cell for cell in row)
    ]
    first, second = ({row[end] for row in rows} for end in (0, 1))
    numeric = all(number(cell, True) is not None for cell in first | second)
    alike = 2 * len(first & second) >= min(len(first), len(second))
    return bool(rows) and alike and not numeric and all(label != other for label, other in rows)


def check_columns(
    table: Table,
    required: Texts,
    optional: Texts,
    known: Texts | None = None,
    fits: Callable[[str, Any], bool] | None = None,
) -> Texts:
    """Refuse a table that lacks a required column, has one twice, or has one that would be ignored.

    Where columns that have another meaning are ``known``, those that are neither one of them nor
    nearly the name of an allowed one are not refused, but named in the notes that are returned. Of
    columns that might be meant only those are suggested whose cells have what it takes: ``fits`` is
    asked about a required column and another.
    """
    columns = table.columns
    allowed = required + optional
    extra = [column for column in columns if column not in allowed]
    for needed in required:
        if needed in columns:
            continue
        fitting = extra if fits is None else [column for column in extra if fits(needed, column)]
        meant = nearest(needed, fitting, most=1)
        if needed in table.frame.index.names:
            hint = "it is in the index: call reset_index() first"
        elif meant:
            hint = f"did you mean {needed!r} where it says {shown(meant[0])}? Rename that column"
        else:
            hint = f"name a column {needed!r}"
            if fits is not None and fitting:
                named = {**table.given, needed: fitting[0]}
                hint += f", or say which one it is: {column_option(named)}"
        raise DataError(
            f"{table.name}: there is no column {needed!r} among {listed(columns)}; {hint}"
        )
    unused = []
    for column in extra:
        meant = nearest(column, allowed, most=1, cutoff=_SLIP)
        slip = meant and (fits is None or fits(meant[0], column))
        if known is not None and column not in known and not slip:
            unused.append(table.called(column))
            continue
        reason = did_you_mean(
            column, [name for name in optional if name not in columns], "remove it"
        )
        if column == "" or str(column).startswith("Unnamed: "):
            reason = (
                "it has no name; if it is an index, save the table with index=False, "
                "otherwise name or remove it"
            )
        raise DataError(
            f"{table.name}: the column {shown(column)} is not used (only {', '.join(allowed)} "
            f"are): {reason}"
        )
    check_repeats(table.name, columns)
    return (unused_note(unused),) if unused else ()


def check_repeats(name: str, columns: Any) -> None:
    """Refuse a table called ``name`` if two of its columns have the same name."""
    repeated = pd.Index(columns).duplicated()
    if repeated.any():
        twice = shown(columns[int(repeated.argmax())])
        raise DataError(f"{name}: the column {twice} occurs twice; rename or remove one")


def unused_note(columns: Collection[Any]) -> str:
    """Say that some columns of a table are not used."""
    single = len(columns) == 1
    return (
        f"the column{'' if single else 's'} {listed(columns)} {'is' if single else 'are'} not used"
    )


def is_path(value: Any) -> bool:
    """Tell whether a value names a file: a table is never a text."""
    return isinstance(value, str | os.PathLike)


def read_table(
    path: FilePath,
    *,
    max_columns: int | None = None,
    encoding: str | None = None,
    repeats: bool = False,
    sheet: str | None = None,
) -> Table:
    """Read a table from a file of text, JSON, Excel or Parquet.

    Text is read strictly: a header line, and the same number of cells in every row, separated by
    commas, semicolons, tabs or vertical bars, whichever parts all rows alike. Cells stay text, so
    that labels such as ``NA`` or ``007`` survive. JSON is a list of objects, an object a line, or
    lists by column. The file may be compressed (``.gz``).

    Parameters
    ----------
    path : path
        The file; its content says what it is.
    max_columns : int, optional
        Refuse wider tables before reading their rows.
    encoding : str, optional
        Encoding of a text, such as ``"cp1252"``. By default that of its byte order mark, or UTF-8,
        or cp1252 with a note where the text is not UTF-8.
    repeats : bool
        Whether two columns may have the same name.
    sheet : str, optional
        The sheet of an Excel file; by default the first.

    Raises
    ------
    DataError
        If the file is missing, a directory, empty, damaged, of another kind, or too wide.
    """
    pieces = [*read_pieces(path, max_columns, True, encoding, repeats, sheet)]
    table = pieces[0]
    if len(pieces) > 1:
        frame = pd.concat([piece.frame for piece in pieces], ignore_index=True)
        lines = np.concatenate([np.asarray(piece.lines) for piece in pieces])
        table = replace(table, frame=frame, lines=lines)
    unnamed = [name for name in table.columns if str(name).startswith("Unnamed: ")]
    return table.without([name for name in unnamed if table.blank(name).all()])


def read_pieces(
    path: FilePath,
    max_columns: int | None = None,
    whole: bool = False,
    encoding: str | None = None,
    repeats: bool = False,
    sheet: str | None = None,
) -> Iterator[Table]:
    """Read a file in pieces, see `read_table`; Parquet at once if asked."""
    file = Path(path)
    decimal = ""
    for number, piece in enumerate(pieces_of(file, encoding, max_columns, whole, sheet)):
        notes = () if number else piece.notes
        if not repeats:
            check_repeats(str(file), piece.frame.columns)
        if piece.text and not number:
            decimal = _decimal_of(piece)
            notes += ("the file has decimal commas",) if decimal == "," else ()
        frame = piece.frame if piece.text else piece.frame.apply(_pointed)
        yield Table(
            frame,
            str(file),
            piece.lines,
            text=piece.text,
            first=piece.first,
            decimal=decimal,
            notes=notes,
        )


def _pointed(column: pd.Series) -> pd.Series:
    """Return numbers for texts such as "3,50", where all cells are such texts or missing."""
    cells = column.dropna()
    if cells.empty or not pd.api.types.is_string_dtype(cells):
        return column
    plain = all(_DECIMAL_COMMA(cell) and not _IN_DOUBT(cell) for cell in cells)
    return column.str.replace(",", ".").astype(float) if plain else column


def _decimal_of(piece: Piece) -> str:
    """Return the decimal mark of a file; "" where it cannot be told."""
    cells = piece.frame.to_numpy().ravel().tolist()
    sure = {cell for cell in cells if ("," in cell or "." in cell) and not _IN_DOUBT(cell)}
    points = any(map(_DECIMAL_POINT, sure))
    if any(map(_DECIMAL_COMMA, sure)):
        return "" if points else ","
    return "." if points or piece.separator != ";" else ""
