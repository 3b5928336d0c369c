"""Distribution of a hyperparameter between and beyond weighted points.

Two dozen points are enough for averages, but not for quantiles: between the two outermost lies less
than an interval of 95 % holds. So each stands for a Gaussian around it, and all are pulled to their
mean, so that mean and variance stay what they are (West 1993, "Approximating posterior
distributions by mixtures"). Where all values are positive these are Gaussians of their roots:
standard deviations that may be 0 have a flat tail there, which on the scale of logarithms is long.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]

_WIDTH = 0.4  # of the Gaussians, in sds of the points
_GRID = np.linspace(
    -6.0, 6.0, 601
)  # around the mean, in sds of the points, on which quantiles are found


def probability_below(values: Floats, weights: Floats, value: float) -> float:
    """Probability below a value, for points and weights of shape (k,); weights add up to 1."""
    mean, sd, below, scale = _smoothed(values, weights)
    if scale is np.sqrt and value <= 0:
        return 0.0
    return float(below(np.array([(scale(np.array(value)) - mean) / sd]))[0])


def interval(values: Floats, weights: Floats, probability: float) -> tuple[float, float]:
    """The central interval; of draws, whose weights are equal, that between their quantiles."""
    tails = np.array([1 - probability, 1 + probability]) / 2
    if not np.ptp(weights):
        lower, upper = np.quantile(values, tails)
        return float(lower), float(upper)
    mean, sd, below, scale = _smoothed(values, weights)
    lower, upper = mean + sd * np.interp(tails, below(_GRID), _GRID)
    return (
        (max(lower, 0.0) ** 2, float(upper) ** 2)
        if scale is np.sqrt
        else (float(lower), float(upper))
    )


def _smoothed(
    values: Floats, weights: Floats
) -> tuple[float, float, Callable[[Floats], Floats], Callable[[Floats], Floats]]:
    """Mean and sd of the points on their scale, their distribution function, and the scale.

    The function takes standardized values.
    """
    scale: Callable[[Floats], Floats] = np.sqrt if np.all(values > 0) else np.asarray
    places = scale(values)
    mean = float(weights @ places)
    sd = max(float(np.sqrt(weights @ np.square(places - mean))), np.finfo(float).tiny)
    centers = np.sqrt(1 - _WIDTH**2) * (places - mean) / sd

    def below(standard: Floats) -> Floats:
        return np.asarray(ndtr((standard[:, None] - centers) / _WIDTH) @ weights)

    return mean, sd, below, scale
