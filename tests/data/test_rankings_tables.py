"""Rankings from tables and from scores."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from relpref import Rankings
from relpref.data import read_table
from relpref.errors import DataError, UnknownLabelError

LONG = pd.DataFrame(
    [("ann", "b", 1), ("ann", "a", 2), ("bob", "c", 4), ("ann", "c", 2), ("bob", "a", 3)],
    columns=["ranker", "item", "position"],
)
WIDE = pd.DataFrame({"b": [1, np.nan], "a": [2, 3], "c": [2, 4]}, index=["ann", "bob"])
EXPECTED = [["b", ("a", "c")], ["a", "c"]]
TABLES: dict[str, Any] = {
    "long": LONG,
    "rankings numbered": LONG.assign(ranking=[7, 7, 1, 7, 1]),
    "wide": WIDE,
    "wide with a column": WIDE.rename_axis("ranker").reset_index(),
    "objects": WIDE.astype(object).where(WIDE.notna(), None),
}


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("form", TABLES)
def test_every_table_of_positions(form: str, text: bool, tmp_path: Path) -> None:
    table = TABLES[form]
    if text:  # all cells of a file are text
        table.to_csv(tmp_path / "table.csv", index=form in ("wide", "objects"))
        table = read_table(tmp_path / "table.csv")
    read = Rankings.from_table(table)
    assert read.rankers == ("ann", "bob") and read.items.labels == ("b", "a", "c")
    assert read.orders() == EXPECTED
    larger = Rankings.from_table(table, items=["c", "b", "a", "d"])
    assert larger.orders() == [["b", ("c", "a")], ["a", "c"]]


def test_columns_may_have_other_names() -> None:
    names = {"ranker": "voter", "position": "rank"}
    assert Rankings.from_table(LONG.rename(columns=names), columns=names).orders() == EXPECTED


def test_rankers_that_gave_several_rankings() -> None:
    rows = [(0, "ann", "b", 1), (0, "ann", "a", 2), (1, "bob", "a", 1), (2, "ann", "a", 3)]
    frame = pd.DataFrame(rows, columns=["ranking", "ranker", "item", "position"])
    read = Rankings.from_table(frame)
    assert read.rankers == ("ann", "bob", "ann") and read.orders() == [["b", "a"], ["a"], ["a"]]
    frame.loc[1, "ranker"] = "bob"
    with pytest.raises(DataError, match="row 1.*the ranking 0 is of 'bob', but was of 'ann'"):
        Rankings.from_table(frame)


def test_labels_of_a_file_stay_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "{wide}.csv").write_text("who,a,b,c\n007,2,1,2\n008,3,,4\n")
    table = read_table(tmp_path / "{wide}.csv")
    read = Rankings.from_table(table)
    assert read.rankers == ("007", "008") and read.orders() == EXPECTED
    with pytest.raises(UnknownLabelError, match=r"\{wide\}.csv, column 2: 'c' is not the label"):
        Rankings.from_table(table, items=["a", "b"])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("bob", "d", 1.5), "row 5 .*column 'position': 1.5 is not a positive whole"),
        (("bob", "d", -1), "column 'position': -1 is not a positive whole"),
        (
            ("bob", "d", 0),
            "row 5 .*column 'position': 0 is not a positive whole.*1 for the best.*drop the row",
        ),
        (("bob", "d", np.nan), "the value is missing"),
        (("bob", "d", np.inf), "not finite"),
        (("bob", None, 1), "row 5 .*column 'item': the label is missing"),
        ((np.nan, "d", 1), "row 5 .*column 'ranker': the label is missing"),
        (("bob", "a", 1), "row 5 .*: the item 'a' was already in .*'bob'. at table, row 4"),
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
        (pd.DataFrame({"a": [1, 1.5]}), "row 1 .*column 'a': 1.5 is not a positive whole"),
        (
            pd.DataFrame({"a": [1, 2], "b": [2, 0]}),
            "row 1 .*column 'b': 0 is not a positive whole.*leave the cell",
        ),
        (pd.DataFrame({"a": [1, np.nan], "b": [2, np.nan]}), "ranking 1: it ranks nothing"),
        (pd.DataFrame({"a": ["1", "x"]}), "row 0 .*column 'a': '1' is not a number"),
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


scores = arrays(
    float,
    st.tuples(st.integers(1, 4), st.integers(1, 5)),
    elements=st.sampled_from([0.0, -0.0, 1.0, 2.5, -3.0, np.nan]),
)


@given(scores)
@settings(max_examples=60, deadline=None)
def test_scores_dense_framed_and_sparse_agree_with_counting(values: np.ndarray) -> None:
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
    masked = np.ma.masked_array(np.nan_to_num(values, nan=7.0), np.isnan(values))
    for form in (sparse, sparse.tocsr(), masked, pd.DataFrame(values)):
        np.testing.assert_array_equal(Rankings.from_scores(form).positions, read.positions)
    framed = Rankings.from_scores(pd.DataFrame(values)[::-1])
    np.testing.assert_array_equal(framed.positions, read.positions[::-1])
    assert framed.rankers == tuple(range(len(values)))[::-1]


sparse = scipy.sparse.coo_array
NOTHING, TWICE = sparse(([1.0], ([0], [0])), (2, 2)), sparse(([1.0, 2.0], ([0, 0], [0, 0])), (1, 2))


@pytest.mark.parametrize(
    ("given", "arguments", "message"),
    [
        ([[1, np.inf]], {}, "ranking 0, column 1: the score is inf"),
        (sparse([[1.0, -np.inf]]), {}, "ranking 0, column 1: the score is -inf"),
        ([[1, 2], [np.nan] * 2], {"rankers": ["x", "y"]}, "ranking 1 .of 'y'.: it ranks nothing"),
        (NOTHING, {}, "ranking 1: it ranks nothing"),
        (TWICE, {}, "stores an entry twice"),
        ([["a", "b"]], {}, "they are not numbers"),
        ([[1j, 2]], {}, "complex numbers have no order"),
        ([1, 2], {}, r"their shape is \(2,\)"),
        (np.zeros((0, 3)), {}, r"their shape is \(0, 3\)"),
        ([[1, 2]], {"items": ["a"]}, "there are 1 for 2 columns"),
        ([[1, 2]], {"rankers": ["a", "b"]}, "2 labels for 1 ranking"),
        (pd.DataFrame({"a": ["much"]}), {}, "scores, row 0 .*column 'a': 'much' is not a number"),
        (sparse(([1.0], ([0], [0])), (10**6, 10**6)), {}, "more than the limit"),
    ],
)
def test_scores_that_cannot_be_used(
    given: object, arguments: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        Rankings.from_scores(given, **arguments)
