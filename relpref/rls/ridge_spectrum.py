"""Regularised least squares from one eigendecomposition: solutions, and what hold-outs need."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from relpref.linalg import symmetric_eigen

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class RidgeSpectrum:
    """P = W diag(1/(σ_i + μ)) Wᵀ for every μ, and the labels y; the dual solution is P y.

    Regression: W diag(σ) Wᵀ = K, so that P = (K + μI)⁻¹. Ranking: U diag(σ) Uᵀ = CKC and W = CU with the centring C within each
    query, so that P = M − ME(EᵀME)⁻¹EᵀM with M = (K + μI)⁻¹ and the indicators E of the queries, whose offsets are projected
    out. In both, (P_UU)⁻¹ (P y)_U are the labels of a set U minus their predictions, offset included, by a training without U.

    Attributes
    ----------
    values, vectors : array, shape (m,) and (m, m)
        σ and W.
    labels : array, shape (m, d)
        y; centred within each query for ranking.
    queries : array of int, shape (m,)
        Number of each example's query; all 0 where there is one.
    query_means : array, shape (number of queries, m), optional
        Mean row of K W in each query; None for regression, which has no offsets.
    counts_pairs : bool
        Whether the loss counts every pair once: its Laplacian is then l I − 11ᵀ = l C for l examples, and μ = λ/l (LPO eq. 5).
        Otherwise μ = λ.
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
        """For the loss of all pairs (LPO eq. 5) or, with queries, of labels centred within each (CR10 eq. 12)."""
        numbers = np.zeros(len(labels), dtype=np.intp) if queries is None else queries
        average = averaging(numbers)

        def centred(matrix: Floats) -> Floats:
            return matrix - (average @ matrix)[numbers]

        inner = centred(centred(kernel).T)
        # Centring removes what the examples have in common but not its rounding, which has the scale of K.
        scale = float(np.linalg.norm(kernel))
        values, vectors = symmetric_eigen(0.5 * (inner + inner.T), "centred kernel matrix", scale=scale)
        vectors = centred(vectors)
        means = (average @ kernel) @ vectors
        return cls(values, vectors, centred(labels), numbers, means, counts_pairs=queries is None)

    def weights(self, regularization: float, left_out: int = 0) -> Floats:
        """1/(σ_i + μ), with the μ of a training without so many examples."""
        kept = len(self.labels) - left_out
        return 1.0 / (self.values + (regularization / kept if self.counts_pairs else regularization))

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

        It is a training in which they have their own predictions as labels, ỹ = y − r; and its offsets are the means of
        ỹ − K P ỹ within each query, because those of its dual solution P ỹ are 0.

        Returns
        -------
        array of int, shape (u,)
            Row of J and b for each of the u members.
        array, shape (k, u)
            J, one row for each query among the members.
        array, shape (k, d)
            b.
        """
        if self.query_means is None:
            none = np.zeros((1, len(members)))
            return self.queries[members], none, np.zeros((1, self.labels.shape[1]))
        queries, position = np.unique(self.queries[members], return_inverse=True)
        means = self.query_means[queries] * weights
        share = (position == np.arange(len(queries))[:, None]) / self.sizes[queries][:, None]
        return position, means @ self.vectors[members].T - share, means @ self.rotated


def averaging(queries: Indices) -> sparse.csr_array:
    """The matrix that averages the rows of each query, shape (number of queries, m)."""
    sizes = np.bincount(queries)
    places = (queries, np.arange(len(queries)))
    return sparse.csr_array((1.0 / sizes[queries], places), shape=(len(sizes), len(queries)))
