"""Probabilities that several Gaussian numbers are all positive."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp, ndtri_exp

Floats = NDArray[np.float64]

_POINTS = 2048  # of a lattice; errors are some 1e-4 of the probability
_AT_ONCE = 2**22  # numbers


def log_orthant(mean: Any, covariance: Any) -> Floats:
    """Log probability that all of r jointly Gaussian numbers are positive, shape (p,).

    One after the other, given those before (Genz 1992, "Numerical computation of multivariate normal probabilities"), averaged over a
    lattice, so that equal arguments give equal numbers. One number is exact.

    Parameters
    ----------
    mean : array, shape (p, r)
    covariance : array, shape (p, r, r)
        Positive definite.
    """
    mean, covariance = np.asarray(mean, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    number, size = mean.shape
    together = max(1, _AT_ONCE // (_POINTS * size))
    if number > together:
        blocks = (slice(start, start + together) for start in range(0, number, together))
        return np.concatenate([log_orthant(mean[rows], covariance[rows]) for rows in blocks])
    lower = np.linalg.cholesky(covariance)
    points = 1 if size == 1 else _POINTS
    # Richtmyer's lattice, the roots of primes, folded so that its ends meet.
    steps = np.arange(1, points + 1)[:, None] * np.sqrt(_primes(size)) % 1
    uniform = np.abs(2 * steps - 1)
    found = np.zeros((number, points))
    drawn = np.zeros((number, points, size))
    for row in range(size):
        least = -(mean[:, None, row] + np.einsum("pnr,pr->pn", drawn[..., :row], lower[:, row, :row]))
        least = least / lower[:, None, row, row]
        above = log_ndtr(-least)
        found += above
        drawn[..., row] = -ndtri_exp(np.log(np.maximum(uniform[:, row], 1e-300)) + above)
    return np.asarray(logsumexp(found, axis=1) - np.log(points))


def _primes(number: int) -> Floats:
    found, at = [2], 3
    while len(found) < number:
        found += [at] if all(at % prime for prime in found) else []
        at += 2
    return np.array(found[:number], dtype=np.float64)
