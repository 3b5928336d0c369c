"""The cliques of a triangulated graph."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def maximal_cliques(num_nodes: int, source: Iterable[int], target: Iterable[int]) -> list[list[int]]:
    """Triangulate a graph and list its maximal cliques; the numbers of the nodes do not matter.

    The triangulation is that of greedy elimination (Rose 1972): remove a node after joining all its neighbours, until none is
    left. What is joined to a node when it goes is a clique with it, and every maximal clique arises so. First go nodes whose
    neighbours are joined already, so that a chordal graph stays as it is; then those with the fewest neighbours; of these the first
    by color refinement (Weisfeiler & Leman 1968), which sees the graph and not the numbers. Nodes that it cannot tell apart go at
    the same time. Where these are linked, they are joined with one another and all their neighbours, because any choice
    among them would depend on the numbers: a ring of equal nodes becomes a clique.

    Parameters
    ----------
    num_nodes : int
        Number of nodes n.
    source, target : iterable of int, length e
        Ends of the edges.

    Returns
    -------
    list of list of int
        At most n cliques, each sorted.
    """
    neighbours: dict[int, set[int]] = {node: set() for node in range(num_nodes)}
    for low, high in zip(source, target, strict=True):
        neighbours[int(low)].add(int(high))
        neighbours[int(high)].add(int(low))
    colours = _colours(neighbours)
    later: dict[int, set[int]] = {}  # in the order of elimination
    keys: dict[int, tuple[bool, int, int]] = {}
    changed = set(neighbours)
    while neighbours:
        looked_at: dict[frozenset[int], bool] = {}  # nodes of one clique share the answer
        for node in changed:
            joined = neighbours[node]
            closed = frozenset(joined | {node})
            if closed not in looked_at:
                looked_at[closed] = all(closed <= neighbours[other] | {other} for other in joined)
            keys[node] = (not looked_at[closed], len(joined), colours[node])
        least = min(keys.values())
        if least[1] == len(neighbours) - 1:  # what is left is a clique
            node = next(iter(neighbours))
            later[node] = neighbours[node]
            break
        ends: set[int] = set()
        for block in _components({node for node, key in keys.items() if key == least}, neighbours):
            together = block.union(*(neighbours[node] for node in block))
            for node in together:
                neighbours[node] |= together - {node}
            for node in block:
                later[node] = neighbours.pop(node)
                del keys[node]
                for other in later[node]:
                    neighbours[other].discard(node)
            ends |= together - block
        changed = ends.union(*(neighbours[node] for node in ends))
    place = {node: position for position, node in enumerate(later)}
    # The clique of a node's first later neighbour holds the others too; it is not maximal if it holds nothing else.
    inside = set()
    for joined in later.values():
        if joined:
            first = min(joined, key=lambda other: place.get(other, num_nodes))
            if first in later and len(joined) == len(later[first]) + 1:
                inside.add(first)
    return [sorted({node, *joined}) for node, joined in later.items() if node not in inside]


def _colours(neighbours: Mapping[int, set[int]]) -> dict[int, int]:
    """Numbers that nodes share if color refinement cannot tell them apart, in an order that the graph alone decides."""
    found, number = dict.fromkeys(neighbours, 0), 1
    while True:
        seen = {
            node: (found[node], tuple(sorted(found[other] for other in joined)))
            for node, joined in neighbours.items()
        }
        places = {colour: place for place, colour in enumerate(sorted(set(seen.values())))}
        if len(places) <= number:
            return found
        found, number = {node: places[colour] for node, colour in seen.items()}, len(places)


def _components(nodes: set[int], neighbours: Mapping[int, set[int]]) -> Iterator[set[int]]:
    """Those of the nodes that are linked through one another."""
    left = set(nodes)
    while left:
        block: set[int] = set()
        reached = {left.pop()}
        while reached:
            block |= reached
            reached = set().union(*(neighbours[node] for node in reached)) & left
            left -= reached
        yield block


def clique_counts(num_nodes: int, source: Any, target: Any) -> NDArray[np.float64]:
    """Count the maximal cliques of the triangulated graph that hold both of two nodes, shape (n, n)."""
    counts = np.zeros((num_nodes, num_nodes))
    for clique in maximal_cliques(num_nodes, source, target):
        counts[np.ix_(clique, clique)] += 1
    return counts
