"""Labels of entities: plain Python values, unique, looked up all at once."""

import cmath
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from itertools import accumulate, repeat
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import nearest, shown
from relpref.data.word_table import WordTable, words_of
from relpref.errors import DataError, UnknownLabelError

# From so many labels on, looked up among so many, a table is faster than a dictionary: links of a million entities are read in
# two thirds of the time.
MANY = 1 << 14
_AT_ONCE = 1 << 19

Place = Callable[[int], str]
_ALWAYS_FINE = frozenset({str, int, bool})


def joined_places(sizes: Sequence[int], places: Sequence[Place]) -> Place:
    """Return the place of a row of the whole, given the sizes of its pieces and what maps their rows to words."""
    starts = [0, *accumulate(sizes)]

    def where(row: int) -> str:
        piece = bisect_right(starts, row) - 1
        return places[piece](row - starts[piece])

    return where


def plain_label(value: Any) -> Any:
    """Return the Python value of a NumPy scalar (also inside a tuple); anything else unchanged."""
    if isinstance(value, np.datetime64):
        return pd.Timestamp(value)
    if isinstance(value, np.timedelta64):
        return pd.Timedelta(value)
    if isinstance(value, np.generic):
        return value.item()
    if type(value) is tuple:
        return tuple(plain_label(part) for part in value)
    return value


def is_missing(value: Any) -> bool:
    """Tell whether a label is None, NaN, NA or NaT, or a tuple that contains one."""
    if value is None or value is pd.NA or value is pd.NaT:
        return True
    if isinstance(value, tuple):
        return any(is_missing(part) for part in value)
    # Only numbers can be NaN; comparing arbitrary objects with themselves may not give a bool.
    return isinstance(value, float | complex) and cmath.isnan(value)


def plain_labels(values: Iterable[Any], where: Place) -> list[Any]:
    """Return the labels as plain Python values."""
    tolist = getattr(values, "tolist", None)
    labels: list[Any] = tolist() if tolist is not None else list(values)
    # The usual columns hold one of three types: no work per row then.
    if set(map(type, labels)) <= _ALWAYS_FINE:
        return labels
    labels = [plain_label(label) for label in labels]
    for position, label in enumerate(labels):
        try:
            hash(label)
        except TypeError:
            raise DataError(
                f"{where(position)}: the label {shown(label)} cannot be hashed; "
                "use text, a number or a tuple of these"
            ) from None
        if is_missing(label):
            raise DataError(
                f"{where(position)}: the label is missing ({shown(label)}); give every row a label or drop the row"
            )
    return labels


class LabelIndex:
    """Labels in order, each with its position.

    Parameters
    ----------
    labels : sequence of hashable
        Plain labels, see `plain_labels`.
    where : callable
        Maps a position to the words that name its place in a message.

    Raises
    ------
    DataError
        If a label occurs twice.
    """

    grows = False

    def __init__(self, labels: Sequence[Hashable], where: Place) -> None:
        self.labels: tuple[Hashable, ...] = tuple(labels)
        self.positions: dict[Hashable, int] = dict(zip(self.labels, range(len(self.labels)), strict=True))
        if len(self.positions) < len(self.labels):
            self._refuse_duplicate(where)

    def _refuse_duplicate(self, where: Place) -> None:
        seen: dict[Hashable, int] = {}
        for position, label in enumerate(self.labels):
            first = seen.setdefault(label, position)
            if first != position:
                same = self.labels[first]
                equal = "" if type(same) is type(label) else f" (equal to {shown(same)} in Python)"
                raise DataError(
                    f"{where(position)}: the label {shown(label)}{equal} was already used at {where(first)}; "
                    "every entity needs a label of its own: rename or remove one of the two rows"
                )

    def __len__(self) -> int:
        """Return the number of labels."""
        return len(self.labels)

    def locate(self, labels: Sequence[Any], where: Place, remedy: str) -> NDArray[np.int32]:
        """Return the position of each label."""
        found = np.empty(len(labels), dtype=np.int32)
        for start in range(0, len(labels), _AT_ONCE):
            part = labels[start : start + _AT_ONCE]
            found[start : start + len(part)] = self._found(part)
        if found.size and found.min() < 0:
            position = int(np.argmin(found))
            self.refuse(labels[position], where(position), remedy)
        return found

    def _found(self, labels: Sequence[Any]) -> NDArray[np.int32]:
        """Positions, −1 for a label that is not known."""
        if min(len(self), len(labels)) >= MANY and self._table is not None:
            kind, table = self._table
            words = words_of(labels, table.width) if set(map(type, labels)) == {kind} else None
            if words is not None:
                return table.positions(words)
        return np.fromiter(map(self.positions.get, labels, repeat(-1)), dtype=np.int32, count=len(labels))

    @cached_property
    def _table(self) -> tuple[type, WordTable] | None:
        """The labels as a table, and their type, where all of them are texts or integers that it can hold."""
        kinds = set(map(type, self.labels))
        words = words_of(self.labels) if kinds in ({str}, {int}) else None
        return None if words is None else (kinds.pop(), WordTable(words))

    def refuse(self, label: Any, place: str, remedy: str) -> NoReturn:
        """Raise the error for an unknown label."""
        close = nearest(label, self.labels)
        same_text = [known for known in close if str(known) == str(label)]
        if same_text:
            known = same_text[0]
            hint = (
                f"; the entity {shown(known)} is of type {type(known).__name__}, "
                f"this label of type {type(label).__name__}: convert one of the two columns"
            )
        elif close:
            hint = f"; nearest: {', '.join(shown(known) for known in close)}; {remedy}"
        else:
            some = ", ".join(shown(known) for known in self.labels[:3])
            if isinstance(label, str) and self.labels == tuple(range(len(self))):
                remedy = "these are row numbers: make the column with the labels the index (set_index)"
            hint = f"; the entities are {some}{', ...' if len(self) > 3 else ''}; {remedy}"
        raise UnknownLabelError(f"{place}: {shown(label)} is not the label of an entity{hint}")


class GrowingIndex(LabelIndex):
    """Labels in the order in which they are met: one that is not known yet is added."""

    grows = True

    def __init__(self, known: Iterable[Hashable] = ()) -> None:
        super().__init__(tuple(known), str)

    def locate(self, labels: Sequence[Any], where: Place, remedy: str) -> NDArray[np.int32]:
        for label in dict.fromkeys(labels):
            self.positions.setdefault(label, len(self.positions))
        self.labels = tuple(self.positions)
        return np.fromiter(map(self.positions.__getitem__, labels), dtype=np.int32, count=len(labels))


def label_column(labels: Sequence[Hashable], name: str | None = None) -> Any:
    """Return a pandas Index that gives back exactly these labels."""
    types = set(map(type, labels))
    dtype = None if types == {str} or types == {int} else object
    try:
        return pd.Index(labels, dtype=dtype, name=name, tupleize_cols=False)
    except (UnicodeEncodeError, OverflowError):  # lone surrogates, integers beyond 64 bits
        return pd.Index(labels, dtype=object, name=name, tupleize_cols=False)
