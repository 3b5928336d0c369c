"""Kernels on rankings as programs use them."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from relpref import Rankings
from relpref.description import describe
from relpref.errors import DataError, UnknownLabelError
from relpref.kernels import (
    Cut,
    GivenFeatures,
    GramKernel,
    Kendall,
    Landmarks,
    Mallows,
    RankingKernel,
    cut_features,
    cut_kernel,
    item_graph,
    kendall_kernel,
    mallows_kernel,
)
from relpref.kernels.ranking import LandmarkFeatures, SampledMallows

ITEMS = list("abcde")
STEP = np.finfo(float).eps ** (1 / 3)


def rankings(m: int = 7, seed: int = 0) -> Rankings:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.standard_normal((5, 2)) * [1.0, 30.0], index=ITEMS)
    orders = [[ITEMS[i] for i in rng.permutation(5)] for _ in range(m - 2)]
    links = pd.DataFrame(
        {"source": ["a", "b", "c"], "target": ["b", "c", "e"], "weight": [1.0, 2.0, 0.5]}
    )
    tied = [["a", ("b", "c"), ("d", "e")], ["c", "e", ("a", "b", "d")]]
    return Rankings.from_orders([*orders, *tied]).with_items(table, relations={"like": links})


PARTIAL = Rankings.from_orders([["a", "b", "c"], ["b", "a"]])
SAMPLED = Landmarks(Mallows(), PARTIAL[:1])
MIRRORED = Rankings.from_orders([ITEMS], items=ITEMS[::-1])


def gram(features: Any, data: Rankings, **parameters: Any) -> Any:
    with jax.enable_x64(True):
        features = features(data, **parameters)
        extra = 0.0 if features.residual is None else np.diag(features.residual)
        return np.asarray(features.values @ features.values.T + extra)


@pytest.mark.parametrize(
    ("kernel", "graph"),
    [
        (
            Cut(lengthscale=0.7),
            lambda data: item_graph(data.items.standardized_attributes(), lengthscale=0.7),
        ),
        (Cut(keep=0.4), lambda data: item_graph(data.items.standardized_attributes(), keep=0.4)),
        (Cut(np.ones((5, 5))), lambda data: np.ones((5, 5))),
        (
            Cut("like", function="concave"),
            lambda data: data.items.relations["like"].weight_matrix,
        ),
    ],
)
def test_cut(kernel: Cut, graph: Any) -> None:
    data = rankings()
    assert kernel.parameters(data) == {}
    features = cut_features(data, graph(data), function=kernel.function, normalize=True)
    assert_allclose(gram(kernel.features, data), features @ features.T, rtol=1e-10, atol=1e-12)
    if kernel.keep:  # the longest way, and inside a compiled function
        compiled = jax.jit(kernel.features)
        assert_allclose(gram(compiled, data), features @ features.T, rtol=1e-10, atol=1e-12)


def test_learned_lengthscales() -> None:
    data, kernel = rankings(), Cut(lengthscale="learn")
    shared = Cut(lengthscale="learn", shared_lengthscale=True)
    priors = [each.parameters(data)["lengthscale"] for each in (kernel, shared)]
    assert [prior.shape() for prior in priors] == [(2,), ()]
    at = np.array([0.6, 1.5])
    fixed = cut_features(
        data, item_graph(data.items.standardized_attributes(), lengthscale=at), normalize=True
    )
    assert_allclose(
        gram(kernel.features, data, lengthscale=at), fixed @ fixed.T, rtol=1e-10, atol=1e-12
    )
    probe = np.random.default_rng(0).standard_normal((len(data), 5))

    def value(scale: Any) -> Any:
        return jnp.sum(kernel.features(data, lengthscale=scale).values * probe)

    with jax.enable_x64(True):
        slope = np.asarray(jax.jit(jax.grad(value))(jnp.asarray(at)))
    for axis in np.eye(2) * STEP:
        ends = (
            item_graph(data.items.standardized_attributes(), lengthscale=at + s * axis)
            for s in (1, -1)
        )
        up, down = (np.sum(cut_features(data, graph, normalize=True) * probe) for graph in ends)
        assert abs(slope @ axis / STEP - (up - down) / (2 * STEP)) <= 1e-8


def test_kendall_and_mallows() -> None:
    data = rankings()
    mixed = Rankings.from_orders([*data.orders(), ["c", "a"], [("e", "d"), "b"]], ITEMS)
    assert_allclose(gram(jax.jit(Kendall().features), mixed), kendall_kernel(mixed), atol=1e-12)
    prior = Mallows().parameters(data)["concentration"]
    assert float(prior.icdf(0.5)) == pytest.approx(4 / 20)
    with jax.enable_x64(True):
        kernel, known, diagonal = jax.jit(
            lambda data, few, strength: (
                Mallows().gram(data, few, concentration=strength),
                mallows_kernel(rankings().positions, concentration=0.3),
                Mallows().diagonal(data, concentration=strength),
            )
        )(data, data[:3], 0.3)
    expected = mallows_kernel(data, concentration=0.3)
    assert_allclose(kernel, expected[:, :3], rtol=1e-12)
    assert_allclose(known, expected, rtol=1e-12)
    assert_allclose(diagonal, np.diag(expected), rtol=1e-12)
    assert isinstance(Kendall(), RankingKernel)
    assert isinstance(Mallows(), GramKernel)
    assert not isinstance(Mallows(), RankingKernel)


@pytest.mark.parametrize(
    ("kernel", "parameters"), [(Mallows(), {"concentration": 0.3}), (Kendall(), {})]
)
def test_landmarks(kernel: Any, parameters: Any) -> None:
    data = rankings(10)
    exact = np.asarray(kernel.gram(data, data, **parameters))
    everything = Landmarks(kernel, data)
    assert_allclose(gram(everything.features, data, **parameters), exact, atol=1e-6)
    few = Landmarks.choose(kernel, data, 4, **parameters)
    assert len(few.rankings) == 4
    chosen = np.array(few.rankings.rankers, dtype=int)
    cross = exact[:, chosen]
    nystroem = cross @ np.linalg.solve(exact[np.ix_(chosen, chosen)], cross.T)
    found = gram(few.features, data, **parameters)
    off = ~np.eye(10, dtype=bool)
    assert_allclose(found[off], nystroem[off], atol=1e-6)
    assert_allclose(np.diag(found), np.diag(exact), rtol=1e-6)  # what is left out is the residual
    assert few.error == pytest.approx(1 - np.trace(nystroem) / np.trace(exact), abs=1e-6)
    assert few.parameters(data).keys() == parameters.keys()
    enough = Landmarks.choose(kernel, data, tol=0.2)  # at the median of the prior
    assert enough.error <= 0.2
    assert len(enough.rankings) < 10


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Cut(np.ones((3, 3))).features(PARTIAL), "GivenFeatures"),
        (lambda: jax.jit(Cut(np.ones((3, 3))).features)(PARTIAL), "GivenFeatures"),
        (lambda: SAMPLED.features(PARTIAL, concentration=0.1), "GivenFeatures"),
        (lambda: jax.jit(SAMPLED.features)(PARTIAL, concentration=0.1), "GivenFeatures"),
        (lambda: jax.jit(Landmarks(Kendall(), MIRRORED).features)(rankings(4)), "another order"),
        (lambda: Cut(np.ones((3, 3)), lengthscale=1.0), "leave out"),
        (lambda: Cut(lengthscale=-1.0), "positive"),
        (lambda: Cut(lengthscale="mean"), "'learn'"),  # type: ignore[arg-type]
        (lambda: Cut(lengthscale="learn", keep=0.5), "jumps"),
        (lambda: Cut(-np.ones((3, 3))), "not negative"),
        (lambda: Cut(function="flow"), "'concave'"),  # type: ignore[arg-type]
        (lambda: Cut(lengthscale="learn").parameters(PARTIAL), "no attributes"),
        (
            lambda: Landmarks.choose(Mallows(), rankings(), lengthscale=1.0),
            "no hyperparameter lengthscale",
        ),
        (lambda: Landmarks.choose(Mallows(), rankings()[:0]), "no rankings"),
    ],
)
def test_errors(make: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make()


OF_ALL: Any = {
    "cut": lambda a, b: cut_kernel(a, b, np.ones((3, 3)), placements="all"),
    "kendall": kendall_kernel,
    "mallows": lambda a, b: mallows_kernel(a, b, concentration=1.0),
    "landmarks": lambda a, b: Landmarks(Kendall(), b).features(a).values,
    "features": lambda a, b: LandmarkFeatures(SampledMallows(1.0), b).features(a)[0].values,
}


@pytest.mark.parametrize("kernel", OF_ALL)
def test_items_are_matched_by_label(kernel: str) -> None:
    orders = [["a", "b", "c"], ["b", "c", "a"], ["c", "b", "a"]]
    first = Rankings.from_orders(orders, items=list("abc"))
    with jax.enable_x64(True):
        same = np.asarray(OF_ALL[kernel](first, first))
        other = np.asarray(OF_ALL[kernel](first, Rankings.from_orders(orders, items=list("cab"))))
        assert np.allclose(same, other, atol=1e-9) and not np.allclose(same, same[:, ::-1])
        with pytest.raises(UnknownLabelError):
            OF_ALL[kernel](first, Rankings.from_orders([["x", "y", "z"]]))
    fewer, known = (Rankings.from_orders([["c", "a"]], items=items) for items in (None, [*"abc"]))
    assert kendall_kernel(first, fewer).tolist() == kendall_kernel(first, known).tolist()


@pytest.mark.parametrize(
    ("kernel", "words", "cited", "parameters"),
    [
        (Cut(lengthscale="learn"), "graph cut .* similarity", True, {"lengthscale"}),
        (Cut(np.ones((5, 5)), function="concave"), "concave .* given graph", True, set()),
        (Kendall(), "order alike", True, set()),
        (
            SAMPLED,
            "order differently .* 1 landmark ranking stand",
            True,
            {"concentration"},
        ),
        (GivenFeatures(), "computed beforehand", False, set()),
    ],
)
def test_kernels_describe_themselves(
    kernel: Any, words: str, cited: bool, parameters: set[str]
) -> None:
    told = describe(kernel)
    assert re.search(words, told.sentence) and (told.citation is not None) == cited
    assert set(told.parameters) == parameters
