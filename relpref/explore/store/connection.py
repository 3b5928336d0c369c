"""Connections to the file of answers: transactions, and what SQLite refuses in words."""

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from relpref.errors import RelprefError, StorageError

_PATIENCE = 30.0  # seconds to wait for another process that writes: its transactions take milliseconds

# Without the file, the same command makes a new one, or says how to go on where the posterior knows more than the run was fitted on.
_WITHOUT = ", save what sqlite3's .recover finds in it, or move it (and the one that ends in -wal) out of the folder and try again"

DAMAGED = f"the file is damaged or was changed by another program; put a copy back{_WITHOUT}"

# By the beginning of SQLite's name for the error.
_WORDS = {
    "SQLITE_FULL": "the disk is full, so nothing was written; make room and try again",
    "SQLITE_READONLY": "the file cannot be written; make the file and its folder writable",
    "SQLITE_BUSY": "another process has kept the file to itself for half a minute; end it and try again",
    "SQLITE_LOCKED": "another process has kept the file to itself for half a minute; end it and try again",
    "SQLITE_CANTOPEN": "the file cannot be opened; see that its folder is there, and that both may be read and written",
    "SQLITE_IOERR": "the disk is full or fails; see that it has room and is still there, and try again",
    "SQLITE_NOTADB": f"this is no file of answers, or it is damaged; put a copy back{_WITHOUT}",
    "SQLITE_CORRUPT": DAMAGED,
}


@contextmanager
def explained(place: Path) -> Iterator[None]:
    """Turn SQLite's errors into a `StorageError` with the place and the remedy."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", None) or type(error).__name__
        words = next((words for start, words in _WORDS.items() if name.startswith(start)), None)
        raise StorageError(
            f"{place}: {words} ({error})" if words else f"{place}: {DAMAGED} ({error})"
        ) from error
    except (
        LookupError,
        ValueError,
        TypeError,
        ArithmeticError,
    ) as error:  # cells that are not what they should be
        if isinstance(error, RelprefError):
            raise
        raise StorageError(f"{place}: {DAMAGED} ({error!r})") from error


def size(place: Path) -> int:
    """Bytes of a file; 0 where there is none."""
    try:
        return place.stat().st_size
    except FileNotFoundError:
        return 0


def connected(address: str) -> sqlite3.Connection:
    """A connection without Python's own transactions."""
    connection = sqlite3.connect(
        address, uri=True, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA foreign_keys = ON")
    connection.create_function("row_checksum", -1, _row_checksum, deterministic=True)
    return connection


def _row_checksum(*cells: object) -> int:
    """CRC-32 of the cells of a row."""
    return zlib.crc32(ascii(cells).encode())


@contextmanager
def transaction(
    connection: sqlite3.Connection, how: Literal["IMMEDIATE", "DEFERRED"] = "IMMEDIATE"
) -> Iterator[None]:
    """All or nothing. IMMEDIATE: no other process writes meanwhile; DEFERRED: one state of the file for several queries."""
    connection.execute(f"BEGIN {how}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk ends the transaction by itself
            connection.execute("ROLLBACK")
        raise
