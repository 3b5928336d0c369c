"""Reliability of importance weights and of chains."""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from relpref.data.arrays import Floats

FEWEST = 25  # weights; no tail is fitted to fewer
_LEAST_LOG = np.log(np.finfo(float).tiny)
_FAR = 1e300  # in the place of infinity, which must not be subtracted from itself


class Smoothed(NamedTuple):
    """Importance weights with a tail smoothed by a generalized Pareto distribution."""

    log_weights: Floats  # of weights that add up to 1, shape (..., s)
    # Shape of the tail, shape (...): the weights have a finite variance below 0.5, a finite mean
    # below 1. −inf where they are all equal, inf where there is no tail to be fitted.
    k_hat: Floats

    @property
    def ess(self) -> Floats:
        """Effective sample size of the weights, 1/Σw², shape (...)."""
        return np.asarray(np.exp(-logsumexp(2 * self.log_weights, axis=-1)))


def smoothed(log_weights: Floats) -> Smoothed:
    """Pareto-smoothed importance sampling of weights along the last axis.

    See Vehtari, Simpson, Gelman, Yao & Gabry (2024). A row that cannot be smoothed has the k-hat
    inf and its weights as given: fewer than 25 weights, NaN or +inf among them, all of them −inf,
    or all but the largest zero to 308 digits.
    """
    given = np.atleast_2d(log_weights)
    finite = np.isfinite(given.max(axis=-1)).ravel()
    flat = np.nan_to_num(given.reshape(-1, given.shape[-1]), nan=-_FAR, posinf=_FAR, neginf=-_FAR)
    weights, k_hat = flat.copy(), np.full(len(flat), np.inf)
    for row, values in enumerate(flat):
        if not finite[row]:
            continue
        if len(np.unique(values)) <= (5 if len(values) >= FEWEST else 1):
            k_hat[row] = -np.inf  # equal weights have no tail to be smoothed
        elif len(values) >= FEWEST:
            with np.errstate(all="ignore"):  # a tail that underflows
                log_weights_of_row, tail = _with_smooth_tail(values - values.max())
            if np.isfinite(tail) and np.all(np.isfinite(log_weights_of_row)):
                weights[row], k_hat[row] = log_weights_of_row, tail
    weights -= logsumexp(weights, axis=-1, keepdims=True)
    shape = np.shape(log_weights)
    return Smoothed(weights.reshape(shape), k_hat.reshape(shape[:-1]))


def _with_smooth_tail(log_weights: Floats) -> tuple[Floats, float]:
    """Log weights whose largest are quantiles of a generalized Pareto distribution, and its shape.

    The largest log weight is 0.
    """
    number = len(log_weights)
    size = int(np.ceil(min(0.2 * number, 3 * np.sqrt(number))))
    order = np.argsort(log_weights, kind="stable")
    tail, cut = order[-size:], np.exp(max(log_weights[order[-size - 1]], _LEAST_LOG))
    tail = tail[np.exp(log_weights[tail]) > cut]
    if len(tail) <= 4:
        return log_weights, np.inf
    shape, scale = _generalized_pareto(np.exp(log_weights[tail]) - cut)
    below = (np.arange(len(tail)) + 0.5) / len(tail)
    quantiles = -np.log1p(-below) if shape == 0 else np.expm1(-shape * np.log1p(-below)) / shape
    result = log_weights.copy()
    result[tail] = np.minimum(np.log(cut + scale * quantiles), 0.0)
    return result, shape


def _generalized_pareto(excess: Floats) -> tuple[float, float]:
    """Shape k and scale of a generalized Pareto distribution, by ascending values above 0.

    See Zhang & Stephens (2009), "A new and efficient estimation method for the generalized Pareto
    distribution". The shape is drawn to ½ as by ten more values, see Vehtari et al. (2024).
    """
    number = len(excess)
    grid = 30 + int(np.sqrt(number))
    quartile = excess[int(number / 4 + 0.5) - 1]
    rate = 1 - np.sqrt(grid / (np.arange(grid) + 0.5))
    rate = rate / (3 * quartile) + 1 / excess[-1]
    shapes = np.log1p(-rate[:, None] * excess).mean(axis=1)
    log_likelihood = number * (np.log(-rate / shapes) - shapes - 1)
    weights = np.exp(log_likelihood - logsumexp(log_likelihood))
    mean_rate = weights @ rate
    shape = float(np.log1p(-mean_rate * excess).mean())
    return (number * shape + 5) / (number + 10), -shape / mean_rate


def threshold(number: int) -> float:
    """Largest k-hat at which s draws are reliable (Vehtari et al. 2024, section 3.2.4).

    That is min(1 − 1/log₁₀ s, 0.7).
    """
    return float(min(1 - 1 / np.log10(number), 0.7))


def by_chain(draws: Floats, chains: int) -> Floats:
    """Arrange draws of chains, given one after the other, in the shape (chains, s, n)."""
    length = len(draws) // chains
    return draws[: chains * length].reshape(chains, length, -1)


def convergence(draws: Floats) -> tuple[float, float]:
    """Largest rank-normalized split R-hat and smallest bulk effective sample size.

    Draws have the shape (chains, s, n); see Vehtari et al. (2021). NaN where a value never moves,
    or a chain has fewer than four draws.
    """
    import arviz_stats.base  # when it is first used

    base: Any = arviz_stats.base
    array_stats = base.array_stats
    axes = {"chain_axis": 0, "draw_axis": 1}
    chains, number, size = draws.shape
    # A single chain is compared with itself: its halves count as two chains.
    several = draws if chains > 1 else draws[:, : number // 2 * 2].reshape(2, -1, size)
    with np.errstate(invalid="ignore"):  # a value that never moves
        r_hat = array_stats.rhat(several, method="rank", **axes)
        ess = array_stats.ess(draws, method="bulk", **axes)
    return float(np.max(r_hat)), float(np.min(ess))
