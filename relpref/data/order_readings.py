"""Ways to read a table of answers as orders, choices, or the best and the worst of several."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import counted, listed
from relpref.data.readings import (
    EVENTS,
    FALSE,
    ITEMS,
    LAST,
    NUMBERS,
    OUT,
    PLACES,
    SCORES,
    TRUE,
    Reading,
    Sheet,
    is_numeric,
    terms,
    words,
)
from relpref.data.tables import Table

Values = NDArray[np.float64]
_CHOSEN = {"chosen", "choice", "choose", "selected", "picked", "choosen", "purchased"}
_MOST_EVENTS = 6  # columns that may name an event together
_RANKS = {
    word: rank
    for text in (
        "first, second, third, fourth, fifth, sixth, seventh, eighth, ninth, tenth",
        "gold, silver, bronze",
    )
    for rank, word in enumerate(terms(text), 1)
}
# Words in names of columns of numbers that are no item, and no event.
_NOT_ITEMS = NUMBERS - {"name"} | set(
    terms(
        "unnamed, age, total, sum, mean, average, avg, median, std, min, max, weight, count, n, "
        "alter, summe, mittel, gesamt, duration, income, size, zip"
    )
)
_EVENT_WORDS = EVENTS | {"r", *map(str, range(100))}
_PLACED = {"", "rank", "place", "choice", "position", "preference", "pick", "favorite", "top"}
_PLACED |= {"platz", "rang", "wahl", "choix", "games"}


class Placing(NamedTuple):
    """One way to read the places of the items of events that have a row for each item."""

    what: str
    places: list[str]  # texts as in a column ``place``
    used: tuple[Any, ...]  # columns
    fits: Callable[[NDArray[np.int64]], float | None]  # ties for events, None if impossible
    columns: Mapping[str, Any]


def long_orders(sheet: Sheet) -> Iterator[Reading]:
    """Read orders, choices or the best and the worst, with a row for each item of each event."""
    readings: dict[Any, Reading] = {}
    for placing in _scored(sheet) if sheet.better else (*_placed(sheet), *_marked(sheet)):
        for key, item in _events_and_items(sheet, placing):
            rank = pd.Series(_values(placing.places)).groupby(_groups(sheet, key)).rank("dense")
            same = (tuple(_groups(sheet, key)), tuple(sheet.cells(item)), tuple(rank.fillna(-1)))
            columns = {"list": key[0], "item": item, **placing.columns}
            each = " and ".join(repr(sheet.table.called(name)) for name in key)
            reading = Reading(
                f"{placing.what} of {sheet.table.called(item)!r} in each {each}",
                partial(_with_places, sheet, key, item, placing),
                {"item": item} if len(key) > 1 else columns if len(columns) == 3 else {},
            )
            readings.setdefault(same, reading)
    yield from readings.values()


def _groups(sheet: Sheet, key: Sequence[Any]) -> NDArray[np.int64]:
    """Return the number of the event of each row."""
    cells = pd.DataFrame({at: sheet.cells(column) for at, column in enumerate(key)})
    return cells.groupby([*cells], sort=False).ngroup().to_numpy()


def _events_and_items(sheet: Sheet, placing: Placing) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the columns that name the event and the item, each item once in an event."""
    free = [column for column in sheet.columns if column not in placing.used]
    events = [name for name in free if set(sheet.noun(name).split()) & EVENTS or name == "list"]
    events = (["list"] if "list" in free else events)[:_MOST_EVENTS]
    keys = [key for size in (1, 2, 3) for key in combinations(events, size)]
    fitting: list[tuple[float, int, tuple[Any, ...], Any]] = []

    def add(key: tuple[Any, ...]) -> None:
        groups = _groups(sheet, key)
        sizes = np.bincount(groups)
        ties = placing.fits(groups) if (sizes > 1).all() else None
        if ties is not None:
            for item in _items(sheet, [name for name in free if name not in key], groups):
                fitting.append((ties, -len(sizes), key, item))

    for key in keys:
        add(key)
    best = min((fit[:2] for fit in fitting), default=None)
    # Numbers of events may begin again, such as in another town, and would merge lists into one.
    if "list" not in free and (sheet.better or not any(fit[0] == 0 for fit in fitting)):
        others = [name for name in free if name not in (*events, "item")][:_MOST_EVENTS]
        for key in product(events, others):
            add(key)
        if not sheet.better:
            best = min((fit[:2] for fit in fitting), default=None)
    # Times say nothing about the events, so a finer reading is another one, not the better one.
    yield from (
        (key, item)
        for *score, key, item in fitting
        if tuple(score) == best or (sheet.better and len(key) > 1 and key[1] not in events)
        # A race is no item of what a runner did in a year.
        if item not in events or not any({*sheet.noun(name).split()} & ITEMS for name in key)
    )


def _items(sheet: Sheet, columns: Sequence[Any], groups: NDArray[np.int64]) -> list[Any]:
    """Return the columns that most likely hold the items: each is once in an event."""
    ranked: dict[int, dict[Any, Any]] = {}
    for column in columns:
        cells = sheet.cells(column)
        pairs = set(zip(groups.tolist(), cells, strict=True))
        again = len(set(cells)) < len(pairs) or groups.max() == 0
        if len(pairs) < len(cells) or "" in cells or not again:
            continue
        noun, numeric = set(sheet.noun(column).split()), is_numeric(cells)
        item = bool(noun & ITEMS) or sheet.words(column) == ("name",)
        if column == "item" or not numeric or item or not noun:
            rank = 0 if column == "item" else 1 + numeric if item else 3 if not numeric else 4
            partition = tuple(pd.factorize(np.array(cells, dtype=object))[0])
            ranked.setdefault(rank, {}).setdefault(partition, column)
    return list(ranked[min(ranked)].values()) if ranked else []


def _placed(sheet: Sheet) -> Iterator[Placing]:
    """Yield the columns of places, the likeliest name first."""
    for column in sheet.columns:
        cells = [numbered(cell) for cell in sheet.cells(column)]
        if (column == "place" or " ".join(sheet.words(column)) in PLACES) and are_places(cells):
            values = _values(cells)
            out = np.array([cell.lower() in OUT for cell in cells])
            fits = partial(_ties, np.where(out, np.nan, values))
            columns = {"place": column}
            yield Placing(
                f"orders by {sheet.table.called(column)!r}", cells, (column,), fits, columns
            )


def numbered(cell: str) -> str:
    """Return the number of a place such as T3, 3= or 3rd, and another cell as it is."""
    return re.sub(r"(?i)^[t=]?(\d+)(=|\.|st|nd|rd|th)?$", r"\1", cell)


def are_places(cells: Collection[str]) -> bool:
    """Tell whether cells are whole numbers from 1 on, or say that an item has no place."""
    given = {cell for cell in {*cells} if cell and cell.lower() not in LAST | OUT}
    return bool(given) and all(cell.isdecimal() and int(cell) > 0 for cell in given)


def _values(cells: Sequence[str]) -> Values:
    return np.array([float(cell) if cell.isdecimal() else np.nan for cell in cells])


def _ties(values: Values, groups: NDArray[np.int64]) -> float | None:
    """Return how many places are shared; None if those of an event do not begin at 1 or are more.

    Items that share a place count apart from the first of them.
    """
    each = pd.Series(values).groupby(groups)
    if not ((each.min() == 1) & (each.max() <= each.size())).all():
        return None
    return float((each.count() - each.nunique()).sum())


def _scored(sheet: Sheet) -> Iterator[Placing]:
    """Yield columns of times or points, whose lowest or highest is the best (``better``)."""
    for column in sheet.columns:
        chosen = column == "score" if "score" in sheet.named else set(sheet.words(column)) & SCORES
        given = [cell for cell in sheet.cells(column) if cell.lower() not in LAST | OUT | {""}]
        if chosen and given and not np.isnan([seconds(cell) for cell in given]).any():
            what = f"orders by {sheet.table.called(column)!r} ({sheet.better} is better)"
            columns = {"score": column}
            yield Placing(what, sheet.cells(column), (column,), lambda _: 0.0, columns)


def seconds(cell: str) -> float:
    """Return a number, or a time such as 1:02.5 in its smallest unit; NaN for another cell."""
    if not re.fullmatch(r"[+-]?\d+(:\d+)*([.,]\d+)?", cell):
        return np.nan
    total = 0.0
    for part in cell.replace(",", ".").split(":"):
        total = 60 * total + float(part)
    return total


def _marked(sheet: Sheet) -> Iterator[Placing]:
    """Yield columns that mark the best by 1 and the worst by -1, or what was chosen by 1."""
    for column in sheet.columns:
        if not {cell.lower() for cell in {*sheet.cells(column)}} <= {"-1"} | TRUE | FALSE:
            continue
        cells = [cell.lower() for cell in sheet.cells(column)]
        values = np.array([(cell in TRUE) - 1.0 * (cell == "-1") for cell in cells])
        worst = (values < 0).any()
        if worst or {*sheet.words(column)} & _CHOSEN:
            what = f"{'the best and the worst' if worst else 'choices'} by {column!r}"
            places = [str(int(2 - value)) for value in values]
            marks = (1.0, -1.0) if worst else (1.0,)
            yield Placing(what, places, (column,), partial(_once_each, values, marks), {})


def _once_each(values: Values, marks: Sequence[float], groups: NDArray[np.int64]) -> float | None:
    """Return 0 if each mark is once in each event, and otherwise None."""
    once = [(np.bincount(groups, values == mark) == 1).all() for mark in marks]
    return 0.0 if all(once) else None


def _with_places(sheet: Sheet, key: Sequence[Any], item: Any, placing: Placing) -> Table:
    """Return a row for each item of each list, with the columns list, item and place."""
    names = {item: "item"} | ({key[0]: "list"} if len(key) == 1 else {})
    kept = sheet.table.frame.drop(columns=[name for name in placing.used if name not in names])
    read = replace(sheet.table, frame=kept).rename(names)
    if len(key) > 1:
        labels = [" / ".join(row) for row in zip(*map(sheet.cells, key), strict=True)]
        read = replace(read, frame=read.frame.drop(columns=list(key)).assign(list=labels))
    called = {**read.given, "place": sheet.table.called(placing.used[0])}
    return placed(sheet, replace(read, given=called), placing.places)


def placed(sheet: Sheet, table: Table, cells: Sequence[str]) -> Table:
    """Add places to lists: below all others what did not finish, without what did not start."""
    lower = [cell.lower() for cell in cells]
    last = np.array([cell in LAST for cell in lower])
    out = np.array(
        [cell in OUT or (last[row] and sheet.unplaced == "out") for row, cell in enumerate(lower)]
    )
    values = np.array(
        [np.nan if last[row] or out[row] else seconds(cell) for row, cell in enumerate(cells)]
    )
    if sheet.better:
        lists = pd.factorize(table.frame["list"])[0]
        values = pd.Series(values).groupby(lists).rank("min", ascending=sheet.better == "low")
        values = values.to_numpy()
    notes = []
    for mask, what in ((last & ~out, "below all others of the event"), (out, "left out")):
        if number := int(mask.sum()):
            said = listed(sorted({lower[row] for row in np.flatnonzero(mask)}))
            verb = "is" if number == 1 else "are"
            notes.append(f"{counted(number, 'row')} ({said}) {verb} {what}")
    texts = ["" if np.isnan(value) else f"{value:g}" for value in values]
    frame = table.frame.assign(place=texts if table.text else values)
    return replace(table, frame=frame, notes=(*table.notes, *notes)).take(np.flatnonzero(~out))


def orders_by_place(sheet: Sheet) -> Iterator[Reading]:
    """Read orders with a row for each event and a column for each place."""
    columns_of: dict[str, dict[int, Any]] = {}
    for column in sheet.columns:
        parts = sheet.words(column)
        for at, part in enumerate(parts):
            number = re.fullmatch(r"(\d+)(st|nd|rd|th|er|e|eme|o|a)?", part)
            rest = " ".join(parts[:at] + parts[at + 1 :])
            rank = int(number[1]) if number else _RANKS.get(part)
            if rank is not None and rest in _PLACED:
                columns_of.setdefault(rest, {})[rank] = column
    for columns in columns_of.values():
        ordered = [columns[rank] for rank in sorted(columns)]
        sets = [{*sheet.cells(column)} - {""} for column in ordered]
        consecutive = [*sorted(columns)] == [*range(1, len(columns) + 1)]
        shared = sets[0] & set().union(*sets[1:])
        if len(ordered) > 2 and consecutive and shared and not any(map(is_numeric, sets)):
            what = f"orders, from {ordered[0]!r} to {ordered[-1]!r}"
            yield Reading(what, partial(_melted, sheet, ordered, "place"))


def orders_by_item(sheet: Sheet) -> Iterator[Reading]:
    """Read orders with a column for each item and a row for each event, or the other way round."""
    size = len(sheet.table.frame)

    def placed_all(texts: Collection[str]) -> bool:
        given = [cell for cell in texts if cell and cell.lower() not in LAST | OUT]
        ranks = sorted(map(int, given)) if are_places(given) else []
        return len(given) > 1 and ranks == [*range(1, len(given) + 1)]

    def fits(texts: Collection[str]) -> bool:
        given = [cell for cell in texts if cell and cell.lower() not in LAST | OUT]
        timed = len(given) > 1 and not np.isnan([*map(seconds, given)]).any()
        return timed if sheet.better else placed_all(texts)

    ranks: list[Any] = []
    named: list[Any] = []
    doubtful: list[Any] = []
    for column in sheet.columns:
        cells = sheet.cells(column)
        noun = sheet.noun(column)
        numbers = noun in EVENTS or not noun or {*sheet.words(column)} & _NOT_ITEMS
        fitting = fits(cells) if sheet.better else are_places(cells)
        (ranks if fitting and not numbers else named).append(column)
        doubtful += [column] if numbers and are_places(cells) else []
    # An item may be called 'Weight' or 'Group': the places of a row are incomplete without it.
    for more in (more for few in range(4) for more in combinations(doubtful, few)):
        columns = [name for name in sheet.columns if name in ranks or name in more]
        if len(columns) > 2 and all(map(placed_all, zip(*map(sheet.cells, columns), strict=True))):
            ranks, named = columns, [name for name in sheet.columns if name not in columns]
            break
    few = len(ranks) < 3 or size < 2 or len(named) > 1 + len(sheet.columns) // 4
    if few or (sheet.better and "score" in sheet.named):
        return
    rows = zip(*map(sheet.cells, ranks), strict=True)
    by_column = all({*sheet.words(column)} <= _EVENT_WORDS for column in ranks)
    by_column |= any({*sheet.noun(column).split()} & ITEMS for column in named)
    if not by_column and all(map(fits, rows)):
        what = f"orders, a row each, of {listed(map(sheet.table.called, ranks))}"
        yield Reading(what, partial(_melted, sheet, ranks, "item"))
    labels = [column for column in named if len({*sheet.cells(column)}) == size > 2]
    if any(sheet.noun(column) in EVENTS for column in named):
        return
    if labels and all(fits(sheet.cells(column)) for column in ranks):
        what = f"orders, a column each, of the items in {labels[0]!r}"
        yield Reading(what, partial(_melted, sheet, ranks, "list", labels[0]))


def _melted(sheet: Sheet, columns: Sequence[Any], are: str, label: Any = "") -> Table:
    """Return a row for each item of each list.

    The columns are the places, the items or the lists (``are``); in the last case ``label`` is the
    column of the items, and otherwise each row is a list.
    """
    cells = np.array([*map(sheet.cells, columns)], dtype=object).T
    rows, at = np.nonzero(cells != "")
    called = [sheet.table.called(column) for column in columns]
    places, names = cells[rows, at], np.array(called, dtype=object)[at]
    read = sheet.table.take(rows)
    lists, items = rows, names
    if are == "place":
        items, places = read.frame[list(columns)].to_numpy(dtype=object)[range(len(at)), at], at + 1
    if are == "list":
        lists, items = names, read.frame[label].to_numpy()
    kept = read.frame.drop(columns=[*columns, *[label] * (are == "list")])
    for name, values in {"list": lists, "item": items}.items():
        column = pd.Series(values, kept.index, dtype=object)
        kept = kept.assign(**{name: column.map(str) if read.text else column.infer_objects()})
    return placed(sheet, replace(read, frame=kept), [*map(str, places)])


def best_and_worst(sheet: Sheet) -> Iterator[Reading]:
    """Read the best and the worst of the items that were shown."""
    ends = [
        [name for name in sheet.columns if sheet.words(name)[:1] in ((word,), (most,))]
        for word, most in (("best", "most"), ("worst", "least"))
    ]
    if [len(names) for names in ends] != [1, 1]:
        return
    stems: dict[str, list[Any]] = {}
    for column in sheet.columns:
        parts = sheet.words(column)
        if len(parts) > 1 and re.fullmatch(r"\d+|[a-z]", parts[-1]):
            stems.setdefault(" ".join(parts[:-1]), []).append(column)
    (best,), (worst,) = ends
    for columns in stems.values():
        if len(columns) > 2:
            names = {f"item_{number}": column for number, column in enumerate(columns, 1)}
            yield Reading(
                f"the best {best!r} and the worst {worst!r} of {listed(columns)}",
                partial(_extremes, sheet, {"best": best, "worst": worst}, names),
                {"best": best, "worst": worst, **names},
            )


def _extremes(sheet: Sheet, ends: Mapping[str, Any], names: Mapping[str, Any]) -> Table:
    """Return columns best, worst, item_1, item_2, ... with the labels of what was shown."""
    columns = list(names.values())
    read = sheet.table.rename({theirs: ours for ours, theirs in {**ends, **names}.items()})
    labels = list(zip(*map(sheet.cells, columns), strict=True))
    spots = {sheet.words(column)[-1]: at for at, column in enumerate(columns)}
    for name, column in ends.items():
        cells = sheet.cells(column)
        if all(cell in row for cell, row in zip(cells, labels, strict=True)):
            continue
        at = np.array([spots.get((words(cell) or ("",))[-1], -1) for cell in cells])
        reason = (
            " is none of the items of the row, nor the name of a column of these; name one of them"
        )
        read.refuse(name, at < 0, reason)
        shown_items = sheet.table.frame[columns].to_numpy(dtype=object)
        read = replace(read, frame=read.frame.assign(**{name: shown_items[np.arange(len(at)), at]}))
    return read
