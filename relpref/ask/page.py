"""What the page shows of items and of the ranking: foreign text that neither acts nor hides, cut where it is long."""

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pandas as pd

from relpref.ask.items import Item

# SVG is missing on purpose: it may carry scripts.
TYPES = {
    ".avif": "image/avif",
    ".gif": "image/gif",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
}


def is_picture(file: Path) -> bool:
    """Whether a file may be sent as a picture. That it lies in the folder of the items is seen to where these are read."""
    return file.suffix.lower() in TYPES and os.path.isfile(file)


# Control characters but newline and tab; marks that turn the direction of the text after them; halves of characters; not characters.
_ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_NAME, _TEXT = 90, 300


@dataclass(frozen=True)
class Cut:
    """A text of which the beginning is shown, and the rest on request."""

    head: str
    rest: str = ""


def visible(text: object) -> str:
    """Text in which every character that acts without being seen is replaced by a sign for it."""
    return _ACTING.sub(_sign, str(text).replace("\r\n", "\n"))


def name(value: object) -> Cut:
    """What an entity is called, on one line."""
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


_FEW = 6


@dataclass(frozen=True)
class Link:
    """Where an item leads to."""

    address: str
    shown: str


@dataclass(frozen=True)
class Card:
    """One of the two that are compared.

    Attributes
    ----------
    side : str
        ``"left"`` or ``"right"``.
    outcome : str
        What choosing it answers: ``"first"`` or ``"second"``.
    name, text : Cut
    picture : bool
    link : Link or None
    few, more : list of (name, value)
        Attributes shown at once, and on request.
    """

    side: str
    outcome: str
    name: Cut
    text: Cut
    picture: bool
    link: Link | None
    few: list[tuple[str, Cut]]
    more: list[tuple[str, Cut]]


def card(item: Item, side: str, outcome: str, *, picture: bool) -> Card:
    """Make a card of an item."""
    attributes = [(name(key).head, name(_number(value))) for key, value in item.attributes]
    few = len(attributes) if len(attributes) <= _FEW + 2 else _FEW
    return Card(
        side,
        outcome,
        name(item.label),
        prose(item.text or ""),
        picture,
        _link(item.link),
        attributes[:few],
        attributes[few:],
    )


def _number(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _link(address: str | None) -> Link | None:
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
    return Link(address, name(host).head)


TOP, PAGE = 10, 100


@dataclass(frozen=True)
class View:
    """Which part of the ranking is wanted."""

    most: int = TOP
    start: int = 0
    find: str = ""


@dataclass(frozen=True)
class Row:
    """One entity: positions in percent of the width, values relative to the average; the ends are empty where nobody worked them out."""

    key: str
    rank: int
    name: Cut
    mean: str
    lower: str
    upper: str
    at: float
    begin: float
    width: float


@dataclass(frozen=True)
class Standings:
    """The part of the ranking that is shown.

    Attributes
    ----------
    view : View
    rows : list of Row
    total, found : int
        Entities, and those whose name contains what was looked for.
    zero : float
        Where the average lies, in percent.
    previous, following : View or None
        The parts before and after.
    top, all : View
        Where else one may look.
    """

    view: View
    rows: list[Row]
    total: int
    found: int
    zero: float
    previous: View | None
    following: View | None
    top = View()
    all = View(PAGE)


def standings(ranking: pd.DataFrame, view: View) -> Standings:
    """Cut the part out of a ranking that is wanted.

    Parameters
    ----------
    ranking : DataFrame
        Columns mean, lower, upper by entity, best first; NaN where an interval was not worked out.
    view : View
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
        Row(
            key=hashlib.blake2s(repr(labels[at]).encode("utf-8", "replace"), digest_size=8).hexdigest(),
            rank=at + 1,
            name=name(labels[at]),
            mean=_signed(mean[at]),
            lower=_signed(lower[at]) if known[at] else "",
            upper=_signed(upper[at]) if known[at] else "",
            at=round(scale * (mean[at] - low), 2),
            begin=round(scale * (lower[at] - low), 2),
            width=round(scale * (upper[at] - lower[at]), 2),
        )
        for at in shown
    ]
    before, after = view.start - view.most, view.start + view.most
    return Standings(
        view,
        rows,
        len(labels),
        len(which),
        round(-scale * low, 2),
        View(view.most, max(before, 0), view.find) if view.start > 0 else None,
        View(view.most, after, view.find) if view.most > TOP and after < len(which) else None,
    )


def _signed(value: np.float64) -> str:
    text = f"{value:+.2f}"
    return "0.00" if float(text) == 0 else text.replace("-", "−")
