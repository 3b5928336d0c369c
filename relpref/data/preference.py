"""Pairwise answers about items with attributes and relations: the data of the preference models."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
import scipy.sparse.csgraph
from numpy.typing import ArrayLike

from relpref.data.arrays import (
    Floats,
    Integers,
    Positions,
    Texts,
    chosen_rows,
    counted,
    read_only,
    shown,
)
from relpref.data.attributes import Known, given_columns, standardization
from relpref.data.comparisons import Comparisons, read_comparisons
from relpref.data.edges import (
    EdgeTable,
    graph_notes,
    part_names,
    project,
    read_edges,
    read_relations,
)
from relpref.data.forms import NAME, answer_table, compared
from relpref.data.graph import Graph, check_cliques
from relpref.data.items import ItemTable, items_of, read_item_table
from relpref.data.labels import LabelIndex, alike_note, label_column, plain_labels
from relpref.data.relation import (
    Relation,
    Relations,
    check_known,
    checked_relations,
    decoded,
    find_files,
)
from relpref.data.table_files import suffix_of
from relpref.data.tables import is_path, read_table
from relpref.errors import DataError
from relpref.files import FilePath
from relpref.pytree import register

# Readers of files of answers that are no tables, by suffix; `relpref.data.rankings` adds PrefLib.
READERS: dict[str, Callable[[Any], Any]] = {}


@dataclass(frozen=True, eq=False, repr=False)
class PreferenceData:
    """Items, their attributes and relations, and answers to "which of two?": validated, immutable.

    Make one with `from_tables`, `from_files` or `from_folder`; the constructor itself checks
    nothing. It is a JAX pytree: its arrays are leaves, and data sets of equal shapes share one
    compilation. A function compiled with the data as an argument must use the arrays only, not the
    labels, and not return the data.

    Attributes
    ----------
    labels : tuple of hashable, length n
    attributes : array of float64, shape (n, d)
        In the units of the table.
    attribute_names : tuple of str, length d
    attribute_center, attribute_scale : array of float64, shape (d,)
        Mean and population standard deviation (1 for a constant column) of the items, without
        newcomers.
    comparisons : Comparisons
        The distinct answers.
    answered : bool
        False if only the questions are meant, see `without_answers`.
    notes : tuple of str
        What was tidied while reading, one sentence each.

    Examples
    --------
    >>> from relpref import PreferenceData
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> data = PreferenceData.from_tables(answers=answers)
    >>> data.labels
    ('tea', 'coffee', 'water')
    """

    labels: tuple[Any, ...]
    attributes: Floats
    attribute_names: Texts
    attribute_center: Floats
    attribute_scale: Floats
    comparisons: Comparisons
    _graphs: dict[str, Graph]
    _links: dict[str, EdgeTable] = field(default_factory=dict)
    answered: bool = True
    notes: Texts = ()

    def __post_init__(self) -> None:
        """Keep the order of the graphs: JAX would sort the keys of a plain dictionary."""
        self.__dict__["_graphs"] = OrderedDict(self._graphs)

    @classmethod
    def from_tables(
        cls,
        items: Any = None,
        answers: Any = None,
        relations: Relations = None,
        *,
        columns: Mapping[str, str] | None = None,
        covariates: Sequence[str] = (),
        encoding: str | None = None,
        sheet: str | None = None,
        **options: str,
    ) -> "PreferenceData":
        """Validate tables. How they were read is in ``notes``.

        A table is a DataFrame of pandas or another library, a list of dictionaries, a dictionary of
        columns, or the path of a file.

        Parameters
        ----------
        items : table or sequence of hashable, optional
            One row per item: the index holds the labels (of a table without an index the column
            that holds those of the answers, of a file the first column), and the columns are
            attributes. Or labels alone. By default the labels are those of the answers, in the
            order of the rows, and then those of the relations.

            Attributes are numbers, booleans, dates (read as years) or categories. Categories of few
            values become columns of 0 and 1, those of many values a relation ``same_<column>`` that
            links items with the same value. A missing number is set to the mean of the others, and
            the column ``<column> missing`` marks it.
        answers : table, iterable of (winner, loser), or Rankings, optional
            None where nothing was asked yet. Columns ``winner`` and ``loser``; or ``first``,
            ``second`` and one of ``winner`` (blank where ``tie`` is true, and nowhere else),
            ``result`` (1 where the first won and 0 where it lost, with 0.5 for a tie; or 1, -1, and
            0 for a tie) and ``probability`` (as reported, that the first is the better). Optional
            columns: ``tie`` (true or false), ``strength`` (1 = slightly, 2, ...; blank for a tie),
            ``rater`` (who answered), ``shown_first`` (which of the two was: its label, or ``first``
            or ``second`` where the columns have these names; blank where that is not known),
            ``count`` (how often; default 1), ``weight`` (for how much each of them counts: its
            probability is taken to this power), ``group`` (what answers have in common beyond their
            items: the question, the match, the pair of texts; blank where nothing). Other columns
            are not used, and noted.

            Orders have the columns ``list``, ``item`` and ``place`` (1 is the best, equal places
            are ties, and a blank is below all others); choices ``choice``, ``item`` and ``chosen``
            (true once in each choice); and the best and the worst of several ``best``, ``worst``
            and what was shown, ``item_1``, ``item_2``, .... Or `Rankings`. An order of two items is
            a pair. The answers of one list come from one look at its items: each item is seen with
            noise of its own, which all its comparisons in the list share.
        relations : mapping of str to table, list of edges, Series, graph, matrix, path of a file or
        Relation, optional
            Edges by name, see `Relation`. A table has the columns ``source``, ``target`` and,
            optionally, ``weight``.
        columns : mapping of str to str, optional
            What the table of answers calls these columns: ``{"winner": "better", "rater": "who"}``.
        covariates : sequence of str, optional
            What is known of either side of an answer and may favor it, such as ``["home",
            "length"]``. A covariate x of numbers or categories is in the columns ``x_winner`` and
            ``x_loser`` (or ``x_first`` and ``x_second``); or a single column x names the one of the
            two items that has it, such as the one at home, and is blank where neither has. In
            orders and choices the column x is beside the item. Columns named as those of the items
            are, such as ``length_home`` beside ``home_team``, are recognized.
        encoding : str, optional
            Encoding of the files, such as ``"cp1252"``; see `read_table` for the default.
        sheet : str, optional
            The sheet of an Excel file with the answers; by default the first.
        **options : str
            ``better="low"`` or ``"high"`` reads times or points of the items of each event as an
            order; ``unplaced="out"`` leaves items without a place (DNF) out instead of placing
            them last, and ``both_bad="drop"`` answers that both are bad, instead of reading ties.
            ``unsure="tie"`` or ``"drop"`` says how answers such as "unsure" are read.

        Raises
        ------
        DataError
            If anything in the tables cannot be used; the message names the place, the value and the
            remedy.
        UnknownLabelError
            If a comparison or a relation names something that is no item.
        """
        if is_path(answers) and suffix_of(answers) in READERS:
            answers = READERS[suffix_of(answers)](answers)
        if sheet is not None:
            if not is_path(answers):
                raise DataError(f"sheet={sheet!r}: the answers are no file; leave it out")
            answers = read_table(answers, repeats=True, sheet=sheet)
        if encoding is not None:
            items = decoded(items, encoding)
            answers = decoded(answers, encoding)
            relations = {
                name: decoded(edges, encoding) for name, edges in (relations or {}).items()
            }
        if hasattr(answers, "rankers") and items is None and not relations:
            return cls.from_rankings(answers)
        table = None
        labels = []
        if answers is not None:
            try:
                table = answer_table(answers, columns, covariates, options=options)
            except DataError as error:
                if items is None or not _are_answers(items):
                    raise
                raise DataError(
                    "items: this is a table of answers, but answers is none; give the items "
                    "first, then the answers"
                ) from error
            labels = compared(table, covariates)
        given = checked_relations(relations)
        read = items_of(labels, given) if items is None else read_item_table(items, compared=labels)
        return assembled(read, {**read.relations, **given}, table, covariates)

    @classmethod
    def from_files(
        cls,
        items_path: FilePath | None = None,
        answers_path: FilePath | None = None,
        relations: Mapping[str, FilePath | Relation] | None = None,
        **options: Any,
    ) -> "PreferenceData":
        """Read files, see `from_tables` and `read_table`; labels in text such as CSV are text.

        Parameters
        ----------
        items_path, answers_path : path, optional
            Tables of items (the first column holds the labels) and of answers; at least one of
            them, see `from_tables`.
        relations : mapping of str to path or Relation, optional
            Edges by name; a `Relation` holds the path as its table. Tables, or matrices in the
            order of the items (``.mtx``, ``.mtx.gz``, ``.npz``).
        **options
            ``columns``, ``covariates``, ``encoding`` and more, see `from_tables`.

        Raises
        ------
        DataError
            If a file cannot be read or its content cannot be used; the message names file and line.
        """
        items, answers = (
            None if path is None else Path(path) for path in (items_path, answers_path)
        )
        return cls.from_tables(items, answers, relations, **options)

    @classmethod
    def from_folder(cls, path: FilePath) -> "PreferenceData":
        """Read ``items.csv``, ``answers.csv`` and ``relations/*.csv`` of a folder.

        Other formats are those of `from_files`. The first two may be called ``entities.csv`` and
        ``comparisons.csv``, as in the folder of a run.

        Parameters
        ----------
        path : path
            The folder; each file in ``relations`` is a relation of that name.
        """
        return cls.from_files(*find_files(path))

    @classmethod
    def from_rankings(cls, rankings: Any) -> "PreferenceData":
        """Return the items of `Rankings` with each ranking as an answer.

        Items that a ranking does not rank have no part in it: `Rankings.completed` puts them below
        all others. A ranking of one item alone is refused.
        """
        return rankings.items.with_comparisons(rankings)

    @property
    def relations(self) -> Mapping[str, Graph]:
        """Graph of each relation, in the order in which they were given; read-only."""
        return MappingProxyType(self._graphs)

    @property
    def links(self) -> Mapping[str, EdgeTable]:
        """Links of each directed or bipartite relation, which its graphs are made of; read-only."""
        return MappingProxyType(self._links)

    def parts_of(self, name: str) -> Texts:
        """Return the names of a relation's graphs: its own, or the roles of a directed one."""
        check_known(name, (*self._links, *self._graphs))
        if name not in self._links:
            return (name,)
        return tuple(
            part for part in part_names(name, self._links[name].relation) if part in self._graphs
        )

    def relation_of(self, part: str) -> str:
        """Return the name of the relation that a graph is a part of."""
        return next((name for name in self._links if part in self.parts_of(name)), part)

    @property
    def winner(self) -> Positions:
        """Position of the winner of each row of ``comparisons``, shape (m,)."""
        return self.comparisons.winner

    @property
    def loser(self) -> Positions:
        """Position of the loser, shape (m,)."""
        return self.comparisons.loser

    @property
    def count(self) -> Positions:
        """Count of each row, shape (m,)."""
        return self.comparisons.count

    @property
    def num_items(self) -> int:
        return len(self.labels)

    @property
    def num_comparisons(self) -> int:
        """Number of rows m of ``comparisons``: of distinct answers, with each pair of a list."""
        return int(self.winner.shape[0])

    @property
    def num_answers(self) -> int:
        """Number of answers: the sum of the counts, so that each pair of a list counts."""
        return int(np.sum(self.count, dtype=np.int64))

    @cached_property
    def _structure(self) -> tuple[Any, ...]:
        """Names of the graphs of each relation of links."""
        return tuple((name, self.parts_of(name)) for name in self._links)

    @cached_property
    def _label_index(self) -> LabelIndex:
        return LabelIndex(self.labels, lambda row: f"items, row {row}")

    def standardized_attributes(self) -> Any:
        """Return (attributes - center) / scale, shape (n, d), also inside compiled functions."""
        return (self.attributes - self.attribute_center) / self.attribute_scale

    def index(self, labels: Iterable[Any]) -> Positions:
        """Return the positions of labels among the items, int32, shape (k,).

        Raises
        ------
        UnknownLabelError
            If a label is no item; the message names the closest ones.
        """
        if isinstance(labels, str):
            raise DataError(
                f"labels: got the text {shown(labels)}; pass a list of labels, [{shown(labels)}]"
            )
        where = "labels, position {}".format
        return self._label_index.locate(plain_labels(labels, where), where, "use one of these")

    def without_answers(self) -> "PreferenceData":
        """Return the data with hidden answers, which programs treat as unobserved."""
        return replace(self, answered=False)

    def select_comparisons(self, chosen: ArrayLike) -> "PreferenceData":
        """Return the data with some of the distinct answers; none is allowed.

        Parameters
        ----------
        chosen : array of bool, shape (len(comparisons),), or array of int
            A mask or positions; a position that occurs k times multiplies its count by k. A list is
            one answer, and lists come after answers about two items.
        """
        picked = chosen_rows(chosen, len(self.comparisons))
        return replace(self, comparisons=self.comparisons.selected(picked, self.labels))

    def select_answers(self, chosen: ArrayLike) -> "PreferenceData":
        return self.select_comparisons(chosen)

    def answer_groups(self, by: str) -> tuple[Integers, str]:
        """Return the group of each distinct answer, and the noun for a group.

        Parameters
        ----------
        by : {"pair", "answer", "rater", "group"}
            The items that were compared; the answer only; who gave it; or the column ``group``,
            where an answer without a group is one of its own; an error where that column is not
            known. A list is not compared with other answers by its items.
        """
        return self.comparisons.grouped(by), by

    def with_comparisons(self, table: Any, **options: Any) -> "PreferenceData":
        """Return the data with other answers in place of these.

        Known raters and groups keep their places, and covariates stay what they are.

        Parameters
        ----------
        table : DataFrame
        **options
            ``columns``, ``covariates`` and more, as in `from_tables`, and so are the errors.
        """
        answers, more = read_comparisons(
            table, self._label_index, known=self.comparisons, **options
        )
        kept = tuple(note for note in self.notes if not note.startswith(f"{NAME}:"))
        return replace(self, comparisons=answers, answered=True, notes=more + kept)

    def without_relation(self, name: str) -> "PreferenceData":
        """Return the data without one relation, or without one role of a directed relation."""
        parts = self.parts_of(name)
        graphs = {other: graph for other, graph in self._graphs.items() if other not in parts}
        links = {
            other: self._links[other]
            for other in self._links
            if set(self.parts_of(other)) - set(parts)
        }
        kept = tuple(note for note in self.notes if not note.startswith(f"relation {name!r}"))
        return replace(self, _graphs=graphs, _links=links, notes=kept)

    def with_cliques(self, name: str) -> "PreferenceData":
        """Return the data with the cliques of a relation counted.

        ``HiddenCommonCause(method="cliques")`` needs them.

        Raises
        ------
        DataError
            If there is no such relation, or its links leave a connected component in one clique
            (see `Graph.cliques`).
        """
        counted = {part: self._graphs[part].with_cliques() for part in self.parts_of(name)}
        check_cliques(counted)
        return replace(self, _graphs={**self._graphs, **counted})

    def without_attributes(self) -> "PreferenceData":
        """Return the data without attributes."""
        return replace(
            self,
            attributes=read_only(np.zeros((self.num_items, 0))),
            attribute_names=(),
            attribute_center=read_only(np.zeros(0)),
            attribute_scale=read_only(np.ones(0)),
        )

    def extend(self, items: Any = None, relations: Relations = None) -> "PreferenceData":
        """Return the data with newcomers appended to the items.

        What the model is scaled by stays that of the known items: ``attribute_center``,
        ``attribute_scale`` and the ``reference`` of every graph. With one exception:
        `HiddenCommonCause` and `RelationVectors` are scaled by the covariance that the known items
        have in the larger graph, so newcomers' links may change their scale.

        Parameters
        ----------
        items : DataFrame or sequence of hashable
            New labels, with the same attributes.
        relations : mapping of str to edges, optional
            Links of known relations, each with at least one newcomer; see `from_tables` for their
            forms. Those of a directed or bipartite relation go under its own name, and its graphs
            are rebuilt from all links.

        Raises
        ------
        DataError
            If there are no newcomers, one of them is known already, the attributes are not the
            same, a relation is unknown, an edge joins two known items, or the cliques of a relation
            cannot be counted any more (see `with_cliques`).
        """
        more = checked_relations(relations)
        for name in more:
            check_known(name, (*self.relations, *self.links))
            if self.relation_of(name) != name:
                raise DataError(
                    f"relations: {shown(name)} is a role of the relation "
                    f"{self.relation_of(name)!r}; give its links under that name"
                )
        if items is None:
            raise DataError("items: there are no newcomers; give their labels (and attributes)")
        attributes = Known(self.attribute_names, self.attribute_center, self.links)
        newcomers = read_item_table(items, attributes)
        newcomers.refuse_known(self._label_index, self.links)
        more = {**newcomers.relations, **more}
        index = LabelIndex((*self.labels, *newcomers.labels), lambda row: f"items, row {row}")
        graphs: dict[str, Graph] = {}
        kept = [note for note in self.notes if note not in _alike_items(self.labels)]
        all_links = dict(self.links)
        notes = [*kept, *newcomers.notes, *_alike_items(index.labels)]
        for name in dict.fromkeys(self.relation_of(part) for part in self.relations):
            before = {part: self.relations[part] for part in self.parts_of(name)}
            edges = self._edges_of(name)
            stale = graph_notes(name, edges, before)
            new = []
            if name in more:
                added = self._read_more(name, more[name], index)
                edges = edges.joined(added)
                new = [*added.notes]
            if name in all_links:
                all_links[name] = edges
            # Also without new edges: the traffic of a random walk depends on how many items there
            # are.
            grown = project(name, edges, len(index), before)
            check_cliques(grown)
            graphs |= grown
            new += graph_notes(name, edges, grown)
            notes = [note for note in notes if note not in stale]
            notes += [note for note in new if note not in notes]
        return replace(
            self,
            labels=index.labels,
            attributes=read_only(
                np.concatenate([np.asarray(self.attributes), newcomers.attributes], axis=0)
            ),
            _graphs=graphs,
            _links=all_links,
            notes=tuple(notes),
        )

    def _edges_of(self, name: str) -> EdgeTable:
        """Return the edges of a relation; of an undirected one those of its graph."""
        if name in self._links:
            return self._links[name]
        graph = self._graphs[name]
        return EdgeTable(Relation(None), graph.source, graph.target, graph.weight)

    def _read_more(self, name: str, value: Any, index: LabelIndex) -> EdgeTable:
        """Read the edges of newcomers."""
        edges = read_edges(name, value, index, self._edges_of(name))
        bipartite = edges.relation.kind == "bipartite"
        familiar = (edges.source < self.num_items) & (bipartite | (edges.target < self.num_items))
        if familiar.any():
            row = int(np.argmax(familiar))
            source = shown(index.labels[int(edges.source[row])])
            target = shown((edges.targets if bipartite else index.labels)[int(edges.target[row])])
            what = f"{source} is" if bipartite else f"both {source} and {target} are"
            raise DataError(
                f"{edges.where(row)}: {what} known already; extend adds edges of newcomers "
                "only: drop the row, or rebuild the data with from_tables"
            )
        return edges

    def to_tables(self) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
        """Return the data as DataFrames, from which `from_tables` makes equal data.

        Frozen scales (see `extend`) and roles left out (see `without_relation`) are not part of the
        tables.

        Returns
        -------
        items : DataFrame, n rows
            Index: labels; columns: attributes.
        comparisons : DataFrame, m rows
            Columns winner, loser, count and the others that are there; first, second in place of
            winner, loser with probabilities. With lists, columns list, item and place: a row for
            each item of each list, where a pair is a list of two.
        relations : dict of str to DataFrame or Relation
            Columns source, target, weight; in a `Relation` where it is directed or bipartite.
        """
        labels = label_column(self.labels)
        names = pd.Index(list(self.attribute_names), dtype=object)
        items = pd.DataFrame(np.array(self.attributes), index=labels.rename("item"), columns=names)
        comparisons = self.comparisons.written(self.labels)
        names_of_relations = dict.fromkeys(map(self.relation_of, self.relations))
        relations = {name: self._edges_of(name).table(self.labels) for name in names_of_relations}
        return items, comparisons, relations

    def groups(self) -> Positions:
        """Return the number of the group of each item, shape (n,).

        Two items are in one group if comparisons and edges of any relation lead from one to the
        other.
        """
        pairs = [(self.winner, self.loser), *self._edges()]
        _, group = scipy.sparse.csgraph.connected_components(self._joined(pairs), directed=False)
        return np.asarray(group, dtype=np.int32)

    def _edges(self) -> list[tuple[Positions, Positions]]:
        return [(graph.source, graph.target) for graph in self._graphs.values()]

    def _joined(self, pairs: Sequence[tuple[Positions, Positions]]) -> Any:
        """A sparse matrix of pairs of items, shape (n, n)."""
        ends = np.concatenate(pairs, axis=1)
        shape = (self.num_items, self.num_items)
        return scipy.sparse.csr_array((np.ones(len(ends[0])), tuple(ends)), shape=shape)

    def describe(self) -> str:
        """Return the sizes in one line."""
        sizes = ", ".join(
            f"{name} ({counted(int((graph.degree > 0).sum()), 'node')}, "
            f"{counted(graph.num_edges, 'edge')})"
            for name, graph in self.relations.items()
        )
        parts = [counted(self.num_items, "item")]
        names = given_columns(self.attribute_names)
        parts += [counted(len(names), "attribute")] if names else []
        parts += self.comparisons.described(self.answered)
        parts += [f"relations: {sizes}"] if sizes else []
        return ", ".join(parts)

    def __repr__(self) -> str:
        # Inside a compiled function, or as a tree of anything else, there is nothing to count.
        if not isinstance(self.count, np.ndarray):
            return f"PreferenceData({counted(self.num_items, 'item')}, traced)"
        return f"PreferenceData({self.describe()})"


def _are_answers(table: Any) -> bool:
    with suppress(DataError):
        answer_table(table)
        return True
    return False


def _alike_items(labels: Iterable[Any]) -> Texts:
    return tuple(f"items: {note}" for note in alike_note(labels, "label"))


register(
    PreferenceData,
    leaves=("attributes", "attribute_center", "attribute_scale", "comparisons", "_graphs"),
    static=("answered", "attribute_names", "_structure"),
    untraced=("labels", "notes", "_links"),
)


def assembled(
    read: ItemTable, relations: Relations, comparisons: Any = None, covariates: Sequence[str] = ()
) -> PreferenceData:
    """Make the data of items that were read; see `PreferenceData.from_tables` for the rest."""
    index = read.index()
    graphs, links, notes = read_relations(checked_relations(relations), index)
    answers, more = read_comparisons(comparisons, index, covariates=covariates)
    center, scale = standardization(read.attributes)
    return PreferenceData(
        labels=index.labels,
        attributes=read_only(read.attributes),
        attribute_names=read.attribute_names,
        attribute_center=center,
        attribute_scale=scale,
        comparisons=answers,
        _graphs=graphs,
        _links=links,
        notes=(*more, *read.notes, *_alike_items(index.labels), *notes),
    )
