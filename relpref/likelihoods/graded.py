"""Answers with grades: ties, and strengths of preference."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from relpref.likelihoods.comparison import Comparison
from relpref.likelihoods.interval import interval_moments
from relpref.likelihoods.tilted import TiltedMoments


class GradedComparison(Comparison):
    """A noisy gap cut into grades by thresholds that are symmetric around 0 (ties: Glenn & David 1960).

    With z = gap + shift + scale·ε, ε standard normal, and thresholds 0 ≤ t₁ < … < t_S the answer is 0, a tie, where ``|z| < t₁``, and k
    or −k where z or −z lies between ``t_k`` and ``t_{k+1}``; ``t_{S+1}`` is infinite. A t₁ of 0 means that there are no ties.

    Parameters
    ----------
    gap, scale, shift, lapse
        As in `Comparison`; the grades from −S to S are offered, 0 only where t₁ > 0.
    thresholds : Array, shape (S,)
        In units of the gap.

    Notes
    -----
    Glenn & David (1960), "Ties in paired-comparison experiments using a modified Thurstone-Mosteller model". One threshold is their
    model; all moments have a closed form.
    """

    leaves = (*Comparison.leaves, "thresholds")

    def __init__(
        self,
        gap: Array,
        thresholds: ArrayLike,
        *,
        scale: ArrayLike = 1.0,
        shift: ArrayLike = 0.0,
        lapse: ArrayLike | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self.thresholds = jnp.asarray(thresholds, jnp.asarray(gap).dtype)
        super().__init__(gap, scale=scale, shift=shift, lapse=lapse, validate_args=validate_args)

    @property
    def strengths(self) -> int:
        """Number of grades on either side, S."""
        return int(self.thresholds.shape[-1])

    @property
    def support(self) -> Any:
        """Whole numbers from −S to S."""
        return constraints.integer_interval(-self.strengths, self.strengths)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw answers."""
        shape = sample_shape + self.batch_shape
        z = self.gap + self.shift + self.scale * jax.random.normal(key, shape, self.gap.dtype)
        grade = jnp.sum(jnp.abs(z)[..., None] > self.thresholds, axis=-1)
        answer = jnp.sign(z) * grade
        if self.lapse is not None:
            lapses, which = jax.random.split(jax.random.fold_in(key, 1))
            chances = self.at_random(jnp.arange(-self.strengths, self.strengths + 1))
            random = jax.random.categorical(which, jnp.log(chances), shape=shape) - self.strengths
            answer = jnp.where(jax.random.bernoulli(lapses, self.lapse, shape), random, answer)
        return answer.astype(jnp.int32)

    def log_prob(self, value: ArrayLike) -> Array:
        """Return the log probability of a grade; minus infinity of one that does not exist."""
        value = jnp.asarray(value)
        found = self.tilted(value, self.gap, jnp.zeros_like(self.gap)).log_normalizer
        return jnp.where(jnp.abs(value) <= self.strengths, found, -jnp.inf)

    def at_random(self, value: Array) -> Array | float:
        """1/(2S + 1), or 1/(2S) where there are no ties."""
        ties = self.thresholds[0] > 0
        return jnp.where((value != 0) | ties, 1 / (2 * self.strengths + ties), 0.0)

    def standard(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Closed form: Φ at the ends of the grade's interval, divided by √(1 + v)."""
        value = jnp.clip(value, -self.strengths, self.strengths)
        grade, sign = jnp.abs(value), jnp.where(value < 0, -1.0, 1.0).astype(mean.dtype)
        scale = 1 / jnp.sqrt(1 + variance)
        top = grade == self.strengths
        start = self.thresholds[jnp.maximum(grade - 1, 0)] / self.scale
        end = self.thresholds[jnp.minimum(grade, self.strengths - 1)] / self.scale
        lower = jnp.where(grade == 0, -end, start) - sign * mean
        width = jnp.where(grade == 0, 2 * end, end - start) * scale
        moments = interval_moments(lower * scale, jnp.where(top, jnp.inf, width))
        return TiltedMoments(
            moments.log_normalizer, sign * moments.gradient * scale, moments.curvature * jnp.square(scale)
        )

    def predict(self, mean: Array, variance: Array) -> dict[str, Array]:
        """Expectations over the next answer, where the gap is N(mean, variance).

        Returns
        -------
        dict
            ``probability`` that it favours the first, by whatever strength, and ``tie`` that it is one.
        """
        total = jnp.sqrt(jnp.square(self.scale) + variance)
        ends = [(self.shift + mean + side * self.thresholds[0]) / total for side in (-1, 1)]
        favoured, not_beaten = (jax.scipy.special.ndtr(end) for end in ends)
        tie = not_beaten - favoured
        if self.lapse is not None:
            side, neither = (self.at_random(jnp.asarray(value)) for value in (1, 0))
            favoured = self.lapse * side * self.strengths + (1 - self.lapse) * favoured
            tie = self.lapse * neither + (1 - self.lapse) * tie
        return {"probability": favoured, "tie": tie}
