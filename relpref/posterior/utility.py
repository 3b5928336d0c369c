"""The posterior of preference programs: utilities with the user's own labels."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from numpy.typing import NDArray
from scipy.special import ndtri

from relpref.data import Comparisons, PreferenceData
from relpref.data.arrays import listed, nearest, shown
from relpref.errors import DataError, UnknownLabelError, UnsupportedProgramError
from relpref.infer.large.covariance import ImplicitBelief
from relpref.infer.result import warn_user
from relpref.kernels import Precomputed
from relpref.likelihoods import AnswerModel, Probit
from relpref.likelihoods.models import PLATES
from relpref.linalg import real
from relpref.posterior.base import Parts, Posterior
from relpref.posterior.gaussian import Belief, Margins

Positions = NDArray[np.int32]


def questions(
    data: PreferenceData, first: Positions, second: Positions, rater: Any, shown_first: Any
) -> Comparisons:
    """Pairs as answers of the data's kind, by a typical rater and with no position known where none is named.

    Parameters
    ----------
    data : PreferenceData
    first, second : array of int32, shape (k,)
    rater : label or None
    shown_first : iterable of k labels or None

    Raises
    ------
    DataError
        If the data does not speak of raters or positions, or a label is none of the pair.
    UnknownLabelError
        If the rater never answered.
    """
    known = data.comparisons
    columns: dict[str, Any] = {
        name: np.zeros(len(first), column.dtype) for name, column in known.columns.items()
    }
    columns |= {"winner": first, "loser": second, "rater": None, "shown_first": None}
    if rater is not None:
        columns["rater"] = np.full(len(first), _rater(known, rater), dtype=np.int32)
    if shown_first is not None:
        if known.shown_first is None:
            raise DataError(
                "shown_first is given, but the answers do not say which entity was shown first; leave it out, "
                "or fit answers with a column shown_first"
            )
        columns["shown_first"] = _shown_first(data, first, second, shown_first)
    return Comparisons(**columns, raters=known.raters, strengths=known.strengths)


def of_one_rater(asked: Comparisons, parameters: Mapping[str, Any]) -> tuple[Comparisons, dict[str, Any]]:
    """Answers of one rater, or of a typical one, without all the others: how many there are must not matter to what is compiled.

    Parameters
    ----------
    asked : Comparisons
    parameters : mapping from site to array
        Those of raters have one entry for each along the last axis.
    """
    if asked.rater is None:
        known = {site: value for site, value in parameters.items() if site not in PLATES}
        return replace(asked, raters=()), known
    rater = int(asked.rater[0])
    known = {
        site: np.asarray(value)[..., rater : rater + 1] if site in PLATES else value
        for site, value in parameters.items()
    }
    alone: dict[str, Any] = {"rater": np.zeros_like(asked.rater), "raters": asked.raters[rater : rater + 1]}
    return replace(asked, **alone), known


def expectations(
    posterior: Posterior, model: AnswerModel, answers: Comparisons, asked: Comparisons, gaps: Margins
) -> dict[str, Any]:
    """Expectations over the next answers, column by column, shape (k,); ``answers`` are those that the posterior comes from.

    Raises
    ------
    DataError
        If the posterior's program does not have the parameters of the likelihood.
    """
    draws = posterior.hyperparameter_draws
    parameters = {}
    for site in model.parameters(answers):
        if site not in posterior.hyperparameters:
            raise DataError(
                f"the posterior has no hyperparameter {site!r}, so nobody knows what its program makes of the columns of the answers; "
                "use a program of relpref.models, or leave the columns out"
            )
        parameters[site] = draws[site] if site in draws else np.asarray(posterior.hyperparameters[site])[None]
    asked, parameters = of_one_rater(asked, parameters)
    with jax.enable_x64(True):
        found = _expectations(model, asked, parameters, gaps.means, gaps.variances, gaps.weights)
        columns = {name: np.asarray(value) for name, value in found.items()}
    if asked.tie is None:
        columns.pop("tie", None)
    return columns


@partial(jax.jit, static_argnums=0)
def _expectations(
    model: AnswerModel,
    asked: Comparisons,
    parameters: Mapping[str, Array],
    means: Array,
    variances: Array,
    weights: Array,
) -> dict[str, Array]:
    def one(parameters: Mapping[str, Array], mean: Array, variance: Array) -> dict[str, Array]:
        return model(real(mean), asked, **parameters).predict(real(mean), real(variance))

    # A fixed parameter beside draws of the others has one value for all.
    size = len(means)
    spread = {site: jnp.broadcast_to(value, (size, *value.shape[1:])) for site, value in parameters.items()}
    found = jax.lax.map(lambda each: one(*each), (spread, means, variances))
    return {name: jnp.asarray(weights) @ value for name, value in found.items()}


def _rater(known: Comparisons, rater: Any) -> int:
    if known.rater is None:
        raise DataError(
            f"rater is {shown(rater)}, but the answers do not say who gave them; leave it out, or fit answers with a column rater"
        )
    if rater not in known.raters:
        close = nearest(rater, known.raters)
        hint = f"nearest: {listed(close)}" if close else f"the raters are {listed(known.raters)}"
        raise UnknownLabelError(
            f"rater: {shown(rater)} has given no answer; {hint}; leave rater out for a typical one"
        )
    return known.raters.index(rater)


def _shown_first(
    data: PreferenceData, first: Positions, second: Positions, labels: Iterable[Any]
) -> NDArray[np.int8]:
    given = [labels] if isinstance(labels, str) else list(labels)
    if len(given) != len(first):
        raise DataError(f"shown_first has {len(given)} labels for {len(first)} pairs; give one for each")
    ends = np.full(len(given), -1, dtype=np.int32)
    named = [row for row, label in enumerate(given) if label is not None]
    ends[named] = data.index([given[row] for row in named])
    for row in named:
        if ends[row] not in (first[row], second[row]):
            raise DataError(
                f"shown_first[{row}] is {shown(given[row])}, which is not in the pair; name one of its two"
            )
    return np.where(ends < 0, 0, np.where(ends == first, 1, -1)).astype(np.int8)


# Draws behind ranks: the error of a probability is at most 0.8 percentage points (one standard error).
RANK_DRAWS = 4000


def ranking_table(
    belief: Belief,
    labels: Iterable[Hashable],
    interval: float,
    rng: np.random.Generator | None,
    name: str,
) -> pd.DataFrame:
    """The entries of a belief, highest first.

    Parameters
    ----------
    belief : Belief
        About n values.
    labels : iterable of n labels
    interval : float
        Probability of the intervals, between 0 and 1.
    rng : numpy Generator or None
        For the ranks, which come from 4000 draws; None leaves them out.
    name : str
        Of the index.

    Returns
    -------
    DataFrame
        ``mean``, ``sd``, ``lower``, ``upper``, ``expected_rank``, ``rank_lower``, ``rank_upper`` (1 is best), ``p_best``.

    Raises
    ------
    DataError
        If ``interval`` is no probability.
    """
    check_interval(interval)
    lower, upper = belief.interval(interval)
    columns = {"mean": belief.mean(), "sd": belief.sd(), "lower": lower, "upper": upper}
    index = pd.Index(objects(labels), name=name, tupleize_cols=False)
    ranks = {} if rng is None else _rank_columns(belief, interval, rng)
    table = pd.DataFrame(columns | ranks, index=index)
    return table.iloc[np.argsort(-table["mean"].to_numpy(), kind="stable")]


def ranking_of_the_best(
    belief: ImplicitBelief, labels: Sequence[Hashable], interval: float, top: int
) -> pd.DataFrame:
    """The entities, highest mean first, with intervals for the best.

    Parameters
    ----------
    belief : ImplicitBelief
        About n utilities.
    labels : sequence of n labels
    interval : float
        Probability of the intervals.
    top : int
        How many get one, from 0.

    Returns
    -------
    DataFrame
        ``mean``, ``sd``, ``lower``, ``upper``, less the average of all; the last three NaN below the first ``top``.

    Raises
    ------
    DataError
        If ``top`` is no whole number from 0.
    """
    if isinstance(top, bool) or not isinstance(top, int | np.integer) or top < 0:
        raise DataError(
            f"top is {top!r}; give a whole number from 0, of how many of the best intervals are wanted"
        )
    means = belief.mean() - belief.mean().mean()
    order = np.argsort(-means, kind="stable")
    columns = {name: np.full(belief.size, np.nan) for name in ("sd", "lower", "upper")}
    best = order[:top]
    if len(best) and np.all(np.isfinite(means)):
        mean, sd = belief.relative(best)
        reach = float(ndtri(0.5 + interval / 2)) * sd
        known = {"sd": sd, "lower": mean - reach, "upper": mean + reach}
        for name, values in known.items():
            columns[name][: len(best)] = values
    index = pd.Index(objects(labels[at] for at in order), name="entity", tupleize_cols=False)
    return pd.DataFrame({"mean": means[order], **columns}, index=index)


def check_interval(interval: float) -> None:
    """Refuse what is no probability."""
    if not 0 < interval < 1:
        raise DataError(f"interval is {interval}; it is a probability between 0 and 1, such as 0.9")


def objects(labels: Iterable[Any]) -> np.ndarray[Any, Any]:
    """Labels as they are, tuples included."""
    listed = list(labels)
    array = np.empty(len(listed), dtype=object)
    for row, label in enumerate(listed):
        array[row] = label
    return array


def _rank_columns(belief: Belief, interval: float, rng: np.random.Generator) -> dict[str, Any]:
    """Summaries of the rank of every entry, from draws."""
    draws = belief.draw(RANK_DRAWS, rng)
    if not np.all(np.isfinite(draws)):
        nothing = np.full(belief.size, np.nan)
        return dict.fromkeys(("expected_rank", "rank_lower", "rank_upper", "p_best"), nothing)
    ranks = _ranks(draws, rng)
    tail = (1 - interval) / 2
    lower, upper = np.quantile(ranks, [tail, 1 - tail], axis=0, method="inverted_cdf").astype(int)
    return {
        "expected_rank": ranks.mean(axis=0),
        "rank_lower": lower,
        "rank_upper": upper,
        "p_best": (ranks == 1).mean(axis=0),
    }


def _ranks(draws: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Rank of every entry in every draw, 1 = highest; ties in random order, so that none of them is the best for certain."""
    order = np.argsort(-draws, axis=1, kind="stable")
    if np.any(np.diff(np.take_along_axis(draws, order, axis=1), axis=1) == 0):
        order = np.lexsort((rng.random(draws.shape), -draws), axis=1)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(1, draws.shape[1] + 1)[None, :], axis=1)
    return ranks


def pairs_of_labels(pairs: Iterable[Any]) -> list[tuple[Any, Any]]:
    """The pairs that a question is about.

    Raises
    ------
    DataError
        If something is not a pair.
    """
    listed = list(pairs)
    for row, pair in enumerate(listed):
        if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2:
            raise DataError(f"pairs[{row}] is {pair!r}; each pair is two labels, for example ('a', 'b')")
    return [(pair[0], pair[1]) for pair in listed]


@dataclass(frozen=True, eq=False, repr=False)
class UtilityPosterior(Posterior):
    """Beliefs about the utilities of labelled entities. Only differences of utilities are identified by answers.

    Attributes
    ----------
    data : PreferenceData
    likelihood : AnswerModel
        How answers come about; of a program of one's own that takes no ``likelihood=``, `Probit` is assumed.
    """

    kind: ClassVar[str] = "utilities"
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
        from relpref.posterior.update import about

        return about(self, np.unique(self.data.index(labels)).astype(np.int64))

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
            ``first``, ``second``; ``probability`` that the next noisy answer favours the first (its expectation, where answers
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
        from relpref.posterior.update import update

        return update(self, answers, withdraw, quick, hyperparameters, progress_bar)

    def extend(
        self, entities: Any = None, relations: Mapping[str, Any] | None = None, *, progress_bar: bool = False
    ) -> "UtilityPosterior":
        """A posterior over the old entities and newcomers.

        The prior is rebuilt with standardisation, graph scaling and hyperparameters as they were, and EP runs again from the
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
        if self.origin is None or not self.origin.engine:
            raise UnsupportedProgramError(
                "extend needs a posterior from EP or Laplace that knows its program; "
                "fit with one of them in this session, or with a program of relpref.models before saving"
            )
        from relpref.infer.importance import POINTS_INFO
        from relpref.infer.search import DRAWS_INFO
        from relpref.posterior.update import engine_again

        data = self.data.extend(entities, relations)
        keywords = self.origin.keywords
        kernels = [keywords.get("attribute_kernel"), *(keywords.get("relation_kernels") or {}).values()]
        if any(isinstance(kernel, Precomputed) for kernel in kernels):
            raise UnsupportedProgramError(
                "extend: a Precomputed covariance has no entries for newcomers; fit anew with the larger matrix"
            )
        origin = self.origin.with_argument(self.data, data)
        draws = self.hyperparameter_draws
        known = {name: value for name, value in self.hyperparameters.items() if name not in draws}
        engine = engine_again(self.origin, fixed=known)
        if draws:
            told = {
                name: self.info[name]
                for name in ("hyperparameters", *DRAWS_INFO, *POINTS_INFO)
                if name in self.info
            }
            given = {"info": told, "prior_log_weights": self.prior_log_weights, **origin.kwargs}
            extended = engine.run_at_draws(draws, self.key, *origin.args, **given)
            if self.log_evidence is None:
                extended = replace(extended, log_evidence=None)
        else:
            extended = engine.run_from(
                self.sites, self.key, *origin.args, progress_bar=progress_bar, **origin.kwargs
            )
        assert isinstance(extended, UtilityPosterior)
        return extended

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
