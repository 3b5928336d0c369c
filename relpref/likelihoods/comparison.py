"""Answers to "which of two is better?": what they share, and the plain one."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import ndtr, ndtri
from jax.typing import ArrayLike
from numpy.typing import NDArray
from numpyro.distributions import constraints

from relpref.likelihoods.tilted import (
    TiltedMoments,
    interval_moments,
    log_expected_sigmoid,
    log_ndtr,
    log_ndtr_curvature,
    mills_ratio,
    sigmoid_moments,
)


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

    Everything else is computed for the standardized gap (gap + shift)/scale, whose noise has scale 1. The predictor is the gap itself,
    so ``scale`` and ``shift`` may be hyperparameters without changing the projection that an engine works in.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "gap": constraints.real,
        "scale": constraints.positive,
        "shift": constraints.real,
    }
    leaves: ClassVar[tuple[str, ...]] = ("gap", "scale", "shift", "lapse")
    support: Any = constraints.boolean
    # Where there are two outcomes: probability that the first is preferred, of a standardized gap, and its logarithm.
    chance: ClassVar[Any]
    log_chance: ClassVar[Any]

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
        return self.gap

    @property
    def log_concave(self) -> bool:
        """Whether log p is a concave function of the gap; not so with lapses."""
        return self.lapse is None

    @property
    def outcomes(self) -> tuple[NDArray[np.int32], NDArray[np.float64]] | None:
        """The values that an answer can have, and how much each is one for the first; None of a number around the gap, Gaussian."""
        return np.array([0, 1], dtype=np.int32), np.array([0.0, 1.0])

    @property
    def outermost(self) -> Array:
        """The largest threshold between outcomes, in units of the gap."""
        return jnp.zeros((), self.gap.dtype)

    @property
    def location(self) -> Array:
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

    @property
    def mean(self) -> Array:
        """Probability that the first is preferred."""
        chance = self.chance(self.location)
        return chance if self.lapse is None else 0.5 * self.lapse + (1 - self.lapse) * chance

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        return jax.random.bernoulli(key, self.mean, sample_shape + self.batch_shape).astype(jnp.int32)

    def log_prob(self, value: ArrayLike) -> Array:
        """Return the log probability of an answer."""
        log_probability = self.log_chance(jnp.where(value, self.location, -self.location))
        return self.with_lapses(log_probability, jnp.asarray(value))

    def standard(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments under a cavity of the standardized gap."""
        raise NotImplementedError

    def predict(self, mean: Array, variance: Array) -> dict[str, Array]:
        """Expectations over the next answer, where the gap is N(mean, variance).

        Returns
        -------
        dict
            ``probability`` that it favors the first.
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

    chance = staticmethod(ndtr)
    log_chance = staticmethod(log_ndtr)

    def standard(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Closed form (XPGP eq. 11, with its sign y written out)."""
        sign = jnp.where(value, 1.0, -1.0).astype(mean.dtype)
        scale = 1 / jnp.sqrt(1 + variance)
        z = sign * mean * scale
        return TiltedMoments(log_ndtr(z), sign * mills_ratio(z) * scale, log_ndtr_curvature(z) * scale**2)


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
    def outcomes(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        grades = np.arange(-self.strengths, self.strengths + 1, dtype=np.int32)
        return grades, 0.5 + 0.5 * np.sign(grades)

    @property
    def outermost(self) -> Array:
        return jnp.max(self.thresholds)

    @property
    def support(self) -> Any:
        """Whole numbers from −S to S."""
        return constraints.integer_interval(-self.strengths, self.strengths)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
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
            ``probability`` that it favors the first, by whatever strength, and ``tie`` that it is one.
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


class LogisticComparison(Comparison):
    """The first of a pair is preferred with probability σ((gap + shift)/scale), σ the logistic function.

    With a scale of 1 the gap is the log odds, as in Bradley & Terry (1952), "Rank analysis of incomplete block designs".

    Parameters
    ----------
    gap, scale, shift, lapse
        As in `Comparison`.

    Notes
    -----
    A value is 1 where the first was preferred and 0 where the second was. The tilted moments have no closed form; quadrature
    gives them to 1e-9 (see `sigmoid_moments`). Logistic noise has standard deviation π/√3, and in the middle
    σ(x) is near to Φ(x/1.7): utilities come out about 1.7 times as large as with `ProbitComparison`.
    """

    chance = staticmethod(jax.nn.sigmoid)
    log_chance = staticmethod(jax.nn.log_sigmoid)

    def standard(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        sign = jnp.where(value, 1.0, -1.0).astype(mean.dtype)
        z = sign * mean
        _, gradient, curvature = sigmoid_moments(z, variance)
        return TiltedMoments(log_expected_sigmoid(z, variance), sign * gradient, curvature)


class SoftComparison(Comparison):
    """A reported probability p that the first is the better: Φ⁻¹(p) = gap + shift + scale·ε, ε standard normal.

    A rater who is asked how sure they are sees the gap with an error, and reports what `ProbitComparison` makes of it. A report of 0.9
    says that the gap is near Φ⁻¹(0.9) = 1.28, with more force the smaller ``scale`` is; it is not nine answers out of ten.

    Parameters
    ----------
    gap, scale, shift
        As in `Comparison`; ``scale`` is the error of a report.

    Notes
    -----
    On the probit scale the answer is Gaussian, so expectation propagation on it is exact. The log density is that of p itself: a
    proper one, with the Jacobian 1/φ(Φ⁻¹(p)).
    """

    support = constraints.open_interval(0.0, 1.0)
    outcomes = None

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw reports; never 0 or 1, to which Φ is rounded far out."""
        noise = jax.random.normal(key, sample_shape + self.batch_shape, self.gap.dtype)
        limits = np.finfo(noise.dtype)
        report = ndtr(self.gap + self.shift + self.scale * noise)
        return jnp.clip(report, limits.tiny, 1 - limits.epsneg)

    def log_prob(self, value: ArrayLike) -> Array:
        """Return the log density of p."""
        return self.tilted(jnp.asarray(value), self.gap, jnp.zeros_like(self.gap)).log_normalizer

    def gaussian_site(self, value: Array) -> tuple[Array, Array]:
        """The gap that is reported, Φ⁻¹(p) − shift, and 1/scale²."""
        peak = ndtri(value) - self.shift
        return peak, jnp.broadcast_to(1 / jnp.square(self.scale), jnp.shape(peak))

    def standard(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments of the product of two Gaussians; of the density of p."""
        report = ndtri(value)
        total = 1 + variance
        error = report / self.scale - mean
        log_density = -0.5 * (jnp.square(error) / total + jnp.log(total)) - jnp.log(self.scale)
        return TiltedMoments(log_density + 0.5 * jnp.square(report), error / total, 1 / total)

    def log_density_at(self, node: Array, mean: Array, variance: Array) -> Array:
        """Log density of the report whose Φ⁻¹ lies ``node`` standard deviations above its expectation."""
        total = variance + jnp.square(self.scale)
        report = (
            mean + self.shift + jnp.sqrt(total) * node
        )  # the density of Φ(report) is the report's own over φ(report)
        return -0.5 * (jnp.square(node) + jnp.log(total)) + 0.5 * jnp.square(report)

    def predict(self, mean: Array, variance: Array) -> dict[str, Array]:
        """Expectations over the next report, where the gap is N(mean, variance).

        Returns
        -------
        dict
            ``probability``: of the report itself, E[Φ(gap + shift + scale·ε)].
        """
        spread = jnp.sqrt(1 + jnp.square(self.scale) + variance)
        return {"probability": ndtr((mean + self.shift) / spread)}
