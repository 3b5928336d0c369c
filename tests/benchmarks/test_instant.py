"""The benchmark of what a person waits for, at sizes that take little time."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from benchmarks import instant, problems


def test_a_problem_read_from_its_file_is_the_same(tmp_path: Path) -> None:
    made = problems.related(12, 20, 3, seed=1)
    found = problems.Problem.load(made.save(tmp_path / "problem.npz"))
    assert (found.amplitude, found.lengthscale) == (made.amplitude, made.lengthscale)
    for name in ("attributes", "comparisons", "utilities", "links", "held_out"):
        assert_array_equal(getattr(found, name), getattr(made, name))
    assert problems.Problem.load(problems.make(5, 4, 0).save(tmp_path / "other.npz")).links is None


def test_asked_again_are_other_answers_about_the_same_items() -> None:
    made = problems.related(12, 20, 0, seed=1)
    again = made.asked_again(2)
    assert again.attributes is made.attributes and again.links is made.links
    assert again.comparisons.shape == made.comparisons.shape
    assert not np.array_equal(again.comparisons, made.comparisons)


def test_the_slow_have_one_turn(tmp_path: Path) -> None:
    bench = instant.Bench(tmp_path, repeats=3)
    called = []

    def cost(seconds: float) -> float:
        called.append(seconds)
        return seconds

    found = bench.turns({"slow": lambda: cost(20.0), "quick": lambda: cost(1.0)})
    assert found == {"slow": 20.0, "quick": 1.0}
    assert called == [20.0, 1.0, 1.0, 1.0]


@pytest.mark.slow
def test_every_row_has_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SMALL": (12, 20), "MIDDLE": (14, 25), "WARM": 1}.items():
        monkeypatch.setattr(instant, name, value)
    found = list(instant.rows(("warm", "commands"), repeats=1))
    assert len(found) == 16
    assert all(float(cells[1]) > 0 for cells in found)
