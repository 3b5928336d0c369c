"""Orders, tables of positions, matrices of scores and files of PrefLib, read as rankings."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from relpref.data.arrays import (
    Array,
    Floats,
    Labels,
    Positions,
    counted,
    read_only,
    refuse_first,
    shown,
)
from relpref.data.items import read_item_table
from relpref.data.labels import LabelIndex, Place, blank_note, read_labels
from relpref.data.preference import PreferenceData, assembled
from relpref.data.tables import Table, as_table, check_columns, renamed
from relpref.errors import DataError
from relpref.files import FilePath, reading
from relpref.limits import MAX_POSITIONS

Read = tuple[PreferenceData, Positions, tuple[Any, ...]]  # items, positions and rankers

_REMEDY = "correct the label, or give the item in items"
_NUMBER = (
    "write a number, or leave the cell blank where the item is not ranked (rankers belong into "
    "the index)"
)
_POSITION = (
    "write positions as whole numbers, 1 for the best, and leave the cell empty or drop the row "
    "where an item is not ranked, such as one that did not finish (scores and average ranks are "
    "read by from_scores)"
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
        key = jax.random.key_data(key)
    return np.random.default_rng(np.asarray(key).tolist())


def check_number(number: Any, what: str) -> None:
    """Refuse a number to keep that is no whole number from 1 on."""
    if not isinstance(number, int | np.integer) or number < 1:
        raise DataError(
            f"{what}: {shown(number)} are to be kept; keep a whole number of them, at least 1"
        )


def in_order(values: Any, name: str) -> Any:
    """Return values that have an order and one dimension; refuse sets, mappings and tables."""
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        return values
    if getattr(values, "ndim", None) == 1:
        return values
    shape = f" of shape {values.shape}" if hasattr(values, "shape") else ""
    raise DataError(
        f"{name}: got {type(values).__name__}{shape}; give a list, a one-dimensional array or a "
        "Series, in the order of the rankings"
    )


def place_of(rankers: Labels, row: int) -> str:
    """The words that name a ranking."""
    by = "" if rankers[row] == row else f" (of {shown(rankers[row])})"
    return f"ranking {row}{by}"


def numbered(rows: Any, columns: Any, keys: Any, shape: tuple[int, int]) -> Positions:
    """Number the blocks of the ranked items by their keys, without gaps in each ranking."""
    positions = np.full(shape, -1, dtype=np.int32)
    positions[rows, columns] = pd.Series(keys).groupby(np.asarray(rows)).rank(method="dense") - 1
    return read_only(positions)


def _ranked(
    rows: Any,
    codes: Any,
    keys: Any,
    labels: Labels,
    items: Any,
    rankers: tuple[Any, ...],
    where: Place,
    blanks: Collection[str] = (),
) -> Read:
    """Make rankings from entries: the ranking, item and key of each, the smaller the better.

    Parameters
    ----------
    rows, codes, keys : array, shape (k,)
        Ranking of each entry, position of its item among ``labels``, and its key.
    labels : sequence of hashable
    items : see `Rankings.from_orders`
    rankers : tuple of hashable, one for each ranking
    where : callable
        Maps a position among ``labels`` to the words that name its place in a message.
    blanks : collection of str
        Labels that had blanks around them.
    """
    data = _read_items(list(dict.fromkeys(labels)) if items is None else items)
    for note in blank_note(blanks):
        data = replace(data, notes=(*data.notes, f"rankings: {note}"))
    shape = len(rankers), data.num_items
    _check_size(*shape)
    columns = LabelIndex(data.labels, str).locate(labels, where, _REMEDY)[codes]
    refuse_first(
        np.bincount(rows, minlength=shape[0]) == 0,
        lambda row: f"{place_of(rankers, row)}: it ranks nothing; leave it out",
    )
    positions = numbered(rows, columns, keys, shape)
    if np.count_nonzero(positions >= 0) < len(columns):
        cells = np.asarray(rows) * np.int64(shape[1]) + columns
        order = np.argsort(cells, kind="stable")
        first, second = order[np.argmin(np.diff(cells[order])) + np.arange(2)]
        raise DataError(
            f"{where(codes[second])}: the item {shown(labels[codes[second]])} was already in "
            f"{place_of(rankers, rows[first])} at {where(codes[first])}; remove one of the two"
        )
    return data, positions, rankers


def _check_size(rankings: int, items: int) -> None:
    if rankings * items > MAX_POSITIONS:
        raise DataError(
            f"rankings: {counted(rankings, 'ranking')} of {counted(items, 'item')} are "
            f"{rankings * items:.1e} positions, more than the limit of {MAX_POSITIONS:.0e}; keep "
            "fewer rankings, or only the items that most of them rank"
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
    """Read orders, see `Rankings.from_orders`."""
    if isinstance(orders, str | pd.DataFrame | np.ndarray) or not isinstance(orders, Iterable):
        raise DataError(
            f"orders: got {type(orders).__name__}; give a list with one list of labels for each "
            "ranking, best first (tables are read by from_table, scores by from_scores)"
        )
    if isinstance(orders, pd.Series) and rankers is None:
        rankers = orders.index
    orders = list(orders)
    by = _read_rankers(rankers, len(orders))
    blanks = set[str]()
    entries = [
        (row, key, label)
        for row, order in enumerate(orders)
        for key, block in enumerate(_blocks(order, place_of(by, row), blanks))
        for label in block
    ]
    if not entries:
        raise DataError("orders: there are none; give at least one ranking")
    rows, keys, labels = zip(*entries, strict=True)
    return _ranked(
        rows,
        np.arange(len(labels)),
        keys,
        labels,
        items,
        by,
        lambda entry: f"{place_of(by, rows[entry])}, place {keys[entry]}",
        blanks,
    )


def _blocks(order: Any, where: str, blanks: set[str]) -> list[list[Any]]:
    """Read an order as lists of tied labels; ``blanks`` receives those with blanks around them."""
    if isinstance(order, str | bytes | AbstractSet) or not isinstance(order, Iterable):
        raise DataError(
            f"{where}: got {shown(order)}; give a list of labels, best first, with a tuple for "
            "items that are tied"
        )
    blocks = [_block(entry, f"{where}, place {place}", blanks) for place, entry in enumerate(order)]
    if not blocks:
        raise DataError(f"{where}: it ranks nothing; leave it out")
    return blocks


def _block(entry: Any, where: str, blanks: set[str]) -> list[Any]:
    """Read the labels at one place of an order."""
    tied = isinstance(entry, tuple | list | AbstractSet)
    labels = read_labels(list(entry) if tied else [entry], lambda _: where, (), blanks)
    if not labels:
        raise DataError(f"{where}: the tie is empty; remove it")
    # Nothing may depend on the order inside a set, which is another in every process.
    return sorted(labels, key=repr) if isinstance(entry, AbstractSet) else labels


def read_positions(value: Any, items: Any, columns: Mapping[str, str] | None) -> Read:
    """Read a long or a wide table of positions, see `Rankings.from_table`."""
    table = renamed(as_table(value, "table"), columns)
    if table.frame.empty:
        raise DataError(
            f"{table.name}: it has no rows or no columns; give at least one ranking of one item"
        )
    if {"item", "position"} & {*table.columns}:
        return _read_long(table, items)
    rankers, labels, values = _wide(table, partial(table.counts, remedy=_POSITION))
    where = partial(_column_of, table)
    return _ranked(*_entries(values), labels, items, rankers, where, table.blanks)


def read_scores(scores: Any, items: Any, rankers: Any) -> Read:
    """Read a matrix of scores, see `Rankings.from_scores`."""
    labels = None
    if scipy.sparse.issparse(scores):
        matrix = scipy.sparse.coo_array(scores).astype(np.float64)
        if scipy.sparse.csr_array(matrix).nnz < matrix.nnz:
            raise DataError(
                "scores: the sparse matrix stores an entry twice; call sum_duplicates() if they "
                "are to be added"
            )
        shape = matrix.shape
        ranked = ~np.isnan(matrix.data)
        rows, codes, values = (part[ranked] for part in (*matrix.coords, matrix.data))
    else:
        if isinstance(scores, pd.DataFrame):
            table = Table(scores, "scores")
            by, labels, scores = _wide(table, partial(table.numbers, remedy=_NUMBER))
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
    return _ranked(rows, codes, -values, labels, items, by, "column {}".format)


def _entries(values: Floats) -> tuple[Any, Any, Any]:
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


def _column_of(table: Table, column: int) -> str:
    return f"{table.name}, column {column}"


def _wide(table: Table, read: Callable[..., Array]) -> tuple[tuple[Any, ...], list[Any], Floats]:
    """Return rankers, labels of the columns, and cells, NaN where they are blank.

    ``read`` returns the values in some rows of a column.
    """
    frame = table.frame
    by = frame.index
    if "ranker" in frame.columns or table.text:
        name = "ranker" if "ranker" in frame.columns else frame.columns[0]
        by = frame[name]
        frame = frame.drop(columns=name)
    where = partial(_column_of, table)
    rankers = tuple(read_labels(by, table.place, (), table.blanks))
    labels = read_labels(frame.columns, where, (), table.blanks)
    LabelIndex(labels, where)  # refuses labels that occur twice
    values = np.full(frame.shape, np.nan)
    for column, name in enumerate(frame.columns):
        rows = np.flatnonzero(~table.blank(name))
        values[rows, column] = read(name, rows=rows)
    return rankers, labels, values


def _read_long(table: Table, items: Any) -> Read:
    check_columns(table, ("ranker", "item", "position"), ("ranking",))
    places = table.counts("position", _POSITION)
    labels = table.labels("item")
    by = table.labels("ranker")
    keys = table.labels("ranking") if "ranking" in table.columns else by
    rankers: dict[Any, Any] = {}
    for row, (key, ranker) in enumerate(zip(keys, by, strict=True)):
        if rankers.setdefault(key, ranker) != ranker:
            raise DataError(
                f"{table.place(row)}: the ranking {shown(key)} is of {shown(ranker)}, but was of "
                f"{shown(rankers[key])}; give every ranking a number of its own"
            )
    numbers = {key: number for number, key in enumerate(rankers)}
    rows = np.array([numbers[key] for key in keys], dtype=np.int64)
    codes = np.arange(len(labels))
    gave = tuple(rankers.values())
    return _ranked(rows, codes, places, labels, items, gave, table.cell("item"), table.blanks)


def read_preflib(path: FilePath, incomplete: Any) -> Read:
    """Read a file of PrefLib, see `Rankings.from_preflib`."""
    if incomplete not in (None, "top-k", "subset"):
        raise DataError(f"incomplete is {shown(incomplete)}; choose 'top-k' or 'subset'")
    file = Path(path)
    with reading(file):
        text = file.read_text(encoding="utf-8-sig")
    lines = [
        (f"{file}, line {number}", line.strip())
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip()
    ]
    if not lines or not lines[0][1].startswith("#"):
        raise DataError(
            f"{file}: it does not begin with the metadata of a PrefLib file ('# FILE NAME: ...'); "
            "files from before September 2022 have another format: get the current one from "
            "preflib.org"
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
            "incomplete='top-k' if they are below all that are there, incomplete='subset' if "
            "nothing is known of them (Rankings.from_preflib, --incomplete)"
        )
    names = _names(file, metadata)
    counts = list[int]()
    entries = []
    for place, line in lines:
        if line[0] != "#":
            count, blocks = _read_order(place, line, kind, len(names))
            entries += [
                (len(counts), code, key) for key, block in enumerate(blocks) for code in block
            ]
            counts.append(count)
    voters = metadata.get("NUMBER VOTERS", "")
    if not counts:
        raise DataError(f"{file}: there are no orders in it; get the file again")
    if voters.isdecimal() and int(voters) != sum(counts):
        raise DataError(
            f"{file}: there are orders of {counted(sum(counts), 'voter')} where the metadata "
            f"promise {voters}; get the file again"
        )
    _check_size(sum(counts), len(names))
    rows, codes, keys = np.array(entries).T
    rankers = tuple(range(len(counts)))
    items, positions, _ = _ranked(rows, codes - 1, keys, names, _read_items(names), rankers, str)
    return items, read_only(np.repeat(positions, counts, axis=0)), tuple(range(sum(counts)))


def _read_order(place: str, line: str, kind: str, size: int) -> tuple[int, list[list[int]]]:
    """Read how often an order was given, and its blocks of alternatives, numbered from 1."""
    count, _, order = (part.strip() for part in line.partition(":"))
    blocks = _ORDER.findall(order)
    if not count.isdecimal() or int(count) < 1 or _ORDER.sub("", order) or not blocks:
        raise DataError(
            f"{place}: {shown(line)} is not an order; expected how often it was given and the "
            "alternatives, as in '3: 1,2,{3,4}'"
        )
    if kind[0] == "s" and "{" in order:
        tie = next(block for block in blocks if block[0] == "{")
        raise DataError(
            f"{place}: {tie} is a tie, but the file is of strict orders ({kind}); get the file "
            "again"
        )
    codes = [[int(code) for code in re.findall(r"\d+", block)] for block in blocks]
    times = Counter(chain.from_iterable(codes))
    for code in times:
        if not 1 <= code <= size:
            raise DataError(
                f"{place}: there is no alternative {code}, only 1 to {size}; get the file again"
            )
        if times[code] > 1:
            raise DataError(
                f"{place}: the alternative {code} is in the order twice; get the file again"
            )
    if kind[2] == "c" and len(times) < size:
        missing = min({*range(1, size + 1)} - {*times})
        raise DataError(
            f"{place}: the alternative {missing} is missing in a file of complete orders ({kind}); "
            "get the file again"
        )
    return int(count), codes


def _names(file: Path, metadata: Mapping[str, str]) -> list[str]:
    """Return the names of the alternatives, in the order of their numbers."""
    number = metadata.get("NUMBER ALTERNATIVES", "")
    named = sum(key.startswith("ALTERNATIVE NAME ") for key in metadata)
    if not number.isdecimal() or int(number) != named or not named:
        raise DataError(
            f"{file}: there are {named} names of alternatives where the NUMBER ALTERNATIVES is "
            f"{number or 'missing'}; get the file again"
        )
    keys = [f"ALTERNATIVE NAME {code}" for code in range(1, named + 1)]
    for key in keys:
        if not metadata.get(key):
            raise DataError(f"{file}: the metadata lack the {key}; get the file again")
    return read_labels([metadata[key] for key in keys], lambda at: f"{file}, {keys[at]}")
