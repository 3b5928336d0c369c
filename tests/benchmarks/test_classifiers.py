"""Judges of the experiments with classifiers, and their command."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.reproduce.classifiers import metrics


def test_a_perfect_and_a_constant_classifier() -> None:
    truth = np.array([1, 0, 1, 1])
    perfect = metrics.judge(truth, truth.astype(float))
    assert {perfect[name] for name in ("accuracy", "auc", "average_precision", "f1")} == {1}
    assert perfect["log_loss"] == pytest.approx(0, abs=1e-12) and perfect["calibration_error"] == 0
    constant = metrics.constant_class([1, 1, 0, 0, 0], truth)
    assert constant["accuracy"] == 0.25 and constant["auc"] == 0.5
    assert constant["log_loss"] == pytest.approx(-(3 * np.log(0.4) + np.log(0.6)) / 4)
    assert constant["f1"] == pytest.approx(
        2 * 3 / (2 * 3 + 1)
    )  # of always 1: three hits, one false alarm
    assert constant["calibration_error"] == pytest.approx(0.75 - 0.4)


def test_one_class_alone_cannot_be_ranked() -> None:
    assert np.isnan(metrics.judge([1, 1], [0.9, 0.2])["auc"])
    assert metrics.constant_class([1, 1], [1, 1])["accuracy"] == 1
    assert metrics.constant_class([0, 0], [0, 1])["accuracy"] == 0.5


def test_probabilities_that_are_right_and_wrong() -> None:
    rng = np.random.default_rng(1)
    said = rng.uniform(size=50_000)
    truth = rng.uniform(size=50_000) < said
    table = metrics.reliability(truth, said)
    assert len(table) == 10 and table["count"].sum() == 50_000
    # Ten bins, five standard errors: a false alarm in 200,000 runs.
    assert (np.abs(table["said"] - table["happened"]) < 5 * table["standard_error"]).all()
    bold = metrics.reliability(truth, np.where(said > 0.5, 1.0, 0.0))
    assert list(bold.index) == [0, 9]
    assert metrics.calibration_error(bold) == pytest.approx(0.25, abs=0.01)
    pd.testing.assert_series_equal(bold["said"], pd.Series([0.0, 1.0], bold.index, name="said"))
