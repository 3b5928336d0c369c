"""Tables of ``answers.sqlite``, connections to it, and the checksums that show damage."""

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from shlex import quote
from sqlite3 import Connection
from typing import Any, Literal

import numpy as np

from relpref._version import __version__
from relpref.errors import RelprefError, StorageError

SCHEMA = 5
APPLICATION = 0x72656C70  # "relp", the application_id of these files
_BUSY_TIMEOUT = (
    30.0  # seconds to wait for another process that writes: transactions take milliseconds
)

# Without the file, the same command makes a new one, or says how to go on if the posterior includes
# answers that the run was not fitted on.
_WITHOUT_COPY = (
    ", save what sqlite3's .recover finds in it, or move it (and the one that ends in -wal) out of "
    "the folder and try again"
)
DAMAGED = f"the file is damaged or was changed by another program; put a copy back{_WITHOUT_COPY}"
_BUSY = "another process has kept the file to itself for half a minute; end it and try again"

# Explanations by the beginning of SQLite's name for the error.
_EXPLANATIONS = {
    "SQLITE_FULL": "the disk is full, so nothing was written; make room and try again",
    "SQLITE_READONLY": "the file cannot be written; make the file and its folder writable",
    "SQLITE_BUSY": _BUSY,
    "SQLITE_LOCKED": _BUSY,
    "SQLITE_CANTOPEN": (
        "the file cannot be opened; see that its folder is there, and that both may be read and "
        "written"
    ),
    "SQLITE_IOERR": (
        "the disk is full or fails; see that it has room and is still there, and try again"
    ),
    "SQLITE_NOTADB": (
        f"this is no file of answers, or it is damaged; put a copy back{_WITHOUT_COPY}"
    ),
}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into a `StorageError` with the path and the remedy."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        matches = (words for start, words in _EXPLANATIONS.items() if name.startswith(start))
        raise StorageError(f"{path}: {next(matches, DAMAGED)} ({error})") from error
    except RelprefError:
        raise
    except (LookupError, ValueError, TypeError, ArithmeticError) as error:  # from bad cells
        raise StorageError(f"{path}: {DAMAGED} ({error!r})") from error


def size(path: Path) -> int:
    """Size of a file in bytes; 0 if it does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def check_log(path: Path) -> None:
    """Refuse a damaged write-ahead log: SQLite silently ignores what follows the damage."""
    missing, changes = missing_changes(path)
    if missing:
        raise StorageError(
            f"{path}-wal: the file is damaged: the last {missing} of {changes} changes in it "
            "(answers, skips, questions) cannot be read; put a copy of the folder back, or write "
            f"the answers that are left with relpref ask {quote(str(path.parent))} --export "
            "answers.csv and fit them into a new folder"
        )


def missing_changes(path: Path) -> tuple[int, int]:
    """Count the commits of the write-ahead log that a bad frame cuts off, and all its commits.

    A frame is bad if it has a salt of this log and a wrong checksum
    (https://sqlite.org/fileformat2.html#walformat). A change that was not yet committed when the
    process was killed is not counted: it has no frame that commits it.
    """
    try:
        log = path.with_name(f"{path.name}-wal").read_bytes()
        with path.open("rb") as file:
            page = int.from_bytes(file.read(18)[16:])
    except FileNotFoundError:
        return 0, 0
    if len(log) < _LOG_HEADER or not page:
        return 0, 0
    page = 65536 if page == 1 else page
    salts, dtype = log[16:24], ">u4" if log[3] & 1 else "<u4"
    checksum = _log_checksum(dtype, log[:24])
    good, missing, changes = log[24:32] == checksum, 0, 0
    for start in range(_LOG_HEADER, len(log) - _FRAME_HEADER - page + 1, _FRAME_HEADER + page):
        content = start + _FRAME_HEADER
        header = log[start:content]
        if good:
            checksum = _log_checksum(dtype, header[:8] + log[content : content + page], checksum)
            good = header[8:] == salts + checksum
        commits = any(header[4:8]) and (header[8:12] == salts[:4] or header[12:16] == salts[4:])
        changes += commits
        missing += commits and not good
    return missing, changes


_LOG_HEADER, _FRAME_HEADER = 32, 24  # bytes


def _log_checksum(dtype: str, content: bytes, before: bytes = bytes(8)) -> bytes:
    """Continue the checksum of SQLite's log over words of some type; it consists of two sums.

    Each sum is the next word plus both last sums, so that the words have Fibonacci numbers as
    weights.
    """
    start = np.frombuffer(before, ">u4")
    words = np.concatenate(
        [start[:1], np.diff(start), np.frombuffer(content, dtype)], dtype=np.uint32
    )
    weights = _fibonacci(len(words))
    return np.array([words[:-1] @ weights[1:], words @ weights], ">u4").tobytes()


@lru_cache(maxsize=4)
def _fibonacci(count: int) -> Any:
    """The first Fibonacci numbers modulo 2³², in reverse order."""
    numbers = [1, 1]
    while len(numbers) < count:
        numbers.append((numbers[-1] + numbers[-2]) % 2**32)
    return np.array(numbers[::-1], np.uint32)


def connected(address: str) -> Connection:
    """Connect without Python's implicit transactions."""
    connection = sqlite3.connect(
        address, uri=True, timeout=_BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA foreign_keys = ON")
    connection.create_function("row_checksum", -1, _row_checksum, deterministic=True)
    return connection


def _row_checksum(*cells: object) -> int:
    """CRC-32 of the cells of a row."""
    return zlib.crc32(ascii(cells).encode())


@contextmanager
def transaction(
    connection: Connection, mode: Literal["IMMEDIATE", "DEFERRED"] = "IMMEDIATE"
) -> Iterator[None]:
    """Run a transaction: it is committed as a whole, or rolled back after an error.

    IMMEDIATE keeps other processes from writing meanwhile; DEFERRED lets several queries see one
    state of the file.
    """
    connection.execute(f"BEGIN {mode}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk ends the transaction by itself
            connection.execute("ROLLBACK")
        raise


# Columns under the checksum of a row.
_ROWS = {
    "entity": "position, label, item",
    "question": "id, rater, first, second, left, asked, version, open",
    "event": (
        "version, kind, time, rater, question, winner, loser, count, tie, strength, probability, "
        "shown_first, withdrawn"
    ),
    "file": "sha256, name, how, time",
    "about": "name, value",
    "more": "version, columns",
}
# Numbers of rows of these tables, without a scan of the large ones: positions, questions and events
# are numbered without gaps.
_COUNTS = """SELECT (SELECT coalesce(max(position) + 1, 0) FROM entity)
    || ' ' || (SELECT coalesce(max(rowid), 0) FROM question)
    || ' ' || (SELECT coalesce(max(version), 0) FROM event)
    || ' ' || (SELECT count(*) FROM file)
    || ' ' || (SELECT count(*) FROM about)
    || ' ' || (SELECT count(*) FROM more)"""


def now(ago: timedelta = timedelta()) -> str:
    """Time in UTC to the millisecond, now or some time ago; texts are ordered as their times."""
    return (datetime.now(UTC) - ago).isoformat(timespec="milliseconds")


def is_empty(connection: Connection, path: Path) -> bool:
    """Whether a file has no tables yet; `StorageError` if they are not those of this version."""
    queries = "PRAGMA user_version", "PRAGMA application_id", "SELECT count(*) FROM sqlite_master"
    schema, application, tables = (connection.execute(query).fetchone()[0] for query in queries)
    if application != APPLICATION and (tables or schema or application):
        raise StorageError(
            f"{path}: this SQLite file holds something else than the answers of a run; move it out "
            "of the folder"
        )
    if tables and not schema:
        raise StorageError(f"{path}: {DAMAGED}")
    if schema > SCHEMA:
        raise StorageError(
            f"{path}: the answers have the schema {schema}, this relpref reads up to {SCHEMA}; "
            "install a newer one: pip install --upgrade relpref"
        )
    if 0 < schema < SCHEMA:
        raise StorageError(
            f"{path}: the answers have the schema {schema} of an unreleased version, this relpref "
            f"reads schema {SCHEMA}; export them with the version that wrote them, and fit them "
            "into a new folder"
        )
    return not tables


def create_tables(connection: Connection) -> None:
    """Create the tables of a new file inside the open transaction."""
    script = files("relpref.ask").joinpath("schema.sql").read_text("utf-8")
    if sqlite3.sqlite_version_info < (3, 37):
        script = script.replace(") STRICT", ")")
    for statement in script.split("\n\n"):
        connection.execute(statement)
    connection.execute("INSERT INTO schema VALUES (?, ?, ?)", (SCHEMA, now(), __version__))
    connection.execute(f"PRAGMA user_version = {SCHEMA}")
    connection.execute(f"PRAGMA application_id = {APPLICATION}")


def seal(connection: Connection) -> None:
    """Write the checksums of the rows that were written in the open transaction."""
    connection.execute(
        f"UPDATE about SET value = ({_COUNTS}), checksum = NULL "
        f"WHERE name = 'rows' AND value <> ({_COUNTS})"
    )
    for table, columns in _ROWS.items():
        connection.execute(
            f"UPDATE {table} SET checksum = row_checksum('{table}', {columns}) "
            "WHERE checksum IS NULL"
        )


def verify(connection: Connection, path: Path) -> None:
    """Refuse a file that is damaged, or in which a row was changed or is missing."""
    (state,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if state != "ok":
        raise StorageError(f"{path}: {DAMAGED} ({state})")
    for table, columns in _ROWS.items():
        row = connection.execute(
            f"SELECT rowid FROM {table} "
            f"WHERE checksum IS NOT row_checksum('{table}', {columns}) LIMIT 1"
        ).fetchone()
        if row is not None:
            raise StorageError(
                f"{path}: {DAMAGED} (row {row[0]} of the table {table} is not what was written)"
            )
    recorded = connection.execute("SELECT value FROM about WHERE name = 'rows'").fetchone()
    counts = (connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in _ROWS)
    if recorded != (" ".join(map(str, counts)),):
        raise StorageError(f"{path}: {DAMAGED} (rows are missing)")
