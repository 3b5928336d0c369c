"""Kendall and Mallows kernels against loops over all linear extensions."""

from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from relpref.errors import DataError
from relpref.kernels import cut_kernel, kendall_features, kendall_kernel, mallows_kernel
from relpref.kernels import mallows as kendall_module
from relpref.kernels.mallows import kendall_columns, kendall_diagonal, mallows_diagonal

GOLD = np.load(Path(__file__).parents[1] / "gold" / "ranking_kernels.npz")
N = 5
# Full, top-k, exhaustive with ties, and non-exhaustive with and without ties.
EXHAUSTIVE = [[2, 0, 4, 1, 3], [0, 2, 1, 2, 2], [1, 1, 0, 2, 0], [0, 0, 0, 0, 0], [0, 1, 1, 1, 2]]
PARTIAL = [[-1, 0, 2, -1, 1], [0, -1, 0, 1, 1], [-1, -1, 0, -1, -1], [1, -1, -1, 0, 0]]
MIXED = np.array(EXHAUSTIVE + PARTIAL)


def extensions(row: Any) -> Any:
    """All full rankings that agree with it."""
    ordered = [(i, j) for i in range(N) for j in range(N) if 0 <= row[i] < row[j]]
    return np.array(
        [full for full in permutations(range(N)) if all(full[i] < full[j] for i, j in ordered)]
    )


def signs(rankings: Any) -> Any:
    """Whether the first of each pair of items is above the second."""
    above, below = np.array(list(combinations(range(N), 2))).T
    return np.where(rankings[:, above] < rankings[:, below], 1, -1)


SIGNS = [signs(extensions(row)) for row in MIXED]


def enumerated(value: Any) -> Any:
    """Means of a function of the number of discordant pairs over all pairs of extensions."""
    return np.array(
        [[np.mean(value((10 - one @ other.T) / 2)) for other in SIGNS] for one in SIGNS]
    )


@pytest.mark.parametrize("kind", ["full", "top3", "exhaustive"])
def test_gold(kind: str) -> None:
    positions = GOLD[f"{kind}_position"]
    assert_allclose(kendall_kernel(positions), GOLD[f"{kind}_kendall"], rtol=0, atol=1e-9)
    kernel = mallows_kernel(positions[:6], concentration=0.3)
    assert_allclose(kernel, GOLD[f"{kind}_mallows"], rtol=0, atol=1e-9)


def test_kendall_is_the_mean_over_linear_extensions() -> None:
    expected = enumerated(lambda distance: 1 - 2 * distance / 10)
    assert_allclose(kendall_kernel(MIXED), expected, rtol=0, atol=1e-12)
    features = kendall_features(MIXED)
    assert features.shape == (len(MIXED), 10)
    assert_allclose(features @ features.T, expected, rtol=0, atol=1e-12)
    with jax.enable_x64(True):
        assert_allclose(kendall_diagonal(MIXED), np.diag(expected), rtol=0, atol=1e-12)
    assert_allclose(kendall_kernel(MIXED[:3], MIXED), expected[:3], rtol=0, atol=1e-12)


def test_kendall_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    for held in (2**30, 0):
        monkeypatch.setattr(kendall_module, "_HELD_BYTES", held)
        for positions in (MIXED, MIXED[: len(EXHAUSTIVE)]):
            column, gram = kendall_columns(positions), kendall_kernel(positions)
            for row in range(len(positions)):
                assert_allclose(column(row), gram[:, row], rtol=0, atol=1e-12)


@pytest.mark.parametrize("concentration", [0.0, 1e-9, 0.4, 3.0, 300.0])
def test_mallows_is_the_mean_over_linear_extensions(
    concentration: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    positions, k = MIXED[: len(EXHAUSTIVE)], len(EXHAUSTIVE)
    expected = enumerated(lambda distance: np.exp(-concentration * distance))[:k, :k]
    kernel, error = mallows_kernel(positions, concentration=concentration, return_error=True)
    assert_allclose(kernel, expected, rtol=1e-12, atol=1e-15)
    assert not error.any()
    with jax.enable_x64(True):
        diagonal = mallows_diagonal(concentration, positions)
    assert_allclose(diagonal, np.diag(expected), rtol=1e-12, atol=1e-15)
    monkeypatch.setattr(kendall_module, "_COUNTED", 2 * positions.size)  # two rankings at once
    in_parts = mallows_kernel(positions, concentration=concentration)
    assert_allclose(in_parts, expected, rtol=1e-12, atol=1e-15)


def test_sampled_mallows_within_its_standard_error() -> None:
    expected = enumerated(lambda distance: np.exp(-0.3 * distance))
    kernel, error = mallows_kernel(
        MIXED, concentration=0.3, samples=400, rng_key=2, return_error=True
    )
    k = len(EXHAUSTIVE)
    assert_array_equal(error[:k, :k], 0)
    assert_allclose(error[k:, 3], 0, atol=1e-12)  # all alike to the ranking that ties everything
    assert np.all(np.delete(error[k:], 3, axis=1) > 0)
    off = ~np.eye(len(MIXED), dtype=bool)
    # Four standard errors, 60 distinct entries: false alarms in 1 of 250 runs; the key is fixed.
    assert np.all(np.abs(kernel - expected)[off] <= 4 * error[off] + 1e-12)
    assert error.max() <= 0.03
    # Equal rankings of two rankers share their draws: what that adds is in the error.
    options: Any = {"concentration": 0.3, "samples": 16, "return_error": True}
    many = [mallows_kernel(MIXED[[-1]], MIXED[[-1]], rng_key=key, **options) for key in range(60)]
    twice, told = np.transpose(np.reshape(many, (60, 2)))
    # Ratio of the mean square error to what is told, each from 60 keys: 1 within some tenths.
    assert 0.5 <= np.mean(np.square(twice - expected[-1, -1])) / np.mean(np.square(told)) <= 1.7
    surplus = np.diag(kernel - expected)[k:]
    assert_allclose(surplus, (1 - np.diag(expected)[k:]) / 400, atol=4 * error.max())
    # One kernel: draws belong to the ranking, not to its place, and Gram matrices are semidefinite.
    again = mallows_kernel(MIXED[[7, 2]], MIXED[[6, 7]], concentration=0.3, samples=400, rng_key=2)
    assert_allclose(again, kernel[np.ix_([7, 2], [6, 7])], rtol=1e-12)
    few = mallows_kernel(MIXED, concentration=0.3, samples=2)
    assert np.linalg.eigvalsh(few).min() >= -1e-12


def test_more_pairs_than_at_once() -> None:
    rng = np.random.default_rng(0)
    positions = np.stack(
        [np.unique(row, return_inverse=True)[1] for row in rng.integers(0, 9, (4, 40))]
    )
    positions[1, positions[1] > 5] = -1
    features = kendall_features(positions)
    assert_allclose(kendall_kernel(positions), features @ features.T, rtol=0, atol=1e-12)


def test_derivative_in_the_concentration() -> None:
    positions = jnp.asarray(EXHAUSTIVE)

    def total(concentration: Any) -> Any:
        kernel = mallows_kernel(positions, concentration=concentration)
        return jnp.sum(kernel * jnp.arange(25.0).reshape(5, 5))

    with jax.enable_x64(True):
        slope = jax.jit(jax.grad(total))(jnp.asarray(0.4))
        step = 1e-5
        expected = (total(0.4 + step) - total(0.4 - step)) / (2 * step)
        assert_allclose(slope, expected, rtol=1e-8)


def test_what_cannot_be_traced_is_no_number() -> None:
    with pytest.raises(DataError, match="GivenFeatures"):
        jax.jit(lambda strength: mallows_kernel(MIXED, concentration=strength))(0.1)
    kernel = jax.jit(lambda positions: mallows_kernel(positions, concentration=0.1))(MIXED)
    assert_array_equal(np.isnan(np.diag(kernel)), (MIXED < 0).any(axis=1))


def test_no_rankings() -> None:
    nothing = MIXED[:0]
    assert kendall_features(nothing).shape == (0, 10)
    assert kendall_kernel(nothing, MIXED).shape == (0, 9)
    assert mallows_kernel(MIXED, nothing, concentration=1.0).shape == (9, 0)


def test_what_does_not_fit_into_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relpref.limits.available_memory", lambda: 8.0 * 9)
    kernels: list[Any] = [
        kendall_kernel,
        lambda positions: cut_kernel(positions, graph=np.ones((5, 5))),
        lambda positions: mallows_kernel(positions, concentration=1.0),
    ]
    for kernel in kernels:
        with pytest.raises(DataError, match="the .* kernel .*needs .* of memory"):
            kernel(0 * MIXED)


def test_errors() -> None:
    with pytest.raises(DataError, match="3 and 5 items"):
        mallows_kernel(np.array([[0, 1, 2]]), MIXED, concentration=1.0)
    with pytest.raises(DataError, match="two at least"):
        kendall_features(np.array([[0]]))
    with pytest.raises(DataError, match="concentration is -1.0"):
        mallows_kernel(MIXED, concentration=-1.0)
    with pytest.raises(DataError, match="samples=1"):
        mallows_kernel(MIXED, concentration=1.0, samples=1)
