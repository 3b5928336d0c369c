"""Nodes, objects and what is known of the relation between them, for numpyro programs."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse

from relpref.data.arrays import counted, refuse_first, shown
from relpref.data.items import read_item_table
from relpref.data.labels import LabelIndex, read_labels
from relpref.data.preference import PreferenceData, assembled
from relpref.data.tables import Table, as_table, check_columns, numbers
from relpref.errors import DataError
from relpref.pytree import register

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]
Symmetry = Literal["none", "symmetric", "reciprocal"]

SIGN: dict[str, float] = {"none": 0.0, "symmetric": 1.0, "reciprocal": -1.0}  # h(v, w) = ± h(w, v)
_SLACK = 1e-9  # of labels that should be equal, relative to the largest


@dataclass(frozen=True, eq=False)
class RelationValues:
    """Labels of some or all pairs of p conditioning nodes and m objects, row by row."""

    shape: tuple[int, int]
    values: Floats
    # Conditioning node and object of each label; a pair may occur several times. None where every
    # pair occurs exactly once.
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
        return self.edges is None

    @property
    def rows(self) -> Positions:
        """Conditioning node of each observed pair, shape (q,)."""
        return (
            np.repeat(np.arange(self.shape[0]), self.shape[1])
            if self.edges is None
            else self.edges[0]
        )

    @property
    def columns(self) -> Positions:
        """Object of each observed pair, shape (q,)."""
        return (
            np.tile(np.arange(self.shape[1]), self.shape[0])
            if self.edges is None
            else self.edges[1]
        )

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

    def same_edges(self, other: "RelationValues") -> bool:
        """Whether the labels of another relation are of the same pairs, in the same order."""
        if self.shape != other.shape or len(self.values) != len(other.values):
            return False
        if self.complete or other.complete:
            return self.complete == other.complete
        return np.array_equal(self.rows, other.rows) and np.array_equal(self.columns, other.columns)

    def pairs(self, symmetry: Symmetry) -> NDArray[np.int64]:
        """A number for the two nodes of each edge, under a constraint the same in both directions."""
        rows, columns = self.rows, self.columns
        if symmetry != "none":
            rows, columns = np.minimum(rows, columns), np.maximum(rows, columns)
        return np.asarray(rows * self.shape[1] + columns, dtype=np.int64)

    def distinct(self, symmetry: Symmetry) -> Positions:
        """Edges that say something of their own, by position: of a constrained relation those with v ≤ w, or v < w if reciprocal."""
        if symmetry == "none":
            return np.arange(len(self.values))
        gap = self.columns - self.rows
        return np.flatnonzero(gap >= 0 if symmetry == "symmetric" else gap > 0)

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

        A pair known in one direction only is known in the other, too (CR10 section 3). Edges of
        which some occur several times are a list of measurements, such as games, and may contradict
        each other; otherwise contradictions are refused. Reciprocal labels where Q(v, w) + Q(w, v)
        = 1 are shifted by ½, antisymmetric ones are not; where no pair is known in both directions,
        labels in [0, 1] are taken for the first kind.
        """
        if symmetry not in SIGN:
            raise DataError(f"symmetry is {symmetry!r}; it is one of {', '.join(SIGN)}")
        if symmetry == "none":
            return self, 0.0
        if self.shape[0] != self.shape[1]:
            raise DataError(
                f"symmetry is {symmetry!r}, but the relation is between {self.shape[0]} nodes and "
                f"{self.shape[1]} objects; "
                "only a relation of one set of nodes with itself can be"
            )
        sign, opposites = SIGN[symmetry], self._opposites()
        shift = self._center(*opposites) if symmetry == "reciprocal" else 0.0
        shifted = replace(self, values=self.values - shift)
        if self._repeated:  # only loops can contradict the constraint
            opposites = (np.flatnonzero(self.rows == self.columns),) * 2
        shifted._check_constraint(*opposites, sign, shift)
        return shifted._both_ways(sign), shift

    def _opposites(self) -> tuple[Positions, Positions]:
        """Edges, by position, of pairs that occur once in each direction, and the edges opposite to them; a loop is its own."""
        if self.complete:
            return np.arange(len(self.values)), np.arange(len(self.values)).reshape(
                self.shape
            ).T.reshape(-1)
        pairs = pd.Index(self.pairs("none"))
        place = np.flatnonzero(~pairs.duplicated(keep=False))
        back = self.columns[place] * self.shape[1] + self.rows[place]
        found = pairs[place].get_indexer(back)
        return place[found >= 0], place[found[found >= 0]]

    def _center(self, edge: Positions, opposite: Positions) -> float:
        """Half of what the labels of two nodes in both directions add up to: ½ or 0."""
        sums = (self.values[edge] + self.values[opposite])[edge != opposite]
        if len(sums):
            middle = float(np.median(sums))
            return 0.5 if abs(middle - 1) < abs(middle) else 0.0
        return (
            0.5 if self.values.min(initial=0.0) >= 0 and self.values.max(initial=0.0) <= 1 else 0.0
        )

    def _check_constraint(
        self, edge: Positions, opposite: Positions, sign: float, shift: float
    ) -> None:
        """Refuse labels that contradict the constraint."""
        gap = np.abs(self.values[edge] - sign * self.values[opposite])
        if gap.max(initial=0.0) > _SLACK * max(1.0, float(np.abs(self.values).max(initial=0.0))):
            worst = int(np.argmax(gap))
            row, column = self.rows[edge[worst]], self.columns[edge[worst]]
            kind, remedy = "symmetric", "(Y + Y.T) / 2 (labels of two classes: decide each pair)"
            if sign < 0:
                kind = "reciprocal (values that add up to 1, or to 0)"
                remedy = "(Y - Y.T) / 2, plus 1/2 for labels in [0, 1]"
            if row == column:
                remedy = f"{shift:g} or nothing for a node with itself"
            raise DataError(
                f"relation: it is not {kind}: ({row}, {column}) is "
                f"{self.values[edge[worst]] + shift:.6g} and ({column}, {row}) is "
                f"{self.values[opposite[worst]] + shift:.6g}; give {remedy}, or symmetry='none'"
            )

    @property
    def _repeated(self) -> bool:
        """Whether some pair occurs several times: a list of measurements."""
        pairs = self.pairs("none")
        return not self.complete and len(np.unique(pairs)) < len(pairs)

    def _both_ways(self, sign: float) -> "RelationValues":
        """Every measurement in both directions.

        Where the labels of (v, w) and of (w, v) are the same they were given in both directions;
        otherwise each is a measurement of its own. In a list of measurements that is said of all
        pairs or of none.
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
        if self._repeated and not given_twice.all():
            given_twice[:] = False
        single = apart[~given_twice[pair]]
        return RelationValues.of_edges(
            self.shape,
            np.concatenate([rows, columns[single]]),
            np.concatenate([columns, rows[single]]),
            np.concatenate([values, sign * values[single]]),
        )


EDGE_COLUMNS = ("source", "target", "value")


def read_relation(
    relation: Any, nodes: Sequence[Hashable], objects: Sequence[Hashable] | None = None
) -> RelationValues:
    """Read a relation's labels.

    Parameters
    ----------
    relation : array, DataFrame, sparse matrix or Table
        A (p, m) array in the order of nodes and objects, NaN = unknown; a DataFrame with their
        labels as index and columns; an edge table with the columns ``source``, ``target``,
        ``value``; or a sparse matrix, of which only the stored entries are known.
    nodes, objects : sequence of labels
        ``None`` for objects where the nodes are ranked for one another.

    Raises
    ------
    DataError
        If the shape or the labels do not fit, a value is not a finite number, or nothing is known.
    """
    others = nodes if objects is None else objects
    shape = (len(nodes), len(others))
    if isinstance(relation, Table | pd.DataFrame):
        values = _labeled(relation, nodes, others, shape)
    elif issparse(relation):
        entries = relation.tocoo()
        _check_shape(entries.shape, shape)
        found = np.asarray(entries.data, np.float64)
        refuse_first(
            ~np.isfinite(found),
            lambda at: (
                f"relation: the entry ({entries.row[at]}, {entries.col[at]}) is {found[at]}; leave "
                "out what is not known"
            ),
        )
        values = RelationValues.of_edges(
            shape, entries.row.astype(np.intp), entries.col.astype(np.intp), found
        )
    else:
        values = _from_array(relation, shape)
    if not len(values.values):
        raise DataError("relation: not one label is known; give at least one value")
    values.values.flags.writeable = False
    return values


def _from_array(relation: Any, shape: tuple[int, int]) -> RelationValues:
    try:
        matrix = np.array(
            relation, dtype=np.float64
        )  # a copy: what the caller does to his later is his own
    except (TypeError, ValueError):
        raise DataError(
            "relation: expected an array of numbers, a DataFrame or an edge table with the "
            f"columns {', '.join(EDGE_COLUMNS)}, "
            f"got {type(relation).__name__}"
        ) from None
    _check_shape(matrix.shape, shape)
    if np.isinf(matrix).any():
        row, column = np.argwhere(np.isinf(matrix))[0]
        raise DataError(
            f"relation: row {row}, column {column} is {matrix[row, column]}; use NaN for what is "
            "not known"
        )
    return RelationValues.of_matrix(matrix)


def _check_shape(given: tuple[int, ...], shape: tuple[int, int]) -> None:
    if tuple(given) != shape:
        raise DataError(
            f"relation: the array has the shape {tuple(given)}; "
            f"{counted(shape[0], 'conditioning node')} and "
            f"{counted(shape[1], 'object')} need {shape} (rows are conditioning nodes)"
        )


def _labeled(
    relation: Table | pd.DataFrame,
    nodes: Sequence[Hashable],
    others: Sequence[Hashable],
    shape: tuple[int, int],
) -> RelationValues:
    """From an edge table, or a matrix with labels in any order; nodes that it lacks are unobserved."""
    indices = (
        LabelIndex(nodes, lambda at: f"node {at}"),
        LabelIndex(others, lambda at: f"object {at}"),
    )
    table = as_table(relation, "relation")
    frame = table.frame
    columns = list(frame.columns)
    # Columns are those of an edge table, or most likely meant to be, and not labels of objects.
    meant = bool(set(EDGE_COLUMNS) & set(map(str, columns))) and not set(columns) <= set(others)
    if table is relation or meant:
        check_columns(table, EDGE_COLUMNS, ())
        rows, targets = (
            index.locate(
                table.labels(name),
                table.cell(name),
                f"every {name} must be one of the labels given",
            )
            for name, index in zip(EDGE_COLUMNS[:2], indices, strict=True)
        )
        values = table.numbers("value", "leave out rows not known")
        return RelationValues.of_edges(shape, rows.astype(np.intp), targets.astype(np.intp), values)
    ends = [
        _located(labels, index, kind)
        for labels, index, kind in zip(
            (frame.index, frame.columns), indices, ("row", "column"), strict=True
        )
    ]
    matrix, block = np.full(shape, np.nan), np.empty(frame.shape)
    for column, name in enumerate(columns):
        block[:, column] = numbers(
            frame.iloc[:, column].fillna(0.0),
            str(name),
            lambda row: f"relation, row {row}",
            text=False,
            remedy="give numbers",
        )
    block[frame.isna().to_numpy()] = np.nan
    matrix[np.ix_(*ends)] = block
    return RelationValues.of_matrix(matrix)


def _located(labels: Any, index: LabelIndex, kind: str) -> Positions:
    def where(position: int) -> str:
        return f"relation, {kind} {position}"

    plain = read_labels(labels, where)
    LabelIndex(plain, where)  # none twice
    try:
        return index.locate(plain, where, "give the relation of known nodes only").astype(np.intp)
    except DataError as error:
        raise DataError(
            f"{error}; the labels of the relation's {kind}s must be those of the nodes "
            f"({shown(index.labels[0])}, ...)"
        ) from None


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
        Of a constrained relation, the positions of the edges (v, w) with v ≤ w: each pair of nodes
        once. A node's label with itself is uninformative for a reciprocal relation, and is left
        out.
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
            See `read_relation`. Rows or sources are the conditioning nodes.
        objects : DataFrame, optional
            Where objects are of another kind; the nodes themselves by default.
        symmetry : {"none", "symmetric", "reciprocal"}
            Of the relation; see `RelationValues.constrained`.
        node_relations, object_relations : mapping of str to edges, optional
            Links among nodes or objects, for kernels on graphs; as ``relations`` of
            `PreferenceData.from_tables`.

        Raises
        ------
        DataError
            If anything in the tables cannot be used; the message names the place, the value and the
            remedy.
        """
        first = _nodes(nodes, node_relations)
        second = None if objects is None else _nodes(objects, object_relations)
        values = read_relation(relation, first.labels, None if second is None else second.labels)
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
        distinct = None if symmetry == "none" else constrained.distinct(symmetry)
        return cls(nodes, objects, constrained, symmetry, shift, distinct)

    def answer_groups(self, by: str) -> tuple[NDArray[np.int64], str]:
        """For each distinct edge the number of its pair of nodes, and what a group is called; edges are not grouped otherwise."""
        kept = slice(None) if self.distinct is None else self.distinct
        return self.values.pairs(self.symmetry)[kept], "edge"

    def select_answers(self, chosen: Positions) -> "RelationData":
        """Some of the distinct edges, in both directions."""
        if self.distinct is None:
            return replace(self, values=self.values.select(chosen))
        pairs = self.values.pairs(self.symmetry)
        values = self.values.select(np.flatnonzero(np.isin(pairs, pairs[self.distinct[chosen]])))
        return replace(self, values=values, distinct=values.distinct(self.symmetry))

    def __len__(self) -> int:
        """Return the number of edges."""
        return len(self.values.values)

    def __getitem__(self, chosen: Any) -> "RelationData":
        return self.asking(self.values.rows[chosen], self.values.columns[chosen])

    @property
    def classes(self) -> tuple[int, int]:
        """The two labels that a classifier tells apart."""
        return (-1, 1) if self.symmetry == "reciprocal" and not self.shift else (0, 1)

    @property
    def index(self) -> pd.MultiIndex:
        """Source and target of each edge."""
        sides = (self.nodes, self.objects or self.nodes)
        labels = [pd.Index(side.labels, dtype=object, tupleize_cols=False) for side in sides]
        codes = [self.values.rows, self.values.columns]
        return pd.MultiIndex(labels, codes, names=["source", "target"], verify_integrity=False)

    @property
    def outcomes(self) -> NDArray[np.intp]:
        """Position of the class of each edge."""
        return (np.asarray(self.values.values) > 0).astype(np.intp)

    def asked_of(self, known: "RelationData") -> "RelationData":
        """The edges without their labels, as a program that was fitted to others wants them.

        Landmarks and learned hyperparameters belong to nodes by position, and to attributes as they
        were standardized: the nodes must begin with those that are known, with the same attributes.
        """
        wrong = None
        if self.symmetry != known.symmetry or (self.objects is None) != (known.objects is None):
            wrong = "the relation is of another kind"
        for side in ("nodes", "objects"):
            new, old = getattr(self, side), getattr(known, side)
            if wrong is not None or new is None:
                continue
            number = len(old.attribute_names)
            if new.labels[: old.num_items] != old.labels:
                wrong = f"its {side} do not begin with those of the training data"
            elif new.attribute_names[:number] != old.attribute_names:
                wrong = f"the attributes of its {side} are not those of the training data"
            elif not all(
                np.array_equal(getattr(new, name)[:number], getattr(old, name))
                for name in ("attribute_center", "attribute_scale")
            ):
                wrong = (
                    f"the attributes of its {side} are standardized otherwise than those of "
                    "the training data"
                )
        if wrong is not None:
            raise DataError(
                f"data: {wrong}; ask with posterior.data.extended(new_nodes, "
                "new_objects).asking(rows, columns)"
            )
        return self[:]  # also both directions of a pair

    def without_labels(self) -> "RelationData":
        """The same edges with their labels unobserved, for predictive draws."""
        return replace(self, observed=False)

    def asking(self, rows: Positions, columns: Positions) -> "RelationData":
        """Edges that are asked about in place of the known ones: nodes and objects by position, in any order and one direction."""
        values = RelationValues(self.values.shape, np.zeros(len(rows)), (rows, columns))
        return replace(self, values=values, distinct=None, observed=False)

    def extended(
        self, nodes: pd.DataFrame | None, objects: pd.DataFrame | None = None
    ) -> "RelationData":
        """With new nodes or objects, of which no label is known; standardization stays that of the known ones."""
        first = self.nodes if nodes is None else self.nodes.extend(nodes)
        second = self.objects and (
            self.objects if objects is None else self.objects.extend(objects)
        )
        return self.with_nodes(first, second)

    def with_nodes(
        self, nodes: PreferenceData, objects: PreferenceData | None = None
    ) -> "RelationData":
        """With other nodes and objects, the known ones first, and the same labels."""
        shape = (nodes.num_items, (objects or nodes).num_items)
        values = RelationValues(shape, self.values.values, (self.values.rows, self.values.columns))
        return replace(self, nodes=nodes, objects=objects, values=values)

    def describe(self) -> str:
        """The sizes in one line."""
        p, m = self.values.shape
        kind = "" if self.symmetry == "none" else f", {self.symmetry}"
        known = (
            "complete" if self.values.complete else counted(len(self.values.values), "known label")
        )
        return f"{counted(p, 'conditioning node')}, {counted(m, 'object')}, {known}{kind}"

    def __repr__(self) -> str:
        return f"RelationData({self.describe()})"


def _nodes(table: Any, relations: Mapping[str, Any] | None) -> PreferenceData:
    """Labels, attributes and graphs, and no answers."""
    nodes = assembled(read_item_table(table), relations)
    if not nodes.relations and not nodes.attribute_names:
        raise DataError(
            "nodes: there are neither attributes nor relations, so nothing tells one from another; "
            "give numeric columns"
        )
    return nodes


register(RelationValues, leaves=("values", "edges"), static=("shape",))
register(
    RelationData,
    leaves=("nodes", "objects", "values", "distinct"),
    static=("symmetry", "shift", "observed"),
)
