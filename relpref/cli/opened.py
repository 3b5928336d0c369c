"""The run that a command is about, and the labels that it is asked about."""

import sys
from collections.abc import Sequence
from shlex import quote
from typing import Any

from relpref.errors import DataError
from relpref.explore.follow import up_to_date
from relpref.infer import RelationPosterior, UtilityPosterior
from relpref.runs import Run, load_run


def opened(folder: str) -> tuple[Run, UtilityPosterior]:
    """Read a run and its posterior, with the answers that people gave since it was saved.

    Raises
    ------
    DataError
        If it does not rank entities.
    StorageError
        If it cannot be read.
    """
    run = load_run(folder)
    if isinstance(run.posterior, RelationPosterior):
        raise DataError(
            f"{folder}: this run ranks objects for a given node; use relpref conditional rank {quote(folder)} NODE"
        )
    if not isinstance(run.posterior, UtilityPosterior):
        raise DataError(f"{folder}: this run has no utilities of entities, so there is nothing to rank")
    return run, brought_up_to_date(run, folder)


def brought_up_to_date(run: Run, folder: str) -> UtilityPosterior:
    """The posterior of a run that ranks entities, with the answers that people gave since it was saved."""
    posterior, later = up_to_date(run)
    if later:
        print(
            f"relpref: {later} answer{' is' if later == 1 else 's are'} newer than the posterior in {folder}; it was brought up to date for "
            "this command",
            file=sys.stderr,
        )
    return posterior


def opened_relation(folder: str) -> RelationPosterior:
    """Read the posterior of a run of ``relpref conditional fit``.

    Raises
    ------
    DataError
        If it is another kind of run.
    StorageError
        If it cannot be read.
    """
    found = load_run(folder).posterior
    if not isinstance(found, RelationPosterior):
        raise DataError(
            f"{folder}: this run has no relation to rank by; relpref rank {quote(folder)} ranks its entities, and relpref "
            "conditional fit makes runs of relations"
        )
    return found


def labels(known: Sequence[Any], texts: Sequence[str]) -> list[Any]:
    """The labels meant by texts: labels that are no text themselves are found by how they are printed."""
    printed: dict[str, Any] = {}
    for label in known:
        printed.setdefault(str(label), label)
    return [text if text in known else printed.get(text, text) for text in texts]
