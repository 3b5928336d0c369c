"""A data set that comes with the package: modes of travel."""

from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import pandas as pd

MODES = ("air", "train", "bus", "car")
# The timetable's terminal times of one of the two kinds of trips; the other kind has 64, 44 and 53
# minutes.
_FIRST_ROUTE = {("air", 69), ("train", 34), ("bus", 35)}
_INCOME_APART = 5  # thousands of dollars
_LARGE_PARTY = 3


@dataclass(frozen=True, eq=False)
class ModeChoice:
    """Choices of travel modes as tables for `relpref.PreferenceData.from_tables`.

    Attributes
    ----------
    items : DataFrame, 840 rows
        The four alternatives of each traveler, labeled like ``t017:train``; columns
        ``terminal_time`` and ``travel_time`` (minutes) and ``cost`` (dollars), typical of that mode
        on that kind of trip.
    answers : DataFrame, 840 rows
        The four alternatives of each ``choice``, that of a traveler: the ``item``, and whether it
        was ``chosen``.
    relations : dict
        ``mode`` joins two alternatives of the same mode if their travelers resemble each other:
        household incomes at most 5000 dollars apart and parties of the same size (three or more
        count as one size).
    traveler, mode : Series, 840 entries
        The traveler (``t017``) and the mode of each item.
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
    Times and costs in the table give the choices away. Those of the three alternatives that a
    traveler did not choose come from timetables and networks; those of the chosen one are the
    traveler's own report: round numbers, and an hour or two below the network's time on land. A
    flexible model reads the choice off them (the terminal times determine all 210 choices). So
    every alternative here has the attributes that are typical of its mode on its kind of trip, the
    median over travelers who did *not* choose it, whether it was chosen or not. The terminal times
    of the timetable distinguish the two kinds of trips, A and B.

    Generalized cost is left out: it is cost plus time at a fixed rate. Income and party size are
    the same for all four alternatives of a traveler: they determine the similarity of travelers,
    and so the alternatives that the relation joins.

    The sample was drawn by choice: the frequency of a mode does not show its popularity.
    """
    with (files("relpref.data_loaders") / "tables" / "modechoice.csv").open("rb") as file:
        table = pd.read_csv(file)
    table["traveler"] = [f"t{number:03d}" for number in table["individual"]]
    table["mode"] = [MODES[number - 1] for number in table["mode"]]
    table = table.set_index((table["traveler"] + ":" + table["mode"]).rename("entity"))
    chosen = table["choice"] == 1
    first = [pair in _FIRST_ROUTE for pair in zip(table["mode"], table["ttme"], strict=True)]
    route_a = (~chosen & np.array(first)).groupby(table["traveler"]).transform("any")
    table["route"] = np.where(route_a, "A", "B")

    travelers = table[chosen].set_index("traveler")[["hinc", "psize", "route", "mode"]]
    travelers.columns = ["income", "party", "route", "chosen"]
    others = table[~chosen]
    answers = {"choice": table["traveler"], "item": table.index, "chosen": chosen}
    kinds = ["mode", "route"]
    columns = {"ttme": "terminal_time", "invc": "cost", "invt": "travel_time"}
    medians = others.groupby(kinds)[list(columns)].median().rename(columns=columns)
    return ModeChoice(
        items=table[kinds].join(medians, on=kinds)[list(columns.values())],
        answers=pd.DataFrame(answers).reset_index(drop=True),
        relations={"mode": _relation(travelers)},
        traveler=table["traveler"],
        mode=table["mode"],
        travelers=travelers,
    )


def _relation(travelers: pd.DataFrame) -> pd.DataFrame:
    """Join alternatives of the same mode whose travelers have similar incomes and parties.

    Not all alternatives of a mode are joined: the Laplacian of a complete graph has a single
    eigenvalue but 0, so its kernel is one effect shared by the mode plus one value for each
    alternative alone, whatever the weights. The graph is informative only if it distinguishes near
    from far.
    """
    i, j = np.triu_indices(len(travelers), 1)
    income = travelers["income"].to_numpy()
    party = np.minimum(travelers["party"].to_numpy(), _LARGE_PARTY)
    joined = (party[i] == party[j]) & (np.abs(income[i] - income[j]) <= _INCOME_APART)
    names = travelers.index.to_numpy(dtype=object)
    source, target = names[i[joined]], names[j[joined]]
    edges = [pd.DataFrame({"source": source, "target": target}) + f":{mode}" for mode in MODES]
    return pd.concat(edges, ignore_index=True)
