"""The data of some of the items."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from relpref.data.arrays import read_only
from relpref.data.graph import Graph, ScaleReference
from relpref.data.preference import PreferenceData
from relpref.pytree import register


@dataclass(frozen=True, eq=False)
class PartialGraph:
    """Some nodes of a graph, without its links: what kernels take their priors and scales from."""

    partial: ClassVar[bool] = True

    num_nodes: int
    reference: ScaleReference  # of the whole graph


register(PartialGraph, leaves=("reference",), static=("num_nodes",))


def marginal(data: PreferenceData, positions: NDArray[Any], spare: int = 0) -> PreferenceData:
    """The data of the items at some ascending positions, among which all answers must be, with `PartialGraph` as relations.

    The first item's labels and attributes fill ``spare`` places at the end.
    """
    graphs: dict[str, Any] = {
        name: PartialGraph(len(positions) + spare, graph.reference)
        for name, graph in data.relations.items()
    }
    found = _at(data, positions)
    if spare:
        rows = np.concatenate([np.arange(len(positions)), np.zeros(spare, dtype=int)])
        found = replace(
            found,
            labels=tuple(found.labels[row] for row in rows),
            attributes=read_only(found.attributes[rows]),
        )
    return replace(found, _graphs=graphs, _links={})


def induced(
    data: PreferenceData, positions: NDArray[Any]
) -> tuple[PreferenceData, NDArray[np.int64]]:
    """The data of some items: answers and links among them; and the rows of these answers."""
    here = np.zeros(data.num_items, dtype=bool)
    here[positions] = True
    rows = np.flatnonzero(data.comparisons.whole_lists(here[data.winner] & here[data.loser]))
    place = np.cumsum(here) - 1
    graphs = {}
    for name, graph in data.relations.items():
        kept = here[graph.source] & here[graph.target]
        ends = place[graph.source[kept]], place[graph.target[kept]]
        graphs[name] = Graph(len(positions), *ends, graph.weight[kept])
    return replace(_at(data.select_comparisons(rows), positions), _graphs=graphs, _links={}), rows


def _at(data: PreferenceData, positions: NDArray[Any]) -> PreferenceData:
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
