"""Likelihoods of labels: classes by a link, and values with an offset for each group."""

from copy import copy
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.util import promote_shapes

from relpref.errors import DataError
from relpref.likelihoods.comparison import LogisticComparison, ProbitComparison
from relpref.likelihoods.tilted import TiltedMoments, TreeDistribution
from relpref.linalg.arrays import as_array, namespace, summed_to
from relpref.linalg.covariance import Pulls

Link = Literal["probit", "logit"]


class ProbitBernoulli(TreeDistribution):
    """1 with probability E Φ(predictor + e), e ~ N(0, spread).

    Parameters
    ----------
    predictor : Array, shape (m,) or (m, k)
    spread : Array, broadcasts to the predictor, or None
        Variance of independent Gaussian noise of each row; None where there is none.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    leaves: ClassVar[tuple[str, ...]] = ("predictor", "spread")
    support = constraints.boolean
    log_concave: ClassVar[bool] = True
    outcomes: ClassVar[tuple[Any, Any]] = (np.array([0, 1], dtype=np.int32), np.array([0.0, 1.0]))
    paired: ClassVar[bool] = False  # an answer is yes or no, and compares nothing
    copied: ClassVar[bool] = True  # equal answers have a site each: noise is each answer's own
    comparison: ClassVar[type[ProbitComparison] | type[LogisticComparison]] = ProbitComparison

    def __init__(
        self,
        predictor: Array,
        spread: ArrayLike | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.predictor = as_array(namespace(predictor), predictor)
        shape = self.predictor.shape
        self.spread = None if spread is None else namespace(spread).broadcast_to(spread, shape)
        super().__init__(batch_shape=shape, validate_args=validate_args)

    @property
    def mean(self) -> Array:
        return jnp.exp(self.log_prob(jnp.ones_like(self.predictor, jnp.int32)))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        return jax.random.bernoulli(key, self.mean, sample_shape + self.batch_shape).astype(
            jnp.int32
        )

    def log_prob(self, value: ArrayLike) -> Array:
        """Log probability of outcomes."""
        return self.log_at(namespace(value, self.predictor).asarray(value), self.predictor)

    def tilted(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments under the cavity N(mean, variance) of the predictor."""
        noisy = variance if self.spread is None else variance + self.spread
        return self.comparison(self.predictor, validate_args=False).tilted(value, mean, noisy)

    def log_at(self, value: Array, gap: Array) -> Array:
        """The log probability at predictors, shape (..., m)."""
        if self.spread is None or self.comparison.closed:
            scale = 1.0 if self.spread is None else namespace(gap).sqrt(1 + self.spread)
            single = self.comparison(self.predictor, scale=scale, validate_args=False)
            return single.log_at(value, gap)
        return self.tilted(value, gap, 0 * gap).log_normalizer

    def rows(self, index: Any) -> "ProbitBernoulli":
        """The outcomes at places of the flattened predictor."""
        chosen = copy(self)
        chosen.predictor = self.predictor.ravel()[index]
        chosen.spread = None if self.spread is None else self.spread.ravel()[index]
        return chosen

    def pull(self, value: Array, mean: Array, variance: Array, weight: Array, *_: Any) -> Pulls:
        """Derivatives, see `Comparison.pull`: ∂log Ẑ/∂variance = ½ (∂²log Ẑ + (∂log Ẑ)²)."""
        if self.spread is None:
            return {}
        _, gradient, curvature = self.tilted(value, mean, variance)
        slope = 0.5 * weight * (gradient**2 - curvature)
        return {("spread",): summed_to(slope, np.shape(self.spread))}


class LogitBernoulli(ProbitBernoulli):
    """1 with probability E σ(predictor + e), σ the logistic function.

    Parameters as in `ProbitBernoulli`.
    """

    comparison: ClassVar[type[ProbitComparison] | type[LogisticComparison]] = LogisticComparison


def bernoulli(link: Link) -> type[ProbitBernoulli]:
    """The likelihood with this link.

    Raises
    ------
    DataError
        If there is no such link.
    """
    if link not in ("probit", "logit"):
        raise DataError(f"link is {link!r}; it is 'probit' or 'logit'")
    return ProbitBernoulli if link == "probit" else LogitBernoulli


class CentredNormal(TreeDistribution):
    """Normal noise around scores plus an unknown offset for each group, with a flat prior.

    The density is that of the labels' contrasts within groups (Pahikkala et al. 2010, eq. 12, as a
    Gaussian model). Draws have offset 0.

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
        "loc": constraints.real,  # of each entry, as one may stand for a number that is not known
        "scale": constraints.positive,
    }
    support = constraints.real_vector
    reparametrized_params: ClassVar[list[str]] = ["loc", "scale"]
    leaves: ClassVar[tuple[str, ...]] = ("loc", "scale", "groups")
    static: ClassVar[tuple[str, ...]] = (*TreeDistribution.static, "num_groups")

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
        counts, sums = self._totals(error)
        centred = error - (sums / jnp.maximum(counts, 1.0))[self.groups]
        contrasts = jnp.sum(jnp.maximum(counts - 1.0, 0.0))
        spread = jnp.sum(jnp.square(centred / self.scale))
        return -0.5 * spread - contrasts * (jnp.log(self.scale) + 0.5 * jnp.log(2 * jnp.pi))

    def _totals(self, error: Array) -> tuple[Array, Array]:
        """Number of labels of each group, and the sum of their errors."""
        nothing = jnp.zeros(self.num_groups, error.dtype).at[self.groups]
        return nothing.add(1.0), nothing.add(error)

    def conditional_log_prob(self, value: Array) -> Array:
        """Log density of each label given the others of its group, shape (q,); 0 without others.

        Given k − 1 others the offset is Gaussian around the average of their errors, with variance
        scale²/(k − 1).
        """
        error = value - self.loc
        counts, sums = (total[self.groups] for total in self._totals(error))
        others = jnp.maximum(counts - 1.0, 1.0)
        scale = self.scale * jnp.sqrt(1.0 + 1.0 / others)
        log_density = dist.Normal((sums - error) / others, scale).log_prob(error)
        return jnp.where(counts > 1.0, log_density, 0.0)
