"""Orders, tables of positions, matrices of scores and files of PrefLib, read as rankings."""

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import NDArray

from relpref.data.arrays import counted, read_only, refuse_first, shown
from relpref.data.items import read_item_table
from relpref.data.labels import LabelIndex, Place, blank_note, read_labels
from relpref.data.preference import PreferenceData, assembled
from relpref.data.tables import Table, as_table, check_columns, numbers, renamed
from relpref.errors import DataError
from relpref.files import reading
from relpref.limits import MAX_POSITIONS

Read = tuple[PreferenceData, NDArray[np.int32], tuple[Any, ...]]  # items, positions and rankers

_REMEDY = "correct the label, or give the item in items"
_NUMBER = (
    "write a number, or leave the cell blank where the item is not ranked (rankers belong "
    "into the index)"
)
_WHOLE = (
    "write positions as whole numbers, 1 for the best, and leave the cell empty or drop the row "
    "where an item is not ranked, such as "
    "one that did not finish (scores and average ranks are read by from_scores)"
)
_TYPES = ("soc", "soi", "toc", "toi")
_ORDER = re.compile(r"(\{\s*\d+(?:\s*,\s*\d+)*\s*\}|\d+)(?:\s*,\s*|\s*$)")


def generator(key: Any) -> np.random.Generator:
    """NumPy's generator for an integer seed or a JAX key."""
    if isinstance(key, int | np.integer) and key >= 0:
        return np.random.default_rng(int(key))
    if not isinstance(key, np.ndarray):
        import jax

        if not isinstance(key, jax.Array):
            raise DataError(
                f"key is {shown(key)}; give a whole number from 0 on, or a key: jax.random.key(0)"
            )
        key = (
            jax.random.key_data(key)
            if jax.numpy.issubdtype(key.dtype, jax.dtypes.prng_key)
            else key
        )
    return np.random.default_rng(np.asarray(key).tolist())


def check_number(number: Any, what: str) -> None:
    """Refuse what is no whole number from 1 on."""
    if not isinstance(number, int | np.integer) or number < 1:
        raise DataError(
            f"{what}: {shown(number)} are to be kept; keep a whole number of them, at least 1"
        )


def in_order(values: Any, name: str) -> Any:
    """What has an order and one dimension; sets, mappings and tables would be read as something else."""
    listed = isinstance(values, Sequence) and not isinstance(values, str | bytes)
    if listed or getattr(values, "ndim", None) == 1:
        return values
    shape = f" of shape {values.shape}" if hasattr(values, "shape") else ""
    raise DataError(
        f"{name}: got {type(values).__name__}{shape}; give a list, a one-dimensional array or a "
        "Series, in the order of the rankings"
    )


def place_of(rankers: Sequence[Any], row: int) -> str:
    """The words that name a ranking."""
    by = "" if rankers[row] == row else f" (of {shown(rankers[row])})"
    return f"ranking {row}{by}"


def numbered(rows: Any, columns: Any, keys: Any, shape: tuple[int, int]) -> NDArray[np.int32]:
    """Blocks of the items that are ranked, by their keys, numbered without gaps in each ranking."""
    positions = np.full(shape, -1, dtype=np.int32)
    positions[rows, columns] = pd.Series(keys).groupby(np.asarray(rows)).rank(method="dense") - 1
    return read_only(positions)


def _ranked(
    rows: Any,
    codes: Any,
    keys: Any,
    labels: Sequence[Any],
    items: Any,
    rankers: tuple[Any, ...],
    where: Place,
    twice: Callable[[int, int], str] | None = None,
    blanks: Collection[str] = (),
) -> Read:
    """Rankings from entries: of each its ranking, the place of the item's label in ``labels``, and its key, the smaller the better.

    ``where`` names the place of a label in a message, ``twice`` says what is wrong with two entries
    of one item in one ranking, and ``blanks`` are the labels that had blanks around them.
    """
    known = _read_items(list(dict.fromkeys(labels)) if items is None else items)
    for note in blank_note(blanks):
        known = replace(known, notes=(*known.notes, f"rankings: {note}"))
    shape = len(rankers), known.num_items
    _check_size(*shape)
    columns = LabelIndex(known.labels, str).locate(labels, where, _REMEDY)[codes]
    refuse_first(
        np.bincount(rows, minlength=shape[0]) == 0,
        lambda row: f"{place_of(rankers, row)}: it ranks nothing; leave it out",
    )
    positions = numbered(rows, columns, keys, shape)
    if twice is not None and np.count_nonzero(positions >= 0) < len(columns):
        cells = np.asarray(rows) * np.int64(shape[1]) + columns
        order = np.argsort(cells, kind="stable")
        at = int(np.argmin(np.diff(cells[order])))
        raise DataError(twice(int(order[at]), int(order[at + 1])))
    return known, positions, rankers


def _check_size(rankings: int, items: int) -> None:
    if rankings * items > MAX_POSITIONS:
        raise DataError(
            f"rankings: {counted(rankings, 'ranking')} of {counted(items, 'item')} are "
            f"{rankings * items:.1e} positions, "
            f"more than the limit of {MAX_POSITIONS:.0e}; keep fewer rankings, or only the items "
            "that most of them rank"
        )


def _read_items(items: Any) -> PreferenceData:
    return items if isinstance(items, PreferenceData) else assembled(read_item_table(items), None)


def _read_rankers(rankers: Any, number: int) -> tuple[Any, ...]:
    """Labels of those who gave the rankings, 0, 1, ... by default; they may repeat."""
    if rankers is None:
        return tuple(range(number))
    labels = read_labels(in_order(rankers, "rankers"), lambda row: f"rankers, position {row}")
    if len(labels) != number:
        raise DataError(
            f"rankers: {counted(len(labels), 'label')} for {counted(number, 'ranking')}; give one "
            "label for each ranking"
        )
    return tuple(labels)


def read_orders(orders: Any, items: Any, rankers: Any) -> Read:
    """See `Rankings.from_orders`."""
    if isinstance(orders, str | pd.DataFrame | np.ndarray) or not isinstance(orders, Iterable):
        raise DataError(
            f"orders: got {type(orders).__name__}; give a list with one list of labels for each "
            "ranking, best first "
            "(tables are read by from_table, scores by from_scores)"
        )
    if isinstance(orders, pd.Series) and rankers is None:
        rankers = orders.index
    orders = list(orders)
    by, blanks = _read_rankers(rankers, len(orders)), set[str]()
    entries = [
        (row, key, label)
        for row, order in enumerate(orders)
        for key, block in enumerate(_blocks(order, place_of(by, row), blanks))
        for label in block
    ]
    if not entries:
        raise DataError("orders: there are none; give at least one ranking")
    rows, keys, labels = zip(*entries, strict=True)

    def twice(_: int, at: int) -> str:
        return (
            f"{place_of(by, rows[at])}: the item {shown(labels[at])} is in it twice; remove "
            "one "
            "of the two"
        )

    codes = np.arange(len(labels))
    return _ranked(
        rows, codes, keys, labels, items, by, lambda at: place_of(by, rows[at]), twice, blanks
    )


def _at(where: str) -> Place:
    return lambda _: where


def _blocks(order: Any, where: str, blanks: set[str]) -> list[list[Any]]:
    if isinstance(order, str | bytes | AbstractSet) or not isinstance(order, Iterable):
        raise DataError(
            f"{where}: got {shown(order)}; give a list of labels, best first, with a tuple for "
            "items that are tied"
        )
    blocks = []
    for place, entry in enumerate(order):
        tied = isinstance(entry, tuple | list | AbstractSet)
        labels = read_labels(
            list(entry) if tied else [entry], _at(f"{where}, place {place}"), (), blanks
        )
        if not labels:
            raise DataError(f"{where}, place {place}: the tie is empty; remove it")
        # Nothing may depend on the order inside a set, which is another in every process.
        blocks.append(sorted(labels, key=repr) if isinstance(entry, AbstractSet) else labels)
    if not blocks:
        raise DataError(f"{where}: it ranks nothing; leave it out")
    return blocks


def read_positions(value: Any, items: Any, columns: Mapping[str, str] | None) -> Read:
    """See `Rankings.from_table`."""
    table = renamed(as_table(value, "table"), columns)
    if table.frame.empty:
        raise DataError(
            f"{table.name}: it has no rows or no columns; give at least one ranking of one item"
        )
    if {"item", "position"} & set(table.frame.columns):
        return _read_long(table, items)
    rankers, labels, values = _wide(table)
    for row, column in np.argwhere(_not_a_place(values)):
        raise DataError(
            f"{place_of(rankers, row)}, item {shown(labels[column])}: {values[row, column]:g} is "
            f"not a position; {_WHOLE}"
        )
    where = f"{table.name}, column {{}}".format
    return _ranked(*_entries(values), labels, items, rankers, where, blanks=table.blanks)


def read_scores(scores: Any, items: Any, rankers: Any) -> Read:
    """See `Rankings.from_scores`."""
    labels = None
    if scipy.sparse.issparse(scores):
        matrix = scipy.sparse.coo_array(scores).astype(np.float64)
        shape, ranked = matrix.shape, ~np.isnan(matrix.data)
        rows, codes, values = (part[ranked] for part in (matrix.row, matrix.col, matrix.data))
    else:
        if isinstance(scores, pd.DataFrame):
            by, labels, scores = _wide(Table(scores, "scores"))
            rankers = by if rankers is None else rankers
        scores = _matrix(scores)
        shape, (rows, codes, values) = scores.shape, _entries(scores)
    by = _read_rankers(rankers, shape[0])
    if 0 in shape:
        raise DataError(f"scores: their shape is {shape}; give at least one ranking of one item")
    refuse_first(
        np.isinf(values),
        lambda at: (
            f"{place_of(by, int(rows[at]))}, column {codes[at]}: the score is {values[at]}; "
            "give finite scores, and NaN for an item that is not ranked"
        ),
    )
    if labels is None:
        items = _read_items(list(range(shape[1])) if items is None else items)
        labels = items.labels
        if len(labels) != shape[1]:
            raise DataError(
                f"items: there are {len(labels)} for {shape[1]} columns; give one for each"
            )
    twice = (
        "scores: the sparse matrix stores an entry twice; call sum_duplicates() if they are "
        "to "
        "be added"
    )
    return _ranked(
        rows, codes, -values, labels, items, by, lambda code: f"column {code}", lambda *_: twice
    )


def _entries(values: NDArray[np.float64]) -> tuple[Any, Any, Any]:
    rows, columns = np.nonzero(~np.isnan(values))
    return rows, columns, values[rows, columns]


def _matrix(scores: Any) -> Any:
    try:
        if np.iscomplexobj(scores):
            raise TypeError("complex numbers have no order")
        # What is masked is not ranked.
        values = np.ma.asarray(scores, dtype=np.float64).filled(np.nan)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"scores: they are not numbers ({error}); give numbers, NaN where not ranked"
        ) from None
    if values.ndim != 2:
        raise DataError(
            f"scores: their shape is {values.shape}; give rows of rankings, columns of items"
        )
    return values


def _wide(table: Table) -> tuple[tuple[Any, ...], list[Any], NDArray[np.float64]]:
    """Rankers, labels of the columns, and cells, NaN where they are blank."""
    frame = table.frame
    by: Any = frame.index
    if "ranker" in frame.columns or table.text:
        name = "ranker" if "ranker" in frame.columns else frame.columns[0]
        by, frame = frame[name], frame.drop(columns=name)
    where = f"{table.name}, column {{}}".format
    rankers = tuple(read_labels(by, table.place, (), table.blanks))
    labels = read_labels(frame.columns, where, (), table.blanks)
    LabelIndex(labels, where)
    values = np.full(frame.shape, np.nan)
    for column, label in enumerate(labels):
        cells = frame.iloc[:, column]
        known = np.flatnonzero((cells != "") if table.text else ~cells.isna())
        place = partial(lambda known, row: place_of(rankers, int(known[row])), known)
        values[known, column] = numbers(
            cells.iloc[known], str(label), place, text=table.text, remedy=_NUMBER
        )
    return rankers, labels, values


def _read_long(table: Table, items: Any) -> Read:
    check_columns(table, ("ranker", "item", "position"), ("ranking",))
    places = table.numbers("position", _WHOLE)
    refuse_first(
        _not_a_place(places),
        lambda row: f"{table.cell('position')(row)}: {places[row]:g} is not a position; {_WHOLE}",
    )
    labels, by = _labels(table, "item"), _labels(table, "ranker")
    keys = _labels(table, "ranking") if "ranking" in table.frame.columns else by
    rankers: dict[Any, Any] = {}
    for row, (key, ranker) in enumerate(zip(keys, by, strict=True)):
        if rankers.setdefault(key, ranker) != ranker:
            raise DataError(
                f"{table.place(row)}: the ranking {shown(key)} is of {shown(ranker)}, but was of "
                f"{shown(rankers[key])}; "
                "give every ranking a number of its own"
            )
    numbers_of = {key: row for row, key in enumerate(rankers)}
    rows = np.array([numbers_of[key] for key in keys], dtype=np.int64)

    def twice(one: int, other: int) -> str:
        return (
            f"{table.place(other)}: the item {shown(labels[one])} of the ranker {shown(by[one])} "
            f"was already at {table.place(one)}; "
            "remove one of the two"
        )

    codes, gave = np.arange(len(labels)), tuple(rankers.values())
    return _ranked(
        rows, codes, places, labels, items, gave, table.cell("item"), twice, table.blanks
    )


def _labels(table: Table, column: str) -> list[Any]:
    refuse_first(
        table.blank(column),
        lambda row: f"{table.cell(column)(row)}: the label is missing; fill it in or drop the row",
    )
    return table.labels(column)


def _not_a_place(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    return ~np.isnan(values) & ((values < 1) | (values != np.floor(values)) | np.isinf(values))


def read_preflib(path: str | os.PathLike[str], incomplete: Any) -> Read:
    """See `Rankings.from_preflib`."""
    if incomplete not in (None, "top-k", "subset"):
        raise DataError(f"incomplete is {shown(incomplete)}; choose 'top-k' or 'subset'")
    file = Path(path)
    with reading(file):
        text = file.read_text(encoding="utf-8-sig")
    lines = [
        (number, line.strip())
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip()
    ]
    if not lines or not lines[0][1].startswith("#"):
        raise DataError(
            f"{file}: it does not begin with the metadata of a PrefLib file ('# FILE NAME: ...'); "
            "files from before September 2022 "
            "have another format: get the current one from preflib.org"
        )
    pairs = (line[1:].partition(":") for _, line in lines if line[0] == "#")
    metadata = {key.strip(): value.strip() for key, _, value in pairs}
    kind = metadata.get("DATA TYPE", file.suffix[1:]).lower()
    if kind not in _TYPES:
        raise DataError(
            f"{file}: its data type is {kind!r}; give a file of orders, {', '.join(_TYPES)}"
        )
    if kind[2] == "i" and incomplete is None:
        raise DataError(
            f"{file}: it may lack alternatives, and the format does not say what that means; give "
            "incomplete='top-k' if they are "
            "below all that are there, incomplete='subset' if nothing is known of them"
        )
    names = _names(file, metadata)
    orders = {number: line for number, line in lines if line[0] != "#"}
    places = [f"{file}, line {number}" for number in orders]
    counts, entries = [], list[tuple[int, int, int]]()
    for row, (place, line) in enumerate(zip(places, orders.values(), strict=True)):
        count, _, order = line.partition(":")
        blocks = _ORDER.findall(order.strip())
        if (
            not count.strip().isdecimal()
            or int(count) < 1
            or _ORDER.sub("", order.strip())
            or not blocks
        ):
            raise DataError(
                f"{place}: {shown(line)} is not an order; expected how often it was given and the "
                f"alternatives, as in '3: 1,2,{{3,4}}'"
            )
        if kind[0] == "s" and "{" in order:
            raise DataError(
                f"{place}: {next(block for block in blocks if block[0] == '{')} is a tie, but the file is of strict orders ({kind}); "
                "get the file again"
            )
        counts.append(int(count))
        entries += [
            (row, int(one), key)
            for key, block in enumerate(blocks)
            for one in re.findall(r"\d+", block)
        ]
    voters = metadata.get("NUMBER VOTERS", "")
    if not counts:
        raise DataError(f"{file}: there are no orders in it; get the file again")
    if voters.isdecimal() and int(voters) != sum(counts):
        raise DataError(
            f"{file}: there are orders of {counted(sum(counts), 'voter')} where the metadata "
            f"promise {voters}; get the file again"
        )
    rows, codes, keys = np.array(entries).T
    refuse_first(
        (codes < 1) | (codes > len(names)),
        lambda at: (
            f"{places[rows[at]]}: there is no alternative {codes[at]}, only 1 to {len(names)}; get "
            "the file again"
        ),
    )

    def twice(_: int, at: int) -> str:
        return (
            f"{places[rows[at]]}: the alternative {codes[at]} is in the order twice; get the "
            "file again"
        )

    _check_size(sum(counts), len(names))
    given = tuple(range(len(counts)))
    items, positions, _ = _ranked(
        rows, codes - 1, keys, names, _read_items(names), given, str, twice
    )
    if kind[2] == "c":
        refuse_first(
            (positions < 0).any(axis=1),
            lambda row: (
                f"{places[row]}: the alternative {int(np.argmax(positions[row] < 0)) + 1} is "
                "missing in a file of complete orders "
                f"({kind}); get the file again"
            ),
        )
    return items, read_only(np.repeat(positions, counts, axis=0)), tuple(range(sum(counts)))


def _names(file: Path, metadata: Mapping[str, str]) -> list[str]:
    number = metadata.get("NUMBER ALTERNATIVES", "")
    named = sum(key.startswith("ALTERNATIVE NAME ") for key in metadata)
    if not number.isdecimal() or int(number) != named or not named:
        raise DataError(
            f"{file}: there are {named} names of alternatives where the NUMBER ALTERNATIVES is "
            f"{number or 'missing'}; get the file again"
        )
    keys = [f"ALTERNATIVE NAME {one}" for one in range(1, named + 1)]
    for key in keys:
        if not metadata.get(key):
            raise DataError(f"{file}: the metadata lack the {key}; get the file again")
    return read_labels([metadata[key] for key in keys], lambda at: f"{file}, {keys[at]}")
