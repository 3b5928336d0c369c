"""Simulated explorations: strategies that ask questions about a known truth, learning curves and
answers saved.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import ndtr

from relpref.data import PreferenceData
from relpref.data.covariates import equal_sides
from relpref.errors import DataError
from relpref.explore import next_pairs
from relpref.explore.choose import expected_answers, whole_number
from relpref.explore.forecast import Floats, Positions
from relpref.infer import EP, UtilityPosterior
from relpref.models import xpgp
from relpref.posterior.gaussian import Belief
from relpref.posterior.tables import check_interval

Pair = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Truth:
    """A hidden order of the items of a data set, and a simulated person who answers by it.

    Parameters
    ----------
    data : PreferenceData
        What the model is told before the first question: items, relations, and answers if there are
        any already. Where these have covariates, the sides of a question are equal.
    utilities : array, shape (n,), optional
        In the data's order. The answer to "i or j?" is the sign of u_i − u_j + noise·ε with ε ~
        N(0, 1) (XPGP eq. 6).
    noise, tie_margin : float
        The noise is positive. An absolute value of the noisy gap below the margin is answered by a
        tie; 0 gives no ties.
    recorded : DataFrame, optional
        Columns ``winner``, ``loser`` and, optionally, ``tie`` and ``count``. Then only these pairs
        can be asked about, each answered by one of its answers, drawn at random. Without utilities
        they are what the order is judged by.

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
            raise DataError(
                "Truth: give utilities, recorded answers, or both; there is nothing to answer by"
            )
        if not (np.isfinite(self.noise) and self.noise > 0):
            raise DataError(f"Truth: noise is {self.noise}; it must be positive")
        if not (np.isfinite(self.tie_margin) and self.tie_margin >= 0):
            raise DataError(f"Truth: tie_margin is {self.tie_margin}; it must be 0 or positive")
        if self.utilities is not None:
            values = np.asarray(self.utilities, dtype=np.float64)
            if values.shape != (self.data.num_items,) or not np.isfinite(values).all():
                number = self.data.num_items
                raise DataError(
                    f"Truth: utilities of shape {values.shape}; give {number} finite numbers"
                )
            object.__setattr__(self, "utilities", values)
        if self.recorded is not None and not self.answers_by_pair:
            raise DataError(
                "Truth: the table of recorded answers is empty; give at least one answer"
            )

    @cached_property
    def pairs(self) -> list[tuple[Any, Any]] | None:
        """Labels of the pairs that can be asked about; None for all."""
        if self.recorded is None:
            return None
        labels = self.data.labels
        return [(labels[low], labels[high]) for low, high in self.answers_by_pair]

    @cached_property
    def has_ties(self) -> bool:
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
        """Errors of a belief about the utilities, see `simulate`."""
        from scipy.stats import kendalltau

        first, second, sign, weight = self._known_orders
        gaps, mean = belief.differences(first, second), belief.mean()
        gap = gaps.mean * sign
        # The order of a certain difference is certain.
        with np.errstate(divide="ignore", invalid="ignore"):
            certainty = np.where(gap == 0, 0.0, np.abs(gap) / gaps.sd)
        wrong = np.where(gap < 0, 1.0, np.where(gap == 0, 0.5, 0.0))
        total = weight.sum()
        shares = [
            values @ weight / total if total else np.nan for values in (wrong, ndtr(-certainty))
        ]
        judged = {"error": float(shares[0]), "expected_error": float(shares[1])}
        if self.utilities is None:
            return judged | dict.fromkeys(("regret", "kendall", "top"), np.nan)
        number = max(1, len(mean) // 10)
        leading = np.argsort(-mean, kind="stable")[:number]
        return judged | {
            "regret": float(self.utilities.max() - self.utilities[leading[0]]),
            "kendall": float(np.nan_to_num(kendalltau(mean, self.utilities).statistic)),
            "top": float(np.mean(self.utilities[leading] >= np.sort(self.utilities)[-number])),
        }

    @cached_property
    def answers_by_pair(self) -> dict[Pair, NDArray[np.int64]]:
        """The recorded answers of each pair, from the side of the one that comes first in the data,
        sorted.
        """
        groups = self._signs.groupby(["low", "high"])["sign"]
        return {(int(low), int(high)): signs.to_numpy() for (low, high), signs in groups}

    @cached_property
    def _signs(self) -> pd.DataFrame:
        answers = self.data.with_comparisons(self.recorded).comparisons
        signs = np.where(answers.winner < answers.loser, 1, -1)
        if answers.tie is not None:
            signs[answers.tie] = 0
        low, high = np.sort(np.stack([answers.winner, answers.loser]), axis=0)
        table = pd.DataFrame({"low": low, "high": high, "sign": signs})
        return table.loc[table.index.repeat(answers.count)].sort_values(["low", "high", "sign"])

    @cached_property
    def _known_orders(self) -> tuple[Positions, Positions, Floats, Floats]:
        """Pairs whose order is known: first, second, 1 where the first is the better or −1, and how
        often that was stated.
        """
        if self.utilities is not None:
            gaps = self.utilities[:, None] - self.utilities[None, :]
            first, second = np.nonzero(np.triu(gaps != 0, 1))
            return first, second, np.sign(gaps[first, second]), np.ones(len(first))
        votes = self._signs[self._signs["sign"] != 0].groupby(["low", "high", "sign"]).size()
        low, high, sign, number = votes.reset_index().to_numpy().T
        return low, high, sign.astype(float), number.astype(float)


Fit = Callable[[PreferenceData], UtilityPosterior]
Strategy = Any  # the name of a score, a score, or a callable from the posterior to a pair of labels


@dataclass(frozen=True, eq=False)
class Step:
    """A question that was answered: positions in the data, outcome, its probability before, and the
    posterior after it.
    """

    pair: Pair
    outcome: int
    probability: float
    posterior: UtilityPosterior


def fit_xpgp(data: PreferenceData) -> UtilityPosterior:
    """`relpref.models.xpgp` by EP, hyperparameters at the maximum of the evidence."""
    posterior = EP(xpgp, hyperparameters="maximize").run(0, data, progress_bar=False)
    return cast(UtilityPosterior, posterior)  # xpgp is about utilities


def simulate_steps(
    truth: Truth,
    strategy: Strategy,
    seed: int,
    *,
    start: UtilityPosterior,
    limits: Mapping[str, Any] | None = None,
) -> Iterator[Step]:
    """Ask, answer and learn, while the caller takes steps and questions are left.

    The answer to the r-th question about a pair depends on the seed, the pair and r alone.
    ``start`` is the posterior from ``truth.data``; the other arguments are as in `simulate`, for
    one strategy and one seed.
    """
    limits = ({} if truth.pairs is None else {"pairs": truth.pairs}) | dict(limits or {})
    posterior, times = start, Counter[Pair]()
    for number in count():
        if not isinstance(strategy, str) and callable(strategy):
            labels = strategy(posterior)
        else:
            key = int(np.random.SeedSequence((seed, number)).generate_state(1)[0])
            table = next_pairs(posterior, 1, score=strategy, rng_key=key, **limits)
            labels = (table["first"].iloc[0], table["second"].iloc[0]) if len(table) else None
        if labels is None:
            return
        first, second = (int(position) for position in truth.data.index(labels))
        low, high = min(first, second), max(first, second)
        outcome = truth.answer(
            (first, second), np.random.default_rng((seed, low, high, times[low, high]))
        )
        probability = _probability(posterior, (first, second), outcome)
        winner, loser = labels if outcome >= 0 else labels[::-1]
        told = equal_sides(truth.data.comparisons.covariates_are, 1) | {
            "winner": [winner],
            "loser": [loser],
        }
        told |= {"tie": [outcome == 0]} if truth.has_ties else {}
        posterior = posterior.update(pd.DataFrame(told), hyperparameters="schedule")
        times[low, high] += 1
        yield Step((first, second), outcome, probability, posterior)


def _probability(posterior: UtilityPosterior, pair: Pair, outcome: int) -> float:
    """Probability of an outcome before it is observed."""
    _, expected = expected_answers(posterior, *np.array(pair)[:, None])
    tie = float(expected["tie"][0]) if "tie" in expected else 0.0
    wins = float(expected["probability"][0])
    return {1: wins, 0: tie, -1: 1 - tie - wins}[outcome]


def simulate(
    truth: Truth | Callable[[int], Truth],
    strategies: Iterable[str] | Mapping[str, Strategy],
    seeds: Iterable[int] = range(20),
    *,
    answers: int = 50,
    fit: Fit = fit_xpgp,
    limits: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Let strategies ask questions about a known truth, and judge what is learned after every
    answer.

    Everything follows from the seed: the truth where it is drawn, the choice among equally good
    questions, and the answers. The r-th answer about a pair is the same for each strategy, so that
    strategies are compared seed by seed.

    Parameters
    ----------
    truth : Truth, or callable from a seed to a Truth
    strategies : iterable of str, or mapping from name to strategy
        Names of scores (see `next_pairs`); or, by your own names, scores or callables from a
        posterior to the pair of labels to ask about next, None to stop.
    seeds, answers : iterable of int, int
        Answers of a run, one run for each seed; it ends earlier if nothing is left to ask.
    fit : callable
        From the data at the start to its posterior, which is updated after each answer, with
        hyperparameters on the schedule of `UtilityPosterior.update`; `relpref.models.xpgp` by EP by
        default.
    limits : mapping, optional
        Keywords of `next_pairs` for the scores: ``repeats``, ``most_appearances``, ``max_wrong``,
        ``items``.

    Returns
    -------
    DataFrame
        A row for each strategy, seed and number of ``answers`` from 0 on: ``error``, share of the
        pairs of different utility (or of the recorded preferences) in the wrong order, ties
        counting one half; ``expected_error``, its expectation by the posterior; ``regret``, the
        best utility less that of the item with the highest mean; ``kendall``, Kendall's tau-b of
        means and utilities; ``top``, the share of the tenth with the highest means that belongs
        there; ``probability`` of this answer before it was given.

    Raises
    ------
    DataError
        If an argument cannot be used.
    """
    named = (
        dict(strategies) if isinstance(strategies, Mapping) else {name: name for name in strategies}
    )
    chosen = list(dict.fromkeys(int(seed) for seed in seeds))
    if not named or not chosen:
        raise DataError("simulate: there are no strategies or no seeds; give at least one of each")
    if min(chosen) < 0:
        raise DataError(f"simulate: the seed {min(chosen)} is negative; seeds are 0, 1, 2, ...")
    whole_number("answers", answers, 1)
    rows = []
    for name, strategy in named.items():
        for seed in chosen:
            drawn = truth(seed) if callable(truth) else truth
            run = {"strategy": name, "seed": seed}
            start = fit(drawn.data)
            rows.append(
                run | {"answers": 0, **drawn.judge(start.belief), "probability": float("nan")}
            )
            steps = islice(
                simulate_steps(drawn, strategy, seed, start=start, limits=limits), answers
            )
            for number, step in enumerate(steps, 1):
                judged = drawn.judge(step.posterior.belief)
                rows.append(run | {"answers": number, **judged, "probability": step.probability})
    return pd.DataFrame(rows).sort_values(["strategy", "seed", "answers"], ignore_index=True)


def learning_curves(
    results: pd.DataFrame,
    quantity: str = "error",
    *,
    interval: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """The mean over the seeds, by strategy and number of answers.

    Parameters
    ----------
    results, quantity : DataFrame, str
        From `simulate`, and a column of it.
    interval, resamples, seed : float, int, int
        Of the percentile bootstrap over the seeds; the interval's probability is between 0 and 1.

    Returns
    -------
    DataFrame
        ``strategy``, ``answers``, ``mean``, ``lower``, ``upper``, ``seeds``. A run that ended early
        keeps its last value.

    """
    ends = _ends(interval)
    tables = []
    for name in dict.fromkeys(results["strategy"]):
        curves = _curves(results, str(name), quantity)
        means = _weights(len(curves), resamples, seed) @ curves.to_numpy()
        lower, upper = np.quantile(means, ends, axis=0)
        columns = {
            "mean": curves.mean().to_numpy(),
            "lower": lower,
            "upper": upper,
            "seeds": len(curves),
        }
        tables.append(
            pd.DataFrame({"strategy": name, "answers": curves.columns.to_numpy(), **columns})
        )
    return pd.concat(tables, ignore_index=True)


@dataclass(frozen=True)
class AnswersSaved:
    """Number of answers that a strategy needs for the error that another has after some number.

    Attributes
    ----------
    strategy, against : str
    answers, error : int, float
        Of the other strategy, and its mean error then, smoothed.
    needed : float
        Answers that the strategy needs for it; infinite if it does not get there.
    ratio, lower, upper : float
        ``needed`` over what the other needs (``answers``, unless its error stopped falling before),
        and its bootstrap interval.
    """

    strategy: str
    against: str
    answers: int
    error: float
    needed: float
    ratio: float
    lower: float
    upper: float


def answers_saved(
    results: pd.DataFrame,
    strategy: str,
    against: str = "random",
    *,
    answers: int | None = None,
    quantity: str = "error",
    interval: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> AnswersSaved:
    """Number of answers that a strategy needs for the error of another after ``answers``.

    The mean curves are made monotone (isotonic regression) and read linearly between numbers of
    answers. The interval is the percentile bootstrap over the seeds of both strategies, drawn
    together: runs of one seed share truth and answers.

    Parameters
    ----------
    strategy, against : str
    answers : int, optional
        Of the other strategy; all that it got by default.
    quantity : str
        A column that falls as more is known: ``"error"`` or ``"regret"``.
    results, interval, resamples, seed
        As in `learning_curves`.

    Raises
    ------
    DataError
        If a strategy is not among the results, they share no seed, or ``answers``, ``interval`` or
        ``resamples`` is out of range.
    """
    ends = _ends(interval)
    mine, other = (_curves(results, name, quantity) for name in (strategy, against))
    shared = mine.index.intersection(other.index)
    if not len(shared):
        raise DataError(
            f"answers_saved: {strategy!r} and {against!r} share no seed; simulate them together"
        )
    number = int(other.columns[-1]) if answers is None else answers
    if not 0 < number <= other.columns[-1]:
        raise DataError(
            f"answers_saved: answers is {number}; {against!r} got 1 to {other.columns[-1]}"
        )
    first, second = (table.loc[shared].to_numpy() for table in (mine, other))
    needed, ratio, error = _compared(first.mean(axis=0), second.mean(axis=0), number)
    weights = _weights(len(shared), resamples, seed)
    ratios = [
        _compared(a, b, number)[1] for a, b in zip(weights @ first, weights @ second, strict=True)
    ]
    lower, upper = np.quantile(ratios, ends, method="inverted_cdf")  # no average with infinity
    return AnswersSaved(strategy, against, number, error, needed, ratio, float(lower), float(upper))


def _ends(interval: float) -> list[float]:
    check_interval(interval)
    return [(1 - interval) / 2, (1 + interval) / 2]


def _curves(results: pd.DataFrame, strategy: str, quantity: str) -> pd.DataFrame:
    """Seeds in rows, numbers of answers in columns."""
    if quantity not in results.columns:
        raise DataError(
            f"results have no column {quantity!r}; the measures of simulate are error, "
            "expected_error, regret, kendall, top, probability"
        )
    mine = results[results["strategy"] == strategy]
    if mine.empty:
        known = ", ".join(dict.fromkeys(results["strategy"]))
        raise DataError(f"results have no strategy {strategy!r}; they have {known}")
    return mine.pivot(index="seed", columns="answers", values=quantity).ffill(axis=1)


def _weights(seeds: int, resamples: int, seed: int) -> Floats:
    """Weight of each seed in each resample, shape (resamples, seeds)."""
    whole_number("resamples", resamples, 1)
    rng = np.random.default_rng(seed)
    return np.asarray(rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples) / seeds)


def _compared(mine: Floats, other: Floats, number: int) -> tuple[float, float, float]:
    """Answers until the other's value after ``number``, their ratio to those that the other needs,
    and this value.
    """
    mine, other = (isotonic_regression(curve, increasing=False).x for curve in (mine, other))
    target = float(other[number])
    needed, reference = _first_at(mine, target), _first_at(other, target)
    if reference == 0:  # runs that start at the error they end with need no answer, neither of them
        return needed, 1.0 if needed == 0 else float("inf"), target
    return needed, needed / reference, target


def _first_at(curve: Floats, target: float) -> float:
    """First number of answers at which a falling curve is at the target, interpolated linearly."""
    # Equal values of two curves differ in their last digits.
    reached = np.flatnonzero(curve <= target + 1e-12)
    if not len(reached):
        return float("inf")
    at = int(reached[0])
    if at == 0:
        return 0.0
    above, below = curve[at - 1], curve[at]
    return float(at - 1 + (above - target) / (above - below))
