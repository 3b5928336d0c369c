"""Answers as predicted by fits to the others, some at a time."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import logsumexp

from relpref import __version__
from relpref.data import PreferenceData, Rankings, RelationData
from relpref.data.arrays import counted
from relpref.data.relation_data import SIGN
from relpref.diagnostics.predictive.cavity import Predictive, Question
from relpref.diagnostics.predictive.held_out import HeldOut
from relpref.diagnostics.predictive.leave_one_out import (
    Positions,
    by_answer,
    chances_of,
    given_answers,
    labelled,
    require_density,
    scored_labels,
)
from relpref.errors import DataError, StorageError, UnsupportedProgramError
from relpref.files import made, replaced
from relpref.infer import ClassPosterior, Posterior, RelationPosterior
from relpref.infer.exact.closed import distinct
from relpref.infer.exact.solve import opposites
from relpref.infer.large.answered import answered
from relpref.infer.program import preference_data
from relpref.journal import fingerprint
from relpref.parallel import run_all
from relpref.posterior.base import Origin
from relpref.posterior.gaussian import Floats, generator
from relpref.posterior.update import engine_again


def fold_of(groups: NDArray[Any], folds: int, rng: np.random.Generator, name: str) -> NDArray[np.intp]:
    """A fold for each of some things, those of one group together."""
    numbers = pd.factorize(groups)[0]
    count = int(numbers.max(initial=-1)) + 1
    if count < folds:
        raise DataError(f"{counted(count, name)} cannot make {folds} folds; give fewer")
    return np.asarray(rng.permutation(count) * folds // count)[numbers]


class FoldFiles:
    """Those of the folds of one posterior.

    Parameters
    ----------
    folder : path
        Made where it is missing.
    posterior : Posterior
        Whose program is fitted again.
    fixed : mapping
        With these hyperparameters known.
    trained : sequence of array
        The positions of the answers that each fold is fitted to.

    Raises
    ------
    DataError
        If there is something in the program or its arguments that nothing tells from others of its kind.
    StorageError
        If the folder cannot be made.
    """

    def __init__(
        self, folder: str | os.PathLike[str], posterior: Posterior, fixed: Any, trained: Sequence[Any]
    ) -> None:
        start = (posterior.key, dict(posterior.hyperparameters))
        known = fingerprint((__version__, posterior.origin, fixed, start))
        place = made(folder)
        self.paths: list[Path] = [place / f"fold-{fingerprint((known, rows))}.npz" for rows in trained]

    def read(self, number: int) -> Predictive:
        """A fold that is there.

        Raises
        ------
        StorageError
            If its file is damaged.
        """
        path = self.paths[number]
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return Predictive(**arrays)
        except Exception as error:  # a damaged archive raises many types
            raise StorageError(f"{path} cannot be read as a fold ({error}); remove it") from error

    def write(self, number: int, found: Predictive) -> None:
        """Keep a fold; it is on the disk when this returns."""
        with replaced(self.paths[number]) as part, part.open("wb") as file:
            np.savez(file, **vars(found))


def leave_folds_out(posterior: RelationPosterior, folds: int, rng: np.random.Generator) -> HeldOut:
    """See `k_fold`: labels U that leave together have the residuals P_UU⁻¹ a_U and the covariance σ² P_UU⁻¹.

    a, P and σ² as in `leave_label_out`; O(q³) for q labels, once for all folds. Under a constraint labels leave in both directions, and
    of those the model knows the contrasts (y ± y)/√2.
    """
    require_density(posterior)
    problem, solution = posterior.problem, posterior.solution
    values, symmetry = problem.values, problem.symmetry
    scores = solution.by_edges()
    precision = scores.precision_matrix()
    kept = distinct(values, symmetry)
    rows, columns = values.rows[kept], values.columns[kept]
    low, high = (
        (rows, columns) if symmetry == "none" else (np.minimum(rows, columns), np.maximum(rows, columns))
    )
    fold = fold_of(low * values.shape[1] + high, folds, rng, "edge")
    mirror = kept if symmetry == "none" else opposites(values, SIGN[symmetry])[kept]
    mean, sd = np.full(len(kept), np.nan), np.full(len(kept), np.nan)
    for number in range(folds):
        test = np.flatnonzero(fold == number)
        first, second = kept[test], mirror[test]
        both = first != second
        # Orthonormal contrasts: of one label itself, of two (e ± e')/√2.
        size = np.where(both, np.sqrt(0.5), 1.0)
        sign = np.where(both, SIGN[symmetry], 0.0)
        block = precision[np.ix_(first, first)] + sign * precision[np.ix_(first, second)]
        block += sign[:, None] * (precision[np.ix_(second, first)] + sign * precision[np.ix_(second, second)])
        block *= np.multiply.outer(size, size)
        dual = size * (scores.dual[first] + sign * scores.dual[second])
        unknown = np.zeros(len(test), dtype=bool)
        if problem.loss == "ranking":
            block, unknown = _without_offsets(block, values.row_counts, rows[test])
        covariance = np.linalg.inv(block)
        found = values.values[first] - size * (covariance @ dual)
        spread = size * np.sqrt(solution.scale * np.diagonal(covariance))
        mean[test], sd[test] = np.where(unknown, np.nan, found), np.where(unknown, np.nan, spread)
    method = f"{folds} folds by edge, hyperparameters kept"
    return scored_labels(posterior, rows, columns, values.values[kept], mean, sd, method, ())


def _without_offsets(block: Floats, counts: Positions, rows: Positions) -> tuple[Floats, NDArray[np.bool_]]:
    """Make a block regular where all labels of a node leave, and say of which labels: nothing is known of the node's offset."""
    gone = np.bincount(rows, minlength=len(counts)) == counts
    unknown = gone[rows]
    same = (rows[:, None] == rows) & unknown
    return block + same * np.diagonal(block).max(), unknown


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
        Finished folds are kept there, each in a file of its own, and the same call does only what is missing. Those of a relation have
        a closed form and are not kept.
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
        If the folder cannot be written, or a file in it is damaged.
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
    if isinstance(posterior, RelationPosterior):
        return leave_folds_out(posterior, folds, rng)
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
    question = Question(posterior, classes=isinstance(posterior, ClassPosterior))
    given = given_answers(posterior, question, question.answer())
    data, groups, name = _groups(posterior, origin, question, by)
    fold = fold_of(groups, folds, rng, name)
    draws = posterior.hyperparameter_draws if hyperparameters == "keep" else {}
    known = posterior.hyperparameters if hyperparameters == "keep" else origin.engine.get("fixed") or {}
    fixed = {name: value for name, value in known.items() if name not in draws}
    predict = partial(_predict, posterior, data, fixed, draws)
    trained = [np.flatnonzero(fold != number) for number in range(folds)]
    log_score, chances = np.full(len(groups), np.nan), np.empty((0, 0))
    kept = None if folder is None else FoldFiles(folder, posterior, dict(fixed), trained)
    there = [] if kept is None else [number for number in range(folds) if kept.paths[number].exists()]
    left = [number for number in range(folds) if number not in there]
    rows = [trained[number] for number in left]
    fitted = run_all(predict, rows, scheduler, label="folds", kept=folder, progress_bar=progress_bar)
    for number, found in chain(
        ((number, kept.read(number)) for number in there if kept),
        ((left[at], found) for at, found in fitted),
    ):
        if kept is not None and number in left:
            kept.write(number, found)
        test = fold == number
        scores = by_answer(found, given)
        log_score[test] = logsumexp(scores + np.log(found.weights[:, :1]), axis=0)[test]
        some = chances_of(given, found)
        chances = some.copy() if not chances.size else chances
        chances[test] = some[test]
    again = "fitted again" if hyperparameters == "refit" and posterior.searched else "kept"
    method = f"{folds} folds by {name}, hyperparameters {again}"
    return labelled(posterior, given, chances, log_score, method, lists_leave=by == "rater")


def _predict(
    posterior: Posterior, data: Any, fixed: dict[str, Any], draws: Mapping[str, Any], trained: Positions
) -> Predictive:
    """What a fit to the answers at some positions says of all."""
    origin = posterior.origin
    assert origin is not None  # checked
    less = origin.with_argument(data, _some(data, trained))
    engine = engine_again(origin, fixed=fixed, padding=True)
    if draws:
        given = {"prior_log_weights": posterior.prior_log_weights, **less.kwargs}
        fitted = engine.run_at_draws(draws, posterior.key, *less.args, **given)
    else:
        fitted = engine.run_from(
            None, posterior.key, *less.args, progress_bar=False, at=posterior.hyperparameters, **less.kwargs
        )
    return Question(fitted, origin, classes=isinstance(posterior, ClassPosterior)).answer()


def _groups(
    posterior: Posterior, origin: Origin, question: Question, by: By
) -> tuple[Any, NDArray[Any], str]:
    """The data, the group of each answer, and what a group is."""
    if isinstance(posterior, ClassPosterior):
        data = posterior.data
        if isinstance(data, Rankings):
            return data, np.arange(len(data)), "ranking"
        kept = slice(None) if data.distinct is None else data.distinct
        return data, _pairs(data)[kept], "edge"
    preferences = preference_data(origin.args, origin.kwargs)
    rows = question.components.precision.shape[1]
    if preferences is None or len(question.observed) != 1 or rows != preferences.num_comparisons:
        raise UnsupportedProgramError(
            "k_fold does not know how to leave out answers of this program, whose observed sites are not those of the comparisons "
            "alone; leave_one_out does"
        )
    answers = preferences.comparisons
    if by == "rater":
        if answers.rater is None:
            raise DataError("by is 'rater', but the answers do not say who gave them; leave out by 'pair'")
        return preferences, np.asarray(answers.rater), "rater"
    if by == "answer":
        return preferences, np.arange(rows), "answer"
    low, high = np.minimum(answers.winner, answers.loser), np.maximum(answers.winner, answers.loser)
    return preferences, low.astype(np.int64) * preferences.num_entities + high, "pair"


def _pairs(data: RelationData) -> NDArray[np.int64]:
    """A number for each edge's nodes; the same in both directions where those say the same."""
    rows, columns = data.values.rows, data.values.columns
    if data.symmetry != "none":
        rows, columns = np.minimum(rows, columns), np.maximum(rows, columns)
    return np.asarray(rows * data.values.shape[1] + columns, dtype=np.int64)


def _some(data: Any, chosen: Positions) -> Any:
    """Some of the answers or examples."""
    if isinstance(data, PreferenceData):
        return data.select_comparisons(chosen)
    if isinstance(data, Rankings):
        return data[chosen]
    assert isinstance(data, RelationData)
    if data.distinct is None:
        return replace(data, values=data.values.select(chosen))
    pairs = _pairs(data)
    values = data.values.select(np.flatnonzero(np.isin(pairs, pairs[data.distinct[chosen]])))
    gap = values.columns - values.rows
    distinct = np.flatnonzero(gap >= 0 if data.symmetry == "symmetric" else gap > 0)
    return replace(data, values=values, distinct=distinct)
