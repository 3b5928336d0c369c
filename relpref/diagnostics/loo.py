"""Predictions of answers from the others, by leave-one-out without refitting and by k-fold fits.

Labels of a relation have a closed form: the residual of labels U that are left out together is
P_UU⁻¹ a_U and their covariance σ² P_UU⁻¹ (Rasmussen & Williams 2006, eq. 5.12). Here a = P y is the
dual of the labels y and σ² the scale. In a symmetric or reciprocal relation the labels of (v, w)
and (w, v) are left out together, and the model determines their sum or difference only.
"""

import os
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import logsumexp

from relpref._version import __version__
from relpref.data.arrays import counted
from relpref.diagnostics.cavity import Predictive, Question
from relpref.diagnostics.held_out import HeldOut
from relpref.errors import DataError, UnsupportedProgramError
from relpref.files import made
from relpref.infer import Posterior, RelationPosterior
from relpref.infer.call import Values, preference_data
from relpref.infer.large.problem import answered
from relpref.infer.smoothing import FEWEST, smoothed, threshold
from relpref.journal import Journal, fingerprint
from relpref.parallel import run_all
from relpref.posterior.gaussian import Floats, generator
from relpref.posterior.origin import Origin
from relpref.posterior.tables import objects

Positions = NDArray[np.intp]

# Note on the held-out predictions of the labels of a relation.
_ORDER = (
    "for errors of single labels; errors of their order would be too small, see "
    "relpref.rls.leave_object_pairs_out"
)


class Given(Question):
    """Answers of a posterior, and the prediction of each answer by the posterior without it.

    ``table``, ``outcome``, ``paired`` and ``single`` are those of `HeldOut`. ``predictive`` has the
    predictions of the program's m rows. An answer that is a list or an example has several rows:
    ``unit``, shape (m,), is the position of the answer that each row belongs to, and ``first`` has
    the first row of each answer.
    """

    def __init__(self, posterior: Posterior, values: Mapping[str, Any] | None = None) -> None:
        if "weights" in posterior.info:
            raise UnsupportedProgramError(
                "answers with weights are not scored by leaving them out, because weighted "
                "probabilities do not add up to 1; hold some out, fit to the others, and score "
                "posterior.prefer"
            )
        super().__init__(posterior, values=values)
        self.posterior, self.paired = posterior, False
        rows = self.predictive = self.answer()
        self.unit = self.first = np.arange(len(self.block))
        if posterior.kind == "classes":
            examples: Any = posterior
            self.table, self.outcome = examples.examples()
            self.first, self.unit = np.unique(self.block, return_inverse=True)
            self.single = np.ones(len(self.first), dtype=bool)
            return
        data = posterior.data if posterior.kind == "utilities" else None
        if data is None or len(self.observed) > 1 or not np.array_equal(rows.count, data.count):
            sites = objects(self.observed[site] for site in rows.site)
            places = pd.Series(sites).groupby(sites, sort=False).cumcount().to_numpy()
            self.table = pd.DataFrame({"site": sites, "row": places, "value": rows.value})
            if not np.all(rows.count == 1):
                self.table["count"] = rows.count
        else:
            answers = data.comparisons.answers
            self.first, self.unit = answers.first(), answers.of_rows
            table = data.comparisons.table(data.labels).iloc[self.first].reset_index(drop=True)
            self.table = table.rename(columns={"probability": "reported"})
            self.table["count"] = answers.count
            if data.comparisons.lists:
                self.table["list"] = objects(map(answers.label, range(len(self.first))))
        # Sides 1, 0 and −1 become the categories 0, 1 and 2; numbers and lists have none.
        side = rows.side[self.first]
        categorical = ~np.isnan(side)
        self.outcome = np.where(categorical, 1 - np.nan_to_num(side), -1).astype(np.intp)
        self.single = categorical & ~rows.paired[self.first]
        self.paired = bool((categorical & ~self.single).any())
        if not self.paired:  # yes and no are the only categories
            self.outcome = np.where(categorical, 1 - np.minimum(self.outcome, 1), -1)

    def chances(self, predictive: Predictive) -> Floats:
        """Probabilities of the c categories of each answer, shape (answers, c), see `HeldOut`."""
        if predictive.classes.size:
            return np.asarray(predictive.classes.T)
        chance = predictive.chance if self.paired else predictive.chance[[2, 0]]
        return np.asarray(chance.T[self.first])

    def scored(
        self, chances: Floats, log_score: Floats, method: str, k_hat: Any = None, **more: Any
    ) -> HeldOut:
        """Make a `HeldOut` of probabilities and log scores of all answers.

        ``more`` are further attributes of it, and ``k_hat`` a column of its table.
        """
        table = self.table.assign(probability=np.exp(log_score), log_score=log_score)
        for label, column in zip(self.classes, chances.T, strict=False):
            table[f"p_{label}"] = column
        if self.paired:
            first, tie, second = np.where(self.single, np.nan, chances.T)
            table["p_first"], table["p_second"] = first, second
            if np.nanmax(tie, initial=0.0) > 0:
                table["p_tie"] = tie
        if k_hat is not None:
            table["k_hat"] = k_hat
        kinds = {"outcome": self.outcome, "paired": self.paired, "single": self.single}
        return HeldOut(table, method, chances=chances, **kinds, **more)


class LeftOut(Given):
    """Held-out predictions of a posterior's answers, and what gives the posterior without each.

    ``weights_without``, shape (K, m), are those of the K components when the block of a row is
    left out. Hyperparameters may have other ``values`` than the posterior's.
    """

    def __init__(self, posterior: Posterior, values: Mapping[str, Any] | None = None) -> None:
        prior = posterior.belief.weights
        # Points of equal weight, at which members of plates are drawn, are no sample.
        sampled = posterior.belief.equal and "points" not in posterior.info
        if (sampled or posterior.sampled) and len(prior) < FEWEST:
            raise DataError(
                f"the posterior has {counted(len(prior), 'draw')}, too few to be reweighted; draw "
                f"at least {FEWEST}, better several hundred"
            )
        super().__init__(posterior, values)
        if posterior.sampled and self.integrated:
            raise UnsupportedProgramError(
                "draws are reweighted answer by answer, and answers of one group depend on each "
                "other; fit with EP, or leave the column 'group' out"
            )
        # Weights of components h without the answers y of a block: p(h | others) is proportional
        # to p(h | all)/p(y | h, others).
        leaving = self.predictive.leaving[:, self.first].T
        k_hat, notes = None, tuple[str, ...]()
        if sampled:
            log_weights, k_hat = smoothed(-leaving)
            limit = threshold(len(prior))
            if bad := int(np.sum(k_hat > limit)):
                share = f"{bad} of {len(k_hat)} different answers"
                notes = (f"the k-hat of {share} is above {limit:.2f}: use k_fold for them",)
        else:
            # A component that finds an answer all but impossible would outweigh all others.
            most = np.log(len(prior)) / 2 - np.median(leaving, axis=1, keepdims=True)
            log_weights = np.log(prior) + np.minimum(-leaving, most)
            log_weights -= logsumexp(log_weights, axis=1, keepdims=True)
        self.weights_without = np.exp(log_weights)[self.unit].T
        log_score = logsumexp(log_weights + self.predictive.log_score[:, self.first].T, axis=1)
        predictive = self.answer(self.weights_without)
        more = {"notes": notes, "moments": predictive.moments[:, self.first]}
        chances = self.chances(predictive)
        self.held_out = self.scored(chances, log_score, "leave-one-out", k_hat, **more)

    def moved(self, answers: slice) -> Floats:
        """Change of the posterior mean when the block of an answer is left out, shape (k, n).

        The k answers of the slice are left out in turn; n is the number of latents.
        """
        first, belief = self.first[answers], self.posterior.full
        change = self.weights_without[:, first].T @ belief.locations - belief.mean()
        if belief.scales is None:
            return change
        blocks, place = np.unique(self.block[first], return_inverse=True)
        rows = np.flatnonzero(np.isin(self.block, blocks))
        at = np.searchsorted(blocks, self.block[rows]), np.arange(len(rows))
        projection = self.projection()[rows]
        steps = (self.weights_without * self.predictive.step)[:, rows]
        for scale, step in zip(belief.scales, steps, strict=True):
            sums = sparse.csr_array((step, at), (len(blocks), len(rows)))
            change += (sums @ projection @ scale)[place]
        return change


def leave_one_out(posterior: Posterior | RelationPosterior) -> HeldOut:
    """Predict each answer from all others, at the posterior's hyperparameters, without refitting.

    Parameters
    ----------
    posterior : Posterior or RelationPosterior
        Posteriors from EP or Laplace predict each answer from the cavity, which is the posterior
        without the answer's site. Mixtures over hyperparameters do so in every component, and
        components are reweighted by their probability without the answer. Draws
        (`relpref.infer.from_samples`) are reweighted. Scores of a relation from `Exact` use the
        closed form of Gaussian regression; (v, w) and (w, v) of a symmetric or reciprocal relation
        are left out together.

    Returns
    -------
    HeldOut
        One copy of a repeated answer is left out. An example of a classifier is left out with all
        its decisions. A list is one answer, shown by its first two items. Each answer of a group,
        a pair or a list, is predicted without all others of the group.

    Raises
    ------
    UnsupportedProgramError
        If the program of the posterior is unknown (draws or a custom program, read from a file).
    DataError
        If the posterior has no numbers, has answers of quick updates, comes from no labels, or has
        fewer than 25 draws.

    Notes
    -----
    The sites of the other answers are kept. That is exact for Gaussian answers and close to
    refitting for others (Opper & Winther 2000, "Gaussian processes for classification: mean-field
    algorithms"; Vehtari, Mononen, Tolvanen, Sivula & Winther 2016, "Bayesian leave-one-out
    cross-validation approximations for Gaussian latent variable models"). Hyperparameters were
    fitted to all answers, so scores are slightly better than for new answers; `k_fold` refits them.
    Thousands of answers take milliseconds, a complete relation of p nodes under a constraint O(p²)
    for each pair. Draws have Pareto-smoothed importance weights (Vehtari, Gelman & Gabry 2017,
    "Practical Bayesian model evaluation using leave-one-out cross-validation and WAIC"). Those of K
    components are at most √K times their median (compare Ionides 2008, "Truncated importance
    sampling", whose bound has the mean).

    Examples
    --------
    >>> import relpref
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> posterior = relpref.fit(answers=answers)
    >>> held_out = relpref.diagnostics.leave_one_out(posterior)
    >>> len(held_out.table)
    3
    """
    if posterior.kind == "relation":
        return _leave_labels_out(posterior)
    return LeftOut(answered(posterior)).held_out


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
        A posterior from EP or Laplace, whose program is fitted again, or scores of a relation from
        `Exact`, which have a closed form.
    folds : int
        At least 2.
    by : {"pair", "answer", "rater", "group"}
        Unit of the folds, whose answers are in the same fold: all answers to a pair of items by any
        rater, because otherwise a repeated question would predict itself; each answer with its
        repeats; all answers of a rater, who is then new; or all of a group. The default is "group"
        if answers have groups, else "pair". A list is a unit, and so is an example of a classifier;
        edges between the same two nodes are a single unit.
    hyperparameters : {"refit", "keep"}
        Whether fitted hyperparameters are fitted again in every fold. They are always kept for a
        relation, and for more items than a matrix has room for.
    rng_key : JAX key or int
        Key for the folds, which are random and of nearly equal size.
    scheduler : str, optional
        Scheduler for the fits, see `relpref.parallel.run_all`; by default they run here, one after
        the other.
    folder : path, optional
        Folder for finished folds, with a file for each posterior and division into folds. The same
        call continues after the folds in the file. Folds of a relation have a closed form and are
        not stored.
    progress_bar : bool

    Returns
    -------
    HeldOut
        Predictions as from `leave_one_out`.

    Raises
    ------
    DataError
        If there are fewer units than folds, or no raters to leave out by.
    UnsupportedProgramError
        If the program or the engine (of draws) is unknown, or if the program is not one of answers
        or examples in rows.
    InferenceError
        If the fit to a fold did not converge.
    StorageError
        If the folder cannot be written, or its file is damaged.
    ClusterError
        If other processes went away; with a folder the same call continues.

    Examples
    --------
    >>> import relpref
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> posterior = relpref.fit(answers=answers)
    >>> folds = relpref.diagnostics.k_fold(posterior, 3)
    >>> len(folds.table)
    3
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
            "with EP or Laplace in this session, or with a program of relpref.models before saving"
        )
    if not origin.complete:
        raise UnsupportedProgramError(
            "the fit used priors of its own, which a saved posterior does not keep; fit again in "
            "this session"
        )
    given = Given(posterior)
    classes = posterior.kind == "classes"
    data: Any = posterior.datasets()["data"] if classes else preference_data(origin)
    if not classes and (
        data is None or len(given.observed) > 1 or len(given.first) != len(data.comparisons)
    ):
        raise UnsupportedProgramError(
            "k_fold does not know how to leave out answers of this program, whose observed sites "
            "are not those of the comparisons alone; leave_one_out does"
        )
    grouped = not classes and data.comparisons.group is not None
    groups, unit = data.answer_groups(by or ("group" if grouped else "pair"))
    fold = fold_of(groups, folds, rng, unit)
    keep = hyperparameters == "keep"
    draws = dict(posterior.hyperparameter_draws) if keep else {}
    values = posterior.hyperparameters if keep else origin.fixed
    fixed = {name: value for name, value in values.items() if name not in draws}
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
    for at, (predictive, weights) in run_all(predict, trained, scheduler, **options):
        test = fold == left[at]
        scores = predictive.log_score[:, given.first[test]]
        scores = logsumexp(scores, axis=0, b=weights[:, None])
        chances = given.chances(predictive)[test]
        record = {"fold": left[at], "log_score": scores, "chances": chances}
        done[left[at]] = record
        if journal is not None:
            journal.add(record)
    # Records are sorted by fold; this puts their answers back into the order of the table.
    place = np.argsort(np.argsort(fold, kind="stable"))
    chances, log_score = (
        np.concatenate([done[number][name] for number in range(folds)])[place]
        for name in ("chances", "log_score")
    )
    again = "kept" if keep or not posterior.searched else "fitted again"
    method = f"{folds} folds by {unit}, hyperparameters {again}"
    return given.scored(chances, log_score, method)


def _predict(
    posterior: Posterior,
    origin: Origin,
    data: Any,
    fixed: Values,
    draws: Values,
    trained: Positions,
) -> tuple[Predictive, Floats]:
    """Fit to the answers at the positions ``trained``, and predict all answers.

    Returns the predictions and the weights of the fit's components.
    """
    less = origin.with_argument(data, data.select_answers(trained))
    options: dict[str, Any] = {"fixed": fixed}
    if draws:
        weights = {"prior_log_weights": posterior.prior_log_weights, **less.kwargs}
        fitted = less.engine.changed(**options).run_at_draws(
            draws, posterior.key, *less.args, **weights
        )
    else:
        fitted = less.run(None, posterior.key, at=posterior.hyperparameters, **options)
    question = Question(fitted, origin)
    return question.answer(), question.weights


def fold_of(groups: NDArray[Any], folds: int, rng: np.random.Generator, name: str) -> Positions:
    """Random fold of each element, the same for all elements of a group.

    Raises DataError, which calls the groups ``name``, if they are fewer than the folds.
    """
    numbers = pd.factorize(groups)[0]
    count = int(numbers.max(initial=-1)) + 1
    if count < folds:
        raise DataError(f"{counted(count, name)} cannot make {folds} folds; give fewer")
    return np.asarray(rng.permutation(count) * folds // count)[numbers]


def _leave_labels_out(
    posterior: RelationPosterior, folds: int = 0, rng: np.random.Generator | None = None
) -> HeldOut:
    """Predict each label of a relation from all others or, with ``rng``, from the other folds.

    Folds take O(q³) for q labels. Labels that cannot be predicted are not in the table.
    """
    from scipy.stats import norm

    posterior._warn_if_not_converged()
    problem, solution = posterior.problem, posterior.solution
    if problem.symmetry != "none" and problem.loss == "ranking":
        raise UnsupportedProgramError(
            f"the ranking loss of a {problem.symmetry} relation uses every label at both its ends, "
            'so labels have no probability; use loss="regression", or relpref.rls.leave_nodes_out'
        )
    if not solution.scale > 0:
        raise DataError(
            f"the scale of the scores is {solution.scale}, so labels have no probability"
        )
    labels, counts = problem.labels, problem.values.row_counts
    notes: tuple[str, ...] = ()
    if rng is None:
        method, notes = "leave-one-out", (_ORDER,)
        dual, precision = solution.left_out()
        if problem.loss == "ranking":  # a node without another label has an unknown offset
            precision = np.where(counts[labels.rows] == 1, np.nan, precision)
        mean, sd = labels.values - dual / precision, np.sqrt(solution.scale / precision)
    else:
        method = f"{folds} folds by edge, hyperparameters kept"
        fit = solution.by_edges().fit
        fold = fold_of(problem.values.pairs(problem.symmetry)[labels.position], folds, rng, "edge")
        mean, sd = np.empty(len(fold)), np.empty(len(fold))
        for number in range(folds):
            test = np.flatnonzero(fold == number)
            block, unknown = fit.precision[np.ix_(test, test)], np.zeros(len(test), dtype=bool)
            if problem.loss == "ranking":
                # A node without remaining labels has an unknown offset; make the block regular.
                rows = labels.rows[test]
                unknown = (np.bincount(rows, minlength=len(counts)) == counts)[rows]
                block = block + ((rows[:, None] == rows) & unknown) * np.diagonal(block).max()
            covariance = np.linalg.inv(block)
            residual = covariance @ fit.dual[test]
            mean[test] = np.where(unknown, np.nan, labels.values[test] - residual)
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
