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
from scipy import special

import relpref
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
    "negative binomial": (lambda f: dist.NegativeBinomial2(jnp.exp(f[FIRST]), 3.0), COUNT, True),
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


def test_against_integration(fitted: Any) -> None:
    name, found = fitted
    make, values, concave = CASES[name]
    axis = np.linspace(-6.5, 6.5, 61)
    white = np.stack(np.meshgrid(axis, axis, axis), axis=-1).reshape(-1, 3)
    utility = white @ np.linalg.cholesky(KERNEL).T
    with jax.enable_x64(True):
        log = jax.jit(
            lambda u: jax.lax.map(lambda f: jnp.sum(make(f).log_prob(values)), u, batch_size=5000)
        )
        log_weight = np.asarray(log(jnp.asarray(utility))) - 0.5 * (white**2).sum(axis=1)
    total = special.logsumexp(log_weight)
    weight = np.exp(log_weight - total)
    evidence = total + 3 * np.log(axis[1] - axis[0]) - 1.5 * np.log(2 * np.pi)
    mean = weight @ utility
    sd = np.sqrt(weight @ (utility - mean) ** 2)
    assert_allclose(found.mean(), mean, rtol=0, atol=0.02 * sd.max())
    assert_allclose(found.sd(), sd, rtol=0.03)
    assert abs(found.log_evidence - evidence) <= 0.05
    assert concave <= (found.sites["precision"].min() >= 0)


def test_what_else_a_posterior_can_do(fitted: Any, tmp_path: Any) -> None:
    _, found = fitted
    held_out = leave_one_out(found)
    assert np.isfinite(held_out.table["log_score"]).all()
    tree = found.to_arviz()
    assert tree["log_likelihood"]["y"].shape[-1] == 8
    found.save(tmp_path / "posterior.nc")
    loaded: Any = relpref.load(tmp_path / "posterior.nc")
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


class Reading(Counted):
    """Its moments read the rate."""

    log_concave = False

    def tilted(self, value: Any, mean: Any, variance: Any) -> Any:
        return super().tilted(value, mean + 0.0 * self.rate, variance)


@pytest.mark.parametrize("kind", [Counted, pytest.param(Reading, marks=pytest.mark.slow)])
def test_a_class_that_computes_its_parameters_from_the_predictor(kind: Any) -> None:
    expected = fit("poisson")
    own = program(lambda f: kind(jnp.exp(f[FIRST])), COUNT)
    found = EP(own, hyperparameters="maximize").run(0)
    assert_allclose(found.mean(), expected.mean(), rtol=0, atol=1e-6)
    expected_evidence, evidence = expected.log_evidence, found.log_evidence
    assert expected_evidence is not None and evidence is not None
    assert abs(evidence - expected_evidence) <= 1e-6


def test_several_predictors_are_refused_by_name() -> None:
    def two(f: Any) -> Any:
        return dist.Normal(f[FIRST], jnp.exp(f[SECOND]))

    def together(f: Any) -> Any:
        return dist.Bernoulli(probs=jax.nn.softmax(f[FIRST]))

    for make, words in (
        (two, "more than one linear combination of the latent site 'f'"),
        (together, "each other"),
    ):
        with pytest.raises(UnsupportedProgramError, match=f"'y' .*{words}.*NUTS"):
            EP(program(make, WON)).run(0)


@pytest.mark.parametrize("outside", [False, True])
def test_what_is_masked_was_not_answered(outside: bool) -> None:
    """Whether the mask is inside or outside of what makes rows of an event."""
    mask = jnp.asarray([[True, False], [True, True]])
    rates = dist.Poisson(jnp.ones((2, 2)))
    masked = rates.mask(mask) if outside else rates.mask(mask).to_event(2)
    site = {"fn": masked, "scale": 3.0, "value": np.ones((2, 2), int)}
    assert_array_equal(counts_of(site, (2, 2)), [3, 0, 3, 3])


class Hidden(dist.Poisson):
    """Its offset is no field that JAX knows."""

    def __init__(self, log_rate: Any) -> None:
        self.log_rate = log_rate
        super().__init__(jnp.exp(log_rate))

    def log_prob(self, value: Any) -> Any:
        return value * self.log_rate - jnp.exp(self.log_rate)


def test_a_class_that_hides_its_parameters() -> None:
    expected = fit("poisson")
    hidden = EP(program(lambda f: Hidden(f[FIRST]), COUNT), hyperparameters="maximize").run(0)
    assert_allclose(hidden.mean(), expected.mean(), rtol=0, atol=1e-7)
    assert_allclose(hidden.sd(), expected.sd(), rtol=1e-7)
