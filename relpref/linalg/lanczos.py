"""Traces of functions of a large symmetric matrix, by stochastic Lanczos quadrature, with their standard errors."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from relpref.errors import DataError
from relpref.linalg.graph_solver import LaplacianSolver

Floats = NDArray[np.float64]
# Vectors of all probes that may be kept to hold them orthogonal, in entries: 0.5 GB.
_KEPT = 2**26


@dataclass(frozen=True, eq=False)
class Tridiagonal:
    """What the Lanczos process makes of each of p vectors v: A ≈ V T Vᵀ with a tridiagonal T, v = |v| V e₁."""

    length: NDArray[np.intp]  # rows of T: the steps, or fewer where the process ended by itself; 0 for v = 0
    diagonal: Floats  # of T, shape (p, k)
    beside: Floats  # beside it; column k is what comes next
    vectors: list[Floats]  # columns of the V's, shape (n, p) each, if they are kept

    def spectra(self) -> Iterator[tuple[int, Floats, Floats]]:
        """Number, eigenvalues and eigenvectors of T of each process that has one."""
        for number, end in enumerate(self.length):
            if end:
                beside = self.beside[number, : end - 1]
                yield number, *scipy.linalg.eigh_tridiagonal(self.diagonal[number, :end], beside)


@dataclass(frozen=True, eq=False)
class Quadrature:
    """Nodes and weights, shape (p, k), such that the sum of w f(node) over each probe's row estimates a trace, for every f."""

    nodes: Floats  # Ritz values of each of p probes
    weights: Floats  # 0 fills up the rows of probes that ended early

    def estimate(self, function: Callable[[Floats], Floats]) -> tuple[float, float]:
        """Estimate the trace of a function of the matrix, and its standard error from the spread of the probes."""
        used, values = self.weights > 0, np.zeros(self.weights.shape)
        values[used] = function(self.nodes[used])
        each = np.sum(self.weights * values, axis=1)
        return float(each.mean()), float(each.std(ddof=1) / np.sqrt(each.size))


def lanczos(apply: Callable[[Floats], Floats], start: Floats, steps: int, *, keep: bool) -> Tridiagonal:
    """Run the Lanczos process (1950) of a symmetric A on several vectors side by side, with ``steps`` products at most.

    With ``keep`` all vectors are kept, and held orthogonal; else rounding lets copies of eigenvalues turn up.
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
    """
    if probes < 2 or steps < 1:
        raise DataError(f"a quadrature takes at least 2 probes and 1 step, not {probes} and {steps}")
    through = project or (lambda vectors: vectors)
    start = through(np.reshape(root, (-1, 1)) * rng.choice([-1.0, 1.0], (size, probes)))
    norm = np.linalg.norm(start, axis=0)
    # Without all vectors, copies of eigenvalues turn up, which share the weight of the original: harmless, but wasteful.
    keep = size * probes * steps <= _KEPT
    found = lanczos(lambda vectors: through(apply(vectors)), start, steps, keep=keep)
    nodes, weights = np.zeros((probes, steps)), np.zeros((probes, steps))
    for probe, values, vectors in found.spectra():
        nodes[probe, : len(values)] = values
        weights[probe, : len(values)] = vectors[0] ** 2 * (norm[probe] ** 2 if mass is None else mass)
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

    Raises
    ------
    DataError
        If A turns out not to be positive definite.
    """
    root = np.sqrt(diagonal)[:, None]
    found = quadrature(lambda vectors: apply(vectors / root) / root, diagonal.size, probes, steps, rng)
    if not np.all(found.nodes[found.weights > 0] > 0):
        raise DataError(
            f"a log determinant was requested of a matrix that is not positive definite: it has an eigenvalue near {found.nodes.min():.3g} "
            "of its diagonal"
        )
    value, error = found.estimate(np.log)
    return value + float(np.log(diagonal).sum()), error


class GapQuadrature(NamedTuple):
    """Nodes and weights for the mean gap variance under any smooth function of a graph's Laplacian.

    Attributes
    ----------
    eigenvalues : array, shape (k,)
        Ascending, not negative.
    gap_weights : array, shape (k,)
        ``sum(gap_weights * f(eigenvalues))`` estimates the mean of K_ii + K_jj − 2 K_ij over the pairs within components for
        K = f(Δ).
    error : float
        Largest relative standard error of it for f(λ) = 1/(λ + s), s from a hundredth of the mean degree to ten times it.
    """

    eigenvalues: Floats
    gap_weights: Floats
    error: float


def gap_quadrature(
    solver: LaplacianSolver, *, probes: int | None = None, steps: int = 12, seed: int = 0
) -> GapQuadrature:
    """Sum up a graph's spectrum for the mean gap variance between nodes of one component.

    That mean is 2 Σ_c s_c tr f(Δ_c) / Σ_c s_c (s_c − 1) over components c of s_c nodes, the constants left out. The weight s_c is a
    constant on each component, so diag(s), Δ and the projection commute, and scaling a probe by √s weighs the traces by s.

    The Lanczos process runs on (Δ + s₀)⁻¹, s₀ a tenth of the mean degree: kernels depend on the smallest eigenvalues of Δ, which
    hubs (the largest ones) would hide from it for hundreds of steps.

    Parameters
    ----------
    solver : LaplacianSolver
    probes : int, optional
        See `quadrature`. By default 32, fewer of many nodes (their traces vary less), at least 4.
    steps, seed : int
        Each step solves for all probes.
    """
    probes = probes or max(4, min(32, 300_000 // max(solver.size, 1)))
    sizes, degree = solver.component_sizes, solver.degree
    pairs = float(np.sum(sizes - 1.0))
    if not pairs:
        return GapQuadrature(np.zeros(1), np.zeros(1), 0.0)
    mean_degree = float(degree[degree > 0].mean())
    middle = 0.1 * mean_degree
    found = quadrature(
        lambda vectors: solver.solve(middle, vectors, tol=1e-6).values,
        solver.size,
        probes,
        min(steps, solver.size),
        np.random.default_rng(seed),
        root=np.sqrt(sizes),
        project=solver.centred,
        mass=pairs,
    )
    used = found.weights > 0
    nodes = np.zeros(found.nodes.shape)
    # Rounding may leave an eigenvalue just below zero.
    nodes[used] = np.maximum(1.0 / found.nodes[used] - middle, 0.0)
    shifts = mean_degree * np.logspace(-2, 1, 7)
    means = np.stack([(found.weights / (nodes + shift)).sum(axis=1) for shift in shifts])
    error = float(np.max(means.std(axis=1, ddof=1) / np.sqrt(probes) / means.mean(axis=1)))
    order = np.argsort(nodes[used], kind="stable")
    return GapQuadrature(nodes[used][order], (2.0 / pairs / probes) * found.weights[used][order], error)
