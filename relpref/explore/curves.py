"""What simulated explorations show: learning curves, and how many answers a strategy saves."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression

from relpref.errors import DataError
from relpref.explore.choose import whole_number
from relpref.explore.pairs import Floats
from relpref.posterior.tables import check_interval


@dataclass(frozen=True)
class AnswersSaved:
    """How many answers a strategy needs for the error that another one has after so many.

    Attributes
    ----------
    strategy, against : str
    answers : int
        Of the other strategy.
    error : float
        Mean error of the other strategy then, smoothed.
    needed : float
        Answers that the strategy needs for it; infinite if it does not get there.
    ratio : float
        ``needed`` over what the other needs, which is ``answers`` unless its error stopped falling before.
    lower, upper : float
        Bootstrap interval of the ratio.
    """

    strategy: str
    against: str
    answers: int
    error: float
    needed: float
    ratio: float
    lower: float
    upper: float


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
    results : DataFrame
        From `simulate`.
    quantity : str
        A column of it.
    interval : float
        Probability of the interval, which is the percentile bootstrap over the seeds; between 0 and 1.
    resamples : int
        At least 1.
    seed : int
        Of the bootstrap.

    Returns
    -------
    DataFrame
        ``strategy``, ``answers``, ``mean``, ``lower``, ``upper``, ``seeds``. A run that ended early keeps its last value.

    Raises
    ------
    DataError
        If there is no such column, or ``interval`` or ``resamples`` is out of range.
    """
    _check(interval, resamples)
    tables = []
    tail = (1 - interval) / 2
    for name in dict.fromkeys(results["strategy"]):
        curves = _curves(results, str(name), quantity)
        means = _weights(len(curves), resamples, seed) @ curves.to_numpy()
        lower, upper = np.quantile(means, [tail, 1 - tail], axis=0)
        columns = {"mean": curves.mean().to_numpy(), "lower": lower, "upper": upper, "seeds": len(curves)}
        tables.append(pd.DataFrame({"strategy": name, "answers": curves.columns.to_numpy(), **columns}))
    return pd.concat(tables, ignore_index=True)


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
    """How many answers a strategy needs to be where another one is after ``answers``.

    The mean curves are made monotone (isotonic regression) and read linearly between numbers of answers. The interval is the
    percentile bootstrap over the seeds that both strategies have, drawn together: runs of one seed share truth and answers.

    Parameters
    ----------
    results : DataFrame
        From `simulate`.
    strategy, against : str
    answers : int, optional
        Of the other strategy; all that it got by default.
    quantity : str
        A column that falls as more is known: ``"error"`` or ``"regret"``.
    interval, resamples, seed
        As in `learning_curves`.

    Returns
    -------
    AnswersSaved
        A ratio below 1 says that the strategy needs fewer answers.

    Raises
    ------
    DataError
        If a strategy is not among the results, they share no seed, or ``answers``, ``interval`` or ``resamples`` is out of range.
    """
    _check(interval, resamples)
    mine, other = (_curves(results, name, quantity) for name in (strategy, against))
    shared = mine.index.intersection(other.index)
    if not len(shared):
        raise DataError(
            f"answers_saved: {strategy!r} and {against!r} share no seed; simulate both with the same"
        )
    number = int(other.columns[-1]) if answers is None else answers
    if not 0 < number <= other.columns[-1]:
        raise DataError(f"answers_saved: answers is {number}; {against!r} got 1 to {other.columns[-1]}")
    pair = (mine.loc[shared].to_numpy(), other.loc[shared].to_numpy())
    needed, reference, error = _compared(pair[0].mean(axis=0), pair[1].mean(axis=0), number)
    weights = _weights(len(shared), resamples, seed)
    means = zip(weights @ pair[0], weights @ pair[1], strict=True)
    draws = [_compared(one, two, number) for one, two in means]
    # Runs that start at the error they end with need no answer, neither of them.
    ratios = [_ratio(one, two) for one, two, _ in draws]
    tail = (1 - interval) / 2
    lower, upper = np.quantile(ratios, [tail, 1 - tail], method="inverted_cdf")  # no average with infinity
    ratio = _ratio(needed, reference)
    return AnswersSaved(strategy, against, number, error, needed, ratio, float(lower), float(upper))


def _check(interval: float, resamples: int) -> None:
    check_interval(interval)
    whole_number("resamples", resamples, 1)


def _curves(results: pd.DataFrame, strategy: str, quantity: str) -> pd.DataFrame:
    """Seeds in rows, numbers of answers in columns."""
    if quantity not in results.columns:
        raise DataError(
            f"results have no column {quantity!r}; the measures of simulate are error, expected_error, regret, kendall, top, probability"
        )
    mine = results[results["strategy"] == strategy]
    if mine.empty:
        known = ", ".join(dict.fromkeys(results["strategy"]))
        raise DataError(f"results have no strategy {strategy!r}; they have {known}")
    return mine.pivot(index="seed", columns="answers", values=quantity).ffill(axis=1)


def _weights(seeds: int, resamples: int, seed: int) -> Floats:
    """How much each seed counts in each resample, shape (resamples, seeds)."""
    rng = np.random.default_rng(seed)
    return np.asarray(rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples) / seeds)


def _compared(mine: Floats, other: Floats, number: int) -> tuple[float, float, float]:
    """Answers until the other's value after ``number``: of the one, of the other; and this value."""
    one, two = (isotonic_regression(curve, increasing=False).x for curve in (mine, other))
    target = float(two[number])
    return _first_at(one, target), _first_at(two, target), target


def _first_at(curve: Floats, target: float) -> float:
    """Where a falling curve first is at the target, between two numbers of answers if need be."""
    # Equal values of two curves differ in their last digits.
    reached = np.flatnonzero(curve <= target + 1e-12)
    if not len(reached):
        return float("inf")
    at = int(reached[0])
    if at == 0:
        return 0.0
    above, below = curve[at - 1], curve[at]
    return float(at - 1 + (above - target) / (above - below))


def _ratio(needed: float, reference: float) -> float:
    if reference == 0:
        return 1.0 if needed == 0 else float("inf")
    return needed / reference
