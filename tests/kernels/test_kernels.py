from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist
from scipy.special import gamma, kv

from relpref.data import Graph
from relpref.errors import DataError
from relpref.kernels import (
    Diffusion,
    HiddenCommonCause,
    Linear,
    Matern32,
    Matern52,
    Precomputed,
    RegularizedLaplacian,
    SquaredExponential,
    SquaredExponentialPlusLinear,
)
from relpref.kernels.attribute import Stationary
from relpref.likelihoods import Logistic, Probit

KERNELS: tuple[Any, ...] = (SquaredExponential(), Matern32(), Matern52(), Linear())
STEP = np.finfo(float).eps ** (1 / 3)


def dense(kernel: Any, *args: Any, **parameters: Any) -> Any:
    with jax.enable_x64(True):
        switches = {"normalize": parameters.pop("normalize")} if "normalize" in parameters else {}
        values = {name: jnp.asarray(value, float) for name, value in parameters.items()}
        return np.asarray(
            jax.jit(lambda values: kernel(*args, **values, **switches).dense())(values)
        )


@pytest.mark.parametrize(
    "base", [Stationary, Linear, SquaredExponentialPlusLinear, Probit, Logistic]
)
def test_fields_of_a_base_are_given_by_name(base: Any) -> None:
    """The first field of a class from outside is its own."""

    @dataclass(frozen=True)
    class Outside(base):
        power: float = 1.0

        def correlation(self, squared: jax.Array) -> jax.Array:
            return (1 + squared / (2 * self.power)) ** -self.power

    assert replace(Outside(2.0), power=1.0) == Outside()


def points(n: int = 9, d: int = 3) -> Any:
    return np.random.default_rng(0).standard_normal((n, d))


def test_squared_exponential_by_distances() -> None:
    x, lengthscale = points(), np.array([0.5, 1.0, 3.0])
    found = dense(SquaredExponential(), x, lengthscale=lengthscale)
    squared = cdist(x / lengthscale, x / lengthscale, "sqeuclidean")
    assert_allclose(found, np.exp(-0.5 * squared), rtol=0, atol=1e-14)
    shared = dense(SquaredExponential(shared_lengthscale=True), x, lengthscale=0.7)
    assert_allclose(shared, dense(SquaredExponential(), x, lengthscale=[0.7] * 3), atol=1e-15)


def test_squared_exponential_is_a_covariance() -> None:
    for shift in (0.0, 1e4):
        covariance = dense(SquaredExponential(), points(40) + shift, lengthscale=2.0)
        assert_array_equal(np.diag(covariance), 1.0)
        assert_allclose(covariance, covariance.T, rtol=0, atol=1e-15)
        assert np.linalg.eigvalsh(covariance)[0] >= -1e-10
        assert covariance.max() <= 1.0
    # Where they are does not matter.
    near = dense(SquaredExponential(), points(40), lengthscale=2.0)
    assert_allclose(covariance, near, rtol=0, atol=1e-10)


def test_gradients_at_duplicates() -> None:
    """Those of a weighted sum of covariances in attributes and lengthscales are differences."""
    weights = np.random.default_rng(1).standard_normal((len(KERNELS), 6, 6))

    def weighted(at: Any) -> Any:
        lengthscales = jnp.exp(at[6:])
        covariances = [
            kernel(at[:6], lengthscale=ell).dense()
            for kernel, ell in zip(KERNELS, lengthscales, strict=True)
        ]
        return jnp.vdot(weights, jnp.stack(covariances))

    with jax.enable_x64(True):
        start = jnp.asarray(points()[[0, 0, 1, 1, 2, 3, 4, 5, 6, 7]])
        value, slope_of = jax.jit(weighted), jax.jit(jax.grad(weighted))
        gradient = np.asarray(slope_of(start))
        for entry in np.ndindex(start.shape):
            ends = [float(value(start.at[entry].add(side))) for side in (STEP, -STEP)]
            slope = (ends[0] - ends[1]) / (2 * STEP)
            assert abs(gradient[entry] - slope) <= 1e-6 * np.abs(gradient).max()


@pytest.mark.parametrize(("kernel", "order"), [(Matern32(), 1.5), (Matern52(), 2.5)])
def test_matern_is_the_bessel_form(kernel: Any, order: float) -> None:
    x, lengthscale = points(), np.array([0.5, 1.0, 3.0])
    found = dense(kernel, x, lengthscale=lengthscale)
    distance = np.sqrt(2 * order) * cdist(x / lengthscale, x / lengthscale)
    np.fill_diagonal(distance, 1.0)
    # Rasmussen & Williams 2006, eq. 4.14.
    expected = 2 ** (1 - order) / gamma(order) * distance**order * kv(order, distance)
    np.fill_diagonal(expected, 1.0)
    assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert_array_equal(np.diag(found), 1.0)
    assert dense(kernel, points()[[0, 0, 1]], lengthscale=1.0)[0, 1] == 1.0


def test_linear_entry_by_entry_and_its_scale() -> None:
    x, lengthscale = points(40), np.array([0.5, 1.0, 3.0])
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    weights = lengthscale**-2 / np.sum(lengthscale**-2)
    found = dense(Linear(), x, lengthscale=lengthscale)
    assert_allclose(found, (x * weights) @ x.T, rtol=0, atol=1e-14)
    assert_allclose(dense(Linear(), x, lengthscale=1e-200 * lengthscale), found, rtol=0, atol=1e-14)
    assert_allclose(dense(Linear(shared_lengthscale=True), x), x @ x.T / 3, rtol=0, atol=1e-14)
    gaps = np.diag(found)[:, None] + np.diag(found) - 2 * found
    assert abs(np.sum(gaps) / (40 * 39) - 2 * 40 / 39) <= 1e-12
    assert Linear(shared_lengthscale=True).parameters(3) == {}
    assert Linear().parameters(3)["lengthscale"].shape() == (3,)
    assert not np.any(dense(Linear(), np.zeros((4, 0)), lengthscale=np.zeros(0)))


def test_jax_tells_kernels_apart() -> None:
    # Two registered dataclasses with equal fields are one structure to JAX, and one compilation
    # then serves both.
    kernels: list[Any] = [
        *KERNELS,
        RegularizedLaplacian(),
        Diffusion(),
        HiddenCommonCause(),
        Probit(),
        Logistic(),
    ]
    structures: list[Any] = [jax.tree.structure(kernel) for kernel in kernels]
    for row, one in enumerate(structures):
        assert all(one != other for other in structures[:row])


def test_squared_exponential_plus_linear() -> None:
    x, values = points(), {"lengthscale": [0.7, 1.0, 2.0], "linear_share": 0.3}
    kernel = SquaredExponentialPlusLinear()
    smooth, linear = (
        dense(one, x, lengthscale=values["lengthscale"]) for one in (SquaredExponential(), Linear())
    )
    found = dense(kernel, x, **values)
    assert_allclose(found, 0.7 * smooth + 0.3 * linear, rtol=0, atol=1e-12)
    with jax.enable_x64(True):
        some = kernel.cross(
            x[:4], x[2:], **{name: jnp.asarray(value) for name, value in values.items()}
        )
    assert_allclose(some, found[:4, 2:], rtol=0, atol=1e-12)
    assert_array_equal(dense(kernel, x, **{**values, "linear_share": 0.0}), smooth)
    assert kernel.parameters(3)["lengthscale"].shape() == (3,)
    assert (
        SquaredExponentialPlusLinear(shared_lengthscale=True).parameters(3)["lengthscale"].shape()
        == ()
    )


def test_priors() -> None:
    """Medians and means; with two parts the prior variance is that of two."""
    kernel = SquaredExponentialPlusLinear(shared_lengthscale=True)
    priors = kernel.parameters(4)
    assert float(priors["lengthscale"].icdf(0.5)) == pytest.approx(2.0)
    assert float(priors["linear_share"].mean) == pytest.approx(2 / 3)
    amplitude = kernel.amplitude_prior
    assert float(amplitude.variance + amplitude.mean**2) == pytest.approx(8.0)


@pytest.mark.parametrize("name", ["mixed_n100", "graph_n80", "attributes_n60", "hub_n40"])
def test_gold_covariances(name: str) -> None:
    with np.load(Path(__file__).parents[1] / "gold" / f"ep_{name}.npz") as file:
        problem = {key: file[key] for key in file.files}
    n = len(problem["K"])
    covariance = 1e-8 * np.eye(n)
    attributes = dense(
        SquaredExponential(), problem["attributes"], lengthscale=problem["lengthscale"]
    )
    covariance += problem["amp_attribute"] ** 2 * attributes
    row, column = np.nonzero(np.triu(problem["adjacency"]))
    graph = Graph(n, row, column, problem["adjacency"][row, column])
    relation = dense(RegularizedLaplacian(), graph, normalize=False, range=problem["iota"])
    covariance += problem["amp_relation"] ** 2 * relation
    assert_allclose(covariance, problem["K"], rtol=0, atol=1e-11)


def test_precomputed() -> None:
    matrix = np.array([[2.0, 0.5], [0.5, 1.0]])
    for given in (matrix, matrix.tolist()):
        kernel = Precomputed(given)
        assert kernel.parameters(7) == {}
        assert_array_equal(dense(kernel, None), matrix)
        assert_array_equal(dense(kernel, None, normalize=False), matrix)
    leaves, structure = jax.tree.flatten(Precomputed(matrix))
    assert len(leaves) == 1
    assert_array_equal(dense(jax.tree.unflatten(structure, leaves), None), matrix)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ones((2, 3)), r"shape \(2, 3\).*square"),
        ([[1.0, np.nan], [np.nan, 1.0]], "nan at row 0, column 1"),
        ([[1.0, 0.5], [0.4, 1.0]], r"not symmetric.*\(K \+ K.T\) / 2"),
    ],
)
def test_precomputed_refuses(matrix: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Precomputed(matrix)
