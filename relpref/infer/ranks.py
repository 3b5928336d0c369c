"""Ranks and intervals of the entries of a belief, with the user's labels."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from relpref.errors import DataError
from relpref.infer.belief import Belief
from relpref.infer.large.belief import ImplicitBelief

# Draws behind ranks: the error of a probability is at most 0.8 percentage points (one standard error).
RANK_DRAWS = 4000


def ranking_table(
    belief: Belief,
    labels: Iterable[Hashable],
    interval: float,
    rng: np.random.Generator | None,
    name: str,
) -> pd.DataFrame:
    """The entries of a belief, highest first.

    Parameters
    ----------
    belief : Belief
        About n values.
    labels : iterable of n labels
    interval : float
        Probability of the intervals, between 0 and 1.
    rng : numpy Generator or None
        For the ranks, which come from 4000 draws; None leaves them out.
    name : str
        Of the index.

    Returns
    -------
    DataFrame
        ``mean``, ``sd``, ``lower``, ``upper``, ``expected_rank``, ``rank_lower``, ``rank_upper`` (1 is best), ``p_best``.

    Raises
    ------
    DataError
        If ``interval`` is no probability.
    """
    check_interval(interval)
    lower, upper = belief.interval(interval)
    columns = {"mean": belief.mean(), "sd": belief.sd(), "lower": lower, "upper": upper}
    index = pd.Index(objects(labels), name=name, tupleize_cols=False)
    ranks = {} if rng is None else _rank_columns(belief, interval, rng)
    table = pd.DataFrame(columns | ranks, index=index)
    return table.iloc[np.argsort(-table["mean"].to_numpy(), kind="stable")]


def ranking_of_the_best(
    belief: ImplicitBelief, labels: Sequence[Hashable], interval: float, top: int
) -> pd.DataFrame:
    """The entities, highest mean first, with intervals for the best.

    Parameters
    ----------
    belief : ImplicitBelief
        About n utilities.
    labels : sequence of n labels
    interval : float
        Probability of the intervals.
    top : int
        How many get one, from 0.

    Returns
    -------
    DataFrame
        ``mean``, ``sd``, ``lower``, ``upper``, less the average of all; the last three NaN below the first ``top``.

    Raises
    ------
    DataError
        If ``top`` is no whole number from 0.
    """
    if isinstance(top, bool) or not isinstance(top, int | np.integer) or top < 0:
        raise DataError(
            f"top is {top!r}; give a whole number from 0, of how many of the best intervals are wanted"
        )
    means = belief.mean() - belief.mean().mean()
    order = np.argsort(-means, kind="stable")
    columns = {name: np.full(belief.size, np.nan) for name in ("sd", "lower", "upper")}
    best = order[:top]
    if len(best) and np.all(np.isfinite(means)):
        mean, sd = belief.relative(best)
        reach = float(ndtri(0.5 + interval / 2)) * sd
        known = {"sd": sd, "lower": mean - reach, "upper": mean + reach}
        for name, values in known.items():
            columns[name][: len(best)] = values
    index = pd.Index(objects(labels[at] for at in order), name="entity", tupleize_cols=False)
    return pd.DataFrame({"mean": means[order], **columns}, index=index)


def check_interval(interval: float) -> None:
    """Refuse what is no probability."""
    if not 0 < interval < 1:
        raise DataError(f"interval is {interval}; it is a probability between 0 and 1, such as 0.9")


def objects(labels: Iterable[Any]) -> np.ndarray[Any, Any]:
    """Labels as they are, tuples included."""
    listed = list(labels)
    array = np.empty(len(listed), dtype=object)
    for row, label in enumerate(listed):
        array[row] = label
    return array


def _rank_columns(belief: Belief, interval: float, rng: np.random.Generator) -> dict[str, Any]:
    """Summaries of the rank of every entry, from draws."""
    draws = belief.draw(RANK_DRAWS, rng)
    if not np.all(np.isfinite(draws)):
        nothing = np.full(belief.size, np.nan)
        return dict.fromkeys(("expected_rank", "rank_lower", "rank_upper", "p_best"), nothing)
    ranks = _ranks(draws, rng)
    tail = (1 - interval) / 2
    lower, upper = np.quantile(ranks, [tail, 1 - tail], axis=0, method="inverted_cdf").astype(int)
    return {
        "expected_rank": ranks.mean(axis=0),
        "rank_lower": lower,
        "rank_upper": upper,
        "p_best": (ranks == 1).mean(axis=0),
    }


def _ranks(draws: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Rank of every entry in every draw, 1 = highest; ties in random order, so that none of them is the best for certain."""
    order = np.argsort(-draws, axis=1, kind="stable")
    if np.any(np.diff(np.take_along_axis(draws, order, axis=1), axis=1) == 0):
        order = np.lexsort((rng.random(draws.shape), -draws), axis=1)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(1, draws.shape[1] + 1)[None, :], axis=1)
    return ranks


def pairs_of_labels(pairs: Iterable[Any]) -> list[tuple[Any, Any]]:
    """The pairs that a question is about.

    Raises
    ------
    DataError
        If something is not a pair.
    """
    listed = list(pairs)
    for row, pair in enumerate(listed):
        if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2:
            raise DataError(f"pairs[{row}] is {pair!r}; each pair is two labels, for example ('a', 'b')")
    return [(pair[0], pair[1]) for pair in listed]
