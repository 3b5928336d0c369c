"""Read-only NumPy arrays."""

import difflib
import json
import math
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relpref.errors import DataError

Array = NDArray[Any]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Indices = NDArray[np.intp]
Integers = NDArray[np.int64]
Positions = NDArray[np.int32]  # of labels, as data hold them
Labels = Sequence[Any]  # of items, of columns and of others
Texts = tuple[str, ...]
Columns = Mapping[str, Any]  # cells, or what columns are called, by name


def read_only(array: Any) -> Any:
    """Return the array after forbidding writes into it."""
    array.flags.writeable = False
    return array


T = TypeVar("T")

_LONGEST_SHOWN = 80
_LONGEST_COMPARED = 200
_MOST_COMPARED = 20_000


def shown(value: object) -> str:
    """Return ``repr(value)``, cut to a length that fits into a message."""
    text = repr(value.item() if isinstance(value, np.number | np.bool_ | np.str_) else value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


def listed(values: Iterable[object], most: int = 8) -> str:
    """Return the first few values, comma separated, with a note on how many follow."""
    everything = list(values)
    head = ", ".join(shown(value) for value in everything[:most])
    rest = len(everything) - most
    return f"{head} and {rest} more" if rest > 0 else head


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """Return ``"1 answer"``, ``"2 answers"``, ``"10,000 answers"``."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def label(value: Any) -> str:
    """Return a label for a line of a terminal, with unprintable characters escaped."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def width(text: str) -> int:
    """Columns of a terminal that a text takes."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def text_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)
) -> str:
    """Lay out columns of a table: text, in the ``left`` ones, to the left, numbers to the right."""
    columns = []
    for at, cells in enumerate(zip(header, *rows, strict=True)):
        most = max(map(width, cells))
        spaces = [" " * (most - width(cell)) for cell in cells]
        pairs = zip(cells, spaces, strict=True)
        columns.append([cell + space if at in left else space + cell for cell, space in pairs])
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def refuse_first(wrong: Any, said: Callable[[int], str]) -> None:
    """Raise a `DataError` for the first true entry; ``said`` maps its position to the message."""
    if wrong.any():
        raise DataError(said(int(wrong.argmax())))


def nearest(value: object, known: Iterable[T], most: int = 3, cutoff: float = 0.6) -> list[T]:
    """Return the known values whose text is closest to that of ``value``, best first.

    Only the first 20,000 known values and the first 200 characters are compared, so that a message
    about a wrong cell of a large table comes at once.
    """
    texts = {str(item)[:_LONGEST_COMPARED]: item for item in islice(known, _MOST_COMPARED)}
    sought = str(value)[:_LONGEST_COMPARED]
    return [texts[text] for text in difflib.get_close_matches(sought, texts, n=most, cutoff=cutoff)]


def did_you_mean(value: object, known: Iterable[object], otherwise: str) -> str:
    """Ask whether the nearest known value was meant; if none is near, say what else to do."""
    close = nearest(value, known, most=1)
    return f"did you mean {close[0]!r}?" if close else otherwise


def chosen_rows(chosen: ArrayLike, size: int) -> Integers:
    """Return the positions that a mask or a list of positions selects."""
    picked = np.asarray(chosen)
    if picked.dtype == np.bool_ and picked.shape != (size,):
        raise DataError(
            f"chosen: the mask has the shape {picked.shape}; give one of shape ({size},)"
        )
    try:
        rows = np.arange(size)[picked if picked.size else picked.reshape(-1).astype(np.int64)]
    except IndexError as error:
        raise DataError(
            f"chosen: {error}; give a mask of booleans or a list of integer positions"
        ) from None
    if rows.ndim != 1:
        raise DataError(f"chosen: the shape is {picked.shape}; give a mask or a list of positions")
    return rows


def json_text(content: Any) -> str:
    """Return content as JSON; NaN and infinities become null."""
    return json.dumps(_plain(content), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    """Value in the types of JSON."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, date):
        return value.isoformat()
    if value is None or isinstance(value, str | int):
        return value
    return str(value)
