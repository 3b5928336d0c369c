"""An undirected weighted graph over the entities, with the spectrum that graph kernels use."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
from numpy.typing import ArrayLike, NDArray

from relpref.data.arrays import read_only
from relpref.data.cliques import clique_counts
from relpref.data.spectrum import Spectrum, spectrum
from relpref.data.untraced import Untraced
from relpref.errors import DataError

# Beyond these the degrees or the eigenvalues of the Laplacian leave the range of float64.
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-100, 1e100


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
    component : array of int32, shape (k,)
        Numbers of its connected components; its nodes are the first k of every graph grown from it.
    """

    eigenvalues: Any
    gap_weights: Any
    mean_degree: Any
    component: Any


@dataclass(frozen=True, eq=False)
class Graph:
    """An immutable undirected graph; a JAX pytree whose leaves are what kernels need.

    Edges may be given in any order and orientation; they are stored with source < target, sorted.
    Flattening it (also by passing it to a compiled function) computes the leaves ``weight_matrix``, ``spectrum``,
    ``reference`` and, where wanted, ``cliques``. The list of edges is no leaf, so that graphs with different numbers
    of edges share one compilation: inside a compiled function that has the graph as an argument, only the leaves,
    ``num_nodes`` and ``completeness`` are those of the argument.

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
    counts_cliques : bool
        Whether ``cliques`` is wanted, see `with_cliques`.

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
    counts_cliques: bool = False

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
    def completeness(self) -> Literal["incomplete", "weighted", "constant"]:
        """Whether every two of more than two nodes are joined, and then whether all weights are equal."""
        size = self.num_nodes
        if size < 3 or self.num_edges < size * (size - 1) // 2:
            return "incomplete"
        return "constant" if np.ptp(self.weight) == 0 else "weighted"

    @cached_property
    def weight_matrix(self) -> NDArray[np.float64]:
        """Symmetric matrix of weights W, dense, of shape (n, n)."""
        return np.asarray(read_only(self.adjacency().toarray()))

    @cached_property
    def spectrum(self) -> Spectrum:
        """Eigendecomposition of the Laplacian, computed when first used: O(s**3) per component."""
        return spectrum(self.adjacency(), self.component)

    @cached_property
    def cliques(self) -> NDArray[np.float64] | None:
        """Number of maximal cliques of a triangulation that hold both nodes, shape (n, n); see `with_cliques`."""
        if not self.counts_cliques:
            return None
        return np.asarray(read_only(clique_counts(self.num_nodes, self.source, self.target)))

    @cached_property
    def reference(self) -> ScaleReference:
        """What kernels are scaled by: the graph itself, or the graph before newcomers were added."""
        if self.frozen_reference is not None:
            return self.frozen_reference
        values, _, gap_weights = self.spectrum
        return ScaleReference(values, gap_weights, self.mean_degree, self.component)

    def with_cliques(self) -> "Graph":
        """Return the graph with ``cliques``, which ``HiddenCommonCause(method="cliques")`` needs."""
        graph = object.__new__(Graph)
        graph.__dict__.update({**self.__dict__, "counts_cliques": True})
        graph.__dict__.pop("cliques", None)
        return graph

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
            counts_cliques=self.counts_cliques,
        )

    def __repr__(self) -> str:
        """Return the sizes."""
        return f"Graph({self.num_nodes} nodes, {self.num_edges} edges)"


_LEAVES = ("weight_matrix", "spectrum", "reference", "cliques")


def _static(graph: Graph) -> tuple[Any, ...]:
    return graph.num_nodes, graph.completeness, Untraced((graph.source, graph.target, graph.weight))


def _flatten_with_keys(graph: Graph) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
    return [(jax.tree_util.GetAttrKey(name), getattr(graph, name)) for name in _LEAVES], _static(graph)


def _flatten(graph: Graph) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return tuple(getattr(graph, name) for name in _LEAVES), _static(graph)


def _unflatten(static: tuple[Any, ...], children: Any) -> Graph:
    # No checks: leaves may be tracers or placeholders.
    num_nodes, completeness, edges = static
    graph = object.__new__(Graph)
    graph.__dict__.update(zip(_LEAVES, children, strict=True))
    graph.__dict__.update(zip(("source", "target", "weight"), edges.content, strict=True))
    graph.__dict__.update(
        num_nodes=num_nodes,
        completeness=completeness,
        frozen_reference=graph.reference,
        counts_cliques=graph.cliques is not None,
    )
    return graph


jax.tree_util.register_pytree_with_keys(Graph, _flatten_with_keys, _unflatten, _flatten)
