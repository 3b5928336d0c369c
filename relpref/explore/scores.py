"""Scores of pairs: reasons to ask about a pair."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.linalg import solve
from scipy.special import entr, ndtr

from relpref.errors import DataError
from relpref.explore.forecast import (
    AnswerForecast,
    Belief,
    Floats,
    Forecast,
    Gaps,
    Pool,
    Positions,
    Singles,
)
from relpref.limits import MAX_ITEMS_OF_EXACT_INFORMATION, MAX_ITEMS_OF_SCORES

Values = Callable[[Gaps], Floats | Singles]


@dataclass(frozen=True)
class State:
    """Input of a score: beliefs after the earlier questions of a batch and now, and open pairs."""

    belief: Belief
    now: Belief
    answers: AnswerForecast
    pool: Pool


class Scorer(NamedTuple):
    """Functions that score pairs in one state; the larger the score, the better the question.

    ``quick`` only has to find the best ``few`` of all pairs; ``exact`` scores these, shape (k,).
    """

    quick: Values
    exact: Values
    few: int = 128


@dataclass(frozen=True)
class Score:
    """Base of scores.

    A subclass has ``name``, ``reason`` and `value`, or overrides `scorer` to compute something once
    for all pairs.

    Examples
    --------
    >>> import relpref
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> posterior = relpref.fit(answers=answers)
    >>> class Closest(relpref.explore.Score):
    ...     name = "closest"
    ...     reason = "the two seem equally good"
    ...
    ...     def value(self, state, pairs):
    ...         return -abs(pairs.mean)
    >>> question = relpref.explore.next_pairs(posterior, score=Closest())
    """

    name: ClassVar[str]
    reason: ClassVar[str]  # why a pair is asked about, for the rater
    about_the_best: ClassVar[bool] = False  # whether large sets are narrowed to the best items
    few: ClassVar[int] = 128
    max_items: ClassVar[int] = MAX_ITEMS_OF_SCORES  # items whose pairs are all scored

    def value(self, state: State, pairs: Gaps) -> Floats | Singles:
        """Scores of pairs, of the shape of their moments."""
        raise NotImplementedError(f"{type(self).__name__} gives neither value nor scorer")

    def quick(self, state: State, pairs: Gaps) -> Floats | Singles:
        """Scores that only have to find the best ``few`` of all pairs."""
        return self.value(state, pairs)

    def scorer(self, state: State) -> Scorer:
        """Functions that score pairs in a state."""
        return Scorer(partial(self.quick, state), partial(self.value, state), self.few)


@dataclass(frozen=True)
class Random(Score):
    """Equal scores for all pairs; ties are broken at random."""

    name = "random"
    reason = "it was drawn at random"

    def value(self, state: State, pairs: Gaps) -> Floats:
        return np.zeros(pairs.mean.shape)


@dataclass(frozen=True)
class Variance(Score):
    """Variance of the gap."""

    name = "variance"
    reason = "the difference between the two is what the model knows least about"

    def value(self, state: State, pairs: Gaps) -> Floats:
        return pairs.variance


@dataclass(frozen=True)
class Ratio(Score):
    """Variance over the squared mean of the gap (XPGP section 5); infinite where the mean is 0."""

    name = "ratio"
    reason = "for how uncertain the model is, the two are closest to each other"

    def value(self, state: State, pairs: Gaps) -> Floats:
        square = np.square(pairs.mean)
        # A mean that is 0 up to rounding is 0: otherwise the digits that are lost would choose the
        # question.
        square *= square > 1e-20 * pairs.variance
        certain = pairs.variance == 0
        ratio = np.where(certain, 0.0, np.inf)
        return np.divide(pairs.variance, square, out=ratio, where=(square > 0) & ~certain)


@dataclass(frozen=True)
class Bald(Score):
    """Mutual information of answer and gap, in nats.

    Houlsby et al. (2011), "Bayesian active learning by disagreement".
    """

    name = "bald"
    reason = "its answer is expected to tell more about the two than that of any other pair"

    def value(self, state: State, pairs: Gaps) -> Floats:
        return state.answers.exact_information(pairs.mean, pairs.variance)

    def quick(self, state: State, pairs: Gaps) -> Floats | Singles:
        return state.answers.information(pairs)


@dataclass(frozen=True)
class Eubo(Score):
    """Expected utility of the better item, E max(uᵢ, uⱼ), above the average (Lin et al. 2022)."""

    name = "eubo"
    reason = "the better of the two is expected to be better than that of any other pair"
    about_the_best = True

    def value(self, state: State, pairs: Gaps) -> Floats:
        """Compute ½(mᵢ + mⱼ) + m(Φ(m/s) − ½) + s φ(m/s), m and s those of the gap (Clark 1961)."""
        mean = state.belief.mean - state.belief.mean.mean()
        sd = np.sqrt(pairs.variance)
        z = np.divide(pairs.mean, sd, out=np.full(sd.shape, np.inf), where=sd > 0)
        density = np.exp(-0.5 * np.square(z)) / np.sqrt(2 * np.pi)
        certain = np.abs(pairs.mean) / 2
        better = np.where(sd > 0, pairs.mean * (ndtr(z) - 0.5) + sd * density, certain)
        return np.asarray(0.5 * (mean[pairs.first] + mean[pairs.second]) + better)


@dataclass(frozen=True)
class LookAhead(Bald):
    """Information of an answer and of the best question after it, averaged over outcomes, in nats.

    Both questions are among those with the largest information of their own answer.
    """

    name = "look_ahead"
    reason = (
        "its answer and that to the next question are expected to be the most informative together"
    )
    few: ClassVar[int] = 384

    def value(self, state: State, pairs: Gaps) -> Floats:
        answer = state.answers.forecast(pairs.mean, pairs.variance)
        response = state.belief.responses(pairs)
        joint = response[:, pairs.first] - response[:, pairs.second]  # covariance of the gaps
        expected = np.zeros(len(pairs.mean))
        for probability, mean, variance in _after_each(answer, pairs.mean, pairs.variance, joint):
            after = Gaps(pairs.first, pairs.second, mean, np.maximum(variance, 0.0))
            second = np.array(state.answers.information(after))
            np.fill_diagonal(second, 0.0)  # not the same question again
            expected += probability * second.max(axis=1)
        return state.answers.exact_information(pairs.mean, pairs.variance) + expected


@dataclass(frozen=True)
class MutualInformation(Score):
    """Information of an answer about all other answers that may be asked (Krause et al. 2008).

    The score is ½ log(1 + τ v) + ½ log(1 − τ c): each answer is its gap with Gaussian noise of the
    precision τ that expectation propagation gives it on average, v is the gap's variance now and c
    its variance after every pair of the pool was answered once.

    Notes
    -----
    Krause, Singh & Guestrin (2008), "Near-optimal sensor placements in Gaussian processes". Unlike
    in BALD, information about the answer's own gap alone counts for nothing. In a pool of more than
    ``exact_items`` items the second term is left out, so that every pair can be scored: c falls
    with the number of answers.
    """

    name = "mutual_information"
    reason = "its answer is expected to be the most informative about the other answers"
    exact_items: ClassVar[int] = MAX_ITEMS_OF_EXACT_INFORMATION

    def value(self, state: State, pairs: Gaps) -> Floats:
        """First term: ½ log(1 + τ v) = −½ log(1 − κ v)."""
        shrunk = pairs.variance * state.answers.shrinkage(pairs)
        return np.asarray(-0.5 * np.log1p(-np.minimum(shrunk, 1 - 1e-12)))

    def scorer(self, state: State) -> Scorer:
        """Solve a linear system for the items of the pool, O(n³); then score a pair in O(1)."""
        pool, number = state.pool, len(state.belief.mean)
        members = pool.members if pool.listed is None else np.unique(pool.open(number))
        if len(members) > self.exact_items:
            return super().scorer(state)
        place = np.zeros(number, dtype=np.int64)
        place[members] = np.arange(len(members))
        after = self._after_all(state, members, place)
        variances = np.diagonal(after)

        def value(gaps: Gaps) -> Floats:
            precision = self._precision(state, gaps)
            first, second = place[gaps.first], place[gaps.second]
            left = variances[first] + variances[second] - 2 * after[first, second]
            share = np.clip(precision * left, 0.0, 1 - 1e-12)  # below 1 up to rounding
            return np.asarray(0.5 * (np.log1p(precision * gaps.variance) + np.log1p(-share)))

        return Scorer(value, value)

    def _precision(self, state: State, gaps: Gaps) -> Floats:
        """Precision τ of the site that takes the variance from v to v − κ v²."""
        shrinkage = state.answers.shrinkage(gaps)
        return np.asarray(shrinkage / np.maximum(1 - gaps.variance * shrinkage, 1e-12))

    def _after_all(self, state: State, members: Positions, place: Positions) -> Floats:
        """Covariance of the members after every pair of the pool was answered once."""
        weights = np.zeros((len(members), len(members)))
        for gaps, closed in state.pool.blocks(state.belief):
            precision = self._precision(state, gaps)
            precision.ravel()[closed] = 0.0
            weights[place[gaps.first], place[gaps.second]] = precision
        weights += weights.T
        laplacian = np.diag(weights.sum(axis=1)) - weights
        covariance = state.belief.covariance[np.ix_(members, members)]
        return solve(np.eye(len(members)) + covariance @ laplacian, covariance)


_DOUBTFUL = 128  # memberships that the quick score looks at
_PART = 4096  # listed pairs whose covariances with them are formed together


@dataclass(frozen=True)
class TopK(Score):
    """Information about which items are the k best, in nats.

    The score is the expected fall of Σᵢ h(pᵢ), h the entropy of a binary variable. Item i is among
    the best with probability pᵢ = P(uᵢ > b), where the boundary b is the average utility of the two
    items that are k-th and next by their means now. Everything is a closed form of Gaussian
    moments.

    Parameters
    ----------
    k : int, optional
        By default 10, or half of the items if they are fewer than 20.
    """

    name = "top_k"
    reason = "its answer is expected to be the most informative about which are among the best"
    about_the_best = True
    few: ClassVar[int] = 256

    k: int | None = None

    def scorer(self, state: State) -> Scorer:
        """Score quickly by a first-order expansion, for the most doubtful memberships."""
        belief, number = state.belief, len(state.belief.mean)
        k = min(10, number // 2) if self.k is None else self.k
        if not 0 < k < number:
            raise DataError(
                f"k of TopK is {k}; among {number} items give at least 1 and less than {number}"
            )
        (first, last), edge, mean, variance = belief.boundary(k)
        variance = np.maximum(variance, belief.rounding)
        doubt = _sign_entropy(mean, variance)

        # An answer that moves uᵢ − b by a little δ of its variance takes δ φ²/(2 p (1 − p)) from
        # h(pᵢ), φ the density at its mean.
        z = mean / np.sqrt(variance)
        p = np.maximum(ndtr(-np.abs(z)), 1e-300)
        weight = np.exp(-np.square(z)) / (4 * np.pi * p * (1 - p))
        doubtful = np.argsort(-weight, kind="stable")[:_DOUBTFUL]
        scale = np.sqrt(weight[doubtful] / variance[doubtful])[:, None]
        # Scaled covariances of uᵢ − b with every utility.
        reach = scale * (belief.covariance[doubtful] - edge)
        square = np.einsum("dn,dn->n", reach, reach)

        def quick(gaps: Gaps) -> Floats:
            i, j = gaps.first, gaps.second
            if gaps.mean.ndim == 2:
                product = reach[:, i[:, 0]].T @ reach[:, j[0]]
            else:
                parts = (slice(start, start + _PART) for start in range(0, len(i), _PART))
                product = np.concatenate(
                    [np.einsum("dk,dk->k", reach[:, i[k]], reach[:, j[k]]) for k in parts]
                )
            return np.asarray(state.answers.shrinkage(gaps) * (square[i] + square[j] - 2 * product))

        def exact(gaps: Gaps) -> Floats:
            answer = state.answers.forecast(gaps.mean, gaps.variance)
            response = belief.responses(gaps)
            response -= 0.5 * (response[:, first] + response[:, last])[:, None]
            left = np.zeros(len(gaps.mean))
            for probability, moved, narrowed in _after_each(answer, mean, variance, response):
                left += probability * _sign_entropy(
                    moved, np.maximum(narrowed, belief.rounding)
                ).sum(axis=1)
            return np.asarray(doubt.sum() - left)

        return Scorer(quick, exact, self.few)


def _after_each(answer: Forecast, mean: Floats, variance: Floats, response: Floats) -> Any:
    """Probability of each outcome, with the moments of some quantities after it.

    ``response`` are the covariances of these quantities with the gaps.
    """
    for probability, gradient, curvature in zip(
        answer.probability, answer.gradient, answer.curvature, strict=True
    ):
        yield (
            probability,
            mean + gradient[:, None] * response,
            variance - curvature[:, None] * np.square(response),
        )


def _sign_entropy(mean: Floats, variance: Floats) -> Floats:
    """Entropy of the sign of N(mean, variance)."""
    p = ndtr(-np.abs(mean) / np.sqrt(variance))
    return np.asarray(entr(p) + entr(1 - p))


SCORES: dict[str, type[Score]] = {
    score.name: score
    for score in (Ratio, Variance, Bald, MutualInformation, LookAhead, Eubo, TopK, Random)
}
# Needs the fewest answers in most simulators, see docs/reproduction.md.
DEFAULT = MutualInformation.name
