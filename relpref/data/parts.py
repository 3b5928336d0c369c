"""The data of some of the items."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.sparse.csgraph import breadth_first_order

from relpref.data.arrays import Array, Integers, read_only
from relpref.data.graph import Graph, ScaleReference
from relpref.data.preference import PreferenceData
from relpref.pytree import register


@dataclass(frozen=True, eq=False)
class PartialGraph:
    """Nodes of a graph without its links, from which kernels take their priors and scales."""

    partial: ClassVar[bool] = True

    num_nodes: int
    reference: ScaleReference  # of the whole graph

    @property
    def baseline(self) -> ScaleReference:
        """See `Graph.baseline`."""
        return self.reference


register(PartialGraph, leaves=("reference",), static=("num_nodes",))


def marginal(data: PreferenceData, positions: Array) -> PreferenceData:
    """Return the data of the items at ascending positions, which all answers are about.

    Relations are `PartialGraph`.
    """
    graphs: dict[str, Any] = {
        name: PartialGraph(len(positions), graph.reference)
        for name, graph in data.relations.items()
    }
    return replace(_at(data, positions), _graphs=graphs, _links={})


def induced(data: PreferenceData, positions: Array) -> tuple[PreferenceData, Integers]:
    """Return the data of some items, answers and links among them, and the rows of the answers."""
    here = np.zeros(data.num_items, dtype=bool)
    here[positions] = True
    chosen = data.comparisons.among(here)
    rows = np.flatnonzero(chosen[data.comparisons.answers.of_rows])
    place = np.cumsum(here) - 1
    graphs = {}
    for name, graph in data.relations.items():
        kept = here[graph.source] & here[graph.target]
        ends = place[graph.source[kept]], place[graph.target[kept]]
        graphs[name] = Graph(len(positions), *ends, graph.weight[kept])
    return replace(_at(data.select_comparisons(chosen), positions), _graphs=graphs, _links={}), rows


def neighborhood(data: PreferenceData, number: int) -> PreferenceData:
    """Return a number of neighboring items with the answers and the edges among them.

    They are those that edges of relations, or comparisons if there are none, reach first from the
    item with the most answers.
    """
    pairs = data.winner, data.loser
    start = np.argmax(np.bincount(np.concatenate(pairs), minlength=data.num_items))
    near, _ = breadth_first_order(data._joined(data._edges() or [pairs]), start, directed=False)
    some, _ = induced(data, np.sort(near[:number]))
    graphs = {
        name: replace(graph, counts_cliques=data.relations[name].counts_cliques)
        for name, graph in some.relations.items()
    }
    return replace(some, _graphs=graphs)


def _at(data: PreferenceData, positions: Array) -> PreferenceData:
    answers = data.comparisons
    # Positions ascend, so answers stay in their order.
    ends = {
        name: read_only(np.searchsorted(positions, getattr(answers, name)).astype(np.int32))
        for name in ("winner", "loser")
    }
    return replace(
        data,
        labels=tuple(data.labels[at] for at in positions),
        attributes=read_only(np.asarray(data.attributes)[positions]),
        comparisons=replace(answers, **ends),
    )
