"""Tables of answers as people write them: what is read from each, or why it is refused."""

import ast
import io
import pathlib
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from relpref import PreferenceData
from relpref.data.readings import words
from relpref.data.recognition import recognized
from relpref.data.tables import Table, read_table
from relpref.errors import DataError

Answers = Counter[tuple[frozenset[str], ...]]


def frame(text: str, *, typed: bool) -> pd.DataFrame:
    """Return CSV text as a table with cells as text, or typed as pandas reads them."""
    return pd.read_csv(
        io.StringIO(text.strip()), dtype=None if typed else object, keep_default_na=typed
    )


def read(table: Any, **options: Any) -> Answers:
    """Return how often each answer was given: labels by place, from the best."""
    data = PreferenceData.from_tables(answers=table, **options)
    answers, number = data.to_tables()[1], Counter[tuple[frozenset[str], ...]]()
    if "list" not in answers:
        for row in answers.to_dict("records"):
            ends = [str(row["winner"])], [str(row["loser"])]
            tied = [frozenset(ends[0] + ends[1])]
            number[tuple(tied if row.get("tie") else map(frozenset, ends))] += row["count"]
        return number
    for _, rows in answers.groupby("list"):
        places = pd.to_numeric(rows["place"]).fillna(float("inf"))
        items = [frozenset(map(str, rows["item"][places == place])) for place in sorted({*places})]
        number[tuple(items)] += int(rows["count"].iloc[0])
    return number


def parsed(text: str) -> Answers:
    """Return answers such as ``a>b=c; b=c*2``."""
    number = Counter[tuple[frozenset[str], ...]]()
    for answer in text.split("; "):
        order, _, times = answer.partition("*")
        number[tuple(frozenset(block.split("=")) for block in order.split(">"))] += int(times or 1)
    return number


def cases() -> dict[str, tuple[str, str, dict[str, str]]]:
    """Return tables as people write them by their names: the text, its answers, and options."""
    blocks = (Path(__file__).parent / "tables_read.txt").read_text(encoding="utf-8").split("\n# ")
    read_from = {}
    for block in blocks[1:]:
        head, _, rest = block.partition("\n")
        name, *options = head.split("; ")
        text, _, answers = rest.partition("\n=> ")
        read_from[name] = text, answers.strip(), dict(option.split("=") for option in options)
    return read_from


READ = cases()


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("typed", [False, True], ids=["text", "typed"])
def test_tables_are_read(name: str, typed: bool) -> None:
    text, answers, options = READ[name]
    assert read(frame(text, typed=typed), **options) == parsed(answers)


REFUSED = {
    "penalties": "home,away,home_goals,away_goals,shootout_winner\na,b,1,1,b\nb,c,2,0,\nc,a,0,1,",
    "results of the second alone": "a_name,b_name,result\nx,y,0\ny,z,0\nz,x,0",
    "outcomes before the game": "team1,team2,predicted_winner\na,b,b\nb,c,b\nc,a,c",
    "half time": "HomeTeam,AwayTeam,HTHG,HTAG\na,b,1,0\nb,c,1,1\nc,a,0,1",
    "groups of a test": "option_a,option_b,group\nx,y,A\ny,z,B\nz,x,A",
    "standings": "Team,Played,Won,Lost\na,3,2,1\nb,3,1,2\nc,3,1,2",
    "two kinds of items": "race,horse,rider,finish\n1,a,j,1\n1,b,k,2\n2,b,j,1\n2,a,k,2",
    "athletes or clubs": """Lauf,Athlet,Verein,Platz
1,Ann,TSV,1
1,Bo,SV,2
2,Bo,SV,1
2,Ann,TSV,2
3,Cy,SV,1
3,Ann,TSV,2""",
    "links": "source,target,weight\na,b,1\nb,c,1",
    "likert": "item_a,item_b,preference\na,b,-2\nb,c,1\nc,a,3",
    "esports wins": "blueTeam,redTeam,blueWin\nG2,T1,True\nT1,GEN,False\nGEN,G2,True",
    "times of cities and years no better": """race,year,runner,time
Rom,1,a,61
Rom,1,b,62
Rom,2,a,63
Rom,2,b,64
Bonn,1,a,65
Bonn,1,b,66
Bonn,2,a,67
Bonn,2,b,68""",
    "times no better": "heat,swimmer,time\n1,Ann,58.1\n1,Bo,59.3\n2,Bo,60.2\n2,Cy,59.9",
    "numbers of both sides": "home,away,result_home,result_away\na,b,2,1\nb,c,0,0\nc,a,1,3",
    "places of both sides": "p_1,p_2,result_1,result_2\na,b,1,2\nb,c,2,1\nc,a,2,1",
    "truths for one side": "radiant,dire,radiant_win\nOG,EG,True\nEG,VP,False\nVP,OG,False",
    "prices": "product,price\nx,3\ny,4",
    "leader scores": "model,elo\nx,1200\ny,1100",
    "one numeric": "name,score\nx,3\ny,4\nz,1",
    "ratings alone": "user,movie,rating\n1,x,5\n1,y,3\n2,x,4\n2,z,1",
    "toss only": "team1,team2,toss_winner\na,b,a\nb,c,c\nc,a,a",
    "two winners": "team1,team2,toss_winner,man_of_match_team\na,b,a,b\nb,c,c,b\nc,a,a,c",
    "id space": "player1,player2,winner_id\nann,bob,7\nbob,cy,9\ncy,ann,12",
    "elo only": "white,black,white_elo,black_elo\nann,bob,1500,1400\nbob,cy,1400,1300\ncy,ann,1300,1500",
    "draw team": "team1,team2,winner\nDraw,b,Draw\nb,c,b\nc,Draw,Draw",
    "A B only": "a,b,winner\na,b,a\nb,a,a\na,b,b",
    "winner 0/1": "model_a,model_b,winner\nx,y,0\ny,z,1\nz,x,1",
    "onehot two with tie": "model_a,model_b,winner_model_a,winner_model_b\nx,y,1,0\ny,z,0,1\nz,x,0,0",
    "two annotators": "model_a,model_b,annotator_1,annotator_2\nx,y,A,B\ny,z,B,B\nz,x,A,A",
    "agree annotators": "id,annotator_1,annotator_2\n1,A,B\n2,B,A\n3,A,B",
    "dup outcome disagree": "home,away,result,outcome\na,b,H,A\nb,c,A,A\nc,a,D,D",
    "cities": "home_city,away_city,attendance\nRome,Bari,3\nBari,Como,4\nComo,Rome,5",
    "numbers only": "x1,x2,y\n1,2,3\n2,3,4\n3,1,2",
    "regression": "a,b,label\n1,2,1\n2,3,0\n3,1,1",
    "race tie merged": "race,horse,odds\n1,a,2.0\n1,b,3.0\n2,a,1.5\n2,c,4",
    "a choice of three": "q,option1,option2,option3,choice\n1,a,b,c,b\n2,b,c,a,b\n3,c,b,a,c\n4,a,c,b,b",
    "champion challenger": "champion,challenger,winner\na,b,a\nb,c,c\nc,a,a",
    "one text beside another": "winner,notes\np,q vs r\nq,r vs p",
    "goals of no side": "Home,Away,Res1,Res2\na,b,2,1\nb,c,0,1\nc,a,3,3",
    "losses by epoch": "step,loss vs epoch\n1,0.5\n2,0.4",
    "a pair in cells and no answer": "match,referee\na vs b,Smith\nb vs c,Jones\nc vs a,Smith",
    "two shown and the best alone": "task,item,most,least\n1,x,1,0\n1,y,1,1\n2,x,0,1\n2,y,1,0",
    "at least as good": "ballot\na >= b > c\nc > b >= a",
    "verdicts on a side of another name": "xq,model_b,verdict\nx,y,A>B\ny,z,A=B\nz,x,B>A",
    "scores a and b of home and away": "home,away,score_a,score_b\na,b,2,1\nb,c,0,0\nc,a,1,3",
    "the visitor, results 1 and 2": "visitor,home,res1,res2\na,b,W,L\nb,c,D,D\nc,a,L,W",
    "verdicts on left and right": "left,right,note\nx,y,[[A>>B]]\ny,z,[[B>A]]",
    "weeks": "week,result\nJan - Feb,win\nFeb - Mar,loss",
    "levels of attributes": "ballot\nsize=L > color=red\ncolor=red > size=L",
}
SPOKEN = re.compile(
    r"columns=(\{[^}]*\})(?: \([^)]*\) and better='(low|high)'|, covariates=(\[.*?\]))?"
    r"|(better|unsure)='(\w+)'"
).finditer


def obeyed(table: pd.DataFrame, message: str) -> list[Answers]:
    """Return what is read by each call that a message suggests."""
    calls: list[dict[str, Any]] = []
    for match in SPOKEN(message):
        columns, better, covariates, option, value = match.groups()
        call = {"columns": columns, "covariates": covariates}
        calls.append({name: ast.literal_eval(text) for name, text in call.items() if text})
        calls[-1] |= {"better": better} if better else {}
        calls[-1] |= {option: value} if option else {}
    return [read(table, **call) for call in calls]


def test_notes_show_cells_as_they_are_written() -> None:
    table = frame("race,driver,position\n1,a,1\n1,b,\\N\n1,c,DNF\n2,b,1\n2,a,2\n2,c,3", typed=False)
    notes = PreferenceData.from_tables(answers=table).notes
    assert "answers: below all others of the event: 2 rows (DNF, \\N)" in notes


def test_the_items_of_times_in_several_cities_and_years_can_be_named() -> None:
    text = "city,year,who,time\nRom,1,a,61\nRom,1,b,62\nRom,2,a,63\nRom,2,b,64\nBonn,1,a,65\n"
    table = frame(text + "Bonn,1,b,66\nBonn,2,a,67\nBonn,2,b,68", typed=False)
    with pytest.raises(DataError, match="several ways.*'item': 'who'") as caught:
        read(table, better="low")
    calls = [ast.literal_eval(match[1]) for match in SPOKEN(str(caught.value))]
    assert parsed("a>b*4") in [read(table, better="low", columns=call) for call in calls]


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("typed", [False, True], ids=["text", "typed"])
def test_tables_are_refused_and_what_is_suggested_works(name: str, typed: bool) -> None:
    table = frame(REFUSED[name], typed=typed)
    with pytest.raises(DataError) as caught:
        read(table)
    assert all(obeyed(table, str(caught.value)))


@pytest.mark.parametrize(
    ("text", "message", "answers"),
    [
        (
            "team1,team2,match_winner,winner\na,b,a,b\nb,c,b,b\nc,a,c,c",
            "several ways: .*'match_winner'.*'winner'",
            ["a>b; b>c; c>a", "b>a; b>c; c>a"],
        ),
        (
            "team1,team2,toss_winner,day_winner\na,b,a,b\nb,c,b,b\nc,a,c,c",
            "several ways: .*'toss_winner'.*'day_winner'",
            ["a>b; b>c; c>a", "b>a; b>c; c>a"],
        ),
        (
            "home,away,home_goals,away_goals,result\na,b,1,0,H\nb,c,1,0,A\nc,a,0,1,A",
            "several ways: .*'result'.*'home_goals'",
            ["a>b; c>b; a>c", "a>b; b>c; a>c"],
        ),
        (
            "model_a,model_b,winner\nx,y,0\ny,z,1\nz,x,1",
            "several ways: .*'y' wins in row 0.*'x' wins in row 0",
            ["y>x; y>z; z>x", "x>y; z>y; x>z"],
        ),
        (
            "id1,id2,winner\n1,2,1\n2,1,1\n1,2,2",
            "several ways: .*'1' wins in row 1.*'2' wins in row 1",
            ["1>2*2; 2>1", "1>2; 2>1*2"],
        ),
        (
            "champion,challenger,winner\na,b,a\nb,c,c\nc,a,a",
            "every winner is in 'champion' or 'challenger'",
            ["a>b; c>b; a>c"],
        ),
        (
            "home_team,away_team,home_win\nx,y,0\ny,z,1\nz,x,1",
            "'home_win' .*no tie",
            ["y>x; y>z; z>x"],
        ),
        (
            "left,right,clicked,tapped\na,b,left,right\nb,c,right,right\nc,a,left,left",
            "several ways: .*'clicked'.*'tapped'",
            ["a>b; c>b; c>a", "b>a; c>b; c>a"],
        ),
        ("heat,item,time\n1,a,2.5\n1,b,3", "better='low'", ["a>b", "b>a"]),
        (
            "item_a,item_b,answer\nx,y,A\ny,z,B\nz,x,unsure",
            "row 2 .*'unsure' may be a tie or no answer",
            ["x>y; z>y; z=x", "x>y; z>y"],
        ),
        (
            "race,horse,position\n1,a,0\n1,b,1\n2,b,2\n2,a,1\n2,c,3",
            "row 0 .*'position': 0 is no place.*; if 0 is the best, add 1",
            [],
        ),
        (
            "race,horse,position\n1,a,0\n1,b,1\n1,c,0\n2,b,0\n2,a,1\n2,c,2",
            "row 0 .*'position': 0 is no place",
            [],
        ),
        ("a,b,winner\nx,y,x\ny,z,?!\nz,x,z", "row 1 .*'winner': '\\?!' is neither a label", []),
        (
            "team1,team2,toss_winner\na,b,a\nb,c,c",
            "no column says who was preferred.*add the column 'winner'.*always 'team1'",
            ["a>b; b>c"],
        ),
        (
            "item_a,item_b,preference\na,b,-2\nb,c,1\nc,a,3",
            "how strongly one is preferred.*above 0 are for 'item_a'.*, and else",
            ["b>a; b>c; c>a", "a>b; c>b; a>c"],
        ),
        (
            "tea,coffee,milk\n1,0,-1\n,-1,1\n0,1,-1",
            "each row has 1 and -1 once, in 'tea', 'coffee', 'milk'",
            ["tea>coffee>milk; milk>coffee; coffee>tea>milk"],
        ),
        ("Ann,Bob\nBob,Cy\nCy,Ann", "a line of names above, such as winner,loser", []),
        ("this,that\na,b\nb,c", "'this', 'that' are not recognized as answers", []),
        ("x,y,z\n5,3,1\n2,4,7", "'x', 'y', 'z' are not recognized as answers", []),
        ("name,price\na,1\nb,2", "'name', 'price' are not recognized as answers", []),
        ("one,two\nx,1", "'one', 'two' are not recognized as answers", []),
        ("model_a,model_b,winner_model_a,winner_model_b\nx,y,0,0", "add 'winner_tie'", []),
        (
            "Winner,Loser,Score\na,b,2-1\nb,c,1-3\na,c,3-0",
            "several ways: .*first preferred, by which 'b' wins in row 1 .*'Score', by which 'c'",
            ["a>b; b>c; a>c", "a>b; c>b; a>c"],
        ),
        (
            "WTeam,LTeam,WScore,LScore\na,b,2,1\nb,c,1,1\nc,d,0,1\nc,a,3,0",
            "several ways: .*'b' wins in row 1 .*nobody wins in row 1",
            ["a>b; b>c; c>d; c>a", "a>b; b=c; d>c; c>a"],
        ),
        (
            "Winner/tie,Loser/tie,PtsW,PtsL\na,b,20,17\nb,c,17,17\nc,a,9,6",
            "several ways: .*'b' wins in row 1 .*nobody wins in row 1",
            ["a>b; b>c; c>a", "a>b; b=c; c>a"],
        ),
        (
            "home,away,home_score,away_score,home_pen,away_pen\na,b,1,1,4,3\nb,c,2,0,,\nc,a,0,1,,",
            "several ways: .*nobody wins in row 0 .*'a' wins in row 0",
            ["a=b; b>c; a>c"],
        ),
        (
            "first,second,score,winner\na,b,2-1,a\nb,c,1-3,b\na,c,3-0,a",
            "several ways: .*'score', by which 'c' wins in row 1 .*'winner', by which 'b' wins",
            ["a>b; c>b; a>c", "a>b; b>c; a>c"],
        ),
        (
            "team1,team2,score1,score2,winner\na,b,2,1,a\nb,c,1,3,b\na,c,3,0,a",
            "several ways: .*'winner', by which 'b' wins in row 1 .*'c' wins in row 1",
            ["a>b; b>c; a>c", "a>b; c>b; a>c"],
        ),
        (
            "first,second,winner\n1,2,1\n2,3,2\n3,1,1",
            "several ways: .*'2' wins in row 1 .*'3' wins in row 1",
            ["1>2; 2>3; 1>3", "1>2; 3>2; 3>1"],
        ),
        (
            "model_a,model_b,winner\n1,2,1\n3,1,1",
            "several ways: .*'1' wins in row 1 .*'3' wins in row 1",
            ["1>2; 1>3", "1>2; 3>1"],
        ),
        (
            "Date,Visitor,G,Home,G.1\n1,a,2,b,1\n2,b,0,c,0\n3,c,1,a,3",
            "'G' is of 'Visitor' and 'G.1' of 'Home'",
            ["a>b; b=c; a>c"],
        ),
        (
            "White,Black,Res,Res.1\na,b,1,0\nb,c,0.5,0.5\nc,a,0,1",
            "'Res' is of 'White' and 'Res.1' of 'Black'",
            ["a>b; b=c; a>c"],
        ),
        (
            "Black,White,Res1,Res2\na,b,1,0\nb,c,0.5,0.5\nc,a,0,1",
            "'Res1' is of 'Black' and 'Res2' of 'White', and the higher wins",
            ["a>b; b=c; a>c"],
        ),
        (
            "Team,Score,Team.1,Score.1\na,2,b,1\nb,0,c,0\nc,1,a,3",
            "'Score' is of 'Team' and 'Score.1' of 'Team.1'",
            ["a>b; b=c; a>c"],
        ),
        (
            "Team,Team.1,Result\na,b,2:1\nb,c,0:0\nc,a,1:3",
            "'Team' and 'Team.1' are the sides",
            ["a>b; b=c; a>c"],
        ),
        (
            "visitor,home,score1,score2\na,b,2,1\nb,c,0,0\nc,a,1,3",
            "'score1' of 'home'.*'b' wins in row 0 .*'score1' of 'visitor'.*'a' wins in row 0",
            ["b>a; b=c; c>a", "a>b; b=c; a>c"],
        ),
        (
            "white,black,goals_a,goals_b\na,b,2,1\nb,c,0,0\nc,a,1,3",
            "'goals_a' of 'white'.*'goals_a' of 'black'",
            ["a>b; b=c; a>c", "b>a; b=c; c>a"],
        ),
        (
            "visitor,home,score1,score2,winner\na,b,2,1,1\nb,c,1,3,2",
            "'winner', by which 'b' wins in row 0 .*'score1' of 'visitor'",
            ["b>a; b>c", "a>b; c>b"],
        ),
        (
            "home,away,verdict\nx,y,A>B\ny,z,B>A\nz,x,A>B",
            "the orders in 'verdict'.*'A>B' prefers 'home'.*'A>B' prefers 'away'",
            ["A>B*2; B>A", "x>y; z>y; z>x", "y>x; y>z; x>z"],
        ),
        (
            "left,right,verdict\nx,y,A>B\ny,z,A=B\nz,x,B>A",
            "'verdict', by which 'x' wins in row 0 .*'verdict', by which 'y' wins in row 0",
            ["x>y; y=z; x>z", "y>x; y=z; z>x"],
        ),
        (
            "home,away,outcome\nx,y,A\ny,z,B\nz,x,A",
            "'outcome', by which 'x' wins in row 0 .*'outcome', by which 'y' wins in row 0",
            ["x>y; z>y; z>x", "y>x; y>z; x>z"],
        ),
        (
            "white,black,winner\nx,y,tie\ny,z,B\nz,x,A",
            "'winner', by which 'z' wins in row 1 .*'winner', by which 'y' wins in row 1",
            ["x=y; z>y; z>x", "x=y; y>z; x>z"],
        ),
        (
            "fighter_1,fighter_2,winner\nx,y,Red\ny,z,Blue\nz,x,Draw",
            "'winner', by which 'x' wins in row 0 .*'winner', by which 'y' wins in row 0",
            ["x>y; z>y; z=x", "y>x; y>z; z=x"],
        ),
        (
            "blueTeam,redTeam,result\nx,y,1\ny,z,0\nz,x,1",
            "'result', by which 'y' wins in row 0 .*'result', by which 'x' wins in row 0",
            ["y>x; y>z; x>z", "x>y; z>y; z>x"],
        ),
        (
            "red_team,blue_team,winner\nx,y,1\ny,z,2\nz,x,1",
            "'winner', by which 'x' wins in row 0 .*'winner', by which 'y' wins in row 0",
            ["x>y; z>y; z>x", "y>x; y>z; x>z"],
        ),
        (
            "xq,model_b,note\nx,y,A>B\ny,z,B>A\nz,x,A>B",
            "the orders in 'note'.*'A>B' prefers 'xq'.*'A>B' prefers 'model_b'",
            ["A>B*2; B>A", "x>y; z>y; z>x", "y>x; y>z; x>z"],
        ),
        (
            "From country,To country,Points\nSE,NO,12\nSE,FI,10\nNO,SE,12\nNO,FI,7\nFI,SE,12\nFI,NO,10",
            "orders by 'Points' of 'To country' in each 'From country'",
            ["NO>FI; SE>FI; SE>NO", "NO=FI; SE>FI; SE>NO"],
        ),
        (
            """year,voter,receiver,points
1,SE,NO,12
1,SE,FI,10
1,NO,SE,12
1,NO,FI,7
2,FI,SE,12
2,FI,NO,10
2,SE,FI,3
2,SE,NO,5""",
            "'points' of 'receiver' in each 'year' and 'voter'; say better=",
            ["FI>NO*2; FI>SE; NO>SE", "NO>FI*2; SE>FI; SE>NO"],
        ),
        (
            "item,votes_for,votes_against\na,10,3\nb,4,5\nc,8,1",
            "do not compare it with another",
            [],
        ),
        ("Team,Played,Won,Lost\na,3,2,1\nb,3,1,2\nc,3,1,2", "do not compare it with another", []),
        (
            "user,preferred_movie,other_movie\n1,Alien,was nicer\n2,Brazil,I do not know",
            "share no label",
            ["Alien>was nicer; Brazil>I do not know"],
        ),
        (
            "s,a,b,c\nx,1,2,3\ny,2,3,1\nz,3,1,2",
            "a row each.*or orders, a column each",
            ["a>b>c; c>a>b; b>c>a", "x>y>z; z>x>y; y>z>x"],
        ),
    ],
)
def test_refusals_name_the_ways_to_read_a_table(
    text: str, message: str, answers: list[str]
) -> None:
    table = frame(text, typed=True)
    with pytest.raises(DataError, match=message) as caught:
        read(table)
    assert obeyed(table, str(caught.value)) == [parsed(each) for each in answers]


@pytest.mark.parametrize(
    "text",
    [
        "winner,loser\na,b\nb,c",
        "winner,loser,x\na,b,1\nb,c,0",
        "first,second,result\na,b,1\nb,c,0",
        "list,item,place\n1,a,1\n1,b,2",
        "first,second,shown_first\na,b,a\nb,c,c",
    ],
)
def test_tables_with_our_names_are_left_alone(text: str) -> None:
    table = Table(frame(text, typed=False), "answers", text=True)
    pd.testing.assert_frame_equal(recognized(table).frame, table.frame)


@pytest.mark.parametrize("name", READ)
def test_readings_do_not_depend_on_order_case_or_separators(name: str) -> None:
    text, answers, options = READ[name]
    table, draw = frame(text, typed=False), random.Random(name)
    labels = frozenset().union(*(block for order in parsed(answers) for block in order))
    columns = draw.sample([*table], len(table.columns))
    rows = table[columns].sample(frac=1, random_state=draw.randrange(99))
    for change in (
        str,
        lambda column: re.sub("[ _.-]", lambda _: draw.choice(" _.-"), column),
        str if re.search("[a-z][A-Z]", "".join(table)) or labels & {*table} else str.upper,
    ):
        changed = rows.rename(columns={column: change(column) for column in columns})
        assert read(changed, **options) == parsed(answers)


def test_that_strengths_in_words_are_not_read_is_noted() -> None:
    table = frame("item_a,item_b,answer\nx,y,strongly A\ny,z,slightly B", typed=True)
    notes = PreferenceData.from_tables(answers=table).notes
    assert any("the outcome 'answer' (how strongly is not read)" in note for note in notes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("home,away,result\nx,y,D\ny,z,2\nz,x,1", "'result', by which 'z' wins in row 1"),
        ("team1,team2,result\nx,y,D\ny,z,H\nz,x,A", "'result', by which 'y' wins in row 1"),
        ("golfer 1,golfer 2,score 1,score 2\nx,y,70,71", "'score 2', by which 'y' wins in row 0"),
    ],
)
def test_notes_say_who_wins_in_one_row(text: str, said: str) -> None:
    notes = PreferenceData.from_tables(answers=frame(text, typed=True)).notes
    assert any(said in note for note in notes)


@pytest.mark.parametrize(
    "columns",
    [{"winner": "White"}, {"second": "Event"}, {"first_score": "WhiteElo"}, {"result": "Event"}],
)
def test_columns_that_are_named_wrongly_are_refused(columns: dict[str, str]) -> None:
    text = "Event,White,Black,WhiteElo\nx,Ann,Bo,2500\ny,Bo,Cy,2400\nz,Cy,Ann,2300"
    with pytest.raises(DataError):
        read(frame(text, typed=True), columns=columns)


def test_strengths_are_read() -> None:
    text = "model_a,model_b,verdict\nx,y,[[A>>B]]\ny,z,[[A=B]]\nz,x,[[B>A]]"
    data: Any = PreferenceData.from_tables(answers=frame(text, typed=True))
    assert data.comparisons.strength.tolist() == [2, 1, 0]
    text, ends = "p,q,score\nx,y,-3\ny,z,0\nz,x,1", {"first": "p", "second": "q"}
    data = PreferenceData.from_tables(
        answers=frame(text, typed=True), columns={**ends, "result": "score"}
    )
    assert data.comparisons.strength.tolist() == [3, 0, 1]


@pytest.mark.parametrize("text", ["Ann,Bob,Ann", "1,Ann,Bob,2,1", "2024-01-01,Ann,Bob"])
def test_names_are_suggested_where_the_first_row_is_an_answer(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.csv"
    file.write_text(f"{text}\n{text.replace('Ann', 'Cy')}\n")
    with pytest.raises(DataError, match="the names of the columns may be missing") as caught:
        PreferenceData.from_tables(answers=file)
    line = str(caught.value).partition("such as ")[2].partition(" (")[0]
    file.write_text(f"{line}\n{file.read_text()}")
    assert PreferenceData.from_tables(answers=file).num_answers == 2


def test_covariates_and_sides_are_named_as_the_table_does() -> None:
    table = frame(
        "home_team,away_team,result,length_home,length_away,judge\n"
        "a,b,H,1,2,j\nb,c,A,3,5,k\nc,a,D,2,2.5,j",
        typed=True,
    )
    data: Any = PreferenceData.from_tables(answers=table, covariates=["length"])
    assert data.comparisons.covariates.T.tolist() == [[-1, 0.5, 2]]
    suggested = [note for note in data.notes if "columns=" in note]
    assert ["'rater': 'judge'" in note for note in suggested] == [True, False]
    assert "columns={'home': 'home_team'}" in suggested[1] and "covariates=['home']" in suggested[1]
    home: Any = PreferenceData.from_tables(
        answers=table, columns={"home": "home_team", "rater": "judge"}, covariates=["home"]
    )
    assert home.comparisons.covariates.T.tolist() == [[1, -1, -1]]
    assert home.comparisons.raters == ("j", "k")
    assert not any("columns=" in note for note in home.notes)
    shown: Any = PreferenceData.from_tables(answers=table, columns={"shown_first": "away_team"})
    assert shown.comparisons.shown_first.tolist() == [-1, 1, 1]
    ranks = frame("Winner,Loser,WRank,LRank\na,b,1,2\nb,c,2,7", typed=True)
    read_ranks: Any = PreferenceData.from_tables(answers=ranks, covariates=["rank"])
    assert read_ranks.comparisons.covariates.T.tolist() == [[-1, -5]]


@pytest.mark.parametrize(
    "name",
    [
        "Verkoster",
        "taster",
        "panelist",
        "user_id",
        "Session",
        "participant",
        "Prüfer",
        "juge",
        "juez",
    ],
)
def test_who_answered_is_named_in_many_words(name: str) -> None:
    table = frame(f"winner,loser,{name}\na,b,x\nb,c,y\na,c,x", typed=True)
    data: Any = PreferenceData.from_tables(answers=table)
    (note,) = (note for note in data.notes if "may say who answered" in note)
    call = ast.literal_eval(next(SPOKEN(note))[1])
    assert call == {"rater": name} and f"rater={name}" in note
    read_again: Any = PreferenceData.from_tables(answers=table, columns=call)
    assert read_again.comparisons.raters == ("x", "y")


def test_numbers_beside_the_items_are_no_items() -> None:
    rows = "tea,coffee,water\n5,3,4\n4,4,1\n3,2,5\n1,2,2"
    expected = parsed("tea>water>coffee; tea=coffee>water; water>tea>coffee; coffee=water>tea")
    for more in (
        "id,7,12,9,1",
        "year,3,4,3,5",
        "Temperatur,2,3,4,1",
        "humidity,51,60,70,55",
        "x,1,2,3,4",
        "gauge,4001,3500,4001,4001",
    ):
        cells = zip(rows.split("\n"), more.split(","), strict=True)
        table = frame("\n".join(map(",".join, cells)), typed=True)
        try:
            assert read(table, better="high") == expected
        except DataError as error:
            calls = [ast.literal_eval(match[1]) for match in SPOKEN(str(error))]
            assert expected in [read(table, better="high", columns=call) for call in calls]


def test_options_are_checked() -> None:
    table = frame("winner,loser\na,b", typed=True)
    with pytest.raises(DataError, match="better='up': .*better is low or high"):
        read(table, better="up")
    with pytest.raises(DataError, match="beter='low': there is no such option"):
        read(table, beter="low")
    with pytest.raises(DataError, match="better='low' is for times or points"):
        read(table, better="low")


def test_words_of_names() -> None:
    names = ["HomeTeam", "model_a_name", "R_fighter", "home.wins", "item1", "FTHG", "1st", "Item 2"]
    names += ["hometeam", "Heimmannschaft", "Wei\N{LATIN SMALL LETTER SHARP S}", "player1Name"]
    assert [" ".join(words(name)) for name in names] == [
        "home team", "model a name", "r fighter", "home wins", "item 1", "fthg", "1st", "item 2",
        "home team", "heim mannschaft", "weiss", "player 1 name",
    ]  # fmt: skip


def test_tables_that_were_read_from_files_are_recognized(tmp_path: Path) -> None:
    file = tmp_path / "matches.csv"
    file.write_bytes("Heim;Gast;Ergebnis\nKöln;Mainz;2:1\nBremen;Köln;0:2\n".encode("cp1252"))
    expected = PreferenceData.from_tables(answers=file)
    for data in (
        PreferenceData.from_tables(answers=file, encoding="cp1252"),
        PreferenceData.from_tables(answers=read_table(file)),
    ):
        assert data.labels == expected.labels == ("Köln", "Mainz", "Bremen")
        assert data.winner.tolist() == expected.winner.tolist()


def test_digits_that_are_no_numbers_are_no_places() -> None:
    with pytest.raises(DataError, match="is not a number"):
        read(pd.DataFrame({"winner": ["a"], "loser": ["b"], "count": ["¹"]}))
    with pytest.raises(DataError, match="there is no column 'winner'"):
        read(pd.DataFrame({"ner": ["a", "b"], "loser": ["007", "¹"], "count": ["2", "1"]}))


def test_times_of_events_whose_numbers_begin_again() -> None:
    rows = [("Rome", 1, "a", 9), ("Rome", 1, "b", 8), ("Oslo", 1, "c", 7), ("Oslo", 1, "d", 9)]
    rows += [("Rome", 2, "c", 9), ("Rome", 2, "a", 8), ("Oslo", 2, "b", 7), ("Oslo", 2, "d", 9)]
    table = pd.DataFrame(rows, columns=["town", "heat", "swimmer", "time"])
    with pytest.raises(DataError, match="in several ways.*'heat'.*'heat' and 'town'"):
        read(table, better="low")
    one = table[table["town"] == "Rome"]
    assert sum(read(one, better="low").values()) == 2


@pytest.mark.parametrize("name", ["votes", "n", "Times", "freq"])
def test_counts_are_named(name: str) -> None:
    table = frame(f"winner,loser,{name}\na,b,12\nb,c,1\nc,a,3", typed=True)
    data: Any = PreferenceData.from_tables(answers=table)
    (note,) = (note for note in data.notes if "may count equal answers" in note)
    call = ast.literal_eval(next(SPOKEN(note))[1])
    read_again: Any = PreferenceData.from_tables(answers=table, columns=call)
    assert read_again.comparisons.count.sum() == 16


def test_words_for_no_item_are_no_candidates() -> None:
    text = "1st,2nd,3rd\nAnn,Bob,-\nBob,Ann,none\novervote,Ann,Bob\nBob,Skipped,Ann"
    data: Any = PreferenceData.from_tables(answers=frame(text, typed=True))
    assert sorted(data.labels) == ["Ann", "Bob"]
    (note,) = (note for note in data.notes if "read as blanks" in note)
    assert "4 cells" in note


def test_notes_say_how_to_estimate_home_advantage_and_that_neutral_ground_is_not_used() -> None:
    text = "home_team,away_team,home_score,away_score,neutral\na,b,1,0,FALSE\nb,a,2,2,TRUE"
    table = frame(text, typed=False)
    notes = " ".join(PreferenceData.from_tables(answers=table).notes)
    assert "covariates=['home'] (--columns home=home_team --covariates home) estimates" in notes
    home: dict[str, Any] = {"columns": {"home": "home_team"}, "covariates": ["home"]}
    notes = " ".join(PreferenceData.from_tables(answers=table, **home).notes)
    assert "'neutral' is not used; leave 'home' blank" in notes


@pytest.mark.parametrize("names", ["home_team,away_team,score1,score2", "Heim,Gast,Tore_1,Tore_2"])
def test_scores_1_and_2_of_home_and_away_in_this_order_are_noted(names: str) -> None:
    table = frame(f"{names}\na,b,2,1\nb,c,0,0\nc,a,1,3", typed=True)
    home, away, *scores = table
    assert read(table) == parsed("a>b; b=c; a>c")
    notes = " ".join(PreferenceData.from_tables(answers=table).notes)
    assert f"({scores[0]!r} of {home!r}, which is first)" in notes
    for columns in ([away, home, *scores], [home, away, *scores[::-1]]):
        with pytest.raises(DataError, match="several ways"):
            read(table[columns])


def test_times_and_points_that_disagree_are_two_readings() -> None:
    table = frame("heat,swimmer,time,points\n1,a,2.5,1.5\n1,b,3.5,0.5", typed=True)
    with pytest.raises(DataError, match="several ways: .*'time'.*or .*'points'") as caught:
        read(table, better="low")
    calls = [ast.literal_eval(match[1]) for match in SPOKEN(str(caught.value))]
    answers = [read(table, better="low", columns=columns) for columns in calls]
    assert answers == [parsed("a>b"), parsed("b>a")]


RESULTS = "raceId,driverId,constructorId,grid,position,positionOrder,points\n"
RESULTS += "1,ann,m,2,1,1,10\n1,bob,m,1,2,2,8\n1,cy,f,3,\\N,3,0\n"
RESULTS += "2,ann,m,1,2,2,8\n2,bob,f,3,3,3,6\n2,cy,f,2,1,1,10"
MATCHES = "home,away,result,best_player\na,b,H,b\nb,c,A,b\nc,a,D,a"


@pytest.mark.parametrize(
    ("text", "columns", "answers"),
    [
        (
            RESULTS,
            {"list": "raceId", "item": "driverId", "place": "grid"},
            "bob>ann>cy; ann>cy>bob",
        ),
        (RESULTS, {"place": "grid"}, "bob>ann>cy; ann>cy>bob"),
        (RESULTS, {"place": "positionOrder"}, "ann>bob>cy; cy>ann>bob"),
        (MATCHES, {"winner": "best_player"}, "b>a; b>c; a>c"),
        (
            "team1,team2,goals1,goals2,winner\na,b,1,0,b\nb,a,2,1,a",
            {"first_score": "goals1", "second_score": "goals2"},
            "a>b; b>a",
        ),
        ("who,boat,R1,R2,R3\nx,a,1,2,1\ny,b,2,1,2\nz,c,3,3,3", {"item": "boat"}, "a>b>c*2; b>a>c"),
    ],
)
def test_columns_that_are_named_are_used(text: str, columns: Any, answers: str) -> None:
    assert read(frame(text, typed=True), columns=columns) == parsed(answers)


@pytest.mark.parametrize(
    ("text", "columns", "said"),
    [
        (
            RESULTS,
            {"item": "constructorId"},
            "'constructorId' .*orders by 'position' of 'driverId'",
        ),
        (MATCHES, {"item": "best_player"}, "'best_player' .*the outcome 'result'"),
        (MATCHES, {"place": "best_player"}, "'best_player' .*the outcome 'result'"),
        (MATCHES, {"loser": "away"}, "'away' .*the outcome 'result'"),
    ],
)
def test_columns_that_no_form_has_are_not_passed_over(text: str, columns: Any, said: str) -> None:
    table = frame(text, typed=True)
    with pytest.raises(DataError, match=f"no form of answers has {said}"):
        read(table, columns=columns)
    assert read(table)


MISSING_ITEMS = [
    "home,away,result\na,b,H\nb,{},H\nc,a,D",
    "model_a,model_b,winner\na,b,a\nb,{},b\n{},c,c\nc,a,tie",
    "winner,loser,result\na,b,win\nb,{},win\nc,a,draw",
    "first,second,result\na,b,1\n{},b,0\nc,a,0.5",
]


@pytest.mark.parametrize("typed", [False, True], ids=["text", "typed"])
@pytest.mark.parametrize("text", MISSING_ITEMS)
@pytest.mark.parametrize("word", ["", "nan", "NaN", "<NA>", "null", "\\N"])
def test_pairs_without_an_item_are_left_out(text: str, word: str, typed: bool) -> None:
    table = frame(text.format(word, word), typed=typed)
    data = PreferenceData.from_tables(answers=table)
    assert sorted(data.labels) == ["a", "b", "c"] and read(table) == parsed("a>b; c=a")
    (note,) = (note for note in data.notes if "without an item" in note)
    assert note.startswith(f"answers: left out: {text.count('{')} row")


@pytest.mark.parametrize("word", ["NA", "None"])
def test_words_on_both_sides_are_items(word: str) -> None:
    once, twice = (frame(text.format(word, word), typed=False) for text in MISSING_ITEMS[:2])
    assert read(once) == parsed("a>b; c=a")
    data = PreferenceData.from_tables(answers=twice)
    assert sorted(data.labels) == sorted(["a", "b", "c", word])
    known = PreferenceData.from_tables(["a", "b", "c", word], once)
    assert known.num_answers == 3


def test_an_answer_with_no_item_at_all_is_refused() -> None:
    with pytest.raises(DataError, match="the label is missing"):
        read(frame("home,away,result\na,,H\nb,,A", typed=True))


@pytest.mark.parametrize(
    ("text", "better", "said"),
    [
        ("event,athlete,points\n1,Ann,1.250\n1,Bo,980\n2,Bo,1.100\n2,Ann,870", "high", "."),
        ('event,athlete,points\n1,Ann,"1,250"\n1,Bo,980\n2,Bo,"1,100"\n2,Ann,870', "high", ","),
        ("home,away,home_points,away_points\na,b,1.250,980\nb,c,870,1.100\nc,a,500,600", "", "."),
        ("winner,loser,weight\na,b,1.250\nb,c,980", "", "."),
        ("person,tea,coffee,milk\np,1.250,980,1.300\nq,1.150,1.200,990", "high", "."),
    ],
)
def test_thousands_beside_plain_numbers_are_refused(
    tmp_path: Path, text: str, better: str, said: str
) -> None:
    file = tmp_path / "a.csv"
    options: dict[str, Any] = {"better": better} if better else {}
    file.write_text(text)
    with pytest.raises(DataError, match="may be decimal or between thousands") as caught:
        PreferenceData.from_tables(answers=file, **options)
    call = str(caught.value).partition("read it with ")[2].partition("), or with ")[0] + ")"
    thousands = eval(call, {"pandas": pd, "file": file})
    decimals = eval(call.replace("thousands", "decimal"), {"pandas": pd, "file": file})
    assert f"={said!r})" in call and read(thousands, **options) and read(decimals, **options)
    assert thousands.max(numeric_only=True).max() > 1000 > decimals.max(numeric_only=True).max()


@pytest.mark.parametrize("cells", ["9.580 120.5", "1.250 98", "0.125 980", "1.5 1000"])
def test_decimals_beside_whole_numbers_are_read(cells: str) -> None:
    first, second = cells.split()
    text = f"heat,swimmer,time\n1,a,{first}\n1,b,{second}\n2,b,{first}\n2,a,{second}"
    assert read(frame(text, typed=False), better="low") == parsed("a>b; b>a")


def test_zeros_are_the_best_only_where_each_event_has_them() -> None:
    from_zero = frame("race,horse,position\n1,a,0\n1,b,1\n2,b,0\n2,a,1\n2,c,2", typed=True)
    assert read(from_zero) == parsed("a>b; b>a>c")
    notes = PreferenceData.from_tables(answers=from_zero).notes
    assert any("each list has the place 0 once, which was read as the best" in n for n in notes)
    faults = frame("event,horse,score\n1,a,0\n1,b,4\n1,c,0\n2,a,8\n2,b,0", typed=True)
    assert read(faults, better="low") == parsed("a=c>b; b>a")
    for text, place in (
        ("event,horse,score\n1,a,4\n1,b,8\n2,b,0\n2,a,12", "row 2 .*: 0 is below all others"),
        ("race,Thunder,Bolt,Storm\nx,1,2,0\ny,2,1,3", "row 0 .*: 0 is below all others"),
    ):
        with pytest.raises(DataError, match=place):
            read(frame(text, typed=True), better="low")
    par = frame("event,golfer,score\n1,a,0\n1,b,-4\n2,b,3\n2,a,1", typed=True)
    assert read(par, better="low") == parsed("b>a; a>b")


def test_rows_that_are_left_out_share_labels_too() -> None:
    for text in (
        "home,away,result,was_cancelled\na,b,H,no\nb,c,A,yes\na,d,A,no",
        "team,opponent,result\na,b,W\nb,a,L\na,c,D\nc,a,D",
    ):
        notes = PreferenceData.from_tables(answers=frame(text, typed=True)).notes
        assert not any("share no label" in note for note in notes)


def test_an_item_that_is_twice_in_an_order_is_named_by_its_line(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("voter,1st,2nd,3rd\nv7,a,b,c\nv8,b,a,b\nv9,c,a,b\n")
    with pytest.raises(DataError, match=r"a\.csv, line 3: 'b' is twice in this list; drop one"):
        PreferenceData.from_tables(answers=file)


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("team,a,b,c\na,,3,1\nb,2,,0\nc,0,1,", "a>b*3; b>a*2; a>c; c>b"),
        (",a,b,c\na,0,3,1\nb,2,0,0\nc,0,1,0", "a>b*3; b>a*2; a>c; c>b"),
        ("team,a,b,c,sum\na,,3,1,4\nb,2,,0,2\nc,0,1,,1", "a>b*3; b>a*2; a>c; c>b"),
        ("Heim,a,b,c\na,,3:1,1:1\nb,2:0,,4:0\nc,0:3,1:0,", "a>b; a=c; b>a; b>c; a>c; c>b"),
    ],
)
def test_how_to_unfold_a_table_of_items_by_items_is_said(
    tmp_path: Path, text: str, answers: str
) -> None:
    file = tmp_path / "a.csv"
    file.write_text(text)
    with pytest.raises(DataError, match="and other columns name the same items") as caught:
        PreferenceData.from_tables(answers=file)
    call = re.search(r"table\.melt.*(?= is for cells)", str(caught.value))
    assert call and read(eval(call[0], {"table": pd.read_csv(file)})) == parsed(answers)


def test_columns_of_the_same_name_in_a_file_are_told_apart_by_their_number(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("Visitor,G,Home,G\na,2,b,1\nb,0,c,0\nc,1,a,3\n")
    with pytest.raises(DataError, match="'G' is of 'Visitor'") as caught:
        PreferenceData.from_tables(answers=file)
    columns = ast.literal_eval(next(SPOKEN(str(caught.value)))[1])
    assert columns["second_score"] == "G (column 4)"
    assert read(read_table(file, repeats=True), columns=columns) == parsed("a>b; b=c; a>c")


def test_games_in_pgn_are_refused_with_the_line_that_makes_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    games = ("Ann", "Bo", "1-0"), ("Bo", "Cy", "1/2-1/2"), ("Cy", "Ann", "0-1")
    tags = (
        '[Event "x"]\n[White "{}"]\n[WhiteElo "2000"]\n[Black "{}"]\n[Result "{}"]\n\n1. e4 e5\n\n'
    )
    file = tmp_path / "games.pgn"
    file.write_text("".join(tags.format(*game) for game in games))
    with pytest.raises(DataError, match="games of chess in PGN") as caught:
        PreferenceData.from_tables(answers=file)
    monkeypatch.chdir(tmp_path)
    eval(str(caught.value).partition("is written by ")[2], {"pandas": pd, "pathlib": pathlib})
    assert read(pd.read_csv("games.csv")) == parsed("Ann>Bo; Bo=Cy; Ann>Cy")


def test_an_equals_sign_that_may_be_a_part_of_labels_is_a_second_reading() -> None:
    table = frame("ballot\na > b = c > d\nd > b = c > a", typed=True)
    with pytest.raises(DataError, match="several ways: .*in which = is a tie; or the orders"):
        read(table)


def test_one_order_alone_is_refused_with_the_list_that_it_lacks() -> None:
    table = frame("item,place\na,1\nb,2\nc,2", typed=True)
    with pytest.raises(DataError, match=r"one order: table.assign\(list=1\)"):
        read(table)
    assert read(table.assign(list=1)) == parsed("a>b=c")


def test_results_in_texts_and_numbers_are_read() -> None:
    table = pd.DataFrame({"first": ["a", "b"], "second": ["b", "c"], "result": ["½", 1]})
    assert read(table) == parsed("a=b; b>c")


def test_columns_of_lists_are_not_used() -> None:
    table = frame("model_a,model_b,winner\nx,y,model_a\ny,z,tie", typed=True)
    assert read(table.assign(conversation=[[{"role": "user"}], []])) == parsed("x>y; y=z")


def test_texts_with_commas_are_no_orders() -> None:
    with pytest.raises(DataError, match="are not recognized as answers"):
        read(frame('name,order\nx,"first, we eat"\ny,"then, we go"', typed=True))


@pytest.mark.parametrize(
    "answers",
    [
        {"home_score": [2, 1, 0, 3], "away_score": [1, 0, 2, 1]},
        {"home.wins": [2, 1, 0, 3], "away.wins": [1, 0, 2, 1]},
        {"result": list("HAHD")},
        {"winner": ["home", "away", "away", "home"]},
    ],
)
def test_sides_named_against_their_order(answers: dict[str, Any]) -> None:
    """Columns that say home and away mean these, whichever is called the first."""
    table = pd.DataFrame({"away": list("abca"), "home": list("bcac")} | answers)
    several = [
        PreferenceData.from_tables(answers=table, columns=columns).to_tables()[1]
        for columns in (
            None,
            {"first": "away", "second": "home"},
            {"first": "home", "second": "away"},
        )
    ]
    for other in several[1:]:
        columns = list(several[0].columns)
        first, second = (
            each.sort_values(columns, ignore_index=True) for each in (several[0], other)
        )
        decided = first.drop(columns=[c for c in ("tie",) if c in columns])
        assert len(first) == len(second)
        ties = first["tie"] if "tie" in columns else pd.Series(False, first.index)
        same = second.drop(columns=[c for c in ("tie",) if c in columns])
        pd.testing.assert_frame_equal(decided[~ties], same[~ties])
