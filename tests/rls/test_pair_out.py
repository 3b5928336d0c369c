"""Leave-pair-out beside an independent implementation, retraining, exact arithmetic, and on
noise.
"""

from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from relpref.errors import DataError
from relpref.rls import RLS, RankRLS
from relpref.rls import spectrum as pair_out

GOLD = Path(__file__).parents[1] / "gold" / "rls.npz"
PATH = [1e-3, 0.5, 20.0]


def all_pairs(result: Any) -> tuple[Any, ...]:
    """First, second and both predictions of all pairs, for one regularisation."""
    blocks = list(result.pairs())
    return tuple(np.concatenate([block[k] for block in blocks]) for k in range(4))


@pytest.mark.parametrize("estimator", [RLS, RankRLS])
def test_gold(estimator: Any) -> None:
    with np.load(GOLD) as gold:
        problem = dict(gold)
    fitted = estimator(
        "gaussian", gamma=float(problem["gamma"]), regularization=float(problem["regularization"])
    )
    first, second, left, right = all_pairs(fitted.fit(problem["X"], problem["y"]).leave_pair_out())
    assert_array_equal([first, second], [problem["i"], problem["j"]])
    name = estimator.__name__.lower()
    expected_left, expected_right = problem[f"{name}_lpo_i"], problem[f"{name}_lpo_j"]
    assert_allclose(left - right, expected_left - expected_right, atol=1e-9)
    if estimator is RLS:
        assert_allclose([left, right], [expected_left, expected_right], atol=1e-9)


@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
@pytest.mark.parametrize("estimator", [RLS, RankRLS])
def test_pairs_by_retraining(estimator: Any, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    monkeypatch.setattr(pair_out, "MAX_PREDICTIONS_AT_ONCE", 500)  # several blocks
    x = rng.normal(size=(30, 4))
    y = np.column_stack([x[:, 0] + rng.normal(size=30), rng.integers(0, 2, 30)])
    blocks = list(estimator(kernel).fit(x, y).leave_pair_out(PATH).pairs())
    pairs = np.concatenate([np.stack([block.first, block.second], axis=1) for block in blocks])
    assert_array_equal(pairs, np.transpose(np.triu_indices(30, 1)))
    found = np.concatenate(
        [np.stack([block.predicted_first, block.predicted_second], axis=2) for block in blocks],
        axis=1,
    )
    for at in rng.permutation(len(pairs))[:20]:
        kept = np.setdiff1d(np.arange(30), pairs[at])
        for λ, predicted in zip(PATH, found[:, at], strict=True):
            again = estimator(kernel, regularization=λ).fit(x[kept], y[kept]).predict(x[pairs[at]])
            assert_allclose(predicted, again, rtol=1e-8, atol=1e-9)


def test_pairs_of_queries_by_retraining() -> None:
    rng = np.random.default_rng(2)
    queries = np.array(
        [5, 5, 1, 2, 2, 2, 3, 3, 3, 3]
    )  # one of them is a pair, one a single example
    x, y = rng.normal(size=(10, 3)), rng.normal(size=10)
    ranker = RankRLS("gaussian", regularization=0.3).fit(x, y, groups=queries)
    result = ranker.leave_pair_out()
    first, second, left, right = all_pairs(result)
    expected = [(i, j) for i, j in combinations(range(10), 2) if queries[i] == queries[j]]
    assert sorted(zip(first, second, strict=True)) == expected
    right_order = []
    for i, j, at_i, at_j in zip(first, second, left, right, strict=True):
        kept = np.setdiff1d(np.arange(10), [i, j])
        again = clone(ranker).fit(x[kept], y[kept], groups=queries[kept]).predict(x[[i, j]])
        assert_allclose([at_i, at_j], again, rtol=1e-8)
        right_order.append((again[0] > again[1]) == (y[i] > y[j]))
    assert result.concordance == pytest.approx(np.mean(right_order))


@pytest.mark.parametrize("size", [1, 40, 2**15])
@pytest.mark.parametrize("estimator", [RLS, RankRLS])
def test_the_concordance_is_that_of_the_pairs(
    estimator: Any, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    monkeypatch.setattr(pair_out, "MAX_HELD_OUT_PAIRS_AT_ONCE", size)
    x = rng.normal(size=(25, 3))
    y = np.column_stack([rng.normal(size=25), rng.integers(0, 3, 25), rng.integers(0, 2, 25)])
    result = estimator("gaussian").fit(x, y).leave_pair_out(PATH)
    blocks = list(result.pairs())
    gap = np.sign(np.concatenate([y[block.first] - y[block.second] for block in blocks]))
    predicted = np.concatenate(
        [block.predicted_first - block.predicted_second for block in blocks], axis=1
    )
    right = np.ma.masked_array(
        gap == np.sign(predicted), np.broadcast_to(gap, predicted.shape) == 0
    )
    assert_allclose(result.concordance, right.mean(axis=1), rtol=1e-12)
    with pytest.raises(DataError, match="output 0 has at least 25; use concordance"):
        _ = result.auc
    binary = estimator("gaussian").fit(x, y[:, 2]).leave_pair_out()
    assert binary.auc == binary.concordance


def test_equal_predictions_count_one_half() -> None:
    # Examples 0 and 1 are identical; and without (0, 3) or (2, 3) nothing is left from which a
    # slope could be learned.
    x = np.array([[1.0], [1.0], [2.0], [4.0]])
    y = np.array([0.0, 1.0, 1.0, 2.0])
    result = RankRLS(regularization=1e-3).fit(x, y).leave_pair_out()
    assert result.concordance == (3 * 0.5 + 2) / 5
    assert RLS().fit(np.zeros((5, 2)), np.arange(5)).leave_pair_out().concordance == 0.5
    constant = RankRLS().fit(x, np.column_stack([np.ones(4), y])).leave_pair_out().concordance
    assert np.isnan(constant[0]) and 0 <= constant[1] <= 1


@pytest.mark.parametrize("estimator", [RLS, RankRLS])
def test_nothing_is_left_of_two_examples(estimator: Any) -> None:
    with pytest.raises(DataError, match="nothing to train on: there are 2 examples"):
        estimator().fit([[1.0], [2.0]], [1.0, 2.0]).leave_pair_out()
    three = estimator().fit([[1.0], [2.0], [5.0]], [1.0, 2.0, 4.0]).leave_pair_out()
    assert 0 <= three.concordance <= 1


def exact_solution(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction]:
    """Gauss-Jordan elimination in rational numbers."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for k in range(len(rows)):
        pivot = next(i for i in range(k, len(rows)) if rows[i][k] != 0)
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [value / rows[k][k] for value in rows[k]]
        for i in range(len(rows)):
            if i != k:
                rows[i] = [a - rows[i][k] * b for a, b in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows]


@pytest.mark.parametrize("regularization", [1e-8, 1e-4])
def test_little_regularization_loses_no_digits(regularization: float) -> None:
    """Against rational arithmetic: LPO eq. 6 without each pair, f = K a with (LK + λI) a = L y."""
    rng = np.random.default_rng(5)
    x, y = np.linspace(0, 3, 8)[:, None], rng.normal(size=8)
    kernel = np.exp(-4.0 * (x - x.T) ** 2)
    ranker = RankRLS("precomputed", regularization=regularization).fit(kernel, y)
    first, second, left, right = all_pairs(ranker.leave_pair_out())
    exact, labels = [[Fraction(v) for v in row] for row in kernel], [Fraction(v) for v in y]
    λ = Fraction(regularization)
    for i, j, gap in zip(first, second, left - right, strict=True):
        kept = [k for k in range(8) if k not in (i, j)]
        mean = [sum((exact[a][b] for a in kept), Fraction(0)) / 6 for b in range(8)]
        system = [[6 * (exact[a][b] - mean[b]) + (λ if a == b else 0) for b in kept] for a in kept]
        centre = sum((labels[a] for a in kept), Fraction(0)) / 6
        dual = exact_solution(system, [6 * (labels[a] - centre) for a in kept])
        expected = sum(
            ((exact[i][a] - exact[j][a]) * c for a, c in zip(kept, dual, strict=True)), Fraction(0)
        )
        assert gap == pytest.approx(float(expected), abs=2e-10)


@pytest.mark.parametrize("regularization", [1e-10, 1e-6])
def test_a_kernel_of_low_rank_with_little_regularization(regularization: float) -> None:
    """Against the primal problem, which does not know the many zero eigenvalues of the kernel;
    identical examples tie.
    """
    rng = np.random.default_rng(7)
    x, y = rng.integers(0, 2, (40, 4)).astype(float), rng.normal(size=40)
    result = RLS(regularization=regularization).fit(x, y).leave_pair_out()
    first, second, left, right = all_pairs(result)
    for i, j, at_i, at_j in list(zip(first, second, left, right, strict=True))[::10]:
        kept = np.setdiff1d(np.arange(40), [i, j])
        penalised = np.concatenate([x[kept], np.sqrt(regularization) * np.eye(4)])
        slope = np.linalg.lstsq(penalised, np.concatenate([y[kept], np.zeros(4)]))[0]
        assert_allclose([at_i, at_j], x[[i, j]] @ slope, atol=1e-12)
    ranker = RankRLS(regularization=regularization).fit(x, y).leave_pair_out()
    _, _, left, right = all_pairs(ranker)
    same = np.all(x[first] == x[second], axis=1)
    assert same.any() and np.abs(left - right)[same].max() < 1e-12
