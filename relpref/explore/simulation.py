"""Many simulated explorations: every strategy with every seed, in parallel, kept on disk as they come."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count, islice
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr

from relpref.data import PreferenceData
from relpref.errors import DataError, StorageError
from relpref.explore.choose import next_pairs, score_of
from relpref.explore.pairs import Floats, Positions
from relpref.infer import EP, UtilityPosterior
from relpref.journal import Journal, fingerprint
from relpref.models import xpgp
from relpref.parallel import run_all
from relpref.posterior.gaussian import Belief
from relpref.posterior.tables import expectations, questions

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

    def judge(self, belief: Belief) -> dict[str, float]:
        """How far a belief about the utilities is from the truth, see `relpref.explore.simulate`."""
        first, second, sign, weight = self._known_orders
        mean, covariance = belief.mean(), belief.covariance()
        gap = (mean[first] - mean[second]) * sign
        variance = np.diagonal(covariance)
        spread = variance[first] + variance[second] - 2 * covariance[first, second]
        # A gap that is known for certain is in its order for certain.
        with np.errstate(divide="ignore", invalid="ignore"):
            certainty = np.where(gap == 0, 0.0, np.abs(gap) / np.sqrt(np.maximum(spread, 0.0)))
        wrong = np.where(gap < 0, 1.0, np.where(gap == 0, 0.5, 0.0))
        total = weight.sum()
        error, expected = (
            float(values @ weight / total) if total else np.nan for values in (wrong, ndtr(-certainty))
        )
        judged = {"error": error, "expected_error": expected}
        if self.utilities is None:
            return judged | dict.fromkeys(("regret", "kendall", "top"), np.nan)
        number = max(1, len(mean) // 10)
        leading = np.argsort(-mean, kind="stable")[:number]
        # tau-b: ties on either side take their pairs out of that side's norm.
        norm = np.sqrt(float(np.triu(mean[:, None] != mean[None, :], 1).sum()) * len(gap))
        return judged | {
            "regret": float(self.utilities.max() - self.utilities[leading[0]]),
            "kendall": float(np.sign(gap).sum() / norm) if norm else 0.0,
            "top": float(np.mean(self.utilities[leading] >= np.sort(self.utilities)[-number])),
        }

    @cached_property
    def answers_by_pair(self) -> dict[Pair, NDArray[np.int64]]:
        """The recorded answers of each pair, from the side of the one that comes first in the data, sorted."""
        answers = self.data.with_comparisons(self.recorded).comparisons
        signs = np.where(answers.winner < answers.loser, 1, -1)
        if answers.tie is not None:
            signs[answers.tie] = 0
        ends = np.sort(np.stack([answers.winner, answers.loser]), axis=0)
        table = pd.DataFrame({"low": ends[0], "high": ends[1], "sign": signs})
        table = table.loc[table.index.repeat(answers.count)].sort_values(["low", "high", "sign"])
        groups = table.groupby(["low", "high"])["sign"]
        return {(int(low), int(high)): signs.to_numpy() for (low, high), signs in groups}

    @cached_property
    def _known_orders(self) -> tuple[Positions, Positions, Floats, Floats]:
        """Pairs whose order is known: first, second, 1 where the first is the better or −1, and how often that was stated."""
        if self.utilities is not None:
            gaps = self.utilities[:, None] - self.utilities[None, :]
            first, second = np.nonzero(np.triu(gaps != 0, 1))
            return first, second, np.sign(gaps[first, second]), np.ones(len(first))
        votes = [
            (*pair, sign, np.sum(signs == sign))
            for pair, signs in self.answers_by_pair.items()
            for sign in (-1, 1)
            if sign in signs
        ]
        table = np.array(votes, dtype=np.int64).reshape(-1, 4)
        return table[:, 0], table[:, 1], table[:, 2].astype(float), table[:, 3].astype(float)

    def describe(self) -> str:
        """Tell it from others by everything that decides how questions are answered."""
        answers = None if self.recorded is None else self.answers_by_pair
        return fingerprint((self.data, self.utilities, float(self.noise), float(self.tie_margin), answers))


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
    return cast(UtilityPosterior, posterior)  # xpgp is about utilities


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
    limits = ({} if truth.pairs is None else {"pairs": truth.pairs}) | dict(limits or {})
    posterior, times = start, Counter[Pair]()
    for number in count():
        if not isinstance(strategy, str) and callable(strategy):
            labels = strategy(posterior)
        else:
            key = int(np.random.SeedSequence((seed, number)).generate_state(1)[0])
            table = next_pairs(posterior, 1, score=strategy, key=key, **limits)
            labels = (table["first"].iloc[0], table["second"].iloc[0]) if len(table) else None
        if labels is None:
            return
        first, second = (int(position) for position in truth.data.index(labels))
        low, high = min(first, second), max(first, second)
        outcome = truth.answer((first, second), np.random.default_rng((seed, low, high, times[low, high])))
        probability = _probability(posterior, (first, second), outcome)
        winner, loser = labels if outcome >= 0 else labels[::-1]
        told = {"winner": [winner], "loser": [loser]} | ({"tie": [outcome == 0]} if truth.has_ties else {})
        posterior = posterior.update(pd.DataFrame(told), hyperparameters="schedule")
        times[low, high] += 1
        yield Step((first, second), outcome, probability, posterior)


def _probability(posterior: UtilityPosterior, pair: Pair, outcome: int) -> float:
    """As `UtilityPosterior.prefer` says, without its table."""
    first, second = (np.array([end], dtype=np.int32) for end in pair)
    data = posterior.data
    gap = posterior.belief.differences(first, second)
    asked = questions(data, first, second, None, None)
    expected = expectations(posterior, posterior.likelihood, data.comparisons, asked, gap)
    tie = float(expected["tie"][0]) if "tie" in expected else 0.0
    wins = float(expected["probability"][0])
    return {1: wins, 0: tie, -1: 1 - tie - wins}[outcome]


def described(value: Any) -> str:
    """A text that is the same in another process, which an address in memory is not."""
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


_RUNS_AT_ONCE = 10  # of one strategy, for threads and other processes


def _runs(
    truth: Truth | Callable[[int], Truth],
    answers: int,
    fit: Fit,
    limits: Mapping[str, Any],
    group: tuple[str, Strategy, list[int]],
) -> list[list[dict[str, Any]]]:
    """Some runs of one strategy, which share what JAX compiles: the rows of each."""
    name, strategy, seeds = group
    runs = []
    for seed in seeds:
        drawn = truth(seed) if callable(truth) else truth
        start = fit(drawn.data)
        own = {"strategy": name, "seed": seed}
        rows = [own | {"answers": 0, **drawn.judge(start.belief), "probability": float("nan")}]
        steps = islice(simulate_steps(drawn, strategy, seed, start=start, limits=limits), answers)
        for number, step in enumerate(steps, 1):
            judged = drawn.judge(step.posterior.belief)
            rows.append(own | {"answers": number, **judged, "probability": step.probability})
        runs.append(rows)
    return runs


def simulate(
    truth: Truth | Callable[[int], Truth],
    strategies: Iterable[str] | Mapping[str, Strategy],
    seeds: Iterable[int] = range(20),
    *,
    answers: int = 50,
    fit: Fit = fit_xpgp,
    limits: Mapping[str, Any] | None = None,
    scheduler: str | None = None,
    resume: str | os.PathLike[str] | None = None,
    progress_bar: bool = True,
) -> pd.DataFrame:
    """Let strategies ask questions about a known truth, and judge what is learned after every answer.

    Everything follows from the seed: the truth where it is drawn, the choice among equally good questions, and the answers. The
    r-th answer about a pair is the same whoever asks, so that strategies are compared seed by seed.

    Parameters
    ----------
    truth : Truth, or callable from a seed to a Truth
    strategies : iterable of str, or mapping from name to strategy
        Names of scores (see `next_pairs`); or, by names of one's own, scores or callables from a posterior to the pair of labels to
        ask about next, None to stop.
    seeds : iterable of int
        Not negative; one run each.
    answers : int
        How many; a run ends earlier where nothing is left to ask.
    fit : callable
        From the data at the start to its posterior; `relpref.models.xpgp` by EP by default. After each answer the posterior is
        updated, with hyperparameters on the schedule of `UtilityPosterior.update`.
    limits : mapping, optional
        Keywords of `next_pairs` for the scores: ``repeats``, ``most_appearances``, ``hardest``, ``entities``.
    scheduler : str, optional
        Where runs are computed, see `relpref.parallel.run_all`; here, one after the other, by default. For other processes truth,
        strategies and fit must be picklable.
    resume : path, optional
        A file that keeps finished runs, one in each line; the same call goes on where an earlier one stopped, and more seeds and strategies may be
        added. It knows the truth by its content, and callables (one from a seed to a truth, ``fit``, a strategy) by their names:
        whoever changes what they do takes another file.
    progress_bar : bool

    Returns
    -------
    DataFrame
        A row for each strategy, seed and number of ``answers`` from 0 on: ``error``, share of the pairs of different utility (or of the recorded
        preferences) in the wrong order, ties counting one half; ``expected_error``, what the posterior believes this share
        to be; ``regret``, the best utility less that of the entity with the highest mean; ``kendall``, Kendall's tau-b of means and
        utilities; ``top``, the share of the tenth with the highest means that belongs there; ``probability``, what the posterior before
        gave to this answer.

    Raises
    ------
    DataError
        If an argument cannot be used.
    StorageError
        If the file holds runs with another truth, fit, limits, number of answers, or another strategy of the same name.
    ClusterError
        If other processes went away; the same call goes on with what is in the file.
    """
    named = dict(strategies) if isinstance(strategies, Mapping) else {name: name for name in strategies}
    chosen = list(dict.fromkeys(int(seed) for seed in seeds))
    if not named or not chosen:
        raise DataError("simulate: there are no strategies or no seeds; give at least one of each")
    if min(chosen) < 0:
        raise DataError(f"simulate: the seed {min(chosen)} is negative; seeds are 0, 1, 2, ...")
    if answers < 1:
        raise DataError(f"simulate: answers is {answers}; it must be at least 1")
    texts = {
        name: described(score_of(strategy) if isinstance(strategy, str) else strategy)
        for name, strategy in named.items()
    }
    limits = dict(limits or {})
    done: dict[tuple[str, int], list[dict[str, Any]]] = {}
    journal = None
    if resume is not None:
        settings = {
            "answers": answers,
            "truth": described(truth) if callable(truth) else truth.describe(),
            "fit": described(fit),
            "limits": described(limits),
        }
        journal = Journal(resume, "simulation", settings)
        for record in journal.records:
            name, text = record["strategy"], record["asks"]
            if texts.get(name, text) != text:
                raise StorageError(
                    f"{journal.path} holds runs of another strategy {name!r}: it was {text} and is {texts[name]}; give this one another "
                    "name, or another file"
                )
            done[name, record["seed"]] = record["rows"]
    groups = []
    for name, strategy in named.items():
        left = [seed for seed in chosen if (name, seed) not in done]
        size = len(left) if scheduler is None and resume is None else _RUNS_AT_ONCE
        groups += [(name, strategy, left[at : at + size]) for at in range(0, len(left), max(size, 1))]
    function = partial(_runs, truth, answers, fit, limits)
    label = "groups of simulations"
    for at, runs in run_all(function, groups, scheduler, label=label, kept=resume, progress_bar=progress_bar):
        name, _, group_seeds = groups[at]
        fresh = dict(zip(group_seeds, runs, strict=True))
        done |= {(name, seed): rows for seed, rows in fresh.items()}
        if journal is not None:
            records = [
                {"strategy": name, "asks": texts[name], "seed": k, "rows": v} for k, v in fresh.items()
            ]
            journal.add(*records)
    table = pd.DataFrame([row for name in named for seed in chosen for row in done[name, seed]])
    return table.sort_values(["strategy", "seed", "answers"], ignore_index=True)
