"""Data sets that come with the package or with scikit-learn: how people travelled, and handwritten digits."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd

from relpref.data.arrays import listed
from relpref.errors import DataError

MODES = ("air", "train", "bus", "car")
# The timetable's terminal times of one of the two kinds of trips; the other kind has 64, 44 and 53 minutes.
_FIRST_ROUTE = {("air", 69), ("train", 34), ("bus", 35)}
_INCOME_APART = 5  # thousands of dollars
_LARGE_PARTY = 3


@dataclass(frozen=True, eq=False)
class ModeChoice:
    """The tables, ready for `relpref.PreferenceData.from_tables`.

    Attributes
    ----------
    entities : DataFrame, 840 rows
        The four alternatives of each traveler, labeled like ``t017:train``; columns ``terminal_time`` and ``travel_time``
        (minutes) and ``cost`` (dollars), typical of that mode on that kind of trip.
    comparisons : DataFrame, 630 rows
        ``winner`` is what a traveler chose, ``loser`` each of the other three. The three rows of one traveler are one
        choice, which ``list`` names: they are not independent.
    relations : dict
        ``mode`` joins two alternatives of the same mode if their travelers resemble each other: household incomes at most
        5000 dollars apart and parties of the same size (three or more count as one size).
    traveler, mode : Series, 840 entries
        To whom each entity belongs (``t017``), and which mode it is.
    travelers : DataFrame, 210 rows
        ``income`` (thousands of dollars), ``party`` (people), ``route`` (``A`` or ``B``) and the mode that was ``chosen``.
    """

    entities: pd.DataFrame
    comparisons: pd.DataFrame
    relations: dict[str, pd.DataFrame]
    traveller: pd.Series
    mode: pd.Series
    travellers: pd.DataFrame


def load_modechoice() -> ModeChoice:
    """Load the bundled table (Greene & Hensher 1997; public domain).

    Returns
    -------
    ModeChoice
        See there.

    Notes
    -----
    Every time and cost in the table is a trap. Those of the three alternatives that a traveler did not choose come from
    timetables and networks; those of the chosen one are the traveller's own report: round numbers, and an hour or two below the
    network's time on land. Whoever gives them to a flexible model as they are lets it read the choice off the attributes (the
    terminal times give away all 210 choices: a mode was taken whenever its time is not the timetable's, the car otherwise).
    So every alternative here has what is typical of its mode on its kind of trip, the median over those who did *not* choose
    it: equal for the traveler who did and for the one who did not. The two kinds of trips, A and B, are told apart by the
    terminal times of the timetable.

    Generalized cost is left out: it is cost plus time at a fixed rate. Income and party size are no attributes of an alternative
    either: they are the same for all four alternatives of a traveler, so they matter only together with the mode.
    They decide who resembles whom, and so which alternatives the relation joins.

    The sample was drawn by choice: how often a mode occurs says nothing about how popular it is.
    """
    table = _read()
    not_chosen = table[table["choice"] == 0]
    timetable = pd.Series(
        [pair in _FIRST_ROUTE for pair in zip(not_chosen["mode"], not_chosen["ttme"], strict=True)],
        index=not_chosen["traveller"],
    )
    first = timetable.groupby(level=0).any()
    table["route"] = np.where(first.loc[table["traveller"]].to_numpy(), "A", "B")

    chosen = table[table["choice"] == 1].set_index("traveller")
    travellers = chosen[["hinc", "psize", "route", "mode"]].set_axis(
        ["income", "party", "route", "chosen"], axis=1
    )
    offers = table.assign(entity=table["traveller"] + ":" + table["mode"]).set_index("entity")
    return ModeChoice(
        entities=_typical(offers),
        comparisons=_comparisons(offers),
        relations={"mode": _alike(offers)},
        traveller=offers["traveller"],
        mode=offers["mode"],
        travellers=travellers,
    )


def _read() -> Any:
    with (files("relpref.data_loaders") / "tables" / "modechoice.csv").open("rb") as file:
        table = pd.read_csv(file)
    table["traveller"] = [f"t{number:03d}" for number in table["individual"]]
    table["mode"] = [MODES[number - 1] for number in table["mode"]]
    return table


def _typical(offers: Any) -> Any:
    """Medians over the alternatives of the same mode and route that were not chosen."""
    columns = {"ttme": "terminal_time", "invc": "cost", "invt": "travel_time"}
    kinds = ["mode", "route"]
    medians = offers[offers["choice"] == 0].groupby(kinds)[list(columns)].median()
    return offers[kinds].join(medians, on=kinds)[list(columns)].rename(columns=columns)


def _comparisons(offers: Any) -> Any:
    chosen = offers[offers["choice"] == 1].reset_index().set_index("traveller")["entity"]
    others = offers[offers["choice"] == 0]
    traveller = others["traveller"].to_numpy()
    return pd.DataFrame(
        {"winner": chosen.loc[traveller].to_numpy(), "loser": others.index.to_numpy(), "list": traveller}
    )


def _alike(offers: Any) -> Any:
    # Why not simply join all alternatives of a mode: the Laplacian of a complete graph of s nodes and weights w has no other
    # eigenvalues than 0 and s·w, so its kernel is one effect shared by the mode plus one value for each alternative alone. No
    # choice of w changes that, nor what is learned: the prior of the range is scaled by 1/√(mean degree), and w cancels. The
    # graph has something to say only if it tells near from far.
    edges = []
    for mode in MODES:
        of_mode = offers[offers["mode"] == mode]
        income, party = of_mode["hinc"].to_numpy(), np.minimum(of_mode["psize"].to_numpy(), _LARGE_PARTY)
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
        Gray values between 0 and 1, a row for each image, of digits that are known and of those kept apart.
    relation, new_relation : DataFrame, shape (n, n)
        1 where two images show the same digit, 0 elsewhere; NaN on the diagonal (no image is compared with itself).
    digits, new_digits : Series
        What each image shows.
    """

    images: pd.DataFrame
    relation: pd.DataFrame
    digits: pd.Series
    new_images: pd.DataFrame
    new_relation: pd.DataFrame
    new_digits: pd.Series


def load_same_digit(new: Sequence[int] = (7, 8, 9), *, size: int | None = None, seed: int = 0) -> SameDigit:
    """Load scikit-learn's 1797 images of 8 x 8 pixels (a part of Alpaydin & Kaynak's set, UCI).

    Parameters
    ----------
    new : sequence of int
        Digits of which no image is known: their images are new conditioning nodes and new objects (setting 4). The others are known.
    size : int, optional
        Draw so many images of each of the two groups; by default take all.
    seed : int
        Of that draw.

    Returns
    -------
    SameDigit

    Raises
    ------
    DataError
        If ``new`` is not a choice among the digits that leaves at least two on both sides, or there are fewer images.
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
                    f"{listed(int(digit) for digit in np.unique(bunch.target[rows]))}: take 2 to {len(rows)}"
                )
            rows = np.sort(rng.choice(rows, size, replace=False))
        labels = pd.Index([f"image_{row:04d}" for row in rows], name="image")
        shown = pd.Series(bunch.target[rows], index=labels, name="digit")
        pixels = pd.DataFrame(bunch.data[rows] / _LARGEST, index=labels, columns=bunch.feature_names)
        same = (shown.to_numpy()[:, None] == shown.to_numpy()[None, :]).astype(np.float64)
        np.fill_diagonal(same, np.nan)
        parts.append((pixels, pd.DataFrame(same, index=labels, columns=labels), shown))
    return SameDigit(*parts[0], *parts[1])
