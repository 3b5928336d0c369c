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
from relpref.cli.entry import typed as typed_there
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


def cases(file: str) -> dict[str, list[str]]:
    """Return tables as people write them, and what is said below each, by their names."""
    blocks = (Path(__file__).parent / file).read_text(encoding="utf-8").split("\n# ")[1:]
    named = (block.partition("\n") for block in blocks)
    return {name: re.split("\n[=-]> ", rest.strip("\n")) for name, _, rest in named}


def options_of(name: str) -> dict[str, Any]:
    """Return the options that the name of a case ends with."""
    options: dict[str, Any] = {}
    for option in name.split("; ")[1:]:
        key, _, value = option.partition("=")
        pairs = (pair.split(":") for pair in value.split(","))
        options[key] = dict(pairs) if key == "columns" else value
    return options


READ, REFUSED = cases("tables_read.txt"), cases("tables_refused.txt")


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("typed", [False, True], ids=["text", "typed"])
def test_tables_are_read(name: str, typed: bool) -> None:
    text, answers, *notes = READ[name]
    table, options = frame(text, typed=typed), options_of(name)
    assert read(table, **options) == parsed(answers)
    for note in notes:
        assert re.search(
            note, "\n".join(PreferenceData.from_tables(answers=table, **options).notes)
        )


SPOKEN = re.compile(
    r"columns=(\{[^}]*\})(?: \([^)]*\) and better='(low|high)'|, covariates=(\[.*?\]))?"
    r"|(better|unsure)='(\w+)'|(table\..*?[)}\]]\))(?:$|; | or )"
).finditer


def obeyed(table: pd.DataFrame, message: str, options: dict[str, Any]) -> list[Answers]:
    """Return what is read by each call that a message suggests beside these options."""
    calls: list[dict[str, Any]] = []
    for match in SPOKEN(message):
        columns, better, covariates, option, value, line = match.groups()
        call = {"columns": columns, "covariates": covariates}
        calls.append({name: ast.literal_eval(text) for name, text in call.items() if text})
        calls[-1] |= {"better": better} if better else {}
        calls[-1] = options | calls[-1] | ({option: value} if option else {})
        calls[-1]["table"] = eval(line, {"table": table}) if line else table
    return [read(**call) for call in calls]


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("typed", [False, True], ids=["text", "typed"])
def test_tables_are_refused_and_what_is_suggested_works(name: str, typed: bool) -> None:
    text, *said = REFUSED[name]
    table = frame(text, typed=typed)
    with pytest.raises(DataError, match=said[0] if said else "answers") as caught:
        read(table, **options_of(name))
    assert not re.search("(columns|better|unsure)=", typed_there(str(caught.value)))
    answers = obeyed(table, str(caught.value), options_of(name))
    assert answers == [parsed(way) for way in said[1:]] if said else all(answers)


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
    text, answers, *_ = READ[name]
    table, draw = frame(text, typed=False), random.Random(name)
    labels = frozenset().union(*(block for order in parsed(answers) for block in order))
    columns = draw.sample([*table], len(table.columns))
    rows = table[columns].sample(frac=1, random_state=draw.randrange(99))
    for change in (
        lambda column: re.sub("[ _.-]", lambda _: draw.choice(" _.-"), column),
        str if re.search("[a-z][A-Z]", "".join(table)) or labels & {*table} else str.upper,
    ):
        names, options = {column: change(column) for column in columns}, options_of(name)
        changed = rows.rename(columns=names)
        if "columns" in options:
            options["columns"] = {
                ours: names[theirs] for ours, theirs in options["columns"].items()
            }
        try:
            assert read(changed, **options) == parsed(answers)
        except DataError as error:  # 2:1 may be of the guest where the guest stands first
            assert "several ways" in str(error)
            assert obeyed(changed, str(error), {})[0] == parsed(answers)


def test_notes_name_columns_as_the_table_does() -> None:
    table = frame("x,y,points x,points y\na,b,2,1\nb,c,0,0", typed=True)
    columns = dict(zip(("first", "second", "first_score", "second_score"), table, strict=True))
    note = "'x' and 'y' with the higher of 'points x' and 'points y', by which 'a' wins"
    assert note in " ".join(PreferenceData.from_tables(answers=table, columns=columns).notes)


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
    shown = PreferenceData.from_tables(answers=table.assign(shown_first=["away", "away", "home"]))
    assert shown.comparisons.shown_first.tolist() == [-1, -1, 1]
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


@pytest.mark.parametrize("name", ["votes", "n", "Times", "freq"])
def test_counts_are_named(name: str) -> None:
    table = frame(f"winner,loser,{name}\na,b,12\nb,c,1\nc,a,3", typed=True)
    data: Any = PreferenceData.from_tables(answers=table)
    (note,) = (note for note in data.notes if "may count equal answers" in note)
    call = ast.literal_eval(next(SPOKEN(note))[1])
    read_again: Any = PreferenceData.from_tables(answers=table, columns=call)
    assert read_again.comparisons.count.sum() == 16
    games = frame("white,black,result,count\na,b,1-0,40\nb,c,0-1,62", typed=True)
    notes = PreferenceData.from_tables(answers=games).notes
    assert any("'count': each row counts as many answers as it says, up to 62" in n for n in notes)


def test_notes_say_how_to_estimate_home_advantage_and_that_neutral_ground_is_not_used() -> None:
    text = "home_team,away_team,home_score,away_score,neutral\na,b,1,0,FALSE\nb,a,2,2,TRUE"
    table = frame(text, typed=False)
    notes = " ".join(PreferenceData.from_tables(answers=table).notes)
    assert "covariates=['home'] (--columns home=home_team --covariates home) estimates" in notes
    home: dict[str, Any] = {"columns": {"home": "home_team"}, "covariates": ["home"]}
    notes = " ".join(PreferenceData.from_tables(answers=table, **home).notes)
    assert "'neutral' is not used; leave 'home' blank" in notes


@pytest.mark.parametrize(
    ("text", "columns", "answers"),
    [
        (
            "judge,wine,rank (3 = best)\nv,a,1\nv,b,2\nv,c,3\nw,a,1\nw,b,3\nw,c,2",
            {"list": "judge", "place": "rank (3 = best)"},
            "c>b>a; b>c>a",
        ),
        (
            "v,a (1: worst),b (1: worst),c (1: worst)\n1,1,2,3\n2,2,1,3",
            {"rater": "v"},
            "c (1: worst)>b (1: worst)>a (1: worst); c (1: worst)>a (1: worst)>b (1: worst)",
        ),
    ],
)
def test_columns_that_are_named_are_used(text: str, columns: Any, answers: str) -> None:
    assert read(frame(text, typed=True), columns=columns) == parsed(answers)


RESULTS = "raceId,driverId,constructorId,grid,position,positionOrder,points\n"
RESULTS += "1,ann,m,2,1,1,10\n1,bob,m,1,2,2,8\n1,cy,f,3,\\N,3,0\n"
RESULTS += "2,ann,m,1,2,2,8\n2,bob,f,3,3,3,6\n2,cy,f,2,1,1,10"
MATCHES = "home,away,result,best_player\na,b,H,b\nb,c,A,b\nc,a,D,a"


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


def test_labels_in_an_index_are_refused_with_the_call_that_makes_a_column() -> None:
    beat = pd.DataFrame({"winner": [*"aabc"], "loser": [*"bcca"]})
    for table in (pd.crosstab(beat.winner, beat.loser), beat.set_index([*beat]).assign(day=1)):
        with pytest.raises(DataError, match=r"if labels are in the index: table\.reset_index\(\)$"):
            read(table)
        columns = {"winner": "winner"} if "day" not in table else None
        assert read(table.reset_index(), columns=columns) == parsed("a>b; a>c; b>c; c>a")
    with pytest.raises(DataError, match="not recognized as answers") as caught:
        read(pd.DataFrame({"x": [1, 2, 3], "y": [2, 2, 5]}, index=[4, 5, 7]))
    assert "reset_index" not in str(caught.value)


def test_decimal_commas_of_two_sides(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("Wein 1;Wein 2;Punkte 1;Punkte 2\na;b;7,5;8,0\nb;c;6,25;6,25\nc;a;10;9,5\n")
    assert read(file) == parsed("b>a; b=c; c>a")


def test_many_matches_without_a_loser_are_not_listed() -> None:
    rows = [
        f"{game},{player},{'WL'[side]}" for game in range(900) for side, player in enumerate("ab")
    ]
    rows[::7] = [row.replace("W", "L") for row in rows[::7]]
    with pytest.raises(DataError, match="row 0 .*the results of match 0 are 'L', 'L'") as caught:
        read(frame("\n".join(["match,player,result", *rows]), typed=True))
    assert len(str(caught.value)) < 300


def test_a_column_that_was_named_stays_in_the_suggestion() -> None:
    table = frame("Event,White,Black\nx,Ann,Bo\ny,Bo,Cy\nz,Cy,Ann", typed=True)
    with pytest.raises(DataError) as caught:
        read(table, columns={"winner": "White"})
    call = ast.literal_eval(next(SPOKEN(str(caught.value)))[1])
    assert call == {"winner": "White", "loser": "Black"} and read(table, columns=call)


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


def test_walkovers_beside_a_row_for_each_side_may_be_counted() -> None:
    rows = [(1, "a", "W", ""), (1, "b", "L", ""), (2, "b", "W", "walkover"), (2, "c", "L", "")]
    rows += [(3, "c", "W", ""), (3, "a", "L", "late goal")]
    table = pd.DataFrame(rows, columns=["match", "team", "result", "comment"])
    left = PreferenceData.from_tables(answers=table)
    assert left.num_answers == 2
    note = next(note for note in left.notes if "walkovers by 'comment'" in note)
    columns = {"list": "match", "item": "team", "place": "result"}
    assert f"columns={columns}" in note
    assert PreferenceData.from_tables(answers=table, columns=columns).num_answers == 3


@pytest.mark.parametrize(
    "name",
    [
        "Verlierer",
        "perdant",
        "least_liked",
        "defeated",
        "lost",
        "voted_out",
        "not_preferred",
        "choice to reject",
        "favored",
        "forecast",
        "previous_winner",
        "ht_score",
        "loser_score",
        "projected_winner",
        "unsafe",
        "unchosen",
        "baseline",
        "correct_choice",
    ],
)
def test_what_lost_or_was_expected_is_no_outcome(name: str) -> None:
    table = frame(f"a,b,{name}\nx,y,y\ny,z,y\nz,x,z", typed=False)
    with pytest.raises(DataError, match="no column says who was preferred"):
        read(table)


@pytest.mark.parametrize("points", ["92.7,94.2", "87,93"])
def test_points_are_no_places(points: str) -> None:
    a, b = points.split(",")
    table = frame(f"x,y,points\n1,a,{a}\n1,b,{b}\n2,b,{b}\n2,a,{a}", typed=True)
    columns = {"list": "x", "item": "y", "place": "points"}
    with pytest.raises(DataError, match="is no place; if these are points or times") as caught:
        read(table, columns=columns)
    assert obeyed(table, str(caught.value), {}) == [parsed("b>a*2")]
    del columns["place"]
    with pytest.raises(DataError, match="orders by 'points' of 'y'") as caught:
        read(table, columns=columns | {"score": "points"})
    assert parsed("b>a*2") in obeyed(table, str(caught.value), {"columns": columns})
