"""What a person sees on a terminal: two items, how far it has come, and the top of the ranking. Lines without control sequences."""

import unicodedata
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from relpref.cli.output import label, width
from relpref.explore import Item, Progress

NARROW = 24  # no terminal is taken to have fewer columns
_SIDE_BY_SIDE = 72
_GAP = 4
_MOST_LINES = 8  # of a text or a name
_MOST_FACTS = 12
_MOST_NAME = 28  # columns of a name in the ranking


def headline(rater: str, progress: Progress) -> str:
    """Who is asked, and how far it has come."""
    said = [f"{progress.answers} answered"]
    if progress.skips:
        said.append(f"{progress.skips} skipped")
    if progress.everyone > progress.answers:
        said.append(f"{progress.everyone} by all")
    return (
        f"Question {progress.answers + progress.skips + 1} for {short(rater, _MOST_NAME)}: {', '.join(said)}"
    )


def two_items(left: Item, right: Item, columns: int) -> list[str]:
    """Both items, beside each other where there is room for that."""
    if columns < _SIDE_BY_SIDE:
        return ["a", *_indented(left, columns), "", "b", *_indented(right, columns)]
    half = (columns - _GAP) // 2
    sides = [[letter, *_indented(item, half)] for letter, item in (("a", left), ("b", right))]
    return [
        f"{one}{' ' * (half - width(one) + _GAP)}{other}".rstrip()
        for one, other in zip_longest(*sides, fillvalue="")
    ]


def bars(ranking: Any, top: int, columns: int, plain: bool) -> list[str]:
    """The first of a ranking with their means and intervals, drawn on one scale.

    Parameters
    ----------
    ranking : DataFrame
        With ``mean``, ``lower`` and ``upper``, best first.
    top : int
        How many.
    columns : int
        Of the terminal.
    plain : bool
        Draw with ASCII only.
    """
    shown = ranking.head(top)
    low, high = float(shown["lower"].min()), float(shown["upper"].max())
    names = [short(entity, min(_MOST_NAME, columns // 3)) for entity in shown.index]
    room, places = max(map(width, names)), len(str(len(names)))
    reach = max(columns - room - places - 12, 2)
    line, dot = ("-", "o") if plain else ("─", "●")

    def at(value: float) -> int:
        return round((value - low) / ((high - low) or 1.0) * (reach - 1))

    rows = []
    for place, (name, row) in enumerate(zip(names, shown.to_dict("records"), strict=True), start=1):
        drawn = [" "] * reach
        drawn[at(row["lower"]) : at(row["upper"]) + 1] = line * (at(row["upper"]) - at(row["lower"]) + 1)
        drawn[at(row["mean"])] = dot
        padded = name + " " * (room - width(name))
        rows.append(f"{place:>{places}}  {padded}  {row['mean']:+6.2f}  {''.join(drawn)}".rstrip())
    return rows


def short(value: Any, columns: int) -> str:
    """A text on one line, escaped, that takes no more columns than that."""
    text = label(str(value)[: 4 * columns])
    if width(text) <= columns and len(str(value)) <= 4 * columns:
        return text
    while width(text) > columns - 3:
        text = text[:-1]
    return f"{text}..."


def wrapped(text: str, columns: int, most: int | None = None) -> list[str]:
    """A text in lines that take no more columns than that, escaped; what is beyond the most lines is left out, and said so."""
    lines: list[str] = []
    # Nobody reads on where the screen ends: the rest need not be looked at.
    for paragraph in text[: columns * (most or 100) * 2].splitlines():
        line = ""
        for word in label(paragraph).split(" "):
            while width(word) > columns:
                head = _head(word, columns)
                lines += [line] * bool(line) + [head]
                line, word = "", word[len(head) :]
            if line and width(line) + 1 + width(word) > columns:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}" if line else word
        lines.append(line)
    if most is not None and len(lines) > most:
        lines[most - 1 :] = ["..."]
    return lines


def in_rows(parts: Sequence[str], columns: int) -> list[str]:
    """Short texts in as few rows as there is room for."""
    rows = [parts[0]]
    for part in parts[1:]:
        if width(rows[-1]) + 3 + width(part) <= columns:
            rows[-1] += f"   {part}"
        else:
            rows.append(part)
    return rows


def _head(word: str, columns: int) -> str:
    """The beginning of a word that takes no more columns than that, at least one character."""
    taken, used = 1, width(word[0])
    while taken < len(word) and used + width(word[taken]) <= columns:
        used += width(word[taken])
        taken += 1
    while taken < len(word) and unicodedata.combining(word[taken]):
        taken += 1
    return word[:taken]


def _indented(item: Item, columns: int) -> list[str]:
    inner = max(columns - 2, 8)
    lines = wrapped(str(item.label), inner, 3)
    if item.text:
        lines += wrapped(item.text, inner, _MOST_LINES)
    facts = [*item.attributes]
    facts += [("image", str(item.image))] * (item.image is not None) + [("link", item.link or "")] * bool(
        item.link
    )
    return [f"  {line}" for line in [*lines, *_facts(facts, inner)]]


def _facts(facts: Sequence[tuple[str, str]], columns: int) -> list[str]:
    if not facts:
        return []
    if len(facts) > _MOST_FACTS:
        facts = [*facts[: _MOST_FACTS - 1], ("...", "")]
    names = [short(name, columns // 2) for name, _ in facts]
    room = max(map(width, names))
    return [
        f"{name}{' ' * (room - width(name))}  {short(value, max(columns - room - 2, 4))}"
        for name, (_, value) in zip(names, facts, strict=True)
    ]
