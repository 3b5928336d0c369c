"""Some entities of a data set, and what stands in for graphs of which they are a part."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from relpref.data.arrays import read_only
from relpref.data.graph import Graph, ScaleReference
from relpref.pytree import register

if TYPE_CHECKING:
    from relpref.data.preference import PreferenceData


@dataclass(frozen=True, eq=False)
class PartialGraph:
    """Some nodes of a graph, without its links: what kernels take their priors and scales from.

    Parameters
    ----------
    num_nodes : int
        Number of these nodes.
    reference : ScaleReference
        Of the whole graph.
    """

    partial: ClassVar[bool] = True

    num_nodes: int
    reference: ScaleReference


register(PartialGraph, leaves=("reference",), static=("num_nodes",))


def marginal(data: "PreferenceData", positions: NDArray[Any], spare: int = 0) -> "PreferenceData":
    """The data of the entities at some ascending positions, among which all answers must be, with `PartialGraph` as relations.

    The first entity's labels and attributes fill ``spare`` places at the end.
    """
    graphs: dict[str, Any] = {
        name: PartialGraph(len(positions) + spare, graph.reference) for name, graph in data.relations.items()
    }
    found = _at(data, positions)
    if spare:
        rows = np.concatenate([np.arange(len(positions)), np.zeros(spare, dtype=int)])
        found = replace(
            found,
            entities=tuple(found.entities[row] for row in rows),
            attributes=read_only(found.attributes[rows]),
        )
    return replace(found, _graphs=graphs, _links={})


def induced(data: "PreferenceData", positions: NDArray[Any]) -> tuple["PreferenceData", NDArray[np.int64]]:
    """The data of some entities for whoever wants to look at them: answers and links among them; and the rows of these answers."""
    here = np.zeros(data.num_entities, dtype=bool)
    here[positions] = True
    rows = np.flatnonzero(here[data.winner] & here[data.loser])
    place = np.cumsum(here) - 1
    graphs = {}
    for name, graph in data.relations.items():
        kept = here[graph.source] & here[graph.target]
        ends = place[graph.source[kept]], place[graph.target[kept]]
        graphs[name] = Graph(len(positions), *ends, graph.weight[kept])
    return replace(_at(data.select_comparisons(rows), positions), _graphs=graphs, _links={}), rows


def _at(data: "PreferenceData", positions: NDArray[Any]) -> "PreferenceData":
    answers = data.comparisons
    # Positions ascend, so answers stay in their order.
    ends = {
        name: read_only(np.searchsorted(positions, getattr(answers, name)).astype(np.int32))
        for name in ("winner", "loser")
    }
    return replace(
        data,
        entities=tuple(data.entities[at] for at in positions),
        attributes=read_only(np.asarray(data.attributes)[positions]),
        comparisons=replace(answers, **ends),
    )


def with_references(data: "PreferenceData", references: dict[str, ScaleReference]) -> "PreferenceData":
    """The data with given scales in place of those that the spectra of its graphs would give."""
    graphs = dict(data.relations)
    for name, reference in references.items():
        graph = object.__new__(Graph)
        graph.__dict__.update({**graphs[name].__dict__, "frozen_reference": reference})
        graph.__dict__.pop("reference", None)
        graphs[name] = graph
    return replace(data, _graphs=graphs)
