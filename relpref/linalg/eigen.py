"""Symmetric eigendecompositions of kernel matrices, and what is wrong with a matrix that is not a kernel."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh, svd

from relpref.errors import DataError
from relpref.memory import require_memory

Floats = NDArray[np.float64]

# Rounding in K, in its construction and in the decomposition leaves eigenvalues uncertain by a few n·eps·largest at worst; the
# zero eigenvalues of products and of kernels with identical nodes come out at √n·eps·largest and below.
_WORST, _TYPICAL = 100.0, 4.0
_TILE = 256


class Eigen(NamedTuple):
    """V diag(values) Vᵀ.

    Attributes
    ----------
    values : array, shape (r,)
        Ascending, not negative. All n, or only those that are not 0.
    vectors : array, shape (n, r)
        V; its columns are orthonormal.
    """

    values: Floats
    vectors: Floats


def symmetric_eigen(matrix: ArrayLike, name: str = "kernel matrix", *, scale: float = 0.0) -> Eigen:
    """Decompose a positive semidefinite matrix; eigenvalues that are nothing but rounding become 0.

    Beside a small λ in 1/(eigenvalue + λ) they would count, and identical nodes or a kernel of low rank lose most digits.

    Parameters
    ----------
    matrix : array, shape (n, n)
    name : str
        What errors call it.
    scale : float
        Size of what the matrix was computed from, where it is larger than the matrix: its rounding is in it too.

    Raises
    ------
    DataError
        If it is not square, finite, symmetric and positive semidefinite: how far from it, and what to do.
    """
    square = checked_symmetric(matrix, name)
    require_memory(3 * square.nbytes, f"the eigendecomposition of the {name}")
    values, vectors = eigh(square, driver="evd", check_finite=False)
    scale = max(scale, float(np.abs(values).max(initial=0.0)))
    unit = np.finfo(np.float64).eps * scale
    if values.size and values[0] < -_WORST * len(values) * unit:
        negative = int(np.sum(values < 0))
        raise DataError(
            f"the {name} is indefinite: its smallest eigenvalue is {values[0]:.3g}, its largest {values[-1]:.3g}, "
            f"{negative} of {len(values)} are negative; give relpref.linalg.nearest_semidefinite(K), which sets those to 0"
        )
    return Eigen(np.where(values > _TYPICAL * np.sqrt(len(values)) * unit, values, 0.0), vectors)


def factor_eigen(factor: ArrayLike) -> Eigen:
    """Decompose F Fᵀ from F, O(n d²), without the eigenvalues that are nothing but rounding.

    Parameters
    ----------
    factor : array, shape (n, d)
        F, finite.
    """
    left, singular, _ = svd(np.asarray(factor, dtype=np.float64), full_matrices=False, check_finite=False)
    count, width = left.shape
    kept = singular > np.finfo(np.float64).eps * max(count, width) * singular.max(initial=0.0)
    return Eigen(np.square(singular[kept])[::-1], left[:, kept][:, ::-1])


def checked_symmetric(matrix: ArrayLike, name: str = "kernel matrix") -> Floats:
    """The matrix as float64, if it is square, finite and symmetric.

    Raises
    ------
    DataError
        Saying where it is not, how far from symmetric it is, and what to do.
    """
    square = np.asarray(matrix, dtype=np.float64)
    if square.ndim != 2 or square.shape[0] != square.shape[1]:
        raise DataError(f"the {name} has shape {square.shape}; it must be square")
    if not np.isfinite(square.sum()) and not np.all(np.isfinite(square)):
        row, column = np.argwhere(~np.isfinite(square))[0]
        raise DataError(
            f"the {name} holds {square[row, column]} at row {row}, column {column}; all entries must be finite"
        )
    row, column, gap = _largest_asymmetry(square)
    if gap > 1e-10 * max(abs(float(square.max(initial=0.0))), abs(float(square.min(initial=0.0)))):
        raise DataError(
            f"the {name} is not symmetric: entry ({row}, {column}) is {square[row, column]:.6g} and ({column}, {row}) is "
            f"{square[column, row]:.6g}, the largest difference; give (K + K.T) / 2 if that is what you mean"
        )
    return square


def _largest_asymmetry(square: Floats) -> tuple[int, int, float]:
    """Where a matrix differs most from its transpose, and by how much; tile by tile, because transposed reading is slow."""
    found = (0, 0, 0.0)
    starts = range(0, len(square), _TILE)
    for top in starts:
        for left in (start for start in starts if start >= top):
            rows, columns = slice(top, top + _TILE), slice(left, left + _TILE)
            gap = np.abs(square[rows, columns] - square[columns, rows].T)
            place = int(np.argmax(gap))
            if gap.flat[place] > found[2]:
                row, column = np.unravel_index(place, gap.shape)
                found = (top + int(row), left + int(column), float(gap.flat[place]))
    return found


def nearest_semidefinite(matrix: ArrayLike) -> Floats:
    """The positive semidefinite matrix nearest to (K + Kᵀ)/2 in the Frobenius norm: negative eigenvalues set to 0.

    Source: Higham 1988, Linear Algebra and its Applications 103.

    Parameters
    ----------
    matrix : array, shape (n, n)

    Returns
    -------
    array, shape (n, n)
    """
    square = np.asarray(matrix, dtype=np.float64)
    if square.ndim != 2 or square.shape[0] != square.shape[1]:
        raise DataError(f"the matrix has shape {square.shape}; it must be square")
    values, vectors = eigh(0.5 * (square + square.T), driver="evd")
    kept = values > 0
    root = vectors[:, kept] * np.sqrt(values[kept])
    return root @ root.T
