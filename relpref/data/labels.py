"""Labels of entities: plain Python values, unique, looked up all at once."""

import cmath
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from itertools import accumulate, repeat
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import nearest, shown
from relpref.errors import DataError, UnknownLabelError

# Longer texts are left to a dictionary.
LONGEST = 64
_ODD = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], dtype=np.uint64)


class WordTable:
    """A hash table from distinct keys to their positions, in buckets that lie one after the other.

    Parameters
    ----------
    words : array of uint64, shape (n, k)
        The keys, see `words_of`.
    """

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self._words = words
        # Two buckets for each key: most hold one or none.
        self._shift = np.uint64(64 - (2 * len(words)).bit_length())
        bucket = self._bucket(words)
        self._order = np.argsort(bucket, kind="stable").astype(np.int32)
        counts = np.bincount(bucket, minlength=1 << (64 - int(self._shift)))
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)

    @property
    def width(self) -> int:
        """Number of words k of a key."""
        return int(self._words.shape[1])

    def positions(self, words: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Return the position of each of m keys, −1 where it is none of these."""
        bucket = self._bucket(words)
        at, end = self._starts[bucket], self._starts[bucket + 1]
        found = np.full(len(words), -1, dtype=np.int32)
        rows = np.flatnonzero(at < end)
        while rows.size:
            candidate = self._order[at[rows]]
            same = np.ones(rows.size, dtype=np.bool_)
            for column in range(self.width):
                same &= self._words[candidate, column] == words[rows, column]
            found[rows[same]] = candidate[same]
            rows = rows[~same]
            at[rows] += 1
            rows = rows[at[rows] < end[rows]]
        return found

    def _bucket(self, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The highest bits of a product, which depend on all bits of the words."""
        mixed = np.zeros(len(words), dtype=np.uint64)
        for column in range(words.shape[1]):
            mixed = (mixed ^ words[:, column]) * _ODD[0]
            mixed = (mixed ^ (mixed >> np.uint64(29))) * _ODD[1]
        return (mixed >> self._shift).astype(np.int64)


def words_of(labels: Sequence[Any], width: int | None = None) -> NDArray[np.uint64] | None:
    """Return labels as words of eight bytes, so that equal ones have equal words.

    Parameters
    ----------
    labels : sequence of str or of int, length m
        All of one type.
    width : int, optional
        Number of words k of a label; by default as many as the longest needs.

    Returns
    -------
    array of uint64, shape (m, k), or None
        Texts as UTF-8, filled up with zeros. None where a label is too long or too large, has a zero character, or one that
        UTF-8 cannot say.
    """
    if labels and not isinstance(labels[0], str):
        try:
            return np.array(labels, dtype=np.int64).view(np.uint64)[:, None]
        except OverflowError:
            return None
    return _words_of_texts(labels, width)


def _words_of_texts(texts: Sequence[str], width: int | None) -> NDArray[np.uint64] | None:
    try:
        encoded = list(map(str.encode, texts))
    except UnicodeEncodeError:
        return None
    content = b"".join(encoded)
    sizes = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    longest = int(sizes.max(initial=1))
    if b"\0" in content or longest > (LONGEST if width is None else 8 * width):
        return None
    width = width or -(-longest // 8)
    starts = np.cumsum(sizes) - sizes
    # Word by word from every byte on, without a copy; those past the end of a text are blanked.
    padded = np.frombuffer(content + bytes(8 * width), dtype=np.uint8)
    each = np.ndarray((padded.size - 7,), dtype="<u8", buffer=padded, strides=(1,))
    words = np.empty((len(encoded), width), dtype=np.uint64)
    for column in range(width):
        bits = 8 * np.clip(sizes - 8 * column, 0, 8)
        # A shift by 64 is undefined, so it is made in two.
        half = (bits // 2).astype(np.uint64)
        mask = ~((~np.uint64(0) << half) << (bits.astype(np.uint64) - half))
        words[:, column] = each[starts + 8 * column] & mask
    return words


# From so many labels on, looked up among so many, arrays are faster than a dictionary.
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
    """Return the labels as plain Python values.

    Parameters
    ----------
    values : iterable
        Labels: an Index, a Series, an array or any iterable.
    where : callable
        Maps a position to the words that name its place in a message.

    Returns
    -------
    list
        One plain, hashable, present label per value.

    Raises
    ------
    DataError
        If a label is missing (None, NaN) or cannot be hashed.
    """
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

    grows: ClassVar[bool] = False

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
        """Return the position of each label.

        Parameters
        ----------
        labels : sequence of hashable, length m
            Plain labels.
        where : callable
            Maps a position in ``labels`` to the words that name its place in a message.
        remedy : str
            What to do about an unknown label.

        Returns
        -------
        array of int32, shape (m,)
            Positions of the labels.

        Raises
        ------
        UnknownLabelError
            If a label is not known; the message names the closest known ones.
        """
        found = self._found(labels)
        if found.size and found.min() < 0:
            position = int(np.argmin(found))
            self.refuse(labels[position], where(position), remedy)
        return found

    def _found(self, labels: Sequence[Any]) -> NDArray[np.int32]:
        """Positions, −1 for a label that is not known."""
        found = np.empty(len(labels), dtype=np.int32)
        for start in range(0, len(labels), _AT_ONCE):
            part = labels[start : start + _AT_ONCE]
            found[start : start + len(part)] = self._found_at_once(part)
        return found

    def _found_at_once(self, labels: Sequence[Any]) -> NDArray[np.int32]:
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

    def refuse(self, label: Any, place: str, remedy: str) -> None:
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

    def __init__(self) -> None:
        super().__init__((), str)

    def locate(self, labels: Sequence[Any], where: Place, remedy: str) -> NDArray[np.int32]:
        """Return the position of each label."""
        for label in dict.fromkeys(labels):
            self.positions.setdefault(label, len(self.positions))
        self.labels = tuple(self.positions)
        return np.fromiter(map(self.positions.__getitem__, labels), dtype=np.int32, count=len(labels))


def label_column(labels: Sequence[Hashable], name: str | None = None) -> Any:
    """Return a pandas Index that gives back exactly these labels.

    Parameters
    ----------
    labels : sequence of hashable
        Labels.
    name : str, optional
        Name of the Index.

    Returns
    -------
    pandas.Index
        Of a native type where all labels are text or all are integers; of objects otherwise, because
        pandas would turn ``[1, 2.5]`` into floats and dates into timestamps.
    """
    types = set(map(type, labels))
    dtype = None if types == {str} or types == {int} else object
    try:
        return pd.Index(labels, dtype=dtype, name=name, tupleize_cols=False)
    except (UnicodeEncodeError, OverflowError):  # lone surrogates, integers beyond 64 bits
        return pd.Index(labels, dtype=object, name=name, tupleize_cols=False)
