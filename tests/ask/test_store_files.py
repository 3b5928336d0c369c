from pathlib import Path

import pandas as pd
import pytest

from relpref.ask.store import AnswerStore
from relpref.ask.tables import answers_table, export_answers, import_answers
from relpref.data import Comparisons, PreferenceData
from relpref.errors import DataError, StorageError

LABELS = ["a,b", 'c"d', "é\nè", "004", "NA"]
GRADED = pd.DataFrame(
    {
        "winner": ["a,b", "a,b", 'c"d', "004"],
        "loser": ['c"d', 'c"d', "é\nè", "NA"],
        "tie": [False, False, True, False],
        "strength": pd.array([2, 2, None, 3], dtype="Int64"),
        "rater": ["ann", "ann", "ben", "ann"],
        "shown_first": ["a,b", "a,b", None, "NA"],
    }
)
REPORTED = pd.DataFrame(
    {"first": ["a,b", "NA"], "second": ["004", "a,b"], "probability": [0.3, 0.9], "count": [1, 4]}
)
WINNERS = pd.DataFrame({"winner": ["a,b"], "loser": ["NA"]})


def read(table: pd.DataFrame) -> PreferenceData:
    items = pd.DataFrame({"x": range(len(LABELS))}, index=pd.Index(LABELS, dtype=object))
    return PreferenceData.from_tables(items, table)


def stored(path: Path, data: PreferenceData, answers: Comparisons) -> AnswerStore:
    return AnswerStore.open(path, data.labels, answers.table(data.labels))


@pytest.mark.parametrize(
    "table", [GRADED, REPORTED, WINNERS], ids=["graded", "reported", "winners"]
)
def test_answers_survive_the_way_out_and_in(tmp_path: Path, table: pd.DataFrame) -> None:
    data, file = read(table), tmp_path / "answers.csv"
    nothing = data.select_comparisons([]).comparisons
    with (
        stored(tmp_path / "one.sqlite", data, data.comparisons) as one,
        stored(tmp_path / "two.sqlite", data, nothing) as two,
    ):
        assert export_answers(one, data, file) == data.num_answers
        assert import_answers(two, data, file) == data.num_answers
        tables = [answers_table(store, data) for store in (one, two)]
    pd.testing.assert_frame_equal(*tables)
    pd.testing.assert_frame_equal(
        tables[0], data.comparisons.table(LABELS), check_like=True, check_dtype=False
    )


def test_answers_by_nobody_are_by_an_unknown(tmp_path: Path) -> None:
    data = read(WINNERS)
    with stored(tmp_path / "answers.sqlite", data, data.comparisons) as store:
        question = store.ask("ann", "004", "NA", "NA", 1)
        assert question is not None
        store.answer(question.id, "first", "ann")
        assert answers_table(store, data).fillna({"shown_first": ""}).to_dict("list") == {
            "winner": ["a,b", "004"],
            "loser": ["NA", "NA"],
            "count": [1, 1],
            "rater": ["unknown", "ann"],
            "shown_first": ["", "NA"],
        }


def test_numbers_are_known_by_how_they_print(tmp_path: Path) -> None:
    items = pd.DataFrame({"x": [0.0, 1.0, 2.0]}, index=[10, 20, 30])
    data = PreferenceData.from_tables(items, pd.DataFrame({"winner": [10], "loser": [20]}))
    (tmp_path / "more.csv").write_text("first,second,winner,shown_first\n10,30,30,10\n")
    with stored(tmp_path / "answers.sqlite", data, data.comparisons) as store:
        assert import_answers(store, data, tmp_path / "more.csv") == 1
        assert store.changes(1).added[["winner", "loser", "shown_first"]].values.tolist() == [
            [30, 10, 10]
        ]


@pytest.mark.parametrize(
    ("data", "text", "words"),
    [
        (WINNERS, "winner,loser,strength\nNA,004,2\n", "has a column 'strength'"),
        (WINNERS, "first,second,probability\nNA,004,0.2\n", "has a column 'probability'"),
        (GRADED, "winner,loser,strength\nNA,004,2\n", "has no column 'rater'"),
        (WINNERS, "winner,loser\nNA,4\n", "line 2"),
        (WINNERS, "winner,loser\n", "no rows"),
        (WINNERS, "winner\nNA\n", "loser"),
    ],
)
def test_a_table_of_another_kind_adds_nothing(
    tmp_path: Path, data: pd.DataFrame, text: str, words: str
) -> None:
    known = read(data)
    (tmp_path / "more.csv").write_text(text)
    with stored(tmp_path / "answers.sqlite", known, known.comparisons) as store:
        version = store.version
        with pytest.raises(DataError, match=words):
            import_answers(store, known, tmp_path / "more.csv")
        assert store.version == version


def test_a_table_appears_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    data = read(WINNERS)
    with stored(tmp_path / "answers.sqlite", data, data.comparisons) as store:
        with pytest.raises(StorageError, match="cannot write"):
            export_answers(store, data, tmp_path / "nowhere" / "answers.csv")
        with pytest.raises(DataError, match="ends in .csv"):
            export_answers(store, data, tmp_path / "answers.txt")
