"""Choice of the regularisation beside RidgeCV and beside retraining."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import LeaveOneGroupOut

from relpref.errors import DataError
from relpref.rls import RLS, RLSCV, RankRLS, RankRLSCV, concordance

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 5))
Y = X[:, :2] + 2 * RNG.normal(size=(40, 2))
GROUPS = RNG.integers(0, 5, 40)
PATH = [0.01, 1.0, 30.0, 1e4]


@pytest.mark.parametrize("outputs", [0, slice(None)])
def test_leave_one_out_is_that_of_ridge_cv(outputs: Any) -> None:
    ours = RLSCV(regularizations=PATH).fit(X, Y[:, outputs])
    other = RidgeCV(alphas=PATH, fit_intercept=False).fit(X, Y[:, outputs])
    assert ours.regularization_ == other.alpha_
    assert ours.best_score_ == pytest.approx(other.best_score_)
    assert_allclose(ours.predict(X), other.predict(X), rtol=1e-9)


def test_groups_by_retraining() -> None:
    expected = np.zeros(len(PATH))
    for kept, out in LeaveOneGroupOut().split(X, groups=GROUPS):
        for k, λ in enumerate(PATH):
            predicted = RLS(regularization=λ).fit(X[kept], Y[kept]).predict(X[out])
            expected[k] -= np.sum((Y[out] - predicted) ** 2) / Y.size
    chosen = RLSCV(regularizations=PATH, cv="leave_group_out").fit(X, Y, groups=GROUPS)
    assert_allclose(chosen.cv_scores_, expected)
    assert chosen.regularization_ == PATH[int(np.argmax(expected))]


def test_queries_by_retraining() -> None:
    expected = []
    for λ in PATH:
        values = []
        for kept, out in LeaveOneGroupOut().split(X, groups=GROUPS):
            ranker = RankRLS(regularization=λ).fit(X[kept], Y[kept], groups=GROUPS[kept])
            values.append([concordance(Y[out, k], ranker.predict(X[out])[:, k]) for k in (0, 1)])
        expected.append(np.mean(values))
    chosen = RankRLSCV(regularizations=PATH, cv="leave_group_out").fit(X, Y, groups=GROUPS)
    assert_allclose(chosen.cv_scores_, expected)
    assert chosen.best_score_ == pytest.approx(max(expected))
    final = RankRLS(regularization=chosen.regularization_).fit(X, Y, groups=GROUPS)
    assert_allclose(chosen.predict(X), final.predict(X))


@pytest.mark.parametrize("fit", [{}, {"groups": GROUPS}])
def test_pairs_choose_by_concordance(fit: dict[str, Any]) -> None:
    chosen = RankRLSCV(regularizations=PATH).fit(X, Y, **fit)
    expected = RankRLS().fit(X, Y, **fit).leave_pair_out(PATH).concordance.mean(axis=1)
    assert_allclose(chosen.cv_scores_, expected)
    assert_allclose(chosen.leave_pair_out().concordance.mean(), chosen.best_score_)
    # Of equally good values, the largest.
    equal = RankRLSCV(regularizations=[3.0, 1.0, 2.0]).fit(np.arange(4.0)[:, None], range(4))
    assert equal.regularization_ == 3


@pytest.mark.parametrize(
    "estimator, fit, message",
    [
        (
            RLSCV(cv="leave_two_out"),
            {},
            "cv is 'leave_two_out'; RLSCV has leave_one_out, leave_pair_out",
        ),
        (RankRLSCV(cv="leave_one_out"), {}, "RankRLSCV has leave_pair_out, leave_group_out"),
        (RLSCV(cv="leave_group_out"), {}, "needs groups="),
        (RankRLSCV(cv="leave_group_out"), {"groups": np.ones(40)}, "a single group"),
        (RLSCV(regularizations=[]), {}, r"regularizations have shape \(0,\)"),
        (RLSCV(regularizations=[1.0, 0.0]), {}, "a regularization is 0"),
    ],
)
def test_what_cannot_be_chosen_is_named(estimator: Any, fit: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        estimator.fit(X, Y, **fit)
    with pytest.raises(DataError, match="y is constant"):
        RLSCV(cv="leave_pair_out").fit(X, np.ones(40))
