"""The public data sets that have a loader: where they come from, their terms, where they are on this machine, and rows of their files."""

import json
import os
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import listed
from relpref.data.tables import numbers
from relpref.errors import DataError, StorageError
from relpref.files import file_digest, reading

SETTING = "RELPREF_DATA"
_TIMEOUT_S = 30  # without a byte


@dataclass(frozen=True)
class RemoteFile:
    """A file of a data set that may be fetched, at an address whose content cannot change; its size in bytes."""

    name: str
    address: str
    sha256: str
    size: int


@dataclass(frozen=True)
class DataSet:
    """What a user has to know before using a data set: the call that reads it, where it is offered, what its authors ask.

    Attributes
    ----------
    folder : str
        Below the folder that ``RELPREF_DATA`` names; empty for a set that comes with the package.
    files : tuple of RemoteFile
        What ``relpref data get`` fetches; empty where the terms want to be accepted in person.
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
    content = (files("relpref.data_loaders") / "tables" / "data_sets.json").read_text(
        encoding="utf-8"
    )
    sets: dict[str, Any] = json.loads(content)
    remote = {
        name: tuple(RemoteFile(**file) for file in one.pop("files", ()))
        for name, one in sets.items()
    }
    return {name: DataSet(name, **one, files=remote[name]) for name, one in sets.items()}


DATA_SETS = _registered()


def data_set(name: str) -> DataSet:
    """Return a data set by name."""
    if name not in DATA_SETS:
        raise DataError(f"there is no data set {name!r}; choose one of {listed(DATA_SETS)}")
    return DATA_SETS[name]


def data_folder() -> Path | None:
    """The folder of all data sets, from the environment variable ``RELPREF_DATA``; None if it is not set."""
    setting = os.environ.get(SETTING, "").strip()
    return Path(setting).absolute() if setting else None


def find(name: str, folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder that holds the files of a data set."""
    wanted, below = data_set(name), data_folder()
    if folder is None and below is None:
        raise DataError(f"{wanted.name}: give its folder, or set {SETTING}. {how_to_get(wanted)}")
    place = Path(folder) if folder is not None else (below or Path()) / wanted.folder
    if not place.is_dir():
        raise DataError(f"{place}: there is no such folder. {how_to_get(wanted)}")
    return place


def how_to_get(wanted: DataSet) -> str:
    """Where a data set can be had and under which terms, in two sentences."""
    if wanted.files:
        how = f"`relpref data get {wanted.name}` fetches it from {wanted.address}"
    else:
        how = (
            f"Get it from {wanted.address} and put it into {wanted.folder}/ in the folder that "
            f"{SETTING} names"
        )
    return f"{how}. Terms: {wanted.terms}"


def download(file: RemoteFile, folder: Path, *, progress_bar: bool = True) -> bool:
    """Fetch a file into a folder, unless it is there."""
    import pooch
    from requests import RequestException

    target = folder / file.name
    pooch.get_logger().setLevel("WARNING")  # what is fetched is said by the caller
    fetch = pooch.HTTPDownloader(
        progressbar=progress_bar and sys.stderr.isatty(), timeout=_TIMEOUT_S
    )
    try:
        if target.exists():
            if file_digest(target) == file.sha256:
                return False
            raise StorageError(
                f"{target}: this is not the published file; move it away and try again"
            )
        pooch.retrieve(file.address, f"sha256:{file.sha256}", file.name, folder, downloader=fetch)
    except StorageError:
        raise
    except RequestException as error:
        raise StorageError(
            f"{file.address}: cannot be fetched ({error}); try again later"
        ) from error
    except ValueError:  # another checksum
        raise StorageError(
            f"{file.address}: what arrived is not the published file ({file.size} bytes, sha256 "
            f"{file.sha256[:12]}...) "
            "and was deleted; try again, or look at the address yourself"
        ) from None
    except OSError as error:
        raise StorageError(
            f"{error.filename or target}: cannot be written ({error.strerror or error}); "
            "choose a folder that is yours, on a disk with room"
        ) from error
    return True


class Rows(NamedTuple):
    """Cells of the lines of a text file that are not empty, and the numbers of these lines."""

    file: Path
    lines: list[int]
    cells: list[list[str]]

    def refuse(self, row: int, reason: str) -> NoReturn:
        raise DataError(f"{self.file}, line {self.lines[row]}: {reason}; get the file again")

    def after(self, row: int) -> "Rows":
        """Return the rows from one on."""
        return Rows(self.file, self.lines[row:], self.cells[row:])

    def of_width(self, width: int) -> "Rows":
        """Return the rows if each has so many cells."""
        for row, cells in enumerate(self.cells):
            if len(cells) != width:
                self.refuse(row, f"there are {len(cells)} values instead of {width}")
        return self

    def numbers(self, start: int = 0) -> NDArray[np.float64]:
        """Return the cells from a column on as finite numbers."""
        cells = pd.DataFrame(self.cells, dtype=object)
        how: Any = {"text": True, "remedy": "get the file again"}
        columns = [
            numbers(
                cells[at], str(at + 1), lambda row: f"{self.file}, line {self.lines[row]}", **how
            )
            for at in cells.columns[start:]
        ]
        return np.column_stack(columns)


def read_rows(file: Path, separator: str | None = None) -> Rows:
    """Read a file whose cells are separated by a character, or by any white space."""
    with reading(file):
        text = file.read_text(encoding="utf-8-sig")
    numbered = [
        (number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()
    ]
    if not numbered:
        raise DataError(f"{file}: the file is empty; get it again")
    return Rows(
        file, [number for number, _ in numbered], [line.split(separator) for _, line in numbered]
    )
