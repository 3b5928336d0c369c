"""The tables of ``answers.sqlite``, how an older file gets them, and the checksums of their rows, which `verify` looks at."""

import re
import sqlite3
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import Any, Literal

import numpy as np

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
    except RelprefError:
        raise
    except (
        LookupError,
        ValueError,
        TypeError,
        ArithmeticError,
    ) as error:  # cells are not what they should be
        raise StorageError(f"{place}: {DAMAGED} ({error!r})") from error


def size(place: Path) -> int:
    """Bytes of a file; 0 where there is none."""
    try:
        return place.stat().st_size
    except FileNotFoundError:
        return 0


def check_log(place: Path) -> None:
    """Refuse a file whose write-ahead log is damaged: SQLite reads a log up to its first bad frame and says nothing."""
    missing, changes = missing_changes(place)
    if missing:
        raise StorageError(
            f"{place}-wal: the file is damaged: the last {missing} of {changes} changes in it (answers, skips, questions) cannot be read; "
            f"put a copy of the folder back, or write the answers that are left with relpref ask {quote(str(place.parent))} --export "
            "answers.csv and fit them into a new folder"
        )


def missing_changes(place: Path) -> tuple[int, int]:
    """Count the commits of the write-ahead log that a bad frame cuts off, and all its commits.

    A frame is bad if it has a salt of this log and a wrong checksum (https://sqlite.org/fileformat2.html#walformat). What was not yet
    committed when a process was killed has no frame that says so.
    """
    try:
        log = place.with_name(f"{place.name}-wal").read_bytes()
        with place.open("rb") as file:
            page = int.from_bytes(file.read(18)[16:])
    except FileNotFoundError:
        return 0, 0
    if len(log) < _LOG_HEADER or not page:
        return 0, 0
    page = 65536 if page == 1 else page
    salts, words = log[16:24], ">u4" if log[3] & 1 else "<u4"
    sums = _sums(words, log[:24], 0, 0)
    good, missing, changes = log[24:32] == struct.pack(">2I", *sums), 0, 0
    for start in range(_LOG_HEADER, len(log) - _FRAME_HEADER - page + 1, _FRAME_HEADER + page):
        content = start + _FRAME_HEADER
        head = log[start:content]
        if good:
            sums = _sums(words, head[:8] + log[content : content + page], *sums)
            good = head[8:] == salts + struct.pack(">2I", *sums)
        commits = any(head[4:8]) and (head[8:12] == salts[:4] or head[12:16] == salts[4:])
        changes += commits
        missing += commits and not good
    return missing, changes


_LOG_HEADER, _FRAME_HEADER = 32, 24  # bytes


def _sums(words: str, content: bytes, first: int, second: int) -> tuple[int, int]:
    """Continue the checksum of SQLite's log: each sum is its word plus the last two sums, so words have Fibonacci numbers as weights."""
    start = np.array([first, (second - first) % 2**32], np.uint32)
    read = np.concatenate([start, np.frombuffer(content, words)], dtype=np.uint32, casting="same_kind")
    weights = _fibonacci(len(read))
    return int(read[:-1] @ weights[1:]), int(read @ weights)


@lru_cache(maxsize=4)
def _fibonacci(number: int) -> Any:
    """The first Fibonacci numbers modulo 2³², the last of them first."""
    numbers = [1, 1]
    while len(numbers) < number:
        numbers.append((numbers[-1] + numbers[-2]) % 2**32)
    return np.array(numbers[::-1], np.uint32)


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


APPLICATION = 0x72656C70  # "relp", the application_id by which the file is known
_STRICT = sqlite3.sqlite_version_info >= (3, 37)

# The columns that the checksum of a row is of.
_ROWS = {
    "entity": "position, label, item",
    "question": "id, rater, first, second, left, asked, version, open",
    "event": "version, kind, time, rater, question, winner, loser, count, tie, strength, probability, shown_first, withdrawn",
    "file": "sha256, name, how, time",
    "about": "name, value",
    "more": "version, columns",
}
# How many rows there are, each at the cost of one look: positions, questions and events are numbered without gaps.
_NUMBERS = """SELECT (SELECT coalesce(max(position) + 1, 0) FROM entity) || ' ' || (SELECT coalesce(max(rowid), 0) FROM question)
    || ' ' || (SELECT coalesce(max(version), 0) FROM event) || ' ' || (SELECT count(*) FROM file) || ' ' || (SELECT count(*) FROM about)
    || ' ' || (SELECT count(*) FROM more)"""

# Step k leads from schema k to schema k + 1; a new file takes them all, so that there is one way to the newest.
_SQL = files("relpref.ask").joinpath("schema.sql").read_text("utf-8")
_STEPS = [step.strip().split("\n\n") for step in re.split(r"^-- Schema \d.*$", _SQL, flags=re.MULTILINE)[1:]]
SCHEMA = len(_STEPS)
SEALED = 3  # the first schema with checksums
WITH_MORE = 5  # that with the table ``more``


def now(ago: timedelta = timedelta()) -> str:
    """The time in UTC, to the millisecond, or that of a while ago; the later of two is the greater text."""
    return (datetime.now(UTC) - ago).isoformat(timespec="milliseconds")


def schema_of(connection: sqlite3.Connection, place: str) -> int:
    """The schema of a file, 0 if it is empty; `StorageError` if it holds something else, or is from a newer version."""
    (have,), (application,) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("user_version", "application_id")
    )
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION and (tables or have or application):
        raise StorageError(
            f"{place}: this SQLite file holds something else than the answers of a run; move it out of the folder"
        )
    if tables and not have:
        raise StorageError(f"{place}: {DAMAGED}")
    if have > SCHEMA:
        raise StorageError(
            f"{place}: the answers have the schema {have}, this relpref reads up to {SCHEMA}; install a newer one: "
            "pip install --upgrade relpref"
        )
    return int(have)


def migrate(connection: sqlite3.Connection, have: int) -> None:
    """Bring a file from the schema that it has to the newest, inside the transaction that is open."""
    from relpref._version import __version__

    for version, statements in enumerate(_STEPS[have:], start=have + 1):
        for statement in statements:
            connection.execute(statement if _STRICT else statement.replace(") STRICT", ")"))
        connection.execute("INSERT INTO schema VALUES (?, ?, ?)", (version, now(), __version__))
    seal(connection)
    connection.execute(f"PRAGMA user_version = {SCHEMA}")
    connection.execute(f"PRAGMA application_id = {APPLICATION}")


def seal(connection: sqlite3.Connection) -> None:
    """Give the rows that were written in the open transaction their checksums."""
    connection.execute(
        f"UPDATE about SET value = ({_NUMBERS}), checksum = NULL WHERE name = 'rows' AND value <> ({_NUMBERS})"
    )
    for table, columns in _ROWS.items():
        connection.execute(
            f"UPDATE {table} SET checksum = row_checksum('{table}', {columns}) WHERE checksum IS NULL"
        )


def verify(connection: sqlite3.Connection, place: str) -> None:
    """Refuse a file with a row that was changed or is missing, or that is damaged otherwise."""
    ((found,), *_) = connection.execute("PRAGMA integrity_check(1)")
    if found != "ok":
        raise StorageError(f"{place}: {DAMAGED} ({found})")
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    rows = {table: columns for table, columns in _ROWS.items() if table in there}  # of an older schema fewer
    for table, columns in rows.items():
        row = connection.execute(
            f"SELECT rowid FROM {table} WHERE checksum IS NOT row_checksum('{table}', {columns}) LIMIT 1"
        ).fetchone()
        if row is not None:
            raise StorageError(
                f"{place}: {DAMAGED} (row {row[0]} of the table {table} is not what was written)"
            )
    (known,) = connection.execute("SELECT value FROM about WHERE name = 'rows'").fetchone() or (None,)
    counts = (connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in rows)
    if known != " ".join(map(str, counts)):
        raise StorageError(f"{place}: {DAMAGED} (rows are missing)")
