"""numpyro's own inference on the same programs: agreement with EP, and one surface for both."""

from typing import Any

import jax
import numpy as np
import numpyro
import pytest
from numpy.testing import assert_allclose
from numpyro import handlers
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal

from relpref.data import PreferenceData
from relpref.errors import DataError
from relpref.infer import EP, from_samples, noncentered
from relpref.models import xpgp

PAIRS = [(f"e{i}", f"e{j}") for i in range(12) for j in range(i)]


def sample(
    program: Any, data: PreferenceData, fixed: dict[str, Any], num_samples: int, seed: int
) -> Any:
    """NUTS at fixed hyperparameters, in float64."""
    with jax.enable_x64(True):
        values = {name: np.asarray(value, dtype=np.float64) for name, value in fixed.items()}
        known = handlers.condition(noncentered(program), data=values)

        @jax.jit  # as a whole: numpyro starts with a hundred small programs
        def drawn(key: Any) -> Any:
            mcmc = MCMC(NUTS(known), num_warmup=200, num_samples=num_samples, progress_bar=False)
            mcmc.run(key, data)
            return mcmc.get_samples()

        draws = jax.tree.map(np.asarray, drawn(jax.random.key(seed)))
    count = len(draws["utility_base"])
    return draws | {n: np.broadcast_to(v, (count, *np.shape(v))) for n, v in values.items()}


def check_agreement(sampled: Any, expected: Any) -> None:
    # With 2000 draws of whitened utilities the effective sample size is above 2000, so a mean is
    # known to 0.022 posterior sds; 4.5 standard errors (0.1) and the 0.03 that EP may be off stay
    # below these bounds.
    assert np.max(np.abs(sampled.mean() - expected.mean()) / expected.sd()) <= 0.1 + 0.03
    ratio = sampled.sd() / expected.sd()
    assert np.all((ratio >= 0.9) & (ratio <= 1.1))
    difference = sampled.prefer(PAIRS)["probability"] - expected.prefer(PAIRS)["probability"]
    assert np.max(np.abs(difference)) <= 0.03


@pytest.fixture(scope="module")
def sampled(data: PreferenceData, hyperparameters: dict[str, Any]) -> Any:
    return from_samples(sample(xpgp, data, hyperparameters, 2000, 0), xpgp, data)


def test_xpgp_agrees_with_nuts(sampled: Any, posterior: Any) -> None:
    check_agreement(sampled, posterior)
    parts = ["attributes", "next", "individual"]
    error = np.abs(sampled.explain()[parts] - posterior.explain()[parts]).max(axis=0)
    assert np.all(error <= 0.15 * np.max(posterior.sd()))
    assert_allclose(sampled.explain()["share_next"], posterior.explain()["share_next"], atol=0.05)


def test_it_has_the_surface_of_an_engine(sampled: Any, posterior: Any) -> None:
    assert type(sampled) is type(posterior)
    assert sampled.log_evidence is None
    assert sampled.info["engine"] == "samples"
    assert repr(sampled) == "UtilityPosterior(utility[12]; samples: converged)"
    both = sampled.prefer([("e0", "e1"), ("e1", "e0"), ("e2", "e2")])
    assert abs(both["probability"][:2].sum() - 1) <= 1e-12
    assert abs(both["p_better"][:2].sum() - 1) <= 1e-12
    assert both["p_better"][2] == pytest.approx(0.5, abs=1e-12)
    assert sampled.sample(17).shape == (17, 12)
    assert set(sampled.hyperparameters) == set(posterior.hyperparameters)


def test_centred_and_whitened_samples_mean_the_same(data: PreferenceData, sampled: Any) -> None:
    draws = sampled.hyperparameter_draws
    again: Any = from_samples(
        {**draws, "utility": sampled.belief.draws, "unrelated": np.zeros(4000)}, xpgp, data
    )
    assert_allclose(again.mean(), sampled.mean(), rtol=0, atol=1e-10)
    assert_allclose(again.explain(), sampled.explain(), rtol=0, atol=1e-6)


@pytest.mark.slow
def test_svi_runs_on_the_unchanged_program(data: PreferenceData, posterior: Any) -> None:
    program = noncentered(xpgp)
    with jax.enable_x64(True):
        guide = AutoMultivariateNormal(program, init_loc_fn=numpyro.infer.init_to_median)
        svi = SVI(program, guide, numpyro.optim.Adam(0.02), Trace_ELBO())
        result = svi.run(jax.random.key(0), 2000, data)
        drawn = guide.sample_posterior(jax.random.key(1), result.params, sample_shape=(200,))
        samples = {name: np.asarray(value) for name, value in drawn.items()}
    losses = np.asarray(result.losses)
    assert losses[-200:].mean() < losses[:20].mean()
    fitted = from_samples(samples, xpgp, data)
    assert np.corrcoef(fitted.mean(), posterior.mean())[0, 1] >= 0.9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"next_range": None}, "'next_range'"),
        ({"utility": None}, "'utility_base'"),
        ({"next_range": np.ones(7)}, "different numbers"),
    ],
)
def test_samples_that_do_not_fit(
    change: dict[str, Any], message: str, data: PreferenceData, hyperparameters: dict[str, Any]
) -> None:
    samples = {name: np.stack([np.asarray(value)] * 8) for name, value in hyperparameters.items()}
    samples["utility"] = np.zeros((8, 12))
    samples = {name: value for name, value in (samples | change).items() if value is not None}
    with pytest.raises(DataError, match=message):
        from_samples(samples, xpgp, data)


def test_draws_and_chains_must_fit(data: PreferenceData, hyperparameters: dict[str, Any]) -> None:
    one = {name: np.asarray(value)[None] for name, value in hyperparameters.items()}
    one["utility"] = np.zeros((1, 12))
    with pytest.raises(DataError, match="fewer than two"):
        from_samples(one, xpgp, data)
    eight = {name: np.repeat(value, 8, axis=0) for name, value in one.items()}
    with pytest.raises(DataError, match="3 chains"):
        from_samples(eight, xpgp, data, num_chains=3)


def test_what_does_not_fit_into_memory(
    data: PreferenceData, hyperparameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relpref.limits.available_memory", lambda: 4000.0)
    with pytest.raises(DataError, match="the prior covariance of 12 values needs"):
        EP(xpgp, fixed=hyperparameters).run(0, data)
    samples = {name: np.stack([np.asarray(value)] * 3) for name, value in hyperparameters.items()}
    samples["utility"] = np.random.default_rng(0).normal(size=(3, 12))
    posterior = from_samples(samples, xpgp, data)
    assert_allclose(posterior.mean(), samples["utility"].mean(axis=0))
    with pytest.raises(DataError, match="no named parts"):
        posterior.explain()  # type: ignore[attr-defined]
    samples["utility_base"] = samples.pop("utility")
    with pytest.raises(DataError, match="the prior covariance of 12 values needs"):
        from_samples(samples, xpgp, data)
