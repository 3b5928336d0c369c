"""A posterior of two items that is known by quadrature, and ones that are wrong on purpose."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from relpref.data import PreferenceData
from relpref.infer import UtilityPosterior
from relpref.kernels import Precomputed
from relpref.models import xpgp
from relpref.posterior.gaussian import GaussianBelief
from relpref.posterior.origin import Origin

WINS, LOSSES, VARIANCE = 3, 1, 4.0
SIDES = np.array([[0.5, 0.5], [-0.5, 0.5]])  # utilities from gap and sum

Gap = tuple[float, float, float]


@pytest.fixture(scope="session")
def gap() -> Gap:
    """Mean and variance of the difference of the two utilities, and the log evidence."""
    grid = np.linspace(-20, 20, 40_001)
    density = (
        norm.pdf(grid, scale=np.sqrt(2 * VARIANCE)) * ndtr(grid) ** WINS * ndtr(-grid) ** LOSSES
    )
    total = density.sum()
    mean = float(grid @ density / total)
    variance = float((grid - mean) ** 2 @ density / total)
    return mean, variance, float(np.log(total * (grid[1] - grid[0])))


@pytest.fixture(scope="session")
def wrong(gap: Gap) -> Callable[..., UtilityPosterior]:
    """Make posteriors whose mean gap is off by some sds, and its sd by a factor."""
    items = pd.DataFrame({"x": [0.0, 1.0]}, index=["a", "b"])
    answers = pd.DataFrame({"winner": ["a", "b"], "loser": ["b", "a"], "count": [WINS, LOSSES]})
    data = PreferenceData.from_tables(items, answers)
    options = {"attribute_kernel": Precomputed(VARIANCE * np.eye(2)), "individual": False}
    mean, variance, log_evidence = gap
    right = UtilityPosterior(
        belief=GaussianBelief(np.zeros(2), np.eye(2)),
        slices={"utility": slice(0, 2)},
        parts={},
        hyperparameters={"attributes_amplitude": 1.0},
        log_evidence=log_evidence,
        info={"engine": "EP", "result": "converged"},
        sites={},
        key=np.array([0, 1], dtype=np.uint32),
        origin=Origin(xpgp, (data,), options),
        data=data,
    )

    def make(shift: float = 0.0, factor: float = 1.0) -> UtilityPosterior:
        location = SIDES @ np.array([mean + shift * np.sqrt(variance), 0.0])
        scale = SIDES @ np.diag([factor**2 * variance, 2 * VARIANCE]) @ SIDES.T
        return replace(right, belief=GaussianBelief(location, scale))

    return make


@pytest.fixture(scope="session")
def posterior(wrong: Callable[..., UtilityPosterior]) -> UtilityPosterior:
    """The Gaussian with the moments of the exact posterior."""
    return wrong()
