"""What NumPy computes where nothing is traced is what the compiled engine computes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

from relpref.data import PreferenceData
from relpref.infer import EP, Laplace
from relpref.infer.evidence import evaluate, expectation_propagation, use_dual_space
from relpref.infer.program import Program
from relpref.infer.sites import Sites
from relpref.kernels import GaussianProcess
from relpref.likelihoods import ProbitComparison
from relpref.linalg import Dense
from relpref.models import xpgp
from relpref.result import CODES, Result


def table(number: int, answers: int, **columns: Any) -> PreferenceData:
    rng = np.random.default_rng(number)
    labels = [f"e{row}" for row in range(number)]
    items = pd.DataFrame(rng.standard_normal((number, 2)), index=labels, columns=["a", "b"])
    first = rng.integers(0, number, answers)
    second = (first + rng.integers(1, number, answers)) % number
    named = {"winner": [labels[i] for i in first], "loser": [labels[i] for i in second]}
    links = pd.DataFrame({"source": labels, "target": labels[1:] + labels[:1]})
    return PreferenceData.from_tables(items, pd.DataFrame({**named, **columns}), {"next": links})


LEFT, RIGHT = np.array([0, 1, 2, 3, 0, 1]), np.array([2, 3, 0, 1, 3, 0])
UNIT = np.exp(-0.5 * np.subtract.outer(np.arange(4.0), np.arange(4.0)) ** 2)


def scaled(unit: Any) -> None:
    """The answers look at the items with a weight that is learned: the projection moves."""
    weight = numpyro.sample("weight", dist.LogNormal(0.0, 0.5))
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
    scale = numpyro.sample("scale", dist.LogNormal(-1.0, 0.5))
    with numpyro.plate("row", 6):
        numpyro.sample("y", dist.StudentT(4.0, zeta[LEFT], scale), obs=jnp.linspace(-1.0, 1.0, 6))


CASES: dict[str, tuple[Any, Any]] = {
    "more answers than items": (xpgp, lambda: table(8, 30)),
    "more items than answers": (xpgp, lambda: table(20, 7)),
    "answers many times": (xpgp, lambda: table(5, 6, count=[1, 30, 2, 8, 5, 1])),
    "a projection that moves": (scaled, lambda: UNIT),
    "no closed moments": (by_students, lambda: UNIT),
}


@pytest.mark.parametrize("engine", [EP, Laplace])
@pytest.mark.parametrize("name", CASES)
def test_host_and_compiled(engine: Any, name: str) -> None:
    model, data = CASES[name][0], CASES[name][1]()
    with jax.enable_x64(True):
        program = Program.of(model, (data,))
        dual = use_dual_space(program.layout)
        values = {key: np.asarray(value) + 0.1 for key, value in program.medians.items()}
        start = Sites(*np.zeros((2, program.layout.num_rows)))

        def evaluated(values: Any, start: Any, whole: bool) -> Any:
            return engine.evaluate(program, dual, True, values, start, 1e-10, 300, whole)

        traced = jax.jit(evaluated)
        for whole in (False, True):
            host = evaluated(values, start, whole)
            compiled = traced(values, start, whole)
            assert not any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(host))
            assert int(host.info.code) == int(compiled.info.code) == 0
            for field in host._fields:
                if field == "info" or (
                    not whole and field in ("drift", "covariance", "pulled", "blocks", "repeated")
                ):
                    continue
                ours, theirs = (
                    jax.tree.map(np.asarray, getattr(one, field)) for one in (host, compiled)
                )
                jax.tree.map(
                    lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-8), ours, theirs
                )
        assert host.gradient and all(np.all(value == 0) for value in host.gradient.values())


def test_an_evidence_that_is_no_number_is_told() -> None:
    def without_evidence(*given: Any) -> Any:
        return expectation_propagation(*given)._replace(log_evidence=np.float64(np.nan))

    with jax.enable_x64(True):
        program = Program.of(xpgp, (table(8, 30),))
        start = Sites(*np.zeros((2, program.layout.num_rows)))
        found = evaluate(
            without_evidence, program, False, False, program.medians, start, 1e-10, 300, None
        )
    assert CODES[int(found.info.code)] is Result.nonfinite
