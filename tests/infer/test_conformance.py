"""Every kind of program: its gradient is that of differences, in both spaces, and what NumPy
computes where nothing is traced is what JAX compiles.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from relpref.data import PreferenceData
from relpref.errors import DataError
from relpref.infer import EP, Laplace
from relpref.infer.evidence import evaluate, expectation_propagation, use_dual_space
from relpref.infer.plates import prepare_plates
from relpref.infer.program import Program
from relpref.infer.sites import Sites
from relpref.kernels import Features, GaussianProcess
from relpref.likelihoods import Logistic, Probit, ProbitComparison
from relpref.linalg import Dense
from relpref.models import preference_gp, xpgp
from relpref.models.preference import Hyperparameters, sample_decisions
from relpref.result import CODES, Result


def table(number: int, answers: int, **columns: Any) -> PreferenceData:
    """Items with two attributes in a ring of links, and answers with repeating columns."""
    rng = np.random.default_rng(number)
    labels = [f"e{row}" for row in range(number)]
    items = pd.DataFrame(rng.standard_normal((number, 2)), index=labels, columns=["a", "b"])
    first = rng.integers(0, number, answers)
    second = (first + rng.integers(1, number, answers)) % number
    names = ("first", "second") if "probability" in columns else ("winner", "loser")
    pairs = pd.DataFrame({names[0]: np.take(labels, first), names[1]: np.take(labels, second)})
    covariates = columns.pop("covariates", ())
    if columns.pop("shown", False):
        columns["shown_first"] = np.where(first % 2 == 0, pairs[names[0]], pairs[names[1]])
    frame = pairs.assign(**{name: np.resize(cells, answers) for name, cells in columns.items()})
    links = pd.DataFrame({"source": labels, "target": labels[1:] + labels[:1]})
    return PreferenceData.from_tables(items, frame, {"next": links}, covariates=covariates)


LEFT, RIGHT = np.array([0, 1, 2, 3, 0, 1]), np.array([2, 3, 0, 1, 3, 0])
UNIT = np.exp(-0.5 * np.subtract.outer(np.arange(4.0), np.arange(4.0)) ** 2)


def scaled(unit: Any) -> None:
    """The answers look at the items with a weight that is learned: the projection moves. The prior
    of the weight is known to JAX alone.
    """
    weight = numpyro.sample("weight", dist.HalfCauchy(1.0))
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 0.5))
    zeta = numpyro.sample("zeta", GaussianProcess(Dense(jnp.asarray(unit))))
    with numpyro.plate("rater", 2):
        alpha = numpyro.sample("alpha", dist.Normal(0.3, 1.2))
    with numpyro.plate("row", 6):
        gap = weight * (zeta[LEFT] - zeta[RIGHT]) + alpha[np.arange(6) % 2]
        numpyro.sample("y", ProbitComparison(gap / noise), obs=jnp.array([1, 1, 0, 1, 0, 1]))


def by_students(unit: Any) -> None:
    """A likelihood without closed moments, which is not log-concave."""
    zeta = numpyro.sample("zeta", GaussianProcess(Dense(jnp.asarray(unit))))
    log_scale = numpyro.sample("log_scale", dist.Normal(-1.0, 0.5))
    freedom = numpyro.sample("freedom", dist.Gamma(8.0, 2.0))
    with numpyro.plate("row", 6):
        answer = dist.StudentT(freedom, zeta[LEFT], jnp.exp(log_scale))
        numpyro.sample("y", answer, obs=jnp.linspace(-1.0, 1.0, 6))


def of_two_kinds(unit: Any) -> None:
    """Some answers have closed moments, and the others none."""
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
    zeta = numpyro.sample("zeta", GaussianProcess(Dense(scale**2 * jnp.asarray(unit))))
    with numpyro.plate("row", 6):
        numpyro.sample("y", dist.Logistic(zeta[LEFT], scale), obs=jnp.linspace(-1.0, 1.0, 6))
        numpyro.sample("z", ProbitComparison(zeta[LEFT] - zeta[RIGHT]), obs=jnp.ones(6, int))


ROWS = np.array([0, 2, 3])
MEASURED = np.array([0.3, -1.1, 0.8])
WINNER, LOSER = np.array([0, 1, 2, 3, 0]), np.array([1, 2, 3, 4, 4])
POINTS = np.linspace(0.0, 2.0, 5)
WIDE = np.exp(-0.5 * (POINTS[:, None] - POINTS) ** 2) + 0.1 * np.eye(5)


def everywhere(unit: Any) -> None:
    """Hyperparameters in the prior, the projection, the offset and the likelihood."""
    amplitude = numpyro.sample("amplitude", dist.LogNormal(0.0, 1.0))
    discernment = numpyro.sample("discernment", dist.LogNormal(0.0, 1.0))
    bias = numpyro.sample("bias", dist.HalfNormal(1.0))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    f = numpyro.sample("f", GaussianProcess(Dense(amplitude**2 * jnp.asarray(unit))))
    with numpyro.plate("comparison", len(WINNER)):
        gap = discernment * (f[WINNER] - f[LOSER]) + bias
        numpyro.sample("answer", ProbitComparison(gap), obs=np.array([1, 0, 1, 1, 1]))
    with numpyro.plate("measurement", len(ROWS)):
        numpyro.sample("measured", dist.Normal(f[ROWS], noise), obs=MEASURED)


EXAMPLES = np.random.default_rng(0).normal(size=(9, 2))
TAKEN = np.array([[1, 1, 1, 0, 2, 1, 0, 1, 1], [1, 0, 1, 1, 1, 1, 1, 1, 3]]).T
OUTCOME = np.array([[1, 0, 1, 1, 0, 1, 0, 0, 1], [0, 0, 1, 0, 1, 1, 0, 1, 1]]).T


def moving_features(examples: Any) -> None:
    """More decisions than weights, with features and noise that hyperparameters move; some were not
    taken.
    """
    power = numpyro.sample("power", dist.Normal(0.0, 1.0))
    features = Features(
        examples + power * examples[:, ::-1] ** 2, jnp.exp(power) * examples[:, 0] ** 2
    )
    sample_decisions(features, OUTCOME, TAKEN, Hyperparameters(None), "probit", "example")


# Orders of four items, choices of one among three, and single answers.
PLACES: list[Any] = [
    *[(number, (number, 1), (4, 2), (5, 3), (6, 4)) for number in range(4)],
    *[(number, (number, 1), (0, 2), (2, 2)) for number in range(4, 7)],
    *[(7, (1, 1), (3, 2)), (8, (6, 1), (2, 2))],
]
LISTS = pd.DataFrame(
    [(number, f"e{item}", place) for number, *places in PLACES for item, place in places],
    columns=["list", "item", "place"],
)
ORDERED = table(7, 1).with_comparisons(LISTS)
TIES: dict[str, Any] = {"tie": [False, True, False, False], "rater": list("xyz"), "shown": True}


class Case(NamedTuple):
    """A program with its arguments, and whether raters are averaged over."""

    program: Any
    given: Any
    options: Any = None
    averaged: bool = False


CASES: dict[str, Case] = {
    "more answers than items": Case(xpgp, table(8, 30)),
    "more items than answers": Case(xpgp, table(20, 7)),
    "answers many times": Case(xpgp, table(5, 6, count=[1, 30, 2, 8, 5, 1])),
    "a projection that moves": Case(scaled, UNIT),
    "no closed moments": Case(by_students, UNIT),
    "answers of two kinds": Case(of_two_kinds, UNIT),
    "hyperparameters everywhere": Case(everywhere, WIDE),
    "features that move": Case(moving_features, EXAMPLES),
    "lists": Case(preference_gp, ORDERED),
    "lists of Plackett and Luce": Case(preference_gp, ORDERED, {"likelihood": Logistic()}),
    "groups": Case(preference_gp, table(7, 30, group=[1, 1, 2, 3, 2, None])),
    "covariates": Case(
        preference_gp,
        table(5, 30, covariates=["x"], x_winner=[0.3, -1.0, 0.7], x_loser=[1.0, 0.2]),
    ),
    "raters": Case(preference_gp, table(6, 24, rater=list("xyz")), averaged=True),
    "raters and groups": Case(
        preference_gp, table(6, 24, rater=list("xyz"), group=list("1223")), averaged=True
    ),
    "graded": Case(preference_gp, table(6, 24, **TIES, strength=[1, None, 3, 2])),
    "rao-kupper": Case(preference_gp, table(6, 24, **TIES), {"likelihood": Logistic()}),
    "davidson": Case(
        preference_gp, table(6, 24, **TIES), {"likelihood": Logistic(ties="davidson")}
    ),
    "lapses": Case(preference_gp, table(6, 24, **TIES), {"likelihood": Probit(lapse=True)}),
    "reports": Case(preference_gp, table(6, 24, probability=[0.9, 0.4, 0.1, 0.7])),
}
# Those that Laplace and EP compile, in the space that an engine takes; lists in both.
COMPILED = ["more answers than items"]
COMPILED_BY_EP = ["a projection that moves", "no closed moments", "lists", "groups"]
TOLERANCE = 1e-12


@cache
def prepared(name: str, engine: Any) -> Any:
    case = CASES[name]
    with jax.enable_x64(True):
        program = Program.of(case.program, (case.given,), case.options or {})
        if engine is Laplace and program.layout.ordered:
            program = program.at_a_point()
        return prepare_plates(program, True) if case.averaged else program


def evaluator(name: str, engine: Any, dual: bool) -> Callable[..., Any]:
    program = prepared(name, engine)

    def evaluated(values: Any, whole: bool = False) -> Any:
        start = Sites.none(program.layout.num_rows)
        return engine.evaluate(program, dual, True, values, start, TOLERANCE, 500, whole)

    return evaluated


def parameters(engine: Any) -> list[Any]:
    """Cases and spaces of an engine: members need that of latents, and so do modes of lists."""
    rare = {"rao-kupper", "davidson", "features that move"}
    several = {"lists", "lists of Plackett and Luce"}
    cases = []
    for name, case in CASES.items():
        if name == ("lists of Plackett and Luce" if engine is EP else "lists"):
            continue
        for dual in (False, True):
            slow = name in rare or (engine is Laplace and name not in (*COMPILED, "groups"))
            slow |= dual and name in ("no closed moments", "lapses")
            if case.averaged and (dual or engine is Laplace):
                continue
            if dual and engine is Laplace and name in several:
                continue
            marks = [pytest.mark.slow] if slow else []
            cases.append(pytest.param(engine, name, dual, marks=marks))
    return cases


@pytest.mark.parametrize(("engine", "name", "dual"), [*parameters(EP), *parameters(Laplace)])
def test_gradients_and_what_is_compiled(engine: Any, name: str, dual: bool) -> None:
    at, program = evaluator(name, engine, dual), prepared(name, engine)
    rng = np.random.default_rng(1)
    listed = engine is Laplace and "lists" in name  # derivatives there are differences themselves
    step, error = (1e-3, 2e-4) if listed else (3e-5, 1e-5)
    with jax.enable_x64(True):
        point = {
            key: np.asarray(value) + rng.normal(0.1, 0.3, np.shape(value))
            for key, value in program.medians.items()
        }
        host = at(point)
        assert int(host.info.code) == 0 and set(host.gradient) == set(point)
        largest = max(1.0, *(np.max(np.abs(slope)) for slope in host.gradient.values()))
        # All entries move at once, each by its own step, so that none may be wrong.
        moves = {key: rng.normal(size=np.shape(value)) for key, value in point.items()}
        up, down = (
            found.log_evidence + found.log_prior
            for side in (step, -step)
            for found in [at({key: point[key] + side * move for key, move in moves.items()})]
        )
        slope = sum(np.vdot(move, host.gradient[key]) for key, move in moves.items())
        assert abs(slope - (up - down) / (2 * step)) <= error * largest
        usual = dual == use_dual_space(program.layout) or name == "lists"
        if not usual or name not in (COMPILED_BY_EP if engine is EP else COMPILED):
            return
        traced = jax.jit(at)
        whole, compiled = at(point, True), traced(point, True)
        assert not any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(whole))
        for field in set(whole._fields) - {"info"}:
            pair = (jax.tree.map(np.asarray, getattr(each, field)) for each in (whole, compiled))
            jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=0, atol=1e-8), *pair)
        assert float(whole.log_evidence) == pytest.approx(float(host.log_evidence), abs=1e-10)
        for key, slope in traced(point, False).gradient.items():
            assert_allclose(slope, host.gradient[key], rtol=0, atol=1e-6 * largest)


def test_an_evidence_that_is_no_number_is_told() -> None:
    def without_evidence(*given: Any) -> Any:
        return expectation_propagation(*given)._replace(log_evidence=np.float64(np.nan))

    with jax.enable_x64(True):
        program = prepared("more answers than items", EP)
        start = Sites.none(program.layout.num_rows)
        found = evaluate(
            without_evidence, program, False, False, program.medians, start, 1e-10, 300, None
        )
    assert CODES[int(found.info.code)] is Result.nonfinite


def test_em_refuses_hyperparameters_in_the_projection() -> None:
    with pytest.raises(DataError, match="which EM holds fixed"):
        EP(everywhere, hyperparameters="em").run(0, WIDE)
