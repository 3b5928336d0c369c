"""Columns that describe items, as numbers: categories, dates, and what is missing."""

import datetime
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from relpref.data.arrays import (
    Array,
    Floats,
    Labels,
    Mask,
    Texts,
    counted,
    listed,
    nearest,
    read_only,
    shown,
)
from relpref.data.labels import Place
from relpref.data.tables import TRUTH, from_cells, from_text, is_blank, number, numbers
from relpref.errors import DataError
from relpref.limits import MAX_LEVELS, MAX_PAIRS_OF_LEVELS

_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?(Z|[+-]\d\d:?\d\d)?").fullmatch
_COMMAS = re.compile(r"\s*[+-]?[\d.]*,[\d.,]*\d\s*").fullmatch  # numbers with commas
# Dates as people write them, and the orders of day, month and year by their separator.
_WRITTEN = re.compile(
    r"(\d\d?([./-])\d\d?\2\d{4}|\d{4}([./])\d\d?\3\d\d?|\d\d([./-])\d\d\4\d\d)"
    r"([T ]\d\d?:\d\d(:\d\d)?)?"
).fullmatch
_ORDERS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d")
_DAYS_OF_YEAR = 365.2425
_MARK = " missing"
_SAME = "same_"


Kind = Literal["number", "date", "category", "empty"]


class Column(NamedTuple):
    """Cells of a column.

    They are float64, NaN where missing; those of categories are text, None where missing.
    """

    kind: Kind
    values: Array

    @property
    def missing(self) -> Mask:
        return np.asarray(pd.isna(self.values))


class Attributes(NamedTuple):
    """Columns as numbers, shape (n, d), and values that items share.

    These are by the name of their relation, None where one is missing.
    """

    names: Texts
    values: Floats
    shared: Mapping[str, Array]
    notes: Texts


class Known(NamedTuple):
    """The attributes of known items, with their means, and their relations."""

    names: Texts
    center: Floats
    relations: Collection[str]


def parsed(cells: Any, *, text: bool) -> Any:
    """Return the cells of a piece of a column as numbers if all are, to save memory."""
    values = from_text(cells.tolist()) if text else from_cells(cells)
    return cells if values is None or not np.isfinite(values).all() else values


def read_column(pieces: Labels, name: str, where: Place, *, text: bool, remedy: str) -> Column:
    """Read a column of numbers, dates or categories, of which each piece was `parsed`.

    Text is a category, unless at least half of the cells can be read as numbers: the others are
    slips then, and refused.
    """
    if all(isinstance(piece, np.ndarray) for piece in pieces):
        return Column("number", np.concatenate(pieces))
    column = pd.concat(
        [
            pd.Series(piece, dtype=object if isinstance(piece, np.ndarray) else None)
            for piece in pieces
        ],
        ignore_index=True,
    )
    categorical = isinstance(column.dtype, pd.CategoricalDtype)
    if categorical and column.cat.ordered:
        codes = column.cat.codes.to_numpy(np.float64)
        return Column("number", np.where(codes < 0, np.nan, codes))
    cells = column.tolist()
    missing = np.array([is_blank(cell, text) for cell in cells], dtype=bool)
    rows = np.flatnonzero(~missing)
    stated = [cells[row] for row in rows]
    if not stated:
        return Column("empty", np.full(len(cells), np.nan))

    def spread(values: Array, kind: Kind = "number") -> Column:
        blank = None if values.dtype == object else np.nan
        everywhere = np.full(missing.size, blank, dtype=values.dtype)
        everywhere[rows] = values
        return Column(kind, everywhere)

    if text and all(cell in TRUTH for cell in stated):
        return spread(np.array([TRUTH[cell] for cell in stated]))
    if all(isinstance(cell, datetime.timedelta) for cell in stated):
        return spread(np.array([pd.Timedelta(cell) / pd.Timedelta(days=1) for cell in stated]))
    dates = None if categorical else _years(stated, f"{where(int(rows[0]))}, column {name!r}")
    if dates is not None:
        return spread(dates, "date")
    if all(isinstance(cell, str) for cell in stated):
        readable = sum(
            number(cell, True) is not None or _COMMAS(cell) is not None for cell in stated
        )
        slips = readable >= len(stated) / 2 or (readable and not TRUTH.keys().isdisjoint(stated))
        if categorical or not slips:
            return spread(np.array(stated, dtype=object), "category")
        if not text:
            remedy = f"convert the column with astype(float) or astype('category'), or {remedy}"
    given = column.iloc[rows].infer_objects()
    if text:  # pieces that were numbers are so already
        given = given.map(str)
    values = numbers(given, name, lambda at: where(int(rows[at])), text=text, remedy=remedy)
    return spread(values)


def _years(cells: Labels, place: str) -> Floats | None:
    """Return dates as years; None unless all cells are dates, which must have one reading."""
    if all(isinstance(cell, datetime.date) for cell in cells):
        formats: Sequence[str | None] = (None,)
    elif not all(isinstance(cell, str) for cell in cells):
        return None
    else:
        cells = [cell.strip().replace("T", " ") for cell in cells]
        if all(map(_DATE, cells)):
            formats = ("ISO8601",)
        elif all(_DATE(cell) or _WRITTEN(cell) for cell in cells):
            formats = [order + time for time in ("", " %H:%M", " %H:%M:%S") for order in _ORDERS]
        else:
            return None
    readings: list[Any] = []
    for form in formats:
        try:
            stamps = pd.DatetimeIndex(pd.to_datetime(list(cells), utc=True, format=form))
        except ValueError:  # another order, or the 31st of February
            continue
        if not any(stamps.equals(other) for other in readings):
            readings.append(stamps)
    if len(readings) != 1 and len(formats) == 1:
        return None
    if len(readings) != 1:
        what = "may be the day or the month first" if readings else "are in no one order"
        raise DataError(
            f"{place}: the dates of the column, such as {shown(cells[0])}, {what}; write them as "
            "2024-12-31"
        )
    days = (readings[0] - pd.Timestamp("1970-01-01", tz="UTC")) / pd.Timedelta(days=1)
    return np.asarray(1970 + days / _DAYS_OF_YEAR, dtype=np.float64)


def encoded(columns: Mapping[str, Column], size: int) -> Attributes:
    """Return columns as numbers.

    A category of few levels becomes one column for each level (of two levels, for the second
    alone), one of many levels the relation of those with the same value. Missing numbers are set to
    the mean of the others, and a column marks them.
    """
    numeric: dict[str, Floats] = {}
    shared: dict[str, Array] = {}
    notes = []
    derived = []
    for name, column in columns.items():
        missing = column.missing
        if column.kind == "empty":
            notes.append(f"every value of {name!r} is missing, and it is not used")
            continue
        if column.kind == "category":
            derived += _encode_levels(name, column, numeric, shared, notes)
            continue
        if column.kind == "date":
            notes.append(f"{name!r} holds dates, which are read as years")
        numeric[name] = column.values
        if missing.any():
            center = column.values[~missing].mean()
            numeric[name] = np.where(missing, center, column.values)
            numeric[name + _MARK] = missing.astype(np.float64)
            derived.append(name + _MARK)
            of = f"{int(missing.sum())} of {counted(size, 'value')}"
            notes.append(
                f"{of} of {name!r} are missing: set to the mean, {center:.6g}, and marked by "
                f"{name + _MARK!r}"
            )
    for name in derived:
        if name in columns:
            raise DataError(
                f"items: the column {name!r} has the name of what marks another one; rename it"
            )
    values = np.stack(list(numeric.values()), axis=1) if numeric else np.zeros((size, 0))
    return Attributes(tuple(numeric), values, shared, tuple(notes))


def _encode_levels(
    name: str,
    column: Column,
    numeric: dict[str, Floats],
    shared: dict[str, Array],
    notes: list[str],
) -> list[str]:
    missing = column.missing
    stated = column.values[~missing]
    levels, sizes = np.unique(stated.astype(str), return_counts=True)
    number = counted(levels.size, "value")
    derived = []
    if levels.size == 1 and not missing.any():
        notes.append(f"{name!r} has the same value for every item, and it is not used")
    elif levels.size == stated.size:
        notes.append(f"{name!r} has another value for every item, and it is not used")
    elif levels.size <= MAX_LEVELS:
        kept = levels[1:] if levels.size == 2 and not missing.any() else levels
        derived = [f"{name}={level}" for level in kept]
        numeric |= {
            new: (column.values == level).astype(np.float64)
            for new, level in zip(derived, kept, strict=True)
        }
        notes.append(f"{name!r} has {number}, read as {listed(derived)}")
    elif float(np.square(sizes, dtype=np.float64).sum()) > MAX_PAIRS_OF_LEVELS:
        notes.append(
            f"{name!r} has {number}, each shared by too many items to link these; it is not used"
        )
    else:
        relation = _relation_of(name)
        shared[relation] = _shared(name, column)
        notes.append(
            f"{name!r} has {number}; items with the same one are linked in the relation "
            f"{relation!r}"
        )
    return derived


def given_columns(names: Iterable[str]) -> list[str]:
    """Return the columns of a table of items that became the attributes ``names``."""
    return list(dict.fromkeys(name.partition("=")[0].removesuffix(_MARK) for name in names))


def _relation_of(name: str) -> str:
    """Return the relation of items that share a value of a column."""
    return _SAME + re.sub(r"\W", "_", name)


def _shared(name: str, column: Column) -> Array:
    cells = zip(column.values, column.missing, strict=True)
    return np.array([None if gone else f"{name}={value}" for value, gone in cells])


def aligned(columns: Mapping[str, Column], known: Known, size: int) -> Attributes:
    """Return columns of new items as the attributes of the known ones, see `encoded`.

    Missing values are replaced by the mean.
    """
    names = known.names
    values = np.zeros((size, len(names)))
    used = set()
    notes = []
    for position, name in enumerate(names):
        marked = name.removesuffix(_MARK)
        of = next((given for given in columns if name.startswith(f"{given}=")), None)
        if name in columns:
            column = columns[name]
            if column.kind == "category":
                raise DataError(
                    f"items, column {name!r}: the new items have text where the known items have "
                    "numbers; correct it"
                )
            values[:, position] = np.where(column.missing, known.center[position], column.values)
            used.add(name)
        elif marked != name and marked in columns:
            values[:, position] = columns[marked].missing
        elif of is not None:
            values[:, position] = columns[of].values == name.removeprefix(f"{of}=")
            if of not in used:
                notes += _unknown_levels(of, columns[of], names)
            used.add(of)
        elif not (marked != name and marked in names):
            meant = nearest(name, [given for given in columns if given not in names], most=1)
            hint = f" (or is {meant[0]!r} meant to be it?)" if meant else ""
            raise DataError(
                f"items: the new items lack the attribute {name!r}{hint}; give a DataFrame with "
                f"the columns {listed(names)}"
            )
    shared = {}
    for name, column in columns.items():
        if name in used:
            continue
        if (relation := _relation_of(name)) in known.relations:
            shared[relation] = _shared(name, column)
        elif column.kind in ("category", "empty"):
            notes.append(f"the column {name!r} of the new items is not used")
        else:
            attributes = (
                f"only {listed(names)} are known" if names else "the known items have no attributes"
            )
            raise DataError(
                f"items: the new items have the attribute {name!r}, but {attributes}; drop it"
            )
    return Attributes(tuple(names), values, shared, tuple(notes))


def _unknown_levels(name: str, column: Column, names: Sequence[str]) -> list[str]:
    """Return a note on categories of new items that no known item has.

    The first of two known ones has no attribute, so one new category may be that.
    """
    levels = sorted({str(value) for value in column.values[~column.missing]})
    unknown = [level for level in levels if f"{name}={level}" not in names]
    if len(unknown) <= (sum(attribute.startswith(f"{name}=") for attribute in names) == 1):
        return []
    what = "is a category" if len(unknown) == 1 else "are categories"
    note = f"{listed(unknown)} {what} of {name!r} that no known item has: read as none of the known"
    return [f"{note} ones"]


def linked(values: Array, labels: Labels) -> pd.DataFrame | None:
    """Return links from items to the values that they share; None if there are none."""
    rows = [row for row, value in enumerate(values) if value is not None]
    if not rows:
        return None
    ends = {"source": [labels[row] for row in rows], "target": [values[row] for row in rows]}
    return pd.DataFrame(ends, dtype=object)


def standardization(attributes: Floats) -> tuple[Floats, Floats]:
    """Return the mean and the population standard deviation of each column."""
    if attributes.shape[1] == 0:
        return read_only(np.zeros(0)), read_only(np.ones(0))
    constant = attributes.max(axis=0) == attributes.min(axis=0)
    center = np.where(constant, attributes[0], attributes.mean(axis=0))
    # Deviations are divided by the largest before they are squared: no overflow, no underflow.
    deviation = attributes - center
    largest = np.abs(deviation).max(axis=0)
    largest = np.where(constant | (largest == 0), 1.0, largest)
    scale = np.where(constant, 1.0, np.sqrt(np.mean((deviation / largest) ** 2, axis=0)) * largest)
    return read_only(center), read_only(np.where(scale > 0, scale, 1.0))
