"""Public data sets that have a loader: sources, terms, folders, and lines of their files."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from relpref.data.arrays import listed, shown
from relpref.data.tables import numbers
from relpref.errors import DataError, StorageError
from relpref.files import FilePath, file_digest, reading

SETTING = "RELPREF_DATA"
REMEDY = "get the file again"
_TIMEOUT_S = 30  # without a byte


@dataclass(frozen=True)
class RemoteFile:
    """A file that may be fetched, at an address whose content cannot change; its size in bytes."""

    name: str
    address: str
    sha256: str
    size: int


@dataclass(frozen=True)
class DataSet:
    """Facts about a data set: the call that reads it, where it is offered, what its authors ask.

    Attributes
    ----------
    folder : str
        Below the folder that ``RELPREF_DATA`` names; empty for a set that comes with the package.
    files : tuple of RemoteFile
        Files that ``relpref data get`` fetches; empty where the terms have to be accepted in
        person.
    """

    name: str
    title: str
    loader: str
    folder: str
    address: str
    terms: str
    cite: str
    files: tuple[RemoteFile, ...] = ()

    @property
    def access(self) -> str:
        """``bundled``, ``download`` or ``by hand``."""
        return "download" if self.files else "by hand" if self.folder else "bundled"


def _registered() -> dict[str, DataSet]:
    table = files("relpref.data_loaders") / "tables" / "data_sets.json"
    content: dict[str, Any] = json.loads(table.read_text(encoding="utf-8"))
    sets = {}
    for name, fields in content.items():
        remote = tuple(RemoteFile(**file) for file in fields.pop("files", ()))
        sets[name] = DataSet(name, **fields, files=remote)
    return sets


DATA_SETS = _registered()


def data_set(name: str) -> DataSet:
    """Return a data set by name."""
    if name not in DATA_SETS:
        raise DataError(f"there is no data set {name!r}; choose one of {listed(DATA_SETS)}")
    return DATA_SETS[name]


def data_folder() -> Path | None:
    """Return the folder that ``RELPREF_DATA`` names, or None."""
    setting = os.environ.get(SETTING, "").strip()
    return Path(setting).absolute() if setting else None


def find(name: str, folder: FilePath | None = None, file: str = "") -> Path:
    """Return the folder of a data set, or a file in it; refuse what does not exist."""
    chosen, base = data_set(name), data_folder()
    if folder is None:
        if base is None:
            raise DataError(f"{name}: give its folder, or set {SETTING}. {how_to_get(chosen)}")
        folder = base / chosen.folder
    for path, kind in ((Path(folder), "folder"), (Path(folder, file), "file")):
        if not path.exists():
            raise DataError(f"{path}: there is no such {kind}. {how_to_get(chosen)}")
    return path


def how_to_get(chosen: DataSet) -> str:
    """Describe in two sentences where to get a data set and its terms."""
    if chosen.files:
        how = f"`relpref data get {chosen.name}` fetches it from {chosen.address}"
    else:
        how = (
            f"Get it from {chosen.address} and put it into {chosen.folder}/ in the folder that "
            f"{SETTING} names"
        )
    return f"{how}. Terms: {chosen.terms}"


def download(file: RemoteFile, folder: Path, *, progress_bar: bool = True) -> bool:
    """Fetch a file into a folder unless it is there, and check it; tell whether it was fetched."""
    import pooch
    from requests import RequestException

    target = folder / file.name
    pooch.get_logger().setLevel("WARNING")  # the caller reports what is fetched
    shows = progress_bar and sys.stderr.isatty()
    fetch = pooch.HTTPDownloader(progressbar=shows, timeout=_TIMEOUT_S)
    try:
        if not target.exists():
            checksum = f"sha256:{file.sha256}"
            pooch.retrieve(file.address, checksum, file.name, folder, downloader=fetch)
            return True
        if file_digest(target) == file.sha256:
            return False
    except RequestException as error:
        raise StorageError(
            f"{file.address}: cannot be fetched ({error}); try again later"
        ) from error
    except ValueError:  # another checksum
        raise StorageError(
            f"{file.address}: what arrived is not the published file ({file.size} bytes, sha256 "
            f"{file.sha256[:12]}...) and was deleted; try again, or look at the address yourself"
        ) from None
    except OSError as error:
        raise StorageError(
            f"{error.filename or target}: cannot be written ({error.strerror or error}); "
            "choose a folder that is yours, on a disk with room"
        ) from error
    raise StorageError(f"{target}: this is not the published file; move it away and try again")


def read_lines(file: Path) -> dict[int, str]:
    """Read the lines of a text file that are not blank, by number."""
    with reading(file):
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    return {number: line for number, line in enumerate(lines, start=1) if line.strip()}


def read_numbers(
    file: Path,
    columns: Sequence[Any] | None = None,
    *,
    separator: str | None = None,
    header: str | None = None,
    labels: int | None = None,
) -> pd.DataFrame:
    """Read a text file of finite numbers, a row for each line that is not blank.

    Parameters
    ----------
    columns : sequence, optional
        Names of the columns; by default the cells of the first line.
    separator : str, optional
        Character between cells; any white space by default.
    header : str, optional
        First line of the file, before the rows.
    labels : int, optional
        Position of the column that holds labels of the rows, which become the index.

    Returns
    -------
    DataFrame
        Numbers by line of the file, or by label where there are ``labels``.

    Raises
    ------
    DataError
        If the file cannot be read, holds no rows, or has a row, cell or label that is wrong.
    """
    rows = {number: line.split(separator) for number, line in read_lines(file).items()}
    if columns is None or header is not None:
        first = rows.pop(min(rows, default=0), [])
        if header is not None and (given := " ".join(first)) != header:
            raise DataError(f"{file}: the header is {shown(given)}, not {header!r}; {REMEDY}")
        columns = first if columns is None else columns
    if not rows:
        raise DataError(f"{file}: the file is empty or ends with its header; {REMEDY}")
    for number, cells in rows.items():
        if len(cells) != len(columns):
            raise DataError(
                f"{file}, line {number}: there are {len(cells)} values instead of {len(columns)}; "
                f"{REMEDY}"
            )
    table, lines = np.array(list(rows.values()), dtype=object), list(rows)
    index = pd.Index(lines) if labels is None else pd.Index(table[:, labels])
    for names in (index, pd.Index(columns)):
        if names.has_duplicates:
            twice = names[names.duplicated()][0]
            raise DataError(f"{file}: the label {shown(twice)} is there twice; {REMEDY}")

    def place(row: int) -> str:
        return f"{file}, line {lines[row]}"

    values = {
        name: numbers(pd.Series(table[:, at]), str(name), place, text=True, remedy=REMEDY)
        for at, name in enumerate(columns)
        if at != labels
    }
    return pd.DataFrame(values, index=index)
