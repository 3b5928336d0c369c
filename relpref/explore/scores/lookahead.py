"""Two questions ahead."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from scipy.linalg import solve
from scipy.special import entr, ndtr

from relpref.errors import DataError
from relpref.explore.scores.gap_scores import MANY, Belief, Gaps, Positions, Scorer, State
from relpref.posterior.gaussian import Floats


@dataclass(frozen=True)
class LookAhead:
    """Information of an answer and, on average over its outcomes, of the best question after it, in nats.

    By the chain rule that is what the two answers tell together. Both questions are sought among those whose own information is the
    largest.
    """

    name: ClassVar[str] = "look_ahead"
    reason: ClassVar[str] = "its answer and the question after it are expected to tell most together"
    about_the_best: ClassVar[bool] = False
    most_entities: ClassVar[int] = MANY
    few: ClassVar[int] = 384

    def scorer(self, state: State) -> Scorer:
        """Quickly by the information of one answer."""

        def value(gaps: Gaps) -> Floats:
            first = state.answers.forecast(gaps.mean, gaps.variance)
            response = state.belief.responses(gaps)
            joint = response[:, gaps.first] - response[:, gaps.second]  # covariance of the gaps
            expected = np.zeros(len(gaps.mean))
            for probability, gradient, curvature in zip(
                first.probability, first.gradient, first.curvature, strict=True
            ):
                mean = gaps.mean + gradient[:, None] * joint
                variance = np.maximum(gaps.variance - curvature[:, None] * np.square(joint), 0.0)
                second = np.array(state.answers.information(Gaps(gaps.first, gaps.second, mean, variance)))
                np.fill_diagonal(second, 0.0)  # not the same question again
                expected += probability * second.max(axis=1)
            return np.asarray(first.information + expected)

        return Scorer(state.answers.information, value, self.few)


@dataclass(frozen=True)
class MutualInformation:
    """What an answer tells about all other answers that could still be asked for (Krause et al. 2008).

    H(a | asked) − H(a | asked and all others of the pool), each answer being its gap with Gaussian noise of the precision τ that
    expectation propagation would give it on average. With v the gap's variance now and c that after every pair of the pool
    was answered once, this is ½ log(1 + τ v) + ½ log(1 − τ c).

    Notes
    -----
    Krause, Singh & Guestrin (2008), "Near-optimal sensor placements in Gaussian processes". Unlike with BALD, what an answer tells
    about its own gap alone, that no other answer could tell, counts for nothing. In a pool of more than ``exact_entities`` entities the
    second term is left out, so that every pair can be looked at: c falls with the number of answers that it comes after.
    """

    name: ClassVar[str] = "mutual_information"
    reason: ClassVar[str] = "its answer is expected to tell most about the answers that nobody was asked for"
    about_the_best: ClassVar[bool] = False
    most_entities: ClassVar[int] = MANY
    exact_entities: ClassVar[int] = 400

    def scorer(self, state: State) -> Scorer:
        """One linear system in as many unknowns as the pool has entities, O(n³); then every pair in O(1)."""
        members = _members(state)
        if len(members) > self.exact_entities:
            own = partial(_own, state)
            return Scorer(own, own)
        after, place = _after_all(state, members)

        def value(gaps: Gaps) -> Floats:
            precision = _precision(state, gaps)
            first, second = place[gaps.first], place[gaps.second]
            own = np.diagonal(after)
            left = own[first] + own[second] - 2 * after[first, second]
            share = np.clip(precision * left, 0.0, 1 - 1e-12)  # below 1 but for rounding
            return np.asarray(0.5 * (np.log1p(precision * gaps.variance) + np.log1p(-share)))

        return Scorer(value, value)


def _precision(state: State, gaps: Gaps) -> Floats:
    """τ of the site that takes the variance from v to v − κ v²."""
    shrinkage = state.answers.shrinkage(gaps)
    return np.asarray(shrinkage / np.maximum(1 - gaps.variance * shrinkage, 1e-12))


def _own(state: State, gaps: Gaps) -> Floats:
    """½ log(1 + τ v) = −½ log(1 − κ v)."""
    return np.asarray(-0.5 * np.log1p(-np.minimum(gaps.variance * state.answers.shrinkage(gaps), 1 - 1e-12)))


def _members(state: State) -> Positions:
    if state.pool.listed is None:
        return state.pool.members
    return np.unique(state.pool.open(len(state.belief.mean)))


def _after_all(state: State, members: Positions) -> tuple[Floats, Positions]:
    """Covariance of the members after every pair of the pool was answered once, and where each of them stands in it."""
    place = np.zeros(len(state.belief.mean), dtype=np.int64)
    place[members] = np.arange(len(members))
    weights = np.zeros((len(members), len(members)))
    for gaps, closed in state.pool.blocks(state.belief):
        precision = _precision(state, gaps)
        precision.ravel()[closed] = 0.0
        first, second = np.broadcast_arrays(place[gaps.first], place[gaps.second])
        weights[first, second] = precision
    weights += weights.T
    laplacian = np.diag(weights.sum(axis=1)) - weights
    covariance = state.belief.covariance[np.ix_(members, members)]
    return solve(np.eye(len(members)) + covariance @ laplacian, covariance), place


_DOUBTFUL = 128  # memberships that the quick score looks at
_PART = 4096  # listed pairs whose covariances with them are formed together


@dataclass(frozen=True)
class TopK:
    """Information about who is among the k best: the expected fall of Σᵢ h(pᵢ), h the entropy of a yes or no, in nats.

    Entity i is among them with probability pᵢ = P(uᵢ > b), where the boundary b is the average utility of the two that are k-th and
    next by their means now. Everything is a closed form of Gaussian moments.

    Parameters
    ----------
    k : int, optional
        By default 10, or half of the entities if they are fewer than 20.
    """

    name: ClassVar[str] = "top_k"
    reason: ClassVar[str] = "its answer is expected to tell most about who is among the best"
    about_the_best: ClassVar[bool] = True
    most_entities: ClassVar[int] = MANY
    few: ClassVar[int] = 256

    k: int | None = None

    def scorer(self, state: State) -> Scorer:
        """Quickly by the first order in what an answer tells, of the most doubtful memberships."""
        belief = state.belief
        first, last = self._boundary(belief)
        # Of uᵢ − b: mean and variance.
        own = np.diagonal(belief.covariance)
        mean = belief.mean - 0.5 * (belief.mean[first] + belief.mean[last])
        edge = 0.5 * (belief.covariance[first] + belief.covariance[last])
        variance = np.maximum(own - 2 * edge + 0.5 * (edge[first] + edge[last]), belief.rounding)
        doubt = _entropy(mean, variance)

        # An answer that moves uᵢ − b by a little δ of its variance takes δ φ²/(2 p (1 − p)) from h(pᵢ), φ the density at its mean.
        z = mean / np.sqrt(variance)
        p = np.maximum(ndtr(-np.abs(z)), 1e-300)
        weight = np.exp(-np.square(z)) / (4 * np.pi * p * (1 - p))
        doubtful = np.argsort(-weight, kind="stable")[:_DOUBTFUL]
        scale = np.sqrt(weight[doubtful] / variance[doubtful])[:, None]
        reach = scale * (
            belief.covariance[doubtful] - edge
        )  # of the covariances of uᵢ − b with every utility
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
            found = state.answers.forecast(gaps.mean, gaps.variance)
            response = belief.responses(gaps)
            response -= 0.5 * (response[:, first] + response[:, last])[:, None]
            left = np.zeros(len(gaps.mean))
            for probability, gradient, curvature in zip(
                found.probability, found.gradient, found.curvature, strict=True
            ):
                moved = mean + gradient[:, None] * response
                narrowed = variance - curvature[:, None] * np.square(response)
                left += probability * _entropy(moved, np.maximum(narrowed, belief.rounding)).sum(axis=1)
            return np.asarray(doubt.sum() - left)

        return Scorer(quick, exact, self.few)

    def _boundary(self, belief: Belief) -> tuple[int, int]:
        """Positions of the k-th and the next."""
        number = len(belief.mean)
        k = min(10, number // 2) if self.k is None else self.k
        if not 0 < k < number:
            raise DataError(
                f"k of TopK is {k}; among {number} entities it must be at least 1 and below {number}"
            )
        order = np.argsort(-belief.mean, kind="stable")
        return int(order[k - 1]), int(order[k])


def _entropy(mean: Floats, variance: Floats) -> Floats:
    """Of the sign of N(mean, variance)."""
    p = ndtr(-np.abs(mean) / np.sqrt(variance))
    return np.asarray(entr(p) + entr(1 - p))
