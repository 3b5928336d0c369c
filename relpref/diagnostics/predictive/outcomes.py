"""What an answer could have been: every outcome of a likelihood under a belief about its predictor."""

from collections.abc import Callable
from functools import singledispatch
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from relpref.likelihoods import (
    Comparison,
    GaussianLikelihood,
    GradedComparison,
    Likelihood,
    ProbitBernoulli,
    SoftComparison,
)

# Of the predictive distribution of a number, whose log density is quadratic here: mean and variance of the score are exact with these.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


class Outcomes(NamedTuple):
    """The possible answers to m questions.

    Attributes
    ----------
    log_probability : Array, shape (q, m)
        Of each, under N(mean, variance) of the predictor; of numbers the log density at q nodes.
    weight : Array, shape (q, m)
        They add up to 1: the probabilities, or the weights of the nodes.
    side : Array, shape (q, m)
        See `favours`.
    """

    log_probability: Array
    weight: Array
    side: Array


def favours(likelihood: Likelihood, value: Array) -> Array:
    """Whom answers favour: 1 the first (or yes), −1 the second (or no), 0 neither; NaN for numbers."""
    if isinstance(likelihood, GradedComparison):
        return jnp.sign(jnp.asarray(value, float))
    if isinstance(likelihood, SoftComparison) or not isinstance(likelihood, Comparison | ProbitBernoulli):
        return jnp.full(jnp.shape(value), jnp.nan)
    return jnp.where(jnp.asarray(value, bool), 1.0, -1.0)


@singledispatch
def outcomes(likelihood: Likelihood, mean: Array, variance: Array) -> Outcomes:
    """Enumerate what a likelihood could have answered; of one that is not known here there are none.

    Parameters
    ----------
    likelihood : Likelihood
        Of m rows.
    mean, variance : Array, shape (m,)
        Of the predictor.
    """
    none = jnp.zeros((0, *jnp.shape(mean)))
    return Outcomes(none, none, none)


@outcomes.register(Comparison)
@outcomes.register(ProbitBernoulli)
def _choices(likelihood: Likelihood, mean: Array, variance: Array) -> Outcomes:
    return _listed(likelihood, (0, 1), mean, variance)


@outcomes.register
def _grades(likelihood: GradedComparison, mean: Array, variance: Array) -> Outcomes:
    strengths = likelihood.strengths
    return _listed(likelihood, tuple(range(-strengths, strengths + 1)), mean, variance)


def _listed(likelihood: Likelihood, values: tuple[int, ...], mean: Array, variance: Array) -> Outcomes:
    def of(value: int) -> Array:
        return likelihood.tilted(jnp.full(jnp.shape(mean), value), mean, variance).log_normalizer

    found = jnp.stack([of(value) for value in values])
    side = jnp.stack([favours(likelihood, jnp.full(jnp.shape(mean), value)) for value in values])
    return Outcomes(found, jnp.exp(found), side)


@outcomes.register
def _numbers(likelihood: GaussianLikelihood, mean: Array, variance: Array) -> Outcomes:
    total = jnp.broadcast_to(variance + jnp.square(likelihood.scale), jnp.shape(mean))
    return _at_nodes(lambda node: -0.5 * (node**2 + jnp.log(2 * jnp.pi * total)))


@outcomes.register
def _reports(likelihood: SoftComparison, mean: Array, variance: Array) -> Outcomes:
    total = variance + jnp.square(likelihood.scale)

    def log_density(node: float) -> Array:  # of Φ(report): the report's own, over φ(report)
        report = mean + likelihood.shift + jnp.sqrt(total) * node
        return -0.5 * (node**2 + jnp.log(total)) + 0.5 * jnp.square(report)

    return _at_nodes(log_density)


def _at_nodes(log_density: Callable[[float], Array]) -> Outcomes:
    found = jnp.stack([log_density(float(node)) for node in _NODES])
    weights = jnp.reshape(jnp.asarray(_WEIGHTS), (-1,) + (1,) * (found.ndim - 1))
    return Outcomes(found, jnp.broadcast_to(weights, found.shape), jnp.full(found.shape, jnp.nan))
