"""Choices and orders of several items, against draws and against pairs."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from relpref import PreferenceData
from relpref.errors import DataError, UnknownLabelError
from relpref.infer import EP
from relpref.likelihoods import Logistic, Probit
from relpref.likelihoods.orthants import log_orthant
from relpref.models import xpgp

PAIRS = [("a", "b"), ("a", "c"), ("b", "c"), ("d", "a"), ("c", "d"), ("d", "b"), ("a", "b")]


@pytest.fixture(scope="module")
def data() -> PreferenceData:
    return PreferenceData.from_tables(list("abcd"), PAIRS)


@pytest.fixture(scope="module")
def posterior(data: PreferenceData) -> Any:
    return EP(xpgp).run(0, data, progress_bar=False)


def test_orthants() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 4, 4))
    covariance, mean = root @ root.transpose(0, 2, 1) + 0.3 * np.eye(4), rng.normal(size=(3, 4))
    exact = [
        multivariate_normal(-one, its, seed=1, maxpts=400_000, abseps=1e-7, releps=1e-7).cdf(np.zeros(4))
        for one, its in zip(mean, covariance, strict=True)
    ]
    assert np.exp(log_orthant(mean, covariance)) == pytest.approx(exact, rel=3e-3)
    # Far out, too: of independent numbers it is a product.
    far = log_orthant(np.full((1, 3), -30.0), np.eye(3)[None])
    assert far[0] == pytest.approx(3 * log_orthant([[-30.0]], [[[1.0]]])[0], rel=1e-12)


def test_two_items_are_a_pair(posterior: Any) -> None:
    chances = posterior.choose(["b", "d"])["probability"]
    assert chances["b"] == pytest.approx(posterior.prefer([("b", "d")])["probability"][0], abs=1e-12)
    assert chances.sum() == pytest.approx(1, abs=1e-12)
    assert posterior.order(["b", "d"]) == pytest.approx(chances["b"], abs=1e-12)


@pytest.mark.parametrize("likelihood", [Probit(), Probit(lapse=True), Logistic()])
def test_against_draws(data: PreferenceData, likelihood: Any) -> None:
    """400,000 draws: false alarms in one of 10,000 for each, beside the errors that are promised."""
    posterior: Any = EP(xpgp, hyperparameters="maximize").run(
        0, data, progress_bar=False, likelihood=likelihood
    )
    rng = np.random.default_rng(1)
    seen = posterior.belief.draw(400_000, rng)
    noise = (
        rng.gumbel(size=seen.shape)
        if isinstance(likelihood, Logistic)
        else rng.normal(0, np.sqrt(0.5), seen.shape)
    )
    order = np.argsort(-(seen + noise), axis=1)
    lapse = posterior.hyperparameters.get("lapse", 0.0)
    share = (1 - lapse) * np.bincount(order[:, 0], minlength=4) / len(seen) + lapse / 4
    slack = 0.02 if isinstance(likelihood, Logistic) else 0.003
    chances = posterior.choose(list("abcd"))
    assert chances["probability"].is_monotonic_decreasing
    assert chances["probability"].loc[list("abcd")].to_numpy() == pytest.approx(share, abs=slack)
    assert chances["p_best"].sum() == pytest.approx(1)
    true = (1 - lapse) * np.mean((order == [3, 0, 2, 1]).all(axis=1)) + lapse / 24
    assert posterior.order(["d", "a", "c", "b"]) == pytest.approx(true, abs=slack)


def test_all_orders_add_up(posterior: Any) -> None:
    total = sum(posterior.order(order) for order in permutations("abcd"))
    assert total == pytest.approx(1, abs=1e-3)
    assert posterior.choose(list("abcd"))["probability"].sum() == pytest.approx(1, abs=1e-3)


def test_refused(posterior: Any) -> None:
    with pytest.raises(DataError, match="a list has two items or more, each of them once; got 1"):
        posterior.choose(["a"])
    with pytest.raises(DataError, match="each of them once; got 3"):
        posterior.order(["a", "b", "a"])
    with pytest.raises(UnknownLabelError):
        posterior.choose(["a", "x"])
