"""What a page about labelled entities is about: the posterior, its ranking, and how the entities are called."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from relpref.data import PreferenceData
from relpref.infer import UtilityPosterior
from relpref.infer.large.covariance import ImplicitBelief
from relpref.likelihoods import Probit
from relpref.posterior.gaussian import DrawsBelief, Floats, generator
from relpref.report.blocks import (
    Block,
    Cell,
    Chapter,
    Names,
    Picture,
    Text,
    counted,
    decimals_for,
    fixed,
    percent,
    whole,
)
from relpref.report.certified import Checked
from relpref.report.plots import NARROW, WIDE, Line, forest, grid


def groups_of(data: PreferenceData) -> NDArray[np.intp] | None:
    """Group of each entity, shape (n,); None where utilities of all can be compared, in one group or by attributes."""
    if data.attribute_names or not data.num_answers:
        return None
    groups = np.asarray(data.groups(), dtype=np.intp)
    return groups if np.any(groups != groups[0]) else None


def apart(groups: NDArray[np.intp]) -> str:
    sizes = np.bincount(groups)
    alone = int(np.sum(sizes == 1))
    which = f", {whole(alone)} of them with a single entity" if alone else ""
    return (
        f"The {counted(len(groups), 'entity', 'entities')} fall into {counted(len(sizes), 'group')} that no answer or relation ties together"
        f"{which}. Compare within a group only: between groups, utilities and places rest on nothing but the prior."
    )


INTERVAL = 0.9
ROWS = 50  # of the ranking that are shown with their places
ALL_RANKED = 3000  # of more entities, only those that are shown get places
_DRAWS = 1000  # behind their places


@dataclass(frozen=True)
class Subject:
    """A posterior with what several chapters need of it.

    Parameters
    ----------
    posterior : UtilityPosterior
    within : UtilityPosterior, optional
        That of all entities, where ``posterior`` is about some of more than a matrix has room for.
    """

    posterior: UtilityPosterior
    within: UtilityPosterior | None = None

    @property
    def whole(self) -> UtilityPosterior:
        """The posterior of all entities."""
        return self.within or self.posterior

    @cached_property
    def chosen(self) -> NDArray[np.intp]:
        """Positions of the entities among all."""
        if self.within is None:
            return np.arange(self.posterior.data.num_entities)
        return np.asarray(self.within.data.index(self.posterior.data.entities), dtype=np.intp)

    @cached_property
    def ranking(self) -> pd.DataFrame:
        """By place, best first; the column ``position`` holds the entity's position in the data."""
        posterior, large = self.posterior, self.posterior.data.num_entities > ALL_RANKED
        table = posterior.ranking(interval=INTERVAL, ranks=not large)
        # The labels may be anything, so the table is not looked up by them.
        table = table.assign(position=[self.position[label] for label in table.index]).reset_index(drop=True)
        if len(table) == 2:  # from the gap itself, not from draws of it
            ends = table["position"].to_numpy()
            best = posterior.belief.differences(ends, ends[::-1]).positive
            table = table.assign(p_best=best, expected_rank=2 - best)
        if self.within is not None:  # relative to the average of all, as in their ranking
            belief = self.within.belief
            assert isinstance(belief, ImplicitBelief)
            mean, sd = belief.relative(self.chosen[table["position"].to_numpy()])
            reach = float(ndtri(0.5 + INTERVAL / 2)) * sd
            table = table.assign(mean=mean, sd=sd, lower=mean - reach, upper=mean + reach)
        if large:
            places = places_of(posterior, table["position"].to_numpy()[:ROWS])
            table = table.join(pd.DataFrame(places))
        return table

    @cached_property
    def checked(self) -> Checked:
        return Checked(self.posterior)

    @cached_property
    def position(self) -> dict[Any, int]:
        """Of each label in the data."""
        return {label: row for row, label in enumerate(self.posterior.data.entities)}

    @cached_property
    def groups(self) -> NDArray[np.intp] | None:
        """Group of each entity, where only utilities within one can be compared."""
        groups = groups_of(self.whole.data)
        if groups is None or self.within is None:
            return groups
        names, own = np.unique(groups[self.chosen], return_inverse=True)
        return own if len(names) > 1 else None

    def named(self, label: Any) -> str:
        """An entity within a sentence, by its label."""
        return self.names.inline(self.position[label])

    @cached_property
    def names(self) -> Names:
        return Names(self.posterior.data.entities)

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """Positions in the data, best first."""
        return np.asarray(self.ranking["position"], dtype=np.intp)

    @cached_property
    def decimals(self) -> int:
        """With which utilities are written."""
        return decimals_for(self.ranking[["lower", "upper"]].to_numpy().ravel())

    @cached_property
    def won(self) -> NDArray[np.int64]:
        """Answers in favour of each entity, shape (n,)."""
        answers = self.whole.data.comparisons
        if answers.probability is not None:
            favoured = np.where(answers.probability > 0.5, answers.winner, answers.loser)
            return self._counted(favoured, answers.probability != 0.5)
        return self._counted(answers.winner, True if answers.tie is None else ~answers.tie)

    @cached_property
    def asked(self) -> NDArray[np.int64]:
        """Answers about each entity, shape (n,)."""
        return self._counted(self.whole.data.winner) + self._counted(self.whole.data.loser)

    def cell(self, position: int) -> Cell:
        """The name of an entity for a table."""
        short, full = self.names.short[position], self.names.full[position]
        return Cell(short, full if short != full else None)

    def _counted(self, ends: NDArray[np.int32], which: NDArray[np.bool_] | bool = True) -> NDArray[np.int64]:
        data = self.whole.data
        total = np.zeros(data.num_entities, dtype=np.int64)
        np.add.at(total, ends, np.where(which, data.count, 0))
        return total[self.chosen]


def places_of(posterior: UtilityPosterior, chosen: NDArray[np.intp]) -> dict[str, Floats]:
    """Places of some entities among all, draw by draw: the memory of `UtilityPosterior.ranking` grows with all of them.

    Parameters
    ----------
    posterior : UtilityPosterior
    chosen : array of int, shape (k,)
        Positions in the data.

    Returns
    -------
    dict from column of the ranking to array, shape (k,)
    """
    belief = posterior.belief
    if isinstance(belief, DrawsBelief):
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


_ALL_DRAWN = 40
_TOP_DRAWN, _BOTTOM_DRAWN = 25, 10


def ranking(subject: Subject) -> Chapter:
    table = subject.ranking
    size = len(table)
    everyone = f" {whole(subject.whole.data.num_entities)} entities" if subject.within else ""
    text = (
        "The utility is what the answers reveal about how good an entity is. Only differences of utilities have a meaning, so "
        f"each is shown less the average of all{everyone}. The line is its {INTERVAL:.0%} interval: the true value lies in it with "
        f"a probability of {INTERVAL:.0%}. Two entities whose intervals overlap are not necessarily tied."
    )
    if _probit(subject):
        whose = " of a typical rater" if subject.posterior.data.comparisons.rater is not None else ""
        text += f" Of two entities whose utilities are 1 apart, the better one wins 84% of the answers{whose}; 2 apart, 98%."
    if not subject.posterior.data.num_answers:
        text = f"Nothing was answered yet, so this is what is assumed before any answer, and all places are open. {text}"
    blocks: list[Block] = [Text(text)]
    shown = list(range(size))
    caption = "Utilities less the average of all; the number beside each name is its place."
    if size > _ALL_DRAWN:
        shown = [*range(_TOP_DRAWN), *range(size - _BOTTOM_DRAWN, size)]
        caption += f" Of {counted(size, 'entity', 'entities')}, the first {_TOP_DRAWN} and the last {_BOTTOM_DRAWN} are drawn."
    if subject.groups is not None:
        caption += f" {apart(subject.groups)}"
    lines = [_line(subject, place) for place in shown]
    best, last = (subject.names.short[int(subject.order[row])] for row in (0, -1))
    description = (
        f"One row for each of {len(lines)} entities from the best, {best}, to the last, {last}: a dot for the utility and a line "
        "for its interval. The table below holds the numbers."
    )
    wide, narrow = (
        forest(lines, f"ranking{shape.width:.0f}", description, INTERVAL, shape) for shape in (WIDE, NARROW)
    )
    blocks.append(Picture(wide, caption, narrow=narrow))
    blocks.append(_table(subject))
    blocks.append(
        Text(
            "Expected place: the average over the posterior. Best: the probability that no other entity has a higher utility. "
            "Won: answers in favour of the entity, of all that were about it.",
            small=True,
        )
    )
    return Chapter("Ranking", blocks)


def _line(subject: Subject, place: int) -> Line:
    row = subject.ranking.iloc[place]
    position = int(row["position"])
    return Line(
        subject.names.full[position], place + 1, float(row["mean"]), float(row["lower"]), float(row["upper"])
    )


def _table(subject: Subject) -> Block:
    head, rows = subject.ranking.head(ROWS), []
    groups = None if subject.groups is None else pd.factorize(subject.groups[subject.order])[0] + 1
    for place, row in enumerate(head.to_dict("records"), start=1):
        position = int(row["position"])
        middle, lower, upper = (
            fixed(float(row[name]), subject.decimals) for name in ("mean", "lower", "upper")
        )
        asked = int(subject.asked[position])
        rows.append(
            [
                Cell(str(place)),
                subject.cell(position),
                Cell(middle),
                Cell(f"{lower} to {upper}"),
                Cell(fixed(float(row["expected_rank"]), 1)),
                Cell(f"{row['rank_lower']:.0f}–{row['rank_upper']:.0f}"),
                Cell(percent(float(row["p_best"]))),
                Cell(f"{subject.won[position]} of {asked}" if asked else "never asked"),
                *([] if groups is None else [Cell(whole(groups[place - 1]))]),
            ]
        )
    size = len(subject.ranking)
    entities = counted(size, "entity", "entities")
    caption = f"The first {ROWS} of {entities}" if size > ROWS else f"{entities}, best first"
    share = f"{INTERVAL:.0%}"
    columns = (
        "Place",
        "Entity",
        "Utility",
        f"{share} interval",
        "Expected place",
        f"{share} places",
        "Best",
        "Won",
        *([] if groups is None else ["Group"]),
    )
    return grid(caption, columns, rows, numeric=(0, *range(2, len(columns))), heading=1)


def _probit(subject: Subject) -> bool:
    """Whether answers are known to be winners under the probit model, where a gap has a plain meaning in answers."""
    posterior = subject.whole
    answers = posterior.data.comparisons
    graded = any(column is not None for column in (answers.tie, answers.strength, answers.probability))
    return posterior.origin is not None and not graded and posterior.likelihood == Probit()
