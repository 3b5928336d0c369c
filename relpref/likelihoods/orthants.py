"""Probabilities of orders of jointly Gaussian numbers, with Gaussian or Gumbel noise.

Both kinds are integrals over a Gaussian. They are estimated by importance sampling with a proposal
that is fitted to the order, at the points of randomly shifted lattices. The spread between these
lattices gives the standard error.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import (
    erfcx,
    gammaincinv,
    gammaln,
    log_ndtr,
    logsumexp,
    ndtri,
    ndtri_exp,
)

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

RELATIVE_ERROR = 0.005  # the standard error of a probability is at most this share of it
_SHIFTS = 8  # lattices, by which the error is estimated
_POINTS = 2**9  # of all lattices, at first
_GROWTH = 2**8  # at last there are this many times as many
_AT_ONCE = 2**22  # numbers
_LOWEST = -600.0  # logarithms of weights above it have an exponential
_SWEEPS = 8
_STEPS = 4
_FRACTIONS = 0.5 ** np.arange(6.0)  # of a step, of which the best is taken
_VARIATES = 32  # and as many opposite ones, by which the proposal of Gumbel noise is found
_TAIL = 10  # its degrees of freedom for each dimension, so that weights are bounded


def log_ordered(mean: Any, covariance: Any, block: Any) -> Floats:
    """Log probability that Gaussian numbers of a block are above those of the next, shape (p,).

    The numbers are jointly Gaussian. They are drawn from the first to the last, each below all of
    the block before it (Genz 1992, "Numerical computation of multivariate normal probabilities").
    Each is drawn given what is still to come: the constraints of later numbers are Gaussian factors
    of the proposal, found by expectation propagation. Equal arguments give equal results. That of
    two numbers is exact.

    Parameters
    ----------
    mean : array, shape (p, k)
    covariance : array, shape (p, k, k)
        Positive definite for differences of the numbers.
    block : array of int, shape (p, k)
        0 for the highest, 1 for the next, ...; −1 where there are fewer numbers.

    Returns
    -------
    array
        The relative standard error of a probability is at most 0.5 %, or there is a warning.
    """
    mean, covariance = np.asarray(mean, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    (number, size), block = mean.shape, np.broadcast_to(block, mean.shape)
    present = block >= 0
    # The smaller of the two outer blocks comes first: a minimum of several is harder to foresee.
    last = block.max(axis=1, initial=0, keepdims=True)
    turned = np.sum(block == 0, axis=1) > np.sum(block == last, axis=1)
    turned = turned[:, None]
    mean, block = np.where(turned, -mean, mean), np.where(turned & present, last - block, block)
    order = np.argsort(np.where(present, block, size), axis=1, kind="stable")
    lists = np.arange(number)[:, None]
    mean, block = mean[lists, order], block[lists, order]
    covariance = covariance[lists[:, :, None], order[:, :, None], order[:, None, :]]
    # Only differences to the first matter, which is 0 from here on.
    present = block >= 0
    mean = np.where(present, mean - mean[:, :1], 0.0)
    covariance = covariance - covariance[:, :1] - covariance[:, :, :1] + covariance[:, :1, :1]
    both = present[:, :, None] & present[:, None, :]
    covariance = np.where(both, covariance, np.diag(np.arange(size) > 0))
    centers, slopes, sds = _proposals(mean, covariance, block)

    def log_weights(rows: Indices, uniform: Floats) -> Floats:
        drawn = np.zeros((len(rows), size, len(uniform)))
        logs = np.zeros((len(rows), len(uniform)))
        lowest, limit = logs, np.full(logs.shape, np.inf)
        for at in range(1, size):
            new = (block[rows, at] != block[rows, at - 1])[:, None]
            limit, lowest = np.where(new, lowest, limit), np.where(new, np.inf, lowest)
            limit = np.where(present[rows, at, None], limit, np.inf)
            # Of the proposal, and without the constraints.
            center = centers[at][rows, :, None] + slopes[at][rows] @ drawn[:, :at]
            sd = sds[at][rows, :, None]
            below = log_ndtr((limit - center[:, 0]) / sd[:, 0])
            standard = ndtri_exp(np.log(uniform[:, at - 1]) + below)
            drawn[:, at] = center[:, 0] + sd[:, 0] * standard
            plain = (drawn[:, at] - center[:, 1]) / sd[:, 1]
            logs = logs + below + 0.5 * (standard**2 - plain**2) + np.log(sd[:, 0] / sd[:, 1])
            lowest = np.minimum(lowest, drawn[:, at])
        return logs

    return _log_average(log_weights, number, max(size - 1, 1), _POINTS)


def _proposals(mean: Floats, covariance: Floats, block: NDArray[Any]) -> tuple[Any, Any, Any]:
    """Conditional distributions of each number given those before it.

    They have means at zeros, slopes and standard deviations, shape (p, 2, ...): of the proposal,
    which has factors for all constraints on later numbers, and without these.
    """
    size = mean.shape[1]
    pairs = [(i, j) for j in range(size) for i in range(j)]
    falls = {(i, j): (block[:, i] >= 0) & (block[:, j] == block[:, i] + 1) for i, j in pairs}
    falls = {pair: there for pair, there in falls.items() if there.any()}
    factors = {pair: np.zeros((2, len(mean))) for pair in falls}
    located, spread = mean.copy(), covariance.copy()
    for sweep in range(_SWEEPS):
        for pair in [*falls][:: 1 if sweep % 2 else -1]:
            precision, shift = factors[pair]
            i, j = pair
            variance = spread[:, i, i] + spread[:, j, j] - 2 * spread[:, i, j]
            left = 1 - precision * variance
            gap = (located[:, i] - located[:, j] - variance * shift) / left
            variance = variance / left
            z = gap / np.sqrt(variance)
            mills = np.sqrt(2 / np.pi) / erfcx(-z / np.sqrt(2))
            share = np.minimum(mills * (mills + z), 1 - 1e-9)  # by which the variance falls
            after = [share / variance, mills / np.sqrt(variance) + gap * share / variance]
            factor = np.where(falls[pair], np.divide(after, 1 - share), 0.0)
            _multiply(located, spread, pair, factor - factors[pair])
            factors[pair] = factor
    centers, slopes, sds = [], [], []
    located, spread = mean.copy(), covariance.copy()
    for at in reversed(range(size)):
        both = np.stack([spread, covariance], axis=1)
        means = np.stack([located, mean], axis=1)
        slope = np.zeros((len(mean), 2, at))
        across = both[:, :, 1:at, at]
        slope[:, :, 1:] = np.linalg.solve(both[:, :, 1:at, 1:at], across[..., None])[..., 0]
        centers.append(means[:, :, at] - np.sum(slope * means[:, :, :at], axis=2))
        sds.append(np.sqrt(both[:, :, at, at] - np.sum(slope[:, :, 1:] * across, axis=2)))
        slopes.append(slope)
        for pair, factor in factors.items():
            if pair[1] == at:
                _multiply(located, spread, pair, factor)
    return centers[::-1], slopes[::-1], sds[::-1]


def _multiply(mean: Floats, covariance: Floats, pair: tuple[int, int], factor: Floats) -> None:
    """Multiply Gaussians, in place, by exp(ν g − ½ τ g²), g the difference of two numbers.

    ``factor`` are τ and ν.
    """
    i, j = pair
    precision, shift = factor
    column = covariance[:, :, i] - covariance[:, :, j]
    left = 1 + precision * (column[:, i] - column[:, j])
    gap = mean[:, i] - mean[:, j]
    mean += column * ((shift - precision * gap) / left)[:, None]
    covariance -= (column * (precision / left)[:, None])[:, :, None] * column[:, None, :]


def log_stages(utility: Any, places: int) -> Floats:
    """Log probability that the first ``places`` items come first, in their order, shape (...).

    ``utility`` has the shape (..., k). This is the model of Plackett and Luce, with Gumbel noise:
    one choice after the other among those that are left.
    """
    shifted = utility - utility.max(axis=-1, keepdims=True)
    if np.min(shifted, initial=0.0) > _LOWEST:
        log_left = np.log(_left(np.exp(shifted), places))
    else:
        log_left = np.logaddexp.accumulate(shifted[..., ::-1], axis=-1)[..., ::-1][..., :places]
    return np.asarray((shifted[..., :places] - log_left).sum(axis=-1))


def _left(weight: Floats, places: int) -> Floats:
    """Sums of weights from each of the first places to the end."""
    first = weight[..., :places][..., ::-1].cumsum(axis=-1)[..., ::-1]
    return np.asarray(first + weight[..., places:].sum(axis=-1, keepdims=True))


def log_chosen(mean: Any, covariance: Any, weights: Any, places: int) -> Floats:
    """Log expectation of `log_stages`' probability under mixtures of Gaussians, shape (p,).

    The proposal has the tails of Student's t. Location and scale are those of the Gaussian that is
    nearest to the distribution of the utilities given the order (variational inference).

    Parameters
    ----------
    mean : array, shape (c, p, k)
        Utilities of p lists in each component, in the order of the items.
    covariance : array, shape (c, p, k, k)
    weights : array, shape (c,)
        Of the components.
    places : int
        How many of the first are in order.

    Returns
    -------
    array
        With errors as of `log_ordered`.
    """
    components, lists, size = mean.shape
    together = max(1, _AT_ONCE // (2 * _VARIATES * len(_FRACTIONS) * size * components))
    if lists > together:
        cuts = (slice(start, start + together) for start in range(0, lists, together))
        parts = [log_chosen(mean[:, cut], covariance[:, cut], weights, places) for cut in cuts]
        return np.concatenate(parts)
    mean, covariance = mean.reshape(-1, size), covariance.reshape(-1, size, size)
    number = len(mean)
    values, vectors = np.linalg.eigh(covariance)
    # Utilities are mean + root x, x ~ N(0, I).
    root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    back = root.swapaxes(1, 2)
    normal = ndtri(_lattices(_VARIATES, size))
    normal = np.concatenate([normal, -normal])
    location, scatter = np.zeros((number, size)), np.zeros((number, 1, size))
    # Newton's method to the mode, and from there with averages over the Gaussian.
    for step in range(2 * _STEPS):
        utility = mean[:, None] + (location[:, None] + scatter) @ back
        slope, curvature = _derivatives(utility, places)
        precision = np.eye(size) + back @ curvature @ root
        scale = np.linalg.inv(np.linalg.cholesky(precision)).swapaxes(1, 2)
        uphill = (back @ slope[..., None])[..., 0] - location
        move = (scale @ (scale.swapaxes(1, 2) @ uphill[..., None]))[..., 0]
        tried = location[:, None] + _FRACTIONS[:, None] * move[:, None]
        utility = mean[:, None, None] + (tried[:, :, None] + scatter[:, None]) @ back[:, None]
        height = log_stages(utility, places).mean(axis=2) - 0.5 * np.sum(tried**2, axis=2)
        location = tried[np.arange(number), height.argmax(axis=1)]
        if step >= _STEPS:
            scatter = normal @ scale.swapaxes(1, 2)
    volume = np.log(np.diagonal(scale, axis1=1, axis2=2)).sum(axis=1)[:, None]
    tail = float(_TAIL * size)
    volume += gammaln(tail / 2) - gammaln((tail + size) / 2) + size / 2 * np.log(tail / 2)

    def log_weights(rows: Indices, uniform: Floats) -> Floats:
        divisor = 2 * gammaincinv(tail / 2, uniform[:, -1:]) / tail
        student = ndtri(uniform[:, :-1]) / np.sqrt(divisor)
        points = location[rows, None] + student @ scale[rows].swapaxes(1, 2)
        log_density = -(tail + size) / 2 * np.log1p(np.sum(student**2, axis=1) / tail)
        logs = log_stages(mean[rows, None] + points @ back[rows], places)
        return np.asarray(logs - 0.5 * np.sum(points**2, axis=2) - log_density + volume[rows])

    logs = _log_average(log_weights, number, size + 1, 2 * _POINTS, weights)
    return np.asarray(logsumexp(logs.reshape(components, lists).T, axis=1, b=weights))


def _derivatives(utility: Floats, places: int) -> tuple[Floats, Floats]:
    """Slope and negative curvature of `log_stages`, averages over the second axis.

    They have the shapes (p, k) and (p, k, k).
    """
    size = utility.shape[-1]
    weight = np.exp(np.maximum(utility - utility.max(axis=2, keepdims=True), _LOWEST / 5))
    inverse = np.zeros_like(weight)
    inverse[..., :places] = 1 / _left(weight, places)
    # An item's shares at the stages up to its place, and of two those at the stages of both.
    total = (weight * np.cumsum(inverse, axis=2)).mean(axis=1)
    squares = weight * np.cumsum(inverse**2, axis=2)
    upper = np.triu(squares.swapaxes(1, 2) @ weight / utility.shape[1], 1)
    own = total - (squares * weight).mean(axis=1)
    curvature = own[:, None] * np.eye(size) - upper - upper.swapaxes(1, 2)
    return (np.arange(size) < places) - total, curvature


def _log_average(
    log_weights: Callable[[Indices, Floats], Floats],
    number: int,
    dimensions: int,
    points: int,
    shares: Any = (1.0,),
) -> Floats:
    """Logarithms of averages of weights over the unit cube, shape (number,).

    ``log_weights`` takes positions and points, shape (points, dimensions), and returns logarithms
    of shape (positions, points). Each result is the mean of c averages, one for each of ``shares``;
    those of the first share come first. Averages with too much of a mean's error get four times as
    many points.
    """
    averages, left, most = np.zeros(number), np.arange(number), _GROWTH * points
    errors, shares = np.zeros(number), np.asarray(shares)[:, None]
    while len(left):
        uniform = _lattices(points, dimensions)
        together = max(1, _AT_ONCE // (points * dimensions))
        for start in range(0, len(left), together):
            rows = left[start : start + together]
            logs = log_weights(rows, uniform).reshape(len(rows), _SHIFTS, -1)
            of_shifts = logsumexp(logs, axis=2) - np.log(logs.shape[2])
            averages[rows] = logsumexp(of_shifts, axis=1) - np.log(_SHIFTS)
            spread = np.exp(of_shifts - averages[rows, None]).std(axis=1, ddof=1)
            errors[rows] = spread / np.sqrt(_SHIFTS)
        of_lists = averages.reshape(len(shares), -1)
        means = logsumexp(of_lists, axis=0, b=shares)
        parts = shares * np.exp(of_lists - means) * errors.reshape(of_lists.shape)
        relative = np.sqrt(np.sum(parts**2, axis=0))
        large = relative > RELATIVE_ERROR
        if points >= most:
            break
        left = np.flatnonzero(large & (parts > RELATIVE_ERROR / np.sqrt(len(shares))))
        points *= 4
    if number and np.any(large):
        warnings.warn(
            f"probabilities of {large.sum()} of {large.size} lists have relative standard errors "
            f"above {RELATIVE_ERROR:.1%}, up to {relative.max():.1%}, after {points:,} points "
            "each; shorter lists and lists with fewer ties have smaller errors",
            stacklevel=3,
        )
    return averages


def _lattices(points: int, dimensions: int) -> Floats:
    """Points of Richtmyer's lattices, of the roots of primes: shifted at random and folded."""
    shifts = np.random.default_rng(0).uniform(size=(_SHIFTS, 1, dimensions))
    steps = np.arange(points // _SHIFTS)[:, None] * np.sqrt(_primes(dimensions))
    folded = np.abs(2 * ((steps + shifts) % 1) - 1).reshape(-1, dimensions)
    return np.clip(folded, 1e-16, 1 - 1e-16)


def _primes(number: int) -> Floats:
    primes, candidate = [2], 3
    while len(primes) < number:
        primes += [candidate] if all(candidate % prime for prime in primes) else []
        candidate += 2
    return np.array(primes[:number], dtype=np.float64)
