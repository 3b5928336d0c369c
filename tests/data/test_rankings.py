"""Rankings: kinds, censoring, labels, items, splits."""

import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_score, train_test_split

from relpref import PreferenceData, Rankings
from relpref.errors import DataError, UnknownLabelError

ORDERS = [["a", "b", "c", "d"], ["b", "a", ("c", "d")], [("a", "b"), ("d", "c")], ["d", "b"]]


@pytest.fixture
def rankings() -> Rankings:
    return Rankings.from_orders(ORDERS, rankers=["ann", "bob", "cid", "dee"])


def test_orders_become_blocks(rankings: Rankings) -> None:
    assert rankings.items.labels == ("a", "b", "c", "d")
    np.testing.assert_array_equal(
        rankings.positions, [[0, 1, 2, 3], [1, 0, 2, 2], [0, 0, 1, 1], [-1, 1, -1, 0]]
    )
    assert rankings.kinds == ("full", "top-k", "exhaustive", "non-exhaustive")
    assert rankings.orders() == [*ORDERS[:2], [("a", "b"), ("c", "d")], ORDERS[3]]
    assert rankings.shape == (4, 4)
    assert not rankings.positions.flags.writeable
    assert isinstance(rankings.items, PreferenceData)
    assert rankings.items.num_comparisons == 0 and rankings.items.attributes.shape == (4, 0)


@pytest.mark.parametrize(
    ("rows", "kind", "text"),
    [
        ([0], "full", "1 full ranking of 4 items"),
        ([0, 1], "top-k", "2 partly top-k rankings of 4 items"),
        ([1, 2], "exhaustive", "2 partly exhaustive rankings of 4 items"),
        ([0, 3], "non-exhaustive", "2 partly non-exhaustive rankings of 2 to 4 of 4 items"),
        ([], "full", ""),
    ],
)
def test_the_kind_is_the_narrowest_that_holds_for_all(
    rankings: Rankings, rows: list[int], kind: str, text: str
) -> None:
    assert rankings[rows].kind == kind
    assert not rows or repr(rankings[rows]) == f"Rankings({text})"


def test_the_order_of_items_in_a_set_is_the_same_in_every_process() -> None:
    script = (
        "import relpref; print(relpref.Rankings.from_orders([[{'x', 'b', 'q', 'k'}, "
        "'a']]).items.labels)"
    )
    out = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert out == "('b', 'k', 'q', 'x', 'a')\n"


shapes = st.tuples(st.integers(1, 5), st.integers(2, 7))


@given(arrays(int, shapes, elements=st.integers(-1, 6)), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_censoring_keeps_what_it_says(raw: np.ndarray, k: int) -> None:
    orders = [
        [tuple(np.flatnonzero(row == block).tolist()) for block in sorted({*row.tolist()} - {-1})]
        for row in raw
    ]
    if not all(orders):
        return
    given = Rankings.from_orders(orders, items=range(len(raw[0])))
    again = Rankings.from_orders(given.orders(), items=range(len(raw[0])))
    np.testing.assert_array_equal(given.positions, again.positions)
    changed = [each.positions for each in (given.top(k), given.subset(k, 3), given.coarsened(k, 3))]
    for row in np.concatenate(changed):  # blocks are numbered without gaps, from 0
        assert set(row[row >= 0]) == set(range(row.max() + 1))
    for before, top, some, coarse in zip(given.positions, *changed, strict=True):
        ranked = before >= 0
        np.testing.assert_array_equal(top, np.minimum(before, k))
        assert (some >= 0).sum() == min(k, ranked.sum()) and not (some >= 0)[~ranked].any()
        kept = np.flatnonzero(some >= 0)
        np.testing.assert_array_equal(
            np.sign(np.subtract.outer(some[kept], some[kept])),
            np.sign(np.subtract.outer(before[kept], before[kept])),
        )
        np.testing.assert_array_equal(coarse >= 0, ranked)
        assert len(set(coarse[ranked])) == min(k, len(set(before[ranked])))
        order = np.argsort(before[ranked], kind="stable")
        assert (np.diff(coarse[ranked][order]) >= 0).all()
        for block in set(before[ranked]):
            assert len(set(coarse[before == block])) == 1


def test_what_is_not_listed_may_be_last(rankings: Rankings) -> None:
    completed = rankings.completed()
    np.testing.assert_array_equal(completed.positions[:3], rankings.positions[:3])
    assert completed[3].orders() == [["d", "b", ("a", "c")]] and completed[3].kind == "top-k"


def test_random_subsets_and_cuts_are_uniform() -> None:
    """Each bound is passed by a right implementation but once in 10^5."""
    m = 4000
    full = Rankings.from_orders([list("abcde")] * m)
    bound = 4.5 * np.sqrt(m * 0.4 * 0.6)
    kept = (full.subset(2, jax.random.key(0)).positions >= 0).sum(axis=0)
    assert np.abs(kept - m * 0.4).max() < bound
    cut = full.coarsened(3, 0).positions
    assert np.abs((cut[:, 1:] > cut[:, :-1]).sum(axis=0) - m * 0.5).max() < 4.5 * np.sqrt(m / 4)
    np.testing.assert_array_equal(full.subset(2, 5).positions, full.subset(2, 5).positions)


def test_labels(rankings: Rankings) -> None:
    labelled = rankings.with_labels(["w", "e", "w", "e"])
    assert labelled.classes == ("e", "w")
    np.testing.assert_array_equal(labelled.label, [1, 0, 1, 0])
    assert (labelled.without_labels().label, labelled.without_labels().classes) == (
        None,
        ("e", "w"),
    )
    held_out = rankings[:2].with_labels(np.array(["w", "w"]), classes=labelled.classes)
    np.testing.assert_array_equal(held_out.label, [1, 1])
    by_name = pd.Series({"ann": 1, "bob": 0, "cid": 1, "dee": 0})
    np.testing.assert_array_equal(rankings.with_labels(by_name).label, [1, 0, 1, 0])
    with pytest.raises(DataError, match="in another order"):
        rankings.with_labels(by_name.sort_index(ascending=False))


FRAME = pd.DataFrame({"class": list("ewwe")})
EWWE = ["e", "w", "w", "e"]


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        (["e", "w"], None, "there are 2 for 4 rankings"),
        ("ewwe", None, "labels: got str; give a list"),
        (None, None, "labels: got NoneType; give a list"),
        (dict.fromkeys("ewns", 1), None, "labels: got dict; give a list"),
        ({*"ewns"}, None, "labels: got set; give a list"),
        (FRAME, None, r"labels: got DataFrame of shape \(4, 1\); give a list"),
        (EWWE, ["e", "w", "e"], "'e' is among them twice"),
        (EWWE, {"e", "w"}, "classes: got set"),
        ([["e"]] * 4, None, "ranking 0 .*the label .'e'. cannot be hashed"),
        (["e", None, "e", "w"], None, "ranking 1 .of 'bob'.: the label is missing"),
        ([1.0, 0.0, float("nan"), 1.0], None, "ranking 2 .of 'cid'.: the label is missing"),
        (["e", 1, "w", "e"], None, "different types"),
        (["e", "x", "w", "e"], ["e", "w"], "the label 'x' is none of the classes 'e', 'w'"),
    ],
)
def test_labels_that_cannot_be_used(
    rankings: Rankings, labels: object, classes: Any, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        rankings.with_labels(labels, classes)


def test_items_are_matched_by_label(rankings: Rankings) -> None:
    table = pd.DataFrame({"size": [4.0, 3.0, 2.0, 1.0]}, index=list("dcba"))
    links = pd.DataFrame({"source": ["a"], "target": ["d"]})
    known = rankings.with_items(table, {"near": links})
    np.testing.assert_array_equal(known.items.attributes[:, 0], [1, 2, 3, 4])
    assert known.items.labels == rankings.items.labels and list(known.items.relations) == ["near"]
    assert Rankings.from_orders(ORDERS, items=table).items.labels == tuple("dcba")
    assert Rankings.from_orders(ORDERS, items=known.items).items is known.items
    with pytest.raises(UnknownLabelError, match="'d' is not the label"):
        rankings.with_items(table.drop("d"))
    with pytest.raises(DataError, match="'e' belong to no known item"):
        rankings.with_items([*"abcde"])


@pytest.mark.parametrize(
    ("orders", "arguments", "message"),
    [
        ([["a", "b", "a"]], {}, "ranking 0, place 2: the item 'a' was .* at ranking 0, place 0"),
        (
            [["a", ("b", "a")]],
            {"rankers": ["ann"]},
            "ranking 0 .of 'ann'., place 1: the item 'a' was already in ranking 0 .of 'ann'. at",
        ),
        ([["a", "b"], []], {}, "ranking 1: it ranks nothing"),
        ([["a", ()]], {}, "ranking 0, place 1: the tie is empty"),
        ([], {}, "there are none"),
        (["ab", "ba"], {}, "got 'ab'; give a list of labels"),
        ("ab", {}, "got str"),
        (np.zeros((2, 2)), {}, "scores by from_scores"),
        ([["a", None]], {}, "ranking 0, place 1: the label is missing"),
        ([["a", "b"]], {"rankers": ["x", "y"]}, "2 labels for 1 ranking"),
    ],
)
def test_orders_that_cannot_be_used(
    orders: object, arguments: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        Rankings.from_orders(orders, **arguments)


def test_a_series_of_orders_names_its_rankers() -> None:
    given = pd.Series([["a", "b"], ["b", "a"]], index=["ann", "bob"])
    assert Rankings.from_orders(given).rankers == ("ann", "bob")
    assert Rankings.from_orders(given, rankers=[1, 2]).rankers == (1, 2)


def test_features_are_kept_with_their_rankings(rankings: Rankings) -> None:
    given = rankings.with_features(np.arange(8.0).reshape(4, 2), [0, 1, 2, 3])
    np.testing.assert_array_equal(given[[2, 0]].features, [[4, 5], [0, 1]])
    np.testing.assert_array_equal(given[[2, 0]].residual, [2, 0])
    assert rankings.with_features(np.ones((4, 1))).residual is None
    assert given.top(1).features is None and given.top(1).residual is None
    with pytest.raises(DataError, match="ranking 3 .of 'dee'"):
        rankings.with_features(np.ones((4, 1)), [0, 0, 0, -1])
    with pytest.raises(DataError, match="shapes are"):
        rankings.with_features(np.ones((3, 1)))


def test_scikit_learn_splits_rankings() -> None:
    y = np.tile([0, 1], 20)
    rankings = Rankings.from_orders([["a", "b"] if first else ["b", "a"] for first in y])
    train, test, y_train, y_test = train_test_split(
        rankings, y, test_size=0.25, random_state=0, stratify=y
    )
    assert train.shape == (30, 2) and test.shape == (10, 2)
    np.testing.assert_array_equal([order[0] == "a" for order in test.orders()], y_test == 1)
    np.testing.assert_array_equal(y[list(train.rankers)], y_train)
    scores = cross_val_score(DummyClassifier(), rankings, y, cv=StratifiedKFold(4))
    assert scores.tolist() == [0.5] * 4


def test_indexing(rankings: Rankings) -> None:
    assert rankings[-1].rankers == ("dee",) and rankings[-1].shape == (1, 4)
    assert rankings[[True, False, False, True]].rankers == ("ann", "dee")
    assert rankings[1:3].rankers == ("bob", "cid") and rankings[[1, 1]].rankers == ("bob", "bob")
    assert [one.rankers for one in rankings] == [("ann",), ("bob",), ("cid",), ("dee",)]
    assert len(rankings[[]]) == 0
    for wrong, message in (
        (4, "index 4 is out of bounds"),
        ([0, 9], "index 9 is out of bounds"),
        ([True], "the mask has the shape"),
        (np.zeros((2, 2), dtype=int), "the shape is"),
        ((0, 1), "choose rankings, not items"),
    ):
        with pytest.raises(DataError, match=message):
            rankings[wrong]
    assert rankings[[2], ...].rankers == ("cid",)


@pytest.mark.parametrize("key", [None, -1, 0.5, "0"])
def test_keys_that_cannot_be_used(rankings: Rankings, key: object) -> None:
    with pytest.raises(DataError, match="jax.random.key"):
        rankings.subset(2, key)


@pytest.mark.parametrize("number", [1.5, 0, None])
@pytest.mark.parametrize("name", ["top", "subset", "coarsened"])
def test_numbers_to_keep_are_whole(rankings: Rankings, name: str, number: Any) -> None:
    with pytest.raises(DataError, match="keep a whole number"):
        getattr(rankings, name)(number, *([0] if name != "top" else []))


def test_it_prints_readably(rankings: Rankings) -> None:
    labeled = rankings[:2].with_labels(["x", "y"])
    assert repr(labeled).endswith("rankings of 4 items, classes 'x' (1), 'y' (1))")
    assert repr(labeled.without_labels()).endswith("rankings of 4 items, 2 classes)")
    assert str(rankings).splitlines()[2:4] == ["  bob: b > a > c = d", "  cid: a = b > c = d"]
    assert str(Rankings.from_orders([["a"]] * 6)).endswith("  4: a\n  ...")


def test_it_is_a_pytree_that_compiles_once(rankings: Rankings) -> None:
    traces = []

    @jax.jit
    def total(data: Rankings) -> jax.Array:
        traces.append(repr(data))
        return data.positions.sum() + (0 if data.label is None else data.label.sum())

    first = rankings.with_labels([0, 1, 1, 0])
    other = Rankings.from_orders(ORDERS[::-1], items=list("abcd")).with_labels(["x", "y", "y", "y"])
    assert (total(first), total(other)) == (first.positions.sum() + 2, first.positions.sum() + 3)
    assert traces == ["Rankings(4 rankings, traced)"]
    again = jax.tree_util.tree_map(lambda leaf: leaf, first)
    assert (
        again.rankers == first.rankers
        and again.classes == first.classes
        and again.orders() == first.orders()
    )
