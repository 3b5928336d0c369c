"""Splitters: what is in which part, scikit-learn's own tools, and what leaks without them."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score

from relpref.errors import DataError
from relpref.rls import BothKFold, EdgeKFold, SourceKFold, TargetKFold

SPLITTERS = (EdgeKFold, SourceKFold, TargetKFold, BothKFold)


def edges_of(seed: int, p: int, m: int, count: int) -> Any:
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(0, p, count), rng.integers(0, m, count)])


@settings(max_examples=30, deadline=None)
@given(
    kind=st.sampled_from(SPLITTERS),
    seed=st.integers(0, 10**6),
    symmetric=st.booleans(),
    shuffle=st.booleans(),
)
def test_who_is_new(kind: Any, seed: int, symmetric: bool, shuffle: bool) -> None:
    edges = edges_of(seed, 9, 9, 200)
    splitter = kind(3, shuffle=shuffle, random_state=seed if shuffle else None, symmetric=symmetric)
    splits = list(splitter.split(edges))
    assert len(splits) == splitter.get_n_splits(edges)
    tested = np.concatenate([test for _, test in splits])
    assert len(tested) == len(set(tested))
    for train, test in splits:
        assert not set(train) & set(test)
        known, asked = edges[train], edges[test]
        sources, targets = set(known[:, 0]), set(known[:, 1])
        if symmetric:
            sources = targets = sources | targets
            assert not {frozenset(e) for e in known.tolist()} & {
                frozenset(e) for e in asked.tolist()
            }
        if kind in (SourceKFold, BothKFold):
            assert not sources & set(asked[:, 0])
        if kind in (TargetKFold, BothKFold):
            assert not targets & set(asked[:, 1])
        assert not {tuple(e) for e in known.tolist()} & {tuple(e) for e in asked.tolist()}
        if kind is not BothKFold and not symmetric:
            assert len(train) + len(test) == len(edges)
    # Nothing is lost but, of a symmetric relation, edges within a fold of new nodes.
    if not (symmetric and kind in (SourceKFold, TargetKFold)):
        assert len(tested) == len(edges)
    if kind is EdgeKFold and symmetric:
        assert all(len(train) + len(test) == len(edges) for train, test in splits)


def test_labels_frames_and_groups() -> None:
    names = np.array(["ann", "bob", "cy", "di"])
    edges = edges_of(0, 4, 4, 40)
    expected = list(SourceKFold(2).split(edges))
    frame = pd.DataFrame(
        {"weight": 1.0, "target": names[edges[:, 1]], "source": names[edges[:, 0]]},
        index=range(40, 80),
    )
    features = np.zeros((40, 5))
    for given_as in ((names[edges],), (frame,), (features, None, edges), (features, None, frame)):
        for found, wanted in zip(SourceKFold(2).split(*given_as), expected, strict=True):
            assert_array_equal(found[0], wanted[0])
            assert_array_equal(found[1], wanted[1])
    mixed = pd.DataFrame({"source": [("a", 1), "b", 3, "b"], "target": [3, ("a", 1), "b", "b"]})
    assert len(list(EdgeKFold(2, symmetric=True).split(mixed))) == 2


def test_same_seed_same_folds() -> None:
    edges = edges_of(1, 10, 10, 100)
    for kind in SPLITTERS:
        first, again, other = (
            [test.tolist() for _, test in kind(3, shuffle=True, random_state=seed).split(edges)]
            for seed in (0, 0, 1)
        )
        assert first == again != other


def test_the_side_that_is_known_needs_no_folds() -> None:
    few, many = np.tile(np.arange(3), 20), np.repeat(np.arange(20), 3)
    by_source = list(
        SourceKFold(5, shuffle=True, random_state=0).split(np.column_stack([many, few]))
    )
    by_target = list(
        TargetKFold(5, shuffle=True, random_state=0).split(np.column_stack([few, many]))
    )
    for one, other in zip(by_source, by_target, strict=True):
        assert_array_equal(one[0], other[0])
        assert_array_equal(one[1], other[1])
    with pytest.raises(DataError, match="3 targets cannot make 5 folds"):
        next(TargetKFold(5).split(np.column_stack([many, few])))


def test_scikit_learn_takes_them() -> None:
    """A linear relation is found again in every setting, also where both nodes are new."""
    rng = np.random.default_rng(2)
    nodes, objects = rng.standard_normal((12, 3)), rng.standard_normal((10, 2))
    edges = np.argwhere(rng.uniform(size=(12, 10)) < 0.8)
    features = np.hstack([nodes[edges[:, 0]], objects[edges[:, 1]]])
    labels = features @ np.arange(1.0, 6.0) + 0.1 * rng.standard_normal(len(edges))
    for kind in SPLITTERS:
        splitter = kind(3, shuffle=True, random_state=0)
        scores = cross_val_score(Ridge(), features, labels, groups=edges, cv=splitter)
        assert len(scores) == splitter.get_n_splits()
        assert scores.min() > 0.9
        search = GridSearchCV(Ridge(), {"alpha": [1e-3, 1e4]}, cv=splitter)
        assert search.fit(features, labels, groups=edges).best_params_ == {"alpha": 1e-3}
    assert "SourceKFold(n_splits=3" in repr(SourceKFold(3))


def test_refusals() -> None:
    kind: Any
    for kind, options, edges, message in (
        (EdgeKFold, {"n_splits": 1}, [], "n_splits is 1"),
        (EdgeKFold, {"random_state": 0}, [], "without shuffle=True"),
        (EdgeKFold, {}, np.zeros((9, 3)), r"shape \(9, 3\); give two columns"),
        (SourceKFold, {}, [[0, 1], [1, 0], [2, 2]], "3 sources cannot make 5 folds"),
        (BothKFold, {"n_splits": 2}, [[0, 0], [1, 1]], "split 1 has no training edges among 2"),
        (BothKFold, {"n_splits": 2}, [[0, 0], [1, 0], [1, 1]], "no test edges among 3"),
        (BothKFold, {"n_splits": 2, "symmetric": True}, edges_of(4, 3, 3, 9), "no training edges"),
    ):
        with pytest.raises(DataError, match=message):
            list(kind(**options).split(np.array(edges)))
