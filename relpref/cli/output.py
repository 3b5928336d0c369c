"""How results are printed: as a table for people, or as one JSON document."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from textwrap import indent
from typing import Any

import numpy as np

from relpref.data.arrays import width

_PORTION = 10_000  # rows of a table that are made ready at a time


def say(text: str) -> None:
    """Print a line for people."""
    print(text, flush=True)


def document(content: Mapping[str, Any]) -> None:
    """Print a JSON document; NaN and infinities become null."""
    print(_text(content), flush=True)


def document_of_rows(content: Mapping[str, Any], name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a JSON document whose last entry is a list of rows, however many; the same as `document` does at once."""
    head = _text({**content, name: []}).removesuffix("]\n}")
    between = head
    for row in rows:
        print(f"{between}\n{indent(_text(row), '    ')}", end="")
        between = ","
    print(f"{head}]\n}}" if between is head else "\n  ]\n}", flush=True)


def records(table: Any) -> Iterator[dict[str, Any]]:
    """The rows of a table as dictionaries, never all at once."""
    for start in range(0, len(table), _PORTION):
        yield from table.iloc[start : start + _PORTION].to_dict("records")


def _text(content: Any) -> str:
    return json.dumps(_plain(content), indent=2, allow_nan=False)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """Columns under each other.

    Parameters
    ----------
    header : sequence of str
    rows : sequence of sequence of str
    left : sequence of int
        Columns of text, which begin at the left; the others are numbers.

    Returns
    -------
    str
        Lines without spaces at their ends.
    """
    lines = [header, *rows]
    widths = [max(map(width, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            _padded(cell, columns, at in left)
            for at, (cell, columns) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _padded(cell: str, columns: int, left: bool) -> str:
    space = " " * (columns - width(cell))
    return cell + space if left else space + cell


def _plain(value: Any) -> Any:
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
