"""A folder of tables: entities, comparisons, and one file per relation."""

import os
from pathlib import Path
from typing import NamedTuple

from relpref.data.messages import shown
from relpref.data.tables import SUFFIXES
from relpref.errors import DataError


class Files(NamedTuple):
    """The files of a data set.

    Attributes
    ----------
    entities, comparisons : path
        One table each.
    relations : dict of str to path
        One table per relation, sorted by name.
    """

    entities: Path
    comparisons: Path
    relations: dict[str, Path]


def find_files(path: str | os.PathLike[str]) -> Files:
    """Find the tables of a data set in a folder.

    Parameters
    ----------
    path : path
        Folder with ``entities`` and ``comparisons`` and, optionally, a folder ``relations``; the tables end
        in ``.csv`` or ``.parquet``. Other files are left alone.

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
    relations: dict[str, Path] = {}
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
            if file.stem in relations:
                raise DataError(
                    f"{file}: the relation {shown(file.stem)} is also in {relations[file.stem].name}; remove one of the two"
                )
            relations[file.stem] = file
    return Files(_one(folder, "entities"), _one(folder, "comparisons"), relations)


def _one(folder: Path, stem: str) -> Path:
    found = [file for file in (folder / f"{stem}{suffix}" for suffix in SUFFIXES) if file.exists()]
    if not found:
        raise DataError(f"{folder}: there is no {stem}.csv (or {stem}.parquet) in the folder; add it")
    if len(found) > 1:
        raise DataError(f"{folder}: there is {found[0].name} and {found[1].name}; remove one of the two")
    return found[0]
