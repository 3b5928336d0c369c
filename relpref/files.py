"""Replacing files whole or not at all."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from relpref.errors import StorageError


@contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary file to write; put it in place of ``path`` when the block ends without an error.

    A process killed at any moment leaves the earlier file as it was. The data reaches the disk before the name does.

    Parameters
    ----------
    path : path
        Its folder must exist.

    Yields
    ------
    Path
        An empty file in the same folder.

    Raises
    ------
    StorageError
        If the folder is missing or cannot be written, or the disk is full.
    """
    target = Path(path).resolve()  # through a link, so that the link stays
    if target.is_dir():
        raise StorageError(f"{target} is a folder; give the name of a file in it")
    if target.exists() and not target.is_file():
        raise StorageError(f"{target} is not an ordinary file; choose another name")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        os.close(handle)
    except OSError as error:
        raise StorageError(
            f"cannot write {target}: {error.strerror}; choose a folder that exists and is yours"
        ) from error
    part = Path(name)
    try:
        yield part
        flush(part)
        part.chmod(0o666 & ~_umask())
        os.replace(part, target)
        flush(target.parent)
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(
            f"cannot write {target}: {error.strerror or error}; the earlier file is untouched"
        ) from error
    finally:
        part.unlink(missing_ok=True)


def file_digest(path: Path) -> str:
    """SHA-256 of a file, which may be larger than the memory."""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def flush(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
