"""Affine functions of latent vectors against runs at points, and against linearization by JAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from relpref.infer.call import Call
from relpref.infer.latents import Affine, Asked
from relpref.infer.layout import Layout
from relpref.infer.priors import median, median_by_numpy
from relpref.infer.program import discover
from relpref.infer.rows import SparseRows
from relpref.kernels import GaussianProcess
from relpref.likelihoods import ProbitComparison
from relpref.linalg import Dense

RNG = np.random.default_rng(0)
LAYOUT = Layout((("f", (6,)), ("w", (2, 3)), ("b", ())), (), ())
FIRST, SECOND = RNG.integers(0, 6, (2, 9))
TABLE, FACTOR = RNG.standard_normal((9, 6)), RNG.standard_normal((4, 2))
RIGHT = RNG.standard_normal((3, 5))
FORMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a difference": lambda f, w, b: f[FIRST] - f[SECOND],
    "numbers": lambda f, w, b: 0.4 + 2 * f[2] - 1.5,
    "a slice": lambda f, w, b: f[1:5:2] + f[::-1][:2],
    "a new axis": lambda f, w, b: f[:, None] + w[0],
    "an ellipsis": lambda f, w, b: w[..., 1],
    "a column": lambda f, w, b: w[FIRST % 2, SECOND % 3],
    "a mask": lambda f, w, b: f[np.arange(6) % 2 == 0],
    "a list": lambda f, w, b: f[np.array([0, -1])],
    "an array of JAX": lambda f, w, b: f[jnp.asarray(FIRST)] + b,
    "broadcasting": lambda f, w, b: w - w[:, :1] + b,
    "a factor": lambda f, w, b: TABLE[:, 0] * f[FIRST] / 3 - f[SECOND] * TABLE[:, 1],
    "a factor from the left": lambda f, w, b: np.arange(3.0) * w,
    "a matrix": lambda f, w, b: TABLE @ f,
    "a matrix from the right": lambda f, w, b: f @ TABLE.T,
    "two matrices": lambda f, w, b: FACTOR @ w @ RIGHT,
    "the transpose": lambda f, w, b: w.T @ FACTOR.T,
    "shapes": lambda f, w, b: f.reshape(3, 2).T + w.reshape((2, -1)) - w.ravel()[0],
    "sums": lambda f, w, b: w.sum(0) - w.mean(1)[0] + f.sum() - w.sum(-1).mean(),
    "the negative": lambda f, w, b: 1 - (-f) + TABLE[0],
    "nothing": lambda f, w, b: f[FIRST] - f[FIRST],
    "rows of a table": lambda f, w, b: (TABLE @ f)[FIRST % 9],
}


def refuse(values: Affine) -> Any:
    raise AssertionError("was asked for an array")


def hold(form: Callable[..., Any]) -> None:
    values = form(*Affine.latents(LAYOUT, refuse).values())
    point, *units = RNG.standard_normal(LAYOUT.num_latents), *np.eye(LAYOUT.num_latents)
    truth, nothing, *columns = (
        np.asarray(form(*LAYOUT.unravel(at).values())) for at in (point, 0 * point, *units)
    )
    matrix = np.stack([np.ravel(column - nothing) for column in columns], axis=1)
    assert values.shape == truth.shape
    assert (values.ndim, values.size) == (truth.ndim, truth.size)
    assert_allclose(values.matrix.toarray(), matrix, rtol=1e-14, atol=1e-14)
    predicted = np.reshape(values.matrix @ point, values.shape) + values.offset
    assert_allclose(predicted, truth, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", FORMS)
def test_every_form_against_runs(name: str) -> None:
    hold(FORMS[name])


MOVING: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "an offset": (lambda f, t: t + f[FIRST] - f[SECOND] - 2 * t, False),
    "a factor": (lambda f, t: f[FIRST] * t, True),
    "a factor from the left": (lambda f, t: 1 - t * f / t, True),
    "features": (lambda f, t: (t * TABLE) @ f, True),
    "features from the right": (lambda f, t: f @ (t * TABLE.T) + f[2], True),
}


@pytest.mark.parametrize("name", MOVING)
def test_what_moves_with_hyperparameters(name: str) -> None:
    form, moves = MOVING[name]
    held: list[Affine] = []

    def traced(t: Any) -> Any:
        held.append(form(Affine.latents(LAYOUT, refuse)["f"], t))
        return held[0].offset

    with jax.enable_x64(True):
        offset = jax.jit(traced)(0.7)
        truth, apply = jax.linearize(lambda x: form(x, 0.7), np.zeros(6))
        matrix = np.asarray(jax.vmap(apply, out_axes=-1)(np.eye(6)))
    (values,) = held
    assert_allclose(offset, truth, rtol=1e-13)
    assert values.moves == moves
    there = values.matrix.toarray()[:, :6]
    assert_array_equal(there != 0, matrix != 0) if moves else assert_allclose(there, matrix)


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_against_runs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps: list[Callable[[Any], Any]] = []
    for kind in rng.integers(0, 6, 12):
        place, table = rng.integers(0, 6, 6), rng.standard_normal((6, 6))
        number = float(rng.standard_normal())
        steps.append(
            (
                lambda x, place=place: x[place],
                lambda x, table=table: table @ x,
                lambda x, table=table: x * table[0] + table[1],
                lambda x, number=number: number - x / (1 + number**2),
                lambda x, place=place: x - x[place],
                lambda x: x.reshape(2, 3).T.ravel(),
            )[kind]
        )

    def form(f: Any, w: Any, b: Any) -> Any:
        for step in steps:
            f = step(f) + b - w.T.ravel()
        return f

    hold(form)


@pytest.mark.parametrize(
    "form",
    [
        lambda f: jnp.asarray(f) + 1,
        lambda f: jnp.ones(6) * f,
        lambda f: jnp.asarray(f) * jnp.asarray(f),
        lambda f: jnp.eye(6) @ f,
    ],
)
def test_functions_of_jax_ask_for_an_array(form: Callable[[Any], Any]) -> None:
    asked = []

    def ask(values: Affine) -> Any:
        asked.append(values)
        return jnp.zeros(values.shape)

    form(Asked.latents(LAYOUT, ask)["f"])
    assert asked


@pytest.mark.parametrize(
    "form",
    [
        np.exp,
        jnp.exp,
        np.asarray,
        bool,
        float,
        lambda f: f**2,
        lambda f: f[7],
        lambda f: f @ f,
        lambda f: f * f,
    ],
)
def test_what_is_not_affine_is_refused(form: Callable[[Any], Any]) -> None:
    with pytest.raises((TypeError, IndexError, AssertionError)):
        form(Affine.latents(LAYOUT, refuse)["f"])


@pytest.mark.parametrize(
    "prior",
    [
        dist.Normal(0.3, 2.0),
        dist.Normal(np.array([0.3, -1.0]), 2.0).to_event(1),
        dist.LogNormal(0.4, 0.7).expand([3]).to_event(1),
        dist.HalfNormal(2.5),
        dist.Weibull(8.0**0.5, 2.0),
        dist.Kumaraswamy(2.0, 1.5),
    ],
)
def test_medians_by_numpy(prior: Any) -> None:
    with jax.enable_x64(True):
        assert_allclose(median_by_numpy(prior), median({"fn": prior, "value": 0.5}), rtol=1e-13)


def test_medians_that_numpy_does_not_know() -> None:
    assert median_by_numpy(dist.Gamma(2.0, 1.0)) is None
    assert median_by_numpy(dist.HalfNormal(jnp.ones(()))) is None


def test_rows_with_entries_for_all() -> None:
    matrix = np.zeros((4, 9))
    matrix[:, :2] = RNG.standard_normal((4, 2))
    matrix[[0, 1, 1, 3], [2, 5, 3, 8]] = 1, -1, 2, 3
    assert SparseRows.of(matrix) is None
    rows: Any = SparseRows.of(matrix, range(2))
    assert_array_equal(rows.matrix.toarray(), matrix)
    assert rows.column.shape == (4, 4)
    matrix[1, 4] = 1
    assert SparseRows.of(matrix, range(2)) is None


def prior(size: int) -> Any:
    return GaussianProcess(Dense(np.eye(size)))


def shifted() -> None:
    """A Gaussian parameter of the answers that is no latent."""
    f = numpyro.sample("f", prior(6))
    bias = numpyro.sample("bias", dist.Normal(0.0, 0.5))
    numpyro.sample("y", ProbitComparison(f[FIRST] - f[SECOND], shift=bias * TABLE[:, 0]), obs=1)


def remembered() -> None:
    """What is computed on the side changes nothing."""
    f = numpyro.sample("f", prior(6))
    numpyro.deterministic("best", jnp.max(jnp.asarray(f)))
    numpyro.sample("y", dist.Normal(TABLE @ f + 0.3, 0.5), obs=TABLE[:, 2])


def repeated() -> None:
    f, counts = numpyro.sample("f", prior(6)), np.arange(1, 10)
    masked = ProbitComparison(f[FIRST]).mask(np.arange(9) > 2)
    with numpyro.handlers.scale(scale=counts):
        numpyro.sample("y", masked, obs=1)
    numpyro.sample("z", dist.Normal(f[2], 1.0), obs=0.3)


def with_jax() -> None:
    f = numpyro.sample("f", prior(6))
    numpyro.sample("y", ProbitComparison(f[jnp.asarray(FIRST)] * jnp.square(2.0)), obs=1)


def hierarchical() -> None:
    spread = numpyro.sample("spread", dist.Gamma(2.0, 1.0))
    scale = numpyro.sample("scale", dist.HalfNormal(spread))
    f = numpyro.sample("f", dist.Normal(0.0, scale).expand([6]).to_event(1))
    numpyro.sample("y", ProbitComparison(f[FIRST] - f[SECOND]), obs=1)


def centered() -> None:
    level, spread = (numpyro.sample(n, dist.HalfNormal(1.0)) for n in ("level", "spread"))
    f = level + spread * numpyro.sample("f", dist.Normal(0.0, 1.0).expand([6]).to_event(1))
    numpyro.sample("y", ProbitComparison(f[FIRST]), obs=1)


def labels() -> None:
    f = numpyro.sample("f", prior(6))
    with numpyro.plate("row", 9):
        numpyro.sample("y", dist.StudentT(4.0, f[FIRST] - f[SECOND], 0.5), obs=TABLE[:, 0])
        numpyro.sample("z", dist.Bernoulli(logits=jnp.ones(9) * f[FIRST]), obs=1)
    numpyro.sample("a", dist.Normal(f[:3], 0.5), obs=TABLE[:3, 1])


def nonlinear() -> None:
    f = numpyro.sample("f", prior(6))
    with numpyro.plate("row", 9):
        numpyro.sample("y", dist.Poisson(jnp.exp(1.0 + 2 * f[FIRST] - f[SECOND])), obs=1)
        numpyro.sample("z", ProbitComparison(f[SECOND] + 1), obs=1)


def late() -> None:
    f = numpyro.sample("f", prior(6))
    numpyro.sample("y", dist.Poisson(jnp.exp(f)[FIRST]), obs=np.ones(9))


def stacked() -> None:
    f, g = (numpyro.sample(name, prior(6)) for name in "fg")
    numpyro.sample("y", ProbitComparison(jnp.stack([f, g])[FIRST % 2, SECOND]), obs=1)


PROGRAMS: dict[Callable[[], None], tuple[str, str]] = {
    shifted: ("f", "bias"),
    remembered: ("f", ""),
    repeated: ("f", ""),
    with_jax: ("f", ""),
    hierarchical: ("f", "spread scale"),
    centered: ("f", "level spread"),
    labels: ("f", ""),
    nonlinear: ("f", ""),
    late: ("f", ""),
    stacked: ("f g", ""),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_against_linearization(program: Callable[[], None]) -> None:
    with jax.enable_x64(True):
        found = discover(*Call.split(program, (), {}), {})
        reading = found.read(found.medians)
        units = np.eye(found.layout.num_latents)
        matrix = jax.jit(jax.vmap(reading.projection.apply, out_axes=1))(units)
        counts = np.concatenate([each.counts for each in reading.observations])
    latents, hyperparameters = PROGRAMS[program]
    assert [name for name, _ in found.layout.latents] == latents.split()
    assert [name for name, _ in found.layout.hyperparameters] == hyperparameters.split()
    assert found.medians.keys() == set(hyperparameters.split())
    assert found.layout.num_rows == len(matrix)
    assert_array_equal(found.counts, counts)
    assert found.layout.constant_projection == (program is not centered)
    assert (found.rows is None) == (program in (remembered, centered))
    if found.rows is not None:
        assert_allclose(found.rows.matrix.toarray(), matrix, rtol=1e-12, atol=1e-12)
