"""Probabilities of orders of jointly Gaussian numbers, with Gaussian or Gumbel noise.

Both kinds are integrals over a Gaussian. They are estimated by importance sampling with a proposal
that is fitted to the order, at the points of a lattice.
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
_POINTS = 2**9  # of a lattice, at first
_WORK, _MOST = 2**22, (2**13, 2**17)  # points for a result at last, and for each of its averages
_AT_ONCE = 2**22  # numbers
_LOWEST = -600.0  # logarithms of weights above it have an exponential
_PARTS = 64  # of a partition, at most
_SWEEPS = 8
_STEPS = 4
_FRACTIONS = 0.5 ** np.arange(6.0)  # of a step, of which the best is taken
_VARIATES = 32  # and as many opposite ones, by which the proposal of Gumbel noise is found
_TAIL = 10  # its degrees of freedom for each dimension, so that weights are bounded


def log_ordered(mean: Any, covariance: Any, block: Any) -> Floats:
    """Log probability that Gaussian numbers of a block are above those of the next, shape (p,).

    The numbers are jointly Gaussian. They are drawn one after the other, those of small blocks
    first, each between the numbers that must be above and below it (Genz 1992, "Numerical
    computation of multivariate normal probabilities"). Each is drawn given what is still to come:
    the constraints of later numbers are Gaussian factors of the proposal, found by expectation
    propagation. Where neighboring blocks have several members, the probability is a sum over parts,
    see `_split`. Equal arguments give equal results. That of two numbers is exact.

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
    parts = [_split(row) for row in block]
    owner = np.repeat(np.arange(number), [len(part) for part in parts])
    block = np.concatenate([block[:0], *parts])
    mean, covariance, present = mean[owner], covariance[owner], block >= 0
    # Small blocks come first: numbers between two others are easier to foresee than the two.
    same = block[:, :, None] == block[:, None, :]
    rank = np.where(present, same.sum(axis=2) * size + block, (size + 1) * size)
    order = np.argsort(rank, axis=1, kind="stable")
    lists = np.arange(len(owner))[:, None]
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
        for at in range(1, size):
            before, here = block[rows, :at, None], block[rows, at, None, None]
            earlier = drawn[:, :at]
            above, below = (before >= 0) & (before < here), (here >= 0) & (before > here)
            high = np.min(earlier, axis=1, where=above, initial=np.inf)
            low = np.max(earlier, axis=1, where=below, initial=-np.inf)
            # Centers and sds of the proposal, and without the constraints.
            center = centers[at][rows, :, None] + slopes[at][rows] @ drawn[:, :at]
            sd = sds[at][rows, :, None]
            low, high = ((end - center[:, 0]) / sd[:, 0] for end in (low, high))
            standard, inside = _truncated(uniform[:, at - 1], low, high)
            drawn[:, at] = center[:, 0] + sd[:, 0] * standard
            plain = (drawn[:, at] - center[:, 1]) / sd[:, 1]
            logs = logs + inside + 0.5 * (standard**2 - plain**2) + np.log(sd[:, 0] / sd[:, 1])
        return logs

    return _log_average(log_weights, max(size - 1, 1), owner, 1.0)


def _truncated(uniform: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Standard normal numbers between two limits, and the log probability of the interval."""
    turned = low > 0  # in the tail that has more digits
    low, high = np.where(turned, -high, low), np.where(turned, -low, high)
    log_low, log_high = log_ndtr(low), log_ndtr(high)
    inside = log_high + np.log(-np.expm1(np.minimum(log_low - log_high, -1e-15)))
    level = np.minimum(np.logaddexp(log_low, np.log(uniform) + inside), log_high)
    standard = np.clip(ndtri_exp(level), low, high)
    return np.where(turned, -standard, standard), inside


def _split(block: NDArray[Any]) -> NDArray[Any]:
    """Split an ordered partition into parts whose probabilities add up to it, shape (c, k).

    Each part says which member of a block is nearest to a neighboring block. No two neighboring
    blocks have several members then, because given that one the others are easy to foresee. Blocks
    of two or three between others become orders. Where there would be too many parts, the partition
    stays as it is.
    """
    parts = [block]
    while True:
        counts = np.bincount(parts[0][parts[0] >= 0])
        several = counts > 1
        inner = np.flatnonzero(several[1:-1] & (counts[1:-1] <= 3)) + 1
        neighbors = np.flatnonzero(several[:-1] & several[1:])
        if not len(neighbors) and not len(inner):
            return np.array(parts)
        at = [*neighbors, *inner][0]
        upper = not len(neighbors) or counts[at] <= counts[at + 1]  # whose member it is
        at = at if upper else at + 1
        if len(parts) * counts[at] > _PARTS:
            return block[None]
        members = [(part, member) for part in parts for member in np.flatnonzero(part == at)]
        parts = [part + (part > at - (not upper)) for part, _ in members]
        for part, (_, member) in zip(parts, members, strict=True):
            part[member] = at + upper


def _proposals(mean: Floats, covariance: Floats, block: NDArray[Any]) -> tuple[Any, Any, Any]:
    """Conditional distributions of each number given those before it.

    They have means at zeros, slopes and standard deviations, shape (p, 2, ...): of the proposal,
    which has factors for all constraints on later numbers, and without these.
    """
    size = mean.shape[1]
    # Constraints are those of each number and the nearest blocks among the numbers before it:
    # 1 where the earlier number is above, −1 where it is below.
    signs: dict[tuple[int, int], Any] = {}
    for j in range(1, size):
        before, here = block[:, :j], block[:, j, None]
        above, below = (before >= 0) & (before < here), (here >= 0) & (before > here)
        high = np.max(before, axis=1, where=above, initial=-1)[:, None]
        low = np.min(before, axis=1, where=below, initial=size)[:, None]
        nearest = (above & (before == high)) * 1 - (below & (before == low)) * 1
        signs |= {(i, j): nearest[:, i] for i in range(j) if nearest[:, i].any()}
    factors = {pair: np.zeros((2, len(mean))) for pair in signs}
    located, spread = mean.copy(), covariance.copy()
    for sweep in range(_SWEEPS):
        for pair in [*signs][:: 1 if sweep % 2 else -1]:
            precision, shift = factors[pair]
            i, j = pair
            variance = spread[:, i, i] + spread[:, j, j] - 2 * spread[:, i, j]
            left = 1 - precision * variance
            gap = (located[:, i] - located[:, j] - variance * shift) / left
            variance = variance / left
            sign = signs[pair]
            z = sign * gap / np.sqrt(variance)
            mills = np.sqrt(2 / np.pi) / erfcx(-z / np.sqrt(2))
            share = np.minimum(mills * (mills + z), 1 - 1e-9)  # by which the variance falls
            after = [share / variance, sign * mills / np.sqrt(variance) + gap * share / variance]
            factor = np.where(sign != 0, np.divide(after, 1 - share), 0.0)
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
        Weights of the components.
    places : int
        How many of the first are in order.

    Returns
    -------
    array
        Errors are as in `log_ordered`.
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
    normal = ndtri(_lattice(_VARIATES, size))
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

    owner, shares = np.tile(np.arange(lists), components), np.repeat(weights, lists)
    return _log_average(log_weights, size + 1, owner, shares)


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
    diagonal = total - (squares * weight).mean(axis=1)
    curvature = diagonal[:, None] * np.eye(size) - upper - upper.swapaxes(1, 2)
    return (np.arange(size) < places) - total, curvature


def _log_average(
    log_weights: Callable[[Indices, Floats], Floats], dimensions: int, owner: Any, shares: Any
) -> Floats:
    """Logarithms of sums of averages of weights over the unit cube.

    ``log_weights`` takes positions and points, shape (points, dimensions), and returns logarithms
    of shape (positions, points). Each average is multiplied by its share and added to the result
    whose number is its owner. Averages get four times as many points while a result needs it.
    """
    number, counts = len(owner), np.bincount(owner)
    averages, errors = np.zeros(number), np.zeros(number)
    most = np.clip(_WORK // counts, *_MOST)[owner]
    left, points = np.arange(number), _POINTS
    results = relative = np.zeros(len(counts))
    while len(left):
        uniform = _lattice(points, dimensions)
        together = max(1, _AT_ONCE // (points * dimensions))
        for start in range(0, len(left), together):
            rows = left[start : start + together]
            logs = log_weights(rows, uniform)
            averages[rows] = logsumexp(logs, axis=1) - np.log(points)
            # Errors as for independent points; those of a lattice are better in few dimensions.
            errors[rows] = np.exp(logs - averages[rows, None]).std(axis=1) / np.sqrt(points)
        highest = np.full(len(counts), -np.inf)
        np.maximum.at(highest, owner, averages)
        parts = shares * np.exp(averages - highest[owner])
        total = np.bincount(owner, parts)
        results, relative = highest + np.log(total), np.bincount(owner, parts * errors) / total
        points *= 4
        enough = (np.minimum(errors, relative[owner]) <= RELATIVE_ERROR) | (points > most)
        left = np.flatnonzero(~enough)
    large = relative > RELATIVE_ERROR
    if large.any():
        warnings.warn(
            f"probabilities of {large.sum()} of {large.size} lists have relative standard errors "
            f"above {RELATIVE_ERROR:.1%}, up to {relative.max():.1%}, where more than {_MOST[1]:,} "
            "points would be needed; shorter lists and lists with fewer ties have smaller errors",
            stacklevel=3,
        )
    return np.asarray(results)


def _lattice(points: int, dimensions: int) -> Floats:
    """Points of Richtmyer's lattice of roots of primes, shifted at random and folded."""
    shift = np.random.default_rng(0).uniform(size=dimensions)
    steps = np.arange(points)[:, None] * np.sqrt(_primes(dimensions))
    return np.clip(np.abs(2 * ((steps + shift) % 1) - 1), 1e-16, 1 - 1e-16)


def _primes(number: int) -> Floats:
    primes, candidate = [2], 3
    while len(primes) < number:
        primes += [candidate] if all(candidate % prime for prime in primes) else []
        candidate += 2
    return np.array(primes[:number], dtype=np.float64)
