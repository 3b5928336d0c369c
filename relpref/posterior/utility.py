"""The posterior of preference programs: utilities with the user's own labels."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data import Comparisons, PreferenceData
from relpref.data.comparisons import Change, added, withdrawn
from relpref.data.marginal import induced
from relpref.errors import DataError, StorageError, UnsupportedProgramError
from relpref.infer.importance import MIN_EFFECTIVE, POINTS_INFO, effective
from relpref.infer.result import InferenceWarning, warn_user
from relpref.infer.search import DRAWS_INFO
from relpref.kernels import Precomputed
from relpref.likelihoods import AnswerModel, Probit
from relpref.likelihoods.models import PLATES
from relpref.likelihoods.tilted import unwrap
from relpref.posterior.arviz import Groups, draw_groups, plain_coordinates
from relpref.posterior.base import Parts, Posterior
from relpref.posterior.codec import Stored, checked, decode, decode_data, encode, encode_data
from relpref.posterior.gaussian import Belief, Floats
from relpref.posterior.origin import Origin
from relpref.posterior.quick import ImplicitRankOne, RankOne, Site, match, quick_error, stacked
from relpref.posterior.tables import (
    check_interval,
    expectations,
    objects,
    pairs_of_labels,
    questions,
    ranking_of_the_best,
    ranking_table,
)

Hyperparameters = Literal["keep", "refit", "schedule"]

# Of ``info``: answers that came by rank-one changes since EP last settled, and answers when hyperparameters were last fitted.
QUICK, FITTED = "quick_answers", "answers_at_fit"
QUICK_ERROR = "quick_error"  # see `quick_error`
GUESSED = "guessed"  # hyperparameters that were never fitted
_MAX_ERROR = 0.05  # posterior sds: beyond, quick changes are replaced by a full update
_CHECKED = 4  # heaviest components of a mixture, whose error is estimated
_SAME_SITE = 1e-2  # relative difference of sites that are one but for the tolerance they were found with
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
_MIXTURE_INFO = (*DRAWS_INFO, *POINTS_INFO)

_Step = tuple[bool, Comparisons, Change]  # whether answers were added, which, and what they came to


@dataclass(frozen=True, eq=False, repr=False)
class UtilityPosterior(Posterior):
    """Beliefs about the utilities of labeled entities. Only differences of utilities are identified by answers.

    Attributes
    ----------
    data : PreferenceData
    likelihood : AnswerModel
        How answers come about; of a program of one's own that takes no ``likelihood=``, `Probit` is assumed.
    """

    kind: ClassVar[Literal["utilities"]] = "utilities"
    data: PreferenceData = field(kw_only=True)
    likelihood: AnswerModel = field(default_factory=Probit, kw_only=True)

    def datasets(self) -> dict[str, Any]:
        return {"data": self.data}

    @property
    def has_answers(self) -> bool:
        return bool(self.data.num_answers)

    def reported(
        self, belief: Belief | None = None, chosen: NDArray[np.intp] | slice = slice(None)
    ) -> pd.DataFrame:
        centred = (self.belief if belief is None else belief).centred()
        index = pd.Index(objects(self.data.entities)[chosen], name="entity", tupleize_cols=False)
        return pd.DataFrame({"mean": centred.mean(), "sd": centred.sd()}, index=index)

    def ranking(
        self, interval: float = 0.9, key: Any = None, *, ranks: bool = True, top: int = 1000
    ) -> pd.DataFrame:
        """The entities, best first, each against the average of all.

        Parameters
        ----------
        interval : float
            Probability of the intervals, between 0 and 1.
        key : JAX key or int, optional
            For the ranks, which come from 4000 draws.
        ranks : bool
            Without them it takes milliseconds.
        top : int
            How many of the best get intervals, where there are too many entities for a matrix of covariances (NaN for the others);
            `about` has those of any others.

        Returns
        -------
        DataFrame
            By entity: ``mean``, ``sd``, ``lower``, ``upper`` of its utility less the average over the entities; with ranks
            ``expected_rank``, ``rank_lower``, ``rank_upper`` (1 is best) and ``p_best``, but not of too many entities for a matrix.
        """
        check_interval(interval)
        self._warn_if_not_converged()
        if self.large:
            large: Any = self.belief
            return ranking_of_the_best(large, self.data.entities, interval, top)
        rng = self._rng(key) if ranks else None
        return ranking_table(self.belief.centred(), self.data.entities, interval, rng, "entity")

    def about(self, labels: Iterable[Any]) -> "UtilityPosterior":
        """The same beliefs about some of the entities, with the answers and links among them.

        Of many entities that is what can be asked for more than means: draws, ranks, a report.

        Parameters
        ----------
        labels : iterable of labels

        Raises
        ------
        UnknownLabelError
            If a label is no entity.
        """
        return self.subset(np.unique(self.data.index(labels)).astype(np.int64))

    def subset(self, positions: NDArray[np.int64], *, parts: bool = True) -> "UtilityPosterior":
        """As `about`, for ascending positions; what utilities are made of costs as much again as their covariance."""
        if len(positions) < 2:
            raise DataError(
                f"about takes two entities or more, not {len(positions)}: only differences mean something"
            )
        data, rows = induced(self.data, positions)
        (site,) = self.slices
        return replace(
            self,
            belief=self.belief.subset(positions),
            slices={site: slice(0, len(positions))},
            parts={name: self._parts_at(known, positions) for name, known in self.parts.items() if parts},
            info={**self.info, "about": f"{len(positions)} of {self.data.num_entities} entities"},
            sites={name: np.asarray(value)[..., rows] for name, value in self.sites.items()},
            origin=None,
            data=data,
        )

    def _parts_at(self, parts: Parts, positions: NDArray[Any]) -> Parts:
        means = {name: mean[positions] for name, mean in parts.means.items()}
        if self.large:
            large: Any = self.belief
            return Parts(means, large.implicit.shares(positions))
        return Parts(means, {name: value[positions] for name, value in parts.covariances.items()})

    def utilities(self, interval: float = 0.9) -> pd.DataFrame:
        """Raw utilities in the data's order: ``mean``, ``sd``, ``lower``, ``upper``; of too many entities for a matrix the mean alone."""
        check_interval(interval)
        self._warn_if_not_converged()
        if self.large:
            return pd.DataFrame({"mean": self.belief.mean()}, index=self._labels())
        lower, upper = self.belief.interval(interval)
        columns = {"mean": self.belief.mean(), "sd": self.belief.sd(), "lower": lower, "upper": upper}
        return pd.DataFrame(columns, index=self._labels())

    def prefer(
        self, pairs: Iterable[tuple[Any, Any]], *, rater: Any = None, shown_first: Iterable[Any] | None = None
    ) -> pd.DataFrame:
        """How likely the first of each pair is preferred to the second.

        Parameters
        ----------
        pairs : iterable of (label, label)
        rater : label, optional
            Who is asked; a typical rater by default. For answers with raters.
        shown_first : iterable of labels, optional
            Which of each pair is shown first, None where that is not known; nothing is gained by position by default. For answers
            with positions.

        Returns
        -------
        DataFrame
            ``first``, ``second``; ``probability`` that the next noisy answer favors the first (its expectation, where answers
            are probabilities); ``tie`` that it is a tie, where there are some; ``p_better`` that the first's utility is the higher; ``gap_mean`` and ``gap_sd`` of the difference of utilities.

        Raises
        ------
        UnknownLabelError
            If a label is no entity, or the rater never answered.
        DataError
            If something that is not a pair is among the pairs, or the answers do not speak of raters or positions.
        """
        listed = pairs_of_labels(pairs)
        self._warn_if_not_converged()
        first = self.data.index([pair[0] for pair in listed])
        second = self.data.index([pair[1] for pair in listed])
        margins = self.belief.differences(first, second)
        table = pd.DataFrame(
            {"first": objects(p[0] for p in listed), "second": objects(p[1] for p in listed)}
        )
        asked = questions(self.data, first, second, rater, shown_first)
        for name, column in expectations(
            self, self.likelihood, self.data.comparisons, asked, margins
        ).items():
            table[name] = column
        table["p_better"] = margins.positive
        table["gap_mean"] = margins.mean
        table["gap_sd"] = margins.sd
        return table

    def explain(self) -> pd.DataFrame:
        """Where each utility comes from.

        Returns
        -------
        DataFrame
            By entity, in the data's order: one column for each part (``attributes``, each relation) with its signed
            contribution less its average over the entities; ``mean`` with their sum, which is the utility as `ranking` has it; and
            ``share_<part>`` = Cov(part, total)/Var(total) under the posterior of that entity's raw utility; an entity's shares add up
            to 1. Of too many entities for a matrix the shares are left out; `about` has them.

        Warns
        -----
        UserWarning
            If the answers cannot tell two parts apart, because their covariances are nearly proportional (correlated by over 0.95): the
            entities themselves (``individual``) and a relation of short range. Their sum is known, what each adds to it is not.
        """
        self._warn_if_not_converged()
        parts = self._parts()
        for one, other in self.alike_parts:
            warn_user(
                f"the answers cannot tell the parts {one!r} and {other!r} apart, whose prior covariances are nearly proportional: only their "
                "sum is known"
            )
        columns = {**parts.means, "mean": self.belief.mean()}
        table = pd.DataFrame(
            {name: value - value.mean() for name, value in columns.items()}, index=self._labels()
        )
        variance = sum(parts.covariances.values())
        for name, covariance in parts.covariances.items():
            table[f"share_{name}"] = covariance / variance
        return table

    def shares(self) -> pd.Series:
        """How much of the spread between the entities' mean utilities each part accounts for.

        Returns
        -------
        Series
            By part: Cov(part, total)/Var(total) over the entities; they add up to 1, and one that works against the
            others is negative. NaN where the means are all equal.
        """
        self._warn_if_not_converged()
        means = self._parts().means
        centred = {name: value - value.mean() for name, value in means.items()}
        total = np.sum(list(centred.values()), axis=0)
        spread = float(total @ total) or np.nan  # where all means are equal nothing is there to be shared
        return pd.Series(
            {name: float(value @ total) / spread for name, value in centred.items()}, name="share"
        )

    def update(
        self,
        answers: Any = None,
        *,
        withdraw: Any = None,
        quick: bool = False,
        hyperparameters: Literal["keep", "refit", "schedule"] = "keep",
        progress_bar: bool = False,
    ) -> "UtilityPosterior":
        """A posterior with more answers, or without some.

        Parameters
        ----------
        answers : DataFrame or list of (winner, loser), optional
            More of them, in the form of the comparisons of `PreferenceData.from_tables`. A tie, where there were none before, or a rater
            who is new bring a hyperparameter, which is at its prior's median until hyperparameters are fitted again.
        withdraw : DataFrame or list of (winner, loser), optional
            Answers that are taken back, as they were given.
        quick : bool
            One rank-one change of mean and covariance for each answer, O(n²), from a site that matches its moments once: near the full
            result, in milliseconds. How near is estimated by one sweep: ``info["quick_error"]``, the largest move of a mean in posterior sds
            or relative change of an sd; beyond 0.05 a full update is made instead. ``info["quick_answers"]`` counts quick ones; `explain` and the log evidence wait for the next full update,
            for which no argument is needed. Of too many entities for a matrix each is a product with their covariance, and `save` waits,
            too.
        hyperparameters : {"keep", "refit", "schedule"}
            Kept as they are: then the result is that of a full fit with these hyperparameters. Or fitted again, from where they are;
            on schedule that is when the number of answers has changed by a quarter, and at least by five, since the last time, or when
            one was never fitted (the noise of a new rater can wait).
        progress_bar : bool

        Raises
        ------
        DataError
            If answers cannot be used, or one that is withdrawn was not given.
        UnsupportedProgramError
            If the posterior does not know its program (draws from MCMC, or a program of one's own read back from a file); with
            ``quick`` also if it is a mixture, or its program looks at more than gaps of utilities.
        InferenceError
            As for `GaussianEngine.run`.
        """
        if hyperparameters not in ("keep", "refit", "schedule"):
            raise DataError(f"hyperparameters is {hyperparameters!r}; it is 'keep', 'refit' or 'schedule'")
        self._refuse_without_engine("update")
        if quick and hyperparameters != "keep":
            raise DataError(
                f"hyperparameters is {hyperparameters!r}; quick=True keeps them: leave one of the two out"
            )
        steps: list[_Step] = []
        data = self.data
        for table, change in ((answers, added), (withdraw, withdrawn)):
            if table is not None:
                given = _answers(data, table)
                changed = change(data.comparisons, given, data.entities)
                data = replace(data, comparisons=changed.answers, answered=True)
                steps.append((change is added, given, changed))
        values = self._values(data.comparisons)
        if quick:
            return self._update_quickly(data, steps, values)
        return self._update_fully(data, steps, values, hyperparameters, progress_bar)

    def _refuse_without_engine(self, what: str) -> None:
        if self.origin is None or not self.origin.engine:
            raise UnsupportedProgramError(
                f"{what} needs a posterior from EP or Laplace that knows its program; "
                "fit with one of them in this session, or with a program of relpref.models before saving"
            )

    @property
    def answers_at_fit(self) -> int:
        """Number of answers when hyperparameters were last fitted."""
        return int(self.info.get(FITTED, self.data.num_answers))

    def refit_is_due(self, answers: int) -> bool:
        """Whether hyperparameters are to be fitted again: the answers have changed by a quarter, and by five at least."""
        return abs(answers - self.answers_at_fit) >= max(5, self.answers_at_fit / 4)

    def _values(self, answers: Comparisons) -> dict[str, Any]:
        """The hyperparameters; those of columns, raters and strengths that nobody knew before are at their prior's median."""
        values = dict(self.hyperparameters)
        for site, prior in self.likelihood.parameters(answers).items():
            shape = (len(answers.raters),) if site in PLATES else prior.shape()
            known = np.asarray(values.get(site, np.zeros((0,) if shape else ())), dtype=np.float64)
            if site in values and (known.shape == shape or not known.shape):
                continue
            # A vector's prior is that of each of its entries.
            middle = float(np.ravel(unwrap(prior).icdf(jnp.asarray(0.5)))[0])
            values[site] = (
                np.concatenate([known, np.full(shape[0] - len(known), middle)]) if shape else middle
            )
        return values

    def _guessed(self, values: dict[str, Any]) -> dict[str, list[str]]:
        """Hyperparameters that are new, and those that were before; a rater who is new is a typical one for a while."""
        new = values.keys() - self.hyperparameters.keys()
        names = sorted(new | set(self.info.get(GUESSED, ())))
        return {GUESSED: names} if names else {}

    def _with_answers(self, data: PreferenceData) -> Origin:
        """How the program was called, with other data."""
        assert self.origin is not None  # checked
        return self.origin.with_argument(self.data, data)

    def _update_quickly(
        self, data: PreferenceData, steps: list[_Step], values: dict[str, Any]
    ) -> "UtilityPosterior":
        """One rank-one change for every answer; see `relpref.posterior.quick`."""
        at_mode = self._with_answers(data).engine.at_mode
        self._check_gaps(at_mode)
        kind: Any = ImplicitRankOne if self.large else RankOne
        moving = kind(self.belief)
        sites = {name: np.atleast_2d(value) for name, value in self.sites.items()}
        parameters = self._by_component(values, data.comparisons)
        known, number, gained = self.data.comparisons, 0, 0.0
        for is_more, given, (answers, before, rows) in steps:
            precision, shift = stacked(sites, before)
            copies = np.zeros(len(before))
            if len(known.count):
                copies[before >= 0] = known.count[before[before >= 0]]
            for at, row in enumerate(rows):
                ends = int(given.winner[at]), int(given.loser[at])
                for _ in range(int(given.count[at])):
                    number += 1
                    if not is_more:
                        moving.remove(*ends, Site(sites["precision"][:, row], sites["shift"][:, row]))
                    site, chance = match(self.likelihood, parameters, given, at, moving.gap(*ends))
                    gained += moving.weigh(chance if is_more else -chance)
                    if not is_more:
                        continue
                    moving.add(*ends, site)
                    # Copies of an answer share one site: what they say together stays as it is.
                    copies[row] += 1
                    precision[:, row] += (site.precision - precision[:, row]) / copies[row]
                    shift[:, row] += (site.shift - shift[:, row]) / copies[row]
            sites, known = {"precision": precision, "shift": shift}, answers
        belief = moving.belief()
        error = float("nan")  # of many entities it would take a solve for each answer
        if not self.large:
            error = max(
                quick_error(
                    self.likelihood,
                    {name: value[at] for name, value in parameters.items()},
                    data.comparisons,
                    {name: value[at] for name, value in sites.items()},
                    belief.components[at],
                    at_mode,
                )
                for at in np.argsort(-belief.weights)[:_CHECKED]
            )
            if error > _MAX_ERROR:
                return self._update_fully(data, steps, values, "keep", False)
        info = {
            **self.info,
            FITTED: self.answers_at_fit,
            QUICK: self.quick_answers + number,
            "residual": float("nan"),
            QUICK_ERROR: error,
            **self._guessed(values),
        }
        log_evidence, draws = None, self.hyperparameter_draws
        if draws:
            averages = {name: np.tensordot(belief.weights, value, axes=1) for name, value in draws.items()}
            values |= {name: float(value) if value.ndim == 0 else value for name, value in averages.items()}
            info["effective_points"] = effective(np.log(belief.weights))
            log_evidence = None if self.log_evidence is None else self.log_evidence + gained
        return replace(
            self,
            data=data,
            belief=belief,
            parts={},
            sites=sites if draws else {name: value[0] for name, value in sites.items()},
            hyperparameters=values,
            log_evidence=log_evidence,
            info=info,
            origin=self._with_answers(data),
        )

    def _by_component(self, values: Mapping[str, Any], answers: Comparisons) -> dict[str, Any]:
        """Parameters of the likelihood in each of the K components, shape (K, ...)."""
        number, draws, parameters = len(self.belief.weights), self.hyperparameter_draws, {}
        for site in self.likelihood.parameters(answers):
            if site in values:
                value = np.asarray(values[site], dtype=np.float64)
                same = np.broadcast_to(value, (number, *value.shape))
                parameters[site] = _widened(draws[site], value) if site in draws else same
        return parameters

    def _check_gaps(self, at_mode: bool) -> None:
        """Refuse a program of one's own whose answers do not look at plain gaps by the posterior's likelihood.

        At a fixed point the sites say so themselves: each is what `match` makes of its cavity.
        """
        answers, sites = self.data.comparisons, self.sites
        if self.quick_answers or not len(answers.winner):
            return
        parameters = self._by_component(self.hyperparameters, answers)
        for row in {0, len(answers.winner) // 2, len(answers.winner) - 1}:
            margins = self.belief.differences(answers.winner[row : row + 1], answers.loser[row : row + 1])
            mean, variance = margins.means[:, 0], margins.variances[:, 0]
            site = Site(*(np.atleast_2d(sites[name])[:, row] for name in ("precision", "shift")))
            left = 1 - variance * site.precision
            cavity = ((mean - variance * site.shift) / left, variance / left)
            if at_mode:  # Laplace: the curvature at the mode
                cavity = (mean, np.zeros_like(mean))
            matching, _ = match(self.likelihood, parameters, answers, row, cavity)
            if not np.allclose(matching, site, rtol=_SAME_SITE, atol=1e-2 * _SAME_SITE):
                raise UnsupportedProgramError(
                    "quick=True is for programs whose answers look at gaps of utilities by the likelihood that they are given, as those of "
                    "relpref.models do; leave quick out"
                )

    def _update_fully(
        self,
        data: PreferenceData,
        steps: list[_Step],
        values: dict[str, Any],
        hyperparameters: Hyperparameters,
        progress_bar: bool,
    ) -> "UtilityPosterior":
        """The engine again, from the sites of the answers that stay; nothing is known yet of new ones."""
        origin, draws = self._with_answers(data), self.hyperparameter_draws
        guessed = self._guessed(values)
        scheduled = hyperparameters == "schedule"
        refit = hyperparameters == "refit" or (scheduled and (guessed or self.refit_is_due(data.num_answers)))
        sites = dict(self.sites)
        for _, _, change in steps:
            sites = dict(zip(("precision", "shift"), stacked(sites, change.before), strict=True))

        def refitted() -> "UtilityPosterior":
            start = None if draws else sites
            again = origin.run(start, self.key, progress_bar=progress_bar, at=values, padding=True)
            return replace(again, origin=origin)

        if refit and (self.searched or draws):
            return refitted()
        told = self._kept_info(_SEARCH_INFO)
        told |= {FITTED: data.num_answers if refit else self.answers_at_fit, **guessed}
        with warnings.catch_warnings():
            if draws and scheduled:
                warnings.simplefilter("ignore", InferenceWarning)  # of weights that a refit is about to mend
            again = self._run_again(origin, sites, values, told, progress_bar, padding=True)
        if draws and scheduled and again.effective_points < MIN_EFFECTIVE:
            return refitted()
        return replace(again, origin=origin, info={**again.info, **told})

    def _kept_info(self, names: Iterable[str]) -> dict[str, Any]:
        """What ``info`` says of how hyperparameters were found, which stays true while they are kept."""
        names = (*names, *_MIXTURE_INFO) if self.hyperparameter_draws else names
        return {name: self.info[name] for name in names if name in self.info}

    def _run_again(
        self,
        origin: Origin,
        sites: Mapping[str, Any],
        values: Mapping[str, Any],
        told: dict[str, Any],
        progress_bar: bool,
        **options: Any,
    ) -> "UtilityPosterior":
        """The engine with other data at these hyperparameters; a mixture keeps its draws of them."""
        draws = {name: _widened(draw, values[name]) for name, draw in self.hyperparameter_draws.items()}
        options["fixed"] = {name: value for name, value in values.items() if name not in draws}
        if not draws:
            return origin.run(sites, self.key, progress_bar=progress_bar, **options)
        again = origin.run_at_draws(draws, self.key, told, self.prior_log_weights, **options)
        return again if self.log_evidence is not None else replace(again, log_evidence=None)

    def extend(
        self, entities: Any = None, relations: Mapping[str, Any] | None = None, *, progress_bar: bool = False
    ) -> "UtilityPosterior":
        """A posterior over the old entities and newcomers.

        The prior is rebuilt with standardization, graph scaling and hyperparameters as they were, and EP runs again from the
        old sites: a graph prior is not projective, so newcomers' links move the old entities a little, too. The scale of
        `HiddenCommonCause` and of `RelationVectors` is not as it was: it is that of the old entities in the larger graph.

        Parameters
        ----------
        entities : DataFrame or sequence of labels, optional
            New entities with the same attribute columns.
        relations : mapping from relation to edges, optional
            Links between newcomers, or of newcomers with old entities.
        progress_bar : bool

        Raises
        ------
        DataError
            If the tables do not fit the data.
        UnsupportedProgramError
            If the posterior does not know its program (draws from MCMC, or a program of one's own read back from a file).
        """
        self._refuse_without_engine("extend")
        data = self.data.extend(entities, relations)
        origin = self._with_answers(data)
        keywords = origin.keywords
        kernels = [keywords.get("attribute_kernel"), *(keywords.get("relation_kernels") or {}).values()]
        if any(isinstance(kernel, Precomputed) for kernel in kernels):
            raise UnsupportedProgramError(
                "extend: a Precomputed covariance has no entries for newcomers; fit anew with the larger matrix"
            )
        told = self._kept_info(("hyperparameters",))
        return self._run_again(origin, self.sites, self.hyperparameters, told, progress_bar)

    def arrays(self) -> Stored:
        arrays, content = super().arrays()
        more, content["data"] = encode_data(self.data)
        content["origin"] = None if self.origin is None else self.origin.encoded()
        try:
            content["likelihood"] = encode(self.likelihood)
        except TypeError:  # nobody could predict answers from the file
            raise StorageError(
                f"the likelihood {type(self.likelihood).__name__} cannot be stored; those of relpref.likelihoods can, and others after "
                "relpref.register('likelihood', name, class)"
            ) from None
        return arrays | more, content

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], content: Any, program: Any = None) -> "UtilityPosterior":
        stored = cls._stored_fields(arrays, content)
        data = decode_data(arrays, content["data"])
        origin = Origin.decoded(content["origin"], data, program=program)
        likelihood = checked(decode(content["likelihood"]), AnswerModel, "the likelihood")
        return cls(**stored, data=data, origin=origin, likelihood=likelihood)

    def groups(self, num_samples: int, key: Any) -> Groups:
        # Every answer in a row of its own: a row of count k has k replicates, not one k times.
        data = replace(self.data, comparisons=self.data.comparisons.single())
        origin = None if self.origin is None else self._with_answers(data)
        groups, coords, dims = draw_groups(replace(self, data=data, origin=origin), num_samples, key)
        labels, answers = plain_coordinates(data.entities), data.comparisons
        raters = plain_coordinates(answers.raters)
        coords |= {"entity": labels, "attribute": list(data.attribute_names), "rater": raters}
        dims |= {"utility": ["entity"], "attributes": ["entity", "attribute"], "rater_noise": ["rater"]}
        if np.ndim(self.hyperparameters.get("attributes_lengthscale", 0.0)) == 1:
            dims["attributes_lengthscale"] = ["attribute"]
        if "observed_data" in groups:
            names = np.asarray(labels)
            constants = {"winner": names[answers.winner], "loser": names[answers.loser]}
            if answers.rater is not None:
                constants["rater"] = np.asarray(raters)[answers.rater]
            dims |= {name: ["comparison"] for name in (*groups["observed_data"], *constants)}
            coords["comparison"] = np.arange(data.num_comparisons)
            if data.attributes.shape[1]:
                constants["attributes"] = data.attributes
            groups["constant_data"] = constants
        return Groups(groups, coords, dims)

    def _labels(self) -> pd.Index:
        return pd.Index(objects(self.data.entities), name="entity", tupleize_cols=False)

    def _parts(self) -> Parts:
        parts = next(iter(self.parts.values()), Parts({}, {}))
        # JAX sorts dictionaries; people expect the attributes first and then the relations as they gave them.
        order = [name for name in ("attributes", *self.data.relations) if name in parts.means]
        order += [name for name in parts.means if name not in order]
        known = [
            name for name in order if name in parts.covariances
        ]  # of too many entities for a matrix, none
        parts = Parts({n: parts.means[n] for n in order}, {n: parts.covariances[n] for n in known})
        if not parts.means and self.quick_answers:
            raise DataError(
                "nobody knows yet what quick updates did to the parts of the utilities; call update() first"
            )
        if not parts.means:
            raise DataError("this posterior's prior has no named parts to explain it by")
        return parts


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


def _widened(draws: Floats, value: Any) -> Floats:
    """Draws of a vector that has grown: what is new is the same in all of them."""
    size, shape = len(draws), np.shape(value)
    if draws.shape[1:] == shape:
        return draws
    grown = np.array(np.broadcast_to(value, (size, *shape)))
    grown[:, : draws.shape[1]] = draws
    return grown
