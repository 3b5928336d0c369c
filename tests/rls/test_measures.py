"""Measures of rankings beside counting pair by pair, scikit-learn and SciPy."""

import math
from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import spearmanr
from sklearn.metrics import ndcg_score, roc_auc_score

from relpref.errors import DataError
from relpref.rls import auc, concordance, ndcg, per_node, ranking_error, spearman

VALUES = st.sampled_from([-1.5, -1.0, 0.0, 1e-9, 2.0, 7.0])
PAIRED = st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=30)


def counted(labels: list[float], scores: list[float]) -> float:
    """CR10 eq. 5 as it stands, over the number of its pairs."""
    wrong = total = 0.0
    for i, j in combinations(range(len(labels)), 2):
        if labels[i] != labels[j]:
            low, high = (i, j) if labels[i] < labels[j] else (j, i)
            gap = scores[low] - scores[high]
            wrong += 1.0 if gap > 0 else 0.5 if gap == 0 else 0.0
            total += 1
    return wrong / total if total else math.nan


@settings(max_examples=100, deadline=None)
@given(PAIRED)
def test_ranking_error_counts_pairs(paired: list[tuple[float, float]]) -> None:
    labels, scores = (list(column) for column in zip(*paired, strict=True))
    expected = counted(labels, scores)
    assert ranking_error(labels, scores) == pytest.approx(expected, abs=1e-15, nan_ok=True)
    assert concordance(labels, scores) == pytest.approx(1 - expected, abs=1e-15, nan_ok=True)
    assert math.isnan(spearman(labels, scores)) == math.isnan(expected)


def test_many_objects_are_counted_exactly() -> None:
    # With 100,000 objects there are 5e9 pairs; the count must be whole, so it is found again from
    # the groups.
    rng = np.random.default_rng(0)
    positive, negative = rng.normal(0.3, 1, 40_000), rng.normal(0, 1, 60_000)
    wrong = int(np.searchsorted(np.sort(positive), negative).sum())
    labels = np.repeat([1, 0], [40_000, 60_000])
    error = ranking_error(labels, np.concatenate([positive, negative]))
    assert error * 40_000 * 60_000 == pytest.approx(wrong, abs=0.01)


@pytest.mark.parametrize(
    ("measure", "levels", "theirs"),
    [
        (auc, 2, roc_auc_score),
        (spearman, 4, lambda labels, scores: spearmanr(labels, scores).statistic),
        *(
            (partial(ndcg, k=k), 4, lambda labels, scores, k=k: ndcg_score([labels], [scores], k=k))
            for k in (None, 1, 5, 100)
        ),
    ],
)
def test_measures_of_scikit_learn_and_scipy(measure: Any, levels: int, theirs: Any) -> None:
    rng = np.random.default_rng(2)
    labels, scores = rng.integers(0, levels, 40), rng.integers(0, 12, 40)
    assert measure(labels, scores) == pytest.approx(theirs(labels, scores), abs=1e-14)


def test_each_node_by_its_observed_objects() -> None:
    nan = np.nan
    relation = np.array([[1, 2, 3, nan], [1, 1, nan, nan], [nan, nan, nan, nan], [0, nan, nan, 1]])
    scores = np.array([[1, 3, 2, nan], [5, 6, 7, 8], [1, 2, 3, 4], [1, 0, 0, 1]])
    result = per_node(concordance, relation, scores)
    assert_allclose(result.values, [2 / 3, nan, nan, 0.5], rtol=1e-15)
    assert np.isnan(result.values).sum() == 2
    assert result.mean == pytest.approx((2 / 3 + 0.5) / 2)
    assert math.isnan(per_node(concordance, [[1, 1]], [[1, 2]]).mean)


@pytest.mark.parametrize("measure", [concordance, ndcg, spearman, auc])
def test_no_value_without_two_labels(measure: Callable[..., float]) -> None:
    assert math.isnan(measure([2, 2, 2], [1, 2, 3]))
    assert spearman([1, 2, 3], np.zeros(3)) == 0


def test_what_cannot_be_measured_is_named() -> None:
    measure: Any
    for measure, labels, scores, message in (
        (concordance, [1, 2, 3], [1, 2], "3 labels and 2 scores"),
        (concordance, [1, 2], [1, np.nan], "scores hold NaN at 1"),
        (concordance, [[1, 2]], [1, 2], r"labels have shape \(1, 2\)"),
        (ndcg, [-1, 2], [1, 2], "a label is -1"),
        (auc, [0, 1, 2], [0, 1, 2], "AUC is for two labels and there are 3"),
        (partial(ndcg, k=0), [1, 2], [1, 2], "k is 0"),
        (partial(per_node, concordance), [[1, 2]], [[1, 2]] * 2, r"\(1, 2\) and the scores \(2"),
    ):
        with pytest.raises(DataError, match=message):
            measure(labels, scores)
