"""Drawn problems of any size, at a size at which they can be looked at."""

from typing import Any

import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from relpref import limits as memory
from relpref.data_loaders import PowerLaw, power_law
from relpref.errors import DataError


@pytest.fixture(scope="module")
def drawn() -> PowerLaw:
    return power_law(20_000, 100_000, 5000, seed=4)


def test_the_numbers_are_those_that_were_wanted(drawn: PowerLaw) -> None:
    graph = drawn.data.relations["links"]
    assert (graph.num_nodes, graph.num_edges, drawn.data.num_answers) == (20_000, 100_000, 5000)
    assert drawn.data.labels[:2] == ("e0", "e1")
    assert set(graph.weight) == {1.0}


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(3, 60),
    share=st.floats(0.0, 1.0),
    answers=st.integers(0, 20),
    seed=st.integers(0, 999),
)
def test_every_size_can_be_drawn(n: int, share: float, answers: int, seed: int) -> None:
    links = max(1, int(share * (n * (n - 1) // (4 * round(n ** (1 / 3))))))
    found = power_law(n, links, answers, attributes=seed % 2, exponent=2.1 + share, seed=seed)
    assert found.data.relations["links"].num_edges == links
    assert found.data.num_answers == answers
    assert found.utilities.mean() == pytest.approx(
        0, abs=1e-12
    ) and found.utilities.std() == pytest.approx(1)


def test_equal_seeds_give_equal_draws() -> None:
    one, again, other = (power_law(100, 300, 50, attributes=2, seed=seed) for seed in (1, 1, 2))
    parts = [
        (draw.utilities, draw.data.relations["links"].source, draw.data.winner)
        for draw in (one, again, other)
    ]
    for first, second, third in zip(*parts, strict=True):
        assert_array_equal(first, second)
        assert not np.array_equal(first, third)


def test_degrees_follow_a_power_law(drawn: PowerLaw) -> None:
    degree = drawn.data.relations["links"].degree
    # Above the bulk and below the cut-off √(2e) = 447, the exponent by maximum likelihood (Clauset,
    # Shalizi & Newman 2009, eq. 3.1, with its continuity correction 1/2); the third of a unit is
    # for the cut-off and the noise of the draw.
    tail = degree[(degree >= 20) & (degree <= 200)]
    grid = np.linspace(1.5, 4, 2501)
    log_mass = np.log(19.5 ** (1 - grid) - 200.5 ** (1 - grid)) - np.log(grid - 1)
    likelihood = -grid * np.log(tail).sum() - tail.size * log_mass
    assert grid[np.argmax(likelihood)] == pytest.approx(2.5, abs=0.33)
    assert 200 < degree.max() < 900


def test_utilities_are_alike_among_neighbours(drawn: PowerLaw) -> None:
    graph = drawn.data.relations["links"]
    ends = drawn.utilities[graph.source], drawn.utilities[graph.target]
    assert np.corrcoef(*ends)[0, 1] > 0.5
    strangers = np.random.default_rng(0).permutation(ends[1])
    assert abs(np.corrcoef(ends[0], strangers)[0, 1]) < 0.05


def test_the_better_wins_as_often_as_the_probit_says(drawn: PowerLaw) -> None:
    data = drawn.data
    gap = drawn.utilities[data.winner] - drawn.utilities[data.loser]
    # Of a pair with the difference g, the winner is the better with Φ(|g|): exceeded by chance once in 15,000 (4 standard errors).
    chance = scipy.special.ndtr(np.abs(gap))
    excess = data.count @ ((gap > 0) - chance)
    assert abs(excess) < 4 * np.sqrt(data.count @ (chance * (1 - chance)))


def test_attributes_tell_half() -> None:
    found = power_law(2000, 6000, 0, attributes=3, seed=3)
    columns = np.column_stack([found.data.attributes, np.ones(2000)])
    fitted = columns @ np.linalg.lstsq(columns, found.utilities, rcond=None)[0]
    # Chance correlations of the halves move the share; 0.1 is four standard errors of 2000.
    assert fitted.var() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    ("numbers", "options", "reason"),
    [
        ((2, 1, 1), {}, "num_items is 2; give 3 or more"),
        ((100, 0, 1), {}, "num_links is 0; 100 items can have 1 to 495 here"),
        ((100, 496, 1), {}, "num_links is 496"),
        ((100, 100, -1), {}, "answers is -1"),
        ((100, 100, 1), {"attributes": -1}, "attributes is -1"),
        ((100, 100, 1), {"exponent": 2.0}, r"exponent is 2\.0; it must be a finite number above 2"),
        (
            (1_000_000, 10_000_000, 1),
            {},
            "drawing 10000000 links of 1000000 items needs 1.90 GB of memory",
        ),
    ],
)
def test_numbers_out_of_range(
    numbers: Any, options: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 1e9)
    with pytest.raises(DataError, match=reason):
        power_law(*numbers, **options)
