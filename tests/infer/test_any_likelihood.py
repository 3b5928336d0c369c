"""Programs with distributions of numpyro that know no tilted moments: what is affine is followed,
the rest is quadrature.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from relpref.diagnostics import leave_one_out
from relpref.errors import UnsupportedProgramError
from relpref.infer import EP
from relpref.infer.layout import counts_of
from relpref.kernels import GaussianProcess
from relpref.likelihoods.quadrature import quadrature_moments
from relpref.linalg import Dense

KERNEL = np.array([[1.5, 0.3, -0.2], [0.3, 1.0, 0.4], [-0.2, 0.4, 2.0]])
FIRST, SECOND = np.array([0, 1, 2, 0, 1, 0, 2, 1]), np.array([1, 2, 0, 2, 0, 1, 1, 2])
WON = np.array([1, 1, 0, 1, 0, 1, 0, 1])
COUNT = np.array([2, 0, 1, 4, 0, 1, 0, 3])
LABEL = np.array([0.3, -1.0, 0.2, 4.0, -0.5, 0.7, -0.2, 0.1])
Make = Callable[[Any], Any]


class Same(dist.Poisson):
    """A user's class that knows no more than its parent."""


def lapsing(f: Any) -> Any:
    # An answer may be one of a coin.
    meant = dist.Bernoulli(logits=f[FIRST] - f[SECOND])
    return dist.MixtureGeneral(
        dist.Categorical(jnp.asarray([0.9, 0.1])), [meant, dist.Bernoulli(probs=jnp.full(8, 0.5))]
    )


# Errors of EP: of means and sds in posterior sds, of the evidence in nats.
CASES: dict[str, tuple[Make, Any, bool]] = {
    "bernoulli": (lambda f: dist.Bernoulli(logits=f[FIRST] - f[SECOND]), WON, True),
    # The rows are picked after the exponential.
    "poisson": (lambda f: dist.Poisson(jnp.exp(f)[FIRST]), COUNT, True),
    "student": (lambda f: dist.StudentT(4.0, f[FIRST] - f[SECOND], 0.5), LABEL, False),
    "binomial": (lambda f: dist.Binomial(5, logits=f[FIRST] - f[SECOND]), COUNT, True),
    "lapses": (
        lambda f: dist.Bernoulli(probs=0.05 + 0.9 * jax.scipy.special.ndtr(f[FIRST] - f[SECOND])),
        WON,
        False,
    ),
    "mixture": (lapsing, WON, False),
    "class": (lambda f: Same(jnp.exp(f[FIRST])), COUNT, False),
    "two parameters": (lambda f: dist.Normal(f[FIRST], jnp.exp(0.1 * f[FIRST])), LABEL, False),
    "ordered": (
        lambda f: dist.OrderedLogistic(f[FIRST] - f[SECOND], jnp.asarray([-1.0, 1.0])),
        WON,
        False,
    ),
}
NOW = ("poisson",)


def program(make: Make, values: Any) -> Callable[[], None]:
    def answering() -> None:
        f = numpyro.sample("f", GaussianProcess(Dense(jnp.asarray(KERNEL))))
        with numpyro.plate("row", 8):
            numpyro.sample("y", make(f), obs=values)

    return answering


@cache
def fit(name: str) -> Any:
    make, values, _ = CASES[name]
    return EP(program(make, values), hyperparameters="maximize").run(0)


@pytest.fixture(
    scope="module",
    params=[name if name in NOW else pytest.param(name, marks=pytest.mark.slow) for name in CASES],
)
def fitted(request: Any) -> Any:
    return request.param, fit(request.param)


def test_against_integration(fitted: Any, on_a_grid: Any) -> None:
    name, found = fitted
    make, values, concave = CASES[name]

    @jax.jit
    def log_likelihood(utility: Any) -> Any:
        return jax.lax.map(lambda f: jnp.sum(make(f).log_prob(values)), utility, batch_size=5000)

    with jax.enable_x64(True):
        exact = on_a_grid(KERNEL, log_likelihood, np.linspace(-6.5, 6.5, 61))
    assert_allclose(found.mean(), exact.mean, rtol=0, atol=0.02 * exact.sd.max())
    assert_allclose(found.sd(), exact.sd, rtol=0.03)
    assert abs(found.log_evidence - exact.log_evidence) <= 0.05
    assert concave <= (found.sites["precision"].min() >= 0)


def test_what_else_a_posterior_can_do(fitted: Any, reloaded: Any) -> None:
    _, found = fitted
    held_out = leave_one_out(found)
    assert np.isfinite(held_out.table["log_score"]).all()
    tree = found.to_arviz()
    assert tree["log_likelihood"]["y"].shape[-1] == 8
    loaded = reloaded(found)
    assert_array_equal(loaded.mean(), found.mean())
    with pytest.raises(UnsupportedProgramError, match="does not know its program"):
        leave_one_out(loaded)


class Counted(dist.Poisson):
    """Knows its moments, as a function of the log rate; its rate is computed from that."""

    log_concave = True

    @property
    def predictor(self) -> Any:
        return jnp.log(self.rate)

    def tilted(self, value: Any, mean: Any, variance: Any) -> Any:
        return quadrature_moments(
            lambda z: dist.Poisson(jnp.exp(z)).log_prob(value), mean, variance
        )


class Hidden(dist.Poisson):
    """Its offset is no field that JAX knows."""

    def __init__(self, log_rate: Any) -> None:
        self.log_rate = log_rate
        super().__init__(jnp.exp(log_rate))

    def log_prob(self, value: Any) -> Any:
        log_factorial = jax.scipy.special.gammaln(value + 1)
        return value * self.log_rate - jnp.exp(self.log_rate) - log_factorial


@pytest.mark.parametrize("make", [lambda f: Counted(jnp.exp(f[FIRST])), lambda f: Hidden(f[FIRST])])
def test_a_class_of_your_own_is_the_poisson_distribution(make: Make) -> None:
    """It computes its parameters from the predictor, or hides them."""
    expected = fit("poisson")
    found: Any = EP(program(make, COUNT), hyperparameters="maximize").run(0)
    assert_allclose(found.mean(), expected.mean(), rtol=0, atol=1e-7)
    assert_allclose(found.sd(), expected.sd(), rtol=1e-7)
    assert abs(found.log_evidence - expected.log_evidence) <= 1e-6


@pytest.mark.parametrize("outside", [False, True])
def test_what_is_masked_was_not_answered(outside: bool) -> None:
    """Whether the mask is inside or outside of what makes rows of an event."""
    mask = jnp.asarray([[True, False], [True, True]])
    rates = dist.Poisson(jnp.ones((2, 2)))
    masked = rates.mask(mask) if outside else rates.mask(mask).to_event(2)
    site = {"fn": masked, "scale": 3.0, "value": np.ones((2, 2), int)}
    assert_array_equal(counts_of(site, (2, 2)), [3, 0, 3, 3])
