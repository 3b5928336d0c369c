"""One simulated exploration: a strategy asks, the truth answers, the posterior learns."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from relpref.data import PreferenceData
from relpref.explore.questions.choose import next_pairs
from relpref.explore.simulation.truth import Pair, Truth
from relpref.infer import EP, UtilityPosterior
from relpref.infer.prediction import expectations, questions
from relpref.models import xpgp

Fit = Callable[[PreferenceData], UtilityPosterior]
Strategy = Any  # the name of a score, a score, or a callable from the posterior to a pair of labels


@dataclass(frozen=True, eq=False)
class Step:
    """A question that was answered.

    Attributes
    ----------
    pair : tuple of int
        Positions of the two in the data.
    outcome : int
        1, −1 or 0, see `Truth.answer`.
    probability : float
        What the posterior before gave to this outcome.
    posterior : UtilityPosterior
        After the answer.
    """

    pair: Pair
    outcome: int
    probability: float
    posterior: UtilityPosterior


def fit_xpgp(data: PreferenceData) -> UtilityPosterior:
    """`relpref.models.xpgp` by EP, hyperparameters at the maximum of the evidence."""
    posterior = EP(xpgp, hyperparameters="maximise").run(0, data, progress_bar=False)
    assert isinstance(posterior, UtilityPosterior)  # xpgp is about utilities
    return posterior


def simulate_steps(
    truth: Truth,
    strategy: Strategy,
    seed: int,
    *,
    start: UtilityPosterior,
    limits: Mapping[str, Any] | None = None,
) -> Iterator[Step]:
    """Ask, answer and learn, for as long as somebody takes the steps and something is left to ask.

    The answer to the r-th question about a pair depends on the seed, the pair and r alone, so that strategies that ask the same are
    told the same.

    Parameters
    ----------
    truth : Truth
    strategy : str, Score or callable
    seed : int
        Not negative.
    start : UtilityPosterior
        From ``truth.data``.
    limits : mapping, optional
        Keywords of `next_pairs`, such as ``repeats``.
    """
    choose = _chooser(strategy, truth, seed, dict(limits or {}))
    posterior, times, number = start, Counter[Pair](), 0
    while (labels := choose(posterior, number)) is not None:
        first, second = (int(position) for position in truth.data.index(labels))
        low, high = min(first, second), max(first, second)
        rng = np.random.default_rng((seed, low, high, times[low, high]))
        outcome = truth.answer((first, second), rng)
        probability = _probability(posterior, (first, second), outcome)
        posterior = posterior.update(_told(labels, outcome, truth.has_ties), hyperparameters="schedule")
        times[low, high] += 1
        number += 1
        yield Step((first, second), outcome, probability, posterior)


def _chooser(
    strategy: Strategy, truth: Truth, seed: int, limits: dict[str, Any]
) -> Callable[[UtilityPosterior, int], tuple[Any, Any] | None]:
    if not isinstance(strategy, str) and callable(strategy):
        return lambda posterior, number: strategy(posterior)
    if truth.pairs is not None:
        limits = {"pairs": truth.pairs} | limits

    def choose(posterior: UtilityPosterior, number: int) -> tuple[Any, Any] | None:
        key = int(np.random.SeedSequence((seed, number)).generate_state(1)[0])
        found = next_pairs(posterior, 1, score=strategy, key=key, **limits)
        return (found["first"].iloc[0], found["second"].iloc[0]) if len(found) else None

    return choose


def _told(labels: tuple[Any, Any], outcome: int, ties: bool) -> Any:
    winner, loser = labels if outcome >= 0 else labels[::-1]
    if not ties:
        return [(winner, loser)]
    return pd.DataFrame({"winner": [winner], "loser": [loser], "tie": [outcome == 0]})


def _probability(posterior: UtilityPosterior, pair: Pair, outcome: int) -> float:
    """As `UtilityPosterior.prefer` says, without its table."""
    first, second = (np.array([end], dtype=np.int32) for end in pair)
    asked = questions(posterior.data, first, second, None, None)
    gap = posterior.belief.differences(first, second)
    said = expectations(posterior, posterior.likelihood, posterior.data.comparisons, asked, gap)
    tie = float(said["tie"][0]) if "tie" in said else 0.0
    if outcome == 0:
        return tie
    first_wins = float(said["probability"][0])
    return first_wins if outcome > 0 else 1 - tie - first_wins
