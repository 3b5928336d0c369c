"""Data sets that come with the package or with scikit-learn: how people traveled, and handwritten digits."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd

from relpref.data.arrays import listed
from relpref.errors import DataError

MODES = ("air", "train", "bus", "car")
# The timetable's terminal times of one of the two kinds of trips; the other kind has 64, 44 and 53
# minutes.
_FIRST_ROUTE = {("air", 69), ("train", 34), ("bus", 35)}
_INCOME_APART = 5  # thousands of dollars
_LARGE_PARTY = 3


@dataclass(frozen=True, eq=False)
class ModeChoice:
    """The tables, ready for `relpref.PreferenceData.from_tables`.

    Attributes
    ----------
    items : DataFrame, 840 rows
        The four alternatives of each traveler, labeled like ``t017:train``; columns
        ``terminal_time`` and ``travel_time`` (minutes) and ``cost`` (dollars), typical of that mode
        on that kind of trip.
    answers : DataFrame, 630 rows
        ``winner`` is what a traveler chose, ``loser`` each of the other three. The three rows of
        one traveler are one choice, which ``list`` names: they are not independent.
    relations : dict
        ``mode`` joins two alternatives of the same mode if their travelers resemble each other:
        household incomes at most 5000 dollars apart and parties of the same size (three or more
        count as one size).
    traveler, mode : Series, 840 entries
        To whom each item belongs (``t017``), and which mode it is.
    travelers : DataFrame, 210 rows
        ``income`` (thousands of dollars), ``party`` (people), ``route`` (``A`` or ``B``) and the
        mode that was ``chosen``.
    """

    items: pd.DataFrame
    answers: pd.DataFrame
    relations: dict[str, pd.DataFrame]
    traveler: pd.Series
    mode: pd.Series
    travelers: pd.DataFrame


def load_modechoice() -> ModeChoice:
    """Load the bundled table (Greene & Hensher 1997; public domain).

    Notes
    -----
    Every time and cost in the table is a trap. Those of the three alternatives that a traveler did
    not choose come from timetables and networks; those of the chosen one are the traveler's own
    report: round numbers, and an hour or two below the network's time on land. A flexible model
    that is given them reads the choice off the attributes (the terminal times give away all 210
    choices). So every alternative here has what is typical of its mode on its kind of trip, the
    median over those who did
    *not* choose it: equal for the traveler who did and for the one who did not. The two kinds of trips, A and B, are told apart by
    the terminal times of the timetable.

    Generalized cost is left out: it is cost plus time at a fixed rate. Income and party size are
    the same for all four alternatives of a traveler: they decide the similarity of travelers, and
    so which alternatives the relation joins.

    The sample was drawn by choice: how often a mode occurs says nothing about how popular it is.
    """
    with (files("relpref.data_loaders") / "tables" / "modechoice.csv").open("rb") as file:
        table = pd.read_csv(file)
    table["traveller"] = [f"t{number:03d}" for number in table["individual"]]
    table["mode"] = [MODES[number - 1] for number in table["mode"]]
    not_chosen = table[table["choice"] == 0]
    timetable = pd.Series(
        [pair in _FIRST_ROUTE for pair in zip(not_chosen["mode"], not_chosen["ttme"], strict=True)],
        index=not_chosen["traveller"],
    )
    first = timetable.groupby(level=0).any()
    table["route"] = np.where(first.loc[table["traveller"]].to_numpy(), "A", "B")

    chosen = table[table["choice"] == 1].set_index("traveller")
    travelers = chosen[["hinc", "psize", "route", "mode"]].set_axis(
        ["income", "party", "route", "chosen"], axis=1
    )
    offers = table.assign(entity=table["traveller"] + ":" + table["mode"]).set_index("entity")
    # Of the same mode and route, where it was not chosen.
    columns, kinds = (
        {"ttme": "terminal_time", "invc": "cost", "invt": "travel_time"},
        ["mode", "route"],
    )
    others = offers[offers["choice"] == 0]
    medians = others.groupby(kinds)[list(columns)].median()
    taken = offers[offers["choice"] == 1].reset_index().set_index("traveller")["entity"]
    winner = taken.loc[others["traveller"]].to_numpy()
    answers = {
        "winner": winner,
        "loser": others.index.to_numpy(),
        "list": others["traveller"].to_numpy(),
    }
    return ModeChoice(
        items=offers[kinds].join(medians, on=kinds)[list(columns)].rename(columns=columns),
        answers=pd.DataFrame(answers),
        relations={"mode": _alike(offers)},
        traveler=offers["traveller"],
        mode=offers["mode"],
        travelers=travelers,
    )


def _alike(offers: Any) -> Any:
    # Not all alternatives of a mode: the Laplacian of a complete graph has a single eigenvalue but
    # 0, so its kernel is one effect shared by the mode plus one value for each alternative alone,
    # whatever the weights. The graph has something to say only if it tells near from far.
    edges = []
    for mode in MODES:
        of_mode = offers[offers["mode"] == mode]
        income, party = (
            of_mode["hinc"].to_numpy(),
            np.minimum(of_mode["psize"].to_numpy(), _LARGE_PARTY),
        )
        i, j = np.triu_indices(len(of_mode), 1)
        joined = (party[i] == party[j]) & (np.abs(income[i] - income[j]) <= _INCOME_APART)
        labels = of_mode.index.to_numpy()
        edges.append(pd.DataFrame({"source": labels[i[joined]], "target": labels[j[joined]]}))
    return pd.concat(edges, ignore_index=True)


_LARGEST = 16.0  # gray value of a pixel


@dataclass(frozen=True, eq=False)
class SameDigit:
    """Images, and which of them show the same digit.

    Attributes
    ----------
    images, new_images : DataFrame, shape (n, 64)
        Gray values between 0 and 1, a row for each image, of digits that are known and of those
        kept apart.
    relation, new_relation : DataFrame, shape (n, n)
        1 where two images show the same digit, 0 elsewhere; NaN on the diagonal (no image is
        compared with itself).
    digits, new_digits : Series
        What each image shows.
    """

    images: pd.DataFrame
    relation: pd.DataFrame
    digits: pd.Series
    new_images: pd.DataFrame
    new_relation: pd.DataFrame
    new_digits: pd.Series


def load_same_digit(
    new: Sequence[int] = (7, 8, 9), *, size: int | None = None, seed: int = 0
) -> SameDigit:
    """Load scikit-learn's 1797 images of 8 x 8 pixels (a part of Alpaydin & Kaynak's set, UCI).

    Parameters
    ----------
    new : sequence of int
        Digits of which no image is known: their images are new conditioning nodes and new objects
        (setting 4). The others are known.
    size : int, optional
        Draw so many images of each of the two groups; by default take all.
    seed : int
        Of that draw.

    Raises
    ------
    DataError
        If ``new`` does not leave at least two digits on both sides, or there are fewer images.
    """
    chosen = set(new)
    if not chosen <= set(range(10)) or len(chosen) != len(new) or not 2 <= len(chosen) <= 8:
        raise DataError(f"new is {list(new)}; name two to eight different digits of 0 to 9")
    from sklearn.datasets import load_digits

    bunch = load_digits()
    apart = np.isin(bunch.target, list(chosen))
    rng = np.random.default_rng(seed)
    parts = []
    for rows in (np.flatnonzero(~apart), np.flatnonzero(apart)):
        if size is not None:
            if not 2 <= size <= len(rows):
                raise DataError(
                    f"size is {size}; there are {len(rows)} images of the digits "
                    f"{listed(int(digit) for digit in np.unique(bunch.target[rows]))}: take 2 to "
                    f"{len(rows)}"
                )
            rows = np.sort(rng.choice(rows, size, replace=False))
        labels = pd.Index([f"image_{row:04d}" for row in rows], name="image")
        shown = pd.Series(bunch.target[rows], index=labels, name="digit")
        pixels = pd.DataFrame(
            bunch.data[rows] / _LARGEST, index=labels, columns=bunch.feature_names
        )
        same = (shown.to_numpy()[:, None] == shown.to_numpy()[None, :]).astype(np.float64)
        np.fill_diagonal(same, np.nan)
        parts.append((pixels, pd.DataFrame(same, index=labels, columns=labels), shown))
    return SameDigit(*parts[0], *parts[1])
