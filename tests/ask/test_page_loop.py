"""The page on a run: several people at once, and what is left when it ends."""

import http.client
import os
import re
import resource
import shutil
import signal
import socket
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from relpref.ask import Loop
from relpref.errors import DataError, StorageError
from relpref.runs import load_run

pytest.importorskip("uvicorn", reason="the page needs the extra web")


@pytest.fixture(scope="module")
def made(fit: Any) -> Any:
    rows = "".join(f"e{number},{number % 7},{(number * 5) % 11}\n" for number in range(48))
    held = {"attributes_lengthscale": 2, "attributes_linear_share": 0.5, "individual_amplitude": 1}
    answers = "winner,loser\ne0,e1\ne2,e3\n"
    return fit(f"name,size,price\n{rows}", answers, attributes_amplitude=1, **held)


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


class Client:
    """A browser without scripts, over one connection."""

    def __init__(self, address: str, rater: str) -> None:
        self.place = urlsplit(address)
        self.path = f"{self.place.path}?{urlencode({'rater': rater})}"
        self.connection = http.client.HTTPConnection(self.place.netloc, timeout=60)

    def ask(self, method: str = "GET", body: str | None = None) -> tuple[int, str]:
        headers = {
            "Origin": f"http://{self.place.netloc}",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        self.connection.request(method, self.path, body, headers)
        response = self.connection.getresponse()
        return response.status, response.read().decode()

    def do(self, what: str) -> int:
        status, page = self.ask()
        assert status == 200, page
        form = dict(
            re.findall(r'<input type="hidden" name="(proof|question)" value="([^"]+)">', page)
        )
        return self.ask("POST", urlencode(form | {"do": what}))[0]


def post(served: Any, run: Path, each: int) -> None:
    """Two people answer at once; then everything is there, once."""
    failed: list[object] = []

    def answer(address: str, rater: str) -> None:
        client = Client(address, rater)
        try:
            failed.extend(status for _ in range(each) if (status := client.do("first")) != 303)
        except Exception as error:
            failed.append(error)
            raise
        finally:
            client.connection.close()

    with Loop.open(run) as loop, served(loop) as address:
        people = [threading.Thread(target=answer, args=(address, name)) for name in ("ann", "bob")]
        for person in people:
            person.start()
        for person in people:
            person.join()
        assert not failed
        assert loop.progress("ann").answers == loop.progress("bob").answers == each
    with Loop.open(run) as loop:
        counts = loop.progress("ann")
        assert (counts.everyone, counts.given) == (2 * each, 2)
        known = loop.posterior.data.comparisons
        assert loop.posterior.data.num_answers == 2 * each + 2
        # No pair was asked of both.
        assert len(
            {frozenset(pair) for pair in zip(known.winner, known.loser, strict=True)}
        ) == len(known.winner)
    assert load_run(run).metadata["answers"]["version"] == counts.version


def test_two_clients_at_once(served: Any, run: Path) -> None:
    post(served, run, 6)


@pytest.mark.slow
def test_two_clients_post_a_thousand_answers(served: Any, run: Path) -> None:
    post(served, run, 500)


def test_an_interrupt_ends_the_page_and_publishes(run: Path) -> None:
    from relpref.ask.web import serve

    said: list[str] = []

    def visit(address: str) -> None:
        client = Client(address, "ann")
        try:
            said.append(str(client.do("tie")))
        finally:
            client.connection.close()
            os.kill(os.getpid(), signal.SIGINT)

    def announce(text: str) -> None:
        said.append(text)
        if text.startswith("Answer at"):
            threading.Timer(0.2, visit, [text.split()[2]]).start()

    with Loop.open(run) as loop:
        serve(loop, announce=announce)
        version = loop.version
    assert said[0].startswith("Answer at http://127.0.0.1:") and said[1] == "303"
    assert said[2].startswith("Ending: ") and len(said) == 3
    assert load_run(run).metadata["answers"]["version"] == version == 3


HALVES = (
    b"",
    b"GET / HT",
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET / HT",  # after a request that is answered
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nhalf",
)


def test_half_open_requests_are_closed(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from relpref.ask import guard
    from relpref.ask.web import serve

    monkeypatch.setattr(guard, "_PATIENCE", 0.3)
    loop, said = fake("tea", "coffee"), dict[bytes, bytes]()
    slow = loop.questions

    def questions(*given: Any) -> Any:
        time.sleep(0.7)
        return slow(*given)

    monkeypatch.setattr(loop, "questions", questions)

    def visit(address: str) -> None:
        place = urlsplit(address)
        complete = f"GET {place.path}?rater=ann HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        assert place.port is not None
        try:
            with ExitStack() as stack:
                sockets = {}
                for sent in (*HALVES, complete):
                    opened = socket.create_connection(("127.0.0.1", place.port), timeout=60)
                    sockets[sent] = stack.enter_context(opened)
                    opened.sendall(sent)
                for sent, opened in sockets.items():
                    with opened.makefile("rb") as stream:
                        said[sent[:20]] = stream.read()  # until the page closes it
                said[b"complete"] = said.pop(complete[:20])
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    def announce(text: str) -> None:
        if text.startswith("Answer at"):
            threading.Thread(target=visit, args=[text.split()[2]]).start()

    serve(loop, announce=announce)
    assert said[b""] == said[b"GET / HT"] == b""
    assert (
        said[HALVES[3][:20]].startswith(b"HTTP/1.1 403")
        and said[HALVES[3][:20]].count(b"HTTP/1.1") == 1
    )
    assert said[b"complete"].startswith(b"HTTP/1.1 200")  # a slow answer is waited for


def test_a_port_that_is_taken(fake: Any) -> None:
    from relpref.ask.web import serve

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DataError, match=f"port {port} cannot be had"):
            serve(fake(1, 2), port=port)
    with pytest.raises(DataError, match="port 70000 cannot be had"):
        serve(fake(1, 2), port=70000)


def test_a_full_disk_refuses_an_answer_and_keeps_those_before(visit: Any, run: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Loop.open(run) as loop:
        at = visit(loop)
        assert at.do("first").status_code == 303
        form = at.form() | {"do": "second"}
        log = (run / "answers.sqlite-wal").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (log + 1000, limit[1]))
        try:
            refused, unread = at.send(form), at.get(rater="bob")
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
            with pytest.raises(StorageError, match="cannot write .* the earlier file is untouched"):
                loop.refine()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert (refused.status_code, unread.status_code) == (503, 503)
        assert (
            "the disk is full or fails" in refused.text and "This was not counted" in refused.text
        )
        assert loop.progress("ann").answers == 1
        assert at.send(form).status_code == 303 and loop.progress("ann").answers == 2
    with Loop.open(run) as loop:
        assert loop.progress("ann").answers == 2 and loop.posterior.data.num_answers == 4
