"""Mutual information between the answers that were asked for and those that were not."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from scipy.linalg import solve

from relpref.explore.scores.gap_scores import MANY, Scorer, State
from relpref.explore.scores.gaps import Gaps, Positions
from relpref.infer.belief import Floats


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
    """The pool's entities, ascending."""
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
