from functools import partial
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
import scipy.linalg
from numpy.testing import assert_allclose
from scipy.sparse import csgraph
from scipy.spatial.distance import cdist

from relpref.data import Graph, PreferenceData
from relpref.errors import DataError
from relpref.infer import EP
from relpref.kernels import (
    Diffusion,
    HiddenCommonCause,
    Linear,
    Matern32,
    Precomputed,
    RegularizedLaplacian,
    RelationVectors,
    SquaredExponential,
)
from relpref.models import xpgp

# Two components and one node without an edge.
EDGES = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (4, 5), (5, 6)]
WEIGHTS = [1.0, 0.5, 2.0, 1.0, 3.0, 0.25, 1.0]
LOW, HIGH = np.array(EDGES).T
GRAPH = Graph(8, LOW, HIGH, WEIGHTS).with_cliques()
EDGELESS = Graph(8, [], [], []).with_cliques()
CASES: list[tuple[Any, dict[str, Any]]] = [
    (RegularizedLaplacian(), {"range": 1.3}),
    (RegularizedLaplacian(), {"range": 100.0}),
    (Diffusion(), {"time": 0.4}),
    (HiddenCommonCause(), {}),
    (HiddenCommonCause(method="cliques"), {}),
    (RelationVectors(), {"lengthscale": 0.8}),
    (RelationVectors(Matern32(shared_lengthscale=True)), {"lengthscale": 0.8}),
    (RelationVectors(Linear(shared_lengthscale=True)), {}),
]


@partial(jax.jit, static_argnums=3)
def _matrix(kernel: Any, graph: Any, parameters: Any, normalize: bool) -> Any:
    return kernel(graph, normalize=normalize, **parameters).dense()


def dense(kernel: Any, graph: Graph = GRAPH, *, normalize: bool = False, **parameters: Any) -> Any:
    with jax.enable_x64(True):
        return np.asarray(_matrix(kernel, graph, parameters, normalize))


def test_heat_keeps_utilities_of_different_components_within_bounds() -> None:
    component = np.asarray(GRAPH.component)
    apart = component[:, None] != component[None, :]
    for time, bounded in ((0.4, False), (8.0, False), (60.0, True), (700.0, True)):
        covariance = dense(Diffusion(), normalize=True, time=time)
        between = float(gaps(covariance)[apart].mean())
        assert between == pytest.approx(200.0, rel=1e-6) if bounded else between < 200.0
        implicit = Diffusion().implicit(GRAPH, time=time)
        nodes = np.arange(GRAPH.num_nodes)
        assert_allclose(implicit.block(nodes, nodes), covariance, rtol=1e-5, atol=1e-5)
        if not bounded:
            assert mean_gap(covariance, component) == pytest.approx(2.0)
    whole = Graph(
        3, [0, 1], [1, 2], [1.0, 1.0]
    )  # one component: nothing between, so nothing is bounded
    assert mean_gap(
        dense(Diffusion(), whole, normalize=True, time=30.0), np.zeros(3)
    ) == pytest.approx(2.0)


def gaps(covariance: Any) -> Any:
    own = np.diagonal(covariance)
    return own[:, None] + own - 2 * covariance


def mean_gap(covariance: Any, component: Any) -> float:
    low, high = np.triu_indices(len(component), 1)
    return float(gaps(covariance)[low, high][component[low] == component[high]].mean())


@pytest.mark.parametrize("reach", [0.05, 1.0, 7.0, 100.0])
def test_regularised_laplacian_is_the_inverse(reach: float) -> None:
    expected = np.linalg.inv(csgraph.laplacian(GRAPH.weight_matrix) + np.eye(8) / reach**2)
    found = dense(RegularizedLaplacian(), range=reach)
    assert_allclose(found, expected, rtol=0, atol=1e-12 * expected.max())


@pytest.mark.parametrize("normalize", [True, False])
def test_a_short_range_needs_no_spectrum(normalize: bool) -> None:
    rng = np.random.default_rng(0)
    joined = np.array(np.triu_indices(60, 1))[:, rng.random(1770) < 0.04]  # several components
    weights = np.exp(rng.standard_normal(joined.shape[1]))
    graph, decomposed = (Graph(60, joined[0], joined[1], weights) for _ in range(2))
    assert decomposed.spectrum.eigenvalues.shape == (60,)
    kernel: Any = RegularizedLaplacian()
    for reach in np.array([0.3, 2.0, 4.0]):
        by_spectrum = kernel(decomposed, normalize=normalize, range=reach).dense()
        inverse = kernel(graph, normalize=normalize, range=reach).dense()
        assert_allclose(inverse, by_spectrum, rtol=1e-11, atol=1e-12 * by_spectrum.max())
        assert_allclose(gaps(inverse), gaps(by_spectrum), rtol=1e-10, atol=1e-13)
    assert "spectrum" not in vars(graph)
    kernel(graph, range=np.float64(30.0))  # longer: digits of gaps would be lost
    assert "spectrum" in vars(graph)


def test_fits_at_given_hyperparameters_compute_no_spectrum() -> None:
    names = list("abcd")
    answers = pd.DataFrame({"winner": list("abcab"), "loser": list("bcdda")})
    links = pd.DataFrame({"source": names[:3], "target": names[1:]})
    given = {"near_amplitude": 1.0, "near_range": 2.0, "individual_amplitude": 0.5}
    means = []
    for decomposed in (False, True):
        items = pd.DataFrame(index=pd.Index(names))
        data = PreferenceData.from_tables(items, answers, relations={"near": links})
        graph = data.relations["near"]
        if decomposed:
            assert len(graph.spectrum.eigenvalues) == 4
        means.append(EP(xpgp, fixed=given).run(0, data).mean())
        assert ("spectrum" in vars(graph)) == decomposed
    assert_allclose(means[0], means[1], rtol=1e-10)


@pytest.mark.parametrize("time", [0.01, 0.4, 6.0])
def test_diffusion_is_the_matrix_exponential(time: float) -> None:
    expected = scipy.linalg.expm(-time * csgraph.laplacian(GRAPH.weight_matrix))
    assert_allclose(dense(Diffusion(), time=time), expected, rtol=0, atol=1e-12)


def test_hidden_common_cause_counts_the_links() -> None:
    # A link is a cause of both of its ends: B Bᵀ of the incidence matrix, each link as often as it
    # weighs.
    incidence = np.zeros((8, 7))
    for link, (ends, weight) in enumerate(zip(EDGES, WEIGHTS, strict=True)):
        incidence[list(ends), link] = np.sqrt(weight)
    shared = incidence @ incidence.T + 1e-4 * np.mean(WEIGHTS) * np.eye(8)
    expected = shared / np.sqrt(np.outer(np.diag(shared), np.diag(shared)))
    assert_allclose(dense(HiddenCommonCause()), expected, rtol=0, atol=1e-14)
    # The unit of the weights does not matter.
    other = Graph(8, LOW, HIGH, 1e-9 * np.array(WEIGHTS)).with_cliques()
    assert_allclose(dense(HiddenCommonCause(), other), expected, rtol=0, atol=1e-12)


def test_hidden_common_cause_counts_the_cliques() -> None:
    # The graph is chordal: two triangles that share the link 0 - 2, a path of two links, and a node
    # alone.
    cliques = [{0, 1, 2}, {0, 2, 3}, {4, 5}, {5, 6}, {7}]
    shared = np.array(
        [[sum({i, j} <= clique for clique in cliques) for j in range(8)] for i in range(8)], float
    )
    shared += 0.01 * np.eye(8)
    expected = shared / np.sqrt(np.outer(np.diag(shared), np.diag(shared)))
    found = dense(HiddenCommonCause(method="cliques", regularization=0.01))
    assert_allclose(found, expected, rtol=0, atol=1e-14)


def test_the_order_of_rows_permutes_the_cliques_kernel() -> None:
    """On a ring of four, one pair of opposite nodes had the correlation 1 and the other 0."""
    kernel = HiddenCommonCause(method="cliques")
    ends = np.array([[0, 1], [1, 2], [2, 3], [3, 0], [3, 4], [5, 6], [6, 7], [7, 8]]).T
    found = dense(kernel, Graph(9, ends[0], ends[1], np.ones(8)).with_cliques())
    rng = np.random.default_rng(0)
    for _ in range(5):
        place = rng.permutation(9)
        permuted = dense(
            kernel, Graph(9, place[ends[0]], place[ends[1]], np.ones(8)).with_cliques()
        )
        assert_allclose(permuted[np.ix_(place, place)], found, rtol=0, atol=1e-14)


def test_groups_apart_set_no_scale() -> None:
    """One target for each item makes disjoint cliques, isolated pairs among them: gaps are those
    between components.
    """
    groups = [(0, 1, 2), (3, 4), (5, 6)]
    pairs = [(i, j) for group in groups for i in group for j in group if i < j]
    low, high = np.array(pairs).T
    graph = Graph(8, low, high, np.ones(len(pairs))).with_cliques()
    same = np.eye(8)
    for i, j in pairs:
        same[[i, j], [j, i]] = 1
    found = dense(HiddenCommonCause(method="cliques"), graph, normalize=True)
    assert_allclose(found, same, rtol=0, atol=2e-4)
    couples = Graph(8, [0, 2, 4], [1, 3, 5], [1.0, 2.0, 3.0]).with_cliques()
    found = dense(HiddenCommonCause(), couples, normalize=True)
    assert_allclose(np.diag(found), np.ones(8), rtol=0, atol=1e-12)
    assert abs(found[0, 1] - 1) <= 3e-4 and found[0, 2] == 0


def test_relation_vectors_are_attributes() -> None:
    rows = GRAPH.adjacency().toarray()
    distance = cdist(rows, rows)
    found = dense(RelationVectors(), lengthscale=0.8)
    assert_allclose(found, np.exp(-0.5 * (distance / 0.8) ** 2), rtol=0, atol=1e-14)
    matern = dense(RelationVectors(Matern32(shared_lengthscale=True)), lengthscale=0.8)
    scaled = np.sqrt(3) * distance / 0.8
    assert_allclose(matern, (1 + scaled) * np.exp(-scaled), rtol=0, atol=1e-13)
    # Normalised: linked rows have a root mean square length of 1.
    length = np.sqrt(np.mean(np.sum(rows[:7] ** 2, axis=1)))
    expected = np.exp(-0.5 * (distance / length / 0.8) ** 2)
    expected *= 2 / mean_gap(expected, GRAPH.component)
    found = dense(RelationVectors(), normalize=True, lengthscale=0.8)
    assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("kernel", "parameters"), CASES)
def test_every_kernel(kernel: Any, parameters: Any) -> None:
    raw, found = dense(kernel, **parameters), dense(kernel, normalize=True, **parameters)
    assert abs(mean_gap(found, GRAPH.component) - 2) <= 1e-9
    if not isinstance(kernel, RelationVectors):  # whose rows are scaled too
        assert_allclose(found / found[0, 0], raw / raw[0, 0], rtol=0, atol=1e-12)
    assert_allclose(found, found.T, rtol=0, atol=1e-14)
    assert np.linalg.eigvalsh(found)[0] >= -1e-12
    assert set(kernel.parameters(GRAPH)) == set(parameters)
    assert all(prior.shape() == () for prior in kernel.parameters(GRAPH).values())
    # Newcomers do not change what it is scaled by; the old nodes' pairs alone count where there is
    # no spectrum.
    ends, weights = ([*LOW, 0, 4], [*HIGH, 8, 8]), [*WEIGHTS, 5.0, 1.0]
    grown = Graph(9, *ends, weights, GRAPH.reference, counts_cliques=True)
    raw, found = (
        dense(kernel, grown, **parameters),
        dense(kernel, grown, normalize=True, **parameters),
    )
    if isinstance(kernel, RegularizedLaplacian | Diffusion):
        expected = raw * 2 / mean_gap(dense(kernel, **parameters), GRAPH.component)
        assert_allclose(found, expected, rtol=1e-11, atol=1e-12)
    assert np.all(np.isfinite(found))
    if not isinstance(kernel, RegularizedLaplacian | Diffusion):
        assert abs(mean_gap(found, GRAPH.component) - 2) <= 1e-9


@pytest.mark.parametrize(("kernel", "parameters"), CASES)
def test_a_graph_without_edges_gives_numbers(kernel: Any, parameters: Any) -> None:
    for normalize in (True, False):
        found = dense(kernel, EDGELESS, normalize=normalize, **parameters)
        assert np.linalg.eigvalsh(found)[0] >= -1e-12
    for prior in kernel.parameters(EDGELESS).values():
        assert np.isfinite(prior.log_prob(1.0))


@pytest.mark.parametrize(
    ("kernel", "name", "median"),
    [
        (Diffusion(), "time", 1 / GRAPH.mean_degree),
        (RegularizedLaplacian(), "range", np.sqrt(10 / GRAPH.mean_degree)),
    ],
)
def test_priors(kernel: Any, name: str, median: float) -> None:
    prior = kernel.parameters(GRAPH)[name]
    assert float(prior.icdf(0.5)) == pytest.approx(median, rel=1e-5)


def test_what_says_nothing_is_refused() -> None:
    low, high = np.triu_indices(4, 1)
    alike, weighted = (
        Graph(4, low, high, w).with_cliques() for w in (np.ones(6), np.arange(1.0, 7.0))
    )
    with pytest.raises(
        DataError, match="every two items are linked alike.*give weights or.*threshold"
    ):
        HiddenCommonCause()(alike)
    with pytest.raises(DataError, match="threshold"):
        dense(HiddenCommonCause(), alike)
    for graph in (alike, weighted):
        with pytest.raises(DataError, match="keep only the stronger links"):
            HiddenCommonCause(method="cliques")(graph)
    assert HiddenCommonCause()(weighted).size == 4
    with pytest.raises(DataError, match=r"data.with_cliques\("):
        HiddenCommonCause(method="cliques")(Graph(4, [0], [1], [1.0]))
    method: Any = "nodes"
    with pytest.raises(DataError, match='no method .nodes.; use "edges" or "cliques"'):
        HiddenCommonCause(method=method)
    with pytest.raises(DataError, match="regularization is 0"):
        HiddenCommonCause(regularization=0.0)
    for kernel in (SquaredExponential(), Linear()):
        with pytest.raises(DataError, match="shared_lengthscale=True"):
            RelationVectors(kernel).parameters(Graph(4, [0], [1], [1.0]))
    assert RelationVectors(Precomputed(np.eye(8))).parameters(GRAPH) == {}
