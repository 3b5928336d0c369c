"""The two spaces give one answer, and their shortcuts leave out zeros only."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relpref.infer.rows import DenseRows, SparseRows
from relpref.infer.spaces import DualSpace, LatentSpace, Map, lower_of_product
from relpref.linalg import Dense


@pytest.mark.parametrize("size", [1, 5, 128, 129, 300])
def test_the_lower_triangle_of_a_product(size: int) -> None:
    generator = np.random.default_rng(size)
    root = np.tril(generator.standard_normal((size, size)))
    right = generator.standard_normal((size, size))
    with jax.enable_x64(True):
        found = np.asarray(lower_of_product(jnp.asarray(root), jnp.asarray(right)))
    np.testing.assert_allclose(np.tril(found), np.tril(root.T @ right), rtol=0, atol=1e-11)


@pytest.fixture
def problem() -> dict[str, Any]:
    generator = np.random.default_rng(0)
    factor = generator.standard_normal((7, 7))
    return {
        "covariance": factor @ factor.T,
        "design": generator.standard_normal((9, 7)),
        "precision": generator.uniform(0, 2, 9),
        "shift": generator.standard_normal(9),
    }


@pytest.mark.parametrize("kind", [LatentSpace, DualSpace])
def test_against_dense_algebra(kind: Any, problem: dict[str, Any]) -> None:
    covariance, design, precision, shift = problem.values()
    with jax.enable_x64(True):
        matrix = jnp.asarray(design)
        projection = Map(lambda vector: matrix @ vector, lambda vector: matrix.T @ vector)
        space = kind.build(Dense(jnp.asarray(covariance)), projection)
        factor = space.factorise(jnp.asarray(precision), projection)
        marginals = space.marginals(factor, jnp.asarray(shift), projection)
        weights = np.asarray(space.weights(factor, jnp.asarray(precision), projection))
        response = np.asarray(space.response(factor, jnp.asarray(shift), projection))
    posterior = np.linalg.inv(np.linalg.inv(covariance) + design.T @ (precision[:, None] * design))
    gaps = design @ posterior @ design.T
    np.testing.assert_allclose(marginals.variance, np.diagonal(gaps), rtol=1e-9)
    np.testing.assert_allclose(marginals.mean, gaps @ shift, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(response, gaps @ shift, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(
        covariance - covariance @ weights @ covariance, posterior, rtol=0, atol=1e-9
    )
    half_log_ratio = 0.5 * (np.linalg.slogdet(covariance)[1] - np.linalg.slogdet(posterior)[1])
    np.testing.assert_allclose(marginals.log_determinant, half_log_ratio, rtol=1e-9)


def test_sparse_rows_are_the_matrix(problem: dict[str, Any]) -> None:
    """Rows of no, one and two entries."""
    design = np.zeros((9, 7))
    for row, columns in enumerate([(), (3,), (0, 6), (6, 0), (2, 3), (5,), (1, 4), (4, 5), (0, 1)]):
        design[row, list(columns)] = np.random.default_rng(row).standard_normal(len(columns))
    precision, factor = problem["precision"], np.linalg.cholesky(problem["covariance"])
    with jax.enable_x64(True):
        sparse: Any = SparseRows.find(lambda vector: design @ vector, (9, 7))
        dense = DenseRows(jnp.asarray(design))
        for rows in (sparse, dense):
            gram = rows.gram(jnp.asarray(precision))
            np.testing.assert_allclose(gram, design.T @ (precision[:, None] * design), atol=1e-12)
            variances = rows.variances(jnp.asarray(factor))
            np.testing.assert_allclose(
                variances, np.diagonal(design @ factor @ factor.T @ design.T), atol=1e-12
            )


def test_rows_of_more_than_two_entries_are_not_sparse() -> None:
    design = np.eye(5)[[0, 1, 2, 3]] - np.eye(5)[[1, 2, 3, 4]]
    with jax.enable_x64(True):
        assert SparseRows.find(lambda vector: design @ vector, design.shape) is not None
        design[2, 0] = 0.5
        assert SparseRows.find(lambda vector: design @ vector, design.shape) is None


@pytest.mark.parametrize("size", [1, 2, 3, 40])
def test_rows_are_found_whatever_their_entries(size: int) -> None:
    generator = np.random.default_rng(size)
    design = np.zeros((60, size))
    for row in design:
        row[generator.integers(0, size, 2)] += generator.choice([1.0, -1.0, 0.5, 1e-3, 7.3], 2)
    design[:5] = 0.0  # such as an item that is compared with itself
    with jax.enable_x64(True):
        found: Any = SparseRows.find(lambda vector: design @ vector, design.shape)
    written = np.zeros_like(design)
    for side in (0, 1):
        np.add.at(
            written,
            (np.arange(60), np.asarray(found.column)[:, side]),
            np.asarray(found.entry)[:, side],
        )
    np.testing.assert_array_equal(written, design)
