"""When EP has arrived, and how far from the exact posterior it then is."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import ndtr

from relpref.infer import EP
from relpref.infer.sites import Fit, Sites, advance, begin
from relpref.infer.spaces import Factorised, Marginals
from relpref.likelihoods import GradedComparison, TiltedMoments


@pytest.mark.parametrize(
    ("gradient", "curvature", "expected"),
    [(0.3, 0.0, 0.6), (0.0, 0.2, 0.8), (0.3, 0.2, 0.8), (-0.3, 0.0, 0.6), (0.5, 0.2, 1.0), (0.0, 0.0, 0.0)],
)
def test_the_residual_bounds_means_and_variances(gradient: float, curvature: float, expected: float) -> None:
    """Of a row without a site and with variance 4: 4·gradient/2 in sds of the mean, and 4·curvature of the variance."""
    with jax.enable_x64(True):
        nothing, one = jnp.zeros(2), jnp.ones(2)
        sites = Sites(nothing, nothing)
        marginals = Marginals(nothing, 4 * one, jnp.zeros(()))
        fit = Fit(sites, Factorised(jnp.eye(2), jnp.eye(2), nothing), marginals)
        moments = TiltedMoments(nothing, jnp.array([gradient, 9.0]), jnp.array([curvature, 0.1]))
        state, _ = advance(jnp.array([1.0, 0.0]), begin(sites, fit), fit, marginals, moments)
    np.testing.assert_allclose(state.residual, expected)  # the second row was not answered


def ties(number: int) -> None:
    utility = numpyro.sample("utility", dist.Normal(jnp.zeros(2), 1.5).to_event(1))
    gap = jnp.broadcast_to(utility[0] - utility[1], (number,))
    numpyro.sample("answer", GradedComparison(gap, jnp.array([0.5])), obs=jnp.zeros(number, jnp.int32))


def test_variances_settle_where_no_mean_moves() -> None:
    """Ties alone leave every mean at 0 from the first sweep on; the variances still have to be found."""
    posterior = EP(ties).run(0, 3)
    assert posterior.info["result"] == "converged"
    gap = np.linspace(-12, 12, 20_001)
    density = np.exp(-(gap**2) / 9) * (ndtr(gap + 0.5) - ndtr(gap - 0.5)) ** 3
    sd = np.sqrt(np.sum(density * gap**2) / np.sum(density))
    np.testing.assert_allclose(posterior.sd([[1.0, -1.0]]), [sd], rtol=0.01)
