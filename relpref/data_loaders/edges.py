"""Relations from text files, a line for each edge."""

from pathlib import Path

import numpy as np
import pandas as pd

from relpref.data import Table
from relpref.data.arrays import shown
from relpref.data_loaders.registry import read_lines
from relpref.errors import DataError
from relpref.files import FilePath

_COLUMNS = ("source", "target", "weight")


def read_edges(path: FilePath) -> Table:
    """Read a relation file whose cells are separated by blanks or tabs.

    Empty lines and lines that begin with ``#`` are skipped. Labels stay text. Unknown
    labels, weights that are no numbers and two weights of one edge are refused with the line of the
    file when the table becomes a relation.

    Parameters
    ----------
    path : path

    Returns
    -------
    Table
        ``source``, ``target`` and, if the file has it, ``weight``; one of the forms that
        ``relations=`` takes.

    Raises
    ------
    DataError
        If the file cannot be read, is empty, or a line does not have the two or three cells of the
        first.
    """
    file = Path(path)
    lines = {number: line.split() for number, line in read_lines(file).items()}
    edges = {number: cells for number, cells in lines.items() if cells[0][0] != "#"}
    if not edges:
        raise DataError(
            f"{file}: the file holds no edges; write lines of the form source target weight"
        )
    width = len(next(iter(edges.values())))
    for number, cells in edges.items():
        if len(cells) != width or width not in (2, 3):
            raise DataError(
                f"{file}, line {number}: {shown(' '.join(cells))} has {len(cells)} cells; expected "
                f"source target{' weight' if width == 3 else ''}: correct the line"
            )
    frame = pd.DataFrame(list(edges.values()), columns=list(_COLUMNS[:width]), dtype=object)
    return Table(frame, str(file), np.array(list(edges)), text=True)
