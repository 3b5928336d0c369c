"""Recognize tables of answers as people write them, and give their columns the names used here.

A form is recognized by the names of its columns and confirmed by their cells. A table that fits
two forms is refused with both, and so is one with columns that look like answers but fit no form.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import permutations, product
from operator import contains
from typing import Any

import numpy as np
import pandas as pd

from relpref.data.arrays import Columns, listed
from relpref.data.columns import COLUMNS, FORMS, form_of
from relpref.data.order_readings import (
    best_and_worst,
    groups_of,
    long_orders,
    orders_by_item,
    orders_by_place,
    orders_in_cells,
    placings,
)
from relpref.data.outcome_cells import middle_of, tried_outcomes
from relpref.data.pair_readings import (
    crossed,
    named_outcomes,
    pairs,
    says_more,
    versus,
    versus_in_names,
)
from relpref.data.readings import (
    ADVANTAGE,
    CHOSEN,
    COUNTS,
    DOUBTFUL,
    EVENTS,
    EXTREMES,
    FEW_WIN,
    GOALS,
    MARGINS,
    MATCHES,
    OUTCOMES,
    RATERS,
    SCORES,
    SIDES,
    Reading,
    Sheet,
    is_numeric,
    terms,
)
from relpref.data.sides import Pair, label_pairs, repeated, share_labels, side_pairs
from relpref.data.tables import Table, column_option, renamed
from relpref.errors import DataError
from relpref.options import OPTIONS

# Names that ``columns`` may give beside those of the schema: of what an outcome is computed from.
ASIDE = ("score", "first_score", "second_score", "best", "worst", "swapped")
READ_AS = "the table was read as "  # begins a note
_NO_ANSWERS = (
    "the columns {} are not recognized as answers; a table of answers has two columns of items and "
    "one that says which was preferred (first, second, winner; or winner, loser), or an event, an "
    "item and its place (list, item, place; for points or times list, item, score): say in "
    "columns= which columns are these"
)
_OF_PAIRS = terms("first, second, winner, loser, result, first_score, second_score, swapped")
_ROLES = _OF_PAIRS.union(ASIDE, terms("list, item, place, item_1, place_1"))
# Ways to read a table, and the names of columns that each uses: a table is not read in a way that
# would pass over one that the user gave. Those of the first group that read it are all that are
# tried; the second groups are those where it is said which times or points are better.
_FORMS = (
    (
        {best_and_worst: _ROLES},
        {
            long_orders: terms("list, item, place"),
            orders_by_item: terms("list, item, item_1"),
            pairs: _OF_PAIRS,
            orders_by_place: terms("list, place_1"),
            orders_in_cells: _ROLES,
        },
        {
            versus: _OF_PAIRS - terms("loser"),
            versus_in_names: _OF_PAIRS - terms("first, second, loser"),
            crossed: terms("winner, loser, first, second"),
        },
    ),
    (
        {best_and_worst: _ROLES},
        {long_orders: terms("list, item, place, score"), orders_by_item: terms("list, item")},
        {orders_in_cells: _ROLES},
    ),
)
_HIGH = " (high is better)"
_MOST_LOOKED_AT = 12  # columns
_LONGEST = 400  # characters of a call that is suggested
# Cells of outcomes that are left as they are.
_PLAIN = {"result": r"-?[01]|0\.5|½|1/2|True|False|", "place": r"\d*"}
# Names of neighboring columns that are suggested where a table has none.
_NAMES = ("first,second,winner", "first,second,first_score,second_score", "winner,loser")
# What columns say that are used by their names.
_USED = {
    "count": "each row counts as many answers as it says, up to {}; rename the column if it says "
    "something else",
    "group": "answers of the same group share more than their items; rename the column if they do "
    "not",
}
_COMPARED = ["winner", "tie", "list", "item", "place"]


def recognized(
    table: Table, named: Collection[str] = (), options: Mapping[str, str] | None = None
) -> Sheet:
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
    given = {**vars(table), "named": frozenset(named), **(options or {})}
    sheet = Sheet(**given)
    readings = _readings(sheet)
    if len(readings) > 1:
        ways = "; or ".join(
            f"{reading.description}: {_option(sheet, reading.columns)}"
            if reading.columns and _works(sheet, reading.columns, reading.table())
            else reading.description
            for reading in readings
        )
        raise DataError(f"{table.name}: the table can be read in several ways: {ways}")
    if not readings and (remedy := _remedy(sheet)):
        sheets = [note for note in table.notes if note.startswith("the sheet ")]
        raise DataError(f"{table.name}{'; '.join([remedy, *sheets])}")
    if not readings or not readings[0].description:
        return sheet
    read = readings[0].table()
    return read.noted(READ_AS + readings[0].description)


def ends_of(table: Table) -> set[Any]:
    """Return the columns that most likely hold the labels of the two sides of an answer."""
    sheet = Sheet(**vars(table))
    return {end for pair in label_pairs(sheet) for end in pair.ends}


def _readings(sheet: Sheet) -> list[Reading]:
    """Return the ways in which a table can be read, without a description as it is."""
    if _is_ours(sheet):
        return [Reading("", lambda: sheet)]
    for group in _FORMS[bool(sheet.better)]:
        forms = [form for form, names in group.items() if sheet.named & _ROLES <= names]
        if readings := [reading for form in forms for reading in form(sheet)]:
            return readings
    if not sheet.better and any(map(sheet.rises, sheet.columns)):
        return _readings(replace(sheet, better="high"))
    return []


def _is_ours(sheet: Sheet) -> bool:
    """Tell whether a table has the columns of a form already, with the cells of that form."""
    *ends, outcome = form_of(sheet.columns).columns
    if (
        sheet.better
        or sheet.rises(outcome)
        or sheet.named & {*ASIDE}
        or not {*ends, outcome} <= {*sheet.columns}
    ):
        return False
    cells = sheet.cells(outcome)
    more = {*sheet.columns} - {*COLUMNS, *ends}
    ours = outcome not in _OF_PAIRS or more <= {outcome} or not says_more(sheet)
    if "tie" in sheet.columns and sheet.marked("tie") is not None:
        ours &= {*map(str.lower, sheet.cells("tie"))} <= {"", "0", "1", "true", "false"}
    if outcome in _PLAIN:
        ours &= outcome not in sheet.named
        ours &= all(re.fullmatch(_PLAIN[outcome], cell) for cell in {*cells})
    elif outcome == "winner":
        ours &= all(map(contains, (("", *row) for row in sheet.texts(ends)), cells))
    # Scores may say something else, and winners called 1 and 2 may be labels or sides.
    plainly = not more and not {*cells} <= {"", "1", "2"}
    return ours and (plainly or outcome not in _OF_PAIRS or len([*pairs(sheet)]) < 2)


def _works(sheet: Sheet, columns: Columns, like: Sheet | None = None) -> bool:
    """Tell whether a table is read, as ``like`` where given, if columns have these names."""
    named = (sheet.named - {*columns.values()}) | {*columns}
    try:
        readings = _readings(replace(renamed(sheet, columns), named=named))
        tables = [like or readings[0].table(), readings[0].table()]
    except (DataError, IndexError):
        return False
    frames = (each.frame.reindex(columns=_COMPARED).astype(object) for each in tables)
    same = np.array_equal(*(frame.fillna("").astype(str) for frame in frames))
    return same and len(readings) == 1


def _option(sheet: Sheet, columns: Columns) -> str:
    """Return how a call and a command name columns, beside those that have names already."""
    given = {name: name for name in sheet.columns if name in sheet.named}
    return sheet.option({**given, **columns})


def _remedy(sheet: Sheet) -> str:
    """Say why a table that looks like answers cannot be read, and what would make it so."""
    roles = sheet.named & _ROLES
    if "place" in roles and {"list", "item"} <= {*sheet.columns}:
        return ""  # a cell that is no place
    if without := _readings(replace(sheet, named=sheet.named - roles)):
        return (
            f": no form of answers has {listed(map(sheet.called, sorted(roles)))} as columns= "
            f"says; leave it out there, and the table is read as {without[0].description}"
        )
    if sheet.better:
        return _points(sheet) or (
            f": better={sheet.better!r} is for times or points of the items of events, and no "
            "columns hold these; name them, as in "
            + column_option({"list": "race", "item": "name", "score": "time"})
        )
    called = {" ".join(sheet.words(name)) for name in sheet.columns}
    if all(ends & called for ends in EXTREMES):
        return (
            ": there is no column 'item_1'; name the columns of what was shown item_1, item_2, "
            "...; where each item has a row, mark one as the best and another as the worst in each "
            "task, by 1 or true, and all others by 0 or false"
        )
    if {"first", "second"} & {*sheet.columns}:
        return ""  # a missing column or a wrong cell, which is refused by its place
    for clauses in _namings(sheet):
        if all(not columns or _works(sheet, columns) for columns, _ in clauses):
            return ", ".join(
                f"{text}: {_option(sheet, columns)}" if columns else text
                for columns, text in clauses
            )
    scored = _readings(replace(sheet, better="high"))
    if len(scored) == 1 and any(
        name == "list" or sheet.is_named(name, EVENTS - CHOSEN) or "-1" in sheet.cells(name)
        for name in sheet.columns
    ):
        scored[0].table()  # refuses numbers that have two readings
        ways = (
            f"better={way!r} (--better {way}) if the {way}est is the best"
            for way in OPTIONS["better"][0]
            if _works(replace(sheet, better=way), {})
        )
        what = scored[0].description.replace(_HIGH, "")
        return f": the table may be {what}; say {', or '.join(ways)}"
    if points := _points(sheet) or _unpaired(sheet):
        return points
    ours = {*sheet.columns} & {name for form in FORMS for name in form.columns}
    if ours - {"result"}:
        return _alone(sheet) if ours <= terms("item, choice, chosen, result") else ""
    nothing = f": {_NO_ANSWERS.format(listed(sheet.columns))}"
    return _changed(sheet) or _unnamed(sheet) or _alone(sheet) or nothing


def _namings(sheet: Sheet) -> Iterator[list[tuple[Columns, str]]]:
    """Yield names of columns by which a table may be read, each with what it would mean.

    A cell that cannot be read is without such names.
    """
    likely = label_pairs(sheet)
    again = [*repeated(sheet)]
    at = sheet.columns.index
    numbers = [pair for pair in side_pairs(sheet, SIDES, sheet.columns) if pair.numeric]
    goals: list[Any] = [
        pair for pair in again + numbers if pair.rest <= GOALS | FEW_WIN | {"rating", "ratings"}
    ]
    points = [
        name
        for name in sheet.columns
        if sheet.parts(name) & GOALS and not sheet.parts(name) & DOUBTFUL
    ]
    if len(points) == 2 and is_numeric(sheet.texts(points).ravel()):
        shared = sheet.parts(points[0]) & sheet.parts(points[1])
        goals += [Pair(points[0], points[1], shared, ("", ""), False, True)] * bool(shared & GOALS)
    again = [
        pair
        for pair in again
        if share_labels(sheet, pair)
        and not pair.numeric
        and sheet.called(pair.first) not in sheet.texts(sheet.columns)
    ]
    for pair, more in [*product(likely + again, goals), *((pair, ()) for pair in again)]:
        if more and named_outcomes(sheet, pair)[0]:
            continue
        # The first of two columns of the same name is most likely of the side that is first.
        sides = (
            pair.ends
            if more and all(more.marker) and all(map(str.startswith, pair.marker, more.marker))
            else sorted(pair.ends, key=at)
        )
        low, ends = more and more.rest & FEW_WIN, (*sides, *more[:2])
        what = "{!r} and {!r} are the sides"
        if more:
            what = "{2!r} is of {0!r} and {3!r} of {1!r}, and the higher wins"
            what = what.replace("higher", "lower") if low else what
        scores = ASIDE[2:0:-1] if low else ASIDE[1:3]
        columns = dict(zip(("first", "second", *scores), ends, strict=False))
        yield [(columns, f": if {what.format(*map(sheet.called, ends))}")]
    for reading in best_and_worst(sheet, quizzes=True):
        what = f": {reading.columns['best']!r} may be the right answer of a quiz"
        yield [(reading.columns, f"{what}; if it is what someone preferred")]
    for pair in likely:
        if pair.doubtful or {"winner", "loser"} & sheet.named:
            continue
        first, second, *_ = pair
        always = {"winner": first, "loser": second}
        sides = f": {first!r} and {second!r} "
        if pair.decided:
            what = "share no label, so the second may hold other texts; if both hold items"
            yield [(always, sides + what)]
            continue
        sides += "hold the two sides of each row"
        exact, similar, _ = named_outcomes(sheet, pair)
        margins = [
            name
            for name in sheet.columns
            if not exact
            and sheet.parts(name) & (MARGINS | SCORES)
            and (sheet.parts(name) & MARGINS or sheet.parts(name).isdisjoint(pair.marker))
            and not sheet.parts(name) & DOUBTFUL
        ]
        filled = [name for name in (*exact, *similar, *margins) if any(sheet.cells(name))]
        for column, name in product(filled, ("result", "winner")):
            columns = {"first": first, "second": second, name: column}
            what = f"{sides}; if {column!r} says "
            if (middle := middle_of(sheet.cells(column))) is not None:
                what += f"how strongly one is preferred, and above {middle} it is {first!r}"
                turned = {**columns, "first": second, "second": first}
                yield [(columns, what), (turned, "and else")]
            else:
                yield [(columns, f"{what}who was preferred (0 and false are no tie)")]
        for column in exact:
            ways = tried_outcomes(sheet, pair, column, 2 - pair.doubtful)
            unread = min((np.isposinf(codes) for _, codes in ways), key=np.sum)
            row = int(unread.argmax())
            cells = sorted({*sheet.cells(column)[unread]})
            rest = sheet.take(np.flatnonzero(~unread))
            line = ""
            numeric = is_numeric(cells)
            # If there are many such cells, they may be the wins of a side.
            most = 0.5 * (len(cells) == 1) if numeric else 0.1
            if unread.mean() <= most and len(_readings(rest)) == 1:
                name = sheet.called(column)
                line = f": table.drop(table.index[table[{name!r}].isin({cells})])"
                if numeric:
                    line = (
                        f"; if it is a tie: table.replace({{{name!r}: "
                        f"{{{sheet.frame[column].tolist()[row]!r}: 'tie'}}}})"
                    )
            what = (
                f"{sheet.cell(column)(row).removeprefix(sheet.name)}: "
                f"{sheet.cells(column)[row]!r} cannot be read as the other cells can, as labels, "
                "words for sides and ties, or results like 2:1; correct the cell, or drop the "
                f"row{line}"
            )
            yield [({}, what)]
        if share_labels(sheet, pair):
            sides += (
                ", and no column says who was preferred, by labels, words such as 'tie' or results "
                f"such as 2:1; add the column 'winner' with {first!r} or {second!r} in each row"
            )
            others = [name for name in sheet.columns if name not in pair.ends]
            if pair.ordered and all(sheet.is_named(name, EVENTS) for name in others):
                yield [(always, f"{sides}, or, if it is always {first!r}")]
            yield [({}, sides)]
    named = [
        name
        for name in sheet.columns
        if sheet.parts(name) & OUTCOMES and not sheet.parts(name) & DOUBTFUL
    ]
    for column in named:
        what = f": if {column!r} says who was preferred (0 and false are no tie)"
        yield [({"result": column}, what)]
    two = permutations(sheet.columns[:_MOST_LOOKED_AT], 2)
    for (first, second), outcome in product(two, named):
        if all(map(contains, sheet.texts((first, second)), sheet.cells(outcome))):
            what = f": every {outcome} is in {first!r} or {second!r}; say that these were compared"
            yield [({"first": first, "second": second, "winner": outcome}, what)]


def _unpaired(sheet: Sheet) -> str:
    """Name a match that has not one row that won and one that lost, or say that all have more."""
    key = [name for name in sheet.columns if sheet.is_named(name, EVENTS - RATERS)]
    for match, placing in product(key, placings(sheet)):
        if not placing.total or not sheet.is_named(match, MATCHES):
            continue
        groups = groups_of(sheet, key)
        cells = sheet.cells(placing.column)
        marks = pd.Series(placing.places).groupby(groups).agg(lambda each: "".join(sorted(each)))
        paired = marks.isin(["13", "22"]).to_numpy()[groups]
        if paired.mean() > 0.5:
            row = int(paired.argmin())
            what = (
                f"{sheet.cell(placing.column)(row).removeprefix(sheet.name)}: the results of "
                f"{sheet.called(match)} {sheet.cells(match)[row]} are "
                f"{listed(cells[groups == groups[row]])}, which are not one that won and one that "
                "lost, or two ties; correct the cells, or drop the rows"
            )
            line = f"table.drop(table.index[{np.flatnonzero(~paired).tolist()}])"
            read = sheet.take(np.flatnonzero(paired))
        elif marks.str.fullmatch("1+3+").all():
            lost = placing.places == "3"
            what = (
                f": several rows of a {sheet.called(match)!r} won or lost, and no form of answers "
                "has teams of several players; if each who won is to be above each who lost, add "
                "a column 'place' with 1 for who won and 2 for who lost"
            )
            cells = sheet.frame[placing.column][lost].unique().tolist()
            line = f"table.assign(place=1 + table[{sheet.called(placing.column)!r}].isin({cells}))"
            read = sheet.assign(place=1 + lost)
        else:
            continue
        return what + f": {line}" * (len(line) < _LONGEST and len(_readings(read)) == 1)
    return ""


def _points(sheet: Sheet) -> str:
    """Say how to read points that items of one set, such as countries, give one another."""
    ranked = replace(sheet, better="high")
    ways = dict[str, str]()
    columns = [] if label_pairs(sheet) else sheet.columns[:_MOST_LOOKED_AT]
    for giver, item, score in permutations(columns, 3):
        labels = {*sheet.cells(giver)} & {*sheet.cells(item)} or sheet.parts(giver) & {"from"}
        if sheet.parts(score) & SCORES and labels and not is_numeric(labels):
            likely = {"list": giver, "item": item, "score": score}, {"item": item}
            if names := next((names for names in likely if _works(ranked, names)), None):
                what = f"orders by {score!r} of {item!r} in each {giver!r}"
                ways.setdefault(_option(sheet, names), what)
    either = "; or ".join(
        f"{what}: {option} and better='high' (--better high), or low, if the lowest is the best"
        for option, what in ways.items()
    )
    return either and f": the table may be {either}"


def _alone(sheet: Sheet) -> str:
    """Say that numbers of one item in each row, such as totals of votes, compare no items."""
    numbers = [name for name in sheet.columns if is_numeric(sheet.cells(name))]
    labels = [name for name in sheet.columns if name not in numbers]
    size = len(sheet.frame)
    if not numbers or len(labels) != 1 or len({*sheet.cells(labels[0])} - {""}) < max(size, 2):
        return ""
    label, number = map(sheet.called, (labels[0], numbers[-1]))
    ordered = sheet.assign(list=["1"] * size)
    return (
        f": {_NO_ANSWERS.format(listed(sheet.columns))}; if each row is about one {label!r}, "
        f"numbers such as {number!r} are of it alone, and do not compare it with another"
        + "; if all rows are one order: table.assign(list=1)"
        * (len(_readings(ordered)) == 1)
    )


def _changed(sheet: Sheet) -> str:
    """Name a call that makes a table one of answers, such as where labels are in its index."""
    rows = np.arange(len(sheet.frame))
    again = "the first rows are names of the columns, too: table.drop(table.index"
    indexed = replace(sheet, frame=sheet.frame.reset_index(allow_duplicates=True))
    calls = {
        "labels are in the index: table.reset_index()": indexed,
        f"{again}[:1])": sheet.take(rows[1:]),
        f"{again}[:2])": sheet.take(rows[2:]),
    }
    # Columns, and whether they hold numbers; an index that counts rows is nothing new.
    before = {(name, is_numeric(sheet.cells(name))) for name in sheet.columns} | {("index", True)}
    for call, changed in calls.items():
        kinds = {(name, is_numeric(changed.cells(name))) for name in changed.columns}
        if kinds - before and not changed.frame.empty and _readings(changed):
            return f": {_NO_ANSWERS.format(listed(sheet.columns))}; if {call}"
    return ""


def _unnamed(sheet: Sheet) -> str:
    """Say that there is no row of names, where the first row is like others, and name columns."""
    # Names of columns may also be in the first column, of items that met one another.
    below = {*sheet.texts(sheet.columns[1:]).ravel()}
    if any('"ImportId"' in cell for cell in below):
        lines = "the two lines below the names are no answers, so delete them"
        return f": {_NO_ANSWERS.format(listed(sheet.columns))}; {lines}"
    first = [str(name) for name in sheet.columns if name in below and not is_numeric([name])]
    for form, more in product(_NAMES if first else (), range(len(sheet.columns))):
        names = [f"column {at + 1}" for at, _ in enumerate(sheet.columns)]
        names[more : more + form.count(",") + 1] = form.split(",")
        if len(names) == len(sheet.columns):
            frame = sheet.frame.set_axis(names, axis=1)
            if _works(replace(sheet, frame=frame, named=frozenset()), {}):
                line = ",".join(names)
                return (
                    f": {first[0]!r} is above the others and among them, so the names of the "
                    f"columns may be missing; write a line of names above, such as {line} (or "
                    f"pandas.read_csv(file, names={line!r}.split(',')))"
                )
    return ""


def hints(sheet: Sheet, before: Table) -> Iterator[str]:
    """Yield notes on columns that could be used: who answered, which side has an advantage.

    Where the form of the table ``before`` was recognized, they are also on columns that are used
    because of their names.
    """
    columns = sheet.columns
    called = sheet.called
    sides = sheet.frame is not before.frame
    for name, what in _USED.items():
        if sides and name in {*before.columns} & {*columns} - sheet.named:
            most = max(sheet.cells(name), key=lambda cell: (len(cell), cell))
            if most not in ("", "1"):
                yield f"{called(name)!r}: {what.format(most)}"
    lists = sheet.frame["list"] if "list" in columns else sheet.frame.index
    for column in columns:
        name = called(column)
        if (
            "rater" not in columns
            and sheet.is_named(column, RATERS)
            and (sheet.frame[column].groupby(lists).nunique() == 1).all()
            and not sheet.blank(column).any()
        ):
            yield f"{name!r} may say who answered: {column_option({'rater': name})} uses it"
        if (
            "count" not in columns
            and " ".join(sheet.words(column)) in COUNTS
            and {*(cells := sheet.cells(column))} != {"1"}
            and all(re.fullmatch(r"[1-9]\d*", cell) for cell in cells)
        ):
            yield f"{name!r} may count equal answers: {column_option({'count': name})} uses it"
        if "neutral" in sheet.words(column) and "home" in columns:
            yield f"{name!r} is not used; leave 'home' blank where neither side is at home"
    for name, favored in ADVANTAGE.items() if sides and "first" in columns else ():
        if name not in columns and favored & sheet.parts("first") - sheet.parts("second"):
            option = column_option({name: called("first")})
            if name != "shown_first":
                call, command = option.split(" (--")
                option = f"{call}, covariates=[{name!r}] (--{command[:-1]} --covariates {name})"
            yield f"{option} estimates the advantage of the side in {called('first')!r}"
