"""Distributions of answers to "which of two is better?"."""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtr, ndtri
from jax.typing import ArrayLike
from numpy.typing import NDArray
from numpyro.distributions import constraints

from relpref.data import Comparisons
from relpref.lazy_jit import lazy_jit
from relpref.likelihoods.chances import graded_chances, with_lapses
from relpref.likelihoods.orders import GAUSSIAN, GUMBEL, Noise
from relpref.likelihoods.tilted import (
    TiltedMoments,
    TreeDistribution,
    interval_moments,
    log_concave_moments,
    log_expected_sigmoid,
    log_ndtr,
    log_ndtr_curvature,
    mills_ratio,
    sigmoid_moments,
)
from relpref.linalg import real


class Comparison(TreeDistribution):
    """An answer to a utility difference (gap) that is seen with noise.

    Parameters
    ----------
    gap : Array, shape (m,)
        Utility of the first minus utility of the second; the predictor.
    scale : Array, shape () or (m,)
        Scale of the noise, for example larger for a careless rater.
    shift : Array, shape () or (m,)
        Added to the gap, for example where the item that is shown first gains by it.
    lapse : Array, shape () or (m,), optional
        Share of answers that are given at random, each of the K offered outcomes equally often:
        lapse/K + (1 − lapse)·p, which is not log-concave in the gap. None: there are none.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "gap": constraints.real,
        "scale": constraints.positive,
        "shift": constraints.real,
    }
    leaves: ClassVar[tuple[str, ...]] = ("gap", "scale", "shift", "lapse")
    support: Any = constraints.boolean
    noise: ClassVar[Noise] = GAUSSIAN  # of each item in a list
    # For two outcomes: probability that the first is preferred at a standardized gap, (gap +
    # shift)/scale, and its logarithm.
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
        """Whether log p is a concave function of the gap."""
        return self.lapse is None

    @property
    def outcomes(self) -> tuple[NDArray[np.int32], NDArray[np.float64]] | None:
        """Values of an answer, and how much each favors the first, from 0 to 1.

        None for an answer that is a Gaussian number.
        """
        return np.array([0, 1], dtype=np.int32), np.array([0.0, 1.0])

    @property
    def outermost(self) -> Array:
        """The largest threshold between outcomes, in units of the gap."""
        return jnp.zeros((), self.gap.dtype)

    @property
    def location(self) -> Array:
        return (self.gap + self.shift) / self.scale

    def tilted(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments under the cavity N(mean, variance) of the gap.

        At a variance of 0 they are the log probability and its derivatives.
        """
        moments = self.standard(
            value, (mean + self.shift) / self.scale, variance / jnp.square(self.scale)
        )
        gradient, curvature = (
            moments.gradient / self.scale,
            moments.curvature / jnp.square(self.scale),
        )
        if self.lapse is None:
            return TiltedMoments(moments.log_normalizer, gradient, curvature)
        total = self.with_lapses(moments.log_normalizer, value)
        # Probability that the answer was meant, after it was seen.
        meant = jnp.exp(jnp.log1p(-self.lapse) + moments.log_normalizer - total)
        return TiltedMoments(
            total, meant * gradient, meant * curvature - meant * (1 - meant) * jnp.square(gradient)
        )

    def with_lapses(self, log_probability: Array, value: Array) -> Array:
        """Log probability of an answer with lapses, from that without."""
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
        return jax.random.bernoulli(key, self.mean, sample_shape + self.batch_shape).astype(
            jnp.int32
        )

    def log_prob(self, value: ArrayLike) -> Array:
        """Log probability of an answer."""
        log_probability = self.log_chance(jnp.where(value, self.location, -self.location))
        return self.with_lapses(log_probability, jnp.asarray(value))

    def standard(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments under a cavity of the standardized gap."""
        raise NotImplementedError

    def predict(self, mean: Array, variance: Array) -> dict[str, Array]:
        """Chance of the next answer for a gap N(mean, variance): ``probability`` of the first."""
        return {
            "probability": jnp.exp(self.tilted(jnp.ones_like(mean), mean, variance).log_normalizer)
        }


class OfComparison(TreeDistribution):
    """Answers whose distribution is made of that of ``single`` ones."""

    single: Comparison

    @property
    def support(self) -> Any:
        return self.single.support

    @property
    def predictor(self) -> Array:
        return self.single.gap

    @property
    def log_concave(self) -> bool:
        return self.single.log_concave


class ProbitComparison(Comparison):
    """The first is preferred (value 1, else 0) with probability Φ((gap + shift)/scale).

    This is XPGP section 3.2 with √2 σ = 1. Parameters as in `Comparison`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from relpref.likelihoods import ProbitComparison
    >>> float(ProbitComparison(jnp.zeros(())).mean)
    0.5
    """

    chance = staticmethod(ndtr)
    log_chance = staticmethod(log_ndtr)

    def standard(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Closed form (XPGP eq. 11, with its sign y written out)."""
        sign = jnp.where(value, 1.0, -1.0).astype(mean.dtype)
        scale = 1 / jnp.sqrt(1 + variance)
        z = sign * mean * scale
        return TiltedMoments(
            log_ndtr(z), sign * mills_ratio(z) * scale, log_ndtr_curvature(z) * scale**2
        )


class GradedComparison(Comparison):
    """A noisy gap cut into grades by thresholds that are symmetric around 0.

    With z = gap + shift + scale·ε, ε standard normal, and thresholds 0 ≤ t₁ < … < t_S the answer is
    0, a tie, where ``|z| < t₁``, and k
    or −k where z or −z lies between ``t_k`` and ``t_{k+1}``; ``t_{S+1}`` is infinite. A t₁ of 0
    means that there are no ties. One threshold is the model of Glenn & David (1960), "Ties in
    paired-comparison experiments using a modified Thurstone-Mosteller model".

    Parameters
    ----------
    gap, scale, shift, lapse
        As in `Comparison`; the grades from −S to S are offered, 0 only where t₁ > 0.
    thresholds : Array, shape (S,) or (m, S)
        In units of the gap; of all answers or of each.
    """

    leaves = (*Comparison.leaves, "thresholds")
    draw = staticmethod(jax.random.normal)  # noise
    # Probability that the gap, of a mean and a variance, is positive when it is seen with noise of
    # a scale.
    seen_positive = staticmethod(
        lambda mean, variance, scale: ndtr(mean / (scale * scale + variance) ** 0.5)
    )

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

    def threshold(self, number: Array) -> Array:
        """The thresholds of these numbers, from 0, one for each answer."""
        rows = jnp.broadcast_to(self.thresholds, (*jnp.shape(number), self.strengths))
        return jnp.take_along_axis(rows, number[..., None], axis=-1)[..., 0]

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
        z = self.gap + self.shift + self.scale * self.draw(key, shape, self.gap.dtype)
        grade = jnp.sum(jnp.abs(z)[..., None] > self.thresholds, axis=-1)
        answer = jnp.sign(z) * grade
        if self.lapse is not None:
            lapses, which = jax.random.split(jax.random.fold_in(key, 1))
            grades = np.arange(-self.strengths, self.strengths + 1)
            offered = [self.at_random(jnp.full(self.batch_shape, each)) for each in grades]
            chances = jnp.stack(jnp.broadcast_arrays(*offered), axis=-1)
            random = jax.random.categorical(which, jnp.log(chances), shape=shape) - self.strengths
            answer = jnp.where(jax.random.bernoulli(lapses, self.lapse, shape), random, answer)
        return answer.astype(jnp.int32)

    def log_prob(self, value: ArrayLike) -> Array:
        """Log probability of a grade; minus infinity of one that does not exist."""
        value = jnp.asarray(value)
        log_probability = self.tilted(value, self.gap, jnp.zeros_like(self.gap)).log_normalizer
        return jnp.where(jnp.abs(value) <= self.strengths, log_probability, -jnp.inf)

    def at_random(self, value: Array) -> Array | float:
        """1/(2S + 1), or 1/(2S) where there are no ties."""
        ties = self.thresholds[..., 0] > 0
        return jnp.where((value != 0) | ties, 1 / (2 * self.strengths + ties), 0.0)

    def standard(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Closed form: Φ at the ends of the grade's interval, divided by √(1 + v)."""
        value = jnp.clip(value, -self.strengths, self.strengths)
        grade, sign = jnp.abs(value), jnp.where(value < 0, -1.0, 1.0).astype(mean.dtype)
        scale = 1 / jnp.sqrt(1 + variance)
        top = grade == self.strengths
        start = self.threshold(jnp.maximum(grade - 1, 0)) / self.scale
        end = self.threshold(jnp.minimum(grade, self.strengths - 1)) / self.scale
        lower = jnp.where(grade == 0, -end, start) - sign * mean
        width = jnp.where(grade == 0, 2 * end, end - start) * scale
        moments = interval_moments(lower * scale, jnp.where(top, jnp.inf, width))
        return TiltedMoments(
            moments.log_normalizer,
            sign * moments.gradient * scale,
            moments.curvature * jnp.square(scale),
        )

    def predict(self, mean: Array, variance: Array) -> dict[str, Array]:
        """Chances of the next answer: ``probability`` of the first at any strength, ``tie``."""
        return graded_chances(
            mean,
            variance,
            self.scale,
            self.shift,
            self.lapse,
            self.thresholds[..., 0],
            self.strengths,
            self.seen_positive,
        )


class LogisticComparison(Comparison):
    """The first is preferred (value 1, else 0) with probability σ((gap + shift)/scale).

    σ is the logistic function. With a scale of 1 the gap is the log odds, as in Bradley & Terry
    (1952), "Rank analysis of incomplete block designs". Tilted moments come from quadrature, to
    1e-9. σ(x) is near Φ(x/1.7): utilities come out about 1.7 times as large as with
    `ProbitComparison`. Parameters as in `Comparison`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from relpref.likelihoods import LogisticComparison
    >>> float(LogisticComparison(jnp.zeros(())).mean)
    0.5
    """

    noise = GUMBEL
    chance = staticmethod(jax.nn.sigmoid)
    log_chance = staticmethod(jax.nn.log_sigmoid)

    def standard(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        sign = jnp.where(value, 1.0, -1.0).astype(mean.dtype)
        z = sign * mean
        _, gradient, curvature = sigmoid_moments(z, variance)
        return TiltedMoments(log_expected_sigmoid(z, variance), sign * gradient, curvature)


class LogisticGradedComparison(GradedComparison):
    """A `GradedComparison` with standard logistic noise.

    One threshold t is the model of Rao & Kupper (1967), "Ties in paired-comparison experiments: a
    generalization of the Bradley-Terry model": the first is preferred with probability σ(gap − t),
    their θ is exp(t). Log-concave; moments as of `LogisticComparison`, to 1e-9 up to thresholds of
    10 scales. Parameters as in `GradedComparison`.
    """

    noise = GUMBEL
    draw = staticmethod(jax.random.logistic)
    seen_positive = staticmethod(
        lambda mean, variance, scale: jnp.exp(
            log_expected_sigmoid(mean / scale, variance / scale**2)
        )
    )

    def standard(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments by quadrature.

        σ(z − a) − σ(z − b) = σ(z − a) σ(b − z) (1 − e^(a − b)), which is σ(z − a) where b is
        infinite.
        """
        value = jnp.clip(value, -self.strengths, self.strengths)
        grade, sign = jnp.abs(value), jnp.where(value < 0, -1.0, 1.0).astype(mean.dtype)
        top = grade == self.strengths
        start = self.threshold(jnp.maximum(grade - 1, 0)) / self.scale
        end = self.threshold(jnp.minimum(grade, self.strengths - 1)) / self.scale
        center = jnp.where(grade == 0, 0.0, jnp.where(top, start, 0.5 * (start + end)))
        half = jnp.where(top, 0.0, jnp.where(grade == 0, end, 0.5 * (end - start)))
        log_share = jnp.where(top, 0.0, jnp.log(-jnp.expm1(-2 * jnp.where(top, 1.0, half))))
        closed = jnp.where(top, 0.0, 1.0)[..., None]

        def log_factor(z: Array) -> tuple[Array, Array, Array]:
            above, below = z + half[..., None], half[..., None] - z
            value = (
                jax.nn.log_sigmoid(above)
                + closed * jax.nn.log_sigmoid(below)
                + log_share[..., None]
            )
            up, down = jax.nn.sigmoid(above), jax.nn.sigmoid(below)
            return value, 1 - up - closed * (1 - down), up * (1 - up) + closed * down * (1 - down)

        moments = log_concave_moments(log_factor, sign * mean - center, variance)
        return TiltedMoments(moments.log_normalizer, sign * moments.gradient, moments.curvature)


class DavidsonComparison(GradedComparison):
    """Comparisons with the ties of Davidson (1970).

    The paper is "On extending the Bradley-Terry model to accommodate ties in paired comparison
    experiments". With z = (gap + shift)/scale the odds of first, tie and second are e^(z/2) : ν :
    e^(−z/2), so that, ties aside, answers are those of `LogisticComparison`. ν = e^(t/scale) − 1:
    two equals tie as often as with the margin t in `LogisticGradedComparison`. Log-concave; moments
    as there. Parameters as in `GradedComparison`, with one threshold t.
    """

    noise = GUMBEL

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        answers = jnp.array([-1, 0, 1])
        chances = jnp.stack(
            [self.log_prob(jnp.full(self.batch_shape, answer)) for answer in answers], -1
        )
        return answers[jax.random.categorical(key, chances, shape=sample_shape + self.batch_shape)]

    def standard(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments by quadrature."""
        sign = jnp.where(value < 0, -1.0, 1.0).astype(mean.dtype)
        tied = (value == 0)[..., None]
        log_nu = jnp.log(jnp.expm1(self.thresholds[..., 0] / self.scale))[..., None]

        def log_factor(z: Array) -> tuple[Array, Array, Array]:
            total = jnp.logaddexp(jnp.logaddexp(0.5 * z, -0.5 * z), log_nu)
            first, second = jnp.exp(0.5 * z - total), jnp.exp(-0.5 * z - total)
            slope = 0.5 * (first - second)  # of log total
            bend = 0.25 * (first + second) - jnp.square(slope)
            return jnp.where(tied, log_nu, 0.5 * z) - total, jnp.where(tied, 0.0, 0.5) - slope, bend

        moments = log_concave_moments(log_factor, sign * mean, variance)
        return TiltedMoments(moments.log_normalizer, sign * moments.gradient, moments.curvature)

    def predict(self, mean: Array, variance: Array) -> dict[str, Array]:
        """Chances of the next answer: ``probability`` of the first, and ``tie``."""
        where = (mean + self.shift) / self.scale, variance / jnp.square(self.scale)
        favored, tie = (
            jnp.exp(self.standard(jnp.full(mean.shape, answer), *where).log_normalizer)
            for answer in (1, 0)
        )
        return with_lapses(favored, tie, self.lapse, self.thresholds[..., 0], 1)


class SoftComparison(Comparison):
    """A reported probability p that the first is the better.

    Φ⁻¹(p) = gap + shift + scale·ε, ε standard normal. A report of 0.9 says that the gap is near
    Φ⁻¹(0.9) = 1.28, with more force the smaller ``scale`` is; it is not nine answers out of ten.
    The answer is Gaussian on the probit scale, so expectation propagation is exact; the log density
    is that of p itself. Parameters as in `Comparison`, without lapses; ``scale`` is the error of a
    report.
    """

    support = constraints.open_interval(0.0, 1.0)
    outcomes = None

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Reports; never 0 or 1, to which Φ is rounded far out."""
        noise = jax.random.normal(key, sample_shape + self.batch_shape, self.gap.dtype)
        limits = np.finfo(noise.dtype)
        report = ndtr(self.gap + self.shift + self.scale * noise)
        return jnp.clip(report, limits.tiny, 1 - limits.epsneg)

    def log_prob(self, value: ArrayLike) -> Array:
        """Log density of p."""
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
        """Log density of the report whose Φ⁻¹ is ``node`` sds above its expectation."""
        total = variance + jnp.square(self.scale)
        report = mean + self.shift + jnp.sqrt(total) * node
        # The density of Φ(report) is that of the report divided by φ(report).
        return -0.5 * (jnp.square(node) + jnp.log(total)) + 0.5 * jnp.square(report)

    def predict(self, mean: Array, variance: Array) -> dict[str, Array]:
        """Expectation of the next report, E[Φ(gap + shift + scale·ε)], called ``probability``."""
        chances = graded_chances(
            mean, 1 + variance, self.scale, self.shift, chance=GradedComparison.seen_positive
        )
        return {"probability": chances["probability"]}


@lazy_jit(static_argnums=0)
def predicted(
    model: Any,
    asked: Comparisons,
    parameters: Mapping[str, Array],
    means: Array,
    variances: Array,
    weights: Array,
) -> dict[str, Array]:
    """Predictions of the next answers, as `AnswerModel.predict` gives them without JAX.

    Gaps are mixtures of s Gaussians: means and variances of shape (s, k), weights of shape (s,),
    parameters of shape (s, ...) or (1, ...).
    """

    def predict(component: tuple[Mapping[str, Array], Array, Array]) -> dict[str, Array]:
        parameters, mean, variance = component
        return model(real(mean), asked, **parameters).predict(real(mean), real(variance))

    # A fixed parameter beside draws of the others has one value for all.
    size = len(means)
    spread = {
        site: jnp.broadcast_to(value, (size, *value.shape[1:]))
        for site, value in parameters.items()
    }
    expected = jax.lax.map(predict, (spread, means, variances))
    return {name: jnp.asarray(weights) @ value for name, value in expected.items()}
