"""Schema of answers: the type and the reader of each column, and who won, read from a table."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from relpref.data.arrays import Array, Floats, Integers, Mask, Positions, Texts, refuse_first, shown
from relpref.data.labels import GrowingIndex, LabelIndex, in_labels, label_column
from relpref.data.tables import Table
from relpref.limits import MAX_STRENGTHS


@dataclass(eq=False)
class Rows:
    """A table of pairs while it is read; readers add ``labels`` and ``columns``.

    Parameters
    ----------
    table : Table
        The rows, with columns named as in the schema.
    items : LabelIndex
    ends : (str, str)
        The columns of the two items of each row.
    first, second : array of int32, shape (m,)
        The positions of these items.
    before : dict
        Labels of earlier answers by attribute of `Comparisons`; new labels are appended to them.
    labels, columns : dict
        What was read so far: labels by attribute, and arrays of shape (m,) by column.
    """

    table: Table
    items: LabelIndex
    ends: Texts
    first: Positions
    second: Positions
    before: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    labels: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, Any] = field(default_factory=dict)

    def named_side(self, column: str) -> Integers:
        """Read a column that names one item of each pair: 1 the first, −1 the second, 0 if blank.

        Labels of other items are refused. In a table with the columns first and second, these
        words name an item, too.
        """
        blank = self.table.blank(column)
        rows = np.flatnonzero(~blank)
        named = np.full(len(blank), -1, dtype=np.int32)
        labels = self.table.labels(column, rows)
        cell = self.table.cell(column, rows)
        if column != "winner" and self.ends == ("first", "second"):
            labels = in_labels(labels, self.items, self.first[rows], self.second[rows])
        named[rows] = self.items.locate(labels, cell, "name one of the two items of the row")

        def reason(row: int) -> str:
            pair = (shown(self.items.labels[side[row]]) for side in (self.first, self.second))
            more = "" if column == "winner" else " or leave the cell blank"
            two = " and ".join(pair)
            return f" is neither of the two that were compared, {two}; name one of them{more}"

        self.table.refuse(column, ~blank & (named != self.first) & (named != self.second), reason)
        return np.where(blank, 0, np.where(named == self.first, 1, -1))


@dataclass(frozen=True)
class Column:
    """A column of the schema.

    Parameters
    ----------
    name : str
    dtype : type
        The type of its array.
    read : callable, optional
        Reads the cells of `Rows` and refuses wrong ones; returns the array, or None if the column
        carries no information. None for columns that are computed from other columns.
    beside : tuple of str, optional
        Tables that may have the column, by the column that says who was preferred (``loser``,
        ``winner``, ``result``, ``probability`` or ``place``); by default all tables.
    labels : str
        The attribute of `Comparisons` with the labels, if the values are positions among labels.
    absent : number, optional
        The value of answers without the column when they are joined with answers that have it;
        None if no value can be assumed.
    blank : number, optional
        The value that is written as a blank cell.
    asked : bool
        Whether every question has a value, 0 by default; other columns describe answers, or are
        in a question only if the caller gives them.
    of_pairs : bool
        Whether each pair of a list has a value; a list has one value of other columns.
    """

    name: str
    dtype: type
    read: Callable[[Rows], Any] | None = None
    beside: Texts | None = None
    labels: str = ""
    absent: float | None = None
    blank: float | None = None
    asked: bool = False
    of_pairs: bool = False

    def fits(self, outcome: str) -> bool:
        """Whether a table may have the column if ``outcome`` says who was preferred."""
        return self.read is not None and (self.beside is None or outcome in self.beside)

    def cells(self, values: Any, labels: Sequence[Any] = ()) -> Any:
        """Turn values into cells of a table: positions into labels, ``blank`` into blank cells."""
        if self.labels:
            return label_column((*labels, None) if np.any(values < 0) else labels).take(values)
        blank = np.zeros(len(values), bool) if self.blank is None else values == self.blank
        if not blank.any():
            return np.array(values)
        cells = pd.array(values, dtype="Int64")
        cells[blank] = pd.NA
        return cells

    @property
    def alone(self) -> Any:
        """Cell of an answer that lacks the column: None for a blank cell, or a value."""
        return None if self.absent == self.blank else self.absent


def labeled(rows: Rows, name: str, attribute: str) -> Positions | None:
    """Read labels as positions, shape (m,), −1 where a cell is blank; None if all are blank.

    The labels go to ``rows.labels[attribute]``: earlier ones first, then new ones, sorted so that
    their order does not depend on that of the rows.
    """
    stated = np.flatnonzero(~rows.table.blank(name))
    if not len(stated):
        return None
    cells = rows.table.labels(name, stated)

    def order(label: Any) -> tuple[str, Any]:
        return type(label).__name__, label if isinstance(label, str | int | float) else str(label)

    index = GrowingIndex(rows.before.get(attribute, ()))
    index.locate(sorted(set(cells), key=order), str, "")
    rows.labels[attribute] = index.labels
    positions = np.full(len(rows.table.frame), -1, dtype=np.int32)
    positions[stated] = index.locate(cells, str, "")
    return positions


def _raters(rows: Rows) -> Positions | None:
    remedy = "name one, such as 'unknown', or drop the row"
    rows.table.refuse_blank("rater", f"the rater is blank; {remedy}")
    return labeled(rows, "rater", "raters")


def _strengths(rows: Rows) -> Integers:
    """Read strengths, 1 or more, or 0 for a tie, whose cell must be blank or 0."""
    table = rows.table
    strength = np.zeros(len(table.frame), dtype=np.int64)
    tied = rows.columns.get("tie", np.zeros(len(strength), dtype=bool))
    remedy = "leave the strength of a tie blank"
    stated = np.flatnonzero(tied & ~table.blank("strength"))
    wrong = table.numbers("strength", remedy, stated) != 0
    table.refuse("strength", wrong, f", and yet the answer is a tie; {remedy}", stated)
    graded = np.flatnonzero(~tied)
    remedy = "write how strongly: 1, 2, 3, ... from slightly upwards"
    strength[graded] = table.counts("strength", remedy, graded)
    most = f" is above {MAX_STRENGTHS}, the most grades that are told apart"
    table.refuse("strength", strength > MAX_STRENGTHS, f"{most}; group the strengths into fewer")
    return strength


def _probabilities(rows: Rows) -> Floats:
    remedy = "write the reported probability that the first is the better, between 0 and 1"
    certain = (
        "a report of 0 or 1 leaves no room for error; write what its rater may have meant, "
        "such as 0.99"
    )
    values = rows.table.numbers("probability", remedy)

    rows.table.refuse(
        "probability",
        (values <= 0) | (values >= 1),
        lambda row: (
            f" is not strictly between 0 and 1; {certain if values[row] in (0, 1) else remedy}"
        ),
    )
    return values


def _shown_first(rows: Rows) -> Integers:
    """Read 1 where the winner was shown first, −1 where the loser was, 0 where it is unknown."""
    return rows.named_side("shown_first") * np.where(rows.columns["winner"] == rows.first, 1, -1)


def _weights(rows: Rows) -> Floats | None:
    remedy = (
        "write for how much the answer counts, a number above 0; drop the row if it is not to count"
    )
    values = rows.table.numbers("weight", remedy)
    rows.table.refuse("weight", values <= 0, f" is no weight; {remedy}")
    # Weights that are all 1 change nothing.
    return values if np.any(values != 1) else None


@dataclass(frozen=True)
class Form:
    """A form of tables of answers.

    Parameters
    ----------
    columns : tuple of str
        The columns that it needs, the one that says who was preferred last.
    rows : str
        What its rows are called in messages, if they are lists.
    """

    columns: Texts
    rows: str = ""

    @property
    def ends(self) -> Texts:
        """The columns of the two items of a pair."""
        return self.columns[:2]

    @property
    def outcome(self) -> str:
        """The column that says who was preferred."""
        return self.columns[-1]


FORMS = (
    Form(("winner", "loser")),
    Form(("first", "second", "probability")),
    Form(("first", "second", "result")),
    Form(("first", "second", "winner")),
    Form(("list", "item", "place"), "orders"),
    Form(("choice", "item", "chosen"), "choices"),
)


def form_of(columns: Collection[Any]) -> Form:
    """Return the form that most of the columns of a table belong to, the earlier of equal ones."""
    pairs = (
        not {"winner", "loser", "first", "second"}.isdisjoint(columns) and "place" not in columns
    )
    forms = [form for form in FORMS if not (pairs and form.rows)]
    return max(forms, key=lambda form: len({*form.columns} & {*columns}))


_COUNT = "write how often the answer was given: 1, 2, 3, ..."
# Answers are sorted, and equal ones merged, by these columns in this order, other than the counts.
COLUMNS = {
    column.name: column
    for column in (
        Column("list", np.int32, absent=-1, blank=-1),
        Column("winner", np.int32, asked=True, of_pairs=True),
        Column("loser", np.int32, asked=True, of_pairs=True),
        Column("count", np.int32, lambda rows: rows.table.counts("count", _COUNT), asked=True),
        Column(
            "tie",
            np.bool_,
            lambda rows: rows.table.truths("tie"),
            ("loser", "winner"),
            absent=0,
            asked=True,
        ),
        Column(
            "strength", np.int32, _strengths, ("loser", "winner", "result"), blank=0, asked=True
        ),
        Column("probability", np.float64, _probabilities, ("probability",), asked=True),
        Column("rater", np.int32, _raters, labels="raters"),
        Column("shown_first", np.int8, _shown_first, absent=0, blank=0),
        Column(
            "group",
            np.int32,
            lambda rows: labeled(rows, "group", "groups"),
            labels="groups",
            absent=-1,
            blank=-1,
        ),
        Column("covariates", np.float64, asked=True, of_pairs=True),
        Column("weight", np.float64, _weights, absent=1),
    )
}


def read_columns(rows: Rows) -> None:
    """Read the columns that the table has and ``rows.columns`` still lacks into the latter."""
    for name, column in COLUMNS.items():
        if column.read is None or name in rows.columns or name not in rows.table.columns:
            continue
        values = column.read(rows)
        if values is not None:
            rows.columns[name] = values


_RESULTS = {"½": "0.5", "1/2": "0.5", "\N{MINUS SIGN}1": "-1"}  # texts that are read as numbers


def results(table: Table) -> tuple[Floats, str]:
    """Read results: 1 if the first won, 0 for a tie, −1 if the second won; and a note.

    Tables write them as 1, 0.5 and 0, or as 1, 0 and −1; any −1 means the latter. The note says
    which one was read.
    """
    cells = [
        _RESULTS.get(cell.strip(), cell) if isinstance(cell, str) else cell
        for cell in table.frame["result"].tolist()
    ]
    text = any(isinstance(cell, str) for cell in cells)
    cells = [*map(str, cells)] if text else cells
    column = pd.Series(cells, table.frame.index, dtype=object if text else None)
    plain = replace(table, frame=table.frame.assign(result=column), text=text)
    remedy = "write 1 where the first won, 0 where it lost and 0.5 for a tie; or 1, -1 and 0"
    values = plain.numbers("result", remedy)
    table.refuse("result", ~np.isin(values, (-1, 0, 0.5, 1)), f" is no result; {remedy}")
    if not (values == -1).any():
        tie = ", 0.5 for a tie" if (values == 0.5).any() else ""
        note = f"results were read as 1 for a win of the first{tie} and 0 for a loss"
        return 2 * values - 1, note
    table.refuse("result", values == 0.5, f", and yet there are results of -1; {remedy}")
    return values, "results were read as 1 for a win of the first, 0 for a tie and -1 for a loss"


def read_outcome(rows: Rows, outcome: str) -> Texts:
    """Read who won into the columns ``winner``, ``loser`` and ``tie`` of ``rows``; returns notes.

    ``outcome`` is the column that says so. If it is neither ``result`` nor ``winner``, the first
    item of each row is the winner.
    """
    notes: Texts = ()
    won: Array = np.ones(len(rows.first))
    tie = rows.table.truths("tie") if "tie" in rows.table.columns else None
    if outcome == "result":
        won, note = results(rows.table)
        notes = (note,)
        tie = won == 0 if np.any(won == 0) else None
    elif outcome == "winner":
        won = rows.named_side("winner")
        _check_blank_winners(rows.table, won == 0, tie)
    # The items of a tie are put in the order of their positions, so that equal ties are merged.
    turned = won < 0 if tie is None else np.where(tie, rows.first > rows.second, won < 0)
    rows.columns["winner"] = np.where(turned, rows.second, rows.first)
    rows.columns["loser"] = np.where(turned, rows.first, rows.second)
    if tie is not None:
        rows.columns["tie"] = tie
    return notes


def _check_blank_winners(table: Table, blank: Mask, tie: Mask | None) -> None:
    """Refuse a blank winner unless the row is a tie, and a winner in a tie."""
    if tie is None:
        # A blank may be a canceled game or an answer that was never given, which is no tie.
        remedy = (
            "name the winner, drop the row if nobody answered, or, if it was a tie, add the column "
            "'tie' with true in this row and false in the others"
        )
        table.refuse_blank("winner", f"the winner is blank; {remedy}")
        return

    def message(row: int) -> str:
        what = "a tie, and yet it has a winner" if tie[row] else "no tie, and yet it has no winner"
        more = "" if tie[row] else ", or drop the row if nobody answered"
        return f"{table.place(row)}: the answer is {what}; correct one of the two cells{more}"

    refuse_first(tie != blank, message)
