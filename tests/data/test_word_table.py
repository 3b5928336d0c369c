"""Many texts or integers looked up at once find what a dictionary finds."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relpref.data import labels
from relpref.data.labels import LabelIndex
from relpref.data.word_table import LONGEST, WordTable, words_of
from relpref.errors import UnknownLabelError

INTEGERS = st.integers(-3, 3) | st.sampled_from([2**31, -(2**63), 2**63 - 1])
TEXTS = st.text(st.sampled_from("ab1é\u20ac\U0001f600 "), max_size=20)
ODD = st.sampled_from(["a\0", "\0", "\ud800", "x" * (LONGEST + 1), 2**63, 1, 1.0, ("a", "b"), True])
LABELS = st.lists(TEXTS, max_size=20) | st.lists(INTEGERS, max_size=20) | st.lists(TEXTS | ODD, max_size=20)


@settings(max_examples=100, deadline=None)
@given(known=st.lists(TEXTS, min_size=1, max_size=50, unique=True), asked=st.lists(TEXTS, max_size=50))
def test_positions_are_those_of_a_dictionary(known: list[str], asked: list[str]) -> None:
    words = words_of(known)
    assert words is not None
    table = WordTable(words)
    positions = {text: position for position, text in enumerate(known)}
    some = [*asked, *known[::2]]
    wanted = words_of(some, table.width)
    if wanted is None:  # some text is longer than every known one
        assert max(len(text.encode()) for text in some) > 8 * table.width
    else:
        assert table.positions(wanted).tolist() == [positions.get(text, -1) for text in some]


@settings(max_examples=100, deadline=None)
@given(
    known=LABELS,
    asked=LABELS,
)
def test_an_index_gives_the_same_with_and_without_a_table(known: list[Any], asked: list[Any]) -> None:
    known = list(dict.fromkeys(known)) or [1]
    outcomes: dict[int, Any] = {}
    for many in (0, 1 << 14):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(labels, "MANY", many)
            index = LabelIndex(known, lambda row: f"row {row}")
            try:
                for some in (known, asked):
                    outcomes[many] = index.locate(some, lambda row: f"row {row}", "correct it").tolist()
            except UnknownLabelError as error:
                outcomes[many] = str(error)
    assert outcomes[0] == outcomes[1 << 14]


def test_texts_that_share_buckets() -> None:
    # A hundred thousand texts in twice as many buckets: several hundred buckets hold five or more.
    texts = [f"user{number}" for number in range(100_000)]
    words = words_of(texts)
    assert words is not None
    table = WordTable(words)
    order = np.random.default_rng(0).permutation(len(texts))
    np.testing.assert_array_equal(table.positions(words[order]), order)
    others = words_of([f"User{number}" for number in range(1000)], table.width)
    assert others is not None and (table.positions(others) == -1).all()
