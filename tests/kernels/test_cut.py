"""Cut features against the gold answers, a quadratic programme, and the pool-adjacent-violators
algorithm of SciPy.
"""

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import networkx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import isotonic_regression, minimize
from scipy.spatial.distance import pdist, squareform

import relpref
from relpref.errors import DataError, UnknownLabelError
from relpref.kernels import (
    Cut,
    cut_features,
    cut_kernel,
    cut_scale,
    item_graph,
    submodular_features,
)

N = 6
GOLD = np.load(Path(__file__).parents[1] / "gold" / "ranking_kernels.npz")
STEP = np.finfo(float).eps ** (1 / 3)


def weights(seed: int = 0) -> Any:
    drawn = np.triu(np.random.default_rng(seed).random((N, N)), 1)
    drawn[0, 2:] = 0.0
    return drawn + drawn.T


def exhaustive_positions(m: int, seed: int = 0) -> Any:
    keys = np.random.default_rng(seed).integers(0, N - 2, (m, N))
    return np.stack([np.unique(row, return_inverse=True)[1] for row in keys])


def by_pooling(positions: Any, graph: Any) -> Any:
    """Gains of the cut, averages over blocks, SciPy's isotonic regression."""
    gains = graph * np.sign(positions - positions[:, None])
    sizes = np.bincount(positions).astype(float)
    averages = np.bincount(positions, gains.sum(axis=1)) / sizes
    return isotonic_regression(averages, weights=sizes, increasing=False).x[positions]


@pytest.mark.parametrize("kind", ["full", "full_large", "top3", "exhaustive", "nonexhaustive"])
def test_gold(kind: str) -> None:
    features = cut_features(GOLD[f"{kind}_position"], GOLD[f"{kind}_weights"])
    assert_allclose(features, GOLD[f"{kind}_features"], rtol=0, atol=1e-9)


def test_against_pooling() -> None:
    positions = exhaustive_positions(60)
    expected = [by_pooling(row, weights()) for row in positions]
    assert_allclose(cut_features(positions, weights()), expected, rtol=0, atol=1e-13)
    # Large positions and a large batch, in several calls of one compiled function.
    many = np.tile(positions, (20, 1))
    assert_allclose(cut_features(many, weights()), np.tile(expected, (20, 1)), rtol=0, atol=1e-13)
    gram = cut_kernel(positions, positions[:7], weights())
    assert_allclose(gram, np.array(expected) @ np.array(expected[:7]).T, atol=1e-12)


def coverage(members: Any) -> Any:
    """Weight of what the members cover: monotone submodular, neither symmetric nor modular."""
    covers = jnp.array(
        [[1, 0, 1, 0], [0, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 1], [1, 0, 0, 1], [0, 1, 0, 1]]
    )
    return (1 - jnp.prod(1 - members[..., None] * covers, axis=-2)) @ jnp.array(
        [1.0, 2.0, 0.7, 1.5]
    )


def concave(members: Any) -> Any:
    return jnp.sqrt(members.sum(axis=-1)) + members @ jnp.array([0.3, -0.2, 0.5, 0.0, -0.4, 0.1])


def of_neighbors(members: Any) -> Any:
    """The concave function of `cut_features` for the graph `weights`, as its documentation says."""
    graph = weights() + weights().max() * np.eye(N)
    roots = jnp.sqrt(members @ graph) + jnp.sqrt((1 - members) @ graph)
    return jnp.sum(roots - jnp.sqrt(graph.sum(axis=0)), axis=-1)


def test_concave_function_of_the_graph() -> None:
    positions = exhaustive_positions(10)
    features = partial(cut_features, function="concave")
    upside_down = features(positions.max(axis=1, keepdims=True) - positions, weights())
    assert_allclose(upside_down, -features(positions, weights()), atol=1e-13)
    assert_array_equal(features(positions), features(positions, 1 - np.eye(N)))  # no attributes
    positions = np.vstack([positions, [[0, -1, 1, 2, -1, 3]]])
    expected = submodular_features(positions, of_neighbors)
    assert_allclose(features(positions, weights()), expected, atol=1e-13)


@pytest.mark.parametrize("function", [coverage, concave, of_neighbors])
def test_min_norm_point_of_any_submodular_function(function: Any) -> None:
    positions = np.array([[3, 0, 2, 1, 4, 5], [1, 1, 0, 2, 2, 0], [5, 4, 1, 2, 3, 0]])
    found = submodular_features(positions, function)
    for row, features in zip(positions, found, strict=True):
        prefixes = np.array([row <= block for block in range(row.max() + 1)], dtype=float)
        with jax.enable_x64(True):
            values = np.asarray(function(jnp.asarray(prefixes)))
        result = minimize(
            lambda s: s @ s,
            np.zeros(N),
            jac=lambda s: 2 * s,
            method="SLSQP",
            options={"ftol": 1e-14},
            constraints=[
                {"type": "ineq", "fun": lambda s, p=prefixes, v=values: p[:-1] @ s - v[:-1]},
                {"type": "eq", "fun": lambda s, p=prefixes, v=values: p[-1] @ s - v[-1]},
            ],
        )
        assert_allclose(features, result.x, atol=1e-6)


@pytest.mark.parametrize("function", ["cut", "concave"])
def test_gradient_in_the_weights(function: Any) -> None:
    positions = exhaustive_positions(4, seed=3)
    probe = np.random.default_rng(1).standard_normal((4, N))

    def value(graph: Any) -> Any:
        return (cut_features(positions, graph, function=function) * probe).sum()

    with jax.enable_x64(True):
        gradient = np.asarray(jax.jit(jax.grad(value))(jnp.asarray(weights())))
    for i, j in [(0, 1), (2, 5), (3, 4)]:
        change = np.zeros((N, N))
        change[i, j] = change[j, i] = STEP
        slope = (value(weights() + change) - value(weights() - change)) / (2 * STEP)
        assert abs(gradient[i, j] + gradient[j, i] - slope) <= 1e-8


def test_scale_is_the_expected_norm_of_raw_gains() -> None:
    rng = np.random.default_rng(0)
    positions = np.argsort(rng.random((20_000, N)), axis=1)
    gains = np.einsum(
        "ij,mij->mi", weights(), np.sign(positions[:, None, :] - positions[:, :, None])
    )
    squared = np.square(gains).sum(axis=1)
    # Five standard errors: false alarms in 1 of 2 million.
    assert abs(squared.mean() - cut_scale(weights()) ** 2) <= 5 * squared.std() / np.sqrt(
        len(squared)
    )
    scaled = cut_features(positions[:5], weights(), normalize=True) * cut_scale(weights())
    assert_allclose(scaled, cut_features(positions[:5], weights()), rtol=1e-12)
    features = cut_features(positions, weights(), function="concave", normalize=True)
    assert np.square(features).sum(axis=1).mean() == pytest.approx(1, abs=0.05)
    assert cut_scale(np.zeros((3, 3))) == 1.0
    for factor in (1e200, 1e-200):
        assert_allclose(cut_scale(factor * weights()) / factor, cut_scale(weights()), rtol=1e-14)


def test_item_graph() -> None:
    points = np.random.default_rng(0).standard_normal((7, 3)) * [1.0, 5.0, 0.2]
    distances = pdist(points)
    expected = squareform(np.exp(-0.5 * np.square(distances / np.median(distances))))
    assert_allclose(item_graph(points), expected, atol=1e-14)
    kept = item_graph(points, keep=0.25)
    assert np.count_nonzero(np.triu(kept)) == 5  # of 21 pairs
    assert kept[kept > 0].min() >= expected[kept == 0].max()
    assert_allclose(kept[kept > 0], expected[kept > 0])
    scaled = item_graph(points / [1.0, 5.0, 0.2], lengthscale=2.0)
    assert_allclose(item_graph(points, lengthscale=[2.0, 10.0, 0.4]), scaled, atol=1e-14)


def test_a_table_of_weights_is_read_by_label() -> None:
    names = list("abcdef")
    frame = pd.DataFrame(weights(), index=names, columns=names)
    rankings = relpref.Rankings.from_orders(
        [names[::-1], ["b", "a", ("c", "d", "e", "f")]], items=names
    )
    expected = cut_features(rankings, weights())
    turned = frame.loc[names[::-1], ["c", *"abfed"]]
    assert_array_equal(cut_features(rankings, turned), expected)
    assert_array_equal(cut_features(rankings, scipy.sparse.csr_array(weights())), expected)
    assert_array_equal(cut_scale(frame), cut_scale(weights()))
    with pytest.raises(DataError, match="not the same labels"):
        cut_scale(turned)
    with pytest.raises(UnknownLabelError, match="'f' is not the label"):
        cut_features(rankings, frame.iloc[:5, :5])
    with pytest.raises(DataError, match="to_pandas_adjacency"):
        cut_features(rankings, networkx.path_graph(names))


def test_items_that_are_mostly_alike_have_no_median_distance() -> None:
    names = list("abcde")
    for sizes, alike in (
        ([0, 0, 0, 0, 1], True),
        ([0, 0, 0, 1, 2], False),
        ([0, 0, 1, 1, 1], False),
    ):
        table = pd.DataFrame({"size": np.array(sizes, float)}, index=names)
        rankings = relpref.Rankings.from_orders([names]).with_items(table)
        assert rankings.items_alike == alike
        inside = jax.jit(lambda data: Cut().features(data).values)
        with (
            jax.enable_x64(True),
            pytest.raises(DataError, match="equal") if alike else nullcontext(),
        ):
            assert np.isfinite(inside(rankings)).all()
        with pytest.raises(DataError, match="equal") if alike else nullcontext():
            cut_features(rankings)


def test_no_rankings_no_edges_and_one_item() -> None:
    assert not cut_features(np.zeros((1, N), int), np.zeros((N, N))).any()
    assert cut_features(np.zeros((0, N), int), weights()).shape == (0, N)
    assert_array_equal(cut_features([[0]], [[0.0]]), [[0.0]])


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (np.ones((N, N + 1)), r"shape \(6, 7\)"),
        (np.ones((5, 5)), r"must be \(6, 6\)"),
        (-np.ones((N, N)), "items 0 and 1 is -1.0"),
        (np.full((N, N), np.nan), "is nan"),
        (np.triu(np.ones((N, N))), r"\(K \+ K.T\) / 2"),
        (None, "no attributes"),
        ("cites", "no relation 'cites'"),
    ],
)
def test_bad_graphs(graph: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        cut_features(np.array([[0, 1, 2, 3, 4, 5]]), graph)


@pytest.mark.parametrize(
    "positions",
    [[[0, 2, 3]], [[-1, -1, -1]], [[0, -2, 1]], [[0.5, 1.0, 0.0]], [0, 1, 2], [[1, 2, 3]]],
)
def test_bad_positions(positions: Any) -> None:
    with pytest.raises(DataError, match="positions"):
        cut_features(np.array(positions), np.ones((3, 3)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lengthscale": -1.0}, "positive"),
        ({"lengthscale": "mean"}, "median"),
        ({"lengthscale": [1.0, 1.0, 1.0]}, "each of 2"),
        ({"keep": 0.0}, "share"),
    ],
)
def test_bad_item_graphs(options: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        item_graph(np.random.default_rng(0).random((4, 2)), **options)
    with pytest.raises(DataError, match="most pairs"):
        item_graph(np.array([[0.0], [0.0], [0.0], [0.0], [1.0]]), lengthscale="median")
