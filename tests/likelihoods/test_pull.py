"""Derivatives of likelihoods by hand, on arrays of NumPy and of JAX, against differences."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from relpref.likelihoods.comparison import (
    DavidsonComparison,
    GradedComparison,
    LogisticComparison,
    LogisticGradedComparison,
    ProbitComparison,
    SoftComparison,
)
from relpref.likelihoods.lists import ListComparison, ListSizes
from relpref.likelihoods.weighted import WeightedComparison

SIZE = 7
MEAN = np.array([-3.0, -0.4, 0.0, 0.3, 2.0, 9.0, -12.0])
VARIANCE = np.array([0.3, 1.0, 4.0, 0.01, 2.0, 1.5, 0.8])
SCALE, SHIFT = np.linspace(0.6, 2.0, SIZE), np.array(0.2)
LAPSE = np.linspace(0.01, 0.3, SIZE)
CHOICES, GRADES = np.array([0, 1, 1, 0, 1, 1, 0]), np.array([-1, 0, 2, 0, 1, -2, 1])
ONE, TWO = np.array([0.4]), np.array([0.4, 1.3])


def likelihoods() -> dict[str, tuple[Any, Any]]:
    """Likelihoods with values of answers."""
    gap, cases = jnp.zeros(SIZE), dict[str, tuple[Any, Any]]()
    for name, lapse in (("", None), (" with lapses", LAPSE)):
        more: dict[str, Any] = {"scale": SCALE, "shift": SHIFT, "lapse": lapse}
        tie = np.clip(GRADES, -1, 1)
        cases |= {
            f"probit{name}": (ProbitComparison(gap, **more), CHOICES),
            f"logistic{name}": (LogisticComparison(gap, **more), CHOICES),
            f"ties{name}": (GradedComparison(gap, ONE, **more), tie),
            f"grades{name}": (GradedComparison(gap, TWO, **more), GRADES),
            f"logistic grades{name}": (LogisticGradedComparison(gap, TWO, **more), GRADES),
            f"Davidson{name}": (DavidsonComparison(gap, ONE, **more), tie),
        }
    each = np.linspace(0.2, 0.6, SIZE)[:, None]
    single = cases["ties"][0]
    number = np.array([-1, -1, 0, 0, -1, -1, -1])
    listed = ListComparison(single, number, CHOICES, 1 - CHOICES, ListSizes(1, 2, 3, False))
    reports = SoftComparison(gap, scale=SCALE, shift=SHIFT), np.linspace(0.05, 0.9, SIZE)
    weights = np.linspace(0.3, 3.0, SIZE)
    return cases | {
        "a threshold for each answer": (GradedComparison(gap, each), np.clip(GRADES, -1, 1)),
        "one scale": (LogisticComparison(gap, scale=np.array(1.2)), CHOICES),
        "reports": reports,
        "weights": (WeightedComparison(single, weights), cases["ties"][1]),
        "weighted reports": (WeightedComparison(reports[0], weights), reports[1]),
        "lists": (listed, np.where(number < 0, cases["ties"][1], 1)),
    }


def leaves_of(likelihood: Any) -> set[str]:
    inner = getattr(likelihood, "single", likelihood)
    graded = {"margin", "steps"} if isinstance(inner, GradedComparison) else set()
    return {"scale", "shift"} | graded | ({"lapse"} if inner.lapse is not None else set())


def differences(likelihood: Any, leaf: str, total: Any) -> Any:
    """Central differences of a function of the likelihood in each entry of a leaf of NumPy."""
    before, step = np.array(getattr(likelihood, leaf), float), 1e-5
    slopes = np.zeros(before.shape)
    for place in np.ndindex(before.shape):
        sides = []
        for side in (step, -step):
            moved = before.copy()
            moved[place] += side
            setattr(likelihood, leaf, moved)
            sides.append(total())
        slopes[place] = (sides[0] - sides[1]) / (2 * step)
    setattr(likelihood, leaf, before)
    return slopes


with jax.enable_x64(True):
    CASES = likelihoods()
POWERS = {"lists": [1.0] * SIZE}  # they are not repeated


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("variance", [VARIANCE, 0 * VARIANCE], ids=["cavities", "points"])
def test_against_differences(name: str, variance: Any) -> None:
    """Of answers that were given once and of others."""
    with jax.enable_x64(True):
        likelihood, value = CASES[name]
        likelihood = jax.tree.map(np.array, likelihood)
        weight = np.array([1.0, 0.5, 2.0, 1.0, 1.5, 1.0, 0.0])
        power = np.array(POWERS.get(name, [2.5, 1.0, 3.0, 1.0, 1.0, 4.0, 1.0]))
        slopes = likelihood.pull(value, MEAN, variance, weight, power)
        single = getattr(likelihood, "single", likelihood)

        def total() -> float:
            moments = likelihood.powered(value, MEAN, variance, power)
            return float(weight @ moments.log_normalizer)

        assert {path[-1] for path in slopes} == leaves_of(likelihood)
        for path, slope in slopes.items():
            assert type(slope).__module__ == "numpy"
            expected = differences(single, path[-1], total)
            assert_allclose(slope, expected, rtol=1e-6, atol=1e-7, err_msg=str(path))


@pytest.mark.parametrize("name", ["ties with lapses", "logistic", "weights"])
def test_arrays_of_jax(name: str) -> None:
    with jax.enable_x64(True):
        likelihood, value = CASES[name]
        given = value, MEAN, VARIANCE, np.ones(SIZE)
        by_numpy = jax.tree.map(np.asarray, likelihood).pull(*given)
        pull: Any = jax.tree.map(jnp.asarray, likelihood).pull
        # Weights take longer to compile as a whole than step by step.
        by_jax = (pull if name == "weights" else jax.jit(pull))(*map(jnp.asarray, given))
        for path, slope in by_numpy.items():
            assert_allclose(by_jax[path], slope, rtol=1e-9, atol=1e-10)
