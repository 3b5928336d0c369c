"""Answers as tables: written for `relpref fit` and for people, and read from files."""

import hashlib
from pathlib import Path

import pandas as pd

from relpref.ask.store import AnswerStore
from relpref.data import Comparisons, PreferenceData
from relpref.data.arrays import listed
from relpref.data.columns import COLUMNS
from relpref.data.comparisons import read_comparisons
from relpref.data.covariates import equal_sides
from relpref.data.labels import LabelIndex
from relpref.data.tables import Table, read_table, renamed
from relpref.errors import DataError
from relpref.files import FilePath, file_digest, replaced

# Columns that no question tells, and their cells in an answer to one.
_SHARED = {
    name: column.alone
    for name, column in COLUMNS.items()
    if column.absent is not None and not column.asked and name != "shown_first"
}
UNKNOWN = "unknown"  # rater of answers without one, in a table where others have one


def with_shared(columns: pd.DataFrame, table: pd.DataFrame, answers: Comparisons) -> Table:
    """Add the covariates and shared columns that the ``answers`` of a run have to ``columns``.

    Cells missing in the ``table`` are those of an answer by itself with equal sides: a question has
    equal covariates.
    """
    absent = equal_sides(answers.covariates_are, len(table))
    absent |= {
        name: cell for name, cell in _SHARED.items() if name in table and name in answers.columns
    }
    cells = {
        name: table[name].where(table[name].notna(), cell) if name in table else cell
        for name, cell in absent.items()
    }
    return Table(columns.assign(**cells), "answers", neighbors=True)


def answers_table(
    store: AnswerStore, data: PreferenceData, rater: str | None = None
) -> pd.DataFrame:
    """Table of the answers that stand, by all raters or one; equal answers share a row."""
    table = store.changes().added
    if rater is not None:
        table = table[table["rater"] == rater].copy()
    columns = ["winner", "loser", "count"]
    if table.empty:
        return table[columns]
    optional = ("strength", "probability", "rater", "shown_first")
    columns += [name for name in optional if table[name].notna().any()]
    columns += ["tie"] if table["tie"].any() else []
    if "rater" in columns:
        table["rater"] = table["rater"].where(table["rater"].notna(), UNKNOWN)
    answers = with_shared(table[columns], table, data.comparisons)
    if "probability" in columns:
        answers = renamed(answers, {"first": "winner", "second": "loser"})
    return data.with_comparisons(answers).comparisons.written(data.labels)


def export_answers(store: AnswerStore, data: PreferenceData, path: FilePath) -> int:
    """Write the answers that stand and return their number; raises as `write_answers`."""
    table = answers_table(store, data)
    store.exported(write_answers(table, path), Path(path).name)
    return int(store.changes().added["count"].sum())


def write_answers(table: pd.DataFrame, path: FilePath) -> str:
    """Write a table of answers atomically into a ``.csv`` file and return its SHA-256."""
    file = Path(path)
    if file.suffix.lower() != ".csv":
        raise DataError(
            f"{file}: answers are written as a table in a file that ends in .csv; rename it"
        )
    content = table.to_csv(index=False, lineterminator="\n").encode()
    with replaced(file) as part:
        part.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def import_answers(
    store: AnswerStore, data: PreferenceData, path: FilePath, encoding: str | None = None
) -> int:
    """Add the answers of a table, all or none, and return their number.

    The table must have the columns of the run's answers; labels in a CSV file are matched as they
    print.

    Raises
    ------
    DataError
        If the table cannot be used, lacks a column that the run needs, or its answers are here
        already.
    """
    file = Path(path)
    table = read_table(file, encoding=encoding)
    printed = tuple(map(str, data.labels))
    ambiguous = len(set(printed)) < len(printed)  # then labels are matched by value
    labels = printed if table.text and not ambiguous else data.labels
    index = LabelIndex(labels, lambda row: f"items, row {row}")
    read, _ = read_comparisons(table, index, known=data.comparisons)
    fitted = data.comparisons.columns
    for column in ("strength", "probability", "rater", *_SHARED):
        # A table may have additional raters, and lack what answers share.
        optional = fitted if column in _SHARED else read.columns if column == "rater" else ()
        if (column in fitted) == (column in read.columns) or column in optional:
            continue
        verb = "has no" if column in fitted else "has a"
        raise DataError(
            f"{file}: the table {verb} column {column!r}, unlike the answers that the run was "
            f"fitted on ({listed(fitted)}); give tables of the same kind, or refit with all of them"
        )
    answers = read.table(data.labels)
    store.add(answers, file_digest(file), file.name)
    return int(answers["count"].sum())
