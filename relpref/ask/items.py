"""Items and rankings as a person is shown them."""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
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
from relpref.files import FilePath
from relpref.limits import MAX_ATTRIBUTES
from relpref.runs import TABLES, Run

_COLUMNS = ("text", "image", "link")  # with a meaning of their own


@dataclass(frozen=True)
class Item:
    """Details of an item that are shown; they are not trusted, and the caller escapes them.

    Attributes
    ----------
    label : label
    text : str
    image : Path or None
        File inside the folder of the table that named it.
    link : str or None
        Unchecked.
    attributes : tuple of (str, str)
        Names and values.
    """

    label: Any
    text: str = ""
    image: Path | None = None
    link: str | None = None
    attributes: tuple[tuple[str, str], ...] = ()


def read_items(
    path: FilePath, labels: Sequence[Any], encoding: str | None = None
) -> tuple[str, dict[Any, Any]]:
    """Read a table of items: the folder of its images, and JSON values by label, see `item`.

    The first column is the label; the columns ``text``, ``image`` (a file, relative to the table's
    folder) and ``link`` have these meanings, every other column is shown as an attribute. Labels in
    a CSV file are matched with the items as they print.
    """
    most = MAX_ATTRIBUTES + len(_COLUMNS) + 1
    table = read_table(path, max_columns=most, encoding=encoding)
    frame = table.frame.rename(columns=str).astype(object)
    frame = frame.map(lambda cell: "" if is_missing(cell) else str(cell))
    items: dict[Any, Any] = {}
    if len(frame.columns):
        printed = {str(label): label for label in labels}
        index = LabelIndex(tuple(labels), lambda row: f"items, row {row}")
        place = table.cell(table.frame.columns[0])
        given = [printed.get(cell, cell) for cell in read_labels(frame.iloc[:, 0], place, printed)]
        positions = index.locate(given, place, "correct the label, or drop the row")
        rows = frame.iloc[:, 1:].to_dict("records")
        for row, (position, cells) in enumerate(zip(positions, rows, strict=True)):
            label = index.labels[position]
            if label in items:
                raise DataError(
                    f"{table.place(row)}: {shown(label)} is there twice; keep one of the two rows"
                )
            details: dict[str, Any] = {name: cells[name] for name in _COLUMNS if cells.get(name)}
            details["attributes"] = [[k, cell] for k, cell in cells.items() if k not in _COLUMNS]
            items[label] = details
    return str(Path(path).absolute().parent), items


def items_of(run: Run, labels: Sequence[Any]) -> tuple[str, dict[Any, Any]]:
    """Read the table of items in the folder of a run, as `read_items`; empty if there is none."""
    for table in (run.folder / TABLES).glob("entities.*"):
        with suppress(DataError):  # read with options that the run does not keep
            return read_items(table, labels)
    return "", {}


def item(label: Any, data: PreferenceData, folder: str, items: Mapping[Any, Any]) -> Item:
    """Details of an item from a table of items, or else its attributes in the data."""
    details = items.get(label)
    if details is None:
        row = data.attributes[data.index([label])[0]]
        values = zip(data.attribute_names, row, strict=True)
        return Item(label, attributes=tuple((name, f"{number:g}") for name, number in values))
    return Item(
        label,
        text=details.get("text", ""),
        image=_inside(folder, details.get("image")),
        link=details.get("link"),
        attributes=tuple((name, cell) for name, cell in details["attributes"] if cell),
    )


def _inside(folder: str, name: str | None) -> Path | None:
    """Path of a file in the folder or its subfolders; None if the name leads to no such file."""
    if not name:
        return None
    try:
        file = (Path(folder) / name).resolve()
        inside = file.is_relative_to(Path(folder).resolve())
    except (OSError, RuntimeError, ValueError):  # a link to itself, or impossible characters
        return None
    return file if inside and os.path.isfile(file) else None  # raises nothing for a long name


# SVG is left out because it may carry scripts.
TYPES = {f".{kind}": f"image/{kind}" for kind in ("avif", "gif", "jpeg", "png", "webp")}
TYPES[".jpg"] = "image/jpeg"


def picture_of(item: Item) -> Path | None:
    """File that may be sent as the picture of an item; `item` has checked its folder."""
    file = item.image
    sendable = file is not None and file.suffix.lower() in TYPES and os.path.isfile(file)
    return file if sendable else None


# Control characters except newline and tab, marks that change the direction of text, surrogates,
# and noncharacters.
_ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_NAME, _TEXT = 90, 300  # characters that are shown at once


class Cut(NamedTuple):
    """Beginning of a text, and the rest, which is shown on request."""

    head: str
    rest: str = ""


def visible(text: object) -> str:
    """Replace invisible characters that have an effect by visible signs."""
    return _ACTING.sub(_sign, str(text).replace("\r\n", "\n"))


def name(value: object) -> Cut:
    """Name of an item, on one line."""
    return cut(" ".join(visible(value).split()) or "(empty)", _NAME)


def prose(value: object) -> Cut:
    """Longer text, with its line breaks."""
    return cut(visible(value).strip(), _TEXT)


def cut(text: str, longest: int) -> Cut:
    """Cut a text at a space, or anywhere in a word that is too long itself."""
    if len(text) <= longest + longest // 4:  # a few words more are not worth a click
        return Cut(text)
    at = text.rfind(" ", longest // 2, longest)
    at = longest if at < 0 else at
    return Cut(text[:at], text[at:])


def _sign(match: re.Match[str]) -> str:
    character = ord(match[0])
    if character < 0x20:
        return chr(0x2400 + character)  # control picture
    if 0xD800 <= character <= 0xDFFF or character >= 0xFFFE:
        return "\N{REPLACEMENT CHARACTER}"
    return f"⟨U+{character:04X}⟩"


_FEW = 6  # attributes that are shown at once, the others on request


def card(item: Item, side: str, outcome: str) -> dict[str, Any]:
    """Values for the template of an item on one side; ``outcome`` is the answer that chooses it."""
    attributes = [(name(key).head, name(value)) for key, value in item.attributes]
    few = _FEW if len(attributes) > _FEW + 2 else len(attributes)  # two are not worth a click
    return {
        "side": side,
        "outcome": outcome,
        "name": name(item.label),
        "text": prose(item.text or ""),
        "picture": picture_of(item) is not None,
        "link": _link(item.link),
        "few": attributes[:few],
        "more": attributes[few:],
    }


def _link(address: str | None) -> dict[str, str] | None:
    """Link to a web page with a readable address; None for others, such as ``javascript:``."""
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
    """Part of the ranking that is shown."""

    most: int = TOP
    start: int = 0
    find: str = ""
    whose: str = "all"  # or "own", the ranking of the rater


def standings(ranking: pd.DataFrame, view: View) -> dict[str, Any]:
    """Values for the template of a part of a ranking.

    ``at``, ``begin``, ``width`` and ``zero``, the average, are in percent of the width. ``lower``
    and ``upper`` are empty without an interval. ``found`` counts the items whose names contain the
    text in ``view.find``, and ``tied`` those that cannot be told apart from the first.
    ``previous``, ``following``, ``top`` and ``all`` are other views.
    """
    needle = " ".join(view.find.split()).casefold()
    matches = [at for at, label in enumerate(ranking.index) if needle in str(label).casefold()]
    after = view.start + view.most
    more = view.most > TOP and after < len(matches)
    ranks = matches[view.start : after]
    values = ranking[["lower", "mean", "upper"]].to_numpy(float)[ranks]
    ends = np.where(np.isnan(values), values[:, 1:2], values)
    low, high = ends.min(initial=0), ends.max(initial=0)
    scale = 100 / (high - low) if high > low else 0.0
    rows = []
    for rank, numbers, (begin, at, end) in zip(ranks, values, scale * (ends - low), strict=True):
        lower, mean, upper = map(_signed, numbers)
        rows.append(
            {
                "rank": rank + 1,
                "name": name(ranking.index[rank]),
                "mean": mean,
                "lower": lower,
                "upper": upper,
                "at": round(at, 2),
                "begin": round(begin, 2),
                "width": round(end - begin, 2),
            }
        )
    return {
        "view": view,
        "rows": rows,
        "total": len(ranking),
        "tied": (ranking["tier"] == 1).sum() - 1 if "tier" in ranking else 0,
        "found": len(matches),
        "zero": round(-scale * low, 2),
        "previous": view._replace(start=max(view.start - view.most, 0)) if view.start > 0 else None,
        "following": view._replace(start=after) if more else None,
        "top": View(TOP, whose=view.whose),
        "all": View(PAGE, whose=view.whose),
    }


def _signed(value: float) -> str:
    """Number with its sign and two digits; empty for NaN."""
    if np.isnan(value):
        return ""
    text = f"{value:+.2f}"
    return "0.00" if float(text) == 0 else text.replace("-", "−")
