"""Tables of posteriors: rankings, effects, and predictions of answers; and reading questions."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from relpref.data import Comparisons, PreferenceData
from relpref.data.arrays import counted, listed, nearest, shown
from relpref.data.columns import COLUMNS, Rows
from relpref.data.covariates import Covariate, asked_covariates, both_sides
from relpref.data.forms import known_columns
from relpref.data.labels import LabelIndex, in_labels, is_missing
from relpref.data.tables import (
    Table,
    as_table,
    check_columns,
    is_table,
    known_names,
    renamed,
    unused_note,
)
from relpref.errors import DataError, UnknownLabelError
from relpref.likelihoods.answers import GROUP_SD, SPREADS
from relpref.posterior.gaussian import Belief, Floats, Margins
from relpref.posterior.tiers import TIER_PROBABILITY, tier_columns
from relpref.result import warn_user

Positions = NDArray[np.int32]
_ENDS = ("first", "second")
# Columns of tables of questions that are ignored without a warning: outcomes, groups, lists and
# predictions.
_NOT_ASKED = (*COLUMNS, "result", "p_better", "gap_mean", "gap_sd", "score")


def question_table(value: Any, answers: Comparisons) -> Table:
    """Read a table of questions; its items are in ``first`` and ``second`` afterwards.

    Parameters
    ----------
    value : table
        The items are in the columns ``first`` and ``second``, or ``winner`` and ``loser``, or in
        the only two columns. ``rater``, ``shown_first`` and the columns of covariates are as in
        tables of answers.
    answers : Comparisons
        The answers of the posterior, which say what covariates there are.

    Returns
    -------
    Table
        Its ``notes`` name the columns that are not used. Columns of unknown meaning also raise a
        warning.

    Raises
    ------
    DataError
        If there are no columns of the two items, if a column is there twice, or if its name is
        nearly that of a column that would be used.
    """
    others = known_columns([covariate.name for covariate in answers.covariates_are])
    table = known_names(as_table(value, "pairs"), (*_ENDS, *COLUMNS, "home", *others))
    columns, ends = list(table.frame.columns), _ends_of(table)
    names = dict(zip(_ENDS, ends, strict=True))
    for covariate in answers.covariates_are:
        names |= zip(covariate.columns(_ENDS), covariate.columns(ends), strict=True)
    asked = (*names.values(), "rater", "shown_first", *(["home"] if "home" in columns else []))
    notes = check_columns(table, ends, asked, others)
    unknown = [column for column in columns if column not in (*asked, *_NOT_ASKED)]
    if unknown:
        warn_user(f"{table.name}: {unused_note(unknown)}")
    table = renamed(table, {ours: theirs for ours, theirs in names.items() if theirs in columns})
    return replace(table, notes=tuple(f"{table.name}: {note}" for note in notes))


def _ends_of(table: Table) -> tuple[Any, ...]:
    """Return the names of the two columns with the items of each pair."""
    columns = list(table.frame.columns)
    for ends in (_ENDS, ("winner", "loser")):
        if set(ends) <= set(columns):
            return ends
    if len(columns) == 2:
        return tuple(columns)
    raise DataError(
        f"{table.name}: there are no columns 'first' and 'second' among {listed(columns)}; rename "
        "those of the two items"
    )


def questions(
    data: PreferenceData,
    first: Positions,
    second: Positions,
    rater: Any = None,
    shown_first: Any = None,
    covariates: Mapping[str, Any] | None = None,
    table: Table | None = None,
) -> Comparisons:
    """Questions as `Comparisons` with placeholders for the answers, of k pairs.

    Parameters
    ----------
    data : PreferenceData
        Its answers say which columns questions have.
    first, second : array of int32, shape (k,)
        Positions of the items.
    rater : label or sequence of labels, optional
        Who answers all, or each. By default a typical rater, who has the position −1 if others are
        named, and who leaves the column out if not.
    shown_first : label, "first", "second" or a sequence of these, optional
        The item of each pair that is shown first. By default positions have no effect.
    covariates : mapping, optional
        Covariates of the two sides, see `asked_covariates`. By default they are equal.
    table : Table, optional
        A table of the pairs, see `question_table`: its columns may give the same as the arguments.
    """
    answers, given = data.comparisons, dict(covariates or {})
    sides = answers.covariates_are
    if table is not None:
        for name, argument in {"rater": rater, "shown_first": shown_first, **given}.items():
            if argument is not None and name in table.frame:
                both = "is given in a column and as an argument; leave one of the two out"
                raise DataError(f"{table.name}: {name!r} {both}")
        rater = _labels_in(table, "rater", rater)
        shown_first = _labels_in(table, "shown_first", shown_first)
        if "home" in table.frame and not any(covariate.name == "home" for covariate in sides):
            given["home"] = table.frame["home"]  # which is refused
    columns: dict[str, Any] = {
        name: np.zeros((len(first), *column.shape[1:]), column.dtype)
        if COLUMNS[name].asked
        else None
        for name, column in answers.columns.items()
    }
    columns |= {"winner": first, "loser": second}
    if rater is not None:
        places = places_of_raters(answers, rater, len(first))
        columns["rater"] = places if np.any(places >= 0) else None
    if shown_first is not None:
        if answers.shown_first is None:
            raise DataError(
                "shown_first is given, but the answers do not say which item was shown first; "
                "leave it out, or fit answers with a column shown_first"
            )
        columns["shown_first"] = _shown_first(data, first, second, shown_first)
    items, ends = data._label_index, (first, second)
    if given:
        columns["covariates"] = asked_covariates(sides, given, items, ends)
    if table is not None and sides:
        differences = np.subtract(*both_sides(Rows(table, items, _ENDS, *ends), sides))
        columns["covariates"] = columns["covariates"] + differences
    return replace(answers, **columns)


def _labels_in(table: Table, column: str, otherwise: Any) -> Any:
    """Labels in the cells of a column, None if blank; ``otherwise`` if there is no such column."""
    if column not in table.frame:
        return otherwise
    cells, rows = [None] * len(table.frame), np.flatnonzero(~table.blank(column))
    for row, label in zip(rows, table.labels(column, rows), strict=True):
        cells[row] = label
    return cells


def rows_of(asked: Comparisons, effects: int) -> tuple[NDArray[np.integer[Any]], Floats]:
    """Coefficients of each question's gap, as sparse rows: columns and entries, shape (k, q + 2).

    The gap is linear in the vector of ``effects`` effects of covariates, followed by utilities: 1
    and −1 for the two items, and the differences of the q covariates over their scales.
    """
    ends = np.stack([asked.winner, asked.loser], axis=1) + effects
    signs = np.broadcast_to([1.0, -1.0], ends.shape)
    if not effects or asked.covariates is None or asked.covariate_scales is None:
        return ends, signs
    columns = np.broadcast_to(np.arange(effects), asked.covariates.shape)
    values = np.asarray(asked.covariates) / asked.covariate_scales
    return np.concatenate([columns, ends], axis=1), np.concatenate([values, signs], axis=1)


def of_its_raters(
    asked: Comparisons, parameters: Mapping[str, Any]
) -> tuple[Comparisons, dict[str, Any]]:
    """Give each of k answers a separate rater, with the parameters of the rater it has.

    Returns the answers, with raters 0 to k − 1, and the parameters, those of raters of shape
    (..., k). So the program that is compiled does not depend on the number of raters.
    """
    shared = {site: value for site, value in parameters.items() if site not in SPREADS}
    if asked.rater is None:
        return replace(asked, raters=()), shared
    of_raters = [site for site in parameters if site not in shared]
    separate = {site: np.asarray(parameters[site])[..., asked.rater] for site in of_raters}
    rows = len(asked.rater)
    asked = replace(asked, rater=np.arange(rows, dtype=np.int32), raters=tuple(range(rows)))
    return asked, shared | separate


def expectations(posterior: Any, asked: Comparisons, gaps: Margins) -> dict[str, Any]:
    """Expectations over the answers to k questions, arrays of shape (k,) by name of column.

    Parameters
    ----------
    posterior : UtilityPosterior
    asked : Comparisons
        The questions, see `questions`; the rater −1 is a typical one.
    gaps : Margins
        Posterior distributions of the gaps of the questions.
    """
    expected: dict[str, Any] = {}
    if asked.rater is not None and np.any(asked.rater < 0):
        for typical in (True, False):
            rows = np.flatnonzero((asked.rater < 0) == typical)
            columns: dict[str, Any] = {name: column[rows] for name, column in asked.columns.items()}
            some = replace(asked, **columns | ({"rater": None} if typical else {}))
            of_rows = replace(gaps, means=gaps.means[:, rows], variances=gaps.variances[:, rows])
            for name, values in expectations(posterior, some, of_rows).items():
                expected.setdefault(name, np.empty(len(asked.rater)))[rows] = values
        return expected
    model = posterior.likelihood
    parameters = {site: parameter_of(posterior, site) for site in sites_of_answers(posterior)}
    # The next answer is in a group of its own.
    variances = gaps.variances + np.square(parameters.pop(GROUP_SD, np.zeros(1)))[:, None]
    asked, parameters = of_its_raters(asked, parameters)
    predict = getattr(model, "predict", None)
    if predict is None:
        from relpref.likelihoods.comparison import predicted

        predict = partial(predicted, model)
    for at, weight in enumerate(gaps.weights):
        # A fixed parameter beside draws of the others has one value for all.
        given = {site: value[at if len(value) > 1 else 0] for site, value in parameters.items()}
        for name, value in predict(asked, gaps.means[at], variances[at], **given).items():
            expected[name] = expected.get(name, 0.0) + weight * value
    return {n: np.asarray(v) for n, v in expected.items() if n != "tie" or asked.tie is not None}


def sites_of_answers(posterior: Any) -> tuple[str, ...]:
    """Names of the hyperparameters on which the probabilities of answers depend."""
    model, answers = posterior.likelihood, posterior.data.comparisons
    shared = () if answers.group is None else (GROUP_SD,)
    return (*getattr(model, "sites", model.parameters)(answers), *shared)


def parameter_of(posterior: Any, site: str) -> Floats:
    """Draws of a hyperparameter, shape (K, ...), or its one value if fixed, shape (1, ...)."""
    if site not in posterior.hyperparameters:
        raise DataError(
            f"the posterior has no hyperparameter {site!r}, so the use of the columns of the "
            "answers is unknown; use a program of relpref.models, or leave the columns out"
        )
    fixed = np.asarray(posterior.hyperparameters[site])
    return np.asarray(posterior.hyperparameter_draws.get(site, fixed[None]))


def places_of_raters(answers: Comparisons, rater: Any, number: int) -> Positions:
    """Return the position of the rater of each question, shape (number,); −1 for a typical one.

    ``rater`` is one label for all, or a sequence with one for each. Unknown raters are refused.
    """
    if answers.rater is None:
        raise DataError(
            f"rater is {shown(rater)}, but the answers do not say who gave them; leave it out, or "
            "fit answers with a column rater"
        )
    several = isinstance(rater, list | np.ndarray | pd.Series)
    several = several or (isinstance(rater, tuple) and rater not in answers.raters)
    asked = list(rater) if several else [rater] * number
    if len(asked) != number:
        asked_of = f"{len(asked)} labels for {counted(number, 'question')}"
        raise DataError(f"rater has {asked_of}; give one for each, or one for all")
    raters = LabelIndex(answers.raters, str)
    places, blank = np.full(number, -1, dtype=np.int32), pd.isna(objects(asked))
    for row, label in enumerate(asked):
        places[row] = raters.get(label) if isinstance(label, Hashable) else -1
        if places[row] < 0 and not (several and blank[row]):
            close = nearest(label, answers.raters)
            hint = (
                f"nearest: {listed(close)}" if close else f"the raters are {listed(answers.raters)}"
            )
            where = f"rater[{row}]" if several else "rater"
            remedy = "give None" if several else "leave rater out"
            raise UnknownLabelError(
                f"{where}: {shown(label)} has given no answer; {hint}; {remedy} for a typical one"
            )
    return places


def _shown_first(
    data: PreferenceData, first: Positions, second: Positions, labels: Any
) -> NDArray[np.int8]:
    """Read which item of each pair is shown first: 1 the first, −1 the second, 0 if missing."""
    labels = [labels] * len(first) if np.ndim(labels) == 0 else list(labels)
    if len(labels) != len(first):
        raise DataError(
            f"shown_first has {len(labels)} labels for {len(first)} pairs; give one for each"
        )
    labels = in_labels(labels, data._label_index, first, second)
    ends = np.full(len(labels), -1, dtype=np.int32)
    named = [row for row, label in enumerate(labels) if not is_missing(label)]
    ends[named] = data.index([labels[row] for row in named])
    for row in named:
        if ends[row] not in (first[row], second[row]):
            raise DataError(
                f"shown_first[{row}] is {shown(labels[row])}, which is not in the pair; name one "
                "of its two"
            )
    return np.where(ends < 0, 0, np.where(ends == first, 1, -1)).astype(np.int8)


# Draws behind ranks: the error of a probability is at most 0.8 percentage points (one standard
# error).
RANK_DRAWS = 4000


def ranking_table(
    belief: Belief,
    labels: Iterable[Hashable],
    interval: float,
    rng: np.random.Generator | None,
    name: str,
) -> pd.DataFrame:
    """Mean, sd and interval of each entry, by label, highest first; with ``rng`` also its rank."""
    check_interval(interval)
    ranks = {} if rng is None else _rank_columns(belief, interval, rng)
    return _ranked(belief, summaries(belief, interval) | ranks, labels, name)


def _ranked(
    belief: Belief, columns: Mapping[str, Any], labels: Iterable[Hashable], name: str
) -> pd.DataFrame:
    """Table of entries by label, the highest mean first."""
    table = pd.DataFrame(columns, index=label_index(labels, name))
    return table.iloc[np.argsort(-belief.mean(), kind="stable")]


def effect_units(covariates: Sequence[Covariate], scales: Floats) -> Floats:
    """Matrix that turns effects of scaled covariates into effects of one unit, shape (q, q).

    From the effects of the levels of a category it subtracts their average.
    """
    weights, start = np.diag(1 / scales), 0
    for covariate in covariates:
        levels = slice(start, start + len(covariate.effects))
        if covariate.kind == "category":
            weights[levels, levels] -= 1 / len(covariate.levels)
        start = levels.stop
    return weights


def effects_table(effects: Belief, names: Iterable[str], interval: float) -> pd.DataFrame:
    """Mean, sd, interval and sign of effects by name; columns as in `summaries`."""
    columns = summaries(effects, interval) | {"p_positive": effects.positive()}
    return pd.DataFrame(columns, index=label_index(names, "effect"))


def tier_table(
    belief: Belief, labels: Iterable[Hashable], probability: float, name: str
) -> pd.DataFrame:
    """Tier and simultaneous rank interval of each entry, by label, highest first."""
    if not 0 < probability < 1:
        raise DataError(
            f"probability is {probability}; it is a probability between 0 and 1, such as 0.95"
        )
    return _ranked(belief, tier_columns(belief, probability), labels, name)


def ranking_of_the_best(
    belief: Any, labels: Sequence[Hashable], interval: float, top: int
) -> pd.DataFrame:
    """Ranking of utilities minus their average, without forming the (n, n) covariance.

    Each sd takes a solve: the columns sd, lower and upper are NaN after the first ``top`` rows.
    """
    if isinstance(top, bool) or not isinstance(top, int | np.integer) or top < 0:
        raise DataError(
            f"top is {top!r}; give a whole number from 0, the number of best items with intervals"
        )
    means = belief.mean() - belief.mean().mean()
    order = np.argsort(-means, kind="stable")
    sds, reach = np.full(belief.size, np.nan), float(ndtri(0.5 + interval / 2))
    best = order[:top]
    if len(best) and np.all(np.isfinite(means)):
        _, sds[: len(best)] = belief.relative(best)
    mean = means[order]
    columns = {"mean": mean, "sd": sds, "lower": mean - reach * sds, "upper": mean + reach * sds}
    return pd.DataFrame(columns, index=label_index((labels[at] for at in order), "item"))


def summaries(belief: Belief, interval: float) -> dict[str, Any]:
    """Columns mean, sd, lower and upper of every entry, by name; the last two are its interval."""
    lower, upper = belief.interval(interval)
    return {"mean": belief.mean(), "sd": belief.sd(), "lower": lower, "upper": upper}


def preference_table(
    pairs: Sequence[Any], expected: Mapping[str, Any], margins: Margins
) -> pd.DataFrame:
    """Table of pairs, what is expected of the answers to them, and the gaps of their utilities."""
    ends = {
        name: objects(pair[end] for pair in pairs) for end, name in enumerate(("first", "second"))
    }
    differences = {"p_better": margins.positive, "gap_mean": margins.mean, "gap_sd": margins.sd}
    return pd.DataFrame({**ends, **expected, **differences})


def check_interval(interval: float) -> None:
    """Refuse an interval that is not a probability between 0 and 1."""
    if not 0 < interval < 1:
        raise DataError(f"interval is {interval}; it is a probability between 0 and 1, such as 0.9")


def label_index(labels: Iterable[Any], name: str) -> pd.Index:
    """Index of labels; tuples are labels, too, and do not make a MultiIndex."""
    return pd.Index(objects(labels), name=name, tupleize_cols=False)


def objects(labels: Iterable[Any]) -> NDArray[Any]:
    """Array of labels of dtype object, shape (n,); a tuple is one entry."""
    return np.fromiter(labels, dtype=object)


def _rank_columns(belief: Belief, interval: float, rng: np.random.Generator) -> dict[str, Any]:
    """Columns about the rank of every entry, from draws; NaN if draws are not finite."""
    draws = belief.draw(RANK_DRAWS, rng)
    if not np.all(np.isfinite(draws)):
        nothing = np.full(belief.size, np.nan)
        return dict.fromkeys(
            ("expected_rank", "rank_lower", "rank_upper", "p_best", "tier"), nothing
        )
    ranks = _ranks(draws, rng)
    tail = (1 - interval) / 2
    lower, upper = np.quantile(ranks, [tail, 1 - tail], axis=0, method="inverted_cdf").astype(int)
    return {
        "expected_rank": ranks.mean(axis=0),
        "rank_lower": lower,
        "rank_upper": upper,
        "p_best": (ranks == 1).mean(axis=0),
        "tier": tier_columns(belief, TIER_PROBABILITY)["tier"],
    }


def _ranks(draws: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    """Rank of every entry in every draw, same shape, 1 for the highest; ties in random order."""
    order = np.argsort(-draws, axis=1)
    if np.any(np.diff(np.take_along_axis(draws, order, axis=1), axis=1) == 0):
        order = np.lexsort((rng.random(draws.shape), -draws), axis=1)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(1, draws.shape[1] + 1)[None, :], axis=1)
    return ranks


def pairs_of_labels(pairs: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Return the pairs of labels in a list, a table, or a single pair of texts."""
    if is_table(pairs):
        table = as_table(pairs, "pairs")
        pairs = zip(*map(table.labels, _ends_of(table)), strict=True)
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise DataError(
            f"pairs is {pairs!r}; give a list of pairs of labels, for example [('a', 'b')]"
        )
    listed = list(pairs)
    if len(listed) == 2 and all(isinstance(label, str) for label in listed):
        listed = [(listed[0], listed[1])]
    for row, pair in enumerate(listed):
        if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2:
            raise DataError(
                f"pairs[{row}] is {pair!r}; each pair is two labels, for example ('a', 'b')"
            )
    return [(pair[0], pair[1]) for pair in listed]
