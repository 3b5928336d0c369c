"""Models of the same answers side by side, and what single answers and raters add to one."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import pearson3

from relpref.data.arrays import counted
from relpref.diagnostics.held_out import HeldOut
from relpref.diagnostics.loo import LeftOut, leave_one_out, left_out
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer import Posterior, RelationPosterior
from relpref.infer.large.answered import answered
from relpref.limits import MAX_NUMBERS_OF_INFLUENCE
from relpref.posterior.gaussian import Floats
from relpref.posterior.tables import objects

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
    Where `HeldOut.composed` is true a difference says little: a model gains by repeating the other pairs of a choice. A difference of
    less than two standard errors, or of less than about 4, is none that these answers could tell (Vehtari, Gelman & Gabry 2017; Sivula,
    Magnusson & Vehtari 2020, "Uncertainty in Bayesian leave-one-out cross-validation based model comparison").
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
        evidence = getattr(candidates[name], "log_evidence", None)
        evidence = np.nan if evidence is None else evidence
        difference = difference_of(held_out, found[best])
        rows.append((held_out.elpd, held_out.elpd_se, *difference, held_out.log_loss, evidence))
    columns = ["elpd", "elpd_se", "difference", "difference_se", "log_loss", "log_evidence"]
    table = pd.DataFrame(rows, pd.Index(list(found), name="model"), columns)
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
    kept = ["probability", "mean", "sd"]
    tables = [each.table.loc[:, :"probability"].drop(columns=kept, errors="ignore") for each in (one, other)]
    names, remedy = (repr(first), repr(second)), "compare models of the same answers"
    columns = [", ".join(table.columns) for table in tables]
    if columns[0] != columns[1]:
        raise DataError(
            f"the answers of {names[0]} have the columns {columns[0]}, those of {names[1]} {columns[1]}; {remedy}"
        )
    if len(tables[0]) != len(tables[1]):
        raise DataError(
            f"{names[0]} has {counted(len(tables[0]), 'row')} of answers and {names[1]} {len(tables[1])}; {remedy}"
        )
    same = (tables[0] == tables[1]) | (tables[0].isna() & tables[1].isna())
    if not same.all(axis=None):
        row = int(np.argmin(same.all(axis=1)))
        given = [", ".join(f"{k}={v}" for k, v in table.iloc[row].items()) for table in tables]
        raise DataError(
            f"row {row} of the answers of {names[0]} is {given[0]}, that of {names[1]} {given[1]}; {remedy}"
        )


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
    if posterior.kind == "relation":
        raise UnsupportedProgramError(
            "influence is about utilities, classes and latent sites; for labels of a relation that surprise, sort the table of "
            "leave_one_out by log_score"
        )
    posterior = answered(posterior)
    left = left_out(posterior)
    table = left.given.table.assign(probability=np.exp(left.log_score), log_score=left.log_score)
    projection, belief = left.question.projection(), posterior.belief
    matrix = None
    if posterior.kind == "classes":  # every decision on an example may be moved
        what, matrix = "example", np.asarray(projection @ np.eye(belief.size))
        sd = np.sqrt(np.maximum(np.sum((matrix @ belief.covariance()) * matrix, axis=1), 0.0))
        ends = left.given.table.drop(columns="class").itertuples(index=False, name=None)
        examples = [end if len(end) > 1 else end[0] for end in ends]
        labels = [label for label in examples for _ in left.given.classes[1:]]
    else:
        reported = posterior.reported()
        sd, labels = reported["sd"].to_numpy(), reported.index.tolist()
        what = "entity" if posterior.kind == "utilities" else "latent"
    if what == "latent":
        labels = [f"{site}[{at}]" for site, at in labels]
    shift, which = np.zeros(len(table)), np.zeros(len(table), dtype=np.intp)
    size = max(1, MAX_NUMBERS_OF_INFLUENCE // max(belief.size, len(sd)))
    for start in range(0, len(table), size):
        units = slice(start, min(start + size, len(table)))
        moved = _moved(posterior, left, projection, units)
        if matrix is not None:
            moved = moved @ matrix.T
        elif what == "entity":
            moved = moved - moved.mean(axis=1, keepdims=True)
        moved = moved / np.where(sd > 0, sd, np.inf)
        which[units] = np.argmax(np.abs(moved), axis=1)
        shift[units] = np.take_along_axis(moved, which[units, None], axis=1)[:, 0]
    table["shift"] = shift
    table[what] = objects(labels[at] for at in which.tolist())
    return table.sort_values("log_score", kind="stable")


def _moved(posterior: Posterior, left: LeftOut, projection: Any, units: slice) -> Floats:
    """Change of the latent vector's mean when an answer is left out, of some answers; shape (k, n)."""
    belief, step, unit = posterior.belief, left.predictive.step, left.given.unit
    first, last = np.searchsorted(unit, (units.start, units.stop))
    starts = np.searchsorted(unit, np.arange(units.start, units.stop))
    weights = left.weights[:, starts].T
    parts = left.question.components
    if posterior.sampled:
        return np.asarray(weights @ parts.location - belief.mean())
    moved = weights @ parts.location - belief.mean() if len(parts.location) > 1 else 0.0
    for scale, steps, weight in zip(parts.scale, step, left.weights, strict=True):
        by_row = (weight * steps)[first:last, None] * (projection[first:last] @ scale)
        moved = moved + np.add.reduceat(by_row, starts - first, axis=0)
    return np.asarray(moved)


NOISE = "rater_noise"


def raters(posterior: Posterior, *, false_alarms: float = 0.01) -> pd.DataFrame:
    """How well each rater's answers are predicted by all the others, beside how well those of a usual rater would be.

    Parameters
    ----------
    posterior : UtilityPosterior
        As for `leave_one_out`, of answers with raters.
    false_alarms : float
        Probability that anybody at all is said to be at odds where all raters are alike, as it would be if the model were known; where
        noises are fitted it is two to three times that, see Notes.

    Returns
    -------
    DataFrame
        By rater, those most at odds first: ``answers``; ``log_loss``, the average of −log probability of each answer without it;
        ``expected``, what it would be on average, and ``sd``, its standard deviation, if the answers came from the model; ``z``, the
        difference in those; ``p_value``, of a log loss as high as that; ``at_odds``, whether that is below ``false_alarms`` divided by
        the number of raters (Bonferroni). Where raters have a noise of their own it is in ``noise``, and all are judged by the median of
        them: else who answers at random would be expected to.

    Raises
    ------
    DataError
        If the answers do not say who gave them, or it is not known what they could have been.
    UnsupportedProgramError
        As for `leave_one_out`.

    Notes
    -----
    Each answer's log loss has a known distribution given the others'; those of a rater are added up as if they were independent, and the
    tail of the sum is that of a Pearson distribution of type III with its mean, variance and skewness. A rater with few answers can
    be at odds only by very improbable ones. Other answers of the same rater stay: of one who gave most of the answers to an entity,
    they agree with each other (`k_fold` with ``by="rater"`` leaves them out together).

    Where everybody's noise is fitted the median of them is itself uncertain, and a little low. With eight equal raters of 25 answers
    each, 15 of 613 simulated tables (2.4 %) had somebody at odds at ``false_alarms=0.01``, and 7 at 0.003; with one of the eight at random or contrary,
    no other rater was in 219.
    """
    if not 0 < false_alarms < 1:
        raise DataError(f"false_alarms is {false_alarms}; it is a probability, such as 0.01")
    data = posterior.datasets().get("data") if posterior.kind == "utilities" else None
    if data is None or data.comparisons.rater is None:
        raise DataError("the answers do not say who gave them; fit answers with a column rater")
    posterior, answers = answered(posterior), data.comparisons
    noise = posterior.hyperparameters.get(NOISE)
    usual = {} if noise is None else {NOISE: np.full(np.shape(noise), np.median(noise))}
    left = left_out(posterior, usual)
    origin = posterior.origin
    unknown = np.isnan(left.predictive.moments).any()
    if unknown and posterior.hyperparameter_draws and origin and origin.engine:
        # The scores of numbers have known moments in one Gaussian only: that at the averages of the hyperparameters.
        alone = origin.run(None, posterior.key, fixed=posterior.hyperparameters)
        left = left_out(alone, usual)
    loss, moments = -left.log_score, left.predictive.moments
    if np.isnan(moments).any():
        raise DataError(
            "nobody knows what the answers could have been: the likelihood is one of its own, or the posterior is a sample"
        )

    def total(values: Floats) -> Floats:
        sums = np.bincount(answers.rater, weights=answers.count * values, minlength=len(answers.raters))
        return np.asarray(sums, dtype=np.float64)

    number = total(np.ones_like(loss))
    observed, expected = total(loss), -total(moments[0])
    variance, third = total(moments[1]), -total(moments[2])
    with np.errstate(invalid="ignore", divide="ignore"):
        sd = np.sqrt(variance)
        z = np.where(sd > 0, (observed - expected) / sd, 0.0)
        p_value = np.where(sd > 0, pearson3.sf(z, np.where(sd > 0, third / sd**3, 0.0)), 1.0)
        columns = {
            "answers": number.astype(int),
            "log_loss": observed / number,
            "expected": expected / number,
            "sd": sd / number,
            "z": z,
            "p_value": p_value,
            "at_odds": p_value < false_alarms / len(number),
        }
    if noise is not None:
        columns["noise"] = np.broadcast_to(noise, number.shape)
    index = pd.Index(objects(answers.raters), name="rater", tupleize_cols=False)
    table = pd.DataFrame(columns, index=index)
    return table[number > 0].sort_values("p_value", kind="stable")
