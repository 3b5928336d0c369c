import os
from pathlib import Path

import pytest

from relpref.cli import entry as cache
from relpref.cli.entry import cache_folder, keep_compiled_code

SETTING = "JAX_COMPILATION_CACHE_DIR"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        SETTING,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES",
    ):
        monkeypatch.setenv(name, "")  # so that it is put back at the end
        monkeypatch.delenv(name)
    for name in ("RELPREF_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    found = cache_folder()
    assert found is not None and found.parent == tmp_path / "home/.cache/relpref/jax"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == found
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg/relpref/jax" / found.name
    monkeypatch.setenv("RELPREF_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own" / found.name
    monkeypatch.setenv("RELPREF_CACHE", "OFF")
    assert cache_folder() is None


def test_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELPREF_CACHE", "off")
    keep_compiled_code()
    assert SETTING not in os.environ
    monkeypatch.setenv("RELPREF_CACHE", str(tmp_path))
    keep_compiled_code()
    assert Path(os.environ[SETTING]).parent == tmp_path
    monkeypatch.setenv(SETTING, "/the/users/own")
    keep_compiled_code()
    assert os.environ[SETTING] == "/the/users/own"


def test_a_folder_that_cannot_be_used_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RELPREF_CACHE", str(tmp_path / "file"))
    keep_compiled_code()
    assert SETTING not in os.environ


def test_the_oldest_entries_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_MOST_BYTES", 25)
    monkeypatch.setenv("RELPREF_CACHE", str(tmp_path))
    folder = cache_folder()
    assert folder is not None
    folder.mkdir()
    for age in range(4):
        (folder / f"{age}").write_bytes(b"0123456789")
        os.utime(folder / f"{age}", (1000 - age, 1000 - age))
    keep_compiled_code()
    assert sorted(path.name for path in folder.iterdir()) == ["0", "1"]
