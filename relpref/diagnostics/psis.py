"""What ArviZ computes for the diagnostics: Pareto-smoothed weights, R-hat and effective sample sizes. NumPy in, NumPy out.

The one module of the diagnostics that imports ArviZ (arviz-stats, with one API on every Python).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Smoothed(NamedTuple):
    """Importance weights whose largest ones were replaced by quantiles of a generalised Pareto distribution.

    Attributes
    ----------
    log_weights : array, shape (..., s)
        They add up to 1 along the last axis, as weights.
    k_hat : array, shape (...)
        Shape of the tail: the weights have a finite variance below 0.5, a finite mean below 1. −inf where they are all equal.
    """

    log_weights: Floats
    k_hat: Floats

    @property
    def ess(self) -> Floats:
        """Effective sample size of the weights, 1/Σw², shape (...)."""
        return np.asarray(np.exp(-_log_sum(2 * self.log_weights)))


def smoothed(log_weights: Floats) -> Smoothed:
    """Pareto-smoothed importance sampling (Vehtari, Simpson, Gelman, Yao & Gabry 2024).

    Parameters
    ----------
    log_weights : array, shape (..., s)
        Up to a constant along the last axis.
    """
    array_stats = _array_stats()
    given = np.atleast_2d(log_weights)
    flat = given.reshape(-1, given.shape[-1])
    weights, k_hat = np.empty_like(flat), np.full(len(flat), -np.inf)
    for row, one in enumerate(flat):
        weights[row] = one
        if np.ptp(one) > 0 and len(np.unique(one)) > 5:  # of equal weights there is no tail to be smoothed
            # ArviZ takes log likelihoods, whose negatives are the log weights of leaving out.
            weights[row], k_hat[row] = array_stats.psislw(-one)
    weights -= _log_sum(weights)[:, None]
    shape = np.shape(log_weights)
    return Smoothed(weights.reshape(shape), k_hat.reshape(shape[:-1]))


def threshold(number: int) -> float:
    """Largest k-hat at which so many weighted draws can be relied on, min(1 − 1/log₁₀ s, 0.7) (Vehtari et al. 2024, section 3.2.4)."""
    return float(min(1 - 1 / np.log10(number), 0.7))


def convergence(draws: Floats) -> tuple[float, float]:
    """Largest rank-normalised split R-hat and smallest bulk effective sample size (Vehtari et al. 2021).

    Parameters
    ----------
    draws : array, shape (chains, s, n)
    """
    array_stats = _array_stats()
    axes = {"chain_axis": 0, "draw_axis": 1}
    r_hat = array_stats.rhat(draws, method="rank", **axes)
    ess = array_stats.ess(draws, method="bulk", **axes)
    return float(np.max(r_hat)), float(np.min(ess))


def _array_stats() -> Any:
    """ArviZ's functions of arrays, loaded when they are first used."""
    import arviz_stats.base

    base: Any = arviz_stats.base
    return base.array_stats


def _log_sum(values: Floats) -> Floats:
    highest = values.max(axis=-1, keepdims=True)
    return np.asarray(np.log(np.exp(values - highest).sum(axis=-1)) + highest[..., 0])
