"""What may be asked: candidates, repeats, appearances, difficulty."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relpref.data import PreferenceData
from relpref.data.messages import shown
from relpref.errors import DataError
from relpref.explore.scores.gaps import Pool, Positions
from relpref.infer.ranks import pairs_of_labels


@dataclass(frozen=True)
class Limits:
    """What may be asked, see `next_pairs`.

    Raises
    ------
    DataError
        If one of them cannot be meant.
    """

    entities: Iterable[Any] | None = None
    pairs: Iterable[tuple[Any, Any]] | None = None
    repeats: int = 0
    most_appearances: int | None = None
    hardest: float | None = None
    avoid: Iterable[tuple[Any, Any]] = ()

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        whole_number("repeats", self.repeats, 0)
        if self.most_appearances is not None:
            whole_number("most_appearances", self.most_appearances, 1)
        if isinstance(self.entities, str):
            text = shown(self.entities)
            raise DataError(f"entities is the text {text}; give a list of labels, [{text}]")
        if self.hardest is not None and not 0 <= self.hardest < 0.5:
            raise DataError(
                f"hardest is {self.hardest!r}; it is the distance of a probability from one half, at least 0 and below 0.5, "
                "such as 0.02"
            )


def whole_number(name: str, value: Any, least: int) -> None:
    """Refuse what is none, or too small."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise DataError(f"{name} is {shown(value)}; give a whole number, {least} or more")


def appearances(data: PreferenceData) -> NDArray[np.float64]:
    """In how many answers each entity occurs, shape (n,)."""
    ends = np.concatenate([data.winner, data.loser])
    return np.asarray(
        np.bincount(ends, weights=np.tile(data.count, 2), minlength=data.num_entities), np.float64
    )


class Asked:
    """How often each pair and each entity was asked about, with the questions of a batch."""

    def __init__(
        self, data: PreferenceData, limits: Limits, often: NDArray[np.float64] | None = None
    ) -> None:
        known, self._number, self._limits = data.comparisons, data.num_entities, limits
        self._members = np.arange(self._number)
        if limits.entities is not None:
            self._members = np.unique(data.index(list(limits.entities))).astype(np.int64)
        self._listed = None if limits.pairs is None else _positions(data, limits.pairs, "pairs")
        self._avoided = _positions(data, limits.avoid, "avoid")
        low, high = np.minimum(known.winner, known.loser), np.maximum(known.winner, known.loser)
        self._codes, where = np.unique(low.astype(np.int64) * self._number + high, return_inverse=True)
        self._times = np.bincount(where, weights=known.count, minlength=len(self._codes))
        # Of some of the entities the data has only the answers among these.
        self._appearances = appearances(data) if often is None else often.copy()

    def pool(self) -> Pool:
        """The pairs that may be asked now."""
        members, most = self._members, self._limits.most_appearances
        if most is not None:
            members = members[self._appearances[members] < most]
        often = np.stack(np.divmod(self._codes[self._times > self._limits.repeats], self._number))
        return Pool(members, np.concatenate([often, self._avoided], axis=1), self._listed)

    def left(self) -> int:
        """How many questions may be asked by what is known now, a pair as often as it may be asked again."""
        members = self.pool().members
        here = np.zeros(self._number, dtype=bool)
        here[members] = True
        number = len(members) * (len(members) - 1) // 2
        codes, avoided = self._codes, self._avoided[0] * self._number + self._avoided[1]
        if self._listed is not None:
            listed = self._listed[0] * self._number + self._listed[1]
            number = int(here[self._listed].all(axis=0).sum())

        def open_(codes: NDArray[Any]) -> NDArray[np.bool_]:
            inside = here[np.stack(np.divmod(codes, self._number))].all(axis=0)
            return np.asarray(inside if self._listed is None else inside & np.isin(codes, listed))

        most = self._limits.repeats + 1
        answered = open_(codes) & ~np.isin(codes, avoided)
        used = np.minimum(self._times[answered], most).sum()
        return max((number - int(open_(avoided).sum())) * most - int(used), 0)

    def add(self, first: int, second: int) -> None:
        """A question of a batch."""
        code = min(first, second) * self._number + max(first, second)
        place = int(np.searchsorted(self._codes, code))
        if place == len(self._codes) or self._codes[place] != code:
            self._codes = np.insert(self._codes, place, code)
            self._times = np.insert(self._times, place, 0)
        self._times[place] += 1
        self._appearances[[first, second]] += 1


def _positions(data: PreferenceData, pairs: Iterable[Any], name: str) -> Positions:
    """Distinct pairs of positions, the lower first, shape (2, p)."""
    labels = pairs_of_labels(pairs)
    ends = [data.index([pair[side] for pair in labels]).astype(np.int64) for side in (0, 1)]
    same = np.flatnonzero(ends[0] == ends[1])
    if len(same):
        raise DataError(
            f"{name}[{same[0]}] compares {shown(labels[same[0]][0])} with itself; name two entities"
        )
    return np.unique(np.sort(np.stack(ends), axis=0), axis=1)
