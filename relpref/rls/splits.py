"""Cross-validation over edges, for scikit-learn, and measures of rankings.

The new nodes of test edges determine the meaning of a score:

=======  ======================================  ==============
setting  nodes of a test edge                    splitter
=======  ======================================  ==============
1        both known                              `EdgeKFold`
2        new conditioning node, known object     `SourceKFold`
3        known conditioning node, new object     `TargetKFold`
4        both new                                `BothKFold`
=======  ======================================  ==============

The settings are those of Park & Marcotte 2012 and Pahikkala et al. 2015; scores differ much between
them. Edges between the same nodes always leave together. A symmetric or reciprocal relation needs
``symmetric=True``: its edges (v, w) and (w, v) say the same, and a node that is new is new at both
ends.

Examples
--------
>>> import numpy as np
>>> from relpref.rls import SourceKFold
>>> edges = np.array([(0, 1), (0, 2), (1, 2), (2, 0)])
>>> train, test = next(SourceKFold(3).split(edges))
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from itertools import combinations_with_replacement, product
from math import comb
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import kendalltau, rankdata
from sklearn.metrics import ndcg_score
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state

from relpref.data.arrays import Floats, Indices, Mask
from relpref.errors import DataError


@dataclass(eq=False, repr=False)
class _EdgeSplitter(BaseCrossValidator):
    """K folds of edges or of nodes."""

    n_splits: int = 5
    _: KW_ONLY
    shuffle: bool = False
    random_state: Any = None
    symmetric: bool = False

    def __post_init__(self) -> None:
        if self.n_splits < 2:
            raise DataError(f"n_splits is {self.n_splits}; at least 2")
        if self.random_state is not None and not self.shuffle:
            raise DataError("random_state has no effect without shuffle=True")

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Indices, Indices]]:
        """Iterate over positions of training and test edges.

        Parameters
        ----------
        X : DataFrame or array
            With columns ``source`` and ``target``, or an array of shape (q, 2) with any labels of
            nodes.
        y : ignored
        groups : DataFrame or array, optional
            Edges, where ``X`` holds something else, such as features of edges.

        Raises
        ------
        DataError
            If there are no edges, or a fold has none to train or test with.
        """
        sources, targets = self._ends(X if groups is None else groups)
        for number, (train, test) in enumerate(self._masks(sources, targets)):
            for name, mask in (("training", train), ("test", test)):
                if not mask.any():
                    raise DataError(
                        f"{type(self).__name__}: split {number} has no {name} edges among "
                        f"{len(sources)}; use fewer splits"
                    )
            yield np.flatnonzero(train), np.flatnonzero(test)

    @abstractmethod
    def _masks(self, sources: Indices, targets: Indices) -> Iterator[tuple[Mask, Mask]]: ...

    def _ends(self, edges: Any) -> tuple[Indices, Indices]:
        """Number the nodes of each edge from 0; both ends alike if the relation is symmetric."""
        if isinstance(edges, pd.DataFrame) and {"source", "target"} <= set(edges.columns):
            ends = [edges["source"], edges["target"]]
        elif np.ndim(edges) == 2 and np.shape(edges)[1] == 2:
            ends = [pd.Series(end) for end in np.asarray(edges).T]
        else:
            raise DataError(
                f"{type(self).__name__}: edges have the shape {np.shape(edges)}; give two columns, "
                "source and target, as X or as groups"
            )
        if not self.symmetric:
            return pd.factorize(ends[0])[0], pd.factorize(ends[1])[0]
        both = pd.factorize(pd.concat(ends, ignore_index=True))[0]
        return both[: len(ends[0])], both[len(ends[0]) :]

    def _folds(self, numbers: Indices, name: str, random: Any) -> Indices:
        """Assign folds of nearly equal sizes to everything that has a number."""
        count = int(numbers.max(initial=-1)) + 1
        if count < self.n_splits:
            raise DataError(
                f"{type(self).__name__}: {count} {name} cannot make {self.n_splits} folds"
            )
        order = random.permutation(count) if self.shuffle else np.arange(count)
        folds = np.empty(count, dtype=np.intp)
        folds[order] = np.arange(count) * self.n_splits // count
        return folds

    def _node_folds(
        self, sources: Indices, targets: Indices, new: tuple[str, ...]
    ) -> tuple[Indices, Indices]:
        """Folds of the two nodes of each edge.

        There is one set of nodes if the relation is symmetric; otherwise the ends named in ``new``
        have folds, and the others -1.
        """
        random = check_random_state(self.random_state)
        if self.symmetric:
            folds = self._folds(np.append(sources, targets), "nodes", random)
            return folds[sources], folds[targets]
        of_sources, of_targets = (
            self._folds(numbers, name, random)[numbers]
            if name in new
            else np.full_like(numbers, -1)
            for name, numbers in (("sources", sources), ("targets", targets))
        )
        return of_sources, of_targets


class EdgeKFold(_EdgeSplitter):
    """K folds of edges: both nodes of a test edge are known from other edges (setting 1).

    Parameters
    ----------
    n_splits : int
        Number of folds.
    shuffle : bool
        Whether to shuffle before folds are made; otherwise they are contiguous.
    random_state : int, RandomState or None
        Seed of the shuffling.
    symmetric : bool
        Whether (v, w) and (w, v) are one edge, as in a symmetric or reciprocal relation.
    """

    def _masks(self, sources: Indices, targets: Indices) -> Iterator[tuple[Mask, Mask]]:
        if self.symmetric:
            sources, targets = np.minimum(sources, targets), np.maximum(sources, targets)
        pairs = pd.factorize(sources * (int(targets.max(initial=0)) + 1) + targets)[0]
        folds = self._folds(pairs, "pairs of nodes", check_random_state(self.random_state))[pairs]
        for fold in range(self.n_splits):
            yield folds != fold, folds == fold


class SourceKFold(_EdgeSplitter):
    """K folds of sources, the conditioning nodes: new sources, known targets (setting 2).

    Parameters are those of `EdgeKFold`. Where sources and targets are nodes of one domain with a
    ``symmetric`` or reciprocal relation, training edges have no new node at either end, and edges
    between two new nodes are left out.
    """

    _new: ClassVar = ("sources",)

    def _masks(self, sources: Indices, targets: Indices) -> Iterator[tuple[Mask, Mask]]:
        new, others = self._node_folds(sources, targets, self._new)
        if self._new == ("targets",):
            new, others = others, new
        for fold in range(self.n_splits):
            yield (new != fold) & (others != fold), (new == fold) & (others != fold)


class TargetKFold(SourceKFold):
    """K folds of targets, the objects: as `SourceKFold`, with new targets (setting 3)."""

    _new: ClassVar = ("targets",)


class BothKFold(_EdgeSplitter):
    """K folds of sources and K of targets: both nodes of a test edge are new (setting 4).

    Edges with one new node are in neither part. There are K² pairs of folds; of a ``symmetric``
    relation K (K + 1)/2, and K is at least 3. Parameters are those of `EdgeKFold`.
    """

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        return self.n_splits * (self.n_splits + 1) // 2 if self.symmetric else self.n_splits**2

    def _masks(self, sources: Indices, targets: Indices) -> Iterator[tuple[Mask, Mask]]:
        of_sources, of_targets = self._node_folds(sources, targets, ("sources", "targets"))
        folds = range(self.n_splits)
        if not self.symmetric:
            for row, column in product(folds, folds):
                new_source, new_target = of_sources == row, of_targets == column
                yield ~(new_source | new_target), new_source & new_target
            return
        low, high = np.minimum(of_sources, of_targets), np.maximum(of_sources, of_targets)
        for pair in combinations_with_replacement(folds, 2):
            new = np.isin(low, pair) | np.isin(high, pair)
            yield ~new, (low == pair[0]) & (high == pair[1])


Measure = Callable[[ArrayLike, ArrayLike], float]


def ranking_error(labels: ArrayLike, scores: ArrayLike) -> float:
    """Share of the pairs with different labels that the scores order wrongly (CR10 eq. 5).

    Equal scores count one half. NaN where all labels are the same. Takes O(n log n).
    """
    labels, scores = _checked(labels, scores)
    total = comb(len(labels), 2)
    different, decided = total - _tied(labels), total - _tied(scores)
    if different == 0:
        return np.nan
    if decided == 0:
        return 0.5
    # Kendall's τ_b = (concordant − discordant) / √(different · decided); the difference is a whole
    # number.
    tau = kendalltau(labels, scores).statistic
    surplus = round(tau * np.sqrt(float(different)) * np.sqrt(float(decided)))
    return 0.5 - 0.5 * surplus / different


def concordance(labels: ArrayLike, scores: ArrayLike) -> float:
    """Share of the pairs with different labels in the right order: one minus `ranking_error`."""
    return 1.0 - ranking_error(labels, scores)


def auc(labels: ArrayLike, scores: ArrayLike) -> float:
    """Area under the ROC curve: `concordance` of two labels, the larger of which is positive."""
    if len(values := np.unique(np.asarray(labels))) > 2:
        raise DataError(f"AUC is for two labels and there are {len(values)}; use concordance")
    return concordance(labels, scores)


def ndcg(labels: ArrayLike, scores: ArrayLike, *, k: int | None = None) -> float:
    """Normalized discounted cumulative gain, 0 to 1 (Järvelin & Kekäläinen 2002).

    Labels are the gains, and not negative; for exponential gains give 2**labels − 1. Only the first
    ``k`` ranks count, all by default. Equal scores share the average of their gains (McSherry &
    Najork 2008). NaN where all labels are the same.
    """
    labels, scores = _checked(labels, scores)
    if labels.min(initial=0.0) < 0:
        raise DataError(
            f"NDCG needs gains, and a label is {labels.min():g}; shift or map the labels to 0 and "
            "above"
        )
    if k is not None and k < 1:
        raise DataError(f"k is {k}; it must be at least 1")
    if len(np.unique(labels)) < 2:
        return np.nan
    return float(ndcg_score(labels[None], scores[None], k=k))


def spearman(labels: ArrayLike, scores: ArrayLike) -> float:
    """Rank correlation, ties at their mean rank; 0 for constant scores, NaN for constant labels."""
    labels, scores = _checked(labels, scores)
    if len(np.unique(labels)) < 2:
        return np.nan
    if len(np.unique(scores)) < 2:
        return 0.0
    return float(np.corrcoef(rankdata(labels), rankdata(scores))[0, 1])


@dataclass(frozen=True, eq=False)
class PerNode:
    """Values of a measure for conditioning nodes, shape (p,); NaN without pairs to order."""

    values: Floats

    @property
    def mean(self) -> float:
        """Mean over the nodes with a value, each of the same weight; NaN where there is none."""
        defined = self.values[~np.isnan(self.values)]
        return float(defined.mean()) if defined.size else np.nan


def per_node(measure: Measure, relation: ArrayLike, scores: ArrayLike) -> PerNode:
    """Evaluate a measure for every conditioning node.

    Parameters
    ----------
    measure : callable
        Function of labels and scores: `ranking_error`, `concordance`, `auc`, `ndcg`, `spearman` or
        another.
    relation : array, shape (p, m)
        One row for each conditioning node, NaN where the label was not observed.
    scores : array, shape (p, m)
        Scores; only those at observed labels count.
    """
    relation = np.asarray(relation, dtype=np.float64)
    scores = np.asarray(scores, dtype=np.float64)
    if relation.ndim != 2 or relation.shape != scores.shape:
        raise DataError(
            f"the relation has shape {relation.shape} and the scores {scores.shape}; "
            "both must be the same: one row for each conditioning node, one column for each object"
        )
    rows = zip(relation, scores, ~np.isnan(relation), strict=True)
    return PerNode(
        np.array([measure(row[observed], score[observed]) for row, score, observed in rows])
    )


def _checked(labels: ArrayLike, scores: ArrayLike) -> tuple[Floats, Floats]:
    """Check that both are vectors of the same length without NaN."""
    arrays = np.asarray(labels, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    for name, array in zip(("labels", "scores"), arrays, strict=True):
        if array.ndim != 1:
            raise DataError(
                f"the {name} have shape {array.shape}; one conditioning node has a vector (see "
                "per_node)"
            )
        if np.isnan(array).any():
            raise DataError(
                f"the {name} hold NaN at {int(np.argmax(np.isnan(array)))}; leave out what is "
                "unknown"
            )
    if len(arrays[0]) != len(arrays[1]):
        raise DataError(f"there are {len(arrays[0])} labels and {len(arrays[1])} scores")
    return arrays


def _tied(values: Any) -> int:
    """Number of pairs with equal values."""
    counts = np.unique(values, return_counts=True)[1]
    return int(counts @ (counts - 1)) // 2
