"""Cost and benefit of the items' own parts, without and with such an effect."""

import numpy as np
import pytest

from benchmarks.individual import EFFECTS, costs


def change(effect: str, problems: int) -> float:
    found = costs(EFFECTS[effect], problems, "maximize")
    assert found.shape == (problems, 2) and np.isfinite(found).all()
    return float(np.mean(found[:, 1] - found[:, 0]))


def test_they_bring_something_where_there_is_nothing_else() -> None:
    assert change("of the items alone", 8) < -0.02


@pytest.mark.slow
def test_they_cost_little_where_attributes_say_all() -> None:
    assert change("of the attributes alone", 200) <= 0.012
