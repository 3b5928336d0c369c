"""The answers of a store as a table that anybody reads, and back."""

import hashlib
import os
from pathlib import Path

import pandas as pd

from relpref.data import PreferenceData
from relpref.data.comparisons import read_comparisons
from relpref.data.labels import LabelIndex
from relpref.data.messages import listed
from relpref.data.table_files import read_table
from relpref.errors import DataError
from relpref.explore.store.answer_store import AnswerStore
from relpref.files import replaced

UNKNOWN = "unknown"  # who gave an answer of which nobody noted it, in a table where others are noted


def answers_table(store: AnswerStore, data: PreferenceData) -> pd.DataFrame:
    """The answers that stand, in the columns that they need; equal ones in one row with their count."""
    table = store.changes().added
    if table.empty:
        return table[["winner", "loser", "count"]]
    if table["probability"].notna().any():
        table = table.rename(columns={"winner": "first", "loser": "second"})
    said = [name for name in ("strength", "probability", "rater", "shown_first") if table[name].notna().any()]
    if table["tie"].any():
        said.append("tie")
    if "rater" in said:
        table["rater"] = table["rater"].where(table["rater"].notna(), UNKNOWN)
    kept = table[[*table.columns[:2], "count", *said]]
    return data.with_comparisons(kept).comparisons.table(data.entities)


def export_answers(store: AnswerStore, data: PreferenceData, path: str | os.PathLike[str]) -> int:
    """Write the answers that stand; returns how many. Raises as `write_answers`."""
    table = answers_table(store, data)
    store.exported(write_answers(table, path), Path(path).name)
    return int(table["count"].sum())


def write_answers(table: pd.DataFrame, path: str | os.PathLike[str]) -> str:
    """Write a table of answers; returns its SHA-256. The file appears as a whole or not at all.

    Raises
    ------
    DataError
        If its name does not end in ``.csv``.
    StorageError
        If it cannot be written.
    """
    file = Path(path)
    if file.suffix.lower() != ".csv":
        raise DataError(f"{file}: answers are written as a table in a file that ends in .csv; rename it")
    content = table.to_csv(index=False, lineterminator="\n").encode()
    with replaced(file) as part:
        part.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def import_answers(store: AnswerStore, data: PreferenceData, path: str | os.PathLike[str]) -> int:
    """Add the answers of a table, all or none; returns how many.

    Parameters
    ----------
    store : AnswerStore
    data : PreferenceData
        Of the run: the columns of its answers are needed, and those that it has no use for are kept.
    path : path
        See `relpref.data.PreferenceData.from_files`; labels of a CSV file are known by how they are printed.

    Raises
    ------
    DataError
        If the table cannot be used, lacks a column that the run needs, or its answers are here already.
    """
    file = Path(path)
    table = read_table(file)
    read, _ = read_comparisons(table, _labels(data, printed=table.text))
    known = data.comparisons.columns
    for column in ("strength", "probability", "rater"):
        if (column in known) == (column in read.columns) or (column == "rater" and column in read.columns):
            continue
        verb = "has no" if column in known else "has a"
        raise DataError(
            f"{file}: the table {verb} column {column!r}, unlike the answers that the run was fitted on ({listed(known)}); give tables of "
            "the same kind, or fit all of them anew"
        )
    answers = read.table(data.entities)
    store.add(answers, hashlib.sha256(file.read_bytes()).hexdigest(), file.name)
    return int(answers["count"].sum())


def _labels(data: PreferenceData, *, printed: bool) -> LabelIndex:
    """The labels of the entities; as they are printed, if no two of them are printed alike."""
    texts = tuple(map(str, data.entities)) if printed else ()
    labels = texts if len(set(texts)) == len(data.entities) else data.entities
    return LabelIndex(labels, lambda row: f"entities, row {row}")
