"""Cost and benefit of the items' own parts, without and with such an effect."""

import numpy as np
import pytest

from benchmarks.individual import EFFECTS, costs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("effect", "problems", "most"),
    [("of the items alone", 8, -0.02), ("of the attributes alone", 200, 0.012)],
)
def test_they_bring_much_or_cost_little(effect: str, problems: int, most: float) -> None:
    found = costs(EFFECTS[effect], problems, "maximize")
    assert found.shape == (problems, 2) and np.isfinite(found).all()
    assert np.mean(found[:, 1] - found[:, 0]) <= most
