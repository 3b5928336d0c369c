"""Measures of held-out predictions, against those of scikit-learn and of counting."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from relpref.diagnostics import HeldOut
from relpref.errors import DataError


def of(
    chances: np.ndarray, outcome: np.ndarray, count: np.ndarray | None = None, paired: bool = False
) -> HeldOut:
    known = chances[np.arange(len(outcome)), outcome]
    table = pd.DataFrame({"probability": known, "log_score": np.log(known)})
    if count is not None:
        table["count"] = count
    return HeldOut(table, "by hand", (), chances, outcome, paired)


@pytest.fixture
def classes() -> HeldOut:
    rng = np.random.default_rng(0)
    return of(rng.dirichlet(np.ones(3), 60), rng.integers(3, size=60))


@pytest.fixture
def comparisons() -> HeldOut:
    """With ties, and some answers given several times."""
    rng = np.random.default_rng(1)
    chances, outcome = rng.dirichlet(np.ones(3), 50), rng.integers(3, size=50)
    return of(chances, outcome, rng.integers(1, 4, size=50), paired=True)


def single(held_out: HeldOut) -> HeldOut:
    """Every answer in a row of its own."""
    rows = np.repeat(np.arange(len(held_out.table)), held_out.weight.astype(int))
    table = held_out.table.iloc[rows].drop(columns="count").reset_index(drop=True)
    return replace(
        held_out, table=table, chances=held_out.chances[rows], outcome=held_out.outcome[rows]
    )


def exchanged(held_out: HeldOut) -> HeldOut:
    """Every second answer told from the other side."""
    turn = np.arange(len(held_out.outcome)) % 2 == 0
    chances = np.where(turn[:, None], held_out.chances[:, ::-1], held_out.chances)
    outcome = np.where(turn, 2 - held_out.outcome, held_out.outcome)
    return replace(held_out, chances=chances, outcome=outcome)


def measures(held_out: HeldOut) -> list[float]:
    return [*held_out.summary().to_numpy().ravel(), held_out.auc]


def test_classes_as_scikit_learn_has_them(classes: HeldOut) -> None:
    chances, outcome = classes.chances, classes.outcome
    assert classes.log_loss == pytest.approx(log_loss(outcome, chances))
    assert classes.brier == pytest.approx(
        0.5 * np.square(chances - np.eye(3)[outcome]).sum(axis=1).mean()
    )
    assert classes.accuracy == np.mean(chances.argmax(axis=1) == outcome)
    assert classes.auc == pytest.approx(roc_auc_score(outcome, chances, multi_class="ovr"))
    rates = np.bincount(outcome) / 60
    assert classes.summary()["baseline"]["log_loss"] == pytest.approx(-rates @ np.log(rates))


def test_two_classes_as_scikit_learn_has_them(classes: HeldOut) -> None:
    first, outcome = classes.chances[:, 0], np.minimum(classes.outcome, 1)
    two = of(np.stack([first, 1 - first], axis=1), outcome)
    assert two.brier == pytest.approx(brier_score_loss(outcome, 1 - first))
    assert two.auc == pytest.approx(roc_auc_score(outcome, 1 - first))


def test_comparisons_from_either_side(comparisons: HeldOut) -> None:
    assert_allclose(measures(exchanged(comparisons)), measures(comparisons))
    pd.testing.assert_frame_equal(exchanged(comparisons).reliability(), comparisons.reliability())


def test_repeated_answers_count_as_often(comparisons: HeldOut) -> None:
    assert_allclose(measures(single(comparisons)), measures(comparisons))
    pd.testing.assert_frame_equal(single(comparisons).reliability(7), comparisons.reliability(7))


def test_comparisons_by_counting(comparisons: HeldOut) -> None:
    found = single(comparisons)
    lead = found.chances[:, 0] - found.chances[:, 2]
    won, lost = found.outcome == 0, found.outcome == 2
    assert found.accuracy == pytest.approx(
        np.mean((lead > 0)[won].tolist() + (lead < 0)[lost].tolist())
    )
    highs, lows = np.append(lead[won], -lead[lost]), np.append(-lead[won], lead[lost])
    pairs = (highs[:, None] > lows) + 0.5 * (highs[:, None] == lows)
    assert found.auc == pytest.approx(pairs.mean())
    bins = found.reliability(4)
    assert bins["count"].sum() == 2 * len(
        found.table
    )  # that the first is preferred, and that the second is
    inside = [(found.chances[:, side] >= 0.25) & (found.chances[:, side] < 0.5) for side in (0, 2)]
    hits = [(found.outcome == side)[mask].sum() for side, mask in zip((0, 2), inside, strict=True)]
    assert bins["observed"][1] == pytest.approx(sum(hits) / sum(mask.sum() for mask in inside))


def test_the_standard_error_of_a_bin_is_that_of_right_forecasts() -> None:
    rng = np.random.default_rng(2)
    chances = rng.dirichlet(np.ones(3), 40)
    found = []
    for _ in range(400):
        outcome = (rng.uniform(size=(40, 1)) > chances.cumsum(axis=1)[:, :2]).sum(axis=1)
        found.append(of(chances, outcome, paired=True).reliability(3))
    observed = np.stack([bins["observed"] for bins in found])
    # 400 runs: standard deviations are known to 3.5 percent, averages to 5 percent of one; five
    # times that.
    assert_allclose(observed.std(axis=0), found[0]["se"], rtol=0.18)
    assert np.all(np.abs(observed.mean(axis=0) - found[0]["predicted"]) < 0.25 * found[0]["se"])


@pytest.mark.parametrize("rounding", [0.0, 1e-12])
def test_equal_chances_count_one_half(rounding: float) -> None:
    chances = np.tile([0.5 + rounding, 0.0, 0.5 - rounding], (3, 1))
    even = of(chances, np.array([0, 0, 2]), paired=True)
    assert (even.accuracy, even.auc) == (0.5, 0.5) and even.brier == pytest.approx(0.25)
    assert even.reliability(2)["count"].tolist() == [0, 6]
    assert even.summary()["baseline"]["log_loss"] == pytest.approx(np.log(2))
    alone = of(chances[:1], np.array([0]), paired=True)
    assert alone.accuracy == 0.5 and np.isnan(alone.elpd_se)


def test_yes_and_no_beside_comparisons_are_not_seen_from_both_sides(comparisons: HeldOut) -> None:
    rng = np.random.default_rng(4)
    yes = rng.uniform(size=30)
    said = np.where(rng.uniform(size=30) < 0.8, 0, 2)
    alone = of(np.stack([yes, 0 * yes, 1 - yes], axis=1), said, np.ones(30), paired=True)
    both = of(
        np.concatenate([comparisons.chances, alone.chances]),
        np.concatenate([comparisons.outcome, said]),
        np.concatenate([comparisons.weight, alone.weight]),
        paired=True,
    )
    both = replace(both, single=np.arange(80) >= 50)
    turned = exchanged(comparisons)
    other = replace(
        both,
        chances=np.concatenate([turned.chances, alone.chances]),
        outcome=np.concatenate([turned.outcome, said]),
    )
    assert_allclose(measures(other), measures(both))
    single = replace(alone, single=np.ones(30, dtype=bool))
    assert single.auc == pytest.approx(roc_auc_score(said == 0, yes))
    rate = np.mean(said == 0)
    entropy = -rate * np.log(rate) - (1 - rate) * np.log(1 - rate)
    baselines = [each.summary()["baseline"]["elpd"] for each in (both, comparisons)]
    assert baselines[0] - baselines[1] == pytest.approx(-30 * entropy)


def test_numbers_beside_categories_have_no_baseline(comparisons: HeldOut) -> None:
    chances, outcome = comparisons.chances.copy(), comparisons.outcome.copy()
    chances[7], outcome[7] = np.nan, -1
    found = replace(comparisons, chances=chances, outcome=outcome).summary()
    assert found.loc[["elpd", "log_loss"], "baseline"].isna().all()
    assert np.isfinite(found.loc[["brier", "accuracy"]]).all(axis=None)


def test_numbers_have_no_categories() -> None:
    table = pd.DataFrame({"probability": [0.3, 1.2], "log_score": np.log([0.3, 1.2])})
    numbers = HeldOut(table, "by hand", (), np.full((2, 3), np.nan), np.array([-1, -1]))
    assert np.isnan([numbers.brier, numbers.accuracy, numbers.auc]).all()
    assert list(numbers.summary().index) == ["elpd", "log_loss"]
    with pytest.raises(DataError, match="the answers are numbers"):
        numbers.reliability()
    with pytest.raises(DataError, match="bins is 0"):
        numbers.reliability(0)
