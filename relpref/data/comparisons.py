"""Answers to "which of two?": read from tables, merged, joined with others and withdrawn."""

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import counted, read_only, refuse_first, shown
from relpref.data.columns import COLUMNS, NOT_COMPARED, Rows, read_columns, read_outcome
from relpref.data.covariates import (
    Covariate,
    read_covariates,
    scales_of,
    written,
    written_items,
)
from relpref.data.forms import KNOWN, NAME, answer_table, apart_note, check_names, pair_table
from relpref.data.labels import LabelIndex, alike_note, blank_note, label_column
from relpref.data.lists import (
    NO_LISTS,
    chosen_lists,
    joined_lists,
    known_lists,
    numbered,
    orders_of,
    read_lists,
    sizes_of,
)
from relpref.data.tables import Table
from relpref.errors import DataError
from relpref.pytree import register

# Mean of weights from which on they are most likely of something else, such as kilograms.
_HEAVY = 5
_INT32_MAX = np.iinfo(np.int32).max


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Distinct answers and their counts, sorted by the columns of the schema; a pytree.

    Attributes
    ----------
    winner, loser : array of int32, shape (m,)
        Positions of the items. In a tie the winner is the item that comes first in the data; with
        probabilities these are the first and the second item of the question.
    count : array of int32, shape (m,)
        How often the answer was given.
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
        Number of the list that the pair is part of, from 0; −1 for a separate answer. A list is an
        ordering of several items, seen together, into blocks of tied items. Its pairs are those of
        neighboring blocks: every item of a block was preferred to every item of the next.
    list_label : array of int32, shape (m,), or None
        The label of the list, as a position in ``lists``; −1 where the answer is in none.
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
        Labels of the lists, in the order in which they were given.
    strengths : int
        The highest strength there can be; 1 without strengths.
    covariate_scales : array of float64, shape (q,), or None
        Root mean square of the differences for numbers; 1 for categories and sides. Models divide
        by it. A selection of the answers, and new answers, keep it until `rescaled`.
    covariates_are : tuple of Covariate
        The covariates, in the order of the columns of ``covariates``.
    """

    winner: NDArray[np.int32]
    loser: NDArray[np.int32]
    count: NDArray[np.int32]
    tie: NDArray[np.bool_] | None = None
    strength: NDArray[np.int32] | None = None
    probability: NDArray[np.float64] | None = None
    rater: NDArray[np.int32] | None = None
    shown_first: NDArray[np.int8] | None = None
    list: NDArray[np.int32] | None = None
    list_label: NDArray[np.int32] | None = None
    group: NDArray[np.int32] | None = None
    covariates: NDArray[np.float64] | None = None
    weight: NDArray[np.float64] | None = None
    raters: tuple[Any, ...] = ()
    groups: tuple[Any, ...] = ()
    lists: tuple[Any, ...] = ()
    strengths: int = 1
    spare_effects: int = 0  # effects of groups that are counted but unused, for padding
    covariate_scales: NDArray[np.float64] | None = None
    covariates_are: tuple[Covariate, ...] = ()
    num_raters: int = field(init=False)

    def __post_init__(self) -> None:
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
    def covariate_names(self) -> tuple[str, ...]:
        """Names of the columns of ``covariates``; ``x[level]`` of categories."""
        return tuple(name for covariate in self.covariates_are for name in covariate.effects)

    @property
    def num_lists(self) -> int:
        """Number of lists."""
        return 0 if self.list is None else int(self.list.max(initial=-1)) + 1

    @cached_property
    def effects(self) -> NDArray[np.int32] | None:
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
        """Number of different group effects, spare ones included."""
        if self.effects is None:
            return 0
        return int(self.effects.max(initial=-1)) + 1 + self.spare_effects

    def whole_lists(self, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the mask ``rows`` without the lists that it has only in part, shape (m,)."""
        if self.list is None:
            return rows
        missing = np.unique(self.list[~rows & (self.list >= 0)])
        return rows & ~np.isin(self.list, missing)

    def selected(self, rows: NDArray[np.int64], items: Sequence[Any]) -> "Comparisons":
        """Return the answers in the rows of these numbers; a row named k times counts k times.

        A list is refused unless all its rows are named equally often.
        """
        if self.list is not None:
            times = np.bincount(rows, minlength=len(self.winner))
            return replace(self, **NO_LISTS | _merged(chosen_lists(self.columns, times), items))
        columns = {name: np.asarray(column)[rows] for name, column in self.columns.items()}
        return replace(self, **_merged(columns, items))

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
        ones: dict[str, Any] = {**self.columns, "count": np.ones_like(self.count)}
        return replace(
            self, **{name: read_only(np.repeat(ones[name], self.count, axis=0)) for name in ones}
        )

    def table(self, items: Sequence[Any]) -> pd.DataFrame:
        """Return a table of the pairs with labels, a row for each row of the answers.

        If there are lists it cannot be read as answers again, see `written`: the pairs of a list
        are separate rows with the same number in the column ``list``.
        """
        labels, sides = label_column(items), (self.winner, self.loser)
        names = ("winner", "loser") if self.probability is None else ("first", "second")
        columns = dict(zip(names, map(labels.take, map(np.asarray, sides)), strict=True))
        columns |= self._cells(items)
        if self.covariates is not None:
            differences = np.asarray(self.covariates)
            columns |= written(self.covariates_are, differences, labels, sides, names)
        return pd.DataFrame(columns)

    def _cells(self, items: Sequence[Any]) -> dict[str, Any]:
        """Return the cells of all columns but items, labels of lists and covariates, by name."""
        cells = {}
        for name in self.columns.keys() - {"winner", "loser", "list_label", "covariates"}:
            column = COLUMNS[name]
            labels = getattr(self, column.labels) if column.labels else ()
            cells[name] = column.cells(np.asarray(getattr(self, name)), labels)
        if self.shown_first is not None:
            first = np.where(self.shown_first > 0, self.winner, self.loser)
            places = np.where(self.shown_first == 0, -1, first)
            cells["shown_first"] = label_column((*items, None)).take(places)
        return {name: cells[name] for name in COLUMNS if name in cells}

    def written(self, items: Sequence[Any]) -> pd.DataFrame:
        """Return a table with labels from which the same answers can be read again.

        If there are lists it is a table of orders, in which a pair is a list of two items.
        """
        if self.list is None:
            return self.table(items)
        orders = orders_of(self.columns)
        cells = pd.DataFrame(self._cells(items)).iloc[orders.row].reset_index(drop=True)
        item = label_column(items).take(orders.item)
        covariates = written_items(self.covariates_are, orders.covariates, orders.number)
        cells = cells.assign(list=orders.number, item=item, place=orders.place, **covariates)
        return cells.drop(columns="tie", errors="ignore")


# Raters' labels never cause a compilation, but how many there are is the shape of a program.
register(
    Comparisons,
    leaves=(*(name for name in COLUMNS if name != "list_label"), "effects", "covariate_scales"),
    static=("num_raters", "strengths", "list_sizes", "num_effects"),
    untraced=("raters", "groups", "lists", "list_label", "covariates_are"),
)


def _merged(columns: Mapping[str, Any], items: Sequence[Any]) -> dict[str, Any]:
    """Sort rows and add up the counts of equal ones: the order of the rows does not matter.

    ``items`` are the labels, for the message if a count is too large.
    """
    group, row = _grouped(columns)
    count = np.bincount(group, columns["count"], minlength=len(row)).astype(np.int64)
    if count.max(initial=0) > _INT32_MAX:
        ends = (columns[end][row[np.argmax(count)]] for end in ("winner", "loser"))
        pair = shown(tuple(items[end] for end in ends))
        raise DataError(
            f"{NAME}: counts of {pair} add up to {count.max()}, above {_INT32_MAX}; scale them"
        )
    return _arrays({name: column[row] for name, column in columns.items()} | {"count": count})


def _arrays(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return read-only arrays of the schema's types."""
    return {
        name: read_only(np.array(column, dtype=COLUMNS[name].dtype))
        for name, column in columns.items()
    }


def _grouped(columns: Mapping[str, Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Group rows that are equal, except for counts and labels of lists, and sort the groups.

    Returns
    -------
    group : array of int, shape (m,)
        The group of each row.
    row : array of int, shape (number of groups,)
        One row of each group.
    """
    size = len(columns["count"])
    names = [name for name in COLUMNS if name in columns and name not in NOT_COMPARED]
    keys = [key for name in names for key in np.atleast_2d(columns[name].T)]
    order = np.lexsort(tuple(keys)[::-1])
    differs = np.ones(size, dtype=bool)
    differs[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
    group = np.empty(size, dtype=np.int64)
    group[order] = np.cumsum(differs) - 1
    return group, order[differs]


def _none() -> Comparisons:
    """Return `Comparisons` without answers."""
    return Comparisons(*(read_only(np.zeros(0, np.int32)) for _ in range(3)))


def read_comparisons(
    value: Any,
    items: LabelIndex,
    columns: Mapping[str, str] | None = None,
    covariates: Sequence[str] = (),
    known: Comparisons | None = None,
    options: Mapping[str, str] | None = None,
) -> tuple[Comparisons, tuple[str, ...]]:
    """Read answers in any form of `PreferenceData.from_tables`; returns them and notes.

    Equal rows are merged and their counts added up. If there are ``known`` answers, their raters
    and groups keep their positions, their covariates are read, and ``strengths`` is at least
    theirs.
    """
    before = known or _none()
    names = tuple(covariate.name for covariate in before.covariates_are)
    names = names or check_names(covariates, KNOWN)
    if value is None:
        return replace(_none(), strengths=before.strengths), ()
    labels = {"raters": before.raters, "groups": before.groups}
    as_they_are = ChainMap[Any, Any](items.positions, *map(dict.fromkeys, labels.values()))
    pairs = pair_table(answer_table(value, columns, names, as_they_are, options), names)
    table, remedy = pairs.table, "correct the label, add it to the items, or drop the row"
    first, second = (
        items.locate(table.labels(name), table.cell(name), remedy) for name in pairs.ends
    )
    refuse_first(
        first == second,
        lambda row: (
            f"{table.place(row)}: {shown(items.labels[first[row]])} is compared with itself; drop "
            "the row"
        ),
    )
    notes = [*table.notes, *pairs.notes, *apart_note(pairs, first, second)]
    rows = Rows(table, items, pairs.ends, first, second, labels)
    notes += read_outcome(rows, pairs.outcome)
    read_columns(rows)
    rows.columns.setdefault("count", np.ones(len(first), dtype=np.int64))
    what: tuple[Covariate, ...] = ()
    if names:
        what, ahead = read_covariates(rows, names, before.covariates_are)
        turned = np.where(rows.columns["winner"] == first, 1.0, -1.0)
        rows.columns["covariates"] = turned[:, None] * ahead + 0.0
    if table.neighbors and "list" in table.frame.columns:
        read_lists(rows)
    strength = rows.columns.get("strength", np.ones(1))
    answers = Comparisons(
        **_merged(rows.columns, items.labels),
        **rows.labels,
        strengths=max(int(strength.max()), before.strengths),
        covariates_are=what,
        covariate_scales=before.covariate_scales,
    )
    answers = answers if before.covariates_are else answers.rescaled()
    notes += [*blank_note(table.blanks)]
    notes += [*alike_note(answers.raters, "rater"), *alike_note(answers.groups, "group")]
    notes += _notes(table, answers)
    return answers, tuple(f"{NAME}: {note}" for note in notes)


def _notes(table: Table, answers: Comparisons) -> list[str]:
    notes = []
    size = len(table.frame)
    if answers.winner.size < size and answers.list is None:
        distinct = counted(answers.winner.size, "distinct one")
        notes.append(f"{counted(size, 'row')} merged into {distinct}, counts added up")
    if answers.weight is not None:
        notes.append(weight_note(answers, table.called("weight")))
    if answers.tie is not None and answers.tie.all():
        notes.append("every answer is a tie: that says utilities are near, not whose is higher")
    return notes


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
    before: NDArray[np.int64]
    # For each row that was added, its row in ``answers``; for each row taken back, its row before.
    rows: NDArray[np.int64]


def changed(
    current: Comparisons, other: Comparisons, items: Sequence[Any], *, withdraw: bool
) -> Change:
    """Add the ``other`` answers to the current ones, or take them back (``withdraw``).

    ``other`` was read with the current answers as ``known``, so its raters and groups begin with
    theirs.
    """
    for name in COLUMNS:
        if (getattr(current, name) is None) != (getattr(other, name) is None):
            current = _with_column(name, current, other, "the answers so far", "the new answers")
            other = _with_column(name, other, current, "the new answers", "the answers so far")
    labels = {name: getattr(other, name) or getattr(current, name) for name in ("raters", "groups")}
    labels["lists"] = current.lists if withdraw else current.lists + other.lists
    if other.list_label is not None:
        # A new list is another one even if its label was used before; one taken back is not.
        place_of = {label: place for place, label in enumerate(current.lists)}
        places = [place_of.get(label, -1) for label in other.lists] if withdraw else []
        places = places or [len(current.lists) + place for place in range(len(other.lists))]
        other = replace(other, list_label=np.array([*places, -1], dtype=np.int32)[other.list_label])
    columns = {
        name: np.concatenate([column, other.columns[name]])
        for name, column in current.columns.items()
    }
    if current.list is not None and withdraw:
        columns["list"] = np.concatenate(
            [current.list, known_lists(current.columns, other.columns)]
        )
    elif current.list is not None:
        columns = joined_lists(current.columns, other.columns)
    strengths = max(current.strengths, other.strengths)
    answers = replace(other, strengths=strengths, **labels)
    group, row = _grouped(columns)
    size, rows = len(current.winner), group[len(current.winner) :]
    before = np.full(len(row), -1, dtype=np.int64)
    before[group[:size]] = np.arange(size)
    if not withdraw:
        return Change(replace(answers, **_merged(columns, items)), before, rows)
    given = np.append(current.count, 0)[before].astype(np.int64)  # 0 for what was never given
    taken = np.bincount(rows, other.count, minlength=len(row)).astype(np.int64)
    refuse_first(
        (taken > given)[rows],
        lambda at: (
            f"withdraw: the answer {shown((items[other.winner[at]], items[other.loser[at]]))} is "
            f"to be taken back {taken[rows[at]]} times and was given {given[rows[at]]} times; name "
            "answers as they were given, with their rater, strength and group"
        ),
    )
    kept = given > taken
    arrays = {name: column[row[kept]] for name, column in columns.items()}
    arrays["count"] = (given - taken)[kept]
    if current.list is not None:
        arrays = numbered(arrays)
    after: dict[str, Any] = {**NO_LISTS, **_arrays(arrays)}
    return Change(replace(answers, **after), before[kept], before[rows])


def _with_column(
    name: str, answers: Comparisons, like: Comparisons, these: str, those: str
) -> Comparisons:
    """Return ``answers`` with the column ``name`` of ``like`` filled in if they lack it.

    They are refused if no value can be assumed. ``these`` and ``those`` name both in the message.
    """
    column, size = getattr(like, name), len(answers.winner)
    if column is None or getattr(answers, name) is not None:
        return answers
    absent = COLUMNS[name].absent
    if name == "strength" and answers.tie is not None and answers.tie.all():
        absent = 0
    if absent is None and size:
        raise DataError(
            f"{NAME}: {those} have the column {name!r} and {these} do not; give it for both"
        )
    values: Any = np.full((size, *column.shape[1:]), absent or 0, dtype=COLUMNS[name].dtype)
    return replace(answers, **{name: values})
