"""ArviZ's own functions on what every program and every kind of engine hands over, on whichever
ArviZ is installed.
"""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import arviz
import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpyro.infer import Predictive

from relpref.data import PreferenceData, Rankings, RelationData
from relpref.infer import EP, Exact, Laplace, Posterior, RelationPosterior, from_samples
from relpref.kernels import GivenFeatures, Linear
from relpref.models import (
    conditional_ranking,
    edge_landmarks,
    kronecker_classifier,
    preference_gp,
    ranking_classifier,
)

NEW_ARVIZ = int(arviz.__version__.split(".")[0]) >= 1
RNG = np.random.default_rng(5)
NODES = pd.DataFrame(RNG.normal(size=(5, 2)), index=list("abcde"), columns=["x", "y"])
SCORES = RNG.normal(size=(5, 5))


def ballots() -> Rankings:
    orders = [RNG.permutation(["ale", "beer", "cider"]).tolist() for _ in range(12)]
    features = np.random.default_rng(1).normal(size=(12, 3))
    classes = [f"class {1 + int(row[0] > 0) + int(row[0] > 0.8)}" for row in features]
    return Rankings.from_orders(orders).with_features(features).with_labels(classes)


def edges() -> RelationData:
    return RelationData.from_tables(NODES, (SCORES > 0).astype(float))


def scores() -> RelationData:
    return RelationData.from_tables(NODES, SCORES)


SCALES = {"attributes_amplitude": 1.0, "attributes_lengthscale": [1.0, 1.0]}


class Program(NamedTuple):
    """A program with its data, the site and axis of its answers, and their number."""

    program: Any
    make: Callable[[], Any] | None  # None: the preferences of the other tests
    keywords: dict[str, Any]
    fixed: dict[str, Any]
    site: str
    axes: tuple[str, ...]
    number: int


PROGRAMS = {
    "preference_gp": Program(
        preference_gp,
        None,
        {},
        SCALES | {"attributes_linear_share": 0.5},
        "answer",
        ("comparison",),
        52,
    ),
    "ranking_classifier": Program(
        ranking_classifier,
        ballots,
        {"kernel": GivenFeatures()},
        {"amplitude": 1.0},
        "decision",
        ("example", "class"),
        12,
    ),
    "kronecker_classifier": Program(
        kronecker_classifier,
        edges,
        {"node_kernel": Linear()},
        {"amplitude": 1.0},
        "decision",
        ("example", "class"),
        25,
    ),
}
for loss in ("regression", "ranking"):
    PROGRAMS[loss] = Program(
        conditional_ranking, scores, {"loss": loss}, SCALES | {"noise": 0.5}, "label", ("edge",), 25
    )


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[pytest.mark.slow] * (name != "preference_gp"))
        for name in PROGRAMS
    ],
)
def fitted(request: Any, data: PreferenceData) -> tuple[Program, dict[str, Any]]:
    """One program under engines of every kind."""
    case = PROGRAMS[request.param]
    given = case.make() if case.make else data
    posteriors: dict[str, Any] = {}
    keywords = dict(case.keywords)
    if request.param == "kronecker_classifier":
        keywords["landmarks"] = edge_landmarks(edges(), node_kernel=Linear(), number=8)
    if request.param != "ranking":  # its likelihood is for the exact engine and for samplers
        for engine in (EP, Laplace):
            fit = engine(case.program, fixed=case.fixed)
            posteriors[engine.__name__] = fit.run(0, given, **keywords)
    # What a sampler hands over has the same form as draws of the prior.
    with jax.enable_x64(True):
        prior = Predictive(case.program, num_samples=60)(jax.random.key(2), given, **keywords)
    draws = from_samples(prior, case.program, given, **keywords, num_chains=2)
    return case, posteriors | {"draws": draws}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Hyperparameters that do not vary, and few draws, are warned about by ArviZ."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    plt.close("all")


def test_summary_loo_compare_and_forest(
    fitted: tuple[Program, dict[str, Posterior]], tmp_path: Path
) -> None:
    case, posteriors = fitted
    native = {engine: posterior.to_arviz(200) for engine, posterior in posteriors.items()}
    for engine, tree in native.items():
        table = arviz.summary(tree)
        assert isinstance(table, pd.DataFrame) and len(table) > 5
        assert not table["mean"].astype(float).isna().any()
        if case.program is preference_gp and engine == "EP":
            assert {f"utility[e{row}]" for row in range(12)} <= set(table.index)
            assert np.all(table["r_hat"].astype(float).dropna() < 1.05)
        loo = arviz.loo(tree, pointwise=True)
        points = np.asarray(loo.elpd_i if hasattr(loo, "elpd_i") else loo["loo_i"])
        assert points.size == case.number, engine
        assert np.isfinite(points).all()
    assert sorted(arviz.compare(native).index) == sorted(native)
    arviz.plot_forest(native["draws"])
    path = str(tmp_path / "tree.nc")
    native["draws"].to_netcdf(path)
    again = arviz.from_netcdf(path)
    for group in posteriors["draws"].to_datatree().children:
        left, right = (
            x[group].to_dataset() if NEW_ARVIZ else x[group] for x in (native["draws"], again)
        )
        for site in left.data_vars:
            assert_array_equal(left[site], right[site])


def test_what_the_engine_says_and_the_names_of_the_axes(
    fitted: tuple[Program, dict[str, Posterior]],
) -> None:
    case, posteriors = fitted
    tree = posteriors["draws"].to_datatree()
    assert tree["observed_data"][case.site].dims == case.axes
    if "score" in tree["posterior"]:
        assert tree["posterior"]["score"].dims == ("chain", "draw", "node", "object")
    if "EP" in posteriors:
        stats = posteriors["EP"].to_datatree(40)["sample_stats"]
        assert set(stats.data_vars) == {"sweeps", "damping", "residual", "code", "converged"}
        assert np.all(stats["code"] == 0)
        assert int(stats["sweeps"][0, 0]) == posteriors["EP"].info["iterations"]


@pytest.fixture(
    scope="module", params=["ranking", pytest.param("regression", marks=pytest.mark.slow)]
)
def relation(request: Any) -> RelationPosterior:
    engine = Exact(conditional_ranking, fixed=PROGRAMS[request.param].fixed)
    return engine.run(0, scores(), loss=request.param)


def test_relations(relation: RelationPosterior, tmp_path: Path) -> None:
    native = relation.to_arviz("b", num_samples=400)
    assert len(arviz.summary(native, var_names=["score"])) == 5
    loo = arviz.loo(native)
    assert np.isfinite(float(loo.elpd if hasattr(loo, "elpd") else loo["elpd_loo"]))
    arviz.plot_forest(native, var_names=["score"])
    path = str(tmp_path / "tree.nc")
    native.to_netcdf(path)
    again = arviz.from_netcdf(path)
    assert_array_equal(again["observed_data"]["label"], SCORES[1])
    assert again["observed_data"]["labelled"].values.tolist() == list("abcde")
    new = relation.to_datatree(np.zeros((1, 2)), num_samples=8)
    assert "observed_data" not in new.children
    assert new["posterior_predictive"]["next_label"].dims == ("chain", "draw", "object")
    some = relation.to_datatree("b", ["d", "a"], num_samples=8)
    assert_array_equal(some["observed_data"]["label"], SCORES[1][[0, 3]])
    assert some["observed_data"]["labelled"].values.tolist() == ["a", "d"]


def test_the_density_of_a_label_given_the_others(relation: RelationPosterior) -> None:
    """By the joint density of a node's labels: p(y) over p(y without one), both with the offset
    integrated out.
    """
    labels, score = SCORES[1], RNG.normal(size=5)
    variance = relation.label_variance
    wide = 1e8 if relation.loss == "ranking" else 0.0

    def joint(kept: list[int]) -> float:
        covariance = variance * np.eye(len(kept)) + wide
        error = labels[kept] - score[kept]
        _, log_determinant = np.linalg.slogdet(2 * np.pi * covariance)
        return float(-0.5 * (error @ np.linalg.solve(covariance, error) + log_determinant))

    every = list(range(5))
    expected = [joint(every) - joint([k for k in every if k != left]) for left in every]
    assert_allclose(relation.log_likelihood(score[None], labels)[0], expected, rtol=0, atol=1e-5)
