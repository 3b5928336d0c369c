"""Answers as predicted by fits to the others, some at a time."""

import os
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from relpref._version import __version__
from relpref.diagnostics.cavity import Predictive, Question
from relpref.diagnostics.held_out import HeldOut
from relpref.diagnostics.labels import fold_of, leave_label_folds_out
from relpref.diagnostics.loo import Given
from relpref.errors import DataError, UnsupportedProgramError
from relpref.files import made
from relpref.infer import Posterior, RelationPosterior
from relpref.infer.large.answered import answered
from relpref.infer.program import preference_data
from relpref.journal import Journal, fingerprint
from relpref.parallel import run_all
from relpref.posterior.gaussian import generator
from relpref.posterior.origin import Origin

By = Literal["pair", "answer", "rater"]


def k_fold(
    posterior: Posterior | RelationPosterior,
    folds: int = 5,
    *,
    by: By = "pair",
    hyperparameters: Literal["refit", "keep"] = "refit",
    key: Any = 0,
    scheduler: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress_bar: bool = True,
) -> HeldOut:
    """Predict the answers of each fold by a fit to those of all other folds.

    Parameters
    ----------
    posterior : Posterior or RelationPosterior
        From EP or Laplace, whose program is fitted again; scores of a relation from `Exact`, by its closed form.
    folds : int
        How many, at least 2.
    by : {"pair", "answer", "rater"}
        What leaves together: all answers to a pair of entities, whoever gave them, which is the default since else a repeated question
        gives its own answer; each answer with its repetitions; or all answers of a rater, who is a stranger then. Examples of classes
        are not asked twice, and leave one by one; edges between the same two nodes leave together.
    hyperparameters : {"refit", "keep"}
        Whether those that were fitted are fitted again in every fold. Those of a relation are kept, and those of more entities than a
        matrix has room for.
    key : JAX key or int
        For the folds, which are random and as equal in size as can be.
    scheduler : str, optional
        Where the folds are fitted, see `relpref.parallel.run_all`; here, one after the other, by default.
    folder : path, optional
        Finished folds are kept there, in a file for each posterior and division, and the same call does only what is missing. Those of
        a relation have a closed form and are not kept.
    progress_bar : bool

    Returns
    -------
    HeldOut
        As of `leave_one_out`. Choices and orderings leave whole by rater alone, since each is of one rater: else `HeldOut.composed` is
        true.

    Raises
    ------
    DataError
        If there are fewer things to leave out than folds, or no raters to leave out by.
    UnsupportedProgramError
        If the posterior does not know its program or its engine (draws), or its program is not one of answers or examples in rows.
    InferenceError
        If the fit to a fold did not converge.
    StorageError
        If the folder cannot be written, or the file in it is damaged.
    ClusterError
        If other processes went away; with a folder the same call does only the rest.
    """
    if folds < 2:
        raise DataError(f"folds is {folds}; at least 2")
    if hyperparameters not in ("refit", "keep"):
        raise DataError(f"hyperparameters is {hyperparameters!r}; it is 'refit' or 'keep'")
    if by not in ("pair", "answer", "rater"):
        raise DataError(f"by is {by!r}; it is 'pair', 'answer' or 'rater'")
    rng = generator(key)
    if posterior.kind == "relation":
        return leave_label_folds_out(posterior, folds, rng)
    posterior = answered(posterior)
    origin = posterior.origin
    if origin is None or not origin.engine:
        raise UnsupportedProgramError(
            "k_fold fits again, and this posterior does not know its program or its engine; fit with EP or Laplace in this session, or "
            "with a program of relpref.models before saving"
        )
    if not origin.complete:
        raise UnsupportedProgramError(
            "the fit used priors of its own, which a saved posterior does not keep; fit again in this session"
        )
    question = Question(posterior)
    asked = question.answer()
    given = Given.of(posterior, question, asked)
    classes = posterior.kind == "classes"
    data: Any = posterior.datasets()["data"] if classes else preference_data(origin.args, origin.kwargs)
    if not classes and (
        data is None or len(question.observed) > 1 or len(asked.count) != data.num_comparisons
    ):
        raise UnsupportedProgramError(
            "k_fold does not know how to leave out answers of this program, whose observed sites are not those of the comparisons "
            "alone; leave_one_out does"
        )
    groups, name = data.answer_groups(by)
    fold = fold_of(groups, folds, rng, name)
    draws = dict(posterior.hyperparameter_draws) if hyperparameters == "keep" else {}
    known = posterior.hyperparameters if hyperparameters == "keep" else origin.fixed
    fixed = {name: value for name, value in known.items() if name not in draws}
    journal = None
    if folder is not None:
        start = (posterior.key, dict(posterior.hyperparameters))
        digest = fingerprint((__version__, origin, fixed, draws, start, fold))
        journal = Journal(made(folder) / f"folds-{digest}.jsonl", "folds", {"fit": digest})
    done = {} if journal is None else {record["fold"]: record for record in journal.records}
    left = [number for number in range(folds) if number not in done]
    predict = partial(_predict, posterior, origin, data, fixed, draws)
    trained = [np.flatnonzero(fold != number) for number in left]
    for at, found in run_all(
        predict, trained, scheduler, label="folds", kept=folder, progress_bar=progress_bar
    ):
        test = fold == left[at]
        scores = logsumexp(given.log_scores(found) + np.log(found.weights[:, :1]), axis=0)
        record = {"fold": left[at], "log_score": scores[test], "chances": given.chances(found)[test]}
        done[left[at]] = record
        if journal is not None:
            journal.add(record)
    log_score = np.empty(len(groups))
    chances = np.empty((len(groups), done[0]["chances"].shape[1]))
    for number, record in done.items():
        log_score[fold == number], chances[fold == number] = record["log_score"], record["chances"]
    again = "fitted again" if hyperparameters == "refit" and posterior.searched else "kept"
    method = f"{folds} folds by {name}, hyperparameters {again}"
    return given.held_out(posterior, chances, log_score, method, lists_leave=by == "rater")


def _predict(
    posterior: Posterior,
    origin: Origin,
    data: Any,
    fixed: dict[str, Any],
    draws: dict[str, Any],
    trained: NDArray[np.intp],
) -> Predictive:
    """What a fit to the answers at some positions says of all."""
    less = origin.with_argument(data, data.select_answers(trained))
    engine = origin.engine.changed(fixed=fixed, padding=True)
    if draws:
        given = {"prior_log_weights": posterior.prior_log_weights, **less.kwargs}
        fitted = engine.run_at_draws(draws, posterior.key, *less.args, **given)
    else:
        fitted = engine.run_from(
            None, posterior.key, *less.args, progress_bar=False, at=posterior.hyperparameters, **less.kwargs
        )
    return Question(fitted, origin).answer()
