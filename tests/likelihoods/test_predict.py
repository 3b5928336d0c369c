"""What models predict from NumPy's arrays, against the distributions that they make and against
integrals.
"""

from itertools import pairwise
from typing import Any

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, special, stats

from relpref.data import Comparisons
from relpref.likelihoods import Logistic, Probit
from relpref.likelihoods.answers import SPREADS
from relpref.likelihoods.chances import logistic_chance

_RNG = np.random.default_rng(2)
SIZE = 24
MEANS = np.r_[-40.0, 40, 0, _RNG.normal(0, 3, SIZE - 3)]
VARIANCES = np.r_[0.0, 900, 0, np.exp(_RNG.uniform(-5, 6, SIZE - 3))]
COLUMNS: dict[str, Any] = {
    "tie": np.zeros(SIZE, bool),
    "strength": np.ones(SIZE, np.int32),
    "probability": np.full(SIZE, 0.5),
    "rater": np.tile([0, 1, 2], SIZE // 3).astype(np.int32),
    "shown_first": np.tile([0, 1, -1, 1], SIZE // 4).astype(np.int8),
}
PARAMETERS = {
    "lapse": np.float64(0.07),
    "tie_margin": np.float64(0.4),
    "strength_steps": np.array([0.3, 0.8]),
    "soft_noise": np.float64(0.6),
    "rater_noise": np.array([1.0, 0.5, 2.0]),
    "rater_margin": np.array([0.7, 1.0, 1.6]),
    "position_bias": np.float64(0.3),
}


@pytest.mark.parametrize(
    ("model", "columns"),
    [
        (Probit(), ""),
        (Probit(lapse=True), "rater shown_first"),
        (Probit(lapse=True), "strength"),
        (Probit(), "probability rater shown_first"),
        (Logistic(lapse=True), "rater shown_first"),
        (Logistic(), "strength"),
        (Logistic(lapse=True), "tie strength rater shown_first"),
        (Logistic(lapse=True, ties="davidson"), "tie rater shown_first"),
        (Probit(lapse=True, margins="rater"), "tie strength rater"),
        (Logistic(margins="rater"), "tie rater strength"),
        (Logistic(ties="davidson", margins="rater"), "tie rater"),
    ],
    ids=str,
)
def test_a_model_predicts_what_its_distribution_does(model: Any, columns: str) -> None:
    first = np.tile([0, 1], SIZE // 2).astype(np.int32)
    given = {name: COLUMNS[name] for name in columns.split()}
    strengths = 3 if "strength" in columns else 1
    raters = ("x", "y", "z") if "rater" in columns else ()
    answers = Comparisons(
        first, first + 1, np.ones(SIZE, np.int32), **given, raters=raters, strengths=strengths
    )
    sites = model.sites(answers)
    assert sites == [name for name in model.parameters(answers) if name not in SPREADS.values()]
    parameters = {name: PARAMETERS[name] for name in sites}
    found = model.predict(answers, MEANS, VARIANCES, **parameters)

    @jax.jit
    def predicted(mean: Any, variance: Any, parameters: Any) -> Any:
        return model(mean, answers, **parameters).predict(mean, variance)

    with jax.enable_x64(True):
        expected = predicted(MEANS, VARIANCES, parameters)
    for name in expected:
        assert_allclose(found[name], np.asarray(expected[name]), rtol=1e-9, atol=1e-10)
    if "tie" not in expected:
        assert_allclose(found.get("tie", 0.0), 0.0, atol=1e-15)
    assert all(
        isinstance(value, np.ndarray) and value.dtype == np.float64 for value in found.values()
    )


def test_an_expected_sigmoid() -> None:
    means, variances = (
        value.ravel()
        for value in np.meshgrid(
            [-30.0, -4, -0.5, 0, 2, 9, 60], [0.0, 0.01, 2, 30, 48.9, 49.1, 400, 1e4]
        )
    )
    found = logistic_chance(means, variances, 1.0)
    many = logistic_chance(np.tile(means, 200), np.tile(variances, 200), 1.0)
    assert_allclose(many, np.tile(found, 200), rtol=1e-14)
    for mean, variance, value in zip(means, variances, found, strict=True):
        sd = np.sqrt(variance)

        def density(z: float, mean: float = mean, sd: float = sd) -> float:
            return float(special.expit(z) * stats.norm.pdf(z, mean, sd))

        expected = special.expit(mean)
        if variance:
            ends = np.clip([-1e9, -40, 0, 40, mean, 1e9], mean - 10 * sd, mean + 10 * sd)
            pieces = pairwise(np.unique(ends))
            expected = sum(integrate.quad(density, *piece, epsabs=1e-14)[0] for piece in pieces)
        assert value == pytest.approx(expected, abs=1e-11), (mean, variance)
