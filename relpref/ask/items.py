"""What a person is shown of an entity."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relpref.data import PreferenceData
from relpref.data.arrays import shown
from relpref.data.labels import LabelIndex, is_missing
from relpref.data.tables import read_table
from relpref.errors import DataError
from relpref.limits import MAX_ATTRIBUTES

_OWN = ("text", "image", "link")


@dataclass(frozen=True)
class Item:
    """An entity as it is shown. Nothing in it is to be trusted: whoever shows it escapes it.

    Attributes
    ----------
    label : label
    text : str
        May be empty.
    image : Path or None
        A file inside the folder of the table that named it.
    link : str or None
        As it was given.
    attributes : tuple of (str, str)
        Name and value.
    """

    label: Any
    text: str = ""
    image: Path | None = None
    link: str | None = None
    attributes: tuple[tuple[str, str], ...] = ()


def read_items(path: str | os.PathLike[str], entities: Sequence[Any]) -> tuple[str, dict[Any, Any]]:
    """Read a table of items.

    Parameters
    ----------
    path : path
        CSV or Parquet: the first column is the label; ``text``, ``image`` (a file, relative to the table's folder) and ``link`` are
        known by name, every other column is shown as an attribute. Labels of a CSV file are known by how they are printed.
    entities : sequence of labels

    Returns
    -------
    folder : str
        Of the images.
    items : dict from label to dict
        What JSON can hold, see `item`.

    Raises
    ------
    DataError
        If the table cannot be used.
    UnknownLabelError
        If a label is no entity.
    """
    table = read_table(path, max_columns=MAX_ATTRIBUTES + len(_OWN) + 1)
    names = [str(name) for name in table.frame.columns]
    cells = [[_cell(cell) for cell in table.frame.iloc[:, column]] for column in range(len(names))]
    printed = {str(label): label for label in entities}
    index = LabelIndex(tuple(entities), lambda row: f"entities, row {row}")
    labels = [printed.get(cell, cell) for cell in cells[0]] if cells else []
    index.locate(
        labels, lambda row: f"{table.place(row)}, column {names[0]!r}", "correct the label, or drop the row"
    )
    items: dict[Any, Any] = {}
    for row, label in enumerate(labels):
        if label in items:
            raise DataError(f"{table.place(row)}: {shown(label)} is there twice; keep one of the two rows")
        about = {name: cells[column][row] for column, name in enumerate(names) if column}
        own = {name: about.pop(name) for name in _OWN if about.get(name)}
        rest = [[name, cell] for name, cell in about.items() if name not in _OWN]
        items[label] = own | {"attributes": rest}
    return str(Path(path).absolute().parent), items


def item(label: Any, data: PreferenceData, folder: str, items: Mapping[Any, Any]) -> Item:
    """What is shown of an entity: what a table of items says of it, otherwise its attributes in the data."""
    known = items.get(label)
    if known is None:
        row = data.attributes[data.index([label])[0]]
        values = zip(data.attribute_names, row, strict=True)
        return Item(label, attributes=tuple((name, f"{number:g}") for name, number in values))
    return Item(
        label,
        text=known.get("text", ""),
        image=_inside(folder, known.get("image")),
        link=known.get("link"),
        attributes=tuple((name, cell) for name, cell in known["attributes"] if cell),
    )


def _inside(folder: str, name: str | None) -> Path | None:
    """A file of the folder, if the name leads to one."""
    if not name:
        return None
    try:
        file = (Path(folder) / name).resolve()
        inside = file.is_relative_to(Path(folder).resolve())
    except (OSError, RuntimeError, ValueError):  # a link to itself, or characters that no name has
        return None
    return file if inside and os.path.isfile(file) else None  # which raises nothing, if the name is too long


def _cell(cell: Any) -> str:
    return "" if is_missing(cell) else str(cell)
