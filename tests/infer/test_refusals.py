"""Programs that EP cannot treat are refused by the name of the site, before anything is
computed.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from relpref.data import PreferenceData
from relpref.errors import RelprefError, UnsupportedProgramError
from relpref.infer import EP
from relpref.kernels import GaussianProcess
from relpref.likelihoods import ProbitComparison
from relpref.linalg import Dense

ONES = np.ones(3, np.int32)


def latent(name: str = "f") -> Any:
    return numpyro.sample(name, GaussianProcess(Dense(jnp.eye(3))))


def answer(predictor: Any) -> None:
    with numpyro.plate("row", 3):
        numpyro.sample("answer", ProbitComparison(predictor), obs=ONES)


def discrete() -> None:
    answer(latent() + numpyro.sample("coin", dist.Bernoulli(0.5)))


def product() -> None:
    answer(latent("f") * latent("g"))


def together() -> None:
    with numpyro.plate("row", 3):
        numpyro.sample("answer", dist.Bernoulli(probs=jax.nn.softmax(latent())), obs=ONES)


def in_a_scale() -> None:
    f = latent()
    with numpyro.plate("row", 3):
        numpyro.sample("measured", dist.Normal(f, jnp.exp(f[::-1])), obs=np.ones(3))


def vectors() -> None:
    numpyro.sample("measured", dist.MultivariateNormal(latent(), jnp.eye(3)), obs=np.ones(3))


def nothing_observed() -> None:
    answer_at = latent()
    with numpyro.plate("row", 3):
        numpyro.sample("answer", ProbitComparison(answer_at))


def factor() -> None:
    f = latent()
    numpyro.factor("constraint", -jnp.sum(f**2))
    answer(f)


def no_latent() -> None:
    answer(numpyro.sample("effect", dist.Gamma(1.0, 1.0)) * jnp.ones(3))


def one_depends_on_another() -> None:
    f = latent()
    g = numpyro.sample("g", dist.Normal(f, 1.0).to_event(1))
    answer(g)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (discrete, "'coin'.*discrete.*NUTS"),
        (
            product,
            "'answer' .*more than one linear combination of the latent sites 'f' and 'g'.*NUTS",
        ),
        (together, "'answer' .*each other.*NUTS"),
        (in_a_scale, "'measured' .*in more than one place.*NUTS"),
        (vectors, "'measured' .*shape.*NUTS"),
        (nothing_observed, "no observed site.*without_answers"),
        (factor, "'constraint'.*NUTS"),
        (no_latent, "effect.*NUTS"),
        (one_depends_on_another, "'f'.*NUTS"),
    ],
)
def test_the_site_is_named(program: Callable[[], None], message: str) -> None:
    with pytest.raises(UnsupportedProgramError, match=message):
        EP(program).run(0)


def test_data_without_answers(fit: Any, data: PreferenceData) -> None:
    with pytest.raises(RelprefError, match="without_answers"):
        fit(data.without_answers())
