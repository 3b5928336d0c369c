"""Relations that benchmarks derive: nearest neighbors, two-hop links, links of one query, groups of
messages.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.reproduce import neighbours
from benchmarks.reproduce.conditional import newsgroups
from benchmarks.reproduce.ohsumed import among
from benchmarks.reproduce.trec import two_hop
from relpref.data_loaders.edges import read_edges
from relpref.errors import DataError


def test_nearest_neighbours_by_brute_force() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((12, 3)) + 5
    labels = [f"d{row}" for row in range(12)]
    values[:, 2] = 7  # a constant column says nothing
    table = neighbours.nearest_neighbours(pd.DataFrame(values, index=labels), neighbours=2)

    unit = (values[:, :2] - values[:, :2].mean(axis=0)) / values[:, :2].std(axis=0)
    cosine = np.corrcoef(np.hstack([unit, -unit]))  # centred rows: the cosine of the originals
    expected = {}
    for i in range(12):
        for j in sorted(set(range(12)) - {i}, key=lambda j: -cosine[i, j])[:2]:
            if cosine[i, j] > 0:
                expected[tuple(sorted((i, j)))] = cosine[i, j]
    pairs = {
        (labels.index(row.source), labels.index(row.target)): row.weight
        for row in table.itertuples()
    }
    assert pairs == pytest.approx(expected)


def test_no_graph_without_likeness() -> None:
    with pytest.raises(DataError, match="no two of 2 items are alike"):
        neighbours.nearest_neighbours(pd.DataFrame({"x": [0.0, 1.0]}))
    with pytest.raises(DataError, match="neighbours is 0"):
        neighbours.nearest_neighbours(pd.DataFrame({"x": [0.0, 1.0]}), neighbours=0)


def test_two_hop_by_hand() -> None:
    star = pd.DataFrame({"source": [1, 2, 3, 7], "target": [9, 9, 9, 8]})
    assert two_hop(star).to_numpy().tolist() == [[1, 2], [1, 3], [2, 3]]


def test_edges_among_the_documents_of_a_query_keep_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "links.txt"
    file.write_text("x x 1\n# x\na b 2\na x 1\n", encoding="utf-8")
    table = among(read_edges(file), ["a", "b"])
    assert table.frame.to_numpy().tolist() == [["a", "b", "2"]]
    assert table.lines is not None and list(table.lines) == [3]


def test_messages_of_similar_groups_are_half_alike() -> None:
    groups = [*newsgroups.SET_1, *newsgroups.SET_2, "sci.med", "sci.space"]
    levels = newsgroups.similarity([*groups, "sci.med"])
    assert (levels == levels.T).all() and (np.diag(levels) == 1).all() and levels[-1, -3] == 1
    expected = {"comp": 4, "rec": 1, "sci": 0}
    similar = (levels == 0.5).sum(axis=1)[:-1]
    assert similar.tolist() == [expected[name.split(".")[0]] for name in groups]
