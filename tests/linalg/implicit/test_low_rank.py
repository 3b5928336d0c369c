"""Low ranks and what they add, against dense matrices."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from relpref.linalg import KernelMatrix, nystrom


def smooth(left: Any, right: Any) -> Any:
    return np.exp(-0.5 * ((left[:, None, :] - right[None, :, :]) ** 2).sum(axis=2))


@pytest.mark.parametrize("rng", [None, np.random.default_rng(0)])
def test_nystrom_says_what_it_leaves_out(rng: Any) -> None:
    points = np.random.default_rng(1).standard_normal((200, 2))
    dense = 2.0 * smooth(points, points)
    ranks = []
    for tol in (1e-1, 1e-3, 1e-6):
        found = nystrom(KernelMatrix(smooth, points, 2.0), 150, tol, rng=rng)
        rest = dense - found.block(np.arange(200), np.arange(200))
        assert found.left_out <= tol
        assert rest.trace() / dense.trace() == pytest.approx(found.left_out, abs=1e-8)
        values = np.linalg.eigvalsh(rest)
        assert values.min() > -1e-7
        assert values.max() <= found.left_out * dense.trace() + 1e-7
        ranks.append(found.factor.shape[1])
    assert ranks == sorted(ranks)
    few = nystrom(KernelMatrix(smooth, points), 5, 0.0, rng=rng)
    assert few.factor.shape == (200, 5)
    assert few.left_out > 1e-3


def test_points_that_repeat_add_no_rank() -> None:
    points = np.repeat(np.array([[0.0], [1.0], [5.0]]), 30, axis=0)
    found = nystrom(KernelMatrix(smooth, points), 20)
    assert found.factor.shape == (90, 3)
    assert_allclose(found.block(np.arange(90), np.arange(90)), smooth(points, points), atol=1e-8)
