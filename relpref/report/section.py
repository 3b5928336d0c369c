"""A section that the caller of `write` adds to the page."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd


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
