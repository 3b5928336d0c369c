"""A relation as the user gives it: a table, a networkx graph or a sparse matrix of edges."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import NDArray

from relpref.data.columns import numbers
from relpref.data.edges import Edges, edges_from_table, how_to_say_undirected, undirected
from relpref.data.graph import Graph
from relpref.data.labels import LabelIndex
from relpref.data.messages import counted, listed, nearest, shown
from relpref.data.tables import Table
from relpref.errors import DataError


@dataclass(frozen=True, eq=False)
class Relation:
    """Edges between entities, and how to understand their direction.

    Parameters
    ----------
    table : DataFrame, networkx graph or scipy sparse matrix
        Columns source, target and optionally weight (default 1); or a graph whose nodes are labels, with
        the edge attribute weight (default 1); or an n x n matrix of weights in the order of the entities.
    kind : {"undirected"}, optional
        Not needed where the edges are undirected as they stand. Say ``"undirected"`` for a table, matrix or
        ``DiGraph`` whose two directions differ; the larger of the two weights is used then.

    Raises
    ------
    DataError
        If ``kind`` is another one: this version models undirected relations only.
    """

    table: Any
    kind: str | None = None

    def __post_init__(self) -> None:
        """Check the kind."""
        if self.kind not in (None, "undirected"):
            raise DataError(
                f"Relation: the kind {shown(self.kind)} is not modelled; undirected is what this version models: "
                'pass kind="undirected" if the direction of the edges does not matter'
            )
        if isinstance(self.table, Relation):
            raise DataError("Relation: the table is itself a Relation; pass its table")


def check_relation_name(name: object) -> str:
    """Return the name of a relation if it can become part of the names of model sites.

    Raises
    ------
    DataError
        If it is not text, empty, holds other characters than letters, digits, _ and -, or is "attributes".
    """
    if not isinstance(name, str) or not name.replace("_", "a").replace("-", "a").isalnum():
        raise DataError(
            f"relations: {shown(name)} cannot be the name of a relation; use letters, digits, _ and - only "
            "(for a file, the name before its ending)"
        )
    if name == "attributes":
        raise DataError(
            'relations: the name "attributes" stands for the attributes of the entities; rename the relation'
        )
    return name


def relation_edges(name: str, value: Any, entities: LabelIndex) -> tuple[Edges, tuple[str, ...]]:
    """Read a relation of any accepted form.

    Parameters
    ----------
    name : str
        Name of the relation.
    value : DataFrame, Table, networkx graph, scipy sparse matrix or Relation
        Its edges.
    entities : LabelIndex
        The n known labels.

    Returns
    -------
    edges : Edges
        One link per edge, source < target, sorted.
    notes : tuple of str
        What was tidied.

    Raises
    ------
    DataError
        If the edges are not those of an undirected weighted graph over the entities.
    """
    called = f"relation {name!r}"
    explicit = False
    if isinstance(value, Relation):
        value, explicit = value.table, value.kind == "undirected"
    notes: tuple[str, ...] = ()
    if isinstance(value, Table):
        edges = edges_from_table(replace(value, name=f"{called} ({value.name})"), entities)
    elif isinstance(value, pd.DataFrame):
        edges = edges_from_table(Table(value, called), entities)
    elif scipy.sparse.issparse(value):
        edges, notes = _edges_of_matrix(value, called, entities, explicit=explicit)
    elif _is_networkx(value):
        edges = _edges_of_networkx(value, called, entities, explicit=explicit)
    else:
        raise DataError(
            f"{called}: expected a DataFrame of edges, a networkx graph or a scipy sparse matrix, "
            f"got {type(value).__name__}; for a dense array pass scipy.sparse.csr_array(array)"
        )
    edges, more = undirected(edges, called, entities.labels.__getitem__, explicit=explicit)
    return edges, notes + more


def relation_graph(name: str, value: Any, entities: LabelIndex) -> tuple[Graph, tuple[str, ...]]:
    """Return the graph of a relation and what was tidied; see `relation_edges`."""
    edges, notes = relation_edges(name, value, entities)
    graph = Graph(len(entities), edges.source, edges.target, edges.weight)
    alone = int((graph.degree == 0).sum())
    if alone:
        verb = "has" if alone == 1 else "have"
        of = counted(len(entities), "entity", "entities")
        notes += (f"relation {name!r}: {alone:,} of {of} {verb} no edge in it".replace(",", " "),)
    return graph, notes


def _edges_of_matrix(
    matrix: Any, called: str, entities: LabelIndex, *, explicit: bool
) -> tuple[Edges, tuple[str, ...]]:
    size = len(entities)
    if matrix.shape != (size, size):
        raise DataError(
            f"{called}: the matrix has the shape {matrix.shape}, but there are {counted(size, 'entity', 'entities')}; "
            f"give a matrix of shape ({size}, {size}) in the order of the entities"
        )
    if matrix.dtype.kind not in "fiub":
        raise DataError(f"{called}: the matrix has the type {matrix.dtype}; convert it to float")
    # By way of CSR, because repeated entries of a COO matrix mean their sum.
    matrix = scipy.sparse.csr_array(matrix, dtype=np.float64)
    matrix.sum_duplicates()
    stored = matrix.tocoo()

    def where(entry: int) -> str:
        labels = (entities.labels[int(stored.row[entry])], entities.labels[int(stored.col[entry])])
        return f"{called}, entry ({int(stored.row[entry])}, {int(stored.col[entry])}) for {shown(labels)}"

    wrong = ~(np.isfinite(stored.data) & (stored.data >= 0))
    if wrong.any():
        entry = int(np.argmax(wrong))
        raise DataError(
            f"{where(entry)}: the weight {stored.data[entry]} is not a finite positive number; correct or remove it"
        )
    notes: tuple[str, ...] = ()
    zeros = int((stored.data == 0).sum())
    if zeros:
        notes = (f"{called}: {counted(zeros, 'stored entry', 'stored entries')} of weight 0 left out",)
        matrix.eliminate_zeros()
    if matrix.nnz == 0:
        raise DataError(
            f"{called}: the matrix has no entries; give at least one edge or leave the relation out"
        )
    difference = (matrix - matrix.T).tocoo()
    differs = difference.data != 0
    if differs.any() and not explicit:
        entry = int(np.argmax(differs))
        row, column = int(difference.row[entry]), int(difference.col[entry])
        raise DataError(
            f"{called}: the matrix is not symmetric: entry ({row}, {column}) is {matrix[row, column]}, entry "
            f"({column}, {row}) is {matrix[column, row]}; {how_to_say_undirected()}"
        )
    # One link per edge from here on: the two triangles of a symmetric matrix are not a repetition.
    stored = scipy.sparse.triu(matrix.maximum(matrix.T), format="coo")
    return Edges(stored.row.astype(np.int32), stored.col.astype(np.int32), stored.data, where), notes


def _is_networkx(value: Any) -> bool:
    # Nobody holds a networkx graph without having imported networkx: no need to load it here.
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(value, networkx.Graph)


def _edges_of_networkx(graph: Any, called: str, entities: LabelIndex, *, explicit: bool) -> Edges:
    if graph.is_multigraph():
        raise DataError(
            f"{called}: a {type(graph).__name__} may hold several edges between two nodes; "
            "combine them first, for example with networkx.Graph(graph)"
        )
    if graph.is_directed() and not explicit:
        raise DataError(f"{called}: a {type(graph).__name__} is directed; {how_to_say_undirected()}")
    links = list(graph.edges(data="weight", default=1))
    # Nodes without edges must be entities too.
    nodes = list(graph.nodes)
    entities.locate(
        nodes, lambda node: f"{called}, node {node}", "rename the node, remove it, or add it to the entities"
    )
    if not links:
        raise DataError(f"{called}: the graph has no edges; give at least one edge or leave the relation out")
    source, target, weight = zip(*links, strict=True)

    def where(link: int) -> str:
        return f"{called}, edge {shown((source[link], target[link]))}"

    remedy = "set the edge attribute weight to a positive number"
    column = pd.Series(list(weight), dtype=object)
    strength = numbers(column, "weight", where, text=False, remedy=remedy)
    return Edges(_positions(source, entities), _positions(target, entities), strength, where)


def _positions(nodes: Sequence[Any], entities: LabelIndex) -> NDArray[np.int32]:
    return np.fromiter(map(entities.positions.__getitem__, nodes), dtype=np.int32, count=len(nodes))


def checked_relations(relations: Any) -> dict[str, Any]:
    """Return the relations as given, after checking their names; none if ``relations`` is None.

    Raises
    ------
    DataError
        If it is no mapping, or a name cannot be used.
    """
    if relations is None:
        return {}
    if not isinstance(relations, Mapping):
        raise DataError(
            f"relations: expected a mapping of names to edges, got {type(relations).__name__}; "
            'pass {"name": edges} with a name of your choice'
        )
    return {check_relation_name(name): value for name, value in relations.items()}


def check_known(name: object, known: Mapping[str, Graph]) -> None:
    """Refuse the name of a relation that is not there.

    Raises
    ------
    DataError
        Naming the known relations.
    """
    if name not in known:
        meant = nearest(name, known, most=1)
        hint = f"did you mean {meant[0]!r}?" if meant else "use one of these" if known else "leave it out"
        there = f"the relations are {listed(known)}" if known else "the data has no relations"
        raise DataError(f"relations: there is no relation {shown(name)}; {there}; {hint}")
