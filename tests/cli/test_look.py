"""``relpref look``: how tables are read, and what a fit would use."""

import shlex
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

GOALS = "HomeTeam;AwayTeam;FTHG;FTAG;Date\nKöln;Mainz;2;1;1.5.\nMainz;FC Köln;0;0;2.5.\nFC Köln;Köln;3;1;3.5.\n"


def test_columns_and_what_a_fit_would_use(place: Path, ask: Any) -> None:
    (place / "my goals.csv").write_bytes(GOALS.encode("cp1252"))
    said = ask("look 'my goals.csv'")
    lines = said.splitlines()
    assert lines[:7] == [
        "my goals.csv",
        "column    used as     first cells",
        "HomeTeam  first       'Köln', 'Mainz', 'FC Köln'",
        "AwayTeam  second      'Mainz', 'FC Köln', 'Köln'",
        "FTHG      the answer  '2', '0', '3'",
        "FTAG      the answer  '1', '0'",
        "Date      not used    '1.5.', '2.5.', '3.5.'",
    ]
    assert lines[8] == "A fit would use: 3 items, 3 answers to 3 pairs, 1 tie"
    assert "is read as cp1252: 'Köln', 'FC Köln'" in said
    assert lines[-1] == "To fit: relpref fit 'my goals.csv'"


def test_the_command_that_is_offered_fits(place: Path, ask: Any) -> None:
    (place / "it's.csv").write_text("who, first,than\nann,tea,milk\nbob,milk,tea\n")
    said = ask("look", "it's.csv", "--columns", "winner=first,loser=than,rater=who")
    assert "2 raters" in said
    command = shlex.split(said.splitlines()[-1].removeprefix("To fit: relpref "))
    ask("", *command, "--out", "other", "--quiet")


@pytest.mark.parametrize(
    ("content", "option", "used", "left_out"),
    [
        ("heat,swimmer,time\n1,ann,9\n1,bob,8\n2,ann,7\n2,bob,9\n", "--better low", "time", ""),
        ("race,horse,place\n1,a,1\n1,b,2\n1,c,DNF\n", "--unplaced out", "place", "left out"),
        ("a,b,winner\nx,y,a\ny,z,both bad\nz,x,b\n", "--both-bad drop", "winner", "left out"),
    ],
)
def test_options_of_reading(
    place: Path, ask: Any, content: str, option: str, used: str, left_out: str
) -> None:
    (place / "a.csv").write_text(content)
    said = ask(f"look a.csv {option}")
    assert left_out in said
    line = next(line for line in said.splitlines() if line.split()[:1] == [used])
    assert "?" not in line and "not used" not in line


def test_items_and_relations(place: Path, ask: Any) -> None:
    (place / "items.csv").write_text("name,size,color,note\na,1,red,x\nb,,blue,y\nc,3,red,z\n")
    (place / "answers.csv").write_text("winner,loser\na,b\n")
    (place / "links.csv").write_text("source,target\na,c\n")
    said = ask("look answers.csv --items items.csv --relation near=links.csv")
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert lines[lines.index("items.csv") + 2 :][:4] == [
        "name label 'a', 'b', 'c'",
        "size 'size', 'size missing' '1', '', '3'",
        "color 'color=red' 'red', 'blue'",
        "note not used 'x', 'y', 'z'",
    ]
    assert "relations: near (2 nodes, 1 edge)" in said


@pytest.mark.parametrize(
    ("name", "content", "out", "reason"),
    [
        ("a.csv", "one,two\nx,1\n", "one     ?        'x'", "are not recognized as answers"),
        ("a.csv", "winner,loser\n", "winner  ?", "the table has no rows"),
        ("a.json", "{", "", "not valid JSON"),
        ("a.csv", "winner,loser\n,b\n,c\n", "winner  winner   ''", "the label is empty"),
    ],
)
def test_what_is_wrong_is_said_below_the_columns(
    place: Path, invoke: Any, name: str, content: str, out: str, reason: str
) -> None:
    (place / name).write_text(content)
    said = invoke(f"look {name}")
    assert said.code == 2 and reason in said.err and out in said.out
    assert "A fit would use" not in said.out


def test_every_option_of_the_model_and_the_engine(place: Path, ask: Any, refused: Any) -> None:
    (place / "answers.csv").write_bytes("winner,loser\nTée,milk\nmilk,Tée\n".encode("utf-16"))
    options = "--option normalize=false --option max_sweeps=300 --encoding utf-16"
    ask(f"fit answers.csv {options} --out other --hyperparameters maximize")
    assert "max_sweep" in refused("fit answers.csv --out another --option max_sweep=3")
    assert "--option max_sweeps: write" in refused(
        "fit answers.csv --out another --option max_sweeps"
    )


def test_names_of_columns_may_hold_commas_and_spaces(place: Path, ask: Any) -> None:
    (place / "a.csv").write_text('"better, I think",worse of two\ntea,milk\n')
    said = ask("look", "a.csv", "--columns", "winner=better, I think,loser=worse of two")
    assert "2 items, 1 answer to 1 pair" in said


def test_a_sheet_of_a_workbook_and_options_as_they_are_typed(
    place: Path, ask: Any, invoke: Any
) -> None:
    pytest.importorskip("openpyxl")
    with pd.ExcelWriter(place / "book.xlsx") as book:
        pd.DataFrame({"by": ["me"]}).to_excel(book, sheet_name="About", index=False)
        votes = pd.DataFrame({"winner": ["a", "b"], "loser": ["b", "c"], "judge": ["x", "y"]})
        votes.to_excel(book, sheet_name="Votes", index=False)
    said = invoke("look book.xlsx")
    assert "in --columns which" in said.err and said.err.endswith("not 'Votes': --sheet Votes\n")
    said = ask("look book.xlsx --sheet Votes")
    assert "'judge' may say who answered: --columns rater=judge uses" in said
    ask("fit book.xlsx --sheet Votes --out other --quiet")
    assert "--columns: 'first' is to be" in invoke("look book.xlsx --columns first=x").err
