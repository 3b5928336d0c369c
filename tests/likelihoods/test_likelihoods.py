from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, special, stats

from relpref.errors import UnsupportedProgramError
from relpref.likelihoods import (
    GaussianLikelihood,
    Likelihood,
    ProbitComparison,
    TiltedMoments,
    as_likelihood,
)

CAVITIES = [
    (-3.0, 0.1),
    (-1.0, 1.0),
    (0.0, 0.5),
    (0.0, 30.0),
    (0.7, 2.0),
    (2.0, 9.0),
    (-6.0, 0.3),
    (4.0, 100.0),
]


def integrated(likelihood: Any, mean: float, variance: float) -> tuple[float, float, float]:
    """log Ẑ, (tilted mean − mean)/variance and (variance − tilted variance)/variance², by adaptive
    quadrature.
    """
    sd = np.sqrt(variance)
    moments = []
    for power in range(3):

        def integrand(z: float, power: int = power) -> float:
            return float(z**power * likelihood(z) * stats.norm.pdf(z, mean, sd))

        ends = (mean - 14 * sd, mean + 14 * sd)
        inside = [point for point in (-5.0, 0.0, 5.0, mean) if ends[0] < point < ends[1]]
        moments.append(
            integrate.quad(integrand, *ends, points=inside, epsabs=0, epsrel=1e-13, limit=500)[0]
        )
    first, second = moments[1] / moments[0], moments[2] / moments[0]
    return (
        np.log(moments[0]),
        (first - mean) / variance,
        (variance - (second - first**2)) / variance**2,
    )


def tilted(likelihood: Any, value: Any, mean: Any, variance: Any) -> tuple[Any, Any, Any]:
    with jax.enable_x64(True):
        found = jax.jit(lambda *cavity: as_likelihood(likelihood()).tilted(*cavity))(
            value, mean, variance
        )
        assert isinstance(found, TiltedMoments)
        first, second, third = (np.asarray(moment) for moment in found)
    return first, second, third


@pytest.mark.parametrize("value", [0, 1])
def test_probit_moments(value: int) -> None:
    mean, variance = np.array(CAVITIES).T
    found = tilted(lambda: ProbitComparison(jnp.zeros(8)), np.full(8, value), mean, variance)
    for k, cavity in enumerate(CAVITIES):
        expected = integrated(lambda z: special.ndtr(z if value else -z), *cavity)
        for moment, truth in zip(found, expected, strict=True):
            assert abs(moment[k] - truth) <= 1e-8 * max(1.0, abs(truth)), cavity


def test_gaussian_moments() -> None:
    mean, variance = np.array(CAVITIES).T
    found = tilted(lambda: dist.Normal(jnp.zeros(8), 0.7), np.full(8, 0.4), mean, variance)
    for k, cavity in enumerate(CAVITIES[:-1]):
        expected = integrated(lambda z: stats.norm.pdf(0.4, z, 0.7), *cavity)
        for moment, truth in zip(found, expected, strict=True):
            assert abs(moment[k] - truth) <= 1e-8 * max(1.0, abs(truth)), cavity


def test_the_moments_are_derivatives() -> None:
    mean, variance = np.tile(np.array(CAVITIES).T, 2)
    value = np.repeat([0, 1], len(CAVITIES))

    def all_of_them(y: Any, m: Any, v: Any) -> Any:
        def log_normalizer(y: Any, m: Any, v: Any) -> Any:
            return ProbitComparison(jnp.zeros(())).tilted(y, m, v).log_normalizer

        slope = jax.vmap(jax.grad(log_normalizer, 1))(y, m, v)
        bend = jax.vmap(jax.grad(jax.grad(log_normalizer, 1), 1))(y, m, v)
        return slope, bend, ProbitComparison(jnp.zeros(())).tilted(y, m, v)

    with jax.enable_x64(True):
        slope, bend, moments = jax.jit(all_of_them)(value, mean, variance)
        np.testing.assert_allclose(moments.gradient, slope, rtol=1e-10)
        np.testing.assert_allclose(moments.curvature, -bend, rtol=1e-8)


def test_tilted_variance_stays_positive() -> None:
    """For cavities of every width, however far the answer is from what was expected."""
    mean, variance = (
        grid.ravel() for grid in np.meshgrid(-np.logspace(-2, 6, 60), np.logspace(-6, 6, 40))
    )
    shape = mean.shape
    _, gradient, curvature = tilted(
        lambda: ProbitComparison(jnp.zeros(shape)), np.ones(shape), mean, variance
    )
    assert np.all(np.isfinite(gradient))
    assert np.all(curvature >= 0)
    assert np.all(variance * curvature < 1)


def test_log_prob() -> None:
    gap = np.linspace(-40, 8, 97)
    with jax.enable_x64(True):
        likelihood = ProbitComparison(jnp.asarray(gap))
        np.testing.assert_allclose(likelihood.log_prob(1), special.log_ndtr(gap), rtol=1e-13)
        np.testing.assert_allclose(likelihood.log_prob(0), special.log_ndtr(-gap), rtol=1e-13)
        both = jnp.exp(likelihood.log_prob(1)) + jnp.exp(likelihood.log_prob(0))
        np.testing.assert_allclose(both, 1.0, rtol=0, atol=1e-15)
        np.testing.assert_allclose(likelihood.mean, special.ndtr(gap), rtol=1e-13, atol=1e-300)
        mixed = likelihood.log_prob(jnp.arange(97) % 2)
        np.testing.assert_allclose(mixed[1::2], special.log_ndtr(gap[1::2]), rtol=1e-13)
        np.testing.assert_allclose(mixed[::2], special.log_ndtr(-gap[::2]), rtol=1e-13)


def test_shapes() -> None:
    likelihood = ProbitComparison(jnp.zeros((3, 2)))
    assert likelihood.batch_shape == (3, 2)
    assert likelihood.event_shape == ()
    draws = likelihood.sample(jax.random.key(0), (5,))
    assert draws.shape == (5, 3, 2)
    assert jnp.issubdtype(draws.dtype, jnp.integer)
    assert likelihood.log_prob(draws).shape == (5, 3, 2)
    assert likelihood.predictor.shape == (3, 2)
    assert likelihood.expand((4, 3, 2)).log_prob(1).shape == (4, 3, 2)
    assert likelihood.to_event(1).log_prob(draws).shape == (5, 3)


def test_samples_have_the_frequency() -> None:
    gap = jnp.asarray([-2.0, -0.5, 0.0, 1.0, 2.5])
    draws = np.asarray(ProbitComparison(gap).sample(jax.random.key(0), (20_000,)))
    assert set(np.unique(draws)) == {0, 1}
    probability = special.ndtr(np.asarray(gap))
    error = (draws.mean(axis=0) - probability) / np.sqrt(probability * (1 - probability) / 20_000)
    assert np.max(np.abs(error)) <= 4.9  # five numbers: a false alarm of 5e-6


def test_it_is_a_pytree() -> None:
    likelihood = ProbitComparison(jnp.asarray([0.5, -1.0]))
    leaves, structure = jax.tree.flatten(likelihood)
    assert len(leaves) == 3
    again = jax.tree.unflatten(structure, leaves)
    assert isinstance(again, ProbitComparison)
    np.testing.assert_array_equal(again.log_prob(1), likelihood.log_prob(1))
    through = jax.jit(lambda one: one)(likelihood)
    np.testing.assert_array_equal(through.gap, likelihood.gap)
    assert through.batch_shape == (2,)
    # Placeholders that are no arrays must pass, too: JAX puts them there.
    jax.tree.unflatten(structure, [object()] * 3)


def test_wrong_values_are_refused_where_asked() -> None:
    with pytest.raises(ValueError, match="invalid gap"):
        ProbitComparison(jnp.asarray([jnp.nan]), validate_args=True)


def test_as_likelihood_unwraps_what_plates_wrap() -> None:
    probit = ProbitComparison(jnp.zeros(3))
    assert as_likelihood(probit) is probit
    assert as_likelihood(probit.to_event(1)) is probit
    assert as_likelihood(probit.expand((2, 3))) is probit
    normal = as_likelihood(dist.Normal(jnp.ones(3), 2.0).to_event(1))
    assert isinstance(normal, GaussianLikelihood)
    assert isinstance(normal, Likelihood)
    np.testing.assert_array_equal(normal.predictor, jnp.ones(3))


@pytest.mark.parametrize(
    "other", [dist.Poisson(1.0), dist.Bernoulli(0.5), dist.StudentT(3.0, 0.0, 1.0)]
)
def test_others_are_refused_by_name(other: Any) -> None:
    with pytest.raises(UnsupportedProgramError, match=f"{type(other).__name__}.*NUTS"):
        as_likelihood(other)
