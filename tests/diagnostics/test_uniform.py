"""The test of the test, NumPy alone. Seeds are fixed; false-alarm rates are those of other
seeds.
"""

from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr

from relpref.diagnostics import Calibration
from relpref.diagnostics.calibration import GRID, extremes
from relpref.errors import DataError


def calibration(pit: object) -> Calibration:
    transforms = np.asarray(pit, dtype=float)
    return Calibration({"gap": transforms}, ("converged",) * len(transforms))


def conjugate(seed: int, factor: float, size: int = 500) -> Calibration:
    """θ ~ N(0, 1), y | θ ~ N(θ, ½²): the posterior is N(0.8 y, 0.2); its sd is multiplied by the
    factor.
    """
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=size)
    answer = truth + 0.5 * rng.normal(size=size)
    return calibration(ndtr((truth - 0.8 * answer) / (factor * np.sqrt(0.2))))


def test_a_posterior_too_narrow_by_a_fifth_is_found_and_the_right_one_passes() -> None:
    """The right one passes at 0.001 with ten seeds: a false alarm in a hundred such tests."""
    for seed in range(10):
        assert conjugate(seed, 1.0).inside(0.999)
    narrow = [conjugate(seed, 0.8) for seed in range(10)]
    assert sum(not each.inside(0.999) for each in narrow) >= 9
    assert [each.verdict() for each in narrow].count("too narrow") >= 9


def test_the_shape_says_what_is_wrong() -> None:
    wide = conjugate(1, 1.4)
    assert wide.verdict() == "too wide" and "too wide" in wide.sentence
    pit = np.random.default_rng(3).uniform(size=300)
    assert calibration(pit**1.4).verdict() == "shifted"
    assert calibration(pit).verdict() == "calibrated"


def test_uniform_transforms_are_seldom_rejected() -> None:
    rng = np.random.default_rng(1)
    found = [calibration(rng.uniform(size=50)).p_value(seed=seed) for seed in range(20)]
    assert np.mean(np.array(found) <= 0.1) <= 0.35  # binomial(20, 0.1): more once in 2000


def test_counts_are_those_of_the_plain_definition() -> None:
    """The smallest two-sided tail, point by point and row by row."""
    from scipy.stats import binom

    rng = np.random.default_rng(4)
    pit = np.concatenate([rng.uniform(size=(3, 7)), [np.repeat(GRID[3], 7)]])
    for row, found in zip(pit, extremes(pit), strict=True):
        tails = []
        for at in GRID:
            count = np.sum(row <= at)
            tails.append(min(1.0, 2 * min(binom.cdf(count, 7, at), binom.sf(count - 1, 7, at))))
        assert found == pytest.approx(min(tails), rel=1e-12)


def test_the_band_is_as_wide_as_the_test_is_strict() -> None:
    grid, lower, upper = calibration(np.full(99, 0.5)).band(0.999)
    assert np.all((lower <= grid) & (grid <= upper))
    curves = [calibration(pit).ecdf() for pit in np.random.default_rng(2).uniform(size=(200, 99))]
    outside = sum(bool(np.any((curve < lower) | (curve > upper))) for curve in curves)
    assert outside <= 4  # of 200 at 0.001: more once in a million


def test_coverage_counts_central_intervals_and_misses() -> None:
    found = Calibration(
        {"gap": np.array([0.5, 0.26, 0.76, 0.1, np.nan])}, ("converged",) * 4 + ("nonfinite",)
    )
    assert found.coverage(0.5) == pytest.approx((0.4, np.sqrt(0.05)))
    assert found.not_converged == 1 and "1 of the fits did not converge" in found.sentence
    table = found.summary()
    assert table.loc["gap", "simulations"] == 5 and table.loc["gap", "not_converged"] == 1
    with pytest.raises(DataError, match="there are gap"):
        found.coverage(0.5, "noise")
    with pytest.raises(DataError, match="none of 2 fits ended with a posterior: nonfinite"):
        Calibration({"gap": np.full(2, np.nan)}, ("nonfinite",) * 2).p_value()


def test_the_picture_is_the_same_every_time(tmp_path: Path) -> None:
    found = conjugate(0, 0.8, 100)
    first, second = (found.picture(tmp_path / name).read_bytes() for name in ("a.svg", "b.svg"))
    assert first == second
    assert b"<svg" in first and b"posterior probability below the truth" in first


def test_fits_without_a_posterior_are_no_calibration() -> None:
    rng = np.random.default_rng(0)
    pits = np.concatenate([rng.uniform(size=240), np.full(160, np.nan)])
    found = Calibration({"gap": pits}, ("converged",) * 240 + ("nonfinite",) * 160)
    assert found.missing == 160 and found.verdict() == "not usable"
    assert found.sentence.startswith(
        "Not usable: 160 of 400 fits left no posterior: 80 % intervals"
    )
