"""Answers to "which of two is better?": their distributions, and the models that choose one by the columns of the answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import ndtr, ndtri
from jax.typing import ArrayLike
from numpy.typing import NDArray
from numpyro.distributions import constraints

from relpref.data import Comparisons
from relpref.description import Description
from relpref.errors import DataError
from relpref.likelihoods.tilted import (
    TiltedMoments,
    TreeDistribution,
    interval_moments,
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
        Of the noise, for example larger for a careless rater.
    shift : Array, shape () or (m,)
        Added to the gap, for example where the item that is shown first gains by it.
    lapse : Array, shape () or (m,), optional
        Share of answers that are given at random, each of the K offered outcomes equally often: lapse/K + (1 − lapse)·p, which is not
        log-concave in the gap. None: there are none.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "gap": constraints.real,
        "scale": constraints.positive,
        "shift": constraints.real,
    }
    leaves: ClassVar[tuple[str, ...]] = ("gap", "scale", "shift", "lapse")
    support: Any = constraints.boolean
    # Of two outcomes: probability that the first is preferred at a standardized gap, (gap + shift)/scale, and its logarithm.
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
        """Values of an answer, and how much each favors the first, from 0 to 1; None of a Gaussian number."""
        return np.array([0, 1], dtype=np.int32), np.array([0.0, 1.0])

    @property
    def outermost(self) -> Array:
        """The largest threshold between outcomes, in units of the gap."""
        return jnp.zeros((), self.gap.dtype)

    @property
    def location(self) -> Array:
        return (self.gap + self.shift) / self.scale

    def tilted(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments under the cavity N(mean, variance) of the gap; at a variance of 0 log_prob and its derivatives."""
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
        """Log probability of an answer, given that without lapses."""
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
        """Log probability of an answer."""
        log_probability = self.log_chance(jnp.where(value, self.location, -self.location))
        return self.with_lapses(log_probability, jnp.asarray(value))

    def standard(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        """Moments under a cavity of the standardized gap."""
        raise NotImplementedError

    def predict(self, mean: Array, variance: Array) -> dict[str, Array]:
        """Of the next answer, where the gap is N(mean, variance): ``probability`` that it favors the first."""
        return {"probability": jnp.exp(self.tilted(jnp.ones_like(mean), mean, variance).log_normalizer)}


class ProbitComparison(Comparison):
    """The first is preferred (value 1, else 0) with probability Φ((gap + shift)/scale) (XPGP section 3.2, with √2 σ = 1).

    Parameters as in `Comparison`.
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
    """A noisy gap cut into grades by thresholds that are symmetric around 0.

    With z = gap + shift + scale·ε, ε standard normal, and thresholds 0 ≤ t₁ < … < t_S the answer is 0, a tie, where ``|z| < t₁``, and k
    or −k where z or −z lies between ``t_k`` and ``t_{k+1}``; ``t_{S+1}`` is infinite. A t₁ of 0 means that there are no ties. One
    threshold is the model of Glenn & David (1960), "Ties in paired-comparison experiments using a modified Thurstone-Mosteller model".

    Parameters
    ----------
    gap, scale, shift, lapse
        As in `Comparison`; the grades from −S to S are offered, 0 only where t₁ > 0.
    thresholds : Array, shape (S,)
        In units of the gap.
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
        """Log probability of a grade; minus infinity of one that does not exist."""
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
        """Of the next answer: ``probability`` that it favors the first, by whatever strength, and of a ``tie``."""
        total = jnp.sqrt(jnp.square(self.scale) + variance)
        ends = [(self.shift + mean + side * self.thresholds[0]) / total for side in (-1, 1)]
        favoured, not_beaten = map(ndtr, ends)
        tie = not_beaten - favoured
        if self.lapse is not None:
            side, neither = (self.at_random(jnp.asarray(value)) for value in (1, 0))
            favoured = self.lapse * side * self.strengths + (1 - self.lapse) * favoured
            tie = self.lapse * neither + (1 - self.lapse) * tie
        return {"probability": favoured, "tie": tie}


class LogisticComparison(Comparison):
    """The first is preferred (value 1, else 0) with probability σ((gap + shift)/scale), σ the logistic function.

    With a scale of 1 the gap is the log odds, as in Bradley & Terry (1952), "Rank analysis of incomplete block designs". Tilted moments
    come from quadrature, to 1e-9. σ(x) is near Φ(x/1.7): utilities come out about 1.7 times as large as with `ProbitComparison`.
    Parameters as in `Comparison`.
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

    A report of 0.9 says that the gap is near Φ⁻¹(0.9) = 1.28, with more force the smaller ``scale`` is; it is not nine answers out of
    ten. The answer is Gaussian on the probit scale, so expectation propagation is exact; the log density is that of p itself.
    Parameters as in `Comparison`, without lapses; ``scale`` is the error of a report.
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
        """Log density of the report whose Φ⁻¹ lies ``node`` standard deviations above its expectation."""
        total = variance + jnp.square(self.scale)
        report = (
            mean + self.shift + jnp.sqrt(total) * node
        )  # the density of Φ(report) is the report's own over φ(report)
        return -0.5 * (jnp.square(node) + jnp.log(total)) + 0.5 * jnp.square(report)

    def predict(self, mean: Array, variance: Array) -> dict[str, Array]:
        """Of the next report: ``probability``, its expectation E[Φ(gap + shift + scale·ε)]."""
        spread = jnp.sqrt(1 + jnp.square(self.scale) + variance)
        return {"probability": ndtr((mean + self.shift) / spread)}


# Parameters of which there is one for each member of a plate.
PLATES = {"rater_noise": "rater"}


@runtime_checkable
class AnswerModel(Protocol):
    """How answers come about."""

    def parameters(self, answers: Comparisons) -> Mapping[str, dist.Distribution]:
        """Its parameters for these columns, by site, and their default priors; those of `PLATES` for one member."""

    def value(self, answers: Comparisons) -> Array:
        """What was observed, shape (m,)."""

    def __call__(self, gap: Array, answers: Comparisons, **parameters: Array) -> Comparison:
        """The distribution of the answers, given the gaps of winner and loser, shape (m,)."""

    # It may also have ``describe(answers=None) -> relpref.description.Description``, where ``answers`` are the columns of the fit, and
    # ``columns``, the optional columns among "tie", "strength" and "probability" that it has a place for; without it, none.


@dataclass(frozen=True)
class _Noisy:
    """The columns of answers as parameters and values, whatever the noise on the gap."""

    columns: ClassVar[tuple[str, ...]]
    noise: ClassVar[str]

    lapse: bool = False

    def parameters(self, answers: Comparisons) -> Mapping[str, dist.Distribution]:
        """Those of the columns that are there.

        Raises
        ------
        DataError
            If there is a column that the likelihood does not use.
        """
        for column in ("tie", "strength", "probability"):
            random = self.lapse and column == "probability"  # there is no number of outcomes to choose from
            if getattr(answers, column) is not None and (random or column not in self.columns):
                raise DataError(
                    f"the likelihood {type(self).__name__}({'lapse=True' if self.lapse else ''}) does not use the column {column!r} of the "
                    "answers; use the default likelihood, Probit(), or leave the column out"
                )
        found: dict[str, dist.Distribution] = {}
        if self.lapse:
            found["lapse"] = dist.Beta(1.0, 19.0)
        if answers.tie is not None:
            found["tie_margin"] = dist.HalfNormal(1.0)
        if answers.strength is not None and answers.strengths > 1:
            found["strength_steps"] = dist.HalfNormal(1.0).expand([answers.strengths - 1]).to_event(1)
        if answers.probability is not None:
            found["soft_noise"] = dist.HalfNormal(1.0)
        if answers.rater is not None:
            found["rater_noise"] = dist.LogNormal(0.0, 0.5)
        if answers.shown_first is not None:
            found["position_bias"] = dist.Normal(0.0, 0.5)
        return found

    def value(self, answers: Comparisons) -> Array:
        """The probability; or the strength, 0 for a tie; or 1."""
        if answers.probability is not None:
            return real(answers.probability)
        if answers.strength is not None:
            return jnp.asarray(answers.strength)
        won = jnp.ones(answers.winner.shape, jnp.int32)
        return won if answers.tie is None else jnp.where(answers.tie, 0, won)

    def seen(self, answers: Comparisons, parameters: Mapping[str, Array]) -> dict[str, Any]:
        """Scale, shift and lapse of a `Comparison`; neutral where a column is missing."""
        scale = 1.0 if answers.rater is None else parameters["rater_noise"][answers.rater]
        bias = answers.shown_first
        shift = 0.0 if bias is None else parameters["position_bias"] * real(bias)
        return {"scale": scale, "shift": shift, "lapse": parameters.get("lapse")}

    def described(self, answers: Comparisons | None, sentence: str, citation: str | None) -> Description:
        """The sentence, with what is said of raters, positions and lapses."""
        if answers is not None and answers.rater is not None:
            sentence += f" The {self.noise} noise of each rater has a scale of its own, 1 for a typical one."
        if answers is not None and answers.shown_first is not None:
            sentence += " The item that is shown first may gain by it."
        if self.lapse:
            sentence += (
                " Some answers are given at random, whatever the difference; their share is a hyperparameter."
            )
        return Description(sentence, citation, _MEANINGS)


@jax.tree_util.register_static
@dataclass(frozen=True)
class Probit(_Noisy):
    """Gaussian noise on the gap; what is made of the noisy gap follows from the columns that are there.

    Winners alone are `ProbitComparison`, ties and strengths `GradedComparison`, probabilities `SoftComparison`. With raters, each has
    a noise of their own; where the data says which of two was shown first, that one may gain by it.

    Parameters
    ----------
    lapse : bool
        Whether some answers are given at random, each of the K offered outcomes equally often: (1 − ε)·p + ε/K. K is 2, or 3 with ties;
        with S strengths 2S, or 2S + 1. The share ε is learned. Not of reported probabilities.

    Notes
    -----
    ``lapse``: Beta(1, 19): one answer in twenty on average.
    ``tie_margin``: half-normal, scale 1: a gap within it, noise included, is a tie. ``strength_steps``: half-normal, scale 1 each;
    from one strength to the next. ``soft_noise``: half-normal, scale 1: error of a reported probability, on the probit scale.
    ``rater_noise``: log-normal around 1, log-sd ½, so that most raters are within a factor of 2.7 of the typical one; 1 is the unit
    of the utilities. ``position_bias``: normal, sd ½: what an item gains by being shown first.
    """

    columns: ClassVar[tuple[str, ...]] = ("tie", "strength", "probability")
    noise: ClassVar[str] = "Gaussian"

    def __call__(self, gap: Array, answers: Comparisons, **parameters: Array) -> Comparison:
        """The distribution of the answers."""
        seen = self.seen(answers, parameters)
        if answers.probability is not None:
            return SoftComparison(gap, scale=parameters["soft_noise"] * seen["scale"], shift=seen["shift"])
        if answers.tie is None and answers.strength is None:
            return ProbitComparison(gap, **seen)
        zero = jnp.zeros_like(gap, shape=())
        # A prior of one's own may be that of one step for all.
        steps = jnp.broadcast_to(parameters.get("strength_steps", zero), (answers.strengths - 1,))
        thresholds = jnp.concatenate([jnp.zeros_like(steps, shape=(1,)), jnp.cumsum(steps)])
        return GradedComparison(gap, parameters.get("tie_margin", zero) + thresholds, **seen)

    def describe(self, answers: Comparisons | None = None) -> Description:
        """What is made of the columns of ``answers``; without any, of winners."""
        citation, kinds = None, []
        if answers is not None and answers.tie is not None:
            kinds.append("a tie where it is small")
        if answers is not None and answers.strength is not None:
            kinds.append("the stronger the larger it is")
        if answers is not None and answers.probability is not None:
            sentence = (
                "A reported probability is Φ of the difference of two utilities, seen with a Gaussian error."
            )
        elif kinds:
            sentence = f"An answer follows the difference of two utilities, seen with Gaussian noise: {' and '.join(kinds)} (Glenn and David 1960)."
            citation = (
                "W. A. Glenn and H. A. David (1960). Ties in Paired-Comparison Experiments Using a Modified Thurstone-Mosteller "
                "Model. Biometrics 16(1)."
            )
        else:
            sentence = "An answer favors the first of two with the probability Φ of the difference of their utilities."
        return self.described(answers, sentence, citation)


@jax.tree_util.register_static
@dataclass(frozen=True)
class Logistic(_Noisy):
    """Logistic noise on the gap, for winners: the model of Bradley & Terry, see `LogisticComparison`.

    Parameters
    ----------
    lapse : bool
        As in `Probit`; so are the priors of ``lapse``, ``rater_noise`` and ``position_bias``.
    """

    columns: ClassVar[tuple[str, ...]] = ()
    noise: ClassVar[str] = "logistic"

    def __call__(self, gap: Array, answers: Comparisons, **parameters: Array) -> Comparison:
        """The distribution of the answers."""
        return LogisticComparison(gap, **self.seen(answers, parameters))

    def describe(self, answers: Comparisons | None = None) -> Description:
        return self.described(
            answers,
            "An answer favors the first of two with the probability of the logistic function of the difference of their utilities "
            "(Bradley and Terry 1952).",
            "R. A. Bradley and M. E. Terry (1952). Rank Analysis of Incomplete Block Designs: I. The Method of Paired Comparisons. "
            "Biometrika 39(3/4).",
        )


_MEANINGS = {
    "tie_margin": "Tie margin: an answer is a tie where the difference of utilities, noise included, is smaller than this.",
    "strength_steps": (
        "Strength steps: by how much the difference of utilities, noise included, must be larger for an answer one grade stronger."
    ),
    "soft_noise": "Soft noise: the error of a reported probability on the probit scale, where 1 is the noise of a plain answer.",
    "rater_noise": (
        "Rater noise: how careless a rater is. 1 is a typical one; at 2, differences must be twice as large to be seen as often."
    ),
    "lapse": "Lapse: the share of answers that are given at random, whatever the difference of utilities.",
    "position_bias": "Position bias: what an item gains by being shown first, in units of utility; negative if it loses.",
}


def answer_model(likelihood: Any) -> AnswerModel:
    """The model that a program's ``likelihood=`` names: an instance, or None for `Probit`.

    Raises
    ------
    DataError
        If it is anything else.
    """
    if likelihood is None:
        return Probit()
    if isinstance(likelihood, type) or not isinstance(likelihood, AnswerModel):
        raise DataError(
            f"likelihood is {likelihood!r}; give an instance, such as relpref.likelihoods.Logistic(), or leave it out"
        )
    return likelihood
