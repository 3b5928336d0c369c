"""Recognize tables of answers as people write them, and give their columns the names used here.

A form is recognized by the names of its columns and confirmed by their cells. A table that fits
two forms is refused with both, and so is one with columns that look like answers but fit no form.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations, product
from operator import contains
from typing import Any

import numpy as np

from relpref.data.arrays import listed
from relpref.data.columns import COLUMNS, FORMS, form_of
from relpref.data.order_readings import (
    best_and_worst,
    long_orders,
    orders_by_item,
    orders_by_place,
    orders_in_cells,
)
from relpref.data.pair_readings import (
    label_pairs,
    named_outcomes,
    pairs,
    repeated,
    says_more,
    share_labels,
    tried_outcomes,
    versus,
)
from relpref.data.readings import (
    ADVANTAGE,
    COUNTS,
    DOUBTFUL,
    EVENTS,
    GOALS,
    OUTCOMES,
    RATERS,
    SCORES,
    Reading,
    Sheet,
    is_numeric,
    terms,
)
from relpref.data.tables import Table, column_option, renamed
from relpref.errors import DataError

# Names that ``columns`` may give beside those of the schema: of what an outcome is computed from.
ASIDE = ("score", "first_score", "second_score", "best", "worst")
_NO_ANSWERS = (
    "the columns {} are not recognized as answers; a table of answers has two columns of items and "
    "one that says which was preferred (first, second, winner; or winner, loser), or an event, an "
    "item and its place (list, item, place): say in columns= which columns are these"
)
_ROLES = terms("list, item, place, first, second, winner, loser, result").union(ASIDE)
_OF_PAIRS = _ROLES - terms("list, item, place, score, best, worst")
# Ways to read a table, and the names of columns that each uses: a table is not read in a way that
# would pass over one that the user gave. Those of the first group that read it are all that are
# tried; the second groups are those where it is said which times or points are better.
_FORMS: tuple[Sequence[Mapping[Any, frozenset[str]]], ...] = (
    (
        {best_and_worst: _ROLES},
        {
            long_orders: terms("list, item, place"),
            orders_by_item: terms("list, item"),
            pairs: _OF_PAIRS,
            orders_by_place: terms("list"),
        },
        {orders_in_cells: _ROLES, versus: _OF_PAIRS - terms("first, second, loser")},
    ),
    (
        {best_and_worst: _ROLES},
        {long_orders: terms("list, item, score"), orders_by_item: terms("list, item")},
        {orders_in_cells: _ROLES},
    ),
)
_HIGH = " (high is better)"
_MOST_LOOKED_AT = 12  # columns
# Cells of outcomes that are left as they are.
_PLAIN = {"result": r"-?[01]|0\.5|½|1/2|True|False|", "place": r"\d*"}
# Names of neighboring columns that are suggested where a table has none.
_NAMES = (
    "first,second,winner",
    "first,second,first_score,second_score",
    "winner,loser",
)
_COMPARED = ["winner", "tie", "list", "item", "place"]


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
    readings = _readings(sheet)
    if len(readings) > 1:
        ways = "; or ".join(_way(sheet, reading) for reading in readings)
        raise DataError(f"{table.name}: the table can be read in several ways: {ways}")
    if not readings and (remedy := _remedy(sheet)):
        raise DataError(f"{table.name}{remedy}")
    if not readings or not readings[0].description:
        return table
    read = readings[0].table()
    note = f"the table was read as {readings[0].description}"
    return replace(read, notes=(*read.notes, note))


def ends_of(table: Table) -> set[Any]:
    """Return the columns that most likely hold the labels of the two sides of an answer."""
    sheet = Sheet(table)
    return {end for pair in label_pairs(sheet) for end in (pair.first, pair.second)}


def _readings(sheet: Sheet) -> list[Reading]:
    """Return the ways in which a table can be read, without a description as it is."""
    if _is_ours(sheet):
        return [Reading("", lambda: sheet.table)]
    for group in _FORMS[bool(sheet.better)]:
        forms = [form for form, names in group.items() if sheet.named & _ROLES <= names]
        if readings := [reading for form in forms for reading in form(sheet)]:
            return readings
    return []


def _is_ours(sheet: Sheet) -> bool:
    """Tell whether a table has the columns of a form already, with the cells of that form."""
    *ends, outcome = form_of(sheet.columns).columns
    if sheet.better or sheet.named & {*ASIDE} or not {*ends, outcome} <= {*sheet.columns}:
        return False
    cells = sheet.cells(outcome)
    if outcome in _PLAIN:
        plain = re.compile(_PLAIN[outcome]).fullmatch
        ours = outcome not in sheet.named and all(map(plain, {*cells}))
    elif outcome == "winner":
        rows = zip(*map(sheet.cells, ends), strict=True)
        ours = all(map(contains, (("", *row) for row in rows), cells))
    else:
        ours = outcome != "loser" or not says_more(sheet)
    # Scores may say something else, and winners called 1 and 2 may be labels or sides.
    plainly = {*sheet.columns} <= {*COLUMNS, *ends} and not {*cells} <= {"", "1", "2"}
    return ours and (plainly or outcome not in _OF_PAIRS or len([*pairs(sheet)]) < 2)


def _with_names(sheet: Sheet, columns: Mapping[str, Any]) -> Sheet:
    """Return a table as if the user had named these columns."""
    named = (sheet.named - {*columns.values()}) | {*columns}
    return replace(sheet, table=renamed(sheet.table, columns), named=named)


def _works(sheet: Sheet, columns: Mapping[str, Any], like: Table | None = None) -> bool:
    """Tell whether a table is read, as ``like`` where given, if columns have these names."""
    try:
        readings = _readings(_with_names(sheet, columns))
        tables = [like or readings[0].table(), readings[0].table()]
    except (DataError, IndexError):
        return False
    frames = (each.frame.reindex(columns=_COMPARED).astype(object) for each in tables)
    same = np.array_equal(*(frame.fillna("").astype(str) for frame in frames))
    return same and len(readings) == 1


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


def _remedy(sheet: Sheet) -> str:
    """Say why a table that looks like answers cannot be read, and what would make it so."""
    table, roles = sheet.table, sheet.named & _ROLES
    if roles and (without := _readings(replace(sheet, named=sheet.named - roles))):
        return (
            f": no form of answers has {listed(map(table.called, sorted(roles)))} as columns= "
            f"says; leave it out there, and the table is read as {without[0].description}"
        )
    if sheet.better:
        return _points(sheet) or (
            f": better={sheet.better!r} is for times or points of the items of events, and no "
            "columns hold these; name them, as in columns={'list': 'race', 'item': 'name', "
            "'score': 'time'}"
        )
    if {"best", "worst"} <= {*sheet.columns}:
        return (
            ": there is no column 'item_1'; name the columns of what was shown item_1, item_2, "
            "...; where each item has a row, mark one as the best and another as the worst in each "
            "task, by 1 or true, and all others by 0 or false"
        )
    if {"first", "second"} & {*sheet.columns}:
        return ""  # a missing column or a wrong cell, which is refused by its place
    likely, again = label_pairs(sheet), [*repeated(sheet)]
    goals: list[Any] = [pair[:2] for pair in again if pair.rest <= GOALS]
    again = [pair for pair in again if share_labels(sheet, pair) and not pair.numeric]
    for pair, more in [*product(likely + again, goals), *((pair, ()) for pair in again)]:
        # The first of two columns of the same name is most likely of the side that is first.
        first, second = sorted(pair[:2], key=sheet.columns.index)
        columns = {"first": first, "second": second, **dict(zip(ASIDE[1:3], more, strict=False))}
        if _works(sheet, columns):
            called = [*map(table.called, (first, second, *more))]
            what = "{!r} and {!r} hold the two sides"
            what = "{2!r} is of {0!r} and {3!r} is of {1!r}" if more else what
            return f": if {what.format(*called)}: {_option(sheet, columns)}"
    for pair in likely:
        if pair.doubtful or {"winner", "loser"} & sheet.named:
            continue
        if pair.decided:
            option = _option(sheet, dict(zip(("winner", "loser"), pair[:2], strict=True)))
            return (
                f": {pair.first!r} and {pair.second!r} share no label, so the second may hold "
                f"other texts; if both hold items: {option}"
            )
        sides = f": {pair.first!r} and {pair.second!r} hold the two sides of each row"
        exact, similar, _ = named_outcomes(sheet, pair)
        for column, name in product((*exact, *similar), ("result", "winner")):
            columns = {"first": pair.first, "second": pair.second, name: column}
            if not _works(sheet, columns):
                continue
            what, option = "who was preferred (0 and false are no tie)", _option(sheet, columns)
            if any(cell.startswith("-") for cell in sheet.cells(column)):
                what = "how strongly one is preferred"
                turned = _option(sheet, {**columns, "first": pair.second, "second": pair.first})
                option += f" if numbers above 0 are for {pair.first!r}, and else {turned}"
            return f"{sides}; if {column!r} says {what}: {option}"
        for column in exact:
            ways = tried_outcomes(sheet, pair, column, 2 - pair.doubtful)
            row = int(min((np.isposinf(codes) for _, codes in ways), key=np.sum).argmax())
            return (
                f"{table.cell(column)(row).removeprefix(table.name)}: {sheet.cells(column)[row]!r} "
                "is neither a label of its row, nor a word for a side or a tie, nor a result such "
                "as 2:1; correct the cell, or drop the row"
            )
        if share_labels(sheet, pair):
            option = _option(sheet, dict(zip(("winner", "loser"), pair[:2], strict=True)))
            return (
                f"{sides}, and no column says who was preferred, by labels, words such as 'tie' or "
                f"results such as 2:1; if it is always {pair.first!r}: {option}; otherwise add the "
                f"column 'winner' with {pair.first!r} or {pair.second!r} in each row"
            )
    for first, second, outcome in permutations(sheet.columns[:_MOST_LOOKED_AT], 3):
        columns, parts = {"first": first, "second": second, "winner": outcome}, sheet.words(outcome)
        if OUTCOMES.isdisjoint(parts) or not DOUBTFUL.isdisjoint(parts):
            continue
        rows = zip(sheet.cells(first), sheet.cells(second), strict=True)
        if all(map(contains, rows, sheet.cells(outcome))) and _works(sheet, columns):
            return (
                f": every {outcome} is in {first!r} or {second!r}; say that these two were "
                f"compared: {_option(sheet, columns)}"
            )
    scored = _readings(replace(sheet, better="high"))
    if len(scored) == 1 and any(frozenset() < sheet.noun(name) <= EVENTS for name in sheet.columns):
        return (
            f": the table may be {scored[0].description.replace(_HIGH, '')}; say better='low' "
            "(--better low) if the lowest is the best, or better='high' (--better high)"
        )
    if told := _points(sheet):
        return told
    marks = [name for name in sheet.columns if {*sheet.cells(name)} <= {"", "0", "1", "-1"}]
    marked = map(Counter, zip(*map(sheet.cells, marks), strict=True))
    once = len(marks) > 2 and all(row["1"] == row["-1"] == 1 for row in marked)
    if once and _readings(replace(sheet, better="high")):
        return (
            f": each row has 1 and -1 once, in {listed(marks)}; if these are the best and the "
            "worst, say better='high' (--better high), and leave the cells of items that were not "
            "shown blank"
        )
    ours = {*sheet.columns} & {name for form in FORMS for name in form.columns}
    if ours:
        return _alone(sheet) if ours <= terms("item, choice, chosen, result") else ""
    told = _crossed(sheet) or _unnamed(sheet) or _alone(sheet)
    return told or f": {_NO_ANSWERS.format(listed(sheet.columns))}"


def _points(sheet: Sheet) -> str:
    """Say how to read points that items of one set, such as countries, give one another."""
    ranked, ways = replace(sheet, better="high"), dict[str, str]()
    columns = [] if label_pairs(sheet) else sheet.columns[:_MOST_LOOKED_AT]
    for giver, item, score in permutations(columns, 3):
        labels = {*sheet.cells(giver)} & {*sheet.cells(item)}
        if {*sheet.words(score)} & SCORES and labels and not is_numeric(labels):
            for names in ({"list": giver, "item": item, "score": score}, {"item": item}):
                if _works(ranked, names):
                    what = _readings(_with_names(ranked, names))[0].description
                    ways[what.replace(_HIGH, "")] = _option(sheet, names)
                    break
    better = "and better='high' (--better high; or low, if the lowest is the best)"
    either = "; or ".join(f"{what}: {option} {better}" for what, option in ways.items())
    return either and f": the table may be {either}"


def _alone(sheet: Sheet) -> str:
    """Say that numbers of one item in each row, such as totals of votes, compare no items."""
    numbers = [name for name in sheet.columns if is_numeric(sheet.cells(name))]
    labels = [name for name in sheet.columns if name not in numbers]
    size = len(sheet.table.frame)
    if not numbers or len(labels) != 1 or len({*sheet.cells(labels[0])} - {""}) < max(size, 2):
        return ""
    label, number = map(sheet.table.called, (labels[0], numbers[-1]))
    ordered = replace(sheet, table=sheet.table.assign(list=["1"] * size))
    return (
        f": {_NO_ANSWERS.format(listed(sheet.columns))}; if each row is about one {label!r}, "
        f"numbers such as {number!r} are of it alone, and do not compare it with another"
        + "; if all rows are one order: table.assign(list=1)"
        * (len(_readings(ordered)) == 1)
    )


def _crossed(sheet: Sheet) -> str:
    """Say how to unfold a table with a row and a column for each item."""
    label, *others = sheet.columns
    items = [name for name in others if name in sheet.cells(label)]
    if len(items) < max(2, len({*sheet.cells(label)})):
        return ""
    name, cells = label or "Unnamed: 0", np.concatenate([*map(sheet.cells, items)])
    of_items = "" if items == others else f"{items!r}, "
    melt = f": {label!r} and other columns name the same items; table.melt({name!r}, {of_items}"
    if is_numeric(cells):
        return (
            f"{melt}var_name='loser', value_name='count').rename(columns={{{name!r}: 'winner'}})"
            ".query('count > 0') is for cells that count how often the row won"
        )
    return (
        f"{melt}var_name='second', value_name='result').rename(columns={{{name!r}: 'first'}})"
        ".dropna() is for cells that say who won"
    )


def _unnamed(sheet: Sheet) -> str:
    """Say that there is no row of names, where the first row is like others, and name columns."""
    below = {cell for column in sheet.columns for cell in sheet.cells(column)}
    first = [str(name) for name in sheet.columns if name in below and not is_numeric([name])]
    for form, more in product(_NAMES if first else (), range(len(sheet.columns))):
        names = [f"column {at + 1}" for at, _ in enumerate(sheet.columns)]
        names[more : more + form.count(",") + 1] = form.split(",")
        if len(names) == len(sheet.columns):
            frame = sheet.table.frame.set_axis(names, axis=1)
            if _works(Sheet(replace(sheet.table, frame=frame)), {}):
                line = ",".join(names)
                return (
                    f": {first[0]!r} is above the others and among them, so the names of the "
                    f"columns may be missing; write a line of names above, such as {line} (or "
                    f"pandas.read_csv(file, names={line!r}.split(',')))"
                )
    return ""


def hints(read: Table, *, sides: bool) -> Iterator[str]:
    """Yield notes on columns that could be used: who answered, which side has an advantage."""
    sheet = Sheet(read)
    columns, called = sheet.columns, read.called
    for column in () if "rater" in columns else columns:
        lists = read.frame["list"] if "list" in columns else read.frame.index
        alike = (read.frame[column].groupby(lists).nunique() == 1).all()
        if frozenset() < sheet.noun(column) <= RATERS and alike and not read.blank(column).any():
            option = column_option({"rater": called(column)})
            yield f"{called(column)!r} may say who answered: {option} uses it"
    for column in () if "count" in columns else columns:
        if " ".join(sheet.words(column)) in COUNTS:
            cells = {*sheet.cells(column)}
            if cells != {"1"} and all(re.fullmatch(r"[1-9]\d*", cell) for cell in cells):
                option = column_option({"count": called(column)})
                yield f"{called(column)!r} may count equal answers: {option} uses it"
    for name, favored in ADVANTAGE.items() if sides and "first" in columns else ():
        if name not in columns and favored & {*sheet.words("first")} - {*sheet.words("second")}:
            option = column_option({name: called("first")})
            if name != "shown_first":
                call, command = option.split(" (--")
                option = f"{call}, covariates=[{name!r}] (--{command[:-1]} --covariates {name})"
            yield f"{option} estimates the advantage of the side in {called('first')!r}"
    for column in columns:
        if "neutral" in sheet.words(column) and "home" in columns:
            yield (
                f"{called(column)!r} is not used; leave 'home' blank in the rows where neither "
                "side is at home"
            )
