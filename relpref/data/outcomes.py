"""What the rows of a table of answers say: results, ties, strengths, probabilities, and labels of who answered."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import refuse_first
from relpref.data.tables import Table
from relpref.limits import MAX_STRENGTHS

_RESULTS = {"½": "0.5", "1/2": "0.5", "\N{MINUS SIGN}1": "-1"}  # besides numbers


def results(table: Table) -> tuple[NDArray[np.float64], str]:
    """1 where the first won, 0 for a tie, −1 where the second won; and how that was coded."""
    frame = table.frame
    cells = [
        _RESULTS.get(cell.strip(), cell) if isinstance(cell, str) else cell
        for cell in frame["result"].tolist()
    ]
    numeric = all(not isinstance(cell, str) for cell in cells)
    read = replace(
        table,
        frame=frame.assign(
            result=pd.Series(cells, index=frame.index, dtype=None if numeric else object)
        ),
    )
    remedy = "write 1 where the first won, 0 where it lost and 0.5 for a tie; or 1, -1 and 0"
    values = replace(read, text=not numeric).numbers("result", remedy)
    table.refuse("result", ~np.isin(values, (-1, 0, 0.5, 1)), f" is no result; {remedy}")
    if not (values == -1).any():
        tie = ", 0.5 for a tie" if (values == 0.5).any() else ""
        return (
            2 * values - 1,
            f"results were read as 1 for a win of the first{tie} and 0 for a loss",
        )
    table.refuse("result", values == 0.5, f", and yet there are results of -1; {remedy}")
    return values, "results were read as 1 for a win of the first, 0 for a tie and -1 for a loss"


def ties(table: Table, blank: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """Which rows are ties; None if the table does not speak of them. ``blank`` are rows without a winner."""
    if "tie" not in table.frame.columns:
        if blank is not None:
            # A blank may be a cancelled game or an answer that was never given, which is no tie.
            refuse_first(
                blank,
                lambda row: (
                    f"{table.cell('winner')(row)}: the winner is blank; name the winner, drop the "
                    "row if nobody answered, "
                    "or, if it was a tie, add the column 'tie' with true in this row and false in "
                    "the others"
                ),
            )
        return None
    remedy = "write true or false"
    values = table.numbers("tie", remedy)
    table.refuse("tie", ~np.isin(values, (0, 1)), f" is neither true nor false; {remedy}")
    tie = values == 1

    def message(row: int) -> str:
        what = "a tie, and yet it has a winner" if tie[row] else "no tie, and yet it has no winner"
        more = "" if tie[row] else ", or drop the row if nobody answered"
        return f"{table.place(row)}: the answer is {what}; correct one of the two cells{more}"

    if blank is not None:
        refuse_first(tie != blank, message)
    return tie


def strengths(table: Table, tie: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    """Strengths from 1, and 0 for ties, whose cells are blank or 0."""
    strength = np.zeros(len(table.frame), dtype=np.int64)
    tied = np.zeros(len(strength), dtype=bool) if tie is None else tie
    remedy = "leave the strength of a tie blank"
    stated = np.flatnonzero(tied & ~table.blank("strength"))
    wrong = table.numbers("strength", remedy, stated) != 0
    table.refuse("strength", wrong, f", and yet the answer is a tie; {remedy}", stated)
    rows = np.flatnonzero(~tied)
    strength[rows] = table.counts(
        "strength", "write how strongly: 1, 2, 3, ... from slightly upwards", rows
    )
    reason = (
        f" is above {MAX_STRENGTHS}, the most grades that are told apart; group the "
        "strengths "
        "into fewer"
    )
    table.refuse("strength", strength > MAX_STRENGTHS, reason)
    return strength


def probabilities(table: Table) -> NDArray[np.float64]:
    remedy = "write the reported probability that the first is the better, between 0 and 1"
    certain = (
        "a report of 0 or 1 leaves no room for error; write what its rater may have meant, "
        "such as 0.99"
    )
    values = table.numbers("probability", remedy)
    table.refuse(
        "probability",
        (values <= 0) | (values >= 1),
        lambda row: (
            f" is not strictly between 0 and 1; {certain if values[row] in (0, 1) else remedy}"
        ),
    )
    return values


def weights(table: Table) -> NDArray[np.float64]:
    """How much each answer counts, above 0."""
    remedy = (
        "write for how much the answer counts, a number above 0; drop the row if it is not to count"
    )
    values = table.numbers("weight", remedy)
    table.refuse("weight", values <= 0, f" is no weight; {remedy}")
    return values


def labeled(table: Table, column: str) -> tuple[tuple[Any, ...], NDArray[np.int32]]:
    """Labels in an order that is not that of the rows, and the position of each row's; −1 where the cell is blank."""
    rows = np.flatnonzero(~table.blank(column))
    labels = table.labels(column, rows)

    def order(label: Any) -> tuple[str, Any]:
        return type(label).__name__, label if isinstance(label, str | int | float) else str(label)

    known = tuple(sorted(set(labels), key=order))
    places = {label: place for place, label in enumerate(known)}
    found = np.full(len(table.frame), -1, dtype=np.int32)
    found[rows] = [places[label] for label in labels]
    return known, found
