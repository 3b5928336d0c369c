"""The labels of a relation: what is known of each pair of a conditioning node and an object."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse

from relpref.data.columns import numbers
from relpref.data.labels import LabelIndex, plain_labels
from relpref.data.messages import counted, shown
from relpref.data.tables import Table, as_table, check_columns
from relpref.errors import DataError

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]
Symmetry = Literal["none", "symmetric", "reciprocal"]

SYMMETRIES = ("none", "symmetric", "reciprocal")
EDGE_COLUMNS = ("source", "target", "value")
_NAME = "relation"
_SLACK = 1e-9  # of labels that should be equal, relative to the largest


@dataclass(frozen=True, eq=False)
class RelationValues:
    """Labels of some or all pairs of p conditioning nodes and m objects.

    Attributes
    ----------
    shape : (p, m)
    values : array of float64, shape (q,)
        Row by row.
    edges : (array of int, array of int) or None
        Conditioning node and object of each observed pair; a pair may occur several times. None where every pair occurs
        exactly once.
    """

    shape: tuple[int, int]
    values: Floats
    edges: tuple[Positions, Positions] | None = None

    @classmethod
    def of_matrix(cls, matrix: Floats) -> "RelationValues":
        """From a (p, m) array, NaN = unobserved."""
        observed = ~np.isnan(matrix)
        p, m = matrix.shape
        if observed.all():
            return cls((p, m), np.ascontiguousarray(matrix).reshape(-1))
        rows, columns = np.nonzero(observed)
        return cls((p, m), matrix[rows, columns], (rows, columns))

    @classmethod
    def of_edges(
        cls, shape: tuple[int, int], rows: Positions, columns: Positions, values: Floats
    ) -> "RelationValues":
        """From edges in any order, repeated or not."""
        order = np.lexsort((columns, rows))
        rows, columns, values = rows[order], columns[order], values[order]
        flat = rows * shape[1] + columns
        complete = len(flat) == shape[0] * shape[1] and bool(np.all(flat == np.arange(len(flat))))
        return cls(shape, values, None if complete else (rows, columns))

    @property
    def complete(self) -> bool:
        """Whether every pair occurs exactly once."""
        return self.edges is None

    @property
    def rows(self) -> Positions:
        """Conditioning node of each observed pair, shape (q,)."""
        return np.repeat(np.arange(self.shape[0]), self.shape[1]) if self.edges is None else self.edges[0]

    @property
    def columns(self) -> Positions:
        """Object of each observed pair, shape (q,)."""
        return np.tile(np.arange(self.shape[1]), self.shape[0]) if self.edges is None else self.edges[1]

    @cached_property
    def row_counts(self) -> Positions:
        """Number of labels of each conditioning node, shape (p,)."""
        p, m = self.shape
        return np.full(p, m) if self.edges is None else np.bincount(self.edges[0], minlength=p)

    @cached_property
    def varies(self) -> bool:
        """Whether any conditioning node has two different labels."""
        starts = np.concatenate([[0], np.cumsum(self.row_counts)[:-1]])[self.row_counts > 0]
        highest, lowest = (of.reduceat(self.values, starts) for of in (np.maximum, np.minimum))
        return bool(np.any(highest > lowest))

    @property
    def matrix(self) -> Floats:
        """Labels as a (p, m) array, where they are complete."""
        if not self.complete:
            raise DataError("the relation is not complete, so it has no matrix without gaps; use its edges")
        return self.values.reshape(self.shape)

    @cached_property
    def mean_matrix(self) -> Floats:
        """Average label of every pair, shape (p, m); NaN where there is none."""
        if self.complete:
            return self.matrix
        flat = self.rows * self.shape[1] + self.columns
        size = self.shape[0] * self.shape[1]
        counts = np.bincount(flat, minlength=size)
        sums = np.bincount(flat, weights=self.values, minlength=size)
        with np.errstate(invalid="ignore"):
            return np.asarray(sums / counts).reshape(self.shape)

    def transposed(self) -> "RelationValues":
        """The objects as conditioning nodes."""
        shape = (self.shape[1], self.shape[0])
        if self.complete:
            return RelationValues.of_matrix(np.ascontiguousarray(self.matrix.T))
        return RelationValues.of_edges(shape, self.columns, self.rows, self.values)

    def select(self, chosen: Any) -> "RelationValues":
        """Some of the edges, by positions or a mask."""
        return RelationValues.of_edges(
            self.shape, self.rows[chosen], self.columns[chosen], self.values[chosen]
        )

    def subset(self, nodes: Positions, objects: Positions) -> "RelationValues":
        """The relation among some nodes and objects, renumbered in the order given."""
        if self.complete:
            return RelationValues.of_matrix(self.matrix[np.ix_(nodes, objects)])
        row_of, column_of = np.full(self.shape[0], -1), np.full(self.shape[1], -1)
        row_of[nodes], column_of[objects] = np.arange(len(nodes)), np.arange(len(objects))
        rows, columns = row_of[self.rows], column_of[self.columns]
        kept = (rows >= 0) & (columns >= 0)
        shape = (len(nodes), len(objects))
        return RelationValues.of_edges(shape, rows[kept], columns[kept], self.values[kept])

    def constrained(self, symmetry: Symmetry) -> tuple["RelationValues", float]:
        """The labels of a symmetric or reciprocal relation in both directions, and what was subtracted from them.

        A pair known in one direction only is known in the other, too (CR10 section 3). Edges of which some occur several times are
        a list of measurements, such as games, and may contradict each other; otherwise contradictions are refused. Reciprocal labels where
        Q(v, w) + Q(w, v) = 1 are shifted by ½, antisymmetric ones are not; where no pair is known in both directions, labels
        in [0, 1] are taken for the first kind.

        Raises
        ------
        DataError
            If the relation is not between nodes of one kind, or its labels contradict the constraint: where, and by how much.
        """
        if symmetry not in SYMMETRIES:
            raise DataError(f"symmetry is {symmetry!r}; it is one of {', '.join(SYMMETRIES)}")
        if symmetry == "none":
            return self, 0.0
        if self.shape[0] != self.shape[1]:
            raise DataError(
                f"symmetry is {symmetry!r}, but the relation is between {self.shape[0]} nodes and {self.shape[1]} objects; "
                "only a relation of one set of nodes with itself can be"
            )
        sign = 1.0 if symmetry == "symmetric" else -1.0
        shift = self._centre() if symmetry == "reciprocal" else 0.0
        shifted = replace(self, values=self.values - shift)
        shifted._check_constraint(sign, shift)
        return shifted._both_ways(sign), shift

    def _measured_once(self) -> Floats:
        """Labels of the pairs that occur exactly once, shape (p, m); NaN elsewhere."""
        if self.complete:
            return self.matrix
        size = self.shape[0] * self.shape[1]
        counts = np.bincount(self.rows * self.shape[1] + self.columns, minlength=size).reshape(self.shape)
        return np.where(counts == 1, self.mean_matrix, np.nan)

    def _centre(self) -> float:
        """Half of what the labels of a pair in both directions add up to: ½ or 0."""
        known = self._measured_once()
        sums = known + known.T
        seen = ~np.isnan(sums)
        if seen.any():
            middle = float(np.median(sums[seen]))
            return 0.5 if abs(middle - 1) < abs(middle) else 0.0
        return 0.5 if self.values.min(initial=0.0) >= 0 and self.values.max(initial=0.0) <= 1 else 0.0

    def _check_constraint(self, sign: float, shift: float) -> None:
        """Refuse labels of a pair in both directions that contradict each other, but not where pairs were measured repeatedly."""
        if not self.complete and len(np.unique(self.rows * self.shape[1] + self.columns)) < len(self.values):
            return
        known = self._measured_once()
        gap = np.abs(known - sign * known.T)
        largest = float(np.nanmax(gap, initial=0.0))
        if largest > _SLACK * max(1.0, float(np.abs(self.values).max(initial=0.0))):
            row, column = np.unravel_index(int(np.nanargmax(gap)), gap.shape)
            kind, remedy = "symmetric", "(Y + Y.T) / 2"
            if sign < 0:
                kind = "reciprocal (values that add up to 1, or to 0)"
                remedy = "(Y - Y.T) / 2, plus 1/2 for labels in [0, 1]"
            raise DataError(
                f"relation: it is not {kind}: ({row}, {column}) is {known[row, column] + shift:.6g} and ({column}, {row}) is "
                f"{known[column, row] + shift:.6g}; give {remedy}, or symmetry='none'"
            )

    def _both_ways(self, sign: float) -> "RelationValues":
        """Every measurement in both directions.

        Where the labels of (v, w) and of (w, v) are the same ones they were given in both directions; otherwise each is a
        measurement of its own.
        """
        if self.complete:
            return self
        rows, columns, values = self.rows, self.columns, self.values
        apart = np.flatnonzero(rows != columns)
        forward = rows[apart] < columns[apart]
        first, second = np.minimum(rows, columns)[apart], np.maximum(rows, columns)[apart]
        pair = np.unique(first * self.shape[1] + second, return_inverse=True)[1]
        oriented = np.where(forward, 1.0, sign) * values[apart]
        sides = []
        for side in (forward, ~forward):
            order = np.lexsort((oriented[side], pair[side]))
            sides.append((pair[side][order], oriented[side][order]))
        number = int(pair.max(initial=-1)) + 1
        counts = [np.bincount(side[0], minlength=number) for side in sides]
        given_twice = counts[0] == counts[1]
        kept = [given_twice[side[0]] for side in sides]
        scale = max(1.0, float(np.abs(values).max(initial=0.0)))
        differ = np.abs(sides[0][1][kept[0]] - sides[1][1][kept[1]]) > _SLACK * scale
        given_twice[sides[0][0][kept[0]][differ]] = False
        single = apart[~given_twice[pair]]
        return RelationValues.of_edges(
            self.shape,
            np.concatenate([rows, columns[single]]),
            np.concatenate([columns, rows[single]]),
            np.concatenate([values, sign * values[single]]),
        )


def read_relation(
    relation: Any, nodes: Sequence[Hashable], objects: Sequence[Hashable] | None = None
) -> RelationValues:
    """Read a relation's labels.

    Parameters
    ----------
    relation : array, DataFrame, sparse matrix or Table
        A (p, m) array in the order of nodes and objects, NaN = unknown; a DataFrame with their labels as index and columns; an
        edge table with the columns ``source``, ``target``, ``value``; or a sparse matrix, of which only the stored entries are
        known.
    nodes, objects : sequence of labels
        Conditioning nodes and objects; ``None`` where the nodes are ranked for one another.

    Raises
    ------
    DataError
        If the shape or the labels do not fit, a value is not a finite number, or nothing is known.
    """
    shape = (len(nodes), len(nodes) if objects is None else len(objects))
    if isinstance(relation, Table) or (
        isinstance(relation, pd.DataFrame)
        and _looks_like_edges(relation, nodes if objects is None else objects)
    ):
        values = _from_edges(as_table(relation, _NAME), nodes, objects, shape)
    elif isinstance(relation, pd.DataFrame):
        values = _from_frame(relation, nodes, objects)
    elif issparse(relation):
        entries = relation.tocoo()
        _check_shape(entries.shape, shape)
        _check_finite(entries.data, entries.row, entries.col)
        values = RelationValues.of_edges(
            shape,
            entries.row.astype(np.intp),
            entries.col.astype(np.intp),
            np.asarray(entries.data, np.float64),
        )
    else:
        values = _from_array(relation, shape)
    if not len(values.values):
        raise DataError("relation: not one label is known; give at least one value")
    values.values.flags.writeable = False
    return values


def _looks_like_edges(frame: pd.DataFrame, objects: Sequence[Hashable]) -> bool:
    """Whether columns are those of an edge table, or most likely meant to be, and not labels of objects."""
    columns = list(frame.columns)
    return bool(set(EDGE_COLUMNS) & {str(c) for c in columns}) and not set(columns) <= set(objects)


def _from_array(relation: Any, shape: tuple[int, int]) -> RelationValues:
    try:
        matrix = np.array(relation, dtype=np.float64)  # a copy: what the caller does to his later is his own
    except (TypeError, ValueError):
        raise DataError(
            f"relation: expected an array of numbers, a DataFrame or an edge table with the columns {', '.join(EDGE_COLUMNS)}, "
            f"got {type(relation).__name__}"
        ) from None
    _check_shape(matrix.shape, shape)
    if np.isinf(matrix).any():
        row, column = np.argwhere(np.isinf(matrix))[0]
        raise DataError(
            f"relation: row {row}, column {column} is {matrix[row, column]}; use NaN for what is not known"
        )
    return RelationValues.of_matrix(matrix)


def _check_shape(given: tuple[int, ...], shape: tuple[int, int]) -> None:
    if tuple(given) != shape:
        raise DataError(
            f"relation: the array has the shape {tuple(given)}; {counted(shape[0], 'conditioning node')} and "
            f"{counted(shape[1], 'object')} need {shape} (rows are conditioning nodes)"
        )


def _check_finite(values: Any, rows: Any, columns: Any) -> None:
    bad = ~np.isfinite(values)
    if bad.any():
        edge = int(np.argmax(bad))
        raise DataError(
            f"relation: the entry ({rows[edge]}, {columns[edge]}) is {values[edge]}; leave out what is not known"
        )


def _from_frame(
    frame: pd.DataFrame, nodes: Sequence[Hashable], objects: Sequence[Hashable] | None
) -> RelationValues:
    """A matrix with labels, in any order; nodes that it lacks are unobserved."""
    row_index = _index(nodes, "node")
    column_index = row_index if objects is None else _index(objects, "object")
    rows = _located(frame.index, row_index, "row")
    columns = _located(frame.columns, column_index, "column")
    matrix = np.full((len(nodes), len(column_index)), np.nan)
    cells = [
        numbers(
            frame.iloc[:, j].fillna(0.0),
            str(name),
            lambda row: f"relation, row {row}",
            text=False,
            remedy="give numbers",
        )
        for j, name in enumerate(frame.columns)
    ]
    block = np.column_stack(cells) if cells else np.zeros((len(rows), 0))
    block[frame.isna().to_numpy()] = np.nan
    matrix[np.ix_(rows, columns)] = block
    return RelationValues.of_matrix(matrix)


def _from_edges(
    table: Table, nodes: Sequence[Hashable], objects: Sequence[Hashable] | None, shape: tuple[int, int]
) -> RelationValues:
    check_columns(table, EDGE_COLUMNS, ())
    row_index = _index(nodes, "node")
    column_index = row_index if objects is None else _index(objects, "object")
    ends = []
    for name, index in (("source", row_index), ("target", column_index)):
        labels = plain_labels(table.frame[name], table.place)
        ends.append(
            index.locate(labels, _in_column(table, name), f"every {name} must be one of the labels given")
        )
    values = numbers(
        table.frame["value"], "value", table.place, text=table.text, remedy="leave out rows not known"
    )
    rows, columns = (end.astype(np.intp) for end in ends)
    return RelationValues.of_edges(shape, rows, columns, values)


def _in_column(table: Table, name: str) -> Callable[[int], str]:
    return lambda row: f"{table.place(row)}, column {name!r}"


def _index(labels: Sequence[Hashable], kind: str) -> LabelIndex:
    return LabelIndex(labels, lambda position: f"{kind} {position}")


def _located(labels: Any, index: LabelIndex, kind: str) -> Positions:
    def where(position: int) -> str:
        return f"relation, {kind} {position}"

    plain = plain_labels(labels, where)
    LabelIndex(plain, where)  # none twice
    try:
        return index.locate(plain, where, "give the relation of known nodes only").astype(np.intp)
    except DataError as error:
        raise DataError(
            f"{error}; the labels of the relation's {kind}s must be those of the nodes ({shown(index.labels[0])}, ...)"
        ) from None
