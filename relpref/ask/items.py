"""What a person is shown of an item."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import pandas as pd

from relpref.data import PreferenceData
from relpref.data.arrays import shown
from relpref.data.labels import LabelIndex, is_missing, read_labels
from relpref.data.tables import read_table
from relpref.errors import DataError
from relpref.limits import MAX_ATTRIBUTES

_OWN = ("text", "image", "link")


@dataclass(frozen=True)
class Item:
    """An item as it is shown. Nothing in it is trusted: the caller escapes it.

    Attributes
    ----------
    label : label
    text : str
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


def read_items(path: str | os.PathLike[str], known: Sequence[Any]) -> tuple[str, dict[Any, Any]]:
    """Read a table of items: the folder of its images, and by label what JSON can hold, see `item`.

    The first column is the label; ``text``, ``image`` (a file, relative to the table's folder) and ``link`` are known by name, every other
    column is shown as an attribute. Labels of a CSV file are known by how they are printed.
    """
    table = read_table(path, max_columns=MAX_ATTRIBUTES + len(_OWN) + 1)
    names = [str(name) for name in table.frame.columns]
    cells = [[_cell(cell) for cell in table.frame.iloc[:, column]] for column in range(len(names))]
    printed = {str(label): label for label in known}
    index = LabelIndex(tuple(known), lambda row: f"items, row {row}")
    where = table.cell(table.frame.columns[0]) if cells else str
    labels = [printed.get(cell, cell) for cell in read_labels(cells[0], where, printed)] if cells else []
    located = index.locate(labels, where, "correct the label, or drop the row")
    labels = [index.labels[at] for at in located]
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
    """What is shown of an item: what a table of items says of it, otherwise its attributes in the data."""
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


# SVG is missing on purpose: it may carry scripts.
TYPES = {f".{kind}": f"image/{kind}" for kind in ("avif", "gif", "jpeg", "png", "webp")} | {
    ".jpg": "image/jpeg"
}


def is_picture(file: Path) -> bool:
    """Whether a file may be sent as a picture. That it lies in the folder of the items is seen to where these are read."""
    return file.suffix.lower() in TYPES and os.path.isfile(file)


# Control characters but newline and tab; marks that turn the direction of the text after them; halves of characters; not characters.
_ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_NAME, _TEXT = 90, 300


class Cut(NamedTuple):
    """A text of which the beginning is shown, and the rest on request."""

    head: str
    rest: str = ""


def visible(text: object) -> str:
    """Text in which every character that acts without being seen is replaced by a sign for it."""
    return _ACTING.sub(_sign, str(text).replace("\r\n", "\n"))


def name(value: object) -> Cut:
    """What an item is called, on one line."""
    return cut(" ".join(visible(value).split()) or "(empty)", _NAME)


def prose(value: object) -> Cut:
    """A longer text, whose lines are kept."""
    return cut(visible(value).strip(), _TEXT)


def cut(text: str, longest: int) -> Cut:
    """Cut a text at a space, or anywhere in a word that is too long itself."""
    if len(text) <= longest + longest // 4:  # a few words more are not worth a click
        return Cut(text)
    at = text.rfind(" ", longest // 2, longest)
    at = longest if at < 0 else at
    return Cut(text[:at], text[at:])


def _sign(found: re.Match[str]) -> str:
    character = ord(found[0])
    if character < 0x20:
        return chr(0x2400 + character)  # Unicode's pictures of control characters
    if 0xD800 <= character <= 0xDFFF or character >= 0xFFFE:
        return "\N{REPLACEMENT CHARACTER}"
    return f"⟨U+{character:04X}⟩"


_FEW = 6  # attributes of an item that are shown at once, the others on request


def card(item: Item, side: str, outcome: str, *, picture: bool) -> dict[str, Any]:
    """What the page shows of one of the two that are compared, on the left or right; ``outcome`` is what choosing it answers."""
    attributes = [(name(key).head, name(value)) for key, value in item.attributes]
    few = len(attributes) if len(attributes) <= _FEW + 2 else _FEW
    return {
        "side": side,
        "outcome": outcome,
        "name": name(item.label),
        "text": prose(item.text or ""),
        "picture": picture,
        "link": _link(item.link),
        "few": attributes[:few],
        "more": attributes[few:],
    }


def _link(address: str | None) -> dict[str, str] | None:
    """Only to pages of the web (not ``javascript:`` and the like), at an address that is what it looks like."""
    address = (address or "").strip()
    if not address.isprintable():
        return None
    try:
        parts = urlsplit(address)
        host = parts.hostname
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not host:
        return None
    return {"address": address, "shown": name(host).head}


TOP, PAGE = 10, 100


class View(NamedTuple):
    """Which part of the ranking is wanted."""

    most: int = TOP
    start: int = 0
    find: str = ""
    whose: str = "all"  # or "own", that of the rater


def standings(ranking: pd.DataFrame, view: View) -> dict[str, Any]:
    """The part of a ranking that is wanted, for the template.

    Positions are in percent of the width, values relative to the average (``zero``), ends empty where nobody worked them out; ``found``
    items have what was looked for in their names; ``previous``, ``following``, ``top`` and ``all`` are the views where else one may look.
    """
    labels = ranking.index
    mean, lower, upper = (ranking[name].to_numpy() for name in ("mean", "lower", "upper"))
    needle = " ".join(view.find.split()).casefold()
    which: Sequence[int] = range(len(labels))
    if needle:
        which = [at for at, label in enumerate(labels) if needle in str(label).casefold()]
    shown = which[view.start : view.start + view.most]
    known = ~np.isnan(lower)
    lower, upper = np.where(known, lower, mean), np.where(known, upper, mean)
    low, high = min(lower[shown].min(initial=0), 0), max(upper[shown].max(initial=0), 0)
    scale = 100 / (high - low) if high > low else 0.0
    rows = [
        {
            "rank": at + 1,
            "name": name(labels[at]),
            "mean": _signed(mean[at]),
            "lower": _signed(lower[at]) if known[at] else "",
            "upper": _signed(upper[at]) if known[at] else "",
            "at": round(scale * (mean[at] - low), 2),
            "begin": round(scale * (lower[at] - low), 2),
            "width": round(scale * (upper[at] - lower[at]), 2),
        }
        for at in shown
    ]
    before, after = view.start - view.most, view.start + view.most
    return {
        "view": view,
        "rows": rows,
        "total": len(labels),
        "found": len(which),
        "zero": round(-scale * low, 2),
        "previous": view._replace(start=max(before, 0)) if view.start > 0 else None,
        "following": view._replace(start=after) if view.most > TOP and after < len(which) else None,
        "top": view._replace(most=TOP, start=0, find=""),
        "all": view._replace(most=PAGE, start=0, find=""),
    }


def _signed(value: np.float64) -> str:
    text = f"{value:+.2f}"
    return "0.00" if float(text) == 0 else text.replace("-", "−")
