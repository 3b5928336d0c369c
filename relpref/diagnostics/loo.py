"""Answers as predicted from the others: each without fitting again, or some at a time by fits to the rest.

Labels of a relation have a closed form: the residual of labels U that leave together is P_UU⁻¹ a_U
and their covariance σ² P_UU⁻¹ (Rasmussen & Williams 2006, eq. 5.12); a is the dual, P the matrix
that makes the dual of the labels, σ² the scale. Under a constraint a label leaves in both
directions, as a pair of which the model knows one contrast, (y ± y)/√2.
"""

import os
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import logsumexp

from relpref._version import __version__
from relpref.data.arrays import counted
from relpref.data.labels import label_column
from relpref.diagnostics.cavity import Predictive, Question
from relpref.diagnostics.held_out import HeldOut
from relpref.errors import DataError, UnsupportedProgramError
from relpref.files import made
from relpref.infer import ClassPosterior, Posterior, RelationPosterior
from relpref.infer.call import Values, preference_data
from relpref.infer.large.problem import answered
from relpref.infer.result import FEWEST, smoothed, threshold
from relpref.journal import Journal, fingerprint
from relpref.parallel import run_all
from relpref.posterior.gaussian import Floats, generator
from relpref.posterior.origin import Origin
from relpref.posterior.tables import objects

Positions = NDArray[np.intp]

_SIBLINGS = (
    "a pair leaves alone, and the others of its choice or list, which stay, all but tell who won: "
    "the scores are no measure of "
    "how well answers are predicted"
)
_ORDER = (
    "for errors of single labels, not for their order, which one label left out at a time makes "
    "too small: for that see "
    "relpref.rls.leave_object_pairs_out"
)


class Given(Question):
    """The answers that a posterior comes from, with ``table``, ``outcome``, ``paired`` and ``single`` as of `HeldOut`.

    ``predictive`` is what the posterior says without each, ``unit`` the answer that each row of the
    program is a part of, ``classes`` are the labels of examples' classes.
    """

    def __init__(self, posterior: Posterior, values: Mapping[str, Any] | None = None) -> None:
        if "weights" in posterior.info:
            raise UnsupportedProgramError(
                "answers with weights are not scored by leaving them out: to a power other than 1, "
                "probabilities of their outcomes do not "
                "add up to 1; hold some out, fit to the others, and score posterior.prefer"
            )
        super().__init__(posterior, values=values)
        self.posterior, self.predictive = posterior, self.answer()
        found, self.paired, self.classes = self.predictive, False, tuple[Any, ...]()
        self.unit = np.arange(len(found.count))
        self.first: Any = slice(None)  # the rows of the program that begin an answer
        if isinstance(posterior, ClassPosterior):  # the decisions on one example follow each other
            self.table, self.outcome = posterior.examples()
            number = len(self.table)
            self.unit = np.repeat(np.arange(number), len(self.unit) // max(number, 1))
            self.classes, self.single = posterior.classes, np.ones(number, dtype=bool)
            return
        known = ~np.isnan(found.side)
        self.outcome = np.where(known, 1 - np.nan_to_num(found.side), -1).astype(np.intp)
        self.single = known & ~found.paired
        self.paired = bool((known & ~self.single).any())
        if not self.paired:  # there is no neither
            self.outcome = np.where(known, 1 - np.minimum(self.outcome, 1), -1)
        data = posterior.datasets().get("data") if posterior.kind == "utilities" else None
        if data is not None and len(self.observed) == 1 and np.array_equal(found.count, data.count):
            answers = data.comparisons
            self.table = answers.table(data.labels).rename(columns={"probability": "reported"})
            if answers.list is not None:  # a list leaves whole, and is shown by its first pair
                alone = int(np.sum(answers.list < 0))
                assert answers.list_label is not None
                listed, first = np.unique(answers.list, return_index=True)
                # In the order in which lists were given, copies of one after each other.
                place = np.empty(len(listed), dtype=np.intp)
                order = np.argsort(answers.list_label[first], kind="stable")
                place[order] = np.arange(len(listed))
                place = place[np.searchsorted(listed, answers.list)] + alone - (alone > 0)
                self.unit = np.where(answers.list < 0, self.unit, place)
                self.first = np.unique(self.unit, return_index=True)[1]
                self.table = self.table.iloc[self.first].reset_index(drop=True)
                labels = label_column((*answers.lists, None))
                self.table["list"] = labels.take(answers.list_label[self.first])
                self.outcome, self.single = self.outcome[self.first], self.single[self.first]
            return
        sites = objects(self.observed[site] for site in found.site)
        places = pd.Series(sites).groupby(sites, sort=False).cumcount().to_numpy()
        self.table = pd.DataFrame({"site": sites, "row": places, "value": found.value})
        if not np.all(found.count == 1):
            self.table["count"] = found.count

    def chances(self, found: Predictive) -> Floats:
        """Probabilities of the categories, shape (answers, c)."""
        if found.classes.size:
            return np.asarray(found.classes.T)
        return np.asarray((found.chance.T if self.paired else found.chance[[2, 0]].T)[self.first])

    def log_scores(self, found: Predictive) -> Floats:
        """Of whole answers in each component, shape (K, answers); decisions that were not reached do not count."""
        single = np.where(found.count > 0, found.log_score, 0.0)
        log_score = np.zeros((len(single), len(self.table)))
        np.add.at(log_score.T, self.unit, single.T)
        return log_score

    def held_out(
        self,
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
        lists = self.posterior.lists
        composed = bool(lists) and not lists_leave
        if lists:
            notes = (*notes, f"{lists}; {_SIBLINGS}" if composed else lists)
        return HeldOut(
            table, method, notes, chances, self.outcome, self.paired, composed, self.single
        )


class LeftOut(NamedTuple):
    """A posterior without each of its answers.

    ``log_score`` and ``k_hat`` (None where the components are no sample) are of each answer,
    ``weights`` those of the components without each row's answer, shape (K, rows).
    """

    given: Given
    predictive: Predictive
    log_score: Floats
    weights: Floats
    k_hat: Floats | None


def left_out(posterior: Posterior, values: Mapping[str, Any] | None = None) -> LeftOut:
    """See `leave_one_out`; ``values`` are hyperparameters at which answers are predicted, instead of the posterior's."""
    prior = posterior.belief.weights
    sampled = len(prior) > 1 and bool(np.ptp(prior) == 0)  # draws, or components of equal weight
    if (sampled or posterior.sampled) and len(prior) < FEWEST:
        raise DataError(
            f"the posterior has {counted(len(prior), 'draw')}, too few to be reweighted; draw at "
            f"least {FEWEST}, better several hundred"
        )
    given = Given(posterior, values)
    if posterior.sampled and given.components.apart is not None:
        raise UnsupportedProgramError(
            "draws are reweighted answer by answer, and answers of one group depend on each other; "
            "fit with EP, or leave the column 'group' out"
        )
    log_score = given.log_scores(given.predictive)
    leaving = given.log_scores(given.predictive._replace(log_score=given.predictive.leaving))
    # p(h | others) is proportional to p(h | all)/p(y | h, others), y all that leaves.
    k_hat = None
    if sampled:
        log_weights, k_hat = smoothed(-leaving.T)
    else:
        log_weights = np.log(prior) - leaving.T
        log_weights -= logsumexp(log_weights, axis=1, keepdims=True)
    weights = np.exp(log_weights)[given.unit].T
    held_out = logsumexp(log_weights + log_score.T, axis=1)
    return LeftOut(given, given.answer(weights), held_out, weights, k_hat)


def leave_one_out(posterior: Posterior | RelationPosterior) -> HeldOut:
    """Predict each answer from all the others, at the posterior's hyperparameters, without refitting.

    Parameters
    ----------
    posterior : Posterior or RelationPosterior
        From EP or Laplace: each answer's site is taken out of the posterior, and the answer is
        predicted from what is left, the cavity. Mixtures over hyperparameters: the same in every
        component, and the components are reweighted by how much less likely the answer made them.
        Draws (`relpref.infer.from_samples`): reweighted. Scores of a relation from `Exact`: by the
        closed form of Gaussian regression; (v, w) and (w, v) of a symmetric or reciprocal relation
        leave together.

    Returns
    -------
    HeldOut
        Of an answer that was given k times, one of the k is left out. An example of a classifier
        leaves with all its decisions, and a list whole: its score is that of all its pairs, and the
        first of these stands for it. Each answer of a group is predicted without all the others of
        the group. Of a choice or an ordering that was read with ``lists="pairs"`` each pair leaves
        alone, which is no test of prediction: then `HeldOut.composed` is true.

    Raises
    ------
    UnsupportedProgramError
        If the posterior does not know its program (draws or a custom program, read back from a
        file).
    DataError
        If the posterior has no numbers, has answers that came by quick updates, comes from no
        labels, or has fewer than 25 draws.

    Notes
    -----
    The sites of the other answers stay as they are: exact for Gaussian answers, and near to fitting
    again for others (Opper & Winther 2000, "Gaussian processes for classification: mean-field
    algorithms"; Vehtari, Mononen, Tolvanen, Sivula & Winther 2016, "Bayesian leave-one-out
    cross-validation approximations for Gaussian latent variable models"). Hyperparameters were
    fitted to all answers, so scores are a little better than those of new answers; `k_fold` fits
    them again. It takes milliseconds for thousands of answers, O(p²) for each pair of a complete
    relation of p nodes under a constraint. Reweighting uses Pareto-smoothed importance weights
    (Vehtari, Gelman & Gabry 2017, "Practical Bayesian model evaluation using leave-one-out
    cross-validation and WAIC").
    """
    if posterior.kind == "relation":
        return _leave_labels_out(posterior)
    posterior = answered(posterior)
    left = left_out(posterior)
    notes: tuple[str, ...] = ()
    if left.k_hat is not None:
        limit = threshold(len(left.weights))
        bad = int(np.sum(left.k_hat > limit))
        if bad:
            notes = (
                f"the k-hat of {bad} of {len(left.k_hat)} different answers is above {limit:.2f}: "
                "they are not to be relied on; use k_fold",
            )
    chances = left.given.chances(left.predictive)
    return left.given.held_out(chances, left.log_score, "leave-one-out", notes, left.k_hat)


By = Literal["pair", "answer", "rater", "group"]


def k_fold(
    posterior: Posterior | RelationPosterior,
    folds: int = 5,
    *,
    by: By | None = None,
    hyperparameters: Literal["refit", "keep"] = "refit",
    rng_key: Any = 0,
    scheduler: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress_bar: bool = True,
) -> HeldOut:
    """Predict the answers of each fold by a fit to those of all other folds.

    Parameters
    ----------
    posterior : Posterior or RelationPosterior
        From EP or Laplace, whose program is fitted again; scores of a relation from `Exact`, by its
        closed form.
    folds : int
        At least 2.
    by : {"pair", "answer", "rater", "group"}
        What leaves together: all answers to a pair of items by any rater, because a repeated
        question would predict itself; each answer with its repetitions; all answers of a rater, who
        is then unknown; or all of a group, by default where answers have groups, elsewhere "pair".
        Lists leave whole. Examples of classes leave one by one, edges between the same two nodes
        together.
    hyperparameters : {"refit", "keep"}
        Whether those that were fitted are fitted again in every fold. Those of a relation are kept,
        and those of more items than a matrix has room for.
    rng_key : JAX key or int
        For the folds, which are random and as equal in size as can be.
    scheduler : str, optional
        Where the folds are fitted, see `relpref.parallel.run_all`; here, one after the other, by
        default.
    folder : path, optional
        Finished folds are kept there, in a file for each posterior and division, and the same call
        does only what is missing. Those of a relation have a closed form and are not kept.
    progress_bar : bool

    Returns
    -------
    HeldOut
        As of `leave_one_out`. Choices and orderings that were read with ``lists="pairs"`` leave
        whole by rater alone: else `HeldOut.composed` is true.

    Raises
    ------
    DataError
        If there are fewer things to leave out than folds, or no raters to leave out by.
    UnsupportedProgramError
        If the posterior does not know its program or its engine (draws), or its program is not one
        of answers or examples in rows.
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
    if by not in (None, "pair", "answer", "rater", "group"):
        raise DataError(f"by is {by!r}; it is 'pair', 'answer', 'rater' or 'group'")
    rng = generator(rng_key)
    if posterior.kind == "relation":
        return _leave_labels_out(posterior, folds, rng)
    posterior = answered(posterior)
    origin = posterior.origin
    if origin is None or not origin.engine:
        raise UnsupportedProgramError(
            "k_fold fits again, and this posterior does not know its program or its engine; fit "
            "with EP or Laplace in this session, or "
            "with a program of relpref.models before saving"
        )
    if not origin.complete:
        raise UnsupportedProgramError(
            "the fit used priors of its own, which a saved posterior does not keep; fit again in "
            "this session"
        )
    given = Given(posterior)
    classes = posterior.kind == "classes"
    data: Any = (
        posterior.datasets()["data"] if classes else preference_data(origin.args, origin.kwargs)
    )
    if not classes and (
        data is None or len(given.observed) > 1 or len(given.unit) != data.num_comparisons
    ):
        raise UnsupportedProgramError(
            "k_fold does not know how to leave out answers of this program, whose observed sites "
            "are not those of the comparisons "
            "alone; leave_one_out does"
        )
    grouped = not classes and data.comparisons.group is not None
    groups, name = data.answer_groups(by or ("group" if grouped else "pair"))
    fold = fold_of(groups, folds, rng, name)
    of_answer = fold if classes else fold[given.first]
    keep = hyperparameters == "keep"
    draws = dict(posterior.hyperparameter_draws) if keep else {}
    known = posterior.hyperparameters if keep else origin.fixed
    fixed = {name: value for name, value in known.items() if name not in draws}
    journal, done = None, {}
    if folder is not None:
        start = (posterior.key, dict(posterior.hyperparameters))
        digest = fingerprint((__version__, origin, fixed, draws, start, fold))
        journal = Journal(made(folder) / f"folds-{digest}.jsonl", "folds", {"fit": digest})
        done = {record["fold"]: record for record in journal.records}
    left = [number for number in range(folds) if number not in done]
    predict = partial(_predict, posterior, origin, data, fixed, draws)
    trained = [np.flatnonzero(fold != number) for number in left]
    options: dict[str, Any] = {"label": "folds", "kept": folder, "progress_bar": progress_bar}
    for at, found in run_all(predict, trained, scheduler, **options):
        test = of_answer == left[at]
        scores = logsumexp(given.log_scores(found) + np.log(found.weights[:, :1]), axis=0)
        record = {
            "fold": left[at],
            "log_score": scores[test],
            "chances": given.chances(found)[test],
        }
        done[left[at]] = record
        if journal is not None:
            journal.add(record)
    log_score = np.empty(len(of_answer))
    chances = np.empty((len(of_answer), done[0]["chances"].shape[1]))
    for number, record in done.items():
        test = of_answer == number
        log_score[test], chances[test] = record["log_score"], record["chances"]
    again = "kept" if keep or not posterior.searched else "fitted again"
    method = f"{folds} folds by {name}, hyperparameters {again}"
    return given.held_out(chances, log_score, method, lists_leave=by == "rater")


def _predict(
    posterior: Posterior,
    origin: Origin,
    data: Any,
    fixed: Values,
    draws: Values,
    trained: Positions,
) -> Predictive:
    """What a fit to the answers at some positions says of all."""
    less = origin.with_argument(data, data.select_answers(trained))
    options: dict[str, Any] = {"fixed": fixed}
    if draws:
        weights = {"prior_log_weights": posterior.prior_log_weights, **less.kwargs}
        fitted = less.engine.changed(**options).run_at_draws(
            draws, posterior.key, *less.args, **weights
        )
    else:
        fitted = less.run(None, posterior.key, at=posterior.hyperparameters, **options)
    return Question(fitted, origin).answer()


def fold_of(groups: NDArray[Any], folds: int, rng: np.random.Generator, name: str) -> Positions:
    """A fold for each of some things, those of one group together."""
    numbers = pd.factorize(groups)[0]
    count = int(numbers.max(initial=-1)) + 1
    if count < folds:
        raise DataError(f"{counted(count, name)} cannot make {folds} folds; give fewer")
    return np.asarray(rng.permutation(count) * folds // count)[numbers]


def _leave_labels_out(
    posterior: RelationPosterior, folds: int = 0, rng: np.random.Generator | None = None
) -> HeldOut:
    """Each label by itself, or those of each fold together, O(q³) for q labels; what has no prediction is not in the table."""
    from scipy.stats import norm

    posterior._warn_if_not_converged()
    problem, solution = posterior.problem, posterior.solution
    if problem.symmetry != "none" and problem.loss == "ranking":
        raise UnsupportedProgramError(
            f"the ranking loss of a {problem.symmetry} relation uses every label at both its ends, "
            "so labels have no probability; use "
            'loss="regression", or relpref.rls.leave_nodes_out'
        )
    if not solution.scale > 0:
        raise DataError(
            f"the scale of the scores is {solution.scale}, so labels have no probability"
        )
    labels, counts = problem.labels, problem.values.row_counts
    notes: tuple[str, ...] = ()
    if rng is None:
        method, notes = "leave-one-out", (_ORDER,)
        dual, own = solution.left_out()
        if (
            problem.loss == "ranking"
        ):  # nothing is known of the offset of a node without another label
            own = np.where(counts[labels.rows] == 1, np.nan, own)
        mean, sd = labels.values - dual / own, np.sqrt(solution.scale / own)
    else:
        method = f"{folds} folds by edge, hyperparameters kept"
        fit = solution.by_edges().fit
        fold = fold_of(problem.values.pairs(problem.symmetry)[labels.position], folds, rng, "edge")
        mean, sd = np.empty(len(fold)), np.empty(len(fold))
        for number in range(folds):
            test = np.flatnonzero(fold == number)
            block, gone = fit.precision[np.ix_(test, test)], np.zeros(len(test), dtype=bool)
            if problem.loss == "ranking":
                # Where all labels of a node leave, nothing is known of its offset; the block is
                # made regular.
                rows = labels.rows[test]
                gone = (np.bincount(rows, minlength=len(counts)) == counts)[rows]
                block = block + ((rows[:, None] == rows) & gone) * np.diagonal(block).max()
            covariance = np.linalg.inv(block)
            mean[test] = np.where(gone, np.nan, labels.values[test] - covariance @ fit.dual[test])
            sd[test] = np.sqrt(solution.scale * np.diagonal(covariance))
    if alone := int(np.isnan(mean).sum()):
        notes = (*notes, f"{alone} labels are the only ones of their node, and cannot be predicted")
    log_score = norm.logpdf(labels.values, mean, sd)
    table = pd.DataFrame(
        {
            "node": objects(posterior.nodes.labels[row] for row in labels.rows),
            "object": objects(posterior.objects.labels[column] for column in labels.columns),
            "label": labels.values + posterior.shift,
            "mean": mean + posterior.shift,
            "sd": sd,
            "probability": np.exp(log_score),
            "log_score": log_score,
        }
    )
    table = table.dropna(subset="mean").reset_index(drop=True)
    return HeldOut(table, method, notes, np.full((len(table), 3), np.nan), np.full(len(table), -1))
