"""The kernel of selected edges against the pairwise kernels, and features that leave out what they
say.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from relpref.kernels import EdgeLandmarks, Kronecker, Reciprocal, Side, Symmetric
from relpref.kernels.pairwise import edge_diagonal, edge_kernel

RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(6, 4))
KERNEL = ROOT @ ROOT.T
EDGES = RNG.integers(0, 6, (2, 12))
OTHER = RNG.integers(0, 6, (2, 5))


@pytest.mark.parametrize(
    ("kernel", "sign"), [(Kronecker(), 0.0), (Symmetric(), 1.0), (Reciprocal(), -1.0)]
)
def test_the_kernel_of_selected_edges(kernel: Kronecker | Symmetric, sign: float) -> None:
    side = Side.training(KERNEL)
    expected = kernel.matrix(side, side, *EDGES, *OTHER)
    assert_allclose(
        edge_kernel(KERNEL, KERNEL, sign, tuple(EDGES), tuple(OTHER)), expected, rtol=1e-12
    )
    own = kernel.matrix(side, side, *EDGES, *EDGES)
    assert_allclose(edge_diagonal(KERNEL, KERNEL, sign, tuple(EDGES)), np.diagonal(own), atol=1e-12)


@pytest.mark.parametrize("sign", [0.0, 1.0, -1.0])
def test_features_leave_out_what_they_say(sign: float) -> None:
    edges = np.repeat(np.arange(6), 6), np.tile(np.arange(6), 6)
    landmarks = EdgeLandmarks.choose(KERNEL, KERNEL, edges, 5, sign=sign)
    with jax.enable_x64(True):
        found = landmarks.features(jnp.asarray(KERNEL), jnp.asarray(KERNEL), sign, edges)
        values, residual = (np.asarray(part) for part in found)
    exact = edge_kernel(KERNEL, KERNEL, sign, edges, edges)
    assert_allclose(np.sum(np.square(values), axis=1) + residual, np.diagonal(exact), atol=1e-10)
    assert landmarks.error == pytest.approx(np.sum(residual) / np.trace(exact), abs=1e-10)
    own = landmarks.rows * 6 + landmarks.columns
    assert_allclose((values @ values.T)[own], exact[own], atol=1e-10)


def test_an_edge_that_is_there_twice_is_one() -> None:
    rows, columns = np.array([1, 1, 2, 1]), np.array([0, 0, 0, 0])
    landmarks = EdgeLandmarks.choose(np.eye(3), np.eye(3), (rows, columns))
    assert sorted(landmarks.rows) == [1, 2] and landmarks.error == 0


def test_edges_that_matter_more_are_explained_better() -> None:
    edges = np.repeat(np.arange(6), 6), np.tile(np.arange(6), 6)
    kernel = KERNEL + 5 * np.eye(6)
    matter = np.arange(36) < 12
    plain, weighted = (
        EdgeLandmarks.choose(kernel, kernel, edges, 8, weights=weights)
        for weights in (None, 1 + 1000 * matter)
    )
    some = edges[0][matter], edges[1][matter]
    assert weighted.left_out(kernel, kernel, 0.0, some) < 0.7 * plain.left_out(
        kernel, kernel, 0.0, some
    )
    assert (
        weighted.error == pytest.approx(weighted.left_out(kernel, kernel, 0.0, edges))
        and weighted.error > plain.error
    )
