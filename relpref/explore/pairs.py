"""Pairs of entities: the moments of their gaps, and which pairs may be asked about."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relpref.limits import MAX_PAIRS_AT_ONCE

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

_MOST_ROWS = 128  # of a block: half of their square lies below the diagonal, and is looked at in vain


class Gaps(NamedTuple):
    """Differences of utilities, first less second, each by itself.

    Attributes
    ----------
    first, second : array of int
        Positions of entities, which broadcast to the shape of the moments.
    mean, variance : array
    """

    first: Positions
    second: Positions
    mean: Floats
    variance: Floats


@dataclass(frozen=True)
class Belief:
    """Mean and covariance of the utilities that a question is chosen by; never written into."""

    mean: Floats
    covariance: Floats

    def gaps(self, first: NDArray[np.integer[Any]], second: NDArray[np.integer[Any]]) -> Gaps:
        """Of pairs one by one (XPGP eq. 13-14)."""
        mean = self.mean[first] - self.mean[second]
        own = np.diagonal(self.covariance)
        variance = own[first] + own[second] - 2 * self.covariance[first, second]
        variance *= variance > self.rounding
        return Gaps(np.asarray(first), np.asarray(second), mean, variance)

    @property
    def rounding(self) -> float:
        """A variance of a gap that is 0 but for rounding: of entities that are one and the same to the model."""
        return 1e-14 * float(np.diagonal(self.covariance).max(initial=0.0))

    def responses(self, gaps: Gaps) -> Floats:
        """Covariance of every utility with each gap, shape (k, n)."""
        return np.asarray(self.covariance[gaps.first] - self.covariance[gaps.second])

    def after(self, first: int, second: int, shrinkage: float) -> "Belief":
        """With the covariance that is expected after an answer: Σ − κ Σa aᵀΣ. The mean's expectation is the mean."""
        response = self.covariance[first] - self.covariance[second]
        change = np.multiply.outer(shrinkage * response, response)
        return Belief(self.mean, np.subtract(self.covariance, change, out=change))


@dataclass(frozen=True)
class Pool:
    """The pairs that may be asked: listed ones, or all pairs of members but a few.

    Attributes
    ----------
    members : array of int, shape (k,)
        Positions of entities, ascending.
    closed : array of int, shape (2, c)
        Pairs that may not be asked, the lower position first.
    listed : array of int, shape (2, p), or None
        The pairs that may be asked, the lower position first, if they are listed.
    """

    members: Positions
    closed: Positions
    listed: Positions | None = None

    def open(self, number: int) -> Positions:
        """The listed pairs that may be asked, shape (2, q), among ``number`` entities."""
        assert self.listed is not None
        here = np.zeros(number, dtype=bool)
        here[self.members] = True
        kept = here[self.listed].all(axis=0)
        kept &= ~np.isin(self.listed[0] * number + self.listed[1], self.closed[0] * number + self.closed[1])
        return self.listed[:, kept]

    def blocks(self, belief: Belief, size: int = MAX_PAIRS_AT_ONCE) -> Iterator[tuple[Gaps, Positions]]:
        """Gaps of all pairs and which of them, as positions in the flattened block, may not be asked.

        Rows of the covariance are contiguous, so a block is a few of them from the diagonal on.
        """
        number = len(belief.mean)
        if self.listed is not None:
            first, second = self.open(number)
            for start in range(0, len(first), size):
                part = slice(start, start + size)
                yield belief.gaps(first[part], second[part]), np.zeros(0, dtype=np.int64)
            return
        members, k = self.members, len(self.members)
        mean, own = belief.mean[members], np.diagonal(belief.covariance)[members]
        closed_row, closed_column = self._closed_places(number)
        everyone, rounding = k == number, belief.rounding
        start = 0
        while start < k - 1:
            stop = min(k - 1, start + min(_MOST_ROWS, max(1, size // (k - start))))
            chosen = (
                (slice(start, stop), slice(start, None))
                if everyone
                else np.ix_(members[start:stop], members[start:])
            )
            covariance = belief.covariance[chosen]
            variance = own[start:stop, None] + own[None, start:]
            variance -= covariance
            variance -= covariance
            variance *= variance > rounding
            gaps = Gaps(
                members[start:stop, None],
                members[None, start:],
                mean[start:stop, None] - mean[None, start:],
                variance,
            )
            width, height = k - start, stop - start
            rows, columns = np.tril_indices(height)
            low, high = np.searchsorted(closed_row, (start, stop))
            shut = (closed_row[low:high] - start) * width + closed_column[low:high] - start
            yield gaps, np.concatenate([rows * width + columns, shut])
            start = stop

    def _closed_places(self, number: int) -> tuple[Positions, Positions]:
        """Places among the members of the pairs that may not be asked, sorted by the first."""
        place = np.full(number, -1)
        place[self.members] = np.arange(len(self.members))
        row, column = place[self.closed]
        here = (row >= 0) & (column >= 0)
        row, column = row[here], column[here]
        order = np.argsort(row, kind="stable")
        return row[order], column[order]
