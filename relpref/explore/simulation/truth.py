"""What a simulation hides: utilities or recorded answers, how questions are answered from them, and how a belief is judged."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr

from relpref.data import PreferenceData
from relpref.errors import DataError
from relpref.infer.belief import Belief

Floats = NDArray[np.float64]
Pair = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Truth:
    """A hidden order of the entities of a data set, and somebody who answers by it.

    Parameters
    ----------
    data : PreferenceData
        What the model is told before the first question: entities, relations, and answers if there are any already.
    utilities : array, shape (n,), optional
        In the data's order. The answer to "i or j?" is the sign of u_i − u_j + noise·ε with ε ~ N(0, 1) (XPGP eq. 6).
    noise : float
        Positive.
    tie_margin : float
        An absolute value of the noisy gap below this is answered by a tie; 0 gives no ties.
    recorded : DataFrame, optional
        Columns ``winner``, ``loser`` and, optionally, ``tie`` and ``count``. Then only these pairs can be asked about, and a question is
        answered by one of the answers of its pair, drawn at random. Without utilities the recorded answers are what the order
        is judged by.

    Raises
    ------
    DataError
        If there are neither utilities nor recorded answers, or they do not fit the data.
    """

    data: PreferenceData
    utilities: Any = None
    noise: float = 1.0
    tie_margin: float = 0.0
    recorded: pd.DataFrame | None = None

    def __post_init__(self) -> None:
        """Check."""
        if self.utilities is None and self.recorded is None:
            raise DataError("Truth: give utilities, recorded answers, or both; there is nothing to answer by")
        if not (np.isfinite(self.noise) and self.noise > 0):
            raise DataError(f"Truth: noise is {self.noise}; it must be positive")
        if not (np.isfinite(self.tie_margin) and self.tie_margin >= 0):
            raise DataError(f"Truth: tie_margin is {self.tie_margin}; it must be 0 or positive")
        if self.utilities is not None:
            values = np.asarray(self.utilities, dtype=np.float64)
            if values.shape != (self.data.num_entities,) or not np.isfinite(values).all():
                raise DataError(
                    f"Truth: utilities have the shape {values.shape}; give {self.data.num_entities} finite numbers, "
                    "one for each entity of the data"
                )
            object.__setattr__(self, "utilities", values)
        if self.recorded is not None and not self.answers_by_pair:
            raise DataError("Truth: the table of recorded answers is empty; give at least one answer")

    @cached_property
    def pairs(self) -> list[tuple[Any, Any]] | None:
        """Labels of the pairs that can be asked about; None if that is every pair."""
        if self.recorded is None:
            return None
        labels = self.data.entities
        return [(labels[low], labels[high]) for low, high in self.answers_by_pair]

    @cached_property
    def has_ties(self) -> bool:
        """Whether an answer may be a tie."""
        if self.recorded is not None:
            return any(0 in signs for signs in self.answers_by_pair.values())
        return self.tie_margin > 0

    def answer(self, pair: Pair, rng: np.random.Generator) -> int:
        """1 if the first is preferred, −1 if the second is, 0 for a tie."""
        low, high = sorted(pair)
        order = 1 if pair[0] == low else -1
        if self.recorded is not None:
            signs = self.answers_by_pair[low, high]
            return order * int(signs[rng.integers(len(signs))])
        gap = self.utilities[low] - self.utilities[high] + self.noise * rng.standard_normal()
        return 0 if abs(gap) < self.tie_margin else order * int(np.sign(gap))

    @cached_property
    def judge(self) -> Callable[[Belief], dict[str, float]]:
        """From a belief about the utilities to how far it is from the truth, see `relpref.explore.simulate`."""
        if self.utilities is None:
            return Judge(*self._votes)
        gaps = self.utilities[:, None] - self.utilities[None, :]
        first, second = np.nonzero(np.triu(gaps != 0, 1))
        signs = np.sign(gaps[first, second])
        return Judge(first, second, signs, np.ones(len(signs)), self.utilities)

    @cached_property
    def answers_by_pair(self) -> dict[Pair, NDArray[np.int64]]:
        """The recorded answers of each pair, from the side of the one that comes first in the data."""
        answers = self.data.with_comparisons(self.recorded).comparisons
        winner, loser = np.repeat(answers.winner, answers.count), np.repeat(answers.loser, answers.count)
        signs = np.where(winner < loser, 1, -1)
        if answers.tie is not None:
            signs[np.repeat(answers.tie, answers.count)] = 0
        low, high = np.minimum(winner, loser), np.maximum(winner, loser)
        order = np.lexsort((signs, high, low))
        low, high, signs = low[order], high[order], signs[order]
        starts = np.flatnonzero(np.r_[True, (np.diff(low) != 0) | (np.diff(high) != 0)][: len(low)])
        groups = np.split(signs, starts[1:]) if len(starts) else []
        return dict(zip(zip(low[starts].tolist(), high[starts].tolist(), strict=True), groups, strict=True))

    @cached_property
    def _votes(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats, Floats]:
        """Every recorded preference as a pair, a sign and how often it was stated."""
        votes = Counter(
            (low, high, int(sign))
            for (low, high), signs in self.answers_by_pair.items()
            for sign in signs
            if sign
        )
        table = np.array([(*key, count) for key, count in votes.items()], dtype=np.int64).reshape(-1, 4)
        return table[:, 0], table[:, 1], table[:, 2].astype(float), table[:, 3].astype(float)


@dataclass(frozen=True, eq=False)
class Judge:
    """Compares beliefs with a truth.

    Attributes
    ----------
    first, second : array of int, shape (k,)
        Pairs whose order is known.
    sign : array, shape (k,)
        1 where the first is the better, −1 where the second is.
    weight : array, shape (k,)
    utilities : array, shape (n,), optional
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    sign: Floats
    weight: Floats
    utilities: Floats | None = None

    def __call__(self, belief: Belief) -> dict[str, float]:
        """The measures, by name."""
        mean, covariance = belief.mean(), belief.covariance()
        gap = (mean[self.first] - mean[self.second]) * self.sign
        wrong = np.where(gap < 0, 1.0, np.where(gap == 0, 0.5, 0.0))
        variance = np.diagonal(covariance)
        spread = variance[self.first] + variance[self.second] - 2 * covariance[self.first, self.second]
        with np.errstate(
            divide="ignore", invalid="ignore"
        ):  # a gap that is known for certain is in its order for certain
            certainty = np.where(gap == 0, 0.0, np.abs(gap) / np.sqrt(np.maximum(spread, 0.0)))
        found = {
            "error": self._average(wrong),
            "expected_error": self._average(ndtr(-certainty)),
            "regret": np.nan,
            "kendall": np.nan,
            "top": np.nan,
        }
        return found if self.utilities is None else found | self._against(self.utilities, mean, gap)

    def _against(self, utilities: Floats, mean: Floats, gap: Floats) -> dict[str, float]:
        size = len(mean)
        number = max(1, size // 10)
        chosen = np.argsort(-mean, kind="stable")[:number]
        least = np.sort(utilities)[-number]
        # tau-b: ties on either side take their pairs out of that side's norm.
        stated = np.triu(mean[:, None] != mean[None, :], 1).sum()
        norm = np.sqrt(float(stated) * len(gap))
        return {
            "regret": float(utilities.max() - utilities[chosen[0]]),
            "kendall": float(np.sign(gap).sum() / norm) if norm else 0.0,
            "top": float(np.mean(utilities[chosen] >= least)),
        }

    def _average(self, values: Floats) -> float:
        total = self.weight.sum()
        return float(values @ self.weight / total) if total else float("nan")
