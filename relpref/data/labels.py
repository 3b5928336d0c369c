"""Labels of items: plain Python values, unique, looked up all at once."""

import cmath
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Sequence
from functools import cached_property
from itertools import accumulate, repeat
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from relpref.data.arrays import Labels, Positions, Texts, counted, nearest, shown
from relpref.errors import DataError, UnknownLabelError

# Labels looked up among as many, from which on pandas takes half the time of a dictionary.
MANY = 1 << 14

Place = Callable[[int], str]
_ALWAYS_FINE = frozenset({str, int, bool})


def _characters(codes: str) -> str:
    """Return the characters of hexadecimal codes, and of ranges of these with their ends."""
    return "".join(
        chr(code)
        for low, _, high in (part.partition("-") for part in codes.split())
        for code in range(int(low, 16), int(high or low, 16) + 1)
    )


# Characters without a mark: white space, zero-width spaces and joiners of words, and letters
# without a shape. Joiners of letters, selectors of variants and tags are not among them: they
# change what they follow.
BLANKS = _characters(
    """
    9-D 1C-20 85 A0 AD 61C 115F 1160 1680 180E 2000-200B 200E 200F 2028 2029 202F 205F-2064
    206A-206F 2800 3000 3164 FEFF FFA0
    """
)
# The same, and marks of category Mn that only change the character before them.
_MARKLESS = {*BLANKS, *_characters("34F 17B4 17B5 180B-180F FE00-FE0F E0100-E01EF")}


def joined_places(sizes: Sequence[int], places: Sequence[Place]) -> Place:
    """Return the place of a row of a table, given the sizes and the places of its pieces."""
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
    labels = tolist() if tolist is not None else list(values)
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
                f"{where(position)}: the label is missing ({shown(label)}); give one or drop it"
            )
    return labels


def trimmed(label: Any) -> Any:
    """Return a text without the blanks around it; any other label unchanged."""
    return label.strip(BLANKS) if isinstance(label, str) else label


def is_invisible(text: str) -> bool:
    """Tell whether no character of a text can be seen."""
    return all(char in _MARKLESS or unicodedata.category(char) in ("Cc", "Cf") for char in text)


def read_labels(
    values: Iterable[Any], where: Place, known: Container[Any] = (), blanks: set[str] | None = None
) -> list[Any]:
    """Return the labels of a table: plain Python values without the blanks around them.

    Parameters
    ----------
    values : iterable
    where : callable
        Maps a position to the words that name it in a message.
    known : container
        Labels that stay as they are: those of data that were read when blanks still counted.
    blanks : set of str, optional
        Receives the labels that had blanks around them.

    Raises
    ------
    DataError
        If a label is missing, cannot be hashed, or has no character that can be seen.
    """
    labels = plain_labels(values, where)
    # Hashing many different texts takes longer than looking at every row.
    distinct = set(labels) if len(set(labels[:10_000])) < 5_000 else labels
    # The usual text is returned by strip as it is, and begins with a letter or a digit.
    odd = {
        text: plain
        for text in distinct
        if isinstance(text, str)
        and ((plain := text.strip(BLANKS)) is not text or not plain[:1].isalnum())
        and text not in known
    }
    if empty := set(filter(is_invisible, odd)):
        row = next(row for row, label in enumerate(labels) if label in empty)
        raise DataError(
            f"{where(row)}: the label is empty ({labels[row]!a}); give every row a label"
        )
    changed = {text: plain for text, plain in odd.items() if text != plain}
    if blanks is not None:
        blanks.update(changed)
    return [changed.get(label, label) for label in labels] if changed else labels


def blank_note(labels: Collection[str]) -> Texts:
    """Return a note on labels that had blanks around them, if there are some."""
    if not labels:
        return ()
    some = f"{min(labels)!a}{', ...' if len(labels) > 1 else ''}"
    around = "it" if len(labels) == 1 else "them"
    return (
        f"{counted(len(labels), 'label')} had blanks around {around}, which were left out: {some}",
    )


def alike_note(labels: Iterable[Any], what: str) -> Texts:
    """Return a note on labels that differ in capitals or Unicode form only, if there are some."""
    texts = [label for label in labels if isinstance(label, str)]
    forms = [
        (text if text.isascii() else unicodedata.normalize("NFKC", text)).casefold()
        for text in texts
    ]
    if len(set(forms)) == len(texts):
        return ()
    firsts = dict(zip(reversed(forms), reversed(texts), strict=True))
    pairs = ((firsts[form], text) for form, text in zip(forms, texts, strict=True))
    alike = [pair for pair in pairs if pair[0] != pair[1]]
    # Two forms of one text look the same unless they are escaped.
    show = shown if alike[0][0].lower() == alike[0][1].lower() else ascii
    note = (
        f"{counted(len(alike), what)} {'differs' if len(alike) == 1 else 'differ'} from another "
        f"one in capitals or Unicode form only, such as {' and '.join(map(show, alike[0]))}; they "
        "are kept apart: rename one of the two if they mean the same"
    )
    return (note,)


class LabelIndex:
    """Distinct labels in order with their positions; ``where`` names their places in messages."""

    grows = False

    def __init__(self, labels: Labels, where: Place) -> None:
        self.labels: tuple[Hashable, ...] = tuple(labels)
        self.positions: dict[Hashable, int] = dict(
            zip(self.labels, range(len(self.labels)), strict=True)
        )
        if len(self.positions) == len(self.labels):
            return
        seen: dict[Hashable, int] = {}
        for position, label in enumerate(self.labels):
            first = seen.setdefault(label, position)
            if first != position:
                same = self.labels[first]
                equal = "" if type(same) is type(label) else f" (equal to {shown(same)} in Python)"
                raise DataError(
                    f"{where(position)}: the label {shown(label)}{equal} was already used at "
                    f"{where(first)}; "
                    "every item needs a label of its own: rename or remove one of the two rows"
                )

    def __len__(self) -> int:
        return len(self.labels)

    def locate(self, labels: Labels, where: Place, remedy: str) -> Positions:
        """Return the position of each label; refuse the first one that is not known."""
        if min(len(self), len(labels)) >= MANY:
            rows = self._index.get_indexer(_objects(labels)).astype(np.int32)
        else:
            rows = np.fromiter(
                map(self.positions.get, labels, repeat(-1)), dtype=np.int32, count=len(labels)
            )
        for position in np.flatnonzero(rows < 0).tolist():
            rows[position] = self.get(labels[position])
            if rows[position] < 0:
                self.refuse(labels[position], where(position), remedy)
        return rows

    def get(self, label: Any) -> int:
        """Return the position of a label, -1 if unknown; blanks around it may differ."""
        if label in self.positions:
            return self.positions[label]
        plain = trimmed(label)
        return self.positions.get(plain, self._with_blanks.get(plain, -1))

    @cached_property
    def _with_blanks(self) -> dict[str, int]:
        """Positions of labels with blanks around them, by the label without; -1 if ambiguous."""
        positions = {}
        for position, label in enumerate(self.labels):
            if trimmed(label) != label:
                positions[trimmed(label)] = -1 if trimmed(label) in positions else position
        return positions

    @cached_property
    def _index(self) -> pd.Index:
        return _objects(self.labels)

    def refuse(self, label: Any, place: str, remedy: str) -> NoReturn:
        """Raise the error for an unknown label."""
        close = nearest(label, self.labels)
        same_text = [near for near in close if str(near) == str(label)]
        if same_text:
            near = same_text[0]
            hint = (
                f"; the item {shown(near)} is of type {type(near).__name__}, "
                f"this label of type {type(label).__name__}: convert one of the two columns"
            )
        elif close:
            hint = f"; nearest: {', '.join(map(shown, close))}; {remedy}"
        else:
            if isinstance(label, str) and self.labels == tuple(range(len(self))):
                remedy = (
                    "these are row numbers: make the column with the labels the index (set_index)"
                )
            some = ", ".join(map(shown, self.labels[:3]))
            hint = f"; the items are {some}{', ...' if len(self) > 3 else ''}; {remedy}"
        raise UnknownLabelError(f"{place}: {shown(label)} is not the label of an item{hint}")


class GrowingIndex(LabelIndex):
    """Labels in the order in which they are met: one that is not known yet is added."""

    grows = True

    def __init__(self, known: Iterable[Hashable] = ()) -> None:
        super().__init__(tuple(known), str)

    def locate(self, labels: Labels, where: Place, remedy: str) -> Positions:
        places = {label: self.get(label) for label in dict.fromkeys(labels)}
        for label, place in places.items():
            if place < 0:
                places[label] = self.positions[label] = len(self.positions)
        self.labels = tuple(self.positions)
        return np.fromiter(map(places.__getitem__, labels), dtype=np.int32, count=len(labels))


def in_labels(labels: Labels, items: LabelIndex, first: Positions, second: Positions) -> list[Any]:
    """Replace the words first and second, where they are no labels, by labels of each pair."""
    sides = {"first": first, "second": second}

    def label_of(row: int, label: Any) -> Any:
        side = sides.get(label.lower()) if isinstance(label, str) else None
        return label if side is None or items.get(label) >= 0 else items.labels[side[row]]

    return [label_of(row, label) for row, label in enumerate(labels)]


def label_column(labels: Labels) -> Any:
    """Return a pandas Index that gives back exactly these labels."""
    if set(map(type, labels)) in ({str}, {int}):
        try:
            return pd.Index(labels, tupleize_cols=False)
        except (UnicodeEncodeError, OverflowError):  # lone surrogates, integers beyond 64 bits
            pass
    return _objects(labels)


def _objects(labels: Labels) -> pd.Index:
    return pd.Index(labels, dtype=object, tupleize_cols=False)
