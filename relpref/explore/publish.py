"""Puts the posterior of later answers into the folder of a run."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from relpref.errors import StorageError
from relpref.explore.store.answer_store import AnswerStore
from relpref.files import file_digest, replaced
from relpref.infer import Posterior
from relpref.runs import ANSWERS, POSTERIOR, RECORD, read_record, record_text


def publish(
    folder: Path, record: Mapping[str, Any], posterior: Posterior, store: AnswerStore, version: int
) -> bool:
    """Put the posterior of later answers in place of that of a run, in one step.

    Parameters
    ----------
    folder : path
        Of the run.
    record : mapping
        Of the run, when it was opened.
    posterior : Posterior
    store : AnswerStore
    version : int
        Of the answers that the posterior knows.

    Returns
    -------
    bool
        False if another process has published a later one already.

    Raises
    ------
    StorageError
        If something cannot be written, or another run has taken the place of this one; what is there is as it was then.
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
