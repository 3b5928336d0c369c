"""Rows of text files in the formats of their authors, each with its line for messages."""

from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from relpref.data.arrays import shown
from relpref.errors import DataError
from relpref.files import reading


class Rows(NamedTuple):
    """Cells of the lines that are not empty.

    Attributes
    ----------
    file : Path
    lines : list of int
        Number of each row's line.
    cells : list of lists of str
    """

    file: Path
    lines: list[int]
    cells: list[list[str]]

    def refuse(self, row: int, reason: str) -> NoReturn:
        raise DataError(f"{self.file}, line {self.lines[row]}: {reason}; get the file again")

    def numbers(self, start: int = 0) -> NDArray[Any]:
        """Return the cells from a column on as finite numbers."""
        try:
            values = np.array([row[start:] for row in self.cells], dtype=np.float64)
            if np.isfinite(values).all():
                return values
        except ValueError:
            pass
        for row, cells in enumerate(self.cells):
            for cell in cells[start:]:
                if not _is_finite(cell):
                    self.refuse(row, f"{shown(cell)} is not a finite number")
        raise AssertionError("a cell must have been refused")


def _is_finite(cell: str) -> bool:
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False


def read_rows(file: Path, separator: str | None = None, width: int | None = None) -> Rows:
    """Read a file whose cells are separated by a character, or by any white space."""
    with reading(file):
        text = file.read_text(encoding="utf-8-sig")
    numbered = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not numbered:
        raise DataError(f"{file}: the file is empty; get it again")
    rows = Rows(file, [number for number, _ in numbered], [line.split(separator) for _, line in numbered])
    return rows if width is None else check_width(rows, width)


def check_width(rows: Rows, width: int) -> Rows:
    """Return the rows if each has so many cells."""
    for row, cells in enumerate(rows.cells):
        if len(cells) != width:
            rows.refuse(row, f"there are {len(cells)} values instead of {width}")
    return rows
