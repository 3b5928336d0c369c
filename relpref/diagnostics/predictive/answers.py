"""Predicted answers with the user's own labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data import RelationData
from relpref.diagnostics.predictive.cavity import Predictive, Question
from relpref.diagnostics.predictive.held_out import HeldOut
from relpref.infer import ClassPosterior, Posterior, UtilityPosterior
from relpref.infer.belief import Floats
from relpref.infer.class_posterior import Examples, example_labels
from relpref.infer.ranks import objects

_SIBLINGS = (
    "a pair leaves alone, and the others of its choice or list, which stay, all but tell who won: the scores are no measure of "
    "how well answers are predicted"
)


@dataclass(frozen=True)
class Given:
    """The answers that a posterior comes from.

    Attributes
    ----------
    table : DataFrame
        One row for each.
    outcome : array of int, shape (m,)
        Category, see `HeldOut`; −1 for numbers.
    paired : bool
    single : array of bool, shape (m,)
        See `HeldOut`.
    unit : array of int
        For each row of the program, the answer that it is a part of.
    """

    table: pd.DataFrame
    outcome: NDArray[np.intp]
    paired: bool
    single: NDArray[np.bool_]
    unit: NDArray[np.intp]


def given_answers(posterior: Posterior, question: Question, found: Predictive) -> Given:
    """The answers of a posterior as they were given."""
    rows = np.arange(len(found.count))
    if isinstance(posterior, ClassPosterior):
        return _examples(posterior, len(rows))
    known = ~np.isnan(found.side)
    outcome = np.where(known, 1 - np.nan_to_num(found.side), -1).astype(np.intp)
    single = known & ~question.paired[found.site]
    paired = bool((known & ~single).any())
    if not paired:
        outcome[outcome > 0] = 1  # there is no neither
        outcome = np.where(outcome >= 0, 1 - outcome, -1)
    if isinstance(posterior, UtilityPosterior):
        data = posterior.data
        if len(question.observed) == 1 and np.array_equal(found.count, data.count):
            table = data.comparisons.table(data.entities).rename(columns={"probability": "reported"})
            return Given(table, outcome, paired, single, rows)
    table = pd.DataFrame(
        {
            "site": objects(question.observed[site] for site in found.site),
            "row": np.concatenate(
                [np.arange(n) for n in np.bincount(found.site, minlength=len(question.observed))]
            ),
            "value": found.value,
        }
    )
    if not np.all(found.count == 1):
        table["count"] = found.count
    return Given(table, outcome, paired, single, rows)


def _examples(posterior: ClassPosterior, num_rows: int) -> Given:
    data, ends = posterior.data, used_examples(posterior.data)
    if isinstance(data, RelationData):
        kept = slice(None) if data.distinct is None else data.distinct
        outcome = (np.asarray(data.values.values)[kept] > 0).astype(np.intp)
        table = pd.DataFrame({"source": objects(e[0] for e in ends), "target": objects(e[1] for e in ends)})
    else:
        assert data.label is not None  # it was fitted to
        outcome = np.asarray(data.label).astype(np.intp)
        table = pd.DataFrame({"ranker": objects(ends)})
    table["class"] = objects(posterior.classes)[outcome]
    unit = np.repeat(np.arange(len(table)), num_rows // max(len(table), 1))
    return Given(table, outcome, False, np.ones(len(table), dtype=bool), unit)


def used_examples(data: Examples) -> Sequence[Any]:
    """Labels of the examples that count: of edges in both directions one."""
    labels = example_labels(data)
    if isinstance(data, RelationData) and data.distinct is not None:
        return [labels[row] for row in data.distinct]
    return labels


def chances_of(given: Given, found: Predictive) -> Floats:
    """Probabilities of the categories, shape (answers, c)."""
    if found.classes.size:
        return found.classes.T
    chance = found.chance[::-1].T  # the first, neither, the second
    return chance if given.paired else chance[:, [2, 0]]


def labelled(
    posterior: Posterior,
    given: Given,
    chances: Floats,
    log_score: Floats,
    method: str,
    notes: tuple[str, ...] = (),
    k_hat: Floats | None = None,
    *,
    lists_leave: bool = False,
) -> HeldOut:
    """Predictions of answers, as a table; ``lists_leave`` is whether choices and orderings left with all their pairs."""
    table = given.table.copy()
    table["probability"] = np.exp(log_score)
    table["log_score"] = log_score
    if isinstance(posterior, ClassPosterior):
        for label, column in zip(posterior.classes, chances.T, strict=True):
            table[f"p_{label}"] = column
    elif given.paired:
        shown = np.where(given.single[:, None], np.nan, chances)
        table["p_first"], table["p_second"] = shown[:, 0], shown[:, 2]
        if np.nanmax(shown[:, 1], initial=0.0) > 0:
            table["p_tie"] = shown[:, 1]
    if k_hat is not None:
        table["k_hat"] = k_hat
    lists = posterior.info.get("answers")
    composed = lists is not None and not lists_leave
    if composed:
        notes = (*notes, f"{lists}; {_SIBLINGS}")
    elif lists is not None:
        notes = (*notes, lists)
    return HeldOut(table, method, notes, chances, given.outcome, given.paired, composed, given.single)
