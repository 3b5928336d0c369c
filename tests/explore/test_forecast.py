"""What an answer tells, against integrals by another rule and against the belief that it leaves
behind.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import entr, expit, ndtr
from scipy.stats import norm

from relpref.explore.choose import answers_of
from relpref.explore.forecast import AnswerForecast, Gaps
from relpref.likelihoods import Logistic, Probit

MEANS = np.array([0.0, 0.3, -1.4, 2.5, -4.0, 0.7])
VARIANCES = np.array([1e-4, 0.5, 2.0, 40.0, 0.01, 900.0])
GRADES = {
    "winner": ["a", "b", "c"],
    "loser": ["b", "c", "a"],
    "strength": [2, 1, 0],
    "tie": [False, False, True],
}
STRENGTHS = {"winner": ["a", "b"], "loser": ["b", "c"], "strength": [2, 1]}
RATERS = {"winner": ["a", "b"], "loser": ["b", "c"], "rater": ["ann", "bob"]}
GROUPS = {"winner": ["a", "b"], "loser": ["b", "c"], "group": ["q", "q"]}
REPORTS = {"first": ["a"], "second": ["b"], "probability": [0.7]}


def cut(gap: Any, thresholds: list[float], below: Any = ndtr) -> Any:
    """Probabilities of the grades, of noise with the distribution function ``below``."""
    ends = np.array([-np.inf, *(-t for t in reversed(thresholds)), *thresholds, np.inf])
    return np.diff(below(ends[:, None] - gap), axis=0)


CASES: dict[str, tuple[Any, dict[str, Any], Any, Callable[[Any], Any]]] = {
    "winners": (None, {}, None, lambda x: ndtr([x, -x])),
    "logistic": (None, {"likelihood": Logistic()}, None, lambda x: expit([x, -x])),
    "grades": (
        GRADES,
        {"tie_margin": 0.6, "strength_steps": np.array([1.5])},
        None,
        lambda x: cut(x, [0.6, 2.1]),
    ),
    "lapses": (
        None,
        {"likelihood": Probit(lapse=True), "lapse": 0.1},
        None,
        lambda x: 0.05 + 0.9 * ndtr([x, -x]),
    ),
    "groups": (
        GROUPS,
        {"group_sd": 0.8},
        None,
        lambda x: ndtr(np.array([x, -x]) / np.hypot(1, 0.8)),
    ),
    "lapses in groups": (
        GROUPS,
        {"likelihood": Probit(lapse=True), "lapse": 0.1, "group_sd": 2.0},
        None,
        lambda x: 0.05 + 0.9 * ndtr(np.array([x, -x]) / np.hypot(1, 2.0)),
    ),
    "rater": (
        RATERS,
        {"rater_noise": np.array([0.4, 2.0])},
        "bob",
        lambda x: ndtr([x / 2, -x / 2]),
    ),
}


@pytest.fixture(
    params=[pytest.param(name, marks=[pytest.mark.slow] * (name == "logistic")) for name in CASES]
)
def case(request: pytest.FixtureRequest, make: Any) -> tuple[AnswerForecast, Any]:
    table, options, rater, chances = CASES[request.param]
    answers = None if table is None else pd.DataFrame(table)
    posterior = make(["a", "b", "c"], answers=answers, **options)
    return answers_of(posterior, rater), chances


def average(values: Any, mean: float, variance: float) -> Any:
    """Under N(mean, variance), of values at `fine`, by a trapezoidal rule that is far finer than
    either factor.
    """
    weights = norm.pdf(fine(mean, variance), mean, np.sqrt(variance))
    return np.trapezoid(values * weights, fine(mean, variance), axis=-1)


def fine(mean: float, variance: float) -> Any:
    sd = np.sqrt(variance)
    return np.linspace(mean - 9 * sd, mean + 9 * sd, 4001)


def test_information_and_shrinkage_are_those_of_quadrature(
    case: tuple[AnswerForecast, Any],
) -> None:
    answers, chances = case
    found, information = (
        answers.forecast(MEANS, VARIANCES),
        answers.exact_information(MEANS, VARIANCES),
    )
    for row, (mean, variance) in enumerate(zip(MEANS, VARIANCES, strict=True)):
        x = fine(mean, variance)
        given = chances(x)
        predictive = average(given, mean, variance)
        expected = average(entr(given).sum(axis=0), mean, variance)
        assert information[row] == pytest.approx(entr(predictive).sum() - expected, abs=2e-8)
        assert sorted(p for p in found.probability[:, row] if p) == pytest.approx(
            sorted(p for p in predictive if p), abs=1e-9
        )
        # The variance that is left on average, from the tilted moments themselves.
        left = 0.0
        for outcome, weight in enumerate(predictive):
            if weight > 1e-12:
                first, second = (
                    average(given[outcome] * x**power, mean, variance) / weight for power in (1, 2)
                )
                left += weight * (second - first**2)
        assert variance - found.shrinkage[row] * variance**2 == pytest.approx(left, rel=1e-4)


def test_ties_that_cannot_be_under_logistic_noise(make: Any) -> None:
    options = {"likelihood": Logistic(), "strength_steps": np.array([1.5])}
    posterior = make(["a", "b", "c"], answers=pd.DataFrame(STRENGTHS), **options)
    case = answers_of(posterior), lambda x: cut(x, [0.0, 1.5], expit)
    test_information_and_shrinkage_are_those_of_quadrature(case)
    assert len(posterior.next_pairs(1)) == 1


def test_the_belief_after_an_answer_is_on_average_the_one_before(
    case: tuple[AnswerForecast, Any],
) -> None:
    found = case[0].forecast(MEANS, VARIANCES)
    assert found.probability.sum(axis=0) == pytest.approx(np.ones(6), abs=1e-12)
    assert (found.probability * found.gradient).sum(axis=0) == pytest.approx(np.zeros(6), abs=1e-9)
    spread = (found.probability * found.gradient**2).sum(axis=0)
    assert spread == pytest.approx(found.shrinkage, rel=1e-6)
    # No answer about one and the same item tells anything.
    information = case[0].exact_information(np.array([0.0, 1.0]), np.zeros(2))
    assert information == pytest.approx(np.zeros(2), abs=1e-12)


def test_the_table_is_near(case: tuple[AnswerForecast, Any]) -> None:
    answers, _ = case
    rng = np.random.default_rng(0)
    mean = rng.normal(size=400) * 3
    variance = rng.gamma(0.5, 2.0, size=400) * 10.0 ** rng.integers(-6, 2, size=400)
    gaps, exact = (
        Gaps(np.zeros(0, int), np.zeros(0, int), mean, variance),
        answers.forecast(mean, variance),
    )
    near = np.abs(mean) < 3 * np.sqrt(1 + variance)
    information = answers.exact_information(mean, variance)
    assert answers.information(gaps)[near] == pytest.approx(information[near], rel=4e-3, abs=2e-6)
    # With lapses it has a small hump where it falls to 0, of which a table with coarse steps misses
    # up to a hundredth.
    slack = 1e-4 if isinstance(answers.model, Probit) and answers.model.lapse else 1e-12
    assert answers.shrinkage(gaps)[near] == pytest.approx(
        exact.shrinkage[near], rel=4e-3, abs=slack
    )
    assert answers.decided(gaps) == pytest.approx(np.abs(exact.favored - 0.5), abs=5e-4)


def test_reports_of_probabilities_are_gaussian(make: Any) -> None:
    answers = answers_of(make(["a", "b", "c"], answers=pd.DataFrame(REPORTS), soft_noise=0.5))
    found = answers.forecast(MEANS, VARIANCES)
    gaps = Gaps(np.zeros(0, int), np.zeros(0, int), MEANS, VARIANCES)
    information = answers.exact_information(MEANS, VARIANCES)
    assert information == pytest.approx(0.5 * np.log(1 + VARIANCES / 0.25))
    assert answers.information(gaps) == pytest.approx(information)
    assert answers.shrinkage(gaps) == pytest.approx(found.shrinkage)
    left = VARIANCES - found.shrinkage * VARIANCES**2
    assert left == pytest.approx(1 / (1 / VARIANCES + 1 / 0.25))
    assert (found.probability * found.gradient**2).sum(axis=0) == pytest.approx(found.shrinkage)
