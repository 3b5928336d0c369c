"""The links of a directed or bipartite relation, kept so that they can be projected again with newcomers."""

import os
import sys
from collections.abc import Hashable, Iterator, Mapping, Sized
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import NDArray

from relpref.data.arrays import counted, refuse_first, shown
from relpref.data.edges import (
    Edges,
    TargetIndex,
    edges_from_tables,
    ends_of,
    how_to_say_the_kind,
    is_matrix_file,
    read_matrix,
    tidied,
)
from relpref.data.graph import Graph, circulation, shared_targets
from relpref.data.labels import LabelIndex, blank_note, is_missing, label_column, read_labels
from relpref.data.relation import Relation
from relpref.data.tables import Table, as_table, is_table, numbers, read_pieces
from relpref.errors import DataError
from relpref.limits import require_memory

Notes = tuple[str, ...]


def read_links(
    name: str, table: Any, kind: str | None, items: LabelIndex, targets: LabelIndex
) -> tuple[Edges, Notes]:
    """Read the links of a relation as they were given, not tidied."""
    called = f"relation {name!r}"
    if isinstance(table, str | os.PathLike):
        if not is_matrix_file(table):
            edges, notes = edges_from_tables(_named(read_pieces(table), called), items, targets)
            return edges, tuple(f"{called}: {note}" for note in notes)
        called = f"{called} ({os.fspath(table)})"
        table = read_matrix(table)
    # A networkx graph implies that networkx is imported: no need to load it here.
    networkx = sys.modules.get("networkx")
    if networkx is not None and isinstance(table, networkx.Graph):
        blanks: set[str] = set()
        edges = _edges_of_networkx(table, called, items, targets, kind, blanks)
        return edges, tuple(f"{called}: {note}" for note in blank_note(blanks))
    if (
        isinstance(table, np.ndarray)
        and table.dtype.kind in "fiub"
        and table.shape == (len(items), len(items))
    ):
        table = scipy.sparse.csr_array(table)
    if scipy.sparse.issparse(table):
        if targets is not items:
            raise DataError(
                f"{called}: a matrix has no labels for what the items link to; give a table with "
                "the columns source and target"
            )
        if items.grows:
            raise DataError(
                f"{called}: a matrix names no items; give items, in the order of its rows, or a "
                "table with the columns source and target"
            )
        return _edges_of_matrix(table, called, items, kind)
    if isinstance(table, list | tuple | np.ndarray) and not is_table(table):
        table = _table_of_links(table, called)
    if not is_table(table):
        raise DataError(
            f"{called}: expected a table of edges, a list of (source, target), a networkx graph, "
            "or a matrix with a row for each item, "
            f"got {type(table).__name__}"
        )
    read = as_table(table, called)
    frame = read.frame
    if (
        targets is items
        and "source" not in frame.columns
        and set(frame.columns) == set(frame.index)
    ):
        return _edges_of_matrix(_ordered(frame, called, items), called, items, kind)
    tables = [read] if read is not table else _named(iter([read]), called)
    edges, notes = edges_from_tables(tables, items, targets)
    return edges, tuple(f"{called}: {note}" for note in notes)


def _table_of_links(links: Any, called: str) -> pd.DataFrame:
    """Of a list of (source, target) or (source, target, weight)."""
    for row, link in enumerate(links):
        if isinstance(link, str) or not hasattr(link, "__len__") or len(link) not in (2, 3):
            raise DataError(
                f"{called}, position {row}: {shown(link)} is no edge; write (source, target) or "
                "(source, target, weight)"
            )
    ends = {name: [link[end] for link in links] for end, name in enumerate(("source", "target"))}
    table = pd.DataFrame(ends, dtype=object)
    if any(len(link) == 3 for link in links):
        table["weight"] = [link[2] if len(link) == 3 else 1 for link in links]
    return table


def _ordered(frame: pd.DataFrame, called: str, items: LabelIndex) -> Any:
    """A matrix of weights with labels, in the order of the items."""
    remedy = "correct the label, add it to the items, or drop its row and column"

    def where(at: int) -> str:
        return f"{called}, row or column {at}"

    rows, columns = (
        items.locate(LabelIndex(read_labels(labels, where), where).labels, where, remedy)
        for labels in (frame.index, frame.columns)
    )
    try:
        weights = frame.to_numpy(dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{called}: the matrix has cells that are no numbers ({error}); correct them"
        ) from None
    entries = scipy.sparse.coo_array(weights)
    ends = rows[entries.coords[0]], columns[entries.coords[1]]
    return scipy.sparse.coo_array((entries.data, ends), shape=(len(items), len(items)))


def _groups(relation: Relation, called: str) -> Relation:
    """A relation whose table says to which group each item belongs: those of one group are linked."""
    table = relation.table
    if relation.kind not in (None, "bipartite"):
        raise DataError(
            f"{called}: a group for each item is no {relation.kind} relation; leave the kind out"
        )
    items, groups = (
        list(table.keys()),
        list(table.values) if isinstance(table, pd.Series) else list(table.values()),
    )
    known = [
        (item, group) for item, group in zip(items, groups, strict=True) if not is_missing(group)
    ]
    options = {name: getattr(relation, name) for name in ("hubs", "max_degree")}
    return Relation(_table_of_links(known, called), "bipartite", **options)


def _named(tables: Iterator[Table], called: str) -> Iterator[Table]:
    return (replace(table, name=f"{called} ({table.name})") for table in tables)


def _edges_of_matrix(
    matrix: Any, called: str, items: LabelIndex, kind: str | None
) -> tuple[Edges, tuple[str, ...]]:
    size = len(items)
    if matrix.shape != (size, size):
        raise DataError(
            f"{called}: the matrix has the shape {matrix.shape}, but there are "
            f"{counted(size, 'item')}; "
            f"give a matrix of shape ({size}, {size}) in the order of the items"
        )
    if matrix.dtype.kind not in "fiub":
        raise DataError(f"{called}: the matrix has the type {matrix.dtype}; convert it to float")
    # By way of CSR, because repeated entries of a COO matrix mean their sum. What the user holds
    # stays as it is.
    matrix = scipy.sparse.csr_array(matrix, dtype=np.float64)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    stored = matrix

    def where(entry: int) -> str:
        row, column = (
            int(np.searchsorted(stored.indptr, entry, side="right")) - 1,
            int(stored.indices[entry]),
        )
        labels = (items.labels[row], items.labels[column])
        return f"{called}, entry ({row}, {column}) for {shown(labels)}"

    refuse_first(
        ~(np.isfinite(matrix.data) & (matrix.data >= 0)),
        lambda entry: (
            f"{where(entry)}: the weight {stored.data[entry]} is not a finite positive number; "
            "correct or remove it"
        ),
    )
    notes: tuple[str, ...] = ()
    zeros = int((matrix.data == 0).sum())
    if zeros:
        notes = (
            f"{called}: {counted(zeros, 'stored entry', 'stored entries')} of weight 0 left out",
        )
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    if matrix.nnz == 0:
        raise DataError(
            f"{called}: the matrix has no entries; give at least one edge or leave the relation out"
        )
    stored = matrix
    if kind != "directed":
        transposed = scipy.sparse.csr_array(matrix.T)
        same = (
            np.array_equal(getattr(matrix, part), getattr(transposed, part))
            for part in ("indptr", "indices", "data")
        )
        symmetric = all(same)
        if not symmetric and kind is None:
            difference = (matrix - transposed).tocoo()
            entry = int(np.argmax(difference.data != 0))
            row, column = int(difference.row[entry]), int(difference.col[entry])
            raise DataError(
                f"{called}: the matrix is not symmetric: entry ({row}, {column}) is "
                f"{matrix[row, column]}, entry "
                f"({column}, {row}) is {matrix[column, row]}; {how_to_say_the_kind()}"
            )
        # One link per edge from here on: the two triangles of a symmetric matrix are not a
        # repetition.
        stored = scipy.sparse.triu(
            matrix if symmetric else matrix.maximum(transposed), format="csr"
        )
    entries = stored.tocoo(copy=False)
    source, target = (end.astype(np.int32, copy=False) for end in entries.coords)
    return Edges(source, target, entries.data, where), notes


def _edges_of_networkx(
    graph: Any,
    called: str,
    items: LabelIndex,
    targets: LabelIndex,
    kind: str | None,
    blanks: set[str],
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
            f"{called}: a {type(graph).__name__} has no directions; pass a DiGraph, or leave the "
            "kind out"
        )
    links = list(graph.edges(data="weight", default=1))
    if targets is items:  # nodes without edges must be items, too
        remedy = "rename the node, remove it, or add it to the items"
        nodes = read_labels(
            graph.nodes, lambda node: f"{called}, node {node}", items.positions, blanks
        )
        items.locate(nodes, lambda node: f"{called}, node {node}", remedy)
    else:
        # Either end may be the item.
        links = [(b, a, w) if items.get(a) < 0 else (a, b, w) for a, b, w in links]
    if not links:
        raise DataError(
            f"{called}: the graph has no edges; give at least one edge or leave the relation out"
        )
    source, target, weight = zip(*links, strict=True)

    def where(link: int) -> str:
        return f"{called}, edge {shown((source[link], target[link]))}"

    remedy = "set the edge attribute weight to a positive number"
    column = pd.Series(list(weight), dtype=object)
    strength = numbers(column, "weight", where, text=False, remedy=remedy)
    first, second = (read_labels(end, where, items.positions, blanks) for end in (source, target))
    ends = ends_of(first, second, items, targets, (where, where))
    return Edges(*ends, strength, where)


_BYTES_PER_LINK = 80.0  # while they are sorted
OPTIONS = ("kind", "form", "hubs", "max_degree", "teleport")


@dataclass(frozen=True, eq=False)
class Links:
    """Directed links between items, or from items to something else."""

    relation: Relation  # their kind and options, without a table
    source: NDArray[np.int32]  # positions among the items
    target: NDArray[np.int32]  # the same, or of a bipartite relation positions in ``targets``
    weight: NDArray[np.float64]
    targets: tuple[Hashable, ...] = ()  # labels of the targets of a bipartite relation

    def table(self, items: tuple[Hashable, ...]) -> Relation:
        """Return the relation with its links as a DataFrame of labels."""
        sources = label_column(items)
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
    """A relation that was read and tidied, not yet turned into graphs."""

    relation: Relation  # kind and options, without a table
    # Each once: source < target for an undirected relation, links as they point for another one.
    edges: Edges
    targets: tuple[Hashable, ...]  # labels, of a bipartite relation
    notes: Notes  # what was tidied


def part_names(name: str, relation: Relation) -> tuple[str, ...]:
    """Return the names of the graphs that a relation becomes."""
    if relation.kind == "directed" and relation.form == "roles":
        return f"{name}_linking", f"{name}_linked"
    return (name,)


def read_relation(name: str, value: Any, items: LabelIndex, known: Links | None = None) -> Read:
    """Read a relation of any kind and form; of ``known`` links of the same relation so far options and targets are kept."""
    called = f"relation {name!r}"
    relation = value if isinstance(value, Relation) else Relation(value)
    if isinstance(relation.table, pd.Series) or (
        isinstance(relation.table, Mapping)
        and not any(
            isinstance(one, Sized)
            for one in relation.table.values()
            if not isinstance(one, str | tuple)
        )
    ):
        relation = _groups(relation, called)
    if known is not None:
        relation = _with_options_of(known.relation, relation, called)
    bipartite = relation.kind == "bipartite"
    targets = TargetIndex(items, known.targets if known else ()) if bipartite else items
    edges, notes = read_links(name, relation.table, relation.kind, items, targets)
    require_memory(
        _BYTES_PER_LINK * edges.source.size,
        f"{called}: sorting {counted(edges.source.size, 'link')}",
    )
    edges, more = tidied(edges, called, (items.labels, targets.labels), relation.kind)
    return Read(
        replace(relation, table=None), edges, targets.labels if bipartite else (), notes + more
    )


def _with_options_of(known: Relation, relation: Relation, called: str) -> Relation:
    wanted = replace(known, table=relation.table)
    if relation.kind is not None and any(
        getattr(relation, option) != getattr(wanted, option) for option in OPTIONS
    ):
        raise DataError(
            f"{called}: it was read as a {known.kind} relation with other options than those given "
            "for the newcomers; "
            "pass the table alone"
        )
    return wanted


def read_relations(
    relations: Mapping[str, Any], items: LabelIndex
) -> tuple[dict[str, Graph], dict[str, Links], Notes]:
    """Read relations and turn them into graphs."""
    graphs: dict[str, Graph] = {}
    all_links: dict[str, Links] = {}
    notes: Notes = ()
    for name, value in relations.items():
        read = read_relation(name, value, items)
        for part in part_names(name, read.relation):
            if part in graphs or (part != name and part in relations):
                raise DataError(
                    f"relations: {part!r} is a role of the directed relation {name!r} and the name "
                    "of another one; "
                    "rename one of the two relations"
                )
        edges = read.edges
        if read.relation.kind in (None, "undirected"):
            parts = {name: Graph(len(items), edges.source, edges.target, edges.weight)}
        else:
            all_links[name] = Links(
                read.relation, edges.source, edges.target, edges.weight, read.targets
            )
            parts = project(name, all_links[name], len(items))
        graphs |= parts
        notes += read.notes + graph_notes(name, all_links.get(name), parts)
    return graphs, all_links, notes


def project(
    name: str, links: Links, num_items: int, before: Mapping[str, Graph] | None = None
) -> dict[str, Graph]:
    """Make the undirected graphs of a directed or bipartite relation."""
    relation = links.relation
    graphs: dict[str, Graph] = {}
    for part, matrix in _matrices(name, links, num_items).items():
        kept: dict[str, Any] = {}
        if before is not None:
            if part not in before:
                continue
            old = before[part]
            kept = {"frozen_reference": old.reference, "counts_cliques": old.counts_cliques}
        if relation.teleport is not None:
            edges = circulation(matrix, relation.teleport)
        else:
            few, _ = _without_hubs(matrix, relation.max_degree)
            edges = shared_targets(few, weigh_hubs=relation.hubs == "weight")
        try:
            graphs[part] = Graph(num_items, *edges, **kept)
        except DataError as error:  # products of extreme weights
            raise DataError(
                f"relation {name!r}: {_where(part, name)}{error}; rescale the weights"
            ) from None
    return graphs


def graph_notes(name: str, links: Links | None, graphs: Mapping[str, Graph]) -> Notes:
    """Return what was left out of a relation's graphs, and who has no edge in them."""
    notes: list[str] = []
    for part, graph in graphs.items():
        if links is not None and links.relation.max_degree is not None:
            matrix = _matrices(name, links, graph.num_nodes)[part]
            _, more = _without_hubs(matrix, links.relation.max_degree)
            notes += [_where(part, name) + note for note in more]
        alone = int((graph.degree == 0).sum())
        if alone and not graph.num_edges:
            notes.append(f"no two items share a link, so {part} has no edges and says nothing")
        elif alone:
            verb, where = "has" if alone == 1 else "have", "it" if part == name else part
            of = counted(graph.num_nodes, "item")
            notes.append(f"{alone:,} of {of} {verb} no edge in {where}")
    return tuple(f"relation {name!r}: {note}" for note in notes)


def _matrices(name: str, links: Links, num_items: int) -> dict[str, Any]:
    """For each part the weights of links, a row for each item and a column for each thing that it may share."""
    num_targets = len(links.targets) if links.relation.kind == "bipartite" else num_items
    matrix = scipy.sparse.csr_array(
        (links.weight, (links.source, links.target)), shape=(num_items, num_targets)
    )
    return dict(zip(part_names(name, links.relation), (matrix, matrix.T), strict=False))


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
        f"{counted(int(hubs.sum()), 'target')} with more than {max_degree} links left out, and "
        "with them "
        f"{int(degree[hubs].sum())} of {counted(int(degree.sum()), 'link')}; "
        f"{counted(lost, 'item')} had no other link"
    )
    return kept, (note,)


def _where(part: str, name: str) -> str:
    return "" if part == name else f"{part}: "
