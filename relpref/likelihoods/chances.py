"""Probabilities of the next answer, in closed form, of NumPy's arrays without JAX."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

Floats = NDArray[np.float64]


def graded_chances(
    mean: Any,
    variance: Any,
    scale: Any,
    shift: Any,
    lapse: Any = None,
    margin: Any = 0.0,
    strengths: int = 1,
    normal: Callable[[Any], Any] = ndtr,
) -> dict[str, Any]:
    """Where the gap is N(mean, variance) and seen with Gaussian noise: the ``probability`` that an answer favors the first, and of a ``tie``.

    ``margin`` is the smallest of the ``strengths`` thresholds; 0 means that there are no ties. ``normal`` is Φ; of JAX where the arrays
    are JAX's. The others are as in `relpref.likelihoods.GradedComparison`.
    """
    total = (scale * scale + variance) ** 0.5
    favoured, not_beaten = (normal((shift + mean + side * margin) / total) for side in (-1, 1))
    tie = not_beaten - favoured
    if lapse is not None:
        ties = margin > 0
        grade = 1 / (2 * strengths + ties)  # probability of each of the grades that are offered
        favoured = lapse * strengths * grade + (1 - lapse) * favoured
        tie = lapse * ties * grade + (1 - lapse) * tie
    return {"probability": favoured, "tie": tie}


# For an sd up to WIDE a trapezoidal rule converges geometrically (the poles of σ, at ±iπ, are π/sd away in units of the sd); beyond,
# e^(−v/2) is negligible.
WIDE = 7.0
STEPS = np.arange(-76, 77) * 0.11
_DENSITY = 0.11 * np.exp(-0.5 * np.square(STEPS)) / np.sqrt(2 * np.pi)
# For wide Gaussians σ is a step and a remainder that falls like e^(−t/2) at least; Gauss-Legendre on (0, 60).
NODES, WEIGHTS = np.polynomial.legendre.leggauss(64)
NODES, WEIGHTS = 30 * (NODES + 1), 30 * WEIGHTS
_AT_ONCE = 4096  # integrals: 5 MB


def expected_sigmoid(mean: Floats, variance: Floats) -> Floats:
    """E[σ(z)], z ~ N(mean, variance), shape (k,), within 1e-12.

    By the trapezoidal rule; where the Gaussian is wide, σ is a step and an odd remainder,
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
