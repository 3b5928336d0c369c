"""Features of rankings as scikit-learn transformers."""

from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from relpref import Rankings
from relpref.classifiers import CutFeatures, KendallFeatures, MallowsFeatures
from relpref.errors import DataError
from relpref.kernels import (
    Cut,
    Landmarks,
    Mallows,
    cut_features,
    item_graph,
    kendall_kernel,
    mallows_kernel,
)

ITEMS = list("abcde")
TABLE = pd.DataFrame(np.random.default_rng(0).standard_normal((5, 2)), index=ITEMS)


def rankings(m: int = 40, *, partial: bool = False) -> tuple[Rankings, Any]:
    """Two kinds of rankers, who like the first or the last items."""
    rng = np.random.default_rng(1)
    kind = rng.integers(0, 2, m)
    scores = pd.DataFrame(
        rng.standard_normal((m, 5)) + np.outer(2 * kind - 1, np.arange(5)), columns=ITEMS
    )
    data = Rankings.from_scores(scores).with_items(TABLE)
    return (data.subset(3, 0) if partial else data), kind


@pytest.mark.parametrize("transformer", [CutFeatures(keep=0.8), KendallFeatures()])
def test_in_a_pipeline(transformer: Any) -> None:
    data, kind = rankings()
    pipeline = make_pipeline(clone(transformer), LogisticRegression())
    assert cross_val_score(pipeline, data, kind, cv=2).mean() >= 0.9
    with pytest.raises(NotFittedError):
        transformer.transform(data)
    with pytest.raises(DataError, match="give Rankings"):
        clone(transformer).fit(data.positions)


def test_cut() -> None:
    data, _ = rankings(partial=True)
    weights = item_graph(data.items.standardized_attributes(), lengthscale=0.9)
    transformer = CutFeatures(lengthscale=0.9).fit(data[:30])
    assert_allclose(transformer.graph_, weights, rtol=1e-12)
    assert_array_equal(transformer.transform(data), cut_features(data, weights, normalize=True))
    assert transformer.n_features_in_ == 5
    assert list(transformer.get_feature_names_out()) == ITEMS
    given = CutFeatures(np.ones((5, 5)), normalize=False).fit_transform(data)
    assert_array_equal(given, cut_features(data, np.ones((5, 5))))
    turned = pd.DataFrame(weights, ITEMS, ITEMS).iloc[::-1, [1, 0, 2, 4, 3]]
    assert_array_equal(CutFeatures(turned).fit(data).graph_, weights)
    with jax.enable_x64(True), pytest.raises(DataError, match="inside a program"):
        jax.jit(lambda kernel: kernel.features(data).values)(Cut(turned))
    # Items in another order come back in that of the training.
    other = Rankings.from_orders([["e", "a", "b", "c", "d"]])
    same = Rankings.from_orders([["e", "a", "b", "c", "d"]], ITEMS)
    assert_array_equal(transformer.transform(other), transformer.transform(same))


def test_kendall() -> None:
    data, _ = rankings(partial=True)
    features = KendallFeatures().fit(data).set_output(transform="pandas").transform(data)
    assert_allclose(features.to_numpy() @ features.to_numpy().T, kendall_kernel(data), atol=1e-12)
    assert list(features.columns[:2]) == ["a > b", "a > c"]


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.slow
def test_mallows(partial: bool) -> None:
    data, _ = rankings(partial=partial)
    transformer = clone(MallowsFeatures(40, samples=8))
    features = transformer.fit_transform(data)
    assert transformer.concentration_ == 0.2
    # With all distinct rankings as landmarks nothing is left out, and there is one kernel of all
    # draws.
    kernel = mallows_kernel(data, concentration=0.2, samples=8)
    assert_allclose(features @ features.T, kernel, atol=1e-5)
    assert 0 <= transformer.landmark_error_ <= 1e-6
    assert_allclose(transformer.transform(data[::-1]), features[::-1], rtol=0, atol=1e-6)
    few = MallowsFeatures(6, concentration=0.4, samples=8).fit(data)
    assert len(few.get_feature_names_out()) == few.transform(data).shape[1] == 6
    assert 0.01 <= few.landmark_error_ <= 0.9
    if not partial:  # then it is what the kernel of programs gives
        with jax.enable_x64(True):
            expected = Landmarks(Mallows(), few.landmarks_).features(data, concentration=0.4).values
        assert_allclose(few.transform(data), expected, atol=1e-10)
    with pytest.raises(DataError, match="0 landmarks"):
        MallowsFeatures(0).fit(data)
