import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from relpref.data_loaders import letor
from relpref.errors import DataError

LINES = """\
2 qid:10 1:0.5 2:1.0 #docid = a
0 qid:10 1:0.1 2:-2.0 #docid = b inc = 1 prob = 0.02
1 qid:10 1:0.7 2:3e-1 #docid = c
0 qid:10 1:0.6 2:0.9 #docid = d

0 qid:9 1:1 2:2 #docid = a
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def written(text: str) -> Path:
        file = tmp_path / "testset.txt"
        file.write_text(text, encoding="utf-8", newline="")
        return file

    return written


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_file_of_two_queries(write: Callable[[str], Path], ends: str) -> None:
    found = letor.read_queries(write(LINES.replace("\n", ends)))
    assert list(found) == ["10", "9"]
    query = found["10"]
    assert query.features.loc["c"].tolist() == [0.7, 0.3]
    assert list(query.features.columns) == ["feature_1", "feature_2"]
    assert query.relevance.to_dict() == {"a": 2, "b": 0, "c": 1, "d": 0}


def test_preferences_are_all_pairs_of_different_relevance(write: Callable[[str], Path]) -> None:
    query = letor.read_queries(write(LINES))["10"]
    pairs = set(query.preferences().itertuples(index=False, name=None))
    assert pairs == {("a", "b"), ("a", "c"), ("a", "d"), ("c", "b"), ("c", "d")}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("2 10 1:0.5 2:1.0 #docid = e", "does not have the form label qid:QUERY"),
        (
            "-1 qid:10 1:0.5 2:1.0 #docid = e",
            "'-1' is not a judgment 0, 1, ...; leave out documents without a judgment",
        ),
        ("2 qid:10 1:0.5 3:1.0 #docid = e", "found '3:1.0' where feature 2 is due"),
        (
            "2 qid:10 1:0.5 2:NULL #docid = e",
            "'NULL' of feature 2 is not a finite number; use the MIN or",
        ),
        ("2 qid:10 1:0.5 #docid = e", "there are 1 feature, but 2 before"),
        ("2 qid:10 1:0.5 2:1.0 #docid = a", "the document a of query 10 was on line 1 already"),
    ],
)
def test_malformed_lines_are_named(write: Callable[[str], Path], line: str, reason: str) -> None:
    file = write(LINES + line + "\n")
    with pytest.raises(DataError) as caught:
        letor.read_queries(file)
    assert str(caught.value).startswith(f"{file}, line 7: ")
    assert reason in str(caught.value)


def test_files_that_are_none(write: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the file holds no documents"):
        letor.read_queries(write("\n"))
    with pytest.raises(DataError, match=r"nothing\.txt: there is no such file"):
        letor.read_queries(tmp_path / "nothing.txt")


def test_folds_are_found_whatever_the_case(write: Callable[[str], Path], tmp_path: Path) -> None:
    first, second = LINES.split("\n\n")
    fold = tmp_path / "set" / "Data" / "fold3"
    fold.mkdir(parents=True)
    (fold / "trainingset.TXT").write_text(first)
    (fold / "Vali.txt").write_text(second)
    (fold / "testset.txt").write_text(second.replace("qid:9", "qid:WT04-1"))
    found = letor.load_queries(tmp_path / "set", fold=3)
    assert [(qid, query.part) for qid, query in found.items()] == [
        ("9", "validation"),
        ("10", "training"),
        ("WT04-1", "test"),
    ]

    shutil.copy(fold / "Vali.txt", fold / "testset.txt")
    with pytest.raises(DataError, match=r"the query 9 is in .*Vali\.txt, too"):
        letor.load_queries(tmp_path / "set", fold=3)
    (fold / "testset.txt").unlink()
    with pytest.raises(DataError, match="there is no test file test\\*.txt in it"):
        letor.load_queries(tmp_path / "set", fold=3)
    with pytest.raises(DataError, match="there is no folder Fold1"):
        letor.load_queries(tmp_path / "set")


def test_a_missing_set_says_where_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RELPREF_DATA", raising=False)
    with pytest.raises(
        DataError, match=r"give its folder, or set RELPREF_DATA.*Terms: Research use"
    ):
        letor.load_queries()
    monkeypatch.setenv("RELPREF_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"letor2_ohsumed: there is no such folder.*microsoft\.com"):
        letor.load_queries()


def test_ohsumed(real_data: Path) -> None:
    queries = letor.load_queries(fold=3)
    assert list(queries) == [str(number) for number in range(1, 107)]
    assert sum(len(query.features) for query in queries.values()) == 16140
    assert {query.features.shape[1] for query in queries.values()} == {25}
    first = queries["1"]
    assert first.relevance.value_counts().to_dict() == {0: 88, 1: 26, 2: 24}
    assert len(first.preferences()) == 24 * (26 + 88) + 26 * 88
