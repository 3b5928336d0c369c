"""Labels of any types are found where they are, and unknown ones are named."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relpref.data import PreferenceData, Rankings, labels
from relpref.data.labels import LabelIndex
from relpref.errors import DataError, UnknownLabelError

INTEGERS = st.integers(-3, 3) | st.sampled_from([2**31, -(2**63), 2**63])
TEXTS = st.text(st.sampled_from("ab1é\u20ac\U0001f600 "), max_size=20)
TUPLES = st.tuples(st.sampled_from([1, 1.0, "a", True]), st.sampled_from([2, 2.0]))
ODD = st.sampled_from(["a\0", "\0", "\ud800", "x" * 100, 1, 1.0, 1 + 0j, 2**64, True]) | TUPLES
LABELS = (
    st.lists(TEXTS, max_size=20)
    | st.lists(INTEGERS, max_size=20)
    | st.lists(TEXTS | ODD, max_size=20)
)


@pytest.mark.parametrize("many", [0, labels.MANY])
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(known=LABELS, asked=LABELS)
def test_positions_are_those_of_the_labels(
    monkeypatch: pytest.MonkeyPatch, many: int, known: list[Any], asked: list[Any]
) -> None:
    monkeypatch.setattr(labels, "MANY", many)
    known = list(dict.fromkeys(known)) or [1]
    index = LabelIndex(known, lambda row: f"row {row}")
    assert index.locate(known, str, "").tolist() == list(range(len(known)))
    forms: dict[Any, list[int]] = {}
    for row, label in enumerate(known):
        forms.setdefault(labels.trimmed(label), []).append(row)

    def place(label: Any) -> int:
        """The label itself, or the only one that differs in the blanks around it."""
        plain = labels.trimmed(label)
        for form in (label, plain):
            if form in known:
                return known.index(form)
        return forms[plain][0] if len(forms.get(plain, ())) == 1 else -1

    unknown = [row for row, label in enumerate(asked) if place(label) < 0]
    if unknown:
        with pytest.raises(UnknownLabelError, match=f"^position {unknown[0]}: ") as caught:
            index.locate(asked, lambda row: f"position {row}", "correct it")
        assert "is not the label of an item" in str(caught.value)
    else:
        assert index.locate(asked, str, "").tolist() == [place(label) for label in asked]


def test_every_white_space_is_a_blank() -> None:
    spaces = {char for char in map(chr, range(sys.maxunicode + 1)) if char.isspace()}
    assert spaces <= set(labels.BLANKS)
    assert all(labels.is_invisible(char) for char in labels.BLANKS)
    # Tags, selectors of variants and joiners of letters change what they follow.
    for text in ("\U0001f3f4\U000e0067\U000e0062\U000e007f", "\u2764\ufe0f", "\u0d28\u0d4d\u200d"):
        assert labels.trimmed(f"\u00a0{text}\u200b") == text and not labels.is_invisible(text)


@pytest.mark.parametrize("many", [0, 10_001])
def test_blanks_around_labels_are_left_out(many: int) -> None:
    blanks: set[str] = set()
    given: list[Any] = ["Ann ", "\ufeffAnn", "Ann", "Bo\u3164", "C\u200bd", 3, ("Ann ", 1)]
    read = labels.read_labels(given + list(range(many)), str, blanks=blanks)
    assert read[:7] == ["Ann", "Ann", "Ann", "Bo", "C\u200bd", 3, ("Ann ", 1)]
    assert blanks == {"Ann ", "\ufeffAnn", "Bo\u3164"}
    assert labels.read_labels(given, str, known={"Ann "})[0] == "Ann "


@pytest.mark.parametrize("empty", ["", " \t", "\u3164", "\u200b\ufeff", "\ufe0f", "\0", "\u2800 "])
def test_labels_without_a_visible_character_are_refused(tmp_path: Path, empty: str) -> None:
    orders = {"list": [1, 1], "place": [1, 2]}
    for items in (["a", empty], ["\u00a0", empty]):
        with pytest.raises(
            DataError, match=r"\(index label \d\), column 'item': the label is empty"
        ):
            PreferenceData.from_tables(answers=pd.DataFrame({**orders, "item": items}))
    with pytest.raises(DataError, match=r"row \d .* the label is empty"):
        PreferenceData.from_tables(answers=[(empty, "a"), ("\u00a0", "a"), (" ", "a")])
    with pytest.raises(DataError, match="items, row 1: the label is empty"):
        PreferenceData.from_tables(["a", empty])
    with pytest.raises(DataError, match="row 1 .*, column 'target': the label is empty"):
        PreferenceData.from_tables(["a", "b"], relations={"r": [("a", "b"), ("a", empty)]})
    raters = pd.DataFrame({"winner": ["a"], "loser": ["b"], "rater": [empty]})
    with pytest.raises(DataError, match="column 'rater': the (label is empty|rater is blank)"):
        PreferenceData.from_tables(answers=raters)
    file = tmp_path / "answers.csv"
    quoted = empty.replace("\0", "\u200c")  # a zero byte is refused before
    file.write_text(f'winner,loser\n"{quoted}",a\n"{quoted}",b\n', encoding="utf-8")
    with pytest.raises(DataError, match="line 2, column 'winner': the label is empty"):
        PreferenceData.from_tables(answers=file)


def test_blanks_do_not_make_two_items() -> None:
    table = pd.DataFrame(
        {
            "winner": ["Ann", "Ann ", "Bo"],
            "loser": ["Bo", "Cy", "\u00a0Cy"],
            "rater": ["x", " x", "y"],
        }
    )
    data = PreferenceData.from_tables(answers=table)
    assert data.labels == ("Ann", "Bo", "Cy") and data.comparisons.raters == ("x", "y")
    assert data.notes == (
        "answers: 3 labels had blanks around them, which were left out: ' x', ...",
    )
    items = pd.DataFrame({"age": [1.0, 2, 3]}, index=["Ann ", "Bo", "Cy"])
    relations = {"friends": [("Ann\u200b", "Bo"), ("Ann", "Cy")]}
    data = PreferenceData.from_tables(items, table, relations)
    assert data.labels == ("Ann", "Bo", "Cy") and data.relations["friends"].num_edges == 2
    assert "items: 1 label had blanks around it, which were left out: 'Ann '" in data.notes
    assert any(note.startswith("relation 'friends': 1 label had blanks") for note in data.notes)
    assert data.index([" Ann", "Ann"]).tolist() == [0, 0]
    graph = networkx.Graph([("Ann ", "Bo"), ("Ann", "Cy\ufeff")])
    linked = PreferenceData.from_tables(items, table, {"graph": graph})
    assert linked.relations["graph"].num_edges == 2
    assert any(note.startswith("relation 'graph': 2 labels had blanks") for note in linked.notes)
    more = data.extend(pd.DataFrame({"age": [4.0]}, index=["Di "]), {"friends": [("Di", "Ann ")]})
    assert more.labels[-1] == "Di" and sum("'Di '" in note for note in more.notes) == 1
    with pytest.raises(DataError, match=r"\(label 'Bo '\): 'Bo' is an item already"):
        data.extend(pd.DataFrame({"age": [4.0]}, index=["Bo "]))
    with pytest.raises(
        DataError, match=r"\(label 'Ann '\): the label 'Ann' was already used at items, row 0"
    ):
        PreferenceData.from_tables(pd.DataFrame({"age": [1.0, 2]}, index=["Ann", "Ann "]))


def test_blanks_in_lists_and_rankings() -> None:
    orders = pd.DataFrame(
        {"list": ["p", "p ", "q", "q"], "item": ["Ann", "Bo", "Bo ", "Ann"], "place": [1, 2, 1, 2]}
    )
    assert PreferenceData.from_tables(answers=orders.assign(rater="r")).labels == ("Ann", "Bo")
    shown = pd.DataFrame(
        {"best": ["a "], "worst": ["c"], "item_1": ["a"], "item_2": ["b "], "item_3": ["c"]}
    )
    data = PreferenceData.from_tables(answers=shown)
    assert set(data.labels) == {"a", "b", "c"}
    rankings = Rankings.from_orders([["a", "b "], ["b", "a "]])
    assert rankings.items.labels == ("a", "b")
    note = "rankings: 2 labels had blanks around them, which were left out: 'a ', ..."
    assert PreferenceData.from_tables(answers=rankings).notes == (note,)
    wide = Rankings.from_table(pd.DataFrame({"a ": [1, 2], "b": [2, 1]}))
    assert wide.items.labels == ("a", "b") and len(wide.items.notes) == 1
    with pytest.raises(DataError, match="the item .a. was already in ranking 0"):
        Rankings.from_orders([["a", "a "]])


def test_labels_that_look_alike_are_noted_and_kept_apart() -> None:
    answers = [("Ann", "ann"), ("Bo", "ann"), ("caf\u00e9", "cafe\u0301"), ("\uff22o", "Ann")]
    data = PreferenceData.from_tables(answers=answers)
    assert data.num_items == 6
    (note,) = data.notes
    assert note.startswith(
        "items: 3 labels differ from another one in capitals or Unicode form only"
    )
    assert "'Ann' and 'ann'" in note
    (note,) = PreferenceData.from_tables(answers=answers[2:3]).notes
    assert r"'caf\xe9' and 'cafe\u0301'" in note
    extended = data.extend(["BO"])
    assert [note for note in extended.notes if "4 labels differ" in note] == list(extended.notes)
    table = pd.DataFrame(answers, columns=["winner", "loser"]).assign(rater=["x", "X", "y", "y"])
    notes = PreferenceData.from_tables(answers=table).notes
    assert any(note.startswith("answers: 1 rater differs from another one") for note in notes)


def test_labels_with_blanks_that_were_stored_are_found_by_either_form() -> None:
    """Data of earlier versions have labels with blanks; where two differ in these only, both are
    found.
    """
    clean = PreferenceData.from_tables(answers=[("Ann", "Bo"), ("Bo", "Cy")])
    stored = replace(clean, labels=("Ann ", "Bo", "Cy"))
    assert stored.index(["Ann", "Ann ", "\u00a0Ann"]).tolist() == [0, 0, 0]
    read = stored.with_comparisons([("Cy", "Ann"), ("Cy", "Ann ")])
    assert read.comparisons.count.tolist() == [2] and read.labels == stored.labels
    both = replace(clean, labels=("Ann ", "Ann", "Cy"))
    assert both.index(["Ann ", "Ann"]).tolist() == [0, 1]
    read = both.with_comparisons([("Cy", "Ann "), ("Ann", "Cy")])
    assert list(zip(read.winner, read.loser, strict=True)) == [(1, 2), (2, 0)]
    empty = replace(clean, labels=("", "Bo", "Cy"))
    assert empty.index([""]).tolist() == [0] and empty.with_comparisons(
        [("", "Bo")]
    ).winner.tolist() == [0]
    neither = replace(clean, labels=("Ann ", " Ann", "Cy"))
    with pytest.raises(UnknownLabelError, match="'Ann' is not the label of an item; nearest"):
        neither.index(["Ann"])
