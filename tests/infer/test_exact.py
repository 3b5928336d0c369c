"""The exact engine: against EP on the same program, for nodes that come later, and what it
refuses.
"""

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from relpref import RelationData
from relpref.errors import DataError, InferenceError, UnsupportedProgramError
from relpref.infer import EP, Exact, InferenceWarning
from relpref.kernels import GaussianProcess, Linear
from relpref.linalg import Dense
from relpref.models import conditional_ranking

FIXED = {"attributes_amplitude": 1.2, "attributes_lengthscale": 0.9, "noise": 0.4}


@pytest.mark.parametrize(
    ("symmetry", "complete"),
    [
        ("none", True),
        pytest.param("symmetric", False, marks=pytest.mark.slow),
        ("reciprocal", True),
    ],
)
def test_regression_is_what_ep_finds(problem: Any, symmetry: str, complete: bool) -> None:
    data = problem(symmetry, complete)
    exact = Exact(conditional_ranking, fixed=FIXED).run(0, data, loss="regression")
    ep = EP(conditional_ranking, fixed=FIXED).run(0, data, loss="regression")
    sign = {"none": 0, "symmetric": 1, "reciprocal": -1}[symmetry]
    field = ep.mean().reshape(6, 6)
    scores = 0.5 * (field + sign * field.T) if sign else field
    assert_allclose(exact.mean(), scores, atol=1e-7)
    assert exact.log_evidence == pytest.approx(ep.log_evidence, abs=1e-6)
    if complete:
        assert exact.info["solver"] == "closed form"
    weights = np.zeros((6, 36))
    for w in range(6):
        weights[w, 6 * 2 + w] += 1 if not sign else 0.5
        weights[w, 6 * w + 2] += 0 if not sign else 0.5 * sign
    assert_allclose(exact.belief("n2").covariance(), ep.covariance(weights), atol=1e-7)


@pytest.mark.parametrize("loss", ["ranking", "regression"])
def test_a_newcomer_is_a_node_with_unknown_labels(problem: Any, loss: Any) -> None:
    data = problem()
    table = pd.DataFrame(data.nodes.attributes, index=list(data.nodes.labels), columns=["x", "y"])
    new = pd.DataFrame([[0.2, -0.4]], index=["late"], columns=["x", "y"])
    labels = np.full((7, 7), np.nan)
    labels[:6, :6] = data.values.matrix
    # Without standardisation, so that the newcomer does not change the others' attributes.
    program = partial(conditional_ranking, standardize=False, loss=loss)
    posterior = Exact(program, fixed=FIXED).run(0, data)
    whole = Exact(program, fixed=FIXED).run(
        0, RelationData.from_tables(pd.concat([table, new]), labels)
    )
    known = list(table.index)
    assert_allclose(posterior.mean(new, known), whole.mean(["late"], known), atol=1e-8)
    assert_allclose(posterior.mean(new, new), whole.mean(["late"], ["late"]), atol=1e-8)
    assert_allclose(posterior.sd(new, new), whole.sd(["late"], ["late"]), atol=1e-7)
    assert_allclose(posterior.sd(known, new), whole.sd(known, ["late"]), atol=1e-7)
    swapped = posterior.mean(new[["y", "x"]], known)
    pd.testing.assert_frame_equal(swapped, posterior.mean(new, known))
    with pytest.raises(DataError, match="'z'"):
        posterior.mean(new.rename(columns={"x": "z"}), known)


def test_two_kinds_of_nodes_and_a_graph() -> None:
    rng = np.random.default_rng(2)
    drugs = pd.DataFrame(rng.normal(size=(5, 2)), columns=["x", "y"])
    targets = pd.DataFrame(rng.normal(size=(4, 1)), index=list("abcd"), columns=["z"])
    links = pd.DataFrame({"source": ["a", "b", "c"], "target": ["b", "c", "d"]})
    data = RelationData.from_tables(
        drugs, rng.normal(size=(5, 4)), targets, object_relations={"like": links}
    )
    posterior = Exact(conditional_ranking).run(0, data)
    assert {"object_attributes_lengthscale", "object_like_amplitude", "object_like_range"} <= set(
        posterior.hyperparameters
    )
    assert posterior.mean().shape == (5, 4)
    with pytest.raises(UnsupportedProgramError, match="graph"):
        posterior.mean(None, pd.DataFrame([[0.1]], columns=["z"]))
    late = pd.DataFrame([[0.1, 0.2]], index=["late"], columns=["x", "y"])
    assert np.isfinite(posterior.ranking(late)["sd"]).all()


def test_iterations_that_did_not_converge_are_told_with_every_answer(problem: Any) -> None:
    data = problem("none", False)
    with pytest.raises(InferenceError, match="iterations_not_converged"):
        Exact(conditional_ranking, fixed=FIXED, max_iterations=1).run(0, data)
    posterior = Exact(conditional_ranking, fixed=FIXED, max_iterations=1, throw=False).run(0, data)
    with pytest.warns(InferenceWarning, match="iterations_not_converged"):
        posterior.mean()
    with pytest.warns(InferenceWarning):
        posterior.ranking("n2")


def test_iterations_are_watched_ended_and_started_from(problem: Any) -> None:
    data = problem("none", False)
    seen: list[int] = []
    run: Any = partial(Exact, conditional_ranking, fixed=FIXED)
    whole = run(callback=lambda iteration, dual, residual: seen.append(iteration)).run(0, data)
    assert seen == list(range(1, whole.info["iterations"] + 1))
    again = run(start=whole).run(0, data)
    assert again.info["iterations"] < 2
    pd.testing.assert_frame_equal(again.mean(), whole.mean(), atol=1e-9)
    ended = run(callback=lambda iteration, dual, residual: iteration == 2).run(0, data)
    assert ended.info["iterations"] == 2
    with pytest.warns(InferenceWarning, match="iterations_not_converged"):
        ended.mean()
    with pytest.raises(DataError, match="start is a posterior"):
        run(start=Exact(conditional_ranking, fixed=FIXED).run(0, problem())).run(0, data)


def test_what_is_refused(problem: Any) -> None:
    data = problem("symmetric")
    with pytest.raises(UnsupportedProgramError, match="no evidence"):
        Exact(conditional_ranking).run(0, data)
    fitted = Exact(conditional_ranking, fixed=FIXED).run(
        0, data
    )  # with all of them known there is an answer
    assert_allclose(fitted.mean(), fitted.mean().T, atol=1e-9)
    with pytest.raises(DataError, match="'nose'"):
        Exact(conditional_ranking, fixed={"nose": 1.0}).run(0, data)
    with pytest.raises(UnsupportedProgramError, match="CentredNormal"):
        EP(conditional_ranking, fixed=FIXED).run(0, data)

    def dense(data: RelationData) -> None:
        field = numpyro.sample("f", GaussianProcess(Dense(jnp.eye(36))))
        numpyro.sample("label", dist.Normal(field, 1.0), obs=data.values.values)

    with pytest.raises(UnsupportedProgramError, match="Dense"):
        Exact(dense).run(0, problem())

    def other(data: RelationData) -> None:
        from relpref.linalg import Kronecker

        eye = Dense(jnp.eye(6))
        field = numpyro.sample("f", GaussianProcess(Kronecker(eye, eye)))
        numpyro.sample("label", dist.Normal(field**2, 1.0), obs=data.values.values)

    with pytest.raises(UnsupportedProgramError, match="single pairs"):
        Exact(other).run(0, problem())


def test_a_singular_kernel(problem: Any) -> None:
    posterior = Exact(
        partial(conditional_ranking, node_kernel=Linear(shared_lengthscale=True)),
        fixed={"attributes_amplitude": 1.0, "noise": 0.3},
    ).run(0, problem())
    assert np.isfinite(posterior.sd().to_numpy()).all()


def test_known_labels_without_noise_have_an_evidence(problem: Any) -> None:
    posterior = Exact(conditional_ranking, fixed={**FIXED, "noise": 0.0}, throw=False).run(
        0, problem("none", False), loss="regression"
    )
    assert posterior.log_evidence is not None
    assert np.isfinite(posterior.log_evidence)
