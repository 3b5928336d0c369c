import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose
from numpyro import handlers
from numpyro.infer import Predictive

from relpref.data import Rankings
from relpref.errors import DataError
from relpref.kernels import GivenFeatures
from relpref.models import ranking_classifier

DATA = Rankings.from_orders([["a", "b"], ["b", "a"], ["a", "b"], ["b", "a"]]).with_features(
    [[1.0, 0.5], [-1.0, 0.0], [0.3, 0.2], [0.0, -1.0]], residual=[0.0, 0.1, 0.0, 0.2]
)
THREE = DATA.with_labels(["x", "y", "z", "y"])


def trace(data: Rankings, **kwargs: object) -> dict[str, dict[str, object]]:
    with jax.enable_x64(True):
        seeded = handlers.seed(ranking_classifier, rng_seed=0)
        return handlers.trace(seeded).get_trace(data, kernel=GivenFeatures(), **kwargs)


def test_its_sites_and_their_log_probability() -> None:
    sites = trace(THREE)
    assert list(sites) == ["amplitude", "weight", "intercept", "ranking", "class", "decision"]
    weight, intercept, amplitude = (
        np.asarray(sites[n]["value"]) for n in ("weight", "intercept", "amplitude")
    )
    assert weight.shape == (2, 2) and intercept.shape == (2,)
    assert THREE.features is not None and THREE.residual is not None
    noise = np.sqrt(1 + amplitude**2 * THREE.residual)[:, None]
    cdf = dist.Normal(0.0, 1.0).cdf
    with jax.enable_x64(True):
        on = np.asarray(cdf((THREE.features @ weight.T + intercept) / noise))
        found = np.asarray(sites["decision"]["fn"].log_prob(sites["decision"]["value"]))  # type: ignore[attr-defined]
    # x stops at the first decision, y goes on and stops at the second, z goes on at both.
    expected = np.log(
        [
            [1 - on[0, 0], 1.0],
            [on[1, 0], 1 - on[1, 1]],
            [on[2, 0], on[2, 1]],
            [on[3, 0], 1 - on[3, 1]],
        ]
    )
    assert_allclose(found, expected, rtol=1e-9)


def test_predictive_draws_decisions() -> None:
    with jax.enable_x64(True):
        draws = Predictive(ranking_classifier, num_samples=7)(
            jax.random.key(0), THREE.without_labels(), kernel=GivenFeatures()
        )
    assert draws["decision"].shape == (7, 4, 2)
    assert set(np.unique(draws["decision"])) <= {0, 1}


def test_priors() -> None:
    sites = trace(THREE, priors={"amplitude": dist.LogNormal(5.0, 0.01)})
    assert float(sites["amplitude"]["value"]) > 100  # type: ignore[arg-type]
    with pytest.raises(
        DataError, match="priors names the site 'noise', .* its sites are amplitude"
    ):
        trace(THREE, priors={"noise": dist.HalfNormal(1.0)})
