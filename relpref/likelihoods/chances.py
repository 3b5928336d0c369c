"""Probabilities of the next answer, in closed form, of NumPy's arrays without JAX."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

Floats = NDArray[np.float64]

# sd of the noise of an item in a list: two items' noises together have the sd 1 of a comparison.
NOISE = float(np.sqrt(0.5))
# sd of the error of rounding in a reported probability, on the probit scale: of two digits, about.
ROUNDING = 0.01


def _expected_ndtr(mean: Any, variance: Any, scale: Any) -> Any:
    return ndtr(mean / (scale * scale + variance) ** 0.5)


def graded_chances(
    mean: Any,
    variance: Any,
    scale: Any,
    shift: Any,
    lapse: Any = None,
    margin: Any = 0.0,
    strengths: int = 1,
    chance: Callable[[Any, Any, Any], Any] = _expected_ndtr,
) -> dict[str, Any]:
    """Probabilities that an answer favors the first and of a tie, for a gap N(mean, variance).

    They are called ``probability`` and ``tie``.

    ``margin`` is the smallest of the ``strengths`` thresholds; 0 means that there are no ties.
    ``chance(mean, variance, scale)`` is the probability that the gap, seen with noise, is positive;
    by default noise is Gaussian. The others are as in `relpref.likelihoods.GradedComparison`.
    """
    favored, not_beaten = (
        chance(shift + mean + side * margin, variance, scale) for side in (-1, 1)
    )
    return with_lapses(favored, not_beaten - favored, lapse, margin, strengths)


def with_lapses(favored: Any, tie: Any, lapse: Any, margin: Any, strengths: int) -> dict[str, Any]:
    """Probabilities of an answer that may be given at random, from those without lapses."""
    if lapse is not None:
        ties = margin > 0
        grade = 1 / (2 * strengths + ties)  # probability of each of the grades that are offered
        favored = lapse * strengths * grade + (1 - lapse) * favored
        tie = lapse * ties * grade + (1 - lapse) * tie
    return {"probability": favored, "tie": tie}


# For an sd up to WIDE a trapezoidal rule converges geometrically (the poles of σ, at ±iπ, are π/sd
# away in units of the sd); beyond, e^(−v/2) is negligible.
WIDE = 7.0
STEPS = np.arange(-76, 77) * 0.11
_DENSITY = 0.11 * np.exp(-0.5 * np.square(STEPS)) / np.sqrt(2 * np.pi)
# For wide Gaussians σ is a step and a remainder that falls like e^(−t/2) at least; Gauss-Legendre
# on (0, 60).
NODES, WEIGHTS = np.polynomial.legendre.leggauss(64)
NODES, WEIGHTS = 30 * (NODES + 1), 30 * WEIGHTS
_AT_ONCE = 4096  # integrals: 5 MB
_CLOSEST = 0.6  # between nodes near 0, where integrands of `nodes` change
_FARTHEST = 9.5  # sds from the mean to the last node of a wide Gaussian


def expected_sigmoid(mean: Floats, variance: Floats) -> Floats:
    """E[σ(z)], z ~ N(mean, variance), shape (k,), within 1e-12.

    The trapezoidal rule; where the Gaussian is wide, σ is a step and an odd remainder,
    E[σ] = Φ(m/√v) + ∫ σ(−t) (N(−t; m, v) − N(t; m, v)) dt, t from 0 to ∞.
    """
    if len(mean) > _AT_ONCE:
        blocks = (slice(start, start + _AT_ONCE) for start in range(0, len(mean), _AT_ONCE))
        return np.concatenate([expected_sigmoid(mean[rows], variance[rows]) for rows in blocks])
    sd = np.sqrt(variance)
    narrow = expit(mean[:, None] + np.minimum(sd, WIDE)[:, None] * STEPS) @ _DENSITY
    wide = np.maximum(sd, WIDE)
    left, right = (
        np.exp(-0.5 * np.square((side * NODES - mean[:, None]) / wide[:, None])) for side in (-1, 1)
    )
    remainder = (left - right) @ (WEIGHTS * expit(-NODES)) / (np.sqrt(2 * np.pi) * wide)
    return np.where(sd > WIDE, ndtr(mean / wide) + remainder, narrow)


def logistic_chance(mean: Any, variance: Any, scale: Any) -> Floats:
    """Probability that a gap, seen with logistic noise of this scale, is positive."""
    mean, variance = np.broadcast_arrays(mean / scale, variance / np.square(scale))
    return expected_sigmoid(mean, variance)


def nodes(mean: Any, sd: Any, center: Any) -> tuple[Any, Any]:
    """Nodes of a trapezoidal rule under N(mean, sd²), and the distances between them.

    Both are in sds, nodes from the mean, shape (..., k).

    The rule is for integrands that change within about 10 of 0 and have no pole within π of the
    real line.
    Nodes are a fraction of the sd apart, around ``center``, in sds; where the Gaussian is wide
    their distance grows with that from 0.
    """
    wide, far = (sd > WIDE)[..., None], np.maximum(sd, WIDE)
    number = len(STEPS) // 2
    steps = np.arange(-number, number + 1)
    reach = (np.abs(mean) + _FARTHEST * far) / _CLOSEST
    growth = np.full_like(mean, 0.05)
    # The last node lies at the reach: sinh(growth · number) = growth · reach.
    for _ in range(12):
        growth = np.log(growth * reach + np.sqrt(1 + np.square(growth * reach))) / number
    grown, spacing = growth[..., None] * steps, (_CLOSEST / far)[..., None]
    x = spacing * np.sinh(grown) / growth[..., None] - (mean / far)[..., None]
    near = center[..., None] + STEPS
    return np.where(wide, x, near), np.where(wide, spacing * np.cosh(grown), STEPS[1] - STEPS[0])


def davidson_chances(
    mean: Any, variance: Any, scale: Any, shift: Any, lapse: Any, margin: Any
) -> dict[str, Any]:
    """Probabilities as in `graded_chances`, by the model of Davidson; within 1e-10.

    See `relpref.likelihoods.DavidsonComparison`.
    """
    given = np.broadcast_arrays(mean, variance, scale, shift, margin)
    blocks = (slice(start, start + _AT_ONCE) for start in range(0, len(given[0]), _AT_ONCE))
    chances = [_davidson(*(value[rows] for value in given)) for rows in blocks]
    favored, tie = (np.concatenate(parts) for parts in zip(*chances, strict=True))
    return with_lapses(favored, tie, lapse, margin, 1)


def _davidson(
    mean: Floats, variance: Floats, scale: Floats, shift: Floats, margin: Floats
) -> list[Floats]:
    mean, sd = (mean + shift) / scale, np.sqrt(variance) / scale
    x, spacing = nodes(mean, sd, np.zeros_like(mean))
    weights = spacing * np.exp(-0.5 * np.square(x)) / np.sqrt(2 * np.pi)
    z = mean[:, None] + sd[:, None] * x
    smaller = np.exp(-0.5 * np.abs(z))
    tie = np.expm1(margin / scale)[:, None] * smaller
    total = 1 + np.square(smaller) + tie
    favored = np.where(z > 0, 1.0, np.square(smaller))
    return [np.sum(weights * each / total, axis=1) for each in (favored, tie)]
