"""The page of a classifier."""

from typing import Any

import numpy as np
import pytest

from relpref.data import Rankings
from relpref.infer import ClassPosterior
from relpref.posterior.gaussian import GaussianBelief
from relpref.report.page import render

pytestmark = pytest.mark.usefixtures("without_pictures")
LABEL = [0, 0, 1, 0, 1, 0]


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


def test_without_its_program(posterior: ClassPosterior, read: Any) -> None:
    found = read(render(posterior))
    assert not found.all("i")
    assert "does not know its program" in found.prose
    assert "No example was left out and predicted" in found.prose
