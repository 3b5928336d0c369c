"""Hold-outs from one decomposition beside training again without the examples, and beside LPO
Theorem 1.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.base import clone

from relpref.errors import DataError
from relpref.rls import RLS, RankRLS, gram

RNG = np.random.default_rng(0)
X = RNG.normal(size=(14, 3))
Y = np.column_stack([X[:, 0] + RNG.normal(size=14), RNG.integers(0, 3, 14)])
# A query of one example, one of two, and longer ones.
QUERIES = np.array([0, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3])
PATH = [1e-3, 0.5, 20.0]
CASES = {
    "rls": (RLS("gaussian", gamma=0.4), {}),
    "rank": (RankRLS("gaussian", gamma=0.4), {}),
    "queries": (RankRLS("gaussian", gamma=0.4), {"groups": QUERIES}),
    "singular": (RLS("linear"), {}),
    "rank singular": (RankRLS("linear"), {}),
    "queries singular": (RankRLS("linear"), {"groups": QUERIES}),
}


def retrained(estimator: Any, fit: dict[str, Any], out: Any, regularization: float) -> Any:
    """Predictions for some examples after a training on the others."""
    kept = np.setdiff1d(np.arange(len(X)), out)
    new = clone(estimator).set_params(regularization=regularization)
    new.fit(X[kept], Y[kept], **{name: value[kept] for name, value in fit.items()})
    return new.predict(X[out])


# Single examples, groups across queries, groups that are queries, and a group that takes whole
# queries and part of another.
@pytest.mark.parametrize("groups", [None, RNG.integers(0, 3, 14), QUERIES, [0] * 6 + [1] * 8])
@pytest.mark.parametrize("case", CASES)
def test_hold_outs_are_retraining(case: str, groups: Any) -> None:
    estimator, fit = CASES[case]
    estimator.fit(X, Y, **fit)
    if groups is None:
        groups, predictions = np.arange(14), estimator.leave_one_out(PATH)
    else:
        predictions = estimator.leave_group_out(groups, PATH)
    for group in np.unique(groups):
        out = np.flatnonzero(np.asarray(groups) == group)
        expected = [retrained(estimator, fit, out, λ) for λ in PATH]
        assert_allclose(predictions[:, out], expected, rtol=1e-8, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(
    queries=st.lists(st.integers(0, 3), min_size=4, max_size=9),
    groups=st.lists(st.integers(0, 2), min_size=9, max_size=9).filter(
        lambda groups: len(set(groups[:4])) > 1
    ),
    kernel=st.sampled_from(["linear", "gaussian"]),
    seed=st.integers(0, 99),
)
def test_any_groups_of_any_queries(
    queries: list[int], groups: list[int], kernel: str, seed: int
) -> None:
    count, rng = len(queries), np.random.default_rng(seed)
    x, y = rng.normal(size=(count, 3)), rng.normal(size=count)
    ranker = RankRLS(kernel, regularization=0.1)
    of, left_out = np.array(queries), np.array(groups[:count])
    assume(np.bincount(of).max() > 1)
    ranker.fit(x, y, groups=of)
    together, alone = ranker.leave_group_out(left_out), ranker.leave_one_out()
    for predictions, parts in ((together, left_out), (alone, np.arange(count))):
        for part in np.unique(parts):
            kept, out = np.flatnonzero(parts != part), np.flatnonzero(parts == part)
            expected = np.zeros(len(out))  # of a training that has nothing to compare
            if np.bincount(of[kept]).max() > 1:
                expected = clone(ranker).fit(x[kept], y[kept], groups=of[kept]).predict(x[out])
            assert_allclose(predictions[out], expected, atol=1e-9)


def test_only_the_loss_forgets_what_is_held_out() -> None:
    """LPO Theorem 1: the predictions minimise the loss without the pair plus the whole regulariser
    λ vᵀK⁻¹v.
    """
    kernel, pair = gram(X, kernel="gaussian", gamma=0.4), [3, 8]
    kept = np.setdiff1d(np.arange(14), pair)
    laplacian = np.zeros((14, 14))
    laplacian[np.ix_(kept, kept)] = 12 * np.eye(12) - np.ones((12, 12))
    minimiser = np.linalg.solve(laplacian + 0.7 * np.linalg.inv(kernel), laplacian @ Y)
    ranker = RankRLS("gaussian", gamma=0.4, regularization=0.7).fit(X, Y)
    blocks = ranker.leave_pair_out().pairs()
    block = next(b for b in blocks if np.any((b.first == 3) & (b.second == 8)))
    at = np.flatnonzero((block.first == 3) & (block.second == 8))[0]
    assert_allclose(block.predicted_first[at], minimiser[3], rtol=1e-9)
    assert_allclose(block.predicted_second[at], minimiser[8], rtol=1e-9)
    by_group = ranker.leave_group_out(np.isin(np.arange(14), pair))
    assert_allclose(by_group[pair], minimiser[pair], rtol=1e-9)


@pytest.mark.parametrize("estimator", [RLS(), RankRLS()])
def test_an_axis_for_what_is_several(estimator: Any) -> None:
    single, several = clone(estimator).fit(X, Y[:, 0]), clone(estimator).fit(X, Y)
    everything = several.leave_one_out(PATH)
    assert everything.shape == (3, 14, 2)
    assert_allclose(single.leave_one_out(PATH), everything[..., 0])
    assert_allclose(several.leave_one_out(0.5), everything[1])
    assert_allclose(
        single.set_params(regularization=0.5).fit(X, Y[:, 0]).leave_one_out(), everything[1, :, 0]
    )
    assert several.leave_group_out(QUERIES).shape == (14, 2)


def test_what_cannot_be_left_out_is_named() -> None:
    alone, fitted = RLS().fit(X[:1], Y[:1]), RLS().fit(X, Y)
    for leave, args, message in (
        (alone.leave_one_out, [], "leaves nothing to train on: there are 1 examples"),
        (fitted.leave_group_out, [[1] * 14], "groups has a single group"),
        (fitted.leave_group_out, [[1, 2, 3]], "groups has 3 entries for 14 examples"),
        (fitted.leave_one_out, [[1.0, -1.0]], "a regularization is -1"),
    ):
        with pytest.raises(DataError, match=message):
            leave(*args)
