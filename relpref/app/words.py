"""Foreign text as a page can show it: no character of it acts on the page, and none is hidden.

Escaping of HTML is the templates' work; this is about characters that a browser obeys or swallows.
"""

import re
from dataclasses import dataclass

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
