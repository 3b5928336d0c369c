"""How the posterior of a run learns from answers: at once, in full in the background, and published into the folder of the run."""

import fcntl
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from time import monotonic
from typing import Any, cast

import pandas as pd

from relpref.ask.store import AnswerStore, Changes
from relpref.ask.tables import answers_table, with_shared, write_answers
from relpref.errors import DataError, InferenceError, StorageError, UnsupportedProgramError
from relpref.files import file_digest, replaced
from relpref.limits import MAX_QUICK_ANSWERS, MAX_QUICK_ERROR_OF_ASKING
from relpref.posterior.base import Posterior
from relpref.posterior.utility import UtilityPosterior
from relpref.runs import ANSWERS, POSTERIOR, RECORD, Run, read_record, record_text


def learned(posterior: UtilityPosterior, changes: Changes, *, quick: bool = False) -> UtilityPosterior:
    """The posterior after changes of the answers; ``quick``: by rank-one changes, where there are few and the posterior allows it.

    A person waits for quick changes, and a full update follows in the background. Quick changes depend a little on their order, so they are made one by one, as in a process that saw them come.
    """
    steps = changes.steps
    whole = "list" in steps and steps["list"].notna().any()  # pairs of a list are one answer
    if quick and not whole and steps["count"].sum() <= MAX_QUICK_ANSWERS:
        try:
            updated = posterior
            for row, change in enumerate(steps["change"]):
                table = _for_model(steps.iloc[[row]], updated)
                more, fewer = (table, None) if change > 0 else (None, table)
                updated = updated.update(more, withdraw=fewer, quick=MAX_QUICK_ERROR_OF_ASKING)
            return updated
        except (UnsupportedProgramError, InferenceError):  # a mixture, or rounding: then in full
            pass
    added, withdrawn = (_for_model(table, posterior) for table in (changes.added, changes.withdrawn))
    if added is None and withdrawn is None:
        return posterior
    return posterior.update(added, withdraw=withdrawn, hyperparameters="schedule")


def without_others(posterior: UtilityPosterior, changes: Changes, rater: str) -> UtilityPosterior:
    """The posterior by the answers of one rater alone, of all that stand; the hyperparameters stay."""
    others = _for_model(changes.added[changes.added["rater"] != rater], posterior)
    return posterior if others is None else posterior.update(withdraw=others)


def _for_model(table: pd.DataFrame, posterior: UtilityPosterior) -> pd.DataFrame | None:
    """Answers as the model of the run looks at them; None where there are none."""
    if not len(table):
        return None
    known = posterior.data.comparisons
    columns = ["winner", "loser", "count"]
    if known.tie is not None or table["tie"].any():
        columns.append("tie")
    columns += [name for name in ("rater", "shown_first") if getattr(known, name) is not None]
    return with_shared(table[columns], table, known)


def up_to_date(run: Run) -> tuple[UtilityPosterior, int]:
    """The posterior of a run with the answers that its store knows and its file does not, and how many these are."""
    posterior = cast(UtilityPosterior, run.posterior)
    check_known(run)
    store = AnswerStore.read(run.folder / ANSWERS)
    if store is None:
        return posterior, 0
    with store:
        changes = store.changes(known_version(run, store))
    return learned(posterior, changes), len(changes)


def askable(run: Run) -> UtilityPosterior:
    """The posterior of a run, if it can learn from answers that come one by one."""
    posterior = cast(UtilityPosterior, run.posterior)
    if posterior.kind != "utilities":
        raise DataError(f"{run.folder}: this run does not rank items, so there is nothing to ask about them")
    for column in {"strength", "probability"} & posterior.data.comparisons.columns.keys():
        raise DataError(
            f"{run.folder}: the run was fitted on answers with the column {column!r}, and a question here is answered by one of two, "
            "or a tie; fit winners alone"
        )
    if posterior.origin is None or not posterior.origin.engine:
        raise DataError(
            f"{run.folder}: the posterior does not know its program, so that it cannot learn from answers; fit with relpref fit"
        )
    return posterior


def lost(run: Run) -> bool:
    """Whether a run knows of answers whose file is gone, or empty."""
    if not run.metadata.get("answers"):
        return False
    store = AnswerStore.read(run.folder / ANSWERS)
    if store is not None:
        store.close()
    return store is None


def check_known(run: Run) -> None:
    """Refuse a run that knows of answers which are gone."""
    if lost(run):
        raise StorageError(
            f"{run.folder / ANSWERS}: the file is gone or empty, and with it who answered what, and when; put it back (with the file that "
            f"ends in -wal, if there is one), or go on without it: relpref ask {quote(str(run.folder))} --export answers.csv writes the "
            "answers that the posterior knows, for relpref fit into a new folder"
        )


def export_known(run: Run, path: str | os.PathLike[str]) -> int:
    """Write the answers that the posterior of a run knows, for a run whose store is lost; returns how many."""
    data = askable(run).data
    write_answers(data.comparisons.table(data.labels), path)
    return data.num_answers


def export_left(run: Run, path: str | os.PathLike[str]) -> int:
    """Write the answers before the damage in the log of a run's store, or those that the posterior knows if they are more recent."""
    data, store = askable(run).data, AnswerStore.read(run.folder / ANSWERS, damaged_log=True)
    if store is None:
        return export_known(run, path)
    with store:
        if store.version < (run.metadata.get("answers") or {"version": 0})["version"]:
            return export_known(run, path)
        table = answers_table(store, data)
    write_answers(table, path)
    return int(table["count"].sum())


def known_version(run: Run, store: AnswerStore) -> int:
    """Which answers the posterior of a run knows."""
    known = run.metadata.get("answers")
    if not known:
        return store.fitted
    if known["store"] == store.identity and known["version"] <= store.version:
        return int(known["version"])
    trouble = (
        "these are not the answers that the run knows; put the file back that was here before"
        if known["store"] != store.identity
        else f"the file ends at answer {store.version}, and the run knows {known['version']}: it is an older copy; put the newest back"
    )
    raise StorageError(
        f"{store.path}: {trouble} (without a copy: move the file out of the folder; relpref ask {quote(str(run.folder))} --export "
        "answers.csv then writes the answers that the posterior knows)"
    )


# While it works, questions come later: it rests longer than it worked, and then until nobody answers.
_SHARE = 4.0  # rest, in lengths of the last refinement
_LEAST, _MOST = 1.0, 60.0  # seconds of rest
_QUIET = 2.0  # seconds without an answer, for which it waits no longer than it has rested
_SOON = 0.5  # seconds that nobody minds to wait at the end


class Unfinished(KeyboardInterrupt):
    """Interrupted while the last refinement was at work; its thread is inside compiled code and ends when that returns."""


class Refiner:
    """One thread that calls ``refine`` at the start, after answers (once for all that came meanwhile), and at the end."""

    def __init__(self, refine: Callable[[], object]) -> None:
        self._refine = refine
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="relpref-refine")

    def start(self) -> None:
        self._wake.set()
        self._thread.start()

    def wake(self) -> None:
        """Say that there is something new."""
        self._wake.set()

    def close(self, waiting: Callable[[], object] = lambda: None) -> None:
        """Refine what is left, and end; ``waiting`` is called where that takes longer than a moment. Interrupted: `Unfinished`."""
        self._ending.set()
        self._wake.set()
        try:
            self._thread.join(_SOON)
            if self._thread.is_alive():
                waiting()
            while self._thread.is_alive():
                self._thread.join(_SOON)  # in parts: not every Python hears an interrupt in there
        except KeyboardInterrupt:
            raise Unfinished from None

    def _work(self) -> None:
        ending, rest = False, 0.0
        while not ending:
            self._wake.wait()
            self._until_quiet(rest)
            self._wake.clear()
            ending = self._ending.is_set()  # before the last refinement, which then knows every answer
            began = monotonic()
            try:
                self._refine()
            except Exception as error:  # noqa: BLE001 - answers are safe without it, and the next ones may mend it
                said = " ".join(str(error).split())
                print(f"relpref: the ranking was not refined: {said}", file=sys.stderr, flush=True)
            rest = min(max(_SHARE * (monotonic() - began), _LEAST), _MOST)
            self._ending.wait(rest)

    def _until_quiet(self, longest: float) -> None:
        """Wait until nobody has answered for a moment, but no longer than that."""
        until = monotonic() + longest
        while (left := until - monotonic()) > 0 and not self._ending.is_set():
            self._wake.clear()
            if self._ending.wait(min(_QUIET, left)) or not self._wake.is_set():
                return


def publish(
    folder: Path, record: Mapping[str, Any], posterior: Posterior, store: AnswerStore, version: int
) -> bool:
    """Put the posterior of the answers up to a version in place of that of a run, in one step.

    ``record`` is that of the run when it was opened. False if another process has published a later one already; a `StorageError`, and
    everything as it was, if something cannot be written or another run has taken the place of this one.
    """
    with _alone(folder):
        opened, record = record, read_record(folder)
        _check_same(folder, opened, record, store)
        known = record.get("answers") or {"version": -1}
        if known["version"] >= version:
            return False
        # Half-written files of processes that were killed: only who holds the lock writes such ones. First, to make room for the new.
        for name in (RECORD, "posterior-*.nc"):
            for part in folder.glob(f".{name}.*.part"):
                with suppress(OSError):
                    part.unlink()
        file = folder / f"posterior-{version}.nc"
        posterior.save(file)
        record["posterior"] = {"file": file.name, "sha256": file_digest(file)}
        record["answers"] = {"file": ANSWERS, "store": store.identity, "version": version}
        try:
            with replaced(folder / RECORD) as part:
                part.write_text(record_text(record), encoding="utf-8")
                _check_same(folder, opened, read_record(folder), store)
        except StorageError:
            file.unlink(missing_ok=True)
            raise
        # The one before, and what processes left that were killed between these lines.
        for old in (folder / POSTERIOR, *folder.glob("posterior-*.nc")):
            if old != file:
                old.unlink(missing_ok=True)
    return True


def _check_same(
    folder: Path, opened: Mapping[str, Any], record: Mapping[str, Any], store: AnswerStore
) -> None:
    """Refuse a folder in which there is another run now."""
    changes = ("posterior", "answers")  # what is published
    first, second = ({k: v for k, v in one.items() if k not in changes} for one in (opened, record))
    if not store.in_place or first != second:
        raise StorageError(
            f"{folder}: this is another run than the one that was opened, which was moved, replaced or deleted meanwhile; nothing was "
            "published into it"
        )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Only one process at a time; the lock ends with the process, however that ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
