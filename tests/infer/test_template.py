"""Programs whose numbers are filled in: what is compiled, multiples, priors, and averaged raters."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from jax import monitoring
from numpy.testing import assert_allclose
from numpyro.distributions.transforms import biject_to
from scipy import stats

from relpref.compiled import float64
from relpref.data import PreferenceData
from relpref.infer import EP, Laplace
from relpref.infer.plates import prepare_plates
from relpref.infer.priors import form_of
from relpref.infer.program import Program
from relpref.infer.sites import Sites
from relpref.kernels import GaussianProcess
from relpref.likelihoods import ProbitBernoulli, ProbitComparison
from relpref.linalg import Dense
from relpref.models import xpgp


def table(number: int, answers: int, *columns: str) -> PreferenceData:
    """Items with two attributes and answers, with some of the optional columns."""
    rng = np.random.default_rng(number)
    labels = [f"i{at}" for at in range(number)]
    items = pd.DataFrame(rng.standard_normal((number, 2)), labels, ["x", "y"])
    first = rng.integers(0, number, answers)
    second = (first + rng.integers(1, number, answers)) % number
    names = ["first", "second"] if "probability" in columns else ["winner", "loser"]
    frame = pd.DataFrame(np.take(labels, np.stack([first, second], axis=1)), columns=names)
    values: dict[str, Any] = {
        "rater": rng.choice(list("abcd"), answers),
        "tie": rng.random(answers) < 0.2,
        "group": rng.choice(list("abcdef"), answers),
        "strength": rng.integers(1, 4, answers),
        "weight": rng.choice([0.5, 1.0, 2.0], answers),
        "probability": rng.uniform(0.2, 0.9, answers),
        "shown_first": np.where(rng.random(answers) < 0.5, *frame.to_numpy().T),
    }
    if "tie" in columns:
        values["strength"] = np.where(values["tie"], np.nan, values["strength"])
    return PreferenceData.from_tables(
        items, frame.assign(**{name: values[name] for name in columns})
    )


@contextmanager
def compilations() -> Iterator[list[str]]:
    """What JAX compiles."""
    events: list[str] = []

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            events.append(event)

    monitoring.register_event_duration_secs_listener(listen)
    try:
        yield events
    finally:
        monitoring.unregister_event_duration_listener(listen)


COLUMNS = (
    "",
    "group",
    "tie",
    "shown_first",
    "rater",
    "tie strength",
    "rater tie strength weight",
    "rater probability",
)


@pytest.mark.parametrize("columns", [each.split() for each in COLUMNS], ids=COLUMNS)
@pytest.mark.parametrize("engine", [EP, Laplace])
def test_another_size_compiles_nothing(columns: list[str], engine: Any) -> None:
    engine = engine(xpgp, check=False)
    engine.run(0, table(9, 14, *columns), progress_bar=False)
    with compilations() as events:
        engine.run(0, table(11, 17, *columns), progress_bar=False)
    # JAX's eager functions of a few numbers, such as where averages over raters are read.
    assert len(events) <= 1


def read(data: PreferenceData, average: bool = False) -> Program:
    return prepare_plates(Program.of(xpgp, (data,)), average)


def test_multiples_of_hyperparameters() -> None:
    """The noise of each answer's rater, and a bias of either sign, are entries times constants."""
    with float64():
        program = read(table(9, 30, "rater", "shown_first"))
        template = program.template
        likelihood: Any = template.places[0].observations[0].likelihood
        scale, shift = (template.multiples[at] for at in (likelihood.scale, likelihood.shift))
        (data,) = (value for value in program.call.skeleton.join(program.arrays)[0])
        assert not template.computed
        assert scale.site == "rater_noise" and shift.site == "position_bias"
        assert_allclose(scale.entry, data.comparisons.rater)
        assert_allclose(scale.factor, 1.0)
        assert_allclose(shift.factor, data.comparisons.shown_first)
        slope = np.arange(1.0, len(scale.entry) + 1)
        expected = [slope[scale.entry == at].sum() for at in range(4)]
        slopes = scale.back(slope, {"rater_noise": np.ones(4)})
        assert_allclose(slopes["rater_noise"], expected)


def test_squares_of_hyperparameters() -> None:
    """A variance that is a constant times the square of an amplitude needs no run of the program."""
    residual = np.array([0.1, 0.4, 0.2, 0.7])

    def decisions(x: Any, y: Any) -> None:
        amplitude = numpyro.sample("amplitude", dist.HalfNormal(1.0))
        weight = numpyro.sample("weight", dist.Normal(0.0, amplitude).expand([3]).to_event(1))
        numpyro.sample("y", ProbitBernoulli(x @ weight, amplitude**2 * residual), obs=y)

    x = np.random.default_rng(0).normal(size=(4, 3))
    with float64():
        template = Program.of(decisions, (x, np.array([0, 1, 1, 0]))).template
        likelihood: Any = template.places[0].observations[0].likelihood
        spread = template.multiples[jax.tree.leaves(likelihood)[1]]
        assert not template.computing and spread.site == "amplitude"
        values, slope = {"amplitude": np.array([1.7])}, np.arange(4.0)
        assert_allclose(spread.at(values), 1.7**2 * residual)
        assert_allclose(spread.back(slope, values)["amplitude"], [2 * 1.7 * slope @ residual])


def test_products_of_two_hyperparameters() -> None:
    """The error of a rater's report is a product of two hyperparameters."""
    with float64():
        template = read(table(9, 30, "rater", "probability")).template
        likelihood: Any = template.places[0].observations[0].likelihood
        scale = template.multiples[likelihood.scale]
        assert not template.computing and scale.times == "soft_noise"
        rng = np.random.default_rng(1)
        values = {"rater_noise": rng.uniform(1, 2, 4), "soft_noise": np.array([0.3])}
        slope = rng.standard_normal(len(scale.entry))
        assert_allclose(scale.at(values), 0.3 * values["rater_noise"][scale.entry])
        back = scale.back(slope, values)
        assert back.keys() == values.keys()
        for name, slopes in back.items():
            for entry, expected in enumerate(slopes):
                moved = {key: value.copy() for key, value in values.items()}
                moved[name][entry] += 1.0
                assert_allclose(expected, slope @ (scale.at(moved) - scale.at(values)))


def test_the_program_is_the_same_at_other_values() -> None:
    """One template serves all values of the hyperparameters, fixed ones, too."""
    with float64():
        program = Program.of(xpgp, (table(9, 30),), {}, {"individual_amplitude": 0.7})
        template = program.template
        assert program.at({"individual_amplitude": 1.3}).template is template
        values = program.on_host(program.medians).prior.hyperparameters
        assert program.at(values).template is template
        prior = program.at({"individual_amplitude": 1.3}).on_host(program.medians).prior
        part = prior.covariance.blocks[0].parts["individual"]
        assert_allclose(part.dense(), 1.3**2 * np.eye(9))


PRIORS = {
    "normal": dist.Normal(0.3, 1.7),
    "half-normal": dist.HalfNormal(0.6),
    "log-normal": dist.LogNormal(-0.4, 0.8),
    "Weibull": dist.Weibull(1.4, 2.2),
    "Kumaraswamy": dist.Kumaraswamy(2.0, 1.3),
    "gamma": dist.Gamma(2.5, 0.7),
    "inverse gamma": dist.InverseGamma(1.5, 0.5),
    "exponential": dist.Exponential(1.9),
    "plated": dist.LogNormal(jnp.array([0.1, -0.2]), 0.5),
    "vector": dist.HalfNormal(0.6).expand([3]).to_event(1),
}


@pytest.mark.parametrize("name", [*PRIORS, "beta"])
def test_priors_against_numpyro(name: str) -> None:
    """Values, densities and derivatives, also in the parameters."""
    with float64():
        # A beta distribution keeps numbers of the precision in which it is made.
        prior: Any = PRIORS.get(name) or dist.Beta(1.5, 9.0)
        raw = np.random.default_rng(0).standard_normal(prior.shape())
        parts = form_of(prior)
        assert parts is not None
        form, given = parts
        given = {name: np.asarray(value, float) for name, value in given.items()}
        transform = biject_to(prior.support)
        mapped = form.map(raw)
        density, slope, slopes = form.density(mapped.value, **given)

        @jax.jit
        def by_numpyro(raw: Any, value: Any) -> Any:
            def jacobian(x: Any) -> Any:
                return jnp.sum(transform.log_abs_det_jacobian(x, transform(x)))

            along = jax.grad(lambda x: jnp.sum(transform(x)))(raw)
            log = jax.value_and_grad(lambda x: prior.log_prob(x).sum())(value)
            return transform(raw), along, jax.value_and_grad(jacobian)(raw), log

        value, along, (jacobian, bent), (log, derivative) = by_numpyro(raw, mapped.value)
        assert_allclose(mapped.value, value, rtol=1e-12)
        assert_allclose(density.sum(), log, rtol=1e-11)
        assert_allclose(mapped.log_slope.sum(), jacobian, rtol=1e-11, atol=1e-12)
        assert_allclose(np.broadcast_to(slope, raw.shape), derivative, rtol=1e-9)
        assert_allclose(mapped.slope, along, rtol=1e-9)
        assert_allclose(mapped.slope_of_log, bent, rtol=1e-9, atol=1e-12)
        step = 1e-6
        for parameter, value in given.items():
            ends = [
                np.sum(form.density(mapped.value, **given | {parameter: value + move})[0])
                for move in (step, -step)
            ]
            difference = (ends[0] - ends[1]) / (2 * step)
            assert_allclose(
                np.sum(slopes[parameter] + 0 * density), difference, rtol=1e-6, atol=1e-8
            )


def test_quantiles() -> None:
    z = np.linspace(-2, 2, 5)
    for prior, same in (
        (dist.Normal(0.3, 1.7), stats.norm(0.3, 1.7)),
        (dist.HalfNormal(0.6), stats.halfnorm(scale=0.6)),
        (dist.LogNormal(-0.4, 0.8), stats.lognorm(0.8, scale=np.exp(-0.4))),
    ):
        parts = form_of(prior)
        assert parts is not None and parts[0].quantile is not None
        form, given = parts
        quantile: Any = form.quantile
        value, slopes = quantile(z, **given)
        assert_allclose(value, same.ppf(stats.norm.cdf(z)), rtol=1e-9)
        for name, number in given.items():
            ends = [quantile(z, **given | {name: number + move})[0] for move in (1e-6, -1e-6)]
            assert_allclose(slopes[name] + 0 * z, (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-9)


def test_averaged_raters_without_a_compiler() -> None:
    """Nodes that NumPy fills in are those that JAX makes of the program."""
    with float64():
        program = read(table(9, 30, "rater", "shown_first"), average=True)
        assert program.members is not None and program.template.members is not None
        likelihood: Any = program.on_host(program.medians).prior.observations[0].likelihood

        def traced(values: Any) -> list[Any]:
            same: Any = program.read(values).observations[0].likelihood
            return jax.tree.leaves(same.each)

        mine, others = jax.tree.leaves(likelihood.each), jax.jit(traced)(program.medians)
        for leaf, other in zip(mine, others, strict=True):
            assert_allclose(leaf, other, rtol=1e-12, atol=1e-12)


def computes(data: PreferenceData) -> None:
    """A program that hands nothing on as it is, with a prior that JAX alone knows."""
    answers = data.comparisons
    scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    covariance = Dense(scale**2 * jnp.eye(data.num_items))
    utility = numpyro.sample("utility", GaussianProcess(covariance))
    gap = utility[answers.winner] - utility[answers.loser]
    gap = gap + jnp.tanh(mean) * jnp.asarray(answers.shown_first)
    scale = jnp.exp(0.2 * noise) * jnp.ones(len(answers.winner))
    with numpyro.plate("comparison", len(answers.winner)):
        numpyro.sample("answer", ProbitComparison(gap, scale=scale), obs=jnp.ones(len(gap), int))


@pytest.mark.parametrize("engine", [EP, Laplace])
def test_what_a_program_computes_itself(engine: Any) -> None:
    """Evidence and its gradient are those of a run that JAX traces."""
    data = table(6, 20, "shown_first")
    with float64():
        program = Program.of(computes, (data,))
        assert program.template.computed and "scale" not in program.template.forms
        values = {name: value + 0.1 for name, value in program.medians.items()}
        start = Sites.none(program.layout.num_rows)
        given = program, False, True, values, start, 1e-11, 300, None
        evidence = engine.evaluate(*given)
        compiled = jax.jit(lambda values: engine.evaluate(*given[:3], values, *given[4:]))(values)
        assert_allclose(evidence.log_evidence, compiled.log_evidence, rtol=1e-10)
        assert_allclose(evidence.log_prior, compiled.log_prior, rtol=1e-10)
        for name, slope in compiled.gradient.items():
            assert_allclose(evidence.gradient[name], slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", ["answers", "exact", "two", "link", "projection", "latents"])
def test_a_site_in_a_plate_that_answers_depend_on_is_learned(kind: str) -> None:
    """Wherever it is used; of these the entry of each answer is known of the first two alone."""
    item, rater, value = np.arange(9) % 4, np.array([0, 1, 2, 2, 1, 0, 4, 4, 3]), np.arange(9) % 2

    def program(value: Any) -> None:
        with numpyro.plate("rater", 5):
            noise = numpyro.sample("noise", dist.LogNormal(0.0, 0.5))
        scale = noise[:4] if kind == "latents" else jnp.ones(4)
        f = numpyro.sample("f", dist.Normal(jnp.zeros(4), scale).to_event(1))
        gap = f[item] - f[(item + 1) % 4]
        if kind == "link":
            numpyro.sample("y", dist.Bernoulli(logits=gap * jnp.exp(0.1 * noise[rater])), obs=value)
        elif kind in ("answers", "two"):
            scales = jnp.sqrt(0.1 + noise[rater] ** 2)  # computed by JAX
            scales = scales + noise[(rater + 1) % 5] if kind == "two" else scales
            numpyro.sample("y", ProbitComparison(gap, scale=scales), obs=value)
        else:
            gap = gap * noise[rater] if kind == "projection" else gap
            scales = 1e-7 * noise[rater] if kind == "exact" else jnp.ones(9)
            numpyro.sample("y", ProbitComparison(gap, scale=scales), obs=value)

    with float64():
        prepared = prepare_plates(Program.of(program, (value,)), average=True)
    assert not prepared.fixed
    assert (prepared.members is not None) == (kind in ("answers", "exact"))
    if prepared.members is not None:
        assert_allclose(prepared.members.row, rater)
