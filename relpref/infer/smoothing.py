"""Reliability of importance weights and of chains."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Floats = NDArray[np.float64]

FEWEST = 25  # weights; ArviZ fits no tail to fewer
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
    array_stats = _array_stats()
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
                # ArviZ takes log likelihoods, whose negatives are the log weights of leaving out.
                log_weights_of_row, shape = array_stats.psislw(-values)
            if np.isfinite(shape) and np.all(np.isfinite(log_weights_of_row)):
                weights[row], k_hat[row] = log_weights_of_row, shape
    weights -= logsumexp(weights, axis=-1, keepdims=True)
    shape = np.shape(log_weights)
    return Smoothed(weights.reshape(shape), k_hat.reshape(shape[:-1]))


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
    array_stats = _array_stats()
    axes = {"chain_axis": 0, "draw_axis": 1}
    chains, number, size = draws.shape
    # A single chain is compared with itself: its halves count as two chains.
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
