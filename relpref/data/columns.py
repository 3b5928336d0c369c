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


def numbers(
    column: Any, name: str, where: Place, *, text: bool, remedy: str, among: str | None = None
) -> NDArray[np.float64]:
    """Return a column as finite floating point numbers, or refuse its first cell that is none.

    ``where`` maps a row to the words that name its place, ``text`` says that cells come from a CSV file, ``among`` is a cell
    that stood before these in the same column, see `NumberColumn`.
    """
    values = _from_text(column.tolist(), among) if text else _from_cells(column)
    if values is not None and np.isfinite(values).all():
        return values
    for row, cell in enumerate(column.tolist()):
        value = _number(cell, text)
        missing = cell.strip() in _MISSING if text else pd.api.types.is_scalar(cell) and pd.isna(cell)
        if not missing and value is not None and np.isfinite(value):
            continue
        here = f"{where(row)}, column {name!r}"
        if missing:
            raise DataError(
                f"{here}: the value is missing ({shown(cell)}); fill it in, or drop the row or the column"
            )
        if value is None:
            raise DataError(f"{here}: {shown(cell)} is not a number; {remedy}")
        raise DataError(f"{here}: {shown(cell)} is not finite; replace it by a finite number or drop the row")
    raise DataError(f"{where(0)}, column {name!r}: the type {column.dtype} is not a number; {remedy}")


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
        if self._first is not None and self._text and len(column):
            # Whether true and false are numbers depends on all cells, of which the first one tells enough.
            place, cell = self._first
            if cell in _TRUTH and not column.isin(list(_TRUTH)).all():
                raise DataError(
                    f"{place}, column {self._name!r}: {shown(cell)} is not a number; {self._remedy}"
                )
            return numbers(column, self._name, where, among=cell, **how)
        if self._text and len(column):
            self._first = where(0), column.iloc[0]
        return numbers(column, self._name, where, **how)


def _from_text(cells: list[str], among: str | None) -> NDArray[np.float64] | None:
    if cells and (among is None or among in _TRUTH) and all(cell in _TRUTH for cell in cells):
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
    try:
        if text:
            return None if "_" in cell else float(cell)
        return float(cell) if isinstance(cell, Real | np.bool_) else None
    except ValueError:
        return None
    except OverflowError:
        return np.inf
