"""When engines stop: EP where only variances are left to settle, and Laplace where a full step goes
too far.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit

from relpref import PreferenceData
from relpref.infer import EP, InferenceWarning, Laplace
from relpref.kernels import GaussianProcess
from relpref.likelihoods import LogitBernoulli
from relpref.linalg import Dense
from relpref.models import xpgp

VARIANCE, COUNT = 30.0, 2


def one_decision() -> None:
    f = numpyro.sample("f", GaussianProcess(Dense(jnp.full((1, 1), VARIANCE))))
    with numpyro.plate("example", COUNT):
        numpyro.sample("decision", LogitBernoulli(f[np.zeros(COUNT, int)]), obs=np.ones(COUNT, int))


def newton(x: float, steps: int) -> tuple[float, float]:
    """Where the last of so many full steps would lead; and the smallest part of one that was taken,
    of 1, ½, ¼, ...
    """

    def height(x: float) -> float:
        return float(-COUNT * np.logaddexp(0, -x) - 0.5 * x**2 / VARIANCE)

    least = 1.0
    for _ in range(steps):
        slope, curvature = COUNT * expit(-x), COUNT * expit(x) * expit(-x)
        there = (slope + curvature * x) * VARIANCE / (1 + curvature * VARIANCE)
        part = 1.0
        while height(x + part * (there - x)) < height(x):
            part *= 0.5
        least = min(least, part)
        x += part * (there - x)
    return there, least


def test_a_step_that_goes_too_far_is_halved_until_it_climbs() -> None:
    start = -5.0  # where the likelihood is nearly linear; these sites put the first point there
    sites = {
        "precision": np.full(COUNT, 1.0),
        "shift": np.full(COUNT, start * (1 / (COUNT * VARIANCE) + 1)),
    }
    for steps in (2, 3):
        stopped = Laplace(one_decision, max_sweeps=steps, throw=False)
        found: Any = stopped.run_from(sites, 0)
        there, least = newton(start, steps)
        assert least == 0.5
        with pytest.warns(InferenceWarning, match="max_iterations"):
            assert_allclose(found.mean(), there, rtol=1e-8)


@pytest.mark.parametrize(
    ("rows", "raters", "grouped", "amplitude", "spread", "most"),
    [
        (300, 10, False, 1.0, 1.0, 22),  # 53 sweeps without extrapolation
        (300, 10, True, 3.0, 1.5, 27),  # 54
        (60, 4, True, 5.0, 2.5, 45),  # no convergence within 500
    ],
)
def test_updates_that_shrink_slowly_are_extrapolated(
    rows: int, raters: int, grouped: bool, amplitude: float, spread: float, most: int
) -> None:
    rng = np.random.default_rng(0)
    utility = rng.normal(size=8)
    noise = np.exp(rng.normal(0, 0.4, size=raters))
    rater = rng.integers(0, raters, size=rows)
    pairs = np.array([rng.choice(8, 2, replace=False) for _ in range(rows)])
    gap = utility[pairs[:, 0]] - utility[pairs[:, 1]]
    lost = gap + noise[rater] * rng.normal(size=rows) <= 0
    pairs[lost] = pairs[lost][:, ::-1]
    answers = pd.DataFrame(pairs.astype(str), columns=["winner", "loser"])
    answers["rater"] = rater.astype(str)
    given = {"individual_amplitude": amplitude, "rater_spread": spread}
    if grouped:
        answers["group"] = (np.arange(rows) % 20).astype(str)
        given["group_sd"] = 1.0
    data = PreferenceData.from_tables(answers=answers)
    engine = EP(xpgp, fixed=given, hyperparameters="maximize", check=False)
    posterior = engine.run(0, data, progress_bar=False)
    assert posterior.result.ok
    assert posterior.info["iterations"] <= most
    assert posterior.info["residual"] <= engine.tol
