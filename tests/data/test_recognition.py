"""Tables of answers as people write them: what is read from each, or why it is refused."""

import io
from typing import Any

import pandas as pd
import pytest

from relpref.data.readings import words
from relpref.data.recognition import recognized
from relpref.data.tables import Table
from relpref.errors import DataError


def read(text: str, *, typed: bool = False) -> Table:
    """A table from CSV text, with cells as text as in a file, or typed as pandas reads them."""
    frame = pd.read_csv(
        io.StringIO(text.strip()), dtype=None if typed else object, keep_default_na=typed
    )
    return Table(
        frame, "answers", text=not typed, lines=None if typed else range(2, 2 + len(frame))
    )


def results(table: Table) -> list[tuple[str, str, float, float]]:
    """First, second, result and count of each row; winners are first."""
    frame = table.frame
    count = frame["count"] if "count" in frame else [1] * len(frame)
    if "winner" in frame and "loser" in frame:
        columns: Any = (frame["winner"], frame["loser"], [1] * len(frame), count)
    else:
        tie = (
            [str(cell) == "True" for cell in frame["tie"]]
            if "tie" in frame
            else [False] * len(frame)
        )
        ends = zip(frame["first"], frame["winner"], tie, strict=True)
        result = [0.5 if tied else float(first == winner) for first, winner, tied in ends]
        columns = frame["first"], frame["second"], result, count
    return [(str(a), str(b), float(r), float(n)) for a, b, r, n in zip(*columns, strict=True)]


PAIRS: dict[str, Any] = {
    "football": (
        (
            "Div,Date,HomeTeam,AwayTeam,FTHG,FTAG,FTR,HTHG,HTAG,HTR\n"
            "E0,13/08,Ayr,Bury,2,1,H,0,1,A\nE0,14/08,Bury,Crewe,0,0,D,0,0,D\nE0,15/08,Crewe,Ayr,1,3,A,1,0,H"
        ),
        [("Ayr", "Bury", 1), ("Bury", "Crewe", 0.5), ("Crewe", "Ayr", 0)],
    ),
    "football, won away": (
        "home,away,FTR\na,b,A\nb,c,D\nc,a,A",
        [("a", "b", 0), ("b", "c", 0.5), ("c", "a", 0)],
    ),
    "football, goals only": (
        (
            "date,home_team,away_team,home_score,away_score,neutral\n"
            "d,Ayr,Bury,2,1,FALSE\nd,Bury,Crewe,0,0,TRUE\nd,Crewe,Ayr,1,3,FALSE"
        ),
        [("Ayr", "Bury", 1), ("Bury", "Crewe", 0.5), ("Crewe", "Ayr", 0)],
    ),
    "German football": (
        "Datum,Heim,Gast,Ergebnis\n1,Ayr,Bury,2:1\n2,Bury,Crewe,0:0\n3,Crewe,Ayr,1:3",
        [("Ayr", "Bury", 1), ("Bury", "Crewe", 0.5), ("Crewe", "Ayr", 0)],
    ),
    "votes on models": (
        (
            "question_id,model_a,model_b,winner,judge\n"
            "1,x,y,model_a,j\n2,y,z,tie,j\n3,z,x,model_b,k\n4,x,z,tie (bothbad),k"
        ),
        [("x", "y", 1), ("y", "z", 0.5), ("z", "x", 0), ("x", "z", 0.5)],
    ),
    "one-hot votes": (
        (
            "id,model_a,model_b,winner_model_a,winner_model_b,winner_tie\n"
            "1,x,y,1,0,0\n2,y,z,0,0,1\n3,z,x,0,1,0"
        ),
        [("x", "y", 1), ("y", "z", 0.5), ("z", "x", 0)],
    ),
    "chess": (
        "white,black,result,opening\nann,bob,1-0,C20\nbob,cy,1/2-1/2,C21\ncy,ann,0-1,C20\nann,cy,*,C20",
        [("ann", "bob", 1), ("bob", "cy", 0.5), ("cy", "ann", 0)],
    ),
    "combats by number": (
        "First_pokemon,Second_pokemon,Winner\n266,298,298\n702,266,702\n298,702,702",
        [("266", "298", 0), ("702", "266", 1), ("298", "702", 0)],
    ),
    "tennis": (
        (
            "tourney_id,winner_id,winner_name,winner_hand,loser_id,loser_name,loser_hand,score\n"
            "1,100,ann,R,101,bob,L,6-4 6-2\n1,101,bob,L,102,cy,R,7-5 6-4\n1,100,ann,R,102,cy,R,6-0 6-0"
        ),
        [("ann", "bob", 1), ("bob", "cy", 1), ("ann", "cy", 1)],
    ),
    "models chosen": (
        "prompt,chosen_model,rejected_model,chosen,rejected\np,x,y,long text,short text\nq,y,z,a text,b text\nr,x,z,c,d",
        [("x", "y", 1), ("y", "z", 1), ("x", "z", 1)],
    ),
    "cricket": (
        (
            "id,team1,team2,toss_winner,toss_decision,result,winner\n"
            "1,A,B,B,bat,runs,A\n2,B,C,B,field,no result,NA\n3,C,A,A,bat,wickets,A"
        ),
        [("A", "B", 1), ("C", "A", 0)],
    ),
    "wins of both sides": (
        "item1,item2,win1,tie,win2\na,b,3,1,2\nb,c,0,2,4",
        [
            ("a", "b", 1, 3),
            ("a", "b", 0, 2),
            ("b", "c", 0, 4),
            ("a", "b", 0.5, 1),
            ("b", "c", 0.5, 2),
        ],
    ),
    "votes by side": (
        "left,right,vote\na,b,leftvote\nb,c,rightvote\nc,a,tievote\na,c,bothbad_vote",
        [("a", "b", 1), ("b", "c", 0), ("c", "a", 0.5), ("a", "c", 0.5)],
    ),
    "1 and 2": (
        "item 1,item 2,choice\na,b,1\nb,c,2\nc,a,1.5",
        [("a", "b", 1), ("b", "c", 0), ("c", "a", 0.5)],
    ),
    "labels of 0 and 1": (
        "generator_1,generator_2,preference\nx,y,1\ny,z,0\nz,x,0.5",
        [("x", "y", 1), ("y", "z", 0), ("z", "x", 0.5)],
    ),
    "both sides of each answer": (
        "team,opponent,result\na,b,W\nb,a,L\nb,c,D\nc,b,D",
        [("a", "b", 1), ("b", "c", 0.5)],
    ),
    "canceled answers": (
        "home,away,result,was_cancelled\na,b,H,False\nb,c,A,True\nc,a,D,False",
        [("a", "b", 1), ("c", "a", 0.5)],
    ),
    "a label that is a word for a tie": (
        "p1,p2,winner\nx,b,x\nb,c,c\nc,x,draw",
        [("x", "b", 1), ("b", "c", 0), ("c", "x", 0.5)],
    ),
    "scores": (
        "p1,p2,score\na,b,3-1\nb,c,2-2\nc,a,0-4",
        [("a", "b", 1), ("b", "c", 0.5), ("c", "a", 0)],
    ),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("typed", [False, True], ids=["text", "typed"])
def test_pairs(name: str, typed: bool) -> None:
    text, expected = PAIRS[name]
    table = recognized(read(text, typed=typed))
    assert results(table) == [(*row, *[1][: 4 - len(row)]) for row in expected]
    assert table.notes


def orders(table: Table) -> dict[str, list[tuple[str, str]]]:
    """Items and places by list."""
    lists: dict[str, list[tuple[str, str]]] = {}
    for name, item, place in table.frame[["list", "item", "place"]].itertuples(index=False):
        cell = "" if place is None or pd.isna(place) else f"{float(place):g}" if place != "" else ""
        lists.setdefault(str(name), []).append((str(item), cell))
    return lists


LISTS: dict[str, Any] = {
    "races": (
        ("raceId,driverId,constructorId,grid,position,positionOrder,points\n"
        "1,ann,m,2,1,1,10\n1,bob,m,1,2,2,8\n1,cy,f,3,\\N,3,0\n2,ann,m,1,2,2,8\n2,cy,f,2,1,1,10"),
        {"1": [("ann", "1"), ("bob", "2"), ("cy", "")], "2": [("ann", "2"), ("cy", "1")]},
    ),
    "races with those who did not start": (
        "race,horse,finish\n1,ann,1\n1,bob,DNF\n1,cy,2\n2,ann,DNS\n2,bob,1\n2,cy,2",
        {"1": [("ann", "1"), ("bob", ""), ("cy", "2")], "2": [("bob", "1"), ("cy", "2")]},
    ),
    "first to third": (
        "voter,1st,2nd,3rd\nv,a,b,c\nw,b,a,\nx,c,b,a",
        {"0": [("a", "1"), ("b", "2"), ("c", "3")], "1": [("b", "1"), ("a", "2")],
         "2": [("c", "1"), ("b", "2"), ("a", "3")]},
    ),
    "choices by rank": (
        "rank1,rank2,rank3\na,b,c\nb,a,c",
        {"0": [("a", "1"), ("b", "2"), ("c", "3")], "1": [("b", "1"), ("a", "2"), ("c", "3")]},
    ),
    "a column an item": (
        "person,tuna,eel,squid,egg\np,1,2,3,4\nq,4,3,2,1\nr,2,1,3,4",
        {"0": [("tuna", "1"), ("eel", "2"), ("squid", "3"), ("egg", "4")],
         "1": [("tuna", "4"), ("eel", "3"), ("squid", "2"), ("egg", "1")],
         "2": [("tuna", "2"), ("eel", "1"), ("squid", "3"), ("egg", "4")]},
    ),
    "a column a race": (
        "boat,R1,R2,R3\nann,1,2,1\nbob,2,1,DNF\ncy,3,3,2\ndee,4,DNS,3",
        {"R1": [("ann", "1"), ("bob", "2"), ("cy", "3"), ("dee", "4")],
         "R2": [("ann", "2"), ("bob", "1"), ("cy", "3")],
         "R3": [("ann", "1"), ("bob", ""), ("cy", "2"), ("dee", "3")]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("typed", [False, True], ids=["text", "typed"])
def test_orders(name: str, typed: bool) -> None:
    text, expected = LISTS[name]
    assert orders(recognized(read(text, typed=typed))) == expected


EXTREMES = {
    "labels": "best,worst,Item1,Item2,Item3\na,c,a,b,c\nb,a,a,b,c",
    "letters": "best,worst,variety_a,variety_b,variety_c\nA,C,a,b,c\nB,A,a,b,c",
    "numbers": "Best,Worst,item_1,item_2,item_3\n1,3,a,b,c\n2,1,a,b,c",
    "names": "best,worst,item_1,item_2,item_3\nitem_1,item_3,a,b,c\nitem_2,item_1,a,b,c",
}


@pytest.mark.parametrize("name", EXTREMES)
def test_the_best_and_the_worst(name: str) -> None:
    frame = recognized(read(EXTREMES[name])).frame
    assert frame[["best", "worst", "item_1", "item_2", "item_3"]].to_numpy().tolist() == [
        ["a", "c", "a", "b", "c"],
        ["b", "a", "a", "b", "c"],
    ]


REFUSED = {
    "two outcomes": (
        "team1,team2,match_winner,winner\na,b,a,b\nb,c,b,b\nc,a,c,c",
        "several ways: .*'match_winner'.*'winner'",
    ),
    "two other columns": (
        "team1,team2,toss_winner,day_winner\na,b,a,b\nb,c,b,b\nc,a,c,c",
        "several ways: .*'toss_winner'.*'day_winner'",
    ),
    "goals and the outcome": (
        "home,away,home_goals,away_goals,result\na,b,1,0,H\nb,c,1,0,A\nc,a,0,1,A",
        "several ways: .*'result'.*'home_goals'",
    ),
    "no tie among the marks": (
        "model_a,model_b,winner_model_a,winner_model_b\nx,y,1,0\ny,z,0,1",
        "no column 'winner_tie'",
    ),
    "rows or columns": (
        "item,a,b,c\nx,1,2,3\ny,2,3,1\nz,3,1,2",
        "several ways: orders, a row each.*orders, a column each",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_tables_with_two_readings_are_refused(name: str) -> None:
    text, message = REFUSED[name]
    with pytest.raises(DataError, match=message):
        recognized(read(text))


@pytest.mark.parametrize(
    "text",
    [
        "winner,loser\na,b\nb,c",
        "first,second,result\na,b,1\nb,c,0",
        "list,item,place\n1,a,1\n1,b,2",
        "name,price\na,1\nb,2",
        "item_1,item_2,rating\na,b,4\nb,c,5",
        "team1,team2,toss_winner\na,b,a\nb,c,c",
        "player1,player2,server\na,b,a\nb,c,c",
        "player_1,player_2,player_1_rank_points,player_2_rank_points\na,b,15,14\nb,c,14,13",
        "match,player,rank\n1,a,5\n1,b,9\n2,a,5\n2,c,30",
        "person,tea,coffee,water\np,5,3,4\nq,4,4,1",
        "first,second,shown_first\na,b,a\nb,c,c",
    ],
)
def test_other_tables_are_left_alone(text: str) -> None:
    table = read(text)
    frame = recognized(table).frame
    pd.testing.assert_frame_equal(frame, table.frame)


def test_words_of_names() -> None:
    names = ["HomeTeam", "model_a_name", "R_fighter", "home.wins", "item1", "FTHG", "1st", "Item 2"]
    assert [" ".join(words(name)) for name in names] == [
        "home team", "model a name", "r fighter", "home wins", "item 1", "fthg", "1st", "item 2",
    ]  # fmt: skip
