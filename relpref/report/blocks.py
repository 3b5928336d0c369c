"""What a page is made of. The template knows these and nothing of statistics."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from relpref.report.text import ISOLATE


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes
    ----------
    text : str
    title : str, optional
        The whole text, where ``text`` is cut.
    """

    text: str
    title: str | None = None

    @property
    def sentence(self) -> bool:
        """Whether it is words around names, which are read from left to right even where a name is not."""
        return ISOLATE in self.text


@dataclass(frozen=True)
class Text:
    """A paragraph; small print if ``small``."""

    kind: ClassVar[str] = "text"
    text: str
    small: bool = False


@dataclass(frozen=True)
class Items:
    """A list of sentences."""

    kind: ClassVar[str] = "items"
    items: Sequence[str]


@dataclass(frozen=True)
class Grid:
    """A table.

    Attributes
    ----------
    caption : str
    columns : sequence of str
    rows : sequence of sequence of Cell
    heading : int
        Position of the column that names the row.
    numeric : frozenset of int
        Columns of numbers, set flush right.
    """

    kind: ClassVar[str] = "grid"
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    heading: int = 0
    numeric: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Picture:
    """An SVG picture that is safe to put into the page.

    Attributes
    ----------
    svg : str
    caption : str
    narrow : str, optional
        The same for small screens.
    own_colours : bool
        It does not follow the page into the dark, so it stands on a light panel.
    """

    kind: ClassVar[str] = "picture"
    svg: str
    caption: str = ""
    narrow: str | None = None
    own_colours: bool = False


Block = Text | Items | Grid | Picture


@dataclass(frozen=True)
class Chapter:
    """A heading and what stands under it."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Contents:
    """A page about one kind of posterior, less what every page has.

    Attributes
    ----------
    title : str
        Unless the caller gives another.
    lead : sequence of str
        Paragraphs under it.
    chapters : sequence of Chapter
    methods : sequence of str
        Paragraphs on what was done, with sources as `relpref.report.methods` knows them.
    """

    title: str
    lead: Sequence[str]
    chapters: Sequence[Chapter]
    methods: Sequence[str]
