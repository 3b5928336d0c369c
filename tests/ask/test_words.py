"""Foreign text: whatever it holds, what is shown neither acts nor hides."""

import unicodedata

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from relpref.ask import items as words
from relpref.ask.items import View, standings

ANY = st.text(st.characters(exclude_categories=()), max_size=600)


@settings(max_examples=50)
@given(ANY)
def test_visible_text_has_no_character_that_acts(text: str) -> None:
    shown = words.visible(text)
    assert words.visible(shown) == shown
    shown.encode("utf-8")
    bidi = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    for character in shown:
        assert unicodedata.bidirectional(character) not in bidi
        assert unicodedata.category(character) not in ("Cc", "Cs") or character in "\n\t"


@given(ANY, st.integers(4, 50))
def test_a_cut_keeps_every_character(text: str, longest: int) -> None:
    cut = words.cut(text, longest)
    assert cut.head + cut.rest == text
    assert len(cut.head) <= longest + longest // 4 and cut.head != "" or text == ""


def test_what_is_whole_stays_as_it_is() -> None:
    for text in ("שלום", "日本語", "👩‍👩‍👧", "é\u0301", "a\nb"):
        assert words.visible(text) == text
    assert words.name(" \n\t ").head == "(empty)"
    assert words.prose("one two " * 200).head[-3:] in ("one", "two")
    assert words.visible("a\r\nb\rc") == "a\nb␍c"


def test_a_ranking_may_lack_intervals_below_its_top() -> None:
    columns = {
        "mean": [1.0, 0.0, -1.0],
        "lower": [0.5, np.nan, np.nan],
        "upper": [1.5, np.nan, np.nan],
    }
    found = standings(pd.DataFrame(columns, index=["a", "b", "c"]), View())
    assert [row["lower"] for row in found["rows"]] == ["+0.50", "", ""]
    assert [row["width"] > 0 for row in found["rows"]] == [True, False, False]
    assert [row["at"] for row in found["rows"]] == [80.0, 40.0, 0.0] and found["zero"] == 40.0
    assert found["tied"] == 0
    tiers = pd.DataFrame({**columns, "tier": [1, 1, 2]}, index=["a", "b", "c"])
    assert standings(tiers, View())["tied"] == 1
