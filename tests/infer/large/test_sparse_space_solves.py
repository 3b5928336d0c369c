"""Solves with the sparse precision of a posterior, where conjugate gradients have a hard time."""

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from relpref.infer.arrow import Items
from relpref.infer.large.spaces import SeenRows
from relpref.infer.large.sparse import Iterative, Latents, Root
from relpref.infer.rows import SparseRows
from relpref.linalg import LaplacianSolver, SparsePrecision


def chain(size: int, shift: float, rows: int = 100) -> tuple[Latents, np.random.Generator]:
    """Items in a row, the last ten by themselves, and some pairs."""
    rng = np.random.default_rng(0)
    step = np.arange(size - 11)
    upper = scipy.sparse.coo_array((np.ones(len(step)), (step, step + 1)), shape=(size, size))
    column = rng.integers(0, size, (rows, 2))
    column[:, 1] = (column[:, 0] + rng.integers(1, size, rows)) % size
    relation = SparsePrecision(LaplacianSolver(upper + upper.T), shift, 2 * np.sqrt(shift))
    gaps = SparseRows(column, np.tile([1.0, -1.0], (rows, 1)), np.zeros(size))
    return Latents.of({"next": relation}, gaps, SeenRows.alone(gaps).blocks), rng


def root_of(latents: Latents, weights: NDArray[np.float64]) -> Root:
    rows = latents.rows
    scaled = np.sqrt(weights)[:, None] * rows.entry
    return Root((Items(rows.column, scaled[:, None, :]),), latents.size)


def test_long_chains_take_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range of 300 along 3,000 items: the diagonal alone would take more than a thousand
    steps.
    """
    monkeypatch.setattr("relpref.infer.large.sparse._MOST_STEPS", 150)
    latents, rng = chain(3000, 1e-5)
    weights, rhs = rng.uniform(0.1, 0.5, 100), rng.standard_normal((3000, 2))
    root = root_of(latents, weights)
    found = Iterative(latents, root, 1e-8).solve(rhs)
    assert_allclose(latents.precision(root) @ found, rhs, atol=1e-4)


def test_a_guess_is_only_a_guess() -> None:
    """Also where the answer is zero."""
    latents, rng = chain(60, 0.1)
    rhs, guess = rng.standard_normal((2, 60, 3))
    rhs[:, 1] = 0
    root = root_of(latents, np.ones(100))
    found = Iterative(latents, root, 1e-10, {"again": guess}).solve(rhs, "again")
    assert_allclose(found, np.linalg.solve(latents.precision(root).toarray(), rhs), atol=1e-8)


@pytest.mark.parametrize("shift", [1.0, 1e-6, 1e-12])
def test_what_is_constant_on_components_is_known(shift: float) -> None:
    """What rounding leaves of it beside the solution is not solved for."""
    latents, _ = chain(60, shift, rows=8)
    eigenvalue = np.sqrt(shift) / 2
    for vector in (np.full(60, 1 / 60), np.full(60, 0.1)):
        found = Iterative(latents, root_of(latents, np.full(8, 3.0)), 1e-10).solve(vector[:, None])[
            :, 0
        ]
        assert_allclose(found, vector / eigenvalue, rtol=1e-9)
