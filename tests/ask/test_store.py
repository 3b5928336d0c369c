import os
import random
import re
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from relpref.ask.schema import SCHEMA, connected
from relpref.ask.store import AnswerStore
from relpref.errors import DataError, StorageError

OTHER = """
import sys
import pandas as pd
from relpref.ask.store import AnswerStore
path, rater, pairs = sys.argv[1], sys.argv[2], int(sys.argv[3])
with AnswerStore.open(path, ("tea", "coffee", "water", "cola"), pd.DataFrame({"winner": ["tea"], "loser": ["cola"]})) as store:
    for row in range(pairs):
        question = store.ask(rater, "tea", "water", "tea", store.version, shared=True)
        store.answer(question.id, ("first", "second", "tie")[row % 3], rater)
"""

LABELS = ("tea", "coffee", "water", "cola")
FITTED = pd.DataFrame({"winner": ["tea", "coffee"], "loser": ["coffee", "water"], "count": [3, 1]})


def opened(
    path: Path, labels: tuple[Any, ...] = LABELS, answers: pd.DataFrame = FITTED
) -> AnswerStore:
    return AnswerStore.open(path, labels, answers, files={"0" * 64: "answers.csv"})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "answers.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[AnswerStore]:
    with opened(path) as found:
        yield found


def asked(
    store: AnswerStore,
    first: str = "tea",
    second: str = "water",
    rater: str = "ann",
    shared: bool = False,
) -> str:
    question = store.ask(rater, first, second, second, store.version, shared=shared)
    assert question is not None
    return question.id


def rows(path: Path, query: str) -> list[Any]:
    """Rows that another program reads."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(query).fetchall()


def test_what_the_run_was_fitted_on_is_imported_once(path: Path) -> None:
    for _ in range(3):
        with opened(path) as store:
            assert (store.version, store.fitted) == (2, 2)
            added = store.changes().added[[*FITTED]]
            assert added.to_dict("list") == FITTED.to_dict("list")
    assert rows(path, "SELECT how, name FROM file") == [("fitted", "answers.csv")]


def test_every_column_of_an_answer_survives(path: Path) -> None:
    labels = ("a", "1", 1, 2.5, False, date(2026, 1, 2), ("t", 1), "\ud800", "nul\0", "𝔘 \u200fx")
    table = pd.DataFrame(
        {
            "winner": ["a", 1, ("t", 1)],
            "loser": ["1", 2.5, date(2026, 1, 2)],
            "tie": [False, False, True],
            "strength": pd.array([2, 1, None], dtype="Int64"),
            "rater": ["ann", 7, ("b", 1)],
            "shown_first": [None, 2.5, ("t", 1)],
            "count": [1, 5, 2],
        }
    )
    for _ in range(2):
        with opened(path, labels, table) as store:
            assert store.labels == labels
            found = store.changes().added[[*table]].reset_index(drop=True)
        assert found.map(type).equals(table.map(type))
        assert found.astype(object).equals(table.astype(object))


def test_an_answer_keeps_who_when_where_and_what_was_known(store: AnswerStore, path: Path) -> None:
    assert store.answer(asked(store), "second", "ann") == 3
    added = store.changes(2).added
    assert added.index.tolist() == [3]
    told = added.iloc[0][["winner", "loser", "rater", "shown_first", "tie"]].tolist()
    assert told == ["water", "tea", "ann", "water", False]
    query = (
        "SELECT time, question.version, asked FROM event JOIN question ON question = question.id"
    )
    ((time, known, asked_at),) = rows(path, query)
    assert known == 2
    assert datetime.fromisoformat(asked_at) <= datetime.fromisoformat(time)
    assert time.endswith("+00:00")


def test_the_question_is_the_same_until_it_is_answered(path: Path) -> None:
    with opened(path) as store:
        first = store.ask("ann", "tea", "water", "tea", 2)
        assert store.ask("ann", "cola", "water", "cola", 2) == first
    with opened(path) as store:
        assert store.questions("ann") == [first]
        assert store.questions("ben") == []


def test_only_an_open_question_of_this_rater_is_answered(store: AnswerStore) -> None:
    name = asked(store)
    for question, outcome, rater, words in (
        ("no such", "first", "ann", "never asked"),
        (name, "first", "ben", "another rater"),
        (name, "both", "ann", "outcome is 'both'"),
    ):
        with pytest.raises(DataError, match=words):
            store.answer(question, outcome, rater)
    store.answer(name, "first", "ann")
    with pytest.raises(DataError, match="answered, skipped or taken back already"):
        store.answer(name, "second", "ann")
    with pytest.raises(DataError, match="answered, skipped or taken back already"):
        store.skip(name, "ann")
    assert store.version == 3


def test_undo_withdraws_step_by_step_and_asks_again(store: AnswerStore, path: Path) -> None:
    store.answer(asked(store), "tie", "ann")
    store.skip(asked(store, "cola", "water"), "ann")
    dropped = asked(store, "cola", "coffee")
    counts = {"answers": 1, "skips": 1, "everyone": 1, "given": 4, "questions": 3}
    assert store.counts("ann") == counts
    assert store.avoided("ann")[0] == [("cola", "water")]
    again = store.undo("ann", 4)
    assert again is not None
    assert (again.first, again.second, again.left) == ("cola", "water", "water")
    assert store.avoided("ann")[0] == []
    with pytest.raises(DataError, match="taken back already"):
        store.answer(dropped, "first", "ann")
    before = store.version
    again = store.undo("ann", 5)
    assert again is not None and (again.first, again.second) == ("tea", "water")
    changes = store.changes(before)
    withdrawn = changes.withdrawn[["winner", "loser", "tie"]].values.tolist()
    assert changes.added.empty and withdrawn == [["tea", "water", True]]
    assert store.changes().withdrawn.empty and len(store.changes().added) == 2
    assert store.undo("ann", 6) is None and store.undo("ben", 6) is None
    store.answer(again.id, "first", "ann")
    kinds = [kind for (kind,) in rows(path, "SELECT kind FROM event ORDER BY version")]
    assert kinds[3:] == ["skip", "withdrawal", "withdrawal", "answer"]


def test_events_cannot_be_deleted_or_changed(store: AnswerStore, path: Path) -> None:
    for statement in ("DELETE FROM event", "UPDATE event SET winner = loser"):
        with pytest.raises(sqlite3.IntegrityError, match="events are never"):
            rows(path, statement)


def test_two_raters_are_not_asked_the_same_pair_at_once(store: AnswerStore) -> None:
    asked(store, "tea", "water", "ann")
    assert store.ask("ben", "water", "tea", "tea", 2) is None
    assert store.avoided("ben")[1] == [("tea", "water")]
    assert store.ask("ben", "water", "tea", "tea", 2, shared=True) is not None


def test_a_question_that_was_left_open_for_long_keeps_its_pair_from_nobody(
    store: AnswerStore, path: Path
) -> None:
    for minutes in (59, 61):
        name = asked(store, "tea", "water", "ann")
        then = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat(timespec="milliseconds")
        rows(path, f"UPDATE question SET asked = '{then}' WHERE id = '{name}'")
        assert store.avoided("ben")[1] == ([("tea", "water")] if minutes < 60 else [])
    assert store.ask("ben", "water", "tea", "tea", 2) is not None
    assert store.answer(name, "first", "ann") == 3  # it is still ann's


def test_answers_of_a_file_are_added_once(store: AnswerStore) -> None:
    more = pd.DataFrame({"winner": ["cola"], "loser": ["tea"], "rater": ["ben"]})
    assert store.add(more, "1" * 64, "more.csv") == 3
    store.exported("2" * 64, "comparisons.csv")
    for sha256, words in (("0", "fitted on it"), ("1", "imported"), ("2", "exported from here")):
        with pytest.raises(DataError, match=words):
            store.add(more, sha256 * 64, "again.csv")
    assert store.version == 3


def test_items_are_kept_and_replaced(path: Path) -> None:
    with opened(path) as store:
        store.keep_items("/pictures", {"tea": {"text": "hot"}, "cola": {"text": "<b>"}})
        store.keep_items("/elsewhere", {"tea": {"text": "warm"}})
    with opened(path) as store:
        assert store.items() == ("/elsewhere", {"tea": {"text": "warm"}})


def test_another_schema_is_refused(path: Path) -> None:
    opened(path).close()
    for schema, words in (
        (SCHEMA + 1, r"have the schema 6, this relpref reads up to 5.*upgrade"),
        (SCHEMA - 1, r"have the schema 4 of an unreleased version.* reads schema 5; export them"),
    ):
        rows(path, f"PRAGMA user_version = {schema}")
        for opening in (AnswerStore.read, opened):
            with pytest.raises(StorageError, match=words):
                opening(path)


def test_other_files_are_refused(path: Path) -> None:
    path.write_bytes(b"winner,loser\n" * 100)
    with pytest.raises(StorageError, match=r"answers.sqlite: this is no file of answers"):
        opened(path)
    path.unlink()
    rows(path, "CREATE TABLE other (a)")
    with pytest.raises(StorageError, match="holds something else"):
        opened(path)
    assert rows(path, "SELECT name FROM sqlite_master") == [("other",)]


def test_answers_about_other_items_are_refused(path: Path) -> None:
    opened(path).close()
    with pytest.raises(StorageError, match="other items"):
        opened(path, ("tea", "coffee", "water"))


def told(path: Path) -> Any:
    """All that a store says, or None where it is refused."""
    try:
        store = AnswerStore.read(path)
    except StorageError as error:
        assert path.name in str(error)
        return None
    assert store is not None  # answers are never lost without a word
    with store:
        changes = store.changes()
        frame = changes.steps.astype(object).where(changes.steps.notna(), None)
        said = (changes.version, frame.to_dict("list"), store.counts("ann"), store.items())
        questions = [store.questions(rater) for rater in ("ann", "ben")]
        return *said, store.labels, store.fitted, questions, store.avoided("ann")


def damaged_at(path: Path, places: Callable[[bytes], list[int]]) -> int:
    """Flip a bit at each of some places; how often the store was refused."""
    with opened(path) as store:
        store.keep_items("images", {label: {"text": f"it is {label}"} for label in LABELS})
        for rater in ("ann", "ben", "ann", "ann"):
            store.answer(asked(store, rater=rater, shared=True), "second", rater)
        store.skip(asked(store, "tea", "cola"), "ann")
        store.undo("ann", store.version)
        asked(store, rater="ben", shared=True)
    content, before, refused = path.read_bytes(), told(path), 0
    assert before is not None
    for row, place in enumerate(places(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << (row % 8)
        path.write_bytes(damaged)
        for log in path.parent.glob(f"{path.name}-*"):
            log.unlink()
        after = told(path)
        assert after in (None, before), place
        refused += after is None
    return refused


def written(content: bytes) -> list[int]:
    return [place for place, byte in enumerate(content) if byte]


def test_a_flipped_bit_is_never_another_answer(path: Path) -> None:
    assert damaged_at(path, lambda content: written(content)[::23]) > 50


@pytest.mark.slow
def test_any_flipped_bit_is_never_another_answer(path: Path) -> None:
    assert damaged_at(path, lambda content: [*written(content), *range(0, len(content), 50)]) > 500


def copied(store: AnswerStore, path: Path) -> tuple[Path, bytes]:
    """The file and its log while both are in use, as a kill leaves them; the content of the log."""
    log = path.with_name(f"{path.name}-wal")
    path.with_name("copy.sqlite").write_bytes(path.read_bytes())
    path.with_name("copy.sqlite-wal").write_bytes(log.read_bytes())
    return path.with_name("copy.sqlite"), log.read_bytes()


def test_a_damaged_log_is_refused_with_the_number_that_is_missing(
    store: AnswerStore, path: Path
) -> None:
    for _ in range(49):
        store.answer(asked(store), "first", "ann")
    copy, content = copied(store, path)
    log, last = copy.with_name("copy.sqlite-wal"), len(content) - 4096 - 24
    places = random.Random(3).sample(range(len(content)), 20)
    for place in [*places, *range(0, 32, 5), *range(last, last + 24, 5)]:
        damaged = bytearray(content)
        damaged[place] ^= 1 << (place % 8)
        for opening in (AnswerStore.read, opened):
            log.write_bytes(damaged)
            with pytest.raises(
                StorageError, match=r"copy.sqlite-wal: the file is damaged"
            ) as refused:
                opening(copy)
        missing, changes = map(
            int, re.findall("the last ([0-9]+) of ([0-9]+) changes", str(refused.value))[0]
        )
        assert (
            changes == 1 + 2 * 49
        )  # the table of answers, then a question and its answer each time
        read = AnswerStore.read(copy, damaged_log=True)
        if read is None:  # not even the first change
            assert missing == changes
            continue
        with read:
            assert missing == 2 * 49 - (read.version - 2) - read.counts("ann")["questions"] > 0


def test_a_log_that_ends_in_the_middle_of_a_change_is_not_damaged(
    store: AnswerStore, path: Path
) -> None:
    for _ in range(3):
        store.answer(asked(store), "first", "ann")
    copy, content = copied(store, path)
    for shorter in range(1, 4096 + 24, 523):  # killed while it was written, and nobody was told
        copy.with_name("copy.sqlite-wal").write_bytes(content[:-shorter])
        with AnswerStore.read(copy) or pytest.fail() as read:
            assert read.version == store.version - 1


def test_a_log_that_begins_again_is_not_damaged(store: AnswerStore, path: Path) -> None:
    store._connection.execute("PRAGMA wal_autocheckpoint = 8")
    for _ in range(12):
        store.answer(asked(store), "first", "ann")
        copy, _ = copied(store, path)
        with AnswerStore.read(copy) or pytest.fail() as read:
            assert read.version == store.version


def test_rows_that_are_missing_or_were_written_by_hand(path: Path) -> None:
    opened(path).close()
    content = path.read_bytes()
    for statement in (
        "DELETE FROM entity WHERE position = 3",
        "UPDATE about SET value = '1' WHERE name = 'fitted'",
        "DELETE FROM about WHERE name = 'fitted'",
        "DELETE FROM about WHERE name = 'rows'",
        "DELETE FROM file",
        "DROP TRIGGER events_stay; DELETE FROM event WHERE version = 2",
        "DROP TRIGGER events_are_final; UPDATE event SET count = 7",
        "INSERT INTO event (kind, time, winner, loser) VALUES ('answer', 'now', 0, 1)",
        "UPDATE entity SET label = '{}' WHERE position = 3",
        "PRAGMA user_version = 0",
    ):
        path.write_bytes(content)
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(statement)
        for how in (AnswerStore.read, opened):
            with pytest.raises(
                StorageError, match="damaged or was changed by another program; put a copy back"
            ):
                how(path)


def test_a_store_that_was_killed_before_it_was_filled_is_made_anew(path: Path) -> None:
    path.touch()
    log = path.with_name(f"{path.name}-wal")
    log.write_bytes(b"what may be all that is left")
    assert AnswerStore.read(path) is None and log.exists()
    with opened(path) as store:
        assert store.version == 2


def test_a_full_disk_loses_nothing(store: AnswerStore, path: Path) -> None:
    name = asked(store)
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(
        f"PRAGMA max_page_count = {pages}"
    )  # SQLite's own way to run out of room
    with pytest.raises(StorageError, match="the disk is full"):
        store.keep_items("", {label: {"text": "x" * 10_000} for label in LABELS})
    assert store.items() == ("", {}) and store.version == 2
    store._connection.execute("PRAGMA max_page_count = 100000")
    store.answer(name, "first", "ann")
    assert len(store.changes(2).added) == 1


def test_a_file_that_may_not_grow_loses_nothing(store: AnswerStore, path: Path) -> None:
    name = asked(store)
    log = path.with_name(f"{path.name}-wal").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log + 1000, before[1]))  # less than a page
    try:
        with pytest.raises(StorageError, match=r"answers.sqlite: the disk"):
            store.answer(name, "first", "ann")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert store.version == 2
    assert store.answer(name, "first", "ann") == 3


def test_a_file_that_can_only_be_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(path).close()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with AnswerStore.read(path) or pytest.fail() as store:
        assert store.version == 2
        with pytest.raises(StorageError, match="cannot be written"):
            store.keep_items("", {})
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    with pytest.raises(StorageError, match="cannot be opened"):
        opened(path.parent / "nowhere" / "answers.sqlite")


def test_a_full_disk_has_no_room_for_shared_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(path).close()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with AnswerStore.read(path) or pytest.fail() as store:
            assert store.version == 2
        path.with_name(f"{path.name}-wal").write_bytes(b"x" * 99)  # which must not be passed over
        with pytest.raises(StorageError, match="the disk is full or fails"):
            AnswerStore.read(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_writer_that_never_ends_is_named(store: AnswerStore, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store._connection.execute("PRAGMA busy_timeout = 20")
    with pytest.raises(StorageError, match="another process has kept the file to itself"):
        asked(store)
    assert store.changes().version == 2  # readers need not wait
    other.close()


def test_one_question_is_answered_once_by_many_connections(path: Path) -> None:
    with opened(path) as store:
        name = asked(store)

    def answer(_: int) -> str:
        with opened(path) as own:
            try:
                own.answer(name, "first", "ann")
            except DataError:
                return "refused"
            return "kept"

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(answer, range(8))) == ["kept", *["refused"] * 7]
    with opened(path) as store:
        assert len(store.changes(2).added) == 1


def test_a_file_is_verified_as_it_was_at_one_moment(path: Path) -> None:
    with opened(path) as store:
        name = asked(store)
        connection = connected(path.absolute().as_uri())
        written: list[int] = []

        def write(statement: str) -> None:
            if (
                "count(*) FROM entity" in statement and not written
            ):  # their number on record has been read
                written.append(store.answer(name, "first", "ann"))

        connection.set_trace_callback(write)
        with closing(connection):
            AnswerStore(path, connection)
        assert written


def test_two_processes_write_at_once(path: Path) -> None:
    command = [sys.executable, "-c", OTHER, str(path)]
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    other = subprocess.Popen([*command, "ann", "40"], env=environment)
    with AnswerStore.open(
        path, LABELS, pd.DataFrame({"winner": ["tea"], "loser": ["cola"]})
    ) as store:
        for _ in range(40):
            store.answer(asked(store, rater="ben", shared=True), "first", "ben")
        assert other.wait(60) == 0
        assert store.counts("ann")["answers"] == store.counts("ben")["answers"] == 40
        assert store.counts("ann")["given"] == 1  # whichever was first, the run's answers came once
        assert store.version == 81
