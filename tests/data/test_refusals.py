from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref.data import PreferenceData
from relpref.errors import DataError, UnknownLabelError


def item_table(**changes: Any) -> Any:
    columns = {"size": [1.0, 2.0, 3.0, 6.0], "heavy": [True, False, True, True]} | changes
    return pd.DataFrame(columns, index=["a", "b", "c", "d"])


def answers(*pairs: Any, **columns: Any) -> Any:
    pairs = pairs or ("ab", "bc", "ab")
    return pd.DataFrame(map(list, pairs), columns=["winner", "loser"]).assign(**columns)


def pairs(*pairs: Any, **columns: Any) -> Any:
    return pd.DataFrame(map(list, pairs), columns=["first", "second"]).assign(**columns)


def example(items: Any = None, comparisons: Any = None) -> Any:
    """Read tables of which at most one differs from usable ones."""
    return PreferenceData.from_tables(
        item_table() if items is None else items,
        answers("ab") if comparisons is None else comparisons,
    )


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            ["x", 1, 2, 3],
            r"row 0 \(label 'a'\), column 'bad': 'x' is not a number; encode the column",
        ),
        (["1", "2", "3", "4"], "'1' is not a number"),
        ([1.0, 2.0, np.inf, 3.0], r"row 2 \(label 'c'\), column 'bad': inf is not finite"),
        ([1.0, 2.0, 3.0, 1e300], r"1e\+300 exceeds"),
        ([1, 2, 3, 10**400], "is not finite"),
        ([1, 2, None, "x"], r"row 3 \(label 'd'\), column 'bad': 'x' is not a number"),
        ([1j, 2, 3, 4], "is not a number"),
        (["1", "2", None, "x"], "'x' is not a number|'1' is not a number"),
        ([[1], [2], [3], [4]], r"\[1\] is not a number"),
    ],
)
def test_unusable_attributes_are_refused(column: Any, message: Any) -> None:
    with pytest.raises(DataError, match="^items, .*" + message):
        example(items=item_table(bad=column))


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (pd.DataFrame({"x": []}), "no rows"),
        ([], "there are none"),
        ("ab", "no such file"),
        ({"a", "b"}, "got set"),
        (pd.Series([1.0, 2.0], index=["a", "b"]), "may hold attributes or labels"),
        (7, "got int"),
        (np.array([["a", "b"]]), r"shape \(1, 2\)"),
        (
            ["a", "b", "c", "d", "b"],
            r"items, row 4: the label 'b' was already used at items, row 1",
        ),
        (["a", 1, True], r"row 2: the label True \(equal to 1 in Python\)"),
        (["a", None], r"row 1: the label is missing \(None\)"),
        (["a", float("nan")], r"missing \(nan\)"),
        (["a", pd.NaT], r"missing \(NaT\)"),
        (["a", ("b", None)], "missing"),
        (["a", ["b"]], r"the label \['b'\] cannot be hashed"),
        (
            pd.DataFrame({"x": [1, 2]}, index=["a", "a"]),
            r"row 1 \(label 'a'\): the label 'a' was already used at",
        ),
        (
            pd.DataFrame([[1, 2], [3, 4]], index=["a", "b"], columns=["x", "x"]),
            "attribute 'x' occurs twice",
        ),
        (
            pd.DataFrame(np.zeros((2, 5001)), index=["a", "b"]),
            "5,001 attributes are more than the limit of 5000",
        ),
    ],
)
def test_unusable_items_are_refused(items: Any, message: Any) -> None:
    with pytest.raises(DataError, match=message):
        PreferenceData.from_tables(items, answers("ab"))


@pytest.mark.parametrize(
    ("comparisons", "message"),
    [
        (answers("ab", "bc").rename(columns={"winner": "winer"}), ("no column 'winner' .*did you "
                                                                  "mean 'winner' where it says "
                                                                  "'winer'")),
        (answers("ab").drop(columns="loser"), ("no column 'loser' among 'winner'; name a column "
                                              "'loser'")),
        (answers("ab").set_index("winner"), (r"'winner' among 'loser'; it is in the index: call "
                                            r"reset_index\(\)")),
        (answers("ab", tie=[2]), "row 0 .*column 'tie': 2 is neither true nor false"),
        (answers("ab", tie=[None]), "column 'tie': the value is missing"),
        (answers("ab", rater=[""]), "column 'rater': the rater is blank"),
        (answers("ab", rater=[None]), "column 'rater': the rater is blank"),
        (answers("ab", strength=[0]), ("column 'strength': 0 is not a positive whole number .*how "
                                      "strongly")),
        (answers("ab", strength=[-1]), "column 'strength': -1 is not a positive whole"),
        (answers("ab", strength=[1.5]), "column 'strength': 1.5 is not a positive whole"),
        (answers("ab", strength=[21]), "column 'strength': 21 is above 20"),
        (answers("ab", "bc", tie=[False, True], strength=[1, 2]), ("row 1 .*'strength': 2, and yet "
                                                                  "the answer is a tie")),
        (answers("ab", shown_first=["c"]), ("column 'shown_first': 'c' is neither of the two .*, "
                                           "'a' and 'b'")),
        (answers("ab", probability=[0.7]), "name its columns first, second, probability"),
        (pairs("ab", probability=[1]), ("row 0 .*'probability': 1 is not strictly between 0 and 1; "
                                       "a report of 0 or 1")),
        (pairs("ab", probability=[-0.2]), "-0.2 is not strictly between .*the first is the better"),
        (pairs("ab", probability=[0.5], winner=["a"]), "'winner' is not used"),
        (pairs("ab"), "neither a column 'winner' nor 'probability'"),
        (pairs("ab", winner=["c"]), "column 'winner': 'c' is neither of the two"),
        (pairs("ab", "bc", winner=["a", "c"], tie=[False, True]), ("row 1 .*a tie, and yet it has "
                                                                   "a "
                                                                  "winner")),
        (pairs("ab", winner=[""], tie=[False]), ("row 0 .*no tie, and yet it has no winner; .*drop "
                                                "the row")),
        (answers("ab", result=[1]), "'result' is not used .*: remove it"),
        (answers("ab", counts=[1]), "did you mean 'count'"),
        (pd.concat([answers("ab"), answers("ab")[["winner"]]], axis=1), "'winner' occurs twice"),
        (pd.DataFrame({"winner": [], "loser": []}), "no rows"),
        ([("a", "b", 1)], r"\[0\] is .*each pair is two labels"),
        (answers("ab", "cc"), r"row 1 \(index label 1\): 'c' is compared with itself"),
        (answers(("a", None)), "row 0 .*column 'loser': the label is missing"),
        (answers("ab", "ab", count=[1, 2.5]), (r"row 1 .*column 'count': 2\.5 is not a positive "
                                              r"whole number")),
        (answers("ab", count=[0]), "0 is not a positive whole number"),
        (answers("ab", count=[-1]), "-1 is not a positive whole number"),
        (answers("ab", count=[np.nan]), "column 'count': the value is missing"),
        (answers("ab", count=["x"]), "'x' is not a number"),
        (answers("ab", count=[2**31]), ("2147483648 is not a positive whole number up to "
                                       "2147483647")),
        (answers("ab", "ab", count=[2**31 - 1, 1]), r"counts of \('a', 'b'\) add up to 2147483648"),
    ],
)  # fmt: skip
def test_unusable_comparisons_are_refused(comparisons: Any, message: Any) -> None:
    with pytest.raises(DataError, match="^answers.*" + message):
        example(comparisons=comparisons)


def test_unknown_labels_in_comparisons() -> None:
    with pytest.raises(
        UnknownLabelError,
        match=r"answers, row 1 \(index label 'q'\), column 'loser': 'dd' is not .*'d'",
    ):
        example(comparisons=answers("ab", ("a", "dd")).set_index(pd.Index(["p", "q"])))
    with pytest.raises(UnknownLabelError, match=r"the items are 'a', 'b', 'c', \.\.\."):
        example(comparisons=answers(("a", "something else")))


def test_row_numbers_as_labels_are_explained() -> None:
    with pytest.raises(
        UnknownLabelError, match="the items are 0, 1; these are row numbers: .*set_index"
    ):
        PreferenceData.from_tables(pd.DataFrame({"x": [1.0, 2.0]}), answers("ab"))


VOTES = pd.DataFrame(
    {
        "question_id": ["q1", "q2", "q3", "q4"],
        "model_a": ["gpt", "opus", "gpt", "mini"],
        "model_b": ["opus", "mini", "mini", "opus"],
        "winner": ["model_a", "model_b", "tie", "model_a"],
        "language": ["en", "de", "en", "en"],
        "turn": ["1", "1", "2", "1"],
    }
)


def test_slips_are_columns_whose_cells_fit() -> None:
    table = answers("ab", "bc", "ca")
    others = {"rated": ["true", "false", "true"], "country": ["FR", "DE", "FR"]}
    for name, cells in {**others, "time": [0.5, 1, 2], "groups": list("xyx")}.items():
        assert PreferenceData.from_tables(answers=table.assign(**{name: cells})).notes == (
            f"answers: the column {name!r} is not used",
        )
    for name, cells in {"weights": [0.5, 1, 2], "counts": [1, 2, 1]}.items():
        with pytest.raises(DataError, match=f"{name!r} is not used .*did you mean '{name[:-1]}'"):
            PreferenceData.from_tables(answers=table.assign(**{name: cells}))
    with pytest.raises(DataError, match="no column 'item' .*say which one it is in columns="):
        PreferenceData.from_tables(
            answers=table.rename(columns={"winner": "chosen", "loser": "choice"})
        )


def test_columns_that_share_no_label() -> None:
    with pytest.raises(DataError, match="'winner' and 'question_id' share no label"):
        PreferenceData.from_tables(answers=VOTES, columns={"loser": "question_id"})
    with pytest.raises(DataError, match="'model_a' is to be 'first' and 'winner'"):
        named = {"first": "model_a", "second": "model_b", "winner": "model_a"}
        PreferenceData.from_tables(answers=VOTES.drop(columns="winner"), columns=named)
    votes = VOTES.drop(columns="winner").assign(winner=["gpt", "mini", "gpt", "mini"])
    # The column winner was found by its name, and question_id holds no models.
    with pytest.raises(
        DataError, match="'winner' and 'question_id' share no label.*naming both in columns"
    ):
        PreferenceData.from_tables(answers=votes, columns={"loser": "question_id"})
    read = PreferenceData.from_tables(
        answers=votes, columns={"winner": "winner", "loser": "question_id"}
    )
    assert any("'winner' and 'question_id' share no label" in note for note in read.notes)
    literal = votes.rename(columns={"question_id": "loser"})
    notes = PreferenceData.from_tables(answers=literal).notes
    assert any("'winner' and 'loser' share no label" in note for note in notes)
    assert not PreferenceData.from_tables(answers=[("a", "b"), ("a", "c")]).notes
    pairs_apart = [("a", f"b{row}") for row in range(12)]
    assert "share no label" in PreferenceData.from_tables(answers=pairs_apart).notes[0]
    assert not PreferenceData.from_tables(answers=answers("ab")).notes
