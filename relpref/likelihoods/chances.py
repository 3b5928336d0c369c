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


def expected_ndtr(mean: Any, variance: Any, scale: Any) -> Any:
    """Probability that a gap, seen with Gaussian noise of this scale, is positive."""
    return ndtr(mean / (scale * scale + variance) ** 0.5)


def graded_chances(
    mean: Any,
    variance: Any,
    scale: Any,
    shift: Any,
    lapse: Any = None,
    margin: Any = 0.0,
    strengths: int = 1,
    chance: Callable[[Any, Any, Any], Any] = expected_ndtr,
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


# For an sd up to WIDE a trapezoidal rule converges geometrically: the poles of σ, at ±iπ, are π/sd
# away in units of the sd.
_WIDE = 5.0
_NUMBER, _REACH = 60, 8.36  # nodes on either side, and how far they reach, in sds
_SPACED = 0.625  # between nodes at most, in units of the noise
_AT_ONCE = 4096  # integrals: 5 MB
_CLOSEST = 0.6  # between nodes near 0, where integrands of `nodes` change
_FARTHEST = 9.5  # sds from the mode to the last node of a wide Gaussian
_APART = 6.0  # sds from 0 to a mode beyond which integrands change too little to matter


def nodes(mean: Any, sd: Any, center: Any, xp: Any = np) -> tuple[Any, Any]:
    """Nodes of a trapezoidal rule under N(mean, sd²), and the distances between them.

    Both are in sds, nodes from the mean, shape (..., k). ``xp`` is the namespace of the arrays.

    The rule is for integrands that change within about 10 of 0 and have no pole within π of the
    real line.
    Nodes are a fraction of the sd apart, around ``center``, in sds, where the integrand has its
    mode; where the Gaussian is wide their distance grows with that from 0.
    """
    number, widest = _NUMBER, 1.0
    if xp is np and (widest := max(1.0, np.max(sd, initial=0.0))) <= _WIDE:
        number = int(np.ceil(_REACH / np.clip(_SPACED / widest, _REACH / _NUMBER, 0.5)))
    steps = xp.asarray(np.arange(-number, number + 1), mean.dtype)
    spacing = _REACH / number
    near = center[..., None] + spacing * steps
    if number < _NUMBER:
        return near, spacing
    far, mode = xp.maximum(sd, _WIDE), xp.abs(mean + center * sd)
    wide = ((sd > _WIDE) & (mode < _APART * sd))[..., None]
    reach = (mode + _FARTHEST * far) / _CLOSEST
    growth = xp.full_like(mean, 0.05)
    # The last node lies at the reach: sinh(growth · number) = growth · reach.
    for _ in range(12):
        growth = xp.arcsinh(growth * reach) / number
    growth, closest = growth[..., None], (_CLOSEST / far)[..., None]
    up = 0.5 * closest * xp.exp(growth * steps)
    down = up[..., ::-1]
    x = (up - down) / growth - (mean / far)[..., None]
    return xp.where(wide, x, near), xp.where(wide, up + down, spacing)


def _expected(
    integrands: Callable[..., tuple[Floats, ...]], mean: Any, variance: Any, *more: Any
) -> list[Floats]:
    """Expectations of functions of z ~ N(mean, variance) and more, shape (k,) each."""
    given = np.broadcast_arrays(mean, variance, *more)
    parts = []
    for start in range(0, max(len(given[0]), 1), _AT_ONCE):
        mean, variance, *rest = (each[start : start + _AT_ONCE, None] for each in given)
        sd = np.sqrt(variance)
        x, spacing = nodes(mean[:, 0], sd[:, 0], np.zeros(len(mean)))
        weights = spacing * np.exp(-0.5 * np.square(x)) / np.sqrt(2 * np.pi)
        values = integrands(mean + sd * x, *rest)
        parts.append([np.sum(weights * value, axis=1) for value in values])
    return [np.concatenate(each) for each in zip(*parts, strict=True)]


def logistic_chance(mean: Any, variance: Any, scale: Any) -> Floats:
    """Probability that a gap, seen with logistic noise of this scale, is positive; within 1e-11."""
    return _expected(lambda z: (expit(z),), mean / scale, variance / np.square(scale))[0]


def davidson_chances(
    mean: Any, variance: Any, scale: Any, shift: Any, lapse: Any, margin: Any
) -> dict[str, Any]:
    """Probabilities as in `graded_chances`, by the model of Davidson; within 1e-10.

    See `relpref.likelihoods.DavidsonComparison`.
    """

    def chances(z: Floats, ratio: Floats) -> tuple[Floats, Floats]:
        smaller = np.exp(-0.5 * np.abs(z))
        tie = np.expm1(ratio) * smaller
        total = 1 + np.square(smaller) + tie
        return np.where(z > 0, 1.0, np.square(smaller)) / total, tie / total

    standard = (mean + shift) / scale, variance / np.square(scale)
    favored, tie = _expected(chances, *standard, margin / scale)
    return with_lapses(favored, tie, lapse, margin, 1)
