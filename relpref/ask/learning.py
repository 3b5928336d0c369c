"""Learning from answers: at once, in full in the background, and published in the run's folder."""

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
from relpref.data.tables import Table
from relpref.errors import DataError, InferenceError, StorageError, UnsupportedProgramError
from relpref.files import file_digest, replaced
from relpref.limits import MAX_QUICK_ANSWERS, MAX_QUICK_ERROR_OF_ASKING
from relpref.posterior.base import Posterior
from relpref.posterior.utility import UtilityPosterior
from relpref.runs import ANSWERS, POSTERIOR, RECORD, Run, read_record, record_text


def learned(
    posterior: UtilityPosterior, changes: Changes, *, quick: bool = False
) -> UtilityPosterior:
    """Update the posterior after changes of the answers.

    ``quick`` makes rank-one updates, if the changes are few and the posterior allows it: a person
    waits for these, and a full update follows in the background. They depend a little on their
    order, so they are made one by one, as in a process that saw the answers come.
    """
    steps = changes.steps
    lists = "list" in steps and steps["list"].notna().any()  # pairs of a list are one answer
    if quick and not lists and steps["count"].sum() <= MAX_QUICK_ANSWERS:
        try:
            updated = posterior
            for row, change in enumerate(steps["change"]):
                table = _for_model(steps.iloc[[row]], updated)
                more, fewer = (table, None) if change > 0 else (None, table)
                updated = updated.update(more, withdraw=fewer, quick=MAX_QUICK_ERROR_OF_ASKING)
            return updated
        except (UnsupportedProgramError, InferenceError):  # a mixture, or rounding: then in full
            pass
    added, withdrawn = (
        _for_model(table, posterior) for table in (changes.added, changes.withdrawn)
    )
    if added is None and withdrawn is None:
        return posterior
    return posterior.update(added, withdraw=withdrawn, hyperparameters="schedule")


def without_others(posterior: UtilityPosterior, changes: Changes, rater: str) -> UtilityPosterior:
    """Posterior of the answers of one rater only; the hyperparameters stay."""
    others = _for_model(changes.added[changes.added["rater"] != rater], posterior)
    return posterior if others is None else posterior.update(withdraw=others)


def _for_model(table: pd.DataFrame, posterior: UtilityPosterior) -> Table | None:
    """Answers in the columns of the run's model; None if there are no answers."""
    if table.empty:
        return None
    fitted = posterior.data.comparisons
    columns = ["winner", "loser", "count"]
    if fitted.tie is not None or table["tie"].any():
        columns.append("tie")
    columns += [name for name in ("rater", "shown_first") if getattr(fitted, name) is not None]
    return with_shared(table[columns], table, fitted)


def up_to_date(run: Run) -> tuple[UtilityPosterior, int]:
    """Posterior of a run with all answers of its store, and the number that its file lacks."""
    posterior = cast(UtilityPosterior, run.posterior)
    check_known(run)
    store = AnswerStore.read(run.folder / ANSWERS)
    if store is None:
        return posterior, 0
    with store:
        changes = store.changes(known_version(run, store))
    return learned(posterior, changes), len(changes)


def askable(run: Run) -> UtilityPosterior:
    """Posterior of a run, if it can learn from single answers."""
    posterior = cast(UtilityPosterior, run.posterior)
    if posterior.kind != "utilities":
        raise DataError(
            f"{run.folder}: this run does not rank items, so there is nothing to ask about them"
        )
    for column in {"strength", "probability"} & posterior.data.comparisons.columns.keys():
        raise DataError(
            f"{run.folder}: the run was fitted on answers with the column {column!r}, and a "
            "question here is answered by one of two, or a tie; fit winners alone"
        )
    if posterior.origin is None or not posterior.origin.engine:
        raise DataError(
            f"{run.folder}: the posterior does not know its program, so that it cannot learn from "
            "answers; fit with relpref fit"
        )
    return posterior


def lost(run: Run) -> bool:
    """Whether the posterior of a run includes answers whose file is gone or empty."""
    if not run.metadata.get("answers"):
        return False
    store = AnswerStore.read(run.folder / ANSWERS)
    if store is not None:
        store.close()
    return store is None


def check_known(run: Run) -> None:
    """Refuse a run whose answers are lost."""
    if lost(run):
        raise StorageError(
            f"{run.folder / ANSWERS}: the file is gone or empty, and with it who answered what, "
            "and when; put it back (with the file that ends in -wal, if there is one), or go on "
            f"without it: relpref ask {quote(str(run.folder))} --export answers.csv writes the "
            "answers that the posterior knows, for relpref fit into a new folder"
        )


def export_known(run: Run, path: str | os.PathLike[str]) -> int:
    """Write the answers in the posterior of a run whose store is lost; returns their number."""
    data = askable(run).data
    write_answers(data.comparisons.written(data.labels), path)
    return data.num_answers


def export_left(run: Run, path: str | os.PathLike[str]) -> int:
    """Write the answers before the damage in a store's log and return their number.

    If the posterior includes later answers, its answers are written.
    """
    store = AnswerStore.read(run.folder / ANSWERS, damaged_log=True)
    if store is None:
        return export_known(run, path)
    with store:
        if store.version < (run.metadata.get("answers") or {"version": 0})["version"]:
            return export_known(run, path)
        table = answers_table(store, askable(run).data)
        number = int(store.changes().added["count"].sum())
    write_answers(table, path)
    return number


def known_version(run: Run, store: AnswerStore) -> int:
    """Version of the answers that the posterior of a run includes."""
    answers = run.metadata.get("answers")
    if not answers:
        return store.fitted
    version = answers["version"]
    if answers["store"] != store.identity:
        trouble = (
            "these are not the answers that the run knows; put the file back that was here before"
        )
    elif version > store.version:
        trouble = (
            f"the file ends at answer {store.version}, and the run knows {version}: it is an older "
            "copy; put the newest back"
        )
    else:
        return int(version)
    raise StorageError(
        f"{store.path}: {trouble} (without a copy: move the file out of the folder; relpref ask "
        f"{quote(str(run.folder))} --export answers.csv then writes the answers that the posterior "
        "knows)"
    )


# Questions come later during a refinement: the refiner rests longer than it worked, and then until
# nobody answers.
_SHARE = 4.0  # rest, in lengths of the last refinement
_LEAST, _MOST = 1.0, 60.0  # seconds of rest
_QUIET = 2.0  # seconds without an answer, waited for no longer than the refiner has rested
_SOON = 0.5  # seconds of waiting at the end that need no message


class Unfinished(KeyboardInterrupt):
    """Interrupt during the last refinement; its thread ends when the compiled code returns."""


class Refiner:
    """Thread that calls ``refine`` at the start, after answers, and at the end.

    Answers that come during a refinement are refined together.
    """

    def __init__(self, refine: Callable[[], object]) -> None:
        self._refine = refine
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="relpref-refine")

    def start(self) -> None:
        self.wake()
        self._thread.start()

    def wake(self) -> None:
        """Announce new answers."""
        self._wake.set()

    def close(self, waiting: Callable[[], object] = lambda: None) -> None:
        """Refine what is left, and end; ``waiting`` is called if that takes more than a moment.

        Raises `Unfinished` at an interrupt.
        """
        self._ending.set()
        self.wake()
        try:
            self._thread.join(_SOON)
            if self._thread.is_alive():
                waiting()
            while self._thread.is_alive():
                self._thread.join(_SOON)  # repeatedly: an interrupt may not end the call
        except KeyboardInterrupt:
            raise Unfinished from None

    def _work(self) -> None:
        ending, rest = False, 0.0
        while not ending:
            self._wake.wait()
            self._wait_for_quiet(rest)
            self._wake.clear()
            ending = self._ending.is_set()  # checked first: the last refinement has every answer
            start = monotonic()
            try:
                self._refine()
            except Exception as error:  # noqa: BLE001 - the answers are safe, the next may mend it
                words = " ".join(str(error).split())
                print(f"relpref: the ranking was not refined: {words}", file=sys.stderr, flush=True)
            rest = min(max(_SHARE * (monotonic() - start), _LEAST), _MOST)
            self._ending.wait(rest)

    def _wait_for_quiet(self, longest: float) -> None:
        """Wait until nobody has answered for a moment, but at most so many seconds."""
        until = monotonic() + longest
        while (left := until - monotonic()) > 0 and not self._ending.is_set():
            self._wake.clear()
            if self._ending.wait(min(_QUIET, left)) or not self._wake.is_set():
                return


def publish(
    folder: Path,
    record: Mapping[str, Any],
    posterior: Posterior,
    store: AnswerStore,
    version: int,
) -> bool:
    """Atomically replace the posterior of a run by that of the answers up to a version.

    Parameters
    ----------
    record : mapping
        Record of the run when it was opened.

    Returns
    -------
    bool
        False if another process has published a later posterior already.

    Raises
    ------
    StorageError
        If something cannot be written or the folder has another run; everything stays as it was.
    """
    with _locked(folder):
        opened, record = record, read_record(folder)
        _check_same(folder, opened, record, store)
        if (record.get("answers") or {"version": -1})["version"] >= version:
            return False
        # First make room: unfinished files are of processes that were killed while they had the
        # lock.
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
        # The earlier posterior, and others whose processes were killed before this line.
        for old in (folder / POSTERIOR, *folder.glob("posterior-*.nc")):
            if old != file:
                old.unlink(missing_ok=True)
    return True


def _check_same(
    folder: Path, opened: Mapping[str, Any], record: Mapping[str, Any], store: AnswerStore
) -> None:
    """Refuse a folder that has another run now."""
    published = dict.fromkeys(("posterior", "answers"))
    if not store.in_place or {**opened, **published} != {**record, **published}:
        raise StorageError(
            f"{folder}: this is another run than the one that was opened, which was moved, "
            "replaced or deleted meanwhile; nothing was published into it"
        )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes out; the lock ends with the process, however that ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
