"""Forest plots of rankings: dots with intervals, best at the top, and bands for tiers."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from relpref.posterior.names import distinct
from relpref.posterior.summary import row_name


class Colors(NamedTuple):
    """Colors of text, muted text, lines and bands, and values."""

    ink: str = "#1b2128"
    muted: str = "#59636e"
    faint: str = "#d8dde3"
    accent: str = "#1d6096"


ROW = 22.0  # points from one row to the next
_LONGEST_NAME = 40


def plot_forest(table: pd.DataFrame, top: int, label: str, axes: Any) -> Any:
    """Draw the first rows of a ranking on axes of matplotlib, which are returned.

    The table has the columns mean, lower, upper, and possibly tier.
    """
    shown, tiers = table.head(top), tiers_of(table, top)
    if axes is None:
        from matplotlib import pyplot

        size = (6.8, (ROW * len(shown) + 70) / 72)
        axes = pyplot.subplots(figsize=size, layout="constrained")[1]
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    _, short = names_of(shown)
    # A dollar sign would begin mathematics.
    draw_forest(axes, shown, [name.replace("$", r"\$") for name in short], tiers, Colors())
    axes.set_xlabel(label)
    return axes


def draw_curve(axes: Any, curve: pd.DataFrame, colors: Colors) -> None:
    """Draw a partial effect: a line with a band for the interval."""
    band = {"color": colors.accent, "alpha": 0.18, "linewidth": 0}
    axes.fill_between(curve.index, curve["lower"], curve["upper"], **band)
    axes.plot(curve.index, curve["mean"], color=colors.accent, linewidth=2)
    axes.axhline(0, color=colors.muted, linewidth=1, linestyle=(0, (2, 3)))
    axes.set_xlim(curve.index[0], curve.index[-1])


def names_of(table: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Names of the rows, in full and cut."""
    full = [row_name(name) for name in table.index]
    return full, distinct(full, _LONGEST_NAME)


def tiers_of(table: pd.DataFrame, top: int) -> list[int]:
    """The tier of each of the first rows; none where all rows are in one."""
    tiers = table["tier"].to_numpy() if "tier" in table else np.ones(len(table))
    return [int(tier) for tier in tiers[:top]] if tiers.max(initial=0) > 1 else []


def draw_forest(
    axes: Any, table: pd.DataFrame, names: Sequence[str], tiers: Sequence[int], colors: Colors
) -> None:
    """Rows with their names as the labels of ticks; bands tell tiers apart."""
    rows, ends = np.arange(len(table)), table[["lower", "upper"]].to_numpy(dtype=np.float64)
    axes.hlines(rows, *ends.T, color=colors.accent, linewidth=2.2)
    axes.plot(table["mean"], rows, "o", color=colors.accent, markersize=7)
    finite = ends[np.isfinite(ends)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    if low <= 0 <= high:
        axes.axvline(0, color=colors.muted, linewidth=1, linestyle=(0, (2, 3)))
    margin = 0.04 * (high - low) or 1.0
    axes.set_xlim(low - margin, high + margin)
    axes.set_ylim(len(table) - 0.5, -0.5)
    axes.set_yticks(rows, names, color=colors.ink)
    axes.tick_params(axis="y", length=0)
    # An item about which little is known may be in a tier above that of its neighbors.
    starts = np.flatnonzero(np.diff(tiers, prepend=0))
    for first, after in pairwise([*starts, len(tiers)]):
        tier = tiers[first]
        if tier % 2:
            band = {"color": colors.faint, "alpha": 0.45, "linewidth": 0, "zorder": 0}
            axes.axhspan(first - 0.5, after - 0.5, **band)
        # Between the lines, at the side where the first of them leaves more room, off that at 0.
        lower, upper = ends[first]
        left = lower - low > high - upper and not 0 <= -low < 0.2 * (high - low)
        here = {"transform": axes.get_yaxis_transform(), "ha": "left" if left else "right"}
        at, where = (0.005 if left else 0.995), first - 0.5
        axes.text(at, where, f"tier {tier}", color=colors.muted, va="top", fontsize=9, **here)
