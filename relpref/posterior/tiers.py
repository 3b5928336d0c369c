"""Decided orders of a ranking, all pairs at once, and the tiers that follow."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relpref.posterior.gaussian import Belief, Floats

TIER_PROBABILITY = 0.95  # of the tiers in rankings and reports
# Of the largest standard deviation of a difference: below it is jitter of the draws, not knowledge.
_FLOOR = 1e-4
_GROUP = 8  # entries that are compared with another one together


def tier_columns(
    belief: Belief, ranks: NDArray[Any], probability: float
) -> dict[str, NDArray[Any]]:
    """``tier``, ``rank_lower`` and ``rank_upper`` of every entry, shape (n,) each.

    With d_ij the difference of two entries and E d_ij > 0, entry i is decided above j if E d_ij >
    c·sd_ij. The critical value c is the smallest for which the given share of draws has all decided
    pairs in this order.
    """
    size = belief.size
    mean = belief.mean()
    order = np.argsort(-mean, kind="stable")
    mean, covariance = mean[order], belief.covariance()[np.ix_(order, order)]
    variance = np.diagonal(covariance)
    sds = np.sqrt(np.maximum(np.add.outer(variance, variance) - 2 * covariance, 0.0))
    sds = np.maximum(sds, _FLOOR * sds.max(initial=0.0) or 1.0)
    ratios = np.triu(np.subtract.outer(mean, mean) / sds, 1)
    decided = ratios > critical_value(
        ratios, np.ascontiguousarray(ranks[:, order].T, np.min_scalar_type(size)), probability
    )
    # Those after the last entry that i is not decided above are open to a cut; a cut after k is one
    # for all i ≤ k.
    undecided = np.triu(~decided, 1)
    last = np.where(
        undecided.any(axis=1), size - 1 - np.argmax(undecided[:, ::-1], axis=1), np.arange(size)
    )
    cut = np.maximum.accumulate(last) <= np.arange(size)
    place = np.argsort(order)
    return {
        "tier": (1 + np.cumsum(cut) - cut)[place],
        "rank_lower": (1 + decided.sum(axis=0))[place],
        "rank_upper": (size - decided.sum(axis=1))[place],
    }


def critical_value(ratios: Floats, places: NDArray[Any], probability: float) -> float:
    """Quantile over draws of the largest ratio among the pairs that a draw contradicts.

    Parameters
    ----------
    ratios : array, shape (n, n)
        E d_ij / sd_ij of i < j, from 0, and zeros elsewhere.
    places : array, shape (n, s)
        Rank of each entry in each draw, 1 for the highest. A draw contradicts i < j if i has the
        larger.
    probability : float
        Level of the quantile.
    """
    number = places.shape[1]
    # Ratios below the quantile need not be known. Some of the draws tell about where it is.
    guess = critical_value(ratios, places[:, ::8], probability) if number > 8 else 0.0
    for share in (0.9, 0.45, 0.0):
        lowest = share * guess
        quantile = np.quantile(_contradicted(ratios, places, lowest), probability, method="higher")
        if quantile > lowest:
            break
    return float(quantile)


def _contradicted(ratios: Floats, places: NDArray[Any], lowest: float) -> Floats:
    """Largest contradicted ratio of each draw; at least ``lowest``."""
    size, number = places.shape
    starts = np.arange(0, size, _GROUP)
    best, steepest = (
        np.minimum.reduceat(places, starts),
        np.maximum.reduceat(ratios, starts, axis=1),
    )
    members = np.minimum(starts[:, None] + np.arange(_GROUP), size - 1)
    largest = np.full(number, lowest)
    for row, ranks in enumerate(places):
        groups = np.flatnonzero(steepest[row] > lowest)
        group, draw = np.divmod(np.flatnonzero(best[groups] < ranks), number)
        others = members[groups[group]]
        contradicted = places[others, draw[:, None]] < ranks[draw, None]
        np.maximum.at(largest, draw, (contradicted * ratios[row][others]).max(axis=1, initial=0.0))
    return largest
