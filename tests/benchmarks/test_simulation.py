"""The simulator: truths, judges, deterministic runs, curves against numbers worked out by hand."""

from dataclasses import replace
from itertools import combinations, islice
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from benchmarks.simulation import Truth, answers_saved, learning_curves, simulate, simulate_steps
from relpref import PreferenceData
from relpref.errors import DataError
from relpref.infer import EP, UtilityPosterior
from relpref.models import xpgp
from relpref.posterior.gaussian import GaussianBelief

SIZE = 12


def draw(seed: int) -> Truth:
    rng = np.random.default_rng(seed)
    x = np.linspace(-1, 1, SIZE)
    items = pd.DataFrame({"x": x}, index=[f"item {k}" for k in range(SIZE)])
    return Truth(PreferenceData.from_tables(items, None), 3 * np.sin(3 * x + rng.uniform(0, 6)))


def fit(data: PreferenceData) -> UtilityPosterior:
    # Nothing to search for, so that little is compiled.
    fixed = {
        "attributes_amplitude": 2.0,
        "attributes_lengthscale": 0.5,
        "attributes_linear_share": 0.5,
        "individual_amplitude": 0.5,
    }
    posterior = EP(xpgp, fixed=fixed, check=False).run(0, data)
    assert isinstance(posterior, UtilityPosterior)
    return posterior


def neighbours(posterior: UtilityPosterior) -> tuple[Any, Any]:
    """A custom strategy: each item with the next, in a circle."""
    at = posterior.data.num_answers % SIZE
    return posterior.data.labels[at], posterior.data.labels[(at + 1) % SIZE]


STRATEGIES = {"random": "random", "ratio": "ratio", "neighbours": neighbours}


def simulated(seeds: Any) -> pd.DataFrame:
    return simulate(draw, STRATEGIES, seeds, answers=4, fit=fit)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return simulated(range(3))


def test_everything_follows_from_the_seed(rows: pd.DataFrame) -> None:
    assert len(rows) == 3 * 3 * 5
    pd.testing.assert_frame_equal(simulated([2]), rows[rows["seed"] == 2].reset_index(drop=True))
    start = rows[rows["answers"] == 0]
    assert (start["error"] == 0.5).all() and start["probability"].isna().all()
    assert rows.loc[rows["answers"] > 0, "probability"].between(0, 1).all()
    end = rows[rows["answers"] == 4]
    assert end["expected_error"].nunique() > 5 and end["error"].mean() < 0.4


def test_the_same_question_gets_the_same_answer_whoever_asks() -> None:
    truth = draw(0)
    start = fit(truth.data)

    def backwards(posterior: UtilityPosterior) -> tuple[Any, Any]:
        first, second = neighbours(posterior)
        return second, first

    told = [
        [step.outcome for step in islice(simulate_steps(truth, strategy, 5, start=start), 14)]
        for strategy in (neighbours, backwards)
    ]
    assert told[0] == [-outcome for outcome in told[1]]


def recorded(with_ties: bool) -> Truth:
    """A pair with both answers, one that is always answered the same, and one with a tie or not."""
    data = draw(0).data
    labels = np.array(data.labels)
    pairs = {"winner": labels[[3, 1, 7, 5]], "loser": labels[[1, 3, 6, 4]]}
    table = pd.DataFrame(pairs | {"count": [3, 1, 2, 1]})
    return Truth(data, recorded=table.assign(tie=table.index == 3) if with_ties else table)


def test_recorded_answers_are_the_only_ones() -> None:
    truth = recorded(with_ties=False)
    labels = truth.data.labels
    assert truth.pairs == [(labels[1], labels[3]), (labels[4], labels[5]), (labels[6], labels[7])]
    rng = np.random.default_rng(0)
    told = np.array([truth.answer((3, 1), rng) for _ in range(400)])
    # Three of four; the chance to be farther away than four standard deviations is 6e-5.
    assert set(told) == {1, -1} and abs(np.mean(told == 1) - 0.75) < 4 * np.sqrt(0.75 * 0.25 / 400)
    assert truth.answer((6, 7), rng) == -1 and truth.answer((7, 6), rng) == 1
    assert recorded(with_ties=True).answer((4, 5), rng) == 0
    asked = list(simulate_steps(truth, "random", 1, start=fit(truth.data)))
    assert sorted(tuple(sorted(step.pair)) for step in asked) == [(1, 3), (4, 5), (6, 7)]
    assert asked[-1].posterior.data.num_answers == 3


@pytest.mark.parametrize("with_ties", [False, True])
def test_without_utilities_recorded_preferences_are_the_truth(with_ties: bool) -> None:
    truth = recorded(with_ties)
    mean = np.zeros(SIZE)
    mean[[1, 5, 6]] = 2.0, 1.0, -1.0
    judged = truth.judge(GaussianBelief(mean, np.eye(SIZE)))
    # Wrong are the three answers for 3 over 1; a tie is neither right nor wrong.
    assert judged["error"] == (3 / 6 if with_ties else 3 / 7)
    assert np.isnan(judged["regret"])


@pytest.mark.parametrize("tied", [False, True])
def test_judgements_against_counting(tied: bool) -> None:
    from scipy.stats import kendalltau, norm

    rng = np.random.default_rng(3)
    utilities = rng.integers(0, 6, 25).astype(float) if tied else rng.standard_normal(25)
    items = pd.DataFrame({"x": np.arange(25.0)})
    truth = Truth(PreferenceData.from_tables(items, None), utilities)
    root = rng.standard_normal((25, 25))
    mean, covariance = np.round(rng.standard_normal(25), 0 if tied else 9), root @ root.T / 10
    judged = truth.judge(GaussianBelief(mean, covariance))
    wrong, doubt = [], []
    for pair in combinations(range(25), 2):
        i, j = sorted(pair, key=lambda k: utilities[k])
        if utilities[i] < utilities[j]:
            gap = mean[j] - mean[i]
            wrong.append(np.heaviside(-gap, 0.5))
            variance = covariance[i, i] + covariance[j, j] - 2 * covariance[i, j]
            doubt.append(norm.cdf(-abs(gap) / np.sqrt(variance)))
    assert judged["error"] == pytest.approx(np.mean(wrong))
    assert judged["expected_error"] == pytest.approx(np.mean(doubt))
    assert judged["kendall"] == pytest.approx(kendalltau(mean, utilities).statistic)
    best = sorted(range(25), key=lambda k: (-mean[k], k))[:2]
    assert judged["regret"] == utilities.max() - utilities[best[0]]
    least = sorted(utilities)[-2]
    assert judged["top"] == np.mean([utilities[k] >= least for k in best])


def test_near_gaps_are_ties() -> None:
    truth = Truth(draw(0).data, np.zeros(SIZE), tie_margin=0.6744897501960817)
    rng = np.random.default_rng(0)
    told = np.array([truth.answer((0, 1), rng) for _ in range(400)])
    # Half of all; four standard deviations are 0.1.
    assert abs(np.mean(told == 0) - 0.5) < 0.1 and {-1, 0, 1} == set(told)


def test_questions_after_answers_with_covariates() -> None:
    truth = draw(0)
    told = {"winner": ["item 1", "item 5"], "loser": ["item 2", "item 6"], "home": ["item 1", None]}
    kinds = {"style_winner": ["old", "new"], "style_loser": ["new", "new"]}
    data = truth.data.with_comparisons(pd.DataFrame(told | kinds), covariates=["home", "style"])
    start = fit(data)
    steps = simulate_steps(replace(truth, data=data), neighbours, 0, start=start)
    learned = list(islice(steps, 3))[-1].posterior.data.comparisons
    assert learned.covariates is not None and learned.count.sum() == 5
    assert np.count_nonzero(learned.covariates.any(axis=1)) == 1


def made_up(curves: dict[str, list[list[float]]]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"strategy": name, "seed": seed, "answers": number, "error": value}
            for name, runs in curves.items()
            for seed, run in enumerate(runs)
            for number, value in enumerate(run)
        ]
    )


def test_curves_and_savings_worked_out_by_hand() -> None:
    # Random falls by a tenth with each answer, the other by two tenths; the second seed of each
    # starts and ends 0.2 lower.
    rows = made_up(
        {
            "random": [[0.9, 0.8, 0.7, 0.6, 0.5], [0.7, 0.6, 0.5, 0.4, 0.3]],
            "clever": [[0.9, 0.7, 0.5, 0.3], [0.7, 0.5, 0.3, 0.1]],
        }
    )
    curves = learning_curves(rows)
    clever = curves[curves["strategy"] == "clever"]
    # Two seeds give resamples of both, or of one twice: with a chance of 1/4 each the extremes are
    # the seeds themselves.
    first = np.array([[0.8], [0.7], [0.9]])
    assert_allclose(clever[["mean", "lower", "upper"]].T, first - 0.2 * np.arange(4))
    saved = answers_saved(rows, "clever")
    assert (saved.answers, saved.error, saved.needed) == pytest.approx((4, 0.4, 2))
    # Seeds are drawn together, so the difference between them makes no difference.
    assert (saved.ratio, saved.lower, saved.upper) == pytest.approx((0.5, 0.5, 0.5))
    assert answers_saved(rows, "clever", answers=3).needed == pytest.approx(1.5)
    back = answers_saved(rows, "random", "clever")
    assert back.needed == back.ratio == np.inf
    itself = answers_saved(rows, "random")
    assert (itself.ratio, itself.lower, itself.upper) == (1, 1, 1)


def test_a_bump_is_smoothed_and_an_early_end_is_carried_on() -> None:
    rows = made_up(
        {"random": [[0.5, 0.4, 0.3]], "bumpy": [[0.5, 0.2, 0.4, 0.3]], "short": [[0.5, 0.3]]}
    )
    # Isotonic regression makes 0.2, 0.4, 0.3 one value, 0.3.
    assert answers_saved(rows, "bumpy").needed == pytest.approx(1)
    assert answers_saved(rows, "short", "bumpy").needed == pytest.approx(1)
    both = made_up({"short": [[0.5, 0.3], [0.5, 0.4, 0.1]]})
    assert_allclose(learning_curves(both)["mean"], [0.5, 0.35, 0.2])


def test_what_cannot_be_simulated() -> None:
    truth, rows = draw(0), made_up({"random": [[0.5, 0.4]]})
    level: Any = np.zeros(SIZE)
    act: Any
    for act, words in (
        (lambda: simulate(truth, ["clairvoyance"], [0]), "'clairvoyance'; name one of ratio"),
        (lambda: simulate(truth, [], [0]), "no strategies"),
        (lambda: simulate(truth, ["random"], [-1]), "seed -1 is negative"),
        (lambda: simulate(truth, ["random"], [0], answers=0), "answers is 0"),
        (lambda: Truth(truth.data), "nothing to answer by"),
        (lambda: Truth(truth.data, level[:1]), r"shape \(1,\)"),
        (lambda: Truth(truth.data, level, noise=0.0), "noise is 0"),
        (lambda: Truth(truth.data, level, tie_margin=-1.0), "tie_margin is -1"),
        (lambda: answers_saved(rows, "bald"), "no strategy 'bald'; they have random"),
        (lambda: answers_saved(rows, "random", answers=2), "answers is 2"),
        (lambda: answers_saved(rows, "random", interval=95), "interval is 95"),
        (lambda: learning_curves(rows, "beauty"), "no column 'beauty'"),
        (lambda: learning_curves(rows, interval=float("nan")), "interval is nan"),
        (lambda: learning_curves(rows, resamples=0), "resamples is 0"),
    ):
        with pytest.raises(DataError, match=words):
            act()
