from collections.abc import Callable
from datetime import date
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtr, ndtri

from relpref.data import PreferenceData
from relpref.errors import DataError, UnknownLabelError
from relpref.infer import Posterior, UtilityPosterior
from relpref.posterior.gaussian import Belief, DrawsBelief, GaussianBelief, MixtureBelief

PAIRS = [(f"e{i}", f"e{j}") for i in range(12) for j in range(12)]


def test_what_it_carries(
    posterior: Any, data: PreferenceData, hyperparameters: dict[str, Any]
) -> None:
    assert isinstance(posterior, UtilityPosterior)
    assert isinstance(posterior, Posterior)
    assert posterior.data is data
    assert posterior.slices == {"utility": slice(0, 12)}
    assert set(posterior.hyperparameters) == set(hyperparameters)
    assert isinstance(posterior.hyperparameters["next_amplitude"], float)
    assert isinstance(posterior.log_evidence, float)
    assert {"engine", "result", "iterations", "residual", "damping", "space", "jitter"} <= set(
        posterior.info
    )
    assert repr(posterior).startswith("UtilityPosterior(utility[12]; EP: converged, log evidence -")
    arrays = [posterior.mean(), posterior.covariance(), *posterior.sites.values(), posterior.key]
    assert all(type(array) is np.ndarray for array in arrays)
    assert posterior.mean().dtype == np.float64


def test_the_covariance_is_one_and_smaller_than_the_prior(
    posterior: Any, data: PreferenceData, parts: Callable[..., Any], hyperparameters: dict[str, Any]
) -> None:
    covariance = posterior.covariance()
    assert_array_equal(covariance, covariance.T)
    values = np.linalg.eigvalsh(covariance)
    assert values[0] >= -1e-10 * values[-1]
    prior = sum(parts(data, hyperparameters).values())
    values = np.linalg.eigvalsh(prior - covariance)
    assert values[0] >= -1e-10 * values[-1]


def test_utilities(posterior: Any) -> None:
    table = posterior.utilities(interval=0.8)
    assert list(table.columns) == ["mean", "sd", "lower", "upper"]
    assert table.index.name == "item"
    assert list(table.index) == list(posterior.data.labels)
    assert_array_equal(table["mean"], posterior.mean())
    assert_array_equal(table["sd"], posterior.sd())
    assert_allclose(table["upper"], posterior.mean() + ndtri(0.9) * posterior.sd(), rtol=1e-12)
    assert_allclose(table["lower"], posterior.mean() - ndtri(0.9) * posterior.sd(), rtol=1e-12)


def test_ranking_is_relative_to_the_average(posterior: Any) -> None:
    table = posterior.ranking()
    columns = [
        "mean",
        "sd",
        "lower",
        "upper",
        "expected_rank",
        "rank_lower",
        "rank_upper",
        "p_best",
        "tier",
    ]
    assert list(table.columns) == columns
    assert table.index.name == "item"
    assert sorted(table.index) == sorted(posterior.data.labels)
    assert table["mean"].is_monotonic_decreasing
    centre = np.eye(12) - 1 / 12
    covariance = centre @ posterior.covariance() @ centre
    by_item = table.loc[list(posterior.data.labels)]
    assert_allclose(by_item["mean"], centre @ posterior.mean(), rtol=0, atol=1e-12)
    assert_allclose(by_item["sd"], np.sqrt(np.diag(covariance)), rtol=1e-10)
    half = ndtri(0.95) * by_item["sd"]
    assert_allclose(by_item["upper"] - by_item["mean"], half, rtol=1e-9)
    assert_allclose(by_item["mean"] - by_item["lower"], half, rtol=1e-9)


def test_a_ranking_without_ranks(posterior: Any) -> None:
    table = posterior.ranking(ranks=False)
    pd.testing.assert_frame_equal(table, posterior.ranking()[["mean", "sd", "lower", "upper"]])


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
    gap = mean[None, :] - mean[:, None]
    variance = np.diag(covariance)[None, :] + np.diag(covariance)[:, None] - 2 * covariance
    np.fill_diagonal(variance, 1.0)
    above = ndtr(gap / np.sqrt(variance))
    np.fill_diagonal(above, 0.0)
    # A rank's sd is below 6; 4000 draws give a standard error below 0.1, and 4.5 of them have
    # probability 1e-5.
    assert_allclose(table["expected_rank"], 1 + above.sum(axis=1), rtol=0, atol=0.45)
    assert abs(table["expected_rank"].sum() - 78) <= 1e-9
    assert abs(table["p_best"].sum() - 1) <= 1e-9
    assert table["rank_lower"].dtype.kind == table["rank_upper"].dtype.kind == "i"
    assert (table["rank_lower"] <= table["rank_upper"]).all()
    assert table["rank_lower"].min() == 1
    assert table["rank_upper"].max() <= 12
    draws = np.random.default_rng(1).multivariate_normal(mean, covariance, 40_000)
    best = np.bincount(draws.argmax(axis=1), minlength=12) / 40_000
    assert_allclose(table["p_best"], best, rtol=0, atol=0.04)


def test_intervals_nest_and_are_checked(posterior: Any) -> None:
    narrow, wide = posterior.ranking(interval=0.5), posterior.ranking(interval=0.99)
    assert (wide["lower"] < narrow["lower"]).all()
    assert (wide["rank_lower"] <= narrow["rank_lower"]).all()
    assert (wide["rank_upper"] >= narrow["rank_upper"]).all()
    for interval in (0.0, 1.0, -0.5, 90, np.nan):
        for answer in (posterior.ranking, posterior.utilities):
            with pytest.raises(DataError, match="between 0 and 1"):
                answer(interval=interval)


def test_prefer(posterior: Any) -> None:
    table = posterior.prefer(PAIRS)
    assert list(table.columns) == [
        "first",
        "second",
        "probability",
        "p_better",
        "gap_mean",
        "gap_sd",
    ]
    assert list(zip(table["first"], table["second"], strict=True)) == PAIRS
    mean, covariance = posterior.mean(), posterior.covariance()
    for k, (first, second) in enumerate(PAIRS):
        i, j = int(first[1:]), int(second[1:])
        row = table.iloc[k]
        m = mean[i] - mean[j]
        v = covariance[i, i] + covariance[j, j] - 2 * covariance[i, j]
        assert abs(row["gap_mean"] - m) <= 1e-12
        assert abs(row["gap_sd"] - np.sqrt(v)) <= 1e-9
        assert abs(row["probability"] - ndtr(m / np.sqrt(1 + v))) <= 1e-12
        assert abs(row["p_better"] - (ndtr(m / np.sqrt(v)) if i != j else 0.5)) <= 1e-9


def test_prefer_takes_any_iterable_of_pairs(posterior: Any) -> None:
    assert len(posterior.prefer(iter(PAIRS[:3]))) == 3
    assert len(posterior.prefer([["e0", "e1"]])) == 1
    empty = posterior.prefer([])
    assert list(empty.columns) == list(posterior.prefer(PAIRS).columns)
    assert len(empty) == 0


@pytest.mark.parametrize("pairs", [["e0"], ["ab"], [("e0",)], [("e0", "e1", "e2")], [3]])
def test_pairs_must_be_pairs(posterior: Any, pairs: Any) -> None:
    with pytest.raises(DataError, match=r"pairs\[0\].*two labels"):
        posterior.prefer(pairs)


def test_unknown_labels(posterior: Any) -> None:
    with pytest.raises(UnknownLabelError, match="'e99'"):
        posterior.prefer([("e0", "e1"), ("e99", "e1")])
    with pytest.raises(KeyError, match="0"):
        posterior.prefer([("e0", 0)])


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


def test_keys(posterior: Any, fit: Callable[..., Any], data: PreferenceData) -> None:
    first = posterior.sample(5)
    assert_array_equal(posterior.sample(5), first)
    assert not np.array_equal(posterior.sample(5, rng_key=1), first)
    assert_array_equal(
        posterior.sample(5, rng_key=jax.random.key(4)),
        posterior.sample(5, rng_key=jax.random.PRNGKey(4)),
    )
    pd.testing.assert_frame_equal(posterior.ranking(), posterior.ranking())
    assert not posterior.ranking(rng_key=1)["p_best"].equals(posterior.ranking()["p_best"])
    # The stored key is the one that the engine was given; old-style keys do as well.
    other = fit(data, key=1)
    assert not np.array_equal(other.sample(5), first)
    assert_array_equal(other.mean(), posterior.mean())
    assert_array_equal(posterior.key, jax.random.key_data(jax.random.key(0)))


def test_explain_adds_up_and_is_the_conditional_expectation(
    posterior: Any, data: PreferenceData, parts: Callable[..., Any], hyperparameters: dict[str, Any]
) -> None:
    table = posterior.explain()
    names = ["attributes", "next", "individual"]
    shares = [f"share_{name}" for name in names]
    assert list(table.columns) == [*names, "mean", *shares]
    assert list(table.index) == list(data.labels)
    assert_allclose(table[names].sum(axis=1), table["mean"], rtol=0, atol=1e-9)
    # As the ranking has it: relative to the average of all items.
    ranking = posterior.ranking(ranks=False).loc[table.index]
    assert_allclose(table["mean"], ranking["mean"], rtol=0, atol=1e-12)
    assert_allclose(table[names].mean(), 0.0, rtol=0, atol=1e-12)
    assert_allclose(table[shares].sum(axis=1), 1.0, rtol=0, atol=1e-9)
    prior = parts(data, hyperparameters)
    inverse = np.linalg.inv(sum(prior.values()))
    reduction = inverse - inverse @ posterior.covariance() @ inverse
    for name in names:
        part = prior[name]
        contribution = part @ inverse @ posterior.mean()
        assert_allclose(table[name], contribution - contribution.mean(), rtol=0, atol=1e-9)
        # Cov(part, total): K_p before the answers; the answers remove K_p R K.
        covariance = np.diag(part - part @ reduction @ sum(prior.values()))
        share = covariance / np.diag(posterior.covariance())
        assert_allclose(table[f"share_{name}"], share, rtol=0, atol=1e-9)
        assert_allclose(posterior.parts["utility"].covariances[name], covariance, rtol=0, atol=1e-9)


def test_shares_of_the_spread(posterior: Any) -> None:
    shares = posterior.shares()
    table = posterior.explain()
    assert shares.name == "share"
    assert list(shares.index) == ["attributes", "next", "individual"]
    assert abs(shares.sum() - 1) <= 1e-12
    total = table["mean"]
    for name in shares.index:
        assert abs(shares[name] - np.cov(table[name], total)[0, 1] / total.var()) <= 1e-12


def test_labels_keep_their_types(
    make_data: Callable[..., PreferenceData], fit: Callable[..., Any]
) -> None:
    names = [
        ("a", 1),
        ("a", 2),
        3,
        -4,
        date(2024, 2, 29),
        "e",
        ".",
        "ä",
        1.5,
        False,
        ("b", (1, "c")),
        "f",
    ]
    posterior = fit(make_data(names=names))
    assert set(map(repr, posterior.ranking().index)) == set(map(repr, names))
    for table in (posterior.utilities(), posterior.explain()):
        assert list(map(repr, table.index)) == list(map(repr, names))
    answer = posterior.prefer([(("a", 1), 3), (date(2024, 2, 29), False)])
    assert answer["first"].tolist() == [("a", 1), date(2024, 2, 29)]
    assert answer["second"].tolist() == [3, False]
    plain = fit(make_data()).prefer([("e0", "e2"), ("e4", "e9")])
    assert_allclose(answer["probability"], plain["probability"], rtol=1e-12)
    assert posterior.ranking().loc["e", "sd"] > 0
