"""Which entries of a ranking are settled above which, all pairs at once, and the tiers that follow."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relpref.limits import MAX_ERRORS_AT_ONCE
from relpref.posterior.gaussian import Belief, Floats

TIER_PROBABILITY = 0.95  # of the tiers in rankings and reports
_FLOOR = (
    1e-4  # of the largest standard deviation of a difference: below it is jitter of the draws, not knowledge
)
_GROUP = 32  # entries whose differences from another one are bounded together


def tier_columns(belief: Belief, draws: Floats, probability: float) -> dict[str, NDArray[Any]]:
    """``tier``, ``rank_lower`` and ``rank_upper`` of every entry, shape (n,) each; NaN where the draws are.

    Entry i is settled above j if E d_ij > c·sd_ij, where d_ij is their difference and c the quantile over draws of
    max_{i<j} |d_ij − E d_ij|/sd_ij: all differences lie within c standard deviations of their means with the probability.
    """
    size = belief.size
    if not np.all(np.isfinite(draws)):
        return dict.fromkeys(("tier", "rank_lower", "rank_upper"), np.full(size, np.nan))
    mean = belief.mean()
    order = np.argsort(-mean, kind="stable")
    mean, covariance = mean[order], belief.covariance()[np.ix_(order, order)]
    sds = np.sqrt(
        np.maximum(np.add.outer(np.diagonal(covariance), np.diagonal(covariance)) - 2 * covariance, 0.0)
    )
    # Entries that are the same to the model differ by rounding and jitter alone.
    sds = np.maximum(sds, _FLOOR * sds.max(initial=0.0) or 1.0)
    largest = largest_errors(draws[:, order] - mean, sds)
    critical = np.quantile(largest, probability, method="higher")
    settled = np.triu(np.subtract.outer(mean, mean) > critical * sds, 1)
    # Those after the last entry that i is not settled above are open to a cut; a cut after k is one for all i ≤ k.
    unsettled = np.triu(~settled, 1)
    last = np.where(unsettled.any(axis=1), size - 1 - np.argmax(unsettled[:, ::-1], axis=1), np.arange(size))
    cut = np.maximum.accumulate(last) <= np.arange(size)
    sorted_columns = {
        "tier": 1 + np.cumsum(cut) - cut,
        "rank_lower": 1 + settled.sum(axis=0),
        "rank_upper": size - settled.sum(axis=1),
    }
    columns = {name: np.empty(size, dtype=np.int64) for name in sorted_columns}
    for name, values in sorted_columns.items():
        columns[name][order] = values
    return columns


def largest_errors(errors: Floats, sds: Floats) -> Floats:
    """max_{i<j} |e_i − e_j|/sd_ij of each draw; errors of shape (s, n), sds of shape (n, n).

    Entry by entry, and only against those groups of entries that could exceed the largest found so far.
    """
    number, size = errors.shape
    spread = np.argsort(-sds.sum(axis=1), kind="stable")  # the largest errors come first
    spread_of = sds.sum(axis=1)[spread]
    inverse = 1 / sds[np.ix_(spread, spread)]
    np.fill_diagonal(inverse, 0.0)
    starts = np.arange(0, size, _GROUP)
    steepest = np.maximum.reduceat(inverse, starts, axis=1)
    members = np.minimum(starts[:, None] + np.arange(_GROUP), size - 1)
    largest = np.zeros(number)
    at_once = max(1, MAX_ERRORS_AT_ONCE // size)
    for start in range(0, number, at_once):
        found = largest[start : start + at_once]
        values = np.ascontiguousarray(errors[start : start + at_once, spread].T)
        high, low = np.maximum.reduceat(values, starts), np.minimum.reduceat(values, starts)
        # The pair that is farthest apart for its spread is a good one to begin with.
        relative, draws = values / spread_of[:, None], np.arange(len(found))
        top, bottom = relative.argmax(axis=0), relative.argmin(axis=0)
        found[:] = (values[top, draws] - values[bottom, draws]) * inverse[top, bottom]
        for row, own in enumerate(values):
            first = row // _GROUP
            bound = np.maximum(high[first:] - own, own - low[first:]) * steepest[row, first:, None]
            group, draw = np.nonzero(bound > found)
            others = members[first + group]
            ratios = np.abs(values[others, draw[:, None]] - own[draw, None]) * inverse[row][others]
            np.maximum.at(found, draw, ratios.max(axis=1, initial=0.0))
    return largest
