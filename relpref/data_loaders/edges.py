"""Relations from text files, a line for each edge; and a graph for documents that come without one."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from relpref.data import Table
from relpref.data.arrays import counted, shown
from relpref.data_loaders.registry import read_rows
from relpref.errors import DataError

_COLUMNS = ("source", "target", "weight")


def read_edges(path: str | os.PathLike[str]) -> Table:
    """Read a relation file whose cells are separated by blanks or tabs.

    Empty lines and lines that begin with ``#`` are skipped. Labels stay text. What the file cannot
    mean (an unknown label, a weight that is no number, two weights of one edge) is reported with
    the line of the file when the table becomes a relation.

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
    rows = read_rows(Path(path))
    numbered = [
        (line, cells)
        for line, cells in zip(rows.lines, rows.cells, strict=True)
        if cells[0][0] != "#"
    ]
    if not numbered:
        raise DataError(
            f"{rows.file}: the file holds no edges; write lines of the form source target weight"
        )
    width = len(numbered[0][1])
    for line, cells in numbered:
        if len(cells) != width or width not in (2, 3):
            raise DataError(
                f"{rows.file}, line {line}: {shown(' '.join(cells))} has {len(cells)} cells; "
                f"expected source target{' weight' if width == 3 else ''}: correct the line"
            )
    lines, kept = zip(*numbered, strict=True)
    frame = pd.DataFrame(kept, columns=list(_COLUMNS[:width]), dtype=object)
    return Table(frame, str(rows.file), np.array(lines), text=True)


def among(table: Table, labels: Iterable[str]) -> Table:
    """Keep the edges of `read_edges` whose ends are among these labels: those of one query in a file about a whole collection."""
    known = set(labels)
    kept = (table.frame["source"].isin(known) & table.frame["target"].isin(known)).to_numpy()
    lines = None if table.lines is None else table.lines[kept]
    return replace(table, frame=table.frame[kept], lines=lines)


# The name appears in hyperparameters, shares and reports.
DERIVED = "similarity_derived"
NOTE = (
    f"relation {DERIVED!r}: derived from the attributes (nearest neighbours by cosine), not "
    "observed; "
    "it tells the model nothing that the attributes do not hold"
)


def nearest_neighbours(attributes: pd.DataFrame, neighbours: int = 10) -> pd.DataFrame:
    """Join every item to those whose attributes point the same way.

    Parameters
    ----------
    attributes : DataFrame, shape (n, d)
        By item.
    neighbors : int
        Of each item; an edge is there if either end has the other among its nearest.

    Returns
    -------
    DataFrame
        ``source``, ``target`` and ``weight``: the cosine of the standardized attributes, in (0, 1].
        Pairs whose cosine is not positive are not joined. Equal cosines are told apart by the order
        of the items.

    Raises
    ------
    DataError
        If ``neighbours`` is not positive, or no two items are alike at all.
    """
    if neighbours < 1:
        raise DataError(f"neighbours is {neighbours}; it must be at least 1")
    values = attributes.to_numpy(np.float64)
    scale = values.std(axis=0)
    unit = (values - values.mean(axis=0)) / np.where(scale > 0, scale, 1)
    # Without the centering every document of a query would resemble every other: the features are
    # positive.
    norms = np.linalg.norm(unit, axis=1, keepdims=True)
    unit = unit / np.where(norms > 0, norms, 1)
    cosine = unit @ unit.T
    np.fill_diagonal(cosine, -np.inf)
    nearest = np.argsort(-cosine, axis=1, kind="stable")[:, : min(neighbours, len(values) - 1)]
    joined = np.zeros(cosine.shape, dtype=bool)
    np.put_along_axis(joined, nearest, True, axis=1)
    source, target = np.nonzero(np.triu((joined | joined.T) & (cosine > 0), 1))
    if not source.size:
        raise DataError(
            f"attributes: no two of {counted(len(values), 'item')} are alike: no graph to derive"
        )
    labels = attributes.index.to_numpy()
    ends = {"source": labels[source], "target": labels[target]}
    return pd.DataFrame({**ends, "weight": np.minimum(cosine[source, target], 1.0)})
