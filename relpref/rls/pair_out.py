"""Leave-pair-out: exact predictions for every pair by a training without it (LPO Theorem 2, in a stable form)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from relpref.errors import DataError
from relpref.rls.ridge_spectrum import Floats, Indices, RidgeSpectrum

# Pairs treated at once: what the summary makes of them stays in the cache, what is handed out in some megabytes.
_CACHED, _HANDED_OUT = 2**15, 2**18
# What rounding leaves of the difference of two identical examples, relative to the largest label.
_TIE = 1e-10


class HeldOutPairs(NamedTuple):
    """Some pairs with their held-out predictions.

    Attributes
    ----------
    first, second : array of int, shape (q,)
        The two examples of each pair, first < second.
    predicted_first, predicted_second : array, shape (q,), (q, d), (r, q) or (r, q, d)
        What ``predict`` gives for them after a training without both: an axis for the regularisations where several were
        given, one for the outputs where there are several. Of a ranking loss only the differences are identified.
    """

    first: Indices
    second: Indices
    predicted_first: Floats
    predicted_second: Floats


@dataclass(frozen=True, eq=False)
class LeavePairOut:
    """Every pair left out in turn, or every pair of a query where there are queries.

    Attributes
    ----------
    concordance : float or array, shape (d,), (r,) or (r, d)
        Share of the pairs with different labels whose held-out predictions have the same order; equal predictions count one
        half (they are equal up to 1e-10 of the largest label, which is rounding). NaN without such a pair.
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
        for members in _queries(self._spectrum):
            for output, labels in enumerate(self._spectrum.labels[members].T):
                if (values := len(np.unique(labels))) > 2:
                    raise DataError(
                        f"AUC is for two labels and output {output} has at least {values}; use concordance"
                    )
        return self.concordance

    def pairs(self) -> Iterator[HeldOutPairs]:
        """All pairs with their predictions, in blocks of at most some 250,000 predictions (or one row of pairs)."""
        size = _HANDED_OUT // (len(self._regularizations) * self._spectrum.labels.shape[1])
        for members in _queries(self._spectrum):
            vectors = self._spectrum.vectors[members]
            systems = [
                PairSystems.of(self._spectrum, members, vectors, regularization)
                for regularization in self._regularizations
            ]
            for start, stop in _row_blocks(len(members), size):
                row, column = np.triu_indices(stop - start, 1, len(members) - start)
                predicted = np.array(
                    [system.predictions(start, stop)[..., row, column] for system in systems]
                )
                predicted = np.swapaxes(predicted, 2, 3)  # (r, 2, q, d)
                yield HeldOutPairs(
                    members[start + row],
                    members[start + column],
                    predicted[:, 0][self._index],
                    predicted[:, 1][self._index],
                )


def leave_pair_out(spectrum: RidgeSpectrum, regularizations: Floats, index: Any = ...) -> LeavePairOut:
    """Leave out every pair.

    Parameters
    ----------
    spectrum : RidgeSpectrum
        Of m examples, at least three, with d outputs.
    regularizations : array, shape (r,)
    index : optional
        What to take of arrays that have an axis for the regularisations first and one for the outputs last.

    Notes
    -----
    One m x m product for each regularisation, then O(m² d).
    """
    score = np.zeros((len(regularizations), spectrum.labels.shape[1]))
    different = np.zeros(spectrum.labels.shape[1])
    tie = _TIE * np.abs(spectrum.labels).max(axis=0)
    for members in _queries(spectrum):
        vectors = spectrum.vectors[members]
        different += [_different(labels) for labels in spectrum.labels[members].T]
        for scored, regularization in zip(score, regularizations, strict=True):
            systems = PairSystems.of(spectrum, members, vectors, regularization)
            scored += systems.surplus(systems.products(), tie)
    with np.errstate(invalid="ignore"):  # 0/0 where all labels are the same
        concordance = 0.5 + 0.5 * score / different
    return LeavePairOut(concordance[index][()], spectrum, regularizations, index)


class PairSystems(NamedTuple):
    """(P_UU) r = (P y)_U for all pairs U of some examples, at one regularisation.

    Attributes
    ----------
    vectors, weights : array, shape (u, m) and (m,)
        P = W diag(weights) Wᵀ.
    diagonal, dual : array, shape (u,) and (u, d)
        Diagonal of P, and P y.
    labels : array, shape (u, d)
    response, base : array, shape (u,) and (d,)
        For the offset, see `RidgeSpectrum.offsets`.
    whole : bool
        Whether the only pair is all of its query.
    """

    vectors: Floats
    weights: Floats
    diagonal: Floats
    dual: Floats
    labels: Floats
    response: Floats
    base: Floats
    whole: bool

    @classmethod
    def of(
        cls, spectrum: RidgeSpectrum, members: Indices, vectors: Floats, regularization: float
    ) -> "PairSystems":
        """Of the pairs of some members, whose rows of W are ``vectors``."""
        weights = spectrum.weights(regularization, left_out=2)
        diagonal = np.square(vectors) @ weights
        dual = (vectors * weights) @ spectrum.rotated
        _, response, base = spectrum.offsets(weights, members)
        whole = len(members) == 2 and spectrum.query_means is not None
        return cls(vectors, weights, diagonal, dual, spectrum.labels[members], response[0], base[0], whole)

    def products(self) -> Floats:
        """P, shape (u, u)."""
        factor = self.vectors * np.sqrt(self.weights)
        return factor @ factor.T

    def surplus(self, products: Floats, tie: Floats) -> Floats:
        """Pairs in the right order less pairs in the wrong order, shape (d,); overwrites the diagonal of P."""
        result = np.zeros(len(tie))
        for start, stop in _row_blocks(len(products), _CACHED):
            counted = np.tri(stop - start, len(products) - start, dtype=bool)
            left, right = self.residuals(products[start:stop, start:], start)
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
        left, right = self.residuals(products, start)
        offset = (
            self.response[start:stop, None] * left + self.response[start:] * right - self.base[:, None, None]
        )
        labels = self.labels.T
        return np.array(
            [labels[:, start:stop, None] - left - offset, labels[:, None, start:] - right - offset]
        )

    def residuals(self, products: Floats, start: int) -> tuple[Floats, Floats]:
        """Labels of the left and of the right example minus their predictions with an offset, each of shape (d, rows, columns).

        ``products`` is the part of P from the row and the column ``start``; what comes out left of and on its diagonal
        has no meaning.
        """
        np.fill_diagonal(products, 0.0)
        left, right = self.diagonal[start : start + len(products), None], self.diagonal[start:]
        if self.whole:
            # P_UU = a (1 −1; −1 1) leaves the offset open; the residuals with mean 0 are those of 2a I.
            products, left, right = 0.0 * products, 2 * left, 2 * right
        determinant = left * right - np.square(products)
        own, other = self.dual.T[:, start : start + len(products), None], self.dual.T[:, None, start:]
        return (right * own - products * other) / determinant, (left * other - products * own) / determinant


def _queries(spectrum: RidgeSpectrum) -> Iterator[Indices]:
    """The examples of each query that has a pair."""
    order = np.argsort(spectrum.queries, kind="stable")
    for members in np.split(order, np.cumsum(spectrum.sizes)[:-1]):
        if len(members) > 1:
            yield members


def _row_blocks(count: int, size: int) -> Iterator[tuple[int, int]]:
    """Rows of an upper triangle, as many at once as have about so many elements."""
    start = 0
    while start < count - 1:
        stop = min(start + max(1, size // (count - start)), count)
        yield start, stop
        start = stop


def _different(labels: Floats) -> int:
    """Number of pairs with different labels."""
    counts = np.unique(labels, return_counts=True)[1]
    return int(len(labels) ** 2 - np.sum(np.square(counts))) // 2
