"""log Φ, its slope and its curvature against a continued fraction in extended precision."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy import special

from relpref.likelihoods import ProbitComparison

GRID = np.unique(
    np.concatenate([-np.logspace(-8, 6, 400), np.logspace(-8, np.log10(30), 200), [0.0]])
)
# The points that no known trouble concerns: see test_every_value_in_between.
COARSE = GRID[(GRID < -13.4) | (GRID > -13.0)]


def mills(x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """r = φ/Φ at −x for x ≥ 3, and r − x, by Laplace's continued fraction r = x + 1/(x + 2/(x +
    3/…))).
    """
    x = x.astype(np.longdouble)
    tail = np.zeros_like(x)
    for k in range(600, 0, -1):
        tail = k / (x + tail)
    return x + tail, tail


def reference(z: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """log Φ, φ/Φ and its negative derivative r(r + z), in extended precision in the left tail."""
    z = z.astype(np.longdouble)
    logarithm, ratio, curvature = (np.empty_like(z) for _ in range(3))
    left = z < -3
    ratio[left], excess = mills(-z[left])
    logarithm[left] = (
        -(z[left] ** 2) / 2 - np.log(2 * np.longdouble(np.pi)) / 2 - np.log(ratio[left])
    )
    curvature[left] = ratio[left] * excess
    body = np.asarray(z[~left], dtype=np.float64)
    logarithm[~left] = special.log_ndtr(body)
    ratio[~left] = np.exp(-(body**2) / 2 - np.log(2 * np.pi) / 2 - special.log_ndtr(body))
    curvature[~left] = ratio[~left] * (ratio[~left] + z[~left])
    return logarithm, ratio, curvature


# Everything that is looked at, in one array, so that JAX compiles once for each dtype.
MIDDLE = np.linspace(-8, 8, 400)
FAR = -np.logspace(6, 15, 50)
DENSE = np.linspace(-60, 0, 60_001)
EVERYTHING = np.concatenate([GRID, MIDDLE, FAR, DENSE])


@functools.cache
def everywhere(dtype: Any) -> tuple[NDArray[Any], ...]:
    """log Φ, slope and curvature of the likelihood; a cavity without variance leaves the bare
    functions.
    """

    def moments(gap: Any) -> Any:
        return ProbitComparison(gap).tilted(
            jnp.ones(gap.shape, jnp.int32), gap, jnp.zeros_like(gap)
        )

    with jax.enable_x64(dtype == np.float64):
        found = jax.jit(moments)(jnp.asarray(EVERYTHING, dtype))
        assert all(moment.dtype == dtype for moment in found)
        return tuple(np.asarray(moment) for moment in found)


def computed(z: NDArray[Any], dtype: Any) -> tuple[NDArray[Any], ...]:
    """At points that are part of `EVERYTHING`."""
    order = np.argsort(EVERYTHING, kind="stable")
    place = order[np.searchsorted(EVERYTHING, z, sorter=order)]
    assert_array_equal(EVERYTHING[place], z)
    return tuple(moment[place] for moment in everywhere(dtype))


def relative(found: NDArray[Any], truth: NDArray[Any]) -> float:
    return float(np.max(np.abs(found - truth) / np.abs(truth)))


BODY = COARSE[(np.abs(COARSE) > 1e-4) & (COARSE < 8)]


@pytest.mark.parametrize(
    ("z", "dtype", "tolerances"),
    [
        (GRID, np.float64, (1e-12, 1e-11, 1e-6)),
        (MIDDLE, np.float64, (1e-12, 1e-11, 1e-10)),
        (BODY, np.float32, (1e-5, 1e-4, 1e-3)),
        (DENSE, np.float64, (1e-12, 1e-11, np.inf)),
        (DENSE, np.float32, (1e-5, 1e-4, np.inf)),
    ],
    ids=["grid", "middle", "single", "dense", "dense and single"],
)
def test_values(z: Any, dtype: Any, tolerances: Any) -> None:
    moments, expected = computed(z, dtype), reference(z.astype(dtype))
    for found, truth, tolerance in zip(moments, expected, tolerances, strict=True):
        assert relative(found, truth) <= tolerance
    assert np.all((moments[2] >= 0) & (moments[2] <= 1))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_negative_precision_anywhere(dtype: Any) -> None:
    logarithm, ratio, curvature = computed(np.concatenate([COARSE, FAR]), dtype)
    assert np.all(logarithm <= 0)
    assert np.all(ratio >= 0)
    assert np.all((curvature >= 0) & (curvature <= 1))
    assert np.all(np.isfinite(ratio)) and np.all(np.isfinite(curvature))


def test_slopes_are_finite_everywhere() -> None:
    with jax.enable_x64(True):
        for value in (0, 1):

            def log_prob(gap: Any, value: int = value) -> Any:
                return ProbitComparison(gap).log_prob(value)

            slopes, curvatures = jax.jit(
                lambda z, f=log_prob: (jax.vmap(jax.grad(f))(z), jax.vmap(jax.grad(jax.grad(f)))(z))
            )(jnp.asarray(GRID))
            sign = 1 if value else -1
            expected = reference(sign * GRID)
            assert_allclose(slopes, sign * expected[1].astype(float), rtol=1e-11, atol=1e-300)
            assert_allclose(curvatures, -expected[2].astype(float), rtol=1e-6, atol=1e-300)
