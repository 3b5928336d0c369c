"""Replacing folders whole or not at all."""

import ctypes
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from relpref.errors import StorageError
from relpref.files import flush

_AT_FDCWD = -100
_SWAP = 2  # RENAME_EXCHANGE on Linux, RENAME_SWAP on macOS


@contextmanager
def replaced_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give an empty folder to fill; put it in place of ``path`` when the block ends without an error.

    A process killed at any moment leaves the earlier folder whole. Everything reaches the disk before the name does. Parents
    that do not exist are made.
    """
    target = Path(path).absolute()
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part.mkdir()
        yield part
        _flush_all(part)
        _put_in_place(part, target)
        flush(target.parent)
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(
            f"{target}: cannot be written ({error.strerror or error}); choose a folder that is yours, on a disk with room"
        ) from error
    finally:
        # Whatever lies there now: the unfinished folder, or the earlier one after the swap.
        shutil.rmtree(part, ignore_errors=True)


def previous(path: Path) -> Path:
    """Where the earlier folder waits for a moment where two folders cannot be swapped in one step."""
    return path.with_name(f".{path.name}.previous")


def _put_in_place(part: Path, target: Path) -> None:
    if not target.exists() or not any(target.iterdir()):
        os.rename(part, target)
        return
    if _swap(part, target):
        return
    waiting = previous(target)
    os.rename(target, waiting)
    try:
        os.rename(part, target)
    except BaseException:
        os.rename(waiting, target)
        raise
    shutil.rmtree(waiting, ignore_errors=True)


def _swap(first: Path, second: Path) -> bool:
    """Exchange two folders in one step; tell whether the system could."""
    library = ctypes.CDLL(None)
    names = os.fsencode(first), os.fsencode(second)
    if hasattr(library, "renameat2"):
        return bool(library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _SWAP) == 0)
    if hasattr(library, "renamex_np"):
        return bool(library.renamex_np(*names, _SWAP) == 0)
    return False


def _flush_all(folder: Path) -> None:
    for inside, _, names in os.walk(folder):
        for name in names:
            flush(Path(inside) / name)
        flush(Path(inside))


def made(path: str | os.PathLike[str]) -> Path:
    """A folder for results, made with its parents where it is missing."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{path}: cannot be made ({error.strerror}); name another folder") from error
    except ValueError as error:  # a NUL character
        raise StorageError(f"{str(path)!r}: cannot be made ({error}); name another folder") from None
    return Path(path)
