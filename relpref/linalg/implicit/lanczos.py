"""Traces of functions of a large symmetric matrix, by stochastic Lanczos quadrature, with their standard errors."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from relpref.errors import DataError

Floats = NDArray[np.float64]
# Vectors of all probes that may be kept to hold them orthogonal, in entries: 0.5 GB.
_KEPT = 2**26


@dataclass(frozen=True, eq=False)
class Tridiagonal:
    """What the Lanczos process makes of each of p vectors v: A ≈ V T Vᵀ with a tridiagonal T, v = |v| V e₁.

    Attributes
    ----------
    length : array of int, shape (p,)
        Rows of T: the steps, or fewer where the process ended by itself; 0 for v = 0.
    diagonal, beside : array, shape (p, k)
        Of T; column k of ``beside`` is what comes next.
    vectors : list of arrays, shape (n, p)
        Columns of the V's, if they are kept.
    """

    length: NDArray[np.intp]
    diagonal: Floats
    beside: Floats
    vectors: list[Floats]


@dataclass(frozen=True, eq=False)
class Quadrature:
    """Nodes and weights such that the sum of w f(node) estimates a trace, for every f.

    Attributes
    ----------
    nodes : array, shape (p, k)
        Ritz values of each of p probes.
    weights : array, shape (p, k)
        Every row is an estimate of its own; the estimate is their mean.
    """

    nodes: Floats
    weights: Floats

    def estimate(self, function: Callable[[Floats], Floats]) -> tuple[float, float]:
        """Estimate the trace of a function of the matrix, and its standard error from the spread of the probes."""
        used, values = self.weights > 0, np.zeros(self.weights.shape)
        values[used] = function(self.nodes[used])
        each = np.sum(self.weights * values, axis=1)
        return float(each.mean()), float(each.std(ddof=1) / np.sqrt(each.size))


def lanczos(apply: Callable[[Floats], Floats], start: Floats, steps: int, *, keep: bool) -> Tridiagonal:
    """Run the Lanczos process (1950) on several vectors side by side.

    Parameters
    ----------
    apply : callable
        A times vectors of shape (n, p), for a symmetric A.
    start : array, shape (n, p)
    steps : int
        Products with A at most.
    keep : bool
        Keep all vectors, and hold them orthogonal; else rounding lets copies of eigenvalues turn up.

    Returns
    -------
    Tridiagonal
    """
    count = start.shape[1]
    norm = np.linalg.norm(start, axis=0)
    diagonal, beside = np.zeros((count, steps)), np.zeros((count, steps))
    length = np.where(norm > 0, steps, 0)
    vector = start / np.where(norm > 0, norm, 1.0)
    previous, off, largest = np.zeros_like(vector), np.zeros(count), np.zeros(count)
    vectors: list[Floats] = []
    for step in range(steps):
        image = apply(vector)
        image -= off * previous
        diagonal[:, step] = np.einsum("ij,ij->j", vector, image)
        image -= diagonal[:, step] * vector
        if keep:
            vectors.append(vector)
            for _ in range(2):
                for earlier in vectors:
                    image -= np.einsum("ij,ij->j", earlier, image) * earlier
        off = np.linalg.norm(image, axis=0)
        largest = np.maximum(largest, np.abs(diagonal[:, step]) + off)
        ended = off <= 1e-10 * largest
        length = np.where(ended & (length > step), step + 1, length)
        off = np.where(ended, 0.0, off)
        beside[:, step] = off
        if not off.any():
            break
        previous, vector = vector, np.where(off > 0, image / np.where(off > 0, off, 1.0), 0.0)
    return Tridiagonal(length, diagonal, beside, vectors)


def quadrature(
    apply: Callable[[Floats], Floats],
    size: int,
    probes: int,
    steps: int,
    rng: np.random.Generator,
    *,
    root: ArrayLike = 1.0,
    project: Callable[[Floats], Floats] | None = None,
    mass: float | None = None,
) -> Quadrature:
    """Estimate tr(S P f(A) P S) for every f (Golub & Meurant 1994; Ubaru, Chen & Saad 2017).

    Each probe v = P S z, z of random signs, gives vᵀ f(A) v by a Gauss quadrature, which the Lanczos process yields: exact for
    polynomials of degree 2 steps − 1. Its expectation is the trace.

    Parameters
    ----------
    apply : callable
        A times vectors of shape (n, p), for a symmetric A.
    size : int
        n.
    probes : int
        At least 2: their spread is the error.
    steps : int
        Products with A at most.
    rng : Generator
        Draws the signs.
    root : array, shape (n,), optional
        Diagonal of S.
    project : callable, optional
        P times vectors, an orthogonal projection that commutes with A; the identity by default.
    mass : float, optional
        tr(S P S) where it is known: every probe's weights are then brought to it, which takes the spread of ‖v‖² away.

    Returns
    -------
    Quadrature
        Weights of 0 fill up the rows of probes that ended early: their quadrature is exact.
    """
    if probes < 2 or steps < 1:
        raise DataError(f"a quadrature takes at least 2 probes and 1 step, not {probes} and {steps}")
    through = project or (lambda vectors: vectors)
    start = through(np.reshape(root, (-1, 1)) * rng.choice([-1.0, 1.0], (size, probes)))
    norm = np.linalg.norm(start, axis=0)
    # Without all vectors at hand copies of eigenvalues turn up, which share the weight of the original: harmless, but wasteful.
    keep = size * probes * steps <= _KEPT
    found = lanczos(lambda vectors: through(apply(vectors)), start, steps, keep=keep)
    nodes, weights = np.zeros((probes, steps)), np.zeros((probes, steps))
    for probe, end in enumerate(found.length):
        if end:
            values, vectors = scipy.linalg.eigh_tridiagonal(
                found.diagonal[probe, :end], found.beside[probe, : end - 1]
            )
            nodes[probe, :end] = values
            weights[probe, :end] = vectors[0] ** 2 * (norm[probe] ** 2 if mass is None else mass)
    return Quadrature(nodes, weights)


def log_determinant(
    apply: Callable[[Floats], Floats],
    diagonal: Floats,
    *,
    probes: int = 16,
    steps: int = 40,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Estimate the log determinant of a large symmetric positive definite matrix, and its standard error.

    The diagonal D gives its part exactly, log det A = log det D + tr log(D^-½ A D^-½): what is left has eigenvalues nearer to 1. Two
    matrices seen through the same probes (generators of one seed) have errors that cancel in the difference.

    Parameters
    ----------
    apply : callable
        A times vectors of shape (n, p).
    diagonal : array, shape (n,)
        Of A.
    probes, steps, rng
        See `quadrature`.

    Returns
    -------
    value, error : float

    Raises
    ------
    DataError
        If A turns out not to be positive definite.
    """
    root = np.sqrt(diagonal)[:, None]
    found = quadrature(lambda vectors: apply(vectors / root) / root, diagonal.size, probes, steps, rng)
    if not np.all(found.nodes[found.weights > 0] > 0):
        raise DataError(
            f"a log determinant is wanted of a matrix that is not positive definite: it has an eigenvalue near {found.nodes.min():.3g} "
            "of its diagonal"
        )
    value, error = found.estimate(np.log)
    return value + float(np.log(diagonal).sum()), error
