"""What is written into the tables of ``answers.sqlite``, inside the transaction that is open."""

import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from relpref.data.labels import is_missing
from relpref.data.messages import shown
from relpref.errors import DataError
from relpref.explore.store.rows import text, value
from relpref.explore.store.schema import now


def fill(
    connection: sqlite3.Connection, entities: Sequence[Any], answers: pd.DataFrame, files: Mapping[str, str]
) -> None:
    """What a new file holds."""
    connection.executemany(
        "INSERT INTO entity (position, label) VALUES (?, ?)",
        [(position, text(label)) for position, label in enumerate(entities)],
    )
    give(connection, {label: position for position, label in enumerate(entities)}, answers)
    (fitted,) = connection.execute("SELECT coalesce(max(version), 0) FROM event").fetchone()
    connection.executemany(
        "INSERT INTO about (name, value) VALUES (?, ?)",
        [("identity", secrets.token_hex(16)), ("fitted", str(fitted))],
    )
    for sha256, name in files.items():
        keep_file(connection, sha256, name, "fitted")


def give(connection: sqlite3.Connection, position: Mapping[Any, int], answers: pd.DataFrame) -> None:
    """Answers that came without a question."""
    for row in answers.rename(columns={"first": "winner", "second": "loser"}).to_dict("records"):
        kept = {name: cell for name, cell in row.items() if not is_missing(cell)}
        ends = {name: position[kept[name]] for name in ("winner", "loser", "shown_first") if name in kept}
        numbers = {name: int(kept[name]) for name in ("count", "tie", "strength") if name in kept}
        more: dict[str, Any] = {"probability": float(kept["probability"])} if "probability" in kept else {}
        if "rater" in kept:
            more["rater"] = text(kept["rater"])
        insert(connection, kind="answer", **ends, **numbers, **more)


def insert(connection: sqlite3.Connection, **columns: Any) -> int:
    """A new event; its version."""
    columns = {"time": now(), **columns}
    cursor = connection.execute(
        f"INSERT INTO event ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
        tuple(columns.values()),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def keep_file(connection: sqlite3.Connection, sha256: str, name: str, how: str) -> None:
    """A file whose answers are here."""
    connection.execute(
        "INSERT OR REPLACE INTO file (sha256, name, how, time) VALUES (?, ?, ?, ?)",
        (sha256, name, how, now()),
    )


def closed(connection: sqlite3.Connection, question: str, rater: str) -> tuple[int, int, int]:
    """Close an open question; the positions of its first, its second, and of the one on the left."""
    row = connection.execute(
        "SELECT first, second, left, rater, open FROM question WHERE id = ?", (question,)
    ).fetchone()
    if row is None:
        raise DataError(f"question {shown(question)}: it was never asked; answer the one that is open")
    if value(row[3]) != rater:
        raise DataError(f"question {shown(question)}: another rater was asked; answer the one that is open")
    if not row[4]:
        raise DataError(
            f"question {shown(question)}: it was answered, skipped or taken back already; answer the one that is open"
        )
    connection.execute("UPDATE question SET open = 0, checksum = NULL WHERE id = ?", (question,))
    return row[0], row[1], row[2]
