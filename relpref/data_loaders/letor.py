"""Queries with judged documents, in the text format of LETOR 2, 3 and 4 (Liu et al. 2007, Qin et al. 2010)."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from relpref.data import PreferenceData
from relpref.data.arrays import counted, listed, shown
from relpref.data_loaders.edges import DERIVED, NOTE, nearest_neighbours
from relpref.data_loaders.registry import find
from relpref.errors import DataError
from relpref.files import reading

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
        By document; columns ``feature_1`` to ``feature_d``.
    relevance : Series of int, length n
        Judgment of each document, 0 for irrelevant; the larger, the more relevant.
    part : {"training", "validation", "test"}
        Where the fold puts the query.
    """

    qid: str
    features: pd.DataFrame
    relevance: pd.Series
    part: str

    def preferences(self) -> pd.DataFrame:
        """Every pair of documents of different relevance (XPGP section 6), the more relevant as ``winner``."""
        return pairs_of(self.relevance)

    def problem(
        self, comparisons: pd.DataFrame | None = None, relations: Mapping[str, Any] | None = None
    ) -> PreferenceData:
        """The query as data of a preference model.

        Parameters
        ----------
        comparisons : DataFrame, optional
            Rows of `preferences` that are known; all of them by default.
        relations : mapping of str to edges, optional
            Relations between the documents, see `PreferenceData.from_tables`; ``{}`` means none. By
            default one graph named ``similarity_derived``: nearest neighbors among the features.
            LETOR's own relation files hold more than that does, so the data carries a note that
            says where the graph comes from.

        Returns
        -------
        PreferenceData
            Items are the documents, attributes the features.
        """
        known = self.preferences() if comparisons is None else comparisons
        derived = {DERIVED: nearest_neighbours(self.features)} if relations is None else relations
        data = PreferenceData.from_tables(self.features, known, derived)
        return replace(data, notes=(*data.notes, NOTE)) if relations is None else data


def pairs_of(relevance: pd.Series) -> pd.DataFrame:
    """Every pair of labels, ``winner`` and ``loser``, of which the first is more relevant; in the order of the series."""
    levels, labels = relevance.to_numpy(), relevance.index.to_numpy()
    winner, loser = np.nonzero(levels[:, None] > levels[None, :])
    return pd.DataFrame({"winner": labels[winner], "loser": labels[loser]})


def load_queries(
    folder: str | os.PathLike[str] | None = None, *, fold: int = 1, part: str | None = None
) -> dict[str, LetorQuery]:
    """Read the three files of a fold.

    Parameters
    ----------
    folder : path, optional
        With the folders Fold1 to Fold5, for example ``LETOR3/OHSUMED/QueryLevelNorm``; by default
        LETOR 2.0's OHSUMED, ``$RELPREF_DATA/letor2_ohsumed``. A folder ``Data`` in between is
        found.
    fold : int
        1 to 5. Each holds all queries; the folds differ in which of them are for training.
    part : {"training", "validation", "test"}, optional
        Read only this part.

    Returns
    -------
    dict from str to LetorQuery
        By query, numbers in ascending order.

    Raises
    ------
    DataError
        If a file is missing, a line has another form, or a document occurs twice in a query; the
        message names file and line.
    """
    if part is not None and part not in PARTS.values():
        raise DataError(f"part is {part!r}; it is one of {listed(PARTS.values())}")
    files = _files(find("letor2-ohsumed", folder), fold)
    queries: dict[str, LetorQuery] = {}
    for name, file in files.items():
        if part not in (None, name):
            continue
        for qid, query in read_queries(file, part=name).items():
            if qid in queries:
                raise DataError(
                    f"{file}: the query {qid} is in {files[queries[qid].part]}, too; keep one"
                )
            queries[qid] = query
    numbers = {qid: int(qid) if qid.isascii() and qid.isdigit() else np.inf for qid in queries}
    return {qid: queries[qid] for qid in sorted(queries, key=lambda qid: (numbers[qid], qid))}


def read_queries(path: str | os.PathLike[str], *, part: str = "test") -> dict[str, LetorQuery]:
    """Read one file of lines ``label qid:QUERY 1:value 2:value ... #docid = DOCUMENT``.

    Parameters
    ----------
    path : path
    part : str
        What the queries are marked with.

    Returns
    -------
    dict from str to LetorQuery
        By query, in the order of the file.

    Raises
    ------
    DataError
        At the first line of another form; the message names it.
    """
    file = Path(path)
    queries: dict[str, dict[str, tuple[int, int, list[float]]]] = {}
    width = None
    with reading(file), file.open(encoding="utf-8", newline=None) as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            where = f"{file}, line {number}"
            match = _LINE.match(line.strip())
            if match is None:
                raise DataError(
                    f"{where}: {shown(line.strip())} does not have the form {_SHAPE}; correct it"
                )
            judgment, qid, cells, document = match.groups()
            if not judgment.isascii() or not judgment.isdigit():
                remedy = (
                    "leave out documents without a judgment"
                    if judgment == "-1"
                    else "correct the line"
                )
                raise DataError(
                    f"{where}: label {shown(judgment)} is not a judgment 0, 1, ...; {remedy}"
                )
            values = _values(cells.split(), where, width)
            width = len(values)
            documents = queries.setdefault(qid, {})
            if document in documents:
                raise DataError(
                    f"{where}: the document {document} of query {qid} was on line "
                    f"{documents[document][0]} already; "
                    "keep one of the two"
                )
            documents[document] = number, int(judgment), values
    if not queries:
        raise DataError(
            f"{file}: the file holds no documents; it should hold lines of the form {_SHAPE}"
        )
    columns = [f"feature_{number}" for number in range(1, (width or 0) + 1)]
    tables = {}
    for qid, documents in queries.items():
        _, relevance, rows = zip(*documents.values(), strict=True)
        index = pd.Index(documents, name="document")
        features = pd.DataFrame(np.array(rows), index=index, columns=columns)
        tables[qid] = LetorQuery(
            qid, features, pd.Series(relevance, index=index, name="relevance"), part
        )
    return tables


def _files(folder: Path, fold: int) -> dict[str, Path]:
    """The files of a fold by part, whatever the case of their names."""
    inside = [folder, *folder.glob("[Dd][Aa][Tt][Aa]/")]
    places = [
        child
        for place in inside
        for child in place.glob("*/")
        if child.name.lower() == f"fold{fold}"
    ]
    if not places:
        raise DataError(
            f"{folder}: there is no folder Fold{fold} in it; give the one that has Fold1 to 5"
        )
    texts = [file for file in sorted(places[0].iterdir()) if file.suffix.lower() == ".txt"]
    files = {}
    for beginning, part in PARTS.items():
        found = [file for file in texts if file.name.lower().startswith(beginning)]
        if not found:
            raise DataError(f"{places[0]}: there is no {part} file {beginning}*.txt in it")
        files[part] = found[-1]
    return files


def _values(cells: list[str], where: str, width: int | None) -> list[float]:
    values = []
    for number, cell in enumerate(cells, start=1):
        feature, _, text = cell.partition(":")
        if feature != str(number):
            raise DataError(
                f"{where}: found {shown(cell)} where feature {number} is due; number them"
            )
        try:
            values.append(float(text))
        except ValueError:
            values.append(np.nan)
        if not np.isfinite(values[-1]):
            remedy = (
                "use the MIN or QueryLevelNorm files"
                if text == "NULL"
                else "correct or remove the line"
            )
            raise DataError(
                f"{where}: {shown(text)} of feature {number} is not a finite number; {remedy}"
            )
    if width is not None and len(values) != width:
        raise DataError(
            f"{where}: there are {counted(len(values), 'feature')}, but {width} before; correct "
            "the line"
        )
    return values
