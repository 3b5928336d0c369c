"""Pairwise kernels against their definitions, written out pair by pair."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import sparse

from relpref.kernels import (
    MLPK,
    Cartesian,
    EdgeGram,
    Kronecker,
    PairwiseKernel,
    Preference,
    Reciprocal,
    Side,
    Symmetric,
)
from relpref.kernels import pairwise as products

Value = Callable[[Any, Any], float]
Edge = tuple[Any, Any]


def differences(k: Value, g: Value, e: Edge, f: Edge) -> float:
    return k(e[0], f[0]) - k(e[0], f[1]) - k(e[1], f[0]) + k(e[1], f[1])


# k(e, e') from the kernels of nodes and the nodes' identity.
DEFINITIONS: dict[str, tuple[PairwiseKernel, Callable[[Value, Value, Edge, Edge], float]]] = {
    "kronecker": (Kronecker(), lambda k, g, e, f: k(e[0], f[0]) * g(e[1], f[1])),
    "cartesian": (
        Cartesian(),
        lambda k, g, e, f: k(e[0], f[0]) * (e[1] is f[1]) + (e[0] is f[0]) * g(e[1], f[1]),
    ),
    "symmetric": (
        Symmetric(),
        lambda k, g, e, f: (k(e[0], f[0]) * k(e[1], f[1]) + k(e[0], f[1]) * k(e[1], f[0])) / 2,
    ),
    "reciprocal": (
        Reciprocal(),
        lambda k, g, e, f: (k(e[0], f[0]) * k(e[1], f[1]) - k(e[0], f[1]) * k(e[1], f[0])) / 2,
    ),
    "preference": (Preference(), differences),
    "mlpk": (MLPK(), lambda *edges: differences(*edges) ** 2),
}


def gaussian(x: Any, z: Any) -> float:
    return float(np.exp(-0.5 * np.sum((x - z) ** 2)))


def laplace(x: Any, z: Any) -> float:
    return float(np.exp(-np.sum(np.abs(x - z))))


class Case:
    """Nodes, some of those asked for new and some known, and edges of which some are repeated."""

    def __init__(self, name: str, seed: int, p: int, m: int, new: int, edges: int) -> None:
        rng = np.random.default_rng(seed)
        self.kernel, self.define = DEFINITIONS[name]
        one = self.kernel.one_domain
        self.k: Value = gaussian
        self.g: Value = gaussian if one else laplace
        self.nodes = list(rng.standard_normal((p, 2)))
        self.objects = self.nodes if one else list(rng.standard_normal((m, 2)))
        self.left, self.asked = self._side(rng, self.nodes, self.k, new)
        self.right, self.asked_objects = self._side(rng, self.objects, self.g, new)
        self.edge_rows = rng.integers(0, len(self.nodes), edges)
        self.edge_columns = rng.integers(0, len(self.objects), edges)
        self.dual = rng.standard_normal(edges)
        self.rows = rng.integers(0, len(self.asked), edges)
        self.columns = rng.integers(0, len(self.asked_objects), edges)

    @staticmethod
    def _side(rng: Any, nodes: list[Any], k: Value, new: int) -> tuple[Side, list[Any]]:
        index = np.concatenate([rng.integers(0, len(nodes), 3), np.full(new, -1)])
        rng.shuffle(index)
        asked = [nodes[i] if i >= 0 else rng.standard_normal(2) for i in index]
        return Side(np.array([[k(x, z) for z in nodes] for x in asked]), index), asked

    def matrix(self) -> Any:
        """Every pair asked for against every edge, (a, b, q)."""
        return np.array(
            [
                [
                    [
                        self.define(self.k, self.g, (x, y), (self.nodes[v], self.objects[w]))
                        for v, w in zip(self.edge_rows, self.edge_columns, strict=True)
                    ]
                    for y in self.asked_objects
                ]
                for x in self.asked
            ]
        )

    def sparse(self) -> Any:
        shape = (len(self.nodes), len(self.objects))
        return sparse.coo_array((self.dual, (self.edge_rows, self.edge_columns)), shape=shape)


@pytest.mark.parametrize("name", DEFINITIONS)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), p=st.integers(1, 5), m=st.integers(1, 5), new=st.integers(0, 2))
def test_against_the_definition(name: str, seed: int, p: int, m: int, new: int) -> None:
    case = Case(name, seed, p, m, new, edges=7)
    kernel, left, right = case.kernel, case.left, case.right
    full = case.matrix()
    scores = full @ case.dual
    dense = case.sparse().toarray()
    for dual in (case.sparse(), sparse.csr_matrix(dense), dense):
        assert_allclose(kernel.scores(left, right, dual), scores, atol=1e-12)
        at = kernel.at(left, right, dual, case.rows, case.columns)
        assert_allclose(at, scores[case.rows, case.columns], atol=1e-12)
    written = kernel.matrix(left, right, case.rows, case.columns, case.edge_rows, case.edge_columns)
    assert_allclose(written, full[case.rows, case.columns], atol=1e-12)


@pytest.mark.parametrize("shape", [(1, 1), (60, 7), (7, 60), (60, 60)])
@pytest.mark.parametrize("way", ["by row", "by column", "whole"])
def test_every_way_to_selected_entries(monkeypatch: Any, way: str, shape: tuple[int, int]) -> None:
    """The cost model decides about time only."""
    rng = np.random.default_rng(2)
    (a, b), p, m = shape, 20, 30
    left, right = rng.standard_normal((a, p)), rng.standard_normal((b, m))
    weights = sparse.random_array((p, m), density=0.02, rng=3, format="csr")
    some = rng.integers(0, a * b, 200)
    rows, columns = np.divmod(np.append(some, np.arange(b)), b)  # one whole row among them
    free = {"by row": [0.0, 0.0, 0.0], "by column": [0.0, 1e-9, 0.0], "whole": [1e9, 1e9, 1e9]}[way]
    for name, value in zip(("SPARSE_COST", "ENTRY_COST", "GROUP_COST"), free, strict=True):
        monkeypatch.setattr(products, name, value)
    found = products.product_at(left, weights, right, rows, columns)
    expected = left @ weights.toarray() @ right.T
    assert_allclose(found, expected[rows, columns], atol=1e-13)


def psd(seed: int, size: int) -> Any:
    root = np.random.default_rng(seed).standard_normal((size, size))
    return root @ root.T


EDGES = {
    "complete": np.arange(5 * 4),
    "shuffled": np.random.default_rng(0).permutation(5 * 4),
    "incomplete": np.array([0, 3, 7, 8, 15, 19]),
    "repeated": np.array([3, 3, 0, 19, 7, 3, 0]),
    "one": np.array([11]),
}


@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_edge_gram_of_two_domains(monkeypatch: Any, edges: str, form: str) -> None:
    monkeypatch.setattr(products, "SPARSE_COST", {"sparse": 0.0, "dense": 1e9}[form])
    rows, columns = np.divmod(EDGES[edges], 4)
    for kernel in (Kronecker(), Cartesian()):
        left, right = Side.training(psd(0, 5)), Side.training(psd(1, 4))
        gram = EdgeGram(kernel, left, right, rows, columns)
        assert gram.complete == (edges == "complete")
        written = kernel.matrix(left, right, rows, columns, rows, columns)
        dual = np.random.default_rng(4).standard_normal(len(rows))
        assert_allclose(gram @ dual, written @ dual, atol=1e-12)
        place = gram.weights(dual)
        assert sparse.issparse(place) == (form == "sparse" and edges != "complete")
