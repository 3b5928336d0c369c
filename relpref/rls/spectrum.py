"""Regularized least squares from one eigendecomposition, with exact hold-outs (after LPO)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse
from scipy.linalg import solve

from relpref.data.arrays import Floats, Indices
from relpref.errors import DataError
from relpref.limits import MAX_HELD_OUT_PAIRS_AT_ONCE, MAX_PREDICTIONS_AT_ONCE
from relpref.linalg import Eigen, symmetric_eigen

# Size of rounding in the difference of two identical examples, relative to the largest label.
_TIE = 1e-10


@dataclass(frozen=True, eq=False)
class RidgeSpectrum:
    """Matrix P = W diag(1/(σ_i + μ)) Wᵀ for every μ, and labels y; the dual solution is P y.

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
        """Decompose for the squared loss; ``kernel`` has shape (m, m), ``labels`` (m, d)."""
        return cls(*symmetric_eigen(kernel), labels, np.zeros(len(labels), dtype=np.intp))

    @classmethod
    def ranking(cls, kernel: Floats, labels: Floats, queries: Indices | None = None) -> Self:
        """Decompose for the loss of all pairs (LPO eq. 5).

        With queries, for the loss of labels centered within each query (CR10 eq. 12).
        """
        numbers = np.zeros(len(labels), dtype=np.intp) if queries is None else queries
        sizes = np.bincount(numbers)
        places = (numbers, np.arange(len(numbers)))
        average = sparse.csr_array((1.0 / sizes[numbers], places), shape=(len(sizes), len(numbers)))

        def centred(matrix: Floats) -> Floats:
            return matrix - (average @ matrix)[numbers]

        values, vectors = centered_eigen(centred(centred(kernel).T), kernel)
        vectors = centred(vectors)
        means = (average @ kernel) @ vectors
        return cls(values, vectors, centred(labels), numbers, means, counts_pairs=queries is None)

    def weights(self, regularization: float, left_out: int = 0) -> Floats:
        """Weights 1/(σ_i + μ), with the μ of a training without ``left_out`` examples."""
        if self.counts_pairs:
            regularization = regularization / (len(self.labels) - left_out)
        return 1.0 / (self.values + regularization)

    @cached_property
    def rotated(self) -> Floats:
        """Rotated labels Wᵀ y, shape (m, d)."""
        return self.vectors.T @ self.labels

    @cached_property
    def sizes(self) -> Indices:
        """Number of examples in each query."""
        return np.bincount(self.queries)

    def dual(self, weights: Floats) -> Floats:
        """Dual solution P y, shape (m, d)."""
        return self.vectors @ (weights[:, None] * self.rotated)

    def offsets(self, weights: Floats, members: Indices) -> tuple[Indices, Floats, Floats]:
        """Offsets J r − b of a training without some members, with their residuals r.

        This training equals one in which their predictions are their labels, ỹ = y − r (r is 0 for
        the others). The offsets are the means of ỹ − K P ỹ within each query, because those of the
        dual solution P ỹ are 0. Returned are the row of J and b for each of the u members, J
        (k, u), one row for each query among them, and b (k, d).
        """
        if self.query_means is None:
            none = np.zeros((1, len(members)))
            return self.queries[members], none, np.zeros((1, self.labels.shape[1]))
        queries, position = np.unique(self.queries[members], return_inverse=True)
        means = self.query_means[queries] * weights
        share = (position == np.arange(len(queries))[:, None]) / self.sizes[queries][:, None]
        return position, means @ self.vectors[members].T - share, means @ self.rotated

    def query_members(self) -> Iterator[Indices]:
        """Iterate over the examples of each query that has a pair."""
        return (members for members in _members(self.queries) if len(members) > 1)


def centered_eigen(centered: Floats, kernel: Floats) -> Eigen:
    """Eigendecomposition of a kernel matrix after its centering.

    Centering removes the common part of the examples but not its rounding, which has the scale of
    the kernel.
    """
    scale = float(np.linalg.norm(kernel))
    symmetric = 0.5 * (centered + centered.T)
    return symmetric_eigen(symmetric, "centred kernel matrix", scale=scale)


def _members(groups: Indices) -> list[Indices]:
    """Positions of the members of each group; groups are numbers from 0."""
    order = np.argsort(groups, kind="stable")
    return np.split(order, np.cumsum(np.bincount(groups))[:-1])


def leave_one_out(spectrum: RidgeSpectrum, regularizations: Floats) -> Floats:
    """Predict each of m examples by a training on all others.

    Shape (r, m, d) for r regularizations and d outputs.
    """
    queries, sizes = spectrum.queries, spectrum.sizes
    alone = sizes[queries] == 1
    squares = np.square(spectrum.vectors)
    predictions = np.empty((len(regularizations), *spectrum.labels.shape))
    for held_out, regularization in zip(predictions, regularizations, strict=True):
        weights = spectrum.weights(regularization, left_out=1)
        # An example alone in a query has 0/0 here: its offset takes any residual, such as 0.
        diagonal = np.where(alone, 1.0, squares @ weights)
        residuals = spectrum.dual(weights) / diagonal[:, None]
        held_out[...] = spectrum.labels - residuals
        if spectrum.query_means is not None:  # subtract J r − b, see RidgeSpectrum.offsets
            means = spectrum.query_means * weights
            response = np.sum(means[queries] * spectrum.vectors, axis=1) - 1 / sizes[queries]
            held_out -= response[:, None] * residuals - (means @ spectrum.rotated)[queries]
    return predictions


def leave_group_out(spectrum: RidgeSpectrum, groups: Indices, regularizations: Floats) -> Floats:
    """Predict the examples of each group by a training on all other groups, shape (r, m, d).

    Groups are numbers from 0, shape (m,). Takes O(m u²) for a group of u examples and each
    regularization, instead of a training.
    """
    predictions = np.empty((len(regularizations), *spectrum.labels.shape))
    for members in _members(groups):
        rows, queries = spectrum.vectors[members], spectrum.queries[members]
        # The offset of a query without remaining examples is free, so fix its mean residual.
        removed = np.bincount(queries, minlength=len(spectrum.sizes)) == spectrum.sizes
        same_query = (queries[:, None] == queries) & removed[queries]
        for held_out, regularization in zip(predictions, regularizations, strict=True):
            weights = spectrum.weights(regularization, left_out=len(members))
            weighted = rows * weights
            block = weighted @ rows.T
            block += same_query * max(block.diagonal().max(), weights.min())
            residuals = solve(block, weighted @ spectrum.rotated, assume_a="pos")
            query, response, base = spectrum.offsets(weights, members)
            offsets = (response @ residuals - base)[query]
            held_out[members] = spectrum.labels[members] - residuals - offsets
    return predictions


class HeldOutPairs(NamedTuple):
    """Pairs with their held-out predictions.

    ``first`` < ``second`` are the examples of each, shape (q,); their predictions are by a training
    without both, shape (q,), (q, d), (r, q) or (r, q, d). With a ranking loss only differences are
    identified.
    """

    first: Indices
    second: Indices
    predicted_first: Floats
    predicted_second: Floats


@dataclass(frozen=True, eq=False)
class LeavePairOut:
    """Results of leaving out every pair in turn (within queries where there are queries).

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
        """Area under the ROC curve, without bias (LPO section 5): the concordance of two labels.

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
        """Iterate over all pairs, in blocks of at most some 250,000 predictions."""
        spectrum = self._spectrum
        size = MAX_PREDICTIONS_AT_ONCE // (len(self._regularizations) * spectrum.labels.shape[1])
        for members in spectrum.query_members():
            vectors = spectrum.vectors[members]
            systems = [
                PairSystems(spectrum, members, vectors, value) for value in self._regularizations
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

    ``index`` selects from arrays that have an axis for the regularizations first and one for the
    outputs last.
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
    """Systems (P_UU) r = (P y)_U for all pairs U of u examples at one regularization.

    ``vectors`` are their rows of W.
    """

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
        # Whether nothing is left of the query without its only pair.
        self.singular = len(members) == 2 and spectrum.query_means is not None

    def products(self) -> Floats:
        """Matrix P, shape (u, u)."""
        factor = self.vectors * np.sqrt(self.weights)
        return factor @ factor.T

    def surplus(self, products: Floats, tie: Floats) -> Floats:
        """Pairs in the right order minus pairs in the wrong order, shape (d,).

        Overwrites the diagonal of P.
        """
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
        """Predictions of the pairs of some rows with all columns from the first of these on.

        Shape (2, d, rows, columns), for both examples of each pair.
        """
        products = (self.vectors[start:stop] * self.weights) @ self.vectors[start:].T
        left, right = self._residuals(products, start)
        offset = self.response[start:stop, None] * left + self.response[start:] * right
        offset -= self.base[:, None, None]
        labels = self.labels.T
        first, second = labels[:, start:stop, None] - left, labels[:, None, start:] - right
        return np.array([first - offset, second - offset])

    def _residuals(self, products: Floats, start: int) -> tuple[Floats, Floats]:
        """Labels of the left and of the right example minus their predictions with an offset.

        Each has shape (d, rows, columns). ``products`` is the part of P from the row and the column
        ``start``; results left of and on its diagonal have no meaning.
        """
        np.fill_diagonal(products, 0.0)
        rows = slice(start, start + len(products))
        left, right = self.diagonal[rows, None], self.diagonal[start:]
        if self.singular:
            # P_UU = a (1 −1; −1 1) leaves the offset open; the residuals with mean 0 are those of
            # 2a I.
            products, left, right = 0.0 * products, 2 * left, 2 * right
        determinant = left * right - np.square(products)
        first, second = self.dual.T[:, rows, None], self.dual.T[:, None, start:]
        left_residual = (right * first - products * second) / determinant
        return left_residual, (left * second - products * first) / determinant


def _row_blocks(count: int, size: int) -> Iterator[tuple[int, int]]:
    """Split the rows of an upper triangle into blocks of about ``size`` elements."""
    start = 0
    while start < count - 1:
        stop = min(start + max(1, size // (count - start)), count)
        yield start, stop
        start = stop
