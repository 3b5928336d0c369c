"""Undirected graphs made of directed links."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from relpref.memory import require_memory

# A row, a column and a weight, and once more while they are sorted; and the matrices of a walk.
_BYTES_PER_PAIR, _BYTES_OF_WALK = 24.0, 48.0


class Projected(NamedTuple):
    """Edges between sources, each once, source < target.

    Attributes
    ----------
    source, target : array of int, shape (e,)
    weight : array of float64, shape (e,)
    """

    source: NDArray[Any]
    target: NDArray[Any]
    weight: NDArray[np.float64]


def shared_targets(links: Any, *, weigh_hubs: bool) -> Projected:
    """Join the sources that link to the same targets.

    Parameters
    ----------
    links : scipy sparse array, shape (n, t)
        Weight of the link from each of n sources to each of t targets; 0 where there is none.
    weigh_hubs : bool
        Whether what a target of degree d adds is divided by d − 1 (Newman 2001, Phys. Rev. E 64, 016132, eq. 2).

    Returns
    -------
    Projected
        Σ_t b_it b_jt h_t over the targets t that i and j share, with h_t = 1/(d_t − 1) or 1.

    Raises
    ------
    DataError
        If there may be more pairs than fit into memory: a target of degree d joins d².
    """
    links = scipy.sparse.csc_array(links)
    degree = np.diff(links.indptr)
    pairs = min(float(degree.astype(np.float64) @ degree), float(links.shape[0]) ** 2)
    require_memory(
        _BYTES_PER_PAIR * pairs,
        f"up to {pairs:.2g} pairs of entities that share a target (max_degree leaves out the largest targets)",
    )
    factor = 1 / np.maximum(degree - 1, 1) if weigh_hubs else np.ones(degree.size)
    weighted = links @ scipy.sparse.diags_array(factor)
    joined = scipy.sparse.triu(weighted @ links.T, k=1, format="coo")
    return Projected(joined.row, joined.col, joined.data)


def circulation(links: Any, teleport: float) -> Projected:
    """Join the nodes of a directed graph by the traffic of a random walk.

    The walk follows a link with a probability in proportion to its weight, or goes anywhere, all nodes alike, with the probability
    ``teleport``, and always from a node without links. With its stationary distribution φ and its transition matrix P, the
    weights are ½(φ_i P_ij + φ_j P_ji): the combinatorial Laplacian of this graph is Chung's Φ − ½(ΦP + PᵀΦ) (Chung 2005, Annals
    of Combinatorics 9). They are multiplied by n here, so that the average node has the degree 1 (counting the walk
    that stays where it is).

    Parameters
    ----------
    links : scipy sparse array, shape (n, n)
        Weight of the link from i to j.
    teleport : float
        Between 0 and 1.

    Returns
    -------
    Projected
        An edge between every two nodes, because the walk may go anywhere.

    Raises
    ------
    DataError
        If so many would not fit into memory.
    """
    size = links.shape[0]
    require_memory(
        _BYTES_OF_WALK * size**2, f"a random walk that may go from each of {size} entities to each"
    )
    weights = links.toarray()
    total = weights.sum(axis=1, keepdims=True)
    along = np.where(total > 0, weights / np.where(total > 0, total, 1), 1 / size)
    transition = (1 - teleport) * along + teleport / size
    # φ = φ P with Σ φ = 1, where the part of P that goes anywhere is known.
    stationary = np.linalg.solve(np.eye(size) - (1 - teleport) * along.T, np.full(size, teleport / size))
    flow = stationary[:, None] * transition
    source, target = np.triu_indices(size, 1)
    return Projected(source, target, size * 0.5 * (flow + flow.T)[source, target])
