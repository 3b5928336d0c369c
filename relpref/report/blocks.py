"""What a page is made of: chapters, tables, pictures, and numbers and names as text."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Section:
    """An additional section of the page.

    Parameters
    ----------
    title : str
    paragraphs : sequence of str
        Plain text; markup is escaped.
    table : DataFrame, optional
        The index is shown unless it is a nameless count of rows.
    note : str, optional
        In small print, below everything else.
    figure : str, optional
        One SVG picture as text. It must be self-contained: no scripts, no addresses.
    """

    title: str
    paragraphs: Sequence[str] = ()
    table: pd.DataFrame | None = None
    note: str | None = None
    figure: str | None = None


# Control characters, surrogates without a partner, and the marks that turn the direction of the
# text that follows them.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_LONGEST_TITLE = 2000
_LONGEST_SHOWN = 28
ISOLATE, _POP = (
    "\u2068",
    "\u2069",
)  # keep a right-to-left name from reordering the sentence around it
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def clean(value: object, longest: int = _LONGEST_TITLE) -> str:
    """Text on one line, without characters that cannot be shown."""
    if isinstance(value, tuple):
        return f"({', '.join(clean(part) for part in value)})"
    text = str(value)
    if len(text) > longest:
        text = text[:longest] + "…"
    return _UNPRINTABLE.sub("\ufffd", " ".join(text.split()))


def shorten(text: str, longest: int = _LONGEST_SHOWN) -> str:
    """Cut from the middle: labels that begin alike often differ at the end."""
    if len(text) <= longest:
        return text
    tail = longest // 3
    return f"{text[: longest - tail - 1].rstrip()}…{text[-tail:].lstrip()}"


class Names:
    """How things are called on the page, in the order of their labels."""

    def __init__(self, labels: Sequence[Any]) -> None:
        plain = [clean(label) or "(empty)" for label in labels]
        # 1 and "1" are different items; of "a b" and "a  b" quotation marks would not tell.
        exact = [clean(repr(label)) for label in labels]
        used, times = Counter(plain), Counter(exact)
        pairs = zip(plain, exact, strict=True)
        self.full = _distinct(
            [one if used[one] == 1 or times[other] > 1 else other for one, other in pairs]
        )
        self.short = _distinct([shorten(text) for text in self.full], _LONGEST_SHOWN)

    def inline(self, position: int) -> str:
        """A name within a sentence."""
        return isolated(self.short[int(position)])

    def cells(self, positions: Iterable[int]) -> list["Cell"]:
        """Names in a table; those that are cut have the whole name as their title."""
        pairs = ((self.short[int(position)], self.full[int(position)]) for position in positions)
        return [Cell(short, full if short != full else None) for short, full in pairs]


def _distinct(names: Sequence[str], longest: int | None = None) -> list[str]:
    """With a number after all but the first of names that are alike, such as those of "a b" and "a  b", or of two long ones."""
    taken, last = set(names), Counter[str]()
    found = []
    for name in names:
        text = name
        while last[name] and text in taken:
            last[name] += 1
            suffix = f" ({last[name]})"
            text = (name if longest is None else shorten(name, longest - len(suffix))) + suffix
        last[name] = last[name] or 1
        taken.add(text)
        found.append(text)
    return found


def isolated(text: str) -> str:
    """Text whose direction of writing does not spread to its neighbors."""
    return f"{ISOLATE}{text}{_POP}"


def sentence(text: str) -> str:
    """A note as a sentence, with percentages as the page writes them."""
    text = re.sub(r"(?<=\d) %", "%", clean(text))
    return text if text.endswith((".", "!", "?")) else f"{text}."


def whole(number: int) -> str:
    """``10,000``."""
    return f"{int(number):,}"


def spans(
    lower: Iterable[float], upper: Iterable[float], decimals: int | None, between: str = " to "
) -> list[str]:
    """Pairs of numbers, such as ``0.12 to 0.34``; to three significant digits where ``decimals`` is None."""
    write = significant if decimals is None else partial(fixed, decimals=decimals)
    return [f"{write(low)}{between}{write(high)}" for low, high in zip(lower, upper, strict=True)]


def place_ranges(lower: Iterable[float], upper: Iterable[float]) -> list[str]:
    """Ranges of places, such as ``1–3``, or ``1`` where both ends are equal."""
    ends = zip(lower, upper, strict=True)
    return ["–".join(dict.fromkeys((fixed(low, 0), fixed(high, 0)))) for low, high in ends]


def percent(probability: float) -> str:
    """A probability; never 0% or 100%, which nothing that is estimated can be."""
    if not np.isfinite(probability):
        return "–"
    if probability < 0.0005:
        return "<0.1%"
    if probability > 0.9995:
        return ">99.9%"
    if probability < 0.0995 or probability > 0.9905:
        return f"{100 * probability:.1f}%"
    return f"{100 * probability:.0f}%"


def in_hundred(probability: float) -> str:
    """How often in 100 times; never 0 or 100."""
    return (
        ">99"
        if probability > 0.995
        else "<1"
        if probability < 0.005
        else f"{100 * probability:.0f}"
    )


def counted_share(count: float, total: float, none: str = "0%", every: str = "100%") -> str:
    """A share of things that were counted, which is exact: ``none`` and ``every`` are said of nothing less."""
    if total <= 0:
        return "–"
    return none if count == 0 else every if count == total else percent(count / total)


def signed_percent(share: float) -> str:
    """A share, which may be negative or above 1."""
    return percent(share) if 0 <= share <= 1 else f"{fixed(100 * share, 0)}%"


def fixed(number: float, decimals: int = 2) -> str:
    """A number with so many decimals and a real minus sign."""
    if not np.isfinite(number):
        return "–"
    text = f"{number:.{decimals}f}"
    return text.removeprefix("-") if float(text) == 0 else text.replace("-", "−")


def signed_fixed(number: float) -> str:
    """A number with its sign, where it is not zero."""
    text = fixed(number)
    return f"+{text}" if number > 0 and text != "0.00" else text


def about(number: float) -> str:
    """A number with one decimal, where it has one."""
    return fixed(number, 1).removesuffix(".0")


def significant(number: float, digits: int = 3) -> str:
    """A number with so many significant digits, by powers of ten where it is very large or small."""
    number = float(number)
    if not np.isfinite(number):
        return "–" if np.isnan(number) else ("∞" if number > 0 else "−∞")
    if number == 0:
        return "0"
    if 1e-3 <= abs(number) < 1e6:
        exponent = int(np.floor(np.log10(abs(number))))
        return f"{number:.{max(digits - 1 - exponent, 0)}f}".replace("-", "−")
    mantissa, _, power = f"{number:.{digits - 1}e}".partition("e")
    return f"{mantissa} × 10{str(int(power)).translate(_SUPERSCRIPTS)}".replace("-", "−")


def plain(number: float) -> str:
    """A number of a table: with three decimals below 1, else three significant digits."""
    return fixed(number, 3) if abs(number) < 1 else significant(number)


def decimals_for(values: Iterable[float]) -> int:
    """Decimals that tell these values apart: two, or more where all are small."""
    largest = float(np.max(np.abs(np.asarray(list(values), dtype=np.float64)), initial=0.0))
    if not np.isfinite(largest) or largest == 0:
        return 2
    return int(np.clip(1 - np.floor(np.log10(largest)), 2, 8))


def leaders(ranking: pd.DataFrame, probability: float = 0.95) -> list[int]:
    """The fewest whom the best is among with the probability, the likeliest first, by the column ``position`` of a ranking."""
    likely = ranking.sort_values("p_best", ascending=False, kind="stable")
    number = 1 + int(np.sum(likely["p_best"].cumsum() < probability))
    return [int(position) for position in likely["position"].iloc[:number]]


def listed(words: Sequence[str], most: int = 12) -> str:
    """``a``, ``a and b``, ``a, b and c``, ``a, b and 7 more``."""
    if len(words) > most:
        words = [*words[: most - 1], f"{len(words) - most + 1} more"]
    return "".join(words) if len(words) < 2 else f"{', '.join(words[:-1])} and {words[-1]}"


@dataclass(frozen=True)
class Cell:
    """One cell of a table: ``title`` is the whole text, where ``text`` is cut."""

    text: str
    title: str | None = None

    @property
    def sentence(self) -> bool:
        """Whether it is words around names, which are read from left to right even where a name is not."""
        return ISOLATE in self.text


@dataclass(frozen=True)
class Grid:
    """A table; ``heading`` is the column that names the row, and ``kinds`` are those of its columns in the style sheet.

    That is ``number`` of numbers, set flush right, and ``extra`` of what a phone leaves out.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    kinds: Sequence[str]
    heading: int = 0


@dataclass(frozen=True)
class Picture:
    """An SVG picture that is safe to put into the page; ``narrow`` is the same for small screens."""

    svg: str
    narrow: str | None = None
    own_colors: bool = (
        False  # it does not follow the page into the dark, so it stands on a light panel
    )


@dataclass(frozen=True)
class Chapter:
    """A heading, and what the sentences under it are about: ``macro`` of a template, such as ``utilities.html:ranking``, gets ``facts``.

    Those of the ``front`` are what a reader reads; the others are folded below.
    """

    title: str
    macro: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    front: bool = False


@dataclass(frozen=True)
class Contents:
    """The page of one kind of posterior, less what every page has: its title, the paragraphs under it, chapters and methods."""

    title: str
    summary: Chapter
    chapters: Sequence[Chapter | None]
    methods: Chapter


MOST_ROWS, MOST_COLUMNS = 200, 30  # of a user's table
_LONGEST_CELL = 60


def cell(value: object, longest: int = _LONGEST_CELL) -> Cell:
    """Any value; long text is cut and kept whole in the title."""
    if isinstance(value, float | np.floating):
        return Cell(significant(float(value)))
    full = "–" if value is None or value is pd.NA or value is pd.NaT else clean(value)
    short = shorten(full, longest)
    return Cell(short, None if short == full else full)


def grid(caption: str, columns: Iterable[tuple[str, Iterable[Cell | str]]]) -> Grid:
    """A table by columns; a heading begins with ">" if it is one of numbers, with "~" before that if a phone leaves it out.

    The first column of words names the rows.
    """
    names, values = zip(*columns, strict=True)
    rows = [
        [one if isinstance(one, Cell) else Cell(str(one)) for one in row]
        for row in zip(*values, strict=True)
    ]
    marks = [name[: len(name) - len(name.lstrip("~>"))] for name in names]
    kinds = [
        " ".join(kind for mark, kind in (("~", "extra"), (">", "number")) if mark in found)
        for found in marks
    ]
    heading = next((place for place, found in enumerate(marks) if ">" not in found), 0)
    return Grid(caption, [name.lstrip("~>") for name in names], rows, kinds, heading)


def from_frame(frame: pd.DataFrame, caption: str) -> Grid:
    """The first rows and columns of a user's DataFrame."""
    head = frame.iloc[:MOST_ROWS, :MOST_COLUMNS]
    columns = [(clean(name), head.iloc[:, place]) for place, name in enumerate(head.columns)]
    numeric = [pd.api.types.is_numeric_dtype(values.dtype) for _, values in columns]
    if not isinstance(frame.index, pd.RangeIndex) or frame.index.name is not None:
        name = ", ".join(clean(name) for name in frame.index.names if name is not None)
        columns, numeric = [(name, head.index), *columns], [False, *numeric]
    rows = list(
        zip(*([cell(one) for one in values.tolist()] for _, values in columns), strict=True)
    )
    return Grid(
        caption, [name for name, _ in columns], rows, ["number" if one else "" for one in numeric]
    )
