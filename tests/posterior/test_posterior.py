from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtr, ndtri

from relpref.data import PreferenceData
from relpref.errors import DataError
from relpref.posterior.gaussian import Belief, DrawsBelief, GaussianBelief, MixtureBelief

PAIRS = [(f"e{i}", f"e{j}") for i in range(12) for j in range(12)]


def test_what_it_carries(posterior: Any, data: PreferenceData) -> None:
    assert posterior.data is data
    assert posterior.slices == {"utility": slice(0, 12)}
    assert isinstance(posterior.hyperparameters["next_amplitude"], float)
    assert {"engine", "result", "iterations", "residual", "damping", "space", "jitter"} <= set(
        posterior.info
    )
    assert repr(posterior).startswith("UtilityPosterior(utility[12]; EP: converged, log evidence -")
    arrays = [posterior.mean(), posterior.covariance(), *posterior.sites.values(), posterior.key]
    assert all(type(array) is np.ndarray for array in arrays)
    assert posterior.mean().dtype == np.float64


def test_utilities(posterior: Any) -> None:
    table = posterior.utilities(interval=0.8)
    assert list(table.columns) == ["mean", "sd", "lower", "upper"]
    assert table.index.name == "item" and list(table.index) == list(posterior.data.labels)
    mean, sd = posterior.mean(), posterior.sd()
    assert_array_equal(table[["mean", "sd"]], np.transpose([mean, sd]))
    ends = mean + ndtri(0.9) * np.stack([-sd, sd])
    assert_allclose(table[["lower", "upper"]], ends.T, rtol=1e-12)


def test_ranking_is_relative_to_the_average(posterior: Any) -> None:
    table = posterior.ranking()
    moments, ranks = (
        ["mean", "sd", "lower", "upper"],
        ["expected_rank", "rank_lower", "rank_upper", "p_best", "tier"],
    )
    assert list(table.columns) == moments + ranks and table.index.name == "item"
    pd.testing.assert_frame_equal(posterior.ranking(ranks=False), table[moments])
    assert sorted(table.index) == sorted(posterior.data.labels)
    assert table["mean"].is_monotonic_decreasing
    centre = np.eye(12) - 1 / 12
    by_item = table.loc[list(posterior.data.labels)]
    mean, sd = (
        centre @ posterior.mean(),
        np.sqrt(np.diag(centre @ posterior.covariance() @ centre)),
    )
    half = ndtri(0.95) * sd
    assert_allclose(by_item[moments], np.transpose([mean, sd, mean - half, mean + half]), atol=1e-9)


def test_beliefs_less_their_average_are_a_projection() -> None:
    rng = np.random.default_rng(0)
    roots = rng.standard_normal((3, 5, 5))
    beliefs: list[Belief] = [
        GaussianBelief(roots[0, 0], roots[0] @ roots[0].T),
        DrawsBelief(roots[1]),
        MixtureBelief(
            roots[:, 0], roots @ roots.transpose(0, 2, 1), np.full(len(roots), 1 / len(roots))
        ),
    ]
    for belief in beliefs:
        expected, found = belief.project(np.eye(5) - 0.2), belief.centred()
        assert_allclose(found.mean(), expected.mean(), atol=1e-12)
        assert_allclose(found.covariance(), expected.covariance(), atol=1e-12)


def test_ranks(posterior: Any) -> None:
    table = posterior.ranking().loc[list(posterior.data.labels)]
    mean, covariance = posterior.mean(), posterior.covariance()
    own = np.diag(covariance)
    variance = own + own[:, None] - 2 * covariance
    np.fill_diagonal(variance, 1.0)
    above = ndtr((mean - mean[:, None]) / np.sqrt(variance))
    np.fill_diagonal(above, 0.0)
    # A rank's sd is below 6; 4000 draws give a standard error below 0.1, and 4.5 of them have
    # probability 1e-5.
    assert_allclose(table["expected_rank"], 1 + above.sum(axis=1), rtol=0, atol=0.45)
    assert abs(table["expected_rank"].sum() - 78) <= 1e-9
    assert abs(table["p_best"].sum() - 1) <= 1e-9
    lower, upper = table["rank_lower"], table["rank_upper"]
    assert lower.dtype.kind == upper.dtype.kind == "i" and (lower <= upper).all()
    assert lower.min() == 1 and upper.max() <= 12
    draws = np.random.default_rng(1).multivariate_normal(mean, covariance, 40_000)
    best = np.bincount(draws.argmax(axis=1), minlength=12) / 40_000
    assert_allclose(table["p_best"], best, rtol=0, atol=0.04)


def test_intervals_nest_and_are_checked(posterior: Any) -> None:
    narrow, wide = posterior.ranking(interval=0.5), posterior.ranking(interval=0.99)
    assert (wide[["lower", "rank_lower"]] <= narrow[["lower", "rank_lower"]]).all(axis=None)
    assert (wide["rank_upper"] >= narrow["rank_upper"]).all()
    for interval in (0.0, 1.0, 90, np.nan):
        for answer in (posterior.ranking, posterior.utilities):
            with pytest.raises(DataError, match="between 0 and 1"):
                answer(interval=interval)


def test_prefer(posterior: Any) -> None:
    table = posterior.prefer(iter(PAIRS))
    columns = ["first", "second", "probability", "p_better", "gap_mean", "gap_sd"]
    assert list(table.columns) == list(posterior.prefer([]).columns) == columns
    assert list(zip(table["first"], table["second"], strict=True)) == PAIRS
    first, second = (np.array([int(pair[end][1:]) for pair in PAIRS]) for end in (0, 1))
    mean, covariance = posterior.mean(), posterior.covariance()
    m, own = mean[first] - mean[second], np.diag(covariance)
    v = own[first] + own[second] - 2 * covariance[first, second]
    assert_allclose(table["gap_mean"], m, rtol=0, atol=1e-12)
    assert_allclose(table["gap_sd"], np.sqrt(v), rtol=0, atol=1e-9)
    assert_allclose(table["probability"], ndtr(m / np.sqrt(1 + v)), rtol=0, atol=1e-12)
    better = np.where(first == second, 0.5, ndtr(m / np.sqrt(np.where(v > 0, v, 1.0))))
    assert_allclose(table["p_better"], better, rtol=0, atol=1e-9)


@pytest.mark.parametrize("pairs", [["e0"], ["ab"], [("e0",)], [("e0", "e1", "e2")], [3]])
def test_pairs_must_be_pairs(posterior: Any, pairs: Any) -> None:
    with pytest.raises(DataError, match=r"pairs\[0\].*two labels"):
        posterior.prefer(pairs)


def test_weights(posterior: Any) -> None:
    weights = np.random.default_rng(0).standard_normal((3, 12))
    assert_allclose(posterior.mean(weights), weights @ posterior.mean(), rtol=1e-12)
    covariance = weights @ posterior.covariance() @ weights.T
    assert_allclose(posterior.covariance(weights), covariance, rtol=1e-10)
    assert_allclose(posterior.sd(weights), np.sqrt(np.diag(covariance)), rtol=1e-10)
    assert posterior.mean(weights[0]).shape == (1,)
    assert_array_equal(posterior.mean(weights[0].tolist()), posterior.mean(weights[:1]))
    for wrong in (np.ones(3), np.ones((2, 11)), np.ones((1, 1, 12))):
        with pytest.raises(DataError, match="12 entries"):
            posterior.mean(wrong)


def test_samples_have_the_moments(posterior: Any) -> None:
    number = 20_000
    draws = posterior.sample(number, rng_key=3)
    assert draws.shape == (number, 12)
    error = (draws.mean(axis=0) - posterior.mean()) / (posterior.sd() / np.sqrt(number))
    assert np.max(np.abs(error)) <= 5  # 12 numbers: probability 7e-6
    scale = np.outer(posterior.sd(), posterior.sd())
    difference = (np.cov(draws, rowvar=False) - posterior.covariance()) / scale
    assert np.max(np.abs(difference)) <= 5.5 * np.sqrt(2 / number)
    weights = np.eye(12)[:2] - np.eye(12)[5]
    assert_allclose(
        posterior.sample(number, rng_key=3, weights=weights), draws @ weights.T, rtol=0, atol=1e-12
    )
    with pytest.raises(DataError, match="num_samples is 0"):
        posterior.sample(0)


def test_keys(posterior: Any) -> None:
    first = posterior.sample(5)
    assert_array_equal(posterior.sample(5), first)
    assert not np.array_equal(posterior.sample(5, rng_key=1), first)
    new, old = jax.random.key(4), jax.random.PRNGKey(4)
    assert_array_equal(posterior.sample(5, rng_key=new), posterior.sample(5, rng_key=old))
    pd.testing.assert_frame_equal(posterior.ranking(), posterior.ranking())
    assert not posterior.ranking(rng_key=1)["p_best"].equals(posterior.ranking()["p_best"])
    # The stored key is the one that the engine was given.
    assert_array_equal(posterior.key, jax.random.key_data(jax.random.key(0)))
    other = replace(posterior, key=jax.random.key_data(jax.random.key(1)))
    assert not np.array_equal(other.sample(5), first)


def test_explain_adds_up_and_is_the_conditional_expectation(
    posterior: Any, data: PreferenceData, parts: Any, hyperparameters: dict[str, Any]
) -> None:
    table = posterior.explain()
    prior = parts(data, hyperparameters)
    shares = [f"share_{name}" for name in prior]
    assert list(table.columns) == [*prior, "mean", *shares]
    assert list(table.index) == list(data.labels)
    assert_allclose(table[list(prior)].sum(axis=1), table["mean"], rtol=0, atol=1e-9)
    # As the ranking has it: relative to the average of all items.
    ranking = posterior.ranking(ranks=False).loc[table.index]
    assert_allclose(table["mean"], ranking["mean"], rtol=0, atol=1e-12)
    assert_allclose(table[shares].sum(axis=1), 1.0, rtol=0, atol=1e-9)
    total = sum(prior.values())
    inverse, known = np.linalg.inv(total), posterior.covariance()
    reduction = inverse - inverse @ known @ inverse
    for name, part in prior.items():
        contribution = part @ inverse @ posterior.mean()
        assert_allclose(table[name], contribution - contribution.mean(), rtol=0, atol=1e-9)
        # Cov(part, total): K_p before the answers; the answers remove K_p R K.
        covariance = np.diag(part - part @ reduction @ total)
        share = covariance / np.diag(known)
        assert_allclose(table[f"share_{name}"], share, rtol=0, atol=1e-9)
        assert_allclose(posterior.parts["utility"].covariances[name], covariance, rtol=0, atol=1e-9)


def test_shares_of_the_spread(posterior: Any) -> None:
    shares, table = posterior.shares(), posterior.explain()
    assert shares.name == "share" and abs(shares.sum() - 1) <= 1e-12
    assert list(shares.index) == ["attributes", "next", "individual"]
    covariances = np.cov(table[[*shares.index, "mean"]], rowvar=False)[-1]
    assert_allclose(shares, covariances[:-1] / covariances[-1], atol=1e-12)
