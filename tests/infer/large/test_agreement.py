"""Every kind of relation and answer, and graphs that are hard: without matrices of all items as
with them.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from relpref.data import PreferenceData, Relation
from relpref.data_loaders import power_law
from relpref.errors import DataError
from relpref.infer import EP, UtilityPosterior
from relpref.models import xpgp

N, M = 80, 40
LABELS = [f"e{row}" for row in range(N)]
ATTRIBUTES = {
    "attributes_amplitude": 1.2,
    "attributes_lengthscale": 1.5,
    "attributes_linear_share": 0.5,
    "individual_amplitude": 0.6,
}


def links(seed: int, number: int = 160) -> pd.DataFrame:
    source, target = np.random.default_rng(seed).integers(0, N, (2, number))
    other = source != target
    names = np.array(LABELS)
    return pd.DataFrame({"source": names[source][other], "target": names[target][other]})


def owners(seed: int, number: int = 120, targets: int = 25) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    source, target = rng.integers(0, N, number), rng.integers(0, targets, number)
    return pd.DataFrame(
        {"source": np.array(LABELS)[source], "target": [f"owner {at}" for at in target]}
    )


def answers(labels: list[str] = LABELS, number: int = M, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    first = rng.integers(0, len(labels), number)
    second = (first + rng.integers(1, len(labels), number)) % len(labels)
    names = np.array(labels, dtype=object)
    return pd.DataFrame({"winner": names[first], "loser": names[second]})


def graded() -> pd.DataFrame:
    """Ties, strengths, raters and positions."""
    rng = np.random.default_rng(2)
    plain = answers()
    tie = rng.random(M) < 0.2
    winner = plain["winner"].where(~tie, "")
    table = pd.DataFrame(
        {"first": plain["winner"], "second": plain["loser"], "winner": winner, "tie": tie}
    )
    table["strength"] = np.where(tie, np.nan, rng.integers(1, 4, M))
    table["rater"] = rng.choice(list("xyz"), M)
    table["shown_first"] = np.where(rng.random(M) < 0.5, plain["winner"], None)
    table["count"] = rng.choice([1, 1, 2], M)
    return table


GRADED = {
    "tie_margin": 0.4,
    "strength_steps": np.array([0.6, 0.9]),
    "rater_noise": np.array([0.7, 1.3, 2.0]),
    "position_bias": 0.4,
}
# By name: relations, answers, and hyperparameters beside those of the attributes.
CASES: dict[str, tuple[dict[str, Any], Callable[[], pd.DataFrame], dict[str, Any]]] = {
    "two roles": (
        {"cites": Relation(links(3), kind="directed")},
        answers,
        {
            "cites_linking_amplitude": 0.8,
            "cites_linking_range": 0.9,
            "cites_linked_amplitude": 1.1,
            "cites_linked_range": 0.6,
        },
    ),
    "random walk": (
        {"cites": Relation(links(3), kind="directed", form="random_walk")},
        answers,
        {"cites_amplitude": 0.8, "cites_range": 3.0},
    ),
    "bipartite": (
        {"owner": Relation(owners(4), kind="bipartite")},
        answers,
        {"owner_amplitude": 1.3, "owner_range": 1.2},
    ),
    "two relations": (
        {"near": links(5), "akin": links(6, 60)},
        answers,
        {"near_amplitude": 0.8, "near_range": 0.7, "akin_amplitude": 1.2, "akin_range": 1.5},
    ),
    "graded answers": (
        {"near": links(5)},
        graded,
        {"near_amplitude": 0.8, "near_range": 0.7, **GRADED},
    ),
}


def fit(
    data: PreferenceData, fixed: Mapping[str, Any] | None, structure: Any, **kwargs: Any
) -> Any:
    found = EP(xpgp, fixed=fixed, structure=structure).run(0, data, **kwargs)
    assert isinstance(found, UtilityPosterior) and found.info["result"] == "converged"
    return found


def agree(data: PreferenceData, fixed: Mapping[str, Any], **kwargs: Any) -> UtilityPosterior:
    """To a thousandth of a standard deviation; the one without matrices."""
    one, other = (fit(data, fixed, structure, **kwargs) for structure in ("dense", "sparse"))
    assert np.max(np.abs(other.mean() - one.mean()) / one.sd()) < 1e-3
    assert np.max(np.abs(other.sd() / one.sd() - 1)) < 1e-3
    assert other.log_evidence == pytest.approx(one.log_evidence, abs=1e-3)
    return other


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CASES))
def test_relations_and_answers_of_every_kind(name: str) -> None:
    relations, table, fixed = CASES[name]
    rng = np.random.default_rng(0)
    items = pd.DataFrame(rng.standard_normal((N, 2)), index=LABELS, columns=["x", "y"])
    data = PreferenceData.from_tables(items, table(), relations)
    found = agree(data, {**ATTRIBUTES, **fixed})
    assert found.info["structure"] == "sparse"


@pytest.mark.slow
def test_two_thousand_items() -> None:
    data = power_law(2000, 10_000, 500, attributes=2).data
    fixed = {**ATTRIBUTES, "links_amplitude": 1.0, "links_range": 1.0}
    agree(data, fixed, normalize=False)
    dense, sparse = (fit(data, fixed, structure) for structure in ("dense", "sparse"))
    error = sparse.info["scale_error"]
    assert 0 < error < 0.05
    # A part whose amplitude is off by a share changes a mean by about that share of its deviation
    # from 0, which is a few sd at most.
    off = np.max(np.abs(sparse.mean() - dense.mean()) / dense.sd())
    assert off < 4 * error
    assert np.max(np.abs(sparse.sd() / dense.sd() - 1)) < 4 * error


@pytest.mark.slow
def test_isolated_items_by_the_thousand(oracle: Callable[..., Any]) -> None:
    labels = [f"e{row}" for row in range(5000)]
    path = pd.DataFrame({"source": labels[:29], "target": labels[1:30]})
    data = PreferenceData.from_tables(labels, answers(labels[:60], 30), {"near": path})
    with pytest.warns(UserWarning, match="groups of items"):
        found = fit(
            data,
            {"near_amplitude": 1.0, "near_range": 1.0},
            "auto",
            normalize=False,
            individual=False,
        )
    assert found.info["structure"] == "sparse"
    adjacency = data.relations["near"].adjacency()[:100, :100].toarray()
    covariance = np.linalg.inv(np.diag(1 + adjacency.sum(axis=1)) - adjacency)
    few = PreferenceData.from_tables(labels[:100], answers(labels[:60], 30), {"near": path})
    expected = oracle(few, covariance)
    np.testing.assert_allclose(found.mean()[:100], expected.mean, atol=1e-4)
    np.testing.assert_allclose(
        found.subset(labels[:100]).covariance(), expected.covariance, atol=1e-4
    )
    # Of those that nothing is known about, the prior's.
    assert np.all(found.mean()[100:] == 0)
    np.testing.assert_allclose(found.subset(labels[4000:4010]).covariance(), np.eye(10), atol=1e-6)


@pytest.mark.slow
def test_a_hub_that_is_linked_to_everybody(oracle: Callable[..., Any]) -> None:
    n = 5000
    labels = [f"e{row}" for row in range(n)]
    star = pd.DataFrame({"source": labels[0], "target": labels[1:]})
    data = PreferenceData.from_tables(labels, answers(labels[:60], 30), {"near": star})
    found = fit(
        data, {"near_amplitude": 1.0, "near_range": 1.0}, "auto", normalize=False, individual=False
    )
    # (Δ + I)⁻¹ of a star, from its Schur complement at the hub.
    hub = 1 / (n - (n - 1) / 2)
    covariance = np.full((100, 100), hub / 4) + np.eye(100) / 2
    covariance[0], covariance[:, 0] = hub / 2, hub / 2
    covariance[0, 0] = hub
    few = PreferenceData.from_tables(labels[:100], answers(labels[:60], 30), {"near": star[:99]})
    expected = oracle(few, covariance)
    np.testing.assert_allclose(found.mean()[:100], expected.mean, atol=1e-4)
    np.testing.assert_allclose(
        found.subset(labels[:100]).covariance(), expected.covariance, atol=1e-4
    )


@pytest.mark.slow
def test_a_size_more_than_matrices_are_made_for() -> None:
    data = power_law(4001, 20_000, 30).data
    with pytest.warns(UserWarning, match="groups of items"):  # some have no link
        found = fit(data, None, "auto")
    assert found.info["structure"] == "sparse" and found.info["entities"] == 4001
    assert found.info["searched_answers"] == 30 and found.info["scale_error"] < 0.05
    assert set(found.hyperparameters) == {"links_amplitude", "links_range", "individual_amplitude"}


def test_a_graph_that_is_too_dense_is_refused() -> None:
    n = 4001
    labels = [f"e{row}" for row in range(n)]
    upper = scipy.sparse.triu(
        scipy.sparse.random_array((n, n), density=0.24, rng=np.random.default_rng(0)),
        k=1,
        format="csr",
    )
    upper.data[:] = 1.0
    data = PreferenceData.from_tables(labels, answers(labels, 10), {"near": upper + upper.T})
    with pytest.raises(
        DataError, match="links between 4001 nodes.*drop weak links.*structure='dense'"
    ):
        EP(xpgp, fixed={"near_amplitude": 1.0, "near_range": 1.0}).run(0, data)
