"""Yes or no, from a latent function: the likelihoods of the classifiers."""

from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from relpref.errors import DataError
from relpref.likelihoods.comparison import LogisticComparison, ProbitComparison
from relpref.likelihoods.tilted import TiltedMoments

Link = Literal["probit", "logit"]


class ProbitBernoulli(dist.Distribution):
    """1 with probability E Φ(predictor + e), e ~ N(0, spread).

    Parameters
    ----------
    predictor : Array, shape (m,) or (m, k)
    spread : Array, broadcasts to the predictor, or None
        Variance of Gaussian noise of each row's own, for example of what a Gaussian process varies besides the predictor. None
        where there is none.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    support = constraints.boolean
    log_concave: ClassVar[bool] = True
    outcomes: ClassVar[tuple[Any, Any]] = (np.array([0, 1], dtype=np.int32), np.array([0.0, 1.0]))
    paired: ClassVar[bool] = False  # an answer is yes or no, and compares nothing
    comparison: ClassVar[type[ProbitComparison] | type[LogisticComparison]] = ProbitComparison

    def __init__(
        self, predictor: Array, spread: ArrayLike | None = None, *, validate_args: bool | None = None
    ) -> None:
        self.predictor = jnp.asarray(predictor)
        shape = self.predictor.shape
        self.spread = None if spread is None else jnp.broadcast_to(jnp.asarray(spread), shape)
        super().__init__(batch_shape=shape, validate_args=validate_args)

    @property
    def mean(self) -> Array:
        return jnp.exp(self.log_prob(jnp.ones_like(self.predictor, jnp.int32)))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        return jax.random.bernoulli(key, self.mean, sample_shape + self.batch_shape).astype(jnp.int32)

    def log_prob(self, value: ArrayLike) -> Array:
        """Return the log probability of outcomes."""
        if self.spread is None:
            return self.comparison(self.predictor, validate_args=False).log_prob(value)
        return self._moments(jnp.asarray(value), self.predictor, self.spread).log_normalizer

    def tilted(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments under the cavity N(mean, variance) of the predictor."""
        return self._moments(value, mean, variance if self.spread is None else variance + self.spread)

    def _moments(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        return self.comparison(self.predictor, validate_args=False).tilted(value, mean, variance)

    def tree_flatten(self) -> tuple[Any, Any]:
        """Children and static part, for JAX."""
        return (self.predictor, self.spread), (self.batch_shape,)

    @classmethod
    def tree_unflatten(cls, aux_data: Any, params: Any) -> "ProbitBernoulli":
        """Rebuild without validation; a leaf may be a tracer or a placeholder."""
        self = cls.__new__(cls)
        self.predictor, self.spread = params
        dist.Distribution.__init__(self, batch_shape=aux_data[0], validate_args=False)
        return self


class LogitBernoulli(ProbitBernoulli):
    """1 with probability E σ(predictor + e), e ~ N(0, spread), σ the logistic function.

    Parameters
    ----------
    predictor, spread
        As in `ProbitBernoulli`.
    """

    comparison: ClassVar[type[ProbitComparison] | type[LogisticComparison]] = LogisticComparison


def bernoulli(link: Link) -> type[ProbitBernoulli]:
    """The likelihood with this link.

    Raises
    ------
    DataError
        If there is none.
    """
    if link not in ("probit", "logit"):
        raise DataError(f"link is {link!r}; it is 'probit' or 'logit'")
    return ProbitBernoulli if link == "probit" else LogitBernoulli
