"""Programs that the package does not know: odd names, several Gaussian sites, offsets, Gaussian
answers.
"""

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import relpref
from relpref.diagnostics import leave_one_out
from relpref.errors import DataError
from relpref.infer import EP, Laplace
from relpref.kernels import GaussianProcess
from relpref.likelihoods import ProbitComparison
from relpref.linalg import Dense

PLACES, WINES, TASTINGS = 3, 6, 20
RNG = np.random.default_rng(11)
POSITION = RNG.standard_normal((WINES, 2))
KERNEL = 1.2 * np.exp(-0.5 * ((POSITION[:, None] - POSITION[None]) ** 2).sum(-1)) + 0.3 * np.eye(
    WINES
)
FIRST = RNG.integers(0, WINES, TASTINGS)
SECOND = (FIRST + RNG.integers(1, WINES, TASTINGS)) % WINES
PLACE = RNG.integers(0, PLACES, TASTINGS)
ANSWER = RNG.integers(0, 2, TASTINGS)


def tasting(kernel: Any, answer: Any = None) -> None:
    """The first glass has an advantage, of 0.4 everywhere and of "Höhe" by the place."""
    f = numpyro.sample("f", GaussianProcess(Dense(kernel)))
    with numpyro.plate("Ort", PLACES):
        height = numpyro.sample("Höhe", dist.Normal(0.7, 0.8))
    with numpyro.plate("Verkostung", TASTINGS):
        numpyro.sample(
            "Antwort", ProbitComparison(0.4 + f[FIRST] - f[SECOND] + height[PLACE]), obs=answer
        )


@pytest.fixture(scope="module")
def tasted() -> Any:
    return EP(tasting).run(0, KERNEL, answer=ANSWER)


def test_two_sites_against_sequential_ep(tasted: Any, expectation_propagation: Any) -> None:
    covariance = np.zeros((WINES + PLACES, WINES + PLACES))
    covariance[:WINES, :WINES] = KERNEL
    covariance[WINES:, WINES:] = 0.64 * np.eye(PLACES)
    rows = np.arange(TASTINGS)
    projection = np.zeros((TASTINGS, WINES + PLACES))
    projection[rows, FIRST] = 1
    projection[rows, SECOND] = -1
    projection[rows, WINES + PLACE] = 1
    sign = 2.0 * ANSWER - 1

    def tilted(row: int, mean: float, variance: float) -> tuple[float, float, float]:
        scale = 1 / np.sqrt(1 + variance)
        z = sign[row] * (mean + 0.4 + 0.7) * scale
        ratio = float(np.exp(stats.norm.logpdf(z) - stats.norm.logcdf(z)))
        return (
            float(stats.norm.logcdf(z)),
            sign[row] * ratio * scale,
            ratio * (z + ratio) * scale**2,
        )

    truth = expectation_propagation(covariance, projection, tilted)
    assert_allclose(tasted.mean(site="f"), truth.mean[:WINES], rtol=0, atol=1e-7)
    assert_allclose(tasted.mean(site="Höhe"), 0.7 + truth.mean[WINES:], rtol=0, atol=1e-7)
    assert_allclose(
        tasted.covariance(site="Höhe"), truth.covariance[WINES:, WINES:], rtol=0, atol=1e-7
    )
    assert_allclose(tasted.belief.covariance(), truth.covariance, rtol=0, atol=1e-7)
    assert abs(tasted.log_evidence - truth.log_evidence) <= 1e-7


def test_a_site_must_be_named_where_there_are_two(tasted: Any) -> None:
    with pytest.raises(DataError, match="f, Höhe"):
        tasted.mean()
    with pytest.raises(DataError, match="'g'.*f, Höhe"):
        tasted.sd(site="g")
    assert tasted.mean(site="f").shape == (WINES,)
    assert tasted.sample(5, site="Höhe").shape == (5, PLACES)
    weights = np.array([[1.0, -1.0, 0.0]])
    assert_allclose(
        tasted.mean(weights, site="Höhe"), weights @ tasted.mean(site="Höhe"), rtol=1e-12
    )


def measuring(kernel: Any, rows: Any, values: Any) -> None:
    f = numpyro.sample("f", GaussianProcess(Dense(kernel)))
    with numpyro.plate("measurement", len(values)):
        numpyro.sample("y", dist.Normal(f[rows] + 0.2, 0.5), obs=values)


@pytest.mark.parametrize("space", ["latent", "observation"])
def test_gaussian_answers_are_exact(space: Any) -> None:
    rng = np.random.default_rng(3)
    rows, values = rng.integers(0, WINES, 9), rng.standard_normal(9)
    found = EP(measuring, space=space).run(0, KERNEL, rows, values)
    projection = np.eye(WINES)[rows]
    marginal = projection @ KERNEL @ projection.T + 0.25 * np.eye(9)
    gain = KERNEL @ projection.T @ np.linalg.inv(marginal)
    assert found.info["iterations"] <= 3
    assert_allclose(found.mean(), gain @ (values - 0.2), rtol=0, atol=1e-10)
    assert_allclose(found.covariance(), KERNEL - gain @ projection @ KERNEL, rtol=0, atol=1e-10)
    evidence = stats.multivariate_normal(np.full(9, 0.2), marginal).logpdf(values)
    assert found.log_evidence is not None
    assert abs(found.log_evidence - evidence) <= 1e-10


@pytest.mark.parametrize("engine", [EP, Laplace])
def test_gaussian_answers_with_a_prior_mean(engine: Any) -> None:
    """The sites of exact answers are in coordinates whose origin is the prior mean."""
    rng, middle = np.random.default_rng(4), np.linspace(2.0, -1.0, WINES)
    rows, values = rng.integers(0, WINES, 9), rng.standard_normal(9)

    def measured(rows: Any, values: Any) -> None:
        f = numpyro.sample("f", dist.MultivariateNormal(middle, KERNEL))
        numpyro.sample("y", dist.Normal(f[rows], 0.5), obs=values)

    posterior = engine(measured).run(0, rows, values)
    marginal = KERNEL[np.ix_(rows, rows)] + 0.25 * np.eye(9)
    gain = KERNEL[:, rows] @ np.linalg.inv(marginal)
    assert_allclose(posterior.mean(), middle + gain @ (values - middle[rows]), rtol=0, atol=1e-9)
    evidence = stats.multivariate_normal(middle[rows], marginal).logpdf(values)
    assert_allclose(posterior.log_evidence, evidence, rtol=0, atol=1e-9)
    others = [np.flatnonzero(np.arange(9) != row) for row in range(9)]
    expected = [
        evidence
        - stats.multivariate_normal(middle[rows[other]], marginal[np.ix_(other, other)]).logpdf(
            values[other]
        )
        for other in others
    ]
    table = leave_one_out(posterior).table
    assert_allclose(table["log_score"], expected, rtol=0, atol=1e-9)


def test_a_program_runs_a_few_times_for_a_whole_fit() -> None:
    """What JAX remembers of it serves the rest."""
    runs = []

    def counted(data: Any) -> None:
        runs.append(1)
        relpref.models.xpgp(data)

    names = ["a", "b", "c", "d"]
    answers = pd.DataFrame({"winner": ["a", "a", "b", "c"], "loser": ["b", "c", "d", "d"]})
    data = relpref.PreferenceData.from_tables(
        pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0]}, index=names), answers
    )
    EP(counted).run(0, data)
    assert len(runs) <= 4
