"""The tables of ``answers.sqlite``, and how an older file gets them."""

import sqlite3
from datetime import UTC, datetime, timedelta

from relpref.errors import StorageError

APPLICATION = 0x72656C70  # "relp", the application_id by which the file is known
_STRICT = " STRICT" if sqlite3.sqlite_version_info >= (3, 37) else ""

# Step k leads from schema k to schema k + 1; a new file takes them all, so that there is one way to the newest.
_STEPS: tuple[tuple[str, ...], ...] = (
    (
        f"CREATE TABLE schema (version INTEGER PRIMARY KEY, since TEXT NOT NULL, relpref TEXT NOT NULL){_STRICT}",
        f"CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL){_STRICT}",
        f"CREATE TABLE entity (position INTEGER PRIMARY KEY, label TEXT NOT NULL UNIQUE){_STRICT}",
        f"""CREATE TABLE question (
            id TEXT PRIMARY KEY,
            rater TEXT NOT NULL,
            first INTEGER NOT NULL REFERENCES entity,
            second INTEGER NOT NULL REFERENCES entity,
            left INTEGER NOT NULL REFERENCES entity,
            asked TEXT NOT NULL,
            version INTEGER NOT NULL,
            open INTEGER NOT NULL DEFAULT 1,
            CHECK (first <> second AND left IN (first, second) AND open IN (0, 1))
        ){_STRICT}""",
        "CREATE UNIQUE INDEX one_open_question ON question (rater) WHERE open = 1",
        f"""CREATE TABLE event (
            version INTEGER PRIMARY KEY,
            kind TEXT NOT NULL CHECK (kind IN ('answer', 'skip', 'withdrawal')),
            time TEXT NOT NULL,
            rater TEXT,
            question TEXT REFERENCES question,
            winner INTEGER REFERENCES entity,
            loser INTEGER REFERENCES entity,
            count INTEGER NOT NULL DEFAULT 1 CHECK (count > 0),
            tie INTEGER NOT NULL DEFAULT 0 CHECK (tie IN (0, 1)),
            strength INTEGER,
            probability REAL,
            shown_first INTEGER REFERENCES entity,
            withdrawn INTEGER UNIQUE REFERENCES event,
            CHECK ((kind = 'answer') = (winner IS NOT NULL AND loser IS NOT NULL)),
            CHECK ((kind = 'withdrawal') = (withdrawn IS NOT NULL)),
            CHECK (winner <> loser)
        ){_STRICT}""",
        "CREATE UNIQUE INDEX answered_once ON event (question) WHERE kind IN ('answer', 'skip')",
        "CREATE INDEX event_of_rater ON event (rater, version)",
        """CREATE TRIGGER events_stay BEFORE DELETE ON event
            BEGIN SELECT RAISE(ABORT, 'events are never deleted'); END""",
        """CREATE TRIGGER events_are_final BEFORE UPDATE ON event
            BEGIN SELECT RAISE(ABORT, 'events are never changed'); END""",
    ),
    (
        # What the person who answers is shown, and the files whose answers are here already.
        "ALTER TABLE entity ADD COLUMN item TEXT",
        f"""CREATE TABLE file (
            sha256 TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            how TEXT NOT NULL CHECK (how IN ('fitted', 'imported', 'exported')),
            time TEXT NOT NULL
        ){_STRICT}""",
    ),
)
SCHEMA = len(_STEPS)


def now(ago: timedelta = timedelta()) -> str:
    """The time in UTC, to the millisecond, or that of a while ago; the later of two is the greater text."""
    return (datetime.now(UTC) - ago).isoformat(timespec="milliseconds")


def schema_of(connection: sqlite3.Connection, place: str) -> int:
    """The schema of a file, 0 if it is empty; ``place`` is its name, for messages.

    Raises
    ------
    StorageError
        If the file holds something else, or is from a newer version.
    """
    (have,), (application,) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("user_version", "application_id")
    )
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION and (tables or have or application):
        raise StorageError(
            f"{place}: this SQLite file holds something else than the answers of a run; move it out of the folder"
        )
    if have > SCHEMA:
        raise StorageError(
            f"{place}: the answers have the schema {have}, this relpref reads up to {SCHEMA}; install a newer one: "
            "pip install --upgrade relpref"
        )
    return int(have)


def migrate(connection: sqlite3.Connection, have: int) -> None:
    """Bring a file from the schema that it has to the newest, inside the transaction that is open."""
    from relpref import __version__

    for version, statements in enumerate(_STEPS[have:], start=have + 1):
        for statement in statements:
            connection.execute(statement)
        connection.execute("INSERT INTO schema VALUES (?, ?, ?)", (version, now(), __version__))
    connection.execute(f"PRAGMA user_version = {SCHEMA}")
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
