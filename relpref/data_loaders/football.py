"""Results of international football matches from 1872 on, collected by Mart Jürisoo (CC0)."""

from pathlib import Path
from typing import Any

import pandas as pd

from relpref.data import read_table
from relpref.data.arrays import listed, shown
from relpref.data_loaders.registry import find
from relpref.errors import DataError
from relpref.files import FilePath

FILE = "results.csv"
BUNDLED = Path(__file__).parent / "tables" / "football"
"""Folder of the 3,483 matches that come with the package, 2023 to July 2026; see football.txt."""
# Tournaments of one confederation; their qualifications are named like them. Guests from elsewhere
# play in some.
_TOURNAMENTS = {
    "AFC": ("AFC Asian Cup",),
    "CAF": ("African Cup of Nations", "African Nations Championship"),
    "CONCACAF": ("CONCACAF Nations League", "Gold Cup"),
    "CONMEBOL": ("Copa América",),
    "OFC": ("Oceania Nations Cup",),
    "UEFA": ("UEFA Euro", "UEFA Nations League"),
}
_COLUMNS = ("date", "home_team", "away_team", "home_score", "away_score", "tournament", "neutral")
_SCORES = ("home_score", "away_score")


def read_matches(
    folder: FilePath | None = None,
    *,
    since: str | None = None,
    until: str | None = None,
) -> pd.DataFrame:
    """Read the matches of a period.

    Parameters
    ----------
    folder : path, optional
        With the file ``results.csv``; ``$RELPREF_DATA/international_results`` by default. `BUNDLED`
        comes with the package.
    since, until : str, optional
        First and last day, like ``"2022-01-01"``; all by default.

    Returns
    -------
    DataFrame
        One row for each match that has been played, in the file's order: ``date``, ``home_team``,
        ``away_team``, ``home_score``, ``away_score`` (after extra time, without penalties),
        ``tournament``, and ``neutral``, whether the ground was neutral.

    Raises
    ------
    DataError
        If the file is missing, a column or a cell of it cannot be used, or no match is left.
    """
    file = find("football", folder, FILE)
    first, last = _day("since", since, pd.Timestamp.min), _day("until", until, pd.Timestamp.max)
    read = read_table(file)
    missing = [name for name in _COLUMNS if name not in read.frame]
    if missing:
        columns = listed(read.frame.columns)
        raise DataError(f"{file}: there is no column {missing[0]!r}; it has {columns}")
    table: Any = read.frame[list(_COLUMNS)].set_axis(read.lines, axis=0)
    # Matches to come are listed without a result.
    table = table[~table[list(_SCORES)].isin(["", "NA"]).all(axis=1)]
    date = pd.to_datetime(table["date"], format="%Y-%m-%d", errors="coerce")
    for name, right, expected in (
        ("date", date.notna(), "a day like 2022-11-20"),
        *((name, table[name].str.fullmatch(r"\d{1,3}"), "a number of goals") for name in _SCORES),
        *((name, table[name].str.strip() != "", "a team") for name in ("home_team", "away_team")),
        ("away_team", table["home_team"] != table["away_team"], "another team than the home team"),
        ("neutral", table["neutral"].isin(["TRUE", "FALSE"]), "TRUE or FALSE"),
    ):
        for line, cell in table[name][~right.astype(bool)].head(1).items():
            raise DataError(f"{file}, line {line}: {name} is {shown(cell)}; expected {expected}")
    table = table.assign(date=date, neutral=table["neutral"] == "TRUE")
    table = table.astype(dict.fromkeys(_SCORES, int))
    kept = date.between(first, last)
    if not kept.any():
        window = f"{date.min():%Y-%m-%d} to {date.max():%Y-%m-%d}" if len(date) else "no day at all"
        raise DataError(
            f"{file}: there is no match from {since} to {until}; those in it are of {window}"
        )
    return table[kept].reset_index(drop=True)


def _day(name: str, value: str | None, otherwise: pd.Timestamp) -> pd.Timestamp:
    try:
        return otherwise if value is None else pd.to_datetime(value, format="%Y-%m-%d")
    except ValueError:
        raise DataError(f"{name} is {shown(value)}; give a day like '2022-01-01'") from None


def answers(matches: pd.DataFrame, *, margins: int = 1) -> pd.DataFrame:
    """Make answers to the question which of two teams is better.

    Parameters
    ----------
    matches : DataFrame
        Matches as `read_matches` returns them.
    margins : int
        Number of margins of victory that are distinguished: 1, only the winner; 2, one goal or
        more; and so on. Above 1, answers have a ``strength``.

    Returns
    -------
    DataFrame
        One row for each match: ``winner``, ``loser``, ``tie`` (a draw, with the home team as the
        winner) and ``shown_first``, the home team, None on neutral ground: the hyperparameter
        ``position_bias`` is the advantage of playing at home.

    Raises
    ------
    DataError
        If ``margins`` is less than 1.
    """
    if margins < 1:
        raise DataError(f"margins is {margins}; it must be at least 1")
    goals = matches["home_score"] - matches["away_score"]
    home, away, tie = matches["home_team"], matches["away_team"], goals == 0
    columns = {
        "winner": home.where(goals >= 0, away),
        "loser": away.where(goals >= 0, home),
        "tie": tie,
        "shown_first": home.where(~matches["neutral"]),
    }
    table = pd.DataFrame(columns)
    if margins > 1:
        table["strength"] = goals.abs().clip(upper=margins).where(~tie)
    return table


def confederations(matches: pd.DataFrame) -> pd.Series:
    """Find the confederation of each team: it played most in the tournaments of this one.

    Parameters
    ----------
    matches : DataFrame
        Matches as `read_matches` returns them.

    Returns
    -------
    Series
        Confederations by team, in alphabetical order: AFC (Asia), CAF (Africa), CONCACAF (North and
        Central America), CONMEBOL (South America), OFC (Oceania) or UEFA (Europe). Teams without
        such a match are missing. Results have no influence.
    """
    named = {name: group for group, names in _TOURNAMENTS.items() for name in names}
    group = matches["tournament"].str.removesuffix(" qualification").map(named)
    teams = pd.concat([matches["home_team"], matches["away_team"]], ignore_index=True)
    played = pd.crosstab(teams.rename("team"), pd.concat([group, group], ignore_index=True))
    return played.idxmax(axis=1).rename("confederation")
