"""A ranking as HTML, for notebooks: a table with a picture of each interval."""

from collections.abc import Iterable
from html import escape

import numpy as np
import pandas as pd

from relpref.data.arrays import label
from relpref.posterior.plots import Colors, names_of
from relpref.posterior.summary import percent, signed

_WIDTH, _HEIGHT = 160, 18  # of the picture of an interval, in pixels


def ranking_html(
    table: pd.DataFrame, top: int, interval: float, caption: str, notes: Iterable[str] = ()
) -> str:
    """Return the first rows of a ranking as an HTML table, with the intervals as inline SVG.

    Parameters
    ----------
    table : DataFrame
        Columns mean, lower, upper, and possibly tier and p_best.
    top : int
        Number of rows.
    interval : float
        Probability of the intervals.
    caption : str
    notes : iterable of str
        Sentences in small print below the table.
    """
    shown, color = table.head(top), Colors().accent
    numbers = shown[["lower", "mean", "upper"]].to_numpy(dtype=np.float64)
    # Without an interval, the line has no length.
    numbers = np.where(np.isnan(numbers), numbers[:, 1:2], numbers)
    low, high = numbers.min(initial=0), numbers.max(initial=0)
    places = 6 + (_WIDTH - 12) / ((high - low) or 1.0) * (numbers - low)
    full, short = names_of(shown)
    # A narrow page breaks names, not numbers.
    broken = 'style="white-space: normal; overflow-wrap: anywhere"'
    columns = {
        "": range(1, len(shown) + 1),
        " ": [
            f'<span title="{escape(label(name))}" {broken}>{escape(label(text))}</span>'
            for name, text in zip(full, short, strict=True)
        ],
        "mean": map(signed, shown["mean"]),
        f"{interval:.0%} interval": [
            f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{lower:.2f} to '
            f'{upper:.2f}"><line x1="{left:.1f}" x2="{right:.1f}" y1="{_HEIGHT / 2}" '
            f'y2="{_HEIGHT / 2}" stroke="{color}" stroke-width="2"/><circle cx="{middle:.1f}" '
            f'cy="{_HEIGHT / 2}" r="4" fill="{color}"/></svg>'
            for (lower, _, upper), (left, middle, right) in zip(numbers, places, strict=True)
        ],
    }
    if "tier" in table and table["tier"].max() > 1:
        columns["tier"] = shown["tier"]
    if "p_best" in shown:
        columns["best"] = map(percent, shown["p_best"])
    more = f" The first {top} of {len(table):,} are shown." * (len(table) > top)
    left_aligned = 'style="text-align: left; white-space: nowrap"'
    head = "".join(f"<th {left_aligned}>{escape(title)}</th>" for title in columns)
    cells = [[f"<td {left_aligned}>{cell}</td>" for cell in column] for column in columns.values()]
    rows = "".join(f"<tr>{''.join(row)}</tr>" for row in zip(*cells, strict=True))
    below = "".join(f"<p><small>{escape(label(note))}</small></p>" for note in notes)
    return (
        f"<table><caption>{escape(caption)}{more}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table>{below}"
    )
