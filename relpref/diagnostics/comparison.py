"""Comparison of models, and influence of single answers, raters and parts of the prior."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from relpref.data.arrays import counted
from relpref.diagnostics.held_out import HeldOut, average
from relpref.diagnostics.loo import LeftOut, leave_one_out
from relpref.errors import DataError, InferenceError, UnsupportedProgramError
from relpref.infer import Posterior, RelationPosterior, UtilityPosterior
from relpref.infer.large.problem import answered
from relpref.likelihoods.answers import GROUP_SD
from relpref.limits import MAX_NUMBERS_OF_INFLUENCE
from relpref.posterior.origin import Origin
from relpref.posterior.tables import objects

Candidate = Posterior | RelationPosterior | HeldOut

ATTRIBUTES, INDIVIDUAL = "attributes", "individual"
_NOISE = "rater_noise"
# Columns by which answers differ, and what models have besides pairs.
_WHAT_WAS_ANSWERED = {"tie", "strength", "reported", "list", "group", "site", "label", "class"}


def compare(*candidates: Candidate | Mapping[str, Candidate]) -> pd.DataFrame:
    """Compare models by their held-out predictions of the same answers, best first.

    Parameters
    ----------
    *candidates : Posterior, RelationPosterior, HeldOut, or mapping from name to these
        At least two models. Those without a name are called "model 1", "model 2" and so on.
        Posteriors are compared by `leave_one_out`; results of `k_fold` are taken as they are.

    Returns
    -------
    DataFrame
        A row for each model, with ``elpd``, the sum of the held-out log probabilities of all
        answers, and ``elpd_se``, its standard error over answers like these; ``difference``, the
        elpd less that of the best model, so 0 or below, and ``difference_se``, its standard error
        by paired answers; ``log_loss``; ``log_evidence``, NaN if unknown.

    Raises
    ------
    DataError
        If there are fewer than two models, or their answers differ.
    UnsupportedProgramError
        See `leave_one_out`.

    Notes
    -----
    A difference of less than two standard errors, or of less than about 4, is not significant
    (Vehtari, Gelman & Gabry 2017; Sivula, Magnusson & Vehtari 2020, "Uncertainty in Bayesian
    leave-one-out cross-validation based model comparison").

    The models may differ in covariates, raters and positions of the answers, which are paired by
    their other columns.

    Examples
    --------
    >>> import relpref
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> posterior = relpref.fit(answers=answers)
    >>> likelihood = relpref.likelihoods.Logistic()
    >>> logistic = relpref.fit(answers=answers, likelihood=likelihood)
    >>> models = {"probit": posterior, "logistic": logistic}
    >>> relpref.diagnostics.compare(models).shape[0]
    2
    """
    named: dict[str, Any] = {}
    for each in candidates:
        named |= each if isinstance(each, Mapping) else {f"model {len(named) + 1}": each}
    for name, model in named.items():
        if not isinstance(model, HeldOut) and not hasattr(model, "kind"):
            raise DataError(
                f"compare: {name!r} is a {type(model).__name__}; give posteriors or results of "
                'k_fold, such as compare(p, q) or compare({"one": p, "other": q})'
            )
    if len(named) < 2:
        raise DataError(f"compare has {counted(len(named), 'model')}; give two or more")
    models = _of_shared_columns(
        {
            name: model if isinstance(model, HeldOut) else leave_one_out(model)
            for name, model in named.items()
        }
    )
    first, *others = models.items()
    models = dict([first, *((other[0], _aligned(first, other)) for other in others)])
    best = max(models.values(), key=lambda held_out: held_out.elpd)
    rows = {}
    for name, held_out in models.items():
        evidence = getattr(named[name], "log_evidence", None)
        difference, error = difference_of(held_out, best)
        rows[name] = {
            "elpd": held_out.elpd,
            "elpd_se": held_out.elpd_se,
            "difference": difference,
            "difference_se": error,
            "log_loss": held_out.log_loss,
            "log_evidence": np.nan if evidence is None else evidence,
        }
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")
    return table.sort_values("elpd", ascending=False, kind="stable")


def difference_of(first: HeldOut, second: HeldOut) -> tuple[float, float]:
    """Total log score of the first less that of the second, and the standard error by answers."""
    mean, error = average(first.log_scores - second.log_scores, first.weight)
    return float(first.weight.sum() * mean), float(first.weight.sum() * error)


def _answer_columns(held_out: HeldOut) -> pd.DataFrame:
    """Columns of the table that say what was answered, without the predictions."""
    table = held_out.table.loc[:, :"probability"]
    return table.drop(columns=["probability", "mean", "sd"], errors="ignore")


def _of_shared_columns(models: dict[str, HeldOut]) -> dict[str, HeldOut]:
    """Leave out what only some models know of the circumstances of answers to pairs.

    These are raters, positions and covariates. Equal answers may have differed in them, so rows
    then are single answers.
    """
    columns = [set(_answer_columns(held_out)) for held_out in models.values()]
    differ = set.union(*columns) - set.intersection(*columns)
    if not differ or "winner" in differ or differ & _WHAT_WAS_ANSWERED:
        return models
    single = {}
    for name, held_out in models.items():
        table = held_out.table.drop(columns=[*differ], errors="ignore")
        table = table.loc[table.index.repeat(held_out.weight)].assign(count=1)
        single[name] = replace(held_out, table=table.reset_index(drop=True))
    return single


def _aligned(*models: tuple[str, HeldOut]) -> HeldOut:
    """Return the second model with its rows in the order of the first.

    A DataError names the first difference if the two predict different answers.
    """
    tables = first, second = [_answer_columns(held_out) for _, held_out in models]
    names = [f"the answers of {name!r}" for name, _ in models]
    facts = [f"have {len(table)} rows" for table in tables]
    if list(first) != list(second):
        facts = [f"have the columns {', '.join(table)}" for table in tables]
    elif len(first) == len(second):
        same = ((first == second) | (first.isna() & second.isna())).all(axis=1)
        if same.all():
            return models[1][1]
        keys = [_keys(table) for table in tables]
        rows, others = (np.argsort(key, kind="stable") for key in keys)
        if (keys[0][rows] == keys[1][others]).all():
            return replace(models[1][1], table=models[1][1].table.iloc[others[np.argsort(rows)]])
        row = int(np.argmin(same))
        names = [f"row {row} of {name}" for name in names]
        facts = [
            "is " + ", ".join(f"{k}={v}" for k, v in table.iloc[row].items()) for table in tables
        ]
    raise DataError(
        f"{names[0]} {facts[0]}, {names[1]} {facts[1]}; compare models of the same answers"
    )


def _keys(table: pd.DataFrame) -> Any:
    """Each answer as text; the two sides of a tie are in the order of their labels."""
    if "tie" in table:
        sides = ["winner", "loser"]
        turned = table["tie"] & (table["winner"].map(repr) > table["loser"].map(repr))
        numbers = table.select_dtypes("number").columns
        effects = [name for name in numbers if str(name).endswith("_winner")]
        table = table.astype(dict.fromkeys(effects, float))
        table.loc[turned, sides] = table.loc[turned, sides[::-1]].to_numpy()
        # Covariates are differences of the two sides.
        table.loc[turned, effects] = 0.0 - table.loc[turned, effects]
    return table.apply(lambda row: repr(row.tolist()), axis=1).to_numpy(dtype=str)


def influence(posterior: Posterior | RelationPosterior) -> pd.DataFrame:
    """Score each answer given the others, and measure its effect on the posterior.

    The most surprising answer, which has the lowest held-out probability, comes first.

    Parameters
    ----------
    posterior : Posterior
        A posterior for `leave_one_out`, other than of the scores of a relation.

    Returns
    -------
    DataFrame
        A row for each row of `HeldOut.table`: the answer; its held-out ``probability`` and
        ``log_score``; ``item``, the item whose utility relative to the average would move farthest
        without one copy of the answer, or without all answers of its group; ``shift``, the signed
        change of that utility in posterior standard deviations. Instead of ``item``, a classifier
        has ``example``, whose latent function moves farthest (with more than two classes, the
        function of a decision), and other programs have ``latent``, a latent value of a site.

    Raises
    ------
    UnsupportedProgramError, DataError
        See `leave_one_out`.

    Notes
    -----
    Without a site, mean and covariance change by a matrix of rank one, O(n) for each answer, and of
    higher rank for lists and groups; the sites of the others are kept. A classifier of m examples
    takes O(m²) products of features.

    Examples
    --------
    >>> import relpref
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> posterior = relpref.fit(answers=answers)
    >>> len(relpref.diagnostics.influence(posterior))
    3
    """
    if posterior.kind == "relation":
        raise UnsupportedProgramError(
            "influence is about utilities, classes and latent sites; for surprising labels of a "
            "relation sort the table of leave_one_out by log_score"
        )
    posterior = answered(posterior)
    left = LeftOut(posterior)
    scores = left.held_out.log_scores
    table = left.table.assign(probability=np.exp(scores), log_score=scores)
    belief, matrix = posterior.full, None
    if posterior.kind == "classes":  # decisions on all examples may move
        column, matrix = "example", np.asarray(left.projection() @ np.eye(belief.size))
        sd = np.sqrt(np.maximum(np.sum((matrix @ belief.covariance()) * matrix, axis=1), 0.0))
        ends = left.table.drop(columns="class").itertuples(index=False, name=None)
        labels = [end if len(end) > 1 else end[0] for end in ends for _ in left.classes[1:]]
    else:
        reported = posterior.reported()
        sd, labels, column = reported["sd"].to_numpy(), reported.index.tolist(), "item"
        if posterior.kind != "utilities":
            column, labels = "latent", [f"{site}[{at}]" for site, at in labels]
    shift, which = np.zeros(len(table)), np.zeros(len(table), dtype=np.intp)
    size = max(1, MAX_NUMBERS_OF_INFLUENCE // max(belief.size, len(sd)))
    for start in range(0, len(table), size):
        units = slice(start, min(start + size, len(table)))
        moved = left.moved(units)
        if matrix is not None:
            moved = moved @ matrix.T
        elif column == "item":
            moved = np.asarray(posterior.displayed(moved))
        moved = moved / np.where(sd > 0, sd, np.inf)
        which[units] = np.argmax(np.abs(moved), axis=1)
        shift[units] = np.take_along_axis(moved, which[units, None], axis=1)[:, 0]
    table["shift"] = shift
    table[column] = objects(labels[at] for at in which.tolist())
    return table.sort_values("log_score", kind="stable")


_FITTED = 3  # divisor of the bound where noises are fitted, see the notes of `raters`


def raters(posterior: Posterior, *, false_alarms: float = 0.01) -> pd.DataFrame:
    """Compare the log loss of each rater's answers, given all others, with what the model expects.

    Parameters
    ----------
    posterior : UtilityPosterior
        A posterior for `leave_one_out`, of answers with raters.
    false_alarms : float
        Probability that at least one rater of the table is at odds if all raters are alike.

    Returns
    -------
    DataFrame
        A row for each rater, lowest p-value first: ``answers``, their number; ``log_loss``, the
        average of −log held-out probability; ``expected`` and ``sd``, the mean and standard
        deviation of the log loss if the answers came from the model; ``z``, log loss less expected,
        in standard deviations; ``p_value``, the probability of a log loss at least as high;
        ``at_odds``, whether the p-value is below ``false_alarms`` divided by the number of raters
        (Bonferroni), and by another 3 if the raters' noises are fitted. Fitted noises are in
        ``noise``; then all raters are scored with the median noise.

    Raises
    ------
    DataError
        If the answers have no raters, or the other possible answers are unknown.
    UnsupportedProgramError
        See `leave_one_out`.

    Notes
    -----
    The log losses of a rater are added up as if they were independent, and the tail of the sum is
    that of a Pearson distribution of type III with its mean, variance and skewness. A rater with
    few answers can be at odds only by very improbable ones. Each answer is predicted from the
    rater's other answers, too, which agree with it (`k_fold` with ``by="rater"`` leaves all answers
    of a rater out together).

    If each rater's noise is fitted, the median of them is itself uncertain, and the fit can explain
    a few surprising answers of a rater by their noise. So small p-values occur about twice too
    often, and the bound is divided by 3: of 500 simulated tables of eight equal raters with 25
    answers each, 3 tables (0.6 %) have a rater at odds. Without the divisor there would be 8.

    Examples
    --------
    >>> import relpref
    >>> ann = {"winner": "tea", "loser": "coffee", "rater": "ann"}
    >>> bob = {"winner": "coffee", "loser": "tea", "rater": "bob"}
    >>> posterior = relpref.fit(answers=[ann, ann, bob])
    >>> sorted(relpref.diagnostics.raters(posterior).index)
    ['ann', 'bob']
    """
    from scipy.stats import pearson3

    if not 0 < false_alarms < 1:
        raise DataError(f"false_alarms is {false_alarms}; it is a probability, such as 0.01")
    data = posterior.data if posterior.kind == "utilities" else None
    if data is None or data.comparisons.rater is None:
        raise DataError("the answers do not say who gave them; fit answers with a column rater")
    posterior, answers = answered(posterior), data.comparisons
    noise = posterior.hyperparameters.get(_NOISE)
    usual = {} if noise is None else {_NOISE: np.full(np.shape(noise), np.median(noise))}
    left, origin = LeftOut(posterior, usual), posterior.origin
    unknown = np.isnan(left.held_out.moments).any()
    if unknown and posterior.hyperparameter_draws and origin and origin.engine:
        # The moments of numbers' scores are unknown for a mixture of Gaussians: fit a single
        # Gaussian at the averages of the hyperparameters.
        left = LeftOut(origin.run(None, posterior.key, fixed=posterior.hyperparameters), usual)
    held_out = left.held_out
    if np.isnan(held_out.moments).any():
        raise DataError(
            "the other possible answers are unknown: the likelihood is a custom one, the posterior "
            "is a sample, or some answers are lists; see k_fold with by='rater'"
        )
    rater = answers.rater[left.first]
    values = [np.ones(len(held_out.weight)), held_out.log_scores, *held_out.moments]
    number, score, mean, variance, third = (
        np.bincount(rater, held_out.weight * value, len(answers.raters)) for value in values
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        sd = np.sqrt(variance)
        z = np.where(sd > 0, (mean - score) / sd, 0.0)
        p_value = np.where(sd > 0, pearson3.sf(z, np.where(sd > 0, -third / sd**3, 0.0)), 1.0)
        columns = {
            "answers": number.astype(int),
            "log_loss": -score / number,
            "expected": -mean / number,
            "sd": sd / number,
            "z": z,
            "p_value": p_value,
            "at_odds": p_value < false_alarms / (len(number) * (1 if noise is None else _FITTED)),
        }
    if noise is not None:
        columns["noise"] = np.broadcast_to(noise, number.shape)
    index = pd.Index(objects(answers.raters), name="rater", tupleize_cols=False)
    return pd.DataFrame(columns, index)[number > 0].sort_values("p_value", kind="stable")


def evidence_without_each(
    posterior: UtilityPosterior, *, progress_bar: bool = True
) -> pd.DataFrame:
    """Leave each part of the prior out in turn, fit again, and compare the evidence.

    Hyperparameters are fitted again, except those that were fixed. The kernel, priors and fixed
    values of a part are left out with it.

    Parameters
    ----------
    posterior : UtilityPosterior
        From EP or Laplace, by a program whose prior is a sum of named parts, such as
        `relpref.models.xpgp`.
    progress_bar : bool
        Show progress if stderr is a terminal.

    Returns
    -------
    DataFrame
        One row for each part: ``left_out`` (``attributes`` or the name of a relation),
        ``log_evidence`` without it, ``difference`` (log evidence with it less that without it, in
        nats), ``elpd_difference`` (the same difference of the sums of held-out log probabilities,
        see `leave_one_out`) and its standard error ``elpd_se``, and ``note`` (the reason if there
        are no numbers, else empty).

    Raises
    ------
    UnsupportedProgramError
        If the posterior has no evidence or only one part, or if its program or its priors are
        unknown.
    InferenceError
        If the fit of the posterior did not converge. A fit without a part that fails is reported in
        ``note``.

    Notes
    -----
    If hyperparameters were integrated over, the difference is the log Bayes factor of the part. If
    they were maximized, the larger model contains the smaller one (an amplitude of 0). So the
    difference is seldom negative, and about one nat for each hyperparameter of the part is no
    evidence for the part.

    Examples
    --------
    >>> import relpref
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> hot = {"hot": [("tea", "coffee")]}
    >>> posterior = relpref.fit(answers=answers, relations=hot)
    >>> table = relpref.diagnostics.evidence_without_each(posterior, progress_bar=False)
    """
    origin, full = posterior.origin, posterior.log_evidence
    if full is None and posterior.hyperparameter_draws and origin is not None and origin.engine:
        raise UnsupportedProgramError(
            "draws of the hyperparameters give no evidence to compare: fit with "
            "hyperparameters='integrate' or 'maximize'"
        )
    if full is None or origin is None:
        raise UnsupportedProgramError(
            "the comparison needs a posterior from EP or Laplace that knows its program; fit with "
            "one of them in this session, or with a program of relpref.models before saving"
        )
    if not origin.complete:
        raise UnsupportedProgramError(
            "the fit used priors of its own, which a saved posterior does not keep, so fitting "
            "again would be another model; compare before saving, or fit again"
        )
    result, data, parts = posterior.result, posterior.data, parts_of(posterior)
    if not result.ok:
        raise InferenceError(
            "the fit itself did not converge, so its evidence compares with nothing: "
            f"{result.value}",
            result,
        )
    removable = [part for part in parts if part == ATTRIBUTES or part in data.relations]
    if len(parts) < 2 or not removable:
        raise UnsupportedProgramError(
            "the model has no two parts of which one could be left out; xpgp with attributes and "
            "relations has"
        )
    held_out: HeldOut | None = None
    rows = []
    for part in removable:
        fitted, note = _refit(posterior, origin, part, progress_bar)
        log_evidence = elpd = error = float("nan")
        if fitted is not None and fitted.log_evidence is not None:
            log_evidence = fitted.log_evidence
            held_out = held_out or leave_one_out(posterior)
            elpd, error = difference_of(held_out, leave_one_out(fitted))
        rows.append((part, log_evidence, full - log_evidence, elpd, error, note))
    columns = ["left_out", "log_evidence", "difference", "elpd_difference", "elpd_se", "note"]
    return pd.DataFrame(rows, columns=columns)


def parts_of(posterior: Posterior) -> tuple[str, ...]:
    """Names of the parts that the prior is a sum of, in the order of the program."""
    return tuple(name for parts in posterior.parts.values() for name in parts.means)


def _refit(
    posterior: UtilityPosterior, origin: Origin, part: str, progress_bar: bool
) -> tuple[Posterior | None, str]:
    """Fit without a part; return the posterior and "", or None and the reason for the failure."""

    def others(by_site: Mapping[str, Any]) -> dict[str, Any]:
        # The entries of hyperparameters that do not belong to the part.
        return {
            site: value for site, value in by_site.items() if site_part(posterior, site) != part
        }

    data, call = posterior.data, origin.unbound()
    kwargs = dict(call.kwargs)
    if part == ATTRIBUTES:
        kwargs.pop("attribute_kernel", None)
    if kernels := kwargs.get("relation_kernels"):
        # The kernel of a directed relation stays with the role that is left.
        kwargs["relation_kernels"] = {
            name: kernel for name, kernel in kernels.items() if data.parts_of(name) != (part,)
        }
    if kwargs.get("priors"):
        kwargs["priors"] = others(kwargs["priors"])
    fixed = others(origin.fixed if posterior.searched else posterior.hyperparameters)
    try:
        smaller = data.without_attributes() if part == ATTRIBUTES else data.without_relation(part)
        call = replace(call, kwargs=kwargs)
        for old in origin.datasets().values():
            if type(old) is type(data):
                call = call.with_argument(old, smaller)
        engine = origin.engine.changed(call.program, fixed=fixed, throw=True)
        with warnings.catch_warnings():
            # Items that are unconnected without the part show in the evidence.
            warnings.simplefilter("ignore", UserWarning)
            fitted = engine.run(posterior.key, *call.args, progress_bar=progress_bar, **call.kwargs)
    except InferenceError as error:
        return None, f"{origin.engine.name} on the rest ended with {error.result.name}"
    except DataError as error:
        return None, str(error)
    if fitted.log_evidence is None or part in parts_of(fitted):
        return None, "the program keeps this part when the data lacks it"
    return fitted, ""


def site_part(posterior: Posterior, site: str) -> str | None:
    """Part that a hyperparameter belongs to by its name ``<part>_<name>``; None for none.

    If the names of several parts fit, it is the longest.
    """
    fitting = [
        part for part in parts_of(posterior) if site.startswith(f"{part}_") and site != GROUP_SD
    ]
    return max(fitting, key=len, default=None)
