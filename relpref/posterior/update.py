"""A posterior after a few answers more, or a few less."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from numpy.typing import ArrayLike, NDArray
from scipy.linalg.blas import dger
from scipy.special import logsumexp

from relpref.data import Comparisons, PreferenceData
from relpref.data.comparisons import Change, added, withdrawn
from relpref.data.marginal import induced
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.assemble import plain
from relpref.infer.engine import GaussianEngine
from relpref.infer.importance import MIN_EFFECTIVE, POINTS_INFO, effective
from relpref.infer.large.covariance import ImplicitBelief, PosteriorCovariance
from relpref.infer.program import padded_answers
from relpref.infer.result import InferenceWarning
from relpref.infer.search import DRAWS_INFO
from relpref.infer.sites import Cavity, Sites, matched
from relpref.likelihoods import AnswerModel, GaussianSite
from relpref.likelihoods.models import PLATES
from relpref.likelihoods.tilted import unwrap
from relpref.linalg import real
from relpref.posterior.base import Origin, Parts
from relpref.posterior.gaussian import Belief, Floats, GaussianBelief, MixtureBelief
from relpref.posterior.utility import objects, of_one_rater, pairs_of_labels
from relpref.registry import find

if TYPE_CHECKING:
    from relpref.posterior.utility import UtilityPosterior

_ROWS = 24  # whose change of precision is followed into the variances
_CERTAIN = 1e-12  # of the largest variance: below, a difference is known but for rounding


class Site(NamedTuple):
    """Natural parameters of one answer's site in each component: exp(ν x − ½ τ x²), x the gap less its prior mean, which is 0.

    Attributes
    ----------
    precision, shift : array, shape (K,)
    """

    precision: Floats
    shift: Floats


class RankOne:
    """A Gaussian belief, or a mixture of K of them, that is changed in place; the one that it starts from stays as it is."""

    def __init__(self, belief: GaussianBelief | MixtureBelief) -> None:
        locations, scales = belief.as_mixture()
        self._mean, self._covariance = locations.copy(), scales.copy()
        self._log_weights = np.log(belief.weights)

    def belief(self) -> GaussianBelief | MixtureBelief:
        if len(self._mean) == 1:
            return GaussianBelief(self._mean[0], self._covariance[0])
        weights = np.exp(self._log_weights - logsumexp(self._log_weights))
        return MixtureBelief(self._mean, self._covariance, weights)

    def gap(self, first: int, second: int) -> tuple[Floats, Floats]:
        """Mean and variance of u[first] − u[second], shape (K,)."""
        covariance = self._covariance
        variance = (
            covariance[:, first, first] + covariance[:, second, second] - 2 * covariance[:, first, second]
        )
        return self._mean[:, first] - self._mean[:, second], np.maximum(variance, 0.0)

    def weigh(self, log_probability: Floats) -> float:
        """Multiply the weights by the probability of an answer in each component; the log of its average."""
        before = float(logsumexp(self._log_weights))
        self._log_weights = self._log_weights + log_probability
        return float(logsumexp(self._log_weights)) - before

    def add(self, first: int, second: int, site: Site) -> None:
        """Multiply by a site: Σ − τ/(1 + τv) wwᵀ with w = Σa and v = aᵀΣa, a the difference of the two."""
        mean, variance = self.gap(first, second)
        left = 1 + site.precision * variance
        change = self._covariance[:, first] - self._covariance[:, second]
        self._mean += ((site.shift - site.precision * mean) / left)[:, None] * change
        weights = -site.precision / left
        for covariance, weight, column in zip(self._covariance, weights, change, strict=True):
            # A symmetric matrix in C order is one in Fortran's order: BLAS changes it where it lies.
            dger(weight, column, column, a=covariance.T, overwrite_a=True)

    def remove(self, first: int, second: int, site: Site) -> None:
        """Divide by a site that is in it."""
        self.add(first, second, Site(-site.precision, -site.shift))


def match(
    model: AnswerModel,
    parameters: Mapping[str, Any],
    answers: Comparisons,
    row: int,
    gap: tuple[Floats, Floats],
) -> tuple[Site, Floats]:
    """The site of an answer whose cavity is the gap's N(mean, variance) (XPGP section 4.1), and its log probability, shape (K,).

    Parameters
    ----------
    model : AnswerModel
    parameters : mapping from site to array, shape (K, ...)
    answers : Comparisons
    row : int
        Of the answer.
    gap : pair of arrays, shape (K,)
    """
    columns: dict[str, Any] = {name: column[row : row + 1] for name, column in answers.columns.items()}
    one, known = of_one_rater(
        Comparisons(**columns, raters=answers.raters, strengths=answers.strengths), parameters
    )
    with jax.enable_x64(True):
        sites, log_probability = _matched(model, one, known, *(value[:, None] for value in gap))
        return Site(*(np.asarray(value)[:, 0] for value in sites)), np.asarray(log_probability)[:, 0]


def quick_error(
    model: AnswerModel,
    parameters: Mapping[str, Any],
    answers: Comparisons,
    sites: Mapping[str, Floats],
    belief: GaussianBelief,
    at_mode: bool = False,
) -> float:
    """How far a Gaussian is from what its engine would find: the move of one sweep over all answers, to first order in the sites.

    Parameters
    ----------
    model, parameters, answers, sites
        Of the belief: every answer's likelihood, and the ``precision`` and ``shift`` of its site, row by row.
    belief : GaussianBelief
    at_mode : bool
        Whether sites touch the likelihood at the mean (Laplace) instead of matching moments of their cavities.

    Returns
    -------
    float
        The largest move of a utility relative to the average, or of a compared pair's gap, in sds, or relative change of such an sd.
        Infinite where a cavity is improper. O(n²).
    """
    if not len(answers.winner):
        return 0.0
    first, second, count = answers.winner, answers.loser, answers.count
    gaps = belief.differences(first, second)
    mean, variance = gaps.mean, np.square(gaps.sd)
    precision, shift = sites["precision"], sites["shift"]
    left = np.ones_like(mean) if at_mode else 1 - variance * precision
    if not np.all(left > 0):
        return np.inf
    cavity = (mean, 0 * mean) if at_mode else ((mean - variance * shift) / left, variance / left)
    with_room = padded_answers(answers)
    spare = (0, len(with_room.winner) - len(mean))
    with jax.enable_x64(True):
        given = {name: np.asarray(value)[None] for name, value in parameters.items()}
        found, _ = _matched(model, with_room, given, *(np.pad(each, spare)[None] for each in cavity))
        stiffer = count * (np.asarray(found.precision)[0, : len(mean)] - precision)
        pull = count * (np.asarray(found.shift)[0, : len(mean)] - shift) - stiffer * mean
    ends = np.zeros(belief.size)
    np.add.at(ends, first, pull)
    np.subtract.at(ends, second, pull)
    scale = belief.scale
    move = scale @ ends
    # What changes variances: few rows, of which one answer more is known than their sites take into account.
    rows = np.argsort(np.abs(stiffer * variance))[-_ROWS:]
    changes = scale[first[rows]] - scale[second[rows]]  # rows of a symmetric matrix lie together
    averages = scale.mean(axis=1)
    own = np.maximum(np.diagonal(scale) - 2 * averages + averages.mean(), 0.0)
    centred = changes - changes.mean(axis=1, keepdims=True)
    spread = (
        0.5 * stiffer[rows] @ np.square(centred),
        0.5 * stiffer[rows] @ np.square(changes[:, first] - changes[:, second]),
    )
    moves = move - move.mean(), move[first] - move[second]
    worst = 0.0
    for moved, narrower, before in zip(moves, spread, (own, variance), strict=True):
        known = before > _CERTAIN * own.max(initial=0.0)
        worst = max(worst, np.max(np.abs(moved[known]) / np.sqrt(before[known]), initial=0.0))
        worst = max(worst, np.max(np.abs(narrower[known]) / before[known], initial=0.0))
    return float(worst) if np.isfinite(worst) else np.inf


@partial(jax.jit, static_argnums=0)
def _matched(
    model: AnswerModel, one: Comparisons, parameters: Mapping[str, Array], mean: Array, variance: Array
) -> tuple[Sites, Array]:
    def component(given: Mapping[str, Array], mean: Array, variance: Array) -> tuple[Sites, Array]:
        likelihood = model(mean, one, **given)
        moments = likelihood.tilted(model.value(one), mean, variance)
        if isinstance(likelihood, GaussianSite):
            peak, precision = likelihood.gaussian_site(model.value(one))
            return Sites(precision, precision * peak), moments.log_normalizer
        return matched(Cavity(mean, variance), moments), moments.log_normalizer

    given = {name: real(value) for name, value in parameters.items()}
    return jax.vmap(component)(given, real(mean), real(variance))


def stacked(sites: Mapping[str, Floats], before: Any) -> tuple[Floats, Floats]:
    """Precision and shift of each row after a change along the last axis, 0 for a new one.

    ``before`` is as in `relpref.data.comparisons.Change`.
    """
    known = before >= 0
    precision, shift = np.zeros((2, *sites["precision"].shape[:-1], len(before)))
    precision[..., known] = sites["precision"][..., before[known]]
    shift[..., known] = sites["shift"][..., before[known]]
    return precision, shift


def engine_again(origin: Origin, program: Any = None, **changes: Any) -> GaussianEngine:
    """The engine of an origin with some of its options changed.

    Parameters
    ----------
    origin : Origin
        Of a posterior from an engine that is registered.
    program : callable, optional
        Instead of the origin's.
    **changes
        Options of the engine.
    """
    options = {**origin.engine, **changes}
    engine: GaussianEngine = find("engine", options.pop("engine"))(program or origin.program, **options)
    return engine


ABOUT = "about"  # of ``info``


def about(
    posterior: "UtilityPosterior", positions: NDArray[np.int64], *, parts: bool = True
) -> "UtilityPosterior":
    """See `UtilityPosterior.about`; ``positions`` ascend. What utilities are made of costs as much again as their covariance."""
    if len(positions) < 2:
        raise DataError(
            f"about takes two entities or more, not {len(positions)}: only differences mean something"
        )
    data, rows = induced(posterior.data, positions)
    belief = posterior.belief
    some: Belief
    if isinstance(belief, ImplicitBelief):
        some = belief.about(positions)
    else:
        some = belief.project(np.eye(belief.size)[positions])
    made_of = {site: _parts(belief, named, positions) for site, named in posterior.parts.items() if parts}
    info = {
        **posterior.info,
        ABOUT: f"{len(positions)} of {posterior.data.num_entities} entities",
    }
    (site,) = posterior.slices
    return replace(
        posterior,
        belief=some,
        slices={site: slice(0, len(positions))},
        parts=made_of,
        info=info,
        sites={name: np.asarray(value)[..., rows] for name, value in posterior.sites.items()},
        origin=None,
        data=data,
    )


def _parts(belief: Belief, parts: Parts, positions: NDArray[Any]) -> Parts:
    means = {name: mean[positions] for name, mean in parts.means.items()}
    if not isinstance(belief, ImplicitBelief):
        return Parts(means, {name: value[positions] for name, value in parts.covariances.items()})
    return Parts(means, belief.implicit.shares(positions))


@dataclass(frozen=True, eq=False)
class Changed(PosteriorCovariance):
    """Σ − W diag(c) Wᵀ: a covariance after k changes of rank one.

    Parameters
    ----------
    before : PosteriorCovariance
        Σ, of size n.
    columns : array, shape (n, k)
        W.
    weights : array, shape (k,)
        c; negative for an answer that was taken back.
    """

    before: PosteriorCovariance
    columns: Floats
    weights: Floats

    @property
    def size(self) -> int:
        return self.before.size

    def block(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        """Rows and columns of it, shape (r, c)."""
        left, right = self.columns[np.asarray(rows)], self.columns[np.asarray(columns)]
        return np.asarray(self.before.block(rows, columns) - (left * self.weights) @ right.T)

    def matmul(self, vectors: ArrayLike) -> Floats:
        seen = (self.columns.T @ np.asarray(vectors, dtype=np.float64)).T * self.weights
        return np.asarray(self.before.matmul(vectors) - self.columns @ seen.T)

    def row_means(self, rows: ArrayLike) -> Floats:
        """Covariance of some entries with the average of all."""
        return np.asarray(
            self.before.row_means(rows) - self.columns[np.asarray(rows)] @ (self.weights * self._average)
        )

    def average(self) -> float:
        """Variance of the average of all entries."""
        return float(self.before.average() - self.weights @ np.square(self._average))

    def relative_variance(self, rows: Any) -> Floats:
        """Variance of some entries less the average of all, shape (r,)."""
        found = (
            self.before.relative_variance(rows) - np.square(self.columns[rows] - self._average) @ self.weights
        )
        return np.maximum(found, 0.0)

    def scaled(self, factor: float) -> "Changed":
        """``factor`` times it."""
        scaled: Any = self.before.scaled(factor)
        return Changed(scaled, self.columns, factor * self.weights)

    def with_change(self, column: Floats, weight: float) -> "Changed":
        """Σ after one change more."""
        return Changed(self.before, np.column_stack([self.columns, column]), np.append(self.weights, weight))

    @property
    def _average(self) -> Floats:
        return np.asarray(self.columns.mean(axis=0))


class ImplicitRankOne:
    """A belief that is changed answer by answer, as `relpref.posterior.update.RankOne`; a product with the covariance for each.

    Parameters
    ----------
    belief : ImplicitBelief
        Stays as it is.
    """

    def __init__(self, belief: ImplicitBelief) -> None:
        self._belief = belief

    def belief(self) -> ImplicitBelief:
        return self._belief

    def gap(self, first: int, second: int) -> tuple[Floats, Floats]:
        """Mean and variance of u[first] − u[second], shape (1,)."""
        margins = self._belief.differences(np.array([first]), np.array([second]))
        return margins.mean, np.square(margins.sd)

    def weigh(self, log_probability: Floats) -> float:
        """There is one component; the log probability of an answer."""
        return float(log_probability[0])

    def add(self, first: int, second: int, site: Site) -> None:
        """Multiply by a site: Σ − τ/(1 + τv) wwᵀ with w = Σa and v = aᵀΣa, a the difference of the two."""
        implicit = self._belief.implicit
        difference = np.zeros(implicit.size)
        difference[first] += 1.0
        difference[second] -= 1.0
        change = implicit.matmul(difference)
        mean = float(self._belief.location[first] - self._belief.location[second])
        precision, shift = float(site.precision[0]), float(site.shift[0])
        left = 1 + precision * max(float(change[first] - change[second]), 0.0)
        none = np.zeros((implicit.size, 0))
        before = implicit if isinstance(implicit, Changed) else Changed(implicit, none, np.zeros(0))
        self._belief = ImplicitBelief(
            self._belief.location + (shift - precision * mean) / left * change,
            before.with_change(change, precision / left),
        )

    def remove(self, first: int, second: int, site: Site) -> None:
        """Divide by a site that is in it."""
        self.add(first, second, Site(-site.precision, -site.shift))


Hyperparameters = Literal["keep", "refit", "schedule"]

# Of ``info``: answers that came by rank-one changes since EP last settled, and answers when hyperparameters were last fitted.
QUICK, FITTED = "quick_answers", "answers_at_fit"
QUICK_ERROR = "quick_error"  # see `quick_error`
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
    """One rank-one change for every answer; see `relpref.posterior.update`."""
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
        QUICK: posterior.quick_answers + number,
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
    if posterior.quick_answers or not len(answers.winner):
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
    searched = posterior.searched or posterior.hyperparameter_draws

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
