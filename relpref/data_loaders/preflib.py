"""Files of PrefLib, the library of preferences (Mattei & Walsh 2013)."""

from typing import Literal

from relpref.data.arrays import listed, nearest
from relpref.data.rankings import Rankings
from relpref.data_loaders.registry import find
from relpref.errors import DataError
from relpref.files import FilePath


def load(
    name: str,
    folder: FilePath | None = None,
    incomplete: Literal["top-k", "subset"] | None = None,
) -> Rankings:
    """Read a file of orders of the library.

    Parameters
    ----------
    name : str
        Name of the file, such as ``"00009-00000001.soc"``.
    folder : path, optional
        Folder of the data sets, which may lie in folders inside; ``$RELPREF_DATA/preflib`` by
        default.
    incomplete : {"top-k", "subset"}
        Meaning of ``.soi`` and ``.toi`` files, which need it, see `Rankings.from_preflib`.
    """
    place = find("preflib", folder)
    files = {file.name: file for file in sorted(place.rglob("*.[st]o[ci]"))}
    if name not in files:
        near = listed(nearest(name, files))
        hint = f"nearest: {near}" if files else "it holds no files of orders"
        raise DataError(f"{place}: there is no file {name!r} in it; {hint}")
    return Rankings.from_preflib(files[name], incomplete)
