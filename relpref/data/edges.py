"""Links between positions, tidied: every link or every undirected edge once."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relpref.data.arrays import counted, shown
from relpref.data.columns import NumberColumn
from relpref.data.labels import LabelIndex, Place, joined_places, plain_labels
from relpref.data.tables import Table, check_columns
from relpref.errors import DataError
from relpref.limits import LARGEST_WEIGHT, SMALLEST_WEIGHT

Label = Callable[[int], object]

_WEIGHT_REMEDY = "write a positive number, or leave the column weight out (every weight is 1 then)"


@dataclass(frozen=True, eq=False)
class Edges:
    """Links between positions of entities, as they were given.

    Attributes
    ----------
    source, target : array of int32, shape (e,)
        Positions of the ends.
    weight : array of float64, shape (e,)
        Weights.
    where : callable
        Maps a link to the words that name its place in a message.
    """

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    weight: NDArray[np.float64]
    where: Place

    def chosen(self, kept: NDArray[Any]) -> "Edges":
        """Return some of the links: a mask or positions."""
        rows = np.arange(self.source.size)[kept]
        where = self.where
        return Edges(
            self.source[rows], self.target[rows], self.weight[rows], lambda row: where(int(rows[row]))
        )


class TargetIndex:
    """What the entities of a bipartite relation link to, in order of appearance; it grows.

    Parameters
    ----------
    entities : LabelIndex
        Labels that a target must not have.
    known : iterable of hashable
        Targets so far.
    """

    def __init__(self, entities: LabelIndex, known: Iterable[Hashable] = ()) -> None:
        self._entities = entities.positions
        self.positions = {label: position for position, label in enumerate(known)}

    @property
    def labels(self) -> tuple[Hashable, ...]:
        return tuple(self.positions)

    def locate(self, labels: Sequence[Hashable], where: Place) -> NDArray[np.int32]:
        """Return the position of each label, adding those that are new."""
        if not self._entities.keys().isdisjoint(labels):
            row = next(row for row, label in enumerate(labels) if label in self._entities)
            raise DataError(
                f"{where(row)}: {shown(labels[row])} is an entity, but a bipartite relation links entities to something else; "
                'if entities link to each other use kind="directed" or "undirected", otherwise rename the targets'
            )
        for label in dict.fromkeys(labels):
            self.positions.setdefault(label, len(self.positions))
        return np.fromiter(map(self.positions.__getitem__, labels), dtype=np.int32, count=len(labels))


def ends_of(
    source: Iterable[Any],
    target: Iterable[Any],
    entities: LabelIndex,
    targets: TargetIndex | None,
    at_source: Place,
    at_target: Place,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the positions of both ends of every link; the targets are entities if there are no others."""
    remedy = "correct the label, add it to the entities, or drop the row"
    starts = entities.locate(plain_labels(source, at_source), at_source, remedy)
    ends = plain_labels(target, at_target)
    if targets is None:
        return starts, entities.locate(ends, at_target, remedy)
    return starts, targets.locate(ends, at_target)


def edges_from_tables(
    tables: Iterable[Table], entities: LabelIndex, targets: TargetIndex | None = None
) -> Edges:
    """Read the columns source, target and, if there, weight."""
    pieces: list[Edges] = []
    weights: NumberColumn | None = None
    for table in tables:
        check_columns(table, ("source", "target"), ("weight",))
        frame = table.frame
        if len(frame) == 0:
            raise DataError(
                f"{table.name}: the table has no rows; give at least one edge or leave the relation out"
            )
        places = (_in_column(table.place, column) for column in ("source", "target"))
        ends = ends_of(frame["source"], frame["target"], entities, targets, *places)
        weights = weights or NumberColumn("weight", text=table.text, remedy=_WEIGHT_REMEDY)
        if "weight" in frame.columns:
            weight = weights.read(frame["weight"], table.place)
        else:
            weight = np.ones(len(frame))
        pieces.append(Edges(*ends, weight, table.place))
    return pieces[0] if len(pieces) == 1 else _joined(pieces)


def _joined(pieces: Sequence[Edges]) -> Edges:
    where = joined_places([piece.source.size for piece in pieces], [piece.where for piece in pieces])
    source, target, weight = (
        np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("source", "target", "weight")
    )
    return Edges(source, target, weight, where)


def _in_column(place: Place, column: str) -> Place:
    return lambda row: f"{place(row)}, column {column!r}"


def undirected(edges: Edges, name: str, label: Label, *, explicit: bool) -> tuple[Edges, tuple[str, ...]]:
    """Turn links into undirected edges that occur once.

    Links of weight 0 and from a node to itself are dropped; the same link given twice is one edge.
    """
    edges, notes = _positive(edges, name, loops=False)
    before = edges.source.size
    edges = _merge(edges, name, label, explicit=explicit)
    return edges, notes + _repeated(name, before - edges.source.size)


def directed(
    edges: Edges, name: str, labels: tuple[Label, Label], *, loops: bool
) -> tuple[Edges, tuple[str, ...]]:
    """Keep every link from a source to a target once."""
    edges, notes = _positive(edges, name, loops=loops)
    order = _order(edges.source, edges.target)
    source, target, weight = edges.source[order], edges.target[order], edges.weight[order]
    same = (source[1:] == source[:-1]) & (target[1:] == target[:-1])
    _refuse_conflict(edges, order, same & (weight[1:] != weight[:-1]), labels)
    return edges.chosen(order[np.concatenate([[True], ~same])]), notes + _repeated(name, int(same.sum()))


def _positive(edges: Edges, name: str, *, loops: bool) -> tuple[Edges, tuple[str, ...]]:
    """Drop links without weight and, unless they are wanted, from a node to itself."""
    notes = []
    _check_weights(edges)
    edges, dropped = _keep(edges, edges.weight > 0)
    if dropped:
        notes.append(f"{name}: {counted(dropped, 'edge')} of weight 0 left out")
    if not loops:
        edges, dropped = _keep(edges, edges.source != edges.target)
        if dropped:
            notes.append(f"{name}: {counted(dropped, 'link')} from an entity to itself left out")
    if edges.source.size == 0:
        raise DataError(
            f"{name}: no edge is left (only loops or zero weights); add edges or leave the relation out"
        )
    return edges, tuple(notes)


def _repeated(name: str, dropped: int) -> tuple[str, ...]:
    return (f"{name}: {counted(dropped, 'repeated edge')} counted once",) if dropped else ()


def _refuse_conflict(
    edges: Edges, order: NDArray[Any], conflict: NDArray[np.bool_], labels: tuple[Label, Label]
) -> None:
    """Refuse two weights of one link; ``conflict`` marks those that differ from the one before in ``order``."""
    if not conflict.any():
        return
    at = int(np.argmax(conflict))
    first, second = sorted((int(order[at]), int(order[at + 1])))
    source, target = (
        shown(label(int(end[second])))
        for label, end in zip(labels, (edges.source, edges.target), strict=True)
    )
    raise DataError(
        f"{edges.where(second)}: the edge from {source} to {target} has the weight {edges.weight[second]}, but the weight "
        f"{edges.weight[first]} at {edges.where(first)}; keep one of the two rows"
    )


def _check_weights(edges: Edges) -> None:
    weight = edges.weight
    for wrong, words in (
        (weight < 0, "is negative; weights of edges are positive"),
        (
            (weight > LARGEST_WEIGHT) | ((weight > 0) & (weight < SMALLEST_WEIGHT)),
            f"is not between {SMALLEST_WEIGHT} and {LARGEST_WEIGHT}; rescale the weights",
        ),
    ):
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(f"{edges.where(row)}: the weight {weight[row]} {words}")


def _order(first: NDArray[Any], second: NDArray[Any], third: NDArray[Any] | int = 0) -> NDArray[np.int64]:
    """Stable order of rows by two positions (below 2**31) and a bit, sorted as one number."""
    key = first.astype(np.int64) << 32
    key |= second.astype(np.int64) << 1
    key |= third
    return np.argsort(key, kind="stable")


def _keep(edges: Edges, kept: NDArray[np.bool_]) -> tuple[Edges, int]:
    dropped = int(kept.size - kept.sum())
    return (edges.chosen(kept) if dropped else edges), dropped


def _merge(edges: Edges, name: str, label: Label, *, explicit: bool) -> Edges:
    """Keep one link per edge, source < target, sorted; the heavier one where the directions differ."""
    low, high = np.minimum(edges.source, edges.target), np.maximum(edges.source, edges.target)
    backward = edges.source > edges.target
    # Links of one edge next to each other, forward ones first, each direction in the order of the rows.
    order = _order(low, high, backward)
    low, high, backward, weight = low[order], high[order], backward[order], edges.weight[order]
    same = (low[1:] == low[:-1]) & (high[1:] == high[:-1])
    other = same & (weight[1:] != weight[:-1])
    _refuse_conflict(edges, order, other & (backward[1:] == backward[:-1]), (label, label))
    if other.any() and not explicit:
        at = int(np.argmax(other))
        there, back = int(order[at]), int(order[at + 1])
        raise DataError(
            f"{name}: the edge between {shown(label(int(low[at])))} and {shown(label(int(high[at])))} has the weight "
            f"{edges.weight[there]} ({edges.where(there)}) in one direction and {edges.weight[back]} "
            f"({edges.where(back)}) in the other; {how_to_say_the_kind()}"
        )
    first_of_edge = np.concatenate([[True], ~same])
    heaviest = np.maximum.reduceat(weight, np.flatnonzero(first_of_edge))
    rows = order[first_of_edge]
    where = edges.where
    return Edges(low[first_of_edge], high[first_of_edge], heaviest, lambda row: where(int(rows[row])))


def how_to_say_the_kind() -> str:
    """Return the remedy for a relation whose directions differ."""
    return (
        'say what that means: Relation(table, kind="directed") if it matters who links to whom, or '
        'Relation(table, kind="undirected"), which takes the larger weight of the two directions '
        "(on the command line, end the file with :directed or :undirected)"
    )
