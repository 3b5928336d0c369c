"""The answers of a run on disk: one SQLite file that several processes and raters may use at once.

What happened is a list of events, numbered from 1, that only grows: answers, skips, and withdrawals of either. The number of the last
one is the *version* of the answers. A question is stored before anybody sees it and open until it is answered or skipped.
"""

import json
import os
import secrets
import sqlite3
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import pandas as pd

from relpref.ask.schema import (
    SCHEMA,
    SEALED,
    WITH_MORE,
    check_log,
    connected,
    explained,
    migrate,
    now,
    schema_of,
    seal,
    size,
    transaction,
    verify,
)
from relpref.data.arrays import shown
from relpref.data.labels import BLANKS, is_invisible, is_missing, label_column, trimmed
from relpref.errors import DataError, StorageError
from relpref.files import flush
from relpref.limits import MAX_NAME_LENGTH
from relpref.posterior.codec import decode_label, encode_label
from relpref.posterior.tables import objects

_UNSEEN = set(BLANKS) - {" "}
# Of an answer, in the table ``event``.
COLUMNS = ("winner", "loser", "count", "tie", "strength", "probability", "rater", "shown_first")


def rater_name(given: Any) -> str:
    """Return a rater's name as it is kept: white space is one space, characters are composed (NFC).

    Raises
    ------
    DataError
        If a character of it cannot be seen, or there is none.
    """
    if isinstance(given, str):
        name = unicodedata.normalize("NFC", " ".join(trimmed(given).split()))
        seen = name.isprintable() and not is_invisible(name) and not set(name) & _UNSEEN
        if seen and len(name) <= MAX_NAME_LENGTH:
            return name
    raise DataError(
        f"rater is {shown(given)}; give a name of 1 to {MAX_NAME_LENGTH} characters, all of which can be seen, such as 'ann'"
    )


@dataclass(frozen=True)
class Changes:
    """What happened to the answers after some version.

    ``steps`` has one row for each event about an answer, in their order: ``version`` of the answer, ``change`` (1 if it was added, −1 if it
    was withdrawn), and all columns that an answer can have, those of covariates and of what it shares with others only where there are
    some; ``version`` is that of the last event. The answers to all questions about one pair are one ``group``: people saw the same two.
    """

    version: int
    steps: pd.DataFrame

    def __len__(self) -> int:
        """How many answers differ after all of it."""
        return len(self.added) + len(self.withdrawn)

    @property
    def added(self) -> pd.DataFrame:
        """Answers that are new and stand."""
        return self._net(1)

    @property
    def withdrawn(self) -> pd.DataFrame:
        """Answers that were there before and do not stand any more."""
        return self._net(-1)

    def _net(self, change: int) -> pd.DataFrame:
        """What was added and withdrawn since leaves nothing."""
        net = self.steps.groupby("version")["change"].transform("sum")
        return self.steps[net == change].drop(columns=["version", "change"])


def text(label: Any) -> str:
    """A label as JSON, in ASCII, because SQLite cannot hold half of a surrogate pair or search past a zero."""
    return json.dumps(encode_label(label))


def value(stored: str) -> Any:
    """The inverse of `text`."""
    return decode_label(json.loads(stored))


@dataclass(frozen=True)
class Question:
    """Which of two is asked about.

    Attributes
    ----------
    id : str
        Unique; it cannot be guessed.
    first, second : label
    left : label
        The one that is shown on the left, or first.
    rater : str
        Who is asked.
    """

    id: str
    first: Any
    second: Any
    left: Any
    rater: str


_HOW = {
    "fitted": "the run was fitted on it",
    "imported": "it was imported",
    "exported": "it was exported from here",
}
_AWAY = timedelta(hours=1)  # an open question that is older keeps its pair from nobody else


class AnswerStore:
    """The file ``answers.sqlite`` of a run; make one with `open`.

    Every method that writes is one transaction: it is on the disk as a whole when the method returns, or it raises and nothing has
    changed. A connection is used by one thread at a time.

    Attributes
    ----------
    path : Path
    identity : str
        Drawn when the file was made.
    fitted : int
        Version of the answers that the run was fitted on.
    labels : tuple of labels
        Of the items, by position.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._file = path.absolute()
        self._inode = _inode(self._file)
        self._wrote = False
        self._kept: Path | None = None  # a copy of the answers, once the file is not in its place any more
        with transaction(connection, "DEFERRED"):  # another process may write between two queries
            schema = schema_of(connection, str(path))
            if schema >= SEALED:
                verify(connection, str(path))
            about = dict(connection.execute("SELECT name, value FROM about"))
            rows = connection.execute("SELECT label FROM entity ORDER BY position").fetchall()
        self._has_more = schema >= WITH_MORE  # not of an older file that is only read
        self.identity, self.fitted = about["identity"], int(about["fitted"])
        self.labels: tuple[Any, ...] = tuple(value(label) for (label,) in rows)
        self._position = {label: position for position, label in enumerate(self.labels)}

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        items: Sequence[Any],
        answers: pd.DataFrame,
        *,
        files: Mapping[str, str] | None = None,
    ) -> "AnswerStore":
        """Open the answers of a run; make the file where there is none.

        Parameters
        ----------
        path : path
        items : sequence of labels
            Those of the run.
        answers : DataFrame
            What the run was fitted on, as `relpref.data.PreferenceData.from_tables` reads it: imported when the file is made.
        files : mapping from SHA-256 to name, optional
            Where these answers come from: such a file is not imported again.

        Raises
        ------
        StorageError
            If the file cannot be opened, is damaged, from a newer version, or of another run.
        """
        place = Path(path)
        with explained(place):
            check_log(place)
            connection = connected(f"{place.absolute().as_uri()}?mode=rwc")
            try:
                # WAL: readers and a writer do not wait for each other. FULL: a commit is on the disk when it returns.
                # A limit of 0 cuts off what is left of an earlier log, so that a torn frame ends the file (see `check_log`).
                settings = (
                    "journal_mode = WAL",
                    "synchronous = FULL",
                    "fullfsync = 1",
                    "journal_size_limit = 0",
                )
                for setting in settings:
                    connection.execute(f"PRAGMA {setting}")
                if schema_of(connection, str(place)) < SCHEMA:
                    with transaction(connection):
                        have = schema_of(connection, str(place))  # another process may have been faster
                        migrate(connection, have)
                        if not have:
                            _fill(connection, items, answers, files or {})
                    flush(place.absolute().parent)
                store = cls(place, connection)
                if store.labels != tuple(items):
                    raise StorageError(
                        f"{place}: these are answers about other items than those of the run; move the file out of the folder, "
                        "or give the run that it belongs to"
                    )
            except BaseException:
                connection.close()
                raise
        return store

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, damaged_log: bool = False) -> "AnswerStore | None":
        """Open the answers of a run to read them; None where there are none. Raises as `open`.

        With ``damaged_log`` the changes before the damage are read, see `relpref.ask.schema.missing_changes`.
        """
        place = Path(path)
        if not size(place):  # SQLite would delete the log of an empty file
            return None
        if not damaged_log:
            check_log(place)
        # Where no shared memory can be made for the log, and there is no log, the file can be read as it is.
        asleep = not size(place.with_name(f"{place.name}-wal"))
        ways = ["mode=ro"] * (not asleep or os.access(place.parent, os.W_OK)) + ["immutable=1"] * asleep
        with explained(place):
            for way in ways:
                connection = connected(f"{place.absolute().as_uri()}?{way}")
                try:
                    if schema_of(connection, str(place)):
                        return cls(place, connection)
                except BaseException as error:
                    connection.close()
                    full = str(getattr(error, "sqlite_errorname", "")).startswith("SQLITE_IOERR")
                    if way == ways[-1] or not full:  # a full disk has no room for the shared memory
                        raise
                else:
                    connection.close()  # killed before it was filled
                    break
        return None

    def close(self) -> None:
        """Close the file; a `StorageError` if it was moved, replaced or deleted after something was written to it."""
        try:
            if self._wrote and self._kept is None:
                self._check_place()
        finally:
            with explained(self.path):
                self._connection.close()

    @property
    def in_place(self) -> bool:
        """Whether the file that was opened is still the one of that name."""
        return _inode(self._file) == self._inode

    def _check_place(self) -> None:
        """Stop where the file of that name is another one: what is written would be lost, or found by nobody."""
        if self.in_place:
            return
        if self._kept is None:
            self._kept = self._rescued()
        raise StorageError(
            f"{self.path}: the folder of the run was moved, replaced or deleted while questions were asked, so nothing more is recorded. "
            f"All answers until then are in {self._kept}; where the run was moved, they are there, too. Put the file into the folder of its "
            f"run as {self.path.name}, or open the run where it is now"
        )

    def _rescued(self) -> Path:
        """A copy of the answers beside the folder of the run, or, where that cannot be, among temporary files."""
        for folder in (self._file.parent.parent, None):
            with suppress(sqlite3.Error, OSError):
                handle, name = tempfile.mkstemp(".sqlite", f"answers-{self.identity[:8]}-", folder)
                os.close(handle)
                with closing(sqlite3.connect(name)) as target:
                    self._connection.backup(target)
                return Path(name)
        return Path("the folder that the run was moved to")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def questions(self, rater: str) -> list[Question]:
        """The open questions of a rater, the oldest first."""
        query = "SELECT id, first, second, left FROM question WHERE rater = ? AND open ORDER BY rowid"
        return [self._question(rater, *row) for row in self._rows(query, text(rater))]

    def ask(
        self,
        rater: str,
        first: Any,
        second: Any,
        left: Any,
        version: int,
        *,
        shared: bool = False,
        beside: int = 0,
    ) -> Question | None:
        """Open a question, chosen by a posterior that knew the answers up to a version.

        Returns the oldest that is open for the rater, if more than ``beside`` are; None if the pair is open for another rater and not
        ``shared``.
        """
        ends = self._position[first], self._position[second]
        with self._writing():
            questions = self.questions(rater)
            if len(questions) > beside:
                return questions[0]
            if not shared and tuple(sorted(ends)) in self._open_for_others(rater):
                return None
            return self._ask(rater, *ends, self._position[left], version)

    def answer(self, question: str, outcome: str, rater: str) -> int:
        """Record the answer to an open question and return its version.

        Raises
        ------
        DataError
            If the outcome is none, or the question is not open for this rater.
        """
        if outcome not in ("first", "second", "tie"):
            raise DataError(f"outcome is {shown(outcome)}; it is 'first', 'second' or 'tie'")
        with self._writing() as connection:
            first, second, left = self._closed(question, rater)
            winner, loser = (second, first) if outcome == "second" else (first, second)
            told = {"winner": winner, "loser": loser, "tie": int(outcome == "tie"), "shown_first": left}
            return _insert(connection, kind="answer", rater=text(rater), question=question, **told)

    def skip(self, question: str, rater: str) -> int:
        """Close an open question without an answer; raises as `answer`. Returns the version."""
        with self._writing() as connection:
            self._closed(question, rater)
            return _insert(connection, kind="skip", rater=text(rater), question=question)

    def undo(self, rater: str, version: int) -> Question | None:
        """Withdraw a rater's last answer or skip, and ask its question again in place of those that are open; None if there is nothing to withdraw."""
        with self._writing() as connection:
            rows = self._rows(
                f"""SELECT event.version, first, second, left FROM event JOIN question ON event.question = question.id
                WHERE event.rater = ? AND {_STANDS} ORDER BY event.version DESC LIMIT 1""",
                text(rater),
            )
            if not rows:
                return None
            event, first, second, left = rows[0]
            connection.execute(
                "UPDATE question SET open = 0, checksum = NULL WHERE rater = ? AND open", (text(rater),)
            )
            _insert(connection, kind="withdrawal", rater=text(rater), withdrawn=event)
            return self._ask(rater, first, second, left, version)

    def changes(self, after: int = 0) -> Changes:
        """What happened to the answers after a version."""
        more = "(SELECT columns FROM more WHERE more.version = answer.version)" if self._has_more else "NULL"
        columns = ", ".join([*(f"answer.{name}" for name in COLUMNS), "answer.question", more])
        with explained(self.path):
            with transaction(self._connection, "DEFERRED"):
                version = self.version
                rows = self._rows(
                    f"""SELECT version, version AS event, 1, {columns} FROM event AS answer
                    WHERE kind = 'answer' AND version > ?1
                    UNION ALL
                    SELECT answer.version, event.version AS event, -1, {columns} FROM event
                    JOIN event AS answer ON event.withdrawn = answer.version
                    WHERE answer.kind = 'answer' AND event.version > ?1 ORDER BY event""",
                    after,
                )
            named = ["version", "event", "change", *COLUMNS, "question", "more"]
            steps = pd.DataFrame(rows, columns=named, dtype=object)
            raters = {None: None} | {stored: value(stored) for stored in steps["rater"].dropna().unique()}
            ends = {name: label_column([self.labels[i] for i in steps[name]]) for name in ("winner", "loser")}
            steps = steps.astype(_TYPES).assign(
                **ends,
                rater=objects(raters[stored] for stored in steps["rater"]),
                shown_first=objects(None if i is None else self.labels[i] for i in steps["shown_first"]),
            )
            return Changes(version, self._with_more(steps).set_index("event"))

    def _with_more(self, steps: pd.DataFrame) -> pd.DataFrame:
        """With the columns that only some answers have; the group of a question is its pair."""
        columns, own = (steps[name] for name in ("more", "question", "winner", "loser")), []
        for stored, question, *ends in zip(*columns, strict=True):
            cells = {name: decode_label(cell) for name, cell in json.loads(stored or "{}").items()}
            if question is not None:
                first, second = sorted(ends, key=self._position.__getitem__)
                cells["group"] = f"question: {first!r} or {second!r}"
            own.append(cells)
        more = pd.DataFrame(own, steps.index, dtype=object)
        return pd.concat([steps.drop(columns=["more", "question"]), more], axis=1)

    @property
    def version(self) -> int:
        """Number of the last event; 0 before the first."""
        return int(self._rows("SELECT coalesce(max(version), 0) FROM event")[0][0])

    def avoided(self, rater: str) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """Pairs that the rater skipped, and pairs that are open for others."""
        skipped = self._rows(
            f"""SELECT first, second FROM event JOIN question ON event.question = question.id
            WHERE kind = 'skip' AND event.rater = ? AND {_STANDS} ORDER BY event.version""",
            text(rater),
        )
        pairs = skipped, self._open_for_others(rater)
        named = [[(self.labels[i], self.labels[j]) for i, j in some] for some in pairs]
        return named[0], named[1]

    def counts(self, rater: str) -> dict[str, int]:
        """How many answers stand, and how many questions were ever asked.

        ``answers`` and ``skips`` of the rater, ``everyone``: answers to questions by all raters, ``given``: answers that came otherwise, and
        ``questions``.
        """
        (row,) = self._rows(
            f"""SELECT coalesce(sum(kind = 'answer' AND question IS NOT NULL AND rater = ?1), 0),
            coalesce(sum(kind = 'skip' AND rater = ?1), 0),
            coalesce(sum(kind = 'answer' AND question IS NOT NULL), 0),
            coalesce(sum(CASE WHEN question IS NULL THEN count END), 0),
            (SELECT count(*) FROM question) FROM event WHERE kind <> 'withdrawal' AND {_STANDS}""",
            text(rater),
        )
        return dict(zip(("answers", "skips", "everyone", "given", "questions"), row, strict=True))

    def add(self, answers: pd.DataFrame, sha256: str, name: str) -> int:
        """Import checked answers that were given elsewhere, all or none, and return the version.

        Raises
        ------
        DataError
            If these answers are here already, because the file was imported or written here.
        """
        with self._writing() as connection:
            for how, time in self._rows("SELECT how, time FROM file WHERE sha256 = ?", sha256):
                raise DataError(
                    f"{name}: these answers are in {self.path} already ({_HOW[how]}, {time}), and would count twice; give "
                    "a file with the new ones alone"
                )
            _keep_file(connection, sha256, name, "imported")
            _give(connection, self._position, answers)
        return self.version

    def exported(self, sha256: str, name: str) -> None:
        """Remember a file that was written from these answers."""
        with self._writing() as connection:
            _keep_file(connection, sha256, name, "exported")

    def words(self) -> dict[str, str]:
        """The ``title`` and the ``prompt`` that `keep_words` was given."""
        return dict(self._rows("SELECT name, value FROM about WHERE name IN ('title', 'prompt')"))

    def keep_words(self, **words: str) -> None:
        """Remember what is written above the questions."""
        with self._writing() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO about (name, value) VALUES (?, ?)", list(words.items())
            )

    def items(self) -> tuple[str, dict[Any, Any]]:
        """What is shown of the items: the folder of the images, and by label what `keep_items` was given."""
        rows = self._rows("SELECT position, item FROM entity WHERE item IS NOT NULL")
        folder = self._rows("SELECT value FROM about WHERE name = 'images'")
        with explained(self.path):
            items = {self.labels[position]: json.loads(item) for position, item in rows}
        return folder[0][0] if folder else "", items

    def keep_items(self, folder: str, items: Mapping[Any, Any]) -> None:
        """Remember what is to be shown of the items, in place of what was shown so far; values are what JSON can hold."""
        with self._writing() as connection:
            connection.execute("INSERT OR REPLACE INTO about (name, value) VALUES ('images', ?)", (folder,))
            connection.execute("UPDATE entity SET item = NULL, checksum = NULL")
            connection.executemany(
                "UPDATE entity SET item = ?, checksum = NULL WHERE position = ?",
                [(json.dumps(item), self._position[label]) for label, item in items.items()],
            )

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with explained(self.path):
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        self._check_place()
        with explained(self.path), transaction(self._connection):
            yield self._connection
            seal(self._connection)
        self._wrote = True
        self._check_place()

    def _question(self, rater: str, name: str, first: int, second: int, left: int) -> Question:
        return Question(name, self.labels[first], self.labels[second], self.labels[left], rater)

    def _open_for_others(self, rater: str) -> list[tuple[int, int]]:
        """Positions of the pairs, the lower first, that are open for others who have not been away for long."""
        return self._rows(
            """SELECT min(first, second), max(first, second) FROM question
            WHERE open AND rater <> ? AND asked BETWEEN ? AND ? ORDER BY rowid""",
            *(text(rater), now(_AWAY), now()),  # not what a clock that was put back since says is to come
        )

    def _ask(self, rater: str, first: int, second: int, left: int, version: int) -> Question:
        name = secrets.token_urlsafe(12)
        self._rows(
            "INSERT INTO question (id, rater, first, second, left, asked, version) VALUES (?, ?, ?, ?, ?, ?, ?)",
            *(name, text(rater), first, second, left, now(), version),
        )
        return self._question(rater, name, first, second, left)

    def _closed(self, question: str, rater: str) -> tuple[int, int, int]:
        """Close an open question; the positions of its first, its second, and of the one on the left."""
        rows = self._rows("SELECT first, second, left, rater, open FROM question WHERE id = ?", question)
        if not rows:
            trouble = "it was never asked"
        elif value(rows[0][3]) != rater:
            trouble = "another rater was asked"
        else:
            trouble = "" if rows[0][4] else "it was answered, skipped or taken back already"
        if trouble:
            raise DataError(f"question {shown(question)}: {trouble}; answer the one that is open")
        self._rows("UPDATE question SET open = 0, checksum = NULL WHERE id = ?", question)
        first, second, left = rows[0][:3]
        return first, second, left


_STANDS = "event.version NOT IN (SELECT withdrawn FROM event WHERE withdrawn IS NOT NULL)"
_TYPES = {
    **dict.fromkeys(("version", "event", "change", "count"), "int64"),
    "tie": bool,
    "strength": "Int64",
    "probability": float,
}


def _fill(
    connection: sqlite3.Connection, items: Sequence[Any], answers: pd.DataFrame, files: Mapping[str, str]
) -> None:
    """What a new file holds."""
    positions = {label: position for position, label in enumerate(items)}
    connection.executemany(
        "INSERT INTO entity (position, label) VALUES (?, ?)",
        [(position, text(label)) for label, position in positions.items()],
    )
    _give(connection, positions, answers)
    (fitted,) = connection.execute("SELECT coalesce(max(version), 0) FROM event").fetchone()
    connection.executemany(
        "INSERT INTO about (name, value) VALUES (?, ?)",
        [("identity", secrets.token_hex(16)), ("fitted", str(fitted))],
    )
    for sha256, name in files.items():
        _keep_file(connection, sha256, name, "fitted")
    seal(connection)


def _give(connection: sqlite3.Connection, positions: Mapping[Any, int], answers: pd.DataFrame) -> None:
    """Answers that came without a question."""
    stored: dict[str, Callable[[Any], Any]] = dict.fromkeys(
        ("winner", "loser", "shown_first"), positions.__getitem__
    )
    stored |= {**dict.fromkeys(("count", "tie", "strength"), int), "probability": float, "rater": text}
    (before,) = connection.execute("SELECT coalesce(max(version), 0) FROM event").fetchone()
    for row in answers.rename(columns={"first": "winner", "second": "loser"}).to_dict("records"):
        there = {name: cell for name, cell in row.items() if not is_missing(cell)}
        cells = {name: store(there.pop(name)) for name, store in stored.items() if name in there}
        version = _insert(connection, kind="answer", **cells)
        if "list" in there:
            there["list"] += before  # lists of another table have other numbers
        if there:
            columns = json.dumps({name: encode_label(cell) for name, cell in there.items()})
            connection.execute("INSERT INTO more (version, columns) VALUES (?, ?)", (version, columns))


def _insert(connection: sqlite3.Connection, **columns: Any) -> int:
    """A new event; its version."""
    columns = {"time": now(), **columns}
    cursor = connection.execute(
        f"INSERT INTO event ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
        tuple(columns.values()),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _keep_file(connection: sqlite3.Connection, sha256: str, name: str, how: str) -> None:
    """A file whose answers are here."""
    connection.execute(
        "INSERT OR REPLACE INTO file (sha256, name, how, time) VALUES (?, ?, ?, ?)",
        (sha256, name, how, now()),
    )


def _inode(file: Path) -> tuple[int, int] | None:
    """Which file it is, whatever it is called; None where there is none."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
