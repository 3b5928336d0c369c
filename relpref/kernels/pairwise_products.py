"""The products that pairwise kernels consist of, L W Rᵀ, whole or at selected entries.

W is dense or sparse. A sparse product and a single entry are memory bound, a dense product is not: per multiply-add
the former cost about ten times as much. The constants below say so in units of one dense multiply-add; they were
measured with OpenBLAS on one core, 500 to 2000 nodes and 0.5 to 20 % of the edges.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Weights = Any  # Floats or a scipy sparse array or matrix; scipy has no types

SPARSE_COST = 10.0  # of a multiply-add with a stored entry of W
ENTRY_COST = 12.0  # of a multiply-add of a selected entry of the product
GROUP_COST = 5e4  # of a Python step for all selected entries of one row


def is_dense(entries: int, size: int) -> bool:
    """Whether a matrix of ``size`` places with so many ``entries`` is multiplied faster as a dense one."""
    return entries * SPARSE_COST > size


def product(left: Floats, weights: Weights, right: Floats) -> Floats:
    """L W Rᵀ, shape (a, b), for L (a, p), W (p, m) and R (b, m), in the cheaper order."""
    (a, p), (b, m), entries = left.shape, right.shape, _cost(weights)
    if a * (entries + m * b) <= b * (entries + p * a):
        return times(left, weights) @ right.T
    return left @ times(right, weights.T).T


def product_at(left: Floats, weights: Weights, right: Floats, rows: Indices, columns: Indices) -> Floats:
    """(L W Rᵀ)[rows, columns], shape (q,), by the cheapest of three ways.

    They are the whole product, and the generalised vec trick from either side: L W once, then one inner product of
    length m for each entry.
    """
    (a, p), (b, m), q, entries = left.shape, right.shape, len(rows), _cost(weights)
    whole = min(a * (entries + m * b), b * (entries + p * a))
    by_row = a * entries + ENTRY_COST * q * m + GROUP_COST * min(a, q)
    by_column = b * entries + ENTRY_COST * q * p + GROUP_COST * min(b, q)
    if whole <= min(by_row, by_column):
        return product(left, weights, right)[rows, columns]
    if by_row <= by_column:
        return _entries(times(left, weights), right, rows, columns)
    return _entries(times(right, weights.T), left, columns, rows)


def quadratic(left: Floats, weights: Weights) -> Floats:
    """diag(L W Lᵀ), shape (a,)."""
    return np.einsum("ij,ij->i", times(left, weights), left)


def times(left: Floats, weights: Weights) -> Floats:
    """L W, shape (a, m)."""
    if sparse.issparse(weights):
        if is_dense(weights.nnz, weights.shape[0] * weights.shape[1]):
            return left @ weights.toarray()
        return np.ascontiguousarray(left @ weights)
    return left @ weights


def _cost(weights: Weights) -> float:
    """Of multiplying one row by W."""
    size = float(weights.shape[0] * weights.shape[1])
    return min(SPARSE_COST * weights.nnz, size) if sparse.issparse(weights) else size


def _entries(left: Floats, right: Floats, rows: Indices, columns: Indices) -> Floats:
    """(L Rᵀ)[rows, columns]; the entries of one row are one matrix-vector product with the gathered rows of R."""
    if np.any(rows[1:] < rows[:-1]):
        order = np.argsort(rows, kind="stable")
        found = np.empty(len(rows))
        found[order] = _entries(left, right, rows[order], columns[order])
        return found
    found = np.empty(len(rows))
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    ends = np.append(starts[1:], len(rows))
    half = len(right) // 2  # from here on the whole row costs less than gathering
    gathered = np.empty((min(half, int(np.max(ends - starts, initial=0))), right.shape[1]))
    for start, end in zip(starts, ends, strict=True):
        row, some = left[rows[start]], columns[start:end]
        if end - start > half:
            found[start:end] = (right @ row)[some]
        else:
            # The mode matters: the default one, "raise", works on a copy of what it writes to.
            np.take(right, some, axis=0, out=gathered[: end - start], mode="clip")
            np.dot(gathered[: end - start], row, out=found[start:end])
    return found
