"""Tables of orders, choices, and of the best and the worst as answers."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import relpref
from relpref.data import PreferenceData, Rankings, best_worst, choices, orderings
from relpref.data.rankings import read_ballots
from relpref.errors import DataError

ORDERS = pd.DataFrame(
    [("x", "a", 1), ("x", "b", 2), ("x", "c", None), ("y", "c", 1), ("y", "a", 1), ("y", "d", 2)],
    columns=["list", "item", "place"],
)
CHOICES = pd.DataFrame(
    [(1, "a", True), (1, "b", False), (1, "c", False), (2, "b", False), (2, "c", True)],
    columns=["choice", "item", "chosen"],
)
EXTREMES = pd.DataFrame(
    [("a", "b", "b", "c", "a", "d"), ("c", "a", "a", "c", "d", None)],
    columns=["best", "worst", "item_1", "item_2", "item 3", "item4"],
)


def same(one: PreferenceData, other: PreferenceData) -> None:
    assert one.labels == other.labels
    assert one.comparisons.columns.keys() == other.comparisons.columns.keys()
    for name, column in one.comparisons.columns.items():
        np.testing.assert_array_equal(column, other.comparisons.columns[name])


def test_a_table_of_lists_is_read_as_by_the_functions() -> None:
    composed = [
        (ORDERS, orderings(ORDERS, list="list", item="item", position="place")),
        (CHOICES, choices(CHOICES, question="choice", item="item", chosen="chosen")),
        (
            EXTREMES,
            best_worst(
                EXTREMES, items=["item_1", "item_2", "item 3", "item4"], best="best", worst="worst"
            ),
        ),
    ]
    for table, pairs in composed:
        read = PreferenceData.from_tables(answers=table)
        same(read, PreferenceData.from_tables(answers=pairs))
        assert any("the rows were read as" in note for note in read.notes)


def test_a_file_of_orders_has_other_names_and_raters(tmp_path: Path) -> None:
    file = tmp_path / "tastings.csv"
    file.write_text(
        "tasting;rank;bean;who\r\n1;1;Huila;Ann\r\n1;2;Mocha;Ann\r\n1;2;Kona;Ann\r\n2;1;Kona;Bo\r\n2;2;Huila;Bo\r\n"
    )
    columns = {"list": "tasting", "place": "rank", "item": "bean", "rater": "who"}
    read = PreferenceData.from_tables(answers=file, columns=columns)
    assert read.comparisons.num_lists == 1 and read.comparisons.raters == ("Ann", "Bo")
    assert read.num_comparisons == 3 and read.labels == ("Huila", "Mocha", "Kona")
    file.write_text("tasting;rank;bean;who\n1;1;Huila;Ann\n1;2;Mocha;Bo\n")
    with pytest.raises(
        DataError, match="line 3, column 'who': 'Bo' is not the rater of the first row"
    ):
        PreferenceData.from_tables(answers=file, columns=columns)
    file.write_text("list,item,place\n1,Huila,1\n1,Mocha,second\n")
    with pytest.raises(DataError, match="line 3, column 'place': 'second' is not a number"):
        PreferenceData.from_tables(answers=file)


@pytest.mark.parametrize("place", ["0", "-1", "0.5"])
def test_places_start_at_one(tmp_path: Path, place: str) -> None:
    """Codes such as 0 and -1 for items that did not finish would make these the best."""
    file = tmp_path / "races.csv"
    file.write_text(f"list,item,place\n1,Ann,1\n1,Bo,2\n1,Cy,{place}\n")
    said = f"line 4, column 'place': '{place}' is no place, which start at 1.*leave the cell empty"
    with pytest.raises(DataError, match=said):
        PreferenceData.from_tables(answers=file)
    table = pd.DataFrame(
        {"race": [1, 1, 1], "who": ["Ann", "Bo", "Cy"], "rank": [1, 2, float(place)]}
    )
    with pytest.raises(DataError, match="row 2 .*column 'rank': .* is no place"):
        orderings(table, list="race", item="who", position="rank")
    with pytest.raises(DataError, match="row 2 .*column 'rank': .* is no place"):
        relpref.fit(answers=table, columns={"list": "race", "item": "who", "place": "rank"})
    averages = table.assign(rank=[1.5, 1.5, None])  # ranks that are averaged over ties
    assert orderings(averages, list="race", item="who", position="rank")["tie"].sum() == 1


def test_a_pair_is_at_the_line_of_its_list(tmp_path: Path) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("list,item,place\n1,a,1\n1,b,2\n2,a,1\n2,c,2\n")
    with pytest.raises(DataError, match=r"orders\.csv, line 4.*'c'"):
        PreferenceData.from_tables(["a", "b"], file)


def test_columns_that_are_missing_are_named() -> None:
    with pytest.raises(
        DataError,
        match=r"no column 'list' among 'item', 'place'; orders have the columns list, item, place",
    ):
        PreferenceData.from_tables(answers=ORDERS.drop(columns="list"))
    with pytest.raises(DataError, match="no column 'item_1'"):
        PreferenceData.from_tables(answers=EXTREMES[["best", "worst"]])


def test_rankings_and_their_files_are_answers(tmp_path: Path) -> None:
    rankings = Rankings.from_orders([["a", "b", "c"], ["c", ("a", "b")]])
    wanted = PreferenceData.from_rankings(rankings)
    same(PreferenceData.from_tables(answers=rankings), wanted)
    items = pd.DataFrame({"price": [1.0, 2.0, 3.0]}, index=["a", "b", "c"])
    with_prices = PreferenceData.from_tables(items, rankings)
    assert with_prices.attribute_names == ("price",) and with_prices.comparisons.num_lists == 2
    file = tmp_path / "votes.toc"
    file.write_text(
        "# DATA TYPE: toc\n# NUMBER ALTERNATIVES: 3\n# NUMBER VOTERS: 2\n# ALTERNATIVE NAME 1: "
        "a\n# ALTERNATIVE NAME 2: b\n"
        "# ALTERNATIVE NAME 3: c\n1: 1,2,3\n1: 3,{1,2}\n"
    )
    same(PreferenceData.from_tables(answers=read_ballots(file)), wanted)
    assert relpref.fit(answers=str(file)).data.comparisons.num_lists == 2


def test_columns_of_a_list_are_those_of_its_pairs() -> None:
    table = ORDERS.assign(group=["p", "p", "p", "q", "q", "q"], weight=0.5)
    read = PreferenceData.from_tables(answers=table.drop(columns="weight"))
    assert read.comparisons.groups == ("p", "q") and "group" in read.comparisons.columns
    with pytest.raises(DataError, match="some answers have weights and some are in lists"):
        relpref.fit(answers=table)
    with pytest.raises(DataError, match="'strength' cannot be in lists"):
        PreferenceData.from_tables(answers=CHOICES.assign(strength=1))
    with pytest.raises(DataError, match="'q' is not the group of the first row of its list"):
        PreferenceData.from_tables(answers=ORDERS.assign(group=["p", "q", "p", "q", "q", "q"]))


ORDER, CHOICE, SHOWN = (
    ["list", "item", "place"],
    ["choice", "item", "chosen"],
    ["best", "worst", "item_1", "item_2", "item_3"],
)


@pytest.mark.parametrize(
    ("columns", "rows", "said"),
    [
        (
            ORDER,
            [(1, "a", 1), (1, "b", 2), (2, "a", 1), (2, "b", 2), (2, "a", 3)],
            r"row 4 .*'a' is in 2 twice; drop",
        ),
        (
            ORDER,
            [(1, "a", 1), (1, "b", 2), (2, "c", 1)],
            r"row 2 .*the list 2 orders nothing; give at least two",
        ),
        (
            ORDER,
            [(1, "a", 1), (1, "b", 2), (2, "a", 1), (2, "z", 2)],
            r"row 2 \(index label 2\), column 'item': 'z' is not",
        ),
        (
            ["list", "item", "rank"],
            [(1, "a", 1), (1, "b", 2)],
            r"orders have the columns list, item, place: rename",
        ),
        (
            CHOICE,
            [(1, "a", 1), (2, "a", 1), (2, "b", 0)],
            r"row 0 .*the question 1 has one alternative alone.*; add",
        ),
        (CHOICE, [(1, "a", 1), (1, "b", 0), (1, "b", 0)], r"row 2 .*'b' is in 1 twice; drop"),
        (
            CHOICE,
            [(1, "a", 1), (1, "b", 1)],
            r"row 0 .*2 alternatives are chosen; mark exactly one",
        ),
        (CHOICE, [(1, "a", 1), (1, "z", 0)], r"row 0 \(index label 0\), column 'item': 'z' is not"),
        (
            SHOWN,
            [("a", "b", "a", "b", "c"), ("a", "a", "a", "b", "c")],
            r"row 1 .*'a' is the best and the worst; correct",
        ),
        (SHOWN, [("a", "b", "a", "b", "b")], r"row 0 .*'b' is shown twice; correct"),
        (
            SHOWN,
            [("a", "d", "a", "b", "c")],
            r"row 0 .*column 'worst': 'd' is none of the items of the row.*; name",
        ),
        (SHOWN, [("a", "b", "a", "b", "z")], r"row 0 \(index label 0\).*'z' is not the label"),
        (
            ["best", "worst"],
            [("a", "b")],
            r"no column 'item_1'.*; name the columns of what was shown item_1",
        ),
    ],
)
def test_bad_lists_are_named(columns: list[str], rows: list[tuple[object, ...]], said: str) -> None:
    with pytest.raises(DataError, match=said):
        PreferenceData.from_tables(list("abcd"), pd.DataFrame(rows, columns=columns))


def test_rankings_have_one_way_to_answers() -> None:
    """With their items, attributes included."""
    items = pd.DataFrame({"x": [1.0, 2.0, 3.0]}, index=list("abc"))
    rankings = Rankings.from_orders([["b", "a"]], items=items)
    for data in (
        PreferenceData.from_tables(None, rankings),
        PreferenceData.from_rankings(rankings),
    ):
        assert data.labels == ("a", "b", "c") and data.attribute_names == ("x",)
        assert (data.winner.tolist(), data.loser.tolist()) == ([1], [0])
    with pytest.raises(DataError, match="order nothing; leave"):
        PreferenceData.from_rankings(Rankings.from_orders([[("a", "b", "c")]]))
