"""Powers of an answer's probability, by numerical integration."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relpref.likelihoods.comparison import (
    Comparison,
    GradedComparison,
    LogisticComparison,
    ProbitComparison,
    SoftComparison,
)
from relpref.likelihoods.tilted import TiltedMoments
from relpref.likelihoods.weighted import WeightedComparison

SINGLE: dict[str, tuple[Callable[[Any], Comparison], Any]] = {
    "probit": (lambda gap: ProbitComparison(gap, scale=0.7, shift=0.2), [0, 1, 1]),
    "strengths": (lambda gap: GradedComparison(gap, jnp.array([0.3, 1.1, 2.0])), [0, 2, -3]),
    "logistic": (LogisticComparison, [0, 1, 1]),
    "lapse": (lambda gap: ProbitComparison(gap, lapse=0.1), [0, 1, 1]),
    "probability": (lambda gap: SoftComparison(gap, scale=0.3), [0.2, 0.7, 0.9]),
}


@pytest.mark.parametrize("name", SINGLE)
def test_moments_are_those_of_the_integral(name: str) -> None:
    make, values = SINGLE[name]
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        value = np.repeat(values, 4)
        mean = rng.normal(0, 2, len(value))
        variance = 10 ** rng.uniform(-3, 1.5, len(value))
        weight = np.tile([0.03, 0.5, 1.0, 7.5], len(value) // 4)

        def moments(*cavity: Any) -> TiltedMoments:
            single = make(jnp.zeros(len(value)))
            return WeightedComparison(single, weight).tilted(jnp.asarray(value), *cavity)

        found = jax.jit(moments)(mean, variance)
        log_prob = jax.jit(lambda x, value: make(x).log_prob(value))
        for row, (m, v) in enumerate(zip(mean, variance, strict=True)):
            half = 12 * np.sqrt(v) + 3
            x = np.linspace(m - half, m + half, 8001)
            log_p = np.asarray(log_prob(x, np.full(len(x), value[row])))
            exponent = weight[row] * log_p - 0.5 * ((x - m) ** 2 / v + np.log(2 * np.pi * v))
            density = np.exp(exponent - exponent.max())
            total = np.trapezoid(density, x)
            middle = np.trapezoid(density * x, x) / total
            left = np.trapezoid(density * (x - middle) ** 2, x) / total
            assert abs(found.log_normalizer[row] - exponent.max() - np.log(total)) < 1e-6
            assert abs(m + v * found.gradient[row] - middle) < 1e-6 * np.sqrt(v)
            assert abs(v - v**2 * found.curvature[row] - left) < 2e-6 * v


def test_at_a_point_moments_are_the_log_density_and_its_derivatives() -> None:
    with jax.enable_x64(True):
        gap = jnp.linspace(-3, 3, 7)
        single = GradedComparison(gap, jnp.array([0.4]))
        value, zero = jnp.array([-1, 0, 1, 0, 1, -1, 0]), jnp.zeros(7)
        weighted = WeightedComparison(single, jnp.full(7, 0.3))
        pair = jax.jit(lambda: (weighted.tilted(value, gap, zero), single.tilted(value, gap, zero)))
        for one, other in zip(*pair(), strict=True):
            np.testing.assert_allclose(one, 0.3 * other, rtol=1e-12)
