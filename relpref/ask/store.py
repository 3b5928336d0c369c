"""Answers of a run on disk: one SQLite file that several processes and raters may use at once.

Events are numbered from 1 and only added: answers, skips, and withdrawals of either. The number of
the last event is the *version* of the answers. A question is stored before anybody sees it and open
until it is answered or skipped.
"""

import json
import os
import secrets
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Self

import pandas as pd

from relpref.ask.questions import Changes, Question
from relpref.ask.schema import (
    check_log,
    connected,
    create_tables,
    explained,
    is_empty,
    now,
    seal,
    size,
    transaction,
    verify,
)
from relpref.data.arrays import shown
from relpref.data.labels import is_missing, label_column
from relpref.errors import DataError, StorageError
from relpref.files import FilePath, flush
from relpref.posterior.codec import decode_label, encode_label
from relpref.posterior.tables import objects

# Columns of the table ``event`` that describe an answer.
COLUMNS = ("winner", "loser", "count", "tie", "strength", "probability", "rater", "shown_first")


def text(label: Any) -> str:
    """Encode a label as ASCII JSON: SQLite stores no lone surrogates and searches up to a zero."""
    return json.dumps(encode_label(label))


def value(stored: str) -> Any:
    """Decode a label encoded by `text`."""
    return decode_label(json.loads(stored))


_ORIGINS = {
    "fitted": "the run was fitted on it",
    "imported": "it was imported",
    "exported": "it was exported from here",
}
_RESERVED = timedelta(hours=1)  # time for which an open question keeps its pair from other raters


class AnswerStore:
    """The file ``answers.sqlite`` of a run, opened by `open` or `read`.

    Every method that writes is one transaction: all of it is on the disk when the method returns,
    or the method raises and nothing has changed. A connection is used by one thread at a time.

    Attributes
    ----------
    path : Path
    identity : str
        Random name, drawn when the file was made.
    fitted : int
        Version of the answers that the run was fitted on.
    labels : tuple of labels
        Labels of the items, by position.
    """

    def __init__(self, path: Path, connection: Connection) -> None:
        self.path = path
        self._connection = connection
        self._file = path.absolute()
        self._inode = _inode(self._file)
        self._wrote = False
        self._copy: Path | None = None  # of the answers, once the file is no longer in its place
        with transaction(connection, "DEFERRED"):  # another process may write between two queries
            is_empty(connection, path)
            verify(connection, path)
            about = dict(connection.execute("SELECT name, value FROM about"))
            rows = connection.execute("SELECT label FROM entity ORDER BY position").fetchall()
        self.identity, self.fitted = about["identity"], int(about["fitted"])
        self.labels: tuple[Any, ...] = tuple(value(label) for (label,) in rows)
        self._position = {label: position for position, label in enumerate(self.labels)}

    @classmethod
    def open(
        cls,
        path: FilePath,
        items: Sequence[Any],
        answers: pd.DataFrame,
        *,
        files: Mapping[str, str] | None = None,
    ) -> "AnswerStore":
        """Open the answers of a run; create the file if it does not exist.

        Parameters
        ----------
        path : path
        items : sequence of labels
            Items of the run.
        answers : DataFrame
            Answers that the run was fitted on, as `relpref.data.PreferenceData.from_tables` reads
            them: imported when the file is made.
        files : mapping from SHA-256 to name, optional
            Files of these answers: they cannot be imported again.

        Raises
        ------
        StorageError
            If the file cannot be opened, is damaged, has another schema, or is of another run.
        """
        path = Path(path)
        with explained(path):
            check_log(path)
            connection = connected(f"{path.absolute().as_uri()}?mode=rwc")
            try:
                # WAL: readers and a writer do not wait for each other. FULL: a commit is on the
                # disk when it returns. A limit of 0 cuts off what is left of an earlier log, so
                # that a torn frame ends the file (see `check_log`).
                for setting in (
                    "journal_mode = WAL",
                    "synchronous = FULL",
                    "fullfsync = 1",
                    "journal_size_limit = 0",
                ):
                    connection.execute(f"PRAGMA {setting}")
                if is_empty(connection, path):
                    with transaction(connection):
                        if is_empty(connection, path):  # another process may have been faster
                            create_tables(connection)
                            _fill(connection, items, answers, files or {})
                    flush(path.absolute().parent)
                store = cls(path, connection)
                if store.labels != tuple(items):
                    raise StorageError(
                        f"{path}: these are answers about other items than those of the run; move "
                        "the file out of the folder, or give the run that it belongs to"
                    )
            except BaseException:
                connection.close()
                raise
        return store

    @classmethod
    def read(cls, path: FilePath, *, damaged_log: bool = False) -> "AnswerStore | None":
        """Open the answers of a run for reading; None if there are none. Raises as `open`.

        With ``damaged_log`` the changes before the damage are read, see
        `relpref.ask.schema.missing_changes`.
        """
        path = Path(path)
        if not size(path):  # SQLite would delete the log of an empty file
            return None
        if not damaged_log:
            check_log(path)
        # Without a log, the file can be read even if no shared memory can be made for the log.
        has_log = bool(size(path.with_name(f"{path.name}-wal")))
        modes = ["mode=ro"] * (has_log or os.access(path.parent, os.W_OK))
        modes += ["immutable=1"] * (not has_log)
        with explained(path):
            for mode in modes:
                connection = connected(f"{path.absolute().as_uri()}?{mode}")
                try:
                    if not is_empty(connection, path):
                        return cls(path, connection)
                except BaseException as error:
                    connection.close()
                    # A full disk has no room for the shared memory.
                    full = getattr(error, "sqlite_errorname", "").startswith("SQLITE_IOERR")
                    if mode == modes[-1] or not full:
                        raise
                else:
                    connection.close()  # its process was killed before it filled the file
                    break
        return None

    def close(self) -> None:
        """Close the file; `StorageError` if it was moved, replaced or deleted after a write."""
        try:
            if self._wrote and self._copy is None:
                self._check_place()
        finally:
            with explained(self.path):
                self._connection.close()

    @property
    def in_place(self) -> bool:
        """Whether the path still leads to the file that was opened."""
        return _inode(self._file) == self._inode

    def _check_place(self) -> None:
        """Stop if the path leads to another file: what is written would be lost."""
        if self.in_place:
            return
        if self._copy is None:
            self._copy = self._copied()
        raise StorageError(
            f"{self.path}: the folder of the run was moved, replaced or deleted while questions "
            f"were asked, so nothing more is recorded. All answers until then are in {self._copy}; "
            "where the run was moved, they are there, too. Put the file into the folder of its run "
            f"as {self.path.name}, or open the run where it is now"
        )

    def _copied(self) -> Path:
        """Copy the answers beside the folder of the run or, if that fails, to a temporary file."""
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
        """Open questions of a rater, the oldest first."""
        query = (
            "SELECT id, first, second, left FROM question WHERE rater = ? AND open ORDER BY rowid"
        )
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
        """Open a question, chosen by a posterior of the answers up to a version.

        Returns the rater's oldest open question if more than ``beside`` are open; None if the pair
        is open for another rater and not ``shared``.
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
            If there is no such outcome, or the question is not open for this rater.
        """
        if outcome not in ("first", "second", "tie"):
            raise DataError(f"outcome is {shown(outcome)}; it is 'first', 'second' or 'tie'")
        with self._writing() as connection:
            winner, loser, left = self._close_question(question, rater)
            if outcome == "second":
                winner, loser = loser, winner
            return _add_event(
                connection,
                "answer",
                rater=text(rater),
                question=question,
                winner=winner,
                loser=loser,
                tie=int(outcome == "tie"),
                shown_first=left,
            )

    def skip(self, question: str, rater: str) -> int:
        """Close an open question without an answer and return the version; raises as `answer`."""
        with self._writing() as connection:
            self._close_question(question, rater)
            return _add_event(connection, "skip", rater=text(rater), question=question)

    def undo(self, rater: str, version: int) -> Question | None:
        """Withdraw a rater's last answer or skip and ask its question again, in place of open ones.

        Returns None if there is nothing to withdraw.
        """
        with self._writing() as connection:
            rows = self._rows(
                f"""SELECT event.version, first, second, left
                FROM event JOIN question ON event.question = question.id
                WHERE event.rater = ? AND {_STANDS} ORDER BY event.version DESC LIMIT 1""",
                text(rater),
            )
            if not rows:
                return None
            event, first, second, left = rows[0]
            self._rows(
                "UPDATE question SET open = 0, checksum = NULL WHERE rater = ? AND open",
                text(rater),
            )
            _add_event(connection, "withdrawal", rater=text(rater), withdrawn=event)
            return self._ask(rater, first, second, left, version)

    def changes(self, after: int = 0) -> Changes:
        """Changes of the answers after a version."""
        columns = ", ".join(f"answer.{name}" for name in (*COLUMNS, "question"))
        with explained(self.path):
            with transaction(self._connection, "DEFERRED"):
                version = self.version
                rows = self._rows(
                    f"""SELECT event.version, answer.version, 1 - 2 * (event.kind = 'withdrawal'),
                    {columns}, more.columns
                    FROM event JOIN event AS answer
                    ON answer.version = coalesce(event.withdrawn, event.version)
                    LEFT JOIN more ON more.version = answer.version
                    WHERE event.version > ? AND answer.kind = 'answer' ORDER BY event.version""",
                    after,
                )
            names = ["event", "version", "change", *COLUMNS, "question", "more"]
            steps = pd.DataFrame(rows, columns=names, dtype=object)
            labels = dict(enumerate(self.labels))
            raters = {stored: value(stored) for stored in steps["rater"].dropna().unique()}
            winner, loser = (label_column([*map(labels.get, steps[end])]) for end in COLUMNS[:2])
            steps = steps.astype(_DTYPES).assign(
                winner=winner,
                loser=loser,
                rater=objects(map(raters.get, steps["rater"])),
                shown_first=objects(map(labels.get, steps["shown_first"])),
            )
            cells = (steps.pop(name) for name in ("more", "question"))
            more = list(map(self._more, *cells, steps["winner"], steps["loser"]))
            steps = pd.concat([steps, pd.DataFrame(more, steps.index, dtype=object)], axis=1)
            return Changes(version, steps.set_index("event"))

    def _more(self, stored: str | None, question: str | None, *pair: Any) -> dict[str, Any]:
        """Cells in columns that only some answers have; questions about a pair are one group."""
        if question is None:
            return {name: decode_label(cell) for name, cell in json.loads(stored or "{}").items()}
        first, second = sorted(pair, key=self._position.__getitem__)
        return {"group": f"question: {first!r} or {second!r}"}

    @property
    def version(self) -> int:
        """Number of the last event; 0 before the first."""
        with explained(self.path):
            return _last_event(self._connection)

    def avoided(self, rater: str) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """Pairs that the rater skipped, and pairs that are open for others."""
        skipped = self._rows(
            f"""SELECT first, second FROM event JOIN question ON event.question = question.id
            WHERE kind = 'skip' AND event.rater = ? AND {_STANDS} ORDER BY event.version""",
            text(rater),
        )
        skipped, others = (
            [(self.labels[first], self.labels[second]) for first, second in pairs]
            for pairs in (skipped, self._open_for_others(rater))
        )
        return skipped, others

    def counts(self, rater: str) -> dict[str, int]:
        """Numbers of answers that stand, and of questions that were ever asked.

        ``answers`` and ``skips`` of the rater; ``everyone``: answers to questions by all raters;
        ``given``: answers that came without a question; and ``questions``.
        """
        (row,) = self._rows(
            f"""SELECT coalesce(sum(kind = 'answer' AND question IS NOT NULL AND rater = ?1), 0),
            coalesce(sum(kind = 'skip' AND rater = ?1), 0),
            coalesce(sum(kind = 'answer' AND question IS NOT NULL), 0),
            coalesce(sum(CASE WHEN question IS NULL THEN count END), 0),
            (SELECT count(*) FROM question) FROM event WHERE kind <> 'withdrawal' AND {_STANDS}""",
            text(rater),
        )
        names = ("answers", "skips", "everyone", "given", "questions")
        return dict(zip(names, row, strict=True))

    def add(self, answers: pd.DataFrame, sha256: str, name: str) -> int:
        """Import checked answers of a file, all or none, and return the version.

        Raises
        ------
        DataError
            If these answers are here already, because the file was imported or written here.
        """
        with self._writing() as connection:
            for origin, time in self._rows("SELECT how, time FROM file WHERE sha256 = ?", sha256):
                raise DataError(
                    f"{name}: these answers are in {self.path} already ({_ORIGINS[origin]}, "
                    f"{time}), and would count twice; give a file with the new ones alone"
                )
            _add_file(connection, sha256, name, "imported")
            _add_answers(connection, self._position, answers)
        return self.version

    def exported(self, sha256: str, name: str) -> None:
        """Record a file that was written from these answers."""
        with self._writing() as connection:
            _add_file(connection, sha256, name, "exported")

    def words(self) -> dict[str, str]:
        """Texts stored by `keep_words`."""
        names = "'title', 'prompt', 'item_word', 'answer_word'"
        return dict(self._rows(f"SELECT name, value FROM about WHERE name IN ({names})"))

    def keep_words(self, **words: str) -> None:
        """Store a ``title``, ``prompt``, ``item_word`` or ``answer_word`` of the questions."""
        with self._writing() as connection:
            connection.executemany(_SET_FACT, words.items())

    def items(self) -> tuple[str, dict[Any, Any]]:
        """Folder of the images, and by label the item's details stored by `keep_items`."""
        rows = self._rows("SELECT position, item FROM entity WHERE item IS NOT NULL")
        folders = self._rows("SELECT value FROM about WHERE name = 'images'")
        with explained(self.path):
            items = {self.labels[position]: json.loads(item) for position, item in rows}
        return folders[0][0] if folders else "", items

    def keep_items(self, folder: str, items: Mapping[Any, Any]) -> None:
        """Replace the details of items that are shown, by label, as values that JSON can hold."""
        with self._writing() as connection:
            connection.execute(_SET_FACT, ("images", folder))
            connection.execute("UPDATE entity SET item = NULL, checksum = NULL")
            connection.executemany(
                "UPDATE entity SET item = ?, checksum = NULL WHERE position = ?",
                [(json.dumps(item), self._position[label]) for label, item in items.items()],
            )

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with explained(self.path):
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        self._check_place()
        with explained(self.path), transaction(self._connection):
            yield self._connection
            seal(self._connection)
        self._wrote = True
        self._check_place()

    def _question(self, rater: str, name: str, *positions: int) -> Question:
        first, second, left = (self.labels[position] for position in positions)
        return Question(name, first, second, left, rater)

    def _open_for_others(self, rater: str) -> list[tuple[int, int]]:
        """Pairs of positions, the lower first, that are reserved for other raters."""
        return self._rows(
            """SELECT min(first, second), max(first, second) FROM question
            WHERE open AND rater <> ? AND asked BETWEEN ? AND ? ORDER BY rowid""",
            text(rater),
            now(_RESERVED),
            now(),  # leaves out times ahead of a clock that was put back
        )

    def _ask(self, rater: str, first: int, second: int, left: int, version: int) -> Question:
        name, ends = secrets.token_urlsafe(12), {"first": first, "second": second, "left": left}
        cells = {"id": name, "rater": text(rater), "asked": now(), "version": version, **ends}
        _insert(self._connection, "question", "INSERT", **cells)
        return self._question(rater, name, *ends.values())

    def _close_question(self, question: str, rater: str) -> tuple[int, int, int]:
        """Close an open question; returns the positions of its first, second and left item."""
        rows = self._rows(
            "SELECT rater, open, first, second, left FROM question WHERE id = ?", question
        )
        if not rows:
            trouble = "it was never asked"
        elif value(rows[0][0]) != rater:
            trouble = "another rater was asked"
        elif not rows[0][1]:
            trouble = "it was answered, skipped or taken back already"
        else:
            self._rows("UPDATE question SET open = 0, checksum = NULL WHERE id = ?", question)
            first, second, left = rows[0][2:]
            return first, second, left
        raise DataError(f"question {shown(question)}: {trouble}; answer the one that is open")


_STANDS = "event.version NOT IN (SELECT withdrawn FROM event WHERE withdrawn IS NOT NULL)"
_SET_FACT = "INSERT OR REPLACE INTO about (name, value) VALUES (?, ?)"
_DTYPES = {
    **dict.fromkeys(("version", "event", "change", "count"), "int64"),
    "tie": bool,
    "strength": "Int64",
    "probability": float,
}


def _fill(
    connection: Connection,
    items: Sequence[Any],
    answers: pd.DataFrame,
    files: Mapping[str, str],
) -> None:
    """Write the first content of a new file."""
    connection.executemany(
        "INSERT INTO entity (position, label) VALUES (?, ?)", enumerate(map(text, items))
    )
    _add_answers(connection, {label: position for position, label in enumerate(items)}, answers)
    fitted = str(_last_event(connection))
    facts = {"rows": "", "identity": secrets.token_hex(16), "fitted": fitted}
    connection.executemany(_SET_FACT, facts.items())
    for sha256, name in files.items():
        _add_file(connection, sha256, name, "fitted")
    seal(connection)


def _last_event(connection: Connection) -> int:
    return int(connection.execute("SELECT coalesce(max(version), 0) FROM event").fetchone()[0])


def _add_answers(
    connection: Connection, positions: Mapping[Any, int], answers: pd.DataFrame
) -> None:
    """Add answers that came without a question."""
    stored: dict[str, Callable[[Any], Any]] = {
        **dict.fromkeys(("winner", "loser", "shown_first"), positions.__getitem__),
        **dict.fromkeys(("count", "tie", "strength"), int),
        "probability": float,
        "rater": text,
    }
    before = _last_event(connection)
    for row in answers.rename(columns={"first": "winner", "second": "loser"}).to_dict("records"):
        cells = {name: cell for name, cell in row.items() if not is_missing(cell)}
        event = {name: store(cells.pop(name)) for name, store in stored.items() if name in cells}
        version = _add_event(connection, "answer", **event)
        if "list" in cells:
            cells["list"] += before  # numbers of lists differ from those of other tables
        if cells:
            more = json.dumps({name: encode_label(cell) for name, cell in cells.items()})
            _insert(connection, "more", version=version, columns=more)


def _insert(connection: Connection, table: str, verb: str = "INSERT", /, **cells: Any) -> int:
    """Add a row and return its number."""
    cursor = connection.execute(
        f"{verb} INTO {table} ({', '.join(cells)}) VALUES ({', '.join('?' * len(cells))})",
        tuple(cells.values()),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _add_event(connection: Connection, kind: str, **columns: Any) -> int:
    """Add an event and return its version."""
    return _insert(connection, "event", kind=kind, time=now(), **columns)


def _add_file(connection: Connection, sha256: str, name: str, origin: str) -> None:
    """Record a file whose answers are here."""
    _insert(
        connection, "file", "INSERT OR REPLACE", sha256=sha256, name=name, how=origin, time=now()
    )


def _inode(file: Path) -> tuple[int, int] | None:
    """Device and inode of a file, which stay when it is renamed; None if it does not exist."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
