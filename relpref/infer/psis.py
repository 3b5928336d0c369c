"""Pareto-smoothed weights, R-hat and effective sample sizes by arviz-stats, which is imported here alone. NumPy in, NumPy out."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Floats = NDArray[np.float64]

FEWEST = 25  # weights; of fewer ArviZ finds no tail to fit
_FAR = 1e300  # in the place of infinity, which must not be subtracted from itself


class Smoothed(NamedTuple):
    """Importance weights whose largest ones were replaced by quantiles of a generalized Pareto distribution.

    Attributes
    ----------
    log_weights : array, shape (..., s)
        They add up to 1 along the last axis, as weights.
    k_hat : array, shape (...)
        Shape of the tail: the weights have a finite variance below 0.5, a finite mean below 1. −inf where they are all equal, inf
        where there is no tail to be fitted.
    """

    log_weights: Floats
    k_hat: Floats

    @property
    def ess(self) -> Floats:
        """Effective sample size of the weights, 1/Σw², shape (...)."""
        return np.asarray(np.exp(-logsumexp(2 * self.log_weights, axis=-1)))


def smoothed(log_weights: Floats) -> Smoothed:
    """Pareto-smoothed importance sampling (Vehtari, Simpson, Gelman, Yao & Gabry 2024).

    Parameters
    ----------
    log_weights : array, shape (..., s)
        Up to a constant along the last axis. Where a row of them cannot be smoothed its k-hat is inf and the weights are as given:
        where there are fewer than 25, one is NaN or +inf, all are −inf, or all but the largest are zero to 308 digits.
    """
    array_stats = _array_stats()
    given = np.atleast_2d(log_weights)
    finite = np.isfinite(given.max(axis=-1)).ravel()
    flat = np.nan_to_num(given.reshape(-1, given.shape[-1]), nan=-_FAR, posinf=_FAR, neginf=-_FAR)
    weights, k_hat = flat.copy(), np.full(len(flat), np.inf)
    for row, one in enumerate(flat):
        if not finite[row]:
            continue
        if len(np.unique(one)) <= (5 if len(one) >= FEWEST else 1):
            k_hat[row] = -np.inf  # of equal weights there is no tail to be smoothed
        elif len(one) >= FEWEST:
            with np.errstate(all="ignore"):  # a tail that underflows
                # ArviZ takes log likelihoods, whose negatives are the log weights of leaving out.
                found, shape = array_stats.psislw(-one)
            if np.isfinite(shape) and np.all(np.isfinite(found)):
                weights[row], k_hat[row] = found, shape
    weights -= logsumexp(weights, axis=-1, keepdims=True)
    shape = np.shape(log_weights)
    return Smoothed(weights.reshape(shape), k_hat.reshape(shape[:-1]))


def threshold(number: int) -> float:
    """Largest k-hat at which so many weighted draws can be relied on, min(1 − 1/log₁₀ s, 0.7) (Vehtari et al. 2024, section 3.2.4)."""
    return float(min(1 - 1 / np.log10(number), 0.7))


def by_chain(draws: Floats, chains: int) -> Floats:
    """Draws of chains that are laid one after the other, shape (chains, s, n)."""
    length = len(draws) // chains
    return draws[: chains * length].reshape(chains, length, -1)


def convergence(draws: Floats) -> tuple[float, float]:
    """Largest rank-normalised split R-hat and smallest bulk effective sample size (Vehtari et al. 2021).

    NaN where a value never moves, or there are fewer than four draws to a chain.

    Parameters
    ----------
    draws : array, shape (chains, s, n)
    """
    array_stats = _array_stats()
    axes = {"chain_axis": 0, "draw_axis": 1}
    chains, number, size = draws.shape
    # One chain is held against itself: its halves are taken for two.
    several = draws if chains > 1 else draws[:, : number // 2 * 2].reshape(2, -1, size)
    with np.errstate(invalid="ignore"):  # a value that never moves
        r_hat = array_stats.rhat(several, method="rank", **axes)
        ess = array_stats.ess(draws, method="bulk", **axes)
    return float(np.max(r_hat)), float(np.min(ess))


def _array_stats() -> Any:
    """ArviZ's functions of arrays, loaded when they are first used."""
    import arviz_stats.base

    base: Any = arviz_stats.base
    return base.array_stats
