"""A folder of tables: entities, comparisons, and one file per relation."""

import os
from pathlib import Path
from typing import NamedTuple

from relpref.data.kind_words import path_and_kind, says_kind, with_kind
from relpref.data.matrix_files import MATRICES
from relpref.data.messages import shown
from relpref.data.relation import Relation
from relpref.data.table_files import SUFFIXES, suffix_of
from relpref.errors import DataError


class Files(NamedTuple):
    """The files of a data set.

    Attributes
    ----------
    entities, comparisons : path
        One table each; no comparisons where nothing was asked yet, and no entities where the comparisons name them.
    relations : dict of str to path or Relation
        One file per relation, sorted by name; a `Relation` holds the path as its table.
    """

    entities: Path | None
    comparisons: Path | None
    relations: dict[str, Path | Relation]


def find_files(path: str | os.PathLike[str]) -> Files:
    """Find the tables of a data set in a folder.

    Parameters
    ----------
    path : path
        Folder with ``entities`` and ``comparisons`` and, optionally, a folder ``relations``; the tables end
        in ``.csv``, ``.csv.gz`` or ``.parquet``, and matrices of a relation in ``.mtx``, ``.mtx.gz`` or ``.npz``. Before the ending the file
        of a relation may have a kind, see `relpref.data.kind_words`: ``cites.directed.csv``. Other files are left alone.

    Returns
    -------
    Files
        What was found.

    Raises
    ------
    DataError
        If the folder or a table is missing, or a table is there in two formats.
    """
    folder = Path(path)
    if not folder.is_dir():
        what = "this is a file, not a folder" if folder.exists() else "there is no such folder"
        raise DataError(f"{folder}: {what}; give the folder that holds entities.csv and comparisons.csv")
    relations: dict[str, Path | Relation] = {}
    inside = folder / "relations"
    if inside.exists() and not inside.is_dir():
        raise DataError(f"{inside}: this is a file; make it a folder with one table per relation")
    if inside.is_dir():
        try:
            found = sorted(inside.iterdir())
        except OSError as error:
            raise DataError(
                f"{inside}: the folder cannot be read ({error}); check its permissions"
            ) from error
        for file in found:
            # Desktop systems leave hidden files such as ._links.csv behind.
            suffix = suffix_of(file)
            if suffix not in (*SUFFIXES, *MATRICES) or file.name.startswith("."):
                continue
            stem = file.name[: -len(suffix)]
            name, _, word = stem.partition(".")
            if not says_kind(word):
                name, word = stem, ""
            if name in relations:
                other = path_and_kind(relations[name])[0].name
                raise DataError(
                    f"{file}: the relation {shown(name)} is also in {other}; remove one of the two"
                )
            relations[name] = with_kind(file, word)
    return Files(_one(folder, "entities"), _one(folder, "comparisons"), relations)


def _one(folder: Path, stem: str) -> Path:
    found = [file for file in (folder / f"{stem}{suffix}" for suffix in SUFFIXES) if file.exists()]
    if not found:
        raise DataError(f"{folder}: there is no {stem}.csv (or {stem}.parquet) in the folder; add it")
    if len(found) > 1:
        raise DataError(f"{folder}: there is {found[0].name} and {found[1].name}; remove one of the two")
    return found[0]
