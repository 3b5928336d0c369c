"""Answers to "which of two is better?": what they share, and the plain one."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from relpref.likelihoods.normal import log_ndtr, log_ndtr_curvature, mills_ratio
from relpref.likelihoods.tilted import TiltedMoments


class Comparison(dist.Distribution):
    """An answer to a gap of utilities that is seen with noise and, perhaps, from one side.

    Parameters
    ----------
    gap : Array, shape (m,)
        Utility of the first minus utility of the second.
    scale : Array, shape () or (m,)
        Scale of the noise, for example larger for a careless rater.
    shift : Array, shape () or (m,)
        Added to the gap, for example where the entity that is shown first gains by it.

    Notes
    -----
    Everything is computed for the standardised gap (gap + shift)/scale, whose noise has scale 1. The predictor is the gap itself,
    so ``scale`` and ``shift`` may be hyperparameters without changing the projection that an engine works in.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "gap": constraints.real,
        "scale": constraints.positive,
        "shift": constraints.real,
    }
    leaves: ClassVar[tuple[str, ...]] = ("gap", "scale", "shift")

    def __init__(
        self,
        gap: Array,
        *,
        scale: ArrayLike = 1.0,
        shift: ArrayLike = 0.0,
        validate_args: bool | None = None,
    ) -> None:
        self.gap = jnp.asarray(gap)
        self.scale, self.shift = (jnp.asarray(x, self.gap.dtype) for x in (scale, shift))
        super().__init__(batch_shape=self.gap.shape, validate_args=validate_args)

    @property
    def predictor(self) -> Array:
        """The gap."""
        return self.gap

    @property
    def location(self) -> Array:
        """The standardised gap."""
        return (self.gap + self.shift) / self.scale

    def tilted(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments under the cavity N(mean, variance) of the gap; a variance of 0 gives log_prob and its derivatives."""
        moments = self.standard(value, (mean + self.shift) / self.scale, variance / jnp.square(self.scale))
        return TiltedMoments(
            moments.log_normalizer, moments.gradient / self.scale, moments.curvature / jnp.square(self.scale)
        )

    def standard(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments under a cavity of the standardised gap."""
        raise NotImplementedError

    def predict(self, mean: Array, variance: Array) -> dict[str, Array]:
        """Expectations over the next answer, where the gap is N(mean, variance).

        Returns
        -------
        dict
            ``probability`` that it favours the first.
        """
        return {"probability": jnp.exp(self.tilted(jnp.ones_like(mean), mean, variance).log_normalizer)}

    def tree_flatten(self) -> tuple[Any, Any]:
        """Children and static part, for JAX."""
        return tuple(getattr(self, name) for name in self.leaves), (self.batch_shape,)

    @classmethod
    def tree_unflatten(cls, aux_data: Any, params: Any) -> "Comparison":
        """Rebuild without validation; a leaf may be a tracer or a placeholder."""
        self = cls.__new__(cls)
        self.__dict__.update(zip(cls.leaves, params, strict=True))
        dist.Distribution.__init__(self, batch_shape=aux_data[0], validate_args=False)
        return self


class ProbitComparison(Comparison):
    """The first of a pair is preferred with probability Φ((gap + shift)/scale) (XPGP section 3.2, with √2 σ = 1).

    Parameters
    ----------
    gap, scale, shift
        As in `Comparison`.

    Notes
    -----
    A value is 1 where the first was preferred and 0 where the second was.
    """

    support = constraints.boolean

    @property
    def mean(self) -> Array:
        """Probability that the first is preferred."""
        return jax.scipy.special.ndtr(self.location)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw answers."""
        return jax.random.bernoulli(key, self.mean, sample_shape + self.batch_shape).astype(jnp.int32)

    def log_prob(self, value: ArrayLike) -> Array:
        """Return log Φ(±(gap + shift)/scale)."""
        return log_ndtr(jnp.where(value, self.location, -self.location))

    def standard(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Closed form (XPGP eq. 11, with its sign y written out)."""
        sign = jnp.where(value, 1.0, -1.0).astype(mean.dtype)
        scale = 1 / jnp.sqrt(1 + variance)
        z = sign * mean * scale
        return TiltedMoments(log_ndtr(z), sign * mills_ratio(z) * scale, log_ndtr_curvature(z) * scale**2)
