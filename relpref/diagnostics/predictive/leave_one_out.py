"""Each answer as predicted from all the others, without fitting again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import norm

from relpref.data import RelationData
from relpref.data.arrays import counted
from relpref.diagnostics.predictive.cavity import Predictive, Question
from relpref.diagnostics.predictive.held_out import HeldOut
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer import ClassPosterior, Posterior, RelationPosterior, UtilityPosterior
from relpref.infer.exact.closed import distinct
from relpref.infer.large.answered import answered
from relpref.infer.psis import FEWEST, smoothed, threshold
from relpref.posterior.classes import Examples, example_labels
from relpref.posterior.gaussian import DrawsBelief, Floats
from relpref.posterior.utility import objects

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
    lists = posterior.lists
    composed = bool(lists) and not lists_leave
    if composed:
        notes = (*notes, f"{lists}; {_SIBLINGS}")
    elif lists:
        notes = (*notes, lists)
    return HeldOut(table, method, notes, chances, given.outcome, given.paired, composed, given.single)


Positions = NDArray[np.intp]

_ORDER = (
    "for errors of single labels, not for their order, which one label left out at a time makes too small: for that see "
    "relpref.rls.leave_object_pairs_out"
)


def leave_label_out(posterior: RelationPosterior) -> HeldOut:
    """See `leave_one_out`: the residual of a label that is left out is a/P, and its variance σ²/P (Rasmussen & Williams 2006, eq. 5.12).

    a is its entry of the dual, P its diagonal entry of the matrix that makes the dual of the labels, σ² the scale. Under a constraint
    a label leaves in both directions, as a pair of which the model knows one contrast.
    """
    require_density(posterior)
    problem, solution = posterior.problem, posterior.solution
    kept = distinct(problem.values, problem.symmetry)
    rows, columns = problem.values.rows[kept], problem.values.columns[kept]
    labels = problem.values.values[kept]
    dual, own = solution.left_out(kept)
    single = np.zeros(len(kept), dtype=bool)
    if problem.loss == "ranking":  # nothing is known of the offset of a node without another label
        single = problem.values.row_counts[rows] == 1
    own = np.where(single, np.nan, own)
    # Of a contrast (y ± y)/√2 in both directions, √2 times the label, the variance is σ²/P.
    both = (problem.symmetry != "none") & (rows != columns)
    sd = np.sqrt(solution.scale / own / np.where(both, 2.0, 1.0))
    return scored_labels(
        posterior, rows, columns, labels, labels - dual / own, sd, "leave-one-out", (_ORDER,)
    )


def require_density(posterior: RelationPosterior) -> None:
    """Refuse scores that give labels no probability."""
    posterior._warn_if_not_converged()
    problem, scale = posterior.problem, posterior.solution.scale
    if problem.symmetry != "none" and problem.loss == "ranking":
        raise UnsupportedProgramError(
            f"the ranking loss of a {problem.symmetry} relation uses every label at both its ends, so labels have no probability; use "
            'loss="regression", or relpref.rls.leave_nodes_out'
        )
    if not scale > 0:
        raise DataError(f"the scale of the scores is {scale}, so labels have no probability")


def scored_labels(
    posterior: RelationPosterior,
    rows: Positions,
    columns: Positions,
    labels: Floats,
    mean: Floats,
    sd: Floats,
    method: str,
    notes: tuple[str, ...],
) -> HeldOut:
    """Predictions of labels, less the shift, as a table; labels without a prediction are left out."""
    known = np.flatnonzero(~np.isnan(mean))
    if len(known) < len(mean):
        notes = (
            *notes,
            f"{len(mean) - len(known)} labels are the only ones of their node, and cannot be predicted",
        )
    log_score = norm.logpdf(labels, mean, sd)
    table = pd.DataFrame(
        {
            "node": objects(posterior.nodes.labels[row] for row in rows),
            "object": objects(posterior.objects.labels[column] for column in columns),
            "label": labels + posterior.shift,
            "mean": mean + posterior.shift,
            "sd": sd,
            "probability": np.exp(log_score),
            "log_score": log_score,
        }
    )
    nothing = np.full(len(known), -1, dtype=np.intp)
    return HeldOut(
        table.iloc[known].reset_index(drop=True), method, notes, np.full((len(known), 3), np.nan), nothing
    )


def leave_one_out(posterior: Posterior | RelationPosterior) -> HeldOut:
    """Predict each answer from all the others, at the posterior's hyperparameters, without fitting again.

    Parameters
    ----------
    posterior : Posterior or RelationPosterior
        From EP or Laplace: each answer's site is taken out of the posterior, and the answer is predicted from what is left, the cavity.
        Mixtures over hyperparameters: the same in every component, and the components are reweighted by how much less likely the
        answer made them. Draws (`relpref.infer.from_samples`): reweighted. Scores of a relation from `Exact`: by the closed form of
        Gaussian regression; (v, w) and (w, v) of a symmetric or reciprocal relation leave together.

    Returns
    -------
    HeldOut
        Of an answer that was given k times, one of the k is left out. An example of a classifier leaves with all its decisions. Of a
        choice or an ordering each pair leaves alone, which is no test of prediction: then `HeldOut.composed` is true.

    Raises
    ------
    UnsupportedProgramError
        If the posterior does not know its program (draws or a program of one's own, read back from a file).
    DataError
        If the posterior has no numbers, has answers that came by quick updates, comes from no labels, or has fewer than 25 draws.

    Notes
    -----
    The cavity is the posterior without the answer except that the sites of the others stay as they are: exact for Gaussian answers,
    and near to fitting again for others (Opper & Winther 2000, "Gaussian processes for classification: mean-field algorithms";
    Vehtari, Mononen, Tolvanen, Sivula & Winther 2016, "Bayesian leave-one-out cross-validation approximations for Gaussian latent
    variable models"). Hyperparameters were fitted to all answers, so that scores are a little better than those of new answers; `k_fold`
    fits them again. The first call for data of some size compiles, which takes one to three seconds; the next takes milliseconds for
    thousands of answers. For a complete relation under a constraint, of p nodes, it takes O(p²) for each pair. Reweighting uses Pareto-smoothed importance weights (Vehtari, Gelman & Gabry 2017, "Practical Bayesian model
    evaluation using leave-one-out cross-validation and WAIC").
    """
    if isinstance(posterior, RelationPosterior):
        return leave_label_out(posterior)
    posterior = answered(posterior)
    left = left_out(posterior)
    chances = chances_of(left.given, left.predictive)
    notes: tuple[str, ...] = ()
    if left.k_hat is not None:
        limit = threshold(len(left.weights))
        bad = int(np.sum(left.k_hat > limit))
        if bad:
            notes = (
                f"the k-hat of {bad} of {len(left.k_hat)} different answers is above {limit:.2f}: they are not to be relied on; use k_fold",
            )
    return labelled(posterior, left.given, chances, left.log_score, "leave-one-out", notes, left.k_hat)


@dataclass(frozen=True, eq=False)
class LeftOut:
    """A posterior without each of its answers.

    Attributes
    ----------
    question : Question
    given : Given
    predictive : Predictive
    log_score : array, shape (answers,)
    weights : array, shape (K, rows)
        Of the components, without each row's answer.
    k_hat : array, shape (answers,), or None
        Of the weights; None where the components are no sample.
    """

    question: Question
    given: Given
    predictive: Predictive
    log_score: Floats
    weights: Floats
    k_hat: Floats | None


def left_out(posterior: Posterior, values: Mapping[str, Floats] | None = None) -> LeftOut:
    """See `leave_one_out`; ``values`` are hyperparameters at which answers are predicted, instead of the posterior's."""
    question = Question(posterior, classes=isinstance(posterior, ClassPosterior), values=values)
    draws = len(question.components.location)
    prior = question.weights
    sampled = draws > 1 and bool(np.ptp(prior) == 0)  # draws, or components of equal weight
    if (sampled or isinstance(posterior.belief, DrawsBelief)) and draws < FEWEST:
        raise DataError(
            f"the posterior has {counted(draws, 'draw')}, too few to be reweighted; draw at least {FEWEST}, better several hundred"
        )
    found = question.answer()
    given = given_answers(posterior, question, found)
    log_score = by_answer(found, given)
    # p(h | others) is proportional to p(h | all)/p(y | h, others).
    k_hat = None
    if sampled:
        log_weights, k_hat = smoothed(-log_score.T)
    else:
        log_weights = np.log(prior) - log_score.T
        log_weights -= logsumexp(log_weights, axis=1, keepdims=True)
    weights = np.exp(log_weights)[given.unit].T
    held_out = logsumexp(log_weights + log_score.T, axis=1)
    return LeftOut(question, given, question.answer(weights), held_out, weights, k_hat)


def by_answer(found: Predictive, given: Given) -> Floats:
    """Log scores of whole answers in each component, shape (K, answers); decisions that were not reached say nothing."""
    single = np.where(found.count > 0, found.log_score, 0.0)
    log_score = np.zeros((len(single), len(given.table)))
    np.add.at(log_score.T, given.unit, single.T)
    return log_score
