"""A folder of tables: entities, comparisons, and one file per relation."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from relpref.data.messages import shown
from relpref.data.relation import Relation
from relpref.data.tables import SUFFIXES, read_table
from relpref.errors import DataError


class Files(NamedTuple):
    """The files of a data set.

    Attributes
    ----------
    entities, comparisons : path
        One table each.
    relations : dict of str to path or Relation
        One table per relation, sorted by name; a `Relation` holds the path as its table.
    """

    entities: Path
    comparisons: Path
    relations: dict[str, Path | Relation]


# What a file of links may say about their direction: cites.directed.csv, or cites=links.csv:directed on the command line.
_KINDS: dict[str, dict[str, Any]] = {
    "undirected": {"kind": "undirected"},
    "directed": {"kind": "directed"},
    "random_walk": {"kind": "directed", "form": "random_walk"},
    "bipartite": {"kind": "bipartite"},
}
KIND_WORDS = tuple(_KINDS)


def with_kind(path: Path, word: str) -> Path | Relation:
    """Return the file of a relation with its kind, one of `KIND_WORDS` or "" where nothing is said."""
    return Relation(path, **_KINDS[word]) if word else path


def path_and_kind(given: Path | Relation) -> tuple[Path, str]:
    """The inverse of `with_kind`."""
    if not isinstance(given, Relation):
        return Path(given), ""
    word = "random_walk" if given.form == "random_walk" else given.kind or ""
    return Path(given.table), word


def read_file(given: Any) -> Any:
    """Read the table of a relation given as a path or as a `Relation` of one."""
    return replace(given, table=read_table(given.table)) if isinstance(given, Relation) else read_table(given)


def find_files(path: str | os.PathLike[str]) -> Files:
    """Find the tables of a data set in a folder.

    Parameters
    ----------
    path : path
        Folder with ``entities`` and ``comparisons`` and, optionally, a folder ``relations``; the tables end
        in ``.csv`` or ``.parquet``, before which the file of a relation may have a kind: ``cites.directed.csv``.
        Other files are left alone.

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
            if file.suffix.lower() not in SUFFIXES or file.name.startswith("."):
                continue
            name, dot, word = file.stem.rpartition(".")
            if not dot or word not in _KINDS:
                name, word = file.stem, ""
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
