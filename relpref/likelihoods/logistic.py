"""Answers with logistic noise: Bradley & Terry's model."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from relpref.likelihoods.comparison import Comparison
from relpref.likelihoods.logistic_normal import log_expected_sigmoid, sigmoid_moments
from relpref.likelihoods.tilted import TiltedMoments


class LogisticComparison(Comparison):
    """The first of a pair is preferred with probability σ((gap + shift)/scale), σ the logistic function.

    With a scale of 1 the gap is the log odds, as in Bradley & Terry (1952), "Rank analysis of incomplete block designs".

    Parameters
    ----------
    gap, scale, shift, lapse
        As in `Comparison`.

    Notes
    -----
    A value is 1 where the first was preferred and 0 where the second was. The tilted moments have no closed form; quadrature
    gives them to 1e-9 (see `sigmoid_moments`). Logistic noise has standard deviation π/√3, and in the middle
    σ(x) is near to Φ(x/1.7): utilities come out about 1.7 times as large as with `ProbitComparison`.
    """

    support = constraints.boolean

    @property
    def mean(self) -> Array:
        """Probability that the first is preferred."""
        chance = jax.nn.sigmoid(self.location)
        return chance if self.lapse is None else 0.5 * self.lapse + (1 - self.lapse) * chance

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw answers."""
        return jax.random.bernoulli(key, self.mean, sample_shape + self.batch_shape).astype(jnp.int32)

    def log_prob(self, value: ArrayLike) -> Array:
        """Return log σ(±(gap + shift)/scale)."""
        log_probability = jax.nn.log_sigmoid(jnp.where(value, self.location, -self.location))
        return self.with_lapses(log_probability, jnp.asarray(value))

    def standard(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """By quadrature."""
        sign = jnp.where(value, 1.0, -1.0).astype(mean.dtype)
        z = sign * mean
        _, gradient, curvature = sigmoid_moments(z, variance)
        return TiltedMoments(log_expected_sigmoid(z, variance), sign * gradient, curvature)
