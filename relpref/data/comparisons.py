"""Answers to "which of two?" and orders of several: read from tables, joined and taken back."""

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.answers import Answers, orders_of, sizes_of
from relpref.data.arrays import (
    Array,
    Floats,
    Integers,
    Labels,
    Mask,
    Positions,
    Texts,
    counted,
    read_only,
    refuse_first,
    shown,
)
from relpref.data.columns import COLUMNS, Rows, labeled, read_columns, read_outcome
from relpref.data.covariates import Covariate, read_covariates, scales_of, written, written_items
from relpref.data.forms import KNOWN, NAME, answer_table, apart_note, check_names, pair_table
from relpref.data.labels import LabelIndex, alike_note, blank_note, label_column
from relpref.errors import DataError
from relpref.pytree import register

# Mean of weights from which on they are most likely of something else, such as kilograms.
_HEAVY = 5


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Answers as pairs of items, sorted by the columns of the schema; a pytree.

    A row is a distinct answer about two items, or one of the pairs of a list: an ordering of
    several items, seen together, into blocks of tied items. The pairs of a list are those of
    neighboring blocks: every item of a block was preferred to every item of the next. A list that
    was given several times has rows for each. ``answers`` are the distinct answers, and the length
    is their number.

    Attributes
    ----------
    winner, loser : array of int32, shape (m,)
        Positions of the items. In a tie the winner is the item that comes first in the data; with
        probabilities these are the first and the second item of the question.
    count : array of int32, shape (m,)
        How often the answer was given; 1 in lists.
    tie : array of bool, shape (m,), or None
        Whether neither was preferred. None if the answers have no such column; the same holds for
        the columns below.
    strength : array of int32, shape (m,), or None
        How strongly the winner was preferred, 1 or more; 0 for a tie.
    probability : array of float64, shape (m,), or None
        The reported probability that the winner is the better.
    rater : array of int32, shape (m,), or None
        Who answered, as a position in ``raters``.
    shown_first : array of int8, shape (m,), or None
        1 where the winner was shown first, −1 where the loser was, 0 where that is not known.
    list : array of int32, shape (m,), or None
        Number of the list that the pair is part of, from 0; −1 for a separate answer.
    group : array of int32, shape (m,), or None
        What the answer has in common with others (a question, a match, a pair of texts), as a
        position in ``groups``; −1 where nothing.
    covariates : array of float64, shape (m, q), or None
        Covariates of the winner minus those of the loser, in the units of the table. A covariate
        is a number, an indicator (0 or 1) for each level of a category, or 1 for the side that a
        cell names, such as that at home.
    weight : array of float64, shape (m,), or None
        Positive power to which the probability of each of the ``count`` answers of a row is raised.
        None if all weights are 1.
    raters, groups : tuple of hashable
        Labels of the raters and of the groups.
    lists : tuple of hashable
        Labels of the lists, by number.
    strengths : int
        The highest strength there can be; 1 without strengths.
    covariate_scales : array of float64, shape (q,), or None
        Root mean square of the differences for numbers; 1 for categories and sides. Models divide
        by it. A selection of the answers, and new answers, keep it until `rescaled`.
    covariates_are : tuple of Covariate
        The covariates, in the order of the columns of ``covariates``.
    """

    winner: Positions
    loser: Positions
    count: Positions
    tie: Mask | None = None
    strength: Positions | None = None
    probability: Floats | None = None
    rater: Positions | None = None
    shown_first: NDArray[np.int8] | None = None
    list: Positions | None = None
    group: Positions | None = None
    covariates: Floats | None = None
    weight: Floats | None = None
    raters: tuple[Any, ...] = ()
    groups: tuple[Any, ...] = ()
    lists: tuple[Any, ...] = ()
    strengths: int = 1
    covariate_scales: Floats | None = None
    covariates_are: tuple[Covariate, ...] = ()
    num_raters: int = field(init=False)
    # Earlier files have labels in any order, and the position of that of each row.
    list_label: Positions | None = field(default=None, metadata={"stored": False})

    def __post_init__(self) -> None:
        if self.list is not None and self.list_label is not None:
            rows = zip(self.list.tolist(), self.list_label.tolist(), strict=True)
            lists = tuple(self.lists[label] for at, label in sorted(set(rows)) if at >= 0)
            object.__setattr__(self, "lists", lists)
            object.__setattr__(self, "list_label", None)
        object.__setattr__(self, "num_raters", len(self.raters))

    @property
    def columns(self) -> dict[str, Any]:
        """The arrays that are not None, by name, in the order of the schema."""
        return {name: getattr(self, name) for name in COLUMNS if getattr(self, name) is not None}

    @cached_property
    def list_sizes(self) -> tuple[int, int, int, bool] | None:
        """The sizes of lists, see `relpref.data.lists.sizes_of`; None without lists."""
        return None if self.list is None else sizes_of(self.winner, self.loser, self.list)

    @property
    def covariate_names(self) -> Texts:
        """Names of the columns of ``covariates``; ``x[level]`` of categories."""
        return tuple(name for covariate in self.covariates_are for name in covariate.effects)

    @property
    def num_lists(self) -> int:
        """Number of lists."""
        return len(self.lists)

    @cached_property
    def effects(self) -> Positions | None:
        """Index of the group effect on the winner and the loser of each answer, shape (m, 2).

        Each item of a group has one effect. The index is −1 for answers in no group; None if there
        are no groups.
        """
        if self.group is None:
            return None
        ends = np.stack([self.winner, self.loser], axis=1).astype(np.int64)
        inside = self.group >= 0
        items = int(ends.max(initial=0)) + 1
        number = self.group[inside, None].astype(np.int64) * items + ends[inside]
        effects = np.full(ends.shape, -1, dtype=np.int32)
        effects[inside] = np.unique(number, return_inverse=True)[1].reshape(number.shape)
        return read_only(effects)

    @cached_property
    def num_effects(self) -> int:
        """Number of different group effects."""
        if self.effects is None:
            return 0
        return int(self.effects.max(initial=-1)) + 1

    @cached_property
    def answers(self) -> Answers:
        """The distinct answers, of which a list is one."""
        return Answers.of(self.columns, self.lists)

    def __len__(self) -> int:
        return len(self.answers.pairs)

    @property
    def pairs(self) -> Integers:
        """A number for the two items of each row, whichever won, shape (m,)."""
        low, high = np.sort([self.winner, self.loser], axis=0).astype(np.int64)
        return low * (high.max(initial=0) + 1) + high

    def grouped(self, by: str) -> Integers:
        """Return the group of each distinct answer, see `PreferenceData.answer_groups`."""
        first = self.answers.first()
        alone = np.arange(len(self))
        if by == "pair":
            pairs = self.pairs[first]
            return np.where(self.answers.pairs == 1, pairs, pairs.max(initial=0) + 1 + alone)
        if by == "answer":
            return alone
        if by not in self.columns:
            raise DataError(f"by is {by!r}, but answers have no column {by!r}; leave out by 'pair'")
        groups = self.columns[by][first].astype(np.int64)
        return np.where(groups < 0, len(self.groups) + alone, groups)

    def described(self, answered: bool) -> Sequence[str]:
        """Return what `PreferenceData.describe` says about answers, or about questions alone."""
        pairs = counted(np.unique(self.pairs).size, "pair")
        number = counted(int(np.sum(self.count, dtype=np.int64)), "answer")
        parts = [f"{number} to {pairs}" if answered else f"{pairs}, not answered"]
        if self.list is not None:
            parts.append(f"{np.sum(self.list >= 0)} of them in {counted(self.num_lists, 'list')}")
        if self.tie is not None:
            parts.append(counted(int(self.count[self.tie].sum()), "tie"))
        if self.strengths > 1:
            parts.append(f"strengths up to {self.strengths}")
        if self.rater is not None:
            parts.append(counted(len(self.raters), "rater"))
        if self.group is not None and (self.group >= 0).any():
            groups = np.unique(self.group[self.group >= 0])
            parts.append(f"in {counted(len(groups), 'group')}")
        if self.covariates_are:
            names = ", ".join(covariate.name for covariate in self.covariates_are)
            parts.append(f"covariates: {names}")
        return parts

    def among(self, items: Mask) -> Mask:
        """Whether each distinct answer is about items of the mask only, shape (n,)."""
        outside = ~(items[self.winner] & items[self.loser])
        return np.bincount(self.answers.of_rows, outside, len(self)) == 0

    def selected(self, chosen: Integers, items: Labels) -> "Comparisons":
        """Return the distinct answers at some positions; one named k times counts k times."""
        times = np.bincount(chosen, minlength=len(self))[self.answers.of_rows]
        return self.with_counts(times * self.count, items)

    def with_counts(self, count: Array, items: Labels) -> "Comparisons":
        """Return the answers with other counts of their rows, shape (m,); 0 leaves a row out."""
        rows = np.flatnonzero(count)
        columns = {name: np.asarray(column)[rows] for name, column in self.columns.items()}
        columns["count"] = count[rows].astype(np.int32)
        return replace(self, **Answers.of(columns, self.lists).unrolled(items))

    def rescaled(self) -> "Comparisons":
        """Return the answers with ``covariate_scales`` computed from them.

        A number that is equal on both sides of every answer keeps its scale.
        """
        if self.covariates is None:
            return self
        before = 1.0 if self.covariate_scales is None else self.covariate_scales
        scales = scales_of(self.covariates_are, self.covariates, self.count, before)
        return replace(self, covariate_scales=read_only(scales))

    def single(self) -> "Comparisons":
        """Return the answers with each row repeated ``count`` times and counts of 1."""
        ones = {**self.columns, "count": np.ones_like(self.count)}
        return replace(
            self, **{name: read_only(np.repeat(ones[name], self.count, axis=0)) for name in ones}
        )

    def table(self, items: Labels) -> pd.DataFrame:
        """Return a table of the pairs with labels, a row for each row of the answers.

        If there are lists it cannot be read as answers again, see `written`: the pairs of a list
        are separate rows with the same number in the column ``list``.
        """
        labels = label_column(items)
        sides = (self.winner, self.loser)
        names = ("winner", "loser") if self.probability is None else ("first", "second")
        columns = dict(zip(names, map(labels.take, map(np.asarray, sides)), strict=True))
        columns |= self._cells(items)
        if self.covariates is not None:
            differences = np.asarray(self.covariates)
            columns |= written(self.covariates_are, differences, labels, sides, names)
        return pd.DataFrame(columns)

    def _cells(self, items: Labels) -> dict[str, Any]:
        """Return the cells of all columns but items, labels of lists and covariates, by name."""
        cells = {}
        for name, values in self.columns.items():
            if name not in ("winner", "loser", "covariates"):
                column = COLUMNS[name]
                labels = getattr(self, column.labels) if column.labels else ()
                cells[name] = column.cells(np.asarray(values), labels)
        if self.shown_first is not None:
            first = np.where(self.shown_first > 0, self.winner, self.loser)
            places = np.where(self.shown_first == 0, -1, first)
            cells["shown_first"] = label_column((*items, None)).take(places)
        return cells

    def written(self, items: Labels) -> pd.DataFrame:
        """Return a table with labels from which the same answers can be read again.

        If there are lists it is a table of orders, in which a pair is a list of two items.
        """
        if self.list is None:
            return self.table(items)
        answers = self.answers
        rows = answers.first(answers.pairs)
        columns = {name: column[rows] for name, column in self.columns.items()}
        orders = orders_of(columns, answers.of_rows[rows])
        cells = pd.DataFrame(self._cells(items)).iloc[rows[orders.row]].reset_index(drop=True)
        cells = cells.assign(
            list=orders.number,
            item=label_column(items).take(orders.item),
            place=orders.place,
            count=answers.count[orders.number],
            **written_items(self.covariates_are, orders.covariates, orders.number),
        )
        return cells.drop(columns="tie", errors="ignore")


# Raters' labels never cause a compilation, but how many there are is the shape of a program.
register(
    Comparisons,
    leaves=(*COLUMNS, "effects", "covariate_scales"),
    static=("num_raters", "strengths", "list_sizes", "num_effects"),
    untraced=("raters", "groups", "lists", "covariates_are"),
)


def _none() -> Comparisons:
    """Return `Comparisons` without answers."""
    return Comparisons(*(read_only(np.zeros(0, np.int32)) for _ in range(3)))


def read_comparisons(
    value: Any,
    items: LabelIndex,
    columns: Mapping[str, str] | None = None,
    covariates: Sequence[str] = (),
    known: Comparisons | None = None,
    **options: str,
) -> tuple[Comparisons, Texts]:
    """Read answers in any form of `PreferenceData.from_tables`; returns them and notes.

    Equal rows are merged and their counts added up. If there are ``known`` answers, their raters
    and groups keep their positions, their covariates are read, and ``strengths`` is at least
    theirs.
    """
    before = _none() if known is None else known
    names = tuple(covariate.name for covariate in before.covariates_are)
    names = names or check_names(covariates, KNOWN)
    if value is None:
        return replace(_none(), strengths=before.strengths), ()
    labels = {"raters": before.raters, "groups": before.groups}
    as_they_are = ChainMap[Any, Any](items.positions, *map(dict.fromkeys, labels.values()))
    table, form = pair_table(answer_table(value, columns, names, as_they_are, options), names)
    remedy = "correct the label, add it to the items, or drop the row"
    first, second = (
        items.locate(table.labels(name), table.cell(name), remedy) for name in form.ends
    )
    refuse_first(
        first == second,
        lambda row: (
            f"{table.place(row)}: {shown(items.labels[first[row]])} is compared with itself; drop "
            "the row"
        ),
    )
    notes = [*table.notes, *apart_note(table, form.ends, first, second)]
    rows = Rows(table, items, form.ends, first, second, labels)
    notes += read_outcome(rows, form.outcome)
    read_columns(rows)
    rows.columns.setdefault("count", np.ones(len(first), dtype=np.int64))
    what: tuple[Covariate, ...] = ()
    if names:
        what, ahead = read_covariates(rows, names, before.covariates_are)
        turned = np.where(rows.columns["winner"] == first, 1.0, -1.0)
        rows.columns["covariates"] = turned[:, None] * ahead + 0.0
    lists = labeled(rows, "list", "lists") if "list" in table.columns else None
    if lists is not None:
        rows.columns["list"] = lists
    distinct = Answers.of(rows.columns, rows.labels.pop("lists", ()))
    strength = rows.columns.get("strength", np.ones(1))
    answers = Comparisons(
        **distinct.unrolled(items.labels),
        **rows.labels,
        strengths=max(int(strength.max()), before.strengths),
        covariates_are=what,
        covariate_scales=before.covariate_scales,
    )
    answers = answers if before.covariates_are else answers.rescaled()
    notes += [*blank_note(table.blanks)]
    notes += [*alike_note(answers.raters, "rater"), *alike_note(answers.groups, "group")]
    if answers.weight is not None:
        notes.append(weight_note(answers, table.called("weight")))
    if answers.tie is not None and answers.tie.all():
        notes.append("every answer is a tie: that says utilities are near, not whose is higher")
    return answers, tuple(f"{NAME}: {note}" for note in notes)


def weight_note(answers: Comparisons, column: Any = "weight") -> str:
    """Return a note on what weights do to intervals, and on their mean if it is large."""
    assert answers.weight is not None
    note = (
        "answers have weights: the probability of each is taken to that power, which is no model "
        "of how people answer; the widths of intervals follow from the weights"
    )
    mean = float(np.average(answers.weight, weights=answers.count))
    if mean <= _HEAVY:
        return note
    return (
        f"{note}. The mean of the column {column!r} is {mean:.3g}, and an answer of weight w "
        f"counts as w answers, so intervals are about √{mean:.3g} = {np.sqrt(mean):.2g} times "
        "narrower than with a mean of 1: divide the column by its mean, or rename it if it says "
        "something else, such as kilograms"
    )


class Change(NamedTuple):
    """Answers after others were added or taken back, and where their rows were before."""

    answers: Comparisons
    # For each row of ``answers``, its row before the change; −1 for a new one.
    before: Integers
    # For each row that was added, its row in ``answers``; for each row taken back, its row before.
    rows: Integers


def changed(current: Comparisons, other: Comparisons, items: Labels, *, withdraw: bool) -> Change:
    """Add the ``other`` answers to the current ones, or take them back (``withdraw``).

    ``other`` was read with the current answers as ``known``, so its raters and groups begin with
    theirs.
    """
    these = "the answers so far"
    those = "the new answers"
    current, other = _filled(current, other, these, those), _filled(other, current, those, these)
    size = len(current.winner)
    sign = -1 if withdraw else 1
    parts = current.columns, {**other.columns, "count": sign * other.count}
    columns = {name: np.concatenate([part[name] for part in parts]) for name in current.columns}
    if other.list is not None:
        columns["list"][size:] = np.where(other.list < 0, -1, other.list + len(current.lists))
    both = Answers.of(columns, current.lists + other.lists)
    place = both.of_rows[size:]
    taken = np.bincount(place, other.count, len(both.count)).astype(np.int64) // both.pairs
    refuse_first(
        both.count[place] < 0,
        lambda at: (
            f"withdraw: the answer {shown((items[other.winner[at]], items[other.loser[at]]))} is "
            f"to be taken back {taken[place[at]]} times and was given "
            f"{(both.count + taken)[place[at]]} times; name "
            "answers as they were given, with their rater, strength and group"
        ),
    )
    names = ("raters", "groups")
    answers = replace(
        other,
        strengths=max(current.strengths, other.strengths),
        **{name: getattr(other, name) or getattr(current, name) for name in names},
        **both.unrolled(items),
    )
    before = both.first(both.sizes)
    rows = both.first() if withdraw else np.cumsum(both.sizes) - both.sizes
    return Change(answers, np.where(before < size, before, -1), rows[place])


def _filled(answers: Comparisons, like: Comparisons, these: str, those: str) -> Comparisons:
    """Return ``answers`` with all columns that the answers ``like`` have.

    They are refused if no value can be assumed. ``these`` and ``those`` name both in the message.
    """
    columns: dict[str, Any] = {}
    for name in like.columns.keys() - answers.columns.keys():
        size = len(answers.winner)
        absent = COLUMNS[name].absent
        column = getattr(like, name)
        if name == "strength" and answers.tie is not None and answers.tie.all():
            absent = 0
        if absent is None and size:
            raise DataError(
                f"{NAME}: {those} have the column {name!r} and {these} do not; give it for both"
            )
        columns[name] = np.full((size, *column.shape[1:]), absent or 0, COLUMNS[name].dtype)
    return replace(answers, **columns)
