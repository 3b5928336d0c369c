import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from relpref.cli import main

ITEMS = "name,size,price\ntea,1,2\ncoffee,2,3\nwater,0.5,0\ncola,1.5,2\n007,1.25,5\nNA,3,1\n"
COMPARISONS = "winner,loser,count\ntea,coffee,3\ncoffee,water,2\ntea,water,1\ncola,water,2\n007,cola,1\nNA,007,1\n"
LINKS = "source,target,weight\ntea,coffee,1\ncola,water,2\ncoffee,cola,1\nNA,007,0.5\n"


class Said(NamedTuple):
    """Output of a command, and its exit code."""

    code: int
    out: str
    err: str


def _write_tables(folder: Path, **texts: str) -> Path:
    content = {"entities": ITEMS, "comparisons": COMPARISONS, "relations/hot": LINKS} | {
        name.replace("__", "/"): text for name, text in texts.items()
    }
    for name, text in content.items():
        file = folder / f"{name}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


def _snapshot(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="session")
def write_tables() -> Callable[..., Path]:
    """Write a folder of tables; keywords replace the text of one of them (``relations__hot``)."""
    return _write_tables


@pytest.fixture(scope="session")
def snapshot() -> Callable[[Path], dict[str, bytes]]:
    """Contents of all files under a folder, hidden files included."""
    return _snapshot


@pytest.fixture(scope="session")
def held() -> str:
    """Options of ``relpref fit`` that leave nothing to be searched for."""
    ones = (
        "attributes_amplitude attributes_lengthscale hot_amplitude hot_range individual_amplitude"
    )
    fixed = " ".join(f"--fixed={name}=1" for name in ones.split())
    return f"{fixed} --fixed=attributes_linear_share=0.5"


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with ``tables/`` and ``run/``, shared by all tests; do not write into it."""
    folder = tmp_path_factory.mktemp("made")
    _write_tables(folder / "tables")
    assert main(f"fit --folder {folder}/tables --out {folder}/run --quiet".split()) == 0
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Current folder of a test, with ``tables/`` and ``run/``."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def invoke(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run a command line in this process; further arguments are not split into words."""

    def run(command: str, *arguments: object) -> Said:
        capsys.readouterr()
        code = main([*shlex.split(command), *map(str, arguments)])
        return Said(code, *capsys.readouterr())

    return run


@pytest.fixture
def ask(invoke: Callable[..., Said]) -> Callable[..., str]:
    """Run a command line that succeeds; its output."""

    def run(command: str, *arguments: object) -> str:
        code, out, err = invoke(command, *arguments)
        assert (code, err) == (0, ""), (code, out, err)
        return out

    return run


@pytest.fixture
def refused(invoke: Callable[..., Said]) -> Callable[..., str]:
    """Run a command line that cannot be used; the one line that it writes."""

    def run(command: str, *arguments: object) -> str:
        code, out, err = invoke(command, *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1), (code, out, err)
        assert err.startswith("relpref: error: ")
        return err

    return run
