"""The stopping rule against quadrature and against simulated answers; the words for people."""

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from relpref.errors import DataError, UnknownLabelError
from relpref.explore import DEFAULT, SCORES, ExpectedGain, expected_gain, next_pairs, why
from relpref.explore.choose import Asked, Limits, plan
from relpref.explore.stopping import _wrong
from relpref.infer import UtilityPosterior


@pytest.mark.parametrize(
    ("mean", "variance", "rest"),
    [(0.0, 1.0, 0.3), (0.7, 2.0, 1.9), (-1.5, 0.4, 0.01), (2.0, 9.0, 4.0)],
)
def test_the_share_after_is_the_average_over_what_the_mean_will_be(
    mean: float, variance: float, rest: float
) -> None:
    spread = np.sqrt(variance - rest)

    def wrong(m: float) -> float:
        return float(norm.cdf(-abs(m) / np.sqrt(rest)) * norm.pdf(m, mean, spread))

    ends = sorted(
        {mean - 9 * spread, min(max(0.0, mean - 9 * spread), mean + 9 * spread), mean + 9 * spread}
    )
    expected = sum(quad(wrong, a, b, epsabs=1e-12)[0] for a, b in pairwise(ends))
    arrays = (np.array([x]) for x in (mean, variance, rest))
    assert _wrong(*arrays)[0] == pytest.approx(expected, abs=1e-9)


def test_the_ends_of_the_formula() -> None:
    mean, variance = np.array([0.0, 0.5, -3.0, 1.0]), np.array([1.0, 2.0, 3.0, 0.0])
    now = _wrong(mean, variance, variance)
    assert now[:3] == pytest.approx(norm.cdf(-np.abs(mean[:3]) / np.sqrt(variance[:3])), rel=1e-14)
    assert now[[0, 3]].tolist() == [0.5, 0.0]
    assert _wrong(mean, variance, 0 * variance) == pytest.approx(np.zeros(4))


def test_worth_is_what_simulated_answers_bring(posterior: UtilityPosterior) -> None:
    """Truths drawn from the belief, answers from the truths; each answer moves the belief by its
    tilted moments.
    """
    answers, runs = 8, 3000
    found = expected_gain(posterior, answers, repeats=9)
    questions = plan(posterior, answers, DEFAULT, Limits(repeats=9), None, None).questions
    rng = np.random.default_rng(0)
    start, covariance = posterior.belief.mean(), posterior.belief.covariance()
    n = len(start)
    truth = rng.multivariate_normal(start, covariance, runs)
    mean, spread = np.tile(start, (runs, 1)), np.tile(covariance, (runs, 1, 1))
    for first, second, _ in questions:
        response = spread[:, first] - spread[:, second]
        v = response[:, first] - response[:, second]
        sign = np.where(
            truth[:, first] - truth[:, second] + rng.standard_normal(runs) > 0, 1.0, -1.0
        )
        z = sign * (mean[:, first] - mean[:, second]) / np.sqrt(1 + v)
        mills = norm.pdf(z) / norm.cdf(z)
        mean += response * (sign * mills / np.sqrt(1 + v))[:, None]
        spread -= np.einsum("r,ri,rj->rij", mills * (mills + z) / (1 + v), response, response)
    i, j = np.triu_indices(n, 1)
    order = np.sign(truth[:, i] - truth[:, j])
    # The share before is exact: within 4 standard errors (a false alarm in 15,000 seeds). That
    # after rests on the expected covariance and on a Gaussian for the mean: within a twentieth of
    # itself besides.
    for expected, known, slack in (
        (found.wrong_now, start[None], 0.0),
        (found.wrong_after, mean, 0.05),
    ):
        shares = (order != np.sign(known[:, i] - known[:, j])).mean(axis=1)
        error = shares.std() / np.sqrt(runs)
        assert abs(shares.mean() - expected) < 4 * error + slack * expected
    assert found.wrong_after < 0.9 * found.wrong_now


def test_the_missing_answers_are_about_those_that_it_takes(make: Any) -> None:
    """One question after the other, answered from a truth that is drawn from the prior."""
    n, rng = 10, np.random.default_rng(3)
    mean, covariance = np.zeros(n), 4 * np.eye(n)
    truth = rng.multivariate_normal(mean, covariance)
    rows, said = [(0, 1)], {}
    while True:
        table = pd.DataFrame(rows, columns=["winner", "loser"])
        posterior = make(list(range(n)), mean=mean, covariance=covariance, answers=table)
        found = expected_gain(posterior, 1, repeats=3)
        said[len(rows)] = found.missing
        if found.enough():
            break
        question = next_pairs(posterior, repeats=3)
        first, second = question["first"][0], question["second"][0]
        if truth[first] - truth[second] + rng.standard_normal() < 0:
            first, second = second, first
        rows.append((first, second))
        response = covariance[:, first] - covariance[:, second]
        v = response[first] - response[second]
        z = (mean[first] - mean[second]) / np.sqrt(1 + v)
        mills = norm.pdf(z) / norm.cdf(z)
        mean = mean + response * mills / np.sqrt(1 + v)
        covariance = covariance - mills * (mills + z) / (1 + v) * np.outer(response, response)
    end = len(rows)
    assert end > 15 and said[end] == 0
    for answers in (4, 8, 12):
        missing = said[answers]
        assert missing is not None and 0.5 < missing / (end - answers) < 2, (answers, missing, end)


def test_the_rule_and_its_words(posterior: UtilityPosterior) -> None:
    found = expected_gain(posterior, 10)
    assert found.sentence.startswith(f"About {found.wrong_now:.1%} of all pairs")
    assert "10 more answers" in found.sentence
    reached = expected_gain(posterior, 10, goal=found.wrong_now)
    assert reached.enough() and reached.missing == 0 and "you can stop here" in reached.sentence
    nothing = expected_gain(posterior, pairs=[])
    assert nothing == ExpectedGain(0, found.wrong_now, found.wrong_now, stalled=True)
    assert not nothing.enough()
    assert "no new pair is left" in nothing.sentence
    with pytest.raises(DataError, match="answers is 0"):
        expected_gain(posterior, 0)
    for goal in (0.0, 0.5, 5):
        with pytest.raises(DataError, match="goal is"):
            expected_gain(posterior, goal=goal)
    for top in (0, 9, 2.5):
        with pytest.raises(DataError, match="top is"):
            expected_gain(posterior, top=top)  # type: ignore[arg-type]


def test_little_to_gain_is_not_enough(make: Any) -> None:
    """Items of one utility never settle: a third of the pairs in the wrong order was once called
    enough.
    """
    n = 12

    def found(covariance: Any, **options: Any) -> ExpectedGain:
        posterior = make(list(range(n)), mean=np.zeros(n), covariance=covariance)
        return expected_gain(posterior, **options)

    tied = found(0.9999 + 0.0001 * np.eye(n))  # next to the noise of an answer the gaps are small
    assert tied.gain < 0.005 and tied.wrong_now > 1 / 3
    assert not tied.enough() and tied.stalled and tied.missing is None
    assert "That is too slow to say when the goal of 10% is reached." in tied.sentence
    assert "stop" not in tied.sentence
    apart = found(4 * np.eye(n))
    assert not apart.enough() and not apart.stalled and apart.missing is not None
    assert apart.sentence.endswith("more would reach the goal of 10%.")
    few = found(4 * np.eye(n), pairs=[(3, 4), (5, 6)])
    assert few.answers == 2 and few.stalled and few.missing is None
    assert few.few and "too slow" not in few.sentence
    assert few.sentence.endswith("The new pairs are too few to reach the goal of 10%.")


def test_the_best_may_be_known_when_the_order_is_not(make: Any) -> None:
    mean = np.array([4.0, 3.8, 0.1, 0.0, -0.1, 0.0, 0.1, 0.0])
    posterior = make(list(range(8)), mean=mean, covariance=0.3 * np.eye(8))
    assert not expected_gain(posterior).enough()
    settled = expected_gain(posterior, top=2)
    assert (
        settled.enough()
        and "of the 2 that lead are expected not to be among the best 2" in settled.sentence
    )
    assert not expected_gain(posterior, top=1).enough()
    rng = np.random.default_rng(0)
    for top in (1, 2, 4):
        leading = np.argsort(-mean, kind="stable")[:top]
        drawn = np.argsort(-rng.multivariate_normal(mean, 0.3 * np.eye(8), 20_000), axis=1)[:, :top]
        wrong = 1 - np.isin(drawn, leading).mean()
        # The boundary is that of the means: an approximation where many are near it.
        assert expected_gain(posterior, top=top).wrong_now == pytest.approx(wrong, abs=0.06)


def test_questions_that_are_left(make: Any) -> None:
    answers = pd.DataFrame({"winner": [0, 1, 2], "loser": [1, 0, 3], "count": [1, 1, 5]})
    data = make(list(range(6)), answers=answers).data

    def left(**limits: Any) -> int:
        return Asked(data, Limits(**limits)).left()

    assert left() == 13  # of 15 pairs two were answered
    assert left(repeats=1) == 2 * 13  # one of them twice, the other five times
    assert left(repeats=2) == 3 * 13 + 1
    assert left(avoid=[(4, 5), (0, 1)]) == 12
    assert left(items=[0, 1, 2]) == 2
    assert left(pairs=[(0, 1), (0, 2), (4, 5)], avoid=[(2, 0)]) == 1
    assert left(most_appearances=2) == 1  # 4 and 5: all others have had theirs


def test_of_many_items_a_sample_stands_for_all(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relpref.explore.stopping.MAX_FORECAST_ANSWERS", 2)
    posterior = make(list(range(60)))
    whole = expected_gain(posterior, 2)
    monkeypatch.setattr("relpref.explore.stopping.MAX_ITEMS_OF_GAIN", 40)
    sampled = [expected_gain(posterior, 2, rng_key=key).wrong_now for key in range(12)]
    assert np.std(sampled) > 0
    # The mean of twelve, each with a standard error of about a twentieth: within 4 of its own.
    assert np.mean(sampled) == pytest.approx(whole.wrong_now, rel=4 * 0.05 / np.sqrt(12))


@pytest.mark.parametrize("name", SCORES)
def test_why(name: str, posterior: UtilityPosterior) -> None:
    words = why(posterior, "e0", "e5", name)
    assert words.count(".") in (2, 3) and SCORES[name].reason in words


def test_why_names_the_one_that_is_ahead(make: Any) -> None:
    posterior = make(["a", "b", "c"], mean=[0.0, 1.0, 0.0], covariance=np.eye(3))
    assert "'b' is thought to be the better with a probability of 76%" in why(posterior, "a", "b")
    assert "'b'" in why(posterior, "b", "a")
    certain = make(["a", "b", "c"], mean=[0.0, 9.0, 0.0], covariance=np.eye(3))
    assert ">99%. This pair" in why(certain, "a", "b")
    assert why(certain, "a", "b").endswith(
        "from so likely an answer, but no other pair scored higher."
    )
    assert "nothing tells" in why(posterior, "a", "c")
    with pytest.raises(UnknownLabelError):
        why(posterior, "a", "nobody")
