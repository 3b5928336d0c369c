"""Tables of positions, long or wide, and matrices of scores, read as rankings."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import NDArray

from relpref.data.arrays import counted, read_only, refuse_first, shown
from relpref.data.columns import numbers
from relpref.data.entities import read_entities
from relpref.data.labels import LabelIndex, Place, plain_labels
from relpref.data.preference import PreferenceData, unanswered
from relpref.data.tables import Table, as_table, check_columns, renamed
from relpref.errors import DataError
from relpref.files import reading
from relpref.limits import MAX_POSITIONS

# From the narrowest to the widest: each kind is a special case of the next.
KINDS = ("full", "top-k", "exhaustive", "non-exhaustive")


def check_size(rankings: int, items: int) -> None:
    """Refuse more positions than a machine holds, before they are made."""
    if rankings * items > MAX_POSITIONS:
        raise DataError(
            f"rankings: {counted(rankings, 'ranking')} of {counted(items, 'item')} are {rankings * items:.1e} positions, "
            f"more than the limit of {MAX_POSITIONS:.0e}; keep fewer rankings, or only the items that most of them rank"
        )


def numbered(rows: Any, columns: Any, keys: Any, shape: tuple[int, int]) -> NDArray[np.int32]:
    """Return the blocks of the items that are ranked, numbered without gaps in each ranking."""
    positions = np.full(shape, -1, dtype=np.int32)
    order = np.lexsort((keys, rows))
    rows, keys = rows[order], keys[order]
    begins = np.ones(len(rows), dtype=bool)
    begins[1:] = rows[1:] != rows[:-1]
    blocks = np.zeros(len(rows), dtype=np.int64)
    blocks[1:] = np.cumsum(~begins[1:] & (keys[1:] > keys[:-1]))
    # The count runs on from one ranking to the next; where each begins, it has the value that is its zero.
    blocks -= np.maximum.accumulate(np.where(begins, blocks, 0))
    positions[rows, columns[order]] = blocks
    return read_only(positions)


def kind_codes(positions: Any) -> NDArray[np.intp]:
    """Return the narrowest of `KINDS` that describes each ranking, as a position in it, shape (m,)."""
    n = positions.shape[1]
    last = positions.max(axis=1, keepdims=True, initial=-1)
    # Blocks have no gaps, so the blocks before the last one are single items where they have as many items as blocks.
    single = (positions < last).sum(axis=1) == last[:, 0]
    codes = np.where(single, np.where(last[:, 0] == n - 1, 0, 1), 2)
    return np.where((positions < 0).any(axis=1), 3, codes)


def merged(positions: NDArray[np.int32], blocks: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Return the positions after cutting each ranking at random places, uniformly, into at most that many blocks."""
    m, n = positions.shape
    last = positions.max(axis=1, keepdims=True, initial=0)
    # Of the `last` places between two blocks, the blocks − 1 with the smallest draws are cut.
    draws = rng.random((m, max(n - 1, 0)))
    draws[np.arange(draws.shape[1]) >= last] = np.inf
    chosen = np.argsort(np.argsort(draws, axis=1), axis=1) < blocks - 1
    cuts = np.zeros((m, n), dtype=np.int32)
    np.cumsum(chosen & np.isfinite(draws), axis=1, out=cuts[:, 1:])
    return np.where(positions >= 0, np.take_along_axis(cuts, np.maximum(positions, 0), axis=1), np.int32(-1))


def chosen_rows(chosen: Any, number: int) -> NDArray[np.intp]:
    """Return the rows that an index means: a number, a slice, a mask or an array of numbers."""
    # scikit-learn indexes whatever has a shape as if it were an array: [rows, ...].
    if isinstance(chosen, tuple) and len(chosen) == 2 and chosen[1] is Ellipsis:
        chosen = chosen[0]
    if isinstance(chosen, tuple):
        raise DataError(
            f"rankings[{shown(chosen)[1:-1]}]: choose rankings, not items; a list chooses several"
        )
    if isinstance(chosen, list):
        chosen = np.asarray(chosen, dtype=None if len(chosen) else np.intp)
    try:
        rows = np.atleast_1d(np.arange(number)[chosen])
    except IndexError as error:
        raise DataError(f"rankings[...]: {error}; there are {number}") from None
    if rows.ndim > 1:
        raise DataError(f"rankings[...]: the shape is {rows.shape}; choose rankings, not items")
    return rows


def check_number(number: Any, what: str) -> None:
    """Refuse what is no whole number from 1 on."""
    if not isinstance(number, int | np.integer) or number < 1:
        raise DataError(f"{what}: {shown(number)} are to be kept; keep a whole number of them, at least 1")


def generator(key: Any) -> np.random.Generator:
    """Return NumPy's generator for an integer seed or a JAX key."""
    if isinstance(key, int | np.integer) and key >= 0:
        return np.random.default_rng(int(key))
    if not isinstance(key, jax.Array | np.ndarray):
        raise DataError(
            f"key is {shown(key)}; give a whole number from 0 on, or a JAX key: jax.random.key(0)"
        )
    data = jax.random.key_data(key) if jax.numpy.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    return np.random.default_rng(np.asarray(data).tolist())


_Entries = tuple[Any, Any, Any]  # rows, columns and values of what is ranked
REMEDY = "correct the label, or give the item in items"
Blocks = list[tuple[Any, ...]]
Read = tuple[PreferenceData, NDArray[np.int32], tuple[Any, ...]]


def read_items(items: Any) -> PreferenceData:
    """Return items, given as labels, as a DataFrame with attributes, or read before."""
    return items if isinstance(items, PreferenceData) else unanswered(read_entities(items), None)


def read_rankers(rankers: Any, number: int) -> tuple[Any, ...]:
    """Return the labels of those who gave the rankings, 0, 1, ... where none are given; they may repeat."""
    if rankers is None:
        return tuple(range(number))
    labels = plain_labels(in_order(rankers, "rankers"), lambda row: f"rankers, position {row}")
    if len(labels) != number:
        raise DataError(
            f"rankers: {counted(len(labels), 'label')} for {counted(number, 'ranking')}; give one label for each ranking"
        )
    return tuple(labels)


def in_order(values: Any, name: str) -> Any:
    """Return what has an order and one dimension; sets, mappings and tables would be read as something else."""
    listed = isinstance(values, Sequence) and not isinstance(values, str | bytes)
    if listed or getattr(values, "ndim", None) == 1:
        return values
    shape = f" of shape {values.shape}" if hasattr(values, "shape") else ""
    raise DataError(
        f"{name}: got {type(values).__name__}{shape}; give a list, a one-dimensional array or a Series, in the order of the rankings"
    )


def place_of(rankers: Sequence[Any], row: int) -> str:
    """Return the words that name a ranking."""
    by = "" if rankers[row] == row else f" (of {shown(rankers[row])})"
    return f"ranking {row}{by}"


def _at(where: str) -> Place:
    return lambda _: where


def read_orders(orders: Any, items: Any, rankers: Any) -> Read:
    """Return items, positions and rankers; see `Rankings.from_orders`."""
    if isinstance(orders, str | pd.DataFrame | np.ndarray) or not isinstance(orders, Iterable):
        raise DataError(
            f"orders: got {type(orders).__name__}; give a list with one list of labels for each ranking, best first "
            "(tables are read by from_table, scores by from_scores)"
        )
    given = list(orders)
    if isinstance(orders, pd.Series) and rankers is None:
        rankers = orders.index
    by = read_rankers(rankers, len(given))
    read = [_blocks(order, place_of(by, row)) for row, order in enumerate(given)]
    if not read:
        raise DataError("orders: there are none; give at least one ranking")
    # In order of appearance.
    labels = list(dict.fromkeys(label for blocks in read for block in blocks for label in block))
    known = read_items(labels if items is None else items)
    check_size(len(read), known.num_entities)
    return known, _positions(read, LabelIndex(known.entities, str), by), by


def _blocks(order: Any, where: str) -> Blocks:
    if isinstance(order, str | bytes | AbstractSet) or not isinstance(order, Iterable):
        raise DataError(
            f"{where}: got {shown(order)}; give a list of labels, best first, with a tuple for items that are tied"
        )
    blocks: Blocks = []
    for place, entry in enumerate(order):
        tied = isinstance(entry, tuple | list | AbstractSet)
        labels = plain_labels(list(entry) if tied else [entry], _at(f"{where}, place {place}"))
        if not labels:
            raise DataError(f"{where}, place {place}: the tie is empty; remove it")
        # Nothing may depend on the order inside a set, which is another in every process.
        blocks.append(tuple(sorted(labels, key=repr) if isinstance(entry, AbstractSet) else labels))
    if not blocks:
        raise DataError(f"{where}: it ranks nothing; leave it out")
    return blocks


def _positions(read: list[Blocks], index: LabelIndex, rankers: Sequence[Any]) -> NDArray[np.int32]:
    positions = np.full((len(read), len(index)), -1, dtype=np.int32)
    for row, blocks in enumerate(read):
        labels = [label for block in blocks for label in block]
        found = index.locate(labels, _at(place_of(rankers, row)), REMEDY)
        if len(np.unique(found)) < len(found):
            twice = next(label for label in labels if labels.count(label) > 1)
            raise DataError(
                f"{place_of(rankers, row)}: the item {shown(twice)} is in it twice; remove one of the two"
            )
        positions[row, found] = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
    return read_only(positions)


_NUMBER = (
    "write a number, or leave the cell blank where the item is not ranked (rankers belong into the index)"
)
_LONG = ("ranker", "item", "position")
_WHOLE = "write positions as whole numbers, 1 for the best (scores and average ranks are read by from_scores)"


def read_positions(value: Any, items: Any, columns: Mapping[str, str] | None) -> Read:
    """Return items, positions and rankers; see `Rankings.from_table`."""
    table = renamed(as_table(value, "table"), columns)
    if table.frame.empty:
        raise DataError(f"{table.name}: it has no rows or no columns; give at least one ranking of one item")
    if {"item", "position"} & set(table.frame.columns):
        return _read_long(table, items)
    rankers, labels, values = _wide(table)
    for row, column in np.argwhere(_not_a_place(values)):
        raise DataError(
            f"{place_of(rankers, row)}, item {shown(labels[column])}: {values[row, column]} is not a position; {_WHOLE}"
        )
    return _ranked(_entries(values), values.shape[1], labels, items, rankers)


def read_scores(scores: Any, items: Any, rankers: Any) -> Read:
    """Return items, positions and rankers; see `Rankings.from_scores`."""
    labels: list[Any] | None = None
    if isinstance(scores, pd.DataFrame):
        by, labels, values = _wide(Table(scores, "scores"))
        rankers = by if rankers is None else rankers
        shape, entries = values.shape, _entries(values)
    elif scipy.sparse.issparse(scores):
        matrix = scipy.sparse.coo_array(scores).astype(np.float64)
        shape, given = matrix.shape, ~np.isnan(matrix.data)
        entries = matrix.row[given], matrix.col[given], matrix.data[given]
        if len(np.unique(matrix.row * np.int64(shape[1]) + matrix.col)) < matrix.nnz:
            raise DataError(
                "scores: the sparse matrix stores an entry twice; call sum_duplicates() if they are to be added"
            )
    else:
        values = _matrix(scores)
        shape, entries = values.shape, _entries(values)
    by = read_rankers(rankers, shape[0])
    if 0 in shape:
        raise DataError(f"scores: their shape is {shape}; give at least one ranking of one item")
    rows, columns, found = entries
    refuse_first(
        np.isinf(found),
        lambda at: (
            f"{place_of(by, int(rows[at]))}, column {columns[at]}: the score is {found[at]}; "
            "give finite scores, and NaN for an item that is not ranked"
        ),
    )
    return _ranked((rows, columns, -found), shape[1], labels, items, by)


def _entries(values: NDArray[np.float64]) -> _Entries:
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
            f"scores: they are not numbers ({error}); give numbers, and NaN for an item that is not ranked"
        ) from None
    if values.ndim != 2:
        raise DataError(
            f"scores: their shape is {values.shape}; give one row for each ranking, one column for each item"
        )
    return values


def _wide(table: Table) -> tuple[tuple[Any, ...], list[Any], NDArray[np.float64]]:
    """Rankers, labels of the columns, and cells, NaN where they are blank."""
    frame = table.frame
    by: Any = frame.index
    if "ranker" in frame.columns or table.text:
        name = "ranker" if "ranker" in frame.columns else frame.columns[0]
        by, frame = frame[name], frame.drop(columns=name)
    rankers = tuple(plain_labels(by, table.place))
    labels = plain_labels(frame.columns, lambda column: f"{table.name}, column {column}")
    LabelIndex(labels, lambda column: f"{table.name}, column {column}")
    values = np.full(frame.shape, np.nan)
    for column, label in enumerate(labels):
        cells = frame.iloc[:, column]
        known = np.flatnonzero((cells != "") if table.text else ~cells.isna())
        where = partial(lambda known, row: place_of(rankers, int(known[row])), known)
        values[known, column] = numbers(cells.iloc[known], str(label), where, text=table.text, remedy=_NUMBER)
    return rankers, labels, values


def _ranked(
    keys: _Entries, width: int, labels: list[Any] | None, items: Any, rankers: tuple[Any, ...]
) -> Read:
    """Rankings from keys, the smaller the better; ``labels`` are those of the columns, None if they are the items themselves."""
    known = read_items(items if items is not None else labels if labels is not None else list(range(width)))
    check_size(len(rankers), known.num_entities)
    if labels is not None:
        place = LabelIndex(known.entities, str).locate(labels, lambda column: f"column {column}", REMEDY)
    elif known.num_entities == width:
        place = np.arange(width, dtype=np.int32)
    else:
        raise DataError(
            f"items: there are {known.num_entities} for {width} columns of scores; give one for each column"
        )
    rows, columns, entries = keys
    empty = np.bincount(rows, minlength=len(rankers)) == 0
    refuse_first(empty, lambda row: f"{place_of(rankers, row)}: it ranks nothing; leave it out")
    return known, numbered(rows, place[columns], entries, (len(rankers), known.num_entities)), rankers


def _read_long(table: Table, items: Any) -> Read:
    check_columns(table, _LONG, ("ranking",))
    places = table.numbers("position", _WHOLE)
    refuse_first(
        _not_a_place(places),
        lambda row: f"{table.cell('position')(row)}: {places[row]} is not a position; {_WHOLE}",
    )
    given, by = _labels(table, "item"), _labels(table, "ranker")
    known = read_items(list(dict.fromkeys(given)) if items is None else items)
    keys = _labels(table, "ranking") if "ranking" in table.frame.columns else by
    rankers = dict(zip(reversed(keys), reversed(by), strict=True))
    for row, (key, ranker) in enumerate(zip(keys, by, strict=True)):
        if rankers[key] != ranker:
            raise DataError(
                f"{table.place(row)}: the ranking {shown(key)} is of {shown(ranker)}, but was of {shown(rankers[key])}; "
                "give every ranking a number of its own"
            )
    numbers_of = {key: row for row, key in enumerate(dict.fromkeys(keys))}
    shape = (len(numbers_of), known.num_entities)
    check_size(*shape)
    columns = LabelIndex(known.entities, str).locate(given, table.cell("item"), REMEDY)
    rows = np.array([numbers_of[key] for key in keys], dtype=np.int64)
    cells = rows * shape[1] + columns
    order = np.argsort(cells, kind="stable")
    refuse_first(
        np.diff(cells[order]) == 0,
        lambda at: (
            f"{table.place(int(order[at + 1]))}: the item {shown(given[order[at]])} of the ranker {shown(by[order[at]])} was "
            f"already at {table.place(int(order[at]))}; remove one of the two"
        ),
    )
    return known, numbered(rows, columns, places, shape), tuple(rankers[key] for key in numbers_of)


def _labels(table: Table, column: str) -> list[Any]:
    refuse_first(
        table.blank(column),
        lambda row: f"{table.cell(column)(row)}: the label is missing; fill it in or drop the row",
    )
    return table.labels(column)


def _not_a_place(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Where a number, if there is one, is no position."""
    return ~np.isnan(values) & ((values < 0) | (values != np.floor(values)) | np.isinf(values))


_TYPES = ("soc", "soi", "toc", "toi")
_MEANINGS = ("top-k", "subset")
_ORDER = re.compile(r"(\{\s*\d+(?:\s*,\s*\d+)*\s*\}|\d+)(?:\s*,\s*|\s*$)")


def read_preflib(path: str | os.PathLike[str], incomplete: Any) -> Read:
    """Return items, positions and rankers; see `Rankings.from_preflib`."""
    if incomplete not in (None, *_MEANINGS):
        raise DataError(f"incomplete is {shown(incomplete)}; choose 'top-k' or 'subset'")
    file = Path(path)
    with reading(file):
        text = file.read_text(encoding="utf-8-sig")
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not lines or not lines[0][1].startswith("#"):
        raise DataError(
            f"{file}: it does not begin with the metadata of a PrefLib file ('# FILE NAME: ...'); files from before September 2022 "
            "have another format: get the current one from preflib.org"
        )
    about = {
        key.strip(): value.strip()
        for key, _, value in (one[1:].partition(":") for _, one in lines if one[0] == "#")
    }
    kind = about.get("DATA TYPE", file.suffix[1:]).lower()
    if kind not in _TYPES:
        raise DataError(
            f"{file}: its data type is {kind!r}; orders are in files of the types {', '.join(_TYPES)}"
        )
    if kind[2] == "i" and incomplete is None:
        raise DataError(
            f"{file}: it may lack alternatives, and the format does not say what that means; give incomplete='top-k' if they are "
            "below all that are there, incomplete='subset' if nothing is known of them"
        )
    names = _names(file, about)
    orders = [
        _order(f"{file}, line {number}", line, len(names), kind) for number, line in lines if line[0] != "#"
    ]
    total, voters = sum(count for count, _ in orders), about.get("NUMBER VOTERS", "")
    if total == 0:
        raise DataError(f"{file}: there are no orders in it; get the file again")
    if voters.isdecimal() and int(voters) != total:
        raise DataError(
            f"{file}: there are orders of {counted(total, 'voter')} where the metadata promise {voters}; get the file again"
        )
    check_size(total, len(names))
    positions = np.repeat(np.array([order for _, order in orders]), [count for count, _ in orders], axis=0)
    return read_items(names), read_only(positions), tuple(range(total))


def _names(file: Path, about: dict[str, str]) -> list[str]:
    number = about.get("NUMBER ALTERNATIVES", "")
    if not number.isdecimal() or int(number) < 1:
        raise DataError(f"{file}: the metadata lack the NUMBER ALTERNATIVES; get the file again")
    keys = [f"ALTERNATIVE NAME {one}" for one in range(1, int(number) + 1)]
    for key in keys:
        if not about.get(key):
            raise DataError(f"{file}: the metadata lack the {key}; get the file again")
    named = sum(key.startswith("ALTERNATIVE NAME ") for key in about)
    if named != len(keys):
        raise DataError(
            f"{file}: there are {named} names where the NUMBER ALTERNATIVES is {number}; get the file again"
        )
    return [about[key] for key in keys]


def _order(where: str, line: str, n: int, kind: str) -> tuple[int, NDArray[np.int32]]:
    count, _, order = line.partition(":")
    order = order.strip()
    entries = _ORDER.findall(order)
    if not count.strip().isdecimal() or int(count) < 1 or _ORDER.sub("", order) or not entries:
        raise DataError(
            f"{where}: {shown(line)} is not an order; expected how often it was given and the alternatives, as in '3: 1,2,{{3,4}}'"
        )
    positions = np.full(n, -1, dtype=np.int32)
    for block, entry in enumerate(entries):
        if entry[0] == "{" and kind[0] == "s":
            raise DataError(
                f"{where}: {entry} is a tie, but the file is of strict orders ({kind}); get the file again"
            )
        for alternative in map(int, re.findall(r"\d+", entry)):
            if not 1 <= alternative <= n:
                raise DataError(
                    f"{where}: there is no alternative {alternative}, only 1 to {n}; get the file again"
                )
            if positions[alternative - 1] >= 0:
                raise DataError(
                    f"{where}: the alternative {alternative} is in the order twice; get the file again"
                )
            positions[alternative - 1] = block
    if kind[2] == "c" and (positions < 0).any():
        missing = int(np.argmax(positions < 0)) + 1
        raise DataError(
            f"{where}: the alternative {missing} is missing in a file of complete orders ({kind}); get the file again"
        )
    return int(count), positions
