"""Relations from text files: a line for each edge, ``source target`` and, if need be, ``weight``."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from relpref.data import Table
from relpref.data.arrays import shown
from relpref.errors import DataError
from relpref.files import reading

_COLUMNS = ("source", "target", "weight")


def read_edges(path: str | os.PathLike[str]) -> Table:
    """Read a relation file whose cells are separated by blanks or tabs.

    Empty lines and lines that begin with ``#`` are skipped. Labels stay text. What the file cannot mean (an unknown label, a
    weight that is no number, two weights of one edge) is found when the table becomes a relation of `PreferenceData`, and
    reported with the line of the file.

    Parameters
    ----------
    path : path

    Returns
    -------
    Table
        ``source``, ``target`` and, if the file has it, ``weight``; one of the forms that ``relations=`` takes.

    Raises
    ------
    DataError
        If the file cannot be read, is empty, or a line does not have the two or three cells of the first.
    """
    file = Path(path)
    with reading(file):
        text = file.read_text(encoding="utf-8-sig")
    rows: list[list[str]] = []
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        cells = line.split()
        if not cells or cells[0].startswith("#"):
            continue
        width = len(rows[0]) if rows else len(cells)
        if len(cells) != width or width not in (2, 3):
            expected = "source target weight" if width == 3 else "source target"
            raise DataError(
                f"{file}, line {number}: {shown(line.strip())} has {len(cells)} cells; expected {expected}: correct the line"
            )
        rows.append(cells)
        lines.append(number)
    if not rows:
        raise DataError(f"{file}: the file holds no edges; write lines of the form source target weight")
    frame = pd.DataFrame(rows, columns=list(_COLUMNS[: len(rows[0])]), dtype=object)
    return Table(frame, str(file), np.array(lines, dtype=np.int64), text=True)


def among(table: Table, labels: Iterable[str]) -> Table:
    """Keep the edges whose two ends are among these labels: those of one query in a file about a whole collection.

    Parameters
    ----------
    table : Table
        From `read_edges`.
    labels : iterable of str

    Returns
    -------
    Table
        The rows that are left, with the lines they were on.
    """
    known = set(labels)
    kept = (table.frame["source"].isin(known) & table.frame["target"].isin(known)).to_numpy()
    lines = None if table.lines is None else table.lines[kept]
    return replace(table, frame=table.frame[kept], lines=lines)
