from typing import Any

import jax
import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from relpref.data import PreferenceData
from relpref.data.labels import is_invisible, trimmed


def same(first: Any, second: Any) -> None:
    """Compare what a model sees, byte by byte, and the labels."""
    assert first.labels == second.labels
    assert list(map(type, first.labels)) == list(map(type, second.labels))
    assert first.attribute_names == second.attribute_names
    assert list(first.relations) == list(second.relations)
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


LABELS = st.one_of(
    st.text(max_size=5).map(trimmed).filter(lambda text: not is_invisible(text)),
    st.integers(),
    st.booleans(),
    st.floats(allow_nan=False),
    st.dates(),
    st.tuples(st.text(max_size=2), st.integers(0, 3)),
)


@st.composite
def tables(draw: Any) -> Any:
    labels = draw(st.lists(LABELS, min_size=2, max_size=8, unique=True))
    pairs = st.tuples(st.integers(0, len(labels) - 1), st.integers(0, len(labels) - 1))
    rows = draw(st.lists(pairs.filter(lambda pair: pair[0] != pair[1]), min_size=1, max_size=15))
    count = draw(st.lists(st.integers(1, 5), min_size=len(rows), max_size=len(rows)))
    return labels, rows, count


def build(labels: Any, rows: Any, count: Any = None) -> Any:
    frame = {
        "winner": pd.Series([labels[w] for w, _ in rows], dtype=object),
        "loser": pd.Series([labels[x] for _, x in rows], dtype=object),
    }
    if count is not None:
        frame["count"] = count
    items = pd.DataFrame(
        {"x": np.arange(len(labels))}, index=pd.Index(labels, dtype=object, tupleize_cols=False)
    )
    return PreferenceData.from_tables(items, pd.DataFrame(frame))


@settings(max_examples=60, deadline=None)
@given(tables())
def test_labels_keep_their_values_and_types_through_tables(drawn: Any) -> None:
    labels, rows, count = drawn
    data = build(labels, rows, count)
    assert list(data.labels) == labels
    assert list(map(type, data.labels)) == list(map(type, labels))
    same(data, PreferenceData.from_tables(*data.to_tables()))
