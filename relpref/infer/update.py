"""A posterior after a few answers more, or a few less."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import jax.numpy as jnp
import numpy as np
import pandas as pd

from relpref.data import Comparisons, PreferenceData
from relpref.data.answer_changes import Change, added, withdrawn
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.belief import Floats, GaussianBelief
from relpref.infer.faces import plain
from relpref.infer.importance import MIN_EFFECTIVE, POINTS_INFO, effective
from relpref.infer.integrate import DRAWS_INFO
from relpref.infer.large.belief import ImplicitBelief
from relpref.infer.large.quick import ImplicitRankOne
from relpref.infer.mixture import MixtureBelief
from relpref.infer.observed import unwrap
from relpref.infer.posterior import Origin
from relpref.infer.quick import RankOne, Site, match, stacked
from relpref.infer.quick import error as quick_error
from relpref.infer.ranks import objects, pairs_of_labels
from relpref.infer.refit import engine_again
from relpref.infer.warn import InferenceWarning
from relpref.likelihoods.models import PLATES

if TYPE_CHECKING:
    from relpref.infer.utility_posterior import UtilityPosterior

Hyperparameters = Literal["keep", "refit", "schedule"]

# Of ``info``: answers that came by rank-one changes since EP last settled, and answers when hyperparameters were last fitted.
QUICK, FITTED = "quick_answers", "answers_at_fit"
QUICK_ERROR = "quick_error"  # see `relpref.infer.quick.error`
_MOST_ERROR = 0.05  # posterior sds: beyond, quick changes are replaced by a full update
GUESSED = "guessed"  # hyperparameters that were never fitted
_CHECKED = 4  # heaviest components of a mixture, whose error is estimated
_SAME_SITE = 1e-2  # relative difference of sites that are one but for the tolerance they were found with
_OF_THE_SEARCH = (
    "hyperparameters",
    "evaluations",
    "gradient_norm",
    "failed_evaluations",
    "log_prior",
    "searched_answers",
    "at_boundary",
    "alike_parts",
)

_Step = tuple[bool, Comparisons, Change]  # whether answers were added, which, and what they came to


def update(
    posterior: "UtilityPosterior",
    answers: Any,
    withdraw: Any,
    quick: bool,
    hyperparameters: Hyperparameters,
    progress_bar: bool,
) -> "UtilityPosterior":
    """See `UtilityPosterior.update`."""
    if hyperparameters not in ("keep", "refit", "schedule"):
        raise DataError(f"hyperparameters is {hyperparameters!r}; it is 'keep', 'refit' or 'schedule'")
    if posterior.origin is None or not posterior.origin.engine:
        raise UnsupportedProgramError(
            "update needs a posterior from EP or Laplace that knows its program; "
            "fit with one of them in this session, or with a program of relpref.models before saving"
        )
    changes: list[_Step] = []
    data = posterior.data
    for table, change in ((answers, added), (withdraw, withdrawn)):
        if table is None:
            continue
        given = _answers(data, table)
        found = change(data.comparisons, given, data.entities)
        data = replace(data, comparisons=found.answers, answered=True)
        changes.append((change is added, given, found))
    values = _parameters(posterior, data.comparisons)
    if quick:
        if hyperparameters != "keep":
            raise DataError(
                f"hyperparameters is {hyperparameters!r}; quick=True keeps them: leave one of the two out"
            )
        return _quickly(posterior, data, changes, values)
    return _fully(posterior, data, changes, values, hyperparameters, progress_bar)


def due(posterior: "UtilityPosterior", answers: int) -> bool:
    """Whether hyperparameters are to be fitted again: the answers have changed by a quarter, and by five at least."""
    known = _fitted(posterior)
    return abs(answers - known) >= max(5, known / 4)


def _answers(data: PreferenceData, table: Any) -> Comparisons:
    """A table of answers, or a list of pairs, winner first; raters that are known keep their places."""
    if not isinstance(table, pd.DataFrame):
        if isinstance(table, str) or not isinstance(table, Iterable):
            raise DataError(
                f"answers is {table!r}; give a table with the columns winner and loser, or a list of pairs, winner first"
            )
        pairs = pairs_of_labels(table)
        table = pd.DataFrame(
            {name: objects(pair[end] for pair in pairs) for end, name in enumerate(("winner", "loser"))}
        )
    if not len(table):
        return data.select_comparisons([]).comparisons
    return data.with_comparisons(table).comparisons


def _parameters(posterior: "UtilityPosterior", answers: Comparisons) -> dict[str, Any]:
    """The hyperparameters; those of columns, raters and strengths that nobody knew before are at their prior's median."""
    values = dict(posterior.hyperparameters)
    for site, prior in posterior.likelihood.parameters(answers).items():
        shape = (len(answers.raters),) if site in PLATES else prior.shape()
        known = np.asarray(values.get(site, np.zeros((0,) if shape else ())), dtype=np.float64)
        if site in values and (known.shape == shape or not known.shape):
            continue
        # A vector's prior is that of each of its entries.
        middle = float(np.ravel(unwrap(prior).icdf(jnp.asarray(0.5)))[0])
        values[site] = np.concatenate([known, np.full(shape[0] - len(known), middle)]) if shape else middle
    return values


def _quickly(
    posterior: "UtilityPosterior", data: PreferenceData, changes: list[_Step], values: dict[str, Any]
) -> "UtilityPosterior":
    """One rank-one change for every answer; see `relpref.infer.quick`."""
    belief = posterior.belief
    assert isinstance(belief, GaussianBelief | MixtureBelief | ImplicitBelief)  # those of engines
    _check_gaps(posterior)
    moving = ImplicitRankOne(belief) if isinstance(belief, ImplicitBelief) else RankOne(belief)
    sites = {name: np.atleast_2d(value) for name, value in posterior.sites.items()}
    parameters = _by_component(posterior, values, data.comparisons)
    known, number, gained = posterior.data.comparisons, 0, 0.0
    for is_more, given, (answers, before, rows) in changes:
        precision, shift = stacked(sites, before)
        copies = (
            np.where(before >= 0, known.count[before], 0).astype(np.float64)
            if len(known.count)
            else np.zeros(len(before))
        )
        for at, row in enumerate(rows):
            ends = int(given.winner[at]), int(given.loser[at])
            for _ in range(int(given.count[at])):
                number += 1
                if not is_more:
                    moving.remove(*ends, Site(sites["precision"][:, row], sites["shift"][:, row]))
                site, chance = match(posterior.likelihood, parameters, given, at, moving.gap(*ends))
                gained += moving.weigh(chance if is_more else -chance)
                if not is_more:
                    continue
                moving.add(*ends, site)
                # Copies of an answer share one site: what they say together stays as it is.
                copies[row] += 1
                precision[:, row] += (site.precision - precision[:, row]) / copies[row]
                shift[:, row] += (site.shift - shift[:, row]) / copies[row]
        sites, known = {"precision": precision, "shift": shift}, answers
    found = moving.belief()
    error = float("nan")  # of many entities it would take a solve for each answer
    if not isinstance(found, ImplicitBelief):
        at_mode = posterior.info["engine"] != "EP"
        parts = found.components if isinstance(found, MixtureBelief) else [found]
        heaviest = np.argsort(-found.weights)[:_CHECKED]
        error = max(
            quick_error(
                posterior.likelihood,
                {name: value[at] for name, value in parameters.items()},
                data.comparisons,
                {name: value[at] for name, value in sites.items()},
                parts[at],
                at_mode,
            )
            for at in heaviest
        )
        if error > _MOST_ERROR:
            return _fully(posterior, data, changes, values, "keep", False)
    info = {
        **posterior.info,
        FITTED: _fitted(posterior),
        QUICK: int(posterior.info.get(QUICK, 0)) + number,
        "residual": float("nan"),
        QUICK_ERROR: error,
    }
    guessed = _guessed(posterior, values)
    if guessed:
        info[GUESSED] = guessed
    log_evidence = None
    if posterior.hyperparameter_draws:
        draws = posterior.hyperparameter_draws
        values |= {name: plain(np.tensordot(found.weights, value, axes=1)) for name, value in draws.items()}
        info["effective_points"] = effective(np.log(found.weights))
        log_evidence = None if posterior.log_evidence is None else posterior.log_evidence + gained
    return replace(
        posterior,
        data=data,
        belief=found,
        parts={},
        sites=sites if posterior.hyperparameter_draws else {name: value[0] for name, value in sites.items()},
        hyperparameters=values,
        log_evidence=log_evidence,
        info=info,
        origin=_origin(posterior, data),
    )


def _by_component(
    posterior: "UtilityPosterior", values: Mapping[str, Any], answers: Comparisons
) -> dict[str, Any]:
    """Parameters of the likelihood in each of the K components, shape (K, ...)."""
    number, draws = len(posterior.belief.weights), posterior.hyperparameter_draws
    parameters = {}
    for site in posterior.likelihood.parameters(answers):
        if site in values:
            value = np.asarray(values[site], dtype=np.float64)
            same = np.broadcast_to(value, (number, *value.shape))
            parameters[site] = _widened(draws[site], value) if site in draws else same
    return parameters


def _check_gaps(posterior: "UtilityPosterior") -> None:
    """Refuse a program of one's own whose answers do not look at plain gaps by the posterior's likelihood.

    At a fixed point the sites say so themselves: each is what `match` makes of its cavity.
    """
    answers, sites = posterior.data.comparisons, posterior.sites
    if QUICK in posterior.info or not len(answers.winner):
        return
    belief = posterior.belief
    parameters = _by_component(posterior, posterior.hyperparameters, answers)
    for row in {0, len(answers.winner) // 2, len(answers.winner) - 1}:
        margins = belief.differences(answers.winner[row : row + 1], answers.loser[row : row + 1])
        mean, variance = margins.means[:, 0], margins.variances[:, 0]
        site = Site(*(np.atleast_2d(sites[name])[:, row] for name in ("precision", "shift")))
        left = 1 - variance * site.precision
        cavity = ((mean - variance * site.shift) / left, variance / left)
        if posterior.info["engine"] != "EP":  # Laplace: the curvature at the mode
            cavity = (mean, np.zeros_like(mean))
        found, _ = match(posterior.likelihood, parameters, answers, row, cavity)
        if not np.allclose(found, site, rtol=_SAME_SITE, atol=1e-2 * _SAME_SITE):
            raise UnsupportedProgramError(
                "quick=True is for programs whose answers look at gaps of utilities by the likelihood that they are given, as those of "
                "relpref.models do; leave quick out"
            )


def _fully(
    posterior: "UtilityPosterior",
    data: PreferenceData,
    changes: list[_Step],
    values: dict[str, Any],
    hyperparameters: Hyperparameters,
    progress_bar: bool,
) -> "UtilityPosterior":
    """The engine again, from the sites that there are."""
    origin = _origin(posterior, data)
    guessed = _guessed(posterior, values)
    again = hyperparameters == "refit" or (
        hyperparameters == "schedule" and (guessed or due(posterior, data.num_answers))
    )
    searched = "evaluations" in posterior.info or posterior.hyperparameter_draws

    def refitted() -> "UtilityPosterior":
        engine = engine_again(origin, padding=True)
        sites = None if posterior.hyperparameter_draws else _carried(posterior, changes)
        found = engine.run_from(
            sites, posterior.key, *origin.args, progress_bar=progress_bar, at=values, **origin.kwargs
        )
        assert isinstance(found, type(posterior))
        return replace(found, origin=origin)

    if again and searched:
        return refitted()
    told = {name: posterior.info[name] for name in _OF_THE_SEARCH if name in posterior.info}
    told |= {
        FITTED: data.num_answers if again else _fitted(posterior),
        **({GUESSED: guessed} if guessed else {}),
    }
    if posterior.hyperparameter_draws:
        draws = {name: _widened(draw, values[name]) for name, draw in posterior.hyperparameter_draws.items()}
        fixed = {name: value for name, value in values.items() if name not in draws}
        told |= {name: posterior.info[name] for name in (*DRAWS_INFO, *POINTS_INFO) if name in posterior.info}
        engine = engine_again(origin, fixed=fixed, padding=True)
        given = {"info": told, "prior_log_weights": posterior.prior_log_weights, **origin.kwargs}
        with warnings.catch_warnings():
            if hyperparameters == "schedule":
                warnings.simplefilter("ignore", InferenceWarning)  # of weights that a refit is about to mend
            found = engine.run_at_draws(draws, posterior.key, *origin.args, **given)
        if posterior.log_evidence is None:  # of draws
            found = replace(found, log_evidence=None)
        if hyperparameters == "schedule" and found.info.get("effective_points", np.inf) < MIN_EFFECTIVE:
            return refitted()
    else:
        engine = engine_again(origin, fixed=values, padding=True)
        sites = _carried(posterior, changes)
        found = engine.run_from(
            sites, posterior.key, *origin.args, progress_bar=progress_bar, **origin.kwargs
        )
    assert isinstance(found, type(posterior))
    return replace(found, origin=origin, info={**found.info, **told})


def _carried(posterior: "UtilityPosterior", changes: list[_Step]) -> dict[str, Floats]:
    """The sites of the answers that stay; nothing is known yet of new ones."""
    sites = dict(posterior.sites)
    for _, _, change in changes:
        precision, shift = stacked(sites, change.before)
        sites = {"precision": precision, "shift": shift}
    return sites


def _widened(draws: Floats, value: Any) -> Floats:
    """Draws of a vector that has grown: what is new is the same in all of them."""
    size, shape = len(draws), np.shape(value)
    if draws.shape[1:] == shape:
        return draws
    grown = np.array(np.broadcast_to(value, (size, *shape)))
    grown[:, : draws.shape[1]] = draws
    return grown


def _guessed(posterior: "UtilityPosterior", values: dict[str, Any]) -> list[str]:
    """Hyperparameters that are new, and those that were before; a rater who is new is a typical one for a while."""
    new = values.keys() - posterior.hyperparameters.keys()
    return sorted(new | set(posterior.info.get(GUESSED, ())))


def _fitted(posterior: "UtilityPosterior") -> int:
    return int(posterior.info.get(FITTED, posterior.data.num_answers))


def _origin(posterior: "UtilityPosterior", data: PreferenceData) -> Origin:
    """How the program was called, with other data."""
    origin = posterior.origin
    assert origin is not None
    return origin.with_argument(posterior.data, data)
