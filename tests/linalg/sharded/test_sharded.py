"""Dealing rows out, the ways in which iterations end, and meshes that do not fit; in one process with its one device."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh
from scipy import sparse

from relpref.errors import DataError
from relpref.linalg.sharded import ShardedEdges, ShardedLaplacian, Shards, Slots


@dataclass(frozen=True)
class Device:
    """What one looks like."""

    platform: str
    process_index: int = 0
    id: int = 0


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()[:1]), ("device",))


@given(st.lists(st.integers(0, 4), max_size=30))
def test_every_item_has_a_place_of_its_own_on_its_device(owners: list[int]) -> None:
    slots = Slots.of(np.array(owners, dtype=np.intp), 5)
    assert len(set(slots.places)) == len(owners)
    assert (slots.places // (slots.size // 5)).tolist() == owners
    values = np.arange(len(owners)) + 1
    spread = slots.spread(values)
    np.testing.assert_array_equal(spread[slots.places], values)
    assert np.count_nonzero(spread) == len(owners)


def test_rows_may_lie_in_a_file(mesh: Mesh, tmp_path: Path) -> None:
    matrix = np.arange(9.0).reshape(3, 3)
    stored: Any = np.memmap(tmp_path / "matrix", mode="w+", shape=(3, 3))
    stored[:] = matrix
    shards = Shards.of(mesh, 3, "nodes")
    with jax.enable_x64(True):
        np.testing.assert_array_equal(shards.gather(shards.place_matrix(stored)), matrix)


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
    np.testing.assert_allclose(found.solution, labels / (pairs + 0.1), rtol=1e-10)
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
        Shards.of(3, 5, "nodes")
    with pytest.raises(DataError, match=r"axes a, b .* over one"):
        Shards.of(Mesh(np.array([[device]]), ("a", "b")), 5, "nodes")
    mixed: Any = [Device("gpu"), Device("cpu")]
    with pytest.raises(DataError, match="of the kinds cpu, gpu"):
        Shards.of(Mesh(np.array(mixed), ("device",)), 5, "nodes")
    with pytest.raises(DataError, match="1 devices for 0 nodes"):
        Shards.of(Mesh(np.array([device]), ("device",)), 0, "nodes")


def test_a_graph_on_a_mesh_that_does_not_fit() -> None:
    chain = sparse.csr_array([[0.0, 1.0], [1.0, 0.0]])
    with pytest.raises(DataError, match="mesh is None"):
        ShardedLaplacian(chain, None)
