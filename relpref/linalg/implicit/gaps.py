"""The mean gap variance that functions of a large graph's Laplacian give, without its eigenvalues."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relpref.linalg.implicit.lanczos import quadrature
from relpref.linalg.implicit.laplacian_solver import LaplacianSolver

Floats = NDArray[np.float64]


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
        Of the graph.
    probes : int, optional
        See `quadrature`. By default 32, fewer of many nodes (their traces vary less), at least 4.
    steps, seed : int
        Each step solves for all probes.

    Returns
    -------
    GapQuadrature
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
