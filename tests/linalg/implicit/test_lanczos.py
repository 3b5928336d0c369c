"""Stochastic Lanczos quadrature against eigenvalues: the standard errors must cover the truth."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.csgraph

from relpref.data import Graph
from relpref.errors import DataError
from relpref.linalg import LaplacianSolver, gap_quadrature, log_determinant, quadrature

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
    """Of 20 seeds, more than 3 with an error beyond 3 standard errors (0.5 % each) are a false alarm: 1 in 300 000 for each function."""
    known = graph(kind)
    solver = LaplacianSolver(known.adjacency())
    spectrum = known.spectrum
    outside = np.zeros(3, dtype=int)

    def values_of(eigenvalues: Any) -> Any:
        return np.stack([np.exp(-0.3 * eigenvalues), 1 / (eigenvalues + 0.05), 1 / (eigenvalues + 1.0)])

    for seed in SEEDS:
        found = gap_quadrature(solver, seed=seed)
        assert (np.diff(found.eigenvalues) >= 0).all() and found.eigenvalues[0] >= 0
        assert found.gap_weights.sum() == pytest.approx(2.0)
        exact = values_of(spectrum.eigenvalues) @ spectrum.gap_weights
        found_values = values_of(found.eigenvalues) @ found.gap_weights
        outside += abs(found_values - exact) > (3 * found.error + 1e-6) * exact
        np.testing.assert_allclose(found_values, exact, rtol=0.2)
    assert outside.max() <= 3


def test_no_gap_at_all() -> None:
    found = gap_quadrature(LaplacianSolver(scipy.sparse.csr_array((5, 5))))
    assert np.sum(found.gap_weights * np.exp(-found.eigenvalues)) == 0.0


@pytest.mark.parametrize("steps", [1, 2, 30])
def test_a_quadrature_is_exact_for_polynomials(steps: int) -> None:
    """Each probe gives vᵀ f(A) v of its own v for polynomials of degree 2 steps − 1; the projection and the weights are applied."""
    rng = np.random.default_rng(1)
    size = 12
    half = rng.standard_normal((size, size))
    matrix = half @ half.T / size
    vectors = np.linalg.eigh(matrix)[1]
    outer = vectors[:, 3:] @ vectors[:, 3:].T
    root = np.full(size, 1.7)
    found = quadrature(
        lambda x: matrix @ x, size, 5, steps, np.random.default_rng(2), root=root, project=lambda x: outer @ x
    )
    start = outer @ (root[:, None] * np.random.default_rng(2).choice([-1.0, 1.0], (size, 5)))
    power = 2 * steps - 1
    expected = np.einsum("ij,ij->j", start, np.linalg.matrix_power(matrix, power) @ start)
    np.testing.assert_allclose((found.weights * found.nodes**power).sum(axis=1), expected, rtol=1e-8)
    value, error = found.estimate(lambda x: x**power)
    assert value == pytest.approx(expected.mean())
    assert error == pytest.approx(expected.std(ddof=1) / np.sqrt(5))


def test_without_all_vectors_at_hand(monkeypatch: Any) -> None:
    """Copies of eigenvalues share their weight: the sums are the same."""
    values = np.concatenate([np.linspace(0.1, 1, 80), [500.0, 1000.0]])

    def run() -> Any:
        return quadrature(lambda x: values[:, None] * x, 82, 2, 60, np.random.default_rng(3))

    exact = run().estimate(np.log)[0]
    monkeypatch.setattr("relpref.linalg.lanczos._KEPT", 0)
    assert run().estimate(np.log)[0] == pytest.approx(exact, rel=1e-7)


def test_log_determinants() -> None:
    """20 seeds: more than 4 errors beyond 3 standard errors (16 probes, 0.9 % each) are a false alarm: 1 in a million."""
    adjacency = graph("disconnected").adjacency()
    precision = scipy.sparse.csgraph.laplacian(adjacency).toarray() + 0.2 * np.eye(150)
    exact = np.linalg.slogdet(precision)[1]
    apart = 0
    for seed in SEEDS:
        value, error = log_determinant(
            lambda x: precision @ x, np.diag(precision), rng=np.random.default_rng(seed)
        )
        apart += abs(value - exact) > 3 * error
        assert error < 0.05 * abs(exact)
    assert apart <= 4


def test_errors_cancel_between_matrices_seen_through_the_same_probes() -> None:
    adjacency = graph("random").adjacency()
    first = scipy.sparse.csgraph.laplacian(adjacency).toarray() + 0.5 * np.eye(150)
    second = first.copy()
    second[3, 3] += 2.0
    exact = np.linalg.slogdet(second)[1] - np.linalg.slogdet(first)[1]

    def found(matrix: Any) -> Any:
        return log_determinant(lambda x: matrix @ x, np.diag(matrix), rng=np.random.default_rng(0))

    assert found(second)[0] - found(first)[0] == pytest.approx(exact, abs=0.1 * found(first)[1])


def test_what_is_refused() -> None:
    with pytest.raises(DataError, match="at least 2 probes"):
        quadrature(lambda x: x, 3, 1, 2, np.random.default_rng(0))
    indefinite = np.array([[1.0, 3.0], [3.0, 1.0]])
    with pytest.raises(DataError, match="not positive definite"):
        log_determinant(lambda x: indefinite @ x, np.ones(2), rng=np.random.default_rng(0))
