"""When EP has arrived, and how far from the exact posterior it then is."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose
from numpyro import handlers
from scipy.special import log_ndtr

from relpref.infer import EP
from relpref.infer.sites import Fit, Sites, advance, begin, cavities
from relpref.infer.spaces import Factorised, Marginals
from relpref.likelihoods import ProbitComparison, TiltedMoments
from relpref.result import InferenceWarning


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
    with jax.enable_x64(True):
        nothing, one = jnp.zeros(2), jnp.ones(2)
        sites = Sites(nothing, nothing)
        marginals = Marginals(nothing, 4 * one, jnp.zeros(()))
        fit = Fit(sites, Factorised(jnp.eye(2), jnp.eye(2), nothing, jnp.zeros(())), marginals)
        moments = TiltedMoments(nothing, jnp.array([gradient, 9.0]), jnp.array([curvature, 0.1]))
        counts = jnp.array([1.0, 0.0])
        cavity = cavities(counts, sites, marginals)
        state, _ = advance(counts, begin(sites, fit), fit, marginals, cavity, moments)
    assert_allclose(state.residual, expected)  # the second row was not answered


def repeated(covariance: Any, counts: Any) -> None:
    """One pair, of which the first won counts[0] times and the second counts[1] times."""
    utility = numpyro.sample("utility", dist.MultivariateNormal(jnp.zeros(2), covariance))
    gap = (utility[0] - utility[1]) * jnp.array([1.0, -1.0])
    with handlers.scale(scale=counts):
        numpyro.sample("answer", ProbitComparison(gap), obs=jnp.ones(2, jnp.int32))


def exact_gap(amplitude: float, counts: Any) -> tuple[float, float, float]:
    """Mean, sd and log evidence of the gap, on a grid."""
    gap, step = np.linspace(-8 * amplitude, 8 * amplitude, 4_000_001, retstep=True)
    log_density = (
        counts[0] * log_ndtr(gap) + counts[1] * log_ndtr(-gap) - gap**2 / (4 * amplitude**2)
    )
    highest = log_density.max()
    density = np.exp(log_density - highest)
    mean = density @ gap / density.sum()
    log_evidence = highest + np.log(density.sum() * step / np.sqrt(4 * np.pi * amplitude**2))
    return mean, np.sqrt(density @ (gap - mean) ** 2 / density.sum()), log_evidence


@pytest.mark.parametrize("amplitude", [20.0, 100.0])
@pytest.mark.parametrize("counts", [(10_000.0, 100.0), (10_000.0, 5_000.0), (60.0, 30.0)])
def test_large_amplitudes_and_counts(amplitude: float, counts: Any) -> None:
    """Where prior and sites are both large, they must not cancel."""
    posterior = EP(repeated).run(0, amplitude**2 * np.eye(2), np.array(counts))
    mean, sd, log_evidence = exact_gap(amplitude, counts)
    gap = np.array([[1.0, -1.0]])
    assert abs(posterior.mean(gap)[0] - mean) < 0.01 * sd
    assert_allclose(posterior.sd(gap), [sd], rtol=0.02)
    assert_allclose(posterior.log_evidence or np.nan, log_evidence, atol=0.01)


@pytest.mark.parametrize(("amplitude", "count"), [(20.0, 100.0), (50.0, 10_000.0), (1.0, 2e9)])
def test_unanimous_answers_warn(amplitude: float, count: float) -> None:
    """Many sites in place of one skewed factor: EP is off, and says by how much."""
    with pytest.warns(InferenceWarning, match="given many times.*reweighted"):
        posterior = EP(repeated).run(0, amplitude**2 * np.eye(2), np.array([count, 0.0]))
    mean, sd, _ = exact_gap(amplitude, (count, 0.0))
    gap = np.array([[1.0, -1.0]])
    shift, ratio = abs(posterior.mean(gap)[0] - mean) / sd, posterior.sd(gap)[0] / sd
    assert shift > 0.08
    assert ratio < 0.75
    assert_allclose(posterior.info["repeated_shift"], shift, rtol=0.1)
    assert_allclose(posterior.info["repeated_sd_ratio"], ratio, rtol=0.1)
