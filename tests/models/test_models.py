from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpyro import handlers
from numpyro.infer import Predictive
from numpyro.infer.util import log_density
from scipy import special, stats

from relpref.data import PreferenceData
from relpref.errors import DataError
from relpref.kernels import HiddenCommonCause, Precomputed, RelationVectors, SquaredExponential
from relpref.likelihoods import as_likelihood
from relpref.models import preference_gp, xpgp

HYPERPARAMETERS: dict[str, Any] = {
    "attributes_amplitude": 1.2,
    "attributes_lengthscale": np.array([0.7, 2.0]),
    "attributes_linear_share": 0.4,
    "cites_amplitude": 0.8,
    "cites_range": 1.5,
    "individual_amplitude": 0.6,
}


def tables(attributes: bool = True) -> Any:
    labels = list("abcde")
    items = pd.DataFrame(
        {"x": [1.0, 2.0, 4.0, 4.5, 6.0], "y": [0.0, 1.0, 0.0, 1.0, 3.0]}, index=labels
    )
    answers = pd.DataFrame({"winner": list("abcd"), "loser": list("bcda"), "count": [1, 3, 1, 2]})
    links = pd.DataFrame({"source": list("abcd"), "target": list("bcde")})
    return (items if attributes else labels), answers, {"cites": links}


@pytest.fixture(scope="module")
def data() -> PreferenceData:
    return PreferenceData.from_tables(*tables())


@pytest.fixture(scope="module")
def bare() -> PreferenceData:
    return PreferenceData.from_tables(*tables(attributes=False))


def trace(program: Any, *args: Any, values: Any = HYPERPARAMETERS, **kwargs: Any) -> Any:
    """Sites of a program; hyperparameters without a value are drawn, which compiles more."""
    seeded = handlers.seed(program, rng_seed=0)
    with jax.enable_x64(True):
        return handlers.trace(handlers.substitute(seeded, data=values)).get_trace(*args, **kwargs)


def sampled(sites: Any) -> list[str]:
    return [name for name, site in sites.items() if site["type"] == "sample"]


def test_sites_and_plates(data: PreferenceData) -> None:
    with jax.enable_x64(True):
        sites = trace(xpgp, data)
        names = sampled(sites)
        assert names == [*HYPERPARAMETERS, "utility", "answer"]
        assert sites["attributes_lengthscale"]["value"].shape == (2,)
        assert sites["utility"]["value"].shape == (5,)
        assert sites["utility"]["infer"]["event_dims"] == ["item"]
        assert list(sites["utility"]["fn"].covariance.parts) == [
            "attributes",
            "cites",
            "individual",
        ]
        assert sites["comparison"]["type"] == "plate"
        assert [frame.name for frame in sites["answer"]["cond_indep_stack"]] == ["comparison"]
        assert sites["answer"]["is_observed"]
        assert sites["answer"]["value"].shape == (4,)
        assert_array_equal(sites["answer"]["scale"], data.count)
        assert all(np.all(np.isfinite(site["value"])) for n, site in sites.items() if n in names)


def test_preference_gp_ignores_relations(data: PreferenceData) -> None:
    sites = trace(preference_gp, data)
    assert sampled(sites) == [
        "attributes_amplitude",
        "attributes_lengthscale",
        "attributes_linear_share",
        "individual_amplitude",
        "utility",
        "answer",
    ]
    assert list(sites["utility"]["fn"].covariance.parts) == ["attributes", "individual"]
    with jax.enable_x64(True):
        both = [
            trace(preference_gp, each)["utility"]["fn"].covariance.dense()
            for each in (data, data.without_relation("cites"))
        ]
    assert_array_equal(*both)


def test_the_log_density_is_the_model(data: PreferenceData) -> None:
    utility = np.random.default_rng(0).standard_normal(5)
    with jax.enable_x64(True):
        values = {**HYPERPARAMETERS, "utility": utility}
        density = jax.jit(lambda values: log_density(xpgp, (data,), {}, values)[0])
        found = density({name: np.asarray(value, float) for name, value in values.items()})
    x = data.attributes
    x = (x - x.mean(axis=0)) / x.std(axis=0) / HYPERPARAMETERS["attributes_lengthscale"]
    linear = x @ x.T / np.sum(HYPERPARAMETERS["attributes_lengthscale"] ** -2.0)
    covariance = 1.44 * (
        0.6 * np.exp(-0.5 * ((x[:, None] - x[None]) ** 2).sum(axis=2)) + 0.4 * linear
    )
    chain = np.diag([1.0, 2, 2, 2, 1]) - np.eye(5, k=1) - np.eye(5, k=-1)
    relation = np.linalg.inv(chain + np.eye(5) / 1.5**2)
    gaps = np.diag(relation)[:, None] + np.diag(relation) - 2 * relation
    covariance += 0.64 * relation * 2 / (gaps.sum() / 20) + 0.36 * np.eye(5)
    expected = stats.multivariate_normal(np.zeros(5), covariance).logpdf(utility)
    expected += np.sum(data.count * special.log_ndtr(utility[data.winner] - utility[data.loser]))
    expected += stats.rayleigh.logpdf(1.2, scale=2.0) + stats.beta.logpdf(0.4, 2, 1)
    expected += stats.halfnorm.logpdf([0.8, 0.6], scale=1.0).sum()
    ell = HYPERPARAMETERS["attributes_lengthscale"]
    expected += stats.lognorm.logpdf(ell, 1.0, scale=np.sqrt(2)).sum()
    expected += stats.lognorm.logpdf(1.5, 1.0, scale=np.sqrt(10 / 1.6))
    assert abs(float(found) - expected) <= 1e-9


@pytest.mark.parametrize(("program", "double"), [(xpgp, True), (preference_gp, False)])
def test_prior_predictive(program: Any, double: bool, data: PreferenceData) -> None:
    with jax.enable_x64(double):
        draws = Predictive(program, num_samples=20)(jax.random.key(0), data.without_answers())
        assert draws["answer"].shape == (20, 4)
        assert set(np.unique(draws["answer"])) == {0, 1}
        assert draws["utility"].shape == (20, 5)
        assert draws["utility"].dtype == (jnp.float64 if double else jnp.float32)
        assert np.all(np.isfinite(draws["utility"]))


def test_raters_and_groups(data: PreferenceData) -> None:
    """Each rater has a noise, and each item of a group a value of its own there."""
    ends = {"winner": list("abc"), "loser": list("bcd")}
    table = pd.DataFrame(ends | {"rater": list("xyx"), "group": [1, 1, None]})
    answers: Any = data.with_comparisons(table).comparisons
    sites = trace(preference_gp, data.with_comparisons(table))
    assert sites["rater_noise"]["value"].shape == (2,)
    utility, effect = (np.asarray(sites[name]["value"]) for name in ("utility", "group_effect"))
    shared = np.where(answers.effects >= 0, np.sqrt(0.5) * effect[answers.effects], 0.0)
    gaps = utility[answers.winner] - utility[answers.loser] + shared[:, 0] - shared[:, 1]
    assert np.any(shared != 0)
    assert_allclose(as_likelihood(sites["answer"]["fn"]).predictor, gaps, atol=1e-9)


def test_switches(data: PreferenceData) -> None:
    with jax.enable_x64(True):
        raw = trace(xpgp, data, standardize=False, normalize=False)
        # The share would mean nothing in the user's units.
        assert "attributes_linear_share" not in raw
        parts = {name: part.dense() for name, part in raw["utility"]["fn"].covariance.parts.items()}
    x = data.attributes / HYPERPARAMETERS["attributes_lengthscale"]
    attributes = 1.44 * np.exp(-0.5 * ((x[:, None] - x[None]) ** 2).sum(axis=2))
    assert_allclose(parts["attributes"], attributes, rtol=0, atol=1e-12)
    chain = np.diag([1.0, 2, 2, 2, 1]) - np.eye(5, k=1) - np.eye(5, k=-1)
    assert_allclose(
        parts["cites"], 0.64 * np.linalg.inv(chain + np.eye(5) / 1.5**2), rtol=0, atol=1e-12
    )


def test_kernels_of_ones_own(data: PreferenceData) -> None:
    matrix = np.eye(5) + 0.5
    sites = trace(
        xpgp,
        data,
        attribute_kernel=SquaredExponential(shared_lengthscale=True),
        relation_kernels={"cites": Precomputed(matrix)},
        individual=False,
        values={"cites_amplitude": 2.0},
    )
    assert sampled(sites) == [
        "attributes_amplitude",
        "attributes_lengthscale",
        "cites_amplitude",
        "utility",
        "answer",
    ]
    assert sites["attributes_lengthscale"]["value"].shape == ()
    assert_allclose(sites["utility"]["fn"].covariance.parts["cites"].dense(), 4 * matrix, rtol=1e-6)


def test_priors_of_ones_own(data: PreferenceData) -> None:
    priors = {"cites_range": dist.Uniform(3.0, 4.0), "attributes_amplitude": dist.Delta(0.25)}
    sites = trace(xpgp, data, priors=priors, values={})
    assert 3 <= float(sites["cites_range"]["value"]) <= 4
    assert float(sites["attributes_amplitude"]["value"]) == 0.25


@pytest.mark.parametrize("program", [xpgp, preference_gp])
def test_unknown_priors_are_refused(program: Any, data: PreferenceData) -> None:
    with pytest.raises(DataError, match="'cites_reach'.*attributes_amplitude"):
        trace(program, data, priors={"cites_reach": dist.Normal(0.0, 1.0)})


def test_unknown_relations_are_refused(data: PreferenceData) -> None:
    with pytest.raises(DataError, match="'sites'.*cites"):
        trace(xpgp, data, relation_kernels={"sites": Precomputed(np.eye(5))})
    with pytest.raises(DataError, match="'cites'.*none"):
        trace(
            xpgp, data.without_relation("cites"), relation_kernels={"cites": Precomputed(np.eye(5))}
        )
    with pytest.raises(
        DataError, match=r"relation 'cites': HiddenCommonCause.*call data.with_cliques\("
    ):
        trace(xpgp, data, relation_kernels={"cites": HiddenCommonCause(method="cliques")})
    with pytest.raises(
        DataError, match="relation 'cites': RelationVectors.*shared_lengthscale=True"
    ):
        trace(xpgp, data, relation_kernels={"cites": RelationVectors(SquaredExponential())})


def test_no_attributes(bare: PreferenceData) -> None:
    assert sampled(trace(xpgp, bare)) == [
        "cites_amplitude",
        "cites_range",
        "individual_amplitude",
        "utility",
        "answer",
    ]
    with pytest.raises(DataError, match="xpgp"):
        trace(preference_gp, bare, individual=False)
    sites = trace(preference_gp, bare, attribute_kernel=Precomputed(np.eye(5)))
    assert sites["utility"]["value"].shape == (5,)


def test_no_comparisons_yet(data: PreferenceData) -> None:
    sites = trace(xpgp, data.select_comparisons(np.zeros(4, bool)))
    assert sites["answer"]["value"].shape == (0,)
