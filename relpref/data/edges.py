"""Tables of edges, read from relations in any form, and the undirected graphs made of them."""

import os
import sys
from collections.abc import Hashable, Iterable, Mapping, Sized
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from relpref.data.arrays import (
    Floats,
    Integers,
    Labels,
    Mask,
    Positions,
    Texts,
    counted,
    refuse_first,
    shown,
)
from relpref.data.graph import Graph, circulation, shared_targets
from relpref.data.labels import (
    GrowingIndex,
    LabelIndex,
    Place,
    blank_note,
    is_missing,
    joined_places,
    label_column,
    read_labels,
)
from relpref.data.relation import Relation, is_matrix_file, read_matrix
from relpref.data.tables import Table, as_table, check_columns, is_table, known_names, read_pieces
from relpref.errors import DataError
from relpref.limits import LARGEST_WEIGHT, SMALLEST_WEIGHT, require_memory

Graphs = Mapping[str, Graph]

UNDIRECTED = (None, "undirected")
_COLUMNS = ("source", "target", "weight")
_BYTES_PER_EDGE = 80.0  # while they are sorted
_WEIGHT_REMEDY = "give positive numbers, or leave all weights out (each is 1 then)"
_KIND_REMEDY = (
    'say what that means: Relation(table, kind="directed") if it matters who links to whom, or '
    'Relation(table, kind="undirected"), which takes the larger weight of the two directions '
    "(on the command line, end the file with :directed or :undirected)"
)


@dataclass(frozen=True, eq=False)
class EdgeTable:
    """Edges of a relation: positions of their ends, and weights, of shape (number of edges,)."""

    relation: Relation  # kind and options, without a table
    source: Positions  # positions among the items; source < target if undirected
    target: Positions  # the same, or positions in ``targets`` if bipartite
    weight: Floats
    targets: tuple[Hashable, ...] = ()  # labels of the targets of a bipartite relation
    # Only used while reading: a function from an edge to its place in the input, in words for
    # messages, and notes on what was dropped or merged.
    where: Place = field(default=str, metadata={"stored": False})
    notes: Texts = field(default=(), metadata={"stored": False})

    @property
    def undirected(self) -> bool:
        return self.relation.kind in UNDIRECTED

    def joined(self, other: "EdgeTable") -> "EdgeTable":
        """Return these edges followed by the ``other`` ones.

        ``other.targets`` must begin with these targets: they become those of the result.
        """
        source, target, weight = (
            np.concatenate([getattr(self, name), getattr(other, name)]) for name in _COLUMNS
        )
        return EdgeTable(self.relation, source, target, weight, other.targets)

    def table(self, items: Labels) -> Any:
        """Return a DataFrame of labels and weights, within a `Relation` if not undirected."""
        sources = label_column(items)
        targets = label_column(self.targets) if self.relation.kind == "bipartite" else sources
        ends = {"source": sources.take(self.source), "target": targets.take(self.target)}
        frame = pd.DataFrame({**ends, "weight": np.array(self.weight)})
        return frame if self.undirected else replace(self.relation, table=frame)

    def matrix(self, part: str, num_items: int) -> Any:
        """Return the weights that the graph ``part`` is made of, sparse, shape (n, t).

        Rows are items, and columns what they share: their targets, or for the role ``linked`` their
        sources.
        """
        num_targets = len(self.targets) if self.relation.kind == "bipartite" else num_items
        matrix = scipy.sparse.csr_array(
            (self.weight, (self.source, self.target)), shape=(num_items, num_targets)
        )
        linked = self.relation.form == "roles" and part.endswith("_linked")
        return matrix.T if linked else matrix


class _GraphTable(Table):
    """A table of the edges of a networkx graph; messages name an edge by its ends, the index."""

    @property
    def place(self) -> Place:
        name = self.name
        ends = self.frame.index
        return lambda row: f"{name}, edge {shown(ends[row])}"


def part_names(name: str, relation: Relation) -> Texts:
    """Return the names of a relation's graphs: one, or two if there is one for each role."""
    if relation.form == "roles":
        return f"{name}_linking", f"{name}_linked"
    return (name,)


def read_relations(
    relations: Mapping[str, Any], items: LabelIndex
) -> tuple[dict[str, Graph], dict[str, EdgeTable], Texts]:
    """Read relations of any forms by name.

    Returns
    -------
    graphs : dict
        Graphs of all relations, see `part_names`.
    links : dict
        Edges of the relations that are not undirected.
    notes : tuple of str
    """
    graphs: dict[str, Graph] = {}
    links = {}
    notes = []
    for name, value in relations.items():
        edges = read_edges(name, value, items)
        for part in part_names(name, edges.relation):
            if part in graphs or (part != name and part in relations):
                raise DataError(
                    f"relations: {part!r} is a role of the directed relation {name!r} and the name "
                    "of another one; rename one of the two relations"
                )
        if not edges.undirected:
            links[name] = replace(edges, where=str, notes=())
        parts = project(name, edges, len(items))
        graphs |= parts
        notes += [*edges.notes, *graph_notes(name, edges, parts)]
    return graphs, links, tuple(notes)


def read_edges(
    name: str, value: Any, items: LabelIndex, before: EdgeTable | None = None
) -> EdgeTable:
    """Read a relation in any form, each edge once.

    Edges of newcomers are read with the kind and the options of the relation's edges ``before``,
    and their new targets follow the earlier ones.
    """
    called = f"relation {name!r}"
    relation = value if isinstance(value, Relation) else Relation(value)
    if before is not None and not before.undirected:
        given = relation
        relation = replace(before.relation, table=given.table)
        if given.kind is not None and vars(given) != vars(relation):
            raise DataError(
                f"{called}: it was read as a {before.relation.kind} relation with other options "
                "than those given for the newcomers; pass the table alone"
            )
    relation = _with_groups_as_targets(relation, called)
    if before is not None and before.undirected and relation.kind not in UNDIRECTED:
        raise DataError(
            f"{called}: it was read as an undirected relation, but the newcomers' is "
            f"{relation.kind}; pass the table alone"
        )
    bipartite = relation.kind == "bipartite"
    targets = GrowingIndex(before.targets if before else ()) if bipartite else items
    edges = _read_form(relation, called, items, targets)
    require_memory(
        _BYTES_PER_EDGE * edges.source.size,
        f"{called}: sorting {counted(edges.source.size, 'link')}",
    )
    edges = _tidied(edges, called, (items.labels, targets.labels))
    return replace(edges, targets=targets.labels if bipartite else ())


def _with_groups_as_targets(relation: Relation, called: str) -> Relation:
    """Turn a Series or dictionary with the group of each item into a bipartite relation.

    Other relations are returned as they are.
    """
    table = relation.table
    # Values that have a length are the columns of a table.
    if not isinstance(table, pd.Series | Mapping) or (
        isinstance(table, Mapping)
        and any(isinstance(v, Sized) and not isinstance(v, str | tuple) for v in table.values())
    ):
        return relation
    if relation.kind not in (None, "bipartite"):
        raise DataError(
            f"{called}: a group for each item is no {relation.kind} relation; leave the kind out"
        )
    links = [link for link in table.items() if not is_missing(link[1])]
    return replace(relation, table=_frame_of_links(links, called), kind="bipartite")


def _read_form(
    relation: Relation, called: str, items: LabelIndex, targets: LabelIndex
) -> EdgeTable:
    """Read a table, list, matrix, graph or file as edges, not yet sorted, merged or checked."""
    value = relation.table
    bare = replace(relation, table=None)
    if isinstance(value, str | os.PathLike):
        if not is_matrix_file(value):
            pieces = (
                replace(piece, name=f"{called} ({piece.name})") for piece in read_pieces(value)
            )
            return _edges_of_tables(pieces, called, bare, items, targets)
        called = f"{called} ({os.fspath(value)})"
        value = read_matrix(value)
    # If there is a networkx graph, networkx is imported already: no need to load it here.
    networkx = sys.modules.get("networkx")
    if networkx is not None and isinstance(value, networkx.Graph):
        table = _table_of_graph(value, called, relation.kind, items, targets)
        return _edges_of_tables([table], called, bare, items, targets)
    size = len(items)
    if (
        isinstance(value, np.ndarray) and value.dtype.kind in "fiub" and value.shape == (size, size)
    ) or scipy.sparse.issparse(value):
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
        return _edges_of_matrix(value, called, bare, items)
    if isinstance(value, list | tuple | np.ndarray) and not is_table(value):
        value = _frame_of_links(value, called)
    if not is_table(value):
        raise DataError(
            f"{called}: expected a table of edges, a list of (source, target), a networkx graph, "
            f"or a matrix with a row for each item, got {type(value).__name__}"
        )
    table = as_table(value, called)
    frame = table.frame
    if (
        targets is items
        and "source" not in frame.columns
        and set(frame.columns) == set(frame.index)
    ):
        return _edges_of_matrix(_in_order(frame, called, items), called, bare, items)
    if table is value:
        table = replace(table, name=f"{called} ({table.name})")
    return _edges_of_tables([table], called, bare, items, targets)


def _frame_of_links(links: Any, called: str) -> pd.DataFrame:
    """Return a list of links (source, target) or (source, target, weight) as a table."""
    for row, link in enumerate(links):
        if isinstance(link, str) or not hasattr(link, "__len__") or len(link) not in (2, 3):
            raise DataError(
                f"{called}, position {row}: {shown(link)} is no edge; write (source, target) or "
                "(source, target, weight)"
            )
    rows = [(*link, 1)[:3] for link in links]
    columns = {name: [row[place] for row in rows] for place, name in enumerate(_COLUMNS)}
    return pd.DataFrame(columns, dtype=object)


def _table_of_graph(
    graph: Any, called: str, kind: str | None, items: LabelIndex, targets: LabelIndex
) -> Table:
    """Return the edges of a networkx graph as a table; nodes without edges count as items, too."""
    what = type(graph).__name__
    if graph.is_multigraph():
        raise DataError(
            f"{called}: a {what} may hold several edges between two nodes; "
            "combine them first, for example with networkx.Graph(graph)"
        )
    if graph.is_directed() and kind is None:
        raise DataError(f"{called}: a {what} is directed; {_KIND_REMEDY}")
    if not graph.is_directed() and kind == "directed":
        raise DataError(
            f"{called}: a {what} has no directions; pass a DiGraph, or leave the kind out"
        )
    blanks: set[str] = set()
    links = list(graph.edges(data="weight", default=1))
    if targets is items:  # nodes without edges must be items, too
        where = f"{called}, node {{}}".format
        nodes = read_labels(graph.nodes, where, items.positions, blanks)
        items.locate(nodes, where, "rename the node, remove it, or add it to the items")
    else:
        # Either end may be the item.
        links = [(b, a, w) if items.get(a) < 0 else (a, b, w) for a, b, w in links]
        for b, a, _ in links if items.grows else ():
            if items.get(b) < 0:
                raise DataError(
                    f"{called}: {shown(a)} and {shown(b)} are linked, and neither is in the "
                    "answers, so the graph does not say which of the two is an item; give items"
                )
    if not links:
        raise DataError(
            f"{called}: the graph has no edges; give at least one edge or leave the relation out"
        )
    ends = pd.Index([link[:2] for link in links], dtype=object, tupleize_cols=False)
    return _GraphTable(_frame_of_links(links, called).set_axis(ends), called, blanks=blanks)


def _edges_of_tables(
    tables: Iterable[Table], called: str, relation: Relation, items: LabelIndex, targets: LabelIndex
) -> EdgeTable:
    """Read edges from the pieces of a table with the columns source, target and maybe weight."""
    pieces = []
    places = []
    notes = []
    blanks = set()
    remedy = "correct the label, add it to the items, or drop the row"
    for piece in tables:
        table = replace(known_names(piece, _COLUMNS), known=items.positions)
        unused = check_columns(table, _COLUMNS[:2], _COLUMNS[2:], ())
        if table.frame.empty:
            raise DataError(
                f"{table.name}: the table has no rows; give an edge or leave the relation out"
            )
        source = items.locate(table.labels("source"), table.cell("source"), remedy)
        among_items = (label in items.positions for label in table.labels("target"))
        if targets is not items:
            table.refuse(
                "target",
                np.array(list(among_items)),
                " is an item, but a bipartite relation links items to something else; if items "
                'link to each other use kind="directed" or "undirected", otherwise rename the '
                "targets",
            )
        elif not any(among_items):
            remedy = (
                'if the targets are something else, such as groups, use kind="bipartite" (on the '
                "command line NAME=FILE:bipartite)"
            )
        target = targets.locate(table.labels("target"), table.cell("target"), remedy)
        if "weight" in table.columns:
            weight = table.numbers("weight", _WEIGHT_REMEDY)
        else:
            weight = np.ones(len(table.frame))
        pieces.append((source, target, weight))
        places.append(table.place)
        notes += [*table.notes, *unused]
        blanks |= table.blanks
    source, target, weight = map(np.concatenate, zip(*pieces, strict=True))
    where = joined_places([piece[0].size for piece in pieces], places)
    every = dict.fromkeys((*notes, *blank_note(blanks)))
    named = tuple(f"{called}: {note}" for note in every)
    return EdgeTable(relation, source, target, weight, where=where, notes=named)


def _in_order(frame: pd.DataFrame, called: str, items: LabelIndex) -> Any:
    """Return a data frame of weights, labeled by items, as a sparse (n, n) in the items' order."""
    where = f"{called}, row or column {{}}".format
    rows, columns = (
        items.locate(
            LabelIndex(read_labels(labels, where), where).labels,
            where,
            "correct the label, add it to the items, or drop its row and column",
        )
        for labels in (frame.index, frame.columns)
    )
    try:
        weights = scipy.sparse.coo_array(frame.to_numpy(dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{called}: the matrix has cells that are no numbers ({error}); correct them"
        ) from None
    ends = rows[weights.coords[0]], columns[weights.coords[1]]
    return scipy.sparse.coo_array((weights.data, ends), shape=(len(items), len(items)))


def _edges_of_matrix(matrix: Any, called: str, relation: Relation, items: LabelIndex) -> EdgeTable:
    """Read edges from an (n, n) matrix of weights in the order of the items.

    An undirected edge is returned once, source <= target. A matrix that is not symmetric is refused
    if the user has given no kind.
    """
    size = len(items)
    if matrix.shape != (size, size):
        raise DataError(
            f"{called}: the matrix has the shape {matrix.shape}, but there are "
            f"{counted(size, 'item')}; give a matrix of shape ({size}, {size}) in the order of the "
            "items"
        )
    if matrix.dtype.kind not in "fiub":
        raise DataError(f"{called}: the matrix has the type {matrix.dtype}; convert it to float")
    # A copy in CSR, because repeated entries of a COO matrix mean their sum.
    matrix = scipy.sparse.csr_array(matrix, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    entries = matrix.tocoo()

    def where(entry: int) -> str:
        row, column = (int(end[entry]) for end in entries.coords)
        ends = (items.labels[row], items.labels[column])
        return f"{called}, entry ({row}, {column}) for {shown(ends)}"

    refuse_first(
        ~(np.isfinite(entries.data) & (entries.data >= 0)),
        lambda entry: (
            f"{where(entry)}: the weight {entries.data[entry]} is not a finite positive number; "
            "correct or remove it"
        ),
    )
    notes: Texts = ()
    if zeros := int((matrix.data == 0).sum()):
        stored = counted(zeros, "stored entry", "stored entries")
        notes = (f"{called}: {stored} of weight 0 left out",)
        matrix.eliminate_zeros()
    if matrix.nnz == 0:
        raise DataError(
            f"{called}: the matrix has no entries; give at least one edge or leave the relation out"
        )
    if relation.kind == "directed":
        entries = matrix.tocoo()
    else:
        transposed = scipy.sparse.csr_array(matrix.T)
        difference = (matrix != transposed).tocoo()
        if difference.nnz and relation.kind is None:
            row, column = (int(end[0]) for end in difference.coords)
            raise DataError(
                f"{called}: the matrix is not symmetric: entry ({row}, {column}) is "
                f"{matrix[row, column]}, entry ({column}, {row}) is {matrix[column, row]}; "
                f"{_KIND_REMEDY}"
            )
        # The two triangles of a symmetric matrix are not a repetition.
        entries = scipy.sparse.triu(matrix.maximum(transposed), format="coo")
    source, target = (end.astype(np.int32, copy=False) for end in entries.coords)
    return EdgeTable(relation, source, target, entries.data, (), where, notes)


def _tidied(edges: EdgeTable, called: str, labels: tuple[Labels, Labels]) -> EdgeTable:
    """Return each edge once, sorted by its ends, with source < target if undirected.

    Edges of weight 0 are dropped, and, unless the relation is bipartite, those from a node to
    itself. A repeated edge with another weight is refused. If the two directions of an undirected
    edge have different weights, the larger one counts if the user has given the kind, and otherwise
    they are refused. Notes say what was dropped or merged. ``labels`` are those of the sources and
    of the targets, for messages.
    """
    kind = edges.relation.kind
    where = edges.where
    weight = edges.weight
    refuse_first(
        weight < 0, lambda row: f"{where(row)}: the weight {weight[row]} is negative; correct it"
    )
    refuse_first(
        (weight > LARGEST_WEIGHT) | ((weight > 0) & (weight < SMALLEST_WEIGHT)),
        lambda row: (
            f"{where(row)}: the weight {weight[row]} is not between {SMALLEST_WEIGHT} and "
            f"{LARGEST_WEIGHT}; rescale the weights"
        ),
    )
    weightless = weight == 0
    loops = (edges.source == edges.target) & ~weightless & (kind != "bipartite")
    rows = np.flatnonzero(~(weightless | loops))
    if not rows.size:
        raise DataError(
            f"{called}: no edge is left but loops and zero weights; add edges or leave it out"
        )
    ends = np.stack([edges.source[rows], edges.target[rows]])
    backward = edges.undirected & (ends[0] > ends[1])
    low, high = np.where(backward, ends[::-1], ends)
    # Equal edges follow one another, forward ones first; positions are below 2**31.
    key = (low.astype(np.int64) << 32) | (high.astype(np.int64) << 1) | backward
    order = np.argsort(key, kind="stable")
    rows = rows[order]
    key = key[order]
    # The last bit is the direction: edges that differ only in it are one edge.
    first = np.concatenate([[True], (key[1:] >> 1) != (key[:-1] >> 1)])
    _refuse_two_weights(edges, called, rows, first, labels)
    heaviest = np.maximum.reduceat(weight[rows], np.flatnonzero(first))
    low, high = (end[order][first] for end in (low, high))
    dropped = (
        (int(weightless.sum()), "edge", "of weight 0 left out"),
        (int(loops.sum()), "link", "from an item to itself left out"),
        (int((~first).sum()), "repeated edge", "counted once"),
    )
    notes = [f"{called}: {counted(number, what)} {end}" for number, what, end in dropped if number]
    rows = rows[first]
    return replace(
        edges,
        source=low,
        target=high,
        weight=heaviest,
        where=lambda row: where(int(rows[row])),
        notes=(*edges.notes, *notes),
    )


def _refuse_two_weights(
    edges: EdgeTable,
    called: str,
    rows: Integers,
    first: Mask,
    labels: tuple[Labels, Labels],
) -> None:
    """Refuse different weights of equal edges; see `_tidied` for those of two directions.

    ``rows`` are the numbers of the edges, equal ones next to one another, and ``first`` marks the
    first of each run of equal edges; both have the shape (number of edges,).
    """
    weight = edges.weight
    where = edges.where
    differs = ~first[1:] & (weight[rows[1:]] != weight[rows[:-1]])
    opposite = edges.source[rows[1:]] != edges.source[rows[:-1]]

    def two_weights(at: int, remedy: str) -> str:
        before, row = sorted(rows[at : at + 2].tolist())
        source = labels[0][edges.source[row]]
        target = labels[1][edges.target[row]]
        return (
            f"{where(row)}: the edge from {shown(source)} to {shown(target)} has the weight "
            f"{weight[row]}, but the weight {weight[before]} at {where(before)}; {remedy}"
        )

    refuse_first(differs & ~opposite, lambda at: two_weights(at, "keep one of the two rows"))
    if edges.relation.kind is None:
        refuse_first(differs, lambda at: two_weights(at, _KIND_REMEDY))


def project(
    name: str, edges: EdgeTable, num_items: int, before: Graphs | None = None
) -> dict[str, Graph]:
    """Make the undirected graphs of a relation, by name.

    They join items that are linked, that share targets, or that a random walk links. The graphs
    ``before`` newcomers came, if given, set the scale, and names that are not among them are left
    out.
    """
    relation = edges.relation
    graphs = {}
    for part in part_names(name, relation):
        scale: dict[str, Any] = {}
        if before is not None:
            if part not in before:
                continue
            graph = before[part]
            scale = {"frozen_reference": graph.reference, "counts_cliques": graph.counts_cliques}
        if edges.undirected:
            joined = edges.source, edges.target, edges.weight
        elif relation.teleport is not None:
            joined = circulation(edges.matrix(part, num_items), relation.teleport)
        else:
            kept, _ = _without_hubs(edges.matrix(part, num_items), relation.max_degree)
            joined = shared_targets(kept, weigh_hubs=relation.hubs == "weight")
        try:
            graphs[part] = Graph(num_items, *joined, **scale)
        except DataError as error:  # products of extreme weights
            raise DataError(
                f"relation {name!r}: {'' if part == name else f'{part}: '}{error}; rescale the "
                "weights"
            ) from None
    return graphs


def graph_notes(name: str, edges: EdgeTable, graphs: Graphs) -> Texts:
    """Return notes on targets that ``max_degree`` left out, and on items without an edge."""
    notes = []
    max_degree = edges.relation.max_degree
    for part, graph in graphs.items():
        if max_degree is not None:
            _, left_out = _without_hubs(edges.matrix(part, graph.num_nodes), max_degree)
            notes += [note if part == name else f"{part}: {note}" for note in left_out]
        alone = int((graph.degree == 0).sum())
        if alone and not graph.num_edges:
            notes.append(f"no two items share a link, so {part} has no edges and says nothing")
        elif alone:
            verb = "has" if alone == 1 else "have"
            where = "it" if part == name else part
            items = counted(graph.num_nodes, "item")
            notes.append(f"{alone:,} of {items} {verb} no edge in {where}")
    return tuple(f"relation {name!r}: {note}" for note in notes)


def _without_hubs(links: Any, max_degree: int | None) -> tuple[Any, Texts]:
    """Return the links (n, t) without the targets of more than ``max_degree`` links, and a note."""
    links = scipy.sparse.csc_array(links)
    degree = np.diff(links.indptr)
    hubs = np.zeros(degree.size, dtype=bool) if max_degree is None else degree > max_degree
    if not hubs.any():
        return links, ()
    kept = links[:, ~hubs]
    lost = np.unique(links.indices).size - np.unique(kept.indices).size
    note = (
        f"{counted(int(hubs.sum()), 'target')} with more than {max_degree} links left out, and "
        f"with them {int(degree[hubs].sum())} of {counted(int(degree.sum()), 'link')}; "
        f"{counted(lost, 'item')} had no other link"
    )
    return kept, (note,)
