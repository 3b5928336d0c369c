"""Names that are cut to a length and stay distinct."""

from collections import Counter
from collections.abc import Sequence
from os.path import commonprefix

LONGEST = 28


def shorten(text: str, longest: int = LONGEST) -> str:
    """Beginning of a long text, with an ellipsis."""
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}…"


def distinct(names: Sequence[str], longest: int = LONGEST) -> list[str]:
    """Short names, no two of them alike: where some begin alike, the word that differs is shown."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(shorten(name, longest), []).append(name)
    short = []
    for name in names:
        text = shorten(name, longest)
        if len(name) > longest and len(others := alike[text]) > 1:
            same, most = commonprefix(others), 2 * longest // 3
            start = min(len(same), max(same.rfind(" ") + 1, len(name) - most))
            end = shorten(name[start:], most)
            text = f"{name[: longest - len(end) - 1].rstrip()}…{end}"
        short.append(text)
    return numbered(short, longest)


def numbered(names: Sequence[str], longest: int | None = None) -> list[str]:
    """Names with a number after each repetition, such as ``a b (2)``."""
    taken, last, unique = set(names), Counter[str](), []
    for name in names:
        text = name
        while last[name] and text in taken:
            last[name] += 1
            suffix = f" ({last[name]})"
            text = (name if longest is None else shorten(name, longest - len(suffix))) + suffix
        last[name] = last[name] or 1
        taken.add(text)
        unique.append(text)
    return unique
