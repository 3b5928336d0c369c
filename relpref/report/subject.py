"""Items of a report's page: their ranking, their names and the counts of their answers."""

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from relpref.data.arrays import Array, Indices, Integers, Positions
from relpref.errors import RelprefError
from relpref.explore import ExpectedGain, expected_gain, next_pairs
from relpref.infer import UtilityPosterior
from relpref.posterior.gaussian import Floats, Margins, generator
from relpref.posterior.tables import expectations, questions
from relpref.report.blocks import Cell, Names, cell, decimals_for, isolated, listed
from relpref.report.model import takes_likelihood
from relpref.report.trust import Checked
from relpref.report.words import OURS, Words

INTERVAL = 0.9
ROWS = 50  # rows of the ranking that are shown with their places
ALL_RANKED = 3000  # with more items, only the rows that are shown have places
_NEXT, _MORE = 3, 10  # questions that are shown, answers whose gain is computed
_CERTAIN = 0.95  # probability of an answer, above which a note says why it is asked for
_DRAWS = 1000  # draws of all utilities, for the places of the rows that are shown


class Subject:
    """Posterior of a page, with the ranking, the names and the answers of the shown items.

    If some of very many items are shown, arrays of shape (n,) are of the shown ones.

    Parameters
    ----------
    posterior : UtilityPosterior
        Posterior of the items that are shown.
    within : UtilityPosterior, optional
        Posterior of all items, if only some of them are shown. The attribute ``full`` is
        ``within`` or, if that is None, ``posterior``.
    words : Words
        Words for an item and an answer.
    """

    def __init__(
        self,
        posterior: UtilityPosterior,
        within: UtilityPosterior | None = None,
        words: Words = OURS,
    ) -> None:
        self.posterior, self.within, self.full = posterior, within, within or posterior
        self.words = words
        self.checked, self.names = Checked(posterior), Names(posterior.data.labels)
        self.position: dict[Any, int] = {
            label: row for row, label in enumerate(posterior.data.labels)
        }

    @cached_property
    def chosen(self) -> Indices:
        """Positions of the shown items among all items, shape (n,)."""
        return np.asarray(self.full.data.index(self.posterior.data.labels), dtype=np.intp)

    @cached_property
    def ranking(self) -> pd.DataFrame:
        """Ranking of the shown items, best first, as of `UtilityPosterior.ranking`.

        The index is the row number; ``position`` is the item's position in the posterior's labels.
        With more than 3000 items, only the first 50 rows have columns of places.
        """
        posterior, large = self.posterior, self.posterior.data.num_items > ALL_RANKED
        table = posterior.ranking(interval=INTERVAL, ranks=not large)
        # Labels may be any objects, and pandas cannot look up all of them: use positions.
        table = table.assign(position=[self.position[label] for label in table.index]).reset_index(
            drop=True
        )
        if len(table) == 2:  # exact, without draws
            ends = table["position"].to_numpy()
            best = posterior.belief.differences(ends, ends[::-1]).positive
            table = table.assign(p_best=best, expected_rank=2 - best)
        if self.within is not None:  # relative to the average of all items
            belief: Any = self.within.belief
            mean, sd = belief.relative(self.chosen[table["position"].to_numpy()])
            reach = ndtri(0.5 + INTERVAL / 2) * sd
            table = table.assign(mean=mean, sd=sd, lower=mean - reach, upper=mean + reach)
        if large:
            places = places_of(posterior, table["position"].to_numpy()[:ROWS])
            table = table.join(pd.DataFrame(places))
        return table

    @cached_property
    def beats(self) -> Floats:
        """Probability that an answer favors each item over an average item, best first, shape (n,).

        It is empty if only some of the items are shown, or if the probabilities cannot be computed.
        """
        posterior, order = self.posterior, self.order
        if self.within is not None or not takes_likelihood(posterior):
            return np.empty(0)
        # The gap to the average item has the moments of the centred utility. The second items of
        # the pairs are arbitrary.
        belief, other = posterior.belief.centred(), np.roll(order, 1)
        variances = np.zeros_like(belief.locations)
        if belief.scales is not None:
            variances = np.maximum(np.diagonal(belief.scales, axis1=1, axis2=2), 0.0)
        margins = Margins.of(belief.locations[:, order], variances[:, order], belief.weights)
        ends = order.astype(np.int32), other.astype(np.int32)
        pairs = questions(posterior.data, *ends, None, None)
        try:
            table = expectations(posterior, pairs, margins)
        except RelprefError:
            return np.empty(0)
        return np.asarray(table["probability"])

    @property
    def ties(self) -> bool:
        """Whether answers may be ties, which favor neither item."""
        return self.full.data.comparisons.tie is not None

    @cached_property
    def groups(self) -> Indices | None:
        """Number of the connected group of each item, shape (n,), or None.

        It is None if the model has attributes, there are no answers, or all are in the same group.
        """
        data = self.full.data
        if data.attribute_names or not data.num_answers:
            return None
        names, group = np.unique(data.groups()[self.chosen], return_inverse=True)
        return group if len(names) > 1 else None

    @property
    def sizes(self) -> Indices:
        """Number of shown items in each of `groups`, which must not be None."""
        return np.bincount(self.groups)  # type: ignore[arg-type]

    def named(self, label: Any) -> str:
        """Name of an item, for use within a sentence; other labels as text."""
        if label in self.position:
            return self.names.inline(self.position[label])
        return isolated(cell(label).text)

    def several(self, positions: Indices) -> str:
        """Text with the names of at most 10 items, by position, and the number of the others."""
        return listed([*map(self.names.inline, positions)], most=10)

    def cells(self, labels: Iterable[Any]) -> list[Cell]:
        """Table cells with the names of labels, which may be of items that are not shown."""
        return [
            self.names.cells([self.position[label]])[0] if label in self.position else cell(label)
            for label in labels
        ]

    @cached_property
    def questions(self) -> tuple[pd.DataFrame, ExpectedGain] | None:
        """The next questions, and the gain expected of more answers; None if it is unknown.

        The column ``certain`` says whether an answer is almost certain. Pairs with answers are
        asked again only if no others are left.
        """
        posterior, repeats = self.full, 0
        try:
            table = next_pairs(posterior, _NEXT)
            if table.empty:
                repeats = int(np.max(posterior.data.count, initial=0)) + _MORE
                table = next_pairs(posterior, 1, repeats=repeats)
            table["certain"] = np.abs(table["probability"] - 0.5) > _CERTAIN - 0.5
            return table, expected_gain(posterior, _MORE, repeats=repeats)
        except RelprefError:
            return None

    @cached_property
    def order(self) -> Indices:
        """Positions of the shown items in the posterior's labels, best first, shape (n,)."""
        return np.asarray(self.ranking["position"], dtype=np.intp)

    @cached_property
    def decimals(self) -> int:
        """Number of decimals with which utilities are shown."""
        return decimals_for(self.ranking[["lower", "upper"]].to_numpy().ravel())

    @cached_property
    def _preferred(self) -> tuple[Array, Any]:
        """Preferred and other item of each answer, shape (2, m), and which answers prefer one."""
        answers = self.full.data.comparisons
        ends = np.stack([answers.winner, answers.loser])
        if answers.probability is None:
            return ends, slice(None) if answers.tie is None else ~answers.tie
        return np.where(answers.probability > 0.5, ends, ends[::-1]), answers.probability != 0.5

    @cached_property
    def won(self) -> Integers:
        """Number of answers in favor of each item, without ties, shape (n,)."""
        ends, decided = self._preferred
        return self._counted(ends[0], decided)

    @cached_property
    def asked(self) -> Integers:
        """Number of answers about each item, shape (n,)."""
        data = self.full.data
        return self._counted(data.winner) + self._counted(data.loser)

    def _counted(self, ends: Positions, which: Any = slice(None)) -> Integers:
        """Number of answers by item, shape (n,), if each answer counts for the item in ``ends``.

        Only the answers ``which`` are counted.
        """
        data = self.full.data
        total = np.bincount(ends[which], data.count[which], data.num_items)
        return total.astype(np.int64)[self.chosen]

    @cached_property
    def pairs(self) -> int:
        """Number of different pairs with answers, among all items."""
        data = self.full.data
        ends = np.sort(np.stack([data.winner, data.loser]), axis=0)
        return np.unique(ends, axis=1).shape[1]

    @cached_property
    def contradicted(self) -> int:
        """Number of pairs of which each item was preferred at least once."""
        ends, decided = self._preferred
        # Each winner and loser once: equal answers of two raters, or of two strengths, agree.
        pairs = np.sort(np.unique(ends[:, decided], axis=1), axis=0)
        return int(np.sum(np.unique(pairs, axis=1, return_counts=True)[1] > 1))


def places_of(posterior: UtilityPosterior, chosen: Indices) -> dict[str, Floats]:
    """Places among all items of those at the positions ``chosen``, as columns of the ranking.

    They are computed from at most 1000 draws, one draw at a time, which needs little memory.
    """
    belief: Any = posterior.belief
    if posterior.sampled:
        draws = belief.draws[:: -(-len(belief.draws) // _DRAWS)]
    else:
        draws = belief.draw(_DRAWS, generator(posterior.key))
    places = np.empty((len(draws), len(chosen)))
    for place, draw in zip(places, draws, strict=True):
        place[:] = 1 + len(draw) - np.searchsorted(np.sort(draw), draw[chosen], side="right")
    tail = (1 - INTERVAL) / 2
    lower, upper = np.quantile(places, [tail, 1 - tail], axis=0, method="inverted_cdf")
    columns = {"expected_rank": places.mean(axis=0), "rank_lower": lower, "rank_upper": upper}
    return columns | {"p_best": (places == 1).mean(axis=0)}
