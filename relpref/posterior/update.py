"""More answers, or fewer: by the engine again, or by a rank-one change for each, and how far these are from what it would find."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from scipy.special import logsumexp

from relpref.compiled import float64
from relpref.data import Comparisons, PreferenceData
from relpref.data.comparisons import Change, changed
from relpref.data.padding import padded_answers
from relpref.errors import UnsupportedProgramError
from relpref.infer.result import InferenceWarning
from relpref.infer.sampling import DRAWS_INFO
from relpref.infer.search import MIN_EFFECTIVE, POINT_TOLERANCE, POINTS_INFO, effective
from relpref.infer.sites import Cavity, Sites, matched
from relpref.lazy_jit import lazy_jit
from relpref.likelihoods import AnswerModel, GaussianSite
from relpref.likelihoods.answers import GROUP_SD, PLATES, weighted
from relpref.likelihoods.tilted import unwrap
from relpref.linalg import real
from relpref.models.preference import GROUP_SD_PRIOR
from relpref.posterior.base import FITTED
from relpref.posterior.gaussian import Floats, GaussianBelief, MixtureBelief
from relpref.posterior.origin import Origin
from relpref.posterior.tables import of_its_raters

Hyperparameters = Literal["keep", "refit", "schedule"]

GUESSED = "guessed"  # of ``info``: hyperparameters that were never fitted
_SITES = ("precision", "shift")
MAX_QUICK_ERROR = 0.05  # posterior sds: beyond, quick changes are replaced by a full update
_CHECKED = 4  # heaviest components of a mixture, whose error is estimated
_SAME_SITE = 1e-2  # relative difference of sites that are equal up to that of the hyperparameters
_ROWS = 24  # whose change of precision is followed into the variances
_CERTAIN = 1e-12  # of the largest variance: below, a difference is known up to rounding
_SEARCH_INFO = (
    "hyperparameters",
    "evaluations",
    "gradient_norm",
    "failed_evaluations",
    "log_prior",
    "searched_answers",
    "at_boundary",
    "alike_parts",
)


class Update:
    """A posterior of utilities with more answers, or without some; see `UtilityPosterior.update`."""

    def __init__(self, posterior: Any, answers: Any, withdraw: Any) -> None:
        self.posterior, self.data = posterior, posterior.data
        # Whether answers are taken back, which, and what they come to.
        self.steps: list[tuple[bool, Comparisons, Change]] = []
        for table, taken_back in ((answers, False), (withdraw, True)):
            if table is not None:
                some = _answers(self.data, table)
                change = changed(self.data.comparisons, some, self.data.labels, withdraw=taken_back)
                self.data = replace(self.data, comparisons=change.answers, answered=True)
                self.steps.append((taken_back, some, change))
        self.origin: Origin = posterior.origin.with_argument(posterior.data, self.data)
        self.values = self._values()
        # A rater who is new is a typical one for a while.
        new = self.values.keys() - posterior.hyperparameters.keys()
        names = sorted(new | set(posterior.info.get(GUESSED, ())))
        self.guessed = {GUESSED: names} if names else {}

    def _values(self) -> dict[str, Any]:
        """The hyperparameters; those of new columns, raters and strengths are at their prior's median."""
        answers, values = self.data.comparisons, dict(self.posterior.hyperparameters)
        priors = dict(self.posterior.likelihood.parameters(answers))
        if answers.group is not None:
            priors[GROUP_SD] = GROUP_SD_PRIOR
        for site, prior in priors.items():
            shape = (len(answers.raters),) if site in PLATES else prior.shape()
            if site in values and np.shape(values[site]) in (shape, ()):
                continue
            # A vector's prior is that of each of its entries.
            middle = float(np.ravel(unwrap(prior).icdf(jnp.asarray(0.5)))[0])
            before = np.asarray(values.get(site, ()), dtype=np.float64)
            rest = np.full(shape[0] - len(before), middle) if shape else None
            values[site] = middle if rest is None else np.concatenate([before, rest])
        return values

    def fully(self, hyperparameters: Hyperparameters, progress_bar: bool) -> Any:
        """The engine again, from the sites of the answers that stay; nothing is known yet of new ones."""
        posterior, origin, draws = self.posterior, self.origin, self.posterior.hyperparameter_draws
        scheduled = hyperparameters == "schedule"
        due = scheduled and (self.guessed or posterior.refit_is_due(self.data.num_answers))
        refit = hyperparameters == "refit" or due
        rows = np.stack([posterior.sites[name] for name in _SITES])
        for _, _, change in self.steps:
            rows = _moved(rows, change.before)
        sites = dict(zip(_SITES, rows, strict=True))

        def refitted() -> Any:
            start = None if draws else sites
            again = origin.run(start, posterior.key, progress_bar=progress_bar, at=self.values)
            return replace(again, origin=origin)

        if refit and (posterior.searched or draws):
            return refitted()
        told = kept_info(posterior, _SEARCH_INFO)
        told |= {FITTED: self.data.num_answers if refit else posterior.answers_at_fit, **self.guessed}
        with warnings.catch_warnings():
            if draws and scheduled:
                warnings.simplefilter("ignore", InferenceWarning)  # of weights that a refit is about to mend
            again = run_again(posterior, origin, sites, self.values, told, progress_bar)
        if draws and scheduled and again.effective_points < MIN_EFFECTIVE:
            return refitted()
        return replace(again, origin=origin, info={**again.info, **told})

    def quickly(self, max_error: float) -> Any:
        """One rank-one change for every answer, and a full update where these are off by more than ``max_error`` posterior sds."""
        posterior, likelihood, at_mode = self.posterior, self.posterior.likelihood, self.origin.engine.at_mode
        both = self.data.comparisons, posterior.data.comparisons
        shared = ("list", "group", "covariates")  # what answers share, and what is learned of it
        if any(getattr(each, name) is not None for each in both for name in shared):
            return self.fully("keep", False)
        self._check_gaps(at_mode)
        moving = RankOne(posterior.belief)
        sites = np.stack([np.atleast_2d(posterior.sites[name]) for name in _SITES])
        parameters = self._by_component(self.values, self.data.comparisons)
        before, number, gained = posterior.data.comparisons, 0, 0.0
        for taken_back, some, (answers, places, rows) in self.steps:
            moved = _moved(sites, places)
            copies = _moved(before.count[None], places)[0]
            for at, row in enumerate(rows):
                ends = int(some.winner[at]), int(some.loser[at])
                for _ in range(int(some.count[at])):
                    number += 1
                    if taken_back:
                        moving.add(*ends, -sites[:, :, row])
                    site, chance = match(likelihood, parameters, some, at, moving.gap(*ends))
                    gained += moving.weigh(-chance if taken_back else chance)
                    if not taken_back:
                        moving.add(*ends, site)
                        # Copies of an answer share one site: what they say together stays as it is.
                        copies[row] += 1
                        moved[:, :, row] += (site - moved[:, :, row]) / copies[row]
            sites, before = moved, answers
        belief = moving.belief()
        error = float("nan")  # of many items it would take a solve for each answer
        if not posterior.large:
            error = max(
                quick_error(
                    likelihood,
                    {name: value[at] for name, value in parameters.items()},
                    self.data.comparisons,
                    dict(zip(_SITES, sites[:, at], strict=True)),
                    belief.components[at],
                    at_mode,
                )
                for at in np.argsort(-belief.weights)[:_CHECKED]
            )
            if error > max_error:
                return self.fully("keep", False)
        info = {
            **posterior.info,
            FITTED: posterior.answers_at_fit,
            "quick_answers": posterior.quick_answers + number,
            "residual": float("nan"),
            "quick_error": error,
            **self.guessed,
        }
        log_evidence, draws, values = None, posterior.hyperparameter_draws, dict(self.values)
        if draws:
            averages = {name: np.tensordot(belief.weights, value, axes=1) for name, value in draws.items()}
            values |= {name: float(value) if value.ndim == 0 else value for name, value in averages.items()}
            info["effective_points"] = effective(np.log(belief.weights))
            log_evidence = None if posterior.log_evidence is None else posterior.log_evidence + gained
        return replace(
            posterior,
            data=self.data,
            belief=belief,
            parts={},
            sites=dict(zip(_SITES, sites if draws else sites[:, 0], strict=True)),
            hyperparameters=values,
            log_evidence=log_evidence,
            info=info,
            origin=self.origin,
        )

    def _by_component(self, values: Mapping[str, Any], answers: Comparisons) -> dict[str, Any]:
        """Parameters of the likelihood in each of the K components, shape (K, ...)."""
        number, draws = len(self.posterior.belief.weights), self.posterior.hyperparameter_draws
        parameters = {}
        for site in self.posterior.likelihood.parameters(answers):
            if site in values:
                value = np.asarray(values[site], dtype=np.float64)
                same = np.broadcast_to(value, (number, *value.shape))
                parameters[site] = _widened(draws[site], value) if site in draws else same
        return parameters

    def _check_gaps(self, at_mode: bool) -> None:
        """Refuse a custom program whose answers do not depend on plain differences by the posterior's likelihood.

        At a fixed point the sites say so themselves: each is what `match` makes of its cavity. The engine stops when tilted and posterior
        moments agree up to its tolerance ρ, of means in sds and of variances relative to themselves. With a posterior N(m, v) of the
        gap that leaves a site's precision uncertain by ρ/v and its shift by ρ (1/√v + abs(m)/v).
        """
        posterior, answers = self.posterior, self.posterior.data.comparisons
        if posterior.quick_answers or not len(answers.winner):
            return
        parameters = self._by_component(posterior.hyperparameters, answers)
        for row in {0, len(answers.winner) // 2, len(answers.winner) - 1}:
            margins = posterior.belief.differences(answers.winner[[row]], answers.loser[[row]])
            mean, variance = margins.means[:, 0], margins.variances[:, 0]
            before = np.stack([np.atleast_2d(posterior.sites[name])[:, row] for name in _SITES])
            cavity = _cavity(mean, variance, before, at_mode)
            site = cavity and match(posterior.likelihood, parameters, answers, row, cavity)[0]
            inverse = np.divide(1, variance, out=np.zeros_like(variance), where=variance > 0)
            room = 2 * max(self.origin.engine.tol, POINT_TOLERANCE)
            unsure = room * np.stack([inverse, np.sqrt(inverse) + np.abs(mean) * inverse])
            if site is None or np.any(np.abs(site - before) > unsure + _SAME_SITE * (np.abs(before) + 1e-2)):
                raise UnsupportedProgramError(
                    "quick=True is for programs whose answers look at gaps of utilities by the likelihood that they are given, as those of "
                    "relpref.models do; leave quick out"
                )


def kept_info(posterior: Any, names: Iterable[str]) -> dict[str, Any]:
    """What ``info`` says of how hyperparameters were found, which stays true while they are kept."""
    names = (*names, *DRAWS_INFO, *POINTS_INFO) if posterior.hyperparameter_draws else names
    return {name: posterior.info[name] for name in names if name in posterior.info}


def run_again(
    posterior: Any,
    origin: Origin,
    sites: Mapping[str, Any],
    values: Mapping[str, Any],
    told: dict[str, Any],
    progress_bar: bool,
    **options: Any,
) -> Any:
    """The engine with other data at these hyperparameters; a mixture keeps its draws of them."""
    draws = {name: _widened(draw, values[name]) for name, draw in posterior.hyperparameter_draws.items()}
    options["fixed"] = {name: value for name, value in values.items() if name not in draws}
    if not draws:
        return origin.run(sites, posterior.key, progress_bar=progress_bar, **options)
    mixture = {"info": told, "prior_log_weights": posterior.prior_log_weights, "r_hat": posterior.r_hat}
    given = mixture | dict(origin.kwargs)
    again = origin.engine.changed(**options).run_at_draws(draws, posterior.key, *origin.args, **given)
    return again if posterior.log_evidence is not None else replace(again, log_evidence=None)


class RankOne:
    """A mixture of K Gaussians that is multiplied and divided by sites; the one that it starts from stays as it is.

    Covariances are Σ − W diag(c) Wᵀ, with a column of W and an entry of c for each site.
    """

    def __init__(self, before: MixtureBelief) -> None:
        self._before, self._means, self._log_weights = before, before.locations, np.log(before.weights)
        self._columns = np.empty((*self._means.shape, 0))
        self._shares = np.empty((len(self._means), 0))
        self._pulls: dict[tuple[int, int], Floats] = {}  # under Σ; without a matrix each is a solve

    def belief(self) -> MixtureBelief:
        weights = np.exp(self._log_weights - logsumexp(self._log_weights))
        return self._before.changed(self._means, self._columns, self._shares, weights)

    def _pull(self, first: int, second: int) -> Floats:
        """Σa, a the difference of the two, shape (K, n)."""
        if (first, second) not in self._pulls:
            self._pulls[first, second] = self._before.pull(first, second)
        seen = self._shares * (self._columns[:, first] - self._columns[:, second])
        return self._pulls[first, second] - np.einsum("knc,kc->kn", self._columns, seen)

    def gap(self, first: int, second: int) -> tuple[Floats, Floats]:
        """Mean and variance of u[first] − u[second], shape (K,)."""
        pull = self._pull(first, second)
        mean = self._means[:, first] - self._means[:, second]
        return mean, np.maximum(pull[:, first] - pull[:, second], 0.0)

    def weigh(self, log_probability: Floats) -> float:
        """Multiply the weights by the probability of an answer in each component; the log of its average."""
        before = float(logsumexp(self._log_weights))
        self._log_weights = self._log_weights + log_probability
        return float(logsumexp(self._log_weights)) - before

    def add(self, first: int, second: int, site: Floats) -> None:
        """Multiply by a site of each component: Σ − τ/(1 + τv) wwᵀ with w = Σa and v = aᵀΣa.

        Sites (τ, ν), shape (2, K), are exp(ν x − ½ τ x²), x the difference less its prior mean, which is 0; the negative divides one out.
        """
        precision, shift = site
        pull = self._pull(first, second)
        mean, variance = self.gap(first, second)
        left = 1 + precision * variance
        self._means = self._means + ((shift - precision * mean) / left)[:, None] * pull
        self._columns = np.concatenate([self._columns, pull[:, :, None]], axis=2)
        self._shares = np.column_stack([self._shares, precision / left])


def _cavity(mean: Floats, variance: Floats, sites: Any, at_mode: bool) -> tuple[Floats, Floats] | None:
    """Differences without one copy of their sites, None where one is improper; at the mode for Laplace, whose sites are a curvature."""
    precision, shift = sites
    left = np.ones_like(mean) if at_mode else 1 - variance * precision
    if not np.all(left > 0):
        return None
    return (mean, 0 * mean) if at_mode else ((mean - variance * shift) / left, variance / left)


def match(
    model: AnswerModel,
    parameters: Mapping[str, Any],
    answers: Comparisons,
    row: int,
    gap: tuple[Floats, Floats],
) -> tuple[Floats, Floats]:
    """One answer's site, shape (2, K), whose cavity is the gap's N(mean, variance) (XPGP section 4.1), and its log probability."""
    columns: dict[str, Any] = {name: column[row : row + 1] for name, column in answers.columns.items()}
    one, own = of_its_raters(replace(answers, **columns), parameters)
    with float64():
        sites, log_probability = _matched(model, one, own, *(value[:, None] for value in gap))
        return np.stack(sites)[:, :, 0], np.asarray(log_probability)[:, 0]


def quick_error(
    model: AnswerModel,
    parameters: Mapping[str, Any],
    answers: Comparisons,
    sites: Mapping[str, Floats],
    belief: GaussianBelief,
    at_mode: bool = False,
) -> float:
    """How far a Gaussian is from what its engine would find: the move of one sweep over all answers, to first order in the sites.

    That is the largest move of a utility relative to the average, or of a compared pair's gap, in sds, or relative change of such an sd.
    Infinite where a cavity is improper. O(n²). Sites are ``at_mode`` where they touch the likelihood at the mean (Laplace).
    """
    if not len(answers.winner):
        return 0.0
    first, second, count = answers.winner, answers.loser, answers.count
    gaps = belief.differences(first, second)
    mean, variance = gaps.mean, np.square(gaps.sd)
    precision, shift = sites["precision"], sites["shift"]
    cavity = _cavity(mean, variance, (precision, shift), at_mode)
    if cavity is None:
        return np.inf
    with_room = padded_answers(answers)
    spare = (0, len(with_room.winner) - len(mean))
    with float64():
        alone = {name: np.asarray(value)[None] for name, value in parameters.items()}
        after, _ = _matched(model, with_room, alone, *(np.pad(each, spare)[None] for each in cavity))
        stiffer = count * (np.asarray(after.precision)[0, : len(mean)] - precision)
        pull = count * (np.asarray(after.shift)[0, : len(mean)] - shift) - stiffer * mean
    size, scale = belief.size, belief.scale
    move = scale @ (np.bincount(first, pull, size) - np.bincount(second, pull, size))
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
    changed_sds = []
    for moved, narrower, before in zip(moves, spread, (own, variance), strict=True):
        open_to = before > _CERTAIN * own.max(initial=0.0)
        changed_sds += [moved[open_to] / np.sqrt(before[open_to]), narrower[open_to] / before[open_to]]
    worst = float(np.max(np.abs(np.concatenate(changed_sds)), initial=0.0))
    return worst if np.isfinite(worst) else np.inf


@lazy_jit(static_argnums=0)
def _matched(
    model: AnswerModel, one: Comparisons, parameters: Mapping[str, Array], mean: Array, variance: Array
) -> tuple[Sites, Array]:
    def component(given: Mapping[str, Array], mean: Array, variance: Array) -> tuple[Sites, Array]:
        likelihood = weighted(model(mean, one, **given), one)
        moments = likelihood.tilted(model.value(one), mean, variance)
        if isinstance(likelihood, GaussianSite):
            peak, precision = likelihood.gaussian_site(model.value(one))
            return Sites(precision, precision * peak), moments.log_normalizer
        return matched(Cavity(mean, variance), moments), moments.log_normalizer

    given = {name: real(value) for name, value in parameters.items()}
    return jax.vmap(component)(given, real(mean), real(variance))


def _moved(rows: NDArray[Any], before: NDArray[Any]) -> Floats:
    """Rows along the last axis after a change of the answers, see `Change.before`; 0 for a new one."""
    after = np.zeros((*rows.shape[:-1], len(before)))
    after[..., before >= 0] = rows[..., before[before >= 0]]
    return after


def _answers(data: PreferenceData, table: Any) -> Comparisons:
    """Answers in any form that `PreferenceData.from_tables` takes, or none; raters that are known keep their places."""
    if hasattr(table, "__len__") and not len(table):
        return data.select_comparisons([]).comparisons
    return data.with_comparisons(table).comparisons


def _widened(draws: Floats, value: Any) -> Floats:
    """Draws of a vector that has grown: what is new is the same in all of them."""
    size, shape = len(draws), np.shape(value)
    if draws.shape[1:] == shape:
        return draws
    grown = np.array(np.broadcast_to(value, (size, *shape)))
    grown[:, : draws.shape[1]] = draws
    return grown
