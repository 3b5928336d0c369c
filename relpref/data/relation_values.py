"""The labels of a relation: what is known of each pair of a conditioning node and an object."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relpref.errors import DataError

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]
Symmetry = Literal["none", "symmetric", "reciprocal"]

SIGN: dict[str, float] = {"none": 0.0, "symmetric": 1.0, "reciprocal": -1.0}  # h(v, w) = ± h(w, v)
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

    def same_edges(self, other: "RelationValues") -> bool:
        """Whether the labels of another relation are of the same pairs, in the same order."""
        if self.shape != other.shape or len(self.values) != len(other.values):
            return False
        if self.edges is None or other.edges is None:
            return self.edges is other.edges
        return all(np.array_equal(*ends) for ends in zip(self.edges, other.edges, strict=True))

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
        if symmetry not in SIGN:
            raise DataError(f"symmetry is {symmetry!r}; it is one of {', '.join(SIGN)}")
        if symmetry == "none":
            return self, 0.0
        if self.shape[0] != self.shape[1]:
            raise DataError(
                f"symmetry is {symmetry!r}, but the relation is between {self.shape[0]} nodes and {self.shape[1]} objects; "
                "only a relation of one set of nodes with itself can be"
            )
        sign = SIGN[symmetry]
        shift = self._centre() if symmetry == "reciprocal" else 0.0
        shifted = replace(self, values=self.values - shift)
        shifted._check_constraint(sign, shift)
        return shifted._both_ways(sign), shift

    def _opposites(self) -> tuple[Positions, Positions]:
        """Edges, by position, of pairs that occur once in each direction, and the edges opposite to them; a loop is its own."""
        m = self.shape[1]
        if self.complete:
            return np.arange(len(self.values)), np.arange(len(self.values)).reshape(self.shape).T.reshape(-1)
        keys, place, counts = np.unique(self.rows * m + self.columns, return_index=True, return_counts=True)
        keys, place = keys[counts == 1], place[counts == 1]
        back = self.columns[place] * m + self.rows[place]
        found = np.minimum(np.searchsorted(keys, back), len(keys) - 1)
        there = keys[found] == back if len(keys) else np.zeros(0, dtype=bool)
        return place[there], place[found[there]]

    def _centre(self) -> float:
        """Half of what the labels of two nodes in both directions add up to: ½ or 0."""
        edge, opposite = self._opposites()
        sums = (self.values[edge] + self.values[opposite])[edge != opposite]
        if len(sums):
            middle = float(np.median(sums))
            return 0.5 if abs(middle - 1) < abs(middle) else 0.0
        return 0.5 if self.values.min(initial=0.0) >= 0 and self.values.max(initial=0.0) <= 1 else 0.0

    def _check_constraint(self, sign: float, shift: float) -> None:
        """Refuse labels that contradict the constraint.

        Where pairs were measured repeatedly, only loops can: the label of a node with itself under a reciprocal relation.
        """
        edge, opposite = self._opposites()
        if self._repeated:
            edge = opposite = np.flatnonzero(self.rows == self.columns)
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
                f"relation: it is not {kind}: ({row}, {column}) is {self.values[edge[worst]] + shift:.6g} and ({column}, {row}) is "
                f"{self.values[opposite[worst]] + shift:.6g}; give {remedy}, or symmetry='none'"
            )

    @property
    def _repeated(self) -> bool:
        """Whether some pair occurs several times: a list of measurements."""
        return not self.complete and len(np.unique(self.rows * self.shape[1] + self.columns)) < len(
            self.values
        )

    def _both_ways(self, sign: float) -> "RelationValues":
        """Every measurement in both directions.

        Where the labels of (v, w) and of (w, v) are the same ones they were given in both directions; otherwise each is a
        measurement of its own. In a list of measurements that is said of all pairs or of none.
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
