"""Beliefs about differences of items, and forecasts of the next answer about each pair."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relpref.compiled import compiled
from relpref.data import Comparisons
from relpref.likelihoods import AnswerModel, Comparison, TiltedMoments
from relpref.likelihoods.answers import GROUP_SD
from relpref.limits import MAX_PAIRS_AT_ONCE
from relpref.linalg.arrays import namespace
from relpref.skeleton import evaluated

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]
Singles = NDArray[np.float32]

# Rows of a block: half of their square lies below the diagonal, and is computed for nothing.
_MAX_ROWS = 128

_BLOCK = 256  # pairs at a time; functions of a model from outside are compiled for this shape
# Trapezoidal rule: nodes on either side, and their steps in sds of the gap, or in noise scales if
# the gap is wide. The integrand is analytic in a strip of about two noise scales, so the error
# falls like exp(−2π·2/step).
_NODES, _STEP, _NOISE_STEP = 40, 0.16, 0.5
# Noise scales beyond which an answer is certain, logistic noise included.
_REACH = _NODES * _NOISE_STEP
_FAR = 1e6  # noise scales

# Tables of `AnswerForecast`, where the gap has the variance v and the noise the scale c.
_ROWS, _COLUMNS = 160, 64
_FARTHEST = 8.0  # in units of √(c² + v), beyond the outermost threshold
_WIDEST = 1 - 1e-3  # 1 − c/√(c² + v): sds of the gap up to a thousand times that of the noise


class Gaps(NamedTuple):
    """Gaussian differences of utilities, first minus second, of pairs of items.

    The positions of the items, ``first`` and ``second``, broadcast to the shape of ``mean`` and
    ``variance``.
    """

    first: Positions
    second: Positions
    mean: Floats
    variance: Floats


@dataclass(frozen=True)
class Belief:
    """Mean, shape (n,), and covariance, (n, n), of the utilities by which a question is chosen.

    The arrays are not changed in place: several beliefs may share them.
    """

    mean: Floats
    covariance: Floats

    def gaps(self, first: NDArray[np.integer[Any]], second: NDArray[np.integer[Any]]) -> Gaps:
        """Gaps of pairs, given by the positions of both items (XPGP eq. 13-14)."""
        mean = self.mean[first] - self.mean[second]
        variances = np.diagonal(self.covariance)
        variance = variances[first] + variances[second] - 2 * self.covariance[first, second]
        variance *= variance > self.rounding
        return Gaps(np.asarray(first), np.asarray(second), mean, variance)

    @property
    def rounding(self) -> float:
        """Largest variance of a gap that counts as 0: two items may be equal in the model."""
        return 1e-14 * float(np.diagonal(self.covariance).max(initial=0.0))

    def responses(self, gaps: Gaps) -> Floats:
        """Covariance of every utility with each gap, shape (k, n)."""
        return np.asarray(self.covariance[gaps.first] - self.covariance[gaps.second])

    def boundary(self, k: int) -> tuple[Positions, Floats, Floats, Floats]:
        """Boundary b of the k best items: the average utility of the k-th item and the next.

        Returns the positions of these two items, shape (2,), and for each item i, shape (n,) each:
        cov(b, uᵢ), and the mean and the variance of uᵢ − b.
        """
        ends = np.argsort(-self.mean, kind="stable")[k - 1 : k + 1]
        edge = self.covariance[ends].mean(axis=0)
        variance = np.diagonal(self.covariance) - 2 * edge + edge[ends].mean()
        return ends, edge, self.mean - self.mean[ends].mean(), variance

    def after(self, first: int, second: int, shrinkage: float) -> "Belief":
        """Belief expected after an answer: mean as before, covariance Σ − κ Σa aᵀΣ.

        The gap of the pair is aᵀu, and κ is the ``shrinkage`` of `Forecast`.
        """
        response = self.covariance[first] - self.covariance[second]
        change = np.multiply.outer(shrinkage * response, response)
        return Belief(self.mean, np.subtract(self.covariance, change, out=change))


@dataclass(frozen=True)
class Pool:
    """Pairs of positions that may be asked, the lower first in each.

    These are the listed pairs whose items are members or, if ``listed`` is None, all pairs of
    members. Closed pairs are left out.
    """

    members: Positions  # ascending, shape (k,)
    closed: Positions  # pairs that may not be asked, shape (2, c)
    listed: Positions | None = None  # shape (2, p)

    def open(self, number: int) -> Positions:
        """Listed pairs that may be asked, shape (2, q); ``number`` is that of all items."""
        assert self.listed is not None
        kept = np.isin(self.listed, self.members).all(axis=0)
        listed, closed = (first * number + second for first, second in (self.listed, self.closed))
        return self.listed[:, kept & ~np.isin(listed, closed)]

    def blocks(
        self, belief: Belief, size: int = MAX_PAIRS_AT_ONCE
    ) -> Iterator[tuple[Gaps, Positions]]:
        """Yield the gaps of all pairs in blocks of about ``size``, with entries to be ignored.

        A block of members has the shape (r, c). The entries are flat positions in the block of
        closed pairs, and of pairs that come twice: on the diagonal and below it. A block of listed
        pairs has the shape (q,) and none.
        """
        number = len(belief.mean)
        if self.listed is not None:
            first, second = self.open(number)
            for start in range(0, len(first), size):
                part = slice(start, start + size)
                yield belief.gaps(first[part], second[part]), np.zeros(0, dtype=np.int64)
            return
        members, k = self.members, len(self.members)
        mean, variances = belief.mean[members], np.diagonal(belief.covariance)[members]
        place = np.full(number, -1)
        place[members] = np.arange(k)
        closed = place[self.closed]
        closed = closed[:, (closed >= 0).all(axis=0)]
        row, column = closed[:, np.argsort(closed[0], kind="stable")]
        # Rows of the covariance are contiguous, so a block is a few of them from the diagonal on.
        start = 0
        while start < k - 1:
            stop = min(k - 1, start + min(_MAX_ROWS, max(1, size // (k - start))))
            chosen: Any = np.ix_(members[start:stop], members[start:])
            if k == number:
                chosen = slice(start, stop), slice(start, None)
            covariance = belief.covariance[chosen]
            variance = variances[start:stop, None] + variances[None, start:]
            variance -= covariance
            variance -= covariance
            variance *= variance > belief.rounding
            means = mean[start:stop, None] - mean[None, start:]
            below, left = np.tril_indices(stop - start)
            low, high = np.searchsorted(row, (start, stop))
            rows = np.concatenate([below, row[low:high] - start])
            places = rows * (k - start) + np.concatenate([left, column[low:high] - start])
            yield Gaps(members[start:stop, None], members[None, start:], means, variance), places
            start = stop


class Forecast(NamedTuple):
    """Forecast of the next answer about each of k pairs with Gaussian gaps."""

    shrinkage: Any  # κ: the gap's variance v is expected to become v − κ v², shape (k,)
    favored: Any  # probability that the answer favors the first, a tie counting one half
    # For each possible outcome, shape (o, k): the probability, and the derivatives of log Ẑ, see
    # `TiltedMoments`.
    probability: Any
    gradient: Any
    curvature: Any


@dataclass(frozen=True, eq=False)
class AnswerForecast:
    """Model of the next answer of one rater, or of a typical one, given the belief about the gap.

    `forecast` and `exact_information` are exact. `information`, `shrinkage` and `decided`
    interpolate tables, fast enough for all pairs. If groups of answers share an effect, each answer
    is in a new group.
    """

    model: AnswerModel
    # One row that says who is asked and how, see `relpref.posterior.tables.questions`.
    asked: Comparisons
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnswerForecast) and self._key == other._key

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        values = {**self.asked.columns, **self.parameters}
        arrays = ((name, np.asarray(value)) for name, value in values.items())
        key = tuple((name, array.shape, array.tobytes()) for name, array in arrays)
        return self.model, self.asked.strengths, *key

    def forecast(self, mean: Floats, variance: Floats) -> Forecast:
        """Forecast the answers about pairs from means and variances of their gaps, shape (k,)."""
        return Forecast(*self._in_blocks(_forecast, mean, variance))

    def exact_information(self, mean: Floats, variance: Floats) -> Floats:
        """Mutual information of answer and gap, in nats, shape (k,)."""
        (information,) = self._in_blocks(_information, mean, variance)
        return np.asarray(information)

    def _in_blocks(
        self, function: Callable[..., Any], mean: Floats, variance: Floats
    ) -> Iterator[Any]:
        """Apply a function to k means and variances, in blocks of a fixed shape.

        Yields each array that the function returns, shape (..., k).
        """
        parts = []
        for start in range(0, len(mean), _BLOCK):
            size = min(_BLOCK, len(mean) - start)
            block = np.zeros((2, _BLOCK))
            block[:, :size] = mean[start : start + size], variance[start : start + size]
            values = self._evaluated(function, *block)
            parts.append([value[..., :size] for value in values])
        return (np.concatenate(values, axis=-1) for values in zip(*parts, strict=True))

    def _evaluated(self, function: Callable[..., Any], *gaps: Floats) -> Any:
        """A function of the model in NumPy; by JAX for a model from outside, which may need it."""
        with np.errstate(all="ignore"):  # an impossible outcome has the log probability −∞
            return self._bound(function, *gaps)

    @cached_property
    def _bound(self) -> Callable[..., Any]:
        given = {name: np.asarray(value, np.float64) for name, value in self.parameters.items()}
        if type(self.model).__module__.startswith("relpref."):
            answer = partial(_answer, self.model, self.asked, given)
            return lambda function, *gaps: function(answer, *gaps)

        def by_jax(function: Callable[..., Any], *gaps: Floats) -> Any:
            return evaluated(partial(_outside, function, self.model), self.asked, given, *gaps)

        return by_jax

    @cached_property
    def _noise(self) -> tuple[float, float, bool]:
        """Noise of an answer: the scale c, the outermost threshold, and whether it is a report.

        The scale includes the effect of a group. A report is a number with Gaussian noise.
        """
        scale, outermost, is_report = self._evaluated(_noise, np.zeros(1))
        return float(scale), float(outermost), bool(is_report)

    def information(self, gaps: Gaps) -> Floats | Singles:
        """Mutual information of answer and gap, in nats, of the gaps' shape; 0.1 % accurate."""
        scale, _, is_report = self._noise
        if is_report:
            return np.asarray(0.5 * np.log1p(gaps.variance / scale**2))
        row, column, share = self._places(gaps)
        return _interpolated(self._information_table, row, column) * share

    def shrinkage(self, gaps: Gaps) -> Floats:
        """κ of the gap's expected variance v − κ v², of the gaps' shape; 0.1 % accurate."""
        scale, _, is_report = self._noise
        total = 1 / (scale**2 + gaps.variance)
        if is_report:
            return total
        row, column, _ = self._places(gaps)
        return _interpolated(self._forecast_table[0], row, column) * total

    def decided(self, gaps: Gaps) -> Singles:
        """|p − ½| of the probability p that the first is preferred, of the gaps' shape.

        Half of the probability of a tie is part of p.
        """
        row, column, _ = self._places(gaps)
        return _interpolated(self._forecast_table[1], row, column)

    @property
    def _farthest(self) -> float:
        # Largest t of the tables, see `_cells`.
        return _FARTHEST + self._noise[1] / self._noise[0]

    @cached_property
    def _cells(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Mean m and variance v of the gap, c² + v and s in all cells, shape (rows · columns,).

        Rows are steps of t = |m|/√(c² + v), and columns steps of s = 1 − c/√(c² + v), where c is
        the noise scale. The functions in the tables are smooth in both.
        """
        t = np.linspace(0.0, self._farthest, _ROWS)[:, None]
        s = np.linspace(0.0, _WIDEST, _COLUMNS)
        s[0] = 1e-7  # the information is proportional to s there
        s = np.tile(s, _ROWS)
        noise = self._noise[0]
        total = (noise / (1 - s)) ** 2
        return np.repeat(t, _COLUMNS) * np.sqrt(total), total - noise**2, total, s

    @cached_property
    def _information_table(self) -> Singles:
        # Information divided by s, which is smooth where v is small.
        mean, variance, _, s = self._cells
        return (self.exact_information(mean, variance) / s).astype(np.float32)

    @cached_property
    def _forecast_table(self) -> Singles:
        """Tables of κ (c² + v) and of |p − ½|, see `shrinkage` and `decided`."""
        mean, variance, total, _ = self._cells
        answer = self.forecast(mean, variance)
        tables = [answer.shrinkage * total, np.abs(answer.favored - 0.5)]
        return np.stack(tables).astype(np.float32)

    def _places(self, gaps: Gaps) -> tuple[Singles, Singles, Singles]:
        """Row and column of each gap in the tables, with fractions for interpolation, and its s."""
        scale = self._noise[0]
        ratio = (gaps.variance / scale**2).astype(np.float32)
        spread = np.sqrt(ratio + np.float32(1))
        row = np.abs((gaps.mean / scale).astype(np.float32))
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


def _interpolated(table: Singles, row: Singles, column: Singles) -> Singles:
    """Interpolate a flat table bilinearly at fractional rows and columns."""
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


@lru_cache(maxsize=8)
def shared(answers: AnswerForecast) -> AnswerForecast:
    """Return an equal forecast from the cache if it has one, whose tables need no computing."""
    return answers


# From gaps to the distribution of answers, the variance that a new group adds, and the noise scale.
Answer = Callable[[Any], tuple[Comparison, Any, Any]]


@compiled(static_argnums=(0, 1))
def _outside(
    function: Callable[..., Any],
    model: AnswerModel,
    asked: Comparisons,
    parameters: Mapping[str, Any],
    *gaps: Any,
) -> Any:
    """A function of a model from outside, which may need JAX."""
    return function(partial(_answer, model, asked, parameters), *gaps)


def _answer(
    model: AnswerModel, asked: Comparisons, parameters: Mapping[str, Any], gap: Any
) -> tuple[Comparison, Any, Any]:
    # See `Answer`.
    given = dict(parameters)
    shared = given.pop(GROUP_SD, np.zeros(())) ** 2
    distribution: Any = model(gap, asked, **given)
    return distribution, shared, (distribution.scale.max() ** 2 + shared) ** 0.5


def _noise(answer: Answer, gap: Any) -> tuple[Any, Any, bool]:
    # See `AnswerForecast._noise`.
    distribution, _, scale = answer(gap)
    return scale, distribution.outermost.max(), distribution.outcomes is None


def _forecast(answer: Answer, mean: Any, variance: Any) -> Forecast:
    # Forecast of answers about k pairs, whose gaps are N(mean, variance).
    xp = namespace(mean)
    distribution, shared, _ = answer(mean)
    # Derivatives in the mean are the same for the gap and for its sum with the effect of a group.
    variance = variance + shared
    if distribution.outcomes is None:
        return _forecast_of_report(distribution, mean, variance)
    moments = _moments(distribution, mean, variance)
    probability = xp.exp(moments.log_normalizer)
    # Ties may be impossible: their log Ẑ is −∞ and has no derivatives.
    possible = probability > 0
    gradient, curvature = (
        xp.where(possible, x, 0.0) for x in (moments.gradient, moments.curvature)
    )
    favored = xp.sum(probability * distribution.outcomes[1][:, None], axis=0)
    return Forecast(
        xp.sum(probability * curvature, axis=0), favored, probability, gradient, curvature
    )


def _moments(distribution: Comparison, mean: Any, variance: Any) -> TiltedMoments:
    """Tilted moments of each of the o possible outcomes for k gaps, shape (o, k)."""
    assert distribution.outcomes is not None
    values = distribution.outcomes[0].reshape(-1, *(1,) * mean.ndim)
    return distribution.tilted(*namespace(mean).broadcast_arrays(values, mean, variance))


def _forecast_of_report(distribution: Comparison, mean: Any, variance: Any) -> Forecast:
    """Forecast of a report, a number with Gaussian noise around the gap.

    Its outcomes are nodes of a Gauss-Hermite rule; all else has a closed form.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(9)
    shape = (len(nodes), *mean.shape)
    curvature = 1 / (variance + distribution.scale**2)
    xp = namespace(curvature)
    return Forecast(
        curvature,
        distribution.predict(mean, variance)["probability"],
        xp.broadcast_to((weights / weights.sum())[:, None], shape),
        nodes[:, None] * xp.sqrt(curvature),
        xp.broadcast_to(curvature, shape),
    )


def _information(answer: Answer, mean: Any, variance: Any) -> tuple[Any]:
    """Mutual information H(answer) − E[H(answer | gap)], shape (k,) (Houlsby et al. 2011)."""
    xp = namespace(mean)
    distribution, shared, scale = answer(mean)
    if distribution.outcomes is None:
        return (0.5 * xp.log1p(variance / scale**2),)
    values = distribution.outcomes[0]

    def entropy(logs: Any) -> Any:
        return -xp.sum(xp.exp(logs) * xp.where(xp.isfinite(logs), logs, 0.0), axis=0)

    def given(gap: Any) -> Any:
        # H(answer | gap), an array like the gaps.
        alone, *_ = answer(gap)
        if shared > 0:
            return entropy(_moments(alone, gap, shared).log_normalizer)
        return entropy(xp.stack([alone.log_prob(xp.full(gap.shape, value)) for value in values]))

    nodes, weights = _quadrature(distribution, scale, mean, variance)
    # Beyond the nodes only lapses make an answer uncertain, so its entropy is constant. The rule
    # integrates the difference from that constant.
    far = xp.full((len(mean), 1), _FAR) * scale
    left = given(xp.concatenate([nodes, far], axis=1))
    expected = left[:, -1] + xp.sum(weights * (left[:, :-1] - left[:, -1:]), axis=-1)
    total = entropy(_moments(distribution, mean, variance + shared).log_normalizer)
    return (xp.maximum(total - expected, 0.0),)


def _quadrature(distribution: Comparison, scale: Any, mean: Any, variance: Any) -> tuple[Any, Any]:
    """Nodes and weights, shape (k, nodes), for the entropy of an answer under N(mean, variance).

    They lie around the mean if the Gaussian is the narrower factor of the integrand, and around a
    gap of 0 if the entropy is.
    """
    xp, steps = namespace(mean), np.arange(-_NODES, _NODES + 1)
    sd = xp.sqrt(variance)[:, None]
    reach = _REACH * scale + distribution.outermost.max()
    widest = reach / _NODES
    narrow = _STEP * sd <= widest
    z = xp.where(
        narrow, _STEP * steps, (widest * steps - mean[:, None]) / xp.where(narrow, 1.0, sd)
    )
    step = xp.where(narrow, _STEP, widest / xp.where(narrow, 1.0, sd))
    weights = step * xp.exp(-0.5 * xp.square(z)) / np.sqrt(2 * np.pi)
    # The narrow rule cuts off a little of the tails: its weights are scaled to add up to 1, so that
    # the information goes to 0 with v.
    weights = xp.where(narrow, weights / xp.sum(weights, axis=-1, keepdims=True), weights)
    return mean[:, None] + sd * z, weights
