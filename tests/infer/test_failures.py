"""How inference fails: with a code and a remedy, and never with numbers that look like an
answer.
"""

import warnings
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import Array
from numpyro.distributions import constraints

import relpref
from relpref.data import PreferenceData
from relpref.errors import InferenceError
from relpref.infer import EP, InferenceWarning, Result
from relpref.kernels import GaussianProcess, Precomputed
from relpref.likelihoods import ProbitComparison, TiltedMoments
from relpref.linalg import Dense
from relpref.models import xpgp

BROKEN = 5.0  # a factor beyond this stands for NaN


class Faulty(dist.Distribution):
    """A comparison whose moments are the right ones times a factor."""

    arg_constraints: ClassVar[dict[str, Any]] = {}
    support = constraints.boolean
    log_concave = True

    def __init__(self, predictor: Array, factor: Array) -> None:
        self.predictor, self.factor = predictor, factor
        super().__init__(batch_shape=predictor.shape, validate_args=False)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        return jnp.ones(sample_shape + self.batch_shape, jnp.int32)

    def log_prob(self, value: Array) -> Array:
        return ProbitComparison(self.predictor).log_prob(value)

    def tilted(self, value: Array, mean: Array, variance: Array) -> TiltedMoments:
        normalizer, gradient, curvature = ProbitComparison(self.predictor).tilted(
            value, mean, variance
        )
        wrong = jnp.where(self.factor > BROKEN, jnp.nan, self.factor)
        return TiltedMoments(normalizer, gradient, curvature * wrong)

    def tree_flatten(self) -> Any:
        return (self.predictor, self.factor), None

    @classmethod
    def tree_unflatten(cls, aux_data: Any, params: Any) -> "Faulty":
        self = cls.__new__(cls)
        self.predictor, self.factor = params
        dist.Distribution.__init__(self, batch_shape=jnp.shape(params[0]), validate_args=False)
        return self


def faulty(covariance: Array, factor: Array) -> None:
    utility = numpyro.sample("utility", GaussianProcess(Dense(covariance)))
    gaps = utility[:-1] - utility[1:]
    with numpyro.plate("comparison", gaps.shape[0]):
        numpyro.sample("answer", Faulty(gaps, factor), obs=jnp.ones(gaps.shape, jnp.int32))


def run(factor: float, covariance: Any = None, **options: Any) -> Any:
    covariance = np.eye(4) if covariance is None else covariance
    return EP(faulty, **options).run(0, covariance, np.float64(factor))


def check_every_answer_warns(posterior: Any, result: Result) -> None:
    for ask in (posterior.mean, posterior.sd, posterior.covariance, lambda: posterior.sample(3)):
        with pytest.warns(InferenceWarning, match=result.name):
            ask()


@pytest.mark.parametrize(
    ("factor", "result"), [(2 * BROKEN, Result.nonfinite), (-0.5, Result.negative_precision)]
)
def test_a_faulty_likelihood_is_named(factor: float, result: Result) -> None:
    assert run(1.0).info["result"] == "converged"
    with pytest.raises(InferenceError, match=f"^{result.name}") as caught:
        run(factor)
    assert caught.value.result is result
    assert result.value in str(caught.value)
    # No sweep gave sites that could be used, so there is no posterior to speak of.
    posterior = run(factor, throw=False)
    assert posterior.info["result"] == result.name
    check_every_answer_warns(posterior, result)
    # A plain number cannot warn, so it must not look like one.
    assert not np.isfinite(posterior.log_evidence)


@pytest.mark.parametrize("covariance", [-np.eye(4), np.diag([1.0, 1.0, 1.0, -1e-3])])
@pytest.mark.parametrize("space", ["latent", "observation"])
def test_a_prior_that_is_no_covariance(covariance: Any, space: Any) -> None:
    with pytest.raises(InferenceError) as caught:
        run(1.0, covariance, space=space)
    assert caught.value.result is Result.prior_not_positive_definite


def test_a_prior_that_is_not_a_number() -> None:
    with pytest.raises(InferenceError) as caught:
        run(1.0, np.full((4, 4), np.nan))
    assert caught.value.result in (Result.prior_not_positive_definite, Result.nonfinite)


def test_an_indefinite_precomputed_kernel(data: PreferenceData) -> None:
    kernel = Precomputed(np.diag(np.where(np.arange(data.num_items) == 7, -0.5, 1.0)))
    engine = EP(xpgp, fixed={"attributes_amplitude": 1.0}, space="latent", throw=False)
    options: Any = {"attribute_kernel": kernel, "individual": False}
    posterior: Any = engine.run(0, data.without_relation("next"), **options)
    assert posterior.info["result"] == Result.prior_not_positive_definite.name
    check_every_answer_warns(posterior, Result.prior_not_positive_definite)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InferenceWarning)
        for numbers in (
            posterior.mean(),
            posterior.sd(),
            posterior.prefer([("e0", "e1")])["probability"],
            posterior.ranking()[["mean", "sd", "expected_rank", "p_best"]],
            posterior.explain(),
            posterior.shares(),
            posterior.log_evidence,
        ):
            assert not np.any(np.isfinite(numbers))


def test_too_few_sweeps(fit: Any, data: PreferenceData, tmp_path: Any) -> None:
    with pytest.raises(InferenceError, match="Raise max_sweeps") as caught:
        fit(data, max_sweeps=1)
    assert caught.value.result is Result.max_iterations
    stopped = fit(data, max_sweeps=1, throw=False)
    assert stopped.info["result"] == "max_iterations"
    assert stopped.info["iterations"] == 1
    assert stopped.info["residual"] > 1e-8
    for name in ("mean", "sample", "ranking", "utilities", "explain"):
        with pytest.warns(InferenceWarning, match="max_iterations") as warned:
            getattr(stopped, name)()
        assert {warning.filename for warning in warned} == {__file__}
    # Storing it does not make it good.
    stopped.save(tmp_path / "stopped.nc")
    with pytest.warns(InferenceWarning, match="max_iterations"):
        relpref.load(tmp_path / "stopped.nc").mean()


def test_too_few_evaluations(fit: Any, data: PreferenceData) -> None:
    with pytest.raises(InferenceError, match="max_evaluations") as caught:
        fit(data, fixed=None, max_evaluations=1)
    assert caught.value.result is Result.hyperparameters_not_converged
    stopped = fit(data, fixed=None, max_evaluations=1, throw=False)
    assert stopped.info["result"] == "hyperparameters_not_converged"
    assert stopped.info["gradient_norm"] > 1e-2
    for ask in (stopped.covariance, stopped.shares, stopped.to_arviz):
        with pytest.warns(InferenceWarning, match="hyperparameters_not_converged"):
            ask()
    # EP itself has converged there.
    assert stopped.info["residual"] <= 1e-8
