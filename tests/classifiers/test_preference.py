"""The classifier of pairs: equal to `relpref.fit`, and at home in scikit-learn."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import relpref
from relpref import PreferenceRanker
from relpref.errors import DataError, UnknownLabelError

OPTIONS: dict[str, Any] = {"hyperparameters": "maximize"}


def pairs(number: int = 40) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(3)
    ends = np.array([rng.choice(6, 2, replace=False) for _ in range(number)])
    first = rng.random(number) < 1 / (1 + np.exp(1.5 * (ends[:, 0] - ends[:, 1])))
    labels = np.array(list("abcdef"))
    return pd.DataFrame(labels[ends], columns=["first", "second"]), first.astype(int)


def test_it_is_a_short_way_to_fit() -> None:
    X, y = pairs()
    ranker = PreferenceRanker(options=OPTIONS).fit(X, y)
    expected = relpref.fit(answers=X.assign(result=y), **OPTIONS)
    pd.testing.assert_frame_equal(ranker.posterior_.ranking(), expected.ranking())
    chance = expected.prefer(X)["probability"]
    assert_allclose(ranker.predict_proba(X)[:, 1], chance)
    assert_array_equal(ranker.predict(X), (chance > 0.5).astype(int))
    assert_allclose(1 / (1 + np.exp(-ranker.decision_function(X))), chance)
    assert ranker.score(X, y) > 0.7
    assert ranker.classes_.tolist() == [0, 1]
    assert ranker.feature_names_in_.tolist() == ["first", "second"]


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (lambda X: X.to_numpy(), lambda y: y),
        (lambda X: list(X.itertuples(index=False)), lambda y: y == 1),
        (lambda X: X.set_axis(["left", "right"], axis=1), lambda y: np.array(["no", "yes"])[y]),
        (lambda X: X.assign(group=range(len(X)), count=1, weight=1.0), lambda y: 2 * y - 1),
    ],
)
def test_pairs_have_many_forms(X: Any, y: Any) -> None:
    table, won = pairs()
    ranker = PreferenceRanker(options=OPTIONS).fit(X(table), y(won))
    plain = PreferenceRanker(options=OPTIONS).fit(table, won)
    assert ranker.classes_.tolist() == np.unique(y(won)).tolist()
    expected = plain.predict_proba(table)
    tolerance = 0.1 if "group" in X(table) else 1e-12
    assert_allclose(ranker.predict_proba(X(table)), expected, atol=tolerance)


def test_covariates_are_those_of_the_question() -> None:
    X, y = pairs()
    home = X.assign(home=np.where(np.arange(len(X)) % 2, X["first"], X["second"]))
    ranker = PreferenceRanker(covariates=["home"], options=OPTIONS).fit(home, y)
    expected = relpref.fit(answers=home.assign(result=y), covariates=["home"], **OPTIONS)
    chance = expected.prefer(X, home=home["home"])["probability"]
    assert_allclose(ranker.predict_proba(home)[:, 1], chance)


def test_scikit_learn_clones_and_cross_validates_it() -> None:
    X, y = pairs()
    ranker = PreferenceRanker(items=list("abcdef"), options=OPTIONS)
    assert clone(ranker).get_params() == ranker.get_params()
    groups = X["first"] + X["second"]
    scores = cross_val_score(ranker, X, y, groups=groups, cv=GroupKFold(3), scoring="neg_log_loss")
    assert scores.shape == (3,) and np.all(scores > -1)


def test_options_are_parameters() -> None:
    X, y = pairs()
    options: dict[str, Any] = {"likelihood": "logistic", "engine": "laplace"}
    ranker = PreferenceRanker(hyperparameters="maximize", **options).fit(X, y)
    expected = relpref.fit(answers=X.assign(result=y), **OPTIONS, **options)
    chance = expected.prefer(X)["probability"]
    np.testing.assert_allclose(ranker.predict_proba(X)[:, 1], chance)
    grid = {"likelihood": ["probit", "logistic"]}
    search = GridSearchCV(PreferenceRanker(items=list("abcdef"), options=OPTIONS), grid, cv=3)
    assert search.fit(X, y).best_params_["likelihood"] in grid["likelihood"]


def test_it_is_the_last_step_of_a_pipeline() -> None:
    X, y = pairs()
    upper = FunctionTransformer(lambda table: table.apply(lambda column: column.str.upper()))
    steps = make_pipeline(upper, PreferenceRanker(items=list("ABCDEF"), options=OPTIONS))
    chance = steps.fit(X, y).predict_proba(X)
    expected = PreferenceRanker(items=list("abcdef"), options=OPTIONS).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(chance, expected)
    groups = GroupKFold(3)
    scores = cross_val_score(steps, X, y, groups=X["first"], cv=groups)
    assert scores.shape == (3,) and np.all(scores > 0)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([("a", "b"), ("b", "c")], [1, 1], "y has 1 classes"),
        ([("a", "b"), ("b", "c"), ("a", "c")], [1, 0, 0.5], "y has 3 classes"),
        ([("a", "b"), ("b", "c")], [1], "y has the shape"),
        ([("a", "b", "c")], [1], "X has the shape"),
        (pd.DataFrame({"x": ["a"], "y": ["b"], "z": [1]}), [1], "X has the columns x, y, z"),
    ],
)
def test_refusals(X: Any, y: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        PreferenceRanker().fit(X, y)


def test_items_that_were_never_compared() -> None:
    X, y = pairs()
    with pytest.raises(UnknownLabelError, match="'g'"):
        PreferenceRanker(options=OPTIONS).fit(X, y).predict([("a", "g")])
    items = pd.DataFrame({"size": range(7)}, index=list("abcdefg"))
    ranker = PreferenceRanker(items=items, options=OPTIONS).fit(X, y)
    assert 0 < ranker.predict_proba([("a", "g")])[0, 1] < 1


# The checks give X with other numbers of columns than two, or numbers that are no labels.
_NOT_PAIRS = [
    "check_fit2d_predict1d",
    "check_complex_data",
    "check_readonly_memmap_input",
    "check_classifiers_one_label",
    "check_fit2d_1feature",
    "check_fit_idempotent",
    "check_estimators_empty_data_messages",
    "check_estimators_dtypes",
    "check_supervised_y_2d",
    "check_methods_sample_order_invariance",
    "check_classifiers_train",
    "check_decision_proba_consistency",
    "check_classifier_not_supporting_multiclass",
    "check_estimator_sparse_tag",
    "check_n_features_in",
    "check_fit2d_1sample",
    "check_classifier_data_not_an_array",
    "check_estimators_nan_inf",
    "check_n_features_in_after_fitting",
    "check_positive_only_tag_during_fit",
    "check_f_contiguous_array_estimator",
    "check_classifiers_classes",
    "check_dtype_object",
    "check_estimators_pickle",
    "check_requires_y_none",
    "check_estimators_overwrite_params",
    "check_dont_overwrite_parameters",
    "check_fit_score_takes_y",
    "check_estimators_fit_returns_self",
    "check_methods_subset_invariance",
    "check_pipeline_consistency",
    "check_estimator_sparse_array",
    "check_fit_check_is_fitted",
    "check_dict_unchanged",
    "check_classifiers_regression_target",
    "check_estimator_sparse_matrix",
]


@pytest.mark.slow
def test_checks_of_scikit_learn() -> None:
    expected = dict.fromkeys(_NOT_PAIRS, "X is no table of pairs")
    checks = check_estimator(
        PreferenceRanker(options=OPTIONS), expected_failed_checks=expected, on_skip=None
    )
    assert {each["check_name"] for each in checks if each["status"] == "xfail"} == {*_NOT_PAIRS}


def test_what_scikit_learn_checks_holds_for_pairs() -> None:
    X, y = pairs()
    ranker = PreferenceRanker(options=OPTIONS)
    with pytest.raises(NotFittedError):
        ranker.predict(X)
    before = ranker.get_params()
    chance = ranker.fit(X, y).predict_proba(X)
    assert ranker.get_params() == before and ranker.n_features_in_ == 2
    assert_array_equal(ranker.fit(X, y).predict_proba(X), chance)
    assert_array_equal(pickle.loads(pickle.dumps(ranker)).predict_proba(X), chance)
    assert_allclose(ranker.predict_proba(X[::-1])[::-1], chance)
    with pytest.raises(DataError, match="X has 3 features, but PreferenceRanker is expecting 2"):
        ranker.predict(X.assign(rater="ann"))
