"""When EP has arrived, and how far from the exact posterior it then is."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose
from numpyro import handlers
from scipy.special import log_expit, log_ndtr, ndtr

from relpref.infer import EP
from relpref.infer.sites import Fit, Problem, Sites, advance, begin, cavities
from relpref.infer.spaces import Factorised, Marginals
from relpref.kernels import GaussianProcess
from relpref.likelihoods import (
    GradedComparison,
    LogisticComparison,
    ProbitComparison,
    TiltedMoments,
)
from relpref.likelihoods.weighted import WeightedComparison
from relpref.linalg import Dense


@pytest.mark.parametrize(
    ("gradient", "curvature", "expected"),
    [
        (0.3, 0.0, 0.6),
        (0.0, 0.2, 0.8),
        (0.3, 0.2, 0.8),
        (-0.3, 0.0, 0.6),
        (0.5, 0.2, 1.0),
        (0.0, 0.0, 0.0),
    ],
)
def test_the_residual_bounds_means_and_variances(
    gradient: float, curvature: float, expected: float
) -> None:
    """Of a row without a site and with variance 4: 4·gradient/2 in sds of the mean, and 4·curvature
    of the variance.
    """
    nothing = np.zeros(2)
    sites = Sites(nothing, nothing)
    marginals = Marginals(nothing, np.full(2, 4.0), np.zeros(()))
    fit = Fit(sites, Factorised(np.eye(2), np.eye(2), nothing, np.zeros(())), marginals)
    moments = TiltedMoments(nothing, np.array([gradient, 9.0]), np.array([curvature, 0.1]))
    counts = np.array([1.0, 0.0])
    cavity = cavities(counts, sites, marginals)
    unused: Any = None
    problem = Problem(unused, counts, unused)
    state, _ = advance(problem, begin(sites, fit), fit, marginals, cavity, moments)
    assert_allclose(state.residual, expected)  # the second row was not answered


def repeated(covariance: Any, counts: Any) -> None:
    """One pair, of which the first won counts[0] times and the second counts[1] times."""
    utility = numpyro.sample("utility", GaussianProcess(Dense(covariance)))
    gap = (utility[0] - utility[1]) * jnp.array([1.0, -1.0])
    # numpyro takes no counts of 0.
    with handlers.mask(mask=counts > 0), handlers.scale(scale=jnp.maximum(counts, 1)):
        numpyro.sample("answer", ProbitComparison(gap), obs=jnp.ones(2, jnp.int32))


def exact_gap(amplitude: float, counts: Any) -> tuple[float, float, float]:
    """Mean, sd and log evidence of the gap, on a grid."""
    gap, step = np.linspace(-14 * amplitude, 14 * amplitude, 400_001, retstep=True)
    log_density = (
        counts[0] * log_ndtr(gap) + counts[1] * log_ndtr(-gap) - gap**2 / (4 * amplitude**2)
    )
    highest = log_density.max()
    density = np.exp(log_density - highest)
    mean = density @ gap / density.sum()
    log_evidence = highest + np.log(density.sum() * step / np.sqrt(4 * np.pi * amplitude**2))
    return mean, np.sqrt(density @ (gap - mean) ** 2 / density.sum()), log_evidence


LARGE, EXACT, MANY = (0.01, 0.02, 0.01), (1e-5, 1e-5, 1e-6), (4e-5, 1.3e-4, 5e-5)


@pytest.mark.parametrize(
    ("amplitude", "counts", "errors"),
    [
        # Where prior and sites are both large, they must not cancel.
        (20.0, (10_000.0, 100.0), LARGE),
        (100.0, (10_000.0, 5_000.0), LARGE),
        (100.0, (60.0, 30.0), LARGE),
        # Unanimous answers have one site, whose cavity is the prior.
        (1.0, (10.0, 0.0), EXACT),
        (50.0, (10_000.0, 0.0), EXACT),
        (5.0, (1e6, 0.0), EXACT),
        *((1.0, counts, MANY) for counts in ((1e2, 1e2), (1e6, 1e6), (1e4, 1.0), (1e4, 2.0))),
    ],
)
def test_many_answers_of_two_items(amplitude: float, counts: Any, errors: Any) -> None:
    """The errors are those of the mean in sds, of the sd and of the log evidence."""
    posterior: Any = EP(repeated).run(0, amplitude**2 * np.eye(2), np.array(counts))
    mean, sd, log_evidence = exact_gap(amplitude, counts)
    gap = np.array([[1.0, -1.0]])
    assert abs(posterior.mean(gap)[0] - mean) <= errors[0] * sd
    assert_allclose(posterior.sd(gap), [sd], rtol=errors[1])
    assert abs(posterior.log_evidence - log_evidence) <= errors[2]
    if errors is MANY:
        assert np.all(posterior.sites["precision"] > 0)
        assert posterior.info["iterations"] < 60


THREE = np.array([[1.4, 0.2, -0.3], [0.2, 0.9, 0.1], [-0.3, 0.1, 1.7]])
ENDS = np.array([[0, 1], [1, 2], [2, 0], [1, 0]])
OFTEN = np.array([5.0, 30.0, 1.0, 30.0])
# Without contradiction: a likelihood with lapses that answers contradict is beyond a Gaussian.
AGREEING = np.array([0.0, 3.0, 0.0, 12.0])


def log_tie(gap: Any) -> Any:
    gap = np.abs(gap)
    return log_ndtr(0.7 - gap) + np.log1p(-np.exp(log_ndtr(-0.7 - gap) - log_ndtr(0.7 - gap)))


# Log probability of the answers by gap, and their distribution.
KINDS: dict[str, Any] = {
    "probit": (log_ndtr, lambda gap: (ProbitComparison(gap), 1)),
    "lapse": (
        lambda gap: np.log(0.05 + 0.9 * ndtr(gap)),
        lambda gap: (ProbitComparison(gap, lapse=0.1), 1),
    ),
    "logistic": (log_expit, lambda gap: (LogisticComparison(gap), 1)),
    "tie": (
        log_tie,
        lambda gap: (GradedComparison(gap, jnp.array([0.7])), 0),
    ),
    "weight": (
        lambda gap: 0.3 * log_ndtr(gap),
        lambda gap: (WeightedComparison(ProbitComparison(gap), jnp.full(gap.shape, 0.3)), 1),
    ),
}


def three(counts: Any, kind: str) -> None:
    amplitude = numpyro.sample("amplitude", dist.LogNormal(0.0, 1.0))
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
    utility = numpyro.sample("utility", GaussianProcess(Dense(amplitude**2 * THREE)))
    gap = (utility[ENDS[:, 0]] - utility[ENDS[:, 1]]) / scale
    likelihood, value = KINDS[kind][1](gap)
    # numpyro takes no counts of 0.
    with handlers.mask(mask=counts > 0), handlers.scale(scale=jnp.maximum(counts, 1)):
        numpyro.sample("answer", likelihood, obs=jnp.full(4, value))


@pytest.mark.parametrize("kind", KINDS)
def test_several_answers_of_three_items(kind: str) -> None:
    """Against quadrature over the two gaps of three items."""
    fixed = {"amplitude": 1.2, "scale": 0.8}
    counts = AGREEING if kind == "lapse" else OFTEN
    posterior = EP(three, fixed=fixed).run(0, counts, kind)
    rows = np.eye(3)[[0, 1]] - np.eye(3)[[1, 2]]
    root = np.linalg.cholesky(1.2**2 * rows @ THREE @ rows.T)
    axis, step = np.linspace(-7, 7, 401, retstep=True)
    white = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    gap = white @ root.T
    gaps = np.stack([gap[:, 0], gap[:, 1], -gap.sum(axis=1), -gap[:, 0]], axis=1)
    log = -0.5 * np.sum(white**2, axis=1) + KINDS[kind][0](gaps / 0.8) @ counts
    weight = np.exp(log - log.max())
    log_evidence = log.max() + np.log(weight.sum() * step**2 / (2 * np.pi))
    weight /= weight.sum()
    mean = weight @ gap
    sd = np.sqrt(weight @ (gap - mean) ** 2)
    assert_allclose(posterior.mean(rows), mean, rtol=0, atol=0.02 * sd.max())
    assert_allclose(posterior.sd(rows), sd, rtol=0.012 if kind == "logistic" else 0.01)
    assert abs(posterior.log_evidence - log_evidence) <= 0.01
