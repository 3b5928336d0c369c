"""Scores against their definitions, pair by pair; what must not matter to them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import entr
from scipy.stats import norm

from relpref.errors import DataError
from relpref.explore import SCORES, Bald, LookAhead, TopK
from relpref.explore.choose import answers_of, best, score_of
from relpref.explore.forecast import Belief, Pool
from relpref.explore.scores import State
from relpref.infer import UtilityPosterior

N = 9
EVERY = np.triu_indices(N, 1)


def state_of(posterior: UtilityPosterior, mean: Any = None, covariance: Any = None) -> State:
    belief = Belief(
        posterior.belief.mean() if mean is None else mean,
        posterior.belief.covariance() if covariance is None else covariance,
    )
    pool = Pool(np.arange(len(belief.mean)), np.zeros((2, 0), dtype=np.int64))
    return State(belief, belief, answers_of(posterior), pool)


def exact(name: str, state: State, pairs: Any = EVERY) -> np.ndarray[Any, Any]:
    return np.asarray(score_of(name).scorer(state).exact(state.belief.gaps(*pairs)))


def test_ratio_and_variance(posterior: UtilityPosterior) -> None:
    state = state_of(posterior)
    gaps = state.belief.gaps(*EVERY)
    assert exact("variance", state) == pytest.approx(gaps.variance)
    assert exact("ratio", state) == pytest.approx(gaps.variance / gaps.mean**2)


def test_before_the_first_answer_the_ratio_takes_the_largest_variance(
    posterior: UtilityPosterior,
) -> None:
    state = state_of(posterior, mean=np.full(N, 0.1) + np.arange(N) * 1e-17)
    gaps, values = best(state, score_of("ratio").scorer(state), None, np.random.default_rng(0))
    assert np.all(np.isposinf(values))
    assert np.all(np.diff(gaps.variance) <= 1e-9)


def test_eubo_is_the_expected_maximum(posterior: UtilityPosterior) -> None:
    state = state_of(posterior)
    draws = np.random.default_rng(0).multivariate_normal(
        state.belief.mean, state.belief.covariance, 100_000
    )
    draws -= state.belief.mean.mean()
    better = np.maximum(draws[:, EVERY[0]], draws[:, EVERY[1]])
    error = better.std(axis=0) / np.sqrt(len(draws))
    # 36 pairs within 4.5 standard errors: a false alarm in 4,000 runs.
    assert np.all(np.abs(exact("eubo", state) - better.mean(axis=0)) < 4.5 * error)


@pytest.mark.parametrize("name", SCORES)
def test_the_best_pair_is_the_best_of_all(name: str, posterior: UtilityPosterior) -> None:
    state = state_of(posterior)
    _, values = best(state, score_of(name).scorer(state), None, np.random.default_rng(0))
    assert values[0] == pytest.approx(exact(name, state).max())
    assert len(values) == len(EVERY[0])


@pytest.mark.parametrize("name", SCORES)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1000))
def test_what_must_not_matter(name: str, seed: int, posterior: UtilityPosterior) -> None:
    """Names, a constant added to all utilities, and which of a pair comes first."""
    state = state_of(posterior)
    rng = np.random.default_rng(seed)
    before = exact(name, state)
    moved = state_of(
        posterior,
        mean=state.belief.mean + rng.normal(),
        covariance=state.belief.covariance + rng.random(),
    )
    assert exact(name, moved) == pytest.approx(before, rel=1e-6, abs=1e-9)
    assert exact(name, state, EVERY[::-1]) == pytest.approx(before, rel=1e-6, abs=1e-9)
    order = rng.permutation(N)
    place = np.argsort(order)
    renamed = state_of(
        posterior,
        mean=state.belief.mean[order],
        covariance=state.belief.covariance[np.ix_(order, order)],
    )
    assert exact(name, renamed, tuple(place[end] for end in EVERY)) == pytest.approx(
        before, rel=1e-6, abs=1e-9
    )


@pytest.mark.parametrize("name", SCORES)
def test_chunks_change_nothing(name: str, posterior: UtilityPosterior) -> None:
    state = state_of(posterior)
    scorer = score_of(name).scorer(state)
    whole, parts = np.full((N, N), np.nan), np.full((N, N), np.nan)
    for target, width in ((whole, 1000), (parts, 7)):
        for gaps, closed in state.pool.blocks(state.belief, width):
            values = np.array(scorer.quick(gaps), dtype=float)
            values.ravel()[closed] = np.nan
            rows, columns = (
                np.broadcast_to(end, values.shape) for end in (gaps.first, gaps.second)
            )
            seen = ~np.isnan(values)
            assert np.all(np.isnan(target[rows[seen], columns[seen]]))
            target[rows[seen], columns[seen]] = values[seen]
    np.testing.assert_allclose(whole, parts, rtol=1e-12)
    assert np.all(np.isfinite(whole[EVERY]))
    assert np.all(np.isnan(whole[np.tril_indices(N)]))


@pytest.mark.parametrize("listed", [None, np.array([[0, 1, 4], [1, 5, 7]])])
def test_mutual_information_is_that_of_the_joint_gaussian(posterior: Any, listed: Any) -> None:
    """The pool is all pairs, or the listed ones; a pair is judged given all others of its pool."""
    pairs = EVERY if listed is None else listed
    state = state_of(posterior)
    state = replace(state, pool=replace(state.pool, listed=listed))
    gaps = state.belief.gaps(*pairs)
    shrinkage = state.answers.shrinkage(gaps)
    precision = shrinkage / (1 - gaps.variance * shrinkage)
    design = np.eye(N)[pairs[0]] - np.eye(N)[pairs[1]]
    joint = design @ state.belief.covariance @ design.T + np.diag(1 / precision)
    # Of one given all others: 1 over the diagonal of the inverse.
    expected = 0.5 * np.log(np.diagonal(joint) * np.diagonal(np.linalg.inv(joint)))
    assert exact("mutual_information", state, pairs) == pytest.approx(expected, rel=1e-5)


def test_in_a_large_pool_only_the_asked_answer_counts(
    posterior: UtilityPosterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = state_of(posterior)
    gaps = state.belief.gaps(*EVERY)
    left = gaps.variance - state.answers.shrinkage(gaps) * gaps.variance**2
    monkeypatch.setattr(SCORES["mutual_information"], "exact_items", N - 1)
    # What an answer takes from the log variance of its gap.
    assert exact("mutual_information", state) == pytest.approx(
        0.5 * np.log(gaps.variance / left), rel=1e-5
    )


def outcomes(state: State, pair: tuple[int, int]) -> list[tuple[float, Belief]]:
    """Probability of each outcome and the belief after it, by the moments of the tilted
    distribution.
    """
    mean, covariance = state.belief.mean, state.belief.covariance
    contrast = np.eye(N)[pair[0]] - np.eye(N)[pair[1]]
    m, v = contrast @ mean, contrast @ covariance @ contrast
    found = []
    for sign in (-1, 1):
        z = sign * m / np.sqrt(1 + v)
        pull = sign * norm.pdf(z) / norm.cdf(z) / np.sqrt(1 + v)
        bend = pull * (pull + m / (1 + v))
        response = covariance @ contrast
        after = Belief(mean + response * pull, covariance - bend * np.outer(response, response))
        found.append((float(norm.cdf(z)), after))
    return found


def test_look_ahead_is_the_best_second_question_after_each_answer(
    posterior: UtilityPosterior,
) -> None:
    state = state_of(posterior)
    values, single = exact("look_ahead", state), exact("bald", state)
    for row in (0, 7, 20):
        expected = single[row]
        for probability, after in outcomes(state, (EVERY[0][row], EVERY[1][row])):
            second = exact("bald", replace(state, belief=after))
            expected += probability * np.delete(second, row).max()
        assert values[row] == pytest.approx(expected, rel=1e-3)


def test_top_k_is_the_information_about_membership(posterior: UtilityPosterior) -> None:
    state = state_of(posterior)
    k = 3
    values = TopK(k).scorer(state).exact(state.belief.gaps(*EVERY))
    order = np.argsort(-state.belief.mean)
    boundary = 0.5 * (np.eye(N)[order[k - 1]] + np.eye(N)[order[k]])

    def doubt(belief: Belief) -> float:
        weights = np.eye(N) - boundary
        z = weights @ belief.mean / np.sqrt(np.diagonal(weights @ belief.covariance @ weights.T))
        return float((entr(norm.cdf(z)) + entr(norm.sf(z))).sum())

    for row in (0, 7, 20):
        after = outcomes(state, (EVERY[0][row], EVERY[1][row]))
        expected = doubt(state.belief) - sum(p * doubt(belief) for p, belief in after)
        assert values[row] == pytest.approx(expected, rel=1e-6, abs=1e-9)
    with pytest.raises(DataError, match="k of TopK is 9"):
        TopK(9).scorer(state)


@pytest.mark.parametrize(
    ("score", "share"), [(Bald(), 0.999), (TopK(10), 0.98), (LookAhead(), 0.95)]
)
def test_the_shortlist_holds_what_is_best(score: Any, share: float, make: Any) -> None:
    """Among 1225 pairs it loses at most a thousandth of the best score, or a little where the quick
    score is another.
    """
    n = 50
    for seed in range(2):
        state = state_of(make(list(range(n)), seed))
        scorer = score.scorer(state)
        every = scorer.exact(state.belief.gaps(*np.triu_indices(n, 1)))
        _, values = best(state, scorer._replace(few=128), None, np.random.default_rng(0))
        assert values[0] > share * every.max()
