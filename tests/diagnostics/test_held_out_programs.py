"""Held-out answers of every kind of program: against fits without them, and against dense
algebra.
"""

from dataclasses import replace
from itertools import permutations
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

from relpref.data import PreferenceData, Rankings, RelationData
from relpref.diagnostics import influence, k_fold, leave_one_out
from relpref.diagnostics.loo import fold_of
from relpref.errors import UnsupportedProgramError
from relpref.infer import EP, Posterior, RelationPosterior
from relpref.likelihoods import ProbitBernoulli, ProbitComparison
from relpref.models import edge_landmarks, kronecker_classifier, preference_gp, ranking_classifier
from relpref.posterior.gaussian import generator
from relpref.rls import ConditionalRanker

LABELS = list("abcdef")


# Relations


def fitted_relation(symmetry: str, kind: str, loss: str) -> RelationPosterior:
    rng = np.random.default_rng(5)
    nodes = pd.DataFrame(rng.normal(size=(6, 2)), columns=["x", "y"], index=LABELS)
    labels = rng.normal(size=(6, 6))
    labels = labels + {"none": 0, "symmetric": 1, "reciprocal": -1}[symmetry] * labels.T
    relation = pd.DataFrame(labels, LABELS, LABELS)
    if kind != "complete":
        rows, columns = np.nonzero(rng.uniform(size=(6, 6)) < 0.7)
        if symmetry != "none":
            kept = rows <= columns if symmetry == "symmetric" else rows < columns
            rows, columns = rows[kept], columns[kept]
        values = labels[rows, columns]
        if kind == "repeated":  # measured again, with other results
            rows, columns = np.append(rows, rows[:4]), np.append(columns, columns[:4])
            values = np.append(values, rng.normal(size=4))
        names = np.array(LABELS)
        relation = pd.DataFrame({"source": names[rows], "target": names[columns], "value": values})
    options: dict[str, Any] = {"loss": loss, "symmetry": symmetry}
    ranker = ConditionalRanker(kernel="gaussian", gamma=0.5, regularization=0.7, **options)
    posterior = ranker.fit(nodes, relation).posterior_
    assert isinstance(posterior, RelationPosterior)
    return posterior


def label_covariance(posterior: RelationPosterior, rows: Any, columns: Any) -> np.ndarray:
    """Of the labels' prior, noise included; an unknown offset of each node is one of a huge
    variance.
    """
    symmetry, scores = posterior.problem.symmetry, posterior.solution
    left, right = posterior.nodes.gram, posterior.objects.gram
    found = left[np.ix_(rows, rows)] * right[np.ix_(columns, columns)]
    if symmetry != "none":
        swapped = left[np.ix_(rows, columns)] * right[np.ix_(columns, rows)]
        found = 0.5 * (found + (1 if symmetry == "symmetric" else -1) * swapped)
    noise = scores.regularization * np.where((rows == columns) | (symmetry == "none"), 1.0, 0.5)
    found = scores.scale * (found + np.diag(noise))
    return found + 1e6 * (rows[:, None] == rows) if posterior.loss == "ranking" else found


@pytest.mark.parametrize("symmetry", ["none", "symmetric", "reciprocal"])
@pytest.mark.parametrize("kind", ["complete", "incomplete", "repeated"])
@pytest.mark.parametrize("loss", ["regression", "ranking"])
def test_labels_of_a_relation_by_dense_algebra(symmetry: str, kind: str, loss: str) -> None:
    if loss == "ranking" and symmetry != "none":
        return
    posterior = fitted_relation(symmetry, kind, loss)
    held_out, folds = leave_one_out(posterior), k_fold(posterior, 3, rng_key=1)
    position = {label: row for row, label in enumerate(LABELS)}
    rows, columns = (held_out.table[end].map(position).to_numpy() for end in ("node", "object"))
    labels = held_out.table["label"].to_numpy() - posterior.shift
    covariance = label_covariance(posterior, rows, columns)
    low, high = (
        (rows, columns)
        if symmetry == "none"
        else (np.minimum(rows, columns), np.maximum(rows, columns))
    )
    fold = fold_of(low * 6 + high, 3, generator(1), "edge")
    assert len(folds.table) == len(labels)
    for table, groups in ((held_out.table, np.arange(len(labels))), (folds.table, fold)):
        for group in np.unique(groups):
            test, train = np.flatnonzero(groups == group), np.flatnonzero(groups != group)
            weights = np.linalg.solve(
                covariance[np.ix_(train, train)], covariance[np.ix_(train, test)]
            )
            mean = weights.T @ labels[train] + posterior.shift
            variance = np.diagonal(
                covariance[np.ix_(test, test)] - covariance[np.ix_(test, train)] @ weights
            )
            assert_allclose(table["mean"][test], mean, atol=1e-5)
            assert_allclose(table["sd"][test], np.sqrt(variance), rtol=1e-5)


def test_the_ranking_loss_of_a_constrained_relation_has_no_density() -> None:
    posterior = fitted_relation("reciprocal", "complete", "ranking")
    for hold_out in (leave_one_out, k_fold):
        with pytest.raises(UnsupportedProgramError, match="uses every label at both its ends"):
            hold_out(posterior)
    with pytest.raises(UnsupportedProgramError, match="sort the table of leave_one_out"):
        influence(posterior)


# Classes


def rankings() -> Rankings:
    """Whose class is where they put a, but for a few."""
    orders = [list(order) for order in permutations("abcd")]
    labels = [min(order.index("a"), 2) for order in orders]
    labels[3], labels[20] = 0, 1
    return Rankings.from_orders(orders).with_labels(labels, classes=[0, 1, 2])


@pytest.mark.slow
def test_an_example_leaves_with_all_its_decisions() -> None:
    data: Any = rankings()
    engine: Any = EP(ranking_classifier, fixed={"amplitude": 1.0}, check=False)
    posterior = engine.run(0, data)
    found = leave_one_out(posterior)
    assert list(found.table["class"]) == [data.classes[label] for label in data.label]
    assert_allclose(found.table[["p_0", "p_1", "p_2"]].sum(axis=1), 1)
    moved, latent = influence(posterior), posterior.latent()
    for row in (0, 3, 20):
        without = engine.run(0, data[[other for other in range(len(data)) if other != row]])
        chances = without.predict_proba(data[[row]]).to_numpy()[0]
        assert_allclose(found.chances[row], chances, atol=0.02)
        assert found.table["probability"][row] == found.chances[row, found.outcome[row]]
        change = (without.latent(data)["mean"] - latent["mean"]) / latent["sd"]
        largest = np.abs(change).to_numpy().max()
        assert abs(moved["shift"][row]) == pytest.approx(largest, rel=0.1)
    folds = k_fold(posterior, 4)
    assert folds.accuracy > 0.5
    assert_allclose(folds.chances.sum(axis=1), 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("symmetry", "number"), [("none", 36), ("symmetric", 21), ("reciprocal", 15)]
)
def test_an_edge_leaves_in_both_directions(symmetry: Any, number: int) -> None:
    rng = np.random.default_rng(2)
    nodes = pd.DataFrame(rng.normal(size=(6, 2)), columns=["x", "y"], index=LABELS)
    scores = rng.normal(size=(6, 6)) + nodes["x"].to_numpy()
    labels = (scores + {"none": 0, "symmetric": 1, "reciprocal": -1}[symmetry] * scores.T > 0) * 1.0
    if symmetry == "reciprocal":
        np.fill_diagonal(labels, 0.5)
    relation = pd.DataFrame(labels, LABELS, LABELS)
    data = RelationData.from_tables(nodes, relation, symmetry=symmetry)
    fixed = {"amplitude": 1.0, "attributes_lengthscale": 1.0}
    landmarks = edge_landmarks(data, values={"attributes_lengthscale": 1.0})
    engine: Any = EP(kronecker_classifier, fixed=fixed, check=False)
    posterior = engine.run(0, data, landmarks=landmarks)
    found, row = leave_one_out(posterior), 4
    pair = tuple(found.table.loc[row, ["source", "target"]])
    edges = relation.rename_axis("source").reset_index().melt("source", var_name="target")
    gone = {pair} if symmetry == "none" else {pair, pair[::-1]}
    kept = [end not in gone for end in zip(edges["source"], edges["target"], strict=True)]
    fewer = RelationData.from_tables(nodes, edges[kept], symmetry=symmetry)
    without = engine.run(0, fewer, landmarks=landmarks)
    position = data.nodes.index(pair).astype(np.intp)
    chances = without.predict_proba(fewer.asking(position[:1], position[1:])).to_numpy()[0]
    assert_allclose(found.chances[row], chances, atol=0.02)
    assert len(k_fold(posterior, 5).table) == number


# Programs of one's own, and mixtures


def two_kinds(utility_sd: Any, first: Any, second: Any, yes: Any, rating: Any) -> None:
    """Comparisons, decisions and measurements of the same utilities."""
    utility = numpyro.sample("utility", dist.Normal(0.0, utility_sd).expand([5]).to_event(1))
    numpyro.sample(
        "compared",
        ProbitComparison(utility[first] - utility[second]),
        obs=jnp.ones(len(first), int),
    )
    numpyro.sample("liked", ProbitBernoulli(utility[:3]), obs=yes)
    numpyro.sample("rated", dist.Normal(utility, 0.5), obs=rating)


@pytest.mark.slow
def test_a_program_with_several_kinds_of_answers() -> None:
    rng = np.random.default_rng(4)
    first, second = np.array([0, 1, 2, 3, 0, 2]), np.array([1, 2, 3, 4, 4, 0])
    arguments = (1.0, first, second, np.array([1, 0, 1]), rng.normal(size=5))
    posterior = EP(two_kinds, check=False).run(0, *arguments)
    assert type(posterior) is Posterior
    found = leave_one_out(posterior)
    assert list(found.table["site"]) == ["compared"] * 6 + ["liked"] * 3 + ["rated"] * 5
    for row in range(6):
        kept = np.arange(6) != row
        fewer = (1.0, first[kept], second[kept], *arguments[3:])
        without = EP(two_kinds, check=False).run(0, *fewer)
        weights = np.eye(5)[first[row]] - np.eye(5)[second[row]]
        mean, variance = without.mean(weights)[0], without.covariance(weights)[0, 0]
        truth = float(norm.logcdf(mean / np.sqrt(1 + variance)))
        assert found.table["log_score"][row] == pytest.approx(truth, abs=0.02)
    assert np.isnan(found.table["p_first"][6:]).all()
    assert np.isfinite(found.table["p_first"][:6]).all()
    assert found.single.tolist() == [False] * 6 + [True] * 3 + [False] * 5
    assert np.isnan(found.summary()["baseline"]["elpd"])
    assert np.isfinite([found.elpd, found.brier, found.accuracy]).all()
    assert set(influence(posterior)["latent"]) <= {f"utility[{row}]" for row in range(5)}
    with pytest.raises(UnsupportedProgramError, match="k_fold does not know how"):
        k_fold(posterior)


@pytest.mark.slow
def test_a_mixture_is_reweighted() -> None:
    rng = np.random.default_rng(6)
    items, names = pd.DataFrame({"size": rng.normal(size=6)}, index=LABELS), np.array(LABELS)
    first = rng.integers(6, size=15)
    second = (first + rng.integers(1, 6, size=15)) % 6
    answers = pd.DataFrame({"winner": names[first], "loser": names[second]})
    data = PreferenceData.from_tables(items, answers)
    options: dict[str, Any] = {"hyperparameters": "nuts", "draws": 400, "warmup": 200}
    fixed = {"attributes_lengthscale": 1.0, "attributes_linear_share": 0.5}
    engine = EP(preference_gp, fixed=fixed, check=False, **options)
    posterior: Any = engine.run(0, data, individual=False)
    found, moved = leave_one_out(posterior), influence(posterior)
    assert found.table["k_hat"].max() < 0.7
    for row in moved.index[[1, -1]]:
        answer = (found.table["winner"][row], found.table["loser"][row])
        count = np.array(data.count)
        count[row] -= 1
        fewer = replace(data.comparisons, count=count).selected(np.flatnonzero(count), data.labels)
        without: Any = engine.run(1, replace(data, comparisons=fewer), individual=False)
        # 400 draws of two chains: probabilities are known to about 0.01.
        assert found.table["probability"][row] == pytest.approx(
            without.prefer([answer])["probability"][0], abs=0.03
        )
        change = without.belief.centred().mean() - posterior.belief.centred().mean()
        at = data.index([moved["item"][row]])[0]
        expected = change[at] / posterior.belief.centred().sd()[at]
        assert moved["shift"][row] == pytest.approx(expected, abs=0.15)
