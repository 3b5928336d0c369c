"""The page as a person without scripts uses it."""

import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relpref.errors import StorageError
from relpref.explore import ExpectedGain

pytest.importorskip("starlette", reason="the page needs the extra web")

HOSTILE = "<script>alert(1)</script>\"'&{{ 7 * 7 }}"


def names(page: str) -> list[str]:
    """The two that are asked about, left and right."""
    return [unescape(name) for name in re.findall(r'<h2 id="\w+-name"><bdi>(.*?)</bdi>', page)]


def test_answers_go_on_to_the_next_question(page: Any) -> None:
    at = page("tea", "milk", "beer")
    assert names(at.get().text) == ["tea", "milk"]
    answer = at.do("first")
    assert (answer.status_code, answer.headers["location"]) == (303, "?rater=ann")
    # The second of the pair is on the left now; its button says so.
    page = at.get().text
    assert names(page) == ["beer", "tea"]
    buttons = re.findall(r'name="do" value="(\w+)"', page)
    assert buttons == ["second", "first", "undo", "tie", "skip"]
    assert at.do("tie").status_code == at.do("skip").status_code == 303
    assert [kind for kind, _, _ in at.loop.events] == ["first", "tie", "skip"]
    assert "No new pair is left" in at.get().text
    assert at.do("undo").status_code == 303
    assert sorted(names(at.get().text)) == ["beer", "milk"]
    assert "<strong>2</strong> answers by you" in at.get().text


def test_names(page: Any) -> None:
    at = page(*range(5))
    asked = at.get(rater=None)
    assert asked.status_code == 200 and "Who answers?" in asked.text
    assert "<bdi>Ann-Marie O&#39;Neil / 2</bdi>" in at.get(rater=" Ann-Marie  O'Neil / 2 ").text
    for wrong in ("x" * 81, "ann\x00", "\u202eann"):
        assert at.get(rater=wrong).status_code == 400
    preset = page(*range(5), rater="bo b")
    assert preset.get(rater=None).headers["location"] == "?rater=bo+b"
    assert "Who answers?" in preset.get(rater="").text


@pytest.mark.parametrize("what", ["first", "tie", "skip", "undo"])
def test_a_question_is_answered_once(what: str, page: Any) -> None:
    at = page(*range(6))
    at.do("second")
    old = at.form() | {"do": what}
    assert at.send(old).status_code == 303
    before = list(at.loop.events)
    again = at.send(old)  # a double click, the back button, another tab
    assert again.status_code == 409 and at.loop.events == before
    assert 'role="alert">That question was answered already' in again.text
    assert names(again.text) == names(at.get().text) and len(names(again.text)) == 2


def test_what_was_not_asked_is_refused(page: Any) -> None:
    at = page(*range(5))
    other, mine = at.form("bob")["question"], at.form()
    for form in ({"do": "first", "question": other}, {"do": "first", "question": "q999"}, {}):
        assert at.send(mine | form).status_code == 409
    refused = at.send(mine | {"do": "best"})
    assert refused.status_code == 409
    assert 'role="alert">no answer best</p>' in refused.text
    assert not at.loop.events
    nothing = at.do("undo")
    assert nothing.status_code == 409 and "There is nothing to take back." in nothing.text


def test_a_full_disk_counts_nothing(page: Any) -> None:
    at = page(*range(5))
    loop = at.loop
    form = at.form() | {"do": "first"}
    loop.fails = StorageError("answers.sqlite: the disk is full; make room")
    refused = at.send(form)
    assert refused.status_code == 503 and not loop.events
    assert "the disk is full; make room. This was not counted;" in refused.text
    assert len(names(refused.text)) == 2  # the question is still there to be answered
    unread = at.get(rater="bob")  # no question can be stored, so none is shown
    assert (
        unread.status_code == 503 and "make room. Nothing that was counted is lost" in unread.text
    )
    loop.fails = None
    assert at.send(form).status_code == 303 and len(loop.events) == 1


@pytest.mark.parametrize(
    ("found", "enough"),
    [
        (
            ExpectedGain(10, 0.3, 0.299, stalled=True),
            False,
        ),  # little is gained, and a third of the pairs is wrong
        (ExpectedGain(10, 0.3, 0.25, missing=57), False),
        (ExpectedGain(10, 0.09, 0.08, missing=0), True),
    ],
)
def test_what_further_answers_are_worth(
    found: ExpectedGain, enough: bool, fake: Any, visit: Any
) -> None:
    loop = fake(1, 2)
    assert 'class="worth"' not in visit(loop).get().text
    loop.worth = found
    page = visit(loop).get().text
    # One sentence, that of the terminal, and nothing beside it.
    assert loop.progress("ann").outlook == found.sentence and page.count(found.sentence) == 1
    assert ('class="enough"' in page) is enough and ("you can stop here" in page) is enough
    loop.since = 9
    page = visit(loop).get().text
    assert f"Before the last 9 answers and skips: about {found.wrong_now:.1%}" in page
    assert 'class="enough"' not in page and "stop" not in page


def test_what_the_loop_says_is_shown(page: Any) -> None:
    at = page("tea", "milk", limit=1)
    first = at.get().text
    assert "<bdi>Drinks</bdi>" in first and "Which would you rather drink?</h1>" in first
    assert "<title>tea or milk? · Drinks</title>" in first
    assert 'class="notice"' not in first and 'value="tie"' in first
    at.loop.trouble, at.loop.ties = "not <yet>: \x1b", False
    second = at.get().text
    assert '<p class="notice">not &lt;yet&gt;: ␛</p>' in second and 'value="tie"' not in second
    # After 5 of 28 pairs somebody was told to have been asked about every pair.
    at.do("first")
    last = at.get().text
    assert "No new pair is left" in last and "every pair" not in last
    assert "3 of 28 pairs have been answered; the others are left out: 1 &lt;each&gt;." in last


def test_the_ranking_is_hidden_until_it_is_asked_for(page: Any) -> None:
    """Who sees it beside the questions answers towards it."""
    at = page("tea", "milk", "beer")
    at.do("first")
    page = at.get().text
    assert "data-rank" not in page and "relative to the average" not in page
    assert 'href="ranking?rater=ann"' in page and 'href="done?rater=ann"' in page
    ranking = at.get("ranking").text
    assert ranking.count("data-rank") == 3
    assert "2 of the others cannot be told apart from the first yet" in ranking


def test_progress_towards_the_goal(page: Any) -> None:
    at = page(*range(6))
    loop, first = at.loop, at.get().text
    assert 'class="far"' not in first and "more" not in first.split("</section>")[0]
    loop.worth = ExpectedGain(10, 0.3, 0.25, missing=61)
    assert "<strong>about 60 more</strong> to the goal" in at.get().text
    at.do("first")
    loop.since = 40
    page = at.get().text
    assert "<strong>about 20 more</strong>" in page and 'class="come" width="4.8%"' in page
    loop.worth, loop.since = ExpectedGain(10, 0.09, 0.08, missing=0), 0
    page = at.get().text
    assert 'class="come" width="100.0%"' in page and "See your ranking" in page
    assert "more</strong>" not in page


def test_who_is_done_sees_their_own_ranking(page: Any) -> None:
    at = page("tea", "milk", "beer")
    loop = at.loop
    assert "The ranking by everyone" in at.get("done").text
    for rater, what in (("ann", "second"), ("bob", "first"), ("bob", "second")):
        at.do(what, rater)
    page = at.get("done").text
    assert "Your ranking, by you alone" in page and "You gave 1 answer." in page
    own = [str(label) for label in loop.own_ranking("ann").index]
    assert re.findall(r'class="name" title="(\w+)"', page) == own
    assert own != [str(label) for label in loop.ranking().index]
    assert at.send(at.form() | {"do": "undo"}).status_code == 303  # also from here
    assert "There is none yet" in at.get("ranking", whose="own").text


def test_what_one_takes_home(page: Any) -> None:
    at = page('te"a', "milk", "beer")
    assert at.get("ranking.csv", whose="own").status_code == 404
    at.do("first")
    at.do("first", "bob")
    answers, ranking = at.get("answers.csv"), at.get("ranking.csv", whose="own")
    for file, name in ((answers, "answers.csv"), (ranking, "ranking.csv")):
        assert file.headers["content-type"].startswith("text/csv")
        assert file.headers["content-disposition"] == f"attachment; filename={name}"
    assert answers.text == 'winner,loser\n"te""a",milk\n'
    head, *rows = ranking.text.splitlines()
    assert head == "item,mean,sd,lower,upper,tier" and len(rows) == 3
    assert at.get("ranking.csv").text != ranking.text


def test_several_questions_on_a_page(page: Any) -> None:
    at = page(*range(8), per_page=3)
    first = at.get().text
    assert first.count("<form") == 3 and first.count("<h1") == 1
    assert 'aria-label="Question 3 of 3"' in first
    ids = re.findall(r' id="([^"]+)"', first)
    assert len(set(ids)) == len(ids)
    proof = at.form()["proof"]

    def send(question: str, what: str) -> Any:
        return at.send({"proof": proof, "do": what, "question": question}).status_code

    one, two, three = re.findall(r'name="question" value="(q\d)"', first)
    assert send(two, "first") == 303
    assert re.findall(r'name="question" value="(q\d)"', at.get().text) == [one, three]
    assert send(two, "skip") == 409
    assert send(one, "skip") == send(three, "skip") == 303
    assert at.get().text.count("<form") == 3 and len(at.loop.events) == 3


def test_hostile_texts_are_shown_and_do_nothing(fake: Any, visit: Any) -> None:
    long = "x" * 10_000
    turned = "a\u202eb\x1bc\x00d\ud800e\u2067"
    at = visit(
        fake(
            HOSTILE,
            turned,
            limit=1,
            text=long,
            title="<b>\x1b",
            prompt="<script>a</script>",
            attributes=((HOSTILE, long), ("🙂", turned)),
        )
    )
    page = at.get()
    assert page.status_code == 200
    assert "<bdi>&lt;b&gt;␛</bdi>" in page.text and "&lt;script&gt;a&lt;" in page.text
    assert "<script>alert" not in page.text and "{{ 7 * 7 }}" in page.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.text
    assert not re.search("[\x00-\x09\x0b-\x1f\u202a-\u202e\u2066-\u2069]", page.text)
    assert names(page.text)[1] == "a⟨U+202E⟩b␛c␀d\ufffde⟨U+2067⟩"
    assert "<summary>… show more</summary>" in page.text and "🙂" in page.text
    # Of each long text there is the beginning and, once, the rest.
    assert page.text.count("x" * 9000) == 2 and max(map(len, page.text.split("<details"))) < 11_000
    ranking = at.get("ranking", find="<script>")
    assert "<script>alert" not in ranking.text and "1 of 2 has “<bdi>&lt;script&gt;" in ranking.text


@pytest.mark.parametrize(
    ("link", "kept"),
    [
        ("https://example.org/a?b=c&d", True),
        ("http://example.org", True),
        (" JavaScript:alert(1)", False),
        ("javascript://example.org/%0aalert(1)", False),
        ("data:text/html,x", False),
        ("//example.org", False),
        ("http://[", False),
        ("file:///etc/passwd", False),
        ("https://example.org/\u202egpj.exe", False),
        ("https://exam\u200bple.org", False),
        ("https://example.org/\n\x00", False),
    ],
)
def test_links(link: str, kept: bool, page: Any) -> None:
    page = page("a", "b", link=link).get().text
    assert page.count('rel="noopener noreferrer" target="_blank"') == 2 * kept
    assert ("javascript" in page.lower()) is False


def test_pictures(tmp_path: Path, page: Any) -> None:
    for name in ("a.PNG", "b.svg", "c.html"):
        (tmp_path / name).write_bytes(b"content")
    at = page("a", "b", image=tmp_path / "a.PNG")
    question = at.form()["question"]
    shown = at.get("picture", question=question, outcome="second")
    assert (shown.status_code, shown.content) == (200, b"content")
    assert shown.headers["content-type"] == "image/png" and at.get().text.count("<img") == 2
    assert at.get("picture", question="other").status_code == 404
    assert at.get("picture", rater="bob", question=question).status_code == 404
    for name in ("b.svg", "c.html", "missing.png", ".", "x" * 300 + ".png"):
        without = page("a", "b", image=tmp_path / name)
        assert "<img" not in without.get().text
        assert without.get("picture", question=without.form()["question"]).status_code == 404


def test_the_ranking_of_thousands_is_light(fake: Any, visit: Any) -> None:
    loop = fake(*(f"item {number}" for number in range(3000)), limit=50)
    at = visit(loop)
    at.do("first")
    page = at.get("ranking", most=10).text
    assert page.count("data-rank") == 10 and len(page) < 15_000
    everything = at.get("ranking").text
    assert everything.count("data-rank") == 100 and len(everything) < 60_000
    assert "start=100" in everything and ">Before<" not in everything
    last = at.get("ranking", start=2950).text
    assert last.count("data-rank") == 50 and "start=2850" in last and ">Next<" not in last
    found = at.get("ranking", find="ITEM 299").text
    assert "11 of 3000 have" in found and found.count("data-rank") == 11
    assert 'data-rank="1">' in page and 'data-rank="3000">' in last
    for wrong in ("-5", "x", "9" * 5000, "²"):
        assert at.get("ranking", start=wrong, most=wrong).status_code == 200


def test_the_bars_say_what_the_ranking_says(page: Any) -> None:
    at = page("tea", "milk", "beer")
    at.do("first")
    ranking = at.loop.ranking()
    drawn = re.findall(
        r'data-rank="(\d)".*?<bdi>(\w+)</bdi>.*?<rect x="([\d.]+)%" y="13" '
        r'width="([\d.]+)%".*?cx="([\d.]+)%"',
        at.get("ranking").text,
    )
    ranks, items, *bars = zip(*drawn, strict=True)
    assert (ranks, items) == (("1", "2", "3"), tuple(ranking.index))
    low, mean, high = (ranking[name].to_numpy() for name in ("lower", "mean", "upper"))
    expected = 100 * np.stack([low - low.min(), high - low, mean - low.min()])
    expected /= high.max() - low.min()
    np.testing.assert_allclose(np.array(bars, dtype=float), expected, atol=0.01)


def test_answers_wake_the_refinement_and_the_end_refines_once_more(
    fake: Any, visit: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = fake(*range(5))
    at = visit(loop)
    with at.client:
        at.do("first")
    assert loop.refined >= 1

    def broken() -> bool:
        raise ValueError("no\nluck")

    loop.refine = broken
    again = visit(loop)
    with again.client:
        assert again.do("first").status_code == 303
    assert "relpref: the ranking was not refined: no luck\n" in capsys.readouterr().err
