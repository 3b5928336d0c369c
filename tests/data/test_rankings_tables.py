"""Rankings from tables and from scores."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from relpref import Rankings
from relpref.data import read_table
from relpref.errors import DataError, UnknownLabelError

LONG = pd.DataFrame(
    [("ann", "b", 1), ("ann", "a", 2), ("bob", "c", 4), ("ann", "c", 2), ("bob", "a", 3)],
    columns=["ranker", "item", "position"],
)
EXPECTED = [["b", ("a", "c")], ["a", "c"]]


def test_a_long_table() -> None:
    read = Rankings.from_table(LONG)
    assert read.rankers == ("ann", "bob") and read.items.labels == ("b", "a", "c")
    assert read.orders() == EXPECTED
    renamed = LONG.rename(columns={"ranker": "voter", "position": "rank"})
    again = Rankings.from_table(renamed, columns={"ranker": "voter", "position": "rank"})
    np.testing.assert_array_equal(again.positions, read.positions)
    np.testing.assert_array_equal(Rankings.from_table(read.to_frame()).positions, read.positions)


def test_rankers_that_gave_several_rankings() -> None:
    given = Rankings.from_orders([["b", "a"], [("a", "b")], ["a"]], rankers=["ann", "bob", "ann"])
    frame = given.to_frame()
    again = Rankings.from_table(frame, items=given.items)
    assert again.rankers == given.rankers and again.orders() == given.orders()
    frame.loc[1, "ranker"] = "bob"
    with pytest.raises(DataError, match="row 1.*the ranking 0 is of 'bob', but was of 'ann'"):
        Rankings.from_table(frame)


def test_a_wide_table() -> None:
    wide = pd.DataFrame({"a": [2, 3], "b": [1, np.nan], "c": [2, 4]}, index=["ann", "bob"])
    read = Rankings.from_table(wide, items=["c", "b", "a", "d"])
    assert read.rankers == ("ann", "bob") and read.kinds == ("non-exhaustive", "non-exhaustive")
    assert read.orders() == [["b", ("c", "a")], ["a", "c"]]
    with_column = wide.rename_axis("ranker").reset_index()
    np.testing.assert_array_equal(
        Rankings.from_table(with_column, items=[*"cbad"]).positions, read.positions
    )


def test_tables_of_text(tmp_path: Path) -> None:
    """From a file all cells are text, and labels stay what was written."""
    long = tmp_path / "long.csv"
    LONG.to_csv(long, index=False)
    assert Rankings.from_table(read_table(long)).orders() == EXPECTED
    wide = tmp_path / "wide.csv"
    wide.write_text("who,a,b,c\n007,2,1,2\n008,3,,4\n")
    read = Rankings.from_table(read_table(wide))
    assert read.rankers == ("007", "008") and read.orders() == [["b", ("a", "c")], ["a", "c"]]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("bob", "d", 1.5), "row 5 .*column 'position': 1.5 is not a position"),
        (("bob", "d", -1), "column 'position': -1 is not a position"),
        (
            ("bob", "d", 0),
            "row 5 .*column 'position': 0 is not a position.*1 for the best.*drop the row",
        ),
        (("bob", "d", np.nan), "the value is missing"),
        (("bob", "d", np.inf), "not finite"),
        (("bob", None, 1), "row 5 .*column 'item': the label is missing"),
        ((np.nan, "d", 1), "row 5 .*column 'ranker': the label is missing"),
        (("bob", "a", 1), "row 5 .*: the item 'a' of the ranker 'bob' was already at table, row 4"),
    ],
)
def test_a_row_that_cannot_be_used(row: tuple[object, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Rankings.from_table(
            pd.concat([LONG, pd.DataFrame([row], columns=LONG.columns)], ignore_index=True)
        )


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (LONG.drop(columns="ranker"), "there is no column 'ranker'"),
        (LONG.assign(age=3), "the column 'age' is not used"),
        (LONG.iloc[:0], "it has no rows"),
        ([[1, 2]], "expected a table, got list"),
        (pd.DataFrame({"a": [1, 1.5]}), "ranking 1, item 'a': 1.5 is not a position"),
        (
            pd.DataFrame({"a": [1, 2], "b": [2, 0]}),
            "ranking 1, item 'b': 0 is not a position.*leave the cell",
        ),
        (pd.DataFrame({"a": [1, np.nan], "b": [2, np.nan]}), "ranking 1: it ranks nothing"),
        (pd.DataFrame({"a": ["1", "x"]}), "ranking 0, column 'a': '1' is not a number"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "the label 'a' was already used"),
    ],
)
def test_tables_that_cannot_be_used(table: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Rankings.from_table(table)


def test_unknown_items_are_named() -> None:
    with pytest.raises(UnknownLabelError, match="row 2.*column 'item': 'c'"):
        Rankings.from_table(LONG, items=["a", "b"])
    with pytest.raises(UnknownLabelError, match="column 1: 'pasat'.*nearest: 'pasta'"):
        Rankings.from_scores(
            pd.DataFrame([[1, 2]], columns=["pizza", "pasat"]), items=["pizza", "pasta"]
        )


scores = st.tuples(st.integers(1, 4), st.integers(1, 5)).flatmap(
    lambda shape: st.lists(
        st.lists(
            st.sampled_from([0.0, -0.0, 1.0, 2.5, -3.0, float("nan")]),
            min_size=shape[1],
            max_size=shape[1],
        ),
        min_size=shape[0],
        max_size=shape[0],
    )
)


@given(scores)
@settings(max_examples=60, deadline=None)
def test_scores_dense_framed_and_sparse_agree_with_counting(raw: list[list[float]]) -> None:
    values = np.array(raw)
    if np.isnan(values).all(axis=1).any():
        return
    read = Rankings.from_scores(values)
    for row, places in zip(values, read.positions, strict=True):
        for score, place in zip(row, places, strict=True):
            # An item's position is the number of different scores above its own.
            assert place == (
                -1 if np.isnan(score) else len({other for other in row if other > score})
            )
    known = np.nonzero(~np.isnan(values))
    sparse = scipy.sparse.coo_array((values[known], known), shape=values.shape)
    np.testing.assert_array_equal(Rankings.from_scores(sparse).positions, read.positions)
    np.testing.assert_array_equal(Rankings.from_scores(sparse.tocsr()).positions, read.positions)
    masked = np.ma.masked_array(np.nan_to_num(values, nan=7.0), np.isnan(values))
    np.testing.assert_array_equal(Rankings.from_scores(masked).positions, read.positions)
    framed = Rankings.from_scores(pd.DataFrame(values)[::-1])
    np.testing.assert_array_equal(framed.positions, read.positions[::-1])
    assert framed.rankers == tuple(range(len(values)))[::-1]


@pytest.mark.parametrize(
    ("given", "arguments", "message"),
    [
        ([[1, np.inf]], {}, "ranking 0, column 1: the score is inf"),
        (scipy.sparse.csr_array([[1.0, -np.inf]]), {}, "ranking 0, column 1: the score is -inf"),
        (
            [[1, 2], [np.nan, np.nan]],
            {"rankers": ["x", "y"]},
            "ranking 1 .of 'y'.: it ranks nothing",
        ),
        (
            scipy.sparse.csr_array(([1.0], ([0], [0])), shape=(2, 2)),
            {},
            "ranking 1: it ranks nothing",
        ),
        (
            scipy.sparse.coo_array(([1.0, 2.0], ([0, 0], [0, 0])), shape=(1, 2)),
            {},
            "stores an entry twice",
        ),
        ([["a", "b"]], {}, "they are not numbers"),
        ([[1j, 2]], {}, "complex numbers have no order"),
        ([1, 2], {}, r"their shape is \(2,\)"),
        (np.zeros((0, 3)), {}, r"their shape is \(0, 3\)"),
        ([[1, 2]], {"items": ["a"]}, "there are 1 for 2 columns"),
        ([[1, 2]], {"rankers": ["a", "b"]}, "2 labels for 1 ranking"),
        (
            pd.DataFrame({"a": ["much", "less"]}),
            {},
            "ranking 0, column 'a': 'much' is not a number",
        ),
        (
            scipy.sparse.csr_array(([1.0], ([0], [0])), shape=(10**6, 10**6)),
            {},
            "more than the limit",
        ),
    ],
)
def test_scores_that_cannot_be_used(
    given: object, arguments: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        Rankings.from_scores(given, **arguments)
