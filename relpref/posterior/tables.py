"""The tables of posteriors: rankings, and predictions of the next answers."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from relpref.compiled import float64
from relpref.data import Comparisons, PreferenceData
from relpref.data.arrays import counted, listed, nearest, shown
from relpref.data.columns import COLUMNS, Rows
from relpref.data.covariates import Covariate, asked_covariates, both_sides
from relpref.data.forms import known_columns
from relpref.data.labels import LabelIndex, is_missing
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
from relpref.likelihoods import AnswerModel
from relpref.likelihoods.answers import GROUP_SD, SPREADS
from relpref.posterior.gaussian import Belief, Floats, Margins
from relpref.posterior.tiers import TIER_PROBABILITY, tier_columns
from relpref.result import warn_user

Positions = NDArray[np.int32]
_ENDS = ("first", "second")
# Columns that tables of pairs may have and that are no part of a question: outcomes, what answers
# have in common, and predictions.
_NOT_ASKED = (*COLUMNS, "result", "p_better", "gap_mean", "gap_sd", "score")


def question_table(value: Any, answers: Comparisons) -> Table:
    """Read a table of questions; its items are in ``first`` and ``second`` afterwards.

    Parameters
    ----------
    value : table
        Its items are in ``first`` and ``second``, or in ``winner`` and ``loser``, or in its only
        two columns. ``rater``, ``shown_first`` and the columns of covariates are as in tables of
        answers.
    answers : Comparisons
        Answers so far, which have the covariates.

    Returns
    -------
    Table
        Its ``notes`` name the columns that are not used; those that mean nothing here raise a
        warning.

    Raises
    ------
    DataError
        If there are no columns of the two items, or a column is there twice or nearly has the name
        of one that would be used.
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
    """Return the names of the two columns of items of a table of pairs."""
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
    """Questions as answers of the data's kind.

    There is one rater, or one for each pair; a typical rater, the default, has the position −1
    among others. By default there is no position, and covariates are equal. The columns of a
    ``table`` of the pairs are used as the arguments are, see `question_table`.
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
    """Labels in a column, None for blank cells; ``otherwise`` without the column."""
    if column not in table.frame:
        return otherwise
    cells, rows = [None] * len(table.frame), np.flatnonzero(~table.blank(column))
    for row, label in zip(rows, table.labels(column, rows), strict=True):
        cells[row] = label
    return cells


def rows_of(
    asked: Comparisons, effects: int
) -> tuple[NDArray[np.integer[Any]], NDArray[np.float64]]:
    """Columns and entries of gaps in a vector of effects of covariates and utilities."""
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
    """Answers as if each came from a rater of its own.

    The number of raters must not matter to what is compiled.
    """
    shared = {site: value for site, value in parameters.items() if site not in SPREADS}
    if asked.rater is None:
        return replace(asked, raters=()), shared
    of_raters = [site for site in parameters if site not in shared]
    separate = {site: np.asarray(parameters[site])[..., asked.rater] for site in of_raters}
    rows = len(asked.rater)
    asked = replace(asked, rater=np.arange(rows, dtype=np.int32), raters=tuple(range(rows)))
    return asked, shared | separate


def expectations(
    posterior: Any, model: AnswerModel, answers: Comparisons, asked: Comparisons, gaps: Margins
) -> dict[str, Any]:
    """Expectations over the next answers, shape (k,), by column.

    The posterior was learned from ``answers``. Questions to typical raters have no rater.
    """
    expected: dict[str, Any] = {}
    if asked.rater is not None and np.any(asked.rater < 0):
        for typical in (True, False):
            rows = np.flatnonzero((asked.rater < 0) == typical)
            columns: dict[str, Any] = {name: column[rows] for name, column in asked.columns.items()}
            some = replace(asked, **columns | ({"rater": None} if typical else {}))
            of_rows = replace(gaps, means=gaps.means[:, rows], variances=gaps.variances[:, rows])
            for name, values in expectations(posterior, model, answers, some, of_rows).items():
                expected.setdefault(name, np.empty(len(asked.rater)))[rows] = values
        return expected
    shared = [] if answers.group is None else [GROUP_SD]
    sites = (*getattr(model, "sites", model.parameters)(answers), *shared)
    parameters = {site: parameter_of(posterior, site) for site in sites}
    # The next answer is in a group of its own.
    variances = gaps.variances + np.square(parameters.pop(GROUP_SD, np.zeros(1)))[:, None]
    asked, parameters = of_its_raters(asked, parameters)
    predict = getattr(model, "predict", None)
    if predict is None:
        from relpref.likelihoods.comparison import predicted

        with float64():
            expected = predicted(model, asked, parameters, gaps.means, variances, gaps.weights)
    else:
        for at, weight in enumerate(gaps.weights):
            # A fixed parameter beside draws of the others has one value for all.
            given = {site: value[at if len(value) > 1 else 0] for site, value in parameters.items()}
            for name, value in predict(asked, gaps.means[at], variances[at], **given).items():
                expected[name] = expected.get(name, 0.0) + weight * value
    return {n: np.asarray(v) for n, v in expected.items() if n != "tie" or asked.tie is not None}


def parameter_of(posterior: Any, site: str) -> Floats:
    """Values of a hyperparameter by component, shape (K, ...), or one, shape (1, ...)."""
    if site not in posterior.hyperparameters:
        raise DataError(
            f"the posterior has no hyperparameter {site!r}, so the use of the columns of the "
            "answers is unknown; use a program of relpref.models, or leave the columns out"
        )
    fixed = np.asarray(posterior.hyperparameters[site])
    return np.asarray(posterior.hyperparameter_draws.get(site, fixed[None]))


def places_of_raters(answers: Comparisons, rater: Any, number: int) -> Positions:
    """Positions of raters, of one for all or of one for each question, −1 of a typical one."""
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
    data: PreferenceData, first: Positions, second: Positions, labels: Iterable[Any]
) -> NDArray[np.int8]:
    labels = [labels] if isinstance(labels, str) else list(labels)
    if len(labels) != len(first):
        raise DataError(
            f"shown_first has {len(labels)} labels for {len(first)} pairs; give one for each"
        )
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
    """Entries of a distribution, highest first, by label; ranks need a generator."""
    check_interval(interval)
    ranks = {} if rng is None else _rank_columns(belief, interval, rng)
    table = pd.DataFrame(summaries(belief, interval) | ranks, index=label_index(labels, name))
    return table.iloc[np.argsort(-table["mean"].to_numpy(), kind="stable")]


def effect_units(
    covariates: Sequence[Covariate], scales: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Matrix from effects to the effects of one unit of each covariate, shape (q, q).

    The average over its levels is subtracted from the effects of a category.
    """
    weights, start = np.diag(1 / scales), 0
    for covariate in covariates:
        levels = slice(start, start + len(covariate.effects))
        if covariate.kind == "category":
            weights[levels, levels] -= 1 / len(covariate.levels)
        start = levels.stop
    return weights


def effects_table(
    belief: Belief, covariates: Sequence[Covariate], scales: NDArray[np.float64], interval: float
) -> pd.DataFrame:
    """Effects of covariates for one unit, by name; those of a category less their average."""
    size, seen = belief.size, belief.project(effect_units(covariates, scales))
    columns = summaries(seen, interval) | {
        "p_positive": seen.rows(np.arange(size)[:, None], np.ones((size, 1))).positive
    }
    names = [name for covariate in covariates for name in covariate.effects]
    return pd.DataFrame(columns, index=label_index(names, "effect"))


def tier_table(
    belief: Belief,
    labels: Iterable[Hashable],
    probability: float,
    rng: np.random.Generator,
    name: str,
) -> pd.DataFrame:
    """Tiers and simultaneous rank intervals, highest first, by label."""
    if not 0 < probability < 1:
        raise DataError(
            f"probability is {probability}; it is a probability between 0 and 1, such as 0.95"
        )
    draws = belief.draw(RANK_DRAWS, rng)
    columns: dict[str, Any] = dict.fromkeys(("tier", "rank_lower", "rank_upper"), np.nan)
    if np.all(np.isfinite(draws)):
        columns = tier_columns(belief, _ranks(draws, rng), probability)
    table = pd.DataFrame(columns, index=label_index(labels, name))
    return table.iloc[np.argsort(-belief.mean(), kind="stable")]


def ranking_of_the_best(
    belief: Any, labels: Sequence[Hashable], interval: float, top: int
) -> pd.DataFrame:
    """Ranking relative to the average, without a matrix.

    Columns sd, lower and upper are NaN below the first ``top`` rows.
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
    """Columns about every entry."""
    lower, upper = belief.interval(interval)
    return {"mean": belief.mean(), "sd": belief.sd(), "lower": lower, "upper": upper}


def preference_table(
    pairs: Sequence[Any], expected: Mapping[str, Any], margins: Margins
) -> pd.DataFrame:
    """Pairs, what is expected of their next answers, and their differences."""
    ends = {
        name: objects(pair[end] for pair in pairs) for end, name in enumerate(("first", "second"))
    }
    differences = {"p_better": margins.positive, "gap_mean": margins.mean, "gap_sd": margins.sd}
    return pd.DataFrame({**ends, **expected, **differences})


def check_interval(interval: float) -> None:
    """Refuse what is no probability."""
    if not 0 < interval < 1:
        raise DataError(f"interval is {interval}; it is a probability between 0 and 1, such as 0.9")


def label_index(labels: Iterable[Any], name: str) -> pd.Index:
    """Index of a table; tuples are labels, too."""
    return pd.Index(objects(labels), name=name, tupleize_cols=False)


def objects(labels: Iterable[Any]) -> np.ndarray[Any, Any]:
    """Array of labels as they are, tuples included."""
    return np.fromiter(labels, dtype=object)


def _rank_columns(belief: Belief, interval: float, rng: np.random.Generator) -> dict[str, Any]:
    """Summaries of the rank of every entry, from draws."""
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
        "tier": tier_columns(belief, ranks, TIER_PROBABILITY)["tier"],
    }


def _ranks(draws: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Rank of every entry in every draw, 1 for the highest; ties are in random order."""
    order = np.argsort(-draws, axis=1)
    if np.any(np.diff(np.take_along_axis(draws, order, axis=1), axis=1) == 0):
        order = np.lexsort((rng.random(draws.shape), -draws), axis=1)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(1, draws.shape[1] + 1)[None, :], axis=1)
    return ranks


def pairs_of_labels(pairs: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Return the pairs that a question is about."""
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
