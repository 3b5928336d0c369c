"""Results of international football matches, as the set of Mart Jürisoo stores them (from 1872 on; CC0)."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from relpref.data import PreferenceData, read_table
from relpref.data.arrays import listed, shown
from relpref.data_loaders.registry import find
from relpref.errors import DataError

FILE = "results.csv"
BUNDLED = Path(__file__).parent / "tables" / "football"
"""The folder of the matches that come with the package: 3,483 from 2023 to July 2026 between 209 teams, see ``football.txt`` beside it."""
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
    folder: str | os.PathLike[str] | None = None,
    *,
    since: str | None = None,
    until: str | None = None,
) -> pd.DataFrame:
    """Read the matches of some time.

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
    file = find("football", folder) / FILE
    if not file.is_file():
        raise DataError(f"{file}: there is no such file; `relpref data get football` fetches it")
    read = read_table(file)
    table: Any = read.frame
    missing = [name for name in _COLUMNS if name not in table.columns]
    if missing:
        raise DataError(
            f"{file}: there is no column {missing[0]!r}; it has {listed(table.columns)}"
        )
    table = table[list(_COLUMNS)].set_axis(read.lines, axis=0)
    # Matches to come are listed without a result.
    table = table[~table[list(_SCORES)].isin(["", "NA"]).all(axis=1)]
    date = pd.to_datetime(table["date"], format="%Y-%m-%d", errors="coerce")
    goals, teams = "a number of goals", table["home_team"] != table["away_team"]
    for name, right, expected in (
        ("date", date.notna(), "a day like 2022-11-20"),
        *((name, table[name].str.fullmatch(r"\d{1,3}"), goals) for name in _SCORES),
        *((name, table[name].str.strip() != "", "a team") for name in ("home_team", "away_team")),
        ("away_team", teams, "another team than the home team"),
        ("neutral", table["neutral"].isin(["TRUE", "FALSE"]), "TRUE or FALSE"),
    ):
        if not right.all():
            row = int(np.argmin(right.to_numpy(dtype=bool)))
            raise DataError(
                f"{file}, line {table.index[row]}: {name} is {shown(table[name].iloc[row])}; "
                f"expected {expected}"
            )
    table = table.assign(
        date=date,
        neutral=table["neutral"] == "TRUE",
        **{name: table[name].astype(int) for name in _SCORES},
    )
    first, last = _day("since", since, pd.Timestamp.min), _day("until", until, pd.Timestamp.max)
    kept = table["date"].between(first, last)
    if not kept.any():
        window = (
            f"{date.min():%Y-%m-%d} to {date.max():%Y-%m-%d}" if len(table) else "no day at all"
        )
        raise DataError(
            f"{file}: there is no match from {since} to {until}; those in it are of {window}"
        )
    return table[kept].reset_index(drop=True)


def answers(matches: pd.DataFrame, *, margins: int = 1) -> pd.DataFrame:
    """Matches as answers to the question which of two teams is better.

    Parameters
    ----------
    matches : DataFrame
        As `read_matches` returns them.
    margins : int
        How many margins of victory are told apart: 1, only who won; 2, by one goal or by more; and
        so on. Above 1, answers have a ``strength``.

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
    }
    table = pd.DataFrame({**columns, "shown_first": home.where(~matches["neutral"])})
    if margins > 1:
        table["strength"] = goals.abs().clip(upper=margins).where(~tie)
    return table


def confederations(matches: pd.DataFrame) -> pd.Series:
    """The confederation of each team: the one in whose tournaments it played most.

    Parameters
    ----------
    matches : DataFrame
        As `read_matches` returns them.

    Returns
    -------
    Series
        By team, in alphabetical order: AFC (Asia), CAF (Africa), CONCACAF (North and Central
        America), CONMEBOL (South America), OFC (Oceania) or UEFA (Europe). Teams without such a
        match are missing. Who won is not looked at.
    """
    named = {name: group for group, names in _TOURNAMENTS.items() for name in names}
    group = matches["tournament"].str.removesuffix(" qualification").map(named)
    teams = pd.concat([matches["home_team"], matches["away_team"]], ignore_index=True)
    played = pd.crosstab(teams.rename("team"), pd.concat([group, group], ignore_index=True))
    return played.idxmax(axis=1).rename("confederation")


def load(
    folder: str | os.PathLike[str] | None = None,
    *,
    since: str | None = None,
    until: str | None = None,
    least_matches: int = 10,
    margins: int = 1,
) -> PreferenceData:
    """Matches as answers to the question which of two teams is better.

    Parameters
    ----------
    folder, since, until
        As in `read_matches`.
    least_matches : int
        Teams with fewer matches against the teams that stay are left out, with their matches, until
        there is none.
    margins : int
        As in `answers`.

    Returns
    -------
    PreferenceData
        Items are teams, answers those of `answers`. The relation ``opponents`` joins teams that
        met, the closer the oftener (those of one continent): it is derived from who met whom, not
        from who won.

    Raises
    ------
    DataError
        As in `read_matches`, or if no two teams have so many matches.
    """
    if least_matches < 1:
        raise DataError(f"least_matches is {least_matches}; it must be at least 1")
    matches = read_matches(folder, since=since, until=until)
    total = len(matches)
    while len(matches):
        home, away = matches["home_team"], matches["away_team"]
        played = pd.concat([home, away]).value_counts()
        few = played.index[played < least_matches]
        if not len(few):
            break
        matches = matches[~(home.isin(few) | away.isin(few))]
    if matches.empty:
        raise DataError(
            f"least_matches is {least_matches}; of {total} matches none is between teams with so "
            "many. Lower it, or take a longer time"
        )
    ends = np.sort(matches[["home_team", "away_team"]].to_numpy(dtype=object), axis=1)
    met = pd.DataFrame(ends, columns=["source", "target"]).value_counts(sort=False)
    links = met.rename("weight").reset_index()
    return PreferenceData.from_tables(
        sorted({*ends.ravel()}), answers(matches, margins=margins), {"opponents": links}
    )


def _day(name: str, value: str | None, otherwise: pd.Timestamp) -> pd.Timestamp:
    try:
        return otherwise if value is None else pd.to_datetime(value, format="%Y-%m-%d")
    except ValueError:
        raise DataError(f"{name} is {shown(value)}; give a day like '2022-01-01'") from None
