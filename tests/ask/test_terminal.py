from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relpref.ask import Item, Progress
from relpref.ask.session import Session
from relpref.ask.terminal import (
    NARROW,
    Terminal,
    bars,
    headline,
    in_rows,
    short,
    two_items,
    wrapped,
)
from relpref.data.arrays import width
from relpref.errors import StorageError

FOREIGN = st.text(max_size=200) | st.sampled_from(
    [
        "\x1b[2J\x1b]0;title\x07",
        "\u202egnirts",
        "x" * 10_000,
        "wide 漢字 " * 40,
        "e\u0301" * 60,
        "",
        " ",
        "a\r\nb",
    ]
)


def fits(lines: list[str], columns: int) -> None:
    for line in lines:
        assert width(line) <= columns, line
        assert line.isprintable()


@settings(max_examples=15, deadline=None)
@given(text=FOREIGN, columns=st.integers(NARROW, 90))
def test_no_text_leaves_its_columns_or_acts_on_the_terminal(text: str, columns: int) -> None:
    fits(wrapped(text, columns), columns)
    fits([short(text, columns)], columns)
    assert len(wrapped(text, columns, 3)) <= 3
    item = Item(text, text, Path("a.png"), text, ((text, text), ("b", text)))
    fits(two_items(item, Item("tea"), columns), columns)
    ranking = pd.DataFrame(
        {"mean": [1.0, 0.0], "lower": [0.0, -1.0], "upper": [2.0, 1.0]}, index=[text, "tea"]
    )
    fits(bars(ranking, 5, columns, plain=True), columns)
    fits(wrapped(headline(text, Progress(1, 2, 3, 4, 5, None)), columns), columns)


@given(st.lists(st.text("ab", min_size=1, max_size=20), min_size=1, max_size=9))
def test_rows_hold_every_part_in_order(parts: list[str]) -> None:
    rows = in_rows(parts, 30)
    assert "   ".join(rows).split("   ") == parts
    fits(rows, 30)


def test_words_are_kept_whole_where_they_fit() -> None:
    assert wrapped("one two three", 7) == ["one two", "three"]
    assert wrapped("abcdefgh ij", 3) == ["abc", "def", "gh", "ij"]
    assert wrapped("漢字漢字", 5) == ["漢字", "漢字"]
    assert wrapped("a\n\nb", 9) == ["a", "", "b"]
    assert wrapped("a b c d", 1, 3) == ["a", "b", "..."]
    assert short("abcdefgh", 6) == "abc..."


def test_bars_share_one_scale() -> None:
    ranking = pd.DataFrame(
        {"mean": [1.0, -1.0], "lower": [0.0, -2.0], "upper": [2.0, 0.0]}, index=["tea", "milk"]
    )
    first, second = bars(ranking, 5, 40, plain=True)
    assert first.startswith("1  tea    +1.00  ") and second.startswith("2  milk   -1.00  ")
    assert first.index("-", 17) == len(second) - 1  # where one interval ends the other begins
    assert first.index("o") > second.rindex("o")


def test_items_are_beside_each_other_where_there_is_room() -> None:
    items = Item("tea", "hot", attributes=(("price", "2"),)), Item("milk")
    assert two_items(*items, 80)[1].split() == ["tea", "milk"]
    assert [line.strip() for line in two_items(*items, 40)] == [
        "a",
        "tea",
        "hot",
        "price  2",
        "",
        "b",
        "milk",
    ]


@pytest.mark.parametrize(("raw", "in_place"), [(True, True), (True, False), (False, True)])
def test_an_answer_that_cannot_be_stored_may_be_given_again(
    raw: bool, in_place: bool, fake: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person sees it; lines of a file, and a folder that was moved, end the questions."""
    loop = fake("tea", "milk", "beer")
    pressed = iter(["left", "right", "quit"])
    failures = iter([StorageError("answers.sqlite: the disk is full"), None, None])

    def press() -> str:
        loop.fails = next(failures)
        return next(pressed)

    keys: Any = type("Keys", (), {"raw": raw})()
    keys.listening, keys.forget, keys.next = nullcontext, lambda: None, press
    loop.in_place = in_place
    terminal = Terminal(Session(loop), "ann", keys)
    if raw and in_place:
        terminal.ask()
        assert "the disk is full. This was not counted; everything" in capsys.readouterr().out
        assert terminal.answers == 1 and [kind for kind, _, _ in loop.events] == ["second"]
    else:
        with pytest.raises(StorageError, match="the disk is full"):
            terminal.ask()
