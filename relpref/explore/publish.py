"""Puts the posterior of later answers into the folder of a run."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from relpref.files import file_digest, replaced
from relpref.infer import Posterior
from relpref.runs import ANSWERS, POSTERIOR, RECORD, read_record, record_text


def publish(folder: Path, posterior: Posterior, store: str, version: int) -> bool:
    """Put the posterior of later answers in place of that of a run, in one step.

    Parameters
    ----------
    folder : path
        Of the run.
    posterior : Posterior
    store : str
        Identity of the file of answers.
    version : int
        Of the answers that the posterior knows.

    Returns
    -------
    bool
        False if another process has published a later one already.

    Raises
    ------
    StorageError
        If something cannot be written; the run is as it was then.
    """
    with _alone(folder):
        record = read_record(folder)
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
        record["answers"] = {"file": ANSWERS, "store": store, "version": version}
        with replaced(folder / RECORD) as part:
            part.write_text(record_text(record), encoding="utf-8")
        # The one before, and what processes left that were killed between these lines.
        for old in (folder / POSTERIOR, *folder.glob("posterior-*.nc")):
            if old != file:
                old.unlink(missing_ok=True)
    return True


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Only one process at a time; the lock ends with the process, however that ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
