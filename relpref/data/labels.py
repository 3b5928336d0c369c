"""Labels of items: plain Python values, unique, looked up all at once."""

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
from relpref.errors import DataError, UnknownLabelError

MANY = 1 << 14  # labels looked up among as many, from which on pandas takes half the time of a dictionary

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
    if type(value) is tuple:
        return tuple(plain_label(part) for part in value)
    if isinstance(value, np.datetime64 | np.timedelta64):
        return pd.Timestamp(value) if isinstance(value, np.datetime64) else pd.Timedelta(value)
    return value.item() if isinstance(value, np.generic) else value


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
            raise DataError(f"{where(position)}: the label is missing ({shown(label)}); give one or drop it")
    return labels


class LabelIndex:
    """Distinct labels in order, each with its position; ``where`` maps one to the words that name its place in a message."""

    grows = False

    def __init__(self, labels: Sequence[Hashable], where: Place) -> None:
        self.labels: tuple[Hashable, ...] = tuple(labels)
        self.positions: dict[Hashable, int] = dict(zip(self.labels, range(len(self.labels)), strict=True))
        if len(self.positions) == len(self.labels):
            return
        seen: dict[Hashable, int] = {}
        for position, label in enumerate(self.labels):
            first = seen.setdefault(label, position)
            if first != position:
                same = self.labels[first]
                equal = "" if type(same) is type(label) else f" (equal to {shown(same)} in Python)"
                raise DataError(
                    f"{where(position)}: the label {shown(label)}{equal} was already used at {where(first)}; "
                    "every item needs a label of its own: rename or remove one of the two rows"
                )

    def __len__(self) -> int:
        return len(self.labels)

    def locate(self, labels: Sequence[Any], where: Place, remedy: str) -> NDArray[np.int32]:
        """Return the position of each label; refuse the first one that is not known."""
        if min(len(self), len(labels)) >= MANY:
            rows = self._index.get_indexer(_objects(labels)).astype(np.int32)
        else:
            rows = np.fromiter(map(self.positions.get, labels, repeat(-1)), dtype=np.int32, count=len(labels))
        if rows.size and rows.min() < 0:
            position = int(np.argmin(rows))
            self.refuse(labels[position], where(position), remedy)
        return rows

    @cached_property
    def _index(self) -> pd.Index:
        return _objects(self.labels)

    def refuse(self, label: Any, place: str, remedy: str) -> NoReturn:
        """Raise the error for an unknown label."""
        close = nearest(label, self.labels)
        same_text = [known for known in close if str(known) == str(label)]
        if same_text:
            known = same_text[0]
            hint = (
                f"; the item {shown(known)} is of type {type(known).__name__}, "
                f"this label of type {type(label).__name__}: convert one of the two columns"
            )
        elif close:
            hint = f"; nearest: {', '.join(map(shown, close))}; {remedy}"
        else:
            if isinstance(label, str) and self.labels == tuple(range(len(self))):
                remedy = "these are row numbers: make the column with the labels the index (set_index)"
            some = ", ".join(map(shown, self.labels[:3]))
            hint = f"; the items are {some}{', ...' if len(self) > 3 else ''}; {remedy}"
        raise UnknownLabelError(f"{place}: {shown(label)} is not the label of an item{hint}")


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
    if set(map(type, labels)) in ({str}, {int}):
        try:
            return pd.Index(labels, name=name, tupleize_cols=False)
        except (UnicodeEncodeError, OverflowError):  # lone surrogates, integers beyond 64 bits
            pass
    return _objects(labels, name)


def _objects(labels: Sequence[Hashable], name: str | None = None) -> pd.Index:
    return pd.Index(labels, dtype=object, name=name, tupleize_cols=False)
