"""Which of several items to ask about: against all sets, the score of pairs, and how long it
takes.
"""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.special import entr
from scipy.stats import norm

from relpref.errors import DataError, UnknownLabelError
from relpref.explore import next_choices, next_pairs
from relpref.explore.choices import Chances, information
from relpref.likelihoods import Logistic

ITEMS = list("abcdefgh")


@pytest.fixture(scope="module")
def posterior(make: Any) -> Any:
    return make(ITEMS, 3)


def chances(utility: Any, logistic: bool) -> Any:
    """Of each being chosen, at one draw of the utilities of a set."""
    if logistic:
        return np.exp(utility) / np.exp(utility).sum()
    z = np.linspace(-12, 12, 1201)
    below = norm.cdf(z, utility[:, None], np.sqrt(0.5))
    density = norm.pdf(z, utility[:, None], np.sqrt(0.5))
    return np.array(
        [(density[one] * np.delete(below, one, 0).prod(0)).sum() for one in range(len(utility))]
    ) * (z[1] - z[0])


@pytest.mark.parametrize("logistic", [False, True])
def test_probabilities_and_information(logistic: bool) -> None:
    draws = np.random.default_rng(0).normal(0, 1.5, (40, 5))
    found = Chances(draws, "logistic" if logistic else "gaussian").with_each([1, 3])
    assert found.shape == (5, 40, 3)
    expected = np.array([chances(one[[1, 3, 4]], logistic) for one in draws])
    assert found[4] == pytest.approx(expected, abs=1e-6)
    told = entr(expected.mean(axis=0)).sum() - entr(expected).sum(axis=1).mean()
    assert information(found)[4] == pytest.approx(told, abs=1e-6)


def test_two_items_are_a_pair(posterior: Any) -> None:
    """400 draws of 4,000: three standard errors are about 0.01."""
    for labels in combinations("aceh", 2):
        expected = next_pairs(posterior, pairs=[labels], score="bald", repeats=9)["score"][0]
        found = next_choices(posterior, 2, items=labels)
        assert found["items"][0] == labels
        assert found["score"][0] == pytest.approx(expected, abs=0.01)


def test_against_all_sets(posterior: Any) -> None:
    draws = posterior.belief.draw(2000, np.random.default_rng(5))
    sets: list[Any] = list(combinations(range(8), 3))
    told = [
        information(Chances(draws[:, chosen], "gaussian").with_each([0, 1]))[2] for chosen in sets
    ]
    found = next_choices(posterior, 3)
    at = sets.index(tuple(ITEMS.index(label) for label in found["items"][0]))
    assert told[at] > max(told) - 0.02
    assert found["score"][0] == pytest.approx(told[at], abs=0.02)


def test_several_sets_share_nothing(posterior: Any) -> None:
    found = next_choices(posterior, 3, 5, rng_key=1)
    assert len(found) == 2
    assert len({label for one in found["items"] for label in one}) == 6
    again = next_choices(posterior, 3, 5, rng_key=1)
    assert found.equals(again)


def test_logistic_noise(make: Any) -> None:
    other = make(ITEMS, 4, likelihood=Logistic())
    draws = other.belief.draw(4000, np.random.default_rng(2))[:, :3]
    told = information(Chances(draws, "logistic").with_each([0, 1]))[2]
    assert next_choices(other, 3, items=ITEMS[:3])["score"][0] == pytest.approx(told, abs=0.02)


def test_refused(posterior: Any) -> None:
    with pytest.raises(DataError, match="size is 1"):
        next_choices(posterior, 1)
    with pytest.raises(DataError, match="there are 8 items"):
        next_choices(posterior, 9)
    with pytest.raises(UnknownLabelError):
        next_choices(posterior, 2, items=["a", "z"])
