"""The models of leaderboards that relpref is compared with."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax

from benchmarks.arena import FACTORS, KINDS, Votes, by_likelihood, log_probabilities, ours

SIZE = 6
PAIRS = np.stack(np.triu_indices(SIZE, 1), axis=1)


def simulated(kind: str) -> tuple[Votes, np.ndarray]:
    rng = np.random.default_rng(0)
    log_p = np.asarray(
        log_probabilities(kind, rng.normal(0, 0.5, SIZE), np.array([-0.5]), PAIRS, 0)
    )
    count = rng.multinomial(4000, softmax(log_p.astype(float), axis=1))
    return Votes([f"m-{number}" for number in range(SIZE)], PAIRS, count), log_p


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_add_up_and_are_found_again(kind: str) -> None:
    given, log_p = simulated(kind)
    assert_allclose(np.exp(log_p).sum(axis=1), 1, atol=1e-5)
    for factors in FACTORS[:2]:
        assert_allclose(by_likelihood(given, kind, factors, given.count), log_p, atol=0.15)


def test_ours_predicts_wins_losses_and_ties_of_the_pairs() -> None:
    given, log_p = simulated("Glenn-David")
    assert_allclose(ours(given, given.count), log_p, atol=0.1)


def test_a_tenth_is_held_out() -> None:
    given, _ = simulated("Davidson")
    known, held = given.split(3)
    assert_array_equal(known + held, given.count)
    assert held.sum() == given.count.sum() // 10 and known.min() >= 0
