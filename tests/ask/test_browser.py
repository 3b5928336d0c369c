"""The page in a browser, with its script."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("uvicorn", reason="the page needs the extra web")

LEFT, RIGHT = ".left .choose", ".right .choose"


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    """A tab that may talk to this machine only, and in which no script may fail."""
    context = browser.new_context(viewport={"width": 1200, "height": 800}, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(30_000)
    wrong: list[str] = []

    def watch(request: Any) -> None:
        if urlsplit(request.url).hostname != "127.0.0.1":
            wrong.append(request.url)

    def hear(said: Any) -> None:
        # The server of a test may end before its tab, whose page then says so itself.
        if said.type == "error" and "409" not in said.text and "ERR_CONNECTION" not in said.text:
            wrong.append(said.text)

    page.on("request", watch)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", hear)
    yield page
    context.close()
    assert not wrong


def question(tab: Any) -> str:
    return str(tab.locator(".question").first.get_attribute("data-question"))


def until_new(tab: Any, before: str) -> None:
    """Wait for another question, and for it to take answers."""
    tab.wait_for_function(
        "before => { const q = document.querySelector('.question');"
        " return q.dataset.question !== before && !q.closest('.settling'); }",
        arg=before,
    )


def click(tab: Any, selector: str) -> None:
    before = question(tab)
    tab.click(selector)
    until_new(tab, before)


def press(tab: Any, key: str) -> None:
    before = question(tab)
    tab.keyboard.press(key)
    until_new(tab, before)


def names(tab: Any) -> list[str]:
    return list(tab.locator(".card h2").all_inner_texts())


def meant(loop: Any) -> list[str]:
    """The key of each answer: the left one, the right one, a tie, or skipped."""
    return [
        {"tie": "t", "skip": "s"}.get(kind, "ba"[(kind == "first") == (asked.left == asked.first)])
        for kind, asked, _ in loop.events
    ]


def test_ten_questions(tab: Any, fake: Any, served: Any) -> None:
    loop = fake(*(f"dish {number}" for number in range(12)))
    with served(loop) as address:
        tab.goto(address)
        tab.fill("#rater", "ann")
        tab.click("text=Start")
        for selector in (LEFT, RIGHT, ".tie", LEFT, RIGHT):
            click(tab, selector)
        for key in ("ArrowLeft", "b", "t", "ArrowDown", "a"):
            press(tab, key)
        assert tab.inner_text("#progress p strong") == "10"
        assert "dish" in tab.inner_text("#last")
        assert meant(loop) == [*"abt", *"ab", *"abt", *"ta"]

        last = loop.events[-1][1]
        press(tab, "u")
        assert len(loop.events) == 9 and sorted(names(tab)) == sorted([last.first, last.second])
        press(tab, "s")
        assert meant(loop)[-1] == "s"
        assert not tab.locator(".why p").is_visible()
        tab.keyboard.press("w")
        assert tab.locator(".why p").is_visible()

        here = question(tab), names(tab)
        tab.reload()
        assert (question(tab), names(tab)) == here
    with served(loop) as address:  # the program was started again
        tab.goto(f"{address}?rater=ann")
        assert (question(tab), names(tab)) == here
        press(tab, "ArrowRight")
    assert len(loop.events) == 11 and tab.inner_text("#progress p strong") == "10"


def test_the_keyboard_leads_everywhere(tab: Any, fake: Any, served: Any) -> None:
    loop = fake(*(f"dish {number}" for number in range(30)))
    with served(loop) as address:
        tab.goto(f"{address}?rater=ann")
        assert tab.locator("[data-rank]").count() == 0
        assert not tab.locator("#help dl").is_visible()
        tab.keyboard.press("?")
        assert tab.locator("#help dl").is_visible()
        press(tab, "a")
        with tab.expect_navigation():
            tab.keyboard.press("r")
        assert tab.locator("[data-rank]").count() == 30
        tab.fill(".find input[type=search]", "DISH 2")
        with tab.expect_navigation():
            tab.keyboard.press("Enter")
        assert tab.locator(".rows li").count() == 11 and "11 of 30 have" in tab.inner_text(
            "[role=status]"
        )
        with tab.expect_navigation():
            tab.click("text=Back to the questions")
        with tab.expect_navigation():
            tab.keyboard.press("d")
        assert "You gave 1 answer." in tab.inner_text(".lead")
        tab.keyboard.press("u")
        tab.wait_for_selector(".question")
        assert not loop.events


@pytest.mark.slow
def test_one_click_is_one_answer(tab: Any, fake: Any, served: Any) -> None:
    loop = fake(*range(8))
    with served(loop) as address:
        tab.goto(f"{address}?rater=ann")
        before = question(tab)
        tab.dblclick(LEFT)
        until_new(tab, before)
        for _ in range(5):  # a key that is held down
            tab.keyboard.down("ArrowLeft")
        tab.keyboard.up("ArrowLeft")
        tab.wait_for_timeout(400)
        assert len(loop.events) == 2

        # Another tab has answered this question meanwhile.
        loop.answer(question(tab), "tie", "ann")
        before = question(tab)
        tab.keyboard.press("ArrowRight")
        until_new(tab, before)
        assert "answered already" in tab.inner_text("[role=alert]") and len(loop.events) == 3

        # Keys that are typed into a field, or switched off, answer nothing.
        tab.keyboard.press("?")
        tab.uncheck("#keys")
        tab.keyboard.press("a")
        tab.wait_for_timeout(400)
        assert len(loop.events) == 3
        tab.reload()
        assert not tab.is_checked("#keys")
        tab.click("#help summary")
        tab.check("#keys")
        press(tab, "a")  # the focus is in the box
        assert len(loop.events) == 4


@pytest.mark.slow
def test_the_arrow_down_scrolls_where_it_can(tab: Any, fake: Any, served: Any) -> None:
    loop = fake(*range(30))
    tab.set_viewport_size({"width": 1200, "height": 300})
    with served(loop) as address:
        tab.goto(f"{address}?rater=ann")
        tab.keyboard.press("ArrowDown")
        tab.wait_for_function("() => scrollY > 0")
        tab.wait_for_timeout(400)
        assert not loop.events
        press(tab, "t")
        click(tab, LEFT)
        press(tab, "ArrowDown")  # the focus is in the question
    assert [kind == "tie" for kind, _, _ in loop.events] == [True, False, True]


def test_fast_keys_are_never_dropped(tab: Any, fake: Any, served: Any) -> None:
    """Keys that are pressed while an answer is on its way are for the questions after it."""
    loop = fake(*range(30))
    with served(loop) as address:
        tab.goto(f"{address}?rater=ann")
        with loop.lock:
            for key in "abtsb":
                tab.keyboard.press(key)
        tab.wait_for_function(
            "() => document.querySelector('#progress').textContent.includes('1 skipped')"
            " && document.querySelector('#progress strong').textContent === '4'"
        )
    assert meant(loop) == [*"abtsb"]


def test_keys_after_an_answer_that_failed_are_not_guessed(tab: Any, fake: Any, served: Any) -> None:
    loop = fake(*range(30))
    with served(loop) as address:
        tab.goto(f"{address}?rater=ann")
        with loop.lock:
            loop.answer(question(tab), "tie", "ann")  # in another tab
            for key in "abb":
                tab.keyboard.press(key)
        tab.wait_for_selector("main > .notice")
        assert "after it (2) was not counted" in tab.inner_text("main > .notice")
        assert len(loop.events) == 1


@pytest.mark.slow
def test_several_questions_are_answered_in_any_order(tab: Any, fake: Any, served: Any) -> None:
    loop = fake(*range(30))
    with served(loop, per_page=3) as address:
        tab.goto(f"{address}?rater=ann")
        asked = [
            str(form.get_attribute("data-question")) for form in tab.locator(".question").all()
        ]
        tab.locator(LEFT).nth(2).click()
        tab.wait_for_function("() => document.querySelectorAll('.question').length === 2")
        tab.keyboard.press("b")
        tab.keyboard.press("t")
        tab.wait_for_function("() => document.querySelectorAll('.question').length === 3")
    assert [event[1].id for event in loop.events] == [asked[2], asked[0], asked[1]]


@pytest.mark.slow
def test_the_program_has_ended(browser: Any, fake: Any, served: Any) -> None:
    loop = fake(*range(4))
    context = browser.new_context()
    tab = context.new_page()
    with served(loop) as address:
        tab.goto(f"{address}?rater=ann")
    tab.keyboard.press("a")
    tab.wait_for_selector("text=is it still running?")
    assert not loop.events
    context.close()


@pytest.mark.parametrize("width", [360, pytest.param(1200, marks=pytest.mark.slow)])
def test_nothing_overflows(width: int, browser: Any, fake: Any, served: Any) -> None:
    word = "Donaudampfschifffahrtsgesellschaft" * 300
    attributes = tuple((f"{word[:200]}{number}", word) for number in range(20))
    about = {"text": word, "link": f"https://{word[:60]}.example/", "attributes": attributes}
    loop = fake("a" + word, "b" + word, *range(20), **about)
    context = browser.new_context(viewport={"width": width, "height": 740}, reduced_motion="reduce")
    tab = context.new_page()
    with served(loop) as address:
        for path in ("?rater=ann", "ranking?rater=ann", "done?rater=ann"):
            tab.goto(f"{address}{path}")
            for summary in tab.locator("summary").all():
                if summary.is_visible():
                    summary.click()
            assert tab.evaluate("() => document.documentElement.scrollWidth") <= width, path
        tab.goto(f"{address}?rater=ann")
        sizes = [target.bounding_box() for target in tab.locator(".question button").all()]
        assert len(sizes) == 5 and all(min(box["width"], box["height"]) >= 44 for box in sizes)
    context.close()


def test_a_short_name_of_a_column_stays_whole(browser: Any, fake: Any, served: Any) -> None:
    loop = fake("a", "b", attributes=(("Farm", "Finca El Injerto, Huehuetenango, Guatemala"),))
    tab = browser.new_page(viewport={"width": 360, "height": 740})
    with served(loop) as address:
        tab.goto(f"{address}?rater=ann")
        assert tab.locator(".left th bdi").bounding_box()["height"] < 30
    tab.close()


def follow(tab: Any, selector: str) -> None:
    """Click, and wait for the page that the form leads to."""
    with tab.expect_navigation():
        tab.click(selector)


def test_without_scripts(browser: Any, fake: Any, served: Any) -> None:
    loop = fake(*range(4), limit=2)
    context = browser.new_context(java_script_enabled=False)
    tab, old = context.new_page(), context.new_page()
    with served(loop) as address:
        tab.goto(address)
        tab.fill("#rater", "ann")
        follow(tab, "text=Start")
        old.goto(tab.url)
        follow(tab, LEFT)
        follow(old, RIGHT)
        assert "answered already" in old.inner_text("[role=alert]") and len(loop.events) == 1
        follow(old, ".tie")
        assert old.url == tab.url and "No new pair is left" in old.inner_text("h1")
        follow(old, "[value=undo]")
        assert old.locator(".card").count() == 2
    assert [kind for kind, _, _ in loop.events] == ["first"]
    context.close()
