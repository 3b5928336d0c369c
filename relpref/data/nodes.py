"""Nodes or items: labels, attributes and relations among them, and no answers."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from relpref.data.answers import Comparisons
from relpref.data.arrays import read_only
from relpref.data.entities import Entities, index_entities, standardization
from relpref.data.links import read_relations
from relpref.data.preference import PreferenceData
from relpref.data.relation import checked_relations


def unanswered(read: Entities, relations: Mapping[str, Any] | None) -> PreferenceData:
    """Return entities about which nothing was asked; they may have neither attributes nor relations.

    Parameters
    ----------
    read : Entities
        Labels and attributes, see `read_entities`.
    relations : mapping of str to edges, optional
        As ``relations`` of `PreferenceData.from_tables`.

    Raises
    ------
    DataError
        If a label occurs twice, or a relation cannot be used.
    """
    index = index_entities(read)
    graphs, links, notes = read_relations(checked_relations(relations), index)
    nothing = np.zeros(0, dtype=np.int32)
    center, scale = standardization(read.attributes)
    return PreferenceData(
        entities=index.labels,
        attributes=read_only(read.attributes),
        attribute_names=read.attribute_names,
        attribute_center=center,
        attribute_scale=scale,
        comparisons=Comparisons(nothing, nothing, nothing),
        _graphs=graphs,
        _links=links,
        notes=notes,
    )
