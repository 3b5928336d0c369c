import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from relpref.data_loaders import planetoid
from relpref.errors import DataError


@pytest.fixture
def copied(real_data: Path, tmp_path: Path) -> Path:
    return Path(
        shutil.copytree(
            real_data / "planetoid", tmp_path / "planetoid", copy_function=shutil.copyfile
        )
    )


def test_cora(real_data: Path) -> None:
    cora = planetoid.load("cora")
    assert cora.words.shape == (2708, 1433) and set(cora.words.data) == {1.0}
    # Sizes of the classes and the number of links as published (Sen et al. 2008; 5429 citations,
    # 151 of them mutual or repeated).
    assert np.bincount(cora.classes).tolist() == [351, 217, 418, 818, 426, 298, 180]
    assert len(cora.links) == 5278 and (cora.links["source"] < cora.links["target"]).all()
    # Rows of test papers are in another order in the file; in the wrong one, links and classes
    # would be unrelated.
    same = cora.classes[cora.links["source"]] == cora.classes[cora.links["target"]]
    assert same[(cora.links["target"] >= 1708).to_numpy()].mean() > 0.75


class Exploit:
    """Hostile pickle, which calls a function of its choice."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.mark),)


def test_a_hostile_pickle_runs_nothing(copied: Path, tmp_path: Path) -> None:
    mark = tmp_path / "was here"
    (copied / "ind.cora.graph").write_bytes(pickle.dumps(Exploit(mark), protocol=2))
    with pytest.raises(DataError, match=r"ind\.cora\.graph: .*which citation networks do not need"):
        planetoid.load("cora", copied)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("part", "content", "reason"),
    [
        ("allx", b"", "this is not the pickle it should be"),
        ("tx", pickle.dumps([1], protocol=2), "expected a sparse matrix"),
        ("ally", pickle.dumps({}, protocol=2), "expected an array of classes, got dict"),
        ("graph", pickle.dumps({0: [2708]}, protocol=2), "the papers are 0 to 2707"),
        ("test.index", b"1708\nx\n", r"test\.index, line 2, .*'x' is not a number"),
        ("test.index", b"1708\n", "the files do not fit together"),
    ],
)
def test_damaged_files_are_named(copied: Path, part: str, content: bytes, reason: str) -> None:
    (copied / f"ind.cora.{part}").write_bytes(content)
    with pytest.raises(DataError, match=reason):
        planetoid.load("cora", copied)


def test_missing_files(copied: Path, tmp_path: Path) -> None:
    (copied / "ind.cora.ty").unlink()
    with pytest.raises(
        DataError, match=r"ind\.cora\.ty: there is no such file.*`relpref data get cora`"
    ):
        planetoid.load("cora", copied)
    with pytest.raises(DataError, match="there is no such folder.*MIT license"):
        planetoid.load("cora", tmp_path / "elsewhere")
    with pytest.raises(DataError, match="name is 'pubmed'"):
        planetoid.load("pubmed")
