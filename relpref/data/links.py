"""The links of a directed or bipartite relation, kept so that they can be projected again with newcomers."""

import os
import sys
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import NDArray

from relpref.data.arrays import counted, shown
from relpref.data.columns import numbers
from relpref.data.edges import Edges, TargetIndex, edges_from_tables, ends_of, how_to_say_the_kind, tidied
from relpref.data.graph import Graph, Projected, circulation, shared_targets
from relpref.data.labels import LabelIndex, Place, label_column
from relpref.data.matrix_files import is_matrix_file, read_matrix
from relpref.data.relation import Relation
from relpref.data.tables import Table, as_table, read_pieces
from relpref.errors import DataError
from relpref.memory import require_memory


def read_links(
    name: str, table: Any, kind: str | None, entities: LabelIndex, targets: LabelIndex
) -> tuple[Edges, tuple[str, ...]]:
    """Read the links of a relation as they were given, not tidied."""
    called = f"relation {name!r}"
    if isinstance(table, str | os.PathLike):
        if not is_matrix_file(table):
            return edges_from_tables(_named(read_pieces(table), called), entities, targets), ()
        called = f"{called} ({os.fspath(table)})"
        table = read_matrix(table)
    if isinstance(table, Table | pd.DataFrame):
        read = as_table(table, called)
        tables = [read] if read is not table else _named(iter([read]), called)
        return edges_from_tables(tables, entities, targets), ()
    if _is_networkx(table):
        return _edges_of_networkx(table, called, entities, targets, kind), ()
    if scipy.sparse.issparse(table):
        if targets is not entities:
            raise DataError(
                f"{called}: a matrix has no labels for what the entities link to; give a table with the columns source and target"
            )
        return _edges_of_matrix(table, called, entities, kind)
    raise DataError(
        f"{called}: expected a DataFrame of edges, a networkx graph or a scipy sparse matrix, "
        f"got {type(table).__name__}; for a dense array pass scipy.sparse.csr_array(array)"
    )


def _named(tables: Iterator[Table], called: str) -> Iterator[Table]:
    return (replace(table, name=f"{called} ({table.name})") for table in tables)


def _edges_of_matrix(
    matrix: Any, called: str, entities: LabelIndex, kind: str | None
) -> tuple[Edges, tuple[str, ...]]:
    if entities.grows:
        raise DataError(
            f"{called}: a matrix names no entities; give entities, in the order of its rows, or a table with the columns source and target"
        )
    size = len(entities)
    if matrix.shape != (size, size):
        raise DataError(
            f"{called}: the matrix has the shape {matrix.shape}, but there are {counted(size, 'entity', 'entities')}; "
            f"give a matrix of shape ({size}, {size}) in the order of the entities"
        )
    if matrix.dtype.kind not in "fiub":
        raise DataError(f"{called}: the matrix has the type {matrix.dtype}; convert it to float")
    # By way of CSR, because repeated entries of a COO matrix mean their sum. What the user holds stays as it is.
    matrix = scipy.sparse.csr_array(matrix, dtype=np.float64)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    stored = matrix

    def where(entry: int) -> str:
        row, column = int(np.searchsorted(stored.indptr, entry, side="right")) - 1, int(stored.indices[entry])
        labels = (entities.labels[row], entities.labels[column])
        return f"{called}, entry ({row}, {column}) for {shown(labels)}"

    wrong = ~(np.isfinite(matrix.data) & (matrix.data >= 0))
    if wrong.any():
        entry = int(np.argmax(wrong))
        raise DataError(
            f"{where(entry)}: the weight {matrix.data[entry]} is not a finite positive number; correct or remove it"
        )
    notes: tuple[str, ...] = ()
    zeros = int((matrix.data == 0).sum())
    if zeros:
        notes = (f"{called}: {counted(zeros, 'stored entry', 'stored entries')} of weight 0 left out",)
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    if matrix.nnz == 0:
        raise DataError(
            f"{called}: the matrix has no entries; give at least one edge or leave the relation out"
        )
    stored = matrix
    if kind == "directed":
        return _edges_of_entries(matrix.tocoo(copy=False), where), notes
    transposed = scipy.sparse.csr_array(matrix.T)
    symmetric = all(
        np.array_equal(getattr(matrix, part), getattr(transposed, part))
        for part in ("indptr", "indices", "data")
    )
    if not symmetric and kind is None:
        difference = (matrix - transposed).tocoo()
        entry = int(np.argmax(difference.data != 0))
        row, column = int(difference.row[entry]), int(difference.col[entry])
        raise DataError(
            f"{called}: the matrix is not symmetric: entry ({row}, {column}) is {matrix[row, column]}, entry "
            f"({column}, {row}) is {matrix[column, row]}; {how_to_say_the_kind()}"
        )
    # One link per edge from here on: the two triangles of a symmetric matrix are not a repetition.
    stored = scipy.sparse.triu(matrix if symmetric else matrix.maximum(transposed), format="csr")
    return _edges_of_entries(stored.tocoo(copy=False), where), notes


def _edges_of_entries(entries: Any, where: Place) -> Edges:
    row, column = (end.astype(np.int32, copy=False) for end in entries.coords)
    return Edges(row, column, entries.data, where)


def _is_networkx(value: Any) -> bool:
    # Nobody holds a networkx graph without having imported networkx: no need to load it here.
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(value, networkx.Graph)


def _edges_of_networkx(
    graph: Any, called: str, entities: LabelIndex, targets: LabelIndex, kind: str | None
) -> Edges:
    if graph.is_multigraph():
        raise DataError(
            f"{called}: a {type(graph).__name__} may hold several edges between two nodes; "
            "combine them first, for example with networkx.Graph(graph)"
        )
    if graph.is_directed() and kind is None:
        raise DataError(f"{called}: a {type(graph).__name__} is directed; {how_to_say_the_kind()}")
    if not graph.is_directed() and kind == "directed":
        raise DataError(
            f"{called}: a {type(graph).__name__} has no directions; pass a DiGraph, or leave the kind out"
        )
    links = list(graph.edges(data="weight", default=1))
    if targets is entities:
        # Nodes without edges must be entities too.
        nodes = list(graph.nodes)
        entities.locate(
            nodes,
            lambda node: f"{called}, node {node}",
            "rename the node, remove it, or add it to the entities",
        )
    else:
        # Either end may be the entity.
        links = [(b, a, w) if a not in entities.positions else (a, b, w) for a, b, w in links]
    if not links:
        raise DataError(f"{called}: the graph has no edges; give at least one edge or leave the relation out")
    source, target, weight = zip(*links, strict=True)

    def where(link: int) -> str:
        return f"{called}, edge {shown((source[link], target[link]))}"

    remedy = "set the edge attribute weight to a positive number"
    column = pd.Series(list(weight), dtype=object)
    strength = numbers(column, "weight", where, text=False, remedy=remedy)
    ends = ends_of(source, target, entities, targets, (where, where))
    return Edges(*ends, strength, where)


Notes = tuple[str, ...]
_BYTES_PER_LINK = 80.0  # while they are sorted
OPTIONS = ("kind", "form", "hubs", "max_degree", "teleport")


@dataclass(frozen=True, eq=False)
class Links:
    """Directed links between entities, or from entities to something else.

    Attributes
    ----------
    relation : Relation
        Their kind and options, without a table.
    source, target : array of int32, shape (e,)
        Positions among the entities; the targets of a bipartite relation are positions in ``targets``.
    weight : array of float64, shape (e,)
        Positive weights.
    targets : tuple of hashable
        Labels of the targets of a bipartite relation.
    """

    relation: Relation
    source: NDArray[np.int32]
    target: NDArray[np.int32]
    weight: NDArray[np.float64]
    targets: tuple[Hashable, ...] = ()

    def table(self, entities: tuple[Hashable, ...]) -> Relation:
        """Return the relation with its links as a DataFrame of labels."""
        sources = label_column(entities)
        targets = label_column(self.targets) if self.relation.kind == "bipartite" else sources
        columns = {"source": sources.take(self.source), "target": targets.take(self.target)}
        return replace(self.relation, table=pd.DataFrame({**columns, "weight": self.weight.copy()}))

    def with_newcomers(self, edges: Edges, targets: tuple[Hashable, ...]) -> "Links":
        """Return these links and those of newcomers; ``targets`` are the known ones and new ones after them."""
        source, target, weight = (
            np.concatenate([getattr(self, name), getattr(edges, name)])
            for name in ("source", "target", "weight")
        )
        return Links(self.relation, source, target, weight, targets)


class Read(NamedTuple):
    """A relation that was read and tidied, not yet turned into graphs.

    Attributes
    ----------
    relation : Relation
        Kind and options, without a table.
    edges : Edges
        Each once: source < target for an undirected relation, links as they point for another one.
    targets : tuple of hashable
        Labels of the targets of a bipartite relation.
    notes : tuple of str
        What was tidied.
    """

    relation: Relation
    edges: Edges
    targets: tuple[Hashable, ...]
    notes: Notes


def part_names(name: str, relation: Relation) -> tuple[str, ...]:
    """Return the names of the graphs that a relation becomes."""
    if relation.kind == "directed" and relation.form == "roles":
        return f"{name}_linking", f"{name}_linked"
    return (name,)


def read_relation(name: str, value: Any, entities: LabelIndex, known: Links | None = None) -> Read:
    """Read a relation of any kind and form.

    Parameters
    ----------
    name : str
        Name of the relation.
    value : DataFrame, Table, networkx graph, scipy sparse matrix or Relation
        Its links.
    entities : LabelIndex
        The n known labels.
    known : Links, optional
        Those of the same relation so far, whose options and targets are kept.

    Returns
    -------
    Read
        What was found.

    Raises
    ------
    DataError
        If the links cannot be used.
    """
    called = f"relation {name!r}"
    relation = value if isinstance(value, Relation) else Relation(value)
    if known is not None:
        relation = _with_options_of(known.relation, relation, called)
    bipartite = relation.kind == "bipartite"
    targets = TargetIndex(entities, known.targets if known else ()) if bipartite else entities
    edges, notes = read_links(name, relation.table, relation.kind, entities, targets)
    require_memory(
        _BYTES_PER_LINK * edges.source.size, f"{called}: sorting {counted(edges.source.size, 'link')}"
    )
    edges, more = tidied(edges, called, (entities.labels, targets.labels), relation.kind)
    return Read(replace(relation, table=None), edges, targets.labels if bipartite else (), notes + more)


def _with_options_of(known: Relation, relation: Relation, called: str) -> Relation:
    wanted = replace(known, table=relation.table)
    if relation.kind is not None and any(
        getattr(relation, option) != getattr(wanted, option) for option in OPTIONS
    ):
        raise DataError(
            f"{called}: it was read as a {known.kind} relation with other options than those given for the newcomers; "
            "pass the table alone"
        )
    return wanted


def read_relations(
    relations: Mapping[str, Any], entities: LabelIndex
) -> tuple[dict[str, Graph], dict[str, Links], Notes]:
    """Read relations and turn them into graphs."""
    graphs: dict[str, Graph] = {}
    all_links: dict[str, Links] = {}
    notes: Notes = ()
    for name, value in relations.items():
        read = read_relation(name, value, entities)
        for part in part_names(name, read.relation):
            if part in graphs or (part != name and part in relations):
                raise DataError(
                    f"relations: {part!r} is a role of the directed relation {name!r} and the name of another one; "
                    "rename one of the two relations"
                )
        edges = read.edges
        if read.relation.kind in (None, "undirected"):
            parts = {name: Graph(len(entities), edges.source, edges.target, edges.weight)}
        else:
            all_links[name] = Links(read.relation, edges.source, edges.target, edges.weight, read.targets)
            parts = project(name, all_links[name], len(entities))
        graphs |= parts
        notes += read.notes + graph_notes(name, all_links.get(name), parts)
    return graphs, all_links, notes


def project(
    name: str, links: Links, num_entities: int, before: Mapping[str, Graph] | None = None
) -> dict[str, Graph]:
    """Make the undirected graphs of a directed or bipartite relation."""
    relation = links.relation
    graphs: dict[str, Graph] = {}
    for part, matrix in _matrices(name, links, num_entities).items():
        old = None if before is None else before.get(part)
        if before is not None and old is None:
            continue
        if relation.teleport is not None:
            edges = circulation(matrix, relation.teleport)
        else:
            kept, _ = _without_hubs(matrix, relation.max_degree)
            edges = shared_targets(kept, weigh_hubs=relation.hubs == "weight")
        try:
            graphs[part] = _graph(num_entities, edges, old)
        except DataError as error:  # products of extreme weights
            raise DataError(f"relation {name!r}: {_where(part, name)}{error}; rescale the weights") from None
    return graphs


def graph_notes(name: str, links: Links | None, graphs: Mapping[str, Graph]) -> Notes:
    """Return what was left out of a relation's graphs, and who has no edge in them."""
    notes: list[str] = []
    for part, graph in graphs.items():
        if links is not None and links.relation.max_degree is not None:
            matrix = _matrices(name, links, graph.num_nodes)[part]
            _, more = _without_hubs(matrix, links.relation.max_degree)
            notes += [f"relation {name!r}: {_where(part, name)}{note}" for note in more]
        notes += _alone(name, part, graph)
    return tuple(notes)


def _matrices(name: str, links: Links, num_entities: int) -> dict[str, Any]:
    """For each part the weights of links, a row for each entity and a column for each thing that it may share."""
    num_targets = len(links.targets) if links.relation.kind == "bipartite" else num_entities
    matrix = scipy.sparse.csr_array(
        (links.weight, (links.source, links.target)), shape=(num_entities, num_targets)
    )
    return dict(zip(part_names(name, links.relation), (matrix, matrix.T), strict=False))


def _graph(size: int, edges: Projected, before: Graph | None) -> Graph:
    if before is None:
        return Graph(size, *edges)
    return Graph(size, *edges, frozen_reference=before.reference, counts_cliques=before.counts_cliques)


def _without_hubs(links: Any, max_degree: int | None) -> tuple[Any, Notes]:
    """Leave out the targets with too many links."""
    links = scipy.sparse.csc_array(links)
    degree = np.diff(links.indptr)
    hubs = degree > (degree.max(initial=0) if max_degree is None else max_degree)
    if not hubs.any():
        return links, ()
    kept = scipy.sparse.csc_array(links[:, ~hubs])
    lost = int(((links > 0).sum(axis=1) > 0).sum() - ((kept > 0).sum(axis=1) > 0).sum())
    note = (
        f"{counted(int(hubs.sum()), 'target')} with more than {max_degree} links left out, and with them "
        f"{int(degree[hubs].sum())} of {counted(int(degree.sum()), 'link')}; "
        f"{counted(lost, 'entity', 'entities')} had no other link"
    )
    return kept, (note,)


def _where(part: str, name: str) -> str:
    return "" if part == name else f"{part}: "


def _alone(name: str, part: str, graph: Graph) -> Notes:
    """Who has no edge in a part."""
    alone = int((graph.degree == 0).sum())
    if not alone:
        return ()
    if not graph.num_edges:
        text = f"no two entities share a link, so {part} has no edges and says nothing"
    else:
        verb, where = "has" if alone == 1 else "have", "it" if part == name else part
        of = counted(graph.num_nodes, "entity", "entities")
        text = f"{alone:,} of {of} {verb} no edge in {where}".replace(",", " ")
    return (f"relation {name!r}: {text}",)
