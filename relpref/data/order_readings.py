"""Ways to read a table of answers as orders, or as the best and the worst of several."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from relpref.data.arrays import counted, listed
from relpref.data.readings import ITEMS, NUMBERS, Reading, cells_of, is_numeric, words
from relpref.data.tables import Table

PLACES = ("place", "position", "rank", "finish", "pos", "platz", "rang", "placement", "ranking")
LAST = {"dnf", "nc", "ret", "r", "\\n", "retired", "unplaced"}
OUT = {"dns", "w", "wd", "withdrawn", "dsq", "dq", "disqualified", "did not start"}
_LOOKED_AT = 1000  # rows
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
_PLACED = {"", "rank", "place", "choice", "position", "preference", "pick", "favorite", "top"}
EVENTS = {
    "list", "race", "event", "heat", "contest", "ballot", "round", "match", "game", "tournament",
    "question", "task", "trial", "session", "set", "group", "respondent", "participant", "person",
    "subject", "user", "voter", "judge", "rater", "block", "choice",
}  # fmt: skip


def _noun(column: Any) -> str:
    return " ".join(part for part in words(column) if part not in NUMBERS | {"name", "title"})


def long_orders(table: Table) -> Iterator[Reading]:
    """Read orders with a row for each item of each event."""
    columns = list(table.frame.columns)
    if {"list", "item", "place"} <= set(columns):
        return
    places = [
        column
        for name in PLACES
        for column in columns
        if words(column) == (name,) and _are_places(cells_of(table, column))
    ]
    if not places:
        return
    place, ranks = places[0], cells_of(table, places[0])
    readings: dict[tuple[int, ...], tuple[Any, Any]] = {}
    for event in columns:
        if event == place or _noun(event) not in EVENTS:
            continue
        fitting = []
        for item in columns:
            if item in (place, event) or (_noun(item) or "name") not in ITEMS:
                continue
            keys = list(zip(cells_of(table, event), cells_of(table, item), strict=True))
            if len(set(keys)) == len(keys) and _are_ranks(cells_of(table, event), ranks):
                fitting.append(item)
        if fitting:
            fitting.sort(key=lambda item: (is_numeric(cells_of(table, item)), columns.index(item)))
            partition = tuple(pd.factorize(np.array(cells_of(table, event)))[0])
            readings.setdefault(partition, (event, fitting[0]))
    for event, item in readings.values():
        yield Reading(
            f"orders of {item!r} by {place!r} in each {event!r}",
            partial(_placed, table.rename({event: "list", item: "item", place: "place"})),
        )


def _are_places(cells: list[str]) -> bool:
    given = [cell for cell in cells if cell and cell.lower() not in LAST | OUT]
    return bool(given) and all(cell.isdigit() and int(cell) > 0 for cell in given)


def _are_ranks(events: list[str], cells: list[str]) -> bool:
    """Tell whether places begin at 1 in each event, and are at most as many as its rows."""
    places = pd.Series([float(cell) if cell.isdigit() else np.nan for cell in cells])
    each = places.groupby(events)
    lowest, highest, size = each.min(), each.max(), each.size()
    return bool(((lowest == 1) & (highest <= size) & (size > 1)).all())


def _placed(table: Table) -> Table:
    """Put those who did not finish below all others, and leave out those who did not start."""
    cells = [cell.lower() for cell in cells_of(table, "place")]
    last = np.array([cell in LAST for cell in cells])
    out = np.array([cell in OUT for cell in cells])
    places = table.frame["place"].astype(object).mask(last, "" if table.text else None)
    if not table.text:
        places = pd.to_numeric(places.mask(out, None))
    notes = []
    for mask, what in (
        (last, "below all others of the event"),
        (out, "left out: who did not start is not compared"),
    ):
        number = int(mask.sum())
        if number:
            named = listed(sorted({cells[row] for row in np.flatnonzero(mask)}))
            verb = "is" if number == 1 else "are"
            notes.append(f"{counted(number, 'row')} ({named}) {verb} {what}")
    read = replace(table, frame=table.frame.assign(place=places), notes=(*table.notes, *notes))
    return read.take(np.flatnonzero(~out))


def orders_by_place(table: Table) -> Iterator[Reading]:
    """Read orders with a row for each event and a column for each place."""
    placed: dict[str, dict[int, Any]] = {}
    for column in table.frame.columns:
        parts = words(column)
        for at, part in enumerate(parts):
            number = re.fullmatch(r"(\d+)(st|nd|rd|th|\.)?", part)
            rank = (
                int(number[1]) if number else _ORDINALS.index(part) + 1 if part in _ORDINALS else 0
            )
            rest = " ".join(parts[:at] + parts[at + 1 :])
            if rank and rest in _PLACED:
                placed.setdefault(rest, {})[rank] = column
    for columns in placed.values():
        if len(columns) < 3 or sorted(columns) != list(range(1, len(columns) + 1)):
            continue
        ordered = [columns[rank] for rank in sorted(columns)]
        cells = [cells_of(table, column) for column in ordered]
        sets = [set(column) - {""} for column in cells]
        if any(map(is_numeric, cells)) or not sets[0] & set().union(*sets[1:]):
            continue
        yield Reading(
            f"orders, from {ordered[0]!r} to {ordered[-1]!r}",
            partial(_melted, table, ordered),
        )


def _melted(table: Table, ordered: list[Any]) -> Table:
    """Return a row for each item of each order."""
    rows, lists, items, places = [], [], [], []
    for rank, column in enumerate(ordered, 1):
        for row, cell in enumerate(cells_of(table, column)):
            if cell:
                rows.append(row)
                lists.append(row)
                items.append(table.frame[column].iloc[row])
                places.append(rank)
    return _orders(table, rows, lists, items, places, ordered)


def _orders(
    table: Table, rows: Any, lists: Any, items: Any, places: Any, used: Sequence[Any]
) -> Table:
    rows = np.asarray(rows, dtype=np.int64)
    order = np.argsort(rows, kind="stable")
    read = table.take(rows[order])
    frame = read.frame.drop(columns=list(used))
    columns = {"list": lists, "item": items, "place": places}
    for name, values in columns.items():
        column = pd.Series([values[at] for at in order], dtype=object)
        frame[name] = (column.map(str) if table.text else column.infer_objects()).to_numpy()
    return replace(read, frame=frame)


def orders_by_item(table: Table) -> Iterator[Reading]:
    """Read orders with a column for each item and a row for each event, or the other way round."""
    columns = list(table.frame.columns)
    cells = {column: cells_of(table, column) for column in columns}
    no_items = NUMBERS | EVENTS
    ranks = [
        column
        for column in columns
        if _are_places(cells[column]) and not set(words(column)) & no_items
    ]
    named = [column for column in columns if column not in ranks]
    if len(ranks) < 3 or len(named) > 1 + len(columns) // 4 or len(table.frame) < 2:
        return
    rows = range(len(table.frame))
    head = [[cells[column][row] for column in ranks] for row in rows[:_LOOKED_AT]]
    if len(rows) > len(head) and not all(map(_is_order, head)):
        return  # so many rows are no items
    matrix = [[cells[column][row] for column in ranks] for row in rows]
    if all(map(_is_order, matrix)):
        yield Reading(
            f"orders, a row each, of {listed(ranks)}",
            partial(_by_item, table, ranks, range(len(matrix)), ranks, matrix),
        )
    labels = [column for column in named if len(set(cells[column])) == len(table.frame)]
    if labels and len(table.frame) > 2 and all(map(_is_order, zip(*matrix, strict=True))):
        items = table.frame[labels[0]].tolist()
        yield Reading(
            f"orders, a column each, of the items in {labels[0]!r}",
            lambda: _by_item(
                table, [*ranks, labels[0]], ranks, items, list(zip(*matrix, strict=True))
            ),
        )


def _is_order(cells: Sequence[str]) -> bool:
    """Tell whether the cells that are given are the numbers from 1 on, each once."""
    given = [cell for cell in cells if cell and cell.lower() not in LAST | OUT]
    return len(given) > 1 and sorted(map(int, given)) == list(range(1, len(given) + 1))


def _by_item(
    table: Table, used: Sequence[Any], lists: Any, items: Sequence[Any], matrix: Any
) -> Table:
    entries = [
        (row, number, item, cell)
        for row, (number, cells) in enumerate(zip(lists, matrix, strict=True))
        for item, cell in zip(items, cells, strict=True)
        if cell
    ]
    rows, numbers, labels, places = zip(*entries, strict=True)
    by_row = len(matrix) == len(table.frame)
    return _placed(
        _orders(table, rows if by_row else [0] * len(rows), numbers, labels, places, used)
    )


def best_and_worst(table: Table) -> Iterator[Reading]:
    """Read the best and the worst of the items that were shown."""
    columns = list(table.frame.columns)
    best = [column for column in columns if words(column)[:1] in (("best",), ("most",))]
    worst = [column for column in columns if words(column)[:1] in (("worst",), ("least",))]
    if len(best) != 1 or len(worst) != 1:
        return
    stems: dict[str, list[Any]] = {}
    for column in columns:
        parts = words(column)
        if len(parts) > 1 and re.fullmatch(r"\d+|[a-z]", parts[-1]):
            stems.setdefault(" ".join(parts[:-1]), []).append(column)
    for columns_shown in stems.values():
        if len(columns_shown) < 3:
            continue
        yield Reading(
            f"the best {best[0]!r} and the worst {worst[0]!r} of {listed(columns_shown)}",
            partial(_extremes, table, best[0], worst[0], columns_shown),
        )


def _extremes(table: Table, best: Any, worst: Any, columns: list[Any]) -> Table:
    """Return columns best, worst, item_1, item_2, ... with the labels of what was shown."""
    names = {column: f"item_{number}" for number, column in enumerate(columns, 1)}
    read = table.rename({best: "best", worst: "worst", **names})
    shown_labels = [cells_of(table, column) for column in columns]
    for name, column in (("best", best), ("worst", worst)):
        cells = cells_of(table, column)
        if all(
            cell in row for cell, row in zip(cells, zip(*shown_labels, strict=True), strict=True)
        ):
            continue
        last = {words(column)[-1]: at for at, column in enumerate(columns)}
        spots = [
            last.get(cell.lower(), last.get(words(cell)[-1] if words(cell) else "", -1))
            for cell in cells
        ]
        wrong = np.array([spot < 0 for spot in spots])
        read.refuse(
            name,
            wrong,
            f" is none of the items of the row, nor the name of one of {listed(columns)}",
        )
        chosen = [table.frame[columns[spot]].iloc[row] for row, spot in enumerate(spots)]
        read = replace(read, frame=read.frame.assign(**{name: chosen}))
    return read
