"""What an engine asks of a likelihood: its moments under a one-dimensional Gaussian cavity."""

from functools import singledispatch
from typing import NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from relpref.errors import UnsupportedProgramError


class TiltedMoments(NamedTuple):
    """log Ẑ(m, v) = log ∫ p(y | z) N(z; m, v) dz and its derivatives in the cavity mean m.

    Attributes
    ----------
    log_normalizer : Array
        log Ẑ.
    gradient : Array
        ∂ log Ẑ/∂m; the tilted mean is m + v·gradient.
    curvature : Array
        −∂² log Ẑ/∂m²; the tilted variance is v − v²·curvature.
    """

    log_normalizer: Array
    gradient: Array
    curvature: Array


@runtime_checkable
class Likelihood(Protocol):
    """A numpyro distribution p(y | z) of a scalar predictor z that knows its tilted moments.

    It may declare ``log_concave``: whether log p(y | z) is a concave function of z for every y. Without it is taken not to be, see
    `is_log_concave`.
    """

    @property
    def predictor(self) -> Array:
        """z, shape (m,): what the program computed from its latent Gaussians."""

    def tilted(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments under the cavity N(mean, variance), elementwise; value, mean and variance have shape (m,)."""


def is_log_concave(likelihood: Likelihood) -> bool:
    """Whether a likelihood declares to be log-concave: then a negative site precision is an error, and elsewhere it is kept."""
    return bool(getattr(likelihood, "log_concave", False))


@runtime_checkable
class GaussianSite(Protocol):
    """A likelihood whose density is Gaussian in the predictor: its site is known in closed form, whatever the cavity."""

    def gaussian_site(self, value: Array) -> tuple[Array, Array]:
        """Where the density of a value peaks in the predictor, and its precision there, 1/noise²; shape (m,) each."""


@singledispatch
def as_likelihood(distribution: dist.Distribution) -> Likelihood:
    """Give an observed site's distribution the face an engine needs.

    Parameters
    ----------
    distribution : numpyro distribution
        One of `relpref.likelihoods`, or numpyro's ``Normal``; wrapped by plates or not.

    Raises
    ------
    UnsupportedProgramError
        If its tilted moments are not known.
    """
    if isinstance(distribution, Likelihood):
        return distribution
    raise UnsupportedProgramError(
        f"no tilted moments are known for the likelihood {type(distribution).__name__}; "
        "use one of relpref.likelihoods or numpyro's Normal, or run the program with numpyro's NUTS"
    )


@as_likelihood.register
def _expanded(distribution: dist.ExpandedDistribution) -> Likelihood:
    return as_likelihood(distribution.base_dist)


@as_likelihood.register
def _masked(distribution: dist.MaskedDistribution) -> Likelihood:
    return as_likelihood(distribution.base_dist)


@as_likelihood.register
def _independent(distribution: dist.Independent) -> Likelihood:
    return as_likelihood(distribution.base_dist)


@as_likelihood.register
def _normal(distribution: dist.Normal) -> Likelihood:
    return GaussianLikelihood(distribution.loc, distribution.scale)


class GaussianLikelihood:
    """numpyro's ``Normal(z, scale)``, whose moments are exact: EP on it is exact regression."""

    log_concave = True

    def __init__(self, predictor: Array, scale: Array) -> None:
        self.predictor = predictor
        self.scale = scale

    def gaussian_site(self, value: Array) -> tuple[Array, Array]:
        """The label itself, and 1/scale²."""
        shape = jnp.shape(self.predictor)
        return jnp.broadcast_to(value, shape), jnp.broadcast_to(1 / jnp.square(self.scale), shape)

    def tilted(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments of the product of two Gaussians."""
        total = variance + jnp.square(self.scale)
        error = value - mean
        log_normalizer = -0.5 * (jnp.square(error) / total + jnp.log(2 * jnp.pi * total))
        return TiltedMoments(log_normalizer, error / total, 1 / total)
