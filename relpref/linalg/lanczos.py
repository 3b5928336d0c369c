"""The Lanczos process, and estimates of a large graph's spectrum by it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from relpref.linalg.graph_solver import LaplacianSolver

Floats = NDArray[np.float64]
# Vectors of all probes that may be kept to hold them orthogonal, in entries: 0.5 GB.
_KEPT = 2**26


@dataclass(frozen=True, eq=False)
class Tridiagonal:
    """Results of the Lanczos process for p vectors v: A ≈ V T Vᵀ, T tridiagonal, v = |v| V e₁."""

    # Rows of T: the steps, or fewer where the process ended by itself; 0 for v = 0.
    length: NDArray[np.intp]
    diagonal: Floats  # of T, shape (p, k)
    beside: Floats  # off-diagonal of T, with the entry that would come next
    vectors: list[Floats]  # columns of the V's, shape (n, p) each, if they are kept

    def spectra(self) -> Iterator[tuple[int, Floats, Floats]]:
        """Number of each vector that has a T, with the eigenvalues and eigenvectors of T."""
        for number, end in enumerate(self.length):
            if end:
                beside = self.beside[number, : end - 1]
                yield number, *scipy.linalg.eigh_tridiagonal(self.diagonal[number, :end], beside)


def lanczos(
    apply: Callable[[Floats], Floats], start: Floats, steps: int, *, keep: bool
) -> Tridiagonal:
    """Run the Lanczos process (1950) of a symmetric A on several vectors side by side.

    It takes ``steps`` products at most. With ``keep`` all vectors are kept, and held orthogonal;
    otherwise rounding produces copies of eigenvalues.
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


class GapQuadrature(NamedTuple):
    """Nodes and weights for the mean gap variance under any smooth function of a graph's Laplacian.

    ``sum(gap_weights * f(eigenvalues))`` estimates the mean of K_ii + K_jj − 2 K_ij over the pairs
    within components for K = f(Δ).
    """

    eigenvalues: Floats  # ascending, not negative, shape (k,)
    gap_weights: Floats  # shape (k,)
    # Largest relative standard error of it for f(λ) = 1/(λ + s), s from a hundredth of the mean
    # degree to ten times it.
    error: float


def gap_quadrature(solver: LaplacianSolver, *, seed: int = 0) -> GapQuadrature:
    """Sum up a graph's spectrum for the mean gap variance between nodes of one component.

    That mean is 2 Σ_c s_c tr f(Δ_c) / Σ_c s_c (s_c − 1) over components c of s_c nodes, the
    constants left out. A probe v of random signs gives vᵀ f(Δ) v, whose expectation is the trace,
    by a Gauss quadrature, which the Lanczos process yields (Golub & Meurant 1994; Ubaru, Chen &
    Saad 2017). The weight s_c is a constant on each component, so diag(s), Δ and the projection
    commute, and scaling a probe by √s weighs the traces by s; every probe is scaled to the exact
    mean of ‖v‖², which removes the spread of that.

    The Lanczos process runs on (Δ + s₀)⁻¹, s₀ a tenth of the mean degree: kernels depend on the
    smallest eigenvalues of Δ, which hubs (the largest ones) would hide from it for hundreds of
    steps.
    """
    sizes, degree = solver.component_sizes, solver.degree
    pairs = float(np.sum(sizes - 1.0))
    if not pairs:
        return GapQuadrature(np.zeros(1), np.zeros(1), 0.0)
    # Traces of larger graphs vary less.
    probes, steps = max(4, min(32, 300_000 // solver.size)), min(12, solver.size)
    mean_degree = float(degree[degree > 0].mean())
    middle = 0.1 * mean_degree
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (solver.size, probes))
    process = lanczos(
        lambda vectors: solver.centred(solver.solve(middle, vectors, tol=1e-6).values),
        solver.centred(np.sqrt(sizes)[:, None] * signs),
        steps,
        keep=solver.size * probes * steps <= _KEPT,
    )
    nodes, weights = np.zeros((probes, steps)), np.zeros((probes, steps))
    for probe, values, vectors in process.spectra():
        # Rounding may leave an eigenvalue just below zero.
        nodes[probe, : len(values)] = np.maximum(1.0 / values - middle, 0.0)
        weights[probe, : len(values)] = vectors[0] ** 2 * pairs
    shifts = mean_degree * np.logspace(-2, 1, 7)
    means = np.stack([(weights / (nodes + shift)).sum(axis=1) for shift in shifts])
    error = float(np.max(means.std(axis=1, ddof=1) / np.sqrt(probes) / means.mean(axis=1)))
    used = weights > 0
    order = np.argsort(nodes[used], kind="stable")
    return GapQuadrature(nodes[used][order], (2.0 / pairs / probes) * weights[used][order], error)
