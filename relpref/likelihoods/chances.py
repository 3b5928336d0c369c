"""Probabilities of the next answer, in closed form, of NumPy's arrays without JAX."""

from importlib import import_module
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
) -> dict[str, Any]:
    """Where the gap is N(mean, variance) and seen with Gaussian noise: the ``probability`` that an answer favors the first, and of a ``tie``.

    Arrays may be NumPy's or JAX's. ``margin`` is the smallest of the ``strengths`` thresholds; 0 means that there are no ties. The
    others are as in `relpref.likelihoods.GradedComparison`.
    """
    normal = ndtr if isinstance(mean, np.ndarray) else import_module("jax.scipy.special").ndtr
    total = (scale * scale + variance) ** 0.5
    favoured, not_beaten = (normal((shift + mean + side * margin) / total) for side in (-1, 1))
    tie = not_beaten - favoured
    if lapse is not None:
        ties = margin > 0
        grade = 1 / (2 * strengths + ties)  # probability of each of the grades that are offered
        favoured = lapse * strengths * grade + (1 - lapse) * favoured
        tie = lapse * ties * grade + (1 - lapse) * tie
    return {"probability": favoured, "tie": tie}


# σ is known at steps of 0.11 sds up to an sd of _WIDE, see `relpref.likelihoods.tilted`; the Gaussian between 0 and 60 beyond.
_WIDE = 7.0
_STEPS = np.arange(-76, 77) * 0.11
_WEIGHTS = 0.11 * np.exp(-0.5 * np.square(_STEPS)) / np.sqrt(2 * np.pi)
_NODES, _LEGENDRE = np.polynomial.legendre.leggauss(64)
_NODES, _LEGENDRE = 30 * (_NODES + 1), 30 * _LEGENDRE


def expected_sigmoid(mean: Floats, variance: Floats) -> Floats:
    """E[σ(z)], z ~ N(mean, variance), shape (k,), within 1e-12.

    By the trapezoidal rule, which converges geometrically; where the Gaussian is wide, σ is a step and an odd remainder,
    E[σ] = Φ(m/√v) + ∫ σ(−t) (N(−t; m, v) − N(t; m, v)) dt, t from 0 to ∞.
    """
    sd = np.sqrt(variance)
    narrow = expit(mean[:, None] + np.minimum(sd, _WIDE)[:, None] * _STEPS) @ _WEIGHTS
    wide = np.maximum(sd, _WIDE)
    left, right = (
        np.exp(-0.5 * np.square((side * _NODES - mean[:, None]) / wide[:, None])) for side in (-1, 1)
    )
    remainder = (left - right) @ (_LEGENDRE * expit(-_NODES)) / (np.sqrt(2 * np.pi) * wide)
    return np.where(sd > _WIDE, ndtr(mean / wide) + remainder, narrow)
