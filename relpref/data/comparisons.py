"""The answers: who was preferred to whom, how often."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relpref.data.arrays import read_only
from relpref.data.columns import counts
from relpref.data.labels import LabelIndex, plain_labels
from relpref.data.messages import counted, shown
from relpref.data.tables import as_table, check_columns
from relpref.errors import DataError

NAME = "comparisons"
_INT32_MAX = np.iinfo(np.int32).max


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Distinct answers, sorted by winner, then loser.

    Attributes
    ----------
    winner, loser : array of int32, shape (m,)
        Positions of the entities.
    count : array of int32, shape (m,)
        How often the answer was given.
    """

    winner: NDArray[np.int32]
    loser: NDArray[np.int32]
    count: NDArray[np.int32]


def read_comparisons(value: Any, entities: LabelIndex) -> tuple[Comparisons, tuple[str, ...]]:
    """Read a table of answers.

    Parameters
    ----------
    value : DataFrame or Table
        Columns winner, loser and, optionally, count.
    entities : LabelIndex
        The known labels.

    Returns
    -------
    comparisons : Comparisons
        Repeated rows are merged into one with the sum of their counts.
    notes : tuple of str
        What was tidied.

    Raises
    ------
    DataError
        If the columns are not these, there are no rows, a count is not a positive whole number, or an
        entity is compared with itself.
    UnknownLabelError
        If a label is no entity.
    """
    table = as_table(value, NAME)
    check_columns(table, ("winner", "loser"), ("count",))
    frame = table.frame
    if len(frame) == 0:
        raise DataError(f"{table.name}: the table has no rows; give at least one comparison")
    ends = []
    for column in ("winner", "loser"):

        def where(row: int, column: str = column) -> str:
            return f"{table.place(row)}, column {column!r}"

        labels = plain_labels(frame[column], where)
        ends.append(
            entities.locate(labels, where, "correct the label, add it to the entities, or drop the row")
        )
    winner, loser = ends
    if (winner == loser).any():
        row = int(np.argmax(winner == loser))
        raise DataError(
            f"{table.place(row)}: {shown(entities.labels[winner[row]])} is compared with itself; drop the row"
        )
    count = np.ones(len(frame), dtype=np.int64)
    if "count" in frame.columns:
        count = counts(frame["count"], "count", table.place, text=table.text)
    merged = merge(winner, loser, count, entities)
    notes: tuple[str, ...] = ()
    if merged.winner.size < len(frame):
        rows = counted(len(frame), "row")
        notes = (
            f"{NAME}: {rows} merged into {counted(merged.winner.size, 'distinct one')}, counts added up",
        )
    return merged, notes


def merge(
    winner: NDArray[np.int32], loser: NDArray[np.int32], count: NDArray[Any], entities: LabelIndex
) -> Comparisons:
    """Merge repeated answers and sort them, so that the order of the rows leaves no trace in a result.

    Parameters
    ----------
    winner, loser : array of int32, shape (r,)
        Positions of the entities.
    count : array of int, shape (r,)
        How often.
    entities : LabelIndex
        The known labels.

    Returns
    -------
    Comparisons
        Distinct answers.

    Raises
    ------
    DataError
        If the counts of one answer add up to 2**31 or more.
    """
    size = np.int64(len(entities))
    key, row = np.unique(winner.astype(np.int64) * size + loser, return_inverse=True)
    total = np.zeros(key.size, dtype=np.int64)
    np.add.at(total, row, count)
    if total.size and total.max() > _INT32_MAX:
        at = int(np.argmax(total))
        pair = shown((entities.labels[key[at] // size], entities.labels[key[at] % size]))
        raise DataError(
            f"{NAME}: the counts of {pair} add up to {total[at]}, more than {_INT32_MAX}; scale them down"
        )
    columns = ((key // size).astype(np.int32), (key % size).astype(np.int32), total.astype(np.int32))
    return Comparisons(*(read_only(column) for column in columns))


def chosen_rows(chosen: ArrayLike, size: int) -> NDArray[np.int64]:
    """Return the positions that a mask or a list of positions selects.

    Parameters
    ----------
    chosen : array of bool, shape (m,), or array of int
        Mask or positions; negative ones count from the end.
    size : int
        Number of rows m.

    Returns
    -------
    array of int64
        Positions.

    Raises
    ------
    DataError
        If the mask has another length, a position is out of range, or ``chosen`` is something else.
    """
    picked = np.asarray(chosen)
    if picked.dtype == np.bool_:
        if picked.shape != (size,):
            raise DataError(f"chosen: the mask has the shape {picked.shape}; give one of shape ({size},)")
        picked = np.flatnonzero(picked)
    elif picked.size == 0:
        picked = picked.astype(np.int64).reshape(-1)
    if picked.dtype.kind not in "iu" or picked.ndim != 1:
        raise DataError(
            f"chosen: an array of type {picked.dtype} and shape {picked.shape} selects nothing; "
            "give a mask of booleans or a list of integer positions"
        )
    outside = (picked < -size) | (picked >= size)
    if outside.any():
        raise DataError(
            f"chosen: the position {picked[np.argmax(outside)]} is out of range; there are {size} comparisons"
        )
    return picked.astype(np.int64)
