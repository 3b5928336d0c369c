"""A Gaussian vector whose distribution carries its covariance operator."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints

from relpref.linalg import CovarianceOperator


class GaussianProcess(dist.Distribution):
    """Zero-mean Gaussian over n values with a structured covariance.

    Parameters
    ----------
    covariance : CovarianceOperator
        Of size n. A `NamedSum` keeps the names of its parts, which is what ``Posterior.explain`` reports.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    support = constraints.real_vector
    reparametrized_params: ClassVar[list[str]] = []

    def __init__(self, covariance: CovarianceOperator, *, validate_args: bool | None = None) -> None:
        self.covariance = covariance
        super().__init__(event_shape=(covariance.size,), validate_args=validate_args)

    @property
    def mean(self) -> Array:
        """Zero."""
        return jnp.zeros(self.event_shape)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw vectors, shape ``sample_shape + (n,)``."""
        lower = self.covariance.root().lower
        return jax.random.normal(key, (*sample_shape, lower.shape[1]), lower.dtype) @ lower.T

    def log_prob(self, value: Array) -> Array:
        """Gaussian log density, by the covariance's root."""
        lower = self.covariance.root().lower
        flat = jnp.reshape(value, (-1, value.shape[-1]))
        white = jax.scipy.linalg.solve_triangular(lower, flat.T, lower=True)
        n = value.shape[-1]
        constant = jnp.sum(jnp.log(jnp.diagonal(lower))) + 0.5 * n * jnp.log(2 * jnp.pi)
        return jnp.reshape(-0.5 * jnp.sum(jnp.square(white), axis=0) - constant, value.shape[:-1])

    def tree_flatten(self) -> tuple[Any, Any]:
        """Children and static part, for JAX."""
        return (self.covariance,), (self.event_shape,)

    @classmethod
    def tree_unflatten(cls, aux_data: Any, params: Any) -> "GaussianProcess":
        """Rebuild without validation; the leaves may be tracers or placeholders."""
        self = cls.__new__(cls)
        (self.covariance,) = params
        dist.Distribution.__init__(self, event_shape=aux_data[0], validate_args=False)
        return self
