"""Solves with one device, how their iterations end, and meshes that do not fit."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh
from numpy.testing import assert_allclose
from scipy import sparse

from relpref.errors import DataError
from relpref.linalg.sharded import ShardedEdges, ShardedLaplacian, row_sharding


@dataclass(frozen=True)
class Device:
    """A device of another kind."""

    platform: str
    process_index: int = 0
    id: int = 0


class Slices:
    """A matrix that has a shape and gives slices of rows, and nothing else."""

    def __init__(self, matrix: Any) -> None:
        self.shape, self._matrix = matrix.shape, matrix

    def __getitem__(self, rows: slice) -> Any:
        assert isinstance(rows, slice)
        return self._matrix[rows]


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()[:1]), ("device",))


def test_kernels_may_be_in_a_file(mesh: Mesh, tmp_path: Path) -> None:
    """Edges of random rows, some of them equal, and of rows without any."""
    rng = np.random.default_rng(1)
    left, right = (np.cov(rng.standard_normal((size, 9))) for size in (5, 3))
    stored: Any = np.memmap(tmp_path / "left", float, mode="w+", shape=left.shape)
    stored[:] = left
    rows, columns, labels = rng.integers(1, 4, 20), rng.integers(0, 3, 20), rng.standard_normal(20)
    edges = ShardedEdges(Slices(stored), Slices(right), rows, columns, mesh)
    result = edges.solve(labels, 0.1, tol=1e-13)
    kernel = left[np.ix_(rows, rows)] * right[np.ix_(columns, columns)]
    expected = np.linalg.solve(kernel + 0.1 * np.eye(20), labels)
    assert_allclose(result.solution, expected, atol=1e-10 * np.abs(expected).max())


def test_how_iterations_end(mesh: Mesh) -> None:
    rows, columns = np.divmod(np.arange(16), 4)
    labels = np.random.default_rng(0).standard_normal(16)
    definite, indefinite = np.diag([4.0, 3.0, 2.0, 1.0]), np.diag([1.0, 1.0, 1.0, -2.0])
    edges = ShardedEdges(definite, definite, rows, columns, mesh)
    seen: list[tuple[int, float]] = []
    found = edges.solve(
        labels, 0.1, tol=1e-12, progress=lambda count, residual: seen.append((count, residual))
    )
    assert found.reason == "converged"
    assert seen[-1] == (found.iterations, found.residual)
    pairs = np.outer(np.diag(definite), np.diag(definite)).ravel()
    assert_allclose(found.solution, labels / (pairs + 0.1), rtol=1e-10)
    few = edges.solve(labels, 0.1, tol=1e-12, max_iterations=2)
    assert (few.reason, few.iterations) == ("max_iterations", 2)
    assert few.residual > 1e-12
    assert edges.solve(labels, 0.1, tol=1e-25).reason == "breakdown"
    nothing = edges.solve(np.zeros(16), 0.1, start=labels)
    assert (nothing.reason, nothing.iterations) == ("converged", 0)
    assert not nothing.solution.any()
    other = ShardedEdges(indefinite, indefinite, rows, columns, mesh).solve(labels, 0.1)
    assert other.reason == "breakdown"
    assert np.isfinite(other.solution).all()
    with pytest.raises(DataError, match="right-hand side of conjugate gradients is not finite"):
        edges.solve(np.full(16, np.nan), 0.1)


def test_meshes_that_do_not_fit() -> None:
    device = jax.devices()[0]
    with pytest.raises(DataError, match=r"mesh is 3; give a jax.sharding.Mesh"):
        row_sharding(3, 5)
    with pytest.raises(DataError, match=r"axes a, b; .* over one axis"):
        row_sharding(Mesh(np.array([[device]]), ("a", "b")), 5)
    mixed: Any = [Device("gpu"), Device("cpu")]
    with pytest.raises(DataError, match="of the kinds cpu, gpu"):
        row_sharding(Mesh(np.array(mixed), ("device",)), 5)
    with pytest.raises(DataError, match="1 devices for 0 nodes"):
        row_sharding(Mesh(np.array([device]), ("device",)), 0)


def test_a_graph_on_a_mesh_that_does_not_fit() -> None:
    chain = sparse.csr_array([[0.0, 1.0], [1.0, 0.0]])
    with pytest.raises(DataError, match="mesh is None"):
        ShardedLaplacian(chain, None)
