"""The next questions: limits, batches, ties, and bad input."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import entr, ndtr
from scipy.stats import norm

from relpref.errors import DataError, UnknownLabelError
from relpref.explore import DEFAULT, SCORES, Bald, next_pairs
from relpref.infer import UtilityPosterior
from relpref.posterior.gaussian import DrawsBelief, MixtureBelief


def asked(table: pd.DataFrame) -> list[frozenset[Any]]:
    return [frozenset(pair) for pair in zip(table["first"], table["second"], strict=True)]


def test_every_pair_but_the_answered_ones_once(
    posterior: UtilityPosterior, labels: list[str]
) -> None:
    table = next_pairs(posterior, 100)
    every = {frozenset(pair) for pair in combinations(labels, 2)}
    assert len(table) == len(every) - 2
    assert set(asked(table)) == every - {frozenset({"e0", "e1"}), frozenset({"e1", "e2"})}


COLUMNS = ["first", "second", "score", "probability", "gap_mean", "gap_sd"]


def test_the_table_says_what_prefer_says(posterior: UtilityPosterior) -> None:
    table = next_pairs(posterior, 3)
    assert list(table) == COLUMNS
    assert table.equals(next_pairs(posterior, 3, score=SCORES[DEFAULT]()))
    told = posterior.prefer(list(zip(table["first"], table["second"], strict=True)))
    for column in COLUMNS[3:]:
        assert table[column].to_numpy() == pytest.approx(told[column].to_numpy())


def test_repeats(posterior: UtilityPosterior) -> None:
    pairs = [("e0", "e1"), ("e2", "e1"), ("e3", "e4")]

    def again(**repeats: Any) -> list[list[str]]:
        return sorted(map(sorted, asked(next_pairs(posterior, 9, pairs=pairs, **repeats))))

    assert again() == [["e3", "e4"]]
    assert again(repeats=1) == [["e0", "e1"], ["e3", "e4"], ["e3", "e4"]]
    assert again(repeats=3).count(["e1", "e2"]) == 1  # which was answered three times already


def test_items_and_pairs(posterior: UtilityPosterior) -> None:
    items = ["e7", "e0", "e2", "e7"]
    table = next_pairs(posterior, 99, items=items)
    assert set(asked(table)) == {frozenset(p) for p in combinations(items[:3], 2)}
    pairs = [("e0", "e2"), ("e2", "e0"), ("e5", "e7")]
    assert asked(next_pairs(posterior, 99, items=items, pairs=pairs)) == [{"e0", "e2"}]


def test_avoided_pairs_are_not_asked(posterior: UtilityPosterior) -> None:
    first = next_pairs(posterior)
    pair = (first["second"][0], first["first"][0])
    rest = asked(next_pairs(posterior, 99, avoid=[pair]))
    assert asked(next_pairs(posterior, avoid=[pair])) == rest[:1]
    assert frozenset(pair) not in rest


def test_limit_on_appearances(posterior: UtilityPosterior) -> None:
    # e0 was in one answer, e1 in four, e2 in three, the rest in none.
    table = next_pairs(posterior, 99, most_appearances=2)
    seen = pd.concat([table["first"], table["second"]]).value_counts()
    assert seen.get("e0", 0) <= 1
    assert not {"e1", "e2"} & set(seen.index)
    assert seen.max() == 2
    assert next_pairs(posterior, most_appearances=1, items=["e0", "e1", "e2", "e3"]).empty


def test_difficulty_limit(posterior: UtilityPosterior) -> None:
    every = next_pairs(posterior, 99)
    table = next_pairs(posterior, 99, max_wrong=0.3)
    hard = np.abs(every["probability"] - 0.5) < 0.2
    assert 0 < hard.sum() < len(every)
    assert set(asked(table)) == set(asked(every[~hard]))


@pytest.mark.parametrize("name", ["bald", "variance"])
def test_members_of_a_batch_are_the_best_by_the_covariance_after_those_before(
    name: str, make: Any, labels: list[str]
) -> None:
    """By enumeration of all pairs and both answers; integrals over gaps, and over what means will
    be, by the trapezoidal rule.
    """

    def told(m: float, v: float) -> tuple[float, float]:
        """Of the next answer: what it tells about the gap, in nats, and the variance that is left
        on average.
        """
        x = m + np.sqrt(v) * np.linspace(-9, 9, 2001)
        weights = norm.pdf(x, m, np.sqrt(v)) * (x[1] - x[0])
        given = ndtr([x, -x])
        predictive = given @ weights
        moments = [given @ (weights * x**power) / predictive for power in (1, 2)]
        information = entr(predictive).sum() - (entr(given) @ weights).sum()
        return float(information), float(predictive @ (moments[1] - moments[0] ** 2))

    changed = 0
    for seed in range(4):
        posterior = make(labels, seed)
        mean, covariance = posterior.belief.mean(), posterior.belief.covariance().copy()
        left = [
            pair for pair in combinations(range(len(labels)), 2) if pair not in ((0, 1), (1, 2))
        ]
        batch = next_pairs(posterior, 3, score=name)
        start, orders = covariance.copy(), []
        for at in range(3):
            values = {}
            for i, j in left:
                m, v = mean[i] - mean[j], covariance[i, i] + covariance[j, j] - 2 * covariance[i, j]
                values[i, j] = v if name == "variance" else told(m, v)[0]
            orders.append(sorted(values, key=lambda pair: -values[pair]))
            i, j = orders[-1][0]
            assert asked(batch)[at] == {labels[i], labels[j]}
            assert batch["score"][at] == pytest.approx(values[i, j], rel=1e-5)
            response = covariance[i] - covariance[j]
            v = response[i] - response[j]
            spread = np.sqrt(max(start[i, i] + start[j, j] - 2 * start[i, j] - v, 0.0))
            moves = np.linspace(-6, 6, 61)
            rest = [told(mean[i] - mean[j] + spread * move, v)[1] for move in moves]
            expected = np.average(rest, weights=norm.pdf(moves))
            covariance -= (v - expected) / v**2 * np.outer(response, response)
            left.remove((i, j))
        changed += orders[0][1] != orders[1][0]
    assert changed, "two questions, each the best by itself, would have been the same"


def test_ties_are_broken_by_the_key(make: Any) -> None:
    n = 40
    posterior = make(list(range(n)), mean=np.zeros(n), covariance=np.eye(n))
    for name in ("bald", "ratio"):
        same = [asked(next_pairs(posterior, score=name, rng_key=3))[0] for _ in range(2)]
        assert same[0] == same[1]
        found = [
            sorted(asked(next_pairs(posterior, score=name, rng_key=key))[0]) for key in range(60)
        ]
        # Of 778 pairs: uniform over them, so that the mean position is near the middle (5 standard
        # errors).
        assert len({tuple(pair) for pair in found}) > 40
        assert abs(np.mean(found) - (n - 1) / 2) < 5 * n / np.sqrt(12 * 120)
    assert asked(next_pairs(posterior)) == asked(next_pairs(posterior))


def test_raters(make: Any, labels: list[str]) -> None:
    table = pd.DataFrame({"winner": labels[:2], "loser": labels[1:3], "rater": ["ann", "bob"]})
    posterior = make(labels, answers=table, rater_noise=np.array([0.2, 3.0]))
    ann, bob = (next_pairs(posterior, rater=rater) for rater in ("ann", "bob"))
    assert ann["score"][0] > 2 * bob["score"][0]
    told = posterior.prefer([(ann["first"][0], ann["second"][0])], rater="ann")
    assert ann["probability"][0] == pytest.approx(told["probability"][0])
    with pytest.raises(UnknownLabelError, match="nobody"):
        next_pairs(posterior, rater="nobody")


def test_items_that_are_the_same_to_the_model(make: Any) -> None:
    covariance = np.ones((4, 4)) + np.diag([0.0, 0.0, 0.0, 0.5])
    posterior = make(
        list("abcd"),
        mean=[0, 0, 0, 1.0],
        covariance=covariance,
        answers=pd.DataFrame({"winner": ["a"], "loser": ["b"]}),
    )
    for name in ("ratio", "variance", "bald"):
        assert "d" in asked(next_pairs(posterior, score=name))[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"k": 0}, "k is 0"),
        ({"k": 1.5}, "k is 1.5"),
        ({"score": "best"}, "name one of ratio"),
        ({"score": Bald}, "instance"),
        ({"repeats": -1}, "repeats is -1"),
        ({"most_appearances": 0}, "most_appearances is 0"),
        ({"max_wrong": 0.6}, "max_wrong is 0.6"),
        ({"items": "e1"}, "give a list of labels"),
        ({"items": ["nobody"]}, "nobody"),
        ({"pairs": ["e1"]}, r"pairs\[0\]"),
        ({"pairs": [("e1", "e1")]}, "with itself"),
        ({"avoid": [("e1", "x")]}, "x"),
        (
            {"pairs": pd.DataFrame({"first": ["e1"], "second": ["e2"], "rater": ["ann"]})},
            "pairs is a table with the columns 'first', 'second', 'rater'",
        ),
    ],
)
def test_bad_input(arguments: dict[str, Any], words: str, posterior: UtilityPosterior) -> None:
    with pytest.raises(DataError, match=words):
        next_pairs(posterior, **arguments)


def test_what_the_posterior_lacks(make: Any, labels: list[str]) -> None:
    with pytest.raises(DataError, match="no numbers"):
        next_pairs(make(labels, mean=np.full(len(labels), np.nan)))
    table = pd.DataFrame({"winner": labels[:2], "loser": labels[1:3], "tie": [True, False]})
    with pytest.raises(DataError, match="tie_margin"):
        next_pairs(make(labels, answers=table))


def test_before_the_first_answer(posterior: UtilityPosterior) -> None:
    known = posterior.data.comparisons
    none = replace(known, **{name: column[:0] for name, column in known.columns.items()})
    empty = replace(posterior, data=replace(posterior.data, comparisons=none))
    for name in SCORES:
        assert len(next_pairs(empty, 2, score=name)) == 2
    assert len(next_pairs(empty, 99)) == 36


def test_beliefs_of_every_kind(posterior: UtilityPosterior) -> None:
    """Draws and mixtures are chosen by as the Gaussian of their moments."""
    mean, covariance = posterior.belief.mean(), posterior.belief.covariance()
    draws = np.random.default_rng(0).multivariate_normal(mean, covariance, 20_000)
    same = MixtureBelief(np.stack([mean] * 2), np.stack([covariance] * 2), np.full(2, 0.5))
    expected = next_pairs(posterior, 2)
    for belief in (DrawsBelief(draws), same):
        found = next_pairs(replace(posterior, belief=belief), 2)
        assert asked(found) == asked(expected)
        assert found["score"].to_numpy() == pytest.approx(expected["score"].to_numpy(), rel=0.02)


@pytest.mark.parametrize("name", SCORES)
def test_nothing_is_left(name: str, posterior: UtilityPosterior, labels: list[str]) -> None:
    nothing: list[dict[str, Any]] = [
        {"pairs": []},
        {"items": ["e7"]},
        {"items": []},
        {"avoid": list(combinations(labels, 2))},
    ]
    for limits in nothing:
        table = next_pairs(posterior, 2, score=name, **limits)
        assert table.empty and list(table) == COLUMNS
    assert len(next_pairs(posterior, 2, score=name, pairs=[("e0", "e3")])) == 1
