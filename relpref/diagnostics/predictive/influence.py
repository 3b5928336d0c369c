"""How much rests on each single answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from relpref.diagnostics.predictive.answers import used_examples
from relpref.diagnostics.predictive.leave_one_out import LeftOut, left_out
from relpref.errors import UnsupportedProgramError
from relpref.infer import ClassPosterior, Posterior, RelationPosterior, UtilityPosterior
from relpref.infer.belief import DrawsBelief, Floats
from relpref.infer.large.answered import answered
from relpref.infer.ranks import objects
from relpref.infer.rows import DenseRows, Rows

_NUMBERS = 4_000_000  # in a block of moved means: 32 MB


def influence(posterior: Posterior | RelationPosterior) -> pd.DataFrame:
    """How surprising each answer is to the others, and what would be if it had not been given; most surprising first.

    Parameters
    ----------
    posterior : Posterior
        As for `leave_one_out`; not of the scores of a relation.

    Returns
    -------
    DataFrame
        By row of `HeldOut.table`: the answer as it was given, as there; ``probability`` (held out) and ``log_score``; ``shift``: of all utilities
        that which would move farthest without the answer (one, of those given several times), in posterior standard deviations and
        with its sign, so that −1 means lower by one; ``entity``: whose it is. Utilities are relative to the average, as `ranking` has
        them. Of a classifier it is the latent function of an ``example`` (for more than two classes at a decision); of other
        programs a ``latent`` value of a site.

    Raises
    ------
    UnsupportedProgramError, DataError
        As for `leave_one_out`.

    Notes
    -----
    Taking a site out changes mean and covariance by a matrix of rank one, O(n) for each answer; the others' sites stay. Of a classifier
    of m examples it is O(m²) products of features.
    """
    if isinstance(posterior, RelationPosterior):
        raise UnsupportedProgramError(
            "influence is about utilities, classes and latent sites; for labels of a relation that surprise, sort the table of "
            "leave_one_out by log_score"
        )
    posterior = answered(posterior)
    left = left_out(posterior)
    table = left.given.table.copy()
    table["probability"], table["log_score"] = np.exp(left.log_score), left.log_score
    projection = left.question.projection()
    target = _target(posterior, projection)
    shift, which = np.zeros(len(table)), np.zeros(len(table), dtype=np.intp)
    size = max(1, _NUMBERS // max(posterior.belief.size, len(target.sd)))
    sd = np.where(target.sd > 0, target.sd, np.inf)
    for start in range(0, len(table), size):
        units = slice(start, min(start + size, len(table)))
        moved = target.of(_moved(posterior, left, projection, units)) / sd
        which[units] = np.argmax(np.abs(moved), axis=1)
        shift[units] = np.take_along_axis(moved, which[units, None], axis=1)[:, 0]
    table["shift"] = shift
    table[target.name] = objects(target.labels[at] for at in which.tolist())
    return table.sort_values("log_score", kind="stable")


@dataclass(frozen=True)
class _Target:
    """What answers move.

    Attributes
    ----------
    name : str
    labels : sequence, of t things
    sd : array, shape (t,)
        Under the posterior.
    of : callable
        From changes of the latent vector, shape (k, n), to theirs, shape (k, t).
    """

    name: str
    labels: Sequence[Any]
    sd: Floats
    of: Callable[[Floats], Floats]


def _target(posterior: Posterior, projection: Rows) -> _Target:
    belief = posterior.belief
    if isinstance(posterior, UtilityPosterior):

        def centred(moved: Floats) -> Floats:
            return np.asarray(moved - moved.mean(axis=1, keepdims=True))

        return _Target("entity", posterior.data.entities, belief.centred().sd(), centred)
    if isinstance(posterior, ClassPosterior):
        matrix = _rows(projection, slice(None), np.eye(belief.size))
        sd = np.sqrt(np.maximum(np.sum((matrix @ belief.covariance()) * matrix, axis=1), 0.0))
        decisions = len(posterior.classes) - 1
        labels = [label for label in used_examples(posterior.data) for _ in range(decisions)]
        return _Target("example", labels, sd, lambda moved: moved @ matrix.T)
    labels = [
        f"{site}[{at}]" for site, rows in posterior.slices.items() for at in range(rows.stop - rows.start)
    ]
    return _Target("latent", labels, belief.sd(), lambda moved: moved)


def _moved(posterior: Posterior, left: LeftOut, projection: Rows, units: slice) -> Floats:
    """Change of the latent vector's mean when an answer is left out, of some answers; shape (k, n)."""
    belief, step, unit = posterior.belief, left.predictive.step, left.given.unit
    first, last = np.searchsorted(unit, (units.start, units.stop))
    starts = np.searchsorted(unit, np.arange(units.start, units.stop))
    weights = left.weights[:, starts].T
    if isinstance(belief, DrawsBelief):
        return np.asarray(weights @ belief.draws - belief.mean())
    parts = left.question.components
    moved = weights @ parts.location - belief.mean() if len(parts.location) > 1 else 0.0
    for scale, steps, weight in zip(parts.scale, step, left.weights, strict=True):
        by_row = (weight * steps)[first:last, None] * _rows(projection, slice(first, last), scale)
        moved = moved + np.add.reduceat(by_row, starts - first, axis=0)
    return np.asarray(moved)


def _rows(projection: Rows, rows: slice, matrix: Floats) -> Floats:
    """Some rows of A times a matrix."""
    if isinstance(projection, DenseRows):
        return np.asarray(np.asarray(projection.matrix)[rows] @ matrix)
    columns, entries = np.asarray(projection.column)[rows], np.asarray(projection.entry)[rows]
    return np.asarray(sum(entries[:, [k]] * matrix[columns[:, k]] for k in (0, 1)))
