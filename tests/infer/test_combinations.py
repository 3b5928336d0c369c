"""Random combinations of answer columns and options: derivatives, and first fits of a process."""

from typing import Any

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from benchmarks.combinations import answers, drawn, measured
from relpref.data import PreferenceData
from relpref.infer import EP, Laplace
from relpref.infer.evidence import use_dual_space
from relpref.infer.plates import prepare_plates
from relpref.infer.program import Program
from relpref.infer.sites import Sites
from relpref.likelihoods import Logistic, Probit
from relpref.models import xpgp

# Several times what they take, 1 to 4 s: nothing is compiled.
MOST_SECONDS, MOST_MEGABYTES = 20, 600


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 30))]
)
def test_a_combination_takes_seconds(seed: int) -> None:
    (words,) = drawn(seed, 1)
    result = measured(words)
    assert result["result"] == "converged"
    assert result["seconds"] < MOST_SECONDS
    assert result["megabytes"] < MOST_MEGABYTES


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 60))]
)
def test_the_gradient_is_that_of_the_evidence(seed: int) -> None:
    (words,) = drawn(seed, 1)
    covariates = ["x"] if "covariate" in words else []
    data = PreferenceData.from_tables(answers=answers(words), covariates=covariates)
    options: dict[str, Any] = {}
    if "probability" not in words:
        model = Logistic if "Logistic" in words else Probit
        options = {"likelihood": model(lapse="lapse" in words)}
    engine: Any = Laplace if "laplace" in words else EP
    rng = np.random.default_rng(seed)
    with jax.enable_x64(True):
        program = prepare_plates(Program.of(xpgp, (data,), options), average=engine is EP)
        dual, nothing = use_dual_space(program.layout), np.zeros(program.layout.num_rows)

        def evidence(step: float, gradient: bool = False) -> Any:
            moved = {name: at[name] + step * along[name] for name in at}
            sites = Sites(nothing, nothing)
            return engine.evaluate(program, dual, gradient, moved, sites, 1e-11, 500, None)

        at = {name: np.asarray(value) + 0.1 for name, value in program.medians.items()}
        along = {name: rng.standard_normal(value.shape) for name, value in at.items()}
        slope = sum(np.vdot(along[name], evidence(0.0, True).gradient[name]) for name in at)
        sides = [evidence(step) for step in (1e-4, -1e-4)]
        heights = [float(side.log_evidence + side.log_prior) for side in sides]
        assert_allclose(slope, (heights[0] - heights[1]) / 2e-4, rtol=1e-6, atol=1e-6)
