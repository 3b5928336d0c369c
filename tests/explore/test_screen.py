"""Where pairs are many: bounded memory, one table for all questions, and the items that take
part.
"""

import tracemalloc
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

from relpref.explore import Bald, Eubo, next_pairs
from relpref.explore.choose import answers_of, screened
from relpref.explore.forecast import Belief


@dataclass(frozen=True)
class FewBald(Bald):
    max_items: ClassVar[int] = 160


@dataclass(frozen=True)
class FewEubo(Eubo):
    max_items: ClassVar[int] = 160


def test_memory_is_bounded(make: Any) -> None:
    n = 1500
    posterior = make(list(range(n)), mean=np.linspace(0, 1, n), covariance=np.eye(n))
    scores = ("bald", "ratio", "eubo", "mutual_information")
    for score in scores:  # what JAX traces the first time is not counted
        next_pairs(posterior, score=score)
    tracemalloc.start()
    for score in scores:
        next_pairs(posterior, score=score)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # One number for each of the pairs would be 9 MB.
    assert peak < 8.5e6


def test_screened_items_are_promising_ones_and_others(make: Any) -> None:
    n = 400
    sd = np.linspace(0.1, 2.0, n)
    mean = np.where(np.arange(n) < 100, 9.0, 0.0)  # the first are the best, and well known
    belief = Belief(mean, np.diag(sd**2) + 3.0)  # a common part that no difference knows of
    everyone = np.arange(n)
    unsure = screened(everyone, belief, FewBald(), np.random.default_rng(0))
    high = screened(everyone, belief, FewEubo(), np.random.default_rng(0))
    for members, promising in ((unsure, everyone[-80:]), (high, everyone[20:100])):
        assert len(set(members)) == 160
        assert np.all(np.diff(members) > 0)
        assert np.isin(promising, members).mean() > 0.95
        others = np.setdiff1d(members, promising)
        assert others.min() < 60
        assert others.max() > 200
    assert len(screened(everyone[:160], belief, FewBald(), np.random.default_rng(0))) == 160


def test_the_next_question_after_screening(make: Any) -> None:
    n = 300
    posterior = make(list(range(n)), mean=np.zeros(n), covariance=np.diag(np.linspace(0.5, 2.0, n)))
    found, whole = next_pairs(posterior, score=FewBald()), next_pairs(posterior, score="bald")
    assert found["score"][0] == pytest.approx(whole["score"][0], rel=1e-6)
    # Listed pairs are never left out.
    table = next_pairs(posterior, 9, score=FewBald(), pairs=[(i, i + 1) for i in range(5, 14)])
    assert len(table) == 9


def test_one_table_until_the_hyperparameters_change(make: Any, labels: list[str]) -> None:
    ties = pd.DataFrame({"winner": labels[:2], "loser": labels[1:3], "tie": [True, False]})
    same = [answers_of(make(labels, seed, answers=ties, tie_margin=0.3)) for seed in (0, 1)]
    assert same[0] is same[1]
    assert answers_of(make(labels, answers=ties, tie_margin=0.31)) is not same[0]


def test_difficulty_of_reported_probabilities(make: Any, labels: list[str]) -> None:
    reports = pd.DataFrame({"first": ["e0"], "second": ["e1"], "probability": [0.7]})
    posterior = make(labels, answers=reports, soft_noise=0.5)
    table = next_pairs(posterior, 99, max_wrong=0.3)
    assert 0 < len(table) < 35
    assert np.all(np.abs(table["probability"] - 0.5) >= 0.2)
