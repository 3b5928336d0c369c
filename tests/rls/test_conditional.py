"""Conditional ranking against the gold answers and against the full Gaussian model of all pairs."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from pandas.testing import assert_frame_equal
from scipy import sparse
from sklearn.base import clone

from relpref.data import Graph
from relpref.data.relation_data import SIGN
from relpref.errors import DataError, UnknownLabelError
from relpref.infer import InferenceWarning
from relpref.kernels import RegularizedLaplacian
from relpref.rls import ConditionalRanker

# Features as they are, and a λ that does not depend on the labels.
Ranker = partial(ConditionalRanker, standardize=False, regularization=1.0)

GOLD = np.load(Path(__file__).parents[1] / "gold" / "rls.npz")
GAMMA, LAM = float(GOLD["node_gamma"]), float(GOLD["cond_regularization"])


@pytest.mark.parametrize(
    ("loss", "symmetry", "name"),
    [
        ("ranking", "none", "cond_rank_arbitrary"),
        ("regression", "none", "cond_reg_arbitrary"),
        ("regression", "symmetric", "cond_reg_symmetric"),
        ("regression", "reciprocal", "cond_reg_reciprocal"),
    ],
)
@pytest.mark.parametrize("solver", ["closed", "cg"])
def test_gold(loss: str, symmetry: str, name: str, solver: str) -> None:
    relation = GOLD["relation"]
    if symmetry != "none":
        relation = 0.5 * (relation + SIGN[symmetry] * relation.T)
    options: dict[str, Any] = {"gamma": GAMMA, "regularization": LAM, "tol": 1e-12}
    ranker = Ranker("gaussian", loss=loss, symmetry=symmetry, solver=solver, **options)
    ranker.fit(GOLD["nodes"], relation)
    assert_allclose(ranker.predict(), GOLD[name], atol=1e-9)


def brute_force(
    nodes: np.ndarray,
    objects: np.ndarray | None,
    relation: np.ndarray,
    kind: str,
    loss: str,
    lam: float,
    new: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the scores of new nodes, from the full covariance of all pairs."""

    def gauss(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(-0.4 * ((x[:, None] - y[None]) ** 2).sum(-1)))

    other = nodes if objects is None else objects

    def pair_kernel(a: list[Any], b: list[Any]) -> np.ndarray:
        v, w, x, y = (np.array([e[i] for e in edges]) for edges in (a, b) for i in (0, 1))
        straight = gauss(v, x) * gauss(w, y)
        if kind == "none":
            return straight
        swapped = gauss(v, y) * gauss(w, x)
        return np.asarray(0.5 * (straight + SIGN[kind] * swapped))

    rows, columns = np.nonzero(~np.isnan(relation))
    edges = [(nodes[i], other[j]) for i, j in zip(rows, columns, strict=True)]
    asked = [(v, w) for v in new for w in other]
    matrix = pair_kernel(edges, edges) + lam * np.eye(len(edges))
    if loss == "ranking":  # a nearly flat offset for each conditioning node
        matrix = matrix + 1e7 * (rows[:, None] == rows)
    cross = pair_kernel(asked, edges)
    labels = relation[rows, columns]
    solved = np.linalg.solve(matrix, np.column_stack([labels, cross.T]))
    return cross @ solved[:, 0], pair_kernel(asked, asked) - cross @ solved[:, 1:]


@pytest.mark.parametrize("loss", ["ranking", "regression"])
@pytest.mark.parametrize("kind", ["two kinds", "none", "symmetric", "reciprocal"])
@pytest.mark.parametrize("complete", [True, False])
def test_posterior_moments_of_new_nodes(loss: str, kind: str, complete: bool) -> None:
    rng = np.random.default_rng(1)
    nodes, new = rng.normal(size=(7, 2)), rng.normal(size=(3, 2))
    objects, symmetry = (rng.normal(size=(5, 2)), "none") if kind == "two kinds" else (None, kind)
    relation = rng.normal(size=(7, 7 if objects is None else 5))
    if not complete:
        relation[rng.random(relation.shape) < 0.2] = np.nan
    if symmetry != "none":
        relation = 0.5 * (relation + SIGN[symmetry] * relation.T)
    options: dict[str, Any] = {"loss": loss, "symmetry": symmetry, "regularization": 0.3}
    ranker = Ranker("gaussian", gamma=0.4, tol=1e-12, **options).fit(nodes, relation, objects)
    scale = ranker.posterior_.hyperparameters["scale"]
    mean, covariance = brute_force(nodes, objects, relation, symmetry, loss, 0.3, new)
    tolerance = 1e-5 if loss == "ranking" else 1e-9  # the reference's offsets are only nearly flat
    scores, sd = ranker.predict(new, return_std=True)
    assert_allclose(scores.ravel(), mean, atol=tolerance)
    assert_allclose(sd.ravel() ** 2, scale * np.diagonal(covariance), atol=tolerance)
    for row in range(3):
        belief = ranker.posterior_.belief(new[[row]])
        block = slice(row * relation.shape[1], (row + 1) * relation.shape[1])
        assert_allclose(belief.mean(), mean[block], atol=tolerance)
        expected = scale * covariance[block, block]
        assert_allclose(belief.covariance(), expected, atol=tolerance)


def test_the_second_argument_is_the_first_of_the_transposed_relation() -> None:
    rng = np.random.default_rng(2)
    nodes, objects, relation, new = map(rng.standard_normal, ((6, 2), (5, 2), (6, 5), (2, 2)))
    turned = Ranker("gaussian", gamma=0.4, condition="second").fit(nodes, relation, objects)
    other = Ranker("gaussian", gamma=0.4).fit(objects, relation.T, nodes)
    assert_allclose(turned.predict(new), other.predict(new), atol=1e-12)


def players(n: int = 6) -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(3)
    nodes = pd.DataFrame(
        rng.normal(size=(n, 2)), index=[f"p{i}" for i in range(n)], columns=["x", "y"]
    )
    gaps = nodes["x"].to_numpy()[:, None] - nodes["x"].to_numpy()
    relation = pd.DataFrame(1 / (1 + np.exp(-gaps)), index=nodes.index, columns=nodes.index)
    return nodes, relation


def test_labels_are_kept_and_matched() -> None:
    nodes, relation = players()
    ranker = Ranker("gaussian", gamma=0.5, symmetry="reciprocal", loss="regression")
    ranker.fit(nodes, relation)
    edges = relation.stack().rename_axis(["source", "target"]).rename("value").reset_index()
    for given in (relation.iloc[::-1, ::-1], edges):
        again = clone(ranker).fit(nodes, given)
        assert_frame_equal(ranker.predict(), again.predict())
    table = ranker.predict(["p2", "p0"], ["p1"])
    assert list(table.index) == ["p2", "p0"] and list(table.columns) == ["p1"]
    assert list(ranker.rank().loc["p0"].sort_values()) == sorted(nodes.index)
    scores = ranker.predict().to_numpy()
    assert_allclose(scores + scores.T, 1.0, atol=1e-15)  # reciprocal, exactly
    with pytest.raises(UnknownLabelError, match="'p9'"):
        ranker.predict(["p9"])
    few = relation.mask(np.random.default_rng(0).random(relation.shape) < 0.3)
    rows, columns = np.nonzero(few.notna().to_numpy())
    thin = sparse.coo_array((few.to_numpy()[rows, columns], (rows, columns)))
    ranker = Ranker("gaussian", gamma=0.5, tol=1e-12)
    from_frame = ranker.fit(nodes, few).predict()
    assert_frame_equal(from_frame, ranker.fit(nodes, thin).predict())


def test_ranking_and_preferences_with_uncertainty() -> None:
    nodes, relation = players()
    ranker = Ranker("gaussian", gamma=0.5, symmetry="reciprocal", regularization=0.1, tol=1e-10)
    ranker.fit(nodes, relation)
    new = pd.DataFrame([[0.3, -0.2]], index=["newcomer"], columns=["x", "y"])
    table = ranker.posterior_.ranking(new)
    assert list(table.columns[:4]) == ["mean", "sd", "lower", "upper"] and len(table) == 6
    assert abs(table["mean"].sum()) < 1e-10 and (table["sd"] > 0).all()
    assert "p1" not in ranker.posterior_.ranking("p1").index
    pairs = ranker.posterior_.prefer(new, [("p0", "p1"), ("p1", "p0")])
    assert_allclose(pairs["p_better"].sum(), 1.0)
    belief = ranker.posterior_.belief(new, ["p0", "p1"])
    draws = belief.draw(20000, np.random.default_rng(0))
    # 20000 draws: standard error at most 0.0036; 5 of them.
    assert abs((draws[:, 0] > draws[:, 1]).mean() - pairs["p_better"][0]) < 0.018
    assert abs(pairs["probability"][0] - 0.5) < abs(pairs["p_better"][0] - 0.5)
    assert ranker.posterior_.sample(new, num_samples=3).shape == (3, 6)
    assert 0.9 < ranker.score(nodes, relation) <= 1.0


def test_warm_start() -> None:
    nodes, relation = players(20)
    with pytest.warns(InferenceWarning, match="max_iterations after 2"):
        hasty = Ranker("gaussian", solver="cg", max_iter=2).fit(nodes, relation)
    assert hasty.posterior_.info["result"] == "iterations_not_converged"
    warm = Ranker("gaussian", gamma=0.5, solver="cg", regularization=0.3, warm_start=True)
    first = warm.fit(nodes, relation).n_iter_
    assert warm.set_params(regularization=0.29).fit(nodes, relation).n_iter_ < first


def test_what_is_refused() -> None:
    nodes, relation = players()
    options: Any
    for options, given, message in (
        ({"symmetry": "reciprocal"}, relation + 0.3, "not reciprocal"),
        ({"symmetry": "symmetric"}, relation, "not symmetric"),
        ({}, relation * 0 + 1, "same label"),
        ({}, np.ones((3, 3)), "shape"),
        ({}, relation.rename(index={"p1": "q1"}), "labels of the relation"),
        ({}, relation * np.nan, "not one label is known"),
        ({"solver": "closed"}, relation.mask(relation > 0.9), "'closed'"),
        ({"pair_kernel": "mlpk", "symmetry": "reciprocal"}, relation, "pair_kernel"),
    ):
        with pytest.raises(DataError, match=message):
            Ranker(**options).fit(nodes, given)
    with pytest.raises(DataError, match="single edge"):
        Ranker().fit(nodes.iloc[:1], relation.iloc[:1, :1])


def test_a_node_with_one_edge_is_skipped_and_counted() -> None:
    nodes, relation = players()
    relation.iloc[2, 1:] = np.nan
    ranker = Ranker("gaussian", gamma=0.5, regularization=0.1).fit(nodes, relation)
    assert ranker.posterior_.info["skipped_nodes"] == 1
    assert np.isfinite(ranker.predict()).all().all()


def test_a_precomputed_kernel_keeps_its_labels() -> None:
    nodes, relation = players()
    kernel = pd.DataFrame(
        np.exp(-0.5 * ((nodes.to_numpy()[:, None] - nodes.to_numpy()) ** 2).sum(-1)),
        index=nodes.index,
        columns=nodes.index,
    )
    by_name = Ranker("gaussian", gamma=0.5).fit(nodes, relation)
    given = Ranker("precomputed").fit(kernel[kernel.columns[::-1]], relation)
    assert_frame_equal(given.predict(), by_name.predict())
    late = kernel.loc[["p3"]].rename(index={"p3": "late"})
    assert_allclose(given.predict(late[late.columns[::-1]]), by_name.predict(["p3"]), atol=1e-10)
    with pytest.raises(DataError, match="among themselves"):
        given.predict(late, return_std=True)
    with pytest.raises(DataError, match=r"\(K \+ K.T\) / 2"):
        Ranker("precomputed").fit(kernel + np.triu(np.ones((6, 6)), 1), relation)
    with pytest.raises(DataError, match="nearest_semidefinite"):
        Ranker("precomputed").fit(kernel - 0.9 * np.eye(6), relation)


def test_memory_is_named_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, relation = players()
    monkeypatch.setattr("relpref.limits.available_memory", lambda: 100.0)
    with pytest.raises(DataError, match="needs .* GB of memory"):
        Ranker("gaussian").fit(nodes, relation)


@pytest.mark.parametrize("solver", ["closed", "cg"])
@pytest.mark.parametrize("offset", [1e2, 1e4])
def test_the_ranking_loss_far_from_the_origin(solver: str, offset: float) -> None:
    """A shift of the objects' features changes no ranking: (x + c)·(y + c) adds only what offsets
    take up.
    """
    rng = np.random.default_rng(4)
    queries, items, new = rng.normal(size=(8, 2)), rng.normal(size=(9, 3)), rng.normal(size=(4, 3))
    relation = rng.normal(size=(8, 9))
    options: dict[str, Any] = {
        "kernel": "linear",
        "solver": solver,
        "regularization": 0.5,
        "tol": 1e-12,
    }
    near = Ranker(**options).fit(queries, relation, items).predict(None, new)
    far = Ranker(**options).fit(queries, relation, items + offset).predict(None, new + offset)
    near, far = (scores - scores.mean(axis=1, keepdims=True) for scores in (near, far))
    # x·y has a relative error of eps·offset² beside differences of order 1.
    assert_allclose(far, near, atol=1e-14 * offset**2 + 1e-10)


@pytest.mark.parametrize("solver", ["closed", "cg"])
def test_a_path_of_regularisations(solver: str) -> None:
    nodes, relation = players()
    options: dict[str, Any] = {"gamma": 0.5, "solver": solver, "tol": 1e-12}
    path = Ranker("gaussian", **options).fit(nodes, relation).predict_path([0.1, 3.0], ["p1"])
    for scores, value in zip(path, [0.1, 3.0], strict=True):
        again = Ranker("gaussian", **options, regularization=value).fit(nodes, relation)
        assert_allclose(scores, again.predict(["p1"]), atol=1e-9)


def test_a_kernel_on_a_graph() -> None:
    """Nodes of a graph are its numbers; one whose labels are unknown is ranked for by its place in
    the graph.
    """
    graph = Graph(6, np.arange(5), np.arange(1, 6), np.ones(5))
    relation = np.full((6, 6), np.nan)
    relation[:5, :5] = -np.abs(np.arange(5)[:, None] - np.arange(5))
    ranker = Ranker(
        RegularizedLaplacian(), kernel_params={"graph": graph, "range": 2.0}, regularization=0.01
    ).fit(np.arange(6), relation)
    scores = ranker.predict([5], [0, 1, 2, 3, 4])
    assert list(np.argsort(-scores[0])) == [4, 3, 2, 1, 0]
    with pytest.raises(DataError, match="include new nodes in the graph"):
        ranker.predict(np.array([[6.0]]))


@pytest.mark.parametrize(
    ("loss", "symmetry", "kinds"),
    [
        ("ranking", "none", 1),
        ("ranking", "none", 2),
        ("regression", "none", 1),
        ("regression", "none", 2),
        ("regression", "symmetric", 1),
        ("regression", "reciprocal", 1),
    ],
)
def test_few_features_are_a_shortcut_and_nothing_else(loss: str, symmetry: str, kinds: int) -> None:
    rng = np.random.default_rng(6)
    nodes, objects = rng.normal(size=(9, 2)), rng.normal(size=(8, 3)) if kinds == 2 else None
    relation = rng.normal(size=(9, 9 if objects is None else 8))
    if symmetry != "none":
        relation = 0.5 * (relation + SIGN[symmetry] * relation.T)
    options: dict[str, Any] = {"loss": loss, "symmetry": symmetry, "regularization": 0.3}
    thin = Ranker("linear", **options).fit(nodes, relation, objects)
    grams = [None if features is None else features @ features.T for features in (nodes, objects)]
    full = Ranker("precomputed", **options).fit(grams[0], relation, grams[1])
    assert thin.problem_.system().rotated.shape[0] == 2
    assert_allclose(thin.dual_coef_, full.dual_coef_, atol=1e-12)
    assert thin.posterior_.log_evidence == pytest.approx(full.posterior_.log_evidence, abs=1e-9)
    (mine, my_sd), (theirs, their_sd) = (ranker.predict(return_std=True) for ranker in (thin, full))
    assert_allclose(mine, theirs, atol=1e-10)
    assert_allclose(my_sd**2, their_sd**2, atol=1e-12)
    assert_allclose(thin.predict([4, 2], [1]), full.predict([4, 2], [1]), atol=1e-11)
    beliefs = [ranker.posterior_.belief(3).covariance() for ranker in (thin, full)]
    assert_allclose(beliefs[0], beliefs[1], atol=1e-10)


@pytest.mark.parametrize("complete", [True, False])
def test_ranks_under_a_kernel_of_low_rank(complete: bool) -> None:
    rng = np.random.default_rng(7)
    nodes, relation = rng.normal(size=(30, 3)), rng.normal(size=(30, 30))
    if not complete:
        relation[rng.random((30, 30)) < 0.5] = np.nan
    ranker = Ranker("linear", regularization=1e-4, tol=1e-10).fit(nodes, relation)
    assert np.isfinite(ranker.posterior_.ranking(0)).all(axis=None)
    assert np.isfinite(ranker.posterior_.sample(0, num_samples=5)).all()


def test_variances_do_not_cancel() -> None:
    """Beside a tiny λ the variance of a known score is λ, almost: there is one label for each
    score.
    """
    rng = np.random.default_rng(8)
    nodes, relation = rng.normal(size=(12, 2)), rng.normal(size=(12, 12))
    ranker = Ranker("gaussian", gamma=2.0, loss="regression", regularization=1e-13).fit(
        nodes, relation
    )
    exact = ranker.predict(return_std=True)[1] ** 2 / ranker.posterior_.hyperparameters["scale"]
    assert np.all((exact > 0.5e-13) & (exact <= 1.0001e-13))


def test_labels_that_are_all_zero() -> None:
    nodes, relation = players()
    ranker = Ranker("gaussian", loss="regression").fit(nodes, 0 * relation)
    assert (np.stack(ranker.predict(return_std=True)) == 0).all()


def test_ties_are_no_certainty() -> None:
    rng = np.random.default_rng(10)
    ranker = Ranker("linear").fit(rng.normal(size=(8, 2)), rng.normal(size=(8, 8)))
    table = ranker.posterior_.ranking(np.zeros((1, 2)))
    # 4000 draws of one in eight: five standard errors.
    assert np.all(np.abs(table["p_best"] - 1 / 8) < 0.027)
    assert table["rank_lower"].max() == 1 and table["rank_upper"].min() == 8


def test_features_far_off_are_told() -> None:
    rng = np.random.default_rng(11)
    nodes, relation = rng.normal(size=(9, 2)), rng.normal(size=(9, 9))
    with pytest.warns(InferenceWarning, match="center or standardize"):
        Ranker("linear").fit(nodes + 1e6, relation)
    with pytest.raises(DataError, match="rescale"):
        Ranker("linear").fit(nodes * 1e80, relation)


@pytest.mark.parametrize(("loss", "symmetry"), [("ranking", "none"), ("regression", "reciprocal")])
def test_the_most_likely_regularization(loss: str, symmetry: str) -> None:
    """The default λ has the highest evidence, in closed form and from the edges' kernel
    alike.
    """
    rng = np.random.default_rng(5)
    nodes = rng.normal(size=(8, 2)) * [1.0, 100.0]  # one feature in other units
    noisy = np.tanh(nodes[:, [0]] - nodes[:, 0]) + rng.normal(size=(8, 8))
    relation = 0.5 * (noisy - noisy.T) if symmetry == "reciprocal" else noisy

    def fit(**options: Any) -> Any:
        return ConditionalRanker(loss=loss, symmetry=symmetry, **options).fit(nodes, relation)

    found = fit()
    best = found.regularization_
    assert found.posterior_.hyperparameters["regularization"] == best
    for factor in (0.3, 0.9, 1.1, 3.0):
        other = fit(regularization=factor * best)
        assert other.posterior_.log_evidence < found.posterior_.log_evidence
    assert fit(solver="cg", tol=1e-12).regularization_ == pytest.approx(best, rel=5e-3)


def test_features_are_standardized() -> None:
    rng = np.random.default_rng(6)
    nodes, relation, new = map(rng.standard_normal, ((7, 2), (7, 7), (3, 2)))
    by_hand, moved = ((x - nodes.mean(axis=0)) / nodes.std(axis=0) for x in (nodes, new))
    plain = Ranker("linear").fit(by_hand, relation).predict(moved, moved, return_std=True)
    for units in (np.ones(2), np.array([1e-3, 1e4])):
        ranker = Ranker("linear", standardize=True).fit(nodes * units, relation)
        found = ranker.predict(new * units, new * units, return_std=True)
        assert_allclose(np.stack(found), np.stack(plain), atol=1e-9)
    # Sparse ones are scaled and stay sparse: to the Gaussian kernel that is the same.
    dense = Ranker("gaussian", standardize=True).fit(nodes, relation)
    thin = Ranker("gaussian", standardize=True).fit(sparse.csr_array(nodes), relation)
    assert_allclose(thin.predict(sparse.csr_array(new)), dense.predict(new), atol=1e-9)


@pytest.mark.parametrize(
    ("options", "nodes", "words"),
    [
        (
            {"kernel": "linear", "symmetry": "reciprocal"},
            [[1.0], [2.0], [4.0]],
            "is 0 for every pair: .*'gaussian'",
        ),
        ({"kernel": "linear", "standardize": False}, [[0.0], [0.0], [0.0]], "is 0 for every pair"),
        ({}, [[3.0], [3.0], [3.0]], "no variance: .*give nodes features that differ"),
        (
            {"pair_kernel": "mlpk", "loss": "regression", "symmetry": "symmetric"},
            [[3.0]] * 3,
            "no variance",
        ),
        (
            {"kernel": "precomputed", "symmetry": "reciprocal"},
            np.outer([1, 2, 3], [1, 2, 3]),
            "is 0 for every",
        ),
    ],
)
def test_a_kernel_that_says_nothing_is_refused(
    options: dict[str, Any], nodes: Any, words: str
) -> None:
    sign = -1 if options.get("symmetry") == "reciprocal" else 1
    upper = np.triu(np.arange(9.0).reshape(3, 3), 1)
    with pytest.raises(DataError, match=words):
        ConditionalRanker(**options).fit(np.asarray(nodes, dtype=float), upper + sign * upper.T)
