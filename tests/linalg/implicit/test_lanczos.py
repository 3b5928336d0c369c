"""Stochastic Lanczos quadrature against eigenvalues: the standard errors must cover the truth."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose

from relpref.data import Graph
from relpref.linalg import LaplacianSolver, gap_quadrature
from relpref.linalg.lanczos import lanczos

SEEDS = range(20)


def grid(side: int) -> Any:
    path = scipy.sparse.diags_array([np.ones(side - 1)], offsets=[1], shape=(side, side))
    eye = scipy.sparse.eye_array(side)
    return scipy.sparse.csr_array(scipy.sparse.kron(path, eye) + scipy.sparse.kron(eye, path))


def upper(kind: str) -> Any:
    """Links of a graph, each once."""
    rng = np.random.default_rng(0)
    if kind == "grid":
        return grid(12)
    if kind == "star":
        return scipy.sparse.csr_array(
            (np.ones(149), (np.zeros(149, dtype=int), np.arange(1, 150))), (150, 150)
        )
    dense = np.triu(rng.random((150, 150)) * (rng.random((150, 150)) < 0.05), 1)
    if kind == "disconnected":
        # Components of 80, 40 and 20 nodes, and ten nodes alone.
        block = np.repeat([0, 1, 2, *range(3, 13)], [80, 40, 20, *[1] * 10])
        dense = np.triu((dense + np.eye(150, k=1)) * (block[:, None] == block), 1)
    return scipy.sparse.csr_array(dense)


def graph(kind: str) -> Graph:
    links = upper(kind).tocoo()
    return Graph(links.shape[0], links.row, links.col, links.data)


@pytest.mark.parametrize("kind", ["random", "grid", "star", "disconnected"])
def test_gaps_against_the_spectrum(kind: str) -> None:
    """Of 20 seeds, more than 3 with an error beyond 3 standard errors (0.5 % each) are a false
    alarm: 1 in 300,000 for each function.
    """
    known = graph(kind)
    solver = LaplacianSolver(known.adjacency())
    spectrum = known.spectrum
    outside = np.zeros(3, dtype=int)

    def values_of(eigenvalues: Any) -> Any:
        return np.stack(
            [np.exp(-0.3 * eigenvalues), 1 / (eigenvalues + 0.05), 1 / (eigenvalues + 1.0)]
        )

    for seed in SEEDS:
        found = gap_quadrature(solver, seed=seed)
        assert (np.diff(found.eigenvalues) >= 0).all() and found.eigenvalues[0] >= 0
        assert found.gap_weights.sum() == pytest.approx(2.0)
        exact = values_of(spectrum.eigenvalues) @ spectrum.gap_weights
        found_values = values_of(found.eigenvalues) @ found.gap_weights
        outside += abs(found_values - exact) > (3 * found.error + 1e-6) * exact
        assert_allclose(found_values, exact, rtol=0.2)
    assert outside.max() <= 3


def test_no_gap_at_all() -> None:
    found = gap_quadrature(LaplacianSolver(scipy.sparse.csr_array((5, 5))))
    assert np.sum(found.gap_weights * np.exp(-found.eigenvalues)) == 0.0


@pytest.mark.parametrize("steps", [1, 2, 30])
def test_a_quadrature_is_exact_for_polynomials(steps: int) -> None:
    """Each vector gives vᵀ f(A) v for polynomials of degree 2 steps − 1."""
    rng = np.random.default_rng(1)
    half = rng.standard_normal((12, 12))
    matrix, start, power = half @ half.T / 12, rng.standard_normal((12, 5)), 2 * steps - 1
    expected = np.einsum("ij,ij->j", start, np.linalg.matrix_power(matrix, power) @ start)
    for number, values, vectors in lanczos(lambda x: matrix @ x, start, steps, keep=True).spectra():
        found = (start[:, number] @ start[:, number]) * (vectors[0] ** 2 @ values**power)
        assert found == pytest.approx(expected[number], rel=1e-8)


def test_without_all_vectors_at_hand() -> None:
    """Copies of eigenvalues share their weight: the sums are the same."""
    values = np.concatenate([np.linspace(0.1, 1, 80), [500.0, 1000.0]])
    start = np.random.default_rng(3).choice([-1.0, 1.0], (82, 2))

    def logarithms(keep: bool) -> Any:
        found = lanczos(lambda x: values[:, None] * x, start, 60, keep=keep)
        return [vectors[0] ** 2 @ np.log(nodes) for _, nodes, vectors in found.spectra()]

    assert logarithms(keep=False) == pytest.approx(logarithms(keep=True), rel=1e-7)
