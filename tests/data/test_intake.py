"""Tables as they come: categories, gaps, dates, other separators, labels in a column, edges in any
form.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref import PreferenceData
from relpref.data import read_table
from relpref.errors import DataError

LABELS = list("abcd")
ANSWERS = [("a", "b"), ("b", "c"), ("c", "d")]


def described(**columns: Any) -> PreferenceData:
    return PreferenceData.from_tables(pd.DataFrame(columns, index=LABELS), ANSWERS)


def attributes(data: PreferenceData) -> dict[str, list[float]]:
    return dict(zip(data.attribute_names, data.attributes.T.tolist(), strict=True))


def test_a_category_becomes_a_column_for_each_value() -> None:
    data = described(color=["red", "blue", "red", "green"])
    assert attributes(data) == {
        "color=blue": [0, 1, 0, 0],
        "color=green": [0, 0, 0, 1],
        "color=red": [1, 0, 1, 0],
    }
    assert data.notes == (
        "items: 'color' has 3 values, read as 'color=blue', 'color=green', 'color=red'",
    )


def test_of_two_values_one_column_is_enough() -> None:
    assert attributes(described(new=["yes", "no", "no", "yes"])) == {"new=yes": [1, 0, 0, 1]}
    # But a missing value is neither of them.
    gap = {"new=no": [0, 1, 0, 1], "new=yes": [1, 0, 0, 0]}
    assert attributes(described(new=pd.Categorical(["yes", "no", None, "no"]))) == gap


def test_an_ordered_category_is_a_number() -> None:
    sizes = pd.Categorical(["S", "L", None, "M"], ["S", "M", "L"], ordered=True)
    assert attributes(described(size=sizes)) == {"size": [0, 2, 1, 1], "size missing": [0, 0, 1, 0]}


def test_what_says_nothing_is_left_out() -> None:
    data = described(
        name=["p", "q", "r", "s"], same=["k"] * 4, nothing=[None] * 4, **{"Unnamed: 0": range(4)}
    )
    assert not data.attribute_names and not data.relations
    assert [note.split("'")[1] for note in data.notes] == ["Unnamed: 0", "name", "same", "nothing"]


@pytest.mark.parametrize(
    "gap",
    [
        [1.0, np.nan, 2.0, 3.0],
        pd.array([1, None, 2, 3], dtype="Int64"),
        np.array([1, None, 2, 3], object),
    ],
)
def test_a_missing_number_is_the_mean_and_marked(gap: Any) -> None:
    data = described(price=gap)
    assert attributes(data) == {"price": [1, 2, 2, 3], "price missing": [0, 1, 0, 0]}
    assert data.notes == (
        (
            "items: 1 of 4 values of 'price' are missing: set to the mean, 2, and marked by 'price "
            "missing'"
        ),
    )


def test_a_mark_needs_a_name_of_its_own() -> None:
    with pytest.raises(DataError, match="'price missing' has the name of what marks another one"):
        described(price=[1, 2, None, 3], **{"price missing": range(4)})


def test_dates_are_years_and_durations_days() -> None:
    dates = pd.to_datetime(["2020-01-01", "2021-07-02", "1999-12-31", "2020-01-01"])
    data = described(born=dates, age=dates - dates[0])
    assert data.attribute_names == ("born", "age")
    np.testing.assert_allclose(data.attributes[:, 0], [2020, 2021.5, 2000, 2020], atol=0.005)
    assert data.attributes[:, 1].tolist() == [0, 548, -7306, 0]


def test_many_values_become_a_relation() -> None:
    cities = [f"city {k % 7}" for k in range(20)]
    frame = pd.DataFrame({"home town": [*cities, None]}, index=range(21))
    data = PreferenceData.from_tables(frame, [(0, 1)])
    assert not data.attribute_names
    joined = {
        tuple(ends)
        for ends in zip(
            *(getattr(data.relations["same_home_town"], e).tolist() for e in ("source", "target")),
            strict=True,
        )
    }
    assert joined == {(i, j) for i in range(20) for j in range(i + 1, 20) if i % 7 == j % 7}
    # One's own relation of that name goes before it.
    own = PreferenceData.from_tables(frame, [(0, 1)], {"same_home_town": [(0, 1)]})
    assert own.relations["same_home_town"].num_edges == 1


def test_a_value_that_too_many_share_links_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relpref.data.attributes.MAX_PAIRS_OF_LEVELS", 10)
    data = PreferenceData.from_tables(pd.DataFrame({"x": list("uvwxyz") * 4}), [(0, 1)])
    assert not data.relations and "too many items" in data.notes[0]


def test_newcomers_are_described_like_the_others() -> None:
    items = pd.DataFrame(
        {
            "color": ["red", "blue", "red", "green"] * 5,
            "price": [1.0, np.nan, 2.0, 3.0] * 5,
            "town": [f"town {k % 6}" for k in range(20)],
            "name": [f"the {k}th" for k in range(20)],
        },
        index=range(20),
    )
    known, late = PreferenceData.from_tables(items.iloc[:16], [(0, 1)]), items.iloc[16:]
    data = known.extend(late)
    whole = PreferenceData.from_tables(items, [(0, 1)])
    assert data.attribute_names == whole.attribute_names
    price = data.attribute_names.index("price")
    rest = [at for at in range(len(data.attribute_names)) if at != price]
    np.testing.assert_array_equal(data.attributes[:, rest], whole.attributes[:, rest])
    assert data.attributes[17, price] == known.attribute_center[price]
    np.testing.assert_array_equal(
        data.relations["same_town"].weight_matrix, whole.relations["same_town"].weight_matrix
    )
    assert "items: the column 'name' of the new items is not used" in data.notes
    assert not any("category" in note for note in data.notes)
    stranger = known.extend(late.assign(color=["pink", "red", "blue", "pink"]))
    note = (
        "items: 'pink' is a category of 'color' that no known item has: read as none of the "
        "known ones"
    )
    assert note in stranger.notes
    colors = [at for at, name in enumerate(data.attribute_names) if name.startswith("color=")]
    np.testing.assert_array_equal(stranger.attributes[16:, colors].sum(axis=1), [0, 1, 1, 0])
    with pytest.raises(DataError, match="the new items lack the attribute 'price'"):
        known.extend(late.drop(columns="price"))
    with pytest.raises(DataError, match="'price': the new items have text"):
        known.extend(late.assign(price="dear"))


@pytest.mark.parametrize(
    "items",
    [
        pd.DataFrame({"x": [4, 3, 2, 1], "name": LABELS}),
        {"x": [4, 3, 2, 1], "name": LABELS},
        [{"x": 4 - row, "name": label} for row, label in enumerate(LABELS)],
    ],
)
def test_labels_in_a_column(items: Any) -> None:
    for answers in (ANSWERS, None):
        data = PreferenceData.from_tables(items, answers)
        assert data.labels == tuple(LABELS) and data.attribute_names == ("x",)
        assert data.notes == ("items: the labels are those of the column 'name'",)


def test_numbers_as_labels() -> None:
    items = pd.DataFrame({"id": [3, 1, 2], "x": [0, 1, 2]})
    assert PreferenceData.from_tables(items, [(1, 2)]).labels == (3, 1, 2)
    # Rows are numbered where no column says more.
    assert PreferenceData.from_tables(items[["x"]], [(1, 2)]).labels == (0, 1, 2)
    assert PreferenceData.from_tables(items.rename(columns={"id": "y"}), [(1, 2)]).labels == (
        0,
        1,
        2,
    )
    assert PreferenceData.from_tables(items.rename(columns={"id": "y"}), [(1, 3)]).labels == (
        3,
        1,
        2,
    )


def test_a_frame_of_another_library() -> None:
    arrow = pytest.importorskip("pyarrow")
    items = arrow.table({"name": LABELS, "x": [1, 2, None, 4]})
    data = PreferenceData.from_tables(items, arrow.table({"winner": ["a"], "loser": ["b"]}))
    assert data.labels == tuple(LABELS) and data.num_answers == 1
    assert data.attribute_names == ("x", "x missing")


def test_a_frame_of_polars(monkeypatch: pytest.MonkeyPatch) -> None:
    polars = pytest.importorskip("polars")
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # it is not needed
    code = polars.Series(["1", "2", "1", None], dtype=polars.Categorical)
    items = {"name": LABELS, "kind": ["u", "v", "u", None], "x": [1, 2, None, 4], "code": code}
    data = PreferenceData.from_tables(
        polars.DataFrame(items),
        polars.DataFrame({"winner": ["a"], "loser": ["b"]}),
        {"near": polars.DataFrame({"source": ["a"], "target": ["c"]})},
    )
    assert data.labels == tuple(LABELS) and data.relations["near"].num_edges == 1
    assert data.attribute_names == ("kind=u", "kind=v", "x", "x missing", "code=1", "code=2")
    with pytest.raises(DataError, match=r"answers: a LazyFrame has no rows yet; .*\.collect\(\)"):
        PreferenceData.from_tables(LABELS, polars.LazyFrame({"winner": ["a"], "loser": ["b"]}))


def test_a_frame_of_no_known_library() -> None:
    class Frame:
        columns = ("winner", "loser")

    with pytest.raises(
        DataError, match="answers: expected a table, got Frame; build a pandas DataFrame"
    ):
        PreferenceData.from_tables(LABELS, Frame())


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def test_semicolons_and_decimal_commas(tmp_path: Path) -> None:
    items = write(
        tmp_path / "items.csv", 'name;price;"weight, g"\r\nA b;1,5;-3\r\n"C;D";2,25;4\r\nE;;5\r\n'
    )
    answers = write(tmp_path / "answers.csv", "winner\tloser\tcount\r\nA b\tC;D\t2\r\n")
    data = PreferenceData.from_tables(str(items), answers)
    assert data.labels == ("A b", "C;D", "E")
    assert attributes(data) == {
        "price": [1.5, 2.25, 1.875],
        "price missing": [0, 0, 1],
        "weight, g": [-3, 4, 5],
    }
    assert data.num_answers == 2
    assert data.notes[:3] == (
        "answers: the file is separated by tabs",
        "items: the file is separated by semicolons",
        "items: the file has decimal commas",
    )


def test_commas_are_no_decimal_marks_beside_points(tmp_path: Path) -> None:
    file = write(tmp_path / "items.csv", "name;x;y\na;1,5;2.5\nb;2;3\nc;3;4\n")
    with pytest.raises(DataError, match="column 'x': '1,5': the mark may be"):
        PreferenceData.from_tables(file)


def test_weights_with_decimal_commas(tmp_path: Path) -> None:
    file = write(
        tmp_path / "same taste.csv", "source;target;weight;year\na;b;0,5;2020\nc;d;2;2021\n"
    )
    data = PreferenceData.from_tables(LABELS, ANSWERS, {"same taste": file})
    assert data.relations["same taste"].weight.tolist() == [0.5, 2]
    assert data.notes == (
        "relation 'same taste': the file is separated by semicolons",
        "relation 'same taste': the file has decimal commas",
        "relation 'same taste': the column 'year' is not used",
    )


def test_spaces_around_cells(tmp_path: Path) -> None:
    file = write(tmp_path / "answers.csv", 'winner, loser , count\na, b c, 2\n"x, y", a,1\n')
    data = PreferenceData.from_tables(answers=file)
    assert data.labels == ("a", "b c", "x, y") and data.num_answers == 3
    assert data.notes == ()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_every_separator_and_line_end(tmp_path: Path, separator: str, end: str) -> None:
    rows = ["name", "size"], ["tea", "1"], ["New York", "2"], ['"q"', "3"]
    plain = end.join(separator.join(row) for row in rows[:3]) + end
    quoted = plain + separator.join(['"""q"""', "3"]) + end
    for text, number in ((plain, 3), (quoted, 4)):
        table = read_table(write(tmp_path / "t.csv", text))
        assert [list(table.frame.columns), *table.frame.to_numpy().tolist()] == [*rows[:number]]


def test_unknown_columns_are_noted_and_slips_refused() -> None:
    table = pd.DataFrame({"winner": ["a"], "loser": ["b"], "date": ["2020"], "": [0]})
    data = PreferenceData.from_tables(LABELS, table)
    assert data.notes == ("answers: the columns 'date', '' are not used",)
    raters = PreferenceData.from_tables(LABELS, table.assign(raters="x"))
    assert "'raters' may say who answered: columns={'rater': 'raters'}" in raters.notes[0]
    with pytest.raises(DataError, match="'counts' is not used .*did you mean 'count'"):
        PreferenceData.from_tables(LABELS, table.assign(counts=2))
    with pytest.raises(DataError, match="'probability'"):  # known, but not beside a winner
        PreferenceData.from_tables(LABELS, table.assign(probability=0.5))
    with pytest.raises(DataError, match="'this', 'that' are not recognized as answers"):
        PreferenceData.from_tables(LABELS, pd.DataFrame({"this": ["a", "b"], "that": ["b", "c"]}))


def test_winners_that_are_named_once_more() -> None:
    table = pd.DataFrame(
        {"day": [1, 2], "here": ["a", "b"], "there": ["b", "c"], "winner": ["b", "b"]}
    )
    with pytest.raises(
        DataError,
        match=r"every winner is in 'here' or 'there'; .*--columns first=here,second=there",
    ):
        PreferenceData.from_tables(LABELS, table)
    named = {"first": "here", "second": "there"}
    assert PreferenceData.from_tables(LABELS, table, columns=named).num_answers == 2
    with pytest.raises(DataError, match="there is no column 'loser'"):
        PreferenceData.from_tables(LABELS, table.assign(winner="d"))


def test_capitals_of_columns_do_not_matter_where_one_can_be_meant() -> None:
    table = pd.DataFrame({"Winner": ["a"], "LOSER ": ["b"], "Count": [2]})
    edges = pd.DataFrame({"Source": ["a"], "target": ["c"], "WEIGHT": [0.5]})
    data = PreferenceData.from_tables(LABELS, table, {"near": edges})
    assert data.num_answers == 2 and data.relations["near"].weight_matrix.max() == 0.5
    assert data.notes[:2] == (
        "answers: 'Winner', 'LOSER ', 'Count' are read as 'winner', 'loser', 'count'",
        "relation 'near': 'Source', 'WEIGHT' are read as 'source', 'weight'",
    )
    with pytest.raises(DataError, match="row 0 .*, column 'Count': 'x' is not a number"):
        PreferenceData.from_tables(LABELS, table.assign(Count="x"))
    notes = PreferenceData.from_tables(LABELS, table.assign(winner="a")).notes
    assert "answers: the column 'Winner' is not used" in notes
    twice = table.rename(columns={"Winner": "winner", "Count": "Rater"}).assign(RATER="x")
    assert PreferenceData.from_tables(LABELS, twice[["winner", "LOSER "]]).num_answers == 1
    notes = PreferenceData.from_tables(LABELS, twice).notes
    assert "answers: the columns 'Rater', 'RATER' are not used" in notes


@pytest.mark.parametrize(
    ("results", "ties"),
    [
        ([1, 0.5, 0], [False, True, False]),
        (["1", "½", "0"], [False, True, False]),
        (["1", "1/2", "0.0"], [False, True, False]),
        ([1, 0, -1], [False, True, False]),
        (["1", "0", "\N{MINUS SIGN}1"], [False, True, False]),
        ([1.0, 1, 0], None),
        ([True, True, False], None),
        ([1, 1, -1], None),
    ],
)
def test_results_by_code(results: list[Any], ties: Any) -> None:
    table = pd.DataFrame({"first": list("abc"), "second": list("bcd"), "result": results})
    data = PreferenceData.from_tables(LABELS, table)
    middle = ("b", "c")
    wanted = pd.DataFrame([("a", "b"), middle, ("d", "c")], columns=["winner", "loser"])
    same = PreferenceData.from_tables(LABELS, wanted if ties is None else wanted.assign(tie=ties))
    pd.testing.assert_frame_equal(data.to_tables()[1], same.to_tables()[1])
    assert "results were read as 1 for a win of the first" in data.notes[0]


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([1, 0.5, -1], r"row 1 .*'result': 0\.5, and yet there are results of -1"),
        ([1, 2, 0], "row 1 .*'result': 2 is no result; write 1 where"),
        (["1", "won", "0"], "row 1 .*'won' is not a number"),
        ([1, None, 0], "row 1 .*the value is missing"),
    ],
)
def test_results_that_are_none(results: list[Any], message: str) -> None:
    table = pd.DataFrame({"first": list("abc"), "second": list("bcd"), "result": results})
    with pytest.raises(DataError, match=message):
        PreferenceData.from_tables(LABELS, table)


def test_one_row_after_another_makes_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces of a file are encoded together."""
    rows = [
        (f"i{k}", "" if k % 9 == 4 else k / 3, ["red", "blue", ""][k % 3], k % 2 == 0)
        for k in range(40)
    ]
    file = tmp_path / "items.csv"
    pd.DataFrame(rows, columns=["name", "x", "color", "new"]).to_csv(file, index=False)
    whole = PreferenceData.from_tables(file)
    monkeypatch.setattr("relpref.data.table_files.MAX_CELLS_AT_ONCE", 8)
    pieces = PreferenceData.from_tables(file)
    assert (
        whole.attribute_names
        == pieces.attribute_names
        == ("x", "x missing", "color=blue", "color=red", "new")
    )
    np.testing.assert_array_equal(whole.attributes, pieces.attributes)
    assert whole.notes == pieces.notes


def test_items_and_answers_that_are_exchanged() -> None:
    items = pd.DataFrame({"acidity": [1.0, 2.0]}, index=["a", "b"])
    answers = pd.DataFrame({"winner": ["a"], "loser": ["b"]})
    with pytest.raises(DataError, match="give the items first, then the answers"):
        PreferenceData.from_tables(answers, items)
    with pytest.raises(DataError, match="are not recognized as answers"):
        PreferenceData.from_tables(items, items)
