"""Links between positions, tidied: every link or every undirected edge once."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relpref.data.arrays import counted, refuse_first, shown
from relpref.data.columns import NumberColumn
from relpref.data.labels import GrowingIndex, LabelIndex, Place, joined_places, plain_labels
from relpref.data.tables import Table, check_columns
from relpref.errors import DataError
from relpref.limits import LARGEST_WEIGHT, SMALLEST_WEIGHT

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


class TargetIndex(GrowingIndex):
    """What the entities of a bipartite relation link to, in order of appearance.

    Parameters
    ----------
    entities : LabelIndex
        Labels that a target must not have.
    known : iterable of hashable
        Targets so far.
    """

    def __init__(self, entities: LabelIndex, known: Iterable[Hashable] = ()) -> None:
        super().__init__(known)
        self._entities = entities.positions

    def locate(self, labels: Sequence[Hashable], where: Place, remedy: str) -> NDArray[np.int32]:
        if not self._entities.keys().isdisjoint(labels):
            row = next(row for row, label in enumerate(labels) if label in self._entities)
            raise DataError(
                f"{where(row)}: {shown(labels[row])} is an entity, but a bipartite relation links entities to something else; "
                'if entities link to each other use kind="directed" or "undirected", otherwise rename the targets'
            )
        return super().locate(labels, where, remedy)


def ends_of(
    source: Iterable[Any],
    target: Iterable[Any],
    entities: LabelIndex,
    targets: LabelIndex,
    places: Iterable[Place],
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the positions of both ends of every link, among the entities and the targets, which may be the same."""
    remedy = "correct the label, add it to the entities, or drop the row"
    first, second = (
        index.locate(plain_labels(labels, where), where, remedy)
        for labels, index, where in zip((source, target), (entities, targets), places, strict=True)
    )
    return first, second


def edges_from_tables(tables: Iterable[Table], entities: LabelIndex, targets: LabelIndex) -> Edges:
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
        places = table.cell("source"), table.cell("target")
        ends = ends_of(frame["source"], frame["target"], entities, targets, places)
        weights = weights or NumberColumn("weight", text=table.text, remedy=_WEIGHT_REMEDY)
        given = "weight" in frame.columns
        weight = weights.read(frame["weight"], table.place) if given else np.ones(len(frame))
        pieces.append(Edges(*ends, weight, table.place))
    if len(pieces) == 1:
        return pieces[0]
    where = joined_places([piece.source.size for piece in pieces], [piece.where for piece in pieces])
    source, target, weight = (
        np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("source", "target", "weight")
    )
    return Edges(source, target, weight, where)


def tidied(
    edges: Edges,
    name: str,
    labels: tuple[Sequence[Any], Sequence[Any]],
    kind: str | None,
) -> tuple[Edges, tuple[str, ...]]:
    """Return every link, or every undirected edge (source < target), once and sorted; and what was dropped or merged.

    Links of weight 0 are dropped, and those from a node to itself unless the ends are of two kinds. Two weights of one link
    are refused. Where the two directions of an edge differ, the larger weight counts if the user has said that the relation
    is undirected (``kind`` is not None).
    """
    notes = []
    weight = edges.weight
    refuse_first(
        weight < 0,
        lambda row: (
            f"{edges.where(row)}: the weight {weight[row]} is negative; weights of edges are positive"
        ),
    )
    refuse_first(
        (weight > LARGEST_WEIGHT) | ((weight > 0) & (weight < SMALLEST_WEIGHT)),
        lambda row: (
            f"{edges.where(row)}: the weight {weight[row]} is not between {SMALLEST_WEIGHT} and {LARGEST_WEIGHT}; "
            "rescale the weights"
        ),
    )
    weightless = weight == 0
    loops = (edges.source == edges.target) & ~weightless & (kind != "bipartite")
    for dropped, what in ((weightless, "edge"), (loops, "link")):
        if dropped.any():
            why = "of weight 0" if what == "edge" else "from an entity to itself"
            notes.append(f"{name}: {counted(int(dropped.sum()), what)} {why} left out")
    usable = ~(weightless | loops)
    if not usable.any():
        raise DataError(
            f"{name}: no edge is left (only loops or zero weights); add edges or leave the relation out"
        )
    edges = edges if usable.all() else edges.chosen(usable)
    undirected = kind in (None, "undirected")
    order, first = _groups(edges, undirected=undirected)
    starts = np.flatnonzero(first)
    if not first.all():
        _refuse_conflicts(edges, name, order, first, labels, kind)
        notes.append(f"{name}: {counted(int((~first).sum()), 'repeated edge')} counted once")
    rows = order[first]
    ends = edges.source[rows], edges.target[rows]
    if undirected:
        ends = np.minimum(*ends), np.maximum(*ends)
    where = edges.where
    heaviest = np.maximum.reduceat(edges.weight[order], starts)
    return Edges(*ends, heaviest, lambda row: where(int(rows[row]))), tuple(notes)


def _groups(edges: Edges, *, undirected: bool) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """An order in which equal edges follow one another, forward ones first, and which of them is the first of its kind."""
    source, target = edges.source.astype(np.int64), edges.target.astype(np.int64)
    if undirected:
        source, target, backward = np.minimum(source, target), np.maximum(source, target), source > target
    key = (source << 32) | (target << 1)  # positions are below 2**31
    order = np.argsort(key | backward if undirected else key, kind="stable")
    key = key[order]
    return order, np.concatenate([[True], key[1:] != key[:-1]])


def _refuse_conflicts(
    edges: Edges,
    name: str,
    order: NDArray[np.int64],
    first: NDArray[np.bool_],
    labels: tuple[Sequence[Any], Sequence[Any]],
    kind: str | None,
) -> None:
    """Refuse two weights of one link, or of the two directions of an edge if nobody said what these mean."""
    source, target, weight = edges.source[order], edges.target[order], edges.weight[order]
    differs = ~first[1:] & (weight[1:] != weight[:-1])
    turned = source[1:] != source[:-1]

    def twice(at: int) -> str:
        one, other = sorted((int(order[at]), int(order[at + 1])))
        ends = shown(labels[0][edges.source[other]]), shown(labels[1][edges.target[other]])
        return (
            f"{edges.where(other)}: the edge from {ends[0]} to {ends[1]} has the weight {edges.weight[other]}, but the weight "
            f"{edges.weight[one]} at {edges.where(one)}; keep one of the two rows"
        )

    def both_ways(at: int) -> str:
        there, back = int(order[at]), int(order[at + 1])
        return (
            f"{name}: the edge between {shown(labels[0][source[at]])} and {shown(labels[0][target[at]])} has the weight "
            f"{edges.weight[there]} ({edges.where(there)}) in one direction and {edges.weight[back]} "
            f"({edges.where(back)}) in the other; {how_to_say_the_kind()}"
        )

    refuse_first(differs & ~turned, twice)
    if kind is None:
        refuse_first(differs, both_ways)


def how_to_say_the_kind() -> str:
    """Return the remedy for a relation whose directions differ."""
    return (
        'say what that means: Relation(table, kind="directed") if it matters who links to whom, or '
        'Relation(table, kind="undirected"), which takes the larger weight of the two directions '
        "(on the command line, end the file with :directed or :undirected)"
    )
