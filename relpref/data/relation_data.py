"""Nodes, objects and what is known of the relation between them, for numpyro programs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import pandas as pd

from relpref.data.entities import read_entities
from relpref.data.messages import counted
from relpref.data.nodes import unanswered
from relpref.data.preference import PreferenceData
from relpref.data.relation_tables import read_relation
from relpref.data.relation_values import Positions, RelationValues, Symmetry
from relpref.errors import DataError


@dataclass(frozen=True, eq=False, repr=False)
class RelationData:
    """A partly known relation between nodes and objects: validated, immutable.

    Make one with `from_tables`. It is a JAX pytree, whose arrays are leaves.

    Attributes
    ----------
    nodes : PreferenceData
        The p conditioning nodes: labels, attributes, relations among them; without comparisons.
    objects : PreferenceData or None
        The m objects; None where the nodes are ranked for one another.
    values : RelationValues
        Labels; of a symmetric or reciprocal relation in both directions and less ``shift``.
    symmetry : {"none", "symmetric", "reciprocal"}
    shift : float
        ½ for reciprocal labels in [0, 1], else 0.
    distinct : array of int or None
        Of a constrained relation, the positions of the edges (v, w) with v ≤ w: each pair of nodes once. A node's label with
        itself tells nothing of a reciprocal relation, and is left out.
    observed : bool
        False if only the edges are meant, see `without_labels`.
    """

    nodes: PreferenceData
    objects: PreferenceData | None
    values: RelationValues
    symmetry: Symmetry = "none"
    shift: float = 0.0
    distinct: Positions | None = None
    observed: bool = True

    @classmethod
    def from_tables(
        cls,
        nodes: Any,
        relation: Any,
        objects: Any = None,
        *,
        symmetry: Symmetry = "none",
        node_relations: Mapping[str, Any] | None = None,
        object_relations: Mapping[str, Any] | None = None,
    ) -> "RelationData":
        """Validate tables.

        Parameters
        ----------
        nodes : DataFrame
            One row for each node: the index holds labels, the columns numeric attributes.
        relation : array, DataFrame or sparse matrix
            (p, m) labels, NaN = unknown, or an edge table with the columns ``source``, ``target`` and ``value``; see
            `read_relation`. Rows or sources are the conditioning nodes.
        objects : DataFrame, optional
            Where objects are of another kind; the nodes themselves by default.
        symmetry : {"none", "symmetric", "reciprocal"}
            Of the relation; see `RelationValues.constrained`.
        node_relations, object_relations : mapping of str to edges, optional
            Links among nodes or objects, for kernels on graphs; as ``relations`` of `PreferenceData.from_tables`.

        Raises
        ------
        DataError
            If anything in the tables cannot be used; the message names the place, the value and the remedy.
        """
        first = _nodes(nodes, node_relations)
        second = None if objects is None else _nodes(objects, object_relations)
        values = read_relation(relation, first.entities, None if second is None else second.entities)
        return cls.of_values(first, values, second, symmetry=symmetry)

    @classmethod
    def of_values(
        cls,
        nodes: PreferenceData,
        values: RelationValues,
        objects: PreferenceData | None = None,
        *,
        symmetry: Symmetry = "none",
    ) -> "RelationData":
        """From what has been read already; parameters and errors as for `from_tables`."""
        constrained, shift = values.constrained(symmetry)
        distinct = None
        if symmetry != "none":
            gap = constrained.columns - constrained.rows
            distinct = np.flatnonzero(gap >= 0 if symmetry == "symmetric" else gap > 0)
        return cls(nodes, objects, constrained, symmetry, shift, distinct)

    def without_labels(self) -> "RelationData":
        """The same edges with their labels unobserved, for predictive draws."""
        return replace(self, observed=False)

    def asking(self, rows: Positions, columns: Positions) -> "RelationData":
        """Edges that are asked about, of which no label is known, in place of the known ones.

        Parameters
        ----------
        rows, columns : array of int, shape (q,)
            Conditioning node and object of each, by position; in any order, and in one direction.
        """
        values = RelationValues(self.values.shape, np.zeros(len(rows)), (rows, columns))
        return replace(self, values=values, distinct=None, observed=False)

    def extended(self, nodes: pd.DataFrame | None, objects: pd.DataFrame | None = None) -> "RelationData":
        """With new nodes or objects, of which no label is known; standardisation stays that of the known ones."""
        first = self.nodes if nodes is None else self.nodes.extend(nodes)
        second = self.objects
        if objects is not None and second is not None:
            second = second.extend(objects)
        return self.with_nodes(first, second)

    def with_nodes(self, nodes: PreferenceData, objects: PreferenceData | None = None) -> "RelationData":
        """With other nodes and objects, the known ones first, and the same labels."""
        shape = (nodes.num_entities, (nodes if objects is None else objects).num_entities)
        edges = (self.values.rows, self.values.columns)
        values = RelationValues(shape, self.values.values, edges)
        return replace(self, nodes=nodes, objects=objects, values=values)

    def describe(self) -> str:
        """The sizes in one line."""
        p, m = self.values.shape
        kind = "" if self.symmetry == "none" else f", {self.symmetry}"
        known = "complete" if self.values.complete else counted(len(self.values.values), "known label")
        return f"{counted(p, 'conditioning node')}, {counted(m, 'object')}, {known}{kind}"

    def __repr__(self) -> str:
        """One line."""
        return f"RelationData({self.describe()})"


def _nodes(table: Any, relations: Mapping[str, Any] | None) -> PreferenceData:
    """Labels, attributes and graphs, and no answers."""
    nodes = unanswered(read_entities(table), relations)
    if not nodes.relations and not nodes.attribute_names:
        raise DataError(
            "nodes: there are neither attributes nor relations, so nothing tells one from another; give numeric columns"
        )
    return nodes


def _flatten(data: RelationData) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    values = data.values
    static = (values.shape, data.symmetry, data.shift, data.observed)
    return (data.nodes, data.objects, values.values, values.edges, data.distinct), static


def _unflatten(static: tuple[Any, ...], children: Any) -> RelationData:
    shape, symmetry, shift, observed = static
    nodes, objects, values, edges, distinct = children
    return RelationData(
        nodes, objects, RelationValues(shape, values, edges), symmetry, shift, distinct, observed
    )


jax.tree_util.register_pytree_node(RelationData, _flatten, _unflatten)
