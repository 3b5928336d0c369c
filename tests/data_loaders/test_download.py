import hashlib
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest

from relpref.cli import main
from relpref.data_loaders import registry
from relpref.data_loaders.registry import DataSet, RemoteFile, download
from relpref.errors import StorageError

CONTENT = bytes(range(256)) * 1000


class Handler(BaseHTTPRequestHandler):
    """Serves CONTENT at ``/whole``; ``/broken`` closes the first connection half way."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        if self.path == "/gone":
            self.send_error(404)
            return
        self.asked.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        breaks = self.path == "/broken" and len(self.asked) == 1
        self.wfile.write(CONTENT[: len(CONTENT) // 2 if breaks else None])

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    Handler.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def remote(address: str, path: str) -> RemoteFile:
    return RemoteFile(
        "set.bin", f"{address}/{path}", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT)
    )


def test_fetched_once(address: str, tmp_path: Path) -> None:
    file = remote(address, "whole")
    assert download(file, tmp_path / "new")
    assert (tmp_path / "new/set.bin").read_bytes() == CONTENT
    assert not download(file, tmp_path / "new")
    assert Handler.asked == ["/whole"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["set.bin"]


def test_nothing_is_left_of_what_broke_off(address: str, tmp_path: Path) -> None:
    file = remote(address, "broken")
    with pytest.raises(StorageError, match="broken: cannot be fetched .*try again"):
        download(file, tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert download(file, tmp_path)
    assert [found.name for found in tmp_path.iterdir()] == ["set.bin"]
    assert (tmp_path / "set.bin").read_bytes() == CONTENT


def test_other_content_is_not_kept(address: str, tmp_path: Path) -> None:
    file = replace(remote(address, "whole"), sha256="0" * 64)
    with pytest.raises(StorageError, match="is not the published file .* and was deleted"):
        download(file, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_ones_own_is_not_overwritten(address: str, tmp_path: Path) -> None:
    (tmp_path / "set.bin").write_text("mine")
    with pytest.raises(StorageError, match="this is not the published file; move it away"):
        download(remote(address, "whole"), tmp_path)
    assert (tmp_path / "set.bin").read_text() == "mine"


def test_unreachable(address: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be fetched .404 .*try again"):
        download(remote(address, "gone"), tmp_path)
    with pytest.raises(StorageError, match="cannot be fetched"):
        download(remote("http://127.0.0.1:1", "x"), tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be written"):
        download(remote(address, "whole"), tmp_path / "file")


def test_command(
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("RELPREF_DATA", raising=False)
    mine = DataSet(
        "mine",
        "My set",
        "load()",
        "own",
        "somewhere",
        "Be kind.",
        "Me 2020",
        (remote(address, "broken"),),
    )
    monkeypatch.setitem(registry.DATA_SETS, "mine", mine)
    get = ["data", "get", "mine", "--folder", str(tmp_path)]
    assert main(get) == 2
    said = capsys.readouterr()
    assert "Terms: Be kind." in said.out and "cannot be fetched" in said.err
    assert main(get) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert (
        last == f"mine: 1 file fetched, checked, in {tmp_path}/own; loaders find it with "
        f"RELPREF_DATA={tmp_path}"
    )
    assert main(get) == 0
    assert "everything was there" in capsys.readouterr().out

    assert main(["data", "list"]) == 0
    said = capsys.readouterr()
    assert all(name in said.out for name in registry.DATA_SETS)
    assert all(one.terms in said.out for one in registry.DATA_SETS.values())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("letor2-ohsumed", "cannot be fetched for you. Get it from https://www.microsoft.com"),
        ("modechoice", "comes with the package: read it with load_modechoice()"),
        ("sashimi", "there is no data set 'sashimi'; choose one of '20newsgroups', 'cora'"),
    ],
)
def test_what_cannot_be_fetched(name: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "get", name]) == 2
    said = capsys.readouterr()
    assert reason in said.err and said.out == ""


def test_an_interrupted_command_says_what_it_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr("relpref.data_loaders.registry.download", interrupted)
    assert main(["data", "get", "cora", "--folder", str(tmp_path)]) == 130
    assert "finished files are kept in" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["cora", "football"])
def test_the_registered_checksums_are_those_of_the_files(real_data: Path, name: str) -> None:
    wanted = registry.DATA_SETS[name]
    for file in wanted.files:
        content = (real_data / wanted.folder / file.name).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file.size, file.sha256)
