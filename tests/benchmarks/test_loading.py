"""The benchmark of loading, at a size that takes no time: every format holds the same links."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import loading
from relpref import PreferenceData


@pytest.mark.parametrize("ending", loading.FORMATS)
def test_every_format_holds_the_same_links(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "PIECE", 40)
    labels = np.array([f"user{position}" for position in range(30)], dtype=object)
    file = tmp_path / f"links{ending}"
    loading.write(file, ending, labels, 100)
    ends = np.concatenate(list(loading.pieces(30, 100)), axis=1)
    expected = {pair for pair in map(frozenset, ends.T.tolist()) if len(pair) == 2}
    graph = PreferenceData.from_tables(list(labels), relations={"links": file}).relations["links"]
    assert set(map(frozenset, np.stack([graph.source, graph.target], 1).tolist())) == expected


@pytest.mark.slow
def test_what_is_printed() -> None:
    lines = loading.run((".csv", ".npz"), 100, 300).splitlines()
    assert lines[0] == "| format | size, MB | seconds | CPU seconds | peak, GB | edges |"
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| .csv", "| .npz"]
    assert len({line.split(" | ")[-1] for line in lines[2:]}) == 1
