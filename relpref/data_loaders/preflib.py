"""Files of PrefLib, the library of preferences (Mattei & Walsh 2013)."""

import os
from typing import Literal

from relpref.data.arrays import listed, nearest
from relpref.data.rankings import Rankings
from relpref.data_loaders.registry import find
from relpref.errors import DataError


def load(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    incomplete: Literal["top-k", "subset"] | None = None,
) -> Rankings:
    """Read a file of orders of the library.

    Parameters
    ----------
    name : str
        Of the file: ``"00009-00000001.soc"``.
    folder : path, optional
        That holds the data sets, each in a folder of its own; ``$RELPREF_DATA/preflib`` by default.
    incomplete : {"top-k", "subset"}
        Needed for ``.soi`` and ``.toi`` files, see `Rankings.from_preflib`.
    """
    place = find("preflib", folder)
    files = {file.name: file for file in sorted(place.rglob("*.[st]o[ci]"))}
    if name not in files:
        hint = (
            f"nearest: {listed(nearest(name, files))}" if files else "it holds no files of orders"
        )
        raise DataError(f"{place}: there is no file {name!r} in it; {hint}")
    return Rankings.from_preflib(files[name], incomplete)
