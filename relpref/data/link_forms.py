"""The links of a relation, from any form in which they may be given."""

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from relpref.data.columns import numbers
from relpref.data.edges import Edges, TargetIndex, edges_from_tables, ends_of, how_to_say_the_kind
from relpref.data.labels import LabelIndex, Place
from relpref.data.matrix_files import is_matrix_file, read_matrix
from relpref.data.messages import counted, shown
from relpref.data.table_files import read_pieces
from relpref.data.tables import Table
from relpref.errors import DataError


def read_links(
    name: str, table: Any, kind: str | None, entities: LabelIndex, targets: TargetIndex | None = None
) -> tuple[Edges, tuple[str, ...]]:
    """Read the links of a relation as they were given, not tidied.

    Parameters
    ----------
    name : str
        Name of the relation.
    table : DataFrame, Table, networkx graph, scipy sparse matrix, or path of a file
        Its links.
    kind : str or None
        See `Relation`.
    entities : LabelIndex
        The n known labels.
    targets : TargetIndex, optional
        What entities link to, if it is not entities; grows by those that are new.

    Returns
    -------
    edges : Edges
        The links; the two triangles of a symmetric matrix are one.
    notes : tuple of str
        What was tidied.

    Raises
    ------
    DataError
        If the links cannot be read, or their directions differ and there is no kind.
    UnknownLabelError
        If an end is no entity but should be one.
    """
    called = f"relation {name!r}"
    if isinstance(table, str | os.PathLike):
        if not is_matrix_file(table):
            return edges_from_tables(_named(read_pieces(table), called), entities, targets), ()
        called = f"{called} ({os.fspath(table)})"
        table = read_matrix(table)
    if isinstance(table, Table):
        return edges_from_tables(_named(iter([table]), called), entities, targets), ()
    if isinstance(table, pd.DataFrame):
        return edges_from_tables([Table(table, called)], entities, targets), ()
    if _is_networkx(table):
        return _edges_of_networkx(table, called, entities, targets, kind), ()
    if scipy.sparse.issparse(table):
        if targets is not None:
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
    graph: Any, called: str, entities: LabelIndex, targets: "TargetIndex | None", kind: str | None
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
    if targets is None:
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
    ends = ends_of(source, target, entities, targets, where, where)
    return Edges(*ends, strength, where)
