"""Who is let in, how much is read, and what every response carries."""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the page needs the extra web")

TOKEN = "a-token"


@pytest.fixture
def at(fake: Any, visit: Any) -> Any:
    return visit(fake(*range(5)))


def test_only_the_token_opens(at: Any) -> None:
    assert at.get().status_code == 200
    for path in (
        "/",
        "/a-toke/",
        "/a-tokens/",
        "/A-token/",
        "/a-token%00/",
        "/%ff/",
        "//a-token/",
        "/x/../static/page.css",
    ):
        refused = at.client.get(path, params={"rater": "ann"})
        assert refused.status_code == 403, path
        assert "not valid" in refused.text and "<" not in refused.text
    form = at.form() | {"do": "first"}
    assert at.client.post("/wrong/", params={"rater": "ann"}, data=form).status_code == 403
    assert not at.loop.events


def test_only_this_machine_is_the_host(at: Any) -> None:
    for host in (
        "evil.example",
        "evil.example:8123",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "0.0.0.0:8123",
        "[",
        "",
    ):
        assert at.client.get(f"/{TOKEN}/", headers={"Host": host}).status_code == 403, host


@pytest.mark.parametrize("host", ["localhost:9000", "127.0.0.1:8123", "LOCALHOST:1"])
def test_a_tunnel_may_change_the_port(host: str, at: Any) -> None:
    headers = {"Host": host, "Origin": f"http://{host}"}
    assert at.send(at.form() | {"do": "first"}, headers=headers).status_code == 303


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "http://127.0.0.1:9999", "https://127.0.0.1:8123", "null", ""]
)
def test_only_the_page_itself_sends(origin: str, at: Any) -> None:
    form = at.form() | {"do": "first"}
    assert at.send(form, headers={"Origin": origin}).status_code == 403
    del at.client.headers["Origin"]
    assert at.send(form).status_code == 403
    assert not at.loop.events


def test_a_form_needs_the_proof_of_its_rater(at: Any) -> None:
    form = at.form() | {"do": "first"}
    for proof in ("", "0" * 64, at.form("bob")["proof"], "é"):
        assert at.send(form | {"proof": proof}).status_code == 403
    assert at.send({"do": "first", "question": form["question"]}).status_code == 403
    assert not at.loop.events and at.send(form).status_code == 303


def test_bodies_have_a_limit(at: Any) -> None:
    form = at.form() | {"do": "first"}
    assert at.send(form | {"more": "x" * 65_536}).status_code == 413
    assert at.send(form, headers={"Content-Length": "-1"}).status_code == 413

    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 1000

    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    endless = at.client.post(
        f"/{TOKEN}/", params={"rater": "ann"}, content=chunks(), headers=headers
    )
    assert "content-length" not in endless.request.headers and endless.status_code == 413
    assert not at.loop.events


def test_only_forms_are_read(at: Any) -> None:
    for kind, content, status in (
        ("application/json", b"{}", 415),
        ("multipart/form-data; boundary=x", b"--x--", 415),
        ("", b"do=first", 415),
        ("application/x-www-form-urlencoded", b"\xff=%ff&do=first", 400),
        ("application/x-www-form-urlencoded", b"a=1&" * 100, 400),
        ("application/x-www-form-urlencoded; charset=utf-8", b"do=first", 403),
    ):
        got = at.client.post(
            f"/{TOKEN}/", params={"rater": "ann"}, content=content, headers={"Content-Type": kind}
        )
        assert got.status_code == status, kind
    assert (
        at.client.post(f"/{TOKEN}/", data=at.form() | {"do": "first"}).status_code == 400
    )  # nobody's


def test_anything_else_is_a_plain_error(at: Any) -> None:
    for method, path, status in (
        ("PUT", "", 405),
        ("DELETE", "", 405),
        ("OPTIONS", "", 405),
        ("BREW", "", 405),
        ("GET", "nothing", 404),
        ("POST", "ranking", 405),
        ("GET", "static/../guard.py", 404),
        ("GET", "static/%2e%2e/guard.py", 404),
        ("GET", "static/", 404),
    ):
        got = at.client.request(method, f"/{TOKEN}/{path}")
        assert got.status_code == status, (method, path)
        assert got.headers["content-type"].startswith("text/plain")


def test_every_response_carries_the_headers(at: Any) -> None:
    responses = [at.get(), at.do("first"), at.get("ranking"), at.get("nothing")]
    responses += [at.get("static/page.css"), at.client.get("/wrong/"), at.send({"do": "first"})]
    assert [response.status_code for response in responses] == [200, 303, 200, 404, 200, 403, 403]
    for headers in (response.headers for response in responses):
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy and "form-action 'self'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"
        assert "set-cookie" not in headers


def test_pages_need_nothing_from_elsewhere(at: Any) -> None:
    for page in (at.get(), at.get("ranking"), at.get(rater=None)):
        assert (
            " style=" not in page.text
            and "<style" not in page.text
            and " on" + "click" not in page.text
        )
        assert "://" not in page.text


def test_no_trace_reaches_the_browser(at: Any, capsys: pytest.CaptureFixture[str]) -> None:
    at.loop.fails = RuntimeError("a secret\nof two lines")
    failed = at.get()
    assert failed.status_code == 500 and failed.headers["content-type"].startswith("text/plain")
    assert "secret" not in failed.text and "Traceback" not in failed.text
    assert failed.headers["x-content-type-options"] == "nosniff"
    lines = capsys.readouterr().err.splitlines()
    assert (
        len(lines) == 1
        and "RuntimeError: a secret of two lines" in lines[0]
        and TOKEN not in lines[0]
    )
    at.loop.fails = None
    assert at.get().status_code == 200
