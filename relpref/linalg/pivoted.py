"""The few rows that stand for a large positive semidefinite matrix: pivots of a Cholesky factorisation, greedy or random."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relpref.errors import DataError
from relpref.memory import require_memory

# Relative to the largest diagonal entry. Kernels are computed in float64 with relative errors of about 1e-13 and the
# updates add some; what is below is rounding, what is as far below zero is not.
_SLACK = 1e-9


def pivoted_cholesky(
    diagonal: ArrayLike,
    column: Callable[[int], ArrayLike],
    most: int,
    tol: float = 0.0,
    *,
    rng: np.random.Generator | None = None,
) -> tuple[NDArray[np.intp], float]:
    """Choose rows one after the other, each time the one that those chosen explain worst.

    Row i is the worst explained where the Schur complement ``k_ii − K_iZ K_ZZ⁻¹ K_Zi`` is largest; the sum of these is the
    trace that is left out when K is replaced by ``K_·Z K_ZZ⁻¹ K_Z·`` (Harbrecht, Peters & Schneider 2012). Only the
    columns of the chosen rows are asked for; O(m r²) for r rows out of m.

    Parameters
    ----------
    diagonal : array, shape (m,)
        ``k_ii``.
    column : callable
        From a row's number to its column of K, shape (m,).
    most : int
        Rows to choose at most.
    tol : float
        Share of the trace that may be left out: with fewer rows if they do.
    rng : Generator, optional
        Choose at random instead, with probabilities in proportion to what is unexplained (Chen, Epperly, Tropp & Webber 2023,
        "Randomly pivoted Cholesky"). Where eigenvalues fall slowly that explains more: the worst explained rows
        are outliers, which explain nothing but themselves.

    Returns
    -------
    indices : array of int, shape (r,)
        In the order of choice, r ≤ ``most``; fewer where the matrix has a smaller rank.
    left_out : float
        Share of the trace that the chosen rows leave out, 0 to 1.

    Raises
    ------
    DataError
        If an entry is not finite, the matrix is not positive semidefinite, or memory would not suffice.
    """
    left = np.array(diagonal, dtype=np.float64)
    if left.ndim != 1 or most < 1 or not 0 <= tol < 1:
        raise DataError(
            f"pivoted_cholesky takes a diagonal of one dimension, most >= 1 and 0 <= tol < 1, "
            f"not shape {left.shape}, {most} and {tol}"
        )
    m = len(left)
    most = min(most, m)
    require_memory(8.0 * m * most, f"a Cholesky factor of {m} rows and {most} columns")
    _check(left, "the diagonal")
    largest, trace = float(left.max(initial=0.0)), float(left.sum())
    _refuse_negative(left, largest)
    rows = np.empty((most, m))  # of the factor's transpose, so that each new one is contiguous
    chosen: list[int] = []
    while len(chosen) < most and left.sum() > tol * trace:
        if left.max() <= _SLACK * largest:
            break
        pivot = int(np.argmax(left)) if rng is None else int(rng.choice(m, p=left / left.sum()))
        fresh = np.array(column(pivot), dtype=np.float64)
        if fresh.shape != (m,):
            raise DataError(f"column {pivot} has shape {fresh.shape}; it must be {(m,)}")
        _check(fresh, f"column {pivot}")
        done = rows[: len(chosen)]
        fresh -= done[:, pivot] @ done
        if abs(fresh[pivot] - left[pivot]) > _SLACK * largest:
            raise DataError(
                f"column {pivot} and the diagonal say different things of entry {pivot}, by "
                f"{abs(fresh[pivot] - left[pivot]):.3g}; both must be of one matrix"
            )
        fresh /= np.sqrt(left[pivot])
        rows[len(chosen)] = fresh
        chosen.append(pivot)
        left -= fresh * fresh
        left[chosen] = 0.0  # they are explained exactly
        _refuse_negative(left, largest)
    return np.array(chosen, dtype=np.intp), float(np.clip(left.sum() / trace, 0.0, 1.0)) if trace else 0.0


def _check(entries: NDArray[np.float64], name: str) -> None:
    if not np.all(np.isfinite(entries)):
        at = int(np.flatnonzero(~np.isfinite(entries))[0])
        raise DataError(f"{name} of the matrix holds {entries[at]} at entry {at}; all must be finite")


def _refuse_negative(left: NDArray[np.float64], largest: float) -> None:
    """What remains of the diagonal is that of a positive semidefinite matrix, up to rounding, which is cut off."""
    if len(left) and left.min() < -_SLACK * max(largest, np.finfo(float).tiny):
        at = int(np.argmin(left))
        raise DataError(
            f"the matrix is not positive semidefinite: {left[at]:.3g} remains of its diagonal at entry {at}; "
            "correct the similarity or kernel"
        )
    np.maximum(left, 0.0, out=left)
