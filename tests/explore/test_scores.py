"""Scores against their definitions, pair by pair; what must not matter to them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relpref.explore import SCORES
from relpref.explore.choose import answers_of, score_of
from relpref.explore.gaps import Belief, Gaps, Pool
from relpref.explore.scores import State
from relpref.explore.select import best
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


def test_gaps_are_those_of_the_posterior(posterior: UtilityPosterior) -> None:
    gaps = state_of(posterior).belief.gaps(*EVERY)
    margins = posterior.belief.differences(*EVERY)
    assert gaps.mean == pytest.approx(margins.mean)
    assert gaps.variance == pytest.approx(margins.sd**2)


def test_ratio_and_variance(posterior: UtilityPosterior) -> None:
    state = state_of(posterior)
    gaps = state.belief.gaps(*EVERY)
    assert exact("variance", state) == pytest.approx(gaps.variance)
    assert exact("ratio", state) == pytest.approx(gaps.variance / gaps.mean**2)


def test_before_the_first_answer_the_ratio_takes_the_largest_variance(posterior: UtilityPosterior) -> None:
    state = state_of(posterior, mean=np.full(N, 0.1) + np.arange(N) * 1e-17)
    gaps, values = best(state, score_of("ratio").scorer(state), None, np.random.default_rng(0))
    assert np.all(np.isposinf(values))
    assert np.all(np.diff(gaps.variance) <= 1e-9)


def test_eubo_is_the_expected_maximum(posterior: UtilityPosterior) -> None:
    state = state_of(posterior)
    draws = np.random.default_rng(0).multivariate_normal(state.belief.mean, state.belief.covariance, 100_000)
    draws -= state.belief.mean.mean()
    better = np.maximum(draws[:, EVERY[0]], draws[:, EVERY[1]])
    error = better.std(axis=0) / np.sqrt(len(draws))
    # 36 pairs within 4.5 standard errors: a false alarm in 4 000 runs.
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
        posterior, mean=state.belief.mean + rng.normal(), covariance=state.belief.covariance + rng.random()
    )
    assert exact(name, moved) == pytest.approx(before, rel=1e-6, abs=1e-9)
    assert exact(name, state, EVERY[::-1]) == pytest.approx(before, rel=1e-6, abs=1e-9)
    order = rng.permutation(N)
    place = np.argsort(order)
    renamed = state_of(
        posterior, mean=state.belief.mean[order], covariance=state.belief.covariance[np.ix_(order, order)]
    )
    assert exact(name, renamed, tuple(place[end] for end in EVERY)) == pytest.approx(
        before, rel=1e-6, abs=1e-9
    )


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("size", [1, 7, 20])
def test_chunks_change_nothing(
    name: str, size: int, posterior: UtilityPosterior, make: Callable[..., UtilityPosterior]
) -> None:
    state = state_of(posterior)
    scorer = score_of(name).scorer(state)
    whole, parts = np.full((N, N), np.nan), np.full((N, N), np.nan)
    for target, width in ((whole, 1000), (parts, size)):
        for gaps, closed in state.pool.blocks(state.belief, width):
            values = np.array(scorer.quick(gaps), dtype=float)
            values.ravel()[closed] = np.nan
            rows, columns = (np.broadcast_to(end, values.shape) for end in (gaps.first, gaps.second))
            seen = ~np.isnan(values)
            assert np.all(np.isnan(target[rows[seen], columns[seen]]))
            target[rows[seen], columns[seen]] = values[seen]
    assert np.array_equal(whole, parts, equal_nan=True)
    assert np.all(np.isfinite(whole[EVERY]))
    assert np.all(np.isnan(whole[np.tril_indices(N)]))


def test_the_expected_covariance_is_that_of_all_answers(posterior: UtilityPosterior) -> None:
    state = state_of(posterior)
    gaps = state.belief.gaps(np.array([2]), np.array([5]))
    found = state.answers.forecast(gaps.mean, gaps.variance)
    response = state.belief.responses(gaps)[0]
    expected = sum(
        p * (state.belief.covariance - curvature * np.outer(response, response))
        for p, curvature in zip(found.probability[:, 0], found.curvature[:, 0], strict=True)
    )
    after = state.belief.after(2, 5, float(found.shrinkage[0]))
    assert after.covariance == pytest.approx(expected)
    assert isinstance(gaps, Gaps)
