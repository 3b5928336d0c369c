"""How results are printed: as a table for people, or as one JSON document."""

import json
import math
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from textwrap import indent
from typing import Any

import numpy as np

from relpref.data.arrays import label, text_table

_PORTION = 10_000  # rows of a table that are made ready at a time


def say(text: str) -> None:
    """Print a line for people."""
    print(text, flush=True)


def document(chosen: Namespace, **content: Any) -> None:
    """Print what a command found out as a JSON document; NaN and infinities become null."""
    print(_text(_head(chosen) | content), flush=True)


def document_of_rows(
    chosen: Namespace, name: str, rows: Iterable[Mapping[str, Any]], **content: Any
) -> None:
    """Print a JSON document whose last entry is a list of rows, however many; the same as `document` does at once."""
    head = _text({**_head(chosen), **content, name: []}).removesuffix("]\n}")
    between = head
    for row in rows:
        print(f"{between}\n{indent(_text(row), '    ')}", end="")
        between = ","
    print(f"{head}]\n}}" if between is head else "\n  ]\n}", flush=True)


def _head(chosen: Namespace) -> dict[str, Any]:
    run = getattr(chosen, "run", getattr(chosen, "out", None))
    return {"command": chosen.name} | ({} if run is None else {"run": str(run)})


def records(table: Any) -> Iterator[dict[str, Any]]:
    """The rows of a table as dictionaries, never all at once."""
    for start in range(0, len(table), _PORTION):
        yield from table.iloc[start : start + _PORTION].to_dict("records")


def _text(content: Any) -> str:
    return json.dumps(_plain(content), indent=2, allow_nan=False)


def formatted(
    columns: Sequence[tuple[str, str]],
    rows: Iterable[Mapping[Any, Any]],
    left: Sequence[int] = (0,),
) -> str:
    """A table of rows; each column is a heading and a format of its cells, such as ``{mean:.2f}``."""
    cells = [[label(text.format_map(row)) for _, text in columns] for row in rows]
    return text_table([heading for heading, _ in columns], cells, left)


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
