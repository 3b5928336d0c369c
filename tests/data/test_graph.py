from itertools import combinations
from typing import Any

import jax
import networkx as nx
import numpy as np
import pytest
import scipy.sparse.csgraph
from hypothesis import given, settings
from hypothesis import strategies as st

from relpref.data import Graph
from relpref.data.graph import maximal_cliques
from relpref.errors import DataError


def random_graph(seed: Any, size: Any = 12, edges: Any = 9, *, unit: Any = False) -> Any:
    """Return a graph that usually has several components and isolated nodes."""
    rng = np.random.default_rng(seed)
    low, high = np.triu_indices(size, 1)
    chosen = rng.choice(low.size, size=edges, replace=False)
    weight = np.ones(edges) if unit else rng.uniform(0.1, 3.0, size=edges)
    return Graph(size, high[chosen], low[chosen], weight)


def dense_laplacian(graph: Graph) -> Any:
    return scipy.sparse.csgraph.laplacian(graph.weight_matrix)


def test_edges_are_oriented_sorted_and_read_only() -> None:
    graph = Graph(4, [3, 1, 2], [0, 0, 3], [1.0, 2.0, 3.0])
    assert graph.source.tolist() == [0, 0, 2]
    assert graph.target.tolist() == [1, 3, 3]
    assert graph.weight.tolist() == [2.0, 1.0, 3.0]
    assert graph.source.dtype == graph.target.dtype == np.int32
    assert graph.num_edges == 3
    with pytest.raises(ValueError, match="read-only"):
        graph.weight[0] = 9.0
    with pytest.raises(AttributeError):
        setattr(graph, "num_nodes", 5)  # noqa: B010 (mypy knows that it cannot be set)


@pytest.mark.parametrize(
    ("source", "target", "weight", "message"),
    [
        ([0], [4], [1.0], "ends at node 4, but the nodes are 0 to 3"),
        ([-1], [2], [1.0], "ends at node -1"),
        ([2], [2], [1.0], "node 2 has an edge to itself"),
        ([0, 1], [1, 0], [1.0, 1.0], "0 - 1 occurs twice"),
        ([0], [1], [0.0], "weight 0.0"),
        ([0], [1], [np.nan], "weight nan"),
        ([0], [1], [1.0, 2.0], "1 sources, 1 targets and 2 weights"),
    ],
)
def test_wrong_edges_are_refused(source: Any, target: Any, weight: Any, message: Any) -> None:
    with pytest.raises(DataError, match=message):
        Graph(4, source, target, weight)


@pytest.mark.parametrize("seed", range(10))
def test_spectrum_decomposes_the_laplacian(seed: Any) -> None:
    graph = random_graph(seed)
    values, vectors, _ = graph.spectrum
    np.testing.assert_allclose((vectors * values) @ vectors.T, dense_laplacian(graph), atol=1e-13)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(12), atol=1e-13)
    assert (np.diff(values) >= 0).all()
    components = graph.component.max() + 1
    assert (values == 0).sum() == components
    for k in range(12):
        inside = np.unique(graph.component[vectors[:, k] != 0])
        assert inside.size == 1
        if values[k] == 0:
            assert np.unique(vectors[graph.component == inside[0], k]).size == 1


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("function", [lambda x: np.exp(-0.7 * x), lambda x: (0.3 + x) ** -1.5])
def test_gap_weights_give_the_mean_squared_distance_inside_components(
    seed: Any, function: Any
) -> None:
    graph = random_graph(seed, edges=4 + seed)
    values, vectors, gap_weights = graph.spectrum
    kernel = (vectors * function(values)) @ vectors.T
    own, (low, high) = np.diagonal(kernel), np.triu_indices(12, 1)
    gaps = own[low] + own[high] - 2 * kernel[low, high]
    expected = gaps[graph.component[low] == graph.component[high]].mean()
    np.testing.assert_allclose(gap_weights @ function(values), expected, rtol=1e-12)
    assert (gap_weights[values == 0] == 0).all()


def test_nearly_cut_graph_keeps_the_constant_vector_apart() -> None:
    # Two triangles joined by an edge of weight 1e-15: the second eigenvalue is 0 up to rounding.
    source, target = [0, 1, 0, 3, 4, 3, 2], [1, 2, 2, 4, 5, 5, 3]
    graph = Graph(6, source, target, [1.0] * 6 + [1e-15])
    values, vectors, _ = graph.spectrum
    assert (values[:2] < 1e-14).all()
    assert (values >= 0).all()
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(6), atol=1e-14)
    assert np.unique(vectors[:, 0]).size == 1


def test_graph_without_edges() -> None:
    graph = Graph(3, [], [], [])
    assert graph.mean_degree == 1.0
    np.testing.assert_array_equal(graph.spectrum.eigenvalues, np.zeros(3))
    np.testing.assert_array_equal(graph.spectrum.gap_weights, np.zeros(3))
    np.testing.assert_array_equal(graph.spectrum.eigenvectors, np.eye(3))


def test_matrices_and_degrees() -> None:
    graph = Graph(4, [0, 1], [1, 2], [2.0, 3.0])
    expected = np.array([[0, 2, 0, 0], [2, 0, 3, 0], [0, 3, 0, 0], [0, 0, 0, 0.0]])
    np.testing.assert_array_equal(graph.weight_matrix, expected)
    np.testing.assert_array_equal(graph.degree, [2, 5, 3, 0])
    assert graph.mean_degree == 10 / 3  # the node without edges does not count
    assert graph.component.tolist() == [0, 0, 0, 1]


def test_the_reference_is_the_graph_or_what_is_given() -> None:
    graph = random_graph(3)
    reference = graph.reference
    np.testing.assert_array_equal(reference.eigenvalues, graph.spectrum.eigenvalues)
    np.testing.assert_array_equal(reference.gap_weights, graph.spectrum.gap_weights)
    assert reference.mean_degree == graph.mean_degree
    for larger in (
        Graph(14, [12], [0], [5.0], reference),
        random_graph(4).with_reference(reference),
    ):
        assert larger.reference is reference and larger.mean_degree != graph.mean_degree


def test_pytree_round_trip_and_placeholders() -> None:
    graph = random_graph(1)
    again = jax.tree.map(lambda leaf: leaf, graph)
    np.testing.assert_array_equal(again.weight_matrix, graph.weight_matrix)
    assert again.spectrum.eigenvalues is graph.spectrum.eigenvalues
    assert len(jax.tree.leaves(graph)) == 8
    placeholders = jax.tree.map(lambda leaf: object(), graph)
    assert placeholders.num_nodes == 12
    assert "Graph(12 nodes" in repr(placeholders)
    assert {path[0].name for path, _ in jax.tree.leaves_with_path(graph)} == {
        "weight_matrix",
        "spectrum",
        "reference",
    }


def test_one_compilation_serves_graphs_with_different_edges() -> Any:
    traced = []

    @jax.jit
    def trace_of_kernel(graph: Any) -> Any:
        traced.append(graph)
        return (graph.spectrum.eigenvalues * graph.spectrum.eigenvectors**2).sum()

    with jax.enable_x64(True):
        for edges in (9, 4, 30):
            graph = random_graph(2, edges=edges)
            np.testing.assert_allclose(trace_of_kernel(graph), graph.degree.sum(), rtol=1e-12)
    assert len(traced) == 1


def test_completeness() -> None:
    low, high = np.triu_indices(4, 1)
    assert Graph(4, low, high, np.ones(6)).completeness == "constant"
    assert Graph(4, low, high, np.arange(1, 7)).completeness == "weighted"
    assert Graph(5, low, high, np.ones(6)).completeness == "incomplete"
    assert Graph(2, [0], [1], [1.0]).completeness == "incomplete"


@pytest.mark.parametrize("seed", range(13))
def test_cliques_are_those_of_a_triangulation(seed: Any) -> None:
    graph = random_graph(seed, edges=6 + 5 * seed)  # the last one is complete
    cliques = maximal_cliques(12, graph.source, graph.target)
    filled: Any = nx.Graph()
    filled.add_nodes_from(range(12))
    filled.add_edges_from(pair for clique in cliques for pair in combinations(clique, 2))
    assert nx.is_chordal(filled)
    assert all(map(filled.has_edge, graph.source.tolist(), graph.target.tolist()))
    expected = {frozenset(clique) for clique in nx.chordal_graph_cliques(filled)}
    assert {frozenset(clique) for clique in cliques} == expected
    assert len(cliques) == len(expected)
    if len(cliques) == 1 and graph.num_edges < 66:  # seed 10
        with pytest.raises(
            DataError, match="12 connected items into one clique, although only 56 of their 66"
        ):
            graph.with_cliques().cliques  # noqa: B018
        return
    counts = graph.with_cliques().cliques
    for i in range(12):
        for j in range(12):
            assert counts[i, j] == sum({i, j} <= clique for clique in expected)


@settings(max_examples=150, deadline=None)
@given(st.integers(2, 9), st.integers(0, 2**31))
def test_cliques_do_not_depend_on_the_numbers_of_nodes(nodes: int, seed: int) -> None:
    """Ties among nodes to eliminate were once decided by their order."""
    rng = np.random.default_rng(seed)
    low, high = np.triu_indices(nodes, 1)
    linked = rng.random(len(low)) < rng.random()
    place = rng.permutation(nodes)
    cliques = maximal_cliques(nodes, low[linked], high[linked])
    permuted = maximal_cliques(nodes, place[low[linked]], place[high[linked]])
    assert sorted(sorted(place[clique].tolist()) for clique in cliques) == sorted(permuted)
    filled: Any = nx.Graph(pair for clique in cliques for pair in combinations(clique, 2))
    assert nx.is_chordal(filled)
    original: Any = nx.Graph(list(zip(low[linked].tolist(), high[linked].tolist(), strict=True)))
    if nx.is_chordal(original):
        assert filled.number_of_edges() == original.number_of_edges()


@pytest.mark.parametrize("nodes", [4, 5, 8])
def test_a_ring_is_one_clique(nodes: int) -> None:
    """No choice of a diagonal could do without the numbers of the nodes."""
    ring = np.arange(nodes)
    assert maximal_cliques(nodes, ring, np.roll(ring, 1)) == [ring.tolist()]
    # With one more node linked to it, the ring has a beginning: what is joined is a matter of the
    # graph.
    assert len(maximal_cliques(nodes + 1, [*ring, 0], [*np.roll(ring, 1), nodes])) > 1


def test_cliques_are_counted_when_asked_for() -> None:
    assert random_graph(3).cliques is None
    assert len(jax.tree.leaves(random_graph(3).with_cliques())) == 9


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 30))
def test_edge_order_and_orientation_leave_no_trace(seed: Any, edges: Any) -> None:
    graph = random_graph(seed, edges=edges)
    rng = np.random.default_rng(seed)
    order = rng.permutation(edges)
    flip = rng.random(edges) < 0.5
    source = np.where(flip, graph.target, graph.source)[order]
    target = np.where(flip, graph.source, graph.target)[order]
    again = Graph(12, source, target, graph.weight[order])
    for name in ("source", "target", "weight"):
        assert getattr(again, name).tobytes() == getattr(graph, name).tobytes()
    assert again.spectrum.eigenvectors.tobytes() == graph.spectrum.eigenvectors.tobytes()
