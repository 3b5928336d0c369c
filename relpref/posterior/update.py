"""Updates of posteriors by new answers: with the engine, or quickly with rank-one changes."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relpref.data import Comparisons, PreferenceData
from relpref.data.comparisons import Change, changed
from relpref.errors import UnsupportedProgramError
from relpref.infer.importance import POINT_TOLERANCE, POINTS_INFO, are_too_few, effective
from relpref.infer.sampling import DRAWS_INFO
from relpref.likelihoods.answers import GROUP_SD, SPREADS
from relpref.likelihoods.tilted import prior_quantile
from relpref.models.preference import EFFECT_SCALE, GROUP_SD_PRIOR
from relpref.posterior.base import FITTED
from relpref.posterior.gaussian import Floats, mixture
from relpref.posterior.origin import Origin
from relpref.posterior.quick import RankOne, match, settled, swept, through
from relpref.posterior.tables import rows_of
from relpref.result import InferenceWarning

Hyperparameters = Literal["keep", "refit", "schedule"]

GUESSED = "guessed"  # entry of ``info``: hyperparameters that are at the prior's median, not fitted
_SITES = ("precision", "shift")
MAX_QUICK_ERROR = 0.05  # in posterior sds; with a larger one, a quick update becomes a full one
_ROUNDS = 8  # in which sites become those of a posterior that was corrected
_SAME_SITE = 1e-2  # largest relative difference of sites that count as equal
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
    """Update of a posterior of utilities, see `UtilityPosterior.update`.

    The answers are changed when it is made; `fully` or `quickly` return the new posterior.
    """

    def __init__(self, posterior: Any, answers: Any, withdraw: Any) -> None:
        self.posterior, self.data = posterior, posterior.data
        # Answers that are added (False) or taken back (True), and all answers after each change.
        self.steps: list[tuple[bool, Comparisons, Change]] = []
        for table, taken_back in ((answers, False), (withdraw, True)):
            if table is not None:
                some = _answers(self.data, table)
                change = changed(self.data.comparisons, some, self.data.labels, withdraw=taken_back)
                self.data = replace(self.data, comparisons=change.answers, answered=True)
                self.steps.append((taken_back, some, change))
        self.origin: Origin = posterior.origin.with_argument(posterior.data, self.data)
        self.values = grown_values(posterior, self.data)
        # Until the next fit, a new rater has the hyperparameters of a typical one.
        new = self.values.keys() - posterior.hyperparameters.keys()
        names = sorted(new | set(posterior.info.get(GUESSED, ())))
        self.guessed = {GUESSED: names} if names else {}

    def fully(self, hyperparameters: Hyperparameters, progress_bar: bool) -> Any:
        """Run the engine again, starting from the sites of the answers that stay.

        Hyperparameters are kept, or fitted again (``"refit"``). With ``"schedule"`` they are fitted
        if some were guessed, if the answers have changed by much since the last fit, or if too few
        of their draws have weight. They are fitted, too, where members such as raters were averaged
        over: their draws stand for what the answers before said of them.
        """
        posterior, draws = self.posterior, self.posterior.hyperparameter_draws
        data = replace(self.data, comparisons=self.data.comparisons.rescaled())
        origin = self.origin.with_argument(self.data, data)
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

        drawn = draws and "averaged" in posterior.info
        if drawn or refit and (posterior.searched or draws):
            return refitted()
        fitted = self.data.num_answers if refit else posterior.answers_at_fit
        facts = kept_info(posterior, _SEARCH_INFO) | {FITTED: fitted, **self.guessed}
        with warnings.catch_warnings():
            if draws and scheduled:  # a refit mends the weights that are warned about
                warnings.simplefilter("ignore", InferenceWarning)
            again = run_again(posterior, origin, sites, self.values, facts, progress_bar)
        number = len(again.belief.weights)
        if draws and scheduled and are_too_few(number, again.effective_points):
            return refitted()
        return replace(again, origin=origin, info={**again.info, **facts})

    def quickly(self, max_error: float) -> Any:
        """Make a rank-one change for every answer, with the hyperparameters kept, and settle it.

        Updates fully instead if answers depend on one another, or if the estimated error is above
        ``max_error``.
        """
        posterior, at_mode = self.posterior, self.origin.engine.at_mode
        likelihood, effects = posterior.likelihood, posterior._num_effects
        if not self._each_by_itself():
            return self.fully("keep", False)
        self._check_gaps(at_mode)
        moving, before = RankOne(posterior.full), posterior.data.comparisons
        sites = np.stack([np.atleast_2d(posterior.sites[name]) for name in _SITES])
        parameters = self._by_component(self.values, self.data.comparisons)
        # Sites whose tilted moments are those of a posterior that was corrected.
        for _ in range(_ROUNDS if posterior.corrected and not posterior.quick_answers else 0):
            given = parameters, before, sites, posterior.full, at_mode, effects
            *_, sites = swept(likelihood, *given)
        shared, number, gained = parameters.get(GROUP_SD, np.zeros(1)) ** 2, 0, 0.0
        for taken_back, some, (after, places, rows) in self.steps:
            moved = _moved(sites, places)
            copies = _moved(before.count[None], places)[0]
            grouped = np.zeros(len(rows), dtype=bool) if some.group is None else some.group >= 0
            gaps = zip(*rows_of(some, effects), strict=True)
            for at, (row, gap) in enumerate(zip(rows, gaps, strict=True)):
                noise, times = shared * grouped[at], int(some.count[at])
                old = (sites if taken_back else moved)[:, :, row]
                number += times
                if taken_back:
                    moving.add(gap, -through(times * old, noise))
                mean, variance = moving.gap(gap)
                cavity = mean, variance + noise
                site, chance = match(likelihood, parameters, some, at, cavity, times)
                gained += moving.weigh(-chance if taken_back else chance)
                if not taken_back:  # equal answers have one site
                    moving.add(gap, through(times * site, noise))
                    copies[row] += times
                    moved[:, :, row] += times * (site - old) / copies[row]
            sites, before = moved, after
        data, units, more = self._rescaled(moving)
        belief = moving.belief()
        if np.any(units != 1):
            scales = belief.scales * units * units[:, None]
            belief = mixture(belief.locations * units, scales, belief.weights)
        error = float("nan")  # of many items it would take a solve for each answer
        if not posterior.large:
            given = parameters, data.comparisons, sites, belief, at_mode, effects
            belief, sites, error = settled(likelihood, *given)
            if not error <= max_error:
                return self.fully("keep", False)
        info = {
            **posterior.info,
            FITTED: posterior.answers_at_fit,
            "quick_answers": posterior.quick_answers + number,
            "residual": float("nan"),
            "quick_error": error,
            **self.guessed,
        }
        if "check" in info and not posterior.quick_answers:
            info["check"] += ", before answers were added quickly"
        log_evidence, draws, values = None, _widened(posterior, self.values), dict(self.values)
        if draws:
            for name, value in draws.items():
                average = np.tensordot(belief.weights, value, axes=1)
                values[name] = float(average) if average.ndim == 0 else average
            with np.errstate(divide="ignore"):  # weights may be 0
                info["effective_points"] = effective(np.log(belief.weights))
            if posterior.log_evidence is not None:
                log_evidence = posterior.log_evidence + (gained + more)
        updated = replace(
            posterior,
            data=data,
            belief=belief,
            parts={},
            sites=dict(zip(_SITES, sites if draws else sites[:, 0], strict=True)),
            hyperparameters=values,
            hyperparameter_draws=draws,
            log_evidence=log_evidence,
            info=info,
            origin=self.origin.with_argument(self.data, data),
        )
        return updated.with_full(belief) if effects else updated

    def _rescaled(self, moving: RankOne) -> tuple[PreferenceData, Floats, float]:
        """Compute the scales of covariates again, and change the prior of effects in ``moving``.

        Returns the data with the new scales, the factors from the old units of effects and
        utilities to the new ones, shape (n,), and the change of the log evidence.
        """
        before, after = self.data.comparisons, self.data.comparisons.rescaled()
        units, gained = np.ones(self.posterior.full.size), 0.0
        if before.covariate_scales is not None and after.covariate_scales is not None:
            units[: len(after.covariate_scales)] = after.covariate_scales / before.covariate_scales
        for effect in np.flatnonzero(units != 1):
            # In old units the new prior is N(0, (effect_scale / unit)²): the old one times a site.
            scale = self._in_each(EFFECT_SCALE, self.values[EFFECT_SCALE])
            row, precision = (np.array([effect]), np.ones(1)), (units[effect] ** 2 - 1) / scale**2
            mean, variance = moving.gap(row)
            left = 1 + precision * variance
            gained += moving.weigh(
                np.log(units[effect]) - 0.5 * (np.log(left) + precision * np.square(mean) / left)
            )
            moving.add(row, np.stack([precision, np.zeros_like(precision)]))
        return replace(self.data, comparisons=after), units, gained

    def _each_by_itself(self) -> bool:
        """Whether each changed answer depends on utilities and effects of covariates alone.

        It does not if it shares noise with other answers of its list or group, nor does the first
        tie, whose hyperparameter changes the evidence of all answers.
        """
        answers, current = self.data.comparisons, self.posterior.data.comparisons
        new = self.values.keys() - self.posterior.hyperparameters.keys()
        if (
            new - {*SPREADS, GROUP_SD}
            # A custom program may look at neither groups nor covariates.
            or (
                answers.covariates is not None
                and EFFECT_SCALE not in self.posterior.hyperparameters
            )
            or (current.group is not None and GROUP_SD not in self.posterior.hyperparameters)
            # The mode of a list has a curvature of all its rows together.
            or (self.origin.engine.at_mode and current.list is not None)
        ):
            return False
        for taken_back, some, (after, _, _) in self.steps:
            table = current if taken_back else after
            if some.list is not None:
                return False
            if table.group is not None and some.group is not None:
                sizes = np.bincount(table.group[table.group >= 0], table.count[table.group >= 0])
                if np.any(sizes[some.group[some.group >= 0]] > 1):
                    return False
            current = after
        return True

    def _by_component(self, values: Mapping[str, Any], answers: Comparisons) -> dict[str, Any]:
        """Parameters of the likelihood, and the sd of groups, by component, shape (K, ...)."""
        shared = [] if answers.group is None else [GROUP_SD]
        sites = (*self.posterior.likelihood.parameters(answers), *shared)
        return {site: self._in_each(site, values[site]) for site in sites if site in values}

    def _in_each(self, site: str, value: Any) -> Floats:
        """Return a hyperparameter by component, shape (K, ...): its draws, or ``value`` K times."""
        draws, value = self.posterior.hyperparameter_draws, np.asarray(value, dtype=np.float64)
        if site in draws:
            return _grown(draws[site], value)
        return np.broadcast_to(value, (len(self.posterior.belief.weights), *value.shape))

    def _check_gaps(self, at_mode: bool) -> None:
        """Refuse a program whose answers are not given by gaps of utilities and its likelihood.

        The sites of a few answers show it: if the program is as assumed, each is what `swept` makes
        of its cavity. The engine stops when tilted and posterior moments agree up to its tolerance
        ρ, of means in sds and of variances relative to themselves. If the gap has the posterior
        N(m, v), the precision of its site has an error of up to ρ/v, and its shift of up to
        ρ (1/√v + abs(m)/v).
        """
        posterior, answers = self.posterior, self.posterior.data.comparisons
        if posterior.quick_answers or posterior.corrected or not len(answers.winner):
            return  # sites no longer make the posterior
        # Only answers that are in no list or group, which depend on each other, and that were given
        # once: equal ones may have one site, or one each.
        numbers = (each for each in (answers.list, answers.group) if each is not None)
        apart = np.max([np.full(len(answers.winner), -1), *numbers], axis=0) < 0
        alone = np.flatnonzero(apart & (answers.count == 1))
        if not len(alone):
            return
        rows = alone[[0, len(alone) // 2, -1]]
        columns: dict[str, Any] = {name: each[rows] for name, each in answers.columns.items()}
        few = replace(answers, **columns | {"list": None, "group": None})
        before = np.stack([np.atleast_2d(posterior.sites[name])[:, rows] for name in _SITES])
        parameters = self._by_component(posterior.hyperparameters, answers)
        given = parameters, few, before, posterior.full, at_mode, posterior._num_effects
        _, mean, variance, after = swept(posterior.likelihood, *given)
        inverse = np.divide(1, variance, out=np.zeros_like(variance), where=variance > 0)
        tolerance = 2 * max(self.origin.engine.tol, POINT_TOLERANCE)
        unsure = tolerance * np.stack([inverse, np.sqrt(inverse) + np.abs(mean) * inverse])
        if not np.all(np.abs(after - before) <= unsure + _SAME_SITE * (np.abs(before) + 1e-2)):
            raise UnsupportedProgramError(
                "quick=True is for programs whose answers look at gaps of utilities by the "
                "likelihood that they are given, as those of relpref.models do; leave quick out"
            )


def grown_values(posterior: Any, data: PreferenceData) -> dict[str, Any]:
    """Hyperparameters of a posterior for other data, by name.

    Those that the data need and the posterior lacks, such as a new rater's, are at the prior's
    median.
    """
    answers, values = data.comparisons, dict(posterior.hyperparameters)
    priors = dict(posterior.likelihood.parameters(answers))
    if answers.group is not None:
        priors[GROUP_SD] = GROUP_SD_PRIOR
    for site, prior in priors.items():
        shape = (len(answers.raters),) if site in SPREADS else prior.shape()
        if site in values and np.shape(values[site]) in (shape, ()):
            continue
        # A vector's prior is that of each of its entries.
        middle = float(np.ravel(prior_quantile(prior, 0.5))[0])
        before = np.asarray(values.get(site, ()), dtype=np.float64)
        rest = np.full(shape[0] - len(before), middle) if shape else None
        values[site] = middle if rest is None else np.concatenate([before, rest])
    return values


def kept_info(posterior: Any, names: Iterable[str]) -> dict[str, Any]:
    """Entries of ``info`` that stay true with the hyperparameters: ``names`` and those of draws."""
    names = (*names, *DRAWS_INFO, *POINTS_INFO) if posterior.hyperparameter_draws else names
    return {name: posterior.info[name] for name in names if name in posterior.info}


def run_again(
    posterior: Any,
    origin: Origin,
    sites: Mapping[str, Any],
    values: Mapping[str, Any],
    facts: dict[str, Any],
    progress_bar: bool,
    **options: Any,
) -> Any:
    """Run the engine of ``origin`` from given sites, with hyperparameters fixed at ``values``.

    If the posterior is a mixture over draws of hyperparameters, it runs at these draws instead.
    Noises of raters that were averaged over at a maximum are averaged over again. ``facts`` are
    entries of ``info``, and ``options`` changes of the engine.
    """
    draws = _widened(posterior, values)
    options["fixed"] = {name: value for name, value in values.items() if name not in draws}
    if not draws:
        for name in posterior.info.get("averaged", ()):
            options["fixed"].pop(name, None)
        return origin.run(sites, posterior.key, progress_bar=progress_bar, **options)
    given = {"prior_log_weights": posterior.prior_log_weights, "r_hat": posterior.r_hat}
    given |= {"info": facts, **origin.kwargs}
    engine = origin.engine.changed(**options)
    again = engine.run_at_draws(draws, posterior.key, *origin.args, **given)
    return again if posterior.log_evidence is not None else replace(again, log_evidence=None)


def _moved(rows: NDArray[Any], before: NDArray[Any]) -> Floats:
    """Values of rows, last axis, in the order after a change, see `Change.before`; 0 if new."""
    after = np.zeros((*rows.shape[:-1], len(before)))
    after[..., before >= 0] = rows[..., before[before >= 0]]
    return after


def _answers(data: PreferenceData, table: Any) -> Comparisons:
    """Read answers in any form of `PreferenceData.from_tables`, an empty one included."""
    if hasattr(table, "__len__") and not len(table):
        return data.select_comparisons([]).comparisons
    return data.with_comparisons(table).comparisons


def _widened(posterior: Any, values: Mapping[str, Any]) -> dict[str, Floats]:
    """Draws of hyperparameters by name, with entries added to have the shapes of ``values``."""
    draws = posterior.hyperparameter_draws
    return {name: _grown(draw, values[name]) for name, draw in draws.items()}


def _grown(draws: Floats, value: Any) -> Floats:
    """Extend draws (K, d) of a vector to the length of ``value``, which has the new entries."""
    grown = np.array(np.broadcast_to(value, (len(draws), *np.shape(value))))
    grown[tuple(map(slice, draws.shape))] = draws
    return grown
