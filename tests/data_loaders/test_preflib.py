from pathlib import Path

import pytest

from relpref.data_loaders import preflib
from relpref.errors import DataError


@pytest.mark.parametrize(
    ("name", "meaning", "described"),
    [
        ("00009-00000001.soc", None, "146 full rankings of 9 items"),
        ("00030-00000001.toc", None, "266 partly top-k rankings of 5 items"),
        ("00030-00000001.soi", "top-k", "266 partly top-k rankings of 5 items"),
        ("00030-00000001.soi", "subset", "266 partly non-exhaustive rankings of 1 to 5 of 5 items"),
    ],
)
def test_published_files(real_data: Path, name: str, meaning: str | None, described: str) -> None:
    assert preflib.load(name, incomplete=meaning).describe() == described  # type: ignore[arg-type]


def test_top_k_is_what_the_library_itself_fills_in(real_data: Path) -> None:
    """The .toc file was made from the .soi file by adding the unranked alternatives at the
    bottom.
    """
    ours = preflib.load("00030-00000001.soi", incomplete="top-k")
    theirs = preflib.load("00030-00000001.toc")
    assert sorted(map(str, ours.orders())) == sorted(map(str, theirs.orders()))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="it holds no files of orders"):
        preflib.load("00009-00000001.soc", tmp_path)
    (tmp_path / "00009 - agh").mkdir()
    (tmp_path / "00009 - agh" / "00009-00000001.soc").touch()
    with pytest.raises(
        DataError, match=r"no file '00009-00000001\.soi' in it; nearest: '00009-00000001\.soc'"
    ):
        preflib.load("00009-00000001.soi", tmp_path)
