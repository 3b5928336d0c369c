"""Functions that engines take from the package's programs, as steps and compiled."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import relpref
from relpref.classifiers import KroneckerGPClassifier, RankingGPClassifier
from relpref.data import PreferenceData
from relpref.data_loaders import rank_dishes
from relpref.infer import EP, Laplace
from relpref.infer.gradient import tilted
from relpref.infer.program import Program
from relpref.kernels import Cut, Diffusion, Linear, Matern52, SquaredExponential
from relpref.lazy_jit import clear
from relpref.lazy_jit.steps import translate
from relpref.likelihoods import Logistic, Probit
from relpref.models import preference_gp, xpgp
from relpref.rls import ConditionalRanker


@pytest.fixture(scope="module")
def data() -> PreferenceData:
    rng = np.random.default_rng(0)
    labels = [f"e{number}" for number in range(12)]
    items = pd.DataFrame(rng.standard_normal((12, 2)), index=labels, columns=["a", "b"])
    answers = pd.DataFrame(
        [rng.choice(labels, 2, replace=False) for _ in range(30)], columns=["winner", "loser"]
    )
    ends = [rng.choice(labels, 2, replace=False) for _ in range(20)]
    links = pd.DataFrame(ends, columns=["source", "target"]).drop_duplicates()
    return PreferenceData.from_tables(
        items, answers, {"links": relpref.Relation(links, kind="undirected")}
    )


def prior(program: Program, raw: Any) -> Any:
    reading = program.read(raw)
    return reading.covariance.dense(), reading.location, reading.offset, reading.log_prior


def gradient(program: Program, raw: Any) -> Any:
    return jax.jacrev(lambda raw: [part.sum() for part in prior(program, raw)])(raw)


def moments(program: Program, raw: Any) -> Any:
    reading, rows = program.read(raw), jnp.linspace(-3, 40, program.layout.num_rows)
    return tilted(reading.observations, reading.offset, rows, jnp.abs(rows))


@pytest.mark.parametrize("function", [prior, gradient, moments])
def test_programs(function: Any, data: PreferenceData) -> None:
    with jax.enable_x64(True):
        program = Program.of(xpgp, (data,), {})
        raw = {name: np.asarray(value) + 0.3 for name, value in program.medians.items()}
        leaves = jax.tree.leaves((program, raw))
        jitted = jax.jit(function)
        steps = translate(jitted.trace(program, raw).jaxpr, leaves)
        results = steps.run(leaves, np.inf)
        assert not steps.source.count("= f")  # nothing is left to JAX
        for result, expected in zip(results, jax.tree.leaves(jitted(program, raw)), strict=True):
            assert_allclose(np.asarray(result), expected, rtol=1e-11, atol=1e-13)


def _nodes() -> Any:
    nodes = np.random.default_rng(0).standard_normal((6, 2))
    return nodes, nodes @ nodes.T


def _rankings(kernel: Any = "kendall", **options: Any) -> Any:
    return RankingGPClassifier(kernel, **options).fit(rank_dishes(12, noise=1.0))


def _maximum(data: PreferenceData, program: Any = xpgp, **options: Any) -> Any:
    return EP(program, hyperparameters="maximize").run(0, data, **options)


# One fit of each kind averages over hyperparameters, which takes longest.
FITS: dict[str, Any] = {
    "xpgp": lambda data: EP(xpgp).run(0, data),
    "xpgp, Laplace": lambda data: Laplace(xpgp).run(0, data),
    "logistic": lambda data: _maximum(data, likelihood=Logistic()),
    "lapses": lambda data: _maximum(data, likelihood=Probit(lapse=True)),
    "kernels": lambda data: _maximum(
        data, attribute_kernel=Matern52(), relation_kernels={"links": Diffusion()}
    ),
    "linear": lambda data: _maximum(data, preference_gp, attribute_kernel=Linear()),
    "kendall": lambda data: _rankings(),
    "logit": lambda data: _rankings(link="logit", fixed={"amplitude": 1.0}),
    "mallows": lambda data: _rankings("mallows", landmarks=12, fixed={"amplitude": 1.0}),
    "cut": lambda data: _rankings(Cut(lengthscale="learn")),
    "nodes": lambda data: KroneckerGPClassifier(SquaredExponential(), landmarks=9).fit(
        _nodes()[0], (_nodes()[1] > 0) * 1.0
    ),
    "ranker": lambda data: ConditionalRanker("gaussian").fit(*_nodes()),
}


@pytest.mark.parametrize("name", FITS)
def test_no_model_of_the_package_needs_a_compiler(
    name: str, data: PreferenceData, caplog: pytest.LogCaptureFixture
) -> None:
    clear()
    with caplog.at_level("DEBUG", "relpref.lazy_jit"):
        FITS[name](data)
    assert caplog.messages == []
