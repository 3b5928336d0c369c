"""Every kind of answer against its definition, integrated numerically over the noise and the
cavity.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, special, stats

from relpref.likelihoods import (
    Comparison,
    DavidsonComparison,
    GradedComparison,
    LogisticComparison,
    LogisticGradedComparison,
    ProbitComparison,
    SoftComparison,
)
from relpref.likelihoods.chances import ROUNDING
from relpref.likelihoods.tilted import (
    interval_log,
    interval_moments,
    log_ndtr_curvature,
    mills_ratio,
    ndtr_moments,
)
from relpref.likelihoods.weighted import WeightedComparison

_RNG = np.random.default_rng(5)
MEANS = np.r_[-3.0, -1, 0, 0, 0.7, 2, -6, 4, -60, 60, -25, 30, _RNG.normal(0, 4, 12)]
VARIANCES = np.r_[0.1, 1, 0.5, 30, 2, 9, 0.3, 100, 1, 2, 400, 48.9, np.exp(_RNG.uniform(-4, 6, 12))]
SIZE = MEANS.size
SCALE = np.tile([1.0, 0.6, 2.5], SIZE // 3)
SHIFT = np.tile([0.0, 0.4, -0.3, 0.2], SIZE // 4)
THRESHOLDS, DAVIDSON = np.array([0.3, 0.9, 2.0]), np.array([1.1])
LAPSE = 0.08
# Each kind: how it is made, the values of the rows, and p(value | z) of a standardised gap z.
Make = Callable[..., Comparison]


def plain(found: Any) -> Any:
    """As NumPy arrays, which stay in double precision outside of JAX's."""
    return jax.tree.map(np.asarray, found)


def between(log: Callable[[Any], Any], low: Any, high: Any) -> Any:
    """Log probability between two ends, by the log of a symmetric distribution function."""
    flip = low + high > 0
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    with np.errstate(divide="ignore"):
        return log(high) + np.log1p(-np.exp(log(low) - log(high)))


def graded_log(value: int, z: Any, scale: float) -> Any:
    ends = np.r_[THRESHOLDS, np.inf]
    low, high = (
        (-ends[0], ends[0])
        if value == 0
        else (np.sign(value) * ends[abs(value) - 1], np.sign(value) * ends[abs(value)])
    )
    return between(special.log_ndtr, min(low, high) / scale - z, max(low, high) / scale - z)


def logistic_graded_log(value: int, z: Any, scale: float) -> Any:
    ends, sign = np.r_[THRESHOLDS, np.inf] / scale, -1 if value < 0 else 1
    low, high = (ends[abs(value) - 1], ends[abs(value)]) if value else (-ends[0], ends[0])
    return between(special.log_expit, sign * z - high, sign * z - low)


def davidson_log(value: int, z: Any, scale: float) -> Any:
    log_nu = np.log(np.expm1(DAVIDSON[0] / scale))
    total = np.logaddexp(np.logaddexp(z / 2, -z / 2), log_nu)
    return (value * z / 2 if value else log_nu) - total


def soft_log(value: float, z: Any, scale: float) -> Any:
    report = special.ndtri(value)
    error = np.hypot(scale, ROUNDING)
    return 0.5 * report**2 - 0.5 * ((report - z * scale) / error) ** 2 - np.log(error)


def signed(log: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda value, z, scale: log(z if value else -z)


def lapsing(log: Callable[..., Any], at_random: Callable[[Any], float]) -> Callable[..., Any]:
    return lambda value, z, scale: np.logaddexp(
        np.log(LAPSE * at_random(value)), np.log1p(-LAPSE) + log(value, z, scale)
    )


KINDS: dict[str, tuple[Make, Any, Callable[..., Any]]] = {
    "probit": (ProbitComparison, np.arange(SIZE) % 2, signed(special.log_ndtr)),
    "logistic": (LogisticComparison, np.arange(SIZE) % 2, signed(special.log_expit)),
    "graded": (
        lambda gap, **k: GradedComparison(gap, k.pop("thresholds", THRESHOLDS), **k),
        np.arange(SIZE) % 7 - 3,
        graded_log,
    ),
    "logistic graded": (
        lambda gap, **k: LogisticGradedComparison(gap, k.pop("thresholds", THRESHOLDS), **k),
        np.arange(SIZE) % 7 - 3,
        logistic_graded_log,
    ),
    "davidson graded": (
        lambda gap, **k: DavidsonComparison(gap, k.pop("thresholds", DAVIDSON), **k),
        np.arange(SIZE) % 3 - 1,
        davidson_log,
    ),
    "lapsed probit": (
        partial(ProbitComparison, lapse=LAPSE),
        np.arange(SIZE) % 2,
        lapsing(signed(special.log_ndtr), lambda value: 1 / 2),
    ),
    "lapsed logistic": (
        partial(LogisticComparison, lapse=LAPSE),
        np.arange(SIZE) % 2,
        lapsing(signed(special.log_expit), lambda value: 1 / 2),
    ),
    "lapsed graded": (
        lambda gap, **k: GradedComparison(gap, k.pop("thresholds", THRESHOLDS), lapse=LAPSE, **k),
        np.arange(SIZE) % 7 - 3,
        lapsing(graded_log, lambda value: 1 / 7),
    ),
    "soft": (SoftComparison, np.linspace(0.02, 0.99, SIZE), soft_log),
}


def by_numpy(make: Make, mean: Any, **parameters: Any) -> Any:
    """A likelihood that holds arrays of NumPy, and computes with NumPy."""
    return jax.tree.map(np.asarray, make(jnp.asarray(mean), **parameters))


def integrated(
    log: Callable[[Any], Any], mean: float, variance: float
) -> tuple[float, float, float]:
    """log Ẑ, its derivative and minus its second, by adaptive quadrature of the integrand scaled by
    its largest value.
    """
    sd = np.sqrt(variance)

    def exponent(z: Any) -> Any:
        return log(z) - 0.5 * (z - mean) ** 2 / variance

    ends = (
        min(mean, 0) - 12 * sd - 12,
        max(mean, 0) + 12 * sd + 12,
    )  # the mode lies between the two
    grid = np.linspace(*ends, 20_001)
    values = exponent(grid)
    top, peak = values.max(), grid[values.argmax()]
    inside = grid[values > top - 40]
    points = np.linspace(inside[0], inside[-1], 9)[1:-1]

    def moment(weight: Callable[[float], float]) -> float:
        # The factor is above 1/2, so that an absolute error is a relative one.
        total = integrate.quad(
            lambda z: weight(z) * np.exp(exponent(z) - top),
            inside[0],
            inside[-1],
            points=points,
            epsabs=0,
            epsrel=1e-12,
            limit=400,
        )
        return float(total[0])

    zeroth = moment(lambda z: 1.0)
    first = peak + moment(lambda z: z - peak) / zeroth
    spread = moment(lambda z: (z - first) ** 2) / zeroth
    value = top + np.log(zeroth) - 0.5 * np.log(2 * np.pi * variance)
    return value, (first - mean) / variance, (variance - spread) / variance**2


def check(found: Any, k: int, log: Any, mean: float, variance: float, error: float) -> None:
    """Moments of row k against integrals of the standardised gap."""
    s = SCALE[k]
    value, slope, bend = integrated(log, mean / s, variance / s**2)
    for moment, truth in zip(found, (value, slope / s, bend / s**2), strict=True):
        assert abs(moment[k] - truth) <= error * max(1.0, abs(truth)), (k, mean, variance)


WEIGHTS = np.tile([0.03, 0.5, 1.0, 7.5], SIZE // 4)


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize("kind", ["probit", "logistic", "graded", "lapsed probit", "soft"])
def test_weighted_moments(kind: str) -> None:
    """Powers of an answer's probability."""
    make, values, log = KINDS[kind]
    means, variances = np.clip(MEANS, -6, 6), np.minimum(VARIANCES, 30)

    with jax.enable_x64(True):
        single = by_numpy(make, means, scale=SCALE)
        weighted: Any = WeightedComparison(single, WEIGHTS)
        found = weighted.tilted(values, means, variances)
        certain = (each.tilted(values, means, np.zeros(SIZE)) for each in (weighted, single))
        for one, other in zip(*certain, strict=True):
            assert_allclose(one, WEIGHTS * other, rtol=1e-9, atol=1e-12)
    for k in range(SIZE // 2, SIZE):
        power = partial(lambda z, k: WEIGHTS[k] * log(values[k], z, scale=SCALE[k]), k=k)
        check(found, k, power, means[k], variances[k], 1e-6)


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_moments(kind: str) -> None:
    make, values, log = KINDS[kind]
    with jax.enable_x64(True):
        found = by_numpy(make, MEANS, scale=SCALE, shift=SHIFT).tilted(values, MEANS, VARIANCES)
    for k in range(SIZE):
        single = partial(log, values[k], scale=SCALE[k])
        check(found, k, single, MEANS[k] + SHIFT[k], VARIANCES[k], 1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_certain_gaps_and_compiled_moments(kind: str) -> None:
    """Compiled, moments are those by NumPy, and the gradient is the slope of the normalizer; at
    variance 0 the normalizer is log_prob.
    """
    make, values, _ = KINDS[kind]

    @jax.jit
    def everything(mean: Any, variance: Any) -> Any:
        def total(mean: Any) -> Any:
            moments = make(mean, scale=SCALE, shift=SHIFT).tilted(values, mean, variance)
            return jnp.sum(moments.log_normalizer), moments

        slope, moments = jax.grad(total, has_aux=True)(mean)
        return moments, slope, make(mean, scale=SCALE, shift=SHIFT).log_prob(values)

    with jax.enable_x64(True):
        mean = np.clip(MEANS, -30, 30)
        moments, slope, log = everything(mean, np.zeros(SIZE))
        assert_allclose(moments.log_normalizer, log, rtol=1e-9, atol=1e-11)
        assert_allclose(moments.gradient, slope, rtol=1e-8, atol=1e-10)
        moments, slope, _ = everything(mean, VARIANCES)
        assert_allclose(moments.gradient, slope, rtol=1e-7, atol=1e-9)
        uncompiled = by_numpy(make, mean, scale=SCALE, shift=SHIFT)
        for one, other in zip(moments, uncompiled.tilted(values, mean, VARIANCES), strict=True):
            assert_allclose(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_extreme_cavities(kind: str) -> None:
    """Finite, and a positive tilted variance, however far the answer is from what was expected."""
    far = np.logspace(-2, 5, 30)
    mean, variance = np.meshgrid(np.r_[-far, 0, far], np.r_[0, np.logspace(-6, 6, 30)])
    mean, variance = (np.resize(grid, (79, SIZE)) for grid in (mean, variance))
    with jax.enable_x64(True):
        likelihood = by_numpy(KINDS[kind][0], MEANS)
        rows = [
            likelihood.tilted(KINDS[kind][1], *cavity)
            for cavity in zip(mean, variance, strict=True)
        ]
    curvature = np.stack([moments.curvature for moments in rows])
    assert all(np.all(np.isfinite(moment)) for moments in rows for moment in moments)
    assert np.all(curvature >= 0) == ("lapsed" not in kind)
    assert np.all(variance * curvature < 1)


@pytest.mark.parametrize("kind", KINDS)
def test_log_prob_normalises_and_samples_follow_it(kind: str) -> None:
    make, _, _ = KINDS[kind]
    gap = np.array([-1.5, 0.0, 0.4, 2.5])
    x = np.linspace(-6, 7.5, 1001)[:, None]  # a report p = Φ(x)
    most = 1 if kind == "davidson graded" else 3
    grades = np.arange(-most, most + 1) if kind.endswith("graded") else np.arange(2)
    values = special.ndtr(x) if kind == "soft" else grades[:, None]

    @jax.jit
    def all_of_it(key: Any) -> Any:
        likelihood = make(jnp.asarray(gap), scale=0.8, shift=0.3)
        log = likelihood.log_prob(jnp.broadcast_to(values, (len(values), 4)))
        return likelihood.sample(key, (20_000,)), log

    with jax.enable_x64(True):
        draws, log = plain(all_of_it(jax.random.key(1)))
        predicted = by_numpy(make, gap, scale=0.8, shift=0.3).predict(gap, np.zeros(4))
    weight = stats.norm.pdf(x) * (x[1] - x[0]) if kind == "soft" else 1.0
    mass = weight * np.exp(log)
    assert_allclose(mass.sum(axis=0), 1, rtol=1e-7)
    if kind == "soft":
        middle, spread = (mass * values).sum(axis=0), draws.std(axis=0)
    else:
        middle = (mass * (values > 0)).sum(axis=0)
        assert set(np.unique(draws)) <= set(grades)
        draws, spread = draws > 0, np.sqrt(middle * (1 - middle))
    assert np.all(np.abs(draws.mean(axis=0) - middle) < 4.9 * spread / np.sqrt(20_000) + 1e-4)
    assert_allclose(predicted["probability"], middle, rtol=1e-7)
    if kind.endswith("graded"):
        assert_allclose(predicted["tie"], mass[most], rtol=1e-10)


def test_log_prob_and_its_slopes_are_finite_in_single_precision() -> None:
    """As NUTS sees them, with thresholds that are hardly apart and gaps that hardly occur."""
    gap = np.r_[-np.logspace(-3, 4, 30), 0, np.logspace(-3, 4, 30)]

    @jax.jit
    def both(value: Any, thresholds: Any) -> Any:
        def total(gap: Any, thresholds: Any, scale: Any) -> Any:
            return jnp.sum(
                GradedComparison(gap, thresholds, scale=scale).log_prob(jnp.full(gap.shape, value))
            )

        return jax.value_and_grad(total, (0, 1, 2))(jnp.asarray(gap, jnp.float32), thresholds, 0.7)

    for thresholds in ([0.3, 1.0, 2.0], [1e-6, 1e-5, 1.0], [20.0, 40.0, 60.0]):
        for value in range(-3, 4):
            found = jax.tree.leaves(both(value, jnp.asarray(thresholds, jnp.float32)))
            assert all(np.all(np.isfinite(leaf)) for leaf in found), (thresholds, value)


def test_a_grade_that_does_not_exist_is_impossible() -> None:
    log = jax.jit(lambda value: GradedComparison(jnp.zeros(3), THRESHOLDS).log_prob(value))(
        np.array([4, -4, 3])
    )
    assert np.isneginf(log).tolist() == [True, True, False]


def test_a_narrow_interval_is_exact_on_both_sides_of_the_switch() -> None:
    width = np.repeat([1e-7, 9e-3, 1.1e-2, 2e-2], 3)
    middle = np.tile([0.0, 0.9, -3.0], 4)
    with jax.enable_x64(True):
        found = plain(
            jax.jit(interval_moments)(jnp.asarray(middle - width / 2), jnp.asarray(width))
        )
    nodes, weights = np.polynomial.legendre.leggauss(12)
    density = stats.norm.pdf(middle[:, None] + width[:, None] * nodes / 2)
    expected = np.log(width / 2 * (density @ weights))
    assert_allclose(found.log_normalizer, expected, rtol=1e-9)
    assert_allclose(interval_log(middle - width / 2, width), expected, rtol=1e-9)
    assert_allclose(found.gradient, middle * (1 - width**2 / 12), rtol=1e-7, atol=1e-12)
    assert_allclose(found.curvature, 1 - width**2 / 12, rtol=1e-7)


def test_the_logarithm_of_an_interval_alone() -> None:
    rng = np.random.default_rng(0)
    lower, width = rng.normal(0, 20, 2000), np.exp(rng.uniform(-12, 4, 2000))
    width[::7] = np.inf
    expected = interval_moments(lower, width).log_normalizer
    assert_allclose(interval_log(lower, width), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_pytrees(kind: str) -> None:
    make, _, _ = KINDS[kind]
    likelihood = make(jnp.asarray(MEANS), scale=SCALE, shift=SHIFT)
    assert likelihood.log_concave == ("lapsed" not in kind)
    again = jax.jit(lambda one: one)(likelihood)
    assert again.batch_shape == (SIZE,)
    leaves, structure = jax.tree.flatten(likelihood)
    jax.tree.unflatten(structure, [object()] * len(leaves))


@pytest.mark.parametrize("kind", [LogisticGradedComparison, DavidsonComparison])
def test_fewer_nodes_where_all_gaussians_are_narrow(kind: Any) -> None:
    """The moments are those beside a wide one, where there are many nodes, and at points, where
    there is one.
    """
    means, variances = np.array([-6.0, -0.4, 1.0, 8.0, 0.0]), np.array([0.0, 1e-4, 0.3, 1.5, 1.0])
    wide = np.r_[variances[:4], 9.0]

    def moments(value: Any, variance: Any) -> Any:
        return by_numpy(kind, np.zeros(5), thresholds=np.array([0.7])).tilted(
            value, means, variance
        )

    with jax.enable_x64(True):
        for value in np.repeat([[-1], [0], [1]], 5, axis=1):
            for pair in ((variances, wide), (np.zeros(5), np.full(5, 1e-14))):
                for ours, theirs in zip(*(moments(value, each) for each in pair), strict=True):
                    assert_allclose(ours[:4], theirs[:4], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("kind", "thresholds"),
    [(DavidsonComparison, [[0.3], [1.2]]), (GradedComparison, [[0.3, 0.9], [1.2, 2.0]])],
)
def test_thresholds_of_each_answer(kind: Any, thresholds: Any) -> None:
    """As those of one, row by row."""
    mean, variance, value = np.array([0.4, -0.8]), np.array([0.5, 2.0]), np.array([0, -1])

    def predicted(likelihood: Any) -> Any:
        return likelihood.tilted(value, mean, variance), likelihood.predict(mean, variance)

    with jax.enable_x64(True):
        together = jax.jit(predicted)(kind(jnp.asarray(mean), np.array(thresholds), scale=0.7))
        for row in range(2):
            alone = predicted(by_numpy(kind, mean, thresholds=np.array(thresholds[row]), scale=0.7))
            jax.tree.map(lambda a, b, row=row: assert_allclose(a[row], b[row]), together, alone)


@pytest.mark.parametrize("kind", [LogisticGradedComparison, DavidsonComparison])
def test_logistic_ties_in_single_precision(kind: Any) -> None:
    """As samplers see them by default."""

    @jax.jit
    def both(gap: Any) -> Any:
        its = kind(gap, jnp.array([0.7]))
        return its.log_prob(jnp.zeros(3, jnp.int32)), its.sample(jax.random.key(0), (5,))

    log, draws = both(jnp.array([-1.0, 0.0, 40.0]))
    assert log.dtype == jnp.float32 and np.isfinite(log).all() and draws.shape == (5, 3)


def test_moments_of_the_normal_distribution_function() -> None:
    z = np.concatenate([np.linspace(-60, 60, 4001), [-1e5, 1e5]])
    total, ratio, bend = ndtr_moments(z)
    assert_allclose(total, special.log_ndtr(z), rtol=2e-15, atol=2e-13)
    assert_allclose(ratio, mills_ratio(z), rtol=0)
    assert_allclose(bend, log_ndtr_curvature(z), rtol=1e-15)
