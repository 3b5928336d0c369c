"""The cache of compiled code: its content, its folder, and what it leaves alone."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import relpref
from relpref import compiled
from relpref.compiled import Entries, cache_folder, kept

# Compiles one function inside and another outside, and says what JAX did and what the folder of a
# user has.
SCRIPT = """
import collections, json, sys, threading
import jax
from relpref.compiled import float64, kept

counts = collections.Counter()
jax.monitoring.register_event_listener(lambda name, **_: counts.update([name.rsplit("/", 1)[-1]]))
before = dict(jax.config.values)

def ours(x):
    return x * 2.0 + 1.0

def theirs(x):
    return x * 3.0 - 1.0

def other(x):
    return x * 5.0 - 2.0

def in_their_thread():
    thread = threading.Thread(target=lambda: jax.jit(other)(1.0))
    thread.start()
    thread.join()

with float64():
    with kept():
        pass
    found = float(jax.jit(ours)(2.0))
    inside = jax.config.jax_enable_x64
    in_their_thread()
jax.jit(theirs)(1.0)
same = dict(jax.config.values) == before
print(json.dumps({"found": found, "inside": inside, "same": same, "hits": counts["cache_hits"], "misses": counts["cache_misses"]}))
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Any]:
    """Run a script with a cache in ``tmp_path / "cache"``; the JSON that it prints."""

    def start(script: str = SCRIPT, **more: str) -> Any:
        settings = {
            name: text for name, text in os.environ.items() if not name.startswith(("JAX_", "XDG_"))
        }
        source = str(Path(relpref.__file__).parents[1])
        settings |= {"PYTHONPATH": source, "RELPREF_CACHE": str(tmp_path / "cache")} | more
        command = [sys.executable, "-W", "error", "-c", script]
        done = subprocess.run(command, check=False, env=settings, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return start


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that is used, which does not exist yet."""
    monkeypatch.setenv("RELPREF_CACHE", str(tmp_path / "cache"))
    found = cache_folder()
    assert found is not None and found.parent == tmp_path / "cache"
    return found


def inside(action: Callable[[], Any]) -> Any:
    """Act as a thread that may use the cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled._thread, "inside", True, raising=False)
        return action()


def functions(folder: Path) -> set[str]:
    return {path.name.split("-")[0] for path in folder.rglob("*") if path.is_file()}


def test_the_second_process_compiles_and_deletes_nothing(
    run: Callable[..., Any], folder: Path
) -> None:
    strange = folder.parent / "jax-files of the user"
    strange.mkdir(parents=True)
    for place in (strange, folder.parent):
        with (place / "large").open("wb") as file:
            file.truncate(10**9)  # takes no room on the disk
    assert run() == {"found": 5.0, "inside": True, "same": True, "hits": 0, "misses": 1}
    assert functions(folder) == {"jit_ours"}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert run() == {"found": 5.0, "inside": True, "same": True, "hits": 1, "misses": 0}
    assert len(list(folder.parent.rglob("large"))) == 2
    # A damaged entry is replaced.
    (entry,) = folder.iterdir()
    whole = entry.read_bytes()
    for damaged in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[: len(whole) // 2], b""):
        entry.write_bytes(damaged)
        assert inside(lambda: Entries(folder).get(entry.name)) is None
    assert run()["misses"] == 1
    assert len(inside(lambda: Entries(folder).get(entry.name))) == len(whole) - 16


def test_a_cache_of_the_user_is_used_and_ours_is_not(
    run: Callable[..., Any], folder: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    found = run(JAX_COMPILATION_CACHE_DIR=str(own), JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0")
    assert found["same"] and not folder.exists()
    assert {"jit_ours", "jit_theirs", "jit_other"} <= functions(own)


def test_what_the_user_configures_later_gets_the_users_entries(
    run: Callable[..., Any], folder: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    later = f"""
jax.config.update("jax_compilation_cache_dir", {str(own)!r})
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.jit(lambda x: theirs(x) + other(x))(1.0)
with float64():
    jax.jit(other)(1.0)
"""
    run(SCRIPT + later)
    assert functions(folder) == {"jit_ours"}
    assert functions(own) == {"jit__lambda", "jit_other"}


def test_switched_off(run: Callable[..., Any], tmp_path: Path) -> None:
    found = run(XDG_CACHE_HOME=str(tmp_path), JAX_ENABLE_COMPILATION_CACHE="false")
    assert (found["found"], found["same"], found["hits"], found["misses"]) == (5.0, True, 0, 0)
    assert not any(tmp_path.rglob("jit_*"))


def test_several_threads_and_processes_at_once(tmp_path: Path, folder: Path) -> None:
    script = """
import threading
import jax
from jax._src import compilation_cache
from relpref.compiled import float64

def work(number):
    with float64():
        for scale in range(4):
            assert jax.jit(lambda x: x * scale + number)(1.0) == scale + number

threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert compilation_cache._cache is None
"""
    settings = {name: text for name, text in os.environ.items() if not name.startswith("JAX_")}
    settings |= {
        "PYTHONPATH": str(Path(relpref.__file__).parents[1]),
        "RELPREF_CACHE": str(tmp_path / "cache"),
    }
    command = [sys.executable, "-W", "error", "-c", script]
    processes = [subprocess.Popen(command, env=settings) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert len(list(folder.iterdir())) >= 1 and not any(
        path.name.startswith(".") for path in folder.iterdir()
    )


def test_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RELPREF_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    found = cache_folder()
    assert found is not None and found.parent == tmp_path / "home/.cache/relpref"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg/relpref" / found.name
    monkeypatch.setenv("RELPREF_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own" / found.name
    for setting in ("OFF", "0"):
        monkeypatch.setenv("RELPREF_CACHE", setting)
        assert cache_folder() is None


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RELPREF_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # there is no such user
    assert cache_folder() is None


def test_folders_that_are_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled._usable(folder) == folder
    folder.chmod(0o770)
    assert compiled._usable(folder) is None  # others could put code there
    folder.chmod(0o700)
    assert compiled._usable(folder) == folder
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    assert compiled._usable(folder) is None  # it is somebody else's
    monkeypatch.undo()
    folder.rmdir()
    folder.write_text("a file")
    assert compiled._usable(folder) is None
    assert compiled._usable(folder / "below") is None


def test_where_jax_has_changed_there_is_no_cache(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "_private", lambda: None)
    with kept():
        assert not compiled._inside()
    assert not folder.exists()


def test_a_folder_that_disappears_or_is_full_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled._thread, "inside", True, raising=False)
    gone = Entries(tmp_path / "gone")
    gone.put("key", b"value")
    assert gone.get("key") is None

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    entries = Entries(tmp_path)
    entries.put("key", b"value")
    monkeypatch.setattr(os, "replace", full)
    entries.put("other", b"value")
    assert entries.get("key") == b"value" and entries.get("other") is None
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_folders_that_are_made_are_closed_to_others(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        assert compiled._usable(tmp_path / "a" / "b" / "c") == tmp_path / "a" / "b" / "c"
    finally:
        os.umask(umask)
    for name in ("a", "a/b", "a/b/c"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o700
