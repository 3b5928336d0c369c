"""Iterations of the conditional ranker that end early: what is learned then, what is not known, and
what is kept.
"""

from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from relpref.errors import DataError
from relpref.rls import ConditionalRanker

# Features as they are, and a λ that does not depend on the labels.
Ranker = partial(ConditionalRanker, standardize=False, regularization=1.0)

RNG = np.random.default_rng(8)
NODES = RNG.normal(size=(20, 3))
RELATION = NODES @ RNG.normal(size=(3, 3)) @ NODES.T + 0.1 * RNG.normal(size=(20, 20))
OPTIONS: dict[str, Any] = {"kernel": "gaussian", "gamma": 0.3, "regularization": 0.1}


def stop_at_two(iteration: int, dual: Any, residual: float) -> bool:
    return iteration == 2


@pytest.mark.filterwarnings("ignore::relpref.infer.InferenceWarning")  # of too few iterations
@pytest.mark.parametrize(
    ("options", "callback"),
    [
        (OPTIONS | {"early_stopping": 0.2, "patience": 2}, None),
        (OPTIONS, stop_at_two),
        ({"kernel": "gaussian", "regularization": 0.0, "solver": "cg", "max_iter": 3}, None),
        (OPTIONS | {"solver": "cg", "max_iter": 2}, None),
    ],
    ids=["early stopping", "callback", "iterations", "too few"],
)
def test_there_is_no_uncertainty_and_nothing_pretends_so(
    options: Any, callback: Any, reloaded: Any
) -> None:
    ranker = Ranker(**options).fit(NODES, RELATION, callback=callback)
    posterior = ranker.posterior_
    assert np.isnan(posterior.noise) and np.isnan(posterior.hyperparameters["scale"])
    assert np.isfinite(ranker.predict()).all()
    loaded = reloaded(posterior)
    assert_allclose(loaded.mean(), posterior.mean(), atol=1e-12)
    for belief in (posterior, loaded):
        for question in (
            belief.sd,
            lambda b=belief: b.ranking(0),
            lambda b=belief: b.prefer(0, [(1, 2)]),
        ):
            with pytest.raises(DataError, match="ended before .*ConditionalRankerCV"):
                question()


@pytest.mark.parametrize("symmetry", ["none", "symmetric"])
def test_the_problem_that_was_solved_is_the_one_that_is_kept(symmetry: str) -> None:
    relation = RELATION + RELATION.T if symmetry == "symmetric" else RELATION
    ranker = Ranker(**OPTIONS, symmetry=symmetry, early_stopping=0.2, patience=2).fit(
        NODES, relation
    )
    problem = ranker.problem_
    assert problem is ranker.posterior_.problem
    assert ranker.dual_coef_.shape == problem.values.values.shape
    held = np.setdiff1d(np.arange(20), problem.values.rows)
    assert len(held) == 4
    if symmetry == "symmetric":
        assert not np.isin(problem.values.columns, held).any()
    info = ranker.posterior_.info
    assert info["edges"] == len(problem.values.values) == 400 - info["held_out_edges"]
    assert info["best_iteration"] <= info["iterations"] and info["held_out_concordance"] > 0.8


def test_only_nodes_that_can_be_ranked_for_are_held_out() -> None:
    relation = np.full((20, 20), np.nan)
    relation[:3] = RELATION[:3]
    relation[3:, 0] = 1.0  # a single label, or two equal ones
    relation[10:, 1] = 1.0
    for seed in range(5):
        ranker = Ranker(**OPTIONS, early_stopping=0.4, patience=2, random_state=seed)
        ranker.fit(NODES, relation)
        assert np.setdiff1d(np.arange(20), ranker.problem_.values.rows).max() < 3
    relation[1:3] = 1.0
    with pytest.raises(DataError, match="1 of 1 conditioning nodes with two different labels"):
        Ranker(**OPTIONS, early_stopping=0.4).fit(NODES, relation)
    with pytest.raises(DataError, match="early_stopping is 1.5"):
        Ranker(**OPTIONS, early_stopping=1.5).fit(NODES, RELATION)


def test_iterations_are_used_where_they_are_asked_for() -> None:
    plain = Ranker(**OPTIONS).fit(NODES, RELATION)
    assert plain.n_iter_ == 0
    seen: list[int] = []
    watched = Ranker(**OPTIONS, tol=1e-12).fit(
        NODES, RELATION, callback=lambda i, *_: seen.append(i)
    )
    assert seen == list(range(1, watched.n_iter_ + 1))
    assert_allclose(watched.predict(), plain.predict(), atol=1e-8)
    closed = Ranker(**OPTIONS, solver="closed")
    with pytest.raises(DataError, match="solver='closed' .*callback"):
        closed.fit(NODES, RELATION, callback=stop_at_two)
    with pytest.raises(DataError, match="solver='closed' .*early_stopping"):
        closed.set_params(early_stopping=True).fit(NODES, RELATION)
