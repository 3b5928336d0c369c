"""The two pictures of the page: utilities with their intervals, and what each part contributes.

Each is drawn twice, for a screen as wide as a page and for one as narrow as a phone; the style sheet shows the one that fits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relpref.report.svg import ACCENT, AGAINST, FAINT, INK, MUTED, axes_without_y, canvas
from relpref.report.text import fixed, shorten, signed_percent

_LETTER = 6.9  # mean width of a letter, in points, at the size of the row names
_BOTTOM = 46.0  # room for the numbers and the words under the axis


@dataclass(frozen=True)
class Shape:
    """How wide a picture is, and how long its names may be."""

    width: float
    longest_name: int
    narrow: bool


WIDE, NARROW = Shape(680.0, 30, False), Shape(360.0, 16, True)


@dataclass(frozen=True)
class Line:
    """One row of the forest plot.

    Attributes
    ----------
    name : str
        In full; the picture shows what it has room for.
    place : int
        1 is best.
    middle, lower, upper : float
    """

    name: str
    place: int
    middle: float
    lower: float
    upper: float


def forest(lines: Sequence[Line], name: str, description: str, interval: float, shape: Shape = WIDE) -> str:
    """Utilities with intervals, best at the top; a gap in the places is drawn as one."""
    gaps = [row for row in range(1, len(lines)) if lines[row].place > lines[row - 1].place + 1]
    height = [float(row) + sum(row >= gap for gap in gaps) for row in range(len(lines))]
    rows = len(lines) + len(gaps)
    names = [shorten(line.name, shape.longest_name) for line in lines]
    hidden = [f"… {lines[gap].place - lines[gap - 1].place - 1} not shown" for gap in gaps]
    places = 9 + _LETTER * max(len(str(line.place)) for line in lines)
    left = _margin([*names, *hidden]) + places
    across, up = shape.width - left - 14, rows * 22.0
    with canvas(shape.width, up + _BOTTOM + 6) as drawing:
        axes = axes_without_y(drawing.figure, (left, _BOTTOM, across, up))
        axes.set_ylim(rows - 0.5, -0.5)
        axes.set_xlim(*_limits(lines))
        axes.locator_params(axis="x", nbins=5 if shape.narrow else 9)
        axes.axvline(0, color=MUTED, linewidth=1, linestyle=(0, (2, 3)))
        side = axes.get_yaxis_transform()
        lower, upper, middle = (
            [getattr(line, end) for line in lines] for end in ("lower", "upper", "middle")
        )
        axes.hlines(height, lower, upper, color=ACCENT, linewidth=2.2, capstyle="round")
        axes.plot(middle, height, linestyle="none", marker="o", markersize=7, color=ACCENT, markeredgewidth=0)
        here = {"transform": side, "ha": "right", "va": "center_baseline", "fontsize": 12, "clip_on": False}
        for line, y, shown in zip(lines, height, names, strict=True):
            axes.text(-(10 + places) / across, y, drawing.words(shown, line.name), color=INK, **here)
            axes.text(-10 / across, y, str(line.place), color=MUTED, **here)
        for gap, words in zip(gaps, hidden, strict=True):
            axes.axhline(height[gap] - 1, color=FAINT, linewidth=1)
            axes.text(-(10 + places) / across, height[gap] - 1, drawing.words(words), color=MUTED, **here)
        label = "utility" if shape.narrow else "utility less the average of all"
        axes.set_xlabel(drawing.words(f"{label}, with {interval:.0%} intervals"), labelpad=8)
        return drawing.svg(name, "Utilities with intervals", description, narrow=shape.narrow)


def bars(names: Sequence[str], values: ArrayLike, name: str, description: str, shape: Shape = WIDE) -> str:
    """Shares as horizontal bars, each with its number."""
    shares: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    shown = [shorten(text, shape.longest_name) for text in names]
    left, up = _margin(shown) + 10, len(names) * 30.0
    across = shape.width - left - 60
    low, high = min(0.0, float(shares.min())), max(1.0, float(shares.max()))
    with canvas(shape.width, up + _BOTTOM + 6) as drawing:
        axes = axes_without_y(drawing.figure, (left, _BOTTOM, across, up))
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


def _margin(names: Sequence[str]) -> float:
    """Room for names, wide letters included."""
    letters = [sum(1.75 if ord(letter) > 0x2E80 else 1.0 for letter in text) for text in names]
    return 14 + _LETTER * max(letters, default=0.0)


def _limits(lines: Sequence[Line]) -> tuple[float, float]:
    low, high = min(0.0, *(line.lower for line in lines)), max(0.0, *(line.upper for line in lines))
    room = 0.03 * (high - low) or 1.0
    return low - room, high + room
