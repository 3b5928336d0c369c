from pathlib import Path

import pandas as pd
import pytest

from relpref import PreferenceData
from relpref.data_loaders import edges
from relpref.errors import DataError

COMPARISONS = pd.DataFrame({"winner": ["a"], "loser": ["b"]})


def written(folder: Path, text: str) -> Path:
    file = folder / "links.txt"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_relation_file_becomes_a_relation(tmp_path: Path) -> None:
    table = edges.read_edges(written(tmp_path, "# who cites whom\na b 2\n\nb\tc   0.5\n"))
    data = PreferenceData.from_tables(list("abc"), COMPARISONS, {"cites": table})
    graph = data.relations["cites"]
    assert graph.adjacency().toarray().tolist() == [[0, 2, 0], [2, 0, 0.5], [0, 0.5, 0]]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a b\na b 1\n", "line 2: 'a b 1' has 3 cells; expected source target: correct the line"),
        ("# x\na\n", "line 2: 'a' has 1 cells"),
        ("a b 1 7\n", "line 1: 'a b 1 7' has 4 cells"),
        ("# nothing\n", "the file holds no edges"),
    ],
)
def test_malformed_lines_are_named(tmp_path: Path, text: str, reason: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(DataError) as caught:
        edges.read_edges(file)
    assert str(file) in str(caught.value) and reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("b c 1\n# x\na b many\n", r"links\.txt.*, line 3.*'many' is not a number"),
        ("b c 1\na b 1\na b 2\n", r"line 3: the edge from 'a' to 'b' has the weight 2\.0.*line 2"),
        ("b c 1\na b 1\na q 2\n", r"links\.txt.*, line 3, column 'target'.*'q'"),
    ],
)
def test_relations_refuse_cells_by_line(tmp_path: Path, text: str, reason: str) -> None:
    table = edges.read_edges(written(tmp_path, text))
    with pytest.raises(DataError, match=reason):
        PreferenceData.from_tables(list("abc"), COMPARISONS, {"cites": table})
