"""Newcomers: entities and edges appended to a data set, with the old scales kept."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from relpref.data.arrays import read_only
from relpref.data.entities import align_attributes, index_entities, read_entities
from relpref.data.graph import Graph
from relpref.data.labels import LabelIndex
from relpref.data.messages import shown
from relpref.data.relation import check_known, relation_edges
from relpref.errors import DataError

if TYPE_CHECKING:
    from relpref.data.preference import PreferenceData


def extended(
    data: "PreferenceData", labels: LabelIndex, entities: Any, relations: Mapping[str, Any]
) -> "PreferenceData":
    """Return the data with newcomers; ``labels`` are those of the data; see `PreferenceData.extend`."""
    for name in relations:
        check_known(name, data.relations)
    if entities is None:
        raise DataError("entities: there are no newcomers; give their labels (and attributes)")
    newcomers = read_entities(entities)
    known = labels.positions
    for row, label in enumerate(newcomers.labels):
        if label in known:
            raise DataError(
                f"{newcomers.where(row)}: {shown(label)} is an entity already; give newcomers labels of their own"
            )
    index_entities(newcomers)
    aligned = align_attributes(newcomers, data.attribute_names)
    index = LabelIndex((*data.entities, *newcomers.labels), lambda row: f"entities, row {row}")
    graphs: dict[str, Graph] = {}
    notes = list(data.notes)
    for name, graph in data.relations.items():
        if name in relations:
            graphs[name], more = _grown(graph, name, relations[name], index)
            notes.extend(more)
        else:
            graphs[name] = graph.grown(len(index), [], [], [])
    return replace(
        data,
        entities=index.labels,
        attributes=read_only(np.concatenate([np.asarray(data.attributes), aligned], axis=0)),
        _graphs=graphs,
        notes=tuple(notes),
    )


def _grown(graph: Graph, name: str, value: Any, index: LabelIndex) -> tuple[Graph, tuple[str, ...]]:
    edges, notes = relation_edges(name, value, index)
    known = (edges.source < graph.num_nodes) & (edges.target < graph.num_nodes)
    if known.any():
        row = int(np.argmax(known))
        source, target = (shown(index.labels[int(end[row])]) for end in (edges.source, edges.target))
        raise DataError(
            f"{edges.where(row)}: both {source} and {target} are known already; extend adds edges of newcomers "
            "only: drop the row, or make the data anew with from_tables"
        )
    return graph.grown(len(index), edges.source, edges.target, edges.weight), notes
