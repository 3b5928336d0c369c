"""Derivatives of covariances by hand, on arrays of NumPy and of JAX, against those by JAX."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from relpref.data import Graph
from relpref.infer.large.problem import Interpolated
from relpref.kernels import (
    Diffusion,
    Linear,
    Matern32,
    Matern52,
    RegularizedLaplacian,
    SquaredExponential,
    SquaredExponentialPlusLinear,
)
from relpref.kernels.graph import AttributeCovariance, GraphCovariance
from relpref.linalg import BlockDiagonal, Covariance, Dense, Identity, Kronecker, LowRank, NamedSum
from relpref.linalg.covariance import at_path

RNG = np.random.default_rng(0)
POINTS = RNG.standard_normal((6, 3))
EACH, SHARED = np.array([0.7, 1.3, 2.0]), np.array(1.4)
LINKS = Graph(6, [0, 1, 0, 4], [1, 2, 2, 5], [1.0, 2.0, 0.5, 1.0])  # node 3 has none
APART = Graph(6, [0, 2, 4], [1, 3, 5], np.ones(3))


def matrix(size: int) -> Any:
    root = RNG.standard_normal((size, size))
    return root @ root.T


def attributes(kernel: Any, lengthscale: Any, **more: float) -> AttributeCovariance:
    values = {"lengthscale": lengthscale, **{name: np.array(x) for name, x in more.items()}}
    return AttributeCovariance(kernel, POINTS, values, np.array(0.8))


def graph(kernel: Any, links: Graph = LINKS, normalize: bool = True, **values: float) -> Any:
    numbers = {name: np.array(value) for name, value in values.items()}
    return GraphCovariance(kernel, links, numbers, normalize, np.array(1.7))


def interpolated(value: float) -> Interpolated:
    coefficients = np.stack([matrix(6) / (1 + order) for order in range(4)])
    return Interpolated(0.1, 1.5, coefficients, (np.array(value),), np.array(1.2))


def covariances() -> dict[str, Covariance]:
    one, other = Dense(matrix(6)), attributes(Matern52(), EACH)
    both = SquaredExponentialPlusLinear()
    return {
        "dense": one,
        "identity": Identity(6, np.array(0.6)),
        "low rank": LowRank(RNG.standard_normal((6, 2))),
        "sum": NamedSum({"second": one, "first": other}),
        "blocks": BlockDiagonal((NamedSum({"x": other}), Identity(3, np.array(2.0)))),
        "Kronecker": Kronecker(Dense(matrix(2)), other),
        **{
            f"{type(kernel).__name__} {np.shape(scale)}": attributes(kernel, scale)
            for kernel in (SquaredExponential(), Matern32(), Matern52(), Linear())
            for scale in (EACH, SHARED)
        },
        "smooth and linear": attributes(both, EACH, linear_share=0.3),
        "smooth and linear, shared": attributes(both, SHARED, linear_share=0.3),
        "linear, all alike": AttributeCovariance(
            Linear(shared_lengthscale=True), POINTS, {}, np.array(0.8)
        ),
        "interpolated": interpolated(0.9),
        "at the end of a table": interpolated(7.0),
        "Laplacian": graph(RegularizedLaplacian(), range=0.8),
        "Laplacian as it is": graph(RegularizedLaplacian(), normalize=False, range=0.8),
        "Laplacian without links": graph(RegularizedLaplacian(), Graph(6, [], [], []), range=0.8),
        "heat": graph(Diffusion(), time=0.4),
        "heat as it is": graph(Diffusion(), normalize=False, time=0.4),
        # Gaps within components have vanished, and the scale is that between them.
        "heat that has spread": graph(Diffusion(), APART, time=4.0),
    }


@pytest.mark.parametrize("name", list(covariances()))
def test_against_derivatives_by_jax(name: str) -> None:
    with jax.enable_x64(True):
        covariance = covariances()[name]
        structures = [jax.tree.structure(each) for each in (covariance, covariance.in_memory())]
        assert len(set(structures)) == 1
        weights = matrix(covariance.size) - matrix(covariance.size)
        pull: Any = covariance.pull  # type: ignore[attr-defined]
        slopes, compiled = pull(weights), jax.jit(pull)(weights)
        assert all(isinstance(slope, np.ndarray | float) for slope in slopes.values())
        assert slopes.keys() == compiled.keys()
        assert isinstance(covariance.dense(), np.ndarray)

        def inner(moved: Any) -> Any:
            leaves, structure = jax.tree.flatten(covariance)
            places = {id(at_path(covariance, path)): path for path in slopes}
            held = [moved.get(places.get(id(leaf)), leaf) for leaf in leaves]
            return jnp.vdot(weights, jax.tree.unflatten(structure, held).dense())

        held, expected = jax.jit(jax.value_and_grad(inner))(
            {path: jnp.asarray(at_path(covariance, path), float) for path in slopes}
        )
        assert np.isclose(held, np.vdot(weights, covariance.dense()), rtol=1e-12)
        for path, slope in slopes.items():
            assert_allclose(slope, expected[path], rtol=1e-9, atol=1e-9)
            assert_allclose(compiled[path], expected[path], rtol=1e-9, atol=1e-9)


def test_duplicates_and_scales_far_apart() -> None:
    """Items at one place, and lengthscales that switch an attribute off."""
    scales = np.array([1e-6, 1.0, 1e9])
    for kernel in (SquaredExponential(), Matern32(), Matern52(), Linear()):
        covariance = AttributeCovariance(kernel, POINTS[[0, 0, 1, 2]], {"lengthscale": scales})
        slopes = covariance.pull(np.ones((4, 4)))
        assert all(np.all(np.isfinite(slope)) for slope in slopes.values())


def test_subclasses_do_not_inherit_derivatives() -> None:
    """Their derivatives are JAX's, because what they compute may differ."""

    class Doubled(Dense):
        def dense(self) -> Any:
            return 2 * self.matrix

    class Steeper(SquaredExponential):
        def correlation(self, squared: Any) -> Any:
            return jnp.exp(-squared)

    with jax.enable_x64(True):
        held = Doubled(jnp.eye(2)).in_memory()
        assert type(held) is Dense
        assert_array_equal(held.dense(), 2 * np.eye(2))
        covariance = attributes(Steeper(), EACH)
        assert type(covariance.in_memory()) is Dense
        assert_allclose(covariance.in_memory().dense(), covariance.dense())
