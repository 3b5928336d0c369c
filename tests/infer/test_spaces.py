"""Posteriors under sites in every space, rows and triangles, against whole matrices."""

from typing import Any

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from relpref.infer.rows import DenseRows, SparseRows
from relpref.infer.spaces import DualSpace, HostSpace, LatentSpace
from relpref.linalg import Dense

SIZES = [1, 5, 128, 129, 300]
NUGGETS = [1.0, 1e-9]


def problem(size: int, nugget: float) -> tuple[Any, SparseRows]:
    """A prior whose condition number is about that of the nugget, and 2·size pairs of items."""
    generator = np.random.default_rng(size)
    places = np.linspace(0.0, 3.0, size)
    covariance = np.exp(-0.5 * np.subtract.outer(places, places) ** 2) + nugget * np.eye(size)
    first = generator.integers(0, size, 2 * size)
    second = (first + generator.integers(1, max(size, 2), 2 * size)) % size
    entry = np.tile([1.0, -1.0], (2 * size, 1))
    return covariance, SparseRows(np.stack([first, second], axis=1), entry, np.zeros(size))


def on_host(size: int, nugget: float, **options: Any) -> HostSpace:
    covariance, rows = problem(size, nugget)
    return HostSpace.of(Dense(covariance), rows, **options)


@pytest.mark.parametrize(
    ("kind", "size", "nugget"),
    [
        *((kind, size, nugget) for kind in (False, True) for size in SIZES for nugget in NUGGETS),
        *((LatentSpace, size, 1.0) for size in (7, 200)),
        (DualSpace, 7, 1.0),
    ],
)
def test_posterior_under_sites(kind: Any, size: int, nugget: float) -> None:
    """On the host by K⁻¹ where that is exact, by a root of K where it is not or is asked for."""
    generator, (covariance, sparse) = np.random.default_rng(1), problem(size, nugget)
    design = sparse.matrix.toarray()
    precision = generator.uniform(0.0, 2.0, 2 * size)
    shift = generator.standard_normal(2 * size)
    seen = covariance @ design.T
    inner = np.eye(2 * size) + precision[:, None] * (design @ seen)
    posterior = covariance - seen @ np.linalg.solve(inner, precision[:, None] * seen.T)

    def computed(space: Any, precision: Any, shift: Any) -> tuple[Any, ...]:
        factor = space.factorise(precision)
        weights = space.weights(factor)
        return space.marginals(factor, shift), space.response(factor, shift), weights

    def compiled(covariance: Any, matrix: Any, *sites: Any) -> tuple[Any, ...]:
        return computed(kind.build(Dense(covariance), DenseRows(matrix)), *sites)

    if isinstance(kind, bool):
        space = on_host(size, nugget, accurate=kind)
        assert (space.inverse is None) == (kind or (nugget < 1 and size > 5))
        marginals, response, weights = computed(space, precision, shift)
        factor = space.factorise(precision)
        assert_allclose(space.covariance(factor), posterior, atol=1e-9)
    else:
        with jax.enable_x64(True):
            given = covariance, design, precision, shift
            marginals, response, weights = jax.jit(compiled)(*given)
    gaps = design @ posterior @ design.T
    assert_allclose(marginals.variance, np.diagonal(gaps), rtol=1e-6, atol=1e-12)
    assert_allclose(marginals.mean, gaps @ shift, atol=1e-8)
    assert_allclose(response, gaps @ shift, atol=1e-8)
    volume = 0.5 * np.linalg.slogdet(inner)[1]
    assert_allclose(marginals.log_determinant, volume, rtol=1e-9, atol=1e-12)
    expected = design.T @ np.linalg.solve(inner, precision[:, None] * design)
    assert_allclose(weights, expected, atol=1e-8)


@pytest.mark.parametrize("nugget", NUGGETS)
def test_without_sites_the_posterior_is_the_prior(nugget: float) -> None:
    space = on_host(40, nugget)
    nothing = np.zeros(80)
    factor = space.factorise(nothing)
    assert_allclose(space.covariance(factor), space.root @ space.root.T, atol=1e-12)
    assert factor.log_determinant == 0
    assert_allclose(space.weights(factor), 0.0)


@pytest.mark.parametrize("nugget", NUGGETS)
def test_sites_of_negative_precision(nugget: float) -> None:
    """A posterior as long as there is one, and no number where there is none."""
    space = on_host(40, nugget)
    before = space.rows.variances(space.root)
    precision = np.where(np.arange(80) == np.argmax(before), -0.5 / before.max(), 0.0)
    proper, improper = (
        space.marginals(space.factorise(factor * precision), precision) for factor in (1, 3)
    )
    assert_allclose(proper.variance.max(), 2 * before.max(), rtol=1e-9)
    assert not np.isfinite(improper.variance).any()


def test_a_prior_that_is_none() -> None:
    """What cannot be factorized at all is not inverted either."""
    space = HostSpace.of(Dense(np.diag([1.0, -1.0])), DenseRows(np.eye(2)))
    assert space.inverse is None
    assert not np.isfinite(space.root).all()


@pytest.mark.parametrize("size", [7, 250])
def test_sparse_rows_as_dense_ones(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Three rows at once, and some are left over.
    monkeypatch.setattr("relpref.infer.rows._TOGETHER", 3 * size)
    (_, sparse), generator = problem(size, 1.0), np.random.default_rng(2)
    dense = DenseRows(sparse.matrix.toarray())
    precision = generator.uniform(-1.0, 1.0, 2 * size)
    matrix, tall = generator.standard_normal((size, 3)), generator.standard_normal((2 * size, 3))
    gram, white = dense.gram(precision), generator.standard_normal((size, size))
    assert_allclose(sparse.gram(precision), gram, atol=1e-12)
    assert_allclose(sparse.times_gram(precision, matrix), gram @ matrix, atol=1e-12)
    assert_allclose(sparse.rows(matrix), dense.rows(matrix), atol=1e-12)
    assert_allclose(sparse.variances(white), dense.variances(white), rtol=1e-12)
    assert_allclose(sparse.back(tall), dense.back(tall), atol=1e-12)
    for rows in (sparse, dense):
        for total in (np.ones((size, size)), np.asfortranarray(np.ones((size, size)))):
            rows.add_gram(precision, total)
            assert_allclose(total, 1 + gram, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 40])
def test_rows_are_found_whatever_their_entries(size: int) -> None:
    generator = np.random.default_rng(size)
    design = np.zeros((60, size))
    for row in design:
        row[generator.integers(0, size, 2)] += generator.choice([1.0, -1.0, 0.5, 1e-3, 7.3], 2)
    design[:5] = 0.0  # such as an item that is compared with itself
    found: Any = SparseRows.of(design)
    written = np.zeros_like(design)
    for side in (0, 1):
        columns, entries = (np.asarray(each)[:, side] for each in (found.column, found.entry))
        np.add.at(written, (np.arange(60), columns), entries)
    assert_array_equal(written, design)


def test_rows_of_more_than_two_entries_are_not_sparse() -> None:
    design = np.eye(5)[[0, 1, 2, 3]] - np.eye(5)[[1, 2, 3, 4]]
    with jax.enable_x64(True):
        assert SparseRows.of(design) is not None
        design[2, 0] = 0.5
        assert SparseRows.of(design) is None
