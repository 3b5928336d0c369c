"""Details of items that are shown, whatever a table says."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from relpref.ask.items import item
from relpref.data import PreferenceData


@pytest.fixture(scope="module")
def data() -> PreferenceData:
    items = pd.DataFrame({"x": [0.0, 1.0]}, index=["a", "b"])
    return PreferenceData.from_tables(items, pd.DataFrame({"winner": ["a"], "loser": ["b"]}))


def shown(data: PreferenceData, folder: Path, image: str) -> Any:
    return item("a", data, str(folder), {"a": {"image": image, "attributes": []}}).image


def test_a_picture_lies_in_the_folder(data: PreferenceData, tmp_path: Path) -> None:
    (tmp_path / "itself.png").symlink_to(tmp_path / "itself.png")
    (tmp_path / "away.png").symlink_to("/etc/passwd")
    (tmp_path / "a.png").touch()
    assert shown(data, tmp_path, "a.png") == (tmp_path / "a.png").resolve()
    for name in (
        "",
        "x" * 300 + ".png",
        "a/" * 5000,
        "itself.png",
        "away.png",
        "../a.png",
        "b.png",
        ".",
        "a\0",
        "\ud800",
    ):
        assert shown(data, tmp_path, name) is None, name[:20]
