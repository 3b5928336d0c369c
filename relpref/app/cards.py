"""What is shown of an item."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from relpref.app import words
from relpref.app.words import Cut

if TYPE_CHECKING:
    from relpref.explore.items import Item

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


def card(item: "Item", side: str, outcome: str, *, picture: bool) -> Card:
    """Make a card of an item."""
    attributes = [(words.name(key).head, words.name(_number(value))) for key, value in item.attributes]
    few = len(attributes) if len(attributes) <= _FEW + 2 else _FEW
    return Card(
        side,
        outcome,
        words.name(item.label),
        words.prose(item.text or ""),
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
    return Link(address, words.name(host).head)
