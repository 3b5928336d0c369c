"""Labels of any types are found where they are, and unknown ones are named."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relpref.data import labels
from relpref.data.labels import LabelIndex
from relpref.errors import UnknownLabelError

INTEGERS = st.integers(-3, 3) | st.sampled_from([2**31, -(2**63), 2**63])
TEXTS = st.text(st.sampled_from("ab1é\u20ac\U0001f600 "), max_size=20)
TUPLES = st.tuples(st.sampled_from([1, 1.0, "a", True]), st.sampled_from([2, 2.0]))
ODD = st.sampled_from(["a\0", "\0", "\ud800", "x" * 100, 1, 1.0, 1 + 0j, 2**64, True]) | TUPLES
LABELS = st.lists(TEXTS, max_size=20) | st.lists(INTEGERS, max_size=20) | st.lists(TEXTS | ODD, max_size=20)


@pytest.mark.parametrize("many", [0, labels.MANY])
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(known=LABELS, asked=LABELS)
def test_positions_are_those_of_the_labels(
    monkeypatch: pytest.MonkeyPatch, many: int, known: list[Any], asked: list[Any]
) -> None:
    monkeypatch.setattr(labels, "MANY", many)
    known = list(dict.fromkeys(known)) or [1]
    index = LabelIndex(known, lambda row: f"row {row}")
    assert index.locate(known, str, "").tolist() == list(range(len(known)))
    unknown = [row for row, label in enumerate(asked) if label not in known]
    if unknown:
        with pytest.raises(UnknownLabelError, match=f"^position {unknown[0]}: ") as caught:
            index.locate(asked, lambda row: f"position {row}", "correct it")
        assert "is not the label of an item" in str(caught.value)
    else:
        assert index.locate(asked, str, "").tolist() == [known.index(label) for label in asked]
