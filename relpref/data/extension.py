"""Newcomers: entities and links appended to a data set, with the old scales kept.

Kept are the scales of attributes and, of each graph, eigenvalues, mean degree and components. A kernel that is scaled by its covariance
among the old entities (`HiddenCommonCause`, `RelationVectors`) computes that anew: newcomers' links may change its scale.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from relpref.data.arrays import read_only
from relpref.data.entities import align_attributes, index_entities, read_entities
from relpref.data.graph import Graph
from relpref.data.labels import LabelIndex
from relpref.data.links import Links, Read, graph_notes, project, read_relation
from relpref.data.messages import shown
from relpref.data.relation import check_known
from relpref.errors import DataError

if TYPE_CHECKING:
    from relpref.data.preference import PreferenceData


def extended(
    data: "PreferenceData", labels: LabelIndex, entities: Any, relations: Mapping[str, Any]
) -> "PreferenceData":
    """Return the data with newcomers; ``labels`` are those of the data; see `PreferenceData.extend`."""
    for name in relations:
        check_known(name, (*data.relations, *data.links))
        if data.relation_of(name) != name:
            raise DataError(
                f"relations: {shown(name)} is a role of the relation {data.relation_of(name)!r}; give its links under that name"
            )
    if entities is None:
        raise DataError("entities: there are no newcomers; give their labels (and attributes)")
    newcomers = read_entities(entities)
    known = labels.positions
    for row, label in enumerate(newcomers.labels):
        if label in known:
            raise DataError(
                f"{newcomers.where(row)}: {shown(label)} is an entity already; give newcomers labels of their own"
            )
        for name, links in data.links.items():
            if label in links.targets:
                raise DataError(
                    f"{newcomers.where(row)}: {shown(label)} is what entities link to in the bipartite relation {name!r}, so it "
                    "cannot be an entity; give newcomers labels of their own"
                )
    index_entities(newcomers)
    aligned = align_attributes(newcomers, data.attribute_names)
    index = LabelIndex((*data.entities, *newcomers.labels), lambda row: f"entities, row {row}")
    graphs: dict[str, Graph] = {}
    all_links = dict(data.links)
    notes = list(data.notes)
    for part, graph in data.relations.items():
        name = data.relation_of(part)
        if part in graphs:  # the second role came with the first
            continue
        read = _read(name, relations[name], index, data) if name in relations else None
        if name in all_links:
            if read is not None:
                all_links[name] = all_links[name].with_newcomers(read.edges, read.targets)
            # Also without new links: the traffic of a random walk depends on how many entities there are.
            grown = project(name, all_links[name], len(index), data.relations)
        elif read is not None:
            edges = read.edges
            grown = {part: graph.grown(len(index), edges.source, edges.target, edges.weight)}
        else:
            grown = {part: graph.grown(len(index), [], [], [])}
        graphs |= grown
        before = {one: data.relations[one] for one in grown}
        stale = graph_notes(name, data.links.get(name), before)
        more = (() if read is None else read.notes) + graph_notes(name, all_links.get(name), grown)
        notes = [note for note in notes if note not in stale]
        notes += [note for note in more if note not in notes]
    return replace(
        data,
        entities=index.labels,
        attributes=read_only(np.concatenate([np.asarray(data.attributes), aligned], axis=0)),
        _graphs=graphs,
        _links=all_links,
        notes=tuple(notes),
    )


def _read(name: str, value: Any, index: LabelIndex, data: "PreferenceData") -> Read:
    """Read the links of newcomers."""
    links: Links | None = data.links.get(name)
    read = read_relation(name, value, index, links)
    if links is None and read.relation.kind not in (None, "undirected"):
        raise DataError(
            f"relation {name!r}: it was read as an undirected relation, but the newcomers' is {read.relation.kind}; pass the table alone"
        )
    edges = read.edges
    known = edges.source < data.num_entities
    bipartite = read.relation.kind == "bipartite"
    if not bipartite:
        known &= edges.target < data.num_entities
    if known.any():
        row = int(np.argmax(known))
        source = shown(index.labels[int(edges.source[row])])
        target = shown((read.targets if bipartite else index.labels)[int(edges.target[row])])
        what = f"{source} is" if bipartite else f"both {source} and {target} are"
        raise DataError(
            f"{edges.where(row)}: {what} known already; extend adds edges of newcomers "
            "only: drop the row, or make the data anew with from_tables"
        )
    return read
