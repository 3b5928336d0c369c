"""Tables of the page from rows of numbers and from DataFrames."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from relpref.report.blocks import Cell, Grid, Text
from relpref.report.text import clean, shorten, significant

_MOST_ROWS = 200
_MOST_COLUMNS = 30
_LONGEST_CELL = 60


def cell(value: object, longest: int = _LONGEST_CELL) -> Cell:
    """Any value; long text is cut and kept whole in the title."""
    if isinstance(value, float | np.floating):
        return Cell(significant(float(value)))
    full = "–" if value is None or value is pd.NA or value is pd.NaT else clean(value)
    short = shorten(full, longest)
    return Cell(short, None if short == full else full)


def grid(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell | str]],
    numeric: Iterable[int] = (),
    heading: int = 0,
) -> Grid:
    """A table from cells and plain text."""
    filled = [[one if isinstance(one, Cell) else Cell(one) for one in row] for row in rows]
    return Grid(caption, columns, filled, heading, frozenset(numeric))


def from_frame(frame: pd.DataFrame, caption: str) -> list[Grid | Text]:
    """A user's DataFrame, and a sentence where some of it is left out."""
    head = frame.iloc[:_MOST_ROWS, :_MOST_COLUMNS]
    counted = isinstance(frame.index, pd.RangeIndex) and frame.index.name is None
    columns = [clean(name) for name in head.columns]
    values: list[list[Any]] = [head.iloc[:, position].tolist() for position in range(head.shape[1])]
    numeric = [
        position
        for position in range(head.shape[1])
        if pd.api.types.is_numeric_dtype(head.dtypes.iloc[position])
    ]
    if not counted:
        names = [name for name in frame.index.names if name is not None]
        columns = [", ".join(map(clean, names)), *columns]
        values = [head.index.tolist(), *values]
        numeric = [position + 1 for position in numeric]
    rows = [[cell(one) for one in row] for row in zip(*values, strict=True)]
    blocks: list[Grid | Text] = [grid(caption, columns, rows, numeric)]
    if head.shape != frame.shape:
        text = f"The first {head.shape[0]} of {frame.shape[0]} rows and {head.shape[1]} of {frame.shape[1]} columns are shown."
        blocks.append(Text(text, small=True))
    return blocks
