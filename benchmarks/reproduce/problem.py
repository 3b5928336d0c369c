"""One query: its documents, all its preference pairs, and how well a model orders the pairs that it
was not told.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from relpref import PreferenceData

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Problem:
    """A query with its relations, before any pair is known.

    Attributes
    ----------
    data : PreferenceData
        The documents; its comparisons are all pairs of different relevance.
    distances : array, shape (n, n)
        Squared distances of the documents' attributes, see `distances`.
    """

    data: PreferenceData
    distances: Array

    def draw(self, size: int, seed: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions of the pairs that are known, and of the remaining ones."""
        order = np.random.default_rng(seed).permutation(self.data.num_comparisons)
        return np.sort(order[:size]), np.sort(order[size:])

    @cached_property
    def shuffled(self) -> Problem:
        """The same query with its graphs laid over the wrong documents: what a relation explains
        that says nothing.
        """
        items, comparisons, relations = self.data.to_tables()
        labels = items.index.to_numpy()
        other = dict(zip(labels, np.random.default_rng(0).permutation(labels), strict=True))
        moved = {
            name: links.assign(source=links["source"].map(other), target=links["target"].map(other))
            for name, links in relations.items()
        }
        return Problem(PreferenceData.from_tables(items, comparisons, moved), self.distances)


@dataclass(frozen=True)
class Quality:
    """How well pairs were ordered.

    Attributes
    ----------
    error : float
        Share of pairs in the wrong order; a tie counts one half.
    auc : float
        Area under the ROC curve.
    """

    error: float
    auc: float


def distances(values: Array) -> Array:
    """Squared Euclidean distances over the sum of the columns' variances: two rows drawn at random
    are 2 apart.

    So one lengthscale prior with median 1 serves any attributes; for standardized ones it is that
    of `relpref.kernels.SquaredExponential(shared_lengthscale=True)`.
    """
    centred = values - values.mean(axis=0)
    norms = np.sum(centred**2, axis=1)
    squared = np.maximum(norms[:, None] + norms[None, :] - 2 * centred @ centred.T, 0.0)
    np.fill_diagonal(squared, 0.0)
    return np.asarray(squared / values.var(axis=0).sum())


def quality(scores: Array) -> Quality:
    """Judge by the score of each pair, winner first: a larger one is a stronger claim that the
    first is preferred.

    The scores of a model are antisymmetric, so which document of a pair comes first does not matter
    for the error. For the AUC every pair enters in both orders, as a true claim of its score and as
    a false one of minus that: this is what the AUC of randomly ordered pairs is on average, without
    its randomness.
    """
    if not np.all(np.isfinite(scores)):
        return Quality(float("nan"), float("nan"))
    error = np.mean(scores < 0) + 0.5 * np.mean(scores == 0)
    false = np.sort(-scores)
    below, tied = np.searchsorted(false, scores, "left"), np.searchsorted(false, scores, "right")
    return Quality(float(error), float(np.mean(below + tied) / (2 * scores.size)))
