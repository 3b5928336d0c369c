"""The cliques of a triangulated graph."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def maximal_cliques(num_nodes: int, source: Sequence[int], target: Sequence[int]) -> list[list[int]]:
    """Triangulate a graph and list its maximal cliques.

    The triangulation is that of greedy elimination: remove the node with the fewest neighbours after joining all of
    these, until none is left (Rose 1972; of two equal nodes the first goes first). What is joined to a node when it goes
    is a clique with it, and every maximal clique arises so.

    Parameters
    ----------
    num_nodes : int
        Number of nodes n.
    source, target : sequence of int, length e
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
    later: dict[int, set[int]] = {}  # in the order of elimination
    while neighbours:
        node = min(neighbours, key=lambda other: (len(neighbours[other]), other))
        joined = later[node] = neighbours.pop(node)
        if len(joined) == len(neighbours):
            break  # what is left is a part of this clique
        for other in joined:
            neighbours[other] |= joined
            neighbours[other] -= {other, node}
    place = {node: position for position, node in enumerate(later)}
    # The clique of a node's first later neighbour holds the others too; it is not maximal if it holds nothing else.
    inside = set()
    for joined in later.values():
        if joined:
            first = min(joined, key=lambda other: place.get(other, num_nodes))
            if first in later and len(joined) == len(later[first]) + 1:
                inside.add(first)
    return [sorted({node, *joined}) for node, joined in later.items() if node not in inside]


def clique_counts(num_nodes: int, source: Any, target: Any) -> NDArray[np.float64]:
    """Count the maximal cliques of the triangulated graph that hold both of two nodes, shape (n, n)."""
    counts = np.zeros((num_nodes, num_nodes))
    for clique in maximal_cliques(num_nodes, source, target):
        counts[np.ix_(clique, clique)] += 1
    return counts
