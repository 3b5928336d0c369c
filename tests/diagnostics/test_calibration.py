"""Seeds are fixed. A p-value below 0.001 fails; so many of them would by chance alone in a thousand other seeds."""

import numpy as np
import pytest

from benchmarks.calibration import KINDS, questions
from relpref.diagnostics import Calibration, calibrate
from relpref.infer import Laplace
from relpref.models import xpgp


def test_ep_is_calibrated_and_laplace_is_not() -> None:
    data, _ = questions("winners")
    ep = calibrate(xpgp, data, simulations=1000)
    assert set(ep.results) == {"converged"}
    assert ep.p_value() > 0.001
    laplace = calibrate(xpgp, data, engine=Laplace, simulations=1000)
    assert laplace.p_value() < 0.001
    for probability, low, high in ((0.5, 0.45, 0.55), (0.8, 0.76, 0.84), (0.95, 0.92, 0.97)):
        assert low <= ep.coverage(probability) <= high
    assert laplace.coverage(0.8) < 0.76


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "winners"])
def test_every_likelihood(kind: str) -> None:
    data, options = questions(kind)
    found = calibrate(xpgp, data, simulations=100, **options)
    assert set(found.results) == {"converged"}
    assert found.p_value() > 0.001


@pytest.mark.slow
def test_an_answer_given_five_times_is_five_answers() -> None:
    """As many rows as without counts, so that this costs no further compilation."""
    data, _ = questions("winners")
    counted = data.select_comparisons(np.repeat(np.arange(6), 5))
    assert counted.num_comparisons == 6
    found = calibrate(xpgp, counted, simulations=1000)
    assert found.p_value() > 0.001


def test_uniform_transforms_are_seldom_rejected() -> None:
    rng = np.random.default_rng(1)
    found = [Calibration(rng.uniform(size=50), ()).p_value(seed) for seed in range(40)]
    assert np.mean(np.array(found) <= 0.1) <= 0.3  # binomial(40, 0.1): more once in 6000
    assert Calibration(rng.beta(2, 2, size=200), ()).p_value() < 0.001
    assert Calibration(0.9 * rng.uniform(size=200), ()).p_value() < 0.001


def test_the_band_is_as_wide_as_the_test_is_strict() -> None:
    grid, lower, upper = Calibration(np.linspace(0.01, 0.99, 99), ()).band(0.999)
    assert np.all((lower <= grid) & (grid <= upper))
    rng = np.random.default_rng(2)
    outside = 0
    for _ in range(200):
        pit = np.sort(rng.uniform(size=99))
        ecdf = np.searchsorted(pit, grid, side="right") / 99
        outside += bool(np.any((ecdf < lower) | (ecdf > upper)))
    assert outside <= 4  # of 200 at 0.001: more once in a million
