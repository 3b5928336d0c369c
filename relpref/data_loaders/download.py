"""Fetching a file once: resumable, checked, and in place only when it is whole."""

import hashlib
import http.client
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from relpref.data_loaders.registry import RemoteFile
from relpref.errors import StorageError
from relpref.files import flush

_BLOCK = 1 << 16
_PATIENCE = 30  # seconds without a byte


def download(file: RemoteFile, folder: Path, *, progress_bar: bool = True) -> bool:
    """Fetch a file into a folder, unless it is there.

    What has arrived is kept in ``<name>.part`` when the connection breaks, and the next call goes on from there.

    Parameters
    ----------
    file : RemoteFile
    folder : Path
        Made if need be.
    progress_bar : bool
        Show the bytes where a person watches (stderr is a terminal).

    Returns
    -------
    bool
        Whether anything was fetched; False if the file was there.

    Raises
    ------
    StorageError
        If the address cannot be reached or breaks off, the content is not the published one, or the file cannot be written.
    """
    target = folder / file.name
    part = folder / f"{file.name}.part"
    try:
        if target.exists():
            if _sha256(target) == file.sha256:
                return False
            raise StorageError(f"{target}: this is not the published file; move it away and try again")
        folder.mkdir(parents=True, exist_ok=True)
        if not part.exists() or part.stat().st_size < file.size:
            _fetch(file, part, progress_bar)
        _check(file, part)
        flush(part)
        os.replace(part, target)
        flush(folder)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            f"{error.filename or target}: cannot be written ({error.strerror or error}); "
            "choose a folder that is yours, on a disk with room"
        ) from error
    return True


def _fetch(file: RemoteFile, part: Path, progress_bar: bool) -> None:
    """Append what is missing; start again where the server does not know ranges."""
    from tqdm import tqdm

    start = part.stat().st_size if part.exists() else 0
    with _opened(file, start) as response, part.open("ab") as stream:
        if start and response.status != http.client.PARTIAL_CONTENT:
            start = 0
            stream.truncate(0)
        with tqdm(
            total=file.size,
            initial=start,
            desc=file.name,
            unit="B",
            unit_scale=True,
            leave=False,
            file=sys.stderr,
            disable=not (progress_bar and sys.stderr.isatty()),
        ) as bar:
            arrived = start
            # One byte too many is enough to know that it is another file.
            while arrived <= file.size and (block := _read(file, response, arrived)):
                stream.write(block)
                arrived += len(block)
                bar.update(len(block))
    if arrived < file.size:
        raise _broke_off(file, arrived, "the connection was closed")


def _opened(file: RemoteFile, start: int) -> Any:
    request = urllib.request.Request(file.address, headers={"User-Agent": "relpref"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        return urllib.request.urlopen(request, timeout=_PATIENCE)
    except urllib.error.HTTPError as error:
        with error:
            raise StorageError(
                f"{file.address}: the server answered {error.code} {error.reason}; try again later"
            ) from None
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
        reason = getattr(error, "reason", error)
        raise StorageError(
            f"{file.address}: cannot be reached ({reason}); check the connection and try again"
        ) from error


def _read(file: RemoteFile, response: Any, arrived: int) -> bytes:
    try:
        return bytes(response.read(_BLOCK))
    except (OSError, http.client.HTTPException) as error:
        raise _broke_off(file, arrived, str(error) or type(error).__name__) from error


def _broke_off(file: RemoteFile, arrived: int, reason: str) -> StorageError:
    return StorageError(
        f"{file.address}: broke off after {arrived} of {file.size} bytes ({reason}); try again, it goes on from there"
    )


def _check(file: RemoteFile, part: Path) -> None:
    found = _sha256(part)
    if found != file.sha256:
        size = part.stat().st_size
        part.unlink()
        raise StorageError(
            f"{file.address}: what arrived ({size} bytes, sha256 {found[:12]}...) is not the published file "
            f"({file.size} bytes, sha256 {file.sha256[:12]}...) and was deleted; try again, or look at the address yourself"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
