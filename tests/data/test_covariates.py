"""Covariates of the two sides of an answer, read from tables."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref.data import PreferenceData
from relpref.errors import DataError

TABLE = pd.DataFrame(
    {
        "winner": list("abcab"),
        "loser": list("bcaba"),
        "home": ["a", "c", None, "b", "b"],
        "words_winner": [3, 2.5, 1, 9, 3],
        "words_loser": [1, 2, 3, 4, 1],
        "style_winner": ["x", "y", "x", "x", "x"],
        "style_loser": ["x", "z", "y", "z", "x"],
    }
)
NAMES = ["home", "words", "style"]


def read(table: Any = TABLE, covariates: Any = NAMES, **options: Any) -> PreferenceData:
    return PreferenceData.from_tables(answers=table, covariates=covariates, **options)


def columns(data: PreferenceData) -> Any:
    return data.comparisons.columns["covariates"]


def test_differences_are_kept() -> None:
    answers = read().comparisons
    assert answers.covariate_names == ("home", "words", "style[x]", "style[y]", "style[z]")
    rows = {
        (answers.winner[row], answers.loser[row], *columns(read())[row])
        for row in range(len(answers.winner))
    }
    assert (0, 1, 1, 2, 0, 0, 0) in rows  # a at home, 2 words more, of the same style
    assert (0, 1, -1, 5, 1, 0, -1) in rows
    assert (1, 2, -1, 0.5, 0, 1, -1) in rows
    words = columns(read())[:, 1]
    assert answers.covariate_scales == pytest.approx([1, np.sqrt(np.mean(words**2)), 1, 1, 1])


def test_only_equal_rows_are_merged() -> None:
    twice = pd.concat([TABLE, TABLE.iloc[[0]], TABLE.iloc[[0]].assign(words_winner=4)])
    data = read(twice)
    assert data.num_comparisons == 6 and data.num_answers == 7


def test_tables_are_read_back() -> None:
    data = read()
    again = PreferenceData.from_tables(data.labels, data.to_tables()[1], covariates=NAMES)
    assert np.array_equal(columns(data), columns(again))
    assert again.comparisons.covariates_are == data.comparisons.covariates_are


def test_files_and_names_of_columns(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    TABLE.rename(columns={"home": "host"}).to_csv(path, index=False)
    data = PreferenceData.from_files(answers_path=path, covariates=NAMES, columns={"home": "host"})
    assert np.array_equal(columns(data), columns(read()))
    with pytest.raises(DataError, match="'hom' is no column of answers; did you mean 'home'"):
        PreferenceData.from_files(answers_path=path, covariates=NAMES, columns={"hom": "host"})


def test_pair_form_with_results() -> None:
    table = pd.DataFrame(
        {
            "first": ["a", "b"],
            "second": ["b", "c"],
            "result": [0, 1],
            "x_first": [1, 5],
            "x_second": [4, 2],
        }
    )
    assert columns(read(table, ["x"])).ravel().tolist() == [3.0, 3.0]  # b beat a with 3 more, and c


@pytest.mark.parametrize("text", [False, True])
def test_orders_and_choices_have_them_beside_the_item(text: bool, tmp_path: Path) -> None:
    orders = pd.DataFrame(
        {"list": [1, 1, 1, 2, 2], "item": list("abcab"), "place": [2, 1, 3, 1, 2]}
    )
    orders["grid"] = [5, 1, 2, 4, 9]
    given: Any = orders
    if text:
        given = tmp_path / "orders.csv"
        orders.to_csv(given, index=False)
    data = PreferenceData.from_tables(list("abc"), given, covariates=["grid"])
    answers = data.comparisons
    rows = zip(answers.winner, answers.loser, columns(data)[:, 0], strict=True)
    assert sorted(rows) == [(0, 1, -5.0), (0, 2, 3.0), (1, 0, -4.0)]
    choices = pd.DataFrame(
        {"choice": 1, "item": list("abc"), "chosen": [0, 1, 0], "price": [3, 2, 5]}
    )
    assert sorted(columns(read(choices, ["price"]))[:, 0]) == [-3.0, -1.0]
    with pytest.raises(DataError, match="no column 'size' with the covariate of each item"):
        read(choices, ["size"])


def test_columns_that_are_not_asked_for_are_noted() -> None:
    assert any("'home'" in note for note in read(covariates=[]).notes)
    assert read(covariates=[]).comparisons.covariates is None


@pytest.mark.parametrize(
    ("changes", "covariates", "message"),
    [
        (
            {"surface": ["clay"] * 5},
            ["surface"],
            "row 0 .*'clay' is neither .*describes a context of the answer, not a side",
        ),
        (
            {"x_winner": [2] * 5, "x_loser": [2] * 5},
            ["x"],
            "'x_winner' equals 'x_loser' in every row: such a covariate describes a context",
        ),
        ({"home": [None] * 5}, ["home"], "'home' is blank in every row"),
        ({"x_winner": [1] * 5}, ["x"], "there is no column 'x_loser' among"),
        ({}, ["nothing"], "there is no column 'nothing_winner' among"),
        (
            {"home": ["a"] * 5},
            ["home"],
            "row 1 .*column 'home': 'a' is neither of the two that were compared, 'b' and 'c'",
        ),
        (
            {"words_loser": [1, None, 2, 3, 4]},
            ["words"],
            "row 1 .*column 'words_loser': nan is no value of the covariate",
        ),
        (
            {"words_loser": [1, np.inf, 2, 3, 4]},
            ["words"],
            "row 1 .*column 'words_loser': inf is not finite",
        ),
        (
            {"words_loser": [1, -1e200, 2, 3, 4]},
            ["words"],
            r"row 1 .*column 'words_loser': -1e\+200 exceeds 1e\+100; rescale",
        ),
        (
            {"style_loser": ["x", None, "y", "x", "z"]},
            ["style"],
            "row 1 .*column 'style_loser': .*is no value",
        ),
        ({}, ["winner"], "'winner' is a column of answers with a meaning of its own"),
        ({}, ["home", "home"], "'home' is named twice"),
        ({}, [3], "3 is no name"),
        (
            {
                "x_winner": [f"l{row}" for row in range(5)],
                "x_loser": [f"m{row}" for row in range(5)],
            },
            ["x"],
            None,
        ),
    ],
)
def test_refusals(changes: Any, covariates: Any, message: str | None) -> None:
    if message is None:
        assert len(read(TABLE.assign(**changes), covariates).comparisons.covariate_names) == 10
        return
    with pytest.raises(DataError, match=message):
        read(TABLE.assign(**changes), covariates)


def test_too_many_levels() -> None:
    rows = range(40)
    table = pd.DataFrame(
        {"winner": "a", "loser": "b", "x_winner": [f"l{row}" for row in rows], "x_loser": "l0"}
    )
    with pytest.raises(
        DataError, match="40 effects are more than the limit of 32; group the levels"
    ):
        read(table, ["x"])
