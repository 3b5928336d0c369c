"""Models of the same answers, side by side."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from relpref.data.messages import counted
from relpref.diagnostics.predictive.held_out import HeldOut
from relpref.diagnostics.predictive.leave_one_out import leave_one_out
from relpref.errors import DataError
from relpref.infer import Posterior, RelationPosterior
from relpref.infer.belief import Floats

Candidate = Posterior | RelationPosterior | HeldOut


def compare(candidates: Mapping[str, Candidate]) -> pd.DataFrame:
    """How well models predict the same answers without having them, best first.

    Parameters
    ----------
    candidates : mapping from name to Posterior, RelationPosterior or HeldOut
        At least two. Posteriors by `leave_one_out`; what `k_fold` found goes in as it is.

    Returns
    -------
    DataFrame
        By model: ``elpd``, the sum of the held-out log probabilities of all answers, and ``elpd_se``, its standard error over answers
        like these; ``difference``, to the best, and ``difference_se``, its standard error, answer by answer and so far smaller than that of
        two separate sums; ``log_loss``; ``log_evidence``, NaN where there is none.

    Raises
    ------
    DataError
        If there are fewer than two models, or their answers differ: where.
    UnsupportedProgramError
        As for `leave_one_out`.

    Notes
    -----
    Where `HeldOut.composed` is true a difference says little: a model gains by repeating the other pairs of a choice. A difference of less than two standard errors, or of less than about 4, is none that these answers could tell (Vehtari, Gelman &
    Gabry 2017; Sivula, Magnusson & Vehtari 2020, "Uncertainty in Bayesian leave-one-out cross-validation based model comparison").
    """
    if len(candidates) < 2:
        raise DataError(f"compare has {counted(len(candidates), 'model')}; give two or more, by name")
    found = {
        name: candidate if isinstance(candidate, HeldOut) else leave_one_out(candidate)
        for name, candidate in candidates.items()
    }
    first, *others = found
    for name in others:
        _check_same_answers(first, found[first], name, found[name])
    best = max(found, key=lambda name: found[name].elpd)
    rows = []
    for name, held_out in found.items():
        difference, error = difference_of(held_out, found[best])
        evidence = getattr(candidates[name], "log_evidence", None)
        rows.append(
            {
                "elpd": held_out.elpd,
                "elpd_se": held_out.elpd_se,
                "difference": difference,
                "difference_se": error,
                "log_loss": held_out.log_loss,
                "log_evidence": np.nan if evidence is None else evidence,
            }
        )
    table = pd.DataFrame(rows, index=pd.Index(list(found), name="model"))
    return table.sort_values("elpd", ascending=False, kind="stable")


def difference_of(one: HeldOut, other: HeldOut) -> tuple[float, float]:
    """Sum of the differences of the log scores of the same answers, and its standard error."""
    scores: list[Floats] = [each.table["log_score"].to_numpy(dtype=np.float64) for each in (one, other)]
    weight, difference = one.weight, scores[0] - scores[1]
    number = weight.sum()
    total = float(weight @ difference)
    if number <= 1:
        return total, float("nan")
    spread = weight @ np.square(difference - total / number) / (number - 1)
    return total, float(np.sqrt(number * spread))


def _check_same_answers(first: str, one: HeldOut, second: str, other: HeldOut) -> None:
    tables = [each.table.loc[:, :"probability"].drop(columns="probability") for each in (one, other)]
    tables = [table.drop(columns=["mean", "sd"], errors="ignore") for table in tables]
    if list(tables[0].columns) != list(tables[1].columns):
        raise DataError(
            f"the answers of {first!r} have the columns {', '.join(tables[0].columns)}, those of {second!r} "
            f"{', '.join(tables[1].columns)}; compare models of the same answers"
        )
    if len(tables[0]) != len(tables[1]):
        raise DataError(
            f"{first!r} has {counted(len(tables[0]), 'row')} of answers and {second!r} {len(tables[1])}; compare models of the same answers"
        )
    same = (tables[0] == tables[1]) | (tables[0].isna() & tables[1].isna())
    if not same.all(axis=None):
        row = int(np.argmin(same.all(axis=1)))
        given = [", ".join(f"{k}={v}" for k, v in table.iloc[row].items()) for table in tables]
        raise DataError(
            f"row {row} of the answers of {first!r} is {given[0]}, that of {second!r} {given[1]}; compare models of the same answers"
        )
