"""Parts of a page: chapters, tables, pictures, and numbers and names as text."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from relpref.posterior.names import distinct, numbered, shorten


@dataclass(frozen=True)
class Section:
    """An additional section of the page.

    Parameters
    ----------
    title : str
        Heading.
    paragraphs : sequence of str
        Plain text; markup is escaped.
    table : DataFrame, optional
        Its index is shown unless it is a range without a name.
    note : str, optional
        Text in small print, below everything else.
    figure : str, optional
        Text of an SVG picture without scripts and addresses.

    Examples
    --------
    >>> import relpref
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> posterior = relpref.fit(answers=answers)
    >>> section = relpref.report.Section("Panel", ["Asked in May 2026."])
    >>> path = posterior.report("report.html", sections=[section])
    """

    title: str
    paragraphs: Sequence[str] = ()
    table: pd.DataFrame | None = None
    note: str | None = None
    figure: str | None = None


# Control characters, surrogates without a partner, and marks that change the direction of text.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_LONGEST_TITLE = 2000
# They keep a right-to-left name from reordering the sentence around it.
ISOLATE, _POP = "\u2068", "\u2069"
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def clean(value: object, longest: int = _LONGEST_TITLE) -> str:
    """Text on one line, without characters that cannot be shown."""
    if isinstance(value, tuple):
        return f"({', '.join(clean(part) for part in value)})"
    text = str(value)
    if len(text) > longest:
        text = text[:longest] + "…"
    return _UNPRINTABLE.sub("\ufffd", " ".join(text.split()))


class Names:
    """Names of labels on the page, in the order of the labels."""

    def __init__(self, labels: Sequence[Any]) -> None:
        plain = [clean(label) or "(empty)" for label in labels]
        # Quotation marks distinguish 1 from "1", but not "a b" from "a  b".
        quoted = [clean(repr(label)) for label in labels]
        plain_count, quoted_count = Counter(plain), Counter(quoted)
        self.full = numbered(
            [
                text if plain_count[text] == 1 or quoted_count[other] > 1 else other
                for text, other in zip(plain, quoted, strict=True)
            ]
        )
        self.short = distinct(self.full)

    def inline(self, position: int) -> str:
        """Name within a sentence."""
        return isolated(self.short[position])

    def cells(self, positions: Iterable[int]) -> list["Cell"]:
        """Names in a table; a name that is cut has the full name as its title."""
        pairs = ((self.short[position], self.full[position]) for position in positions)
        return [Cell(short, full if short != full else None) for short, full in pairs]


def isolated(text: str) -> str:
    """Text that does not change the writing direction of its neighbors."""
    return f"{ISOLATE}{text}{_POP}"


def sentence(text: str) -> str:
    """Note as a sentence, with percentages as on the page."""
    text = re.sub(r"(?<=\d) %", "%", clean(text))
    return text if text.endswith((".", "!", "?")) else f"{text}."


def integer(number: int) -> str:
    """Whole number such as ``10,000``."""
    return f"{int(number):,}"


def spans(
    lower: Iterable[float],
    upper: Iterable[float],
    write: Callable[..., str],
    *options: Any,
    between: str = " to ",
) -> list[str]:
    """Ranges such as ``0.12 to 0.34``, of numbers as ``write`` writes them with the options."""
    ends = zip(lower, upper, strict=True)
    return [f"{write(low, *options)}{between}{write(high, *options)}" for low, high in ends]


def place_ranges(lower: Iterable[float], upper: Iterable[float]) -> list[str]:
    """Ranges of places such as ``1–3``, or ``1`` where both ends are equal."""
    ends = zip(lower, upper, strict=True)
    return ["–".join(dict.fromkeys((fixed(low, 0), fixed(high, 0)))) for low, high in ends]


def percent(probability: float) -> str:
    """Probability in percent; never 0% or 100%, because estimates are not certain."""
    if not np.isfinite(probability):
        return "–"
    if probability < 0.0005:
        return "<0.1%"
    if probability > 0.9995:
        return ">99.9%"
    if probability < 0.0095 or probability > 0.9905:
        return f"{100 * probability:.1f}%"
    return f"{100 * probability:.0f}%"


def in_hundred(probability: float) -> str:
    """Probability as a number of 100 cases; never 0 or 100."""
    if probability > 0.995:
        return ">99"
    return "<1" if probability < 0.005 else f"{100 * probability:.0f}"


def counted_share(count: float, total: float, none: str = "0%", every: str = "100%") -> str:
    """Share of a total; ``none`` and ``every`` stand for exactly none and all."""
    if total <= 0:
        return "–"
    return none if count == 0 else every if count == total else percent(count / total)


def signed_percent(share: float) -> str:
    """Share in percent, which may be negative or above 100%."""
    return percent(share) if 0 <= share <= 1 else f"{fixed(100 * share, 0)}%"


def fixed(number: float, decimals: int = 2) -> str:
    """Number with a fixed number of decimals and a real minus sign."""
    if not np.isfinite(number):
        return "–"
    text = f"{number:.{decimals}f}"
    return text.removeprefix("-") if float(text) == 0 else text.replace("-", "−")


def signed_fixed(number: float) -> str:
    """Number with its sign, unless it is zero."""
    text = fixed(number)
    return f"+{text}" if number > 0 and text != "0.00" else text


def about(number: float) -> str:
    """Number with at most one decimal."""
    return fixed(number, 1).removesuffix(".0")


def significant(number: float) -> str:
    """Number with three digits; very large and small numbers with a power of ten."""
    number = float(number)
    if not np.isfinite(number):
        return "–" if np.isnan(number) else ("∞" if number > 0 else "−∞")
    if number == 0:
        return "0"
    if 1e-3 <= abs(number) < 1e6:
        exponent = int(np.floor(np.log10(abs(number))))
        return f"{number:.{max(2 - exponent, 0)}f}".replace("-", "−")
    mantissa, _, power = f"{number:.2e}".partition("e")
    return f"{mantissa} × 10{str(int(power)).translate(_SUPERSCRIPTS)}".replace("-", "−")


def plain(number: float) -> str:
    """Number with three decimals if it is below 1, else with three significant digits."""
    return fixed(number, 3) if abs(number) < 1 else significant(number)


def decimals_for(values: Any) -> int:
    """Number of decimals that distinguishes the values: two, or more if all are small."""
    largest = np.max(np.abs(np.asarray(values)), initial=0.0)
    if not np.isfinite(largest) or largest == 0:
        return 2
    return int(np.clip(1 - np.floor(np.log10(largest)), 2, 8))


# Note on a question whose answer is almost certain.
LITTLE = (
    "Little can be learned from an answer that is almost certain; no other question would tell "
    "more."
)
_MANY = 5  # leaders, without names
_SURE = 0.95  # probability that the best is among the leaders


def lead(ranking: pd.DataFrame, named: Callable[[int], str], nouns: str) -> str:
    """Sentence on the leaders: the fewest items that include the best with 95% probability.

    ``named`` gives the name of a position, ``nouns`` is the plural of what is ranked.
    """
    likely = ranking.sort_values("p_best", ascending=False, kind="stable")
    chances = likely["p_best"].cumsum()
    number = 1 + sum(chance < _SURE for chance in chances)
    first = [*map(named, likely["position"].iloc[:number])]
    best = [f"is the best with a probability of {percent(chance)}." for chance in chances]
    if number == 1:
        return f"{first[0]} leads: it {best[0]}"
    each = "either" if number == 2 else "any"
    leading = f"Nobody leads clearly: the best may be {each} of {integer(number)} {nouns}."
    if number < min(len(best), _MANY):
        leading = f"{listed(first)} lead: one of them {best[number - 1]}"
    return f"{leading} {first[0]} {best[0]}"


def listed(words: Sequence[str], most: int = 12) -> str:
    """Enumeration such as ``a and b``, ``a, b and c``, or ``a, b and 7 more``."""
    if len(words) > most:
        words = [*words[: most - 1], f"{len(words) - most + 1:,} more"]
    return "".join(words) if len(words) < 2 else f"{', '.join(words[:-1])} and {words[-1]}"


@dataclass(frozen=True)
class Cell:
    """Cell of a table; ``title`` is the full text if ``text`` is cut."""

    text: str
    title: str | None = None

    @property
    def sentence(self) -> bool:
        """Whether the text is a sentence, read from left to right even if a name is not."""
        return ISOLATE in self.text


@dataclass(frozen=True)
class Grid:
    """Table of cells.

    ``heading`` is the column that names the row. ``kinds`` are classes of the columns in the style
    sheet: ``number`` is aligned at the right, ``extra`` is hidden on a phone.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    kinds: Sequence[str]
    heading: int = 0


@dataclass(frozen=True)
class Picture:
    """SVG picture without scripts and addresses; ``narrow`` is its form for small screens."""

    svg: str
    narrow: str | None = None
    own_colors: bool = False  # drawn on a light panel in the dark mode, too


Facts = dict[str, Any]  # what a macro of a template says


@dataclass(frozen=True)
class Chapter:
    """Heading with the macro of a template, such as ``utilities.html:ranking``, and its facts.

    Chapters of the ``front`` are open, the others are folded below them.
    """

    title: str
    macro: str
    facts: Facts = field(default_factory=dict)
    front: bool = False


@dataclass(frozen=True)
class Contents:
    """Contents of a page that depend on the kind of posterior, which names their template.

    ``summary`` and ``methods`` are the facts of these macros.
    """

    title: str
    summary: Facts
    chapters: Sequence[Chapter | None]
    methods: Facts


MOST_SHOWN = (200, 30)  # rows and columns of a user's table
_LONGEST_CELL = 60


def cell(value: object, longest: int = _LONGEST_CELL) -> Cell:
    """Cell of any value; long text is cut, and kept in full in the title."""
    if isinstance(value, float | np.floating):
        return Cell(significant(float(value)))
    full = "–" if value is None or value is pd.NA or value is pd.NaT else clean(value)
    short = shorten(full, longest)
    return Cell(short, None if short == full else full)


_KINDS = {"": "", "~": "extra", ">": "number", "~>": "extra number"}


def grid(caption: str, columns: Iterable[tuple[str, Iterable[Cell | str]]]) -> Grid:
    """Table of columns, each a heading and its cells.

    The heading of a column of numbers begins with ">"; a "~" before that hides the column on a
    phone. The first column of words names the rows.
    """
    headings, values = zip(*columns, strict=True)
    names = [heading.lstrip("~>") for heading in headings]
    rows = [
        [value if isinstance(value, Cell) else Cell(str(value)) for value in row]
        for row in zip(*values, strict=True)
    ]
    kinds = [
        _KINDS[heading.removesuffix(name)] for heading, name in zip(headings, names, strict=True)
    ]
    words = (place for place, kind in enumerate(kinds) if "number" not in kind)
    return Grid(caption, names, rows, kinds, next(words, 0))


def from_frame(frame: pd.DataFrame, caption: str) -> Grid:
    """Table of the first rows and columns of a user's DataFrame."""
    rows, width = MOST_SHOWN
    head = frame.iloc[:rows, :width]
    columns = [(clean(name), head.iloc[:, place]) for place, name in enumerate(head.columns)]
    kinds = ["number" if pd.api.types.is_numeric_dtype(values) else "" for _, values in columns]
    if not isinstance(frame.index, pd.RangeIndex) or frame.index.name is not None:
        name = ", ".join(clean(name) for name in frame.index.names if name is not None)
        columns, kinds = [(name, head.index), *columns], ["", *kinds]
    cells = [[cell(value) for value in values.tolist()] for _, values in columns]
    return Grid(caption, [name for name, _ in columns], list(zip(*cells, strict=True)), kinds)
