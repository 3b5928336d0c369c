"""An undirected weighted graph over the entities, with the spectrum that graph kernels use."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.csgraph
from numpy.typing import ArrayLike, NDArray

from relpref.errors import DataError

# Beyond these the degrees or the eigenvalues of the Laplacian leave the range of float64.
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-100, 1e100


class Spectrum(NamedTuple):
    """Eigendecomposition of the combinatorial Laplacian D - W, one connected component at a time.

    Attributes
    ----------
    eigenvalues : array of float64, shape (n,)
        Ascending; exactly 0 once per component.
    eigenvectors : array of float64, shape (n, n)
        Column k belongs to eigenvalue k and vanishes outside one component; for the eigenvalue 0 it is
        exactly constant on it.
    gap_weights : array of float64, shape (n,)
        Weights w such that ``sum(w * f(eigenvalues))`` is the mean of K_ii + K_jj - 2 K_ij over the ordered
        pairs i != j inside components, for K = U f(eigenvalues) U^T: 2 s / sum_c s_c (s_c - 1) for the
        non-zero eigenvalues of a component of s nodes, 0 for the zero eigenvalues.
    """

    eigenvalues: Any
    eigenvectors: Any
    gap_weights: Any


class ScaleReference(NamedTuple):
    """What a kernel is scaled by; kept from the old graph when newcomers are added.

    Attributes
    ----------
    eigenvalues : array of float64, shape (k,)
        Eigenvalues of the Laplacian of the graph of reference.
    gap_weights : array of float64, shape (k,)
        Its gap weights, see `Spectrum`.
    mean_degree : float64
        Its mean weighted degree over the nodes with an edge.
    """

    eigenvalues: Any
    gap_weights: Any
    mean_degree: Any


def read_only(array: Any) -> Any:
    """Return the array after forbidding writes into it."""
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False)
class Graph:
    """An immutable undirected graph; a JAX pytree whose leaves are its arrays.

    Edges may be given in any order and orientation; they are stored with source < target, sorted.
    Flattening it (also by passing it to a compiled function) computes the spectrum.
    Methods and properties other than ``spectrum``, ``reference`` and the sizes need concrete arrays:
    they do not work inside a compiled function that has the graph as an argument.

    Parameters
    ----------
    num_nodes : int
        Number of nodes n.
    source, target : array of int, shape (e,)
        Ends of the edges, from 0 to n - 1.
    weight : array of float, shape (e,)
        Positive weights.
    frozen_reference : ScaleReference, optional
        What kernels are scaled by, if not by this graph itself.

    Raises
    ------
    DataError
        If an end is out of range, an edge is a loop or occurs twice, or a weight is not positive.
    """

    num_nodes: int
    # Any: given as anything like an array, stored as NumPy, traced under a compiled function.
    source: Any
    target: Any
    weight: Any
    frozen_reference: ScaleReference | None = None

    def __post_init__(self) -> None:
        """Check the edges and bring them into their order."""
        ends = [np.asarray(end, dtype=np.int64).reshape(-1) for end in (self.source, self.target)]
        weight = np.array(self.weight, dtype=np.float64).reshape(-1)
        if not ends[0].size == ends[1].size == weight.size:
            raise DataError(
                f"Graph: {ends[0].size} sources, {ends[1].size} targets and {weight.size} weights; give one of each per edge"
            )
        low, high = np.minimum(*ends), np.maximum(*ends)
        if low.size and (low.min() < 0 or high.max() >= self.num_nodes):
            raise DataError(
                f"Graph: an edge ends at node {high.max() if low.min() >= 0 else low.min()}, "
                f"but the nodes are 0 to {self.num_nodes - 1}; correct the edge or num_nodes"
            )
        if (low == high).any():
            raise DataError(f"Graph: node {low[np.argmax(low == high)]} has an edge to itself; remove it")
        bad = ~((weight >= SMALLEST_WEIGHT) & (weight <= LARGEST_WEIGHT))
        if bad.any():
            raise DataError(
                f"Graph: edge {int(np.argmax(bad))} has the weight {weight[np.argmax(bad)]}; "
                f"weights lie between {SMALLEST_WEIGHT} and {LARGEST_WEIGHT}"
            )
        key = low * self.num_nodes + high
        order = np.argsort(key, kind="stable")
        twice = key[order][1:] == key[order][:-1]
        if twice.any():
            edge = order[int(np.argmax(twice))]
            raise DataError(f"Graph: the edge {low[edge]} - {high[edge]} occurs twice; give it once")
        # A frozen dataclass is filled through object.__setattr__; JAX's unflatten skips this method.
        object.__setattr__(self, "source", read_only(low[order].astype(np.int32)))
        object.__setattr__(self, "target", read_only(high[order].astype(np.int32)))
        object.__setattr__(self, "weight", read_only(weight[order]))

    @property
    def num_edges(self) -> int:
        """Number of edges e."""
        return int(self.source.shape[0])

    def adjacency(self) -> Any:
        """Return the symmetric matrix of weights W, a scipy CSR array of shape (n, n)."""
        rows = np.concatenate([self.source, self.target])
        columns = np.concatenate([self.target, self.source])
        weights = np.concatenate([self.weight, self.weight])
        return scipy.sparse.csr_array((weights, (rows, columns)), shape=(self.num_nodes, self.num_nodes))

    def laplacian(self) -> NDArray[np.float64]:
        """Return the combinatorial Laplacian D - W, dense, of shape (n, n)."""
        laplacian: NDArray[np.float64] = -self.adjacency().toarray()
        np.fill_diagonal(laplacian, self.degree)
        return laplacian

    @cached_property
    def degree(self) -> NDArray[np.float64]:
        """Weighted degree of each node, shape (n,)."""
        ends = np.concatenate([self.source, self.target])
        weights = np.concatenate([self.weight, self.weight])
        return np.asarray(
            read_only(np.bincount(ends, weights=weights, minlength=self.num_nodes).astype(np.float64))
        )

    @cached_property
    def mean_degree(self) -> float:
        """Mean weighted degree over the nodes with an edge; 1 for a graph without edges."""
        linked = self.degree[self.degree > 0]
        return np.float64(linked.mean() if linked.size else 1.0)

    @cached_property
    def component(self) -> NDArray[np.int32]:
        """Number of the connected component of each node, shape (n,)."""
        _, component = scipy.sparse.csgraph.connected_components(self.adjacency(), directed=False)
        return np.asarray(read_only(component.astype(np.int32)))

    @cached_property
    def spectrum(self) -> Spectrum:
        """Eigendecomposition of the Laplacian, computed when first used: O(s**3) per component."""
        return _spectrum(self)

    @cached_property
    def reference(self) -> ScaleReference:
        """What kernels are scaled by: the graph itself, or the graph before newcomers were added."""
        if self.frozen_reference is not None:
            return self.frozen_reference
        return ScaleReference(self.spectrum.eigenvalues, self.spectrum.gap_weights, self.mean_degree)

    def grown(self, num_nodes: int, source: ArrayLike, target: ArrayLike, weight: ArrayLike) -> "Graph":
        """Return the graph with more nodes and edges, and the scale of reference of this one.

        Parameters
        ----------
        num_nodes : int
            Number of nodes of the new graph.
        source, target, weight : array, shape (e,)
            Edges to add.

        Returns
        -------
        Graph
            The larger graph.
        """
        return Graph(
            num_nodes,
            np.concatenate([self.source, np.asarray(source, dtype=np.int32)]),
            np.concatenate([self.target, np.asarray(target, dtype=np.int32)]),
            np.concatenate([self.weight, np.asarray(weight, dtype=np.float64)]),
            frozen_reference=self.reference,
        )

    def __repr__(self) -> str:
        """Return the sizes."""
        return f"Graph({self.num_nodes} nodes, {getattr(self.source, 'shape', ('?',))[0]} edges)"


def _spectrum(graph: Graph) -> Spectrum:
    size = graph.num_nodes
    eigenvalues = np.zeros(size)
    gap_weights = np.zeros(size)
    eigenvectors = np.zeros((size, size))
    adjacency = graph.adjacency()
    # Nodes sorted by component: each component is one slice of `nodes`.
    nodes = np.argsort(graph.component, kind="stable")
    sizes = np.bincount(graph.component) if size else np.zeros(0, dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    pairs = float(np.sum(sizes * (sizes - 1.0)))
    blocks = []
    for start, end in pairwise(starts):
        members = nodes[start:end]
        values, vectors = _component_spectrum(adjacency, members)
        eigenvalues[start:end] = values
        gap_weights[start + 1 : end] = 2 * (end - start) / pairs if pairs else 0.0
        blocks.append((members, slice(start, end), vectors))
    order = np.argsort(eigenvalues, kind="stable")
    rank = np.empty(size, dtype=np.int64)
    rank[order] = np.arange(size)
    for members, columns, vectors in blocks:
        eigenvectors[np.ix_(members, rank[columns])] = vectors
    return Spectrum(read_only(eigenvalues[order]), read_only(eigenvectors), read_only(gap_weights[order]))


def _component_spectrum(
    adjacency: Any, members: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenpairs of the Laplacian of one connected component, the constant vector first."""
    size = members.size
    values = np.zeros(size)
    vectors = np.full((size, size), 1 / np.sqrt(size))
    if size == 1:
        return values, vectors
    block = -adjacency[members][:, members].toarray()
    degree = -block.sum(axis=1)
    np.fill_diagonal(block, degree)
    # The constant vector is moved to the top of the spectrum (every eigenvalue is at most twice the largest
    # degree), so that it cannot mix with the vectors of eigenvalues that are nearly 0.
    block += 3 * degree.max() / size
    raised, raised_vectors = scipy.linalg.eigh(block, driver="evd", overwrite_a=True, check_finite=False)
    # A connected component has positive eigenvalues only: what is below 0 is rounding.
    values[1:] = np.maximum(raised[:-1], 0.0)
    vectors[:, 1:] = raised_vectors[:, :-1]
    return values, vectors


def _flatten_with_keys(graph: Graph) -> tuple[list[tuple[Any, Any]], int]:
    names = ("source", "target", "weight", "spectrum", "reference")
    return [(jax.tree_util.GetAttrKey(name), getattr(graph, name)) for name in names], graph.num_nodes


def _flatten(graph: Graph) -> tuple[tuple[Any, ...], int]:
    return (graph.source, graph.target, graph.weight, graph.spectrum, graph.reference), graph.num_nodes


def _unflatten(num_nodes: int, children: Any) -> Graph:
    # No checks: leaves may be tracers or placeholders.
    source, target, weight, spectrum, reference = children
    graph = object.__new__(Graph)
    content = {
        "num_nodes": num_nodes,
        "source": source,
        "target": target,
        "weight": weight,
        "frozen_reference": reference,
        "spectrum": spectrum,
        "reference": reference,
    }
    graph.__dict__.update(content)
    return graph


jax.tree_util.register_pytree_with_keys(Graph, _flatten_with_keys, _unflatten, _flatten)
