from pathlib import Path

import numpy as np
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
    table = edges.read_edges(written(tmp_path, "# who cites whom\na b 2\n\nb\tc   0.5\nx y 1\n"))
    graph = PreferenceData.from_tables(
        list("abc"), COMPARISONS, {"cites": edges.among(table, "abc")}
    ).relations["cites"]
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
        ("x x 1\n# x\na b many\n", r"links\.txt.*, line 3.*'many' is not a number"),
        ("x x 1\na b 1\na b 2\n", r"line 3: the edge from 'a' to 'b' has the weight 2\.0.*line 2"),
        ("x x 1\na b 1\na q 2\n", r"links\.txt.*, line 3, column 'target'.*'q'"),
    ],
)
def test_what_is_found_later_has_its_line_too(tmp_path: Path, text: str, reason: str) -> None:
    table = edges.among(edges.read_edges(written(tmp_path, text)), "abcq")
    with pytest.raises(DataError, match=reason):
        PreferenceData.from_tables(list("abc"), COMPARISONS, {"cites": table})


def test_nearest_neighbours_by_brute_force() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((12, 3)) + 5
    labels = [f"d{row}" for row in range(12)]
    values[:, 2] = 7  # a constant column says nothing
    found = edges.nearest_neighbours(pd.DataFrame(values, index=labels), neighbours=2)

    unit = (values[:, :2] - values[:, :2].mean(axis=0)) / values[:, :2].std(axis=0)
    cosine = np.corrcoef(np.hstack([unit, -unit]))  # centred rows: the cosine of the originals
    expected = {}
    for i in range(12):
        for j in sorted(set(range(12)) - {i}, key=lambda j: -cosine[i, j])[:2]:
            if cosine[i, j] > 0:
                expected[tuple(sorted((i, j)))] = cosine[i, j]
    pairs = {(labels.index(row.source), labels.index(row.target)): row.weight for row in found.itertuples()}
    assert pairs == pytest.approx(expected)


def test_no_graph_without_likeness() -> None:
    with pytest.raises(DataError, match="no two of 2 items are alike"):
        edges.nearest_neighbours(pd.DataFrame({"x": [0.0, 1.0]}))
    with pytest.raises(DataError, match="neighbours is 0"):
        edges.nearest_neighbours(pd.DataFrame({"x": [0.0, 1.0]}), neighbours=0)
