"""Forms of tables of answers, and their conversion to a table with a row for each pair."""

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from relpref.data.arrays import (
    Array,
    Floats,
    Integers,
    Texts,
    counted,
    did_you_mean,
    listed,
    refuse_first,
    shown,
)
from relpref.data.columns import COLUMNS, FORMS, Form, Rows, form_of
from relpref.data.covariates import with_sides
from relpref.data.labels import LabelIndex, label_column, trimmed
from relpref.data.recognition import ASIDE, READ_AS, ends_of, hints, recognized
from relpref.data.tables import (
    MISSING,
    Table,
    as_table,
    check_columns,
    check_repeats,
    column_option,
    hold_one_set,
    is_path,
    known_names,
    read_table,
    renamed,
)
from relpref.errors import DataError
from relpref.options import OPTIONS

NAME = "answers"
_RANKINGS = "rankings"
_FEW = 10  # answers
# Cells that say that there is no item, and those of them that may be labels.
_NO_ITEM = MISSING | {r"\N"}
_LABELS = ("NA", "None")
_WINNER_FORM = ("winner", "loser")
_PAIR_FORM = ("first", "second")
_READ = tuple(name for name, column in COLUMNS.items() if column.read is not None)
_ENDS = (*_WINNER_FORM, *_PAIR_FORM)
_OF_PAIRS = (*_ENDS, "result", *_READ)
KNOWN = tuple(dict.fromkeys(chain(_OF_PAIRS, *(form.columns for form in FORMS))))
# Names of columns of items, such as those that were shown beside best and worst, and of places.
_SHOWN = re.compile(r"(item|place)[ _]?\d+", re.IGNORECASE).fullmatch


def known_columns(names: Sequence[str]) -> Texts:
    """Return the columns in which covariates may be: x, x_winner, x_loser, x_first and x_second."""
    return tuple(column for name in names for column in (name, *(f"{name}_{end}" for end in _ENDS)))


def check_names(names: Any, taken: Sequence[str]) -> Texts:
    """Return the argument ``covariates`` as names; refuses repeats and the names in ``taken``."""
    names = [names] if isinstance(names, str) else list(names or ())
    for name in names:
        if not isinstance(name, str) or not name:
            raise DataError(
                f"covariates: {shown(name)} is no name; write covariates=['length', 'home'] "
                "(--covariates length,home)"
            )
        if name in taken or names.count(name) > 1:
            what = (
                "is named twice"
                if name not in taken
                else "is a column of answers with a meaning of its own"
            )
            raise DataError(f"covariates: {name!r} {what}; leave it out, or rename the column")
    return tuple(names)


def answer_table(
    value: Any,
    columns: Mapping[str, str] | None = None,
    covariates: Sequence[str] = (),
    labels: Container[Any] = (),
    options: Mapping[str, str] | None = None,
) -> Table:
    """Return answers in any form as a table with the names of columns that relpref uses.

    The value is a table, a list of pairs, winner first, or `Rankings`. ``columns`` maps relpref's
    names to those in the table. Labels among ``labels`` are not trimmed, see `read_labels`.
    """
    names = (*KNOWN, *ASIDE, *known_columns(check_names(covariates, KNOWN)))
    for name in columns or {}:
        if name not in names and not _SHOWN(name):
            hint = did_you_mean(name, names, f"they are {', '.join(names)}")
            raise DataError(f"columns: {name!r} is no column of answers; {hint}")
    if hasattr(value, "rankers"):
        value = Table(_orders_of_rankings(value), _RANKINGS)
    if isinstance(value, Iterator):
        value = list(value)
    if isinstance(value, list | tuple | np.ndarray) and not (
        len(value) and isinstance(value[0], Mapping)
    ):
        for row, pair in enumerate(value):
            if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2:
                raise DataError(
                    f"{NAME}[{row}] is {shown(pair)}; each pair is two labels, (winner, loser)"
                )
        ends = {name: [pair[end] for pair in value] for end, name in enumerate(_WINNER_FORM)}
        value = pd.DataFrame(ends, dtype=object)
    for name, option in (options or {}).items():
        if name not in OPTIONS or option not in OPTIONS[name][0]:
            values = (f"{name} is {' or '.join(values)}" for name, (values, _) in OPTIONS.items())
            raise DataError(f"{name}={option!r}: there is no such option; {', '.join(values)}")
    table = read_table(value, repeats=True) if is_path(value) else as_table(value, NAME)
    header = table.frame.columns
    new = [
        f"{name} (column {at})" if again else name
        for at, (name, again) in enumerate(zip(header, header.duplicated(), strict=True), 1)
    ]
    table = replace(table, frame=table.frame.set_axis(new, axis=1))
    named = dict(columns or {})
    sides = {"shown_first", *covariates} & {*named}  # may be a column of items, which stays one
    items = {named.get(end) for end in _ENDS}
    items |= ends_of(table) if sides and not table.frame.empty else set()
    first = {ours: name for ours, name in named.items() if ours not in sides or name not in items}
    table = replace(known_names(renamed(table, first), names), known=labels)
    if table.frame.empty:
        raise DataError(
            f"{table.name}: the table has no rows; give at least one answer, or no table"
            f"{''.join(f'; {note}' for note in table.notes)}"
        )
    if table.recognized:
        return table
    read = recognized(table, first, options)
    sided = with_sides(read, covariates, named)
    unused = {*sided.columns} - {*names, *filter(_SHOWN, map(str, header))}
    unused |= {
        name for name in header if any(f"{name} (column " in str(of) for of in named.values())
    }
    check_repeats(table.name, [name for name in header if name not in unused])
    return replace(sided.noted(*hints(sided, table)), recognized=True)


def compared(table: Table, covariates: Sequence[str] = ()) -> list[Any]:
    """Return the label of every item in a table of answers, row by row, with repeats."""
    if _form(table).rows:
        return table.labels("item")
    pairs, form = pair_table(table, covariates)
    return list(chain.from_iterable(zip(*map(pairs.labels, form.ends), strict=True)))


def pair_table(table: Table, covariates: Sequence[str] = ()) -> tuple[Table, Form]:
    """Turn a table of answers into one of pairs, and return its form, too.

    Columns that are missing, or that this form cannot have, are refused.
    """
    form = _form(table)
    columns = {*table.columns}
    if form.rows:
        return _pairs_of_lists(table, form, covariates), FORMS[0]
    if "list" in columns and not table.neighbors:
        raise DataError(
            f"{table.name}: a table of pairs has no column 'list'; write a list as rows with the "
            "columns list, item and place, or rename the column, to 'group' if it names what "
            "answers have in common"
        )
    if form.columns == _WINNER_FORM and "probability" in columns:
        raise DataError(
            f"{table.name}: a table with the column 'probability' names no winner; name its "
            "columns first, second, probability (of the first being the better)"
        )
    if columns.issuperset(_PAIR_FORM) and form.outcome not in columns:
        raise DataError(
            f"{table.name}: there is neither a column 'winner' nor 'probability' nor 'result' "
            "beside first and second; name the one that holds the answers"
        )
    optional = [name for name, column in COLUMNS.items() if column.fits(form.outcome)]
    optional += [*known_columns(covariates), *(["list"] if table.neighbors else [])]
    allowed = tuple(name for name in optional if name not in form.columns)
    notes = check_columns(table, form.columns, allowed, _OF_PAIRS, _fitting(table, form.ends))
    return _with_both_items(table.noted(*notes), form.ends), form


def _with_both_items(table: Table, ends: Texts) -> Table:
    """Leave out pairs that lack an item, unless all do; a word for none that is known is an item.

    A word is known as a label of an item, or because it is on both sides.
    """
    cells = [pd.Series([*map(trimmed, table.frame[end])], dtype=object) for end in ends]
    labels = {word for word in _LABELS if all(column.isin([word]).any() for column in cells)}
    words = [word for word in _NO_ITEM - labels if word not in table.known]
    missing = np.any([column.isna() | column.isin(words) for column in cells], axis=0)
    if missing.all() or not missing.any():
        return table
    rows = counted(int(missing.sum()), "row")
    note = f"left out: {rows} without an item (blank, or a word such as nan or NA)"
    return table.take(np.flatnonzero(~missing)).noted(note)


def apart_note(table: Table, ends: Texts, first: Any, second: Any) -> Texts:
    """Return a note if the two columns of items share no label: one may not hold items.

    The columns are refused if the user has named only one of them. ``first`` and ``second`` are the
    positions of the items, shape (m,).
    """
    named = sum(end in table.given for end in ends)
    # A few answers may share none where no other column can be meant; choices have losers that
    # never win; and rows that were left out may share some.
    few = (
        table.rows is not None
        or table.called(ends[0]) == table.called(ends[1])
        or len(first) < (2 if named or table.frame.shape[1] > 2 else _FEW)
    )
    if few or "list" in table.columns or np.isin(first, second).any():
        return ()
    called = [table.called(end) for end in ends]
    note = f"the columns {called[0]!r} and {called[1]!r} share no label"
    if named == 1:
        raise DataError(
            f"{table.name}: {note}, so one of them is most likely no column of items; say which "
            "columns hold the two items of each answer, naming both in columns="
        )
    return (f"{note}: no item is in both, so see whether both hold items",)


def _fitting(table: Table, ends: Texts) -> Callable[[str, Any], bool]:
    """Return a function of two names: whether its second column may be the missing first one.

    It judges by the cells. A column of items must share labels with the other column of items, and
    cells of other columns must be readable. Any cells fit labels, such as raters: these never do.
    """

    def fits(lacking: str, column: Any) -> bool:
        if lacking in table.columns:
            return False
        others = [end for end in ends if end in table.columns]
        if lacking in (*ends, "shown_first", "winner"):
            return bool(others) and hold_one_set(table, others[0], column)
        if lacking not in COLUMNS:
            return True
        read = COLUMNS[lacking].read
        none = np.zeros(0, np.int32)
        rows = Rows(table.rename({column: lacking}), LabelIndex((), str), ends, none, none)
        try:
            return read is not None and not COLUMNS[lacking].labels and read(rows) is not None
        except DataError:
            return False

    return fits


def _form(table: Table) -> Form:
    """Return the form of a table of answers; refuses lists that lack a column of theirs."""
    columns = table.columns
    form = form_of(columns)
    lacking = [name for name in form.columns if name not in columns]
    if form.rows and lacking:
        raise DataError(
            f"{table.name}: there is no column {lacking[0]!r} among {listed(columns)}; "
            f"{form.rows} have the columns {', '.join(form.columns)}: rename yours, or say which "
            "one it is in columns="
            + "; if all rows are one order: table.assign(list=1)"
            * (lacking == ["list"])
        )
    return form


def _pairs_of_lists(table: Table, form: Form, covariates: Sequence[str]) -> Table:
    """Return a table of lists as a table of pairs, with the columns ``winner`` and ``loser``.

    A block is a set of tied items. Each item of a block is paired with each item of the next block
    of its list; other pairs follow from these. The two tied items of a list of two are a tie. The
    line and the other cells of a pair are those of the first row of its list.
    """
    all_columns = table.columns
    group = form.columns[0]
    shared = [name for name in all_columns if name in _READ]
    for name in shared:
        if not COLUMNS[name].fits("place"):
            raise DataError(
                f"{table.name}: answers with the column {name!r} cannot be in lists; leave one of "
                "the two columns out"
            )
    for name in covariates:
        if name not in all_columns:
            raise DataError(
                f"{table.name}: there is no column {name!r} with the covariate of each item; "
                "orders and choices have it beside the item, and the best and the worst have none"
            )
    items, numbers, names = _members(table, group)
    places = (_places if group == "list" else _chosen)(table, numbers)
    above, below, tie = _neighbors(numbers, places)
    if not len(above):
        raise DataError(
            f"{table.name}: all items of each list are tied, so they order nothing; leave such "
            "lists out"
        )
    _, first, size = np.unique(numbers, return_index=True, return_counts=True)
    for name in shared:
        cells = table.frame[name].map(trimmed)
        like = cells.iloc[first[numbers]].set_axis(cells.index)
        differ = np.asarray((cells != like) & ~(cells.isna() & like.isna()))
        reason = f" is not the {name} of the first row of its {group}; a {group} has one; rename "
        reason += "the column if it says something else"
        table.refuse(name, differ, reason)
    if "shown_first" in shared:
        wrong = ~table.blank("shown_first") & (size[numbers] > 2)
        reason = "the effect of being shown first in a list is unknown; leave the cell blank"
        refuse_first(wrong, lambda row: f"{table.place(row)}: {reason}")
    silent = len(first) - len(np.unique(numbers[above]))
    rows = first[numbers[above]]
    columns = {
        "winner": label_column(items).take(above),
        "loser": label_column(items).take(below),
        "list": label_column(names).take(above),
        **{name: table.frame[name].to_numpy(dtype=object)[rows] for name in shared},
    }
    if tie.any():  # cells of a file are text
        columns["tie"] = np.where(tie, "true", "false") if table.text else tie
    for name in covariates:
        cells = table.frame[name].to_numpy(dtype=object)
        columns |= {f"{name}_winner": cells[above], f"{name}_loser": cells[below]}
    unused = [name for name in all_columns if name not in (*form.columns, *shared, *covariates)]
    said = table.name == _RANKINGS or any(note.startswith(READ_AS) for note in table.notes)
    notes = [] if said else [f"the rows were read as {form.rows}"]
    notes += [f"not used: {listed(unused)}"] if unused else []
    notes += (
        ["each list has the place 0 once, which was read as the best"]
        if (places == 0).any()
        else []
    )
    notes += [f"{counted(silent, 'list')} with all items tied left out"] if silent else []
    return replace(
        table.take(rows),
        frame=pd.DataFrame(columns, index=table.frame.index[rows], dtype=object),
        given={**table.given, **dict.fromkeys(_WINNER_FORM, table.called("item"))},
        notes=(*table.notes, *notes),
        neighbors=True,
    )


def _neighbors(numbers: Integers, places: Floats) -> tuple[Array, ...]:
    """Find the pairs of items in neighboring blocks of the same list; a block is a set of ties.

    Parameters
    ----------
    numbers : array of int, shape (m,)
        The list of each row.
    places : array of float, shape (m,)
        The place of its item, infinite below all others.

    Returns
    -------
    above, below : array of int, shape (k,)
        The rows of the two items of each pair.
    tie : array of bool, shape (k,)
        Whether the pair is a list of two tied items.
    """
    # Ranks compare infinite places, whose differences would not be 0.
    block = pd.Series(places).groupby(numbers).rank("dense").astype(int)
    table = pd.DataFrame({"list": numbers, "block": block, "row": block.index})
    lists = table.groupby("list")
    table["tie"] = (lists["row"].transform("size") == 2) & (lists["block"].transform("max") == 1)
    table["block"] += table["tie"] & (lists.cumcount() == 1)  # two items that are tied are a pair
    below = table.assign(block=table["block"] - 1)
    pairs = table.merge(below, on=["list", "block"], suffixes=("", "_below"))
    pairs = pairs.sort_values("list", kind="stable")
    return tuple(pairs[name].to_numpy() for name in ("row", "row_below", "tie"))


def _members(table: Table, group: str) -> tuple[list[Any], Integers, list[Any]]:
    """Read the label of each row's item, and the number and the label of its list; all (m,)."""
    table.refuse_blank(group, f"the cell is blank; say to which {group} the row belongs")
    items = table.labels("item")
    names = table.labels(group)
    numbers, which = (pd.factorize(label_column(labels))[0] for labels in (names, items))
    twice = pd.DataFrame({"list": numbers, "item": which}).duplicated().to_numpy()
    reason = f"is twice in this {group}; drop one"
    refuse_first(twice, lambda row: f"{table.place(row)}: {shown(items[row])} {reason}")
    return items, numbers, names


def _places(table: Table, numbers: Integers) -> Floats:
    """Read the place of each row's item in its order, shape (m,); infinite if the cell is blank."""
    placed = np.flatnonzero(~table.blank("place"))
    places = np.full(len(numbers), np.inf)
    remedy = "write the place, 1 for the best, or leave it blank"
    places[placed] = table.numbers("place", remedy, placed)
    remedy = (
        "leave the cell empty if the item is below all others, such as one that did not finish, "
        "or drop the row; if 0 is the best, add 1 to all places"
    )
    once = np.bincount(numbers, places == 0) == 1
    from_zero = len(once) > 1 and once.all()
    table.refuse("place", places < 1 - from_zero, f" is no place, which start at 1; {remedy}")
    given = np.where(np.isfinite(places), places, 1)
    # Places may be averages of those that are tied, and those of a win and a loss are 1 and 3.
    beyond = given > np.bincount(numbers)[numbers] + 1
    wrong = (2 * given % 1 != 0) | (beyond & ("place" in table.given))
    names = {"list": "list", "item": "item", "score": "place"}
    option = column_option({ours: table.called(name) for ours, name in names.items()})
    table.refuse(
        "place",
        wrong,
        f" is no place; if these are points or times: {option} and better='high' (--better high), "
        "or low, if the lowest is the best",
    )
    wrong = (np.bincount(numbers) < 2) | (np.bincount(numbers, np.isfinite(places)) == 0)
    reason = "this list orders nothing; give at least two items, one with a place"
    refuse_first(wrong[numbers], lambda row: f"{table.place(row)}: {reason}")
    return places


def _chosen(table: Table, numbers: Integers) -> Floats:
    """Read choices as places, shape (m,): 1 for a chosen alternative, infinite for the others."""
    chosen = table.truths("chosen")
    alone = np.bincount(numbers) < 2
    times = np.bincount(numbers, chosen)

    def message(row: int) -> str:
        if alone[numbers[row]]:
            return (
                f"{table.place(row)}: this question has one alternative alone, which says nothing; "
                "add the others that could have been chosen, or drop the row"
            )
        return (
            f"{table.place(row)}: of this question, {times[numbers[row]]:.0f} alternatives are "
            f"chosen; mark exactly one in the column {table.called('chosen')!r}"
        )

    refuse_first((alone | (times != 1))[numbers], message)
    return np.where(chosen, 1, np.inf)


def _orders_of_rankings(rankings: Any) -> pd.DataFrame:
    """Return `Rankings` as a table of orders, with the columns ``list``, ``item`` and ``place``."""
    ranked = rankings.positions >= 0
    alone = ranked.sum(axis=1) < 2
    refuse_first(
        alone,
        lambda row: (
            f"rankings: that of {shown(rankings.rankers[row])}, number {row}, is of one item "
            "alone, and orders nothing; leave it out, or use rankings.completed() if all others "
            "are below (of a PrefLib file: incomplete='top-k' (--incomplete top-k))"
        ),
    )
    numbers, items = np.nonzero(ranked)
    rankers = label_column(rankings.rankers)
    return pd.DataFrame(
        {
            "list": rankers.take(numbers) if rankers.is_unique else numbers,
            "item": label_column(rankings.items.labels).take(items),
            "place": rankings.positions[numbers, items] + 1,
        }
    )
