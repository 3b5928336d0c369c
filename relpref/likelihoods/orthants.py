"""Probabilities that jointly Gaussian numbers lie in a certain order."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp, ndtri_exp

Floats = NDArray[np.float64]

_POINTS = 2048  # of a lattice; errors are some 1e-3 of the probability
_AT_ONCE = 2**22  # numbers


def log_ordered(mean: Any, covariance: Any, block: Any) -> Floats:
    """Log probability that of k jointly Gaussian numbers all of a block are above all of the next, shape (p,).

    One after the other, given those before (Genz 1992, "Numerical computation of multivariate normal probabilities"), averaged over a
    lattice, so that equal arguments give equal numbers. That of two numbers is exact.

    Parameters
    ----------
    mean : array, shape (p, k)
    covariance : array, shape (p, k, k)
        Positive definite for differences of the numbers.
    block : array of int, shape (p, k)
        0 for the highest, 1 for the next, ...; −1 where there are fewer numbers.
    """
    mean, covariance = np.asarray(mean, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    number, block = len(mean), np.broadcast_to(block, mean.shape)
    together = max(1, _AT_ONCE // (_POINTS * mean.shape[1]))
    if number > together:
        parts = (slice(start, start + together) for start in range(0, number, together))
        return np.concatenate([log_ordered(mean[rows], covariance[rows], block[rows]) for rows in parts])
    order = np.argsort(np.where(block < 0, mean.shape[1], block), axis=1, kind="stable")
    lists = np.arange(number)[:, None]
    mean, block = mean[lists, order], block[lists, order]
    covariance = covariance[lists[:, :, None], order[:, :, None], order[:, None, :]]
    # Only differences to the first count.
    across = covariance[:, 1:, :1]
    covariance = covariance[:, 1:, 1:] - across - across.swapaxes(1, 2) + covariance[:, :1, :1]
    mean, size = mean[:, 1:] - mean[:, :1], mean.shape[1] - 1
    there = block[:, 1:] >= 0
    lower = np.linalg.cholesky(np.where(there[:, :, None] & there[:, None, :], covariance, np.eye(size)))
    points = 1 if size == 1 else _POINTS
    # Richtmyer's lattice, the roots of primes, folded so that its ends meet.
    steps = np.arange(1, points + 1)[:, None] * np.sqrt(_primes(size)) % 1
    uniform = np.abs(2 * steps - 1)
    found = np.zeros((number, points))
    drawn = np.zeros((number, points, size))
    limit, lowest = np.full((number, points), np.inf), np.zeros((number, points))
    for at in range(size):
        new = (block[:, at + 1] != block[:, at])[:, None]
        limit, lowest = np.where(new, lowest, limit), np.where(new, np.inf, lowest)
        limit = np.where(there[:, at, None], limit, np.inf)
        center = mean[:, None, at] + np.einsum("pnr,pr->pn", drawn[..., :at], lower[:, at, :at])
        sd = lower[:, None, at, at]
        below = log_ndtr((limit - center) / sd)
        found += below
        drawn[..., at] = ndtri_exp(np.log(np.maximum(uniform[:, at], 1e-300)) + below)
        lowest = np.minimum(lowest, center + sd * drawn[..., at])
    return np.asarray(logsumexp(found, axis=1) - np.log(points))


def _primes(number: int) -> Floats:
    found, at = [2], 3
    while len(found) < number:
        found += [at] if all(at % prime for prime in found) else []
        at += 2
    return np.array(found[:number], dtype=np.float64)
