"""Means over completions against loops over all of them."""

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chi2

import relpref
from relpref.errors import DataError
from relpref.kernels import cut_features
from relpref.kernels.positions import MAX_STRATA, draw_completions

N = 6
POSITIONS = np.array(
    [[0, 2, -1, 1, -1, -1], [-1, 0, 0, 1, -1, 1], [-1, -1, 0, -1, -1, -1], [0, 1, 2, 3, 4, -1]]
)


def graph(n: int = N) -> Any:
    drawn = np.triu(np.random.default_rng(0).random((n, n)), 1)
    return drawn + drawn.T


def placed(row: Any) -> list[Any]:
    """Every placement, blocks numbered without gaps."""
    missing = np.flatnonzero(row < 0)
    everything = []
    for slots in product(range(row.max() + 2), repeat=len(missing)):
        keys = row + 0.5
        keys[missing] = slots
        everything.append(np.unique(keys, return_inverse=True)[1])
    return everything


def test_all_placements() -> None:
    features, error = cut_features(POSITIONS, graph(), return_error=True)
    assert not error.any()
    for row, found in zip(POSITIONS, features, strict=True):
        expected = np.mean([cut_features(place[None], graph())[0] for place in placed(row)], axis=0)
        assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert len(placed(POSITIONS[1])) == 9  # two blocks, two missing items


def test_raw_gains_in_closed_form() -> None:
    found = cut_features(POSITIONS, graph(), placements="raw")
    for row, features in zip(POSITIONS, found, strict=True):
        gains = [
            (graph() * np.sign(place[None, :] - place[:, None])).sum(axis=1)
            for place in placed(row)
        ]
        assert_allclose(features, np.mean(gains, axis=0), atol=1e-12)
    mixed = np.vstack([POSITIONS, [[0, 1, 1, 2, 2, 3]]])
    both = cut_features(mixed, graph(), placements="raw")
    assert_array_equal(both[:4], found)
    assert_array_equal(both[4:], cut_features(mixed[4:], graph()))  # exact where nothing is missing


def test_standard_errors_are_those_of_many_keys() -> None:
    rng = np.random.default_rng(0)
    positions = np.argsort(np.argsort(rng.random((4, N)), axis=1), axis=1)
    positions[positions >= 3] = -1
    exact = cut_features(positions, graph())
    runs = [
        cut_features(
            positions, graph(), placements="sample", tol=1.0, rng_key=key, return_error=True
        )
        for key in range(100)
    ]
    errors = np.array([error for _, error in runs])
    deviations = (np.array([found for found, _ in runs]) - exact) / np.maximum(errors, 1e-9)
    # Student's distribution has .0006 beyond 4, and features are not quite normal; errors from
    # eight rounds leave .011.
    assert deviations.std() <= 1.1 and np.mean(np.abs(deviations) > 4) <= 3e-3


def test_a_ranking_has_its_own_sample() -> None:
    rng = np.random.default_rng(0)
    positions = np.argsort(np.argsort(rng.random((6, 12)), axis=1), axis=1)
    positions[positions >= 6] = -1
    together = cut_features(positions, graph(12), rng_key=3)
    assert_allclose(cut_features(positions[4:5], graph(12), rng_key=3)[0], together[4], rtol=1e-12)
    assert np.abs(cut_features(positions[4:5], graph(12), rng_key=4)[0] - together[4]).max() > 1e-6
    _, error = cut_features(positions, graph(12), return_error=True)
    assert np.all(np.linalg.norm(error, axis=1) <= 0.05 * np.linalg.norm(together, axis=1))


def test_more_slots_than_strata() -> None:
    n = 24
    row = np.arange(n, dtype=np.int32)
    row[-3:] = -1
    stream = np.random.default_rng(0)
    drawn = (draw_completions(row, stream, 500)[:, -3:] // 2).reshape(500, 2, MAX_STRATA, 3)
    assert_array_equal(drawn[:, 0] + drawn[:, 1], n - 3)  # 21 blocks: slots 0 to 21
    # Each slot is as likely as the others: chi-squared with 21 degrees of freedom, false alarms in
    # 1 of 100 000.
    counts = np.bincount(drawn[:, 0, :, 0].ravel(), minlength=22)
    expected = 500 * MAX_STRATA / 22
    assert np.sum((counts - expected) ** 2 / expected) <= chi2(21).ppf(1 - 1e-5)
    halves = np.sort(drawn[:, 0, :, 0], axis=1)  # stratified: half of them in either half
    assert np.all(np.abs((halves < 11).sum(axis=1) - MAX_STRATA / 2) <= 1)


def test_errors() -> None:
    few = np.full((1, 40), -1)
    few[0, :10] = np.arange(10)
    with pytest.raises(DataError, match=r"10\^31 placements.*sample"):
        cut_features(few, graph(40), placements="all")
    with pytest.raises(DataError, match="tol=1e-09: after .* ask for a tolerance"):
        cut_features(POSITIONS[:1], graph(), placements="sample", tol=1e-9)
    with pytest.raises(DataError, match="larger than 0"):
        cut_features(few, graph(40), tol=0.0)
    with pytest.raises(DataError, match="'some'"):
        cut_features(few, graph(40), placements="some")  # type: ignore[arg-type]


def test_inside_a_trace() -> None:
    with pytest.raises(DataError, match="with_features"):
        jax.jit(lambda weights: cut_features(POSITIONS, weights))(graph())
    rankings = relpref.Rankings.from_orders([["a", "b", "c"], ["b", "a"]])
    weights = jnp.asarray(graph(3))
    features = np.asarray(jax.jit(lambda data: cut_features(data, weights))(rankings))
    assert np.isfinite(features[0]).all()
    assert np.isnan(features[1]).all()  # never a plausible number
    raw = jax.jit(lambda weights: cut_features(rankings, weights, placements="raw"))(weights)
    assert_allclose(raw, cut_features(rankings, graph(3), placements="raw"), atol=1e-6)
