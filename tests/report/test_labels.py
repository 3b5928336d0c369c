from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relpref.report.blocks import Names
from relpref.report.page import render

# label -> what the page shows
HOSTILE: dict[Any, str] = {
    "<script>alert(1)</script>": "<script>alert(1)</script>",
    "\"quoted\" & 'single'": "\"quoted\" & 'single'",
    "</style></title>": "</style></title>",
    "&lt;b&gt;": "&lt;b&gt;",
    "$x_1$": "$x_1$",
    "a$b": "a$b",
    r"$\frac{1}{0}$": r"$\frac{1}{0}$",
    "_hidden": "_hidden",
    "{{ 7 * 7 }}{% raw %}": "{{ 7 * 7 }}{% raw %}",
    "@@0@@": "@@0@@",
    "#010101": "#010101",
    "日本語の名前": "日本語の名前",
    "مقهى الصباح": "مقهى الصباح",
    "👩‍👩‍👧 ☕": "👩‍👩‍👧 ☕",
    "line\nbreak\ttab": "line break tab",
    "\u202eoverride": "\ufffdoverride",
    "null\x00byte": "null\ufffdbyte",
    "half \ud800 pair": "half \ufffd pair",
    "": "(empty)",
    ("a", ("b", 1)): "(a, (b, 1))",
    7: "7",
    2.5: "2.5",
    True: "True",
}


@pytest.fixture
def labels() -> list[Any]:
    return [*HOSTILE, "last"]


def test_hostile_labels(labels: list[Any], tables: Any, make: Any, read: Any) -> None:
    read_as = [
        "empty" if label == "" else label for label in labels
    ]  # only stored labels are empty
    data = tables(
        read_as, 60, **{"$a$": np.arange(len(labels)), "<i>": np.arange(len(labels)) ** 2}
    )
    data = replace(data, labels=tuple(labels))
    text = render(make(data), title="<b>&", relations_evidence=False)
    text.encode("utf-8")
    found = read(text)
    assert not found.all("script") and not found.all("b") and not found.all("i")
    assert found.text("title", "h1")[:2] == ["<b>&", "<b>&"]
    in_table = found.text("bdi")
    on_plot = found.text("text")
    for place, shown in enumerate(HOSTILE.values()):
        assert shown in in_table
        assert shown in on_plot or len(shown) > 16 or place >= 20  # not drawn
    assert "attribute $a$" in in_table and "attribute <i>" in in_table


def test_long_labels_are_cut_and_kept(tables: Any, make: Any, read: Any) -> None:
    long = ["a/path/that/begins/alike/" + "x" * 500 + str(end) for end in range(6)]
    found = read(render(make(tables([*long, "short"])), relations_evidence=False))
    rows = [
        header for header in found.all("th") if header.get("scope") == "row" and header.get("title")
    ]
    assert [header["title"] for header in rows[:6]] == long
    cut = [text for text in found.text("bdi") if text.startswith("a/path")]
    assert len(set(cut)) == 6 and max(map(len, cut)) <= 28
    assert long[0] in found.text("title")


def test_equal_words_stay_apart() -> None:
    names = Names([1, "1", "a  b", "a b", "c", "'1'", "a b (2)"])
    assert names.full == ["1", "'1'", "a b", "a b (3)", "c", "'1' (2)", "a b (2)"]
    long = ["x" * 10_000 + end for end in "abc"]
    for alike in (long, [f"{'a' * 30}{middle}{'b' * 20}" for middle in "123"]):
        names = Names(alike)
        assert len(set(names.full)) == len(set(names.short)) == 3
        assert max(map(len, names.short)) <= 28


@given(st.lists(st.text("ab '(2)1 ", max_size=40) | st.integers(1, 2), unique=True, max_size=12))
@settings(max_examples=50, deadline=None)
def test_no_two_items_share_a_name(labels: list[Any]) -> None:
    names = Names(labels)
    assert len(set(names.full)) == len(set(names.short)) == len(labels)
