"""What the report says of answers beyond winners."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref.likelihoods import Logistic
from relpref.report.subject import Subject

pytestmark = pytest.mark.usefixtures("without_pictures")


def test_ties_raters_and_positions_in_words(make: Any, prose: Any) -> None:
    table = pd.DataFrame(
        {
            "winner": list("abca"),
            "loser": list("bcdb"),
            "tie": [False, True, False, False],
            "strength": [2, None, 1, 1],
            "rater": ["ann", "bob", "ann", "bob"],
            "shown_first": list("abcb"),
        }
    )
    data = make().data.with_comparisons(table)
    values = {
        "tie_margin": 0.5,
        "strength_steps": np.ones(1),
        "rater_noise": np.array([0.6, 1.7]),
        "position_bias": 0.3,
    }
    posterior = make(data, hyperparameters={**make().hyperparameters, **values})
    text = prose(posterior)
    for words in (
        "a tie where it is small and the stronger the larger it is (Glenn and David 1960)",
        "two equals tie in 38% of the answers",
        "rater ann",
        "rater bob",
        "Rater noise: how careless a rater is",
        "The item that is shown first may gain by it.",
        "Ties in Paired-Comparison Experiments",
    ):
        assert words in text
    assert "wins 84%" not in text
    subject = Subject(posterior)
    assert subject.won.tolist()[:4] == [2, 0, 1, 0]  # a tie is won by nobody
    assert subject.asked.tolist()[:4] == [2, 3, 2, 1]


def test_a_tie_is_no_win(make: Any, prose: Any) -> None:
    """An item at the average wins 30 % of its answers outright, where four in ten are ties: it is
    not beaten in 70 %.
    """
    table = pd.DataFrame({"winner": list("abc"), "loser": list("bcd"), "tie": [False, True, False]})
    posterior = make(
        make().data.with_comparisons(table),
        hyperparameters={**make().hyperparameters, "tie_margin": 0.5},
    )
    text = prose(posterior)
    chance = Subject(posterior).beats[0]
    assert (
        f"it wins outright against an average item in {100 * chance:.0f} of 100 answers (a tie is "
        "no win)" in text
    )
    assert "how often the item would win outright against an average one (a tie is no win)" in text
    assert (
        "Wins outright: the probability that an answer favors the item over an average one, where "
        "a tie" in text
    )
    assert (
        "Beats average" not in text and "beats an average" not in text and "would beat" not in text
    )
    decided = prose(make())
    assert "it beats an average item" in decided and "outright" not in decided


def test_many_raters_are_few_rows(make: Any, prose: Any) -> None:
    raters = [f"rater{number:02}" for number in range(30)]
    table = pd.DataFrame({"winner": ["a"] * 30, "loser": ["b"] * 30, "rater": raters})
    noise = 1 + np.arange(30) / 10
    values = {**make().hyperparameters, "rater_noise": noise, "rater_spread": 0.8}
    text = prose(make(make().data.with_comparisons(table), hyperparameters=values))
    assert "24 other raters" in text and "1.30 to 3.60" in text
    assert all(
        (f"rater {label}" in text) == (row < 3 or row > 26) for row, label in enumerate(raters)
    )
    assert "Rater spread: how different raters are" in text


def test_reported_probabilities_and_the_logistic_link(make: Any, prose: Any) -> None:
    table = pd.DataFrame(
        {"first": list("abc"), "second": list("bcd"), "probability": [0.8, 0.5, 0.1]}
    )
    data = make().data.with_comparisons(table)
    posterior = make(data, hyperparameters={**make().hyperparameters, "soft_noise": 0.4})
    assert "A reported probability is Φ of the difference" in prose(posterior)
    assert Subject(posterior).won.tolist()[:4] == [1, 0, 0, 1]
    logistic = prose(make(likelihood=Logistic()))
    assert (
        "the logistic function of the difference of their utilities (Bradley and Terry 1952)."
        in logistic
    )


def test_reports_of_one_opinion_are_not_answered_both_ways(make: Any) -> None:
    """A reported probability below one half prefers the second item."""
    reports = pd.DataFrame(
        [("a", "b", 0.9), ("b", "a", 0.2), ("b", "c", 0.7), ("c", "b", 0.6), ("a", "d", 0.5)],
        columns=["first", "second", "probability"],
    )
    subject = Subject(make(make().data.with_comparisons(reports)))
    assert subject.contradicted == 1 and subject.pairs == 3
    assert subject.won[:4].tolist() == [2, 1, 1, 0]
