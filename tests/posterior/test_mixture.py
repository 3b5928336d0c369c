"""A mixture of Gaussians against a large sample of itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

from relpref.linalg import cholesky
from relpref.posterior.gaussian import DrawsBelief, GaussianBelief, MixtureBelief
from relpref.posterior.points import interval, probability_below

_RNG = np.random.default_rng(0)
_ROOTS = _RNG.normal(0, 0.7, (3, 2, 2))
BELIEF = MixtureBelief(
    _RNG.normal(0, 2, (3, 2)), _ROOTS @ np.swapaxes(_ROOTS, 1, 2), np.array([0.2, 0.5, 0.3])
)
DRAWS = BELIEF.draw(300_000, np.random.default_rng(1))


def test_moments_and_quantiles() -> None:
    assert_allclose(BELIEF.mean(), DRAWS.mean(axis=0), atol=0.02)
    assert_allclose(BELIEF.covariance(), np.cov(DRAWS.T), atol=0.05)
    assert_allclose(BELIEF.sd(), np.sqrt(np.diagonal(BELIEF.covariance())))
    assert_allclose(BELIEF.interval(0.8), np.quantile(DRAWS, [0.1, 0.9], axis=0), atol=0.03)


def test_differences() -> None:
    gap = DRAWS[:, 0] - DRAWS[:, 1]
    margins = BELIEF.differences(np.array([0]), np.array([1]))
    assert abs(margins.mean[0] - gap.mean()) <= 0.02
    assert abs(margins.sd[0] - gap.std()) <= 0.02
    assert abs(margins.positive[0] - (gap > 0).mean()) <= 0.005
    projected = BELIEF.project(np.array([[1.0, -1.0]]))
    assert_allclose(projected.mean(), margins.mean)
    assert_allclose(projected.sd(), margins.sd)


def test_draws_follow_the_weights() -> None:
    """A single one may come from any component; of as many as there are, one comes from each."""
    counts = np.bincount(BELIEF.draw_components(1000, np.random.default_rng(0)))
    assert counts.tolist() == [200, 500, 300]
    tight = MixtureBelief(BELIEF.locations, 1e-12 * BELIEF.scales, np.full(3, 1 / 3))
    assert_allclose(tight.draw(3, np.random.default_rng(0)), BELIEF.locations, atol=1e-4)
    draws = [tight.draw(1, np.random.default_rng(seed))[0] for seed in range(40)]
    assert len(np.unique(np.round(draws, 2), axis=0)) == 3
    several = tight.draw(300, np.random.default_rng(0))
    distance = np.linalg.norm(several - BELIEF.locations[0], axis=1)
    assert not np.all(np.diff(distance.argsort()) == 1) and np.mean(distance < 0.01) == 1 / 3


@pytest.mark.parametrize("rank", [30, 29, 1])
def test_draws_are_those_of_the_factor_that_programs_use(rank: int) -> None:
    """Full rank, less an average, and singular, where both add the same jitter; up to rounding,
    whose root is seen.
    """
    root = np.random.default_rng(rank).normal(size=(30, rank))
    covariance = root @ root.T
    with jax.enable_x64(True):
        lower = np.asarray(cholesky(jnp.asarray(covariance)).lower)
    mean = np.arange(30.0)
    draws = GaussianBelief(mean, covariance).draw(5, np.random.default_rng(1))
    expected = mean + np.random.default_rng(1).standard_normal((5, 30)) @ lower.T
    assert_allclose(draws, expected, atol=1e-12 if rank == 30 else 1e-6)


def test_draws_of_what_no_jitter_mends() -> None:
    indefinite = np.diag([1.0, 2.0, -1e-3])
    draws = GaussianBelief(np.zeros(3), indefinite).draw(100_000, np.random.default_rng(0))
    assert_allclose(np.cov(draws.T), np.diag([1.0, 2.0, 0.0]), atol=0.02)
    assert np.all(
        np.isnan(
            GaussianBelief(np.zeros(2), np.full((2, 2), np.nan)).draw(3, np.random.default_rng(0))
        )
    )


def test_variances_of_few_draws_are_unbiased() -> None:
    few, ends = DRAWS[:5], np.array([[0, 1]])
    gaps, belief = few[:, 0] - few[:, 1], DrawsBelief(few)
    for margins in (belief.differences(*ends.T), belief.rows(ends, np.array([[1.0, -1.0]]))):
        assert_allclose(margins.sd, [gaps.std(ddof=1)])


def test_points_keep_mean_and_variance_between_and_beyond_them() -> None:
    """Points of a standard normal density have its quantiles and its distribution function."""
    values = np.linspace(-3.5, 3.5, 25)
    weights = norm.pdf(values) / norm.pdf(values).sum()
    assert_allclose(interval(values, weights, 0.9), norm.interval(0.9), atol=0.02)
    assert probability_below(values, weights, 1.0) == pytest.approx(norm.cdf(1.0), abs=0.003)
