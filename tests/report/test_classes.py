"""The page of a classifier."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref.data import Rankings
from relpref.diagnostics import Certificate, HeldOut
from relpref.infer import ClassPosterior
from relpref.posterior.gaussian import GaussianBelief
from relpref.report.page import render

pytestmark = pytest.mark.usefixtures("without_pictures")
LABEL = [0, 0, 1, 0, 1, 0]
CHANCES = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.1, 0.9], [0.2, 0.8], [0.8, 0.2]])


@pytest.fixture
def posterior(make: Any) -> ClassPosterior:
    """Made by hand: six rankings, two classes."""
    orders = [
        ["a", "b", "c"],
        ["a", "c", "b"],
        ["c", "b", "a"],
        ["c", "a", "b"],
        ["c", "b", "a"],
        ["b", "a", "c"],
    ]
    data = Rankings.from_orders(orders, rankers=[f"<i>{row}</i>" for row in range(6)])
    return ClassPosterior(
        belief=GaussianBelief(np.zeros(3), np.eye(3)),
        slices={"weight": slice(0, 3)},
        parts={},
        hyperparameters={"amplitude": 1.5},
        log_evidence=-3.0,
        info=make().info,
        sites={},
        key=np.array([0, 1], dtype=np.uint32),
        data=data.with_labels([("no", "yes")[code] for code in LABEL]),
    )


def test_chapters(posterior: ClassPosterior, read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = np.array(LABEL)
    probability = CHANCES[np.arange(6), outcome]
    table = pd.DataFrame({"ranker": posterior.data.rankers})  # type: ignore[union-attr]
    table["class"] = [("no", "yes")[code] for code in LABEL]
    table["probability"], table["log_score"] = probability, np.log(probability)
    held = HeldOut(table, "leave-one-out", (), CHANCES, outcome)
    monkeypatch.setattr("relpref.report.trust.leave_one_out", lambda _: held)
    monkeypatch.setattr(
        "relpref.report.trust.certify", lambda *_: Certificate("good", "EP is certified")
    )
    chances = pd.DataFrame(CHANCES, index=table["ranker"], columns=["no", "yes"])
    latent = pd.DataFrame({"mean": np.zeros(6), "sd": np.ones(6)}, index=table["ranker"])
    monkeypatch.setattr(ClassPosterior, "predict_proba", lambda _: chances)
    monkeypatch.setattr(ClassPosterior, "latent", lambda _: latent)
    found = read(render(posterior))
    assert not found.all("i")
    text = found.prose
    assert "learned the classes “no” and “yes” from 6 rankings" in text
    assert (
        "left out, it classified 83 correctly; always the most frequent class would be correct for "
        "67" in text
    )
    cells = found.text("bdi")
    start = cells.index("no", cells.index("Brier score"))
    assert cells[start : start + 4] == ["no", "3", "1", "75%"]  # one "no" was taken for a "yes"
    assert "5% to 95%" in cells  # Φ(± 1.645)
    assert (
        "Of 6 examples, 1 had a class whose probability was under 25%" in text
        and "<i>3</i>" in cells
    )


def test_without_its_program(posterior: ClassPosterior, prose: Any) -> None:
    text = prose(posterior)
    assert "does not know its program" in text and "No example was left out and predicted" in text
