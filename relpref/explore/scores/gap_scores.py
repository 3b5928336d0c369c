"""What makes a pair worth asking about: scores of gaps."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtr as jax_ndtr
from numpy.typing import NDArray
from scipy.special import ndtr

from relpref.data import Comparisons
from relpref.likelihoods import AnswerModel, Comparison, GradedComparison, SoftComparison
from relpref.linalg import real
from relpref.posterior.gaussian import Floats

Positions = NDArray[np.int64]

BLOCK = 1 << 16  # pairs looked at together: their temporaries stay in the processor's cache
_MOST_ROWS = 128  # of a block: half of their square lies below the diagonal, and is looked at in vain


class Gaps(NamedTuple):
    """Differences of utilities, first less second, each by itself.

    Attributes
    ----------
    first, second : array of int
        Positions of entities, which broadcast to the shape of the moments.
    mean, variance : array
    """

    first: Positions
    second: Positions
    mean: Floats
    variance: Floats


@dataclass(frozen=True)
class Belief:
    """Mean and covariance of the utilities that a question is chosen by; never written into."""

    mean: Floats
    covariance: Floats

    def gaps(self, first: NDArray[np.integer[Any]], second: NDArray[np.integer[Any]]) -> Gaps:
        """Of pairs one by one (XPGP eq. 13-14)."""
        mean = self.mean[first] - self.mean[second]
        own = np.diagonal(self.covariance)
        variance = own[first] + own[second] - 2 * self.covariance[first, second]
        variance *= variance > self.rounding
        return Gaps(np.asarray(first), np.asarray(second), mean, variance)

    @property
    def rounding(self) -> float:
        """A variance of a gap that is 0 but for rounding: of entities that are one and the same to the model."""
        return 1e-14 * float(np.diagonal(self.covariance).max(initial=0.0))

    def responses(self, gaps: Gaps) -> Floats:
        """Covariance of every utility with each gap, shape (k, n)."""
        return np.asarray(self.covariance[gaps.first] - self.covariance[gaps.second])

    def after(self, first: int, second: int, shrinkage: float) -> "Belief":
        """With the covariance that is expected after an answer: Σ − κ Σa aᵀΣ. The mean's expectation is the mean."""
        response = self.covariance[first] - self.covariance[second]
        change = np.multiply.outer(shrinkage * response, response)
        return Belief(self.mean, np.subtract(self.covariance, change, out=change))


@dataclass(frozen=True)
class Pool:
    """The pairs that may be asked: listed ones, or all pairs of members but a few.

    Attributes
    ----------
    members : array of int, shape (k,)
        Positions of entities, ascending.
    closed : array of int, shape (2, c)
        Pairs that may not be asked, the lower position first.
    listed : array of int, shape (2, p), or None
        The pairs that may be asked, the lower position first, if they are listed.
    """

    members: Positions
    closed: Positions
    listed: Positions | None = None

    def open(self, number: int) -> Positions:
        """The listed pairs that may be asked, shape (2, q), among ``number`` entities."""
        assert self.listed is not None
        here = np.zeros(number, dtype=bool)
        here[self.members] = True
        kept = here[self.listed].all(axis=0)
        kept &= ~np.isin(self.listed[0] * number + self.listed[1], self.closed[0] * number + self.closed[1])
        return self.listed[:, kept]

    def blocks(self, belief: Belief, size: int = BLOCK) -> Iterator[tuple[Gaps, Positions]]:
        """Gaps of all pairs and which of them, as positions in the flattened block, may not be asked.

        Rows of the covariance are contiguous, so a block is a few of them from the diagonal on.
        """
        number = len(belief.mean)
        if self.listed is not None:
            first, second = self.open(number)
            for start in range(0, len(first), size):
                part = slice(start, start + size)
                yield belief.gaps(first[part], second[part]), np.zeros(0, dtype=np.int64)
            return
        members, k = self.members, len(self.members)
        mean, own = belief.mean[members], np.diagonal(belief.covariance)[members]
        closed_row, closed_column = self._closed_places(number)
        everyone, rounding = k == number, belief.rounding
        start = 0
        while start < k - 1:
            stop = min(k - 1, start + min(_MOST_ROWS, max(1, size // (k - start))))
            chosen = (
                (slice(start, stop), slice(start, None))
                if everyone
                else np.ix_(members[start:stop], members[start:])
            )
            covariance = belief.covariance[chosen]
            variance = own[start:stop, None] + own[None, start:]
            variance -= covariance
            variance -= covariance
            variance *= variance > rounding
            gaps = Gaps(
                members[start:stop, None],
                members[None, start:],
                mean[start:stop, None] - mean[None, start:],
                variance,
            )
            width, height = k - start, stop - start
            rows, columns = np.tril_indices(height)
            low, high = np.searchsorted(closed_row, (start, stop))
            shut = (closed_row[low:high] - start) * width + closed_column[low:high] - start
            yield gaps, np.concatenate([rows * width + columns, shut])
            start = stop

    def _closed_places(self, number: int) -> tuple[Positions, Positions]:
        """Places among the members of the pairs that may not be asked, sorted by the first."""
        place = np.full(number, -1)
        place[self.members] = np.arange(len(self.members))
        row, column = place[self.closed]
        here = (row >= 0) & (column >= 0)
        row, column = row[here], column[here]
        order = np.argsort(row, kind="stable")
        return row[order], column[order]


_BLOCK = 128  # pairs of one call of the compiled function: its shapes never change
# Trapezoidal rule: in steps of so many sds of the gap, or of so many noise scales where the gap is wide, on either side. The integrand
# is analytic in a strip of about two noise scales, so the error falls like exp(−2π·2/step).
_NODES, _STEP, _NOISE_STEP = 40, 0.16, 0.5
_REACH = _NODES * _NOISE_STEP  # noise scales beyond which an answer is certain, logistic noise included
_FAR = 1e6  # noise scales
_REPORTS, _REPORT_WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
_REPORT_WEIGHTS = _REPORT_WEIGHTS / _REPORT_WEIGHTS.sum()


class Forecast(NamedTuple):
    """Of the next answer about each of k pairs, whose gaps are Gaussian.

    Attributes
    ----------
    information : array, shape (k,)
        Mutual information of answer and gap, in nats.
    shrinkage : array, shape (k,)
        κ: the gap's variance v is expected to become v − κ v².
    favoured : array, shape (k,)
        Probability that the answer favours the first, a tie counting one half.
    probability, gradient, curvature : array, shape (o, k)
        Of each possible outcome: its probability, and the derivatives of log Ẑ (see `TiltedMoments`) by which it moves the belief.
    """

    information: Any
    shrinkage: Any
    favoured: Any
    probability: Any
    gradient: Any
    curvature: Any


def forecast(
    model: AnswerModel, asked: Comparisons, parameters: Mapping[str, Any], mean: Floats, variance: Floats
) -> Forecast:
    """Forecast the answers to pairs.

    Parameters
    ----------
    model : AnswerModel
    asked : Comparisons
        One row that says who is asked and how, see `relpref.posterior.utility.questions`.
    parameters : mapping from site to value
        Of the model.
    mean, variance : array, shape (k,)
        Of the gaps, first less second.
    """
    parts = []
    with jax.enable_x64(True):
        for start in range(0, len(mean), _BLOCK):
            size = min(_BLOCK, len(mean) - start)
            block = np.zeros((2, _BLOCK))
            block[:, :size] = mean[start : start + size], variance[start : start + size]
            found = _forecast(model, asked, dict(parameters), block[0], block[1])
            parts.append(Forecast(*(np.asarray(value)[..., :size] for value in found)))
    return Forecast(*(np.concatenate(values, axis=-1) for values in zip(*parts, strict=True)))


@partial(jax.jit, static_argnums=0)
def _forecast(
    model: AnswerModel, asked: Comparisons, parameters: Mapping[str, Array], mean: Array, variance: Array
) -> Forecast:
    mean, variance = real(mean), real(variance)
    distribution = model(mean, asked, **parameters)
    if isinstance(distribution, SoftComparison):
        return _of_report(distribution, mean, variance)
    return _of_grade(distribution, lambda gap: model(gap, asked, **parameters), mean, variance)


class Noise(NamedTuple):
    """How an answer sees a gap.

    Attributes
    ----------
    scale : float
        Of the noise.
    outermost : float
        The outermost threshold between grades; 0 without grades.
    is_report : bool
        Whether the answer is the gap itself with Gaussian noise, so that what it tells has a closed form.
    """

    scale: float
    outermost: float
    is_report: bool


def noise_of(model: AnswerModel, asked: Comparisons, parameters: Mapping[str, Any]) -> Noise:
    """The noise of answers; arguments as in `forecast`."""
    with jax.enable_x64(True):
        distribution = model(jnp.zeros(1), asked, **{name: real(value) for name, value in parameters.items()})
        outermost = float(_outermost(distribution))
        return Noise(float(jnp.max(distribution.scale)), outermost, isinstance(distribution, SoftComparison))


def _of_grade(
    distribution: Comparison, at: Callable[[Array], Comparison], mean: Array, variance: Array
) -> Forecast:
    """With H(answer) − E[H(answer | gap)] for the information (Houlsby et al. 2011)."""
    values, favours = (jnp.asarray(x) for x in _outcomes(distribution))
    wide = jnp.broadcast_to(values[:, None], (len(values), *mean.shape))
    moments = distribution.tilted(wide, *(jnp.broadcast_to(x, wide.shape) for x in (mean, variance)))
    probability = jnp.exp(moments.log_normalizer)
    possible = probability > 0  # of a tie where there are none, log Ẑ is −∞ and its derivatives mean nothing
    gradient, curvature = (jnp.where(possible, x, 0.0) for x in (moments.gradient, moments.curvature))

    nodes, weights = _quadrature(distribution, mean, variance)
    # Beyond the nodes only lapses leave an answer open; by how much is known.
    open_still = _entropy(at(jnp.full((1, 1), _FAR) * jnp.max(distribution.scale)), values)
    expected = open_still[..., 0] + jnp.sum(weights * (_entropy(at(nodes), values) - open_still), axis=-1)
    information = jnp.sum(jax.scipy.special.entr(probability), axis=0) - expected
    favoured = jnp.sum(probability * favours[:, None], axis=0)
    shrinkage = jnp.sum(probability * curvature, axis=0)
    return Forecast(jnp.maximum(information, 0.0), shrinkage, favoured, probability, gradient, curvature)


def _entropy(known: Comparison, values: Array) -> Array:
    """Of an answer where the gap is known."""
    shape = known.batch_shape
    given = jnp.exp(jax.vmap(lambda value: known.log_prob(jnp.full(shape, value)))(values))
    return jnp.sum(jax.scipy.special.entr(given), axis=0)


def _of_report(distribution: SoftComparison, mean: Array, variance: Array) -> Forecast:
    # On the probit scale a report is Gaussian: everything has a closed form but the average over reports.
    total = variance + jnp.square(distribution.scale)
    reports, weights = (jnp.asarray(x)[:, None] for x in (_REPORTS, _REPORT_WEIGHTS))
    curvature = 1 / total
    return Forecast(
        0.5 * jnp.log1p(variance / jnp.square(distribution.scale)),
        curvature,
        jax_ndtr((mean + distribution.shift) / jnp.sqrt(1 + total)),
        jnp.broadcast_to(weights, (len(_REPORTS), *mean.shape)),
        reports * jnp.sqrt(curvature),
        jnp.broadcast_to(curvature, (len(_REPORTS), *mean.shape)),
    )


def _outcomes(distribution: Comparison) -> tuple[NDArray[np.int32], Floats]:
    """The values that an answer can have, and how much each is one for the first."""
    if isinstance(distribution, GradedComparison):
        grades = np.arange(-distribution.strengths, distribution.strengths + 1, dtype=np.int32)
        return grades, 0.5 + 0.5 * np.sign(grades)
    return np.array([0, 1], dtype=np.int32), np.array([0.0, 1.0])


def _outermost(distribution: Comparison) -> Array:
    return jnp.max(getattr(distribution, "thresholds", jnp.zeros(1)))


def _quadrature(distribution: Comparison, mean: Array, variance: Array) -> tuple[Array, Array]:
    """Nodes and weights, shape (k, nodes), for the entropy of an answer under N(mean, variance).

    Around the mean where the Gaussian is the narrower factor of the integrand; where the entropy is, around no gap.
    """
    steps = jnp.arange(-_NODES, _NODES + 1, dtype=mean.dtype)
    sd = jnp.sqrt(variance)[:, None]
    reach = _REACH * jnp.max(distribution.scale) + _outermost(distribution)
    widest = reach / _NODES
    narrow = _STEP * sd <= widest
    z = jnp.where(narrow, _STEP * steps, (widest * steps - mean[:, None]) / jnp.where(narrow, 1.0, sd))
    step = jnp.where(narrow, _STEP, widest / jnp.where(narrow, 1.0, sd))
    weights = step * jnp.exp(-0.5 * jnp.square(z)) / jnp.sqrt(2 * jnp.pi)
    # A little of the tails is cut off: without it the weights of the narrow rule add up to 1, and I → 0 with v.
    weights = jnp.where(narrow, weights / jnp.sum(weights, axis=-1, keepdims=True), weights)
    return mean[:, None] + sd * z, weights


Singles = NDArray[np.float32]

_ROWS, _COLUMNS = 160, 64
_FARTHEST = 8.0  # in units of √(c² + v), beyond the outermost threshold
_WIDEST = 1 - 1e-3  # 1 − c/√(c² + v): sds of the gap up to a thousand times that of the noise


@dataclass(frozen=True)
class _Same:
    key: tuple[Any, ...]
    answers: "Answers" = field(compare=False)


@lru_cache(maxsize=8)
def _shared(same: _Same) -> "Answers":
    return same.answers


@dataclass(frozen=True, eq=False)
class Answers:
    """What the answers of one rater, or of a typical one, tell about gaps.

    Attributes
    ----------
    model : AnswerModel
    asked : Comparisons
        One row that says who is asked.
    parameters : mapping from site to value
    """

    model: AnswerModel
    asked: Comparisons
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def shared(self) -> "Answers":
        """These, or equal ones that were used before and have their table: it changes with the hyperparameters only."""
        values = {**self.asked.columns, **self.parameters}
        arrays = ((name, np.asarray(value)) for name, value in values.items())
        key = tuple((name, array.shape, array.tobytes()) for name, array in arrays)
        return _shared(_Same((self.model, self.asked.strengths, *key), self))

    def forecast(self, mean: Floats, variance: Floats) -> Forecast:
        return forecast(self.model, self.asked, self.parameters, mean, variance)

    @cached_property
    def noise(self) -> Noise:
        """How an answer sees a gap."""
        return noise_of(self.model, self.asked, self.parameters)

    def information(self, gaps: Gaps) -> Floats | Singles:
        """Mutual information of answer and gap, in nats, to about a thousandth of itself."""
        if self.noise.is_report:
            return np.asarray(0.5 * np.log1p(gaps.variance / self.noise.scale**2))
        row, column, share = self._places(gaps)
        return self._interpolated(0, row, column) * share

    def shrinkage(self, gaps: Gaps) -> Floats:
        """κ of the expected variance v − κ v², to about a thousandth of itself."""
        total = 1 / (self.noise.scale**2 + gaps.variance)
        if self.noise.is_report:
            return total
        row, column, _ = self._places(gaps)
        return self._interpolated(1, row, column) * total

    def undecided(self, gaps: Gaps) -> Singles:
        """How near to one half the probability of an answer for the first is, a tie counting one half."""
        row, column, _ = self._places(gaps)
        return self._interpolated(2, row, column)

    @property
    def _farthest(self) -> float:
        return _FARTHEST + self.noise.outermost / self.noise.scale

    @cached_property
    def _table(self) -> NDArray[np.float32]:
        """Functions of t = |m|/√(c² + v) and s = 1 − c/√(c² + v), which are smooth in both; shape (3, rows · columns)."""
        t = np.linspace(0.0, self._farthest, _ROWS)[:, None]
        s = np.linspace(0.0, _WIDEST, _COLUMNS)[None, :]
        s[0, 0] = 1e-7  # the information is proportional to s there
        noise = self.noise.scale
        total = np.broadcast_to((noise / (1 - s)) ** 2, (_ROWS, _COLUMNS))
        found = self.forecast((t * np.sqrt(total)).ravel(), (total - noise**2).ravel())
        channels = (
            found.information.reshape(_ROWS, _COLUMNS) / s,
            found.shrinkage.reshape(_ROWS, _COLUMNS) * total,
            np.abs(found.favoured - 0.5).reshape(_ROWS, _COLUMNS),
        )
        return np.stack([channel.astype(np.float32).ravel() for channel in channels])

    def _places(self, gaps: Gaps) -> tuple[Singles, Singles, Singles]:
        """Of the gaps in the table: row and column, in fractions of a step, and s."""
        ratio = (gaps.variance / self.noise.scale**2).astype(np.float32)
        spread = np.sqrt(ratio + np.float32(1))
        row = np.abs((gaps.mean / self.noise.scale).astype(np.float32))
        row /= spread
        row *= np.float32((_ROWS - 1) / self._farthest)
        np.minimum(row, np.float32(_ROWS - 1.001), out=row)
        # 1 − 1/√(1 + w) = w/(√(1 + w) (1 + √(1 + w))), which keeps its digits where w is small.
        ratio /= spread
        spread += np.float32(1)
        ratio /= spread
        column = np.minimum(ratio, np.float32(_WIDEST * (1 - 1e-6)))
        column *= np.float32((_COLUMNS - 1) / _WIDEST)
        return row, column, ratio

    def _interpolated(self, channel: int, row: Singles, column: Singles) -> Singles:
        table = self._table[channel]
        i, j = row.astype(np.int32), column.astype(np.int32)
        down, right = row - i, column - j
        i *= _COLUMNS
        i += j
        top, bottom = table.take(i), table.take(i + _COLUMNS)
        i += 1
        top += right * (table.take(i) - top)
        bottom += right * (table.take(i + _COLUMNS) - bottom)
        bottom -= top
        bottom *= down
        bottom += top
        return bottom


MANY = 5000  # entities: 12.5 million pairs

Values = Callable[[Gaps], Floats | Singles]


@dataclass(frozen=True)
class State:
    """What a score may look at.

    Attributes
    ----------
    belief : Belief
        About the utilities, with what the questions before in a batch are expected to change.
    now : Belief
        Without that.
    answers : Answers
        What an answer tells.
    pool : Pool
        The pairs that may be asked.
    """

    belief: Belief
    now: Belief
    answers: Answers
    pool: Pool


class Scorer(NamedTuple):
    """A score at one state of knowledge; the larger, the better the question.

    Attributes
    ----------
    quick : callable
        Of any number of pairs; it only needs to find the best few.
    exact : callable
        Of those few, shape (k,).
    few : int
        How many those are.
    """

    quick: Values
    exact: Values
    few: int = 128


@runtime_checkable
class Score(Protocol):
    """A score of questions."""

    name: ClassVar[str]
    reason: ClassVar[str]  # why a pair that it chose is asked about, for the one who answers
    about_the_best: ClassVar[
        bool
    ]  # where there are too many entities, those with high utilities matter, not the uncertain ones
    most_entities: ClassVar[int]  # of which all pairs are looked at

    def scorer(self, state: State) -> Scorer:
        """At a state of knowledge."""


@dataclass(frozen=True)
class Random:
    """All pairs are equally good."""

    name: ClassVar[str] = "random"
    reason: ClassVar[str] = "it was drawn at random"
    about_the_best: ClassVar[bool] = False
    most_entities: ClassVar[int] = MANY

    def scorer(self, state: State) -> Scorer:
        """Ties are broken at random."""

        def nothing(gaps: Gaps) -> Floats:
            return np.zeros(gaps.mean.shape)

        return Scorer(nothing, nothing)


@dataclass(frozen=True)
class Variance:
    """Variance of the gap."""

    name: ClassVar[str] = "variance"
    reason: ClassVar[str] = "the difference between the two is what the model knows least about"
    about_the_best: ClassVar[bool] = False
    most_entities: ClassVar[int] = MANY

    def scorer(self, state: State) -> Scorer:
        return Scorer(_variance, _variance)


@dataclass(frozen=True)
class Ratio:
    """Variance over the square of the mean of the gap (XPGP section 5); infinite where the mean is 0."""

    name: ClassVar[str] = "ratio"
    reason: ClassVar[str] = "for how uncertain the model is, the two are closest to each other"
    about_the_best: ClassVar[bool] = False
    most_entities: ClassVar[int] = MANY

    def scorer(self, state: State) -> Scorer:
        return Scorer(_ratio, _ratio)


@dataclass(frozen=True)
class Bald:
    """Mutual information of answer and gap, in nats (Houlsby et al. 2011, "Bayesian active learning by disagreement")."""

    name: ClassVar[str] = "bald"
    reason: ClassVar[str] = "its answer is expected to tell more about the two than that of any other pair"
    about_the_best: ClassVar[bool] = False
    most_entities: ClassVar[int] = MANY

    def scorer(self, state: State) -> Scorer:
        """From a table first, then exactly."""
        return Scorer(state.answers.information, lambda gaps: information(state.answers, gaps))


@dataclass(frozen=True)
class Eubo:
    """Expected utility of the better of the two, E max(uᵢ, uⱼ), above the average of all means (Lin et al. 2022)."""

    name: ClassVar[str] = "eubo"
    reason: ClassVar[str] = "the better of the two is expected to be better than that of any other pair"
    about_the_best: ClassVar[bool] = True
    most_entities: ClassVar[int] = MANY

    def scorer(self, state: State) -> Scorer:
        """In closed form: ½(mᵢ + mⱼ) + m(Φ(m/s) − ½) + s φ(m/s), with m and s of the gap (Clark 1961)."""
        mean = state.belief.mean - state.belief.mean.mean()

        def value(gaps: Gaps) -> Floats:
            sd = np.sqrt(gaps.variance)
            z = np.divide(gaps.mean, sd, out=np.full(sd.shape, np.inf), where=sd > 0)
            density = np.exp(-0.5 * np.square(z)) / np.sqrt(2 * np.pi)
            certain = np.abs(gaps.mean) / 2
            better = np.where(sd > 0, gaps.mean * (ndtr(z) - 0.5) + sd * density, certain)
            return 0.5 * (mean[gaps.first] + mean[gaps.second]) + better

        return Scorer(value, value)


def information(answers: Answers, gaps: Gaps) -> Floats:
    """Mutual information of answer and gap, in nats."""
    return np.asarray(answers.forecast(gaps.mean, gaps.variance).information)


def _variance(gaps: Gaps) -> Floats:
    return gaps.variance


def _ratio(gaps: Gaps) -> Floats:
    square = np.square(gaps.mean)
    # A mean that is 0 but for rounding is 0: otherwise the digits that are lost would choose the question.
    square *= square > 1e-20 * gaps.variance
    certain = gaps.variance == 0
    return np.divide(gaps.variance, square, out=np.where(certain, 0.0, np.inf), where=(square > 0) & ~certain)
