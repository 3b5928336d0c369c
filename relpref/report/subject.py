"""Ranking of a page: order, places and names of the items."""

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from relpref.errors import RelprefError
from relpref.infer import UtilityPosterior
from relpref.posterior.gaussian import Floats, Margins, generator
from relpref.posterior.tables import expectations, questions
from relpref.report.blocks import Cell, Names, cell, decimals_for, isolated, listed
from relpref.report.model import takes_likelihood
from relpref.report.trust import Checked

INTERVAL = 0.9
ROWS = 50  # rows of the ranking that are shown with their places
ALL_RANKED = 3000  # with more items, only the rows that are shown have places
_DRAWS = 1000  # for their places


class Subject:
    """Posterior of a page, and the names of its items.

    Parameters
    ----------
    posterior : UtilityPosterior
        Posterior of the items that are shown.
    within : UtilityPosterior, optional
        Posterior of all items, if some of very many items are shown; ``full`` is this or
        ``posterior``.
    """

    def __init__(self, posterior: UtilityPosterior, within: UtilityPosterior | None = None) -> None:
        self.posterior, self.within, self.full = posterior, within, within or posterior
        self.checked, self.names = Checked(posterior), Names(posterior.data.labels)
        self.position: dict[Any, int] = {
            label: row for row, label in enumerate(posterior.data.labels)
        }

    @cached_property
    def chosen(self) -> NDArray[np.intp]:
        """Positions of the shown items among all."""
        return np.asarray(self.full.data.index(self.posterior.data.labels), dtype=np.intp)

    @cached_property
    def ranking(self) -> pd.DataFrame:
        """Rows by place, best first; ``position`` is the position of the item in the data."""
        posterior, large = self.posterior, self.posterior.data.num_items > ALL_RANKED
        table = posterior.ranking(interval=INTERVAL, ranks=not large)
        # Labels may be any objects, so rows are found by position.
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
            reach = float(ndtri(0.5 + INTERVAL / 2)) * sd
            table = table.assign(mean=mean, sd=sd, lower=mean - reach, upper=mean + reach)
        if large:
            places = places_of(posterior, table["position"].to_numpy()[:ROWS])
            table = table.join(pd.DataFrame(places))
        return table

    @cached_property
    def beats(self) -> Floats:
        """Probability that an answer favors an item over an average one, best first; or empty."""
        posterior, order = self.posterior, self.order
        if self.within is not None or not takes_likelihood(posterior):
            return np.empty(0)
        belief, other = posterior.belief.centred(), np.roll(order, 1)  # any other items
        variances = np.zeros_like(belief.locations)
        if belief.scales is not None:
            variances = np.maximum(np.diagonal(belief.scales, axis1=1, axis2=2), 0.0)
        margins = Margins.of(belief.locations[:, order], variances[:, order], belief.weights)
        ends = order.astype(np.int32), other.astype(np.int32)
        pairs = questions(posterior.data, *ends, None, None)
        answers, likelihood = posterior.data.comparisons, posterior.likelihood
        try:
            table = expectations(posterior, likelihood, answers, pairs, margins)
        except RelprefError:
            return np.empty(0)
        return np.asarray(table["probability"])

    @property
    def ties(self) -> bool:
        """Whether answers may be ties, which favor neither item."""
        return self.full.data.comparisons.tie is not None

    @cached_property
    def groups(self) -> NDArray[np.intp] | None:
        """Connected group of each item; None if all utilities can be compared."""
        data = self.full.data
        if data.attribute_names or not data.num_answers:
            return None
        names, group = np.unique(np.asarray(data.groups())[self.chosen], return_inverse=True)
        return group if len(names) > 1 else None

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Number of items in each group."""
        return np.bincount(self.groups)  # type: ignore[arg-type]

    def named(self, label: Any) -> str:
        """Name of an item, or of an effect of a covariate, within a sentence."""
        if label in self.position:
            return self.names.inline(self.position[label])
        return isolated(cell(label).text)

    def several(self, positions: NDArray[np.intp]) -> str:
        """Names of a few items, and the number of the others."""
        named = [self.names.inline(position) for position in positions[:10]]
        return listed([*named, *[""] * (len(positions) - len(named))], most=10)

    def cells(self, labels: Iterable[Any]) -> list[Cell]:
        """Names for a table; the page may not show an item."""
        return [
            self.names.cells([self.position[label]])[0] if label in self.position else cell(label)
            for label in labels
        ]

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """Positions in the data, best first."""
        return np.asarray(self.ranking["position"], dtype=np.intp)

    @cached_property
    def decimals(self) -> int:
        """Number of decimals of utilities."""
        return decimals_for(self.ranking[["lower", "upper"]].to_numpy().ravel())

    @cached_property
    def won(self) -> NDArray[np.int64]:
        """Answers in favor of each item, shape (n,)."""
        answers = self.full.data.comparisons
        if answers.probability is not None:
            favored = np.where(answers.probability > 0.5, answers.winner, answers.loser)
            return self._counted(favored, answers.probability != 0.5)
        return self._counted(answers.winner, True if answers.tie is None else ~answers.tie)

    @cached_property
    def asked(self) -> NDArray[np.int64]:
        """Answers about each item, shape (n,)."""
        data = self.full.data
        return self._counted(data.winner) + self._counted(data.loser)

    def _counted(
        self, ends: NDArray[np.int32], which: NDArray[np.bool_] | bool = True
    ) -> NDArray[np.int64]:
        """Number of answers that have each item at these ends."""
        data = self.full.data
        total = np.zeros(data.num_items, dtype=np.int64)
        np.add.at(total, ends, np.where(which, data.count, 0))
        return total[self.chosen]

    @cached_property
    def pairs(self) -> int:
        """Number of pairs with answers."""
        data = self.full.data
        ends = np.stack([np.asarray(data.winner), np.asarray(data.loser)])
        return int(np.unique(np.sort(ends, axis=0), axis=1).shape[1])

    @cached_property
    def contradicted(self) -> int:
        """Number of pairs that were answered both ways."""
        data = self.posterior.data
        kept = slice(None) if data.comparisons.tie is None else ~np.asarray(data.comparisons.tie)
        ends = np.stack(
            [np.asarray(end, dtype=np.int64)[kept] for end in (data.winner, data.loser)]
        )
        # Each winner and loser once: equal answers of two raters, or of two strengths, agree.
        pairs = np.sort(np.unique(ends, axis=1), axis=0)
        return int(np.sum(np.unique(pairs, axis=1, return_counts=True)[1] > 1))


def places_of(posterior: UtilityPosterior, chosen: NDArray[np.intp]) -> dict[str, Floats]:
    """Places of some items among all, as columns of the ranking, with little memory."""
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
