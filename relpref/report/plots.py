"""The shape of a picture, and shares as bars, which ArviZ does not draw.

Each picture is drawn twice, for a screen as wide as a page and for one as narrow as a phone; the style sheet shows the one that fits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relpref.report.svg import ACCENT, AGAINST, INK, MUTED, axes_without_y, canvas
from relpref.report.text import fixed, shorten, signed_percent

LETTER = 6.9  # mean width of a letter, in points, at the size of the row names
BOTTOM = 46.0  # room for the numbers and the words under the axis


@dataclass(frozen=True)
class Shape:
    """How wide a picture is, and how long its names may be."""

    width: float
    longest_name: int
    narrow: bool


WIDE, NARROW = Shape(680.0, 30, False), Shape(360.0, 16, True)


def bars(names: Sequence[str], values: ArrayLike, name: str, description: str, shape: Shape = WIDE) -> str:
    """Shares as horizontal bars, each with its number."""
    shares: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    shown = [shorten(text, shape.longest_name) for text in names]
    left, up = margin(shown) + 10, len(names) * 30.0
    across = shape.width - left - 60
    low, high = min(0.0, float(shares.min())), max(1.0, float(shares.max()))
    with canvas(shape.width, up + BOTTOM + 6) as drawing:
        axes = axes_without_y(drawing.figure, (left, BOTTOM, across, up))
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlim(low, high)
        axes.locator_params(axis="x", nbins=4 if shape.narrow else 7)
        axes.barh(
            range(len(names)), shares, height=0.56, color=[ACCENT if s >= 0 else AGAINST for s in shares]
        )
        axes.axvline(0, color=MUTED, linewidth=1)
        here = {"va": "center_baseline", "fontsize": 12, "clip_on": False, "color": INK}
        for row, (text, title, share) in enumerate(zip(shown, names, shares, strict=True)):
            word = drawing.words(text, title)
            axes.text(-10 / across, row, word, transform=axes.get_yaxis_transform(), ha="right", **here)
            beyond = max(float(share), 0.0) + 8 / across * (high - low)
            axes.text(beyond, row, drawing.words(signed_percent(share)), ha="left", **here)
        ticks = [tick for tick in axes.get_xticks() if low - 1e-9 <= tick <= high + 1e-9]
        axes.set_xticks(ticks, [f"{fixed(100 * tick, 0)}%" for tick in ticks])
        label = "share of the spread" if shape.narrow else "share of the spread between the entities"
        axes.set_xlabel(drawing.words(label), labelpad=8)
        return drawing.svg(name, "What the utilities rest on", description, narrow=shape.narrow)


def margin(names: Sequence[str]) -> float:
    """Room for names, wide letters included."""
    letters = [sum(1.75 if ord(letter) > 0x2E80 else 1.0 for letter in text) for text in names]
    return 14 + LETTER * max(letters, default=0.0)
