"""The standard normal distribution function, safe in both tails."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import erfc, erfcx
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.util import promote_shapes

# Asymptotic series in 1/x² for z = −x → −∞ (Abramowitz & Stegun 26.2.12): x Φ(z)/φ(z), and its consequence for
# r(z)(r(z) + z), the derivative of r = φ/Φ with the sign turned.
_TAIL_SERIES = (1.0, -1.0, 3.0, -15.0, 105.0, -945.0, 10395.0)
_CURVATURE_SERIES = (1.0, -1.0, 6.0, -50.0, 518.0, -6354.0, 89782.0)


def _switch(z: Array) -> float:
    """Where the series take over: both sides agree there to the dtype's precision."""
    return -30.0 if z.dtype == jnp.float64 else -10.0


def _series(coefficients: tuple[float, ...], z: Array) -> Array:
    inverse_square = 1.0 / jnp.square(jnp.minimum(z, _switch(z)))
    return jnp.polyval(jnp.asarray(coefficients[::-1], z.dtype), inverse_square)


def _scaled_tail(z: Array) -> Array:
    """2Φ(z)exp(z²/2) = erfcx(−z/√2), for z above the switch."""
    return erfcx(-jnp.maximum(z, _switch(z)) * jnp.sqrt(0.5).astype(z.dtype))


@jax.custom_jvp
def log_ndtr(z: Array) -> Array:
    """Return log Φ(z), with relative accuracy for every finite z.

    Parameters
    ----------
    z : Array

    Returns
    -------
    Array
        Same shape. Its derivative is `mills_ratio`, computed without cancellation.
    """
    far = jnp.minimum(z, _switch(z))
    left = jnp.minimum(z, -1.0)
    right = jnp.maximum(z, -1.0)
    half_log_two_pi = jnp.asarray(0.5 * jnp.log(2 * jnp.pi), z.dtype)
    asymptotic = -0.5 * far * far - jnp.log(-far) - half_log_two_pi + jnp.log(_series(_TAIL_SERIES, z))
    tail = -0.5 * left * left + jnp.log(0.5 * _scaled_tail(left))
    body = jnp.log1p(-0.5 * erfc(right * jnp.sqrt(0.5).astype(z.dtype)))
    return jnp.where(z < _switch(z), asymptotic, jnp.where(z < -1.0, tail, body))


@log_ndtr.defjvp
def _log_ndtr_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (z,), (tangent,) = primals, tangents
    return log_ndtr(z), mills_ratio(z) * tangent


@jax.custom_jvp
def mills_ratio(z: Array) -> Array:
    """φ(z)/Φ(z), the derivative of log Φ."""
    near = jnp.sqrt(2.0 / jnp.pi).astype(z.dtype) / _scaled_tail(z)
    return jnp.where(z < _switch(z), -jnp.minimum(z, _switch(z)) / _series(_TAIL_SERIES, z), near)


@mills_ratio.defjvp
def _mills_ratio_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (z,), (tangent,) = primals, tangents
    return mills_ratio(z), -log_ndtr_curvature(z) * tangent


def log_ndtr_curvature(z: Array) -> Array:
    """−(log Φ)''(z) = r(z)(z + r(z)) with r = φ/Φ; between 0 and 1.

    The product cancels for very negative z (in float64 it leaves [0, 1] near z = −1e5), so the asymptotic series takes
    over below −30 (−10 in float32).
    """
    near = jnp.maximum(z, _switch(z))
    ratio = mills_ratio(near)
    return jnp.where(z < _switch(z), _series(_CURVATURE_SERIES, z), ratio * (near + ratio))


class CentredNormal(dist.Distribution):
    """Normal noise around scores plus an unknown offset for each group, with a flat prior.

    Only contrasts within groups are informative: the density is that of the labels' components orthogonal to the groups'
    indicator vectors (Pahikkala et al. 2010, eq. 12, as a Gaussian model). Draws have offset 0.

    Parameters
    ----------
    loc : array, shape (q,)
        Scores.
    scale : array, shape ()
        Standard deviation of the noise.
    groups : array of int, shape (q,)
        Conditioning node of each label.
    num_groups : int
        Numbers in ``groups`` are below it.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "loc": constraints.real_vector,
        "scale": constraints.positive,
    }
    support = constraints.real_vector
    reparametrized_params: ClassVar[list[str]] = ["loc", "scale"]

    def __init__(
        self,
        loc: Array,
        scale: ArrayLike,
        groups: ArrayLike,
        num_groups: int,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.loc = loc
        self.scale = jnp.asarray(scale)
        self.groups = jnp.asarray(groups)
        self.num_groups = num_groups
        super().__init__(event_shape=jnp.shape(loc)[-1:], validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Scores plus noise, shape ``sample_shape + (q,)``."""
        return self.loc + self.scale * jax.random.normal(
            key, (*sample_shape, *self.event_shape), self.loc.dtype
        )

    def log_prob(self, value: Array) -> Array:
        """Log density of the contrasts."""
        (error,) = promote_shapes(value - self.loc, shape=self.event_shape)
        counts = jnp.zeros(self.num_groups, error.dtype).at[self.groups].add(1.0)
        sums = jnp.zeros(self.num_groups, error.dtype).at[self.groups].add(error)
        centred = error - (sums / jnp.maximum(counts, 1.0))[self.groups]
        contrasts = jnp.sum(jnp.maximum(counts - 1.0, 0.0))
        spread = jnp.sum(jnp.square(centred / self.scale))
        return -0.5 * spread - contrasts * (jnp.log(self.scale) + 0.5 * jnp.log(2 * jnp.pi))

    def conditional_log_prob(self, value: Array) -> Array:
        """Log density of each label given the others of its group, shape (q,); 0 for one that is alone, of which nothing is said.

        Given k − 1 others the offset is Gaussian around the average of their errors, with variance scale²/(k − 1).
        """
        error = value - self.loc
        counts = jnp.zeros(self.num_groups, error.dtype).at[self.groups].add(1.0)[self.groups]
        sums = jnp.zeros(self.num_groups, error.dtype).at[self.groups].add(error)[self.groups]
        others = jnp.maximum(counts - 1.0, 1.0)
        scale = self.scale * jnp.sqrt(1.0 + 1.0 / others)
        found = dist.Normal((sums - error) / others, scale).log_prob(error)
        return jnp.where(counts > 1.0, found, 0.0)

    def tree_flatten(self) -> tuple[Any, Any]:
        """Children and static part, for JAX."""
        return (self.loc, self.scale, self.groups), (self.num_groups, self.event_shape)

    @classmethod
    def tree_unflatten(cls, aux_data: Any, params: Any) -> "CentredNormal":
        """Rebuild without validation; the leaves may be tracers or placeholders."""
        self = cls.__new__(cls)
        self.loc, self.scale, self.groups = params
        self.num_groups = aux_data[0]
        dist.Distribution.__init__(self, event_shape=aux_data[1], validate_args=False)
        return self
