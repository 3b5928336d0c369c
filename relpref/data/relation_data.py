"""Nodes, objects and the known labels of the relation between them, for numpyro programs."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.sparse import coo_array, issparse

from relpref.data.arrays import Floats, Indices, Integers, Labels, counted, refuse_first
from relpref.data.items import read_item_table
from relpref.data.labels import LabelIndex, read_labels
from relpref.data.preference import PreferenceData, assembled
from relpref.data.relation import Relations
from relpref.data.tables import Table, as_table, check_columns
from relpref.errors import DataError
from relpref.pytree import register

Symmetry = Literal["none", "symmetric", "reciprocal"]

SIGN: dict[str, float] = {"none": 0.0, "symmetric": 1.0, "reciprocal": -1.0}  # h(v, w) = ± h(w, v)
_TOLERANCE = 1e-9  # of labels that should be equal, relative to the largest


@dataclass(frozen=True, eq=False)
class RelationValues:
    """Labels of some or all pairs of p conditioning nodes and m objects, row by row."""

    shape: tuple[int, int]
    values: Floats
    # Conditioning node and object of each label; a pair may occur several times. None where every
    # pair occurs exactly once.
    edges: tuple[Indices, Indices] | None = None

    @classmethod
    def of_matrix(cls, matrix: Floats) -> "RelationValues":
        """Make them of a (p, m) array, NaN = unobserved."""
        observed = ~np.isnan(matrix)
        if observed.all():
            return cls(matrix.shape, np.ascontiguousarray(matrix).reshape(-1))
        rows, columns = np.nonzero(observed)
        return cls(matrix.shape, matrix[rows, columns], (rows, columns))

    @classmethod
    def of_edges(
        cls, shape: tuple[int, int], rows: Indices, columns: Indices, values: Floats
    ) -> "RelationValues":
        """Make them of edges in any order, repeated or not."""
        order = np.lexsort((columns, rows))
        rows = rows[order]
        columns = columns[order]
        values = values[order]
        flat = rows * shape[1] + columns
        complete = len(flat) == shape[0] * shape[1] and bool(np.all(flat == np.arange(len(flat))))
        return cls(shape, values, None if complete else (rows, columns))

    @property
    def complete(self) -> bool:
        return self.edges is None

    @property
    def rows(self) -> Indices:
        """Conditioning node of each observed pair, shape (q,)."""
        return np.indices(self.shape)[0].reshape(-1) if self.edges is None else self.edges[0]

    @property
    def columns(self) -> Indices:
        """Object of each observed pair, shape (q,)."""
        return np.indices(self.shape)[1].reshape(-1) if self.edges is None else self.edges[1]

    @cached_property
    def row_counts(self) -> Indices:
        """Number of labels of each conditioning node, shape (p,)."""
        return np.bincount(self.rows, minlength=self.shape[0])

    @cached_property
    def varies(self) -> bool:
        """Whether any conditioning node has two different labels."""
        return bool(np.any((np.diff(self.rows) == 0) & (np.diff(self.values) != 0)))

    @property
    def matrix(self) -> Floats:
        """Labels as a (p, m) array, where they are complete."""
        return self.values.reshape(self.shape)

    @cached_property
    def mean_matrix(self) -> Floats:
        """Average label of every pair, shape (p, m); NaN where there is none."""
        if self.complete:
            return self.matrix
        ends = self.rows, self.columns
        sums, counts = (
            coo_array((each, ends), self.shape).toarray()
            for each in (self.values, np.ones(len(self.values)))
        )
        with np.errstate(invalid="ignore"):
            return np.asarray(sums / counts)

    def same_edges(self, other: "RelationValues") -> bool:
        """Whether the labels of another relation are of the same pairs, in the same order."""
        return (
            self.shape == other.shape
            and self.complete == other.complete
            and np.array_equal(self.rows, other.rows)
            and np.array_equal(self.columns, other.columns)
        )

    def pairs(self, symmetry: Symmetry) -> Integers:
        """Number of each edge's pair of nodes, the same in both directions under a constraint."""
        rows = self.rows
        columns = self.columns
        if symmetry != "none":
            rows, columns = np.minimum(rows, columns), np.maximum(rows, columns)
        return np.asarray(rows * self.shape[1] + columns, dtype=np.int64)

    def distinct(self, symmetry: Symmetry) -> Indices:
        """Indices of edges that a constraint does not imply: v ≤ w, or v < w if reciprocal."""
        if symmetry == "none":
            return np.arange(len(self.values))
        gap = self.columns - self.rows
        return np.flatnonzero(gap >= 0 if symmetry == "symmetric" else gap > 0)

    def transposed(self) -> "RelationValues":
        """Return the relation with the objects as conditioning nodes."""
        if self.complete:
            return RelationValues.of_matrix(np.ascontiguousarray(self.matrix.T))
        return RelationValues.of_edges(self.shape[::-1], self.columns, self.rows, self.values)

    def select(self, chosen: Any) -> "RelationValues":
        """Return some of the edges, chosen by positions or a mask."""
        return RelationValues.of_edges(
            self.shape, self.rows[chosen], self.columns[chosen], self.values[chosen]
        )

    def subset(self, nodes: Indices, objects: Indices) -> "RelationValues":
        """Return the relation among some nodes and objects, renumbered in the order given."""
        if self.complete:
            return RelationValues.of_matrix(self.matrix[np.ix_(nodes, objects)])
        row_of = np.full(self.shape[0], -1)
        column_of = np.full(self.shape[1], -1)
        row_of[nodes], column_of[objects] = np.arange(len(nodes)), np.arange(len(objects))
        rows = row_of[self.rows]
        columns = column_of[self.columns]
        kept = (rows >= 0) & (columns >= 0)
        shape = (len(nodes), len(objects))
        return RelationValues.of_edges(shape, rows[kept], columns[kept], self.values[kept])

    def constrained(self, symmetry: Symmetry) -> tuple["RelationValues", float]:
        """Return the labels of a constrained relation in both directions, less a shift, and that.

        A pair known in one direction only is known in the other, too (CR10 section 3). If some edge
        occurs several times, edges are measurements, such as games, and may contradict each other;
        otherwise contradictions are refused. Reciprocal labels where Q(v, w) + Q(w, v) = 1 are
        shifted by ½, antisymmetric ones are not; where no pair is known in both directions, labels
        in [0, 1] are taken for the first kind.
        """
        if symmetry not in SIGN:
            raise DataError(f"symmetry is {symmetry!r}; it is one of {', '.join(SIGN)}")
        if symmetry == "none":
            return self, 0.0
        if self.shape[0] != self.shape[1]:
            raise DataError(
                f"symmetry is {symmetry!r}, but the relation is between {self.shape[0]} nodes and "
                f"{self.shape[1]} objects; only a relation of one set of nodes with itself can be"
            )
        sign = SIGN[symmetry]
        opposites = self._opposites()
        shift = self._center(*opposites) if symmetry == "reciprocal" else 0.0
        shifted = replace(self, values=self.values - shift)
        if self._repeated:  # only loops can contradict the constraint
            opposites = (np.flatnonzero(self.rows == self.columns),) * 2
        shifted._check_constraint(*opposites, sign, shift)
        return shifted._both_ways(sign), shift

    def _opposites(self) -> tuple[Indices, Indices]:
        """Indices of edges that occur once in each direction, and of their opposites.

        An edge from a node to itself is its own opposite.
        """
        if self.complete:
            edges = np.arange(len(self.values))
            return edges, edges.reshape(self.shape).T.reshape(-1)
        pairs = pd.Index(self.pairs("none"))
        edges = np.flatnonzero(~pairs.duplicated(keep=False))
        opposite = pairs[edges].get_indexer(self.columns[edges] * self.shape[1] + self.rows[edges])
        return edges[opposite >= 0], edges[opposite[opposite >= 0]]

    def _center(self, edge: Indices, opposite: Indices) -> float:
        """Half of the usual sum of the labels of two nodes in both directions: ½ or 0."""
        sums = (self.values[edge] + self.values[opposite])[edge != opposite]
        if len(sums):
            middle = float(np.median(sums))
            return 0.5 if abs(middle - 1) < abs(middle) else 0.0
        return 0.5 if np.all((self.values >= 0) & (self.values <= 1)) else 0.0

    def _check_constraint(
        self, edge: Indices, opposite: Indices, sign: float, shift: float
    ) -> None:
        """Refuse labels that contradict the constraint."""
        gap = np.abs(self.values[edge] - sign * self.values[opposite])
        if gap.max(initial=0.0) > self._tolerance:
            worst = int(np.argmax(gap))
            row = self.rows[edge[worst]]
            column = self.columns[edge[worst]]
            kind = "symmetric"
            remedy = "(Y + Y.T) / 2 (labels of two classes: decide each pair)"
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
    def _tolerance(self) -> float:
        """Difference up to which two labels count as equal."""
        return _TOLERANCE * max(1.0, float(np.abs(self.values).max(initial=0.0)))

    @property
    def _repeated(self) -> bool:
        """Whether some pair occurs several times, so that edges are measurements."""
        pairs = self.pairs("none")
        return not self.complete and len(np.unique(pairs)) < len(pairs)

    def _both_ways(self, sign: float) -> "RelationValues":
        """Return every measurement in both directions.

        Labels of (v, w) and (w, v) that are equal were given in both directions; otherwise each is
        a measurement of its own. If any pair occurs several times, all pairs count as given in both
        directions or none does.
        """
        if self.complete:
            return self
        apart = np.flatnonzero(self.rows != self.columns)
        forward = (self.rows < self.columns)[apart]
        table = pd.DataFrame(
            {
                "pair": self.pairs("symmetric")[apart],
                "forward": forward,
                "value": np.where(forward, 1.0, sign) * self.values[apart],
            }
        )
        table["rank"] = table.groupby(["pair", "forward"])["value"].rank(method="first")
        sides = table.pivot(index=["pair", "rank"], columns="forward", values="value")
        sides = sides.reindex(columns=[True, False])
        equal = (sides[True] - sides[False]).abs() <= self._tolerance
        given_twice = equal.groupby(level="pair").all()
        if self._repeated:
            given_twice &= given_twice.all()
        single = apart[~given_twice.loc[table["pair"]].to_numpy(dtype=bool)]
        return RelationValues.of_edges(
            self.shape,
            np.concatenate([self.rows, self.columns[single]]),
            np.concatenate([self.columns, self.rows[single]]),
            np.concatenate([self.values, sign * self.values[single]]),
        )


EDGE_COLUMNS = ("source", "target", "value")


def read_relation(relation: Any, nodes: Labels, objects: Labels | None = None) -> RelationValues:
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
        values = _labeled(relation, nodes, others)
    elif issparse(relation):
        entries = coo_array(relation)
        _check_shape(entries.shape, shape)
        rows, columns = (end.astype(np.intp) for end in entries.coords)
        values = RelationValues.of_edges(shape, rows, columns, entries.data.astype(np.float64))
    else:
        try:
            matrix = np.array(relation, dtype=np.float64)  # a copy, which the caller cannot change
        except (TypeError, ValueError):
            raise DataError(
                "relation: expected an array of numbers, a DataFrame or an edge table with the "
                f"columns {', '.join(EDGE_COLUMNS)}, got {type(relation).__name__}"
            ) from None
        _check_shape(matrix.shape, shape)
        values = RelationValues.of_matrix(matrix)
    refuse_first(
        ~np.isfinite(values.values),
        lambda at: (
            f"relation: row {values.rows[at]}, column {values.columns[at]} is {values.values[at]}; "
            "use NaN for what is not known, and leave it out of a sparse matrix"
        ),
    )
    if not len(values.values):
        raise DataError("relation: not one label is known; give at least one value")
    values.values.flags.writeable = False
    return values


def _check_shape(given: tuple[int, ...], shape: tuple[int, int]) -> None:
    if tuple(given) != shape:
        raise DataError(
            f"relation: the array has the shape {tuple(given)}; "
            f"{counted(shape[0], 'conditioning node')} and "
            f"{counted(shape[1], 'object')} need {shape} (rows are conditioning nodes)"
        )


def _labeled(relation: Table | pd.DataFrame, nodes: Labels, others: Labels) -> RelationValues:
    """Read an edge table, or a matrix with labels in any order; nodes it lacks are unobserved."""
    first = LabelIndex(nodes, "node {}".format)
    second = LabelIndex(others, "object {}".format)
    shape = (len(nodes), len(others))
    table = as_table(relation, "relation")
    columns = table.columns
    # Columns are those of an edge table, or most likely meant to be, and not labels of objects.
    meant = bool(set(EDGE_COLUMNS) & set(map(str, columns))) and not set(columns) <= set(others)
    if table is relation or meant:
        check_columns(table, EDGE_COLUMNS, ())
        rows, targets = (
            index.locate(
                table.labels(name),
                table.cell(name),
                f"every {name} must be one of the labels given",
            ).astype(np.intp)
            for name, index in (("source", first), ("target", second))
        )
        values = table.numbers("value", "leave out rows not known")
        return RelationValues.of_edges(shape, rows, targets, values)
    rows = _located(table.frame.index, first, "row")
    matrix = np.full(shape, np.nan)
    for name, column in zip(columns, _located(columns, second, "column"), strict=True):
        cells = np.flatnonzero(~table.blank(name))
        matrix[rows[cells], column] = table.numbers(name, "give numbers", cells)
    return RelationValues.of_matrix(matrix)


def _located(labels: Any, index: LabelIndex, kind: str) -> Indices:
    """Return the positions of a matrix's labels, none of which may occur twice."""
    where = f"relation, {kind} {{}}".format
    distinct = LabelIndex(read_labels(labels, where), where).labels
    remedy = f"the labels of the relation's {kind}s must be those of the nodes"
    return index.locate(distinct, where, remedy).astype(np.intp)


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

    Examples
    --------
    >>> import numpy as np
    >>> from relpref import RelationData
    >>> players = {"speed": [0.0, 1.0, 2.0, 3.0]}
    >>> games = np.arange(16.0).reshape(4, 4)
    >>> data = RelationData.from_tables(players, games)
    >>> len(data.nodes.labels)
    4
    """

    nodes: PreferenceData
    objects: PreferenceData | None
    values: RelationValues
    symmetry: Symmetry = "none"
    shift: float = 0.0
    distinct: Indices | None = None
    observed: bool = True

    @classmethod
    def from_tables(
        cls,
        nodes: Any,
        relation: Any,
        objects: Any = None,
        *,
        symmetry: Symmetry = "none",
        node_relations: Relations = None,
        object_relations: Relations = None,
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
            Constraint of the relation; see `RelationValues.constrained`.
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
        """Make data of nodes, labels and objects that are read; errors are as of `from_tables`."""
        constrained, shift = values.constrained(symmetry)
        distinct = None if symmetry == "none" else constrained.distinct(symmetry)
        return cls(nodes, objects, constrained, symmetry, shift, distinct)

    def answer_groups(self, by: str) -> tuple[Integers, str]:
        """Return the number of each distinct edge's pair of nodes, and what a group is called.

        Edges are not grouped otherwise.
        """
        kept = slice(None) if self.distinct is None else self.distinct
        return self.values.pairs(self.symmetry)[kept], "edge"

    def select_answers(self, chosen: Indices) -> "RelationData":
        """Return the data with some of the distinct edges, in both directions."""
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
    def outcomes(self) -> Indices:
        """Position of the class of each edge."""
        return (np.asarray(self.values.values) > 0).astype(np.intp)

    def asked_of(self, known: "RelationData") -> "RelationData":
        """Return the edges without labels, for a program that was fitted to ``known`` data.

        Landmarks and learned hyperparameters belong to nodes by position, and to attributes as they
        were standardized: the nodes must begin with those that are known, with the same attributes.
        """
        reason = self._mismatch(known)
        if reason:
            raise DataError(
                f"data: {reason}; ask with posterior.data.extended(new_nodes, "
                "new_objects).asking(rows, columns)"
            )
        return self[:]  # also both directions of a pair

    def _mismatch(self, known: "RelationData") -> str:
        """Say why a program that was fitted to known data cannot predict these; "" if it can."""
        if self.symmetry != known.symmetry or (self.objects is None) != (known.objects is None):
            return "the relation is of another kind"
        for side in ("nodes", "objects"):
            new = getattr(self, side)
            old = getattr(known, side)
            if new is None:
                continue
            number = len(old.attribute_names)
            if new.labels[: old.num_items] != old.labels:
                return f"its {side} do not begin with those of the training data"
            if new.attribute_names[:number] != old.attribute_names:
                return f"the attributes of its {side} are not those of the training data"
            for name in ("attribute_center", "attribute_scale"):
                if not np.array_equal(getattr(new, name)[:number], getattr(old, name)):
                    return (
                        f"the attributes of its {side} are standardized otherwise than those of "
                        "the training data"
                    )
        return ""

    def without_labels(self) -> "RelationData":
        """Return the same edges with their labels unobserved, for predictive draws."""
        return replace(self, observed=False)

    def asking(self, rows: Indices, columns: Indices) -> "RelationData":
        """Return edges to ask about in place of the known ones, in any order and one direction.

        ``rows`` and ``columns`` are positions of nodes and objects.
        """
        values = RelationValues(self.values.shape, np.zeros(len(rows)), (rows, columns))
        return replace(self, values=values, distinct=None, observed=False)

    def extended(
        self, nodes: pd.DataFrame | None, objects: pd.DataFrame | None = None
    ) -> "RelationData":
        """Return the data with new nodes or objects without labels; standardization stays."""
        first = self.nodes if nodes is None else self.nodes.extend(nodes)
        second = self.objects and (
            self.objects if objects is None else self.objects.extend(objects)
        )
        return self.with_nodes(first, second)

    def with_nodes(
        self, nodes: PreferenceData, objects: PreferenceData | None = None
    ) -> "RelationData":
        """Return the same labels with other nodes and objects, which begin with these."""
        shape = (nodes.num_items, (objects or nodes).num_items)
        values = RelationValues(shape, self.values.values, (self.values.rows, self.values.columns))
        return replace(self, nodes=nodes, objects=objects, values=values)

    def describe(self) -> str:
        """Return the sizes in one line."""
        p, m = self.values.shape
        kind = "" if self.symmetry == "none" else f", {self.symmetry}"
        labels = counted(len(self.values.values), "known label")
        labels = "complete" if self.values.complete else labels
        return f"{counted(p, 'conditioning node')}, {counted(m, 'object')}, {labels}{kind}"

    def __repr__(self) -> str:
        return f"RelationData({self.describe()})"


def _nodes(table: Any, relations: Relations) -> PreferenceData:
    """Read nodes: labels, attributes and graphs, and no answers."""
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
