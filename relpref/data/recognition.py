"""Recognize tables of answers as people write them, and give their columns the names used here.

A form is recognized by the names of its columns and confirmed by their cells. A table that fits
two forms is refused with both, and so is one with columns that look like answers but fit no form.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import combinations
from operator import contains
from typing import Any

import numpy as np

from relpref.data.arrays import listed
from relpref.data.columns import FORMS
from relpref.data.order_readings import (
    best_and_worst,
    long_orders,
    numbered,
    orders_by_item,
    orders_by_place,
)
from relpref.data.pair_readings import (
    candidates,
    label_pairs,
    named_outcomes,
    pairs,
    says_more,
    share_labels,
    unread_rows,
)
from relpref.data.readings import (
    DOUBTFUL,
    EVENTS,
    LAST,
    NUMBERS,
    OUT,
    OUTCOMES,
    RATERS,
    Reading,
    Sheet,
    terms,
    words,
)
from relpref.data.tables import Table, column_option, renamed
from relpref.errors import DataError

# Names that ``columns`` may give beside those of the schema: of what an outcome is computed from.
ASIDE = ("score", "first_score", "second_score")
_NO_ANSWERS = (
    "the columns {} are not recognized as answers; a table of answers has two columns of items and "
    "one that says which was preferred (first, second, winner; or winner, loser), or an event, an "
    "item and its place (list, item, place): say in columns= which columns are these"
)
_MOST_LOOKED_AT = 12  # columns
# Words for the side that may have an advantage, by how an answer says so.
_ADVANTAGE = {
    "home": set(terms("home, heim, host, local, casa, domicile, mandante")),
    "white": set(terms("white, weiss, blancs, blanc, blancas, bianco")),
    "shown_first": set(terms("a, 1, first, left, links, gauche, izquierda")),
}


def recognized(
    table: Table, named: Collection[str] = (), options: Mapping[str, str] | None = None
) -> Table:
    """Return a table of answers with the names used here, where its form is recognized.

    Parameters
    ----------
    table : Table
    named : collection of str
        Names used here that the user gave to columns.
    options : mapping of str to str, optional
        See `relpref.options`.

    Raises
    ------
    DataError
        If it can be read in two ways, or holds pairs without an outcome that can be read.
    """
    sheet = Sheet(table, frozenset(named), **(options or {}))
    if _is_ours(sheet):
        return table
    readings = _readings(sheet)
    if len(readings) > 1:
        ways = "; or ".join(_way(sheet, reading) for reading in readings)
        raise DataError(f"{table.name}: the table can be read in several ways: {ways}")
    if readings:
        read = readings[0].table()
        note = f"the table was read as {readings[0].description}"
        return replace(read, notes=(*read.notes, note))
    _refuse(sheet)
    return table


def ends_of(table: Table) -> set[Any]:
    """Return the columns that most likely hold the labels of the two sides of an answer."""
    sheet = Sheet(table)
    pairs = label_pairs(sheet, candidates(sheet))
    return {end for pair in pairs for end in (pair.first, pair.second)}


def _readings(sheet: Sheet) -> list[Reading]:
    """Return the ways in which a table can be read."""
    forms = [long_orders, orders_by_item]
    forms += [] if sheet.better else [pairs, orders_by_place]
    return list(best_and_worst(sheet)) or [reading for form in forms for reading in form(sheet)]


def _is_ours(sheet: Sheet) -> bool:
    """Tell whether a table has the columns of a form already, with the cells of that form."""
    columns = set(sheet.columns)
    form = next((form for form in FORMS if columns >= set(form.columns)), None)
    if len(columns) < len(sheet.columns):
        return True  # a repeated name is refused later
    if form is None or sheet.better:
        return False
    *ends, outcome = form.columns
    cells = set(sheet.cells(outcome))
    if outcome == "loser":
        return not says_more(sheet)
    if outcome == "result":
        ours = not cells.isdisjoint({"", "0", "-1", "0.5", "½", "True"}) or cells == {"1"}
        return ours and "result" not in sheet.named
    if outcome == "place":
        return (
            not {cell.lower() for cell in cells} & (LAST | OUT) and {*map(numbered, cells)} == cells
        )
    if outcome not in ("winner", "worst"):
        return True
    ends = [name for name in sheet.columns if str(name).startswith("item_")] if form.rows else ends
    rows = zip(*map(sheet.cells, ends), strict=True)
    return bool(ends) and all(map(contains, (("", *row) for row in rows), sheet.cells(outcome)))


def _works(sheet: Sheet, columns: Mapping[str, Any], like: Table | None = None) -> bool:
    """Tell whether a table is read, as ``like`` where given, if columns have these names."""
    trial = replace(
        sheet,
        table=renamed(sheet.table, columns),
        named=sheet.named | {*columns},
    )
    try:
        readings = [Reading("", lambda: trial.table)] if _is_ours(trial) else _readings(trial)
        read = readings[0].table() if len(readings) == 1 else None
    except DataError:
        return False
    if read is None or like is None:
        return read is not None
    names = [name for name in ("first", "second", "winner", "tie", "list", "item", "place")]
    names = [name for name in names if name in like.frame.columns]
    frames = (each.frame.reindex(columns=names).astype(object) for each in (read, like))
    return np.array_equal(*(frame.fillna("").astype(str) for frame in frames))


def _option(sheet: Sheet, columns: Mapping[str, Any]) -> str:
    """Return how a call and a command name columns, beside those that have names already."""
    given = {name: name for name in sheet.columns if name in sheet.named}
    names = {ours: sheet.table.called(theirs) for ours, theirs in {**given, **columns}.items()}
    return column_option(names)


def _way(sheet: Sheet, reading: Reading) -> str:
    """Describe a reading, and say what chooses it, where that was tried and reads the same."""
    columns = reading.columns
    if not columns or not _works(sheet, columns, reading.table()):
        return reading.description
    return f"{reading.description}: {_option(sheet, columns)}"


def _refuse(sheet: Sheet) -> None:
    """Refuse a table that looks like answers and cannot be read, and say what would make it so."""
    table, option = sheet.table, ""
    if sheet.better:
        raise DataError(
            f"{table.name}: better={sheet.better!r} is for times or points of the items of events, "
            "and no columns hold these; name them, as in columns={'list': 'race', 'item': 'name', "
            "'score': 'time'}"
        )
    if {"first", "second"} & set(sheet.columns):
        return  # a missing column or a wrong cell, which is refused by its place
    everything = candidates(sheet)
    for pair in label_pairs(sheet, everything):
        if pair.decided or pair.doubtful or {"winner", "loser"} & sheet.named:
            continue
        sides = f"{table.name}: {pair.first!r} and {pair.second!r} hold the two sides of each row"
        exact, similar = named_outcomes(sheet, pair)
        for column in (*exact, *similar):
            for name in ("result", "winner"):
                columns = {"first": pair.first, "second": pair.second, name: column}
                if _works(sheet, columns):
                    raise DataError(
                        f"{sides}; if {column!r} says who was preferred (there is no tie where it "
                        f"is 0 or false): {_option(sheet, columns)}"
                    )
        for column in exact:
            unread = unread_rows(sheet, pair, column, everything)
            row = int(unread.argmax())
            raise DataError(
                f"{table.cell(column)(row)}: {sheet.cells(column)[row]!r} is neither a label of "
                "its row, nor a word for a side or a tie, nor a result such as 2:1; correct the "
                "cell, or drop the row"
            )
        if not share_labels(sheet, pair):
            continue
        raise DataError(
            f"{sides}, and no column says who was preferred, by labels, words such as 'tie' or "
            "results such as 2:1; add one, called 'winner'"
        )
    if option := _unmarked(sheet):
        raise DataError(option)
    scored = replace(sheet, better="low")
    if len(_readings(scored)) == 1 and any(sheet.noun(name) in EVENTS for name in sheet.columns):
        raise DataError(
            f"{table.name}: the table may be {_readings(scored)[0].description.split(' (')[0]}; "
            "say better='low' (--better low) if the lowest is the best, or better='high' "
            "(--better high)"
        )
    if not set(sheet.columns) & {name for form in FORMS for name in form.columns}:
        raise DataError(f"{table.name}: {_NO_ANSWERS.format(listed(sheet.columns))}")


def _unmarked(sheet: Sheet) -> str:
    """Return a message for a table whose winners are all in one of two other columns."""
    parts = {name: set(sheet.words(name)) for name in sheet.columns}
    outcomes = [name for name in parts if parts[name] & OUTCOMES and not parts[name] & DOUBTFUL]
    others = [name for name in sheet.columns if name not in outcomes][:_MOST_LOOKED_AT]
    for outcome in outcomes:
        winners = sheet.cells(outcome)
        for first, second in combinations(others, 2):
            rows = zip(sheet.cells(first), sheet.cells(second), strict=True)
            columns = {"first": first, "second": second, "winner": outcome}
            if all(map(contains, rows, winners)) and _works(sheet, columns):
                return (
                    f"{sheet.table.name}: every {outcome} is in {first!r} or {second!r}; "
                    f"say that these two were compared: {_option(sheet, columns)}"
                )
    return ""


def hints(read: Table, *, sides: bool) -> tuple[str, ...]:
    """Return notes on columns that could be used: who answered, which side has an advantage."""
    notes, columns = [], list(read.frame.columns)
    groups = read.frame.groupby("list") if "list" in columns else None
    for column in columns:
        if "rater" in columns or " ".join({*words(column)} - NUMBERS) not in RATERS:
            continue
        in_lists = groups is None or (groups[column].nunique() == 1).all()
        if in_lists and not read.blank(column).any():
            option = column_option({"rater": read.called(column)})
            notes.append(f"{read.called(column)!r} may say who answered: {option} uses it")
    if sides and "first" in columns:
        first, second = (read.called(end) for end in ("first", "second"))
        for name, favored in _ADVANTAGE.items():
            if name not in columns and {*words(first)} & favored - {*words(second)}:
                call, command = column_option({name: first}).rsplit(" (", 1)
                if name != "shown_first":
                    call += f", covariates=[{name!r}]"
                    command = f"{command[:-1]} --covariates {name})"
                notes.append(f"{call} ({command} estimates the advantage of the side in {first!r}")
        neutral = [read.called(column) for column in columns if "neutral" in words(column)]
        if neutral and "home" in columns:
            notes.append(
                f"{neutral[0]!r} is not used; leave 'home' blank in the rows where neither side is "
                "at home"
            )
    return tuple(notes)
