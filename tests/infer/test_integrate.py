"""Where the chains over the hyperparameters start."""

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from relpref.infer.search import _inverse_root

inverse_root: Any = _inverse_root


@pytest.mark.parametrize("steepest", [3.0, 1e19])
def test_the_spread_is_that_of_the_curvature(steepest: float) -> None:
    """Also where curvatures differ by more than a Cholesky factor bears: labels almost without noise have such evidences."""
    axes, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))
    curvatures = np.array([0.5, 2.0, steepest])
    hessian = (axes * curvatures) @ axes.T

    def target(given: Any, vector: Any) -> Any:
        return SimpleNamespace(gradient=-hessian @ np.asarray(vector))

    with jax.enable_x64(True):
        root = inverse_root(target, None, np.zeros(3), lambda vector: vector)
    assert np.all(np.isfinite(root))
    if steepest < 1e6:
        np.testing.assert_allclose(root @ root.T, np.linalg.inv(hessian), rtol=1e-9)


def test_what_has_no_curvature_is_not_spread_by_it() -> None:
    def target(given: Any, vector: Any) -> Any:
        return SimpleNamespace(gradient=np.full(2, np.nan))

    with jax.enable_x64(True):
        root = inverse_root(target, None, np.zeros(2), lambda vector: vector)
    np.testing.assert_array_equal(root, np.eye(2))
