"""Answers to "which of two?": read from tables and changed."""

from collections import ChainMap
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations
from operator import contains
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import counted, did_you_mean, read_only, refuse_first, shown
from relpref.data.composing import SHOWN, as_pairs, pairs_of_rankings
from relpref.data.covariates import (
    Covariate,
    check_names,
    known_columns,
    one_of_two,
    read_covariates,
    scales_of,
    written,
)
from relpref.data.labels import GrowingIndex, LabelIndex, alike_note, blank_note, label_column
from relpref.data.lists import (
    NO_LISTS,
    chosen_lists,
    joined_lists,
    known_lists,
    numbered,
    read_lists,
    sizes_of,
)
from relpref.data.outcomes import labeled, probabilities, results, strengths, ties, weights
from relpref.data.recognition import recognized
from relpref.data.tables import (
    ROWS_LOOKED_AT,
    SUFFIXES,
    TRUTH,
    Table,
    as_table,
    check_columns,
    column_option,
    hold_one_set,
    known_names,
    number,
    renamed,
    suffix_of,
)
from relpref.errors import DataError
from relpref.pytree import register

NAME = "answers"
COMPOSED = "composed from"  # in the note on answers that were choices or lists
_FEW = 10  # answers
_HEAVY = (
    5  # mean of weights from which on they are most likely of something else, such as kilograms
)
_INT32_MAX = np.iinfo(np.int32).max
_TYPES = {
    "winner": np.int32,
    "loser": np.int32,
    "count": np.int32,
    "tie": np.bool_,
    "strength": np.int32,
    "probability": np.float64,
    "rater": np.int32,
    "shown_first": np.int8,
    "list": np.int32,
    "list_label": np.int32,
    "group": np.int32,
    "covariates": np.float64,
    "weight": np.float64,
}
COLUMNS = tuple(_TYPES)
_NONE = {"list": -1, "list_label": -1, "group": -1, "weight": 1}


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Distinct answers, sorted by list, winner, loser and then the other columns; a pytree of its arrays.

    Attributes
    ----------
    winner, loser : array of int32, shape (m,)
        Positions of the items. A tie names the one that comes first in the data as its winner, and
        with probabilities they are simply the first and the second of the question.
    count : array of int32, shape (m,)
        How often the answer was given.
    tie : array of bool, shape (m,), or None
        Where neither was preferred. None if the table does not speak of ties, as with the columns
        below.
    strength : array of int32, shape (m,), or None
        How strongly, from 1; 0 for a tie.
    probability : array of float64, shape (m,), or None
        As reported, that the winner is the better.
    rater : array of int32, shape (m,), or None
        Who answered, as a position in ``raters``.
    shown_first : array of int8, shape (m,), or None
        1 where the winner was shown first, −1 where the loser was, 0 where that is not known.
    list : array of int32, shape (m,), or None
        Which list the pair is part of, from 0; −1 where it is an answer of its own. The pairs of a
        list are those of neighboring blocks: every item of a block was preferred to every item of
        the next, in one look at all of them.
    list_label : array of int32, shape (m,), or None
        The label of the list, as a position in ``lists``; −1 where the answer is in none.
    group : array of int32, shape (m,), or None
        What the answer has in common with others (a question, a match, a pair of texts), as a
        position in ``groups``; −1 where nothing.
    covariates : array of float64, shape (m, q), or None
        What is known of the winner's side less what is known of the loser's, in the units of the
        table: numbers, 0 and 1 for each level of a category, 1 for the side that is named, such as
        that at home.
    weight : array of float64, shape (m,), or None
        For how much each of the ``count`` answers of a row counts: its probability is taken to this
        power, above 0. None where all count as one.
    raters, groups : tuple of hashable
        Labels.
    lists : tuple of hashable
        Labels in the order in which the lists were given.
    strengths : int
        The highest strength there can be; 1 without strengths.
    covariate_scales : array of float64, shape (q,), or None
        Root mean square of the differences, of numbers; 1 of categories and sides. Models divide
        by it. Some of the answers, and others in their place, keep the scales of all.
    covariates_are : tuple of Covariate
        What the columns of ``covariates`` are.
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
    spare_effects: int = (
        0  # of `num_effects`, that no answer has a part in, see `relpref.data.padding`
    )
    covariate_scales: NDArray[np.float64] | None = None
    covariates_are: tuple[Covariate, ...] = ()
    num_raters: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_raters", len(self.raters))

    @property
    def columns(self) -> dict[str, Any]:
        """The arrays that are there, by name."""
        return {name: getattr(self, name) for name in COLUMNS if getattr(self, name) is not None}

    @cached_property
    def list_sizes(self) -> tuple[int, int, int, bool] | None:
        """How many lists there are, at most, rows and items of the longest, and whether a block between others has several items."""
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
        """Numbers of the effects that groups have on an answer's winner and loser, one for each item of a group; −1 without a group.

        Shape (m, 2); None without groups.
        """
        if self.group is None:
            return None
        ends = np.stack([self.winner, self.loser], axis=1).astype(np.int64)
        inside = self.group >= 0
        number = (
            self.group[inside, None].astype(np.int64) * (int(ends.max(initial=0)) + 1)
            + ends[inside]
        )
        found = np.full(ends.shape, -1, dtype=np.int32)
        found[inside] = np.unique(number, return_inverse=True)[1].reshape(number.shape)
        return read_only(found)

    @cached_property
    def num_effects(self) -> int:
        """Number of the effects of groups."""
        return (
            0
            if self.effects is None
            else int(self.effects.max(initial=-1)) + 1 + self.spare_effects
        )

    def whole_lists(self, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Some rows, a mask, without those of lists of which others are missing."""
        if self.list is None:
            return rows
        missing = np.unique(self.list[~rows & (self.list >= 0)])
        return rows & ~np.isin(self.list, missing)

    def selected(self, rows: NDArray[np.int64], items: Sequence[Any]) -> "Comparisons":
        """Some of the rows; one that is named k times counts k times as often, and a list is named whole."""
        if self.list is not None:
            return replace(self, **{**NO_LISTS, **_merged(chosen_lists(self.columns, rows), items)})
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
        """Every single answer in a row of its own, those of one row after another."""
        ones: dict[str, Any] = {**self.columns, "count": np.ones_like(self.count)}
        return replace(
            self, **{name: read_only(np.repeat(ones[name], self.count, axis=0)) for name in ones}
        )

    def table(self, items: Sequence[Any]) -> pd.DataFrame:
        """As a table with the items' labels, from which the same answers can be read."""
        labels = label_column(items)
        names = ("winner", "loser") if self.probability is None else ("first", "second")
        columns: dict[str, Any] = {
            name: labels.take(np.asarray(end))
            for name, end in zip(names, (self.winner, self.loser), strict=True)
        }
        columns |= {
            name: np.array(self.columns[name])
            for name in list(self.columns)[2:]
            if name not in ("covariates", "list_label")
        }
        if self.covariates is not None:
            sides = (self.winner, self.loser)
            columns |= written(
                self.covariates_are, np.asarray(self.covariates), labels, sides, names
            )
        if self.strength is not None and self.tie is not None:
            columns["strength"] = pd.array(self.strength, dtype="Int64")
            columns["strength"][np.asarray(self.tie)] = pd.NA
        if self.list is not None:
            columns["list"] = pd.array(self.list, dtype="Int64")
            columns["list"][self.list < 0] = pd.NA
        if self.rater is not None:
            columns["rater"] = label_column(self.raters).take(np.asarray(self.rater))
        if self.group is not None:
            columns["group"] = label_column((*self.groups, None)).take(np.asarray(self.group))
        if self.shown_first is not None:
            shown_first = np.empty(len(items) + 1, dtype=object)  # by the position plus one
            shown_first[1:] = labels
            ends = np.where(self.shown_first > 0, self.winner, self.loser) + 1
            columns["shown_first"] = shown_first[np.where(self.shown_first == 0, 0, ends)]
        return pd.DataFrame(columns)


# Raters' labels never cause a compilation, but how many there are is the shape of a program.
register(
    Comparisons,
    leaves=(*(name for name in COLUMNS if name != "list_label"), "effects", "covariate_scales"),
    static=("num_raters", "strengths", "list_sizes", "num_effects"),
    untraced=("raters", "groups", "lists", "list_label", "covariates_are"),
)


def _merged(columns: dict[str, NDArray[Any]], items: Sequence[Any]) -> dict[str, Any]:
    """Merge repeated answers and sort them, so that the order of the rows leaves no trace in a result."""
    order, starts = _groups_of(columns)
    count = columns["count"].astype(np.int64)[order]
    total = np.add.reduceat(count, starts) if starts.size else count
    first = order[starts]
    if total.size and total.max() > _INT32_MAX:
        row = first[np.argmax(total)]
        pair = shown((items[columns["winner"][row]], items[columns["loser"][row]]))
        raise DataError(
            f"{NAME}: counts of {pair} add up to {total.max()}, above {_INT32_MAX}; scale them"
        )
    kept = {name: total if name == "count" else column[first] for name, column in columns.items()}
    return {name: read_only(column.astype(_TYPES[name])) for name, column in kept.items()}


def _groups_of(columns: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sort rows by lists and columns other than counts and labels of lists.

    Returns the order, and where in it each group of equal rows starts.
    """
    keys = [columns["list"]] if "list" in columns else []
    apart = ("count", "list", "list_label", "covariates")
    keys += [column for name, column in columns.items() if name not in apart]
    keys += list(columns["covariates"].T) if "covariates" in columns else []
    order = np.lexsort(tuple(keys)[::-1])
    differs = np.zeros(len(order), dtype=bool)
    differs[:1] = True
    for column in keys:
        differs[1:] |= column[order][1:] != column[order][:-1]
    return order, np.flatnonzero(differs)


def with_known_labels(answers: Comparisons, before: Comparisons) -> Comparisons:
    """Return answers in which the raters, the groups and the strengths of others have their place, too."""
    found: dict[str, Any] = {"strengths": max(answers.strengths, before.strengths)}
    for name, labels in (("rater", "raters"), ("group", "groups")):
        column = getattr(answers, name)
        if column is not None:
            index = GrowingIndex(getattr(before, labels))
            place = np.array([*index.locate(getattr(answers, labels), str, ""), -1], dtype=np.int32)
            found |= {name: read_only(place[column]), labels: index.labels}
    return replace(answers, **found)


_WINNER_FORM = ("winner", "loser")
_PAIR_FORM = ("first", "second")
_EITHER = ("count", "rater", "shown_first", "list", "group", "weight")
_OF_LISTS = ("item", "place", "choice", "chosen", "best", "worst")
_NUMERIC = ("result", "tie", "strength", "probability", "count", "weight")
_ALL = (
    *_WINNER_FORM,
    *_PAIR_FORM,
    "result",
    "tie",
    "strength",
    "probability",
    *_EITHER,
    *_OF_LISTS,
)


# Whether pairs of a list are taken for that list, or for independent answers.
ListReading = Literal["exact", "pairs"]


def read_comparisons(
    value: Any,
    items: LabelIndex,
    columns: Mapping[str, str] | None = None,
    lists: ListReading = "exact",
    covariates: Sequence[str] = (),
    known: Comparisons | None = None,
) -> tuple[Comparisons, tuple[str, ...]]:
    """Read a table of answers, see `PreferenceData.from_tables`, and return notes on what was tidied, too.

    Repeated rows become one with the sum of their counts. Covariates are those of ``known``
    answers, if these have any.
    """
    wanted = tuple(covariate.name for covariate in known.covariates_are) if known else ()
    wanted = wanted or check_names(covariates, _ALL)
    if lists not in ("exact", "pairs"):
        raise DataError(f"lists is {lists!r}; it is 'exact' or 'pairs'")
    if value is None:
        return Comparisons(*(read_only(np.zeros(0, np.int32)) for _ in range(3))), ()
    people = () if known is None else (known.raters, known.groups)
    table = answer_table(
        value,
        columns,
        wanted,
        lists,
        ChainMap[Any, Any](items.positions, *map(dict.fromkeys, people)),
    )
    names, unused = _check_form(table, wanted)
    there = table.frame.columns
    remedy = "correct the label, add it to the items, or drop the row"
    winner, loser = (items.locate(table.labels(name), table.cell(name), remedy) for name in names)
    refuse_first(
        winner == loser,
        lambda row: (
            f"{table.place(row)}: {shown(items.labels[winner[row]])} is compared with itself; drop "
            "the row"
        ),
    )
    unused = (*unused, *_apart(table, names, winner, loser))
    sides, blank = (winner, loser), None
    if "result" in there:
        outcome, coding = results(table)
        winner, loser = _exchanged(outcome < 0, winner, loser)
        tie = outcome == 0 if (outcome == 0).any() else None
        unused = (*unused, coding)
    else:
        if names == _PAIR_FORM and "winner" in there:
            named = one_of_two(table, "winner", items, winner, loser)
            blank = named < 0
            winner, loser = _exchanged(named == loser, winner, loser)
        tie = ties(table, blank)
    if tie is not None:
        # A tie has no winner: one order, so that equal ties are merged.
        winner, loser = _exchanged(tie & (winner > loser), winner, loser)
    read: dict[str, Any] = {
        "winner": winner,
        "loser": loser,
        "count": np.ones(len(winner), dtype=np.int64),
    }
    labels: dict[str, Any] = {}
    highest = 1
    if "count" in there:
        read["count"] = table.counts("count", "write how often the answer was given: 1, 2, 3, ...")
    if tie is not None:
        read["tie"] = tie
    if "strength" in there:
        read["strength"] = strengths(table, tie)
        highest = max(int(read["strength"].max()), 1)
    if "probability" in there:
        read["probability"] = probabilities(table)
    if "rater" in there:
        place = table.cell("rater")
        refuse_first(
            table.blank("rater"),
            lambda row: (
                f"{place(row)}: the rater is blank; name one, such as 'unknown', or drop the row"
            ),
        )
        labels["raters"], read["rater"] = labeled(table, "rater")
    if "group" in there and not table.blank("group").all():
        labels["groups"], read["group"] = labeled(table, "group")
    if "shown_first" in there:
        side = one_of_two(table, "shown_first", items, winner, loser)
        read["shown_first"] = np.where(side < 0, 0, np.where(side == winner, 1, -1))
    what: tuple[Covariate, ...] = ()
    if wanted:
        before = known.covariates_are if known else ()
        what, ahead = read_covariates(table, names, items, sides, wanted, before, lists == "exact")
        read["covariates"] = np.where(winner == sides[0], 1.0, -1.0)[:, None] * ahead + 0.0
    if "weight" in there:
        weight = weights(table)
        read |= {"weight": weight} if np.any(weight != 1) else {}
    notes: tuple[str, ...] = ()
    if "list" in there and lists == "exact":
        rows = np.flatnonzero(~table.blank("list"))
        number, named = np.full(len(table.frame), -1), table.labels("list", rows)
        place_of = {label: place for place, label in enumerate(dict.fromkeys(named))}
        number[rows] = [place_of[label] for label in named]
        read, notes = read_lists(read | {"list_label": number}, number, table.place)
        labels |= {"lists": tuple(place_of)} if "list" in read else {}
    answers = Comparisons(
        **_merged(read, items.labels), **labels, strengths=highest, covariates_are=what
    )
    if known and known.covariates_are:
        answers = replace(answers, covariate_scales=known.covariate_scales)
    else:
        answers = answers.rescaled()
    notes = (*notes, *alike_note(answers.raters, "rater"), *alike_note(answers.groups, "group"))
    every = (
        *table.notes,
        *unused,
        *blank_note(table.blanks),
        *notes,
        *_notes(table, answers, lists),
    )
    return answers, tuple(f"{NAME}: {note}" for note in every)


def answer_table(
    value: Any,
    columns: Mapping[str, str] | None = None,
    covariates: Sequence[str] = (),
    lists: ListReading = "exact",
    labels: Container[Any] = (),
) -> Table:
    """Return a table of answers with our names of columns; of a list of pairs, winner first, or of `Rankings`.

    Some ``labels`` are read as they are, see `read_labels`.
    """
    known = (*_ALL, *known_columns(check_names(covariates, _ALL)))
    for name in columns or {}:
        if name not in known and not SHOWN(name):
            hint = did_you_mean(name, known, f"they are {', '.join(known)}")
            raise DataError(f"columns: {name!r} is no column of answers; {hint}")
    if hasattr(value, "rankers"):
        value = pairs_of_rankings(value, every=lists == "pairs")
    if isinstance(value, Iterator):
        value = list(value)
    if isinstance(value, list | tuple | np.ndarray) and not (
        len(value) and isinstance(value[0], Mapping)
    ):
        for row, pair in enumerate(value):
            if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2:
                raise DataError(
                    f"{NAME}[{row}] is {shown(pair)}; each pair is two labels, (winner, loser)"
                )
        ends = {name: [pair[end] for pair in value] for end, name in enumerate(_WINNER_FORM)}
        value = pd.DataFrame(ends, dtype=object)
    if isinstance(value, str) and suffix_of(value) not in SUFFIXES:
        raise DataError(f"{NAME} is {shown(value)}; give a table, or a list of pairs, winner first")
    table = replace(known_names(renamed(as_table(value, NAME), columns), known), known=labels)
    if table.frame.empty:
        raise DataError(
            f"{table.name}: the table has no rows; give at least one answer, or no table"
        )
    return as_pairs(recognized(table), covariates)


def compared(table: Table, covariates: Sequence[str] = ()) -> list[Any]:
    """The labels of those that a table compares, see `read_comparisons`, in the order of its rows; some more than once."""
    names, _ = _check_form(table, covariates)
    ends = (table.labels(name) for name in names)
    return list(chain.from_iterable(zip(*ends, strict=True)))


def _exchanged(rows: Any, first: Any, second: Any) -> tuple[Any, Any]:
    return np.where(rows, second, first), np.where(rows, first, second)


def _check_form(
    table: Table, covariates: Sequence[str] = ()
) -> tuple[tuple[str, str], tuple[str, ...]]:
    """The names of the two columns of items, and a note on columns that are not used; refuses columns that are in no form."""
    there = set(table.frame.columns)
    either = (*_EITHER, *known_columns(covariates))
    if "loser" in there or not there & set(_PAIR_FORM):
        if "probability" in there:
            raise DataError(
                f"{table.name}: a table with the column 'probability' names no winner; name its "
                "columns first, second, "
                "probability (of the first being the better)"
            )
        _refuse_named_winners(table)
        optional = (*either, "tie", "strength")
        return _WINNER_FORM, check_columns(
            table, _WINNER_FORM, optional, _ALL, _fitting(table, _WINNER_FORM)
        )
    forms = {
        "probability": either,
        "result": (*either, "strength"),
        "winner": (*either, "tie", "strength"),
    }
    answer = next((name for name in forms if name in there), None)
    if answer is None:
        if there.issuperset(_PAIR_FORM):
            raise DataError(
                f"{table.name}: there is neither a column 'winner' nor 'probability' nor 'result' "
                "beside first and second; name the "
                "one that holds the answers"
            )
        answer = "winner"
    required = (*_PAIR_FORM, answer)
    return _PAIR_FORM, check_columns(
        table, required, forms[answer], _ALL, _fitting(table, _PAIR_FORM)
    )


def _fitting(table: Table, ends: tuple[str, str]) -> Callable[[str, Any], bool]:
    """Return a function that tells whether the cells of a column may be those of one that the table lacks.

    One of two ends shares labels with the other one; further columns hold numbers or labels.
    """

    def fits(lacking: str, column: Any) -> bool:
        if lacking in ends:
            there = [end for end in ends if end in table.frame.columns]
            return len(there) == 2 or (len(there) == 1 and hold_one_set(table, there[0], column))
        cells = set(map(str, table.frame[column].iloc[:ROWS_LOOKED_AT]))
        if lacking in _NUMERIC:
            return cells <= TRUTH.keys() or all(number(cell, True) is not None for cell in cells)
        return not cells <= TRUTH.keys()

    return fits


def _apart(table: Table, ends: tuple[str, str], first: Any, second: Any) -> tuple[str, ...]:
    """Return a note on two columns of labels that share none; refuse them where ``columns`` names only one of them."""
    named = sum(end in table.given for end in ends)
    # A few answers may share none where no other column can be meant; choices have losers that
    # never win.
    few = len(first) < (2 if named or table.frame.shape[1] > 2 else _FEW)
    if few or "list" in table.frame.columns or np.isin(first, second).any():
        return ()
    called = [table.called(end) for end in ends]
    note = f"the columns {called[0]!r} and {called[1]!r} share no label"
    if named == 1:
        raise DataError(
            f"{table.name}: {note}, so one of them is most likely no column of items; say which "
            "columns hold the "
            "two items of each answer, naming both in columns"
        )
    return (f"{note}: no item is in both, so see whether both hold items",)


def _refuse_named_winners(table: Table) -> None:
    """Say how to read a table in which two other columns hold those that were compared, such as home and away."""
    columns = set(table.frame.columns)
    others = [name for name in table.frame.columns if name not in _ALL]
    if not columns & {"winner", "loser"}:
        pair = next((pair for pair in combinations(others, 2) if hold_one_set(table, *pair)), None)
        if pair is not None:
            raise DataError(
                f"{table.name}: there is no column 'winner', and {pair[0]!r} and {pair[1]!r} hold "
                "labels of one set: say that these two "
                f"were compared, {column_option(dict(zip(_PAIR_FORM, pair, strict=True)))}, and "
                "which column says who won: winner, "
                "result or probability; or name the columns winner and loser, if one of them "
                "always won"
            )
    if list(table.frame.columns).count("winner") != 1:
        return
    head = table.frame.head(ROWS_LOOKED_AT)
    named = [name for name in others if name in set(head["winner"])]
    if len(named) == 2 and (
        "loser" not in columns or set(head["winner"]).isdisjoint(head["loser"])
    ):
        raise DataError(
            f"{table.name}: the cells of 'winner' are names of columns: rename it, and add a "
            "column that says 1 where the item in "
            f"{named[0]!r} won, 0 where that in {named[1]!r} did and 0.5 for a tie, such as 'won': "
            f"{column_option(dict(zip((*_PAIR_FORM, 'result'), (*named, 'won'), strict=True)))}"
        )
    if "loser" in columns:
        return
    rows = np.flatnonzero(~table.blank("winner"))
    cells = {name: table.frame[name].iloc[rows].tolist() for name in table.frame.columns}
    for one, other in combinations(others, 2):
        if all(map(contains, zip(cells[one], cells[other], strict=True), cells["winner"])):
            raise DataError(
                f"{table.name}: there is no column 'loser', and every winner is in {shown(one)} or "
                f"{shown(other)}; say that these two were "
                f"compared: {column_option({'first': one, 'second': other})}"
            )


def _notes(table: Table, answers: Comparisons, lists: ListReading) -> tuple[str, ...]:
    notes = []
    size = len(table.frame)
    if answers.winner.size < size and answers.list is None:
        distinct = counted(answers.winner.size, "distinct one")
        notes.append(f"{counted(size, 'row')} merged into {distinct}, counts added up")
    if "list" in table.frame.columns and lists == "pairs":
        number = counted(table.frame["list"].nunique(), "choice or list", "choices or lists")
        notes.append(
            f"{counted(size, 'pair')} {COMPOSED} {number}; the pairs of one are treated as "
            "independent, so that intervals are too "
            "narrow: those of 80% hold 43% of the differences between 20 drivers by their "
            "finishing orders"
        )
    if answers.weight is not None:
        notes.append(weight_note(answers, table.called("weight")))
    if answers.tie is not None and answers.tie.all():
        notes.append("every answer is a tie: that says utilities are near, not whose is higher")
    return tuple(notes)


def weight_note(answers: Comparisons, column: Any = "weight") -> str:
    """Return what weights do to intervals, with the mean of the column where it is large."""
    assert answers.weight is not None
    note = (
        "answers have weights: the probability of each is taken to that power, which is no model "
        "of how people answer; the widths of "
        "intervals follow from the weights"
    )
    mean = float(np.average(answers.weight, weights=answers.count))
    if mean <= _HEAVY:
        return note
    return (
        f"{note}. The mean of the column {column!r} is {mean:.3g}, and an answer of weight w "
        "counts as w answers, "
        f"so intervals are about √{mean:.3g} = {np.sqrt(mean):.2g} times narrower than with a mean "
        "of 1: divide the "
        "column by its mean, or rename it if it says something else, such as kilograms"
    )


class Change(NamedTuple):
    """Answers after a change."""

    answers: Comparisons
    before: NDArray[np.int64]  # which row each was before the change; −1 for a new one
    rows: NDArray[
        np.int64
    ]  # for each row of the change, where it is now; of what was taken back, where it was before


def changed(
    known: Comparisons, other: Comparisons, items: Sequence[Any], *, withdraw: bool
) -> Change:
    """Answers and more of them, or without some; raters and groups of ``other`` that are known have their places already."""
    for name in COLUMNS:
        # Where only one of the two has a column, the other one gets it if what is missing can be
        # known.
        first, second = getattr(known, name), getattr(other, name)
        if first is None and second is not None:
            known = _with_column(name, known, second, "the answers so far", "the new answers")
        elif first is not None and second is None:
            other = _with_column(name, other, first, "the new answers", "the answers so far")
    if other.list_label is not None:
        # Lists of equal labels are different ones, unless they are to be taken back.
        place_of = {label: place for place, label in enumerate(known.lists)}
        places = [place_of.get(label, -1) for label in other.lists] if withdraw else []
        places = places or [len(known.lists) + place for place in range(len(other.lists))]
        other = replace(other, list_label=np.array([*places, -1], dtype=np.int32)[other.list_label])
    strengths = max(known.strengths, other.strengths)
    labels = {name: getattr(other, name) or getattr(known, name) for name in ("raters", "groups")}
    labels["lists"] = known.lists if withdraw else known.lists + other.lists
    answers = replace(other, strengths=strengths, **labels)
    columns = {
        name: np.concatenate([column, other.columns[name]])
        for name, column in known.columns.items()
    }
    if known.list is not None and withdraw:
        columns["list"] = np.concatenate([known.list, known_lists(known.columns, other.columns)])
    elif known.list is not None:
        columns = joined_lists(known.columns, other.columns)
    order, starts = _groups_of(columns)
    group = np.empty(len(order), dtype=np.int64)
    group[order] = np.repeat(np.arange(len(starts)), np.diff([*starts, len(order)]))
    size = len(known.winner)
    before = np.full(len(starts), -1, dtype=np.int64)
    before[group[:size]] = np.arange(size)
    if not withdraw:
        return Change(replace(answers, **_merged(columns, items)), before, group[size:])
    rows = before[group[size:]]
    there = np.append(known.count, 0)[rows]  # 0 for what was never given
    taken = np.bincount(group, [*np.zeros(size), *other.count])[group[size:]].astype(np.int64)
    refuse_first(
        taken > there,
        lambda row: (
            f"withdraw: the answer {shown((items[other.winner[row]], items[other.loser[row]]))} is "
            "to be taken back "
            f"{taken[row]} times and was given {there[row]} times; "
            "name answers as they were given, with their rater, strength and group"
        ),
    )
    count = np.array(known.count, dtype=np.int64)
    count[rows] -= taken  # of every row of a group the same
    left = np.flatnonzero(count)
    arrays: dict[str, Any] = {name: column[:size][left] for name, column in columns.items()}
    arrays["count"] = count[left].astype(np.int32)
    if known.list is not None:
        arrays = {**NO_LISTS, **numbered(arrays)}
    return Change(replace(answers, **arrays), left, rows)


def _with_column(name: str, answers: Comparisons, like: Any, these: str, those: str) -> Comparisons:
    """With a column of zeros: no ties, an unknown position, or nothing without answers. No list and no group are −1, and a weight is 1."""
    size = len(answers.winner)
    all_tied = answers.tie is not None and bool(answers.tie.all())
    if not (
        name in ("tie", "shown_first", *_NONE) or size == 0 or (name == "strength" and all_tied)
    ):
        raise DataError(
            f"{NAME}: {those} have the column {name!r} and {these} do not; give it for both"
        )
    shape = (size, *like.shape[1:])
    column: dict[str, Any] = {name: np.full(shape, _NONE.get(name, 0), dtype=_TYPES[name])}
    return replace(answers, **column)
