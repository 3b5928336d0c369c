"""Eigendecompositions and factors of kernel matrices, and checks of such matrices."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.sparse.linalg
from jax import Array
from jax.dtypes import canonicalize_dtype
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh, svd

from relpref.errors import DataError
from relpref.limits import JITTERS, require_memory
from relpref.linalg.arrays import factorize, namespace, stop_gradient, while_loop

Floats = NDArray[np.float64]

# Rounding leaves eigenvalues uncertain by a few n·eps·largest at worst; the zero eigenvalues of
# products and of kernels with identical nodes come out at √n·eps·largest and below.
_WORST, _TYPICAL = 100.0, 4.0


class Eigen(NamedTuple):
    """V diag(values) Vᵀ."""

    values: Floats  # ascending, not negative, shape (r,); all n, or only those that are not 0
    vectors: Floats  # V, shape (n, r); its columns are orthonormal


def symmetric_eigen(matrix: ArrayLike, name: str = "kernel matrix", *, scale: float = 0.0) -> Eigen:
    """Decompose a positive semidefinite matrix; eigenvalues within rounding become 0.

    Otherwise identical nodes or a kernel of low rank would lose most digits of 1/(eigenvalue + λ)
    for a small λ. ``scale`` is the size of the numbers from which the matrix was computed, if they
    are larger than the matrix: it has their rounding. DataError, which calls the matrix ``name``,
    if it is not square, finite, symmetric and positive semidefinite.
    """
    square = checked_symmetric(matrix, name)
    require_memory(3 * square.nbytes, f"the eigendecomposition of the {name}")
    values, vectors = eigh(square, driver="evd", check_finite=False)
    scale = max(scale, float(np.abs(values).max(initial=0.0)))
    unit = np.finfo(np.float64).eps * scale
    if values.size and values[0] < -_WORST * len(values) * unit:
        negative = int(np.sum(values < 0))
        raise DataError(
            f"the {name} is indefinite: its smallest eigenvalue is {values[0]:.3g}, its largest "
            f"{values[-1]:.3g}, {negative} of {len(values)} are negative; give "
            "relpref.linalg.nearest_semidefinite(K), which sets those to 0"
        )
    return Eigen(np.where(values > _TYPICAL * np.sqrt(len(values)) * unit, values, 0.0), vectors)


def factor_eigen(factor: ArrayLike) -> Eigen:
    """Decompose F Fᵀ, F finite of shape (n, d), without eigenvalues within rounding; O(n d²)."""
    left, singular, _ = svd(
        np.asarray(factor, dtype=np.float64), full_matrices=False, check_finite=False
    )
    count, width = left.shape
    kept = singular > np.finfo(np.float64).eps * max(count, width) * singular.max(initial=0.0)
    return Eigen(np.square(singular[kept])[::-1], left[:, kept][:, ::-1])


def checked_symmetric(matrix: ArrayLike, name: str = "kernel matrix") -> Floats:
    """The matrix as float64; DataError where it is not square, finite and symmetric."""
    square = np.asarray(matrix, dtype=np.float64)
    if square.ndim != 2 or square.shape[0] != square.shape[1]:
        raise DataError(f"the {name} has shape {square.shape}; it must be square")
    if not np.isfinite(square.sum()) and not np.all(np.isfinite(square)):
        row, column = np.argwhere(~np.isfinite(square))[0]
        raise DataError(
            f"the {name} holds {square[row, column]} at row {row}, column {column}; all entries "
            "must be finite"
        )
    apart = np.abs(square - square.T)
    row, column = np.unravel_index(np.argmax(apart), apart.shape) if square.size else (0, 0)
    if square.size and apart[row, column] > 1e-10 * max(
        abs(float(square.max(initial=0.0))), abs(float(square.min(initial=0.0)))
    ):
        raise DataError(
            f"the {name} is not symmetric: entry ({row}, {column}) is {square[row, column]:.6g} "
            f"and ({column}, {row}) is {square[column, row]:.6g}, the largest difference; give "
            "(K + K.T) / 2 if that is what you mean"
        )
    return square


def nearest_semidefinite(matrix: ArrayLike) -> Floats:
    """The positive semidefinite matrix nearest to (K + Kᵀ)/2 in the Frobenius norm.

    Negative eigenvalues become 0 (Higham 1988).

    Parameters
    ----------
    matrix : array, shape (n, n)
    """
    square = np.asarray(matrix, dtype=np.float64)
    if square.ndim != 2 or square.shape[0] != square.shape[1]:
        raise DataError(f"the matrix has shape {square.shape}; it must be square")
    values, vectors = eigh(0.5 * (square + square.T), driver="evd")
    kept = values > 0
    root = vectors[:, kept] * np.sqrt(values[kept])
    return root @ root.T


def real(values: Any) -> Any:
    """Array of JAX's default float type: float64 inside ``enable_x64`` and float32 outside.

    Arrays of NumPy stay NumPy's.
    """
    # The dtype is named because ``jnp.asarray`` alone may hand back the float64 version of an array
    # that was a constant of a program compiled in double precision before.
    return namespace(values).asarray(values, dtype=canonicalize_dtype(float))


def symmetric_lu(matrix: Any) -> Any:
    """Factorization of a sparse symmetric positive definite matrix; its ``solve`` takes vectors."""
    return scipy.sparse.linalg.splu(
        scipy.sparse.csc_array(matrix),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )


class Factor(NamedTuple):
    """A Cholesky factor and the jitter it needed."""

    # Lower triangular L with L Lᵀ = K + jitter·I, shape (n, n); not finite when no jitter tried was
    # enough.
    lower: Array
    jitter: Array  # what was added to the diagonal, in the units of K; 0 when nothing was needed


def cholesky(matrix: Any) -> Factor:
    """Factorize a covariance, adding the smallest jitter that makes it positive definite.

    The jitters tried are 0, then 1 to 1e5 times ``n * eps * mean(diag)``, with eps that of the
    matrix's dtype. The search is not differentiated; the factor is.

    Parameters
    ----------
    matrix : array, shape (n, n)
        Symmetric; only the lower triangle is read. The factor of an array of NumPy is one of NumPy.
    """
    return (_by_jax if isinstance(matrix, jax.Array) else _cholesky)(matrix)


def _cholesky(matrix: Any) -> Factor:
    xp, fixed = namespace(matrix), stop_gradient(matrix)
    steps = xp.asarray(JITTERS, matrix.dtype)
    unit = np.finfo(matrix.dtype).eps * xp.sum(xp.abs(xp.diagonal(fixed)))

    def jittered(matrix: Any, tried: Any) -> Any:
        return factorize(matrix + steps[tried] * unit * np.eye(len(matrix), dtype=matrix.dtype))

    def fails(state: tuple[Any, Any]) -> Any:
        tried, lower = state
        return ~xp.isfinite(xp.diagonal(lower)).all() & (tried < len(JITTERS) - 1)

    def harder(state: tuple[Any, Any]) -> tuple[Any, Any]:
        return state[0] + 1, jittered(fixed, state[0] + 1)

    tried, lower = while_loop(fails, harder, (xp.asarray(0), factorize(fixed)))
    # JAX cannot differentiate the search.
    return Factor(lower if xp is np else jittered(matrix, tried), steps[tried] * unit)


_by_jax = jax.jit(_cholesky)


# Relative to the largest diagonal entry. Kernels are computed in float64 with relative errors of
# about 1e-13 and the updates add some; what is below is rounding, what is as far below zero is not.
_SLACK = 1e-9


def pivoted_cholesky(
    diagonal: ArrayLike,
    column: Callable[[int], ArrayLike],
    most: int,
    tol: float = 0.0,
    *,
    rng: np.random.Generator | None = None,
) -> tuple[NDArray[np.intp], float]:
    """Choose rows one by one, each time the row that those chosen before explain worst.

    Its Schur complement ``k_ii − K_iZ K_ZZ⁻¹ K_Zi`` is largest; the sum of these is the trace that
    is left out when K is replaced by ``K_·Z K_ZZ⁻¹ K_Z·`` (Harbrecht, Peters &
    Schneider 2012). Only the columns of the chosen rows are asked for; O(m r²) for r rows out of m.

    ``column`` goes from a row's number to its column of K, shape (m,). At most so many rows are
    chosen, fewer where they leave out no more than the share ``tol`` of the trace or the matrix has
    a smaller rank. With ``rng`` they are chosen at random instead, with probabilities in proportion
    to their Schur complements (Chen, Epperly, Tropp & Webber 2023, "Randomly pivoted Cholesky"):
    where eigenvalues fall slowly these explain more than outliers do. Returns the rows in the order
    of choice, and the share of the trace that they leave out. DataError if an entry is not finite,
    the matrix is not positive semidefinite, or memory would not suffice.
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
    return np.array(chosen, dtype=np.intp), float(
        np.clip(left.sum() / trace, 0.0, 1.0)
    ) if trace else 0.0


def _check(entries: NDArray[np.float64], name: str) -> None:
    if not np.all(np.isfinite(entries)):
        at = int(np.flatnonzero(~np.isfinite(entries))[0])
        raise DataError(
            f"{name} of the matrix holds {entries[at]} at entry {at}; all must be finite"
        )


def _refuse_negative(left: NDArray[np.float64], largest: float) -> None:
    """Refuse a diagonal that a positive semidefinite matrix cannot leave, and cut off rounding."""
    if len(left) and left.min() < -_SLACK * max(largest, np.finfo(float).tiny):
        at = int(np.argmin(left))
        raise DataError(
            f"the matrix is not positive semidefinite: {left[at]:.3g} remains of its diagonal at "
            f"entry {at}; correct the similarity or kernel"
        )
    np.maximum(left, 0.0, out=left)
