"""Write the football matches that come with the package.

Usage: python tools/bundle_football.py [FOLDER]     (with results.csv of international_results;
default $RELPREF_DATA/international_results)
"""

import sys

import pandas as pd

from relpref.data_loaders.football import BUNDLED, FILE, confederations, read_matches

SINCE, LEAST = "2023-01-01", 8
COLUMNS = ["date", "home_team", "away_team", "home_score", "away_score", "tournament", "neutral"]


def chosen(matches: pd.DataFrame) -> pd.DataFrame:
    """Matches between teams that have at least eight matches and a confederation."""
    played = pd.concat([matches["home_team"], matches["away_team"]]).value_counts()
    teams = played.index[played >= LEAST]
    among = matches[matches["home_team"].isin(teams) & matches["away_team"].isin(teams)]
    teams = confederations(among).index
    return among[among["home_team"].isin(teams) & among["away_team"].isin(teams)]


if __name__ == "__main__":
    matches = chosen(read_matches(sys.argv[1] if len(sys.argv) > 1 else None, since=SINCE))
    table = matches[COLUMNS].assign(neutral=matches["neutral"].map({True: "TRUE", False: "FALSE"}))
    table.to_csv(BUNDLED / FILE, index=False, date_format="%Y-%m-%d", lineterminator="\n")
    print(f"{len(table)} matches of {len(confederations(matches))} teams are in {BUNDLED / FILE}")
