"""A ranking as HTML, for notebooks: a table with a picture of each interval."""

from collections.abc import Callable
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from relpref.data.arrays import label
from relpref.posterior.plots import Colors
from relpref.posterior.summary import percent, signed

_WIDTH, _HEIGHT = 260, 18  # of the picture of an interval, in pixels
_TITLES = {"tier": "tier", "p_best": "probability to be the best"}


def ranking_html(table: pd.DataFrame, top: int, interval: float, caption: str) -> str:
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
    """
    shown, colors = table.head(top), Colors()
    ends = shown[["lower", "upper"]].to_numpy(dtype=np.float64)
    finite = ends[np.isfinite(ends)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
    scale = (_WIDTH - 12) / ((high - low) or 1.0)
    optional: dict[str, Callable[[Any], str]] = {"tier": str, "p_best": percent}
    columns = {name: text for name, text in optional.items() if name in shown}
    header = ["", "", "mean", f"{interval:.0%} interval", *(_TITLES[name] for name in columns)]
    rows = []
    for place, (name, row) in enumerate(shown.iterrows(), 1):
        middle = _HEIGHT / 2
        mean, left, right = (
            6 + scale * (float(row[column]) - low) for column in ("mean", "lower", "upper")
        )
        line = (
            f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{middle}" y2="{middle}" '
            f'stroke="{colors.accent}" stroke-width="2"/>'
            if np.isfinite(right - left)
            else ""
        )
        picture = (
            f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="'
            f'{row["lower"]:.2f} to {row["upper"]:.2f}">{line}'
            f'<circle cx="{mean:.1f}" cy="{middle}" r="4" fill="{colors.accent}"/></svg>'
        )
        words = " ".join(map(str, name)) if isinstance(name, tuple) else str(name)
        cells = [
            str(place),
            escape(label(words)),
            signed(row["mean"]),
            picture,
            *(text(shown[column].iloc[place - 1]) for column, text in columns.items()),
        ]
        rows.append("".join(f'<td style="text-align: left">{cell}</td>' for cell in cells))
    hidden = len(table) - len(shown)
    more = f"; {hidden} more items are not shown" if hidden else ""
    head = "".join(f'<th style="text-align: left">{escape(title)}</th>' for title in header)
    return (
        f"<table><caption>{escape(caption)}{more}</caption><thead><tr>{head}</tr></thead><tbody>"
        f"{''.join(f'<tr>{row}</tr>' for row in rows)}</tbody></table>"
    )
