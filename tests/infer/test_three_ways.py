"""One problem, its hyperparameters found by maximising, by EM, and integrated over."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from relpref.data import PreferenceData
from relpref.errors import InferenceError
from relpref.infer import EP
from relpref.infer.assemble import thinned
from relpref.kernels import SquaredExponential
from relpref.models import xpgp
from relpref.posterior.gaussian import MixtureBelief

smooth = partial(xpgp, attribute_kernel=SquaredExponential())
# Two amplitudes are free, so that a grid can integrate over them.
FIXED = {"attributes_lengthscale": 1.5, "next_range": 1.5, "individual_amplitude": 0.6}


@pytest.fixture(scope="module")
def engine() -> Callable[..., Any]:
    def run(data: PreferenceData, **options: Any) -> Any:
        return EP(smooth, fixed=FIXED, **options).run(0, data)

    return run


@pytest.fixture(scope="module")
def drawn(engine: Callable[..., Any], data: PreferenceData) -> Any:
    return engine(data, hyperparameters="nuts", draws=200, warmup=80)


@pytest.fixture(scope="module")
def on_a_grid(data: PreferenceData) -> Any:
    """The average over a grid of amplitudes that is even in the quantiles of their priors."""
    levels = (np.arange(9) + 0.5) / 9
    first, second = np.meshgrid(*(stats.halfnorm.ppf(levels, scale=scale) for scale in (2, 1)))
    draws = {"attributes_amplitude": first.ravel(), "next_amplitude": second.ravel()}
    weights = np.full(first.size, -np.log(first.size))
    return EP(smooth, fixed=FIXED).run_at_draws(draws, 0, data, prior_log_weights=weights)


@pytest.mark.slow
def test_em_arrives_where_the_gradient_vanishes(engine: Any, data: PreferenceData) -> None:
    maximised, em = (engine(data, hyperparameters=way) for way in ("maximize", "em"))
    for name, value in maximised.hyperparameters.items():
        assert_allclose(em.hyperparameters[name], value, rtol=0.03)
    assert abs(em.log_evidence - maximised.log_evidence) <= 1e-2
    assert em.info["hyperparameters"] == "em"
    assert em.info["evaluations"] > maximised.info["evaluations"]  # the docs say that it is slower


def test_em_that_may_not_finish_says_so(engine: Any, data: PreferenceData) -> None:
    with pytest.raises(InferenceError, match="hyperparameters_not_converged"):
        engine(data, hyperparameters="em", max_evaluations=2)


@pytest.mark.slow
def test_draws_are_those_of_evidence_times_prior(drawn: Any, on_a_grid: Any) -> None:
    """Within five standard errors by the effective sample size: a false alarm in a million runs,
    but for the grid's own error.
    """
    assert drawn.info["r_hat"] <= 1.1
    assert drawn.info["ess"] >= 40
    for name, values in on_a_grid.hyperparameter_draws.items():
        mean = on_a_grid.belief.weights @ values
        sd = np.sqrt(on_a_grid.belief.weights @ (values - mean) ** 2)
        draws = drawn.hyperparameter_draws[name]
        assert abs(draws.mean() - mean) <= 5 * sd / np.sqrt(drawn.info["ess"])
        assert abs(np.log(draws.std() / sd)) <= 0.5


@pytest.mark.slow
def test_the_mixture_is_the_average_over_the_grid(drawn: Any, on_a_grid: Any) -> None:
    sd = on_a_grid.sd()
    assert np.max(np.abs(drawn.mean() - on_a_grid.mean()) / sd) <= 0.2
    assert np.max(np.abs(drawn.sd() / sd - 1)) <= 0.2
    assert drawn.log_evidence is None
    assert isinstance(drawn.belief, MixtureBelief)
    chances = [each.prefer("e0", "e3")["probability"][0] for each in (drawn, on_a_grid)]
    assert abs(chances[0] - chances[1]) <= 0.03


def test_components_are_thinned_where_their_covariances_would_not_fit() -> None:
    assert thinned(list(range(400)), 12) == list(range(400))
    few = thinned(list(range(400)), 1000)
    assert len(few) == 30
    assert (few[0], few[14], few[15], few[-1]) == (0, 199, 200, 399)  # as many of each chain
