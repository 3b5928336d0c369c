"""Folders are replaced whole or not at all, also where the process is killed, and runs with
them.
"""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import relpref
from relpref import files
from relpref.errors import DataError, StorageError
from relpref.files import previous, replaced_folder
from relpref.runs import Copy, load_run, save_run


class Stub:
    """A posterior of which only the file matters."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def save(self, path: Path) -> None:
        path.write_bytes(self.content)


def save(folder: Path, content: bytes, *names: str, **more: Any) -> None:
    tables = tuple(Copy(f"data/{name}.csv", f"{name}.csv", content) for name in names)
    posterior: Any = Stub(content)
    settings: dict[str, Any] = {
        "command": "fit",
        "model": "xpgp",
        "seed": 0,
        "options": {},
        "replace": True,
    }
    save_run(folder, posterior, tables, **{**settings, **more})


@pytest.fixture(params=[True, False], ids=["swap", "rename"])
def can_swap(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the system can exchange two folders in one step."""
    if not request.param:
        monkeypatch.setattr(files, "_swap", lambda first, second: False)
    return bool(request.param)


def test_new_folder_with_its_parents(tmp_path: Path) -> None:
    with replaced_folder(tmp_path / "a/b/run") as part:
        assert part.parent == tmp_path / "a/b"
        (part / "x").mkdir()
        (part / "x/y").write_text("1")
    assert (tmp_path / "a/b/run/x/y").read_text() == "1"
    assert [path.name for path in (tmp_path / "a/b").iterdir()] == ["run"]


def test_the_earlier_folder_goes_with_all_it_holds(
    tmp_path: Path, can_swap: bool, snapshot: Any
) -> None:
    save(tmp_path / "run", b"old", "entities", "comparisons", "relations/hot", "relations/cold")
    save(tmp_path / "run", b"new", "entities", "comparisons", "relations/hot")
    names = [
        "data/comparisons.csv",
        "data/entities.csv",
        "data/relations/hot.csv",
        "posterior.nc",
        "run.json",
    ]
    assert sorted(snapshot(tmp_path)) == [f"run/{name}" for name in names]
    assert (tmp_path / "run/posterior.nc").read_bytes() == b"new"


def test_an_empty_folder_is_replaced_where_a_rename_refuses_it(
    tmp_path: Path, can_swap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows."""
    (tmp_path / "run").mkdir()
    rename = os.rename

    def refuses(source: Path, target: Path) -> None:
        if Path(target).exists():
            raise FileExistsError(17, "File exists")
        rename(source, target)

    monkeypatch.setattr(os, "rename", refuses)
    save(tmp_path / "run", b"new", "entities")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert (tmp_path / "run/posterior.nc").read_bytes() == b"new"


def test_permissions_are_the_usual_ones(tmp_path: Path) -> None:
    save(tmp_path / "run", b"new", "entities")
    (tmp_path / "usual").mkdir()
    (tmp_path / "usual/file").write_text("")
    assert (tmp_path / "run").stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert (tmp_path / "run/run.json").stat().st_mode == (tmp_path / "usual/file").stat().st_mode


@pytest.mark.parametrize(
    "error", [DataError("no"), KeyboardInterrupt(), StorageError("no"), OSError(28, "No space")]
)
def test_an_error_leaves_the_earlier_run_whole(
    tmp_path: Path, snapshot: Any, error: BaseException
) -> None:
    save(tmp_path / "run", b"old", "entities")
    before = snapshot(tmp_path)

    def fail(path: Path) -> None:
        path.write_text("half a rep")
        raise error

    expected = StorageError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected) as caught:
        save(tmp_path / "run", b"new", "entities", report=fail)
    if isinstance(error, OSError) and not isinstance(error, StorageError):
        assert f"{tmp_path / 'run'}: cannot be written (No space)" in str(caught.value)
    assert snapshot(tmp_path) == before


def test_a_rename_that_fails_is_undone(
    tmp_path: Path, snapshot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "run", b"old", "entities")
    before = snapshot(tmp_path)
    monkeypatch.setattr(files, "_swap", lambda first, second: False)
    rename = os.rename

    def fails_to_install(source: Path, target: Path) -> None:
        if Path(source).name.endswith(".part"):
            raise PermissionError(13, "Permission denied")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fails_to_install)
    with pytest.raises(StorageError, match="Permission denied"):
        save(tmp_path / "run", b"new", "entities")
    assert snapshot(tmp_path) == before


def test_names_that_are_one_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="File exists"):
        save(tmp_path / "run", b"new", "relations/hot", "relations/hot")
    assert not list(tmp_path.iterdir())


def test_a_run_that_appeared_meanwhile_is_kept(tmp_path: Path, snapshot: Any) -> None:
    save(tmp_path / "run", b"old", "entities", replace=False)
    before = snapshot(tmp_path)
    with pytest.raises(StorageError, match="there is a run already; it was written meanwhile"):
        save(tmp_path / "run", b"new", "entities", replace=False)
    assert snapshot(tmp_path) == before


def test_a_run_left_aside_is_mentioned(tmp_path: Path) -> None:
    save(previous(tmp_path / "run"), b"old", "entities")
    with pytest.raises(
        StorageError, match=r"killed while it replaced the run left it in .*\.run\.previous: rename"
    ):
        load_run(tmp_path / "run")


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """Kill the process at its first, second, ... call of the system that could matter."""
    script = f"""
        import os, signal, sys
        from pathlib import Path
        sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(relpref.__file__).parents[1])!r}]
        from test_folders import save
        from relpref import files
        from relpref.files import file_digest
        from relpref.runs import read_record

        def killed_at(name, count):
            original = getattr(*name)
            left = [count]
            def call(*arguments, **options):
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return original(*arguments, **options)
            setattr(*name, call)

        place = Path({str(tmp_path)!r})
        outcomes = set()
        for name in ((os, "fsync"), (os, "rename"), (files, "_swap"), (os, "unlink"), (os, "rmdir")):
            for count in range(1, 40):
                run = place / f"{{name[1]}}{{count}}" / "run"
                save(run, b"old", "entities", "comparisons")
                child = os.fork()
                if child == 0:
                    try:
                        killed_at(name, count)
                        save(run, b"newer", "entities", "comparisons", "relations/hot")
                    except BaseException:
                        os._exit(1)
                    os._exit(0)
                status = os.waitpid(child, 0)[1]
                assert status in (0, signal.SIGKILL)
                record = read_record(run)
                contents = {{(run / table["file"]).read_bytes() for table in record["tables"]}}
                contents.add((run / "posterior.nc").read_bytes())
                assert len(contents) == 1, (name, count, contents)
                assert file_digest(run / "posterior.nc") == record["posterior"]["sha256"]
                outcomes.add((status == 0, len(record["tables"])))
                if status == 0:
                    break
        print(sorted(outcomes))
        """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stderr == ""
    # Killed with the earlier run in place, killed with the new one in place, and not killed.
    assert done.stdout == "[(False, 2), (False, 3), (True, 3)]\n"
