"""RLS and RankRLS beside their definitions, scikit-learn's kernel ridge and scikit-learn's own
checks of estimators.
"""

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose
from scipy.linalg import block_diag
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, LeaveOneOut, cross_val_predict
from sklearn.utils.estimator_checks import check_estimator

from relpref.data import Graph
from relpref.errors import DataError
from relpref.kernels import RegularizedLaplacian
from relpref.rls import RLS, RLSCV, RankRLS, RankRLSCV, concordance, gram

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(15, 3)), RNG.normal(size=(6, 3))
Y = np.column_stack([X[:, 0] + RNG.normal(size=15), np.round(X[:, 1])])
QUERIES = np.array(["a", "b", "c"])[RNG.integers(0, 3, 15)]
PATH = [1e-3, 0.5, 20.0]

# A random symmetric matrix is not a kernel, and one rounded to float32 is one up to that rounding
# only.
NO_KERNEL = {
    "check_positive_only_tag_during_fit": "random negative values are no kernel matrix",
    "check_estimators_dtypes": "a float32 product of random matrices is indefinite by more than "
    "float64 rounding",
    "check_regressors_train": "the same, in its float32 part",
}


@pytest.mark.parametrize(
    "estimator",
    [
        RLS(),
        RankRLS("gaussian"),
        RLSCV("gaussian"),
        RankRLSCV(),
    ],
)
def test_conventions_of_scikit_learn(estimator: Any) -> None:
    check_estimator(estimator, on_skip=None)


def test_conventions_of_scikit_learn_with_kernel_matrices() -> None:
    with warnings.catch_warnings():
        # Of some checks that are expected to fail: they are not run where they are the only ones.
        warnings.simplefilter("ignore")
        results = check_estimator(RankRLS("precomputed"), on_skip=None, on_fail=None)
    failed = {result["check_name"] for result in results if result["status"] == "failed"}
    assert failed <= set(NO_KERNEL)


@pytest.mark.parametrize("kernel", ["linear", "gaussian", "polynomial"])
@pytest.mark.parametrize("outputs", [0, slice(None)])
def test_rls_is_kernel_ridge(kernel: str, outputs: Any) -> None:
    names = {"linear": "linear", "gaussian": "rbf", "polynomial": "poly"}
    other = KernelRidge(alpha=0.7, kernel=names[kernel], gamma=0.4, degree=2, coef0=1.5).fit(
        X, Y[:, outputs]
    )
    ours = RLS(kernel, gamma=0.4, degree=2, coef0=1.5, regularization=0.7).fit(X, Y[:, outputs])
    assert_allclose(ours.predict(NEW), other.predict(NEW), rtol=1e-9)
    assert_allclose(ours.dual_coef_, other.dual_coef_, rtol=1e-9)


def minimised(laplacian: Any, regularization: float, kernel: Any) -> Any:
    """Dual coefficients by LPO eq. 6, a = (KLK + λK)⁻¹ KLY, for a kernel of full rank."""
    return np.linalg.solve(laplacian @ kernel + regularization * np.eye(len(kernel)), laplacian @ Y)


def test_rank_rls_minimises_the_loss_of_all_pairs() -> None:
    ours = RankRLS("gaussian", gamma=0.4, regularization=0.7).fit(X, Y)
    kernel = gram(X, kernel="gaussian", gamma=0.4)
    expected = minimised(15 * np.eye(15) - np.ones((15, 15)), 0.7, kernel)
    assert_allclose(ours.dual_coef_, expected, rtol=1e-9)
    scores = kernel @ expected
    assert_allclose(ours.predict(X), scores, rtol=1e-9)
    concordances = [concordance(Y[:, k], scores[:, k]) for k in (0, 1)]
    assert ours.score(X, Y) == pytest.approx(np.mean(concordances))


def test_queries_are_centred_apart() -> None:
    order = np.argsort(QUERIES, kind="stable")
    sizes = np.unique(QUERIES, return_counts=True)[1]
    sorted_blocks = block_diag(*[np.eye(size) - 1 / size for size in sizes])
    laplacian = np.empty((15, 15))
    laplacian[np.ix_(order, order)] = sorted_blocks
    ours = RankRLS("gaussian", gamma=0.4, regularization=0.7).fit(X, Y, groups=QUERIES)
    expected = minimised(laplacian, 0.7, gram(X, kernel="gaussian", gamma=0.4))
    assert_allclose(ours.dual_coef_, expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("estimator", [RLS, RankRLS])
def test_a_path_is_many_trainings(estimator: Any) -> None:
    fitted = estimator("gaussian", gamma=0.4).fit(X, Y)
    expected = [
        estimator("gaussian", gamma=0.4, regularization=λ).fit(X, Y).predict(NEW) for λ in PATH
    ]
    assert_allclose(fitted.predict_path(NEW, PATH), expected, rtol=1e-9)
    single = estimator("gaussian", gamma=0.4).fit(X, Y[:, 0])
    assert_allclose(single.predict_path(NEW, PATH), np.array(expected)[..., 0], rtol=1e-9)


@pytest.mark.parametrize("estimator", [RLS, RankRLS])
def test_forms_of_the_same_examples(estimator: Any) -> None:
    expected = estimator().fit(X, Y).predict(NEW)
    sparse = estimator().fit(scipy.sparse.csr_array(X), Y).predict(scipy.sparse.csr_array(NEW))
    precomputed = estimator("precomputed").fit(X @ X.T, Y).predict(NEW @ X.T)
    assert_allclose(sparse, expected, rtol=1e-12)
    assert_allclose(precomputed, expected, rtol=1e-12)


def test_kernel_matrices_are_split_on_both_sides() -> None:
    grid = {"regularization": [0.1, 1.0]}
    by_kernel = GridSearchCV(RankRLS("precomputed"), grid, cv=3).fit(X @ X.T, Y[:, 0])
    by_examples = GridSearchCV(RankRLS(), grid, cv=3).fit(X, Y[:, 0])
    assert_allclose(
        by_kernel.cv_results_["mean_test_score"], by_examples.cv_results_["mean_test_score"]
    )


def test_kernels_on_graphs_are_split_by_node() -> None:
    ring = Graph(12, np.arange(12), (np.arange(12) + 1) % 12, np.ones(12))
    nodes, values = np.arange(12)[:, None], np.cos(np.arange(12) / 6 * np.pi)
    ranker = RankRLS(
        RegularizedLaplacian(), kernel_params={"graph": ring, "range": 3.0}, regularization=0.1
    )
    held_out = cross_val_predict(ranker, nodes, values, cv=LeaveOneOut())
    assert_allclose(held_out, ranker.fit(nodes, values).leave_one_out(), atol=1e-10)
    assert concordance(values, held_out) > 0.8


def test_features_far_from_the_origin() -> None:
    # The centred kernel is 1e10 times smaller than the kernel, and semidefinite only up to the
    # rounding of the latter.
    far = RankRLS().fit(X + 1e5, Y).predict(NEW + 1e5)
    near = RankRLS().fit(X, Y).predict(NEW)
    assert_allclose(far - far[0], near - near[0], atol=1e-3)


@pytest.mark.parametrize(
    "estimator, data, message",
    [
        (RLS(regularization=0.0), (X, Y), "regularization is 0; it must be positive"),
        (RankRLS(regularization=np.inf), (X, Y), "regularization is inf"),
        (RankRLS(), (X, np.ones(15)), "y is constant: no example"),
        (
            RankRLS(),
            (X, np.repeat([1, 2, 3], 5), np.repeat([1, 2, 3], 5)),
            "y is constant within each group",
        ),
        (RankRLS(), (X, Y, QUERIES[:-1]), "groups has 14 entries for 15 examples"),
        (RankRLS(), (X[:1], Y[:1]), "minimum of 2 is required"),
        (RLS(), (X, Y[:-1]), r"inconsistent numbers of samples: \[15, 14\]"),
        (RLS(), (X, np.full(15, np.nan)), "contains NaN"),
        (RLS("precomputed"), (X @ X.T - np.eye(15), Y), "indefinite.*nearest_semidefinite"),
    ],
)
def test_what_cannot_be_fitted_is_named(
    estimator: Any, data: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        estimator.fit(*data)


@pytest.mark.parametrize("estimator", [RLS, RankRLS])
def test_the_memory_is_named_before_the_start(
    estimator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relpref.limits.available_memory", lambda: 1e3)
    with pytest.raises(DataError, match="a fit to 15 examples needs"):
        estimator().fit(X, Y)
