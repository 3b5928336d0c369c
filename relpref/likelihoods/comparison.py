"""Answers to "which of two is better?"."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from relpref.likelihoods.normal import log_ndtr, log_ndtr_curvature, mills_ratio
from relpref.likelihoods.tilted import TiltedMoments


class ProbitComparison(dist.Distribution):
    """The first of a pair is preferred with probability Φ(gap) (XPGP section 3.2, with √2 σ = 1).

    Parameters
    ----------
    gap : Array, shape (m,)
        Utility of the first minus utility of the second, in units of the answer's noise.

    Notes
    -----
    A value is 1 where the first was preferred and 0 where the second was.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {"gap": constraints.real}
    support = constraints.boolean

    def __init__(self, gap: Array, *, validate_args: bool | None = None) -> None:
        self.gap = jnp.asarray(gap)
        super().__init__(batch_shape=self.gap.shape, validate_args=validate_args)

    @property
    def predictor(self) -> Array:
        """The gap."""
        return self.gap

    @property
    def mean(self) -> Array:
        """Probability that the first is preferred."""
        return jax.scipy.special.ndtr(self.gap)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw answers."""
        return jax.random.bernoulli(key, self.mean, sample_shape + self.batch_shape).astype(jnp.int32)

    def log_prob(self, value: ArrayLike) -> Array:
        """Return log Φ(±gap)."""
        return log_ndtr(jnp.where(value, self.gap, -self.gap))

    def tilted(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Closed form (XPGP eq. 11, with its sign y written out)."""
        sign = jnp.where(value, 1.0, -1.0).astype(mean.dtype)
        scale = 1 / jnp.sqrt(1 + variance)
        z = sign * mean * scale
        return TiltedMoments(log_ndtr(z), sign * mills_ratio(z) * scale, log_ndtr_curvature(z) * scale**2)

    def tree_flatten(self) -> tuple[Any, Any]:
        """Children and static part, for JAX."""
        return (self.gap,), (self.batch_shape,)

    @classmethod
    def tree_unflatten(cls, aux_data: Any, params: Any) -> "ProbitComparison":
        """Rebuild without validation; the leaf may be a tracer or a placeholder."""
        self = cls.__new__(cls)
        (self.gap,) = params
        dist.Distribution.__init__(self, batch_shape=aux_data[0], validate_args=False)
        return self
