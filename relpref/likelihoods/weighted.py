"""Weighted likelihoods, in which an answer counts for more or less than a single one."""

from typing import Any, ClassVar

from jax import Array
from jax.typing import ArrayLike

from relpref.likelihoods.comparison import Comparison, OfComparison
from relpref.likelihoods.tilted import TiltedMoments
from relpref.linalg.arrays import namespace
from relpref.linalg.covariance import Pulls, joined


class WeightedComparison(OfComparison):
    """Powers p^w of the probability p of an answer.

    For weights other than 1 they do not add up to 1: a weighted likelihood, not a distribution of
    answers. `sample` draws from p.

    Parameters
    ----------
    single : Comparison
        p.
    weight : Array, shape (m,)
        w, above 0.
    """

    leaves: ClassVar[tuple[str, ...]] = ("single", "weight")

    def __init__(
        self, single: Comparison, weight: ArrayLike, *, validate_args: bool | None = None
    ) -> None:
        xp = namespace(single.gap, weight)
        self.single, self.weight = single, xp.asarray(weight, single.gap.dtype)
        super().__init__(batch_shape=single.batch_shape, validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        return self.single.sample(key, sample_shape)

    def log_prob(self, value: ArrayLike) -> Array:
        """Log probability of an answer times its weight."""
        return self.weight * self.single.log_prob(value)

    def powered(self, value: Array, mean: Array, variance: Array, power: Any) -> TiltedMoments:
        """Moments of p^(wn) under the cavity N(mean, variance), n being ``power``, by quadrature.

        Where wn is 1 they are those of p.
        """
        return self.single.powered(value, mean, variance, power * self.weight)

    def point(self, value: Array, gap: Array) -> TiltedMoments:
        """The log of p^w and its derivatives at gaps."""
        return TiltedMoments(*(self.weight * part for part in self.single.point(value, gap)))

    def log_at(self, value: Array, gap: Array) -> Array:
        """The log of p^w at gaps, shape (..., m)."""
        return self.weight * self.single.log_at(value, gap)

    def pull(
        self,
        value: Array,
        mean: Array,
        variance: Array,
        weight: Array,
        power: Any = 1.0,
        *rest: Any,
    ) -> Pulls:
        """Derivatives, see `Comparison.pull`."""
        given = value, mean, variance, weight, power * self.weight, *rest
        return joined(self.single.pull(*given), "single")
