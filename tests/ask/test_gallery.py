"""The start page of a folder of runs."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from relpref.cli import main
from relpref.runs import load_run

pytest.importorskip("starlette", reason="the page needs the extra web")

TOKEN, HOST = "a-token", "http://127.0.0.1:8123"
TABLES = {
    "items.csv": "name,size\n" + "".join(f"e{i},{i % 5}\n" for i in range(12)),
    "answers.csv": "winner,loser\ne0,e1\ne2,e3\ne4,e0\n",
    "nodes.csv": "name,x\na,1\nb,2\nc,4\nd,3\n",
    "relation.csv": "source,target,value\na,b,1\na,c,2\nb,c,1\nb,d,3\nc,a,2\n",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, fit: Any) -> Path:
    folder = tmp_path_factory.mktemp("made")
    for name, text in TABLES.items():
        (folder / name).write_text(text)
    runs = folder / "runs"
    runs.mkdir()
    held = {"attributes_amplitude": 1, "attributes_lengthscale": 2, "attributes_linear_share": 0.5}
    run = fit(TABLES["items.csv"], TABLES["answers.csv"], "--no-individual", **held)
    shutil.copytree(run, runs / "some drinks")
    tables = f"--nodes {folder}/nodes.csv --relation {folder}/relation.csv"
    assert main(f"conditional fit {tables} --quiet --out {runs}/targets".split()) == 0
    return runs


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "runs"))


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def at(runs: Path) -> Iterator[Callable[..., Any]]:
    """Get a page."""
    from starlette.testclient import TestClient

    from relpref.ask.gallery import create_app

    clients = []

    def client(**options: Any) -> Any:
        app = create_app(runs, token=TOKEN, **options)
        headers = {"Origin": HOST}
        found = TestClient(
            app, base_url=f"{HOST}/{TOKEN}/", headers=headers, follow_redirects=False
        )
        clients.append(found)
        return found

    yield client
    for one in clients:
        one.close()


def test_the_words_of_a_run(at: Any, runs: Path) -> None:
    file = runs / "some drinks/run.json"
    record = json.loads(file.read_bytes())
    record["options"]["item_word"] = "drink"
    file.write_text(json.dumps(record))
    client = at()
    assert "12 drinks" in client.get("").text
    assert "A ranking of 12 drinks" in client.get("run/some drinks/report").text


def test_all_runs_with_their_rankings(runs: Path, at: Any) -> None:
    shutil.copytree(runs / "targets", runs / "<b>broken")
    (runs / "<b>broken" / "posterior.nc").write_bytes(b"nothing")
    (runs / "notes").mkdir()
    before, client = content(runs), at()
    page = client.get("").text
    assert "3 runs" in page and re.findall(r"<h2><bdi>(.*?)</bdi>", page) == [
        "&lt;b&gt;broken",
        "some drinks",
        "targets",
    ]
    ranking: Any = load_run(runs / "some drinks").posterior
    assert re.findall(r'class="name" title="(\w+)"', page) == list(ranking.ranking().index[:5])
    assert "damaged or was changed" in page and "12 items" in page
    assert (
        'href="run/some%20drinks/ranking?most=10"' in page and 'href="run/targets/report"' in page
    )
    assert "Answer questions" not in page
    whole = client.get("run/some%20drinks/ranking?most=10").text
    assert (
        whole.count("data-rank") == 10
        and 'href="ranking?most=100' in whole
        and "rater" not in whole
    )
    assert client.get("run/some%20drinks/ranking.csv").text.count("\n") == 13
    assert client.get("run/targets/ranking").status_code == 404
    for missing in (
        "run/notes/ranking",
        "run/../ranking",
        "run/%2e%2e/report",
        "ask/some%20drinks/",
        "run/nothing/report",
    ):
        assert client.get(missing).status_code == 404, missing
    assert content(runs) == before  # it was only read


def test_reports_are_shown_and_run_nothing(
    runs: Path, at: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []

    def render(posterior: Any, **options: Any) -> str:
        drawn.append(options["title"])
        return "<p>made</p>"

    monkeypatch.setattr("relpref.report.page.render", render)
    client = at()
    for _ in range(2):
        shown = client.get("run/some%20drinks/report")
        assert shown.text == "<p>made</p>"
    assert drawn == ["some drinks"] and not (runs / "some drinks" / "report.html").exists()
    (runs / "some drinks" / "report.html").write_text("<script>alert(1)</script>")
    (runs / "targets" / "report.html").symlink_to(__file__)
    shown = client.get("run/some%20drinks/report")
    policy = shown.headers["content-security-policy"]
    assert (
        "alert" in shown.text
        and policy.startswith("sandbox; default-src 'none'")
        and "script" not in policy
    )
    assert shown.headers["x-content-type-options"] == "nosniff"
    assert client.get("run/targets/report").text == "<p>made</p>"


def test_the_guard_is_the_same(at: Any) -> None:
    client = at()
    assert client.get(f"{HOST}/other/").status_code == 403
    assert client.get("", headers={"Host": "evil.example"}).status_code == 403
    assert client.post("", headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.post("").status_code == 405
    assert "default-src 'none'" in client.get("").headers["content-security-policy"]


def test_questions_where_they_are_allowed(runs: Path, at: Any) -> None:
    with at(ask=True) as client:
        assert 'href="ask/some%20drinks/"' in client.get("").text
        assert not (runs / "some drinks" / "answers.sqlite").exists()
        page = client.get("ask/some%20drinks/?rater=ann").text
        assert "../../static/page.css" in page and client.get("static/page.css").status_code == 200
        form = dict(
            re.findall(r'<input type="hidden" name="(proof|question)" value="([^"]*)">', page)
        )
        sent = client.post("ask/some%20drinks/?rater=ann", data=form | {"do": "first"})
        assert (sent.status_code, sent.headers["location"]) == (303, "?rater=ann")
        assert "4 answers" in client.get("").text  # the start page knows it
        refused = client.get("ask/targets/?rater=ann")
        assert refused.status_code == 409 and "does not rank items" in refused.text
        assert client.get("ask/nothing/?rater=ann").status_code == 404
    assert load_run(runs / "some drinks").metadata["answers"]["version"] == 4


def test_a_run_alone_and_no_folder(runs: Path) -> None:
    from relpref.ask.gallery import runs_in

    assert list(runs_in(runs / "targets")) == ["targets"]
    assert main(["serve", str(runs / "nowhere")]) == 2
