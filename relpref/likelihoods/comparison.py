"""Distributions of answers to "which of two is better?"."""

from collections.abc import Mapping
from copy import copy
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpy.typing import NDArray
from numpyro.distributions import constraints
from scipy import special

from relpref.compiled import compiled
from relpref.data import Comparisons
from relpref.likelihoods.chances import ROUNDING, with_lapses
from relpref.likelihoods.orders import GAUSSIAN, GUMBEL, Noise
from relpref.likelihoods.powers import Answer, power_moments, shares
from relpref.likelihoods.tilted import (
    TiltedMoments,
    TreeDistribution,
    interval_log,
    interval_moments,
    log_expected_sigmoid,
    log_ndtr,
    log_sigmoid,
    ndtr_moments,
    sigmoid,
    sigmoid_moments,
)
from relpref.linalg.arrays import as_array, namespace, summed_to
from relpref.linalg.covariance import Pulls
from relpref.skeleton import evaluated


def _weighted(slope: Array, weight: Array) -> Array:
    """Derivatives, shape (..., m) or (..., m, k), times weights; 0 where these are."""
    weight = weight.reshape(weight.shape + (1,) * (slope.ndim - weight.ndim))
    return namespace(slope, weight).where(weight == 0, 0.0, slope * weight)


def ndtr(x: Array) -> Array:
    return (jax.scipy.special if namespace(x) is jnp else special).ndtr(x)


def ndtri(x: Array) -> Array:
    return (jax.scipy.special if namespace(x) is jnp else special).ndtri(x)


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
    closed: ClassVar[bool] = True  # whether moments are in closed form, without lapses or with
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
        xp = namespace(gap, scale, shift, lapse)
        self.gap = as_array(xp, gap)
        self.scale, self.shift = (as_array(xp, x, self.gap.dtype) for x in (scale, shift))
        self.lapse = None if lapse is None else as_array(xp, lapse, self.gap.dtype)
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
    def outermost(self) -> Any:
        """The largest threshold between outcomes, in units of the gap."""
        return np.zeros(())

    @property
    def location(self) -> Array:
        return (self.gap + self.shift) / self.scale

    def tilted(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments under the cavity N(mean, variance) of the gap.

        At a variance of 0 they are the log probability and its derivatives.
        """
        cavity = (mean + self.shift) / self.scale, variance / self.scale**2
        return self._seen(value, self.standard(value, *cavity))

    def point(self, value: Array, gap: Array) -> TiltedMoments:
        """The log probability and its derivatives at gaps, shape (..., m)."""
        return self._seen(value, self.standard_point(value, (gap + self.shift) / self.scale))

    def log_at(self, value: Array, gap: Array) -> Array:
        """The log probability at gaps, shape (..., m)."""
        return self.with_lapses(self.standard_log(value, (gap + self.shift) / self.scale), value)

    def _seen(self, value: Array, moments: TiltedMoments) -> TiltedMoments:
        """Moments by the gap, with lapses, from those of the standardized gap without."""
        gradient, curvature = moments.gradient / self.scale, moments.curvature / self.scale**2
        if self.lapse is None:
            return TiltedMoments(moments.log_normalizer, gradient, curvature)
        xp = namespace(moments.log_normalizer, self.lapse)
        total = self.with_lapses(moments.log_normalizer, value)
        # Probability that the answer was meant, after it was seen.
        meant = xp.exp(xp.log1p(-self.lapse) + moments.log_normalizer - total)
        return TiltedMoments(
            total, meant * gradient, meant * curvature - meant * (1 - meant) * gradient**2
        )

    def rows(self, index: Any) -> "Comparison":
        """The answers of some rows, with an entry for each in all leaves."""
        xp, chosen = namespace(self.gap), copy(self)
        for name in self.leaves:
            leaf = getattr(self, name)
            if leaf is not None:
                more = leaf.shape[-1:] if name == "steps" else ()
                setattr(chosen, name, xp.broadcast_to(leaf, (*self.gap.shape, *more))[index])
        return chosen

    @property
    def copied(self) -> bool:
        """Whether equal answers have a site each, as those of a class from outside.

        Its moments may need JAX, and too many of them would be needed.
        """
        return not type(self).__module__.startswith("relpref.")

    def holding(self, value: Array) -> "Comparison":
        """The same, with what follows from the value alone computed once for many points."""
        return self

    def answer(self, value: Array) -> Answer:
        """The likelihood of a value, as a function of gaps."""
        seen, plain = self.holding(value), None
        if self.lapse is not None:
            without = copy(self)
            without.lapse = None
            plain = without.answer(value)
        return Answer(partial(seen.point, value), partial(seen.log_at, value), self.scale, plain)

    def powered(self, value: Array, mean: Array, variance: Array, power: Any) -> TiltedMoments:
        """Moments of powers p^n, see `tilted`; n is ``power``, shape () or (m,)."""
        xp = namespace(mean, self.gap)
        if self.copied or (isinstance(power, float) and power == 1):
            return self.tilted(value, mean, variance)
        n, value = xp.broadcast_to(power, mean.shape), xp.broadcast_to(value, mean.shape)
        if xp is not np:
            once = self.tilted(value, mean, variance)
            still = jax.lax.stop_gradient(self).answer(value)
            moments = power_moments(self.answer(value), n, mean, variance, still)
            return TiltedMoments(
                *(jnp.where(n == 1, *both) for both in zip(once, moments, strict=True))
            )
        if not np.any(variance):
            return TiltedMoments(*(n * part for part in self.point(value, mean)))
        index = np.nonzero(n != 1)
        answer = self.rows(index).answer(value[index])
        several = power_moments(answer, n[index], mean[index], variance[index])
        if len(index[0]) == mean.size:
            return TiltedMoments(*(part.reshape(mean.shape) for part in several))
        moments = self.tilted(value, mean, variance)
        for part, new in zip(moments, several, strict=True):
            part[index] = new
        return moments

    def pull(
        self,
        value: Array,
        mean: Array,
        variance: Array,
        weight: Array,
        power: Any = 1.0,
        spread: Any = 0.0,
    ) -> Pulls:
        """Derivatives of the sum of all log Ẑ of p^n, times ``weight``, in the leaves but the gap.

        Cavities are held constant. A cavity's variance adds to that of Gaussian noise, so that log
        Ẑ is a log p; where it is not in closed form, its derivative is the expectation of that of
        n log p under the tilted density. ``spread`` is used by Gaussian likelihoods, see
        `SoftComparison.pull`.
        """
        xp, once = namespace(mean, self.gap), isinstance(power, float) and power == 1
        value, mean, variance, weight, power = (
            xp.broadcast_to(array, mean.shape) for array in (value, mean, variance, weight, power)
        )
        # At a cavity without variance log Ẑ is n log p.
        by_nodes = (variance > 0) & ((power != 1) | (not self.closed))
        totals: dict[str, Array] = {}
        if self.closed or xp is not np or not np.all(by_nodes):
            seen = copy(self)
            seen.scale = xp.sqrt(xp.square(self.scale) + variance)
            totals = seen.slopes(value, mean)
            totals["scale"] = totals["scale"] * self.scale / seen.scale
            totals = {n: _weighted(each, ~by_nodes * weight * power) for n, each in totals.items()}
        index = np.indices(mean.shape).reshape(mean.ndim, -1)
        if xp is np:
            index = np.stack(np.nonzero(by_nodes & (weight != 0)))
        if index.shape[1] and not (self.closed and once):
            rows = tuple(index)
            single = self.rows(rows)
            given = single.answer(value[rows]), power[rows], mean[rows], variance[rows]
            z, share = shares(*given)
            share = share * (by_nodes * power * weight)[rows]
            for name, slope in single.slopes(value[rows], z).items():
                each = _weighted(slope, share).sum(axis=0)
                slopes = xp.zeros((*mean.shape, *each.shape[1:]))
                if xp is np:
                    slopes[rows] = each
                else:
                    slopes = each.reshape(slopes.shape)
                totals[name] = totals.get(name, 0.0) + slopes
        return {
            (name,): summed_to(total, np.shape(getattr(self, name)))
            for name, total in totals.items()
        }

    def slopes(self, value: Array, gap: Array) -> dict[str, Array]:
        """Derivatives of the log probability at gaps, shape (..., m), in leaves, by their names."""
        moments = self.point(value, gap)
        slopes = {
            "shift": moments.gradient,
            "scale": -(gap + self.shift) / self.scale * moments.gradient,
        }
        if self.lapse is not None:
            random = self.at_random(value) / namespace(gap).exp(moments.log_normalizer)
            slopes["lapse"] = (random - 1) / (1 - self.lapse)
        return slopes

    def with_lapses(self, log_probability: Array, value: Array) -> Array:
        """Log probability of an answer with lapses, from that without."""
        if self.lapse is None:
            return log_probability
        xp = namespace(log_probability, self.lapse)
        return xp.logaddexp(
            xp.log1p(-self.lapse) + log_probability, xp.log(self.lapse * self.at_random(value))
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
        return self.log_at(namespace(value, self.gap).asarray(value), self.gap)

    def standard(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments under a cavity of the standardized gap."""
        xp = namespace(mean, self.gap)

        def answer(single: "Comparison") -> Answer:
            seen = single.holding(value)
            point = partial(seen.standard_point, value)
            return Answer(point, partial(seen.standard_log, value), xp.ones(()))

        still = jax.lax.stop_gradient(self) if xp is jnp else self
        given = xp.ones_like(mean), mean, variance, answer(still)
        return power_moments(answer(self), *given)

    def standard_point(self, value: Array, z: Array) -> TiltedMoments:
        """The log probability and its derivatives at standardized gaps."""
        return self.standard(value, z, 0 * z)

    def standard_log(self, value: Array, z: Array) -> Array:
        """The log probability at standardized gaps."""
        return self.standard_point(value, z).log_normalizer

    def predict(self, mean: Array, variance: Array) -> dict[str, Array]:
        """Chance of the next answer for a gap N(mean, variance): ``probability`` of the first."""
        return {
            "probability": jnp.exp(self.tilted(jnp.ones_like(mean), mean, variance).log_normalizer)
        }


class OfComparison(TreeDistribution):
    """Answers whose distribution is made of that of ``single`` ones."""

    single: Comparison

    def rows(self, index: Any) -> Any:
        """The answers of some rows."""
        chosen = copy(self)
        for name in self.leaves:
            leaf = getattr(self, name)
            setattr(chosen, name, leaf.rows(index) if leaf is self.single else leaf[index])
        return chosen

    @property
    def support(self) -> Any:
        return self.single.support

    @property
    def copied(self) -> Any:
        """See `Comparison.copied`."""
        return self.single.copied

    @property
    def predictor(self) -> Array:
        return self.single.gap

    @property
    def log_concave(self) -> bool:
        return self.single.log_concave

    def tilted(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments of answers, see ``powered``."""
        return self.powered(value, mean, variance, 1.0)

    def powered(self, value: Array, mean: Array, variance: Array, power: Any) -> TiltedMoments:
        """Moments of powers p^n, n being ``power``."""
        raise NotImplementedError


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

    def standard_log(self, value: Array, z: Array) -> Array:
        return self.log_chance(namespace(z).where(value, z, -z))

    def standard(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Closed form (XPGP eq. 11, with its sign y written out)."""
        xp = namespace(mean, variance)
        sign = xp.where(value, 1.0, -1.0).astype(mean.dtype)
        scale = 1 / xp.sqrt(1 + variance)
        total, ratio, bend = ndtr_moments(sign * mean * scale)
        return TiltedMoments(total, sign * ratio * scale, bend * scale**2)


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

    # The first threshold, shape () or (m,), and from one to the next, shape (S − 1,) or (m, S − 1).
    leaves = (*Comparison.leaves, "margin", "steps")
    _held: tuple[Any, Any] = (None, None)  # a value and its intervals
    draw = staticmethod(jax.random.normal)  # noise
    log_density = staticmethod(lambda x: -0.5 * x * x - 0.5 * float(np.log(2 * np.pi)))

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
        xp = namespace(gap, thresholds)
        several = as_array(xp, thresholds, as_array(xp, gap).dtype)
        self.margin, self.steps = several[..., 0], xp.diff(several)
        super().__init__(gap, scale=scale, shift=shift, lapse=lapse, validate_args=validate_args)

    @classmethod
    def by_steps(cls, gap: Array, margin: Array, steps: Array, **options: Any) -> Any:
        """The distribution with given leaves.

        Sites that a program hands on as they are need no compiler.
        """
        graded, xp = cls(gap, np.zeros(1), **options), namespace(gap, margin, steps)
        graded.margin, graded.steps = as_array(xp, margin), as_array(xp, steps)
        return graded

    @property
    def thresholds(self) -> Array:
        """The thresholds, shape (S,) or (m, S)."""
        xp = namespace(self.margin, self.steps)
        above = xp.cumsum(self.steps, axis=-1)
        first = xp.zeros_like(above, shape=(*above.shape[:-1], 1))
        return self.margin[..., None] + xp.concatenate([first, above], axis=-1)

    def threshold(self, number: Array) -> Array:
        """The thresholds of these numbers, from 0, one for each answer."""
        thresholds = self.thresholds
        xp = namespace(thresholds, number)
        rows = xp.broadcast_to(thresholds, (*number.shape, self.strengths))
        return xp.take_along_axis(rows, number[..., None], axis=-1)[..., 0]

    @property
    def strengths(self) -> int:
        """Number of grades on either side, S."""
        return int(self.steps.shape[-1]) + 1

    @property
    def outcomes(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        grades = np.arange(-self.strengths, self.strengths + 1, dtype=np.int32)
        return grades, 0.5 + 0.5 * np.sign(grades)

    @property
    def outermost(self) -> Array:
        return self.thresholds.max()

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
        log_probability = super().log_prob(value)
        xp = namespace(log_probability)
        return xp.where(xp.abs(value) <= self.strengths, log_probability, -np.inf)

    def at_random(self, value: Array) -> Array | float:
        """1/(2S + 1), or 1/(2S) where there are no ties."""
        ties = self.margin > 0
        return namespace(value, ties).where(
            (value != 0) | ties, 1 / (2 * self.strengths + ties), 0.0
        )

    def standard(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Closed form: Φ at the ends of the grade's interval, divided by √(1 + v)."""
        scale = 1 / namespace(mean, variance).sqrt(1 + variance)
        sign, lower, width = self._grade(value, mean, scale)
        moments = interval_moments(lower, width)
        return TiltedMoments(
            moments.log_normalizer,
            sign * moments.gradient * scale,
            moments.curvature * scale * scale,
        )

    def standard_log(self, value: Array, z: Array) -> Array:
        if namespace(z, self.gap) is jnp:
            return super().standard_log(value, z)
        _, lower, width = self._grade(value, z)
        return interval_log(lower, width)

    def _grade(self, value: Array, z: Array, unit: Any = 1.0) -> tuple[Array, Array, Array]:
        """Signs, and the grades' intervals times ``unit``: lower ends, from ±z, and widths."""
        xp = namespace(z, self.gap)
        grade, sign, start, end = self._interval(value, xp)
        lower = xp.where(grade == 0, -end, start) - sign * z
        width = xp.where(grade == 0, 2 * end, end - start) * unit
        return sign, lower * unit, xp.where(grade == self.strengths, xp.inf, width)

    def slopes(self, value: Array, gap: Array) -> dict[str, Array]:
        slopes, z = super().slopes(value, gap), (gap + self.shift) / self.scale
        log = self.standard_log(value, z)
        thresholds = self.threshold_slopes(value, z, log)
        if self.lapse is not None:
            xp = namespace(log, self.lapse)
            meant = xp.exp(xp.log1p(-self.lapse) + log - self.with_lapses(log, value))
            thresholds = thresholds * meant[..., None]
        # The thresholds move with the scale, too: log p is a function of their ratios.
        along = (thresholds * self.thresholds).sum(axis=-1)
        scale = slopes["scale"] - along / self.scale
        above = namespace(thresholds).cumsum(thresholds[..., ::-1], axis=-1)[..., ::-1]
        return {**slopes, "scale": scale, "margin": above[..., 0], "steps": above[..., 1:]}

    def threshold_slopes(self, value: Array, z: Array, log: Array) -> Array:
        """Derivatives in each threshold, shape (..., m, S), of ``log``, that without lapses."""
        xp = namespace(z, self.gap)
        grade, sign, start, end = self._interval(value, xp)
        lower, upper = xp.where(grade == 0, -end, start) - sign * z, end - sign * z
        # Density of the noise at the ends of the interval over the probability of it.
        at_lower, at_upper = (
            (xp.exp(self.log_density(x) - log) / self.scale)[..., None] for x in (lower, upper)
        )
        number, grade = np.arange(1, self.strengths + 1), xp.asarray(grade)[..., None]
        return (number == grade + 1) * (at_upper + (grade == 0) * at_lower) - (
            number == grade
        ) * at_lower

    def holding(self, value: Array) -> "GradedComparison":
        seen = copy(self)
        seen._held = value, seen._of_value(value, namespace(value, self.gap))
        return seen

    def _interval(self, value: Array, xp: Any) -> tuple[Array, ...]:
        """Grades, signs, and the standardized ends of the grades' intervals."""
        of, interval = self._held
        return (interval if of is value else self._of_value(value, xp))[:4]

    def _of_value(self, value: Array, xp: Any) -> tuple[Array, ...]:
        """The interval, and what else does not depend on the gap."""
        value = xp.clip(value, -self.strengths, self.strengths)
        grade, sign = xp.abs(value), xp.where(value < 0, -1.0, 1.0)
        start = self.threshold(xp.maximum(grade - 1, 0)) / self.scale
        end = self.threshold(xp.minimum(grade, self.strengths - 1)) / self.scale
        return grade, sign.astype(start.dtype), start, end

    def predict(self, mean: Array, variance: Array) -> dict[str, Array]:
        """Chances of the next answer: ``probability`` of the first at any strength, ``tie``."""
        xp, coarse = namespace(mean, variance, self.gap), copy(self)
        coarse.steps, coarse.lapse, margin = self.steps[..., :0], None, self.margin
        favored, tie = (
            xp.exp(coarse.tilted(xp.full(mean.shape, answer), mean, variance).log_normalizer)
            for answer in (1, 0)
        )
        tie = xp.where(margin > 0, tie, 0.0)
        return with_lapses(favored, tie, self.lapse, margin, self.strengths)


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

    noise, closed = GUMBEL, False
    chance = staticmethod(sigmoid)
    log_chance = staticmethod(log_sigmoid)
    standard_log = ProbitComparison.standard_log

    def standard_point(self, value: Array, z: Array) -> TiltedMoments:
        sign = namespace(z).where(value, 1.0, -1.0)
        down = sigmoid(-sign * z)
        return TiltedMoments(log_sigmoid(sign * z), sign * down, down * (1 - down))

    def standard(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        sign = namespace(mean).where(value, 1.0, -1.0).astype(mean.dtype)
        z = sign * mean
        total, gradient, curvature = sigmoid_moments(z, variance)
        if namespace(z, variance) is jnp:  # with its derivatives
            total = log_expected_sigmoid(z, variance)
        return TiltedMoments(total, sign * gradient, curvature)


class LogisticGradedComparison(GradedComparison):
    """A `GradedComparison` with standard logistic noise.

    One threshold t is the model of Rao & Kupper (1967), "Ties in paired-comparison experiments: a
    generalization of the Bradley-Terry model": the first is preferred with probability σ(gap − t),
    their θ is exp(t). Log-concave; moments as of `LogisticComparison`, to 1e-9 up to thresholds of
    10 scales. Parameters as in `GradedComparison`.
    """

    noise, closed = GUMBEL, False
    draw = staticmethod(jax.random.logistic)
    log_density = staticmethod(lambda x: log_sigmoid(x) + log_sigmoid(-x))

    standard = Comparison.standard

    def _of_value(self, value: Array, xp: Any) -> tuple[Array, ...]:
        """The interval, its middle and half its width.

        Also 1 where the interval ends, or else 0, and log(1 − e^(a − b)).
        """
        grade, _, start, end = interval = super()._of_value(value, xp)
        top = grade == self.strengths
        center = xp.where(grade == 0, 0.0, xp.where(top, start, 0.5 * (start + end)))
        half = xp.where(top, 0.0, xp.where(grade == 0, end, 0.5 * (end - start)))
        log_share = xp.where(top, 0.0, xp.log(-xp.expm1(-2 * xp.where(top, 1.0, half))))
        return *interval, center, half, xp.where(top, 0.0, 1.0), log_share

    def _halves(self, value: Array, z: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Signs, ±z from the middle of the grade's interval, and the rest of `_of_value`."""
        of, parts = self._held
        _, sign, *_, center, half, inner, log_share = (
            parts if of is value else self._of_value(value, namespace(z))
        )
        return sign, sign * z - center, half, inner, log_share

    def standard_log(self, value: Array, z: Array) -> Array:
        """Closed form.

        σ(z − a) − σ(z − b) = σ(z − a) σ(b − z) (1 − e^(a − b)), which is σ(z − a) where b is
        infinite.
        """
        _, z, half, inner, log_share = self._halves(value, z)
        return log_sigmoid(z + half) + inner * log_sigmoid(half - z) + log_share

    def standard_point(self, value: Array, z: Array) -> TiltedMoments:
        sign, inside, half, inner, _ = self._halves(value, z)
        up, down = sigmoid(inside + half), sigmoid(half - inside)
        return TiltedMoments(
            self.standard_log(value, z),
            sign * (1 - up - inner * (1 - down)),
            up * (1 - up) + inner * down * (1 - down),
        )


class DavidsonComparison(GradedComparison):
    """Comparisons with the ties of Davidson (1970).

    The paper is "On extending the Bradley-Terry model to accommodate ties in paired comparison
    experiments". With z = (gap + shift)/scale the odds of first, tie and second are e^(z/2) : ν :
    e^(−z/2), so that, ties aside, answers are those of `LogisticComparison`. ν = e^(t/scale) − 1:
    two equals tie as often as with the margin t in `LogisticGradedComparison`. Log-concave; moments
    as there. Parameters as in `GradedComparison`, with one threshold t.
    """

    noise, closed = GUMBEL, False

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        answers = jnp.array([-1, 0, 1])
        chances = jnp.stack(
            [self.log_prob(jnp.full(self.batch_shape, answer)) for answer in answers], -1
        )
        return answers[jax.random.categorical(key, chances, shape=sample_shape + self.batch_shape)]

    standard, standard_log = Comparison.standard, Comparison.standard_log

    def standard_point(self, value: Array, z: Array) -> TiltedMoments:
        """Closed form."""
        xp = namespace(z)
        sign, tied = xp.where(value < 0, -1.0, 1.0), value == 0
        log_nu = xp.log(xp.expm1(self.margin / self.scale))
        total = xp.logaddexp(xp.logaddexp(0.5 * z, -0.5 * z), log_nu)
        first, second = xp.exp(0.5 * z - total), xp.exp(-0.5 * z - total)
        slope = 0.5 * (first - second)  # of log total
        return TiltedMoments(
            xp.where(tied, log_nu, 0.5 * sign * z) - total,
            xp.where(tied, 0.0, 0.5 * sign) - slope,
            0.25 * (first + second) - xp.square(slope),
        )

    def threshold_slopes(self, value: Array, z: Array, log: Array) -> Array:
        """Derivatives by ν: log p is log ν or ±z/2, less the log of e^(z/2) + e^(−z/2) + ν."""
        xp = namespace(z, self.gap)
        tie = xp.exp(self.standard_log(0 * value, z))
        unit = -xp.expm1(-self.margin / self.scale) * self.scale
        return (((value == 0) - tie) / unit)[..., None]


class SoftComparison(Comparison):
    """A reported probability p that the first is the better.

    Φ⁻¹(p) = gap + shift + scale·ε + δ, where ε is standard normal and δ is normal with an sd of
    0.01, the error of rounding: equal reports do not say that reports are exact. A report of 0.9
    says that the gap is near Φ⁻¹(0.9) = 1.28, with more force the smaller ``scale`` is; it is not
    nine answers out of ten. The answer is Gaussian on the probit scale, so expectation propagation
    is exact; the log density is that of p itself. Parameters as in `Comparison`, without lapses;
    ``scale`` is the error of a report.
    """

    support = constraints.open_interval(0.0, 1.0)
    outcomes = None

    @property
    def error_variance(self) -> Array:
        """Variance of a report around the gap, on the probit scale."""
        return self.scale**2 + ROUNDING**2

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Reports; never 0 or 1, to which Φ is rounded far out."""
        noise = jax.random.normal(key, sample_shape + self.batch_shape, self.gap.dtype)
        limits = np.finfo(noise.dtype)
        report = ndtr(self.gap + self.shift + jnp.sqrt(self.error_variance) * noise)
        return jnp.clip(report, limits.tiny, 1 - limits.epsneg)

    def gaussian_site(self, value: Array) -> tuple[Array, Array]:
        """The gap that is reported, Φ⁻¹(p) − shift, and the precision of the report."""
        peak, precision = ndtri(value) - self.shift, 1 / self.error_variance
        return peak, namespace(peak, precision).broadcast_to(precision, peak.shape)

    def tilted(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        return self.powered(value, mean, variance, 1.0)

    def point(self, value: Array, gap: Array) -> TiltedMoments:
        return self.tilted(value, gap, 0.0 * gap)

    def log_at(self, value: Array, gap: Array) -> Array:
        return self.point(value, gap).log_normalizer

    def powered(self, value: Array, mean: Array, variance: Array, power: Any) -> TiltedMoments:
        """Moments of p^n: a Gaussian of the gap with the variance of p divided by n.

        2 log Ẑ = n r² − (n − 1) log t − log(n T) − (r − shift − mean)²/T, with the report r =
        Φ⁻¹(p), its variance t and T = variance + t/n.
        """
        xp, each = namespace(mean, variance, self.gap), self.error_variance
        report, total = ndtri(value), variance + each / power
        error = report - self.shift - mean
        log_normalizer = 0.5 * (
            power * xp.square(report)
            - (power - 1) * xp.log(each)
            - xp.log(power * total)
            - xp.square(error) / total
        )
        return TiltedMoments(log_normalizer, error / total, 1 / total)

    def pull(
        self,
        value: Array,
        mean: Array,
        variance: Array,
        weight: Array,
        power: Any = 1.0,
        spread: Any = 0.0,
    ) -> Pulls:
        """Derivatives, see `Comparison.pull`, of log Ẑ less ``spread`` times its curvature."""
        _, gradient, curvature = self.powered(value, mean, variance, power)
        moved = 0.5 * (gradient**2 - curvature) + spread * curvature**2  # derivative by T
        scale = 2 * self.scale * (moved / power - 0.5 * (power - 1) / self.error_variance)
        slopes = {"shift": gradient, "scale": scale}
        return {
            (name,): summed_to(_weighted(slope, weight), np.shape(getattr(self, name)))
            for name, slope in slopes.items()
        }

    def slopes(self, value: Array, gap: Array) -> dict[str, Array]:
        _, gradient, curvature = self.point(value, gap)
        return {"shift": gradient, "scale": self.scale * (gradient**2 - curvature)}

    def log_density_at(self, node: Array, mean: Array, variance: Array) -> Array:
        """Log density of the report whose Φ⁻¹ is ``node`` sds above its expectation."""
        total = variance + self.error_variance
        report = mean + self.shift + jnp.sqrt(total) * node
        # The density of Φ(report) is that of the report divided by φ(report).
        return -0.5 * (jnp.square(node) + jnp.log(total)) + 0.5 * jnp.square(report)

    def predict(self, mean: Array, variance: Array) -> dict[str, Array]:
        """Expectation of the next report, E[Φ(gap + shift + error)], called ``probability``."""
        total = jnp.sqrt(1 + variance + self.error_variance)
        return {"probability": ndtr((mean + self.shift) / total)}


def predicted(
    model: Any, asked: Comparisons, mean: Any, variance: Any, **parameters: Any
) -> dict[str, Any]:
    """Predictions of the next answers, as `AnswerModel.predict` gives them without JAX."""
    return dict(evaluated(partial(_predicted, model), asked, mean, variance, parameters))


@compiled(static_argnums=0)
def _predicted(
    model: Any, asked: Comparisons, mean: Array, variance: Array, parameters: Mapping[str, Array]
) -> dict[str, Array]:
    predictions: dict[str, Array] = model(mean, asked, **parameters).predict(mean, variance)
    return predictions
