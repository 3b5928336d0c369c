"""What 5000 people in Japan think of sushi: rankings, scores, and who they are (Kamishima 2003)."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import shown
from relpref.data.rankings import Rankings
from relpref.data_loaders.registry import find
from relpref.errors import DataError
from relpref.files import reading

# In set A the sushis have numbers of their own; sushi3.idata describes those of set B, which have these names.
SET_A = ("ebi", "anago", "maguro", "ika", "uni", "ikura", "tamago", "toro", "tekka_maki", "kappa_maki")
_ITEM_COLUMNS = (
    "number", "name", "style", "major_group", "minor_group", "oiliness", "eaten", "price", "sold",
)  # fmt: skip
_ATTRIBUTES = ("style", "major_group", "oiliness", "eaten", "price", "sold")
_USER_COLUMNS = (
    "user", "gender", "age", "seconds", "prefecture_before_15", "region_before_15", "west_before_15",
    "prefecture", "region", "west", "moved",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Sushi:
    """Rankings and what is known of sushis and users.

    Attributes
    ----------
    rankings : Rankings
        Labelled ``"east"`` or ``"west"``, the half of Japan where the user lived longest before the age of 15 (foreign countries
        count as west, as in the files). Items are called by their Japanese names in Roman letters; their attributes are ``style``
        (0 maki, 1 otherwise), ``major_group`` (0 seafood, 1 otherwise), ``oiliness`` (0 to 4, 0 the oiliest), ``eaten`` (0 to 3, 3
        the most frequently), ``price`` (normalised) and ``sold`` (0 to 1, 1 the most frequently). Rankers are the users' numbers.
    items : DataFrame
        The same attributes and ``minor_group``, a category (0 blue-skinned fish, 1 red meat, 2 white meat, 3 with sauce, 4 shells, 5
        squid and octopus, 6 shrimps and crabs, 7 roe, 8 other seafood, 9 egg, 10 other meat, 11 vegetables).
    users : DataFrame
        Index ``user``. Columns ``gender`` (0 male, 1 female), ``age`` (0: 15 to 19, 1: 20 to 29, ... 5: 60 and more), ``seconds``
        taken by the questionnaire; numbers of ``prefecture_before_15``, ``region_before_15`` and ``west_before_15`` (1 for the
        west), where they lived longest before 15; ``prefecture``, ``region``, ``west``, where they live now; ``moved`` (1 if the
        two prefectures differ). The numbers of prefectures and regions are explained in the README that comes with the files.
    scores : array of float64, shape (5000, 100), or None
        Of set B: 0 (disliked most) to 4 (preferred most), NaN where not asked.
    """

    rankings: Rankings
    items: pd.DataFrame
    users: pd.DataFrame
    scores: NDArray[np.float64] | None


def load(which: Literal["a", "b"] = "a", folder: str | os.PathLike[str] | None = None) -> Sushi:
    """Read one of the two sets.

    Parameters
    ----------
    which : {"a", "b"}
        Set A: full rankings of 10 sushis. Set B: of 100 sushis, everybody ranked 10 chosen for him or her (non-exhaustive).
    folder : path, optional
        With the files ``sushi3*``; ``$RELPREF_DATA/sushi3-2016`` by default.

    Returns
    -------
    Sushi

    Raises
    ------
    DataError
        If a file is missing, damaged, or from before 2016, when the scores were upside down.
    """
    if which not in ("a", "b"):
        raise DataError(f"which is {shown(which)}; choose 'a' or 'b'")
    place = find("sushi", folder)
    items, users = _items(place / "sushi3.idata"), _users(place / "sushi3.udata")
    if which == "a":
        items = items.loc[list(SET_A)]
    file = place / f"sushi3{which}.5000.10.order"
    orders = _orders(file, len(items), len(users))
    scores = None
    if which == "b":
        scores = _scores(place / "sushi3b.5000.10.score", orders, len(items))
    names = items.index.to_numpy()
    rankings = Rankings.from_orders(names[orders].tolist(), items[list(_ATTRIBUTES)], users.index.tolist())
    west = users["west_before_15"].to_numpy()
    return Sushi(rankings.with_labels(np.where(west == 1, "west", "east")), items, users, scores)


def _items(file: Path) -> pd.DataFrame:
    lines = [line.split("\t") for line in _lines(file)]
    _check_width(file, lines, len(_ITEM_COLUMNS))
    names = [line[1] for line in lines]
    numbers = _numbers(file, [line[:1] + line[2:] for line in lines], first=1)
    if len(set(names)) < len(names) or not set(SET_A) <= set(names):
        raise DataError(f"{file}: its names are not those of the 100 sushis; get the file again")
    columns = [name for name in _ITEM_COLUMNS if name != "name"]
    table = pd.DataFrame(numbers, index=pd.Index(names, name="sushi"), columns=columns).drop(columns="number")
    return table.astype({"minor_group": int})


def _users(file: Path) -> pd.DataFrame:
    lines = [line.split("\t") for line in _lines(file)]
    _check_width(file, lines, len(_USER_COLUMNS))
    table = pd.DataFrame(_numbers(file, lines, first=1).astype(int), columns=list(_USER_COLUMNS))
    if not table["west_before_15"].isin((0, 1)).all() or table["user"].duplicated().any():
        raise DataError(
            f"{file}: column 7 is not the half of Japan (0 or 1), or a user is there twice; get the file again"
        )
    return table.set_index("user")


def _orders(file: Path, items: int, users: int) -> NDArray[np.int64]:
    header, *lines = _lines(file)
    if header.split() != [str(items), "1"]:
        raise DataError(f"{file}, line 1: the header is {shown(header)}, not '{items} 1'; get the file again")
    if len(lines) != users:
        raise DataError(f"{file}: there are {len(lines)} rankings for {users} users; get the files again")
    rows = [line.split() for line in lines]
    _check_width(file, rows, 12, first=2)
    orders = _numbers(file, rows, first=2)[:, 2:].astype(int)
    wrong = (
        (orders < 0).any(axis=1) | (orders >= items).any(axis=1) | (np.diff(np.sort(orders)) == 0).any(axis=1)
    )
    if wrong.any():
        raise DataError(
            f"{file}, line {int(np.argmax(wrong)) + 2}: ten different sushis of 0 to {items - 1} are expected; get the file again"
        )
    return orders


def _scores(file: Path, orders: NDArray[np.int64], items: int) -> NDArray[np.float64]:
    rows = [line.split() for line in _lines(file)]
    _check_width(file, rows, items)
    scores = _numbers(file, rows, first=1)
    if scores.shape[0] != len(orders) or not np.isin(scores, range(-1, 5)).all():
        raise DataError(
            f"{file}: scores from -1 to 4 of {len(orders)} users are expected; get the files again"
        )
    scores[scores < 0] = np.nan
    ranked = np.take_along_axis(scores, orders, axis=1)
    if np.nanmean(ranked[:, 0]) <= np.nanmean(ranked[:, -1]):
        raise DataError(
            f"{file}: what users rank first has a mean score of {np.nanmean(ranked[:, 0]):.2f}, what they rank last one of "
            f"{np.nanmean(ranked[:, -1]):.2f}: this is the release from before 2016, whose scores are upside down; get the current one"
        )
    return scores


def _lines(file: Path) -> list[str]:
    with reading(file):
        lines = file.read_text(encoding="utf-8").splitlines()
    if not lines:
        raise DataError(f"{file}: the file is empty; get it again")
    return lines


def _check_width(file: Path, rows: list[list[str]], width: int, first: int = 1) -> None:
    for number, row in enumerate(rows, start=first):
        if len(row) != width:
            raise DataError(
                f"{file}, line {number}: there are {len(row)} values instead of {width}; get the file again"
            )


def _numbers(file: Path, rows: list[list[str]], first: int) -> NDArray[Any]:
    try:
        values = np.array(rows, dtype=np.float64)
    except ValueError as error:
        raise DataError(f"{file}: a value is not a number ({error}); get the file again") from None
    if not np.isfinite(values).all():
        number = int(np.argmin(np.isfinite(values).all(axis=1))) + first
        raise DataError(f"{file}, line {number}: a value is not finite; get the file again")
    return values
