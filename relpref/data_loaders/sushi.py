"""Sushi: rankings and scores by 5000 people in Japan, and facts about them (Kamishima 2003)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from relpref.data.arrays import Floats, Integers, shown
from relpref.data.rankings import Rankings
from relpref.data_loaders.registry import REMEDY, find, read_numbers
from relpref.errors import DataError
from relpref.files import FilePath

# In set A the sushis have numbers of their own; sushi3.idata describes those of set B, which have
# these names.
SET_A = (
    "ebi",
    "anago",
    "maguro",
    "ika",
    "uni",
    "ikura",
    "tamago",
    "toro",
    "tekka_maki",
    "kappa_maki",
)
_ITEM_COLUMNS = (
    "number", "name", "style", "major_group", "minor_group", "oiliness", "eaten", "price", "sold",
)  # fmt: skip
_ATTRIBUTES = ("style", "major_group", "oiliness", "eaten", "price", "sold")
_USER_COLUMNS = (
    "user", "gender", "age", "seconds", "prefecture_before_15", "region_before_15",
    "west_before_15", "prefecture", "region", "west", "moved",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Sushi:
    """Rankings, and facts about sushis and users.

    Attributes
    ----------
    rankings : Rankings
        Labeled ``"east"`` or ``"west"``, the half of Japan where the user lived longest before the
        age of 15 (foreign countries count as west, as in the files). Items are called by their
        Japanese names; their attributes are ``style`` (0 maki, 1 otherwise), ``major_group`` (0
        seafood, 1 otherwise), ``oiliness`` (0, the oiliest, to 4), ``eaten`` (0 to 3, the most
        frequently), ``price`` (normalized) and ``sold`` (0 to 1, the most frequently). Rankers are
        the users' numbers.
    items : DataFrame
        The same attributes and ``minor_group``, a category (0 blue-skinned fish, 1 red meat, 2
        white meat, 3 with sauce, 4 shells, 5 squid and octopus, 6 shrimps and crabs, 7 roe, 8 other
        seafood, 9 egg, 10 other meat, 11 vegetables).
    users : DataFrame
        Index ``user``. Columns ``gender`` (0 male, 1 female), ``age`` (0: 15 to 19, 1: 20 to 29,
        ... 5: 60 and more), ``seconds`` taken by the questionnaire; numbers of
        ``prefecture_before_15``, ``region_before_15`` and ``west_before_15`` (1 for the west),
        where they lived longest before 15; ``prefecture``, ``region``, ``west``, where they live
        now; ``moved`` (1 if the two prefectures differ). The numbers are explained in the README
        that comes with the files.
    scores : array of float64, shape (5000, 100), or None
        Scores of set B: 0 (disliked most) to 4 (preferred most), NaN where not asked.
    """

    rankings: Rankings
    items: pd.DataFrame
    users: pd.DataFrame
    scores: Floats | None


def load(which: Literal["a", "b"] = "a", folder: FilePath | None = None) -> Sushi:
    """Read one of the two sets.

    Parameters
    ----------
    which : {"a", "b"}
        Set A: full rankings of 10 sushis. Set B: each person ranked 10 of 100 sushis
        (non-exhaustive).
    folder : path, optional
        Folder of the files ``sushi3*``; ``$RELPREF_DATA/sushi3-2016`` by default.

    Raises
    ------
    DataError
        If a file is missing, damaged, or from before 2016, when the scores were upside down.
    """
    if which not in ("a", "b"):
        raise DataError(f"which is {shown(which)}; choose 'a' or 'b'")
    items = _items(find("sushi", folder, "sushi3.idata"))
    users = _users(find("sushi", folder, "sushi3.udata"))
    if which == "a":
        items = items.loc[list(SET_A)]
    orders = _orders(find("sushi", folder, f"sushi3{which}.5000.10.order"), len(items), len(users))
    scores = None
    if which == "b":
        scores = _scores(find("sushi", folder, "sushi3b.5000.10.score"), orders, len(items))
    names = items.index.to_numpy()[orders].tolist()
    rankings = Rankings.from_orders(names, items[list(_ATTRIBUTES)], users.index.tolist())
    labels = np.where(users["west_before_15"] == 1, "west", "east")
    return Sushi(rankings.with_labels(labels), items, users, scores)


def _items(file: Path) -> pd.DataFrame:
    table = read_numbers(file, _ITEM_COLUMNS, separator="\t", labels=1).rename_axis("sushi")
    if not set(SET_A) <= set(table.index):
        raise DataError(f"{file}: its names are not those of the 100 sushis; {REMEDY}")
    return table.drop(columns="number").astype({"minor_group": int})


def _users(file: Path) -> pd.DataFrame:
    table = read_numbers(file, _USER_COLUMNS, separator="\t").astype(int)
    if not table["west_before_15"].isin((0, 1)).all() or table["user"].duplicated().any():
        raise DataError(f"{file}: column 7 is not 0 or 1, or a user is there twice; {REMEDY}")
    return table.set_index("user")


def _orders(file: Path, items: int, users: int) -> Integers:
    """Numbers of the items in each ranking, best first, shape (users, 10)."""
    table = read_numbers(file, range(1, 13), header=f"{items} 1")
    if len(table) != users:
        raise DataError(f"{file}: {len(table)} rankings for {users} users; {REMEDY}")
    orders = table.to_numpy()[:, 2:].astype(int)
    right = (orders >= 0) & (orders < items) & (np.diff(np.sort(orders), prepend=-1) > 0)
    if not right.all():
        line = table.index[np.argmin(right.all(axis=1))]
        raise DataError(
            f"{file}, line {line}: ten different sushis below {items} are expected; {REMEDY}"
        )
    return orders


def _scores(file: Path, orders: Integers, items: int) -> Floats:
    """Scores of each user, shape (users, items), NaN where there is none."""
    scores = read_numbers(file, range(1, items + 1)).to_numpy()
    if len(scores) != len(orders) or not np.isin(scores, range(-1, 5)).all():
        raise DataError(f"{file}: expected scores from -1 to 4 of {len(orders)} users; {REMEDY}")
    scores = np.where(scores < 0, np.nan, scores)
    first, last = np.nanmean(np.take_along_axis(scores, orders[:, [0, -1]], axis=1), axis=0)
    if first <= last:
        raise DataError(
            f"{file}: what users rank first has a mean score of {first:.2f}, what they rank last "
            f"{last:.2f}: this is the release from before 2016, whose scores are upside down; get "
            "the current one"
        )
    return scores
