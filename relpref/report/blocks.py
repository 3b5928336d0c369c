"""What a page is made of: chapters, tables, pictures, and numbers and names as text."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from relpref.data import arrays as messages


@dataclass(frozen=True)
class Section:
    """An additional section; it stands after the summary, in the order given.

    Parameters
    ----------
    title : str
    paragraphs : sequence of str
        Plain text; markup in it is shown, not obeyed.
    table : DataFrame, optional
        The index is shown unless it is a nameless count of rows.
    note : str, optional
        In small print, under everything else.
    figure : str, optional
        One SVG picture as text. It must carry all it shows: no scripts, no addresses.
    """

    title: str
    paragraphs: Sequence[str] = ()
    table: pd.DataFrame | None = None
    note: str | None = None
    figure: str | None = None


# Control characters, surrogates without a partner, and the marks that turn the direction of the text that follows them.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_LONGEST_TITLE = 2000
_LONGEST_SHOWN = 28
ISOLATE, _POP = "\u2068", "\u2069"  # keep a right-to-left name from reordering the sentence around it
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
    """How the entities are called on the page.

    Parameters
    ----------
    labels : sequence of hashable
        In the order of the data.
    """

    def __init__(self, labels: Sequence[Any]) -> None:
        plain = [clean(label) or "(empty)" for label in labels]
        # 1 and "1" are different entities; of "a b" and "a  b" quotation marks would not tell.
        used, exact = Counter(plain), [clean(repr(label)) for label in labels]
        times = Counter(exact)
        told = [
            text if used[text] == 1 or times[said] > 1 else said
            for text, said in zip(plain, exact, strict=True)
        ]
        self.full = _distinct(told)
        self.short = _distinct([shorten(text) for text in self.full], _LONGEST_SHOWN)

    def inline(self, position: int) -> str:
        """A name within a sentence."""
        return isolated(self.short[position])


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
    """Text whose direction of writing does not spread to its neighbours."""
    return f"{ISOLATE}{text}{_POP}"


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """``1 answer``, ``10 000 answers``."""
    return unbroken(messages.counted(number, singular, plural))


def sentence(text: str) -> str:
    """A note as a sentence."""
    text = clean(text)
    return text if text.endswith((".", "!", "?")) else f"{text}."


def whole(number: int) -> str:
    """``10 000``."""
    return unbroken(f"{int(number):,}".replace(",", " "))


def unbroken(text: str) -> str:
    """Keep the thousands of a number together at the end of a line."""
    return re.sub(r"(?<=\d) (?=\d{3}(?!\d))", "\u202f", text)


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


def decimals_for(values: Iterable[float]) -> int:
    """Decimals that tell these values apart: two, or more where all are small."""
    largest = float(np.max(np.abs(np.asarray(list(values), dtype=np.float64)), initial=0.0))
    if not np.isfinite(largest) or largest == 0:
        return 2
    return int(np.clip(1 - np.floor(np.log10(largest)), 2, 8))


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
    """A table; ``heading`` is the column that names the row, ``numeric`` are columns of numbers, set flush right."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    heading: int = 0
    numeric: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Picture:
    """An SVG picture that is safe to put into the page; ``narrow`` is the same for small screens."""

    svg: str
    narrow: str | None = None
    own_colors: bool = False  # it does not follow the page into the dark, so it stands on a light panel


@dataclass(frozen=True)
class Chapter:
    """A heading, and numbers for the sentences under it.

    Attributes
    ----------
    title : str
    macro : str
        Where the sentences are: a template and its macro, such as ``utilities.html:ranking``.
    facts : mapping
        What the macro is called with.
    """

    title: str
    macro: str
    facts: Mapping[str, Any] = field(default_factory=dict)


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


def grid(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    numeric: Iterable[int] = (),
    heading: int = 0,
) -> Grid:
    """A table from cells and plain text."""
    filled = [[one if isinstance(one, Cell) else Cell(one) for one in row] for row in rows]
    return Grid(caption, columns, filled, heading, frozenset(numeric))


def from_frame(frame: pd.DataFrame, caption: str) -> Grid:
    """The first rows and columns of a user's DataFrame."""
    head = frame.iloc[:MOST_ROWS, :MOST_COLUMNS]
    columns = [clean(name) for name in head.columns]
    values: list[list[Any]] = [head.iloc[:, position].tolist() for position in range(head.shape[1])]
    numeric = [place for place, dtype in enumerate(head.dtypes) if pd.api.types.is_numeric_dtype(dtype)]
    if not isinstance(frame.index, pd.RangeIndex) or frame.index.name is not None:
        columns = [", ".join(clean(name) for name in frame.index.names if name is not None), *columns]
        values = [head.index.tolist(), *values]
        numeric = [position + 1 for position in numeric]
    return grid(caption, columns, ([cell(one) for one in row] for row in zip(*values, strict=True)), numeric)
