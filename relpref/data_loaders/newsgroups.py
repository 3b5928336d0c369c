"""Messages of 20 Newsgroups, from the archive as it is distributed (Lang 1995)."""

import tarfile
import zlib
from collections.abc import Sequence

import pandas as pd

from relpref.data.arrays import listed, nearest, shown
from relpref.data_loaders.registry import find
from relpref.errors import DataError
from relpref.files import FilePath
from relpref.limits import MAX_MESSAGE_BYTES

ARCHIVE = "20news-bydate.tar.gz"
_PARTS = {"20news-bydate-train": "train", "20news-bydate-test": "test"}
_REMEDY = "give the archive as it is distributed"


def load(
    groups: Sequence[str] | None = None,
    folder: FilePath | None = None,
) -> pd.DataFrame:
    """Read messages from the archive ``20news-bydate.tar.gz``.

    Nothing is unpacked to the disk. A member of the archive that is neither a folder nor a file
    ``20news-bydate-train/GROUP/NUMBER`` (or ``-test``) is refused.

    Parameters
    ----------
    groups : sequence of str, optional
        Newsgroups, such as ``["rec.autos", "sci.med"]``; by default all twenty.
    folder : path, optional
        Folder of the archive; ``$RELPREF_DATA/20newsgroups`` by default.

    Returns
    -------
    DataFrame
        One row for each message, labeled and sorted like ``rec.autos/101551``: its ``text`` (the
        collection keeps ``From`` and ``Subject``, not the headers that name the group), its
        ``group`` and its ``part`` of the archive (``train`` or ``test``, by date).

    Raises
    ------
    DataError
        If the archive is missing, damaged or holds something else, or there is no such group in it.
    """
    file = find("20newsgroups", folder, ARCHIVE)
    messages: dict[str, list[str]] = {}
    group_of: dict[str, str] = {}
    try:
        with tarfile.open(file, "r:gz") as archive:
            for member in archive:
                if member.isdir():
                    continue
                part, _, label = member.name.partition("/")
                if not member.isreg() or label.count("/") != 1 or part not in _PARTS:
                    raise DataError(
                        f"{file}: {shown(member.name)} is not a message "
                        f"20news-bydate-train/GROUP/NUMBER; {_REMEDY}"
                    )
                if member.size > MAX_MESSAGE_BYTES:
                    raise DataError(
                        f"{file}: {shown(member.name)} has {member.size} bytes, more than any "
                        f"message; {_REMEDY}"
                    )
                if label in group_of:
                    raise DataError(f"{file}: the message {label} is in it twice; {_REMEDY}")
                group = group_of[label] = label.partition("/")[0]
                if groups is None or group in groups:
                    stream = archive.extractfile(member)
                    text = stream.read().decode("latin-1") if stream else ""
                    messages[label] = [text, group, _PARTS[part]]
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{file}: the archive cannot be read ({reason}); {_REMEDY}") from None
    names = set(group_of.values())
    for group in groups or ():
        if group not in names:
            meant = f"; did you mean {listed(nearest(group, names))}?" if names else ""
            raise DataError(f"{file}: there is no newsgroup {shown(group)} in it{meant}")
    if not messages:
        raise DataError(f"{file}: there are no messages in it; {_REMEDY}")
    columns = ["text", "group", "part"]
    table = pd.DataFrame.from_dict(messages, orient="index", columns=columns)
    return table.sort_index().rename_axis("message")
