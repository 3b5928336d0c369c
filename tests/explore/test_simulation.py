"""The simulator: truths, judges, runs that are deterministic and resumable, curves against numbers worked out by hand."""

import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref import PreferenceData
from relpref.errors import DataError, StorageError
from relpref.explore import TopK, Truth, answers_saved, learning_curves, simulate, simulate_steps
from relpref.explore.simulation import described
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
    fixed = {"attributes_amplitude": 2.0, "attributes_lengthscale": 0.5, "attributes_linear_share": 0.5}
    posterior = EP(xpgp, fixed=fixed).run(0, data, progress_bar=False)
    assert isinstance(posterior, UtilityPosterior)
    return posterior


def neighbours(posterior: UtilityPosterior) -> tuple[Any, Any]:
    """A strategy of one's own: each with the next, round and round."""
    at = posterior.data.num_answers % SIZE
    return posterior.data.labels[at], posterior.data.labels[(at + 1) % SIZE]


STRATEGIES = {"random": "random", "ratio": "ratio", "neighbours": neighbours}


def simulated(seeds: Any, **more: Any) -> pd.DataFrame:
    return simulate(draw, STRATEGIES, seeds, answers=4, fit=fit, progress_bar=False, **more)


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


def test_an_interrupted_simulation_goes_on_where_it_stopped(
    rows: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.jsonl"
    pd.testing.assert_frame_equal(simulated(range(3), resume=path), rows)
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    for left in (len(lines[0]) + 10, len(text) * 2 // 3, len(text) - 1):
        path.write_text(text[:left], encoding="utf-8")
        pd.testing.assert_frame_equal(simulated(range(3), resume=path), rows)
    pd.testing.assert_frame_equal(simulated([1], resume=path), simulated([1]))
    monkeypatch.delattr("relpref.explore.simulation.simulate_steps")
    simulated(range(3), resume=path)  # what is in the file is not computed again
    assert path.read_text(encoding="utf-8").count("\n") == len(lines)


def never(posterior: UtilityPosterior) -> None:
    """A strategy that asks nothing."""


def test_a_file_is_for_one_truth_and_knows_its_strategies(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    truth = draw(0)
    table = pd.DataFrame({"winner": ["item 1", "item 3"], "loser": ["item 2", "item 4"]})

    def run(truth: Any = truth, strategies: Any = None, **more: Any) -> pd.DataFrame:
        chosen = {"mine": never} if strategies is None else strategies
        return simulate(
            truth, chosen, [0], **{"fit": fit, "answers": 4, "resume": path, "progress_bar": False, **more}
        )

    first = run()
    text = path.read_text(encoding="utf-8")
    attributes = pd.DataFrame({"x": truth.data.attributes[:, 0] + 1}, index=list(truth.data.labels))
    linked = PreferenceData.from_tables(
        attributes - 1, None, {"links": pd.DataFrame({"source": ["item 1"], "target": ["item 2"]})}
    )
    for other in (
        draw,
        Truth(truth.data, truth.utilities + 1e-9),
        replace(truth, noise=2.0),
        replace(truth, tie_margin=0.1),
        replace(truth, recorded=table),
        replace(truth, data=truth.data.with_comparisons(table)),
        replace(truth, data=PreferenceData.from_tables(attributes, None)),
        replace(truth, data=PreferenceData.from_tables((attributes - 1).rename({"item 1": "one"}), None)),
        replace(truth, data=linked),
    ):
        with pytest.raises(StorageError, match="records have truth .*; give another file"):
            run(other)
    for more, words in (
        ({"answers": 5}, "records have answers 4, and 5 is asked for"),
        ({"limits": {"repeats": 1}}, "records have limits"),
        ({"fit": lambda data: fit(data)}, "records have fit .*fit', and .*<lambda>' is asked for"),
        ({"strategies": {"mine": neighbours}}, "another strategy 'mine': it was .*never and is .*neighbours"),
        ({"strategies": {"mine": "random"}}, r"and is Random\(\)"),
    ):
        with pytest.raises(StorageError, match=words):
            run(**more)
    assert path.read_text(encoding="utf-8") == text
    # The same truth made again, and one strategy more; the file then knows both.
    again = run(draw(0), {"idle": never})
    pd.testing.assert_frame_equal(again.drop(columns="strategy"), first.drop(columns="strategy"))
    with pytest.raises(StorageError, match="another strategy 'idle'"):
        run(strategies={"idle": TopK(3)})
    pd.testing.assert_frame_equal(run(), first)
    path.write_text("strategy,seed\n", encoding="utf-8")
    with pytest.raises(StorageError, match="line 1 is damaged"):
        run()


def test_what_is_called_is_named_without_its_address() -> None:
    assert described(TopK(3)) == "TopK(k=3)"
    assert described(draw).endswith(".draw")
    bound = described(partial(draw, seed=3))
    assert "draw" in bound and "seed=3" in bound and "0x" not in bound
    # Recorded answers are the same in any order of rows, and whichever way equal ones are counted.
    table = pd.DataFrame({"winner": ["item 1", "item 3", "item 1"], "loser": ["item 2", "item 4", "item 2"]})
    counted = table.iloc[[1, 0]].assign(count=[1, 2])
    data = draw(0).data
    known = Truth(data, recorded=table).describe()
    assert known == Truth(data, recorded=counted).describe()
    assert known != Truth(data, recorded=counted.assign(count=[2, 1])).describe()


def test_the_same_question_gets_the_same_answer_whoever_asks() -> None:
    truth = draw(0)
    start = fit(truth.data)

    def backwards(posterior: UtilityPosterior) -> tuple[Any, Any]:
        first, second = neighbours(posterior)
        return second, first

    told = [
        [
            step.outcome
            for _, step in zip(range(14), simulate_steps(truth, strategy, 5, start=start), strict=False)
        ]
        for strategy in (neighbours, backwards)
    ]
    assert told[0] == [-outcome for outcome in told[1]]


def recorded(with_ties: bool) -> Truth:
    """A pair with both answers, one that is always answered the same, and one with a tie or not."""
    data = draw(0).data
    labels = data.labels
    table = pd.DataFrame(
        {
            "winner": [labels[3], labels[1], labels[7], labels[5]],
            "loser": [labels[1], labels[3], labels[6], labels[4]],
            "count": [3, 1, 2, 1],
        }
    )
    return Truth(data, recorded=table.assign(tie=[False, False, False, True]) if with_ties else table)


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
    for i, j in itertools.combinations(range(25), 2):
        if utilities[i] == utilities[j]:
            continue
        better, worse = (i, j) if utilities[i] > utilities[j] else (j, i)
        wrong.append(1.0 if mean[better] < mean[worse] else 0.5 if mean[better] == mean[worse] else 0.0)
        variance = covariance[i, i] + covariance[j, j] - 2 * covariance[i, j]
        p = norm.cdf((mean[i] - mean[j]) / np.sqrt(variance))
        doubt.append(min(p, 1 - p))
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


@pytest.mark.slow
def test_ties_are_learned_from() -> None:
    truth = Truth(draw(0).data, np.zeros(SIZE), tie_margin=0.7)
    steps = simulate_steps(truth, neighbours, 0, start=fit(truth.data))
    learned = [step for _, step in zip(range(5), steps, strict=False)]
    assert any(step.outcome == 0 for step in learned)
    answers = learned[-1].posterior.data.comparisons
    assert answers.tie is not None and answers.tie.sum() == sum(step.outcome == 0 for step in learned)
    assert all(0 < step.probability < 1 for step in learned[1:])


def test_questions_after_answers_with_covariates() -> None:
    truth = draw(0)
    told = {"winner": ["item 1", "item 5"], "loser": ["item 2", "item 6"], "home": ["item 1", None]}
    kinds = {"style_winner": ["old", "new"], "style_loser": ["new", "new"]}
    data = truth.data.with_comparisons(pd.DataFrame(told | kinds), covariates=["home", "style"])
    start = fit(data)
    steps = simulate_steps(replace(truth, data=data), neighbours, 0, start=start)
    learned = [step for _, step in zip(range(3), steps, strict=False)][-1].posterior.data.comparisons
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
    # Random falls by a tenth with each answer, the other by two tenths; the second seed of each starts and ends 0.2 lower.
    rows = made_up(
        {
            "random": [[0.9, 0.8, 0.7, 0.6, 0.5], [0.7, 0.6, 0.5, 0.4, 0.3]],
            "clever": [[0.9, 0.7, 0.5, 0.3], [0.7, 0.5, 0.3, 0.1]],
        }
    )
    curves = learning_curves(rows)
    clever = curves[curves["strategy"] == "clever"]
    np.testing.assert_allclose(clever["mean"], [0.8, 0.6, 0.4, 0.2])
    # Two seeds give resamples of both, or of one twice: with a chance of 1/4 each the extremes are the seeds themselves.
    np.testing.assert_allclose(clever["lower"], [0.7, 0.5, 0.3, 0.1])
    np.testing.assert_allclose(clever["upper"], [0.9, 0.7, 0.5, 0.3])
    saved = answers_saved(rows, "clever")
    assert saved.answers == 4 and saved.error == pytest.approx(0.4) and saved.needed == pytest.approx(2)
    # Seeds are drawn together, so the difference between them makes no difference.
    assert (saved.ratio, saved.lower, saved.upper) == pytest.approx((0.5, 0.5, 0.5))
    assert answers_saved(rows, "clever", answers=3).needed == pytest.approx(1.5)
    back = answers_saved(rows, "random", "clever")
    assert back.needed == np.inf and back.ratio == np.inf
    itself = answers_saved(rows, "random")
    assert (itself.ratio, itself.lower, itself.upper) == (1, 1, 1)


def test_a_bump_is_smoothed_and_an_early_end_is_carried_on() -> None:
    rows = made_up({"random": [[0.5, 0.4, 0.3]], "bumpy": [[0.5, 0.2, 0.4, 0.3]], "short": [[0.5, 0.3]]})
    # Isotonic regression makes 0.2, 0.4, 0.3 one value, 0.3.
    assert answers_saved(rows, "bumpy").needed == pytest.approx(1)
    assert answers_saved(rows, "short", "bumpy").needed == pytest.approx(1)
    both = made_up({"short": [[0.5, 0.3], [0.5, 0.4, 0.1]]})
    np.testing.assert_allclose(learning_curves(both)["mean"], [0.5, 0.35, 0.2])


def test_what_cannot_be_simulated() -> None:
    truth = draw(0)
    arguments: dict[str, Any]
    for arguments, words in (
        ({"strategies": ["clairvoyance"]}, "'clairvoyance'; name one of ratio"),
        ({"strategies": []}, "no strategies"),
        ({"seeds": [-1]}, "seed -1 is negative"),
        ({"answers": 0}, "answers is 0"),
    ):
        given: dict[str, Any] = {"truth": truth, "strategies": ["random"], "seeds": [0], **arguments}
        with pytest.raises(DataError, match=words):
            simulate(**given, progress_bar=False)
    more: Any
    for more, words in (
        ({}, "nothing to answer by"),
        ({"utilities": [1.0]}, r"shape \(1,\)"),
        ({"utilities": np.zeros(SIZE), "noise": 0.0}, "noise is 0"),
        ({"utilities": np.zeros(SIZE), "tie_margin": -1.0}, "tie_margin is -1"),
    ):
        with pytest.raises(DataError, match=words):
            Truth(truth.data, **more)
    rows = made_up({"random": [[0.5, 0.4]]})
    with pytest.raises(DataError, match="no strategy 'bald'; they have random"):
        answers_saved(rows, "bald")
    with pytest.raises(DataError, match="answers is 2"):
        answers_saved(rows, "random", answers=2)
    with pytest.raises(DataError, match="no column 'beauty'"):
        learning_curves(rows, "beauty")
    for more, words in (
        ({"interval": 0.0}, "interval is 0"),
        ({"interval": 95}, "interval is 95"),
        ({"interval": float("nan")}, "interval is nan"),
        ({"resamples": 0}, "resamples is 0"),
    ):
        with pytest.raises(DataError, match=words):
            answers_saved(rows, "random", **more)
        with pytest.raises(DataError, match=words):
            learning_curves(rows, **more)


@pytest.mark.slow
def test_processes_give_the_same_rows() -> None:
    truth = draw(0)
    here = simulate(truth, ["random", "ratio"], range(2), answers=3, progress_bar=False)
    there = simulate(
        truth, ["random", "ratio"], range(2), answers=3, scheduler="processes:2", progress_bar=False
    )
    pd.testing.assert_frame_equal(here, there)
