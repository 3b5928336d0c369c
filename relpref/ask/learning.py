"""Updates of a posterior by new answers, and their publication in the folder of the run."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any

import pandas as pd
from filelock import FileLock

from relpref.ask.questions import Changes
from relpref.ask.store import AnswerStore
from relpref.ask.tables import answers_table, with_shared, write_answers
from relpref.data.tables import Table
from relpref.errors import DataError, InferenceError, StorageError, UnsupportedProgramError
from relpref.files import FilePath, file_digest, replaced
from relpref.limits import MAX_QUICK_ANSWERS, MAX_QUICK_ERROR_OF_ASKING
from relpref.posterior.base import Posterior
from relpref.posterior.utility import UtilityPosterior
from relpref.runs import ANSWERS, LOCK, POSTERIOR, RECORD, Run, read_record, record_text


def learned(
    posterior: UtilityPosterior, changes: Changes, *, quick: bool = False
) -> UtilityPosterior:
    """Update the posterior after changes of the answers.

    ``quick`` makes quick updates, if the changes are few and the posterior allows it: a person
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
    posterior: UtilityPosterior = run.posterior
    store = AnswerStore.read(run.folder / ANSWERS)
    if store is None:
        check_known(run)
        return posterior, 0
    with store:
        changes = store.changes(known_version(run, store))
    return learned(posterior, changes), len(changes)


def askable(run: Run) -> UtilityPosterior:
    """Posterior of a run, if it can learn from single answers."""
    posterior: UtilityPosterior = run.posterior
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


def export_left(run: Run, path: FilePath) -> int:
    """Write the answers before the damage in a store's log and return their number.

    If the store is lost, or lacks answers of the posterior, those of the posterior are written.
    """
    data = askable(run).data
    table, number = data.comparisons.written(data.labels), data.num_answers
    store = AnswerStore.read(run.folder / ANSWERS, damaged_log=True)
    if store is not None:
        with store:
            if store.version >= (run.metadata.get("answers") or {"version": 0})["version"]:
                table = answers_table(store, data)
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


def publish(
    folder: Path, record: Mapping[str, Any], posterior: Posterior, store: AnswerStore, version: int
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
    # Before the lock, which is a file: nothing is written into the folder of another run.
    _check_same(folder, record, read_record(folder), store)
    with FileLock(folder / LOCK):  # it ends with the process, however that ends
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
