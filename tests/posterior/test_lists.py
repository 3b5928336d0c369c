"""Choices and orders of several items, against draws and against pairs."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy.special import log_ndtr

from relpref import PreferenceData
from relpref.errors import DataError, UnknownLabelError
from relpref.infer import EP
from relpref.likelihoods import Logistic, Probit
from relpref.likelihoods.orthants import log_ordered
from relpref.models import xpgp

PAIRS = [("a", "b"), ("a", "c"), ("b", "c"), ("d", "a"), ("c", "d"), ("d", "b"), ("a", "b")]


@pytest.fixture(scope="module")
def data() -> PreferenceData:
    return PreferenceData.from_tables(list("abcd"), PAIRS)


@pytest.fixture(scope="module")
def posterior(data: PreferenceData) -> Any:
    return EP(xpgp).run(0, data, progress_bar=False)


def test_ordered() -> None:
    """A chain, a choice, and a tie in the middle, whose rows depend on each other; 1,000,000 draws."""
    rng = np.random.default_rng(0)
    root, mean = rng.normal(size=(3, 4, 4)), 0.5 * rng.normal(size=(3, 4))
    covariance, block = (
        root @ root.transpose(0, 2, 1) + 0.3 * np.eye(4),
        [[0, 1, 2, 3], [1, 1, 0, 1], [1, 2, 1, 0]],
    )
    found = np.exp(log_ordered(mean, covariance, block))
    for at, places in enumerate(np.array(block)):
        seen = rng.multivariate_normal(mean[at], covariance[at], 1_000_000)
        held = np.ones(len(seen), dtype=bool)
        for upper in range(places.max()):
            held &= seen[:, places == upper].min(axis=1) > seen[:, places == upper + 1].max(axis=1)
        error = np.sqrt(found[at] * (1 - found[at]) / len(seen))
        assert found[at] == pytest.approx(held.mean(), abs=3.9 * error + 1e-2 * found[at])


def test_ordered_far_out() -> None:
    """Of fewer numbers in one than in the other; log P(N(0, 2) > 60) is that of 60/√2."""
    mean, block = np.array([[-30.0, 30.0, 0.0], [-30.0, 30.0, 90.0]]), np.array([[0, 1, -1], [0, 1, 2]])
    found = log_ordered(mean, np.broadcast_to(np.eye(3), (2, 3, 3)), block)
    assert found[0] == pytest.approx(log_ndtr(-60 / np.sqrt(2)), rel=1e-12)
    assert -np.inf < found[1] < found[0]


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
