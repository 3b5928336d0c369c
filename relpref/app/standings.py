"""The ranking as bars: who is where, and how sure that is."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from relpref.app import words
from relpref.app.words import Cut

if TYPE_CHECKING:
    import pandas as pd

TOP, PAGE = 10, 100


@dataclass(frozen=True)
class View:
    """Which part of the ranking is wanted."""

    most: int = TOP
    start: int = 0
    find: str = ""


@dataclass(frozen=True)
class Row:
    """One entity: positions in percent of the width, values relative to the average; the ends are empty where nobody worked them out."""

    key: str
    rank: int
    name: Cut
    mean: str
    lower: str
    upper: str
    at: float
    begin: float
    width: float


@dataclass(frozen=True)
class Standings:
    """The part of the ranking that is shown.

    Attributes
    ----------
    view : View
    rows : list of Row
    total, found : int
        Entities, and those whose name contains what was looked for.
    zero : float
        Where the average lies, in percent.
    previous, following : View or None
        The parts before and after.
    top, all : View
        Where else one may look.
    """

    view: View
    rows: list[Row]
    total: int
    found: int
    zero: float
    previous: View | None
    following: View | None
    top = View()
    all = View(PAGE)


def standings(ranking: "pd.DataFrame", view: View) -> Standings:
    """Cut the part out of a ranking that is wanted.

    Parameters
    ----------
    ranking : DataFrame
        Columns mean, lower, upper by entity, best first; NaN where an interval was not worked out.
    view : View
    """
    labels = ranking.index
    mean, lower, upper = (ranking[name].to_numpy() for name in ("mean", "lower", "upper"))
    needle = " ".join(view.find.split()).casefold()
    which: Sequence[int] = range(len(labels))
    if needle:
        which = [at for at, label in enumerate(labels) if needle in str(label).casefold()]
    shown = which[view.start : view.start + view.most]
    known = ~np.isnan(lower)
    lower, upper = np.where(known, lower, mean), np.where(known, upper, mean)
    low, high = min(lower[shown].min(initial=0), 0), max(upper[shown].max(initial=0), 0)
    scale = 100 / (high - low) if high > low else 0.0
    rows = [
        Row(
            key=hashlib.blake2s(repr(labels[at]).encode("utf-8", "replace"), digest_size=8).hexdigest(),
            rank=at + 1,
            name=words.name(labels[at]),
            mean=_signed(mean[at]),
            lower=_signed(lower[at]) if known[at] else "",
            upper=_signed(upper[at]) if known[at] else "",
            at=round(scale * (mean[at] - low), 2),
            begin=round(scale * (lower[at] - low), 2),
            width=round(scale * (upper[at] - lower[at]), 2),
        )
        for at in shown
    ]
    before, after = view.start - view.most, view.start + view.most
    return Standings(
        view,
        rows,
        len(labels),
        len(which),
        round(-scale * low, 2),
        View(view.most, max(before, 0), view.find) if view.start > 0 else None,
        View(view.most, after, view.find) if view.most > TOP and after < len(which) else None,
    )


def _signed(value: np.float64) -> str:
    text = f"{value:+.2f}"
    return "0.00" if float(text) == 0 else text.replace("-", "−")
