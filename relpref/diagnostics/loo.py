"""Each answer as predicted from all the others, without fitting again."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import logsumexp

from relpref.data.arrays import counted
from relpref.diagnostics.cavity import Predictive, Question
from relpref.diagnostics.held_out import HeldOut
from relpref.diagnostics.labels import leave_label_out
from relpref.errors import DataError
from relpref.infer import ClassPosterior, Posterior, RelationPosterior
from relpref.infer.large.answered import answered
from relpref.infer.psis import FEWEST, smoothed, threshold
from relpref.posterior.gaussian import Floats
from relpref.posterior.tables import objects

_SIBLINGS = (
    "a pair leaves alone, and the others of its choice or list, which stay, all but tell who won: the scores are no measure of "
    "how well answers are predicted"
)


class Given(NamedTuple):
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
    classes : tuple
        Labels of the classes, where answers are examples.
    """

    table: pd.DataFrame
    outcome: NDArray[np.intp]
    paired: bool
    single: NDArray[np.bool_]
    unit: NDArray[np.intp]
    classes: tuple[Any, ...] = ()

    @classmethod
    def of(cls, posterior: Posterior, question: Question, found: Predictive) -> "Given":
        """The answers of a posterior as they were given."""
        rows = np.arange(len(found.count))
        if isinstance(posterior, ClassPosterior):  # the decisions on one example follow each other
            table, outcome = posterior.examples()
            unit = np.repeat(np.arange(len(table)), len(rows) // max(len(table), 1))
            return cls(table, outcome, False, np.ones(len(table), dtype=bool), unit, posterior.classes)
        known = ~np.isnan(found.side)
        outcome = np.where(known, 1 - np.nan_to_num(found.side), -1).astype(np.intp)
        single = known & ~found.paired
        paired = bool((known & ~single).any())
        if not paired:
            outcome[outcome > 0] = 1  # there is no neither
            outcome = np.where(outcome >= 0, 1 - outcome, -1)
        data = posterior.datasets().get("data") if posterior.kind == "utilities" else None
        if data is not None and len(question.observed) == 1 and np.array_equal(found.count, data.count):
            table = data.comparisons.table(data.entities).rename(columns={"probability": "reported"})
            return cls(table, outcome, paired, single, rows)
        places = [np.arange(n) for n in np.bincount(found.site, minlength=len(question.observed))]
        sites = objects(question.observed[site] for site in found.site)
        table = pd.DataFrame({"site": sites, "row": np.concatenate(places), "value": found.value})
        if not np.all(found.count == 1):
            table["count"] = found.count
        return cls(table, outcome, paired, single, rows)

    def chances(self, found: Predictive) -> Floats:
        """Probabilities of the categories, shape (answers, c)."""
        if found.classes.size:
            return np.asarray(found.classes.T)
        chance = found.chance[::-1].T  # the first, neither, the second
        return np.asarray(chance if self.paired else chance[:, [2, 0]])

    def log_scores(self, found: Predictive) -> Floats:
        """Of whole answers in each component, shape (K, answers); decisions that were not reached say nothing."""
        single = np.where(found.count > 0, found.log_score, 0.0)
        log_score = np.zeros((len(single), len(self.table)))
        np.add.at(log_score.T, self.unit, single.T)
        return log_score

    def held_out(
        self,
        posterior: Posterior,
        chances: Floats,
        log_score: Floats,
        method: str,
        notes: tuple[str, ...] = (),
        k_hat: Floats | None = None,
        *,
        lists_leave: bool = False,
    ) -> HeldOut:
        """Predictions of the answers, as a table; ``lists_leave`` is whether choices and orderings left with all their pairs."""
        table = self.table.assign(probability=np.exp(log_score), log_score=log_score)
        for label, column in zip(self.classes, chances.T, strict=False):
            table[f"p_{label}"] = column
        if self.paired:
            shown = np.where(self.single[:, None], np.nan, chances)
            table["p_first"], table["p_second"] = shown[:, 0], shown[:, 2]
            if np.nanmax(shown[:, 1], initial=0.0) > 0:
                table["p_tie"] = shown[:, 1]
        if k_hat is not None:
            table["k_hat"] = k_hat
        lists = posterior.lists
        composed = bool(lists) and not lists_leave
        if lists:
            notes = (*notes, f"{lists}; {_SIBLINGS}" if composed else lists)
        return HeldOut(table, method, notes, chances, self.outcome, self.paired, composed, self.single)


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
    thousands of answers. For a complete relation under a constraint, of p nodes, it takes O(p²) for each pair. Reweighting uses
    Pareto-smoothed importance weights (Vehtari, Gelman & Gabry 2017, "Practical Bayesian model evaluation using leave-one-out
    cross-validation and WAIC").
    """
    if posterior.kind == "relation":
        return leave_label_out(posterior)
    posterior = answered(posterior)
    left = left_out(posterior)
    notes: tuple[str, ...] = ()
    if left.k_hat is not None:
        limit = threshold(len(left.weights))
        bad = int(np.sum(left.k_hat > limit))
        if bad:
            notes = (
                f"the k-hat of {bad} of {len(left.k_hat)} different answers is above {limit:.2f}: they are not to be relied on; use k_fold",
            )
    chances = left.given.chances(left.predictive)
    return left.given.held_out(posterior, chances, left.log_score, "leave-one-out", notes, left.k_hat)


class LeftOut(NamedTuple):
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


def left_out(posterior: Posterior, values: Mapping[str, Any] | None = None) -> LeftOut:
    """See `leave_one_out`; ``values`` are hyperparameters at which answers are predicted, instead of the posterior's."""
    question = Question(posterior, values=values)
    prior = question.weights
    draws = len(prior)
    sampled = draws > 1 and bool(np.ptp(prior) == 0)  # draws, or components of equal weight
    if (sampled or posterior.sampled) and draws < FEWEST:
        raise DataError(
            f"the posterior has {counted(draws, 'draw')}, too few to be reweighted; draw at least {FEWEST}, better several hundred"
        )
    found = question.answer()
    given = Given.of(posterior, question, found)
    log_score = given.log_scores(found)
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
