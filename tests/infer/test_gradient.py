from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy import stats

from relpref.data import PreferenceData
from relpref.errors import DataError
from relpref.infer import EP, Laplace
from relpref.kernels import Features, GaussianProcess
from relpref.likelihoods import ProbitComparison
from relpref.linalg import Dense
from relpref.models import xpgp
from relpref.models.preference import Hyperparameters, sample_decisions

STEP = np.finfo(float).eps ** (1 / 3)


def check(
    at: Callable[[dict[str, Any]], tuple[float, dict[str, Any]]], point: dict[str, Any]
) -> None:
    """Compare the gradient with central differences, relative to its largest entry."""
    _, gradient = at(point)
    largest = max(float(np.abs(value).max()) for value in gradient.values())
    for name, value in point.items():
        for entry in np.ndindex(np.shape(value)):
            ends = []
            for side in (STEP, -STEP):
                moved = np.array(value, dtype=float)
                moved[entry] += side
                ends.append(at({**point, name: moved})[0])
            slope = (ends[0] - ends[1]) / (2 * STEP)
            assert abs(slope - gradient[name][entry]) <= 1e-6 * max(largest, 1.0), (name, entry)


@pytest.mark.parametrize("gap_space", [False, True])
@pytest.mark.parametrize("engine", [EP, pytest.param(Laplace, marks=pytest.mark.slow)])
def test_xpgp(
    engine: Any, gap_space: bool, data: PreferenceData, objective: Callable[..., Any]
) -> None:
    at = objective(xpgp, data, gap_space=gap_space, engine=engine)
    rng = np.random.default_rng(1)
    for _ in range(5):
        point = {
            "attributes_amplitude": rng.normal(0.3, 0.7),
            "attributes_lengthscale": rng.normal(0.0, 0.7, 2),
            "attributes_linear_share": rng.normal(0.0, 0.7),
            "next_amplitude": rng.normal(0.0, 0.7),
            "next_range": rng.normal(0.5, 0.7),
        }
        check(at, point)


@pytest.mark.parametrize("gap_space", [False, True])
def test_effects_of_covariates(gap_space: bool, objective: Callable[..., Any]) -> None:
    rng = np.random.default_rng(2)
    first, more = rng.integers(0, 5, (2, 30))
    columns = {
        "winner": first,
        "loser": (first + 1 + more % 4) % 5,
        "x_winner": rng.normal(size=30),
    }
    answers = pd.DataFrame({**columns, "x_loser": rng.normal(size=30)})
    at = objective(
        xpgp, PreferenceData.from_tables(range(5), answers, covariates=["x"]), gap_space=gap_space
    )
    for _ in range(3):
        check(at, {"effect_scale": rng.normal(), "individual_amplitude": rng.normal()})


ROWS = np.array([0, 2, 3])
MEASURED = np.array([0.3, -1.1, 0.8])
WINNER, LOSER = np.array([0, 1, 2, 3, 0]), np.array([1, 2, 3, 4, 4])
POINTS = np.linspace(0.0, 2.0, 5)
UNIT = np.exp(-0.5 * (POINTS[:, None] - POINTS) ** 2) + 0.1 * np.eye(5)


def everywhere(unit: Any, measured: Any) -> None:
    """Hyperparameters in the prior, the projection, the offset and the likelihood."""
    amplitude = numpyro.sample("amplitude", dist.LogNormal(0.0, 1.0))
    discernment = numpyro.sample("discernment", dist.LogNormal(0.0, 1.0))
    bias = numpyro.sample("bias", dist.HalfNormal(1.0))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    f = numpyro.sample("f", GaussianProcess(Dense(amplitude**2 * jnp.asarray(unit))))
    with numpyro.plate("comparison", len(WINNER)):
        gap = discernment * (f[WINNER] - f[LOSER]) + bias
        numpyro.sample("answer", ProbitComparison(gap), obs=np.array([1, 0, 1, 1, 1]))
    with numpyro.plate("measurement", len(ROWS)):
        numpyro.sample("measured", dist.Normal(f[ROWS], noise), obs=measured)


@pytest.mark.slow
def test_hyperparameters_everywhere_under_laplace(objective: Callable[..., Any]) -> None:
    at = objective(everywhere, UNIT, MEASURED, gap_space=True, engine=Laplace)
    rng = np.random.default_rng(3)
    for _ in range(5):
        check(
            at,
            {name: rng.normal(0.0, 0.5) for name in ("amplitude", "discernment", "bias", "noise")},
        )


def test_hyperparameters_everywhere(
    objective: Callable[..., Any], expectation_propagation: Callable[..., Any]
) -> None:
    at = objective(everywhere, UNIT, MEASURED, gap_space=True)
    rng = np.random.default_rng(2)
    for _ in range(5):
        point = {
            name: rng.normal(0.0, 0.5) for name in ("amplitude", "discernment", "bias", "noise")
        }
        check(at, point)

    # The value itself, at the last of them.
    a, d, b, s = (float(np.exp(value)) for value in point.values())
    projection = np.zeros((8, 5))
    projection[np.arange(5), WINNER] = d
    projection[np.arange(5), LOSER] = -d
    projection[np.arange(5, 8), ROWS] = 1
    sign = [1, -1, 1, 1, 1]

    def tilted(row: int, mean: float, variance: float) -> tuple[float, float, float]:
        if row >= 5:
            total, error = variance + s**2, MEASURED[row - 5] - mean
            return float(stats.norm.logpdf(error, 0, np.sqrt(total))), error / total, 1 / total
        scale = 1 / np.sqrt(1 + variance)
        z = sign[row] * (mean + b) * scale
        ratio = float(np.exp(stats.norm.logpdf(z) - stats.norm.logcdf(z)))
        return (
            float(stats.norm.logcdf(z)),
            sign[row] * ratio * scale,
            ratio * (z + ratio) * scale**2,
        )

    truth = expectation_propagation(a**2 * UNIT, projection, tilted)
    log_prior = (
        stats.norm.logpdf(np.log([a, d])).sum()
        + stats.halfnorm.logpdf([b, s]).sum()
        + np.log(b * s)
    )
    assert abs(at(point)[0] - truth.log_evidence - log_prior) <= 1e-8


def test_em_refuses_hyperparameters_in_the_projection() -> None:
    with pytest.raises(DataError, match="which EM holds fixed"):
        EP(everywhere, hyperparameters="em").run(0, UNIT, MEASURED, progress_bar=False)


EXAMPLES = np.random.default_rng(0).normal(size=(9, 2))
TAKEN = np.array([[1, 1, 1, 0, 2, 1, 0, 1, 1], [1, 0, 1, 1, 1, 1, 1, 1, 3]]).T
OUTCOME = np.array([[1, 0, 1, 1, 0, 1, 0, 0, 1], [0, 0, 1, 0, 1, 1, 0, 1, 1]]).T


def moving_features() -> None:
    """More decisions than weights, with features and noise that hyperparameters move; some were not
    taken.
    """
    power = numpyro.sample("power", dist.Normal(0.0, 1.0))
    values = jnp.asarray(EXAMPLES) + power * jnp.asarray(EXAMPLES[:, ::-1]) ** 2
    residual = jnp.exp(power) * jnp.asarray(EXAMPLES[:, 0]) ** 2
    features = Features(values, residual)
    sample_decisions(features, OUTCOME, TAKEN, Hyperparameters(None), "probit", "example")


@pytest.mark.slow
@pytest.mark.parametrize("engine", [EP, pytest.param(Laplace, marks=pytest.mark.slow)])
def test_features_that_move(engine: Any, objective: Callable[..., Any]) -> None:
    item, gap = (
        objective(moving_features, gap_space=space, engine=engine) for space in (False, True)
    )
    rng = np.random.default_rng(4)
    for _ in range(3):
        point = {"amplitude": rng.normal(0.0, 0.5), "power": rng.normal(0.0, 0.5)}
        check(item, point)
        np.testing.assert_allclose(item(point)[0], gap(point)[0], rtol=1e-9)
        for name, slope in gap(point)[1].items():
            np.testing.assert_allclose(item(point)[1][name], slope, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_a_row_that_counts_for_nothing_is_as_good_as_absent(objective: Callable[..., Any]) -> None:
    def some(rows: Any) -> None:
        values = jnp.asarray(EXAMPLES)[rows]
        counts, outcome = jnp.asarray(TAKEN)[rows, :1], jnp.asarray(OUTCOME)[rows, :1]
        sample_decisions(
            Features(values), outcome, counts, Hyperparameters(None), "probit", "example"
        )

    kept = np.flatnonzero(TAKEN[:, 0])
    with_rows = objective(some, np.arange(9), gap_space=False)({"amplitude": 0.3})
    without = objective(some, kept, gap_space=False)({"amplitude": 0.3})
    np.testing.assert_allclose(with_rows[0], without[0], rtol=1e-10)
    np.testing.assert_allclose(with_rows[1]["amplitude"], without[1]["amplitude"], rtol=1e-8)


def test_a_projection_that_moves_in_item_space(objective: Callable[..., Any]) -> None:
    """More rows than latent values, and hyperparameters in the projection, the prior and the
    likelihood.
    """
    at = objective(everywhere, UNIT, MEASURED, gap_space=False)
    check(at, {"amplitude": 0.3, "discernment": -0.4, "bias": 0.2, "noise": -0.1})
