"""What the posterior of a run learns from its store."""

import os
from shlex import quote

import pandas as pd

from relpref.errors import DataError, InferenceError, StorageError, UnsupportedProgramError
from relpref.explore.store.answer_store import AnswerStore
from relpref.explore.store.files import write_answers
from relpref.explore.store.rows import Changes
from relpref.infer import UtilityPosterior
from relpref.likelihoods import Logistic
from relpref.runs import ANSWERS, Run

_MANY = 25  # more answers than that are learnt at once, by a full update: equal ones are one row, and as many changes


def learnt(posterior: UtilityPosterior, changes: Changes, *, quick: bool = False) -> UtilityPosterior:
    """The posterior after changes of the answers; ``quick``: by rank-one changes, where there are few and the posterior allows it.

    Quick changes depend a little on their order, so they are made one by one, as in a process that saw them come.
    """
    if changes.steps.empty:
        return posterior
    if quick and changes.steps["count"].sum() <= _MANY:
        try:
            found = posterior
            for row, change in enumerate(changes.steps["change"]):
                table = _for_model(changes.steps.iloc[[row]], found)
                more, fewer = (table, None) if change > 0 else (None, table)
                found = found.update(more, withdraw=fewer, quick=True)
            return found
        except (UnsupportedProgramError, InferenceError):  # a mixture, or rounding: then in full
            pass
    added, withdrawn = (_for_model(table, posterior) for table in (changes.added, changes.withdrawn))
    if added is None and withdrawn is None:
        return posterior
    return posterior.update(added, withdraw=withdrawn, hyperparameters="schedule")


def up_to_date(run: Run) -> tuple[UtilityPosterior, int]:
    """The posterior of a run with the answers that its store knows and its file does not, and how many these are.

    Raises
    ------
    StorageError
        If the answers cannot be read, or are those of another run.
    """
    posterior = run.posterior
    assert isinstance(posterior, UtilityPosterior)
    check_known(run)
    store = AnswerStore.read(run.folder / ANSWERS)
    if store is None:
        return posterior, 0
    with store:
        changes = store.changes(known_version(run, store))
    return learnt(posterior, changes), len(changes)


def askable(run: Run) -> UtilityPosterior:
    """The posterior of a run, if it can learn from answers that come one by one."""
    posterior = run.posterior
    if not isinstance(posterior, UtilityPosterior):
        raise DataError(
            f"{run.folder}: this run does not rank entities, so there is nothing to ask about them"
        )
    known = posterior.data.comparisons
    for column, what in (("strength", known.strength), ("probability", known.probability)):
        if what is not None:
            raise DataError(
                f"{run.folder}: the run was fitted on answers with the column {column!r}, and a question here is answered by one of two, "
                "or a tie; fit winners alone"
            )
    if posterior.origin is None or not posterior.origin.engine:
        raise DataError(
            f"{run.folder}: the posterior does not know its program, so that it cannot learn from answers; fit with relpref fit"
        )
    return posterior


def knows_ties(posterior: UtilityPosterior) -> bool:
    """Whether the answer model has a place for ties."""
    return not isinstance(posterior.likelihood, Logistic)


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
    """Write the answers that the posterior of a run knows, with the columns that its model looks at; returns how many.

    For a run whose store is lost: what was answered later, when, and by whom where the model does not look at raters, is not known.
    """
    data = askable(run).data
    write_answers(data.comparisons.table(data.entities), path)
    return data.num_answers


def known_version(run: Run, store: AnswerStore) -> int:
    """Which answers the posterior of a run knows."""
    known = run.metadata.get("answers")
    if not known:
        return store.fitted
    if known["store"] != store.identity:
        raise StorageError(
            f"{store.path}: these are not the answers that the run knows; put the file back that was here before{_without(run)}"
        )
    if known["version"] > store.version:
        raise StorageError(
            f"{store.path}: the file ends at answer {store.version}, and the run knows {known['version']}: it is an older copy; put "
            f"the newest back{_without(run)}"
        )
    return int(known["version"])


def _without(run: Run) -> str:
    """How to go on where nobody has a copy."""
    return (
        f" (without a copy: move the file out of the folder; relpref ask {quote(str(run.folder))} --export answers.csv then writes the "
        "answers that the posterior knows)"
    )


def _for_model(table: pd.DataFrame, posterior: UtilityPosterior) -> pd.DataFrame | None:
    """Answers as the model of the run looks at them."""
    if not len(table):
        return None
    known = posterior.data.comparisons
    columns = ["winner", "loser", "count"]
    if known.tie is not None or table["tie"].any():
        columns.append("tie")
    columns += [name for name in ("rater", "shown_first") if getattr(known, name) is not None]
    return table[columns]
