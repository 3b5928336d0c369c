"""Covariates of an answer: facts about its two sides, such as who is at home."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from relpref.data.arrays import (
    Array,
    Columns,
    Floats,
    Integers,
    Positions,
    Texts,
    did_you_mean,
    listed,
    shown,
)
from relpref.data.attributes import read_column
from relpref.data.columns import Rows
from relpref.data.labels import LabelIndex, is_missing, label_column, plain_labels
from relpref.data.readings import words
from relpref.data.tables import Kind, Table
from relpref.errors import DataError
from relpref.limits import MAX_ATTRIBUTE, MAX_COVARIATES

_ENDS = ("first", "second"), ("winner", "loser")
EFFECT = "effect"  # the site of programs
_CONTEXT = "describes a context of the answer, not a side, so it cannot favor either"


@dataclass(frozen=True)
class Covariate:
    """A number or a category of either side, or the side that a column names, or neither."""

    name: str
    kind: Literal["number", "category", "side"]
    levels: Texts = ()  # of a category

    @property
    def effects(self) -> Texts:
        """Names of its effects, one for each column."""
        return tuple(f"{self.name}[{level}]" for level in self.levels) or (self.name,)

    def columns(self, ends: Sequence[str]) -> Texts:
        """The columns of a table that hold it, by the names of the columns of items."""
        return (self.name,) if self.kind == "side" else pair_of(self.name, ends)


Covariates = Sequence[Covariate]


def pair_of(name: str, ends: Sequence[str]) -> Texts:
    """The columns for the two sides of an answer."""
    return tuple(f"{name}_{end}" for end in ends)


def with_sides(table: Kind, names: Sequence[str], columns: Mapping[str, str]) -> Kind:
    """Add columns of covariates and ``shown_first`` that a table of pairs has by other names.

    ``length_home`` and ``home_length`` beside ``home_team`` are ``length_first``; and a name that
    the column of one side has itself, or is given to in ``columns``, names that side.
    """
    ends = next((ends for ends in _ENDS if {*ends} <= {*table.columns}), None)
    if ends is None:
        return table
    frame = table.frame
    given = dict(table.given)
    called = [set(words(table.called(end))) for end in ends]
    for name in ("shown_first", *names):
        for end in ends:
            if table.called(end) == columns.get(name, name) and name not in frame.columns:
                frame = frame.assign(**{name: frame[end]})
                given[name] = table.called(end)
        if name in frame.columns:
            continue
        alike = set(words(name))
        for end, side, other in zip(ends, called, called[::-1], strict=True):
            marker = side - other
            for column in table.columns:
                parts = set(words(column))
                apart = parts - alike
                if alike < parts and apart in (marker, {word[0] for word in marker}):
                    given[f"{name}_{end}"] = column
                    frame = frame.rename(columns={column: f"{name}_{end}"})
    return replace(table, frame=frame, given=given)


def read_covariates(
    rows: Rows, names: Sequence[str], known: tuple[Covariate, ...] = ()
) -> tuple[tuple[Covariate, ...], Floats]:
    """Read covariates, and what the first side of each row has more of than the second.

    Parameters
    ----------
    rows : Rows
        A covariate x of numbers or categories is in ``x_<end>`` for both columns of items, one
        that names a side in ``x``.
    names : sequence of str
    known : tuple of Covariate
        Those of answers so far.

    Returns
    -------
    covariates : tuple of Covariate
    differences : array of float64, shape (m, q)

    Raises
    ------
    DataError
        If there are no such columns, a value is missing or not finite, or the two sides are always
        equal.
    """
    table = rows.table
    ends = rows.ends
    for column in (column for covariate in known for column in covariate.columns(ends)):
        if column not in table.columns:
            raise DataError(
                f"{table.name}: there is no column {column!r}, and answers so far have the "
                f"covariates {', '.join(names)}; give it"
            )
    covariates = known or tuple(_covariate(rows, name) for name in names)
    number = sum(len(covariate.effects) for covariate in covariates)
    if number > MAX_COVARIATES:
        raise DataError(
            f"covariates: {number} effects are more than the limit of {MAX_COVARIATES}; group the "
            "levels of categories, or leave some out"
        )
    first, second = both_sides(rows, covariates)
    if not known:
        equal = np.split((first == second).all(axis=0), _ends_of(covariates))
        for covariate, same in zip(covariates, equal, strict=False):
            if same.all():
                columns = covariate.columns(ends)
                what = f"{columns[0]!r} is blank in every row, and says nothing"
                if len(columns) == 2:
                    both = f"{columns[0]!r} equals {columns[1]!r} in every row"
                    what = f"{both}: such a covariate {_CONTEXT}"
                name = covariate.name
                raise DataError(f"{table.name}: {what}; leave {name!r} out of covariates")
    return covariates, first - second


def _ends_of(covariates: Covariates) -> Integers:
    return np.cumsum([len(covariate.effects) for covariate in covariates])


def _covariate(rows: Rows, name: str) -> Covariate:
    """Return what a covariate is by its columns and their cells."""
    table = rows.table
    columns = pair_of(name, rows.ends)
    columns_there = table.columns
    missing = [column for column in columns if column not in columns_there]
    if not missing:
        if "category" in {_cells(table, column).kind for column in columns}:
            # Numbers on the other side are levels, too.
            levels = {text for column in columns for text in _as_text(table, column)}
            return Covariate(name, "category", tuple(sorted(levels)))
        return Covariate(name, "number")
    if name not in columns_there or len(missing) == 1:
        either = f"{columns[0]!r} and {columns[1]!r}"
        raise DataError(
            f"{table.name}: there is no column {missing[0]!r} among {listed(columns_there)}; the "
            f"covariate {name!r} is to be in {either} (its values of the two sides), or in a "
            f"column {name!r} that names one of the two items or is blank"
        )
    stated = np.flatnonzero(~table.blank(name))
    labels = table.labels(name, stated)
    named = np.array([rows.items.get(label) for label in labels], dtype=np.int64)
    if len(stated) and not np.any((named == rows.first[stated]) | (named == rows.second[stated])):
        raise DataError(
            f"{table.cell(name, stated)(0)}: {shown(labels[0])} is neither of the two items of the "
            f"row, and no other row names one of its own: the column {_CONTEXT}. Give values of "
            f"both sides in the columns {columns[0]!r} and {columns[1]!r}, or leave it out of "
            "covariates"
        )
    return Covariate(name, "side")


def _cells(table: Table, column: str) -> Any:
    remedy = "write the value of this side, a number or a category"
    cells = table.points(table.frame[column])
    read = read_column([cells], column, table.place, text=table.text, remedy=remedy)
    table.refuse(column, read.missing, " is no value of the covariate; fill it in, or drop the row")
    if read.kind != "category":
        large = np.abs(read.values) > MAX_ATTRIBUTE
        table.refuse(column, large, f" exceeds {MAX_ATTRIBUTE}; rescale")
    return read


def _as_text(table: Table, column: str) -> list[str]:
    return [str(cell) for cell in table.labels(column)]


def both_sides(rows: Rows, covariates: Covariates) -> tuple[Floats, Floats]:
    """Read the covariates of both sides, shape (m, q) each; 0 of one that the table does not have.

    Raises
    ------
    DataError
        If a value is missing, not finite, no level that is known, or only one of the two sides has
        one.
    """
    table = rows.table
    nothing = np.zeros((len(rows.table.frame), 0))
    sides = [(nothing, nothing)]
    for covariate in covariates:
        columns = covariate.columns(rows.ends)
        lacking = [column for column in columns if column not in table.frame]
        if 0 < len(lacking) < len(columns):
            given = next(column for column in columns if column not in lacking)
            raise DataError(
                f"{table.name}: there is a column {given!r} and none {lacking[0]!r}; give both "
                "sides"
            )
        if covariate.kind == "side" and not lacking:
            named = rows.named_side(covariate.name)[:, None]
            sides.append(((named > 0).astype(np.float64), (named < 0).astype(np.float64)))
        else:
            columns = pair_of(covariate.name, rows.ends)
            first, second = (_values(table, column, covariate) for column in columns)
            sides.append((first, second))
    first, second = (np.concatenate(side, axis=1) for side in zip(*sides, strict=True))
    return first, second


def _values(table: Table, column: str, covariate: Covariate) -> Floats:
    """Return the effects in each row, shape (m, effects); 0 without the column."""
    if column not in table.frame:
        return np.zeros((len(table.frame), len(covariate.effects)))
    if covariate.kind == "number":
        cells = _cells(table, column)
        wrong = np.full(len(cells.values), cells.kind == "category")
        reason = f" is no number, as {covariate.name!r} is in the other answers; write a number"
        table.refuse(column, wrong, reason)
        return np.asarray(cells.values, dtype=np.float64)[:, None]
    table.refuse(
        column, table.blank(column), " is no value of the covariate; fill it in, or drop the row"
    )
    level = LabelIndex(covariate.levels, str)
    places = np.array([level.get(text) for text in _as_text(table, column)], dtype=np.int64)
    table.refuse(
        column,
        places < 0,
        f" is no known level of {covariate.name!r}; the levels are {listed(covariate.levels)}",
    )
    return np.eye(len(level))[places]


def scales_of(
    covariates: Covariates, values: Floats, count: Array, otherwise: Floats | float
) -> Floats:
    """Return what differences are divided by, shape (q,).

    That is the root mean square over answers for numbers, and ``otherwise`` for categories, sides,
    and numbers that are equal on both sides of every answer.
    """
    squares = (
        np.average(np.square(values), axis=0, weights=count)
        if len(values)
        else np.zeros(values.shape[1])
    )
    numbers = [covariate.kind == "number" for covariate in covariates for _ in covariate.effects]
    return np.where(numbers & (squares > 0), np.sqrt(squares), otherwise)


def written(
    covariates: Covariates, values: Floats, labels: Any, sides: Any, ends: Any
) -> dict[str, Any]:
    """Return columns of a table of pairs from which the same differences are read."""
    columns = {}
    parts = np.split(values, _ends_of(covariates), axis=1)
    for covariate, part in zip(covariates, parts, strict=False):
        if covariate.kind == "side":
            named = np.where(part[:, 0] > 0, *sides)
            cells = label_column((*labels, None)).take(np.where(part[:, 0] == 0, -1, named))
            columns[covariate.name] = cells
        else:
            both = np.stack([part, np.zeros_like(part)], axis=1).reshape(-1, part.shape[1])
            cells = _item_cells(covariate, both, np.repeat(np.arange(len(part)), 2))
            columns |= dict(zip(covariate.columns(ends), (cells[::2], cells[1::2]), strict=True))
    return columns


def written_items(covariates: Covariates, values: Floats, number: Array) -> dict[str, Any]:
    """Return columns of a table of orders from which the same differences are read.

    Parameters
    ----------
    covariates : sequence of Covariate
    values : array of float64, shape (m, q)
        Those of each item less those of one item of its list.
    number : array of int, shape (m,)
        The list of each item, ascending.
    """
    parts = np.split(values, _ends_of(covariates), axis=1)
    return {
        covariate.name: _item_cells(covariate, part, number)
        for covariate, part in zip(covariates, parts, strict=False)
    }


def _item_cells(covariate: Covariate, values: Floats, number: Array) -> Any:
    """Return the numbers or levels of the items of lists, see `written_items`."""
    if covariate.kind != "category" or not len(values):
        return values[:, 0]
    begins = np.diff(number, prepend=-1) > 0
    # One item has the level that others of its list lack; any, if all have the same.
    lacking = np.minimum.reduceat(values, np.flatnonzero(begins)).argmin(axis=1)
    shifted = values + np.eye(values.shape[1])[lacking[np.cumsum(begins) - 1]]
    return np.array(covariate.levels, dtype=object)[shifted.argmax(axis=1)]


def equal_sides(covariates: Covariates, rows: int) -> dict[str, Any]:
    """Return columns, beside winner and loser, of answers whose two sides are equal."""
    nothing = np.zeros((rows, sum(len(covariate.effects) for covariate in covariates)))
    nobody = np.zeros(rows, dtype=np.int32)
    return written(covariates, nothing, (), (nobody, nobody), ("winner", "loser"))


def asked_covariates(
    covariates: Covariates,
    given: Columns,
    items: LabelIndex,
    sides: tuple[Positions, Positions],
) -> Floats:
    """Return the differences between the two items of pairs, shape (k, q); 0 if not given.

    ``given`` are columns by name, or one value for all pairs: ``x_first`` and ``x_second``, or the
    item that a column x names.
    """
    ends = ("first", "second")
    columns = [column for covariate in covariates for column in covariate.columns(ends)]
    table = _asked_table(covariates, columns, given, len(sides[0]), "pair")
    return np.subtract(*both_sides(Rows(table, items, ends, *sides), covariates))


def covariates_of_items(
    covariates: Covariates, given: Columns, items: LabelIndex, chosen: Positions
) -> Floats:
    """Return the covariates of the items of a list, shape (k, q); 0 of those not given.

    Parameters
    ----------
    covariates : sequence of Covariate
    given : mapping from name to values
        One value for each item, or one for all; of a covariate that names a side, the item it
        names.
    items : LabelIndex
    chosen : array of int, shape (k,)
        The items of the list.
    """
    names = [covariate.name for covariate in covariates]
    table = _asked_table(covariates, names, given, len(chosen), "item")
    columns = [np.zeros((len(chosen), 0))]
    for name, covariate in zip(names, covariates, strict=True):
        if covariate.kind == "side" and name in given:
            columns.append((chosen == _named(name, given[name], items, chosen))[:, None])
        else:
            columns.append(_values(table, name, covariate))
    return np.concatenate(columns, axis=1)


def _named(name: str, label: Any, items: LabelIndex, chosen: Positions) -> int:
    """Return the position of the item of a list that a covariate names, −1 if it is missing."""
    if is_missing(label):
        return -1

    remedy = "name an item of the list"
    position = int(items.locate(plain_labels([label], lambda _: name), lambda _: name, remedy)[0])
    if position not in chosen:
        items_there = listed(items.labels[at] for at in chosen)
        raise DataError(
            f"{name}: {shown(label)} is none of the items of the list, {items_there}; {remedy}"
        )
    return position


def _asked_table(
    covariates: Covariates, known: Sequence[str], given: Columns, size: int, unit: str
) -> Table:
    """Return values for some pairs or items as a table; its columns must be ``known``."""
    for name in given:
        if not covariates:
            raise DataError(
                f"{name} is given, but the answers have no covariates; leave it out, or read them "
                f"with covariates=[{name!r}]"
            )
        if name not in known:
            hint = did_you_mean(name, known, f"they are {listed(known)}")
            raise DataError(f"covariates: {name!r} is no column of the answers' covariates; {hint}")
    frame = {}
    for name, value in given.items():
        alone = isinstance(value, str | tuple) or not hasattr(value, "__len__")
        cells = [value] * size if alone else list(value)
        if len(cells) != size:
            values = f"{len(cells)} values for {size} {unit}s"
            raise DataError(f"{name} has {values}; give one for each, or one for all")
        frame[name] = pd.Series(cells, dtype=object).infer_objects()
    return Table(pd.DataFrame(frame, index=range(size)), f"{unit}s")
