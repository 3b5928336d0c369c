"""Labels around scores with an unknown offset for each group."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.util import promote_shapes


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
