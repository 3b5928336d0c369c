"""Print results as a table for people, as csv, or as one JSON document."""

import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import indent
from typing import Any

from relpref.data.arrays import json_text, label, text_table

_PORTION = 10_000  # rows of a table that are converted at a time


def say(text: str) -> None:
    """Print a line for people."""
    print(text, flush=True)


def given(chosen: Namespace, *names: str) -> dict[str, Any]:
    """Options that were given or have a default, by their names."""
    values = {name: getattr(chosen, name) for name in names}
    return {name: value for name, value in values.items() if value not in (None, [])}


def tell(chosen: Namespace, text: str, **content: Any) -> None:
    """Print a result as a JSON document, or else a text for people."""
    if chosen.json:
        document(chosen, **content)
    else:
        say(text)


def document(chosen: Namespace, **content: Any) -> None:
    """Print a result as a JSON document; NaN and infinities become null."""
    print(json_text(_head(chosen) | content), flush=True)


def show_table(
    chosen: Namespace,
    name: str,
    table: Any,
    columns: Sequence[tuple[str, str]],
    left: Sequence[int] = (0,),
    **content: Any,
) -> None:
    """Print a table in the chosen form.

    Parameters
    ----------
    chosen : Namespace
        The arguments of the command.
    name : str
        Name of the rows in the JSON document, where they follow ``content``.
    table : DataFrame
        The table; its index is not shown.
    columns, left
        The table for people, see `formatted`.
    """
    if chosen.csv:
        table.to_csv(sys.stdout, index=False, lineterminator="\n")
    elif chosen.json:
        _document_of_rows({**_head(chosen), **content, name: []}, _records(table))
    else:
        say(formatted(columns, _records(table), left))


def _document_of_rows(content: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a JSON document with rows in its last entry, one row at a time."""
    head = json_text(content).removesuffix("]\n}")
    between = head
    for row in rows:
        print(f"{between}\n{indent(json_text(row), '    ')}", end="")
        between = ","
    print(f"{head}]\n}}" if between is head else "\n  ]\n}", flush=True)


def _head(chosen: Namespace) -> dict[str, Any]:
    """Entries that begin each JSON document."""
    run = getattr(chosen, "run", getattr(chosen, "out", None))
    return {"command": chosen.name} | ({} if run is None else {"run": run})


def _records(table: Any) -> Iterator[dict[str, Any]]:
    """Rows of a table as dictionaries, converted in portions."""
    for start in range(0, len(table), _PORTION):
        yield from table.iloc[start : start + _PORTION].to_dict("records")


def formatted(
    columns: Sequence[tuple[str, str]],
    rows: Iterable[Mapping[Any, Any]],
    left: Sequence[int] = (0,),
) -> str:
    """Format rows as a table for people.

    Each column is a heading and a format of its cells, such as ``{mean:.2f}``. The columns at the
    positions ``left`` are aligned at the left.
    """
    cells = [[label(text.format_map(row)) for _, text in columns] for row in rows]
    return text_table([heading for heading, _ in columns], cells, left)
