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
    lapse : Array, shape () or (m,), optional
        Share of answers that are given at random, each of the offered outcomes equally often; between 0 and 1. None: there are none.

    Notes
    -----
    With K offered outcomes an answer has the probability lapse/K + (1 − lapse)·p, p being that without lapses. It is not log-concave in
    the gap: an answer that contradicts all others is taken for a lapse, and the belief does not move.

    Everything else is computed for the standardised gap (gap + shift)/scale, whose noise has scale 1. The predictor is the gap itself,
    so ``scale`` and ``shift`` may be hyperparameters without changing the projection that an engine works in.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "gap": constraints.real,
        "scale": constraints.positive,
        "shift": constraints.real,
    }
    leaves: ClassVar[tuple[str, ...]] = ("gap", "scale", "shift", "lapse")

    def __init__(
        self,
        gap: Array,
        *,
        scale: ArrayLike = 1.0,
        shift: ArrayLike = 0.0,
        lapse: ArrayLike | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self.gap = jnp.asarray(gap)
        self.scale, self.shift = (jnp.asarray(x, self.gap.dtype) for x in (scale, shift))
        self.lapse = None if lapse is None else jnp.asarray(lapse, self.gap.dtype)
        super().__init__(batch_shape=self.gap.shape, validate_args=validate_args)

    @property
    def predictor(self) -> Array:
        """The gap."""
        return self.gap

    @property
    def log_concave(self) -> bool:
        """Whether log p is a concave function of the gap; not so with lapses."""
        return self.lapse is None

    @property
    def location(self) -> Array:
        """The standardised gap."""
        return (self.gap + self.shift) / self.scale

    def tilted(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments under the cavity N(mean, variance) of the gap; a variance of 0 gives log_prob and its derivatives."""
        moments = self.standard(value, (mean + self.shift) / self.scale, variance / jnp.square(self.scale))
        gradient, curvature = moments.gradient / self.scale, moments.curvature / jnp.square(self.scale)
        if self.lapse is None:
            return TiltedMoments(moments.log_normalizer, gradient, curvature)
        total = self.with_lapses(moments.log_normalizer, value)
        # Probability that the answer was meant, after it was seen.
        meant = jnp.exp(jnp.log1p(-self.lapse) + moments.log_normalizer - total)
        return TiltedMoments(
            total, meant * gradient, meant * curvature - meant * (1 - meant) * jnp.square(gradient)
        )

    def with_lapses(self, log_probability: Array, value: Array) -> Array:
        """The log probability of an answer from that without lapses."""
        if self.lapse is None:
            return log_probability
        return jnp.logaddexp(
            jnp.log1p(-self.lapse) + log_probability, jnp.log(self.lapse * self.at_random(value))
        )

    def at_random(self, value: Array) -> Array | float:
        """Probability of an answer that is given at random, 1/K."""
        return 0.5

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
    gap, scale, shift, lapse
        As in `Comparison`.

    Notes
    -----
    A value is 1 where the first was preferred and 0 where the second was.
    """

    support = constraints.boolean

    @property
    def mean(self) -> Array:
        """Probability that the first is preferred."""
        chance = jax.scipy.special.ndtr(self.location)
        return chance if self.lapse is None else 0.5 * self.lapse + (1 - self.lapse) * chance

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw answers."""
        return jax.random.bernoulli(key, self.mean, sample_shape + self.batch_shape).astype(jnp.int32)

    def log_prob(self, value: ArrayLike) -> Array:
        """Return log Φ(±(gap + shift)/scale)."""
        return self.with_lapses(log_ndtr(jnp.where(value, self.location, -self.location)), jnp.asarray(value))

    def standard(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Closed form (XPGP eq. 11, with its sign y written out)."""
        sign = jnp.where(value, 1.0, -1.0).astype(mean.dtype)
        scale = 1 / jnp.sqrt(1 + variance)
        z = sign * mean * scale
        return TiltedMoments(log_ndtr(z), sign * mills_ratio(z) * scale, log_ndtr_curvature(z) * scale**2)
