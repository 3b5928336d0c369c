"""Where the chains over the hyperparameters start."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from relpref.infer.importance import inverse_root


@pytest.mark.parametrize("steepest", [3.0, 1e19])
def test_the_spread_is_that_of_the_curvature(steepest: float) -> None:
    """Also where curvatures differ by more than a Cholesky factor bears: labels almost without
    noise have such evidences.
    """
    axes, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))
    hessian = (axes * np.array([0.5, 2.0, steepest])) @ axes.T
    root = inverse_root(hessian, 0.1)
    assert np.all(np.isfinite(root))
    if steepest < 1e6:
        assert_allclose(root @ root.T, np.linalg.inv(hessian), rtol=1e-9)


def test_directions_that_are_too_flat_are_not_believed() -> None:
    root = inverse_root(np.diag([1e-8, 4.0]), 0.1)
    assert_allclose(root @ root.T, np.diag([10.0, 0.25]), atol=1e-12)


def test_what_has_no_curvature_is_not_spread_by_it() -> None:
    assert_array_equal(inverse_root(np.full((2, 2), np.nan), 0.1), np.eye(2))
