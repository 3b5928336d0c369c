"""Ways to read a table of answers as orders, choices, or the best and the worst of several."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, combinations, product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from relpref.data.arrays import Columns, Floats, Integers, Labels, Texts, listed, refuse_first
from relpref.data.outcome_cells import common_code, walkovers
from relpref.data.readings import (
    ANSWERS,
    BESIDE,
    BEST,
    CHOSEN,
    CODED,
    EVENTS,
    EXTREMES,
    FALSE,
    ITEMS,
    LAST,
    NO_ITEM,
    NOT_ITEMS,
    NOT_LABELS,
    NUMBERS,
    OPTIONS,
    ORDERS,
    OUT,
    OUTCOMES,
    PLACED,
    PLACES,
    RANKS,
    RESULTS,
    RIGHT,
    SCORES,
    TRUE,
    WORST,
    Reading,
    Readings,
    Sheet,
    cells_note,
    is_numeric,
    mapped,
    plain,
    words,
)
from relpref.data.sides import is_unsigned, label_pairs

_MOST_EVENTS = 6  # columns that may name an event together
# Numbers of places that are words, and marks of the best and the worst.
_NUMBERED = {word: str(rank) for word, rank in RANKS.items()}
_NUMBERED |= dict.fromkeys(EXTREMES[0], "1") | dict.fromkeys(EXTREMES[1], "-1")
_PLACE = re.compile(r"(?i)^[t=]?(\d+)(=|\.|st|nd|rd|th|er|re|e|eme)?( (choice|place|wahl|platz))?$")
# Letters for a win, a loss and a tie in French, Italian, Spanish, Portuguese and German.
_LETTERS = ("vdn", "vde", "vpn", "gpn", "gpe", "snu")
# What names the best and the worst, and what says so where both may.
_BY = {
    "labels": " by labels (write a word before each in all columns, such as 'no {0}')",
    "positions": " by positions (write the names of columns instead, such as {1!r} for {0!r})",
}
_EVENT_WORDS = EVENTS | {"r", *map(str, range(100))}


class Placing(NamedTuple):
    """One way to read the places of the items of events that have a row for each item."""

    what: str
    column: Any
    name: str  # the name used here that chooses the column
    places: Any  # texts as in a column ``place``
    marks: Texts = ()  # places that an item of each event has, where only these count
    total: float = 0  # the sum of the two places of each event, where it has two

    def shared(self, groups: Integers) -> float | None:
        """Return how many places are shared in the events ``groups``; None if these do not fit.

        Places begin at 1, or at 0, in each event and end at its size. Items that share a place
        count apart from the first of them.
        """
        if self.marks or self.name == "score":
            once = (np.bincount(groups, self.places == mark) == 1 for mark in self.marks)
            return 0.0 if all(map(np.all, once)) else None
        each = pd.Series(mapped(seconds, self.places)).groupby(groups)
        fits = (each.min() <= 1) & (each.max() <= each.size())
        if self.total:
            fits = (each.size() == 2) & (each.sum() == self.total)
        return float((each.count() - each.nunique()).sum()) if fits.all() else None


def long_orders(sheet: Sheet) -> Readings:
    """Read orders, choices or the best and the worst, with a row for each item of each event.

    Results of two sides are read where there is nothing else.
    """
    readings: dict[Any, Reading] = {}
    sheet = _with_one_mark(sheet)
    for placing in sorted(placings(sheet), key=lambda each: (each.total, -len(each.marks))):
        if readings and placing.total:
            break
        for key, item in _events_and_items(sheet, placing):
            groups = groups_of(sheet, key)
            rank = pd.Series(mapped(seconds, placing.places)).groupby(groups).rank("dense")
            same = (*groups, *sheet.cells(item), *rank.fillna(-1))
            columns = {"list": key[0], "item": item, placing.name: placing.column}
            columns = {"item": item} if len(key) > 1 else columns if placing.name else {}
            named = [repr(sheet.called(name)) for name in (item, *key)]
            reading = Reading(
                f"{placing.what} of {named[0]} in each {' and '.join(named[1:])}",
                partial(_with_places, sheet, key, item, placing, columns),
                columns,
            )
            readings.setdefault(same, reading)
        if readings and len(placing.marks) > 1:  # places may be those on a screen
            break
    yield from readings.values()


def _with_one_mark(sheet: Sheet) -> Sheet:
    """Join two columns of truths, for the best and the worst, in one of 1, 0 and -1."""
    truths = {name: true for name in sheet.columns if (true := sheet.marked(name)) is not None}
    best, worst = ([name for name in truths if sheet.parts(name) & ends] for ends in EXTREMES)
    if len(best) != 1 or len(worst) != 1:
        return sheet
    marks = truths[best[0]] * 1 - truths[worst[0]]
    return sheet.without(best + worst).assign(**{f"{best[0]}, {worst[0]}": marks})


def placings(sheet: Sheet) -> Iterator[Placing]:
    """Yield the columns of places, of marks of what was chosen, of times and points, or results.

    Results that were not read are blank.
    """
    results = (*RESULTS, *_LETTERS, *(coded for _, *coded in CODED))
    results = () if sheet.better or label_pairs(sheet) else results
    for column in sheet.columns:
        cells = mapped(numbered, sheet.cells(column))
        called = sheet.called(column)
        parts = sheet.parts(column)
        lower = np.array(mapped(plain, cells))
        role = "score" if sheet.better else "place"
        if role in sheet.named and column != role:
            continue
        if sheet.better:
            named = column in sheet.named & {role, "place"} or parts & SCORES or sheet.rises(column)
            if named and are_numbers(cells):
                what = f"orders by {called!r} ({sheet.better} is better)"
                yield Placing(what, column, "score", cells)
        elif column == "place" or " ".join(sheet.words(column)) in PLACES:
            # Places of 0 are refused in their rows.
            if not sheet.rises(column) and are_numbers({*cells} - {"0"}, whole=True):
                yield Placing(f"orders by {called!r}", column, "place", cells)
        elif {*lower} <= TRUE | FALSE | {"-1"} and (
            "-1" in lower or parts & CHOSEN or parts == {"winner"}
        ):
            marks = ("1", "3") if "-1" in lower else ("1",)
            what = "the best and the worst" if len(marks) > 1 else "choices"
            places = np.select([np.isin(lower, [*TRUE]), lower == "-1"], ["1", "3"], "2")
            more = 4 * (parts == {"winner"})  # places come before winners
            yield Placing(f"{what} by {column!r}", column, "", places, marks, more)
        for sides in results:
            place_of = dict(zip(sides, ("1", "3", "2"), strict=False))
            codes = {cell: "2" * (common_code(cell) == 0) for cell in {*lower}} | place_of
            each = [codes[cell] for cell in lower]
            if "1" in each and (column == role or parts & OUTCOMES):
                what = f"pairs by {called!r}, {sides[0]} being a win,"
                yield Placing(what, column, role, np.array(each, dtype=object), (), 4)


def groups_of(sheet: Sheet, key: Labels) -> Integers:
    """Return the number of the event of each row."""
    return pd.factorize(pd.MultiIndex.from_arrays([*map(sheet.cells, key)]))[0]


def _events_and_items(sheet: Sheet, placing: Placing) -> list[tuple[tuple[Any, ...], Any]]:
    """Return the columns that name the event and the item, each item once in an event."""
    free = [column for column in sheet.columns if column != placing.column]
    events = [name for name in free if sheet.noun(name) & EVENTS]
    events = ["list"] if "list" in free else events[:_MOST_EVENTS]
    others = [name for name in free if name not in (*events, "item")][:_MOST_EVENTS]

    def fitting(keys: Iterable[tuple[Any, ...]]) -> Iterator[tuple[float, int, Any, Any]]:
        for key in keys:
            groups = groups_of(sheet, key)
            shared = placing.shared(groups) if (np.bincount(groups) > 1).all() else None
            if shared is not None:
                # A race is no item of what a runner did in a year.
                of_item = any(sheet.noun(name) & ITEMS for name in key)
                for item in _items(sheet, [name for name in free if name not in key], groups):
                    if item not in events or not of_item:
                        yield shared, -groups.max(), key, item

    likely = [*fitting(key for size in (1, 2, 3) for key in combinations(events, size))]
    finer = []
    # Numbers of events may begin again, such as in another town, and would merge lists into one.
    if "list" not in free and (sheet.better or not any(fit[0] == 0 for fit in likely)):
        finer = [*fitting(product(events, others))]
    if not sheet.better:
        likely = likely + finer
        finer = []
    best = min((fit[:2] for fit in likely), default=None)
    # Times say nothing about the events, so a finer reading is another one, not the better one.
    return [fit[2:] for fit in [*(fit for fit in likely if fit[:2] == best), *finer]]


def _items(sheet: Sheet, columns: Labels, groups: Integers) -> list[Any]:
    """Return the columns that most likely hold the items: each is once in an event."""
    ranked: dict[int, dict[Any, Any]] = {}
    for column in columns:
        cells = sheet.cells(column)
        pairs = {*zip(groups.tolist(), cells, strict=True)}
        again = len({*cells}) < len(pairs) or groups.max() == 0
        other = "item" in sheet.named and column != "item"
        if len(pairs) < len(cells) or "" in cells or not again or other:
            continue
        noun = sheet.noun(column)
        numeric = are_numbers(cells)
        item = bool(noun & ITEMS) or sheet.words(column) == ("name",)
        if column == "item" or not numeric or item or not noun:
            rank = 0 if column == "item" else numeric + (1 if item else 3)
            ranked.setdefault(rank, {}).setdefault((*pd.factorize(cells)[0],), column)
    return list(ranked[min(ranked)].values()) if ranked else []


def numbered(cell: str) -> str:
    """Return the number of a place such as T3, 3rd, third or best, and another cell as it is."""
    number = _PLACE.match(cell)
    return _NUMBERED.get(cell.lower(), number[1] if number else cell)


def are_numbers(cells: Collection[str], *, whole: bool = False) -> bool:
    """Tell whether cells are times, or whole numbers from 1 on, or say that there is none."""
    given = _given({*cells})
    fit = (
        cell.isdecimal() and int(cell) > 0 if whole else not np.isnan(seconds(cell))
        for cell in given
    )
    return bool(given) and all(fit)


def _given(cells: Collection[str]) -> list[str]:
    """Return the cells that are not blank and do not say that an item has no place."""
    return [cell for cell in cells if cell and cell.lower() not in LAST | OUT]


def seconds(cell: str) -> float:
    """Return a number, or a time such as 1:02.5 in its smallest unit; NaN for another cell."""
    if not re.fullmatch(r"[+-]?\d+(:\d+)*([.,]\d+)?", cell):
        return np.nan
    total = 0.0
    for part in cell.replace(",", ".").split(":"):
        total = 60 * total + float(part)
    return total


def _with_places(sheet: Sheet, key: Labels, item: Any, placing: Placing, columns: Columns) -> Sheet:
    """Return a row for each item of each list, with the columns list, item and place."""
    sheet.check_marks(sheet.frame[placing.column])
    called = {"place": sheet.called(placing.column), "list": sheet.called(key[0])}
    read = sheet.without([placing.column, *key]).rename({item: "item"})
    lists = np.array([*map(" / ".join, sheet.texts(key))], dtype=object)
    read = replace(read.assign(list=lists), given={**read.given, **called})
    cells = placing.places
    for column in sheet.columns if placing.total and not sheet.named else ():
        void = np.isin(lists, lists[walkovers(sheet, column)])
        cells = np.where(void, "walkover", cells)
        if void.any():
            option = sheet.option(columns)
            read = read.noted(f"walkovers by {sheet.called(column)!r}; {option} counts them")
    return placed(read, cells)


def placed(table: Sheet, cells: Any) -> Sheet:
    """Add places to lists: below all others what did not finish, without what did not start.

    Items that are alone in their list are left out, too.
    """
    lower = np.array([cell.lower() for cell in cells], dtype=object)
    cells = np.where(lower == "", "blank", cells)
    last, out = (np.isin(lower, list(terms)) for terms in (LAST | {""}, OUT))
    out |= last & (table.unplaced == "out")
    number = pd.factorize(table.frame["list"])[0]
    alone = np.bincount(number, ~out)[number] == 1
    out |= alone
    cells = np.where(alone, "alone", cells)
    values = pd.Series(mapped(seconds, cells))
    missing = np.isin(cells, ["99", "999", "-99"])
    missing &= values[~missing].between(0, 20).all()
    if table.better:
        lists = values.groupby(number)
        least = lists.transform("min")
        wrong = (values == 0) & (least.min() == 0) & (least.max() > 0) & (table.better == "low")
        refuse_first(
            wrong,
            lambda row: (
                f"{table.place(row)}: 0 is below all others of the event, and other events have no "
                "0; leave such cells empty if they say that there is none, and add 1 to all "
                "numbers if 0 is the best"
            ),
        )
        values = lists.rank("min", ascending=table.better == "low")
    numbers = "read as numbers, which are no places if they say that there is none"
    read = table.assign(place=values.astype("Int64").array).noted(
        *cells_note("below all others of the event", cells[last & ~out]),
        *cells_note("left out", cells[out]),
        *cells_note(numbers, cells[missing]),
    )
    return read.take(np.flatnonzero(~out))


def orders_by_place(sheet: Sheet) -> Readings:
    """Read orders with a row for each event and a column for each place."""
    if sheet.is_crossed or any(best_and_worst(sheet, quizzes=True)):
        return
    columns_of: dict[Any, dict[int, Any]] = {}
    for column in sheet.columns:
        question, _, name = str(sheet.called(column)).rpartition("[")
        for part in (parts := words(name)):
            number = re.fullmatch(r"(\d+)(st|nd|rd|th|er|e|eme|o|a)?", part)
            rank = int(number[1]) if number else RANKS.get(part, 0)
            rest = " ".join(other for other in parts if other != part)
            if rank and rest in PLACED:
                columns_of.setdefault((words(question), rest), {})[rank] = column
    for columns in columns_of.values():
        names = {f"place_{rank}": column for rank, column in sorted(columns.items())}
        ordered = [*names.values()]
        sets = [
            {cell for cell in sheet.cells(column) if cell.lower() not in NO_ITEM}
            for column in ordered
        ]
        # Numbers beside players with the same numbers in their names are most likely places.
        others = [
            name for name in sheet.columns if name not in ordered and "1" in sheet.words(name)
        ]
        if others and is_numeric(sheet.texts(ordered).ravel()):
            continue
        if max(columns) == len(columns) > 2 and sets[0] & set().union(*sets[1:]):
            what = f"orders, from {ordered[0]!r} to {ordered[-1]!r}"
            yield Reading(what, partial(_melted, sheet, ordered, "place"), names)


def orders_by_item(sheet: Sheet) -> Readings:
    """Read orders with a column for each item and a row for each event, or the other way round."""
    size = len(sheet.frame)
    by_rank = not sheet.better
    if by_rank:  # also places such as 1st and second
        sheet = replace(sheet)
        for column in sheet.columns:
            places = mapped(numbered, sheet.cells(column))
            if are_numbers(places, whole=True):
                sheet._cells[column] = np.array(places, dtype=object)

    def ranked(cells: Collection[str]) -> bool:
        given = _given(cells)
        return are_numbers(given, whole=True) and {*map(int, given)} == {*range(1, len(given) + 1)}

    def complete(cells: Collection[str]) -> bool:
        given = _given(cells)
        marked = {*given} == {"-1", "0", "1"} and given.count("-1") == given.count("1") == 1
        return ranked(cells) or marked

    def fits(cells: Collection[str]) -> bool:
        return len(_given(cells)) > 1 and (ranked(cells) if by_rank else are_numbers(cells))

    free = [
        column
        for column in sheet.columns
        if (column not in sheet.named or column.startswith("item_"))
        and are_numbers(sheet.cells(column), whole=by_rank)
    ]
    ranks = [
        column
        for column in free
        if not sheet.noun(column) <= EVENTS | PLACES and not sheet.parts(column) & NOT_ITEMS
    ]
    doubtful = [column for column in free if column not in ranks][:_MOST_EVENTS]
    # An item may be called 'Weight' or 'Group': the places of a row are incomplete without it.
    for more in (more for few in range(4) for more in combinations(doubtful, few)):
        columns = [column for column in free if column in (*ranks, *more)]
        if len(columns) > 2 and all(map(complete, sheet.texts(columns))):
            ranks = columns
            break
    named = [column for column in sheet.columns if column not in ranks]
    by_column = all(sheet.parts(column) <= _EVENT_WORDS for column in ranks)
    sure = by_column or all(map(complete, sheet.texts(ranks)))
    few = len(ranks) < 3 - by_column or size < 2
    few |= 0 < sum(map(sheet.rises, ranks)) < len(ranks) + by_rank
    if few or (len(named) > 1 + len(sheet.columns) // 4 and not sure):
        return
    best = f" ({sheet.better} is better)" if sheet.better else " (1 is the best)"
    by_column |= any(sheet.noun(column) & ITEMS - EVENTS for column in named)
    by_column |= "item" in named
    labels = [
        column
        for column in sheet.named & {"item"} or named
        if len({*sheet.cells(column)}) == size > 2
        and (sheet.parts(column) & NUMBERS or not is_numeric(sheet.cells(column)))
    ]
    labels.sort(key=lambda column: is_numeric(sheet.cells(column)))  # names before numbers
    if not by_column and all(map(fits, sheet.texts(ranks))):
        values = np.array([[*map(seconds, sheet.cells(column))] for column in ranks])
        odd = [
            column
            for at, column in enumerate(ranks)
            if sheet.better and _is_apart(values[at], np.delete(values, at, axis=0))
        ]
        for apart in ([], odd)[: 1 + bool(odd)]:
            items = [column for column in ranks if column not in apart]
            what = f"orders, a row each, of {listed(map(sheet.called, items))}{best}"
            events = [*apart, *labels]
            names = {"list": events[0]} if events else {}
            if by_rank:
                names = {f"item_{at}": name for at, name in enumerate(items, 1)}
            yield Reading(what, partial(_melted, sheet, items, "item"), names)
    of_rows = {"list", "item_1"} & {*sheet.columns}
    of_rows |= {column for column in named if sheet.is_named(column, EVENTS)}
    if labels and not of_rows and all(fits(sheet.cells(column)) for column in ranks):
        what = f"orders, a column each, of the items in {labels[0]!r}{best}"
        yield Reading(what, partial(_melted, sheet, ranks, "list", labels[0]), {"item": labels[0]})


def _is_apart(values: Floats, others: Floats) -> bool:
    """Tell whether numbers may be no times or points: they count rows, or are far from others."""
    low = np.nanmin(others)
    high = np.nanmax(others)
    far = max(np.nanmin(values) - high, low - np.nanmax(values)) > high - low
    return bool(far or (len(values) > 3 and (np.diff(values) == 1).all()))


def _melted(sheet: Sheet, columns: Labels, are: str, more: Any = None) -> Sheet:
    """Return a row for each item of each list.

    The columns are the places, the items or the lists (``are``); each row is a list, but in the
    last case, where ``more`` is the column of the items. With places, it may be the places of all
    cells, shape (n, k).
    """
    for column in columns if sheet.better else ():
        sheet.check_marks(sheet.frame[column])
    cells = sheet.texts(columns)
    rows, at = np.nonzero(cells != "")
    by_place = are == "place" and more is None
    if by_place:
        given = pd.Series(cells[rows, at])
        labels = {*given}
        blank = given.str.lower().isin(NO_ITEM)
        split = re.compile(r"\s*[/=&+]\s*").split
        parts = given.map(lambda cell: each if labels >= {*(each := split(cell))} else [cell])
        tied = given[parts.map(len) > 1]
        blanks = cells_note("read as blanks", given[blank], "cell")
        sheet = sheet.noted(*blanks, *cells_note("read as ties", tied, "cell"))
        parts = parts[~blank].explode()
        rows = rows[parts.index]
        at = at[parts.index]
    index = sheet.frame.index
    dropped = [*columns]
    lists = index[rows] if index.is_unique else rows
    items = np.array([*map(sheet.called, columns)], dtype=object)[at]
    places = cells[rows, at]
    if are == "place":
        places = at + 1 if more is None else more[rows, at]
        items = sheet.frame[dropped].to_numpy(dtype=object)[rows, at]
        items = parts.to_numpy() if by_place and len(tied) else items
    if are == "list":
        lists = items
        items = sheet.frame[more].to_numpy()[rows]
        dropped += [more]
    read = sheet.take(rows).without(dropped).assign(list=lists, item=items)
    return placed(read, [*map(str, places)])


def orders_in_cells(sheet: Sheet) -> Readings:
    """Read orders that are written in one cell each, such as A > B = C."""
    if any(pair.ordered for pair in label_pairs(sheet)):  # verdicts on two sides
        return
    for column in sheet.columns:
        cells = pd.Series(sheet.cells(column), sheet.frame.index)
        marks = ">,;" if sheet.parts(column) & ORDERS else ">"
        if cells.str.fullmatch(r"\[.*\]").all():  # lists
            cells = cells.str[1:-1].str.replace(
                r"""(?<![^,])\s*["']|["']\s*(?![^,])""", "", regex=True
            )
        parting = (
            mark
            for mark in marks
            if cells.str.contains(mark).any() and cells.str.contains(f"[{mark}=]").all()
        )
        if (mark := next(parting, None)) is None:
            continue
        blocks = {*cells.str.split(rf"\s*{mark}\s*").explode()}
        if all(map(re.compile(r"\d+[.)] ").match, blocks)):  # numbers are no part of labels
            continue
        tied = {item for block in blocks if "=" in block for item in re.split(r"\s*=\s*", block)}
        ways = [f"{mark}="] * bool(tied)
        # An equals sign may be a part of labels, unless a label beside one is elsewhere alone.
        ways += [mark] * tied.isdisjoint(blocks)
        for between in ways if "" not in tied else ():
            parts = cells.str.split(rf"\s*([{between}])\s*", expand=True)
            items = parts.iloc[:, ::2]
            apart = (parts.iloc[:, 1::2] != "=").to_numpy()
            # Otherwise these are no items, or verdicts on two sides such as A>B and A=B.
            ordered = items.shape[1] > 2 or cells.str.contains(mark).all()
            if ordered and items.stack().duplicated().any():
                places = 1 + np.pad(apart, ((0, 0), (1, 0))).cumsum(axis=1)
                items = items.add_prefix("place ")
                parted = sheet.without([column]).assign(**items)
                what = f"the orders in {sheet.called(column)!r}"
                what += ", in which = is a tie" * (between != mark)
                reading = partial(_melted, parted, [*items], "place", places)
                yield Reading(what, reading, {"list": column})


def best_and_worst(sheet: Sheet, *, quizzes: bool = False) -> Readings:
    """Read the best and the worst of the items that were shown.

    Where most labels are in one row alone, or no column says who answered, the answer may be the
    right one of a quiz. Such choices are read if asked, or where the user names the best.
    """
    names = {
        name: words(name) if name in sheet.named else sheet.words(name) for name in sheet.columns
    }
    best, worst = (
        [name for name in names if {*names[name][:1]} & ends]
        for ends in (EXTREMES if quizzes else (BEST, WORST))
    )
    stems: dict[Texts, list[Any]] = {}
    unlike = NOT_LABELS - OPTIONS if quizzes else NOT_LABELS
    said = RIGHT | ANSWERS if quizzes else OUTCOMES
    for column, parts in names.items():
        *stem, last = parts or ("",)
        if (stem or quizzes) and re.fullmatch(r"\d+|[a-z]", last) and unlike.isdisjoint(stem):
            stems.setdefault((*stem,), []).append(column)
    for named, columns in stems.items():
        if len(columns) + ("best" in names) + (quizzes and bool(named)) < 3:
            continue
        ends = best + worst
        if not worst:  # choices of one
            ends = [
                name
                for name in best or names
                if (best or sheet.parts(name) & said and sheet.parts(name) <= said | BESIDE)
                and _picked(sheet, name, columns).any(axis=1).mean() > 0.5
            ]
            # Beside the right answer may be the one that was given.
            ends = [name for name in ends if not sheet.parts(name) & RIGHT] or ends
            again = pd.Series(sheet.texts(columns).ravel()).duplicated(keep=False).mean() > 0.5
            again &= not any(is_unsigned(sheet, name) for name in ends)
            if not (best or again or quizzes):
                continue
        if len(worst) < 2 and len(ends) == 1 + len(worst):
            shown = {f"item_{number}": column for number, column in enumerate(columns, 1)}
            called = dict(zip(("best", "worst"), ends, strict=False))
            what = " and ".join(f"the {end} {column!r}" for end, column in called.items())
            picked = [[_picked(sheet, end, columns, by) for end in ends] for by in _BY]
            both = np.any(picked, axis=-1).all() and not np.array_equal(picked[0], picked[1])
            named_by = chain(*map(words, sheet.texts(ends).ravel()))
            both &= {*named_by} <= {*chain(*map(sheet.words, columns))}
            cell = sheet.cells(ends[0])[0]
            column = columns[_picked(sheet, ends[0], columns, "positions")[0].argmax()]
            for by, how in _BY.items() if both else {"": ""}.items():
                extremes = partial(_extremes, sheet, ends, columns, by)
                how = how.format(cell, column)
                yield Reading(f"{what} of {listed(columns)}{how}", extremes, called | shown)


def _picked(sheet: Sheet, column: Any, columns: Labels, by: str = "") -> Any:
    """Tell which of the items shown in ``columns`` each cell names, by its label or its column."""
    labels = sheet.texts(columns)
    cells = sheet.cells(column)
    here = (labels == cells[:, np.newaxis]) & (labels != "")
    spots = np.array([_spot(sheet.words(column)) for column in columns])
    by_name = spots == np.array([[_spot(words(cell))] for cell in cells])
    ways = dict(zip(_BY, (here, by_name), strict=True))
    return ways[by or max(ways, key=lambda way: ways[way].any(axis=1).sum())]


def _extremes(sheet: Sheet, ends: Labels, columns: Labels, by: str) -> Sheet:
    """Return orders of what was shown: best 1, worst 3, all others 2."""
    places = np.full((len(sheet.frame), len(columns)), 2)
    for place, column in zip((1, 3), ends, strict=False):
        here = _picked(sheet, column, columns, by)
        reason = " is none of the items of the row; name one of them, or drop the row"
        sheet.refuse(column, ~here.any(axis=1), reason)
        reason = " is the best and the worst; correct one of the two cells, or drop the row"
        sheet.refuse(column, (here & (places == 1)).any(axis=1), reason)
        places[here] = place
    return _melted(sheet.without(ends), columns, "place", places)


def _spot(name: Sequence[str]) -> str:
    """Return the number or the letter that a name ends with as a number."""
    last = name[-1] if name else ""
    return str(1 + ord(last) - ord("a")) if re.fullmatch("[a-z]", last) else last
