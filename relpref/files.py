"""Atomic replacement of files and folders, and reading of files that may be damaged."""

import ctypes
import gzip
import hashlib
import io
import os
import secrets
import shutil
import tempfile
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from relpref.errors import DataError, StorageError
from relpref.limits import MAX_DECOMPRESSED_GB

FilePath = str | os.PathLike[str]
MAX_DECOMPRESSED = "RELPREF_MAX_DECOMPRESSED"
placed: deque[Path] = deque(maxlen=1)  # the last file or folder that was put in place
_AT_FDCWD = -100
_SWAP = 2  # RENAME_EXCHANGE on Linux, RENAME_SWAP on macOS


@contextmanager
def replaced(path: FilePath) -> Iterator[Path]:
    """Give a temporary file to write, and put it in place of ``path`` after the block.

    After an error, or if the process is killed, the earlier file stays as it was. The data reaches
    the disk before the name does.
    """
    try:
        target = Path(path).resolve()  # through a link, so that the link stays
    except ValueError as error:  # a NUL character
        raise StorageError(f"cannot write {str(path)!r}: {error}; choose another name") from None
    if target.is_dir():
        raise StorageError(f"{target} is a folder; give the name of a file in it")
    if target.exists() and not target.is_file():
        raise StorageError(f"{target} is not an ordinary file; choose another name")
    part, remedy = None, "choose a folder that exists and is yours"
    try:
        handle, name = tempfile.mkstemp(".part", f".{target.name}.", target.parent)
        os.close(handle)
        part, remedy = Path(name), "the earlier file is untouched"
        yield part
        flush(part)
        os.umask(umask := os.umask(0))
        part.chmod(0o666 & ~umask)
        os.replace(part, target)
        placed.append(target)
        flush(target.parent)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error.strerror or error}; {remedy}") from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


@contextmanager
def replaced_folder(path: FilePath) -> Iterator[Path]:
    """Give an empty folder to fill, see `replaced`; missing parents are created."""
    target = Path(path).absolute()
    part, before = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part"), [*placed]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part.mkdir()
        yield part
        for inside, _, names in os.walk(part):
            for name in (*names, ""):  # the folder itself last
                flush(Path(inside, name))
        _put_in_place(part, target)
        before = [target]
        flush(target.parent)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            f"{target}: cannot be written ({error.strerror or error}); choose a folder that is "
            "yours, on a disk with room"
        ) from error
    finally:
        # The unfinished folder, or the earlier one after the swap.
        shutil.rmtree(part, ignore_errors=True)
        placed.clear()  # of files inside the folder
        placed.extend(before)


def previous(path: Path) -> Path:
    """Path of the earlier folder during a replacement in two steps."""
    return path.with_name(f".{path.name}.previous")


def _put_in_place(part: Path, target: Path) -> None:
    if not target.exists():
        os.rename(part, target)
    elif not _swap(part, target):
        waiting = previous(target)
        os.rename(target, waiting)
        try:
            os.rename(part, target)
        except BaseException:
            os.rename(waiting, target)
            raise
        shutil.rmtree(waiting, ignore_errors=True)


def _swap(first: Path, second: Path) -> bool:
    """Exchange two folders in one step; False if the system cannot."""
    if os.name == "nt":
        return False
    library, names = ctypes.CDLL(None), (os.fsencode(first), os.fsencode(second))
    if hasattr(library, "renameat2"):
        return bool(library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _SWAP) == 0)
    return hasattr(library, "renamex_np") and bool(library.renamex_np(*names, _SWAP) == 0)


def made(path: FilePath) -> Path:
    """Create a folder for results, with its parents, if it does not exist."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # a NUL character is a ValueError
        reason = getattr(error, "strerror", error)
        raise StorageError(
            f"{_printable(path)}: cannot be made ({reason}); name another folder"
        ) from error
    return Path(path)


def _printable(path: FilePath) -> str:
    return str(path) if str(path).isprintable() else repr(str(path))


@contextmanager
def reading(file: Path, what: str = "file") -> Iterator[None]:
    """Turn errors of reading a data file into a `DataError` with the remedy."""
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"{file}: there is no such file; check the path") from None
    except IsADirectoryError:
        raise DataError(
            f"{file}: this is a directory, not a {what}; give the file inside it"
        ) from None
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file}: the file is not UTF-8 text ({error.reason}); convert it"
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{file}: the file cannot be read to its end ({error}); it is damaged: get it again"
        ) from error
    except (OSError, ValueError) as error:  # a NUL character in the name is a ValueError
        raise DataError(
            f"{_printable(file)}: the file cannot be read ({error}); check its name and rights"
        ) from error


class _Limited(io.RawIOBase):
    """Decompressed content of a file, up to the limit of its size."""

    def __init__(self, file: Path, stream: IO[bytes]) -> None:
        self._file, self._stream, self._size = file, gzip.GzipFile(fileobj=stream), 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def readinto(self, buffer: Any) -> int:
        count = self._stream.readinto(buffer)
        self._size += count
        check_decompressed(self._file, self._size)
        return count


def decompressed(file: Path, stream: IO[bytes]) -> io.BufferedReader:
    """Decompress a gzip stream, up to the limit of `check_decompressed`."""
    return io.BufferedReader(_Limited(file, stream), 1 << 20)


def check_decompressed(file: Path, size: float) -> None:
    """Refuse a compressed file that becomes too large, perhaps thousands of times its size."""
    text = os.environ.get(MAX_DECOMPRESSED, "").strip()
    try:
        limit = float(text) if text else MAX_DECOMPRESSED_GB
    except ValueError:
        limit = -1.0
    if not limit > 0:
        raise DataError(f"{MAX_DECOMPRESSED} is {text!r}; it is a number of gigabytes above 0")
    if size > 1e9 * limit:
        raise DataError(
            f"{file}: decompressed it has more than {limit:g} GB, which is the limit; if it is "
            f"meant to be so large, set the environment variable {MAX_DECOMPRESSED} to more "
            "gigabytes"
        )


def file_digest(path: Path) -> str:
    """SHA-256 of a file, which may be larger than the memory."""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def flush(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    windows = os.name == "nt"
    if windows and path.is_dir():  # which cannot be opened there
        return
    descriptor = os.open(path, os.O_RDWR if windows else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
