"""Numbers from the columns of a table, with every unusable cell refused by name."""

from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import shown
from relpref.data.labels import Place
from relpref.errors import DataError

_TRUTH = {"True": 1.0, "true": 1.0, "TRUE": 1.0, "False": 0.0, "false": 0.0, "FALSE": 0.0}
_MISSING = frozenset({"", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "<NA>"})
_INT32_MAX = int(np.iinfo(np.int32).max)


def numbers(column: Any, name: str, where: Place, *, text: bool, remedy: str) -> NDArray[np.float64]:
    """Return a column as finite floating point numbers.

    Parameters
    ----------
    column : pandas.Series, length m
        Cells: numbers, booleans (0 and 1), or text if ``text`` is true.
    name : str
        Name of the column, for messages.
    where : callable
        Maps a row to the words that name its place.
    text : bool
        Whether cells are text to be read as numbers (they come from a CSV file).
    remedy : str
        What to do about a cell that is not a number.

    Returns
    -------
    array of float64, shape (m,)
        Finite numbers.

    Raises
    ------
    DataError
        At the first cell that is text, missing, infinite, complex or a date.
    """
    values = _from_text(column.tolist()) if text else _from_cells(column)
    if values is None or not np.isfinite(values).all():
        _refuse(column.tolist(), name, where, text=text, remedy=remedy)
        raise DataError(f"{where(0)}, column {name!r}: the type {column.dtype} is not a number; {remedy}")
    return values


class NumberColumn:
    """A column that arrives in pieces and is read as if it were whole, see `numbers`.

    Parameters
    ----------
    name : str
        Name of the column, for messages.
    text : bool
        Whether cells are text to be read as numbers.
    remedy : str
        What to do about a cell that is not a number.
    """

    def __init__(self, name: str, *, text: bool, remedy: str) -> None:
        self._name, self._text, self._remedy = name, text, remedy
        self._first: tuple[str, str] | None = None

    def read(self, column: Any, where: Place) -> NDArray[np.float64]:
        """Return the next piece as finite numbers; ``where`` maps its rows to their places."""
        how: Any = {"text": self._text, "remedy": self._remedy}
        if self._first is None:
            if self._text and len(column):
                self._first = where(0), column.iloc[0]
            return numbers(column, self._name, where, **how)
        # Whether true and false are numbers depends on all cells, of which the first one tells enough.
        place, cell = self._first
        whole = pd.concat([pd.Series([cell], dtype=object), column])
        return numbers(whole, self._name, lambda row: where(row - 1) if row else place, **how)[1:]


def _from_text(cells: list[str]) -> NDArray[np.float64] | None:
    if cells and all(cell in _TRUTH for cell in cells):
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
    if not isinstance(dtype, np.dtype) or dtype.kind not in "fiubO":
        return None
    if column.isna().any():
        return None
    if dtype.kind == "O" and not all(_is_number(cell) for cell in column.tolist()):
        return None
    try:
        return np.array(column, dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        return None


def _is_number(cell: Any) -> bool:
    return isinstance(cell, Real | np.bool_)


def _refuse(cells: list[Any], name: str, where: Place, *, text: bool, remedy: str) -> None:
    """Raise for the first cell that is not a finite number."""
    for row, cell in enumerate(cells):
        if text:
            missing, value = cell.strip() in _MISSING, _from_text([cell]) if cell not in _TRUTH else None
        else:
            missing = bool(pd.api.types.is_scalar(cell) and pd.isna(cell))
            value = _number(cell)
        if missing:
            raise DataError(
                f"{where(row)}, column {name!r}: the value is missing ({shown(cell)}); "
                "fill it in, or drop the row or the column"
            )
        if value is None:
            raise DataError(f"{where(row)}, column {name!r}: {shown(cell)} is not a number; {remedy}")
        if not np.isfinite(value).all():
            raise DataError(
                f"{where(row)}, column {name!r}: {shown(cell)} is not finite; replace it by a finite number or drop the row"
            )


def _number(cell: Any) -> NDArray[np.float64] | None:
    if not _is_number(cell):
        return None
    try:
        return np.asarray([float(cell)])
    except OverflowError:
        return np.asarray([np.inf])


def counts(
    column: Any,
    name: str,
    where: Place,
    *,
    text: bool,
    remedy: str = "write how often the answer was given: 1, 2, 3, ...",
) -> NDArray[np.int64]:
    """Return a column of positive whole numbers.

    Parameters
    ----------
    column : pandas.Series, length m
        Cells; ``2.0`` is read as 2.
    name : str
        Name of the column, for messages.
    where : callable
        Maps a row to the words that name its place.
    text : bool
        Whether cells are text to be read as numbers.
    remedy : str
        What to do about a cell that is no such number.

    Returns
    -------
    array of int64, shape (m,)
        Positive integers below 2**31.

    Raises
    ------
    DataError
        At the first cell that is not a positive whole number of that size.
    """
    values = numbers(column, name, where, text=text, remedy=remedy)
    bad = (values < 1) | (values != np.floor(values)) | (values > _INT32_MAX)
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(
            f"{where(row)}, column {name!r}: {shown(column.tolist()[row])} is not a positive whole number "
            f"up to {_INT32_MAX}; {remedy}"
        )
    return values.astype(np.int64)
