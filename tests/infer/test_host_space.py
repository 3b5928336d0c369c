"""Triangular algebra in NumPy, held against that of whole matrices."""

from typing import Any

import numpy as np
import pytest

from relpref.infer.host_space import HostSpace
from relpref.infer.rows import DenseRows, Rows, SparseRows
from relpref.linalg import Dense

SIZES = [1, 5, 128, 129, 300]


def space(size: int, nugget: float, **options: Any) -> HostSpace:
    """Of a prior whose condition number is about that of the nugget, and 2·size pairs of items."""
    generator = np.random.default_rng(size)
    places = np.linspace(0.0, 3.0, size)
    covariance = np.exp(-0.5 * np.subtract.outer(places, places) ** 2) + nugget * np.eye(size)
    first = generator.integers(0, size, 2 * size)
    second = (first + generator.integers(1, max(size, 2), 2 * size)) % size
    entry = np.tile([1.0, -1.0], (2 * size, 1))
    rows = SparseRows(np.stack([first, second], axis=1), entry, np.zeros(size))
    return HostSpace.of(Dense(covariance), rows, **options)


def matrix_of(rows: Rows) -> Any:
    return rows.matrix.toarray() if isinstance(rows, SparseRows) else rows.matrix


@pytest.mark.parametrize("size", SIZES)
def test_products_and_quotients_of_triangles(size: int) -> None:
    generator, one = np.random.default_rng(size), space(size, 1e-12)
    right = one.rows.gram(generator.uniform(0.0, 1.0, 2 * size)) @ one.root
    lower = np.tril(generator.standard_normal((size, size))) / size + 3 * np.eye(size)
    assert np.all(np.tril(one.root, -1) == 0)
    np.testing.assert_allclose(np.tril(one.product(right)), np.tril(one.root.T @ right), atol=1e-11)
    found = one.quotient(lower)
    np.testing.assert_allclose(found @ lower.T, one.root, atol=1e-12)
    assert np.all(np.tril(found, -1) == 0)


@pytest.mark.parametrize("nugget", [1.0, 1e-9])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("accurate", [False, True])
def test_posterior_under_sites(size: int, nugget: float, accurate: bool) -> None:
    """By K⁻¹ where that is exact, by a root of K where it is not; either way as by the formula that
    needs no inverse of K.
    """
    one, generator = space(size, nugget, accurate=accurate), np.random.default_rng(1)
    assert (one.inverse is None) == (accurate or (nugget < 1 and size > 5))
    rows = one.rows
    design, covariance = matrix_of(rows), one.root @ one.root.T
    precision, shift = (
        generator.uniform(0.0, 2.0, len(design)),
        generator.standard_normal(len(design)),
    )
    factor = one.factorise(precision, rows)
    seen = covariance @ design.T
    inner = np.eye(len(design)) + precision[:, None] * (design @ seen)
    posterior = covariance - seen @ np.linalg.solve(inner, precision[:, None] * seen.T)
    marginals = one.marginals(factor, shift, rows)
    variances = np.einsum("ij,jk,ik->i", design, posterior, design)
    np.testing.assert_allclose(marginals.variance, variances, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(marginals.mean, design @ posterior @ design.T @ shift, atol=1e-8)
    np.testing.assert_allclose(one.covariance(factor), posterior, atol=1e-9)
    np.testing.assert_allclose(one.response(factor, shift, rows), marginals.mean, atol=1e-8)
    np.testing.assert_allclose(
        factor.log_determinant, 0.5 * np.linalg.slogdet(inner)[1], rtol=1e-9, atol=1e-12
    )
    weights = design.T @ np.linalg.solve(inner, precision[:, None] * design)
    np.testing.assert_allclose(one.weights(factor, precision, rows), weights, atol=1e-8)


@pytest.mark.parametrize("nugget", [1.0, 1e-9])
def test_without_sites_the_posterior_is_the_prior(nugget: float) -> None:
    one = space(40, nugget)
    nothing = np.zeros(80)
    factor = one.factorise(nothing, one.rows)
    np.testing.assert_allclose(one.covariance(factor), one.root @ one.root.T, atol=1e-12)
    assert factor.log_determinant == 0
    np.testing.assert_allclose(one.weights(factor, nothing, one.rows), 0.0)


@pytest.mark.parametrize("nugget", [1.0, 1e-9])
def test_sites_of_negative_precision(nugget: float) -> None:
    """A posterior as long as there is one, and no number where there is none."""
    one = space(40, nugget)
    before = one.rows.variances(one.root)
    precision = np.where(np.arange(80) == np.argmax(before), -0.5 / before.max(), 0.0)
    found = one.marginals(one.factorise(precision, one.rows), precision, one.rows).variance.max()
    np.testing.assert_allclose(found, 2 * before.max(), rtol=1e-9)
    improper = one.marginals(one.factorise(3 * precision, one.rows), precision, one.rows)
    assert not np.isfinite(improper.variance).any()


@pytest.mark.parametrize("size", [7, 250])
def test_sparse_rows_as_dense_ones(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "relpref.infer.rows._TOGETHER", 3 * size
    )  # three rows at once, and some are left over
    sparse, generator = space(size, 1.0).rows, np.random.default_rng(2)
    dense = DenseRows(matrix_of(sparse))
    precision = generator.uniform(-1.0, 1.0, 2 * size)
    matrix, tall = generator.standard_normal((size, 3)), generator.standard_normal((2 * size, 3))
    np.testing.assert_allclose(sparse.gram(precision), dense.gram(precision), atol=1e-12)
    np.testing.assert_allclose(
        sparse.times_gram(precision, matrix), dense.gram(precision) @ matrix, atol=1e-12
    )
    np.testing.assert_allclose(sparse.rows(matrix), dense.rows(matrix), atol=1e-12)
    white = generator.standard_normal((size, size))
    np.testing.assert_allclose(sparse.variances(white), dense.variances(white), rtol=1e-12)
    np.testing.assert_allclose(sparse.back(tall), dense.back(tall), atol=1e-12)
    for rows in (sparse, dense):
        for total in (np.ones((size, size)), np.asfortranarray(np.ones((size, size)))):
            rows.add_gram(precision, total)
            np.testing.assert_allclose(total, 1 + dense.gram(precision), atol=1e-12)


def test_a_prior_that_is_none() -> None:
    """What cannot be factorized at all is not inverted either."""
    one = HostSpace.of(Dense(np.diag([1.0, -1.0])), DenseRows(np.eye(2)))
    assert one.inverse is None
    assert not np.isfinite(one.root).all()
