"""What diagnostics say without a matrix of all items is what they say with one."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref.data import PreferenceData
from relpref.diagnostics import certify, check, influence, k_fold, leave_one_out, raters
from relpref.errors import DataError
from relpref.infer import EP, UtilityPosterior
from relpref.infer.large import problem as large_problem
from relpref.infer.large.problem import answered
from relpref.models import xpgp

N, M = 40, 24
FIXED = {
    "attributes_amplitude": 1.2,
    "attributes_lengthscale": 0.9,
    "attributes_linear_share": 0.5,
    "cites_amplitude": 0.8,
    "cites_range": 0.7,
    "individual_amplitude": 0.6,
    "rater_noise": [1.0, 1.3],
}


@pytest.fixture(scope="module")
def data() -> PreferenceData:
    """A ring, and answers by two raters about half of it."""
    rng = np.random.default_rng(4)
    labels = np.array([f"e{row}" for row in range(N)])
    items = pd.DataFrame({"x": rng.standard_normal(N)}, index=labels)
    links = pd.DataFrame({"source": labels, "target": np.roll(labels, -1)})
    first = rng.integers(0, N // 2, M)
    second = (first + rng.integers(1, N // 2, M)) % (N // 2)
    answers = pd.DataFrame(
        {
            "winner": labels[2 * first],
            "loser": labels[2 * second],
            "rater": np.where(np.arange(M) % 2, "ann", "ben"),
        }
    )
    return PreferenceData.from_tables(items, answers, {"cites": links})


def fitted(data: PreferenceData, structure: Any) -> Any:
    engine = EP(xpgp, fixed=FIXED, structure=structure, check=False)
    return engine.run(0, data, normalize=False)


@pytest.fixture(scope="module")
def sparse(data: PreferenceData) -> Any:
    return fitted(data, "sparse")


@pytest.fixture(scope="module")
def dense(data: PreferenceData) -> Any:
    return fitted(data, "dense")


def close(one: Any, other: Any) -> None:
    np.testing.assert_allclose(np.asarray(one), np.asarray(other), atol=1e-4)


def test_answered_is_the_posterior_of_a_program(sparse: UtilityPosterior) -> None:
    some = answered(sparse)
    assert some.data.num_comparisons == sparse.data.num_comparisons
    assert some.origin is not None and some.origin.args[0] is some.data
    close(some.belief.covariance(), sparse.subset(some.data.labels).belief.covariance())
    assert answered(some) is some


def test_too_many_are_refused(sparse: UtilityPosterior, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_problem, "MAX_ITEMS_OF_ANSWERS", 5)
    for ask in (leave_one_out, raters, influence, k_fold, certify, check):
        with pytest.raises(DataError, match="select_comparisons.*subset"):
            ask(sparse)
    more = sparse.data.comparisons.table(sparse.data.labels)[:1]
    with pytest.raises(DataError, match="quick"):
        leave_one_out(sparse.update(more, quick=True))


@pytest.mark.slow
def test_answers_left_out(dense: UtilityPosterior, sparse: UtilityPosterior) -> None:
    one, other = (leave_one_out(posterior).table for posterior in (dense, sparse))
    assert list(one["winner"]) == list(other["winner"])
    close(other["log_score"], one["log_score"])
    close(raters(sparse)["z"].sort_index(), raters(dense)["z"].sort_index())
    moved, known = influence(sparse), influence(dense)
    close(moved["log_score"], known["log_score"])
    assert set(moved["item"]) <= set(sparse.data.labels)


@pytest.mark.slow
def test_folds_and_certificates(dense: UtilityPosterior, sparse: UtilityPosterior) -> None:
    one, other = (k_fold(posterior, 2) for posterior in (dense, sparse))
    assert other.method.endswith("hyperparameters kept")
    close(other.table["log_score"], one.table["log_score"])
    assert certify(sparse, 400).verdict == "good"
    assert check(sparse).ok
