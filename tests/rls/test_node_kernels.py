"""Kernels of nodes beside their formulas and the package's own kernels."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal

from relpref.data import Graph
from relpref.errors import DataError
from relpref.kernels import Linear, Matern52, RegularizedLaplacian, SquaredExponential
from relpref.rls import gram

RNG = np.random.default_rng(0)
LEFT, RIGHT = RNG.normal(size=(7, 3)), RNG.normal(size=(4, 3))
SQUARED = np.sum((LEFT[:, None] - RIGHT[None]) ** 2, axis=-1)
PATH = Graph(4, np.array([0, 1, 2]), np.array([1, 2, 3]), np.array([1.0, 2.0, 0.5]))

FORMULAS: dict[str, tuple[dict[str, Any], Any]] = {
    "linear": ({}, LEFT @ RIGHT.T),
    "polynomial": ({"gamma": 0.5, "degree": 2, "coef0": 3.0}, (0.5 * LEFT @ RIGHT.T + 3) ** 2),
    "gaussian": ({"gamma": 0.7}, np.exp(-0.7 * SQUARED)),
}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kernel", FORMULAS)
def test_named_kernels(kernel: str, sparse: bool) -> None:
    options, expected = FORMULAS[kernel]
    form: Any = scipy.sparse.csr_array if sparse else np.asarray
    result = gram(form(LEFT), form(RIGHT), kernel=kernel, **options)
    assert_allclose(result, expected, rtol=1e-12)
    assert result.dtype == np.float64
    default: Any = {} if kernel == "linear" else {"gamma": 1 / 3}  # of three attributes
    assert_array_equal(gram(form(LEFT), kernel=kernel), gram(form(LEFT), kernel=kernel, **default))


def test_functions_and_matrices() -> None:
    def shifted(left: Any, right: Any, shift: float) -> Any:
        return left @ right.T + shift

    result = gram(LEFT, RIGHT, kernel=shifted, kernel_params={"shift": 2.0})
    assert_allclose(result, LEFT @ RIGHT.T + 2, rtol=1e-14)
    matrix = LEFT @ LEFT.T
    assert_array_equal(gram(matrix, kernel="precomputed"), matrix)
    assert_array_equal(gram(matrix[:2], matrix, kernel="precomputed"), matrix[:2])


@pytest.mark.parametrize(
    "kernel, params",
    [
        (SquaredExponential(), {"lengthscale": [0.5, 1.0, 2.0]}),
        (Matern52(shared_lengthscale=True), {"lengthscale": 1.5}),
        (Linear(), {"lengthscale": [0.5, 1.0, 2.0]}),
    ],
)
def test_attribute_kernels_of_the_package(kernel: Any, params: dict[str, Any]) -> None:
    everything = np.concatenate([LEFT, RIGHT])
    with jax.enable_x64(True):
        expected = np.asarray(
            kernel(
                jnp.asarray(everything),
                **{name: np.asarray(value) for name, value in params.items()},
            ).dense()
        )
    result = gram(
        LEFT, RIGHT, kernel=kernel, kernel_params=params
    )  # more new nodes than old: two blocks
    assert_allclose(result, expected[:7, 7:], rtol=1e-12)
    assert_allclose(
        gram(everything, kernel=kernel, kernel_params=params), expected, rtol=1e-12, atol=1e-14
    )


def test_graph_kernels_know_the_nodes_of_their_graph() -> None:
    kernel, params = RegularizedLaplacian(), {"graph": PATH, "range": 2.0, "normalize": False}
    laplacian = np.diag(PATH.weight_matrix.sum(axis=1)) - PATH.weight_matrix
    expected = np.linalg.inv(laplacian + np.eye(4) / 4)
    assert_allclose(gram(np.arange(4), kernel=kernel, kernel_params=params), expected, rtol=1e-10)
    part = gram(np.array([[3.0], [1.0]]), np.array([0, 2, 3]), kernel=kernel, kernel_params=params)
    assert_allclose(part, expected[np.ix_([3, 1], [0, 2, 3])], rtol=1e-10)
    with pytest.raises(
        DataError, match="node 4 is not one of the graph's.*include new nodes in the graph"
    ):
        gram(np.array([0, 4]), kernel=kernel, kernel_params=params)


@pytest.mark.parametrize(
    "left, right, options, message",
    [
        (LEFT, None, {"kernel": "cubic"}, "no kernel 'cubic'"),
        (LEFT, None, {"kernel": "gaussian", "gamma": -1.0}, "gamma is -1.0"),
        (
            LEFT,
            None,
            {"kernel": "linear", "kernel_params": {"gamma": 1.0}},
            "kernel_params are for functions",
        ),
        (LEFT, None, {"kernel": "precomputed"}, r"shape \(7, 3\); it must be square"),
        (
            np.triu(np.ones((3, 3))),
            None,
            {"kernel": "precomputed"},
            r"not symmetric.*\(K \+ K.T\) / 2",
        ),
        (
            LEFT,
            None,
            {"kernel": SquaredExponential()},
            "hyperparameters lengthscale; kernel_params has none",
        ),
        (LEFT, None, {"kernel": RegularizedLaplacian()}, "is a kernel on a graph; give"),
        (
            np.arange(4),
            None,
            {"kernel": RegularizedLaplacian(), "kernel_params": {"graph": PATH, "ranges": 1.0}},
            "hyperparameters range; kernel_params has ranges",
        ),
        (LEFT, None, {"kernel": lambda x, y: np.eye(3)}, r"has shape \(3, 3\), not \(7, 7\)"),
        (
            LEFT,
            RIGHT,
            {"kernel": lambda x, y: np.full((7, 4), np.inf)},
            "holds inf at row 0, column 0",
        ),
    ],
)
def test_what_is_no_kernel_is_named(
    left: Any, right: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        gram(left, right, **options)
