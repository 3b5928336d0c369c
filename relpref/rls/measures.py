"""How well scores order objects, for one conditioning node and for all of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import kendalltau, rankdata

from relpref.errors import DataError

Floats = NDArray[np.float64]
Measure = Callable[[ArrayLike, ArrayLike], float]


def ranking_error(labels: ArrayLike, scores: ArrayLike) -> float:
    """Share of the pairs with different labels that the scores order wrongly; equal scores count one half (CR10 eq. 5).

    Parameters
    ----------
    labels, scores : array, shape (n,)

    Returns
    -------
    float
        From 0 to 1; NaN where all labels are the same.

    Notes
    -----
    O(n log n). The papers' ranking loss, divided by the number of pairs.
    """
    labels, scores = checked(labels, scores)
    total = pairs(len(labels))
    different, decided = total - tied(labels), total - tied(scores)
    if different == 0:
        return np.nan
    if decided == 0:
        return 0.5
    # Kendall's τ_b = (concordant − discordant) / √(different · decided); the difference is a whole number.
    tau = kendalltau(labels, scores).statistic
    surplus = round(tau * np.sqrt(float(different)) * np.sqrt(float(decided)))
    return 0.5 - 0.5 * surplus / different


def concordance(labels: ArrayLike, scores: ArrayLike) -> float:
    """Share of the pairs with different labels that the scores order rightly; one minus `ranking_error`."""
    return 1.0 - ranking_error(labels, scores)


def auc(labels: ArrayLike, scores: ArrayLike) -> float:
    """Area under the ROC curve: the `concordance` of labels that have two values, the larger of which is positive.

    Raises
    ------
    DataError
        If there are more than two different labels.
    """
    if len(values := np.unique(np.asarray(labels))) > 2:
        raise DataError(f"AUC is for two labels and there are {len(values)}; use concordance")
    return concordance(labels, scores)


def ndcg(labels: ArrayLike, scores: ArrayLike, *, k: int | None = None) -> float:
    """Normalised discounted cumulative gain with the labels as gains (Järvelin & Kekäläinen 2002).

    Parameters
    ----------
    labels, scores : array, shape (n,)
        Labels must not be negative. For exponential gains give 2**labels − 1.
    k : int, optional
        Only the first k ranks count.

    Returns
    -------
    float
        Equal scores share the average of their gains (McSherry & Najork 2008). NaN where all labels are the same: then no
        order is better than another.
    """
    labels, scores = checked(labels, scores)
    if labels.min(initial=0.0) < 0:
        raise DataError(
            f"NDCG needs gains, and a label is {labels.min():g}; shift or map the labels to 0 and above"
        )
    if k is not None and k < 1:
        raise DataError(f"k is {k}; it must be at least 1")
    if pairs(len(labels)) == tied(labels):
        return np.nan
    discounts = 1.0 / np.log2(np.arange(2, len(labels) + 2))
    discounts[len(labels) if k is None else k :] = 0.0
    _, block, size = np.unique(-scores, return_inverse=True, return_counts=True)
    average_gain = np.bincount(block, weights=labels) / size
    ends = np.cumsum(size)
    earned = average_gain @ np.diff(np.concatenate([[0.0], np.cumsum(discounts)[ends - 1]]))
    return float(earned / (np.sort(labels)[::-1] @ discounts))


def spearman(labels: ArrayLike, scores: ArrayLike) -> float:
    """Correlation of the ranks, ties at their mean rank; 0 for constant scores, NaN for constant labels."""
    labels, scores = checked(labels, scores)
    if pairs(len(labels)) == tied(labels):
        return np.nan
    first, second = (ranks - ranks.mean() for ranks in (rankdata(labels), rankdata(scores)))
    norm = np.sqrt((first @ first) * (second @ second))
    return float(first @ second / norm) if norm > 0 else 0.0


@dataclass(frozen=True, eq=False)
class PerNode:
    """A measure of each conditioning node.

    Attributes
    ----------
    values : array, shape (p,)
        NaN for a node none of whose observed pairs have different labels.
    """

    values: Floats

    @property
    def undefined(self) -> int:
        """Number of nodes without a value."""
        return int(np.sum(np.isnan(self.values)))

    @property
    def mean(self) -> float:
        """Mean of the others; each node has the same weight. NaN where there is none."""
        defined = self.values[~np.isnan(self.values)]
        return float(defined.mean()) if defined.size else np.nan


def per_node(measure: Measure, relation: ArrayLike, scores: ArrayLike) -> PerNode:
    """A measure of every conditioning node.

    Parameters
    ----------
    measure : callable
        Of labels and scores: `ranking_error`, `concordance`, `auc`, `ndcg`, `spearman` or one of your own.
    relation : array, shape (p, m)
        One row for each conditioning node, NaN where the label was not observed.
    scores : array, shape (p, m)
        Only those at observed labels are looked at.

    Returns
    -------
    PerNode
    """
    relation = np.asarray(relation, dtype=np.float64)
    scores = np.asarray(scores, dtype=np.float64)
    if relation.ndim != 2 or relation.shape != scores.shape:
        raise DataError(
            f"the relation has shape {relation.shape} and the scores {scores.shape}; "
            "both must be the same: one row for each conditioning node, one column for each object"
        )
    observed = ~np.isnan(relation)
    return PerNode(
        np.array(
            [
                measure(row[seen], score[seen])
                for row, score, seen in zip(relation, scores, observed, strict=True)
            ]
        )
    )


def checked(labels: ArrayLike, scores: ArrayLike) -> tuple[Floats, Floats]:
    """Both as vectors of the same length without NaN."""
    arrays = {"labels": np.asarray(labels, dtype=np.float64), "scores": np.asarray(scores, dtype=np.float64)}
    for name, array in arrays.items():
        if array.ndim != 1:
            raise DataError(
                f"the {name} have shape {array.shape}; one conditioning node has a vector (see per_node)"
            )
        if np.isnan(array).any():
            raise DataError(
                f"the {name} hold NaN at {int(np.argmax(np.isnan(array)))}; leave out what is unknown"
            )
    labels, scores = arrays.values()
    if len(labels) != len(scores):
        raise DataError(f"there are {len(labels)} labels and {len(scores)} scores")
    return labels, scores


def tied(values: Any) -> int:
    """Number of pairs with equal values."""
    counts = np.unique(values, return_counts=True)[1]
    return int(np.sum(counts * (counts - 1)) // 2)


def pairs(n: int) -> int:
    """Number of pairs of n."""
    return n * (n - 1) // 2
