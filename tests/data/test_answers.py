"""Columns of answers: read in both forms, merged, carried along, written and read again."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import relpref
from relpref import PreferenceData
from relpref.errors import DataError

ITEMS = pd.DataFrame({"x": [0.0, 1, 2, 3]}, index=list("abcd"))


def read(table: Any, **options: Any) -> PreferenceData:
    return PreferenceData.from_tables(ITEMS, table, **options)


GRADED = pd.DataFrame(
    {
        "winner": list("babcdd"),
        "loser": list("acdaab"),
        "tie": [True, True, False, True, False, False],
        "strength": [None, None, 2, None, 1, 3],
        "rater": ["zoe", "al", "zoe", "zoe", "al", "zoe"],
        "shown_first": ["b", None, "d", "a", "a", None],
    }
)
SOFT = pd.DataFrame(
    {
        "first": list("abca"),
        "second": list("bcab"),
        "probability": [0.9, 0.2, 0.5, 0.9],
        "rater": [3, 1, 2, 3],
    }
)


def test_the_words_first_and_second_say_what_is_shown_first() -> None:
    table = pd.DataFrame(
        {
            "first": ["a", "b", "c"],
            "second": ["b", "c", "a"],
            "winner": ["a", "c", "c"],
            "shown_first": ["First", "second", None],
        }
    )
    labels = table.assign(shown_first=["a", "c", None])
    by_word, by_label = (read(each).comparisons.shown_first for each in (table, labels))
    np.testing.assert_array_equal(by_word, by_label)
    # A label goes before the word, and winners and losers have no such order.
    odd = pd.DataFrame(
        {"first": ["second"], "second": ["x"], "winner": ["x"], "shown_first": ["second"]}
    )
    assert PreferenceData.from_tables(answers=odd).comparisons.columns["shown_first"] == [-1]
    wrong = pd.DataFrame({"winner": ["a"], "loser": ["b"], "shown_first": ["first"]})
    with pytest.raises(DataError, match="shown_first.*'first'"):
        read(wrong)


def test_columns_as_arrays() -> None:
    answers = read(GRADED).comparisons
    found = {name: column.tolist() for name, column in answers.columns.items()}
    # Ties are turned so that the first in the data is named first; sorted by winner, then loser.
    assert found == {
        "winner": [0, 0, 0, 1, 3, 3],
        "loser": [1, 2, 2, 3, 0, 1],
        "count": [1] * 6,
        "tie": [True, True, True, False, False, False],
        "strength": [0, 0, 0, 2, 1, 3],
        "rater": [1, 0, 1, 1, 0, 1],
        "shown_first": [-1, 0, 1, -1, -1, 0],
    }
    assert answers.raters == ("al", "zoe")
    assert answers.strengths == 3
    assert answers.tie is not None and answers.tie.dtype == bool
    assert not any(column.flags.writeable for column in answers.columns.values())


@pytest.mark.parametrize("table", [GRADED, SOFT], ids=["graded", "soft"])
def test_tables_give_the_same_answers_again(table: Any, tmp_path: Path) -> None:
    data = read(table)
    written = data.to_tables()[1]
    written.to_csv(tmp_path / "comparisons.csv", index=False)
    ITEMS.to_csv(tmp_path / "entities.csv")
    for again in (read(written), PreferenceData.from_folder(tmp_path)):
        assert again.comparisons.columns.keys() == data.comparisons.columns.keys()
        for name, column in data.comparisons.columns.items():
            np.testing.assert_array_equal(again.comparisons.columns[name], column)
    shuffled = read(table.sample(frac=1, random_state=1))
    assert shuffled.to_tables()[1].equals(written)
    assert [str(label) for label in again.comparisons.raters] == [
        str(label) for label in data.comparisons.raters
    ]


def test_the_pair_form_says_the_same() -> None:
    pair = pd.DataFrame(
        {
            "first": list("aba"),
            "second": list("bdc"),
            "winner": ["a", "d", ""],
            "tie": [False, False, True],
            "shown_first": ["b", "b", "c"],
        }
    )
    winner = pd.DataFrame(
        {
            "winner": list("adc"),
            "loser": list("bba"),
            "tie": [0, 0, 1],
            "shown_first": ["b", "b", "c"],
        }
    )
    assert read(pair).to_tables()[1].equals(read(winner).to_tables()[1])
    assert read(pair.iloc[:2].drop(columns="tie")).comparisons.tie is None


def test_a_blank_winner_is_no_tie_of_its_own(tmp_path: Path) -> None:
    """A game that was canceled is no game that ended in a tie."""
    games = pd.DataFrame({"first": list("ab"), "second": list("bd"), "winner": ["a", ""]})
    for blank in ("", None, np.nan):
        table = games.assign(winner=["a", blank])
        with pytest.raises(DataError, match=r"row 1 .*column 'winner': the winner is blank.*'tie'"):
            read(table)
    (tmp_path / "entities.csv").write_text("name,x\na,1\nb,2\nd,3\n")
    games.rename(columns={"winner": "won"}).to_csv(tmp_path / "games.csv", index=False)
    files = (tmp_path / "entities.csv", tmp_path / "games.csv")
    with pytest.raises(DataError, match=r"games\.csv, line 3, column 'won': the winner is blank"):
        PreferenceData.from_files(*files, columns={"winner": "won"})


def test_columns_by_other_names() -> None:
    table = GRADED.rename(columns={"winner": "better", "loser": "worse", "rater": "who"})
    names = {"winner": "better", "loser": "worse", "rater": "who"}
    assert read(table, columns=names).to_tables()[1].equals(read(GRADED).to_tables()[1])
    with pytest.raises(DataError, match="'winner' is to be 'beter', but .* did you mean 'better'"):
        read(table, columns=names | {"winner": "beter"})
    with pytest.raises(DataError, match="'win' is no column of answers; did you mean 'winner'"):
        read(table, columns={"win": "better"})
    with pytest.raises(DataError, match="row 1 .*, column 'better': 'z' is not the label"):
        read(table.assign(better=list("azbcdd")), columns=names)
    with pytest.raises(DataError, match="row 0 .*, column 'grade': 0 is not a positive"):
        read(
            GRADED.assign(tie=False, strength=0).rename(columns={"strength": "grade"}),
            columns={"strength": "grade"},
        )
    other = read(table.assign(winner="a"), columns=names)
    assert other.to_tables()[1].equals(read(GRADED).to_tables()[1])
    assert "answers: the column 'winner' is not used" in other.notes


def test_other_answers_keep_the_places_of_raters() -> None:
    data = read(GRADED)
    other = data.with_comparisons(
        pd.DataFrame({"winner": ["a", "b"], "loser": ["b", "c"], "rater": ["bo", "zoe"]})
    )
    assert other.comparisons.raters == ("al", "zoe", "bo")
    assert other.comparisons.rater is not None and other.comparisons.rater.tolist() == [2, 1]


def test_a_data_set_with_all_columns_is_a_pytree() -> None:
    data = read(GRADED)
    again = jax.jit(lambda one: jax.tree.map(lambda leaf: leaf, one.comparisons.columns))(data)
    np.testing.assert_array_equal(again["rater"], data.comparisons.rater)
    leaves, structure = jax.tree.flatten(data)
    structures: list[Any] = [
        jax.tree.structure(read(GRADED.assign(rater=r))) for r in (list("pqpppq"), "p")
    ]
    assert [one == structure for one in structures] == [True, False]  # as many raters, or not
    assert jax.tree.unflatten(structure, leaves).comparisons.raters == ("al", "zoe")


def test_all_ties_are_noted() -> None:
    assert "every answer is a tie" in read(GRADED[GRADED["tie"]].drop(columns="strength")).notes[0]


def test_weights_in_kilograms_are_noted_with_their_mean() -> None:
    table = pd.DataFrame({"winner": list("abca"), "loser": list("bcab")})
    kilograms = table.assign(mass=[60.0, 72.5, 80.0, 60.0])
    (note,) = [
        note
        for note in PreferenceData.from_tables(answers=kilograms, columns={"weight": "mass"}).notes
        if "weights" in note
    ]
    assert "the column 'mass' is 68.1" in note and "√68.1 = 8.3 times narrower" in note
    assert "divide the column by its mean, or rename it" in note
    fitted = {
        name: relpref.fit(answers=table.assign(weight=weight), hyperparameters="maximize")
        for name, weight in (("heavy", kilograms["mass"]), ("usual", kilograms["mass"] / 68.125))
    }
    assert "is 68.1" in fitted["heavy"].summary() and "is 68.1" in fitted["heavy"].info["weights"]
    assert "mean" not in fitted["usual"].info["weights"]
    counted = table.assign(weight=[1.0, 1.0, 1.0, 9.0], count=[97, 1, 1, 1])
    assert not any("The mean" in note for note in PreferenceData.from_tables(answers=counted).notes)
