"""Answers as tables: written for `relpref fit` and for people, and read from elsewhere."""

import hashlib
import os
from pathlib import Path

import pandas as pd

from relpref.ask.store import AnswerStore
from relpref.data import Comparisons, PreferenceData
from relpref.data.arrays import listed
from relpref.data.comparisons import read_comparisons
from relpref.data.covariates import equal_sides
from relpref.data.labels import LabelIndex
from relpref.data.tables import read_table
from relpref.errors import DataError
from relpref.files import replaced

_SHARED = {"list": None, "group": None, "weight": 1}  # and what they are for an answer by itself
UNKNOWN = "unknown"  # who gave an answer of which nobody noted it, in a table where others are noted


def with_shared(kept: pd.DataFrame, table: pd.DataFrame, answers: Comparisons) -> pd.DataFrame:
    """Some columns of a table, with those of what answers share and of their sides where the ``answers`` of a run have them.

    The sides of a question are equal.
    """
    columns = equal_sides(answers.covariates_are, len(table))
    columns |= {name: alone for name, alone in _SHARED.items() if name in table and name in answers.columns}
    for name, equal in columns.items():
        columns[name] = table[name].where(table[name].notna(), equal) if name in table else equal
    return kept.assign(**columns)


def answers_table(store: AnswerStore, data: PreferenceData, rater: str | None = None) -> pd.DataFrame:
    """The answers that stand, of everybody or of one rater, in the columns that they need; equal ones in one row with their count."""
    table = store.changes().added
    if rater is not None:
        table = table[table["rater"] == rater].copy()
    if table.empty:
        return table[["winner", "loser", "count"]]
    named = [
        name for name in ("strength", "probability", "rater", "shown_first") if table[name].notna().any()
    ]
    named += ["tie"] if table["tie"].any() else []
    if "rater" in named:
        table["rater"] = table["rater"].where(table["rater"].notna(), UNKNOWN)
    kept = with_shared(table[["winner", "loser", "count", *named]], table, data.comparisons)
    if "probability" in named:
        kept = kept.rename(columns={"winner": "first", "loser": "second"})
    return data.with_comparisons(kept).comparisons.table(data.labels)


def export_answers(store: AnswerStore, data: PreferenceData, path: str | os.PathLike[str]) -> int:
    """Write the answers that stand; returns how many. Raises as `write_answers`."""
    table = answers_table(store, data)
    store.exported(write_answers(table, path), Path(path).name)
    return int(table["count"].sum())


def write_answers(table: pd.DataFrame, path: str | os.PathLike[str]) -> str:
    """Write a table of answers into a file that ends in ``.csv``, whole or not at all; returns its SHA-256."""
    file = Path(path)
    if file.suffix.lower() != ".csv":
        raise DataError(f"{file}: answers are written as a table in a file that ends in .csv; rename it")
    content = table.to_csv(index=False, lineterminator="\n").encode()
    with replaced(file) as part:
        part.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def import_answers(store: AnswerStore, data: PreferenceData, path: str | os.PathLike[str]) -> int:
    """Add the answers of a table, all or none; returns how many.

    Columns that the answers of the run have are needed; labels of a CSV file are known by how they are printed.

    Raises
    ------
    DataError
        If the table cannot be used, lacks a column that the run needs, or its answers are here already.
    """
    file = Path(path)
    table = read_table(file)
    printed = tuple(map(str, data.labels))
    alike = len(set(printed)) < len(printed)  # then they are known by what they are
    labels = printed if table.text and not alike else data.labels
    index = LabelIndex(labels, lambda row: f"items, row {row}")
    read, _ = read_comparisons(table, index, known=data.comparisons)
    known = data.comparisons.columns
    for column in ("strength", "probability", "rater", *_SHARED):
        # A table may say more of raters, and less of what answers share.
        enough = known if column in _SHARED else read.columns if column == "rater" else ()
        if (column in known) == (column in read.columns) or column in enough:
            continue
        verb = "has no" if column in known else "has a"
        raise DataError(
            f"{file}: the table {verb} column {column!r}, unlike the answers that the run was fitted on ({listed(known)}); give tables of "
            "the same kind, or refit with all of them"
        )
    answers = read.table(data.labels)
    store.add(answers, hashlib.sha256(file.read_bytes()).hexdigest(), file.name)
    return int(answers["count"].sum())
