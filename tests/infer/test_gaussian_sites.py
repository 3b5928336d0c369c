"""Labels and reported probabilities with tiny noise, against arithmetic of 60 digits."""

from decimal import Decimal, localcontext
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from numpyro import handlers
from scipy.special import ndtri
from scipy.stats import norm

from relpref import PreferenceData
from relpref.diagnostics import influence, leave_one_out
from relpref.errors import InferenceError
from relpref.infer import EP, Laplace
from relpref.kernels import SquaredExponential
from relpref.likelihoods.chances import ROUNDING
from relpref.models import xpgp

SIZE = 5
EVERY = [(i, j) for i in range(SIZE) for j in range(i + 1, SIZE)]
FEW = [(0, 1), (0, 1), (2, 3)]  # one pair twice


def decimals(array: Any) -> Any:
    return np.vectorize(lambda value: Decimal(float(value)), otypes=[object])(array)


def solved(matrix: Any, right: Any) -> Any:
    """Gauss and Jordan, with pivots."""
    whole = np.concatenate([matrix, right], axis=1)
    for at in range(len(whole)):
        pivot = at + int(np.argmax([abs(value) for value in whole[at:, at]]))
        whole[[at, pivot]] = whole[[pivot, at]]
        whole[at] = whole[at] / whole[at, at]
        for row in range(len(whole)):
            if row != at:
                whole[row] = whole[row] - whole[row, at] * whole[at]
    return whole[:, len(matrix) :]


def conditioned(covariance: Any, projection: Any, label: Any, variance: Any) -> tuple[Any, Any]:
    """Mean and covariance of u ~ N(0, covariance), given labels of projection @ u with noise, to 60
    digits.
    """
    covariance, projection, label = (decimals(array) for array in (covariance, projection, label))
    gram = projection.dot(covariance).dot(projection.T)
    for row, extra in enumerate(variance):
        gram[row, row] += extra
    cross = covariance.dot(projection.T)
    found = solved(gram, np.concatenate([label[:, None], cross.T], axis=1))
    return cross.dot(found[:, 0]), covariance - cross.dot(found[:, 1:])


def without(
    row: int, covariance: Any, projection: Any, label: Any, noise: float
) -> tuple[Any, float, float]:
    """Means given the other labels, and mean and variance of the gap of this one."""
    kept = np.arange(len(label)) != row
    with localcontext(prec=60):
        variance = [Decimal(noise) ** 2] * kept.sum()
        mean, scale = conditioned(covariance, projection[kept], label[kept], variance)
        gap = decimals(projection[row])
        return mean.astype(float), float(gap.dot(mean)), float(gap.dot(scale).dot(gap))


def program(covariance: Any, first: Any, second: Any, label: Any, counts: Any, noise: Any) -> None:
    size = covariance.shape[0]
    utility = numpyro.sample("utility", dist.MultivariateNormal(jnp.zeros(size), covariance))
    with handlers.scale(scale=counts):
        numpyro.sample("label", dist.Normal(utility[first] - utility[second], noise), obs=label)


def design(pairs: Any) -> Any:
    first, second = np.array(pairs).T
    rows = np.arange(len(first))
    projection = np.zeros((len(rows), SIZE))
    projection[rows, first], projection[rows, second] = 1.0, -1.0
    return first, second, projection


def prior(seed: int) -> Any:
    places = np.random.default_rng(seed).standard_normal((SIZE, 2))
    return np.exp(-np.square(places[:, None] - places).sum(-1) / 2) + 0.3 * np.eye(SIZE)


def errors(posterior: Any, exact: tuple[Any, Any]) -> tuple[float, float]:
    """Largest error of a mean in sds, and relative of an sd: of utilities, centred utilities and
    gaps.
    """
    weights = np.concatenate([design(EVERY)[2], np.eye(SIZE), np.eye(SIZE) - 1 / SIZE])
    precise = decimals(weights)
    mean, sd = precise.dot(exact[0]), [row.dot(exact[1]).dot(row).sqrt() for row in precise]
    pairs = zip(decimals(posterior.mean(weights)), mean, sd, strict=True)
    ratios = zip(decimals(posterior.sd(weights)), sd, strict=True)
    return max(float(abs(a - b) / s) for a, b, s in pairs), max(
        float(abs(a / b - 1)) for a, b in ratios
    )


@pytest.mark.parametrize("engine", [EP, Laplace])
@pytest.mark.parametrize(
    ("pairs", "noise", "count", "off"),
    [
        (EVERY, 3e-4, 1, 1.0),
        (EVERY, 1e-4, 1, 1.0),
        (EVERY, 1e-5, 1, 1.0),
        (EVERY, 1e-5, 1, 1e3),  # labels that contradict one another
        (EVERY, 0.02, 10_000, 1.0),
        (EVERY, 1e-3, 10_000, 1.0),
        (FEW, 1e-5, 1, 1.0),
    ],
)
def test_against_many_digits(engine: Any, pairs: Any, noise: float, count: int, off: float) -> None:
    rng = np.random.default_rng(3)
    covariance, (first, second, projection) = prior(3), design(pairs)
    label = projection @ rng.standard_normal(SIZE) + off * noise * rng.standard_normal(len(first))
    counts = np.where(np.arange(len(first)) % 2, 1.0, count)
    posterior = engine(program).run(0, covariance, first, second, label, counts, noise)
    assert posterior.info["result"] == "converged"
    with localcontext(prec=60):
        variance = [Decimal(noise) ** 2 / Decimal(each) for each in counts]
        mean, sd = errors(posterior, conditioned(covariance, projection, label, variance))
    assert mean < 1e-6
    assert sd < 1e-4


def test_evidence_is_that_of_the_gaussian() -> None:
    rng = np.random.default_rng(4)
    covariance, (first, second, projection) = prior(4), design(EVERY)
    label = projection @ rng.standard_normal(SIZE)
    counts, noise = np.ones(len(first)), 1e-3
    posterior = EP(program).run(0, covariance, first, second, label, counts, noise)
    total = projection @ covariance @ projection.T + noise**2 * np.eye(len(first))
    expected = -0.5 * (
        label @ np.linalg.solve(total, label) + np.linalg.slogdet(2 * np.pi * total)[1]
    )
    assert_allclose(posterior.log_evidence or np.nan, expected, atol=1e-5)


def test_more_precise_than_rounding_allows() -> None:
    first, second, projection = design(EVERY)
    args = (prior(5), first, second, projection @ np.arange(SIZE), np.ones(len(first)), 9e-6)
    with pytest.raises(InferenceError, match="too_precise.*Fix the noise at a larger value"):
        EP(program).run(0, *args)


HYPERPARAMETERS = {"attributes_amplitude": 1.3, "attributes_lengthscale": 1.0}


def reports() -> PreferenceData:
    """28 reports by a rater who knows the gaps, with six decimals."""
    rng = np.random.default_rng(0)
    names = [f"e{row}" for row in range(8)]
    items = pd.DataFrame({name: rng.standard_normal(8) for name in "ab"}, index=names)
    utility, (first, second) = rng.standard_normal(8), np.triu_indices(8, 1)
    probability = np.round(norm.cdf(utility[first] - utility[second]), 6)
    columns = {
        "first": np.array(names)[first],
        "second": np.array(names)[second],
        "probability": probability,
    }
    return PreferenceData.from_tables(items=items, answers=pd.DataFrame(columns))


@pytest.fixture(scope="module")
def reported() -> Any:
    """A posterior of reports, and the exact one: mean and covariance of all gaps without each
    report.
    """
    data, noise = reports(), np.hypot(1e-4, ROUNDING)
    engine = EP(xpgp, fixed={**HYPERPARAMETERS, "soft_noise": 1e-4})
    posterior = engine.run(0, data, individual=False, attribute_kernel=SquaredExponential())
    table = data.attributes
    standard = (table - table.mean(axis=0)) / table.std(axis=0)
    squares = np.square(standard[:, None] - standard).sum(-1)
    covariance = 1.3**2 * np.exp(-squares / 2)
    projection = np.eye(8)[data.winner] - np.eye(8)[data.loser]
    label = ndtri(np.asarray(data.comparisons.probability))
    return posterior, covariance, projection, label, noise


def test_leaving_out_of_reports(reported: Any) -> None:
    posterior, covariance, projection, label, noise = reported
    held_out, surprises = leave_one_out(posterior), influence(posterior)
    for row in (0, 5, 27):
        mean, centre, spread = without(row, covariance, projection, label, noise)
        sd = np.sqrt(spread + noise**2)
        density = norm.logpdf(label[row], centre, sd) - norm.logpdf(label[row])
        assert_allclose(held_out.table["log_score"].iloc[row], density, atol=1e-4)
        moved = mean - posterior.mean()
        shift = (moved - moved.mean()) / posterior.belief.centred().sd()
        found = surprises.loc[row]
        named = posterior.data.labels.index(found["item"])
        assert_allclose(found["shift"], shift[named], rtol=1e-3)
        assert_allclose(np.abs(shift[named]), np.abs(shift).max(), rtol=1e-3)


def test_leaving_out_a_report_that_nothing_supports() -> None:
    """Two items that nothing else was said of: without the report the prior is left, to all
    digits.
    """
    first, second, projection = design([(0, 1), (2, 3), (3, 4)])
    covariance, noise = prior(6), 1e-5
    label = projection @ np.random.default_rng(6).standard_normal(SIZE)
    posterior = EP(program).run(0, covariance, first, second, label, np.ones(3), noise)
    found = leave_one_out(posterior).table["log_score"].to_numpy()
    for row in range(3):
        _, centre, spread = without(row, covariance, projection, label, noise)
        expected = norm.logpdf(label[row], centre, spread**0.5)
        assert_allclose(found[row], expected, atol=1e-6)


@pytest.mark.parametrize("hyperparameters", ["integrate", "maximize"])
def test_reports_that_agree_to_six_decimals(hyperparameters: Any) -> None:
    """They say no more than reports that were rounded."""
    data = reports()
    posterior = EP(xpgp, hyperparameters=hyperparameters).run(0, data)
    projection = np.eye(8)[data.winner] - np.eye(8)[data.loser]
    label = ndtri(np.asarray(data.comparisons.probability))
    assert np.abs(projection @ posterior.mean() - label).max() < ROUNDING
    gaps = np.sqrt(np.diag(projection @ posterior.covariance() @ projection.T))
    assert 0.25 * ROUNDING < gaps.min() and gaps.max() < 2 * ROUNDING


def test_a_few_equal_reports_are_no_exact_ones() -> None:
    """Thirteen reports say nothing of the noise where any noise fits."""
    table = pd.DataFrame(
        [("a", "b", 0.7, 5), ("b", "c", 0.6, 5), ("a", "d", 0.8, 3)],
        columns=["first", "second", "probability", "count"],
    )
    for hyperparameters in ("integrate", "maximize"):
        posterior = EP(xpgp, hyperparameters=hyperparameters).run(
            0, PreferenceData.from_tables(answers=table)
        )
        assert posterior.hyperparameters["soft_noise"] > 0.03
        assert posterior.sd().min() > ROUNDING
