"""Tilted moments by quadrature against the closed forms of the package's likelihoods."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose

from relpref.likelihoods import ProbitComparison, as_likelihood
from relpref.likelihoods.quadrature import quadrature_moments

SIZE = 200
RNG = np.random.default_rng(0)
# Means to a few hundred, sds from 0.01 to 30; the first rows know their gap.
MEAN = RNG.normal(size=SIZE) * 10 ** RNG.uniform(-1, 1.7, SIZE)
VARIANCE = np.r_[np.zeros(5), 10 ** RNG.uniform(-4, 3, SIZE - 5)]
SIGN = RNG.integers(0, 2, SIZE)
LABEL = MEAN + RNG.normal(size=SIZE) * 20 * np.sqrt(VARIANCE)

CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "probit": (lambda z: ProbitComparison(z, scale=0.6), SIGN),
    # Up to 20 prior sds off, and up to 3,000 times as narrow as the cavity.
    "normal": (lambda z: dist.Normal(z, 0.01), LABEL),
}


@pytest.mark.parametrize("name", CASES)
def test_against_closed_forms(name: str) -> None:
    make, value = CASES[name]

    @jax.jit
    def both(mean: Any, variance: Any) -> Any:
        exact = as_likelihood(make(jnp.zeros(SIZE))).tilted(jnp.asarray(value), mean, variance)
        return exact, quadrature_moments(lambda z: make(z).log_prob(value), mean, variance)

    with jax.enable_x64(True):
        exact, found = jax.tree.map(np.asarray, both(jnp.asarray(MEAN), jnp.asarray(VARIANCE)))
    # In the units of the cavity: of the log normaliser, of the mean's move and of the variance's
    # change.
    sd = np.where(VARIANCE > 0, np.sqrt(VARIANCE), 1.0)
    for power, (moment, truth) in enumerate(zip(found, exact, strict=True)):
        error = np.abs(moment - truth) * sd**power
        assert np.all(error <= 1e-8 * np.maximum(1.0, np.abs(truth) * sd**power)), name


def test_overflow_far_out_leaves_numbers() -> None:
    """The rate of a Poisson overflows at 710, which a wide cavity reaches."""

    @jax.jit
    def at(mean: Any, variance: Any) -> Any:
        def log(m: Any) -> Any:
            moments = quadrature_moments(
                lambda z: dist.Poisson(jnp.exp(z)).log_prob(3), m, variance
            )
            return jnp.sum(moments.log_normalizer), moments

        return jax.value_and_grad(log, has_aux=True)(mean)

    with jax.enable_x64(True):
        (_, moments), slope = at(jnp.asarray([0.0, -50.0, 700.0]), jnp.asarray([1e4, 1.0, 100.0]))
    assert all(np.all(np.isfinite(moment)) for moment in (*moments, slope))
    assert_allclose(slope, moments.gradient, rtol=1e-7)
