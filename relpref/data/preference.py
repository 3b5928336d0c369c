"""Pairwise answers about entities with attributes and relations: the data of the preference models."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
import scipy.sparse.csgraph
from numpy.typing import ArrayLike, NDArray

from relpref.data.arrays import counted, read_only, shown
from relpref.data.comparisons import NAME as COMPARISONS
from relpref.data.comparisons import Comparisons, chosen_rows, compared, read_comparisons, with_known_raters
from relpref.data.entities import (
    Entities,
    align_attributes,
    index_entities,
    read_entities,
    standardization,
    without_table,
)
from relpref.data.graph import Graph
from relpref.data.labels import GrowingIndex, LabelIndex, label_column, plain_labels
from relpref.data.links import Links, Read, graph_notes, part_names, project, read_relation, read_relations
from relpref.data.matrix_files import find_files
from relpref.data.relation import Relation, check_known, checked_relations
from relpref.data.tables import read_table
from relpref.errors import DataError
from relpref.pytree import register


def extended(
    data: "PreferenceData", labels: LabelIndex, entities: Any, relations: Mapping[str, Any]
) -> "PreferenceData":
    """Return the data with newcomers; ``labels`` are those of the data; see `PreferenceData.extend`."""
    for name in relations:
        check_known(name, (*data.relations, *data.links))
        if data.relation_of(name) != name:
            raise DataError(
                f"relations: {shown(name)} is a role of the relation {data.relation_of(name)!r}; give its links under that name"
            )
    if entities is None:
        raise DataError("entities: there are no newcomers; give their labels (and attributes)")
    newcomers = read_entities(entities)
    known = labels.positions
    for row, label in enumerate(newcomers.labels):
        if label in known:
            raise DataError(
                f"{newcomers.where(row)}: {shown(label)} is an entity already; give newcomers labels of their own"
            )
        for name, links in data.links.items():
            if label in links.targets:
                raise DataError(
                    f"{newcomers.where(row)}: {shown(label)} is what entities link to in the bipartite relation {name!r}, so it "
                    "cannot be an entity; give newcomers labels of their own"
                )
    index_entities(newcomers)
    aligned = align_attributes(newcomers, data.attribute_names)
    index = LabelIndex((*data.entities, *newcomers.labels), lambda row: f"entities, row {row}")
    graphs: dict[str, Graph] = {}
    all_links = dict(data.links)
    notes = list(data.notes)
    for part, graph in data.relations.items():
        name = data.relation_of(part)
        if part in graphs:  # the second role came with the first
            continue
        read = _read(name, relations[name], index, data) if name in relations else None
        if name in all_links:
            if read is not None:
                all_links[name] = all_links[name].with_newcomers(read.edges, read.targets)
            # Also without new links: the traffic of a random walk depends on how many entities there are.
            grown = project(name, all_links[name], len(index), data.relations)
        elif read is not None:
            edges = read.edges
            grown = {part: graph.grown(len(index), edges.source, edges.target, edges.weight)}
        else:
            grown = {part: graph.grown(len(index), [], [], [])}
        graphs |= grown
        before = {one: data.relations[one] for one in grown}
        stale = graph_notes(name, data.links.get(name), before)
        more = (() if read is None else read.notes) + graph_notes(name, all_links.get(name), grown)
        notes = [note for note in notes if note not in stale]
        notes += [note for note in more if note not in notes]
    return replace(
        data,
        entities=index.labels,
        attributes=read_only(np.concatenate([np.asarray(data.attributes), aligned], axis=0)),
        _graphs=graphs,
        _links=all_links,
        notes=tuple(notes),
    )


def _read(name: str, value: Any, index: LabelIndex, data: "PreferenceData") -> Read:
    """Read the links of newcomers."""
    links: Links | None = data.links.get(name)
    read = read_relation(name, value, index, links)
    if links is None and read.relation.kind not in (None, "undirected"):
        raise DataError(
            f"relation {name!r}: it was read as an undirected relation, but the newcomers' is {read.relation.kind}; pass the table alone"
        )
    edges = read.edges
    known = edges.source < data.num_entities
    bipartite = read.relation.kind == "bipartite"
    if not bipartite:
        known &= edges.target < data.num_entities
    if known.any():
        row = int(np.argmax(known))
        source = shown(index.labels[int(edges.source[row])])
        target = shown((read.targets if bipartite else index.labels)[int(edges.target[row])])
        what = f"{source} is" if bipartite else f"both {source} and {target} are"
        raise DataError(
            f"{edges.where(row)}: {what} known already; extend adds edges of newcomers "
            "only: drop the row, or make the data anew with from_tables"
        )
    return read


@dataclass(frozen=True, eq=False, repr=False)
class PreferenceData:
    """Entities, their attributes and relations, and answers to "which of two?": validated, immutable.

    Make one with `from_tables`, `from_files` or `from_folder`; the constructor itself checks nothing. It is
    a JAX pytree: its arrays are leaves, and data sets of equal shapes share one compilation. A function
    compiled with the data as an argument must use the arrays only, not the labels, and not return the data.

    Attributes
    ----------
    entities : tuple of hashable, length n
        Labels.
    attributes : array of float64, shape (n, d)
        In the units of the table.
    attribute_names : tuple of str, length d
        Names of the columns.
    attribute_center, attribute_scale : array of float64, shape (d,)
        Mean and population standard deviation (1 for a constant column) of the entities, without newcomers.
    comparisons : Comparisons
        The distinct answers.
    answered : bool
        False if only the questions are meant, see `without_answers`.
    notes : tuple of str
        What was tidied while reading, one sentence each.
    """

    entities: tuple[Any, ...]
    attributes: NDArray[np.float64]
    attribute_names: tuple[str, ...]
    attribute_center: NDArray[np.float64]
    attribute_scale: NDArray[np.float64]
    comparisons: Comparisons
    _graphs: dict[str, Graph]
    _links: dict[str, Links] = field(default_factory=dict)
    answered: bool = True
    notes: tuple[str, ...] = ()

    @classmethod
    def from_tables(
        cls,
        entities: Any = None,
        comparisons: Any = None,
        relations: Mapping[str, Any] | None = None,
        *,
        columns: Mapping[str, str] | None = None,
    ) -> "PreferenceData":
        """Validate tables.

        Parameters
        ----------
        entities : DataFrame or sequence of hashable, optional
            One row per entity: the index holds the labels, the columns are numeric attributes. Or labels alone. By default the labels
            are those of the comparisons, in the order of the rows, and then those of the relations.
        comparisons : DataFrame, optional
            None where nothing was asked yet. Columns ``winner`` and ``loser``; or ``first``, ``second`` and either ``winner`` (blank
            where ``tie`` is true, and nowhere else) or ``probability`` (as reported, that the first is the better). Optional
            columns: ``tie`` (true or false), ``strength``
            (1 = slightly, 2, ...; blank for a tie), ``rater`` (who answered), ``shown_first`` (which of the two was; blank where
            that is not known), ``count`` (how often; default 1), ``list`` (see `choices` and `orderings`).
        relations : mapping of str to DataFrame, networkx graph, scipy sparse matrix, path of a file or Relation, optional
            Edges by name. A DataFrame has the columns ``source``, ``target`` and, optionally, ``weight``;
            see `Relation`.
        columns : mapping of str to str, optional
            What the table of comparisons calls these columns: ``{"winner": "better", "rater": "who"}``.

        Raises
        ------
        DataError
            If anything in the tables cannot be used; the message names the place, the value and the remedy.
        UnknownLabelError
            If a comparison or a relation names something that is no entity.
        """
        checked = checked_relations(relations)
        read = _met(comparisons, checked, columns) if entities is None else read_entities(entities)
        return _data(read, checked, comparisons, columns)

    @classmethod
    def from_files(
        cls,
        entities_path: str | os.PathLike[str] | None = None,
        comparisons_path: str | os.PathLike[str] | None = None,
        relations: Mapping[str, str | os.PathLike[str] | Relation] | None = None,
        *,
        columns: Mapping[str, str] | None = None,
    ) -> "PreferenceData":
        """Read CSV (also ``.csv.gz``) or Parquet files, see `from_tables`; labels from CSV are always text.

        Parameters
        ----------
        entities_path, comparisons_path : path, optional
            Tables of entities (the first column holds the labels) and of answers; at least one of them, see `from_tables`.
        relations : mapping of str to path or Relation, optional
            Edges by name; a `Relation` holds the path as its table. Tables, or matrices in the order of the entities
            (``.mtx``, ``.mtx.gz``, ``.npz``).
        columns : mapping of str to str, optional
            See `from_tables`.

        Raises
        ------
        DataError
            If a file cannot be read or its content cannot be used; the message names file and line.
        """
        return cls.from_tables(
            None if entities_path is None else Path(entities_path),
            None if comparisons_path is None else read_table(comparisons_path),
            relations,
            columns=columns,
        )

    @classmethod
    def from_folder(cls, path: str | os.PathLike[str]) -> "PreferenceData":
        """Read ``entities.csv``, ``comparisons.csv`` and ``relations/*.csv`` (or other formats, see `from_files`) of a folder.

        Parameters
        ----------
        path : path
            The folder; each file in ``relations`` is a relation of that name.

        Raises
        ------
        DataError
            If a file is missing, there twice, or cannot be used.
        """
        return cls.from_files(*find_files(path))

    @property
    def relations(self) -> Mapping[str, Graph]:
        """Graph of each relation, in the order in which they were given; read-only."""
        return MappingProxyType(self._graphs)

    @property
    def links(self) -> Mapping[str, Links]:
        """Links of each directed or bipartite relation, from which its graphs are made; read-only."""
        return MappingProxyType(self._links)

    def parts_of(self, name: str) -> tuple[str, ...]:
        """Return the names of a relation's graphs: itself, or the roles of a directed one; an error if there is none."""
        check_known(name, (*self._links, *self._graphs))
        if name not in self._links:
            return (name,)
        return tuple(part for part in part_names(name, self._links[name].relation) if part in self._graphs)

    def relation_of(self, part: str) -> str:
        """Return the name of the relation that a graph is a part of."""
        return next((name for name in self._links if part in self.parts_of(name)), part)

    @property
    def winner(self) -> NDArray[np.int32]:
        """Position of the winner of each distinct answer, shape (m,)."""
        return self.comparisons.winner

    @property
    def loser(self) -> NDArray[np.int32]:
        """Position of the loser, shape (m,)."""
        return self.comparisons.loser

    @property
    def count(self) -> NDArray[np.int32]:
        """How often the answer was given, shape (m,)."""
        return self.comparisons.count

    @property
    def num_entities(self) -> int:
        return len(self.entities)

    @property
    def num_comparisons(self) -> int:
        """Number of distinct answers m."""
        return int(self.winner.shape[0])

    @property
    def num_answers(self) -> int:
        """Number of answers: the sum of the counts."""
        return int(np.sum(self.count, dtype=np.int64))

    @cached_property
    def _structure(self) -> tuple[Any, ...]:
        """Names of the graphs, in their order, and which of them each relation of links has."""
        return tuple(self._graphs), tuple((name, self.parts_of(name)) for name in self._links)

    @cached_property
    def _label_index(self) -> LabelIndex:
        return LabelIndex(self.entities, lambda row: f"entities, row {row}")

    def standardized_attributes(self) -> Any:
        """Return (attributes - center) / scale, shape (n, d); works inside compiled functions too."""
        return (self.attributes - self.attribute_center) / self.attribute_scale

    def index(self, labels: Iterable[Any]) -> NDArray[np.int32]:
        """Return the positions of labels.

        Parameters
        ----------
        labels : iterable of hashable, length k
            Labels.

        Returns
        -------
        array of int32, shape (k,)
            Their positions in ``entities``.

        Raises
        ------
        UnknownLabelError
            If a label is no entity; the message names the closest ones.
        """
        if isinstance(labels, str):
            raise DataError(f"labels: got the text {shown(labels)}; pass a list of labels, [{shown(labels)}]")

        def where(row: int) -> str:
            return f"labels, position {row}"

        return self._label_index.locate(plain_labels(labels, where), where, "use one of these")

    def without_answers(self) -> "PreferenceData":
        """Return the same questions with the answers hidden: a program then treats them as unobserved."""
        return replace(self, answered=False)

    def select_comparisons(self, chosen: ArrayLike) -> "PreferenceData":
        """Return the data with some of the distinct answers.

        Parameters
        ----------
        chosen : array of bool, shape (m,), or array of int
            A mask or positions; a position that occurs k times multiplies its count by k. May be empty.

        Raises
        ------
        DataError
            If the mask has another length or a position is out of range.
        """
        picked = chosen_rows(chosen, self.num_comparisons)
        return replace(self, comparisons=self.comparisons.selected(picked, self.entities))

    def select_answers(self, chosen: ArrayLike) -> "PreferenceData":
        return self.select_comparisons(chosen)

    def answer_groups(self, by: str) -> tuple[NDArray[np.int64], str]:
        """Which distinct answers belong together, and what a group is called.

        Parameters
        ----------
        by : {"pair", "answer", "rater"}
            The entities that were compared; nothing but the answer itself; or who gave it.

        Raises
        ------
        DataError
            If there are no raters to group by.
        """
        answers = self.comparisons
        if by == "rater":
            if answers.rater is None:
                raise DataError(
                    "by is 'rater', but the answers do not say who gave them; leave out by 'pair'"
                )
            return np.asarray(answers.rater, dtype=np.int64), "rater"
        if by == "answer":
            return np.arange(self.num_comparisons), "answer"
        low, high = np.minimum(answers.winner, answers.loser), np.maximum(answers.winner, answers.loser)
        return low.astype(np.int64) * self.num_entities + high, "pair"

    def with_comparisons(self, table: Any, *, columns: Mapping[str, str] | None = None) -> "PreferenceData":
        """Return the data with other answers in place of these; known raters keep their places.

        Parameters
        ----------
        table : DataFrame
            See `from_tables`.
        columns : mapping of str to str, optional
            See `from_tables`.

        Raises
        ------
        DataError
            If the table cannot be used, see `from_tables`.
        """
        answers, more = read_comparisons(table, self._label_index, columns)
        kept = tuple(note for note in self.notes if not note.startswith(f"{COMPARISONS}:"))
        comparisons = with_known_raters(answers, self.comparisons)
        return replace(self, comparisons=comparisons, answered=True, notes=more + kept)

    def without_relation(self, name: str) -> "PreferenceData":
        """Return the data without one relation, or without one role of a directed relation.

        Raises
        ------
        DataError
            If there is no such relation.
        """
        parts = self.parts_of(name)
        graphs = {other: graph for other, graph in self._graphs.items() if other not in parts}
        links = {other: self._links[other] for other in self._links if set(self.parts_of(other)) - set(parts)}
        kept = tuple(note for note in self.notes if not note.startswith(f"relation {name!r}:"))
        return replace(self, _graphs=graphs, _links=links, notes=kept)

    def with_cliques(self, name: str) -> "PreferenceData":
        """Return the data with the cliques of a (known) relation counted: ``HiddenCommonCause(method="cliques")``."""
        counted = {part: self._graphs[part].with_cliques() for part in self.parts_of(name)}
        return replace(self, _graphs={**self._graphs, **counted})

    def without_attributes(self) -> "PreferenceData":
        """Return the data without attributes."""
        return replace(
            self,
            attributes=read_only(np.zeros((self.num_entities, 0))),
            attribute_names=(),
            attribute_center=read_only(np.zeros(0)),
            attribute_scale=read_only(np.ones(0)),
        )

    def extend(self, entities: Any = None, relations: Mapping[str, Any] | None = None) -> "PreferenceData":
        """Return the data with newcomers appended to the entities.

        What the model is scaled by stays that of the known entities: ``attribute_center``,
        ``attribute_scale`` and the ``reference`` of every graph. With one exception: `HiddenCommonCause` and `RelationVectors` are
        scaled by the covariance that the known entities have in the larger graph, so newcomers' links may change their scale.

        Parameters
        ----------
        entities : DataFrame or sequence of hashable
            New labels, with the same attributes.
        relations : mapping of str to edges, optional
            Links of known relations, each with at least one newcomer; see `from_tables` for their forms. Those of
            a directed or bipartite relation go under its own name, and its graphs are made anew from all links.

        Raises
        ------
        DataError
            If there are no newcomers, one of them is known already, the attributes are not the same, a relation
            is unknown, or an edge joins two known entities.
        """
        return extended(self, self._label_index, entities, checked_relations(relations))

    def to_tables(self) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
        """Return the data as DataFrames, from which `from_tables` makes equal data.

        Frozen scales (see `extend`) and roles left out (see `without_relation`) are not part of the tables.

        Returns
        -------
        entities : DataFrame, n rows
            Index: labels; columns: attributes.
        comparisons : DataFrame, m rows
            Columns winner, loser, count and the others that are there; first, second in place of winner, loser with probabilities.
        relations : dict of str to DataFrame or Relation
            Columns source, target, weight; in a `Relation` where it is directed or bipartite.
        """
        labels = label_column(self.entities)
        names = pd.Index(list(self.attribute_names), dtype=object)
        entities = pd.DataFrame(np.array(self.attributes), index=labels.rename("entity"), columns=names)
        comparisons = self.comparisons.table(self.entities)
        relations: dict[str, Any] = {}
        for part, graph in self.relations.items():
            name = self.relation_of(part)
            if name in self.links:
                relations[name] = self.links[name].table(self.entities)
                continue
            ends = {
                "source": labels.take(np.asarray(graph.source)),
                "target": labels.take(np.asarray(graph.target)),
            }
            relations[name] = pd.DataFrame({**ends, "weight": np.array(graph.weight)})
        return entities, comparisons, relations

    def groups(self) -> NDArray[np.int32]:
        """Return the number of the group of each entity, shape (n,).

        Two entities are in one group if comparisons and edges of any relation lead from one to the other.
        """
        sources = [self.winner, *(graph.source for graph in self.relations.values())]
        targets = [self.loser, *(graph.target for graph in self.relations.values())]
        ends = (np.concatenate(sources), np.concatenate(targets))
        shape = (self.num_entities, self.num_entities)
        links = scipy.sparse.coo_array((np.ones(ends[0].size), ends), shape=shape)
        _, group = scipy.sparse.csgraph.connected_components(links, directed=False)
        return np.asarray(group, dtype=np.int32)

    def describe(self) -> str:
        """Return the sizes in one line."""
        parts = [counted(self.num_entities, "entity", "entities")]
        if self.attribute_names:
            parts.append(counted(len(self.attribute_names), "attribute"))
        ends = np.stack([np.asarray(self.winner), np.asarray(self.loser)])
        pairs = counted(np.unique(np.sort(ends, axis=0), axis=1).shape[1], "pair")
        parts.append(
            f"{counted(self.num_answers, 'answer')} to {pairs}" if self.answered else f"{pairs}, not answered"
        )
        answers = self.comparisons
        if answers.tie is not None:
            parts.append(counted(int(answers.count[answers.tie].sum()), "tie"))
        if answers.strengths > 1:
            parts.append(f"strengths up to {answers.strengths}")
        if answers.rater is not None:
            parts.append(counted(len(answers.raters), "rater"))
        if self.relations:
            sizes = ", ".join(
                f"{name} ({counted(int((graph.degree > 0).sum()), 'node')}, {counted(graph.num_edges, 'edge')})"
                for name, graph in self.relations.items()
            )
            parts.append(f"relations: {sizes}")
        return ", ".join(parts)

    def __repr__(self) -> str:
        # Inside a compiled function, or as a tree of anything else, there is nothing to count.
        if not isinstance(self.count, np.ndarray):
            return f"PreferenceData({counted(self.num_entities, 'entity', 'entities')}, traced)"
        return f"PreferenceData({self.describe()})"


def _met(comparisons: Any, relations: Mapping[str, Any], columns: Mapping[str, str] | None) -> Entities:
    """Those that answers and relations are about."""
    index = GrowingIndex()
    if comparisons is not None:
        index.locate(compared(comparisons, columns), str, "")
    for name, value in relations.items():
        read_relation(name, value, index)
    if not len(index):
        raise DataError(
            "entities: there are none; give a table of entities, or comparisons or relations, which name them"
        )
    return without_table(index.labels)


def _order_graphs(data: PreferenceData) -> None:
    if isinstance(data._graphs, dict):  # which JAX sorts; or a placeholder
        data.__dict__["_graphs"] = {name: data._graphs[name] for name in data._structure[0]}


register(
    PreferenceData,
    leaves=("attributes", "attribute_center", "attribute_scale", "comparisons", "_graphs"),
    static=("answered", "attribute_names", "_structure"),
    untraced=("entities", "notes", "_links"),
    restored=_order_graphs,
)


def unanswered(read: Entities, relations: Mapping[str, Any] | None) -> PreferenceData:
    """Return entities about which nothing was asked; they may have neither attributes nor relations."""
    return _data(read, checked_relations(relations), None, None)


def _data(
    read: Entities, relations: dict[str, Any], comparisons: Any, columns: Mapping[str, str] | None
) -> PreferenceData:
    index = index_entities(read)
    graphs, links, notes = read_relations(relations, index)
    answers, more = read_comparisons(comparisons, index, columns)
    center, scale = standardization(read.attributes)
    return PreferenceData(
        entities=index.labels,
        attributes=read_only(read.attributes),
        attribute_names=read.attribute_names,
        attribute_center=center,
        attribute_scale=scale,
        comparisons=answers,
        _graphs=graphs,
        _links=links,
        notes=(*more, *notes),
    )
