"""The posterior of preference programs: utilities with the user's own labels."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd

from relpref.data import Comparisons, PreferenceData
from relpref.data.arrays import json_text
from relpref.data.covariates import EFFECT
from relpref.data.parts import induced
from relpref.data.tables import is_table
from relpref.errors import DataError, StorageError, UnsupportedProgramError
from relpref.likelihoods import AnswerModel, Probit
from relpref.likelihoods.answers import SPREADS
from relpref.posterior.arviz import Groups, draw_groups, plain_coordinates
from relpref.posterior.base import FITTED, Parts, Posterior
from relpref.posterior.codec import Arrays, Stored
from relpref.posterior.export import ranking_document
from relpref.posterior.gaussian import (
    Belief,
    DrawsBelief,
    Floats,
    Margins,
    MixtureBelief,
    Positions,
)
from relpref.posterior.html import ranking_html
from relpref.posterior.lists import list_chances, shares_of_the_best
from relpref.posterior.origin import Origin
from relpref.posterior.plots import Colors, draw_curve
from relpref.posterior.summary import forest, sources
from relpref.posterior.tables import (
    check_interval,
    effect_units,
    effects_table,
    expectations,
    label_index,
    pairs_of_labels,
    preference_table,
    question_table,
    questions,
    ranking_of_the_best,
    ranking_table,
    rows_of,
    summaries,
    tier_table,
)
from relpref.registry import find, name_of
from relpref.result import warn_user

UTILITY = "utility"  # the site of preference programs


@dataclass(frozen=True, eq=False, repr=False)
class UtilityPosterior(Posterior):
    """Posterior of the utilities of labeled items; only differences are identified.

    Attributes
    ----------
    data : PreferenceData
    likelihood : AnswerModel
        The model of answers; for a custom program without ``likelihood=``, `Probit` is assumed.
    joint : Belief or None
        Of effects and utilities, where the answers have covariates; ``belief`` is that of the
        utilities alone.

    Examples
    --------
    >>> import relpref
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> posterior = relpref.fit(answers=answers)
    >>> posterior.prefer("tea", "water")["probability"].item() > 0.5
    True
    >>> posterior.update([("water", "tea")]).ranking().index[0]
    'tea'
    """

    kind: ClassVar[Literal["utilities"]] = "utilities"
    data: PreferenceData = field(kw_only=True)
    likelihood: AnswerModel = field(default_factory=Probit, kw_only=True)
    joint: Belief | None = field(default=None, kw_only=True, repr=False)

    @property
    def full(self) -> Belief:
        return self.belief if self.joint is None else self.joint

    def with_full(self, full: Any) -> "UtilityPosterior":
        """Posterior with this distribution of effects and utilities."""
        return replace(self, joint=full, belief=full.subset(slice(self._num_effects, None)))

    @property
    def _num_effects(self) -> int:
        return self.slices[EFFECT].stop if EFFECT in self.slices else 0

    @property
    def has_answers(self) -> bool:
        return bool(self.data.num_answers)

    def reported(
        self, belief: Belief | None = None, chosen: Positions | slice = slice(None)
    ) -> pd.DataFrame:
        utilities, effects = self._displayed_parts(belief or self.full)
        names = self.data.comparisons.covariate_names[: effects.size]
        labels = [*self._labels()[chosen], *(f"effect of {name}" for name in names)]
        values = {
            "mean": np.concatenate([utilities.mean(), effects.mean()]),
            "sd": np.concatenate([utilities.sd(), effects.sd()]),
        }
        return pd.DataFrame(values, index=label_index(labels, "item"))

    def displayed(self, draws: Floats) -> Floats:
        parts = self._displayed_parts(DrawsBelief(draws))
        return np.concatenate([part.locations for part in parts], axis=1)

    def _displayed_parts(self, full: Belief) -> tuple[Belief, Belief]:
        """Utilities less their average, and effects of one unit of each covariate."""
        effects = self._num_effects
        utilities = full.subset(slice(effects, None)) if effects else full
        return utilities.centred(), self._effects_of(full)

    def _effects_of(self, full: Belief) -> Belief:
        """Effects of one unit of each covariate."""
        if not self._num_effects:
            number = len(full.weights)
            return MixtureBelief(np.zeros((number, 0)), np.zeros((number, 0, 0)), full.weights)
        return full.subset(slice(self._num_effects)).project(self._effect_units)

    @property
    def _effect_units(self) -> Floats:
        answers: Any = self.data.comparisons
        return effect_units(answers.covariates_are, answers.covariate_scales)

    @property
    def effects(self) -> pd.DataFrame:
        """Effects of one unit of each covariate on the gap of utilities, by name.

        Columns ``mean``, ``sd``, ``lower`` and ``upper`` (the 90 % interval), and ``p_positive``,
        the probability that the effect is above
        0. A category has an effect for each level, less the average over the levels.
        """
        self._warn_if_not_converged()
        names = self.data.comparisons.covariate_names if self._num_effects else ()
        return effects_table(self._effects_of(self.full), names, 0.9)

    def attribute_effects(self, interval: float = 0.9) -> pd.DataFrame:
        """Effects of the attributes on the utility, with intervals.

        For a number, the mean over the items of the slope ∂f/∂x of the attributes' part f, times
        one standard deviation of x over the items. For a column of 0 and 1, the mean change of f
        when items are switched to 1, or from the other levels of its category, equally weighted,
        to this level.

        Parameters
        ----------
        interval : float
            Probability of the intervals, between 0 and 1.

        Returns
        -------
        DataFrame
            By attribute: ``mean``, ``sd``, ``lower``, ``upper``, ``p_positive`` of the effect, in
            units of utility; ``shape``, which is "up" or "down" where the interval is on one side
            of 0, "bent" where the mean slope hides more than half of the mean square slope (at a
            false-alarm rate of 5 % for each attribute), and "unclear" otherwise; ``change``, "one
            sd" or "switch", with "least squares" for the slopes of the plane that fits f best,
            where the kernel has no derivative; ``unit``, one standard deviation in units of x.

        Raises
        ------
        UnsupportedProgramError
            If the posterior does not know its program, or has too many items for a matrix.
        """
        from relpref.posterior.effects import effects_of_attributes

        self._warn_if_not_converged()
        return effects_of_attributes(self, interval)

    def partial_effect(self, attribute: Any, interval: float = 0.9) -> pd.DataFrame:
        """Mean utility by the value of one attribute, all others as they are, with intervals.

        Returns
        -------
        DataFrame
            By 11 values from the smallest to the largest: ``mean``, ``sd``, ``lower``, ``upper``,
            less the average over these values; the mean over up to 36 items, evenly chosen.
        """
        from relpref.posterior.effects import partial_effects

        self._warn_if_not_converged()
        return partial_effects(self, [attribute], interval)[0]

    def plot_effect(self, attribute: Any, *, interval: float = 0.9, axes: Any = None) -> Any:
        """Draw the `partial_effect` of an attribute; returns matplotlib's axes."""
        curve = self.partial_effect(attribute, interval)
        if axes is None:
            from matplotlib import pyplot

            axes = pyplot.subplots(layout="constrained")[1]
        draw_curve(axes, curve, Colors())
        axes.set_xlabel(str(attribute).replace("$", r"\$"))
        axes.set_ylabel(f"utility less its average, with {100 * interval:g}% intervals")
        return axes

    def gaps(self, asked: Comparisons) -> Margins:
        """Margins of the gap of utilities of each question, effects of covariates included."""
        if asked.covariates is None or not asked.covariates.any():
            return self.belief.differences(asked.winner, asked.loser)
        belief: Any = self.full
        return belief.rows(*rows_of(asked, self.require_effects()))

    def require_effects(self) -> int:
        """Return the number of effects of covariates; an error if the program has none."""
        if not self._num_effects:
            raise DataError(
                "the program of the posterior has no effects of covariates; leave them out, or use "
                "a program of relpref.models"
            )
        return self._num_effects

    def _repr_html_(self) -> str:
        """Return the ranking of the first 20 items with their intervals, for notebooks."""
        trouble = "" if self.converged else f" Careful: {self.result.value}"
        caption, notes = f"{self.data.describe()}.{trouble}", self.info.get("notes", ())
        return ranking_html(self.ranking(), 20, 0.9, caption, notes)

    def ranking(
        self, interval: float = 0.9, rng_key: Any = None, *, ranks: bool = True, top: int = 1000
    ) -> pd.DataFrame:
        """The items, best first, relative to the average of all.

        Parameters
        ----------
        interval : float
            Probability of the intervals, between 0 and 1.
        rng_key : JAX key or int, optional
            For the ranks, which come from 4000 draws.
        ranks : bool
            Without them it takes milliseconds.
        top : int
            How many of the best get intervals, where there are too many items for a matrix (NaN for
            the others); `subset` has any.

        Returns
        -------
        DataFrame
            By item: ``mean``, ``sd``, ``lower``, ``upper`` of its utility less the average over the
            items; with ranks ``expected_rank``, ``rank_lower``, ``rank_upper`` (1 is best),
            ``p_best`` and ``tier`` (see `tiers`), but not of too many items for a matrix.

        Notes
        -----
        Ranks are whole numbers, so the interval of a rank holds at least the probability
        ``interval``, and often more: in simulations 80 % intervals held 94 to 97 % of the ranks of
        6 items, 84 to 88 % of 30, and 82 % of 100.
        """
        check_interval(interval)
        self._warn_if_not_converged()
        if self.large:
            large: Any = self.belief
            return ranking_of_the_best(large, self.data.labels, interval, top)
        rng = self._rng(rng_key) if ranks else None
        return ranking_table(self.belief.centred(), self.data.labels, interval, rng, "item")

    def _summarized(self, top: int, interval: float) -> list[str]:
        lines = [
            f"{self.data.describe()}."
            if self.has_answers
            else f"No answers yet: {self.data.describe()}."
        ]
        if self.empty:
            return lines
        table, _ = self._ranked(interval, top)
        lines.append(forest(table, top, interval, "item", "utility"))
        lines += [
            f"Effect of {name}: {row['mean']:+.3g}, 90% interval {row['lower']:+.3g} to "
            f"{row['upper']:+.3g}."
            for name, row in self.effects.iterrows()
        ]
        if len(self.parts.get(UTILITY, Parts({}, {})).means) > 1 and np.ptp(table["mean"]) > 0:
            lines.append(sources(self.shares(), self.indistinguishable_parts))
        return lines

    def _ranked(self, interval: float, top: int) -> tuple[pd.DataFrame, str]:
        more: dict[str, Any] = {"top": top} if self.large else {}
        return self.ranking(interval, **more), "utility less the average of all"

    def tiers(self, probability: float = 0.95) -> pd.DataFrame:
        """Groups of items that cannot be told apart from the best of the group.

        The leader opens a tier, and everyone it cannot be told apart from joins; the best of the
        rest opens the next tier. With d the difference of two utilities, two items are told apart
        where E d is above c·sd, with c the quantile of the range of as many normal numbers over √2
        (Tukey). With the given probability all differences lie within c sds of their means, so all
        pairs that are told apart are in the right order.

        Parameters
        ----------
        probability : float
            That all pairs that are told apart are in the right order, between 0 and 1.

        Returns
        -------
        DataFrame
            By item, best first: ``tier``, counted from 1; ``rank_lower_all`` and
            ``rank_upper_all``, one more than the number of items told apart above it, and the
            number of items less those told apart below it. These intervals hold the ranks of all
            items at once, whereas those of `ranking` hold one rank each.

        Raises
        ------
        DataError
            If the probability is none.
        UnsupportedProgramError
            If there are too many items for a covariance matrix; `subset` has the tiers among some
            of them.

        Notes
        -----
        A tier need not be without gaps in the ranking: an item about which little is known cannot
        be told apart from those far above it. In simulated tables of items that are all equal,
        equal at the top, or normal, all statements together held in at least 98 % of the tables.
        """
        self._warn_if_not_converged()
        self._refuse_large("tiers")
        return tier_table(self.belief.centred(), self.data.labels, probability, "item")

    def _refuse_large(self, method: str) -> None:
        if self.large:
            raise UnsupportedProgramError(
                f"{method} compares all pairs, and there is no covariance matrix of "
                f"{self.data.num_items} items; posterior.subset(labels).{method}() does so for "
                "some of them"
            )

    def to_json(self, interval: float = 0.9, *, top: int | None = None, pairs: int = 50) -> str:
        """The ranking as a JSON document that a web page can show.

        Parameters
        ----------
        interval : float
            Probability of the intervals, between 0 and 1.
        top : int, optional
            Number of the best items; all by default.
        pairs : int
            Number of the best items whose pairs are listed: k items have k(k − 1)/2 of them.

        Returns
        -------
        str
            ``interval``; ``probability`` of all ties at once; the number of ``items``;
            ``ranking``, a row for each item, best first, with ``item``, the columns of `ranking`
            and ``tied_with_leader``; and ``pairs`` with ``first``, ``second``, the ``gap`` of their
            utilities, its interval (``lower``, ``upper``), the ``probability`` that the first is
            better, and ``tied``, whether they cannot be told apart (see `tiers`). Numbers that are
            unknown are null.

        Raises
        ------
        UnsupportedProgramError
            If there are too many items for a covariance matrix; `subset` has a document of some.
        """
        self._refuse_large("to_json")
        return json_text(ranking_document(self, interval, top, pairs))

    def robustness(self, top: int = 1) -> Any:
        """Few answers whose removal changes the first items, see `relpref.diagnostics.robustness`.

        Parameters
        ----------
        top : int
            Number of first items.
        """
        return find("function", "robustness")(self, top)

    def subset(self, labels: Iterable[Any]) -> "UtilityPosterior":
        """Posterior of some of the items, with the answers and links among them.

        With too many items for a matrix, it has more than means: draws, ranks, a report.

        Raises
        ------
        UnknownLabelError
            If a label is no item.
        """
        return self.at_positions(np.unique(self.data.index(labels)).astype(np.int64))

    def at_positions(self, positions: Positions, *, parts: bool = True) -> "UtilityPosterior":
        """Posterior of the items at ascending positions, see `subset`.

        The ``parts`` of their utilities take as much time as their covariance.
        """
        if len(positions) < 2:
            raise DataError(
                f"subset takes two items or more, not {len(positions)}: only differences mean "
                "something"
            )
        data, rows = induced(self.data, positions)
        belief: Any = self.belief
        effects = self._num_effects
        joint = self.joint and self.joint.subset(
            np.concatenate([np.arange(effects), effects + positions])
        )
        kept = {}
        for site, of_all in self.parts.items() if parts else ():
            means = {name: mean[positions] for name, mean in of_all.means.items()}
            covariances = {name: value[positions] for name, value in of_all.covariances.items()}
            kept[site] = Parts(
                means, belief.implicit.shares(positions) if self.large else covariances
            )
        return replace(
            self,
            belief=belief.subset(positions),
            joint=joint,
            slices={
                site: rows_of_site if site == EFFECT else slice(effects, effects + len(positions))
                for site, rows_of_site in self.slices.items()
            },
            parts=kept,
            info={**self.info, "about": f"{len(positions)} of {self.data.num_items} items"},
            sites={name: np.asarray(value)[..., rows] for name, value in self.sites.items()},
            origin=None,
            data=data,
        )

    def utilities(self, interval: float = 0.9) -> pd.DataFrame:
        """Raw utilities in the data's order; the mean alone if there is no covariance matrix.

        Columns ``mean``, ``sd``, ``lower`` and ``upper``.
        """
        check_interval(interval)
        self._warn_if_not_converged()
        if self.large:
            return pd.DataFrame({"mean": self.belief.mean()}, index=self._labels())
        return pd.DataFrame(summaries(self.belief, interval), index=self._labels())

    def prefer(
        self,
        pairs: Iterable[tuple[Any, Any]] | Any,
        second: Any = None,
        *,
        rater: Any = None,
        shown_first: Any = None,
        home: Any = None,
        covariates: Mapping[str, Any] | None = None,
    ) -> pd.DataFrame:
        """The probability that the first of each pair is preferred to the second.

        Parameters
        ----------
        pairs : iterable of (label, label), table, or label
            The first of a single pair, where ``second`` is given. A table (a DataFrame of pandas or
            another library, a list of dictionaries, a dictionary of columns) has the columns
            ``first`` and ``second``, or ``winner`` and ``loser``. Its columns ``rater``,
            ``shown_first`` and those of covariates are used as in tables of answers. Others are not
            used: the result has a note on them in ``attrs["notes"]``; one that is no column of
            answers raises a warning, too.
        second : label, optional
        rater : label or iterable of labels, optional
            Who is asked, where answers have raters: one for all pairs, or a list of one for each;
            None is a typical one, the default.
        shown_first : label, "first", "second" or iterable of these, optional
            Which of each pair is shown first, None where that is not known, where answers have
            positions; nothing is gained by position by default.
        home : label or iterable of labels, optional
            Short for ``covariates={"home": home}``.
        covariates : mapping from column to values, optional
            Covariates of the two sides of each pair, where answers have some: ``x_first`` and
            ``x_second``, or the item that a column x names (None for neither), with one value for
            each pair or one for all. The sides are equal in those that are not given.

        Returns
        -------
        DataFrame
            ``first``, ``second``; ``probability`` that the next noisy answer favors the first (its
            expectation, where answers are probabilities); ``tie`` that it is a tie, where there are
            some; ``p_better`` that the first's utility is the higher; ``gap_mean`` and ``gap_sd``
            of the difference of utilities. Covariates change the first two alone.

        Raises
        ------
        UnknownLabelError
            If a label is no item, or the rater never answered.
        DataError
            If something that is not a pair is among the pairs, the answers do not speak of raters,
            positions or these covariates, a value of a covariate cannot be used, or a column of the
            table is given as an argument, too.
        """
        table = None
        if second is None and is_table(pairs):
            table = pairs = question_table(pairs, self.data.comparisons)
        pairs = pairs_of_labels(pairs) if second is None else [(pairs, second)]
        self._warn_if_not_converged()
        first, last = (self.data.index([pair[end] for pair in pairs]) for end in (0, 1))
        given = _with_home(covariates, home)
        asked = questions(self.data, first, last, rater, shown_first, given, table)
        expected = expectations(self, asked, self.gaps(asked))
        answers = preference_table(pairs, expected, self.belief.differences(first, last))
        if table is not None and table.notes:
            answers.attrs["notes"] = table.notes
        return answers

    def next_pairs(self, k: int = 1, **options: Any) -> pd.DataFrame:
        """Choose the next k questions to ask, best first.

        Short for `relpref.explore.next_pairs`, which has the options; warns if there are fewer.
        """
        table: pd.DataFrame = find("function", "next_pairs")(self, k, **options)
        for note in table.attrs.get("notes", ()):
            warn_user(note)
        return table

    def choose(
        self,
        labels: Iterable[Any],
        *,
        rater: Any = None,
        home: Any = None,
        covariates: Mapping[str, Any] | None = None,
        rng_key: Any = None,
    ) -> pd.DataFrame:
        """Probability that each of several items is chosen first among them.

        Parameters
        ----------
        labels : iterable of labels
        rater : label, optional
            Who chooses, where answers have raters; by default a typical one.
        home : label, optional
            Short for ``covariates={"home": home}``.
        covariates : mapping from name to values, optional
            Covariates of the items, where answers have some: x has one value for each item, or one
            for all; if a column x of the answers names a side, the item that it names, None for
            none. The items are equal in those that are not given.
        rng_key : JAX key or int, optional
            Of the draws for ``p_best``.

        Returns
        -------
        DataFrame
            By item, most likely first: ``probability`` that the next noisy choice is this one, with
            a relative standard error of at most 0.5 % (with Gaussian noise that of two items is
            exact, as of `prefer` without ties), and ``p_best`` that its utility is the highest
            among them, from draws. Raters and covariates change the first alone. The place where an
            item is shown has no effect in lists.

        Raises
        ------
        DataError
            If there are fewer than two items, one is there twice, the answers do not speak of
            raters or these covariates, they are reported probabilities and there is a rater, or a
            value of a covariate cannot be used.
        UnknownLabelError
            If a label is no item, or the rater never answered.
        UnsupportedProgramError
            If the likelihood says nothing of lists.
        """
        self._warn_if_not_converged()
        labels, rng, given = list(labels), self._rng(rng_key), _with_home(covariates, home)
        items, places = self.data.index(labels), range(len(labels))
        orders = [[first, *(place for place in places if place != first)] for first in places]
        table = pd.DataFrame(
            {
                "probability": list_chances(self, items, orders, 1, rater, given),
                "p_best": shares_of_the_best(self.belief.subset(items), rng),
            },
            index=label_index(labels, "item"),
        )
        return table.sort_values("probability", ascending=False, kind="stable")

    def order(
        self,
        labels: Iterable[Any],
        *,
        rater: Any = None,
        home: Any = None,
        covariates: Mapping[str, Any] | None = None,
    ) -> float:
        """Probability that the next noisy order of some items is this one.

        Parameters
        ----------
        labels : iterable of labels
            The best first.
        rater, home, covariates
            As for `choose`, and so are the errors.

        Returns
        -------
        float
            With a relative standard error of at most 0.5 %, also for long orders, or there is a
            warning.
        """
        self._warn_if_not_converged()
        items, given = self.data.index(list(labels)), _with_home(covariates, home)
        orders = [range(len(items))]
        return float(list_chances(self, items, orders, len(items) - 1, rater, given)[0])

    def explain(self) -> pd.DataFrame:
        """Explain each utility by its parts.

        A warning says which parts the answers cannot tell apart, because their covariances are
        nearly proportional (correlated by over 0.95), such as those of the items themselves
        (``individual``) and of a relation of short range: only their sum is known.

        Returns
        -------
        DataFrame
            By item, in the data's order: one column for each part (``attributes``, each relation)
            with its signed contribution less its average over the items; ``mean`` with their sum,
            as `ranking` has it; and ``share_<part>`` = Cov(part, total)/Var(total) of that item's
            raw utility, which add up to 1. Of too many items for a matrix shares are left out;
            `subset` has them.
        """
        self._warn_if_not_converged()
        parts = self._parts()
        for first, second in self.indistinguishable_parts:
            warn_user(
                f"the answers cannot tell the parts {first!r} and {second!r} apart, whose prior "
                "covariances are nearly proportional: only their sum is known"
            )
        columns = {**parts.means, "mean": self.belief.mean()}
        table = {name: value - value.mean() for name, value in columns.items()}
        variance = sum(parts.covariances.values())
        table |= {
            f"share_{name}": covariance / variance for name, covariance in parts.covariances.items()
        }
        return pd.DataFrame(table, index=self._labels())

    def shares(self) -> pd.Series:
        """The share of each part in the spread of the items' mean utilities.

        Returns
        -------
        Series
            By part: Cov(part, total)/Var(total) over the items. They add up to 1; one that works
            against the others is negative; NaN where the means are all equal.
        """
        self._warn_if_not_converged()
        means = pd.DataFrame(self._parts().means)
        centred = means - means.mean()
        total = centred.sum(axis=1)
        return (centred.T @ total / (total @ total or np.nan)).rename("share")

    def update(
        self,
        answers: Any = None,
        *,
        withdraw: Any = None,
        quick: bool | float = False,
        hyperparameters: Literal["keep", "refit", "schedule"] = "keep",
        progress_bar: bool = False,
    ) -> "UtilityPosterior":
        """A posterior with more answers, or without some.

        Parameters
        ----------
        answers : DataFrame or list of (winner, loser), optional
            More of them, as `PreferenceData.from_tables` takes them. The first tie or a new rater
            brings a hyperparameter, which is at its prior's median until hyperparameters are fitted
            again.
        withdraw : DataFrame or list of (winner, loser), optional
            Answers to remove, as they were given.
        quick : bool or float
            One rank-one change of mean and covariance for each answer, O(n²), from a site that
            matches its moments once, and then up to three sweeps over the sites of all answers:
            near the full result, in milliseconds. How near is estimated by one more sweep:
            ``info["quick_error"]``, the largest move of a mean in posterior sds or relative change
            of an sd; beyond 0.05, or the number given, a full update is made instead.
            ``info["quick_answers"]`` counts quick ones; `explain` and the log evidence
            wait for the next full update, which needs no argument. Lists, the first tie, and an
            answer that shares a group with another one, are learned in full. Of too many items for
            a matrix each is a product with their covariance, without sweeps, and `save` waits, too.
        hyperparameters : {"keep", "refit", "schedule"}
            Kept: the result is that of a full fit with these. Or fitted again, from where they are;
            on schedule that is when the number of answers has changed by a quarter, and at least by
            five, since the last time, or when one was never fitted. Where the noise of raters is
            averaged over with other hyperparameters, a full update fits all of them.
        progress_bar : bool

        Raises
        ------
        DataError
            If answers cannot be used, or one that is withdrawn was not given.
        UnsupportedProgramError
            If the posterior does not know its program (draws from MCMC, or a custom program read
            back from a file); with ``quick`` also if its program looks at more than differences of
            utilities.
        InferenceError
            As for `GaussianEngine.run`.
        """
        if hyperparameters not in ("keep", "refit", "schedule"):
            raise DataError(
                f"hyperparameters is {hyperparameters!r}; it is 'keep', 'refit' or 'schedule'"
            )
        self._known_origin("update")
        if quick and hyperparameters != "keep":
            raise DataError(
                f"hyperparameters is {hyperparameters!r}; quick=True keeps them: leave one of the "
                "two out"
            )
        from relpref.posterior.update import MAX_QUICK_ERROR, Update

        update = Update(self, answers, withdraw)
        if not quick:
            return update.fully(hyperparameters, progress_bar)
        return update.quickly(MAX_QUICK_ERROR if quick is True else quick)

    def _known_origin(self, what: str) -> Origin:
        if self.origin is None or not self.origin.engine:
            raise UnsupportedProgramError(
                f"{what} needs a posterior from EP or Laplace that knows its program; fit with one "
                "of them in this session, or with a program of relpref.models before saving"
            )
        return self.origin

    @property
    def answers_at_fit(self) -> int:
        """Number of answers when hyperparameters were last fitted."""
        return int(self.info.get(FITTED, self.data.num_answers))

    def refit_is_due(self, answers: int) -> bool:
        """Whether the answers have changed by a quarter, and at least five, since the last fit."""
        return abs(answers - self.answers_at_fit) >= max(5, self.answers_at_fit / 4)

    def extend(
        self,
        items: Any = None,
        relations: Mapping[str, Any] | None = None,
        *,
        progress_bar: bool = False,
    ) -> "UtilityPosterior":
        """A posterior over the old items and newcomers.

        The prior is built again with standardization, graph scaling and hyperparameters as they
        were, and the engine runs from the old sites: a graph prior is not projective, so newcomers'
        links move the old items a little, too. The scale of `HiddenCommonCause` and of
        `RelationVectors` is that of the old items in the larger graph.

        Parameters
        ----------
        items : DataFrame or sequence of labels, optional
            With the same attribute columns.
        relations : mapping from relation to edges, optional
            Links between newcomers, or of newcomers with old items.
        progress_bar : bool

        Raises
        ------
        DataError
            If the tables do not fit the data.
        UnsupportedProgramError
            As for `update`.
        """
        from relpref.kernels import Precomputed
        from relpref.posterior.update import grown_values, kept_info, run_again

        origin = self._known_origin("extend")
        data = self.data.extend(items, relations)
        origin = origin.with_argument(self.data, data)
        keywords = origin.keywords
        kernels = [
            keywords.get("attribute_kernel"),
            *(keywords.get("relation_kernels") or {}).values(),
        ]
        if any(isinstance(kernel, Precomputed) for kernel in kernels):
            raise UnsupportedProgramError(
                "extend: a Precomputed covariance has no entries for newcomers; refit with the "
                "larger matrix"
            )
        facts = kept_info(self, ("hyperparameters",))
        return run_again(self, origin, self.sites, grown_values(self, data), facts, progress_bar)

    def arrays(self) -> Stored:
        if name_of("likelihood", type(self.likelihood)) is None:
            raise StorageError(
                f"the likelihood {type(self.likelihood).__name__} cannot be stored; those of "
                "relpref.likelihoods can, and others after "
                "relpref.register('likelihood', name, class)"
            )
        return super().arrays()

    @classmethod
    def from_arrays(cls, arrays: Arrays, content: Any, program: Any = None) -> "Posterior":
        posterior: Any = super().from_arrays(arrays, content, program)
        return posterior.with_full(posterior.belief) if EFFECT in posterior.slices else posterior

    def groups(self, num_samples: int, rng_key: Any) -> Groups:
        # Every answer in a row of its own: a row of count k has k replicates, not one k times.
        data = replace(self.data, comparisons=self.data.comparisons.single())
        origin = None if self.origin is None else self.origin.with_argument(self.data, data)
        groups, coords, dims = draw_groups(
            replace(self, data=data, origin=origin), num_samples, rng_key
        )
        labels, answers = plain_coordinates(data.labels), data.comparisons
        if self._num_effects:
            drawn = groups["posterior"]
            drawn[EFFECT] = drawn[EFFECT] @ self._effect_units.T
        raters = plain_coordinates(answers.raters)
        coords |= {"item": labels, "attribute": list(data.attribute_names), "rater": raters}
        coords["covariate"] = list(answers.covariate_names)
        dims |= {
            UTILITY: ["item"],
            EFFECT: ["covariate"],
            "covariates": ["comparison", "covariate"],
            "attributes": ["item", "attribute"],
            **{site: ["rater"] for site in SPREADS},
        }
        if np.ndim(self.hyperparameters.get("attributes_lengthscale", 0.0)) == 1:
            dims["attributes_lengthscale"] = ["attribute"]
        if "observed_data" in groups:
            names = np.asarray(labels)
            constants = {"winner": names[answers.winner], "loser": names[answers.loser]}
            if answers.rater is not None:
                constants["rater"] = np.asarray(raters)[answers.rater]
            if answers.group is not None:  # empty where there is none
                named = np.asarray([*plain_coordinates(answers.groups), ""], dtype=object)
                constants["group"] = named[answers.group].astype(str)
            dims |= {name: ["comparison"] for name in (*groups["observed_data"], *constants)}
            if answers.covariates is not None:
                constants["covariates"] = answers.covariates
            coords["comparison"] = np.arange(data.num_comparisons)
            if data.attributes.shape[1]:
                constants["attributes"] = data.attributes
            groups["constant_data"] = constants
        return Groups(groups, coords, dims)

    def _of(self, weights: Any, site: str | None) -> Belief:
        return super()._of(weights, site or UTILITY if EFFECT in self.slices else site)

    def _labels(self) -> pd.Index:
        return label_index(self.data.labels, "item")

    def _parts(self) -> Parts:
        parts = self.parts.get(UTILITY, Parts({}, {}))
        # JAX sorts dictionaries; people expect the attributes first and then the relations as they
        # gave them.
        order = dict.fromkeys(("attributes", *self.data.relations, *parts.means))
        means, covariances = (
            {name: values[name] for name in order if name in values}
            for values in (parts.means, parts.covariances)
        )
        if not means and self.quick_answers:
            raise DataError(
                "quick updates do not update the parts of the utilities; call update() first"
            )
        if not means:
            raise DataError("this posterior's prior has no named parts to explain it by")
        return Parts(means, covariances)


def _with_home(covariates: Mapping[str, Any] | None, home: Any) -> dict[str, Any]:
    """Covariates, ``home`` among them."""
    given = dict(covariates or {})
    if home is None:
        return given
    if "home" in given:
        raise DataError(
            "home is given twice, as home= and in covariates=; leave one of the two out"
        )
    return {**given, "home": home}
