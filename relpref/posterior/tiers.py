"""Items that can be told apart, all pairs at once, and the tiers and ranks that follow."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from relpref.posterior.gaussian import Belief, Floats

TIER_PROBABILITY = 0.95  # of the tiers in rankings and reports
# Of the largest standard deviation of a difference: below it is jitter of the draws, not knowledge.
_FLOOR = 1e-4


def tier_columns(belief: Belief, probability: float) -> dict[str, NDArray[Any]]:
    """Tier and simultaneous rank interval of every entry, shape (n,) each, by name.

    The columns are ``tier``, ``rank_lower_all`` and ``rank_upper_all``. The highest mean opens a
    tier, and all entries that it is not told apart from join; the highest of the rest opens the
    next one. All are NaN if the means are.
    """
    mean = belief.mean()
    if not np.all(np.isfinite(mean)):
        nothing = np.full(belief.size, np.nan)
        return dict.fromkeys(("tier", "rank_lower_all", "rank_upper_all"), nothing)
    above = told_apart(belief, probability)
    tier = np.zeros(belief.size, dtype=int)
    for first in np.argsort(-mean, kind="stable"):
        if not tier[first]:
            tier[(tier == 0) & ~above[first]] = tier.max() + 1
    return {
        "tier": tier,
        "rank_lower_all": 1 + above.sum(axis=0),
        "rank_upper_all": belief.size - above.sum(axis=1),
    }


def told_apart(belief: Belief, probability: float) -> NDArray[np.bool_]:
    """Whether entry i is told apart from j and above it, shape (n, n).

    With d_ij the difference of two entries, that is where P(d_ij > 0) > Φ(c), see `critical_value`:
    of a Gaussian where E d_ij > c·sd_ij. Of a mixture large differences have large sds, because
    their size follows that of the hyperparameters, which says nothing against their signs.
    """
    weights = belief.weights if belief.components else [1.0]
    below = np.zeros((belief.size, belief.size))
    for part, weight in zip(belief.components or (belief,), weights, strict=True):
        gap, sd = gaps(part)
        below += weight * ndtr(-gap / sd)
    return np.asarray(below < ndtr(-critical_value(belief.size, probability)))


def gaps(belief: Belief) -> tuple[Floats, Floats]:
    """Means and standard deviations of the differences of all entries, shape (n, n) each."""
    mean, covariance = belief.mean(), belief.covariance()
    variance = np.diagonal(covariance)
    sd = np.sqrt(np.maximum(np.add.outer(variance, variance) - 2 * covariance, 0.0))
    return np.subtract.outer(mean, mean), np.maximum(sd, _FLOOR * sd.max(initial=0.0) or 1.0)


def critical_value(size: int, probability: float) -> float:
    """Number c of sds within which all differences lie of their means, with some probability.

    It is the quantile of the range of n independent normal numbers over √2 (Tukey 1953): exact if
    all differences are equally uncertain and else an upper bound (Hayter 1984, "A proof of the
    conjecture that the Tukey-Kramer multiple comparisons procedure is conservative").
    """
    z = np.linspace(-9.0, 9.0, 2001)
    density = size * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) * (z[1] - z[0])
    low, high = 0.0, 40.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        share = density @ (ndtr(z) - ndtr(z - middle)) ** (size - 1)
        low, high = (middle, high) if share < probability else (low, middle)
    return high / np.sqrt(2)
