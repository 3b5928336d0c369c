"""The two pictures of the page: utilities with their intervals, and what each part contributes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relpref.report.svg import ACCENT, AGAINST, FAINT, INK, MUTED, axes_without_y, canvas
from relpref.report.text import fixed, percent, shorten

_WIDTH = 680.0
_ROW = 22.0
_LETTER = 6.9  # mean width of a letter, in points, at the size of the row names
_LONGEST_NAME = 30


@dataclass(frozen=True)
class Line:
    """One row of the forest plot.

    Attributes
    ----------
    name, title : str
        Short and whole.
    place : int
        1 is best.
    middle, lower, upper : float
    """

    name: str
    title: str
    place: int
    middle: float
    lower: float
    upper: float


def forest(lines: Sequence[Line], name: str, description: str, interval: float) -> str:
    """Utilities with intervals, best at the top; a gap in the places is drawn as one."""
    gaps = [row for row in range(1, len(lines)) if lines[row].place > lines[row - 1].place + 1]
    height = [float(row) + sum(row >= gap for gap in gaps) for row in range(len(lines))]
    rows = len(lines) + len(gaps)
    names = [shorten(line.name, _LONGEST_NAME) for line in lines]
    places = 9 + _LETTER * max(len(str(line.place)) for line in lines)
    left = _margin(names) + places
    size = (_WIDTH, rows * _ROW + 52)
    with canvas(*size) as drawing:
        axes = axes_without_y(drawing.figure, (left, 46, _WIDTH - left - 14, rows * _ROW))
        axes.set_ylim(rows - 0.5, -0.5)
        axes.set_xlim(*_limits([line.lower for line in lines], [line.upper for line in lines]))
        axes.axvline(0, color=MUTED, linewidth=1, linestyle=(0, (2, 3)))
        side = axes.get_yaxis_transform()
        for line, y, shown in zip(lines, height, names, strict=True):
            axes.plot([line.lower, line.upper], [y, y], color=ACCENT, linewidth=2.2, solid_capstyle="round")
            axes.plot([line.middle], [y], marker="o", markersize=7, color=ACCENT, markeredgewidth=0)
            here = {"transform": side, "va": "center_baseline", "fontsize": 12, "clip_on": False}
            word = drawing.words(shown, line.title)
            offset = 10 / (_WIDTH - left - 14)
            axes.text(-offset - places / (_WIDTH - left - 14), y, word, ha="right", color=INK, **here)
            axes.text(-offset, y, str(line.place), ha="right", color=MUTED, **here)
        for gap in gaps:
            y = height[gap] - 1
            hidden = lines[gap].place - lines[gap - 1].place - 1
            word = drawing.words(f"{hidden} more, not shown")
            axes.axhline(y, color=FAINT, linewidth=1)
            axes.text(0.5, y, word, transform=side, ha="center", va="bottom", fontsize=11, color=MUTED)
        axes.set_xlabel(f"utility less the average of all, with {interval:.0%} intervals", labelpad=8)
        return drawing.svg(name, "Utilities with intervals", description)


def bars(names: Sequence[str], values: ArrayLike, name: str, description: str) -> str:
    """Shares as horizontal bars, each with its number."""
    shares: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    shown = [shorten(text, _LONGEST_NAME) for text in names]
    left = _margin(shown) + 10
    height = len(names) * 30.0
    with canvas(_WIDTH, height + 52) as drawing:
        width = _WIDTH - left - 70
        axes = axes_without_y(drawing.figure, (left, 46, width, height))
        axes.set_ylim(len(names) - 0.5, -0.5)
        low, high = min(0.0, float(shares.min())), max(1.0, float(shares.max()))
        axes.set_xlim(low, high)
        axes.barh(range(len(names)), shares, height=0.56, color=[ACCENT if s >= 0 else AGAINST for s in shares])
        axes.axvline(0, color=MUTED, linewidth=1)
        here = {"va": "center_baseline", "fontsize": 12, "clip_on": False}
        for row, (text, title, share) in enumerate(zip(shown, names, shares, strict=True)):
            word = drawing.words(text, title)
            axes.text(-10 / width, row, word, transform=axes.get_yaxis_transform(), ha="right", color=INK, **here)
            number = drawing.words(signed_percent(share))
            axes.text(max(share, 0) + 8 / width * (high - low), row, number, ha="left", color=INK, **here)
        ticks = [tick for tick in axes.get_xticks() if low - 1e-9 <= tick <= high + 1e-9]
        axes.set_xticks(ticks, [f"{fixed(100 * tick, 0)}%" for tick in ticks])
        axes.set_xlabel("share of the spread between the entities", labelpad=8)
        return drawing.svg(name, "What the utilities rest on", description)


def signed_percent(share: float) -> str:
    """A share, which may be negative or above 1."""
    if not 0 <= share <= 1:
        return f"{fixed(100 * share, 0)}%"
    return percent(share)


def _margin(names: Sequence[str]) -> float:
    """Room for names, wide letters included."""
    letters = [sum(1.75 if ord(letter) > 0x2E80 else 1.0 for letter in text) for text in names]
    return 14 + _LETTER * max(letters, default=0.0)


def _limits(lower: Sequence[float], upper: Sequence[float]) -> tuple[float, float]:
    low, high = min(0.0, *lower), max(0.0, *upper)
    room = 0.03 * (high - low) or 1.0
    return low - room, high + room
