"""Whether numbers between 0 and 1 are uniform, over their whole cumulative distribution at once. NumPy and SciPy only."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

Floats = NDArray[np.float64]

_GRID = 100  # points at which a cumulative distribution is looked at
_REPLICATES = 10_000  # of the null distribution
_AT_ONCE = 1_000_000  # of its numbers


def grid() -> Floats:
    """Where cumulative distributions are looked at, shape (100,)."""
    return np.arange(1, _GRID + 1) / (_GRID + 1)


def ecdf(pit: Floats) -> Floats:
    """The empirical cumulative distribution on the grid."""
    return np.searchsorted(np.sort(pit), grid(), side="right") / len(pit)


def p_value(pit: Floats, seed: int = 0) -> float:
    """Of the hypothesis that all are uniform and independent, by simulation (10,000 replicates)."""
    null = _null(len(pit), seed)
    return float((1 + np.sum(null <= _extremes(pit[None])[0])) / (1 + len(null)))


def band(size: int, level: float, seed: int = 0) -> tuple[Floats, Floats]:
    """Between what bounds the whole empirical distribution of so many uniform numbers lies, with probability ``level``.

    Simultaneous over the grid, by simulation (Säilynoja, Bürkner & Vehtari 2022).
    """
    tail, at = float(np.quantile(_null(size, seed), 1 - level)), grid()
    return binom.ppf(tail / 2, size, at) / size, binom.ppf(1 - tail / 2, size, at) / size


@lru_cache(maxsize=16)
def _null(size: int, seed: int) -> Floats:
    """The extremes of replicates of as many uniform numbers."""
    rng, rows = np.random.default_rng(seed), max(1, _AT_ONCE // size)
    parts = [min(rows, _REPLICATES - start) for start in range(0, _REPLICATES, rows)]
    return np.concatenate([_extremes(rng.uniform(size=(part, size))) for part in parts])


def _extremes(pit: Floats) -> Floats:
    """The smallest two-sided binomial tail probability over the grid, for each row."""
    size, at = pit.shape[1], grid()
    # How many of a row lie at or below each point, by counting what falls between two points.
    cells = np.searchsorted(at, pit, side="left") + (_GRID + 1) * np.arange(len(pit))[:, None]
    between = np.bincount(cells.ravel(), minlength=len(pit) * (_GRID + 1)).reshape(len(pit), -1)
    counts = np.cumsum(between, axis=1)[:, :_GRID]
    numbers = np.arange(size + 1)[:, None]
    below, above = binom.cdf(numbers, size, at), binom.sf(numbers - 1, size, at)
    tails = np.minimum(1.0, 2 * np.minimum(below, above))
    return np.asarray(tails[counts, np.arange(_GRID)].min(axis=1))
