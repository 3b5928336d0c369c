"""Each answer as predicted from all the others, without fitting again."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from relpref.data.messages import counted
from relpref.diagnostics.predictive.answers import Given, chances_of, given_answers, labelled
from relpref.diagnostics.predictive.cavity import Predictive, Question
from relpref.diagnostics.predictive.held_out import HeldOut
from relpref.diagnostics.predictive.relation_out import leave_label_out
from relpref.diagnostics.psis import FEWEST, smoothed, threshold
from relpref.errors import DataError
from relpref.infer import ClassPosterior, Posterior, RelationPosterior
from relpref.infer.belief import DrawsBelief, Floats
from relpref.infer.large.answered import answered


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
