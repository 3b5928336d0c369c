"""Solutions with a graph's Laplacian, against dense inverses."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.csgraph
import scipy.sparse.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from relpref.errors import DataError, InferenceError
from relpref.linalg import LaplacianSolver
from relpref.linalg import graph_solver as refinement


def random_graph(rng: Any, size: int, links: int, spread: float = 1.0) -> Any:
    """Weights over `spread` orders of magnitude; some nodes may have no link."""
    source, target = rng.integers(0, max(size, 1), (2, links))
    apart = source != target
    weights = 10.0 ** rng.uniform(-spread, 0, apart.sum())
    matrix = scipy.sparse.coo_array((weights, (source[apart], target[apart])), shape=(size, size))
    return (matrix + matrix.T).tocsr()


def inverse(adjacency: Any, shift: float) -> Any:
    dense = adjacency.toarray()
    return np.linalg.inv(np.diag(dense.sum(axis=1) + shift) - dense)


@pytest.fixture(params=["factorised", "iterated"])
def way(request: Any, monkeypatch: Any) -> Any:
    """Both ways to solve, whatever the size (a forest is always factorised)."""
    if request.param == "iterated":
        monkeypatch.setattr(refinement, "_SMALL", 0)
    return request.param


@pytest.mark.parametrize("shift", [1e-4, 0.3, 50.0])
def test_against_the_dense_inverse(way: str, shift: float) -> None:
    rng = np.random.default_rng(0)
    for links in (0, 60, 500):
        adjacency = random_graph(rng, 200, links)
        solver = LaplacianSolver(adjacency)
        rhs = rng.standard_normal((200, 40))
        found = solver.solve(shift, rhs, tol=1e-11)
        expected = inverse(adjacency, shift) @ rhs
        assert_allclose(found.values, expected, atol=1e-8 * abs(expected).max())
        assert found.residual <= 1e-11
        one = solver.solve(shift, rhs[:, 0], tol=1e-11).values
        assert_allclose(one, expected[:, 0], atol=1e-8 * abs(expected).max())


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(0, 80), st.floats(-4, 3))
def test_random_graphs(seed: int, size: int, links: int, log_shift: float) -> None:
    """Also with weights of many sizes: whichever order the nodes have, the answer is that of the
    dense inverse.
    """
    rng = np.random.default_rng(seed)
    adjacency, shift = random_graph(rng, size, links, spread=3.0), 10.0**log_shift
    rhs = rng.standard_normal((size, 3))
    expected = inverse(adjacency, shift) @ rhs
    order = rng.permutation(size)
    shuffled = adjacency[order][:, order]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refinement, "_SMALL", 0)
        found = LaplacianSolver(adjacency).solve(shift, rhs, tol=1e-10).values
        permuted = LaplacianSolver(shuffled).solve(shift, rhs[order], tol=1e-10).values
    assert_allclose(found, expected, atol=1e-7 * abs(expected).max())
    assert_allclose(permuted, expected[order], atol=1e-7 * abs(expected).max())


def test_the_smallest_shift(way: str) -> None:
    """A range of a million: what differs within a component is as exact as ever; differences of
    constants are not asked for.
    """
    rng = np.random.default_rng(1)
    adjacency = random_graph(rng, 150, 400)
    rhs = rng.standard_normal(150)
    _, component = scipy.sparse.csgraph.connected_components(adjacency)

    def centred(values: Any) -> Any:
        return values - (np.bincount(component, values) / np.bincount(component))[component]

    rhs = centred(rhs)
    found = centred(LaplacianSolver(adjacency).solve(1e-12, rhs, tol=1e-11).values)
    pseudo = np.linalg.pinv(scipy.sparse.csgraph.laplacian(adjacency).toarray(), hermitian=True)
    assert_allclose(found, pseudo @ rhs, atol=1e-8)


def test_a_column_that_is_known_beside_one_that_is_not(monkeypatch: Any) -> None:
    monkeypatch.setattr(refinement, "_SMALL", 0)
    monkeypatch.setattr(refinement.OrderedLaplacian, "is_narrow", False)
    links = random_graph(np.random.default_rng(3), 60, 200)
    adjacency = scipy.sparse.block_diag([links, scipy.sparse.csr_array((1, 1))], format="csr")
    # Nothing is left to solve for an isolated node: 0 iterations, no warning.
    found = LaplacianSolver(adjacency).block(0.5, np.arange(61), np.arange(61))
    assert_allclose(found, inverse(adjacency, 0.5), atol=1e-5)


def test_the_tolerance_bounds_the_error(monkeypatch: Any) -> None:
    """In single precision, too: the error's energy is at most the residual's over the smallest
    eigenvalue of M⁻¹A.
    """
    monkeypatch.setattr(refinement, "_SMALL", 0)
    rng = np.random.default_rng(2)
    adjacency, shift = random_graph(rng, 250, 900), 0.2
    rhs = rng.standard_normal((250, 8))
    for tol in (1e-2, 1e-4, 1e-6):
        found = LaplacianSolver(adjacency).solve(shift, rhs, tol=tol)
        degree = adjacency.sum(axis=1) + shift
        left = rhs - (degree[:, None] * found.values - adjacency @ found.values)
        size = np.sqrt(
            (left**2 / degree[:, None]).sum(axis=0) / (rhs**2 / degree[:, None]).sum(axis=0)
        )
        assert found.residual <= tol
        assert_allclose(size.max(), found.residual, rtol=1e-6)


def test_the_block_of_what_was_seen(way: str, monkeypatch: Any) -> None:
    rng = np.random.default_rng(3)
    adjacency = random_graph(rng, 120, 300)
    expected = inverse(adjacency, 0.7)
    solver = LaplacianSolver(adjacency)
    told: list[tuple[int, int]] = []

    def block(rows: Any, columns: Any, shift: float = 0.7) -> Any:
        told.clear()
        return solver.block(
            shift, rows, columns, tol=1e-11, progress=lambda *done: told.append(done)
        )

    first = rng.choice(120, 40, replace=False)
    assert_allclose(block(first, first), expected[np.ix_(first, first)], atol=1e-8)
    assert told[-1] == (40, 40)
    twice = np.concatenate([first[3:9], first[5:2:-1]])
    assert_allclose(block(twice, first), expected[np.ix_(twice, first)], atol=1e-8)
    assert told == []
    more = np.setdiff1d(np.arange(120), first)[:2]
    both = np.concatenate([first, more])
    assert_allclose(block(both, both), expected[np.ix_(both, both)], atol=1e-8)
    assert told[-1] == (2, 2)
    # All rows of three columns: three solutions, whichever way it is asked.
    assert_allclose(block(np.arange(120), [7, 7, 2, 90]), expected[:, [7, 7, 2, 90]], atol=1e-8)
    assert told[-1] == (3, 3)
    assert_allclose(block([5, 1], np.arange(120)), expected[[5, 1]], atol=1e-8)
    assert told[-1] == (2, 2)
    assert_allclose(block(both, both, 2.0), inverse(adjacency, 2.0)[np.ix_(both, both)], atol=1e-8)
    assert told[-1] == (42, 42)
    # Beyond what is kept.
    monkeypatch.setattr(refinement, "MAX_CACHED_POSITIONS", 50)
    rest = np.arange(60, 120)
    assert_allclose(
        block(rest, first, 2.0), inverse(adjacency, 2.0)[np.ix_(rest, first)], atol=1e-8
    )


def test_an_interruption_keeps_what_was_solved(monkeypatch: Any) -> None:
    monkeypatch.setattr(refinement, "WIDTH", 4)
    adjacency = random_graph(np.random.default_rng(4), 90, 200)
    solver = LaplacianSolver(adjacency)
    positions = np.arange(40)

    def interrupt(done: int, of: int) -> None:
        if done == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solver.block(1.0, positions, positions, progress=interrupt)
    told: list[tuple[int, int]] = []
    found = solver.block(1.0, positions, positions, progress=lambda *done: told.append(done))
    assert told[-1] == (28, 28)
    assert_allclose(found, inverse(adjacency, 1.0)[:40, :40], atol=1e-5)


@pytest.mark.parametrize("scale", [1e-60, 1e-20, 1e20, 1e60])
def test_weights_beyond_single_precision(scale: float, monkeypatch: Any) -> None:
    monkeypatch.setattr(refinement, "_SMALL", 0)
    adjacency = random_graph(np.random.default_rng(7), 100, 300)
    rhs = np.random.default_rng(8).standard_normal(100)
    found = LaplacianSolver(scale * adjacency).solve(scale * 0.3, rhs, tol=1e-9).values
    expected = inverse(adjacency, 0.3) @ rhs / scale
    assert_allclose(found, expected, atol=1e-7 * abs(expected).max())


def lattice(side: int, shortcuts: int = 0) -> Any:
    path = scipy.sparse.diags_array([np.ones(side - 1)], offsets=[1], shape=(side, side))
    eye = scipy.sparse.eye_array(side)
    links = scipy.sparse.kron(path, eye) + scipy.sparse.kron(eye, path)
    ends = np.random.default_rng(0).integers(0, side * side, (2, shortcuts))
    links = links + scipy.sparse.coo_array((np.ones(shortcuts), ends), shape=links.shape)
    upper = scipy.sparse.triu(links + links.T, 1)
    return scipy.sparse.csr_array(upper + upper.T)


def test_what_suits_the_graph(monkeypatch: Any) -> None:
    """Grids and trees are factorised, whatever the range; a grid with shortcuts has no sparse
    factor.
    """
    monkeypatch.setattr(refinement, "_LARGE", 1000)
    rhs = np.random.default_rng(8).standard_normal(45 * 45)
    for shortcuts, method in ((0, "a sparse factorization"), (500, "conjugate gradients (Jacobi)")):
        adjacency = lattice(45, shortcuts)
        found = LaplacianSolver(adjacency).solve(1e-4, rhs, tol=1e-10)
        assert found.method == method
        precision = scipy.sparse.csgraph.laplacian(adjacency) + 1e-4 * scipy.sparse.eye_array(
            rhs.size
        )
        expected = scipy.sparse.linalg.spsolve(precision.tocsc(), rhs)
        assert_allclose(found.values, expected, atol=1e-7 * abs(expected).max())
    tree = scipy.sparse.csgraph.minimum_spanning_tree(lattice(45, 500))
    assert LaplacianSolver(tree + tree.T).solve(1e-4, rhs).method == "a sparse factorization"


def test_what_is_refused() -> None:
    link = scipy.sparse.csr_array(np.array([[0.0, 1.0], [1.0, 0.0]]))
    solver = LaplacianSolver(link)
    for shift in (0.0, -1.0, np.nan):
        with pytest.raises(DataError, match="the shift is"):
            solver.solve(shift, np.ones(2))
    with pytest.raises(DataError, match="shape"):
        solver.solve(1.0, np.ones(3))
    with pytest.raises(DataError, match="NaN"):
        solver.solve(1.0, np.array([1.0, np.nan]))
    with pytest.raises(DataError, match="between 0 and 1"):
        solver.block(1.0, [0, 2], [1])
    for matrix, words in (
        (np.ones((2, 3)), "square"),
        ([[0.0, 1.0], [2.0, 0.0]], "symmetric"),
        ([[0.0, -1.0], [-1.0, 0.0]], "0 - 1 has the weight -1.0"),
        ([[3.0, 1.0], [1.0, 0.0]], "to itself"),
    ):
        with pytest.raises(DataError, match=words):
            LaplacianSolver(scipy.sparse.csr_array(np.asarray(matrix)))


def test_a_graph_that_is_not_sparse(monkeypatch: Any) -> None:
    monkeypatch.setattr(refinement, "_DENSE_SIZE", 30)
    with pytest.raises(DataError, match="too many for the sparse structure; drop weak links"):
        LaplacianSolver(scipy.sparse.csr_array(1.0 - np.eye(40)))


def test_a_solution_out_of_reach_is_an_error(monkeypatch: Any) -> None:
    monkeypatch.setattr(refinement, "_SMALL", 0)
    monkeypatch.setattr(refinement, "_MOST_STEPS", 3)
    adjacency = random_graph(np.random.default_rng(6), 100, 300)
    with pytest.raises(InferenceError, match=r"left a residual of .* 3 products .* 100 nodes"):
        LaplacianSolver(adjacency).solve(1e-3, np.arange(100.0))


def test_threads_share_what_was_seen() -> None:
    """A loop asks for questions in one thread while another refines."""
    rng = np.random.default_rng(3)
    upper = scipy.sparse.triu(scipy.sparse.random_array((300, 300), density=0.03, rng=rng), 1)
    solver = LaplacianSolver(scipy.sparse.csr_array(upper + upper.T))
    truth = np.linalg.inv(solver.laplacian().toarray() + 0.5 * np.eye(300))
    wanted = [rng.choice(300, 6, replace=False) for _ in range(60)]
    with ThreadPoolExecutor(6) as pool:
        blocks = list(pool.map(lambda some: solver.block(0.5, some, some, 1e-10), wanted))
    for some, block in zip(wanted, blocks, strict=True):
        assert_allclose(block, truth[np.ix_(some, some)], atol=1e-8)
