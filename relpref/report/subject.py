"""What a page about labelled entities is about: the posterior, its ranking, and how the entities are called."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.infer import UtilityPosterior
from relpref.report.blocks import Cell
from relpref.report.text import Names, decimals_for

INTERVAL = 0.9


@dataclass(frozen=True)
class Subject:
    """A posterior with what several chapters need of it.

    Parameters
    ----------
    posterior : UtilityPosterior
    """

    posterior: UtilityPosterior

    @cached_property
    def ranking(self) -> pd.DataFrame:
        """By place, best first; the column ``position`` holds the entity's position in the data."""
        table = self.posterior.ranking(interval=INTERVAL)
        # The labels may be anything, so the table is not looked up by them.
        position = {label: row for row, label in enumerate(self.posterior.data.entities)}
        return table.assign(position=[position[label] for label in table.index]).reset_index(drop=True)

    @cached_property
    def names(self) -> Names:
        """Of the entities."""
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
        answers = self.posterior.data.comparisons
        if answers.probability is not None:
            favoured = np.where(answers.probability > 0.5, answers.winner, answers.loser)
            return self._counted(favoured, answers.probability != 0.5)
        return self._counted(answers.winner, True if answers.tie is None else ~answers.tie)

    @cached_property
    def asked(self) -> NDArray[np.int64]:
        """Answers about each entity, shape (n,)."""
        return self._counted(self.posterior.data.winner) + self._counted(self.posterior.data.loser)

    def cell(self, position: int) -> Cell:
        """The name of an entity for a table."""
        short, full = self.names.short[position], self.names.full[position]
        return Cell(short, full if short != full else None)

    def _counted(self, ends: NDArray[np.int32], which: NDArray[np.bool_] | bool = True) -> NDArray[np.int64]:
        total = np.zeros(self.posterior.data.num_entities, dtype=np.int64)
        np.add.at(total, ends, np.where(which, self.posterior.data.count, 0))
        return total
