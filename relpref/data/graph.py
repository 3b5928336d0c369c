"""Undirected weighted graphs over the items, with the spectrum that graph kernels use."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.csgraph

from relpref.data.arrays import Array, Floats, Positions, read_only, refuse_first
from relpref.errors import DataError
from relpref.limits import LARGEST_WEIGHT, SMALLEST_WEIGHT, require_memory
from relpref.pytree import register


class Spectrum(NamedTuple):
    """Eigendecomposition of the combinatorial Laplacian D - W, one component at a time."""

    eigenvalues: Any  # shape (n,), ascending; exactly 0 once per component
    # Shape (n, n). Vectors of a component vanish outside it; the one of eigenvalue 0 is exactly
    # constant on it.
    eigenvectors: Any
    # Shape (n,): ``sum(gap_weights * f(eigenvalues))`` is the mean of K_ii + K_jj - 2 K_ij over the
    # ordered pairs i != j inside components, for K = U f(eigenvalues) U^T: 2 s / sum_c s_c (s_c -
    # 1) for the non-zero eigenvalues of a component of s nodes, else 0.
    gap_weights: Any


# A row, a column and a weight of each pair, twice while they are sorted; the matrices of a walk.
_BYTES_PER_PAIR = 24.0
_BYTES_OF_WALK = 48.0


class Projected(NamedTuple):
    """Edges between sources, each once, source < target."""

    source: Array
    target: Array
    weight: Floats


def shared_targets(links: Any, *, weigh_hubs: bool) -> Projected:
    """Join the sources that link to the same targets."""
    links = scipy.sparse.csc_array(links)
    degree = np.diff(links.indptr)
    pairs = min(float(degree.astype(np.float64) @ degree), float(links.shape[0]) ** 2)
    require_memory(
        _BYTES_PER_PAIR * pairs,
        f"up to {pairs:.2g} pairs of items that share a target (max_degree leaves out the largest "
        "targets)",
    )
    factor = 1 / np.maximum(degree - 1, 1) if weigh_hubs else np.ones(degree.size)
    weighted = links @ scipy.sparse.diags_array(factor)
    joined = scipy.sparse.triu(weighted @ links.T, k=1, format="coo")
    return Projected(joined.row, joined.col, joined.data)


def circulation(links: Any, teleport: float) -> Projected:
    """Join the nodes of a directed graph by the traffic of a random walk.

    The walk follows a link with a probability in proportion to its weight, or goes anywhere, all
    nodes alike, with the probability ``teleport``, and always from a node without links. With its
    stationary distribution φ and its transition matrix P, the weights are ½(φ_i P_ij + φ_j P_ji):
    the combinatorial Laplacian of this graph is Chung's Φ − ½(ΦP + PᵀΦ) (Chung 2005, Annals of
    Combinatorics 9). They are multiplied by n here, so that the average node has the degree 1
    (counting the walk that stays where it is).
    """
    size = links.shape[0]
    require_memory(
        _BYTES_OF_WALK * size**2, f"a random walk that may go from each of {size} items to each"
    )
    weights = links.toarray()
    total = weights.sum(axis=1, keepdims=True)
    along = np.where(total > 0, weights / np.where(total > 0, total, 1), 1 / size)
    transition = (1 - teleport) * along + teleport / size
    # φ = φ P with Σ φ = 1, where the part of P that goes anywhere is known.
    stationary = np.linalg.solve(
        np.eye(size) - (1 - teleport) * along.T, np.full(size, teleport / size)
    )
    flow = stationary[:, None] * transition
    source, target = np.triu_indices(size, 1)
    return Projected(source, target, size * 0.5 * (flow + flow.T)[source, target])


def maximal_cliques(
    num_nodes: int, source: Iterable[int], target: Iterable[int]
) -> list[list[int]]:
    """Triangulate a graph and list its maximal cliques; the numbers of the nodes do not matter.

    The triangulation is that of greedy elimination (Rose 1972): remove a node after joining all its
    neighbors, until none is left. What is joined to a node when it goes is a clique with it, and
    every maximal clique arises so. First go nodes whose neighbors are joined already, so that a
    chordal graph stays as it is; then those with the fewest neighbors; of these the first by color
    refinement (Weisfeiler & Leman 1968), which sees the graph and not the numbers. Nodes that it
    cannot tell apart go at the same time. Where these are linked, they are joined with one another
    and all their neighbors, because any choice among them would depend on the numbers: a ring of
    equal nodes becomes a clique.
    """
    from networkx import connected_components, find_cliques, from_dict_of_lists

    neighbors: dict[int, set[int]] = {node: set() for node in range(num_nodes)}
    for low, high in zip(source, target, strict=True):
        neighbors[int(low)].add(int(high))
        neighbors[int(high)].add(int(low))
    colors = _colors(neighbors)
    later: dict[int, set[int]] = {}  # in the order of elimination
    keys = {}
    changed = set(neighbors)
    while neighbors:
        looked_at = {}  # nodes of one clique share the answer
        for node in changed:
            joined = neighbors[node]
            closed = frozenset(joined | {node})
            if closed not in looked_at:
                looked_at[closed] = all(closed <= neighbors[other] | {other} for other in joined)
            keys[node] = (not looked_at[closed], len(joined), colors[node])
        least = min(keys.values())
        if least[1] == len(neighbors) - 1:  # what is left is a clique
            later |= neighbors
            break
        ends = set()
        leaving = {node for node, key in keys.items() if key == least}
        linked = from_dict_of_lists({node: neighbors[node] & leaving for node in leaving})
        for block in connected_components(linked):
            together = block.union(*(neighbors[node] for node in block))
            for node in together:
                neighbors[node] |= together - {node}
            for node in block:
                later[node] = neighbors.pop(node)
                del keys[node]
                for other in later[node]:
                    neighbors[other].discard(node)
            ends |= together - block
        changed = ends.union(*(neighbors[node] for node in ends))
    return [sorted(clique) for clique in find_cliques(from_dict_of_lists(later))]


def _colors(neighbors: Mapping[int, set[int]]) -> dict[int, int]:
    """Return numbers that nodes share if color refinement cannot tell them apart.

    The order of the numbers depends on the graph only.
    """
    colors = dict.fromkeys(neighbors, 0)
    number = 1
    while True:
        refined = {
            node: (colors[node], tuple(sorted(colors[other] for other in joined)))
            for node, joined in neighbors.items()
        }
        places = {color: place for place, color in enumerate(sorted(set(refined.values())))}
        if len(places) <= number:
            return colors
        colors = {node: places[color] for node, color in refined.items()}
        number = len(places)


class ScaleReference(NamedTuple):
    """The values that scale a kernel; those of the old graph when newcomers are added."""

    eigenvalues: Any  # of the Laplacian of the graph of reference, shape (k,), see `Spectrum`
    gap_weights: Any  # shape (k,)
    mean_degree: Any  # its mean weighted degree over the nodes with an edge
    # Number of each node's connected component, shape (k,); its nodes are the first k of every
    # graph with newcomers.
    component: Any


@dataclass(frozen=True, eq=False)
class Graph:
    """An immutable undirected graph; a JAX pytree whose leaves are what kernels need.

    Edges may be given in any order and orientation; they are stored with source < target, sorted.
    The leaves are ``weight_matrix``, ``spectrum``, ``reference`` and, if counted, ``cliques``,
    computed when it is flattened. The list of edges is no leaf, so that graphs with different
    numbers of edges share one compilation: inside a compiled function only the leaves,
    ``num_nodes`` and ``completeness`` are those of its argument.

    Parameters
    ----------
    num_nodes : int
        Number of nodes n.
    source, target : array of int, shape (e,)
        Ends of the edges, from 0 to n - 1.
    weight : array of float, shape (e,)
        Positive weights.
    frozen_reference : ScaleReference, optional
        Scale of kernels, by default that of this graph.
    counts_cliques : bool
        Whether ``cliques`` is needed, see `with_cliques`.

    Raises
    ------
    DataError
        If an end is out of range, an edge is a loop or occurs twice, or a weight is not positive.
    """

    partial: ClassVar[bool] = False
    """Whether it stands for some nodes of a larger graph, whose links are not known."""

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
                f"Graph: {ends[0].size} sources, {ends[1].size} targets and {weight.size} weights; "
                "give one of each per edge"
            )
        low = np.minimum(*ends)
        high = np.maximum(*ends)
        refuse_first(
            (low < 0) | (high >= self.num_nodes),
            lambda edge: (
                f"Graph: an edge ends at node {low[edge] if low[edge] < 0 else high[edge]}, but "
                f"the nodes are 0 to {self.num_nodes - 1}; correct the edge or num_nodes"
            ),
        )
        refuse_first(
            low == high, lambda edge: f"Graph: node {low[edge]} has an edge to itself; remove it"
        )
        refuse_first(
            ~((weight >= SMALLEST_WEIGHT) & (weight <= LARGEST_WEIGHT)),
            lambda edge: (
                f"Graph: edge {edge} has the weight {weight[edge]}; weights lie between "
                f"{SMALLEST_WEIGHT} and {LARGEST_WEIGHT}"
            ),
        )
        key = low * self.num_nodes + high
        order = np.argsort(key, kind="stable")
        low, high, weight, key = (each[order] for each in (low, high, weight, key))
        refuse_first(
            key[1:] == key[:-1],
            lambda edge: f"Graph: the edge {low[edge]} - {high[edge]} occurs twice; give it once",
        )
        source, target = (read_only(end.astype(np.int32)) for end in (low, high))
        # A frozen dataclass refuses assignments; JAX's unflatten skips this.
        self.__dict__.update(source=source, target=target, weight=read_only(weight))

    @property
    def num_edges(self) -> int:
        return int(self.source.shape[0])

    def adjacency(self) -> Any:
        """Return the symmetric matrix of weights W, a scipy CSR array of shape (n, n)."""
        upper = scipy.sparse.csr_array(
            (self.weight, (self.source, self.target)), shape=(self.num_nodes, self.num_nodes)
        )
        return upper + upper.T

    @cached_property
    def degree(self) -> Floats:
        """Weighted degree of each node, shape (n,)."""
        ends = np.concatenate([self.source, self.target])
        degree = np.bincount(ends, np.tile(self.weight, 2), self.num_nodes).astype(np.float64)
        return read_only(degree)

    @cached_property
    def mean_degree(self) -> float:
        """Mean weighted degree over the nodes with an edge; 1 for a graph without edges."""
        linked = self.degree[self.degree > 0]
        return np.float64(linked.mean() if linked.size else 1.0)

    @cached_property
    def component(self) -> Positions:
        """Number of the connected component of each node, shape (n,)."""
        _, component = scipy.sparse.csgraph.connected_components(self.adjacency(), directed=False)
        return read_only(component.astype(np.int32))

    @cached_property
    def completeness(self) -> Literal["incomplete", "weighted", "constant"]:
        """Whether all of more than two nodes are joined, and whether all weights are equal."""
        size = self.num_nodes
        if size < 3 or len(self.source) < size * (size - 1) // 2:
            return "incomplete"
        return "constant" if np.ptp(self.weight) == 0 else "weighted"

    @cached_property
    def weight_matrix(self) -> Floats:
        """Symmetric matrix of weights W, dense, of shape (n, n)."""
        return read_only(self.adjacency().toarray())

    @cached_property
    def spectrum(self) -> Spectrum:
        """Eigendecomposition of the Laplacian, computed when first used: O(s**3) per component."""
        component = self.component
        size = self.num_nodes
        adjacency = self.adjacency()
        eigenvalues = np.zeros(size)
        gap_weights = np.zeros(size)
        eigenvectors = np.zeros((size, size))
        # Nodes sorted by component: each component is one slice of `nodes`.
        nodes = np.argsort(component, kind="stable")
        ends = np.cumsum([0, *np.bincount(component)])
        sizes = np.diff(ends)
        pairs = float(np.sum(sizes * (sizes - 1.0)))
        for start, end in pairwise(ends):
            members = nodes[start:end]
            number = end - start
            eigenvectors[members, start:end] = 1 / np.sqrt(number)
            if number == 1:
                continue
            gap_weights[start + 1 : end] = 2 * number / pairs
            block = -adjacency[members][:, members].toarray()
            degree = -block.sum(axis=1)
            np.fill_diagonal(block, degree)
            # The constant vector is moved to the top of the spectrum (every eigenvalue is at most
            # twice the largest degree), so that it cannot mix with the vectors of eigenvalues that
            # are nearly 0.
            block += 3 * degree.max() / number
            values, vectors = scipy.linalg.eigh(
                block, driver="evd", overwrite_a=True, check_finite=False
            )
            # A connected component has positive eigenvalues only: what is below 0 is rounding.
            eigenvalues[start + 1 : end] = np.maximum(values[:-1], 0.0)
            eigenvectors[members, start + 1 : end] = vectors[:, :-1]
        order = np.argsort(eigenvalues, kind="stable")
        arrays = (eigenvalues, eigenvectors, gap_weights)
        return Spectrum(*(read_only(array.take(order, axis=-1)) for array in arrays))

    @cached_property
    def cliques(self) -> Floats | None:
        """Number of maximal cliques that hold both nodes, shape (n, n); None if not counted.

        The cliques are those of a triangulation, see `maximal_cliques` and `with_cliques`.

        Raises
        ------
        DataError
            If the nodes of a connected component end up in one clique, but are not all linked to
            each other. This happens where the first nodes to eliminate are linked, cannot be told
            apart, and together with their neighbors are the entire component: in rings, tori, cubes
            and most other regular graphs. Every correlation of the component would be 1.
        """
        if not self.counts_cliques:
            return None
        counts = np.zeros((self.num_nodes, self.num_nodes))
        sizes = np.bincount(self.component)
        links = np.bincount(self.component[self.source], minlength=len(sizes))
        for clique in maximal_cliques(self.num_nodes, self.source, self.target):
            size = len(clique)
            linked = links[self.component[clique[0]]]
            if size == sizes[self.component[clique[0]]] and 2 * linked < size * (size - 1):
                raise DataError(
                    f"triangulation joins {size} connected items into one clique, although only "
                    f"{linked} of their {size * (size - 1) // 2} pairs are linked, because the "
                    'links do not tell the items apart; use edges: HiddenCommonCause("edges"), or '
                    "hidden-common-cause in a command"
                )
            counts[np.ix_(clique, clique)] += 1
        return read_only(counts)

    @cached_property
    def reference(self) -> ScaleReference:
        """The scale of kernels: that of the graph, or of the graph before newcomers were added."""
        if self.frozen_reference is not None:
            return self.frozen_reference
        values, _, gap_weights = self.spectrum
        return ScaleReference(values, gap_weights, self.mean_degree, self.component)

    @property
    def baseline(self) -> "Graph | ScaleReference":
        """The graph or values with the mean degree and components of the ``reference``."""
        return self.frozen_reference or self

    def with_shapes(self) -> "Graph":
        """The graph with zeros in place of a spectrum that was not computed."""
        if "spectrum" in vars(self):
            return self
        zeros = np.broadcast_to(0.0, (self.num_nodes, self.num_nodes))
        graph = object.__new__(Graph)
        graph.__dict__.update(self.__dict__, spectrum=Spectrum(zeros[0], zeros, zeros[0]))
        return graph

    def with_cliques(self) -> "Graph":
        """Return the graph with ``cliques`` for ``HiddenCommonCause(method="cliques")``."""
        return self._copied(counts_cliques=True)

    def with_reference(self, reference: ScaleReference) -> "Graph":
        """Return the graph with another scale of kernels."""
        return self._copied(frozen_reference=reference)

    def _copied(self, **changes: Any) -> "Graph":
        """Copy the graph with the cached values of its edges, without checking them again."""
        graph = object.__new__(Graph)
        graph.__dict__.update({**self.__dict__, **changes})
        for name in ("cliques", "reference"):
            graph.__dict__.pop(name, None)
        return graph

    def __repr__(self) -> str:
        return f"Graph({self.num_nodes} nodes, {self.num_edges} edges)"


def check_cliques(graphs: Mapping[str, Graph]) -> None:
    """Count the cliques of graphs that need them; names a relation whose links do not allow it."""
    for name, graph in graphs.items():
        try:
            graph.cliques  # noqa: B018 (computed once and kept)
        except DataError as error:
            raise DataError(f"relation {name!r}: {error}") from None


register(
    Graph,
    leaves=("weight_matrix", "spectrum", "reference", "cliques"),
    static=("num_nodes", "completeness", "counts_cliques"),
    untraced=("source", "target", "weight"),
    restored=lambda graph: graph.__dict__.update(frozen_reference=graph.reference),
)
