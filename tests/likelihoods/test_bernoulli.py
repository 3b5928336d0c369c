from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, special, stats

from relpref.errors import DataError
from relpref.likelihoods import as_likelihood, bernoulli

SUCCESS = {"probit": special.ndtr, "logit": special.expit}
MEAN, VARIANCE, SPREAD = (
    np.array([-2.0, 0.3, 1.5]),
    np.array([0.4, 2.0, 0.01]),
    np.array([0.7, 0.0, 3.0]),
)


@pytest.mark.parametrize("link", ["probit", "logit"])
@pytest.mark.parametrize("value", [0, 1])
def test_noise_of_a_rows_own_widens_the_cavity(link: Any, value: int) -> None:
    with jax.enable_x64(True):
        likelihood = as_likelihood(bernoulli(link)(jnp.asarray(MEAN), SPREAD))
        log_normalizer = likelihood.tilted(
            jnp.full(3, value), jnp.asarray(MEAN), jnp.asarray(VARIANCE)
        )[0]
        log_prob = bernoulli(link)(jnp.asarray(MEAN), SPREAD).log_prob(value)
    for k in range(3):
        for found, variance in ((log_normalizer, VARIANCE[k] + SPREAD[k]), (log_prob, SPREAD[k])):

            def integrand(z: float, k: int = k, sd: float = float(np.sqrt(variance))) -> float:
                return float(
                    SUCCESS[link](MEAN[k] + sd * z if value else -MEAN[k] - sd * z)
                    * stats.norm.pdf(z)
                )

            truth = integrate.quad(integrand, -9, 9, epsabs=1e-13)[0]
            assert_allclose(np.exp(np.asarray(found)[k]), truth, rtol=1e-7)


@pytest.mark.parametrize("link", ["probit", "logit"])
def test_without_noise_and_drawn(link: Any) -> None:
    with jax.enable_x64(True):
        plain = bernoulli(link)(jnp.asarray(MEAN))
        assert_allclose(np.exp(plain.log_prob(1)), SUCCESS[link](MEAN), rtol=1e-8)
        assert_allclose(plain.mean, SUCCESS[link](MEAN), rtol=1e-12)
        # 3 comparisons, false alarm below 1e-4 (four standard errors).
        draws = np.asarray(plain.sample(jax.random.key(0), (4000,)))
    assert np.all(np.abs(draws.mean(axis=0) - SUCCESS[link](MEAN)) < 4 * 0.5 / np.sqrt(4000))


def test_no_other_link() -> None:
    with pytest.raises(DataError, match="link is 'cloglog'; it is 'probit' or 'logit'"):
        bernoulli("cloglog")  # type: ignore[arg-type]
