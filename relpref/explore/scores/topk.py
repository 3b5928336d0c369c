"""Who is among the k best."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import entr, ndtr

from relpref.errors import DataError
from relpref.explore.scores.gap_scores import MANY, Scorer, State
from relpref.explore.scores.gaps import Belief, Gaps
from relpref.infer.belief import Floats

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
