"""Queries with judged documents in the format of LETOR 2, 3 and 4 (Liu 2007, Qin 2010)."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from relpref.data.arrays import counted, shown
from relpref.data.tables import number
from relpref.data_loaders.registry import find, read_lines
from relpref.errors import DataError
from relpref.files import FilePath

# The files of a fold by the beginning of their names: LETOR 2 and 3 say trainingset.txt (or .TXT),
# LETOR 4 train.txt.
PARTS = {"train": "training", "vali": "validation", "test": "test"}
_LINE = re.compile(r"(\S+)\s+qid:(\S+)\s+([^#]*)#\s*docid\s*=\s*(\S+).*")
_SHAPE = "label qid:QUERY 1:value 2:value ... #docid = DOCUMENT"


@dataclass(frozen=True, eq=False)
class LetorQuery:
    """One query with its documents.

    Attributes
    ----------
    qid : str
        Label of the query.
    features : DataFrame, shape (n, d)
        One row for each document; columns ``feature_1`` to ``feature_d``.
    relevance : Series of int, length n
        Judgment of each document, 0 for irrelevant; the larger, the more relevant.
    part : {"training", "validation", "test"}
        Part of the fold that holds the query.
    """

    qid: str
    features: pd.DataFrame
    relevance: pd.Series
    part: str

    def preferences(self) -> pd.DataFrame:
        """All pairs of documents of different relevance (XPGP section 6), see `pairs_of`."""
        return pairs_of(self.relevance)


def pairs_of(relevance: pd.Series) -> pd.DataFrame:
    """All pairs of labels of which the ``winner`` is more relevant, in the order of the series."""
    winner, loser = np.nonzero(np.greater.outer(relevance.to_numpy(), relevance.to_numpy()))
    return pd.DataFrame({"winner": relevance.index[winner], "loser": relevance.index[loser]})


def load_queries(folder: FilePath | None = None, *, fold: int = 1) -> dict[str, LetorQuery]:
    """Read the three files of a fold.

    Parameters
    ----------
    folder : path, optional
        With the folders Fold1 to Fold5, for example ``LETOR3/OHSUMED/QueryLevelNorm``; by default
        LETOR 2.0's OHSUMED, ``$RELPREF_DATA/letor2_ohsumed``. A folder ``Data`` in between may be
        left out.
    fold : int
        1 to 5. Each holds all queries; the folds differ in which of them are for training.

    Returns
    -------
    dict from str to LetorQuery
        Queries by label, numbers in ascending order.

    Raises
    ------
    DataError
        If a file is missing, a line has another form, or a document occurs twice in a query; the
        message names file and line.
    """
    files = _files(find("letor2-ohsumed", folder), fold)
    queries: dict[str, LetorQuery] = {}
    for part, file in files.items():
        for qid, query in read_queries(file, part=part).items():
            if qid in queries:
                earlier = files[queries[qid].part]
                raise DataError(f"{file}: the query {qid} is in {earlier}, too; keep one")
            queries[qid] = query

    def place(qid: str) -> tuple[float, str]:
        return int(qid) if qid.isascii() and qid.isdigit() else np.inf, qid

    return {qid: queries[qid] for qid in sorted(queries, key=place)}


def read_queries(path: FilePath, *, part: str = "test") -> dict[str, LetorQuery]:
    """Read one file of lines ``label qid:QUERY 1:value 2:value ... #docid = DOCUMENT``.

    Parameters
    ----------
    path : path
    part : str
        Mark of the queries.

    Returns
    -------
    dict from str to LetorQuery
        Queries by label, in the order of the file.

    Raises
    ------
    DataError
        At the first line of another form; the message names it.
    """
    file = Path(path)
    lines: dict[tuple[str, str], int] = {}
    rows: list[list[Any]] = []
    for line_number, line in read_lines(file).items():
        where = f"{file}, line {line_number}"
        match = _LINE.match(line.strip())
        if match is None:
            raise DataError(
                f"{where}: {shown(line.strip())} does not have the form {_SHAPE}; correct it"
            )
        judgment, qid, cells, document = match.groups()
        if not judgment.isascii() or not judgment.isdigit():
            unjudged = judgment == "-1"
            remedy = "leave out documents without a judgment" if unjudged else "correct the line"
            raise DataError(
                f"{where}: label {shown(judgment)} is not a judgment 0, 1, ...; {remedy}"
            )
        if (first := lines.setdefault((qid, document), line_number)) != line_number:
            raise DataError(
                f"{where}: the document {document} of query {qid} was on line {first} already; "
                "keep one of the two"
            )
        rows.append([qid, document, int(judgment), *_values(cells.split(), where)])
        width, expected = len(rows[-1]) - 3, len(rows[0]) - 3
        if width != expected:
            raise DataError(
                f"{where}: there are {counted(width, 'feature')}, but {expected} before; correct "
                "the line"
            )
    if not rows:
        raise DataError(
            f"{file}: the file holds no documents; it should hold lines of the form {_SHAPE}"
        )
    features = [f"feature_{at}" for at in range(1, expected + 1)]
    table = pd.DataFrame(rows, columns=["qid", "document", "relevance", *features])
    return {
        qid: LetorQuery(qid, group[features], group["relevance"], part)
        for qid, group in table.set_index("document").groupby("qid", sort=False)
    }


def _files(folder: Path, fold: int) -> dict[str, Path]:
    """Find the files of a fold by part, in upper or lower case."""
    inside = [*folder.glob("*/"), *folder.glob("[Dd][Aa][Tt][Aa]/*/")]
    folds = [child for child in inside if child.name.lower() == f"fold{fold}"]
    if not folds:
        raise DataError(
            f"{folder}: there is no folder Fold{fold} in it; give the one that has Fold1 to 5"
        )
    files = {}
    for beginning, part in PARTS.items():
        name = re.compile(rf"{beginning}.*\.txt", re.IGNORECASE)
        texts = [file for file in folds[0].iterdir() if name.fullmatch(file.name)]
        if not texts:
            raise DataError(f"{folds[0]}: there is no {part} file {beginning}*.txt in it")
        files[part] = max(texts)
    return files


def _values(cells: list[str], where: str) -> list[float]:
    """Values of the features of a line, which are numbered from 1."""
    values = []
    for feature, cell in enumerate(cells, start=1):
        prefix, _, text = cell.partition(":")
        if prefix != str(feature):
            raise DataError(
                f"{where}: found {shown(cell)} where feature {feature} is due; number them"
            )
        value = number(text, text=True)
        if value is None or not np.isfinite(value):
            null = text == "NULL"
            remedy = "use the MIN or QueryLevelNorm files" if null else "correct or remove the line"
            raise DataError(
                f"{where}: {shown(text)} of feature {feature} is not a finite number; {remedy}"
            )
        values.append(value)
    return values
