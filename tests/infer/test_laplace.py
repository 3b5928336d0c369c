"""Laplace's approximation against one of another make: scipy finds the mode, entry by entry algebra
does the rest.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import log_ndtr

from relpref.data import PreferenceData
from relpref.errors import InferenceError
from relpref.infer import EP, Laplace
from relpref.kernels import Precomputed
from relpref.models import xpgp


def laplace_by_hand(
    data: PreferenceData, covariance: np.ndarray[Any, Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], float]:
    """Mean, covariance and log evidence; in the whitened space, where scipy has no trouble with the
    prior.
    """
    root = np.linalg.cholesky(covariance)
    rows = np.repeat(np.arange(data.num_comparisons), data.count)
    projected = root[data.winner[rows]] - root[data.loser[rows]]

    def height(white: Any) -> tuple[float, Any]:
        gap = projected @ white
        ratio = np.exp(-0.5 * gap**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(gap))
        return float(0.5 * white @ white - log_ndtr(gap).sum()), white - projected.T @ ratio

    found = minimize(height, np.zeros(len(root)), jac=True, method="BFGS").x
    for _ in range(4):  # BFGS stops near the mode; Newton's method goes all the way
        gap = projected @ found
        ratio = np.exp(-0.5 * gap**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(gap))
        hessian = np.eye(len(root)) + (projected.T * (ratio * (gap + ratio))) @ projected
        found = found - np.linalg.solve(hessian, height(found)[1])
    log_evidence = -height(found)[0] - 0.5 * np.linalg.slogdet(hessian)[1]
    return root @ found, root @ np.linalg.solve(hessian, root.T), float(log_evidence)


@pytest.mark.parametrize("space", ["latent", "observation"])
def test_against_scipy(
    space: Any, data: PreferenceData, hyperparameters: dict[str, Any], parts: Any
) -> None:
    mean, covariance, log_evidence = laplace_by_hand(
        data, sum(parts(data, hyperparameters).values())
    )
    found: Any = Laplace(xpgp, fixed=hyperparameters, space=space).run(0, data)
    assert_allclose(found.mean(), mean, atol=1e-6)
    assert_allclose(found.covariance(), covariance, atol=1e-6)
    assert abs(found.log_evidence - log_evidence) <= 1e-8
    assert found.info["engine"] == "Laplace"
    assert found.info["iterations"] <= 12


@pytest.mark.slow
def test_it_is_the_rougher_of_the_two(
    gold: Callable[[str], Any], gold_data: Callable[[Any], PreferenceData]
) -> None:
    """The documentation quotes these: against the exact posterior of a problem with 40 items and a
    hub.
    """
    problem = gold("hub_n40")
    kernel = Precomputed(problem["K"])
    data = gold_data(problem).without_relation("links")
    errors = {}
    for engine in (EP, Laplace):
        found: Any = engine(xpgp, fixed={"attributes_amplitude": 1.0}).run(
            0, data, attribute_kernel=kernel
        )
        mean = found.utilities()["mean"].to_numpy()
        errors[engine.name] = (
            np.max(np.abs(mean - problem["mean"]) / problem["sd"]),
            abs(found.log_evidence - problem["log_evidence"]),
        )
    assert errors["EP"][0] <= 0.03
    assert 0.2 <= errors["Laplace"][0] <= 1.0
    assert errors["EP"][1] <= 0.35 <= errors["Laplace"][1] <= 4.0


@pytest.mark.slow
def test_hyperparameters_maximise_its_own_evidence(data: PreferenceData) -> None:
    found: Any = Laplace(xpgp).run(0, data)
    assert found.info["gradient_norm"] <= 1e-2
    again: Any = Laplace(xpgp, fixed=found.hyperparameters).run(0, data)
    assert abs(again.log_evidence - found.log_evidence) <= 1e-8


def test_too_few_steps_say_so(data: PreferenceData, hyperparameters: dict[str, Any]) -> None:
    with pytest.raises(InferenceError, match="max_iterations"):
        Laplace(xpgp, fixed=hyperparameters, max_sweeps=2).run(0, data)
