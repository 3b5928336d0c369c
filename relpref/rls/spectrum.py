"""Regularized least squares from one eigendecomposition, and exact predictions for examples by a training without them (after LPO)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import solve

from relpref.errors import DataError
from relpref.limits import MAX_HELD_OUT_PAIRS_AT_ONCE, MAX_PREDICTIONS_AT_ONCE
from relpref.linalg import symmetric_eigen

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

# What rounding leaves of the difference of two identical examples, relative to the largest label.
_TIE = 1e-10


@dataclass(frozen=True, eq=False)
class RidgeSpectrum:
    """P = W diag(1/(σ_i + μ)) Wᵀ for every μ, and the labels y; the dual solution is P y.

    Regression: W diag(σ) Wᵀ = K, so that P = (K + μI)⁻¹. Ranking: U diag(σ) Uᵀ = CKC and W = CU
    with the centering C within each query, so that P = M − ME(EᵀME)⁻¹EᵀM with M = (K + μI)⁻¹ and
    the indicators E of the queries, whose offsets are projected out. In both, (P_UU)⁻¹ (P y)_U are
    the labels of a set U minus their predictions, offset included, by a training without U.

    ``values`` (m,) and ``vectors`` (m, m) are σ and W. ``labels`` (m, d) are centered within each
    query for ranking, ``queries`` are the numbers of the examples' queries, and ``query_means`` the
    mean rows of K W in each; None for regression, which has no offsets. Where the loss
    ``counts_pairs`` once, its Laplacian is l I − 11ᵀ = l C for l examples, and μ = λ/l (LPO eq. 5);
    otherwise μ = λ.
    """

    values: Floats
    vectors: Floats
    labels: Floats
    queries: Indices
    query_means: Floats | None = None
    counts_pairs: bool = False

    @classmethod
    def regression(cls, kernel: Floats, labels: Floats) -> Self:
        """For the squared loss; ``kernel`` has shape (m, m), ``labels`` (m, d)."""
        return cls(*symmetric_eigen(kernel), labels, np.zeros(len(labels), dtype=np.intp))

    @classmethod
    def ranking(cls, kernel: Floats, labels: Floats, queries: Indices | None = None) -> Self:
        """For the loss of all pairs (LPO eq. 5) or, with queries, of labels centered within each (CR10 eq. 12)."""
        numbers = np.zeros(len(labels), dtype=np.intp) if queries is None else queries
        sizes = np.bincount(numbers)
        places = (numbers, np.arange(len(numbers)))
        average = sparse.csr_array((1.0 / sizes[numbers], places), shape=(len(sizes), len(numbers)))

        def centred(matrix: Floats) -> Floats:
            return matrix - (average @ matrix)[numbers]

        inner = centred(centred(kernel).T)
        # Centering removes what the examples have in common but not its rounding, which has the
        # scale of K.
        scale = float(np.linalg.norm(kernel))
        values, vectors = symmetric_eigen(
            0.5 * (inner + inner.T), "centred kernel matrix", scale=scale
        )
        vectors = centred(vectors)
        means = (average @ kernel) @ vectors
        return cls(values, vectors, centred(labels), numbers, means, counts_pairs=queries is None)

    def weights(self, regularization: float, left_out: int = 0) -> Floats:
        """1/(σ_i + μ), with the μ of a training without so many examples."""
        kept = len(self.labels) - left_out
        return 1.0 / (
            self.values + (regularization / kept if self.counts_pairs else regularization)
        )

    @cached_property
    def rotated(self) -> Floats:
        """Wᵀ y, shape (m, d)."""
        return self.vectors.T @ self.labels

    @cached_property
    def sizes(self) -> Indices:
        """Number of examples in each query."""
        return np.bincount(self.queries)

    def dual(self, weights: Floats) -> Floats:
        """P y, shape (m, d)."""
        return self.vectors @ (weights[:, None] * self.rotated)

    def offsets(self, weights: Floats, members: Indices) -> tuple[Indices, Floats, Floats]:
        """J and b: a training without some members has the offsets J r − b, with the residuals r of those that are out, 0 for others.

        It is a training in which they have their own predictions as labels, ỹ = y − r; and its
        offsets are the means of ỹ − K P ỹ within each query, because those of its dual solution P ỹ
        are 0. Returned are the row of J and b for each of the u members, J (k, u), one row for each
        query among them, and b (k, d).
        """
        if self.query_means is None:
            none = np.zeros((1, len(members)))
            return self.queries[members], none, np.zeros((1, self.labels.shape[1]))
        queries, position = np.unique(self.queries[members], return_inverse=True)
        means = self.query_means[queries] * weights
        share = (position == np.arange(len(queries))[:, None]) / self.sizes[queries][:, None]
        return position, means @ self.vectors[members].T - share, means @ self.rotated

    def query_members(self) -> Iterator[Indices]:
        """The examples of each query that has a pair."""
        order = np.argsort(self.queries, kind="stable")
        for members in np.split(order, np.cumsum(self.sizes)[:-1]):
            if len(members) > 1:
                yield members


def leave_one_out(spectrum: RidgeSpectrum, regularizations: Floats) -> Floats:
    """What a training on all others predicts for each of m examples, shape (r, m, d) for r regularizations and d outputs."""
    queries, sizes = spectrum.queries, spectrum.sizes
    alone = sizes[queries] == 1
    squares = np.square(spectrum.vectors)
    predictions = np.empty((len(regularizations), *spectrum.labels.shape))
    for held_out, regularization in zip(predictions, regularizations, strict=True):
        weights = spectrum.weights(regularization, left_out=1)
        # Who is alone in a query has 0/0 here: its offset takes any residual, and 0 will do.
        diagonal = np.where(alone, 1.0, squares @ weights)
        residuals = spectrum.dual(weights) / diagonal[:, None]
        held_out[...] = spectrum.labels - residuals
        if spectrum.query_means is not None:  # less J r − b, see RidgeSpectrum.offsets
            means = spectrum.query_means * weights
            own = np.sum(means[queries] * spectrum.vectors, axis=1) - 1 / sizes[queries]
            held_out -= own[:, None] * residuals - (means @ spectrum.rotated)[queries]
    return predictions


def leave_group_out(spectrum: RidgeSpectrum, groups: Indices, regularizations: Floats) -> Floats:
    """What a training on all other groups predicts for the examples of each, shape (r, m, d); groups are numbers from 0, shape (m,).

    O(m u²) for a group of u examples and each regularization, instead of a training.
    """
    predictions = np.empty((len(regularizations), *spectrum.labels.shape))
    order = np.argsort(groups, kind="stable")
    for members in np.split(order, np.cumsum(np.bincount(groups))[:-1]):
        rows, own = spectrum.vectors[members], spectrum.queries[members]
        # A query that leaves as a whole takes its offset along; any value of it will do, so fix its
        # mean residual.
        whole = (np.bincount(own, minlength=len(spectrum.sizes)) == spectrum.sizes)[own]
        same_query = (own[:, None] == own) & whole
        for held_out, regularization in zip(predictions, regularizations, strict=True):
            weights = spectrum.weights(regularization, left_out=len(members))
            weighted = rows * weights
            block = weighted @ rows.T
            block += same_query * max(block.diagonal().max(), weights.min())
            residuals = solve(block, weighted @ spectrum.rotated, assume_a="pos")
            query, response, base = spectrum.offsets(weights, members)
            held_out[members] = (
                spectrum.labels[members] - residuals - (response @ residuals - base)[query]
            )
    return predictions


class HeldOutPairs(NamedTuple):
    """Some pairs with their held-out predictions.

    ``first`` < ``second`` are the examples of each, shape (q,); the rest is what ``predict`` gives
    for them after a training without both, shape (q,), (q, d), (r, q) or (r, q, d). Of a ranking
    loss only the differences are identified.
    """

    first: Indices
    second: Indices
    predicted_first: Floats
    predicted_second: Floats


@dataclass(frozen=True, eq=False)
class LeavePairOut:
    """Every pair left out in turn, or every pair of a query where there are queries.

    ``concordance``, a float or shape (d,), (r,) or (r, d), is the share of the pairs with different
    labels whose held-out predictions have the same order; predictions that are equal up to 1e-10 of
    the largest label count one half. NaN without such a pair.
    """

    concordance: Any
    _spectrum: RidgeSpectrum = field(repr=False)
    _regularizations: Floats = field(repr=False)
    _index: Any = field(repr=False)

    @property
    def auc(self) -> Any:
        """The concordance of labels with two values: an unbiased estimate of the area under the ROC curve (LPO section 5).

        Raises
        ------
        DataError
            If an output has more than two values.
        """
        for members in self._spectrum.query_members():
            for output, labels in enumerate(self._spectrum.labels[members].T):
                if (values := len(np.unique(labels))) > 2:
                    raise DataError(
                        f"AUC is for two labels and output {output} has at least {values}; use "
                        "concordance"
                    )
        return self.concordance

    def pairs(self) -> Iterator[HeldOutPairs]:
        """All pairs with their predictions, in blocks of at most some 250,000 predictions (or one row of pairs)."""
        size = MAX_PREDICTIONS_AT_ONCE // (
            len(self._regularizations) * self._spectrum.labels.shape[1]
        )
        for members in self._spectrum.query_members():
            vectors = self._spectrum.vectors[members]
            systems = [
                PairSystems(self._spectrum, members, vectors, value)
                for value in self._regularizations
            ]
            for start, stop in _row_blocks(len(members), size):
                row, column = np.triu_indices(stop - start, 1, len(members) - start)
                predicted = np.array(
                    [system.predictions(start, stop)[..., row, column] for system in systems]
                )
                predicted = np.swapaxes(predicted, 2, 3)  # (r, 2, q, d)
                left, right = predicted[:, 0][self._index], predicted[:, 1][self._index]
                yield HeldOutPairs(members[start + row], members[start + column], left, right)


def leave_pair_out(
    spectrum: RidgeSpectrum, regularizations: Floats, index: Any = ...
) -> LeavePairOut:
    """Leave out every pair: one m x m product for each regularization, then O(m² d).

    ``index`` is what to take of arrays that have an axis for the regularizations first and one for
    the outputs last.
    """
    score = np.zeros((len(regularizations), spectrum.labels.shape[1]))
    different = np.zeros(spectrum.labels.shape[1])
    tie = _TIE * np.abs(spectrum.labels).max(axis=0)
    for members in spectrum.query_members():
        vectors = spectrum.vectors[members]
        counts = [np.unique(labels, return_counts=True)[1] for labels in spectrum.labels[members].T]
        different += [(len(members) ** 2 - np.sum(np.square(count))) // 2 for count in counts]
        for scored, regularization in zip(score, regularizations, strict=True):
            systems = PairSystems(spectrum, members, vectors, regularization)
            scored += systems.surplus(systems.products(), tie)
    with np.errstate(invalid="ignore"):  # 0/0 where all labels are the same
        concordance = 0.5 + 0.5 * score / different
    return LeavePairOut(concordance[index][()], spectrum, regularizations, index)


class PairSystems:
    """(P_UU) r = (P y)_U for all pairs U of u examples at one regularization; ``vectors`` are their rows of W."""

    def __init__(
        self, spectrum: RidgeSpectrum, members: Indices, vectors: Floats, regularization: float
    ) -> None:
        self.vectors = vectors
        self.weights = weights = spectrum.weights(regularization, left_out=2)
        self.diagonal = np.square(vectors) @ weights
        self.dual = (vectors * weights) @ spectrum.rotated
        self.labels = spectrum.labels[members]
        _, response, base = spectrum.offsets(weights, members)
        self.response, self.base = response[0], base[0]
        # Whether the only pair is all of its query.
        self.whole = len(members) == 2 and spectrum.query_means is not None

    def products(self) -> Floats:
        """P, shape (u, u)."""
        factor = self.vectors * np.sqrt(self.weights)
        return factor @ factor.T

    def surplus(self, products: Floats, tie: Floats) -> Floats:
        """Pairs in the right order less pairs in the wrong order, shape (d,); overwrites the diagonal of P."""
        result = np.zeros(len(tie))
        for start, stop in _row_blocks(len(products), MAX_HELD_OUT_PAIRS_AT_ONCE):
            counted = np.tri(stop - start, len(products) - start, dtype=bool)
            left, right = self._residuals(products[start:stop, start:], start)
            for output, labels in enumerate(self.labels.T):
                gap = labels[start:stop, None] - labels[start:]
                gap[counted] = 0.0
                held_out = (gap - (left[output] - right[output])) * np.sign(gap)
                result[output] += np.count_nonzero(held_out > tie[output])
                result[output] -= np.count_nonzero(held_out < -tie[output])
        return result

    def predictions(self, start: int, stop: int) -> Floats:
        """What both examples of the pairs of some rows with all columns from the first of them get, shape (2, d, rows, columns)."""
        products = (self.vectors[start:stop] * self.weights) @ self.vectors[start:].T
        left, right = self._residuals(products, start)
        offset = (
            self.response[start:stop, None] * left
            + self.response[start:] * right
            - self.base[:, None, None]
        )
        labels = self.labels.T
        return np.array(
            [labels[:, start:stop, None] - left - offset, labels[:, None, start:] - right - offset]
        )

    def _residuals(self, products: Floats, start: int) -> tuple[Floats, Floats]:
        """Labels of the left and of the right example minus their predictions with an offset, each of shape (d, rows, columns).

        ``products`` is the part of P from the row and the column ``start``; what comes out left of
        and on its diagonal has no meaning.
        """
        np.fill_diagonal(products, 0.0)
        left, right = self.diagonal[start : start + len(products), None], self.diagonal[start:]
        if self.whole:
            # P_UU = a (1 −1; −1 1) leaves the offset open; the residuals with mean 0 are those of
            # 2a I.
            products, left, right = 0.0 * products, 2 * left, 2 * right
        determinant = left * right - np.square(products)
        own, other = (
            self.dual.T[:, start : start + len(products), None],
            self.dual.T[:, None, start:],
        )
        return (right * own - products * other) / determinant, (
            left * other - products * own
        ) / determinant


def _row_blocks(count: int, size: int) -> Iterator[tuple[int, int]]:
    """Rows of an upper triangle, as many at once as have about so many elements."""
    start = 0
    while start < count - 1:
        stop = min(start + max(1, size // (count - start)), count)
        yield start, stop
        start = stop
