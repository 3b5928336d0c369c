import runpy
from pathlib import Path

import pandas as pd
import pytest

from relpref.data_loaders import football
from relpref.errors import DataError

ROOT = Path(__file__).parents[2]
HEAD = "date,home_team,away_team,home_score,away_score,tournament,city,country,neutral\n"
RESULTS = (
    HEAD
    + """\
2020-05-01,Aland,Borduria,2,0,Friendly,X,Aland,FALSE
2021-03-01,Borduria,Aland,1,1,Cup,X,Borduria,FALSE
2021-03-08,Aland,Borduria,1,1,Cup,"X, by the sea",Syldavia,TRUE
2021-04-01,Syldavia,Borduria,0,5,Cup,X,Syldavia,FALSE
2021-04-09,Syldavia,Aland,1,2,Cup,X,Borduria,TRUE
2021-06-01,Aland,Côte d'Or,7,0,Friendly,X,Aland,FALSE
2022-01-01,Aland,Syldavia,NA,NA,Cup,X,Aland,FALSE
"""
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "results.csv").write_text(RESULTS, encoding="utf-8")
    return tmp_path


def test_matches_of_a_time(folder: Path) -> None:
    matches = football.read_matches(folder)
    assert len(matches) == 6  # the seventh has not been played
    assert matches["home_score"].tolist() == [2, 1, 1, 0, 1, 7]
    assert matches["neutral"].tolist() == [False, False, True, False, True, False]
    window = football.read_matches(folder, since="2021-03-01", until="2021-04-01")
    assert window["date"].dt.strftime("%m-%d").tolist() == ["03-01", "03-08", "04-01"]
    assert window.index.tolist() == [0, 1, 2]


def test_answers(folder: Path) -> None:
    table = football.answers(football.read_matches(folder), margins=3).astype(object)
    assert list(table) == ["winner", "loser", "tie", "shown_first", "strength"]
    assert table.where(table.notna(), None).to_numpy().tolist() == [
        ["Aland", "Borduria", False, "Aland", 2],  # won at home
        ["Borduria", "Aland", True, "Borduria", None],  # a draw at home
        ["Aland", "Borduria", True, None, None],  # a draw on neutral ground
        ["Borduria", "Syldavia", False, "Syldavia", 3],  # won away
        ["Aland", "Syldavia", False, None, 1],
        ["Aland", "Côte d'Or", False, "Aland", 3],
    ]
    assert "strength" not in football.answers(football.read_matches(folder))
    with pytest.raises(DataError, match="margins is 0"):
        football.answers(football.read_matches(folder), margins=0)


def test_a_team_belongs_to_the_confederation_in_whose_tournaments_it_plays() -> None:
    tournaments = [
        "Gold Cup",
        "AFC Asian Cup qualification",
        "AFC Asian Cup",
        "Gold Cup",
        "Friendly",
    ]
    homes = ["Qatar", "Qatar", "Japan", "Mexico", "Aland"]
    aways = ["Mexico", "India", "Qatar", "Canada", "Japan"]
    matches = pd.DataFrame({"home_team": homes, "away_team": aways, "tournament": tournaments})
    expected = {
        "Canada": "CONCACAF",
        "India": "AFC",
        "Japan": "AFC",
        "Mexico": "CONCACAF",
        "Qatar": "AFC",  # twice, and once as a guest elsewhere
    }
    assert list(football.confederations(matches).items()) == list(expected.items())


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "2021-04-01,S",
            "1.4.2021,S",
            "line 5: date is '1.4.2021'; expected a day like 2022-11-20",
        ),
        ("0,5,Cup", "zero,5,Cup", "line 5: home_score is 'zero'; expected a number of goals"),
        (
            "Syldavia,Borduria",
            "Borduria,Borduria",
            "line 5: away_team is 'Borduria'; expected another team",
        ),
        (
            "X,Borduria,TRUE",
            "X,Borduria,maybe",
            "line 6: neutral is 'maybe'; expected TRUE or FALSE",
        ),
        ("neutral", "ground", "there is no column 'neutral'; it has 'date'"),
        ("2020-05-01,", "1,2020-05-01,", "line 2: 10 cells where the header has 9"),
        ('"X, by the sea"', '"X, by the sea', "line 4: the row that begins here is not valid CSV"),
        ("X,Aland,FALSE\n", "X\0,Aland,FALSE\n", "there is a zero byte"),
    ],
)
def test_files_that_cannot_be_used(folder: Path, old: str, new: str, reason: str) -> None:
    assert old in RESULTS
    (folder / "results.csv").write_text(RESULTS.replace(old, new), encoding="utf-8")
    with pytest.raises(DataError, match=reason):
        football.read_matches(folder)


def test_nothing_there(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match="no match from 2030-01-01 to None; .* of 2020-05-01 to 2021-06-01"
    ):
        football.read_matches(folder, since="2030-01-01")
    with pytest.raises(DataError, match="until is 'May'; give a day like"):
        football.read_matches(folder, until="May")
    (folder / "results.csv").unlink()
    with pytest.raises(DataError, match=r"no such file\. `relpref data get football` fetches it"):
        football.read_matches(folder)
    with pytest.raises(
        DataError, match="no such folder.*fetches it from https://github.com/martj42"
    ):
        football.read_matches(tmp_path / "nowhere")


def test_bundled_matches() -> None:
    matches = football.read_matches(football.BUNDLED)
    assert len(matches) == 3483
    groups = football.confederations(matches)
    assert set(groups.index) == {*matches["home_team"], *matches["away_team"]}
    numbers = {"UEFA": 54, "CAF": 52, "AFC": 43, "CONCACAF": 41, "CONMEBOL": 10, "OFC": 9}
    assert groups.value_counts().to_dict() == numbers
    assert set(groups[groups == "CONMEBOL"].index) >= {"Argentina", "Brazil", "Uruguay"}
    answers = football.answers(matches)
    assert (
        answers["tie"].sum() == 812
        and answers["shown_first"].isna().sum() == matches["neutral"].sum()
    )


def test_bundled_matches_are_those_of_the_published_file(
    real_data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bundled = football.BUNDLED
    monkeypatch.setattr(football, "BUNDLED", tmp_path)
    monkeypatch.setattr("sys.argv", ["bundle_football.py"])
    runpy.run_path(str(ROOT / "tools" / "bundle_football.py"), run_name="__main__")
    assert (tmp_path / football.FILE).read_bytes() == (bundled / football.FILE).read_bytes()


def test_published_file(real_data: Path) -> None:
    matches = football.read_matches()
    assert len(matches) == 49_520
    teams = pd.concat([matches["home_team"], matches["away_team"]])
    assert teams.nunique() == 337
    final = matches.iloc[-1]
    assert (final["home_team"], final["home_score"], final["away_score"], final["neutral"]) == (
        "Spain",
        1,
        0,
        True,
    )
