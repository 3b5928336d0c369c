"""The exact engine: against EP on the same program, against the closed form, and for nodes that come later."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

from relpref import RelationData
from relpref.errors import DataError, InferenceError, UnsupportedProgramError
from relpref.infer import EP, Exact, InferenceWarning
from relpref.infer.exact.engine import _evidence_of, _Reader
from relpref.infer.exact.structure import find_structure
from relpref.infer.program import Call, in_double
from relpref.kernels import GaussianProcess, Linear
from relpref.linalg import Dense
from relpref.models import conditional_ranking

FIXED = {"attributes_amplitude": 1.2, "attributes_lengthscale": 0.9, "noise": 0.4}


def problem(symmetry: Any = "none", complete: bool = True, n: int = 6) -> RelationData:
    rng = np.random.default_rng(5)
    nodes = pd.DataFrame(rng.normal(size=(n, 2)), index=[f"n{i}" for i in range(n)], columns=["x", "y"])
    labels = rng.normal(size=(n, n))
    if symmetry != "none":
        labels = 0.5 * (labels + {"symmetric": 1, "reciprocal": -1}[symmetry] * labels.T)
    if not complete:
        unknown = rng.random((n, n)) < 0.3
        labels[unknown | (unknown.T if symmetry != "none" else False)] = np.nan
    return RelationData.from_tables(nodes, labels, symmetry=symmetry)


@pytest.mark.parametrize(
    ("symmetry", "complete"), [("none", True), ("none", False), ("symmetric", False), ("reciprocal", True)]
)
def test_regression_is_what_ep_finds(symmetry: str, complete: bool) -> None:
    data = problem(symmetry, complete)
    exact = Exact(conditional_ranking, fixed=FIXED).run(0, data, loss="regression")
    ep = EP(conditional_ranking, fixed=FIXED).run(0, data, loss="regression")
    sign = {"none": 0, "symmetric": 1, "reciprocal": -1}[symmetry]
    field = ep.mean().reshape(6, 6)
    scores = 0.5 * (field + sign * field.T) if sign else field
    np.testing.assert_allclose(exact.mean(), scores, atol=1e-7)
    assert exact.log_evidence == pytest.approx(ep.log_evidence, abs=1e-6)
    if complete:
        assert exact.info["solver"] == "closed form"
    weights = np.zeros((6, 36))
    for w in range(6):
        weights[w, 6 * 2 + w] += 1 if not sign else 0.5
        weights[w, 6 * w + 2] += 0 if not sign else 0.5 * sign
    np.testing.assert_allclose(exact.belief("n2").covariance(), ep.covariance(weights), atol=1e-7)


@pytest.mark.parametrize(
    ("symmetry", "complete", "loss"),
    [
        ("none", True, "ranking"),
        ("none", False, "ranking"),
        ("reciprocal", True, "regression"),
        ("symmetric", False, "regression"),
    ],
)
def test_evidence_gradient(symmetry: str, complete: bool, loss: str) -> None:
    data = problem(symmetry, complete)
    with jax.enable_x64(True):
        call, arrays = Call.split(conditional_ranking, (data,), {"loss": loss})
        arrays = tuple(in_double(a) for a in arrays)
        structure = find_structure(call, arrays, {})
        assert (structure.symmetry, structure.values.complete, structure.loss) == (symmetry, complete, loss)
        reader = _Reader(call, arrays, structure, {})
        evaluate = _evidence_of(structure, "auto")
        at = {name: jnp.asarray(value) + 0.1 for name, value in structure.medians.items()}
        gradient = reader.evidence(at, evaluate).gradient
        for name, value in at.items():
            for entry in np.ndindex(value.shape):
                step = np.zeros(value.shape)
                step[entry] = 1e-5
                ends = [reader.evidence({**at, name: value + sign * step}, evaluate) for sign in (1, -1)]
                rise = [float(end.log_evidence + end.log_prior) for end in ends]
                assert (rise[0] - rise[1]) / 2e-5 == pytest.approx(float(gradient[name][entry]), abs=1e-6)


def test_the_evidence_of_edges_is_that_of_the_closed_form() -> None:
    from relpref.infer.exact.closed import KroneckerSystem
    from relpref.infer.exact.edge_evidence import EdgeEvidence
    from relpref.linalg import symmetric_eigen

    rng = np.random.default_rng(0)
    kernel = np.cov(rng.normal(size=(6, 20)))
    cases: list[tuple[Any, Any]] = [
        ("none", "ranking"),
        ("none", "regression"),
        ("symmetric", "regression"),
        ("reciprocal", "regression"),
    ]
    for symmetry, loss in cases:
        values = problem(symmetry).values
        eigen = symmetric_eigen(kernel)
        closed = KroneckerSystem.of(eigen, eigen, values.matrix, loss, symmetry).solve(0.3)
        with jax.enable_x64(True):
            value, gradient = EdgeEvidence(values, loss, symmetry)(
                jnp.asarray(kernel), jnp.asarray(kernel), 0.3
            )
        assert value == pytest.approx(closed.log_evidence(), abs=1e-9)
        expected = closed.evidence_gradient()
        np.testing.assert_allclose(gradient.left + gradient.right, expected.left + expected.right, atol=1e-8)
        assert gradient.noise == pytest.approx(expected.noise, abs=1e-8)


def test_hyperparameters_are_found() -> None:
    """From 400 labels of a known model; the noise is known to about 4 percent, so 20 percent is five standard errors."""
    rng = np.random.default_rng(1)
    nodes = pd.DataFrame(rng.normal(size=(20, 1)), columns=["x"])
    x = ((nodes["x"] - nodes["x"].mean()) / nodes["x"].std(ddof=0)).to_numpy()
    kernel = np.exp(-0.5 * (x[:, None] - x) ** 2 / 0.8**2) + 1e-9 * np.eye(20)
    root = np.linalg.cholesky(kernel)
    labels = root @ rng.normal(size=(20, 20)) @ root.T + 0.3 * rng.normal(size=(20, 20))
    data = RelationData.from_tables(nodes, labels)
    found = Exact(conditional_ranking).run(0, data, loss="regression").hyperparameters
    assert found["noise"] == pytest.approx(0.3, rel=0.2)
    assert float(found["attributes_lengthscale"][0]) == pytest.approx(0.8, rel=0.5)
    ranked = Exact(conditional_ranking).run(0, data)
    assert ranked.hyperparameters["noise"] == pytest.approx(0.3, rel=0.2)
    assert ranked.info["result"] == "converged"


def test_labels_without_noise_have_an_answer() -> None:
    rng = np.random.default_rng(0)
    nodes = pd.DataFrame(rng.normal(size=(12, 2)), columns=["x", "y"])
    weights = rng.normal(size=(2, 2))
    labels = nodes.to_numpy() @ (weights - weights.T) @ nodes.to_numpy().T
    data = RelationData.from_tables(nodes, labels, symmetry="reciprocal")
    posterior = Exact(conditional_ranking).run(0, data, loss="regression")
    assert posterior.hyperparameters["noise"] < 1e-4
    np.testing.assert_allclose(posterior.mean(), labels, atol=1e-3)


@pytest.mark.parametrize("loss", ["ranking", "regression"])
def test_a_newcomer_is_a_node_with_unknown_labels(loss: Any) -> None:
    data = problem()
    table = pd.DataFrame(data.nodes.attributes, index=list(data.nodes.entities), columns=["x", "y"])
    new = pd.DataFrame([[0.2, -0.4]], index=["late"], columns=["x", "y"])
    labels = np.full((7, 7), np.nan)
    labels[:6, :6] = data.values.matrix
    # Without standardisation, so that the newcomer does not change the others' attributes.
    program = partial(conditional_ranking, standardize=False, loss=loss)
    posterior = Exact(program, fixed=FIXED).run(0, data)
    whole = Exact(program, fixed=FIXED).run(0, RelationData.from_tables(pd.concat([table, new]), labels))
    known = list(table.index)
    np.testing.assert_allclose(posterior.mean(new, known), whole.mean(["late"], known), atol=1e-8)
    np.testing.assert_allclose(posterior.mean(new, new), whole.mean(["late"], ["late"]), atol=1e-8)
    np.testing.assert_allclose(posterior.sd(new, new), whole.sd(["late"], ["late"]), atol=1e-7)
    np.testing.assert_allclose(posterior.sd(known, new), whole.sd(known, ["late"]), atol=1e-7)
    swapped = posterior.mean(new[["y", "x"]], known)
    pd.testing.assert_frame_equal(swapped, posterior.mean(new, known))
    with pytest.raises(DataError, match="'z'"):
        posterior.mean(new.rename(columns={"x": "z"}), known)


def test_two_kinds_of_nodes_and_a_graph() -> None:
    rng = np.random.default_rng(2)
    drugs = pd.DataFrame(rng.normal(size=(5, 2)), columns=["x", "y"])
    targets = pd.DataFrame(rng.normal(size=(4, 1)), index=list("abcd"), columns=["z"])
    links = pd.DataFrame({"source": ["a", "b", "c"], "target": ["b", "c", "d"]})
    data = RelationData.from_tables(drugs, rng.normal(size=(5, 4)), targets, object_relations={"like": links})
    posterior = Exact(conditional_ranking).run(0, data)
    assert {"object_attributes_lengthscale", "object_like_amplitude", "object_like_range"} <= set(
        posterior.hyperparameters
    )
    assert posterior.mean().shape == (5, 4)
    with pytest.raises(UnsupportedProgramError, match="graph"):
        posterior.mean(None, pd.DataFrame([[0.1]], columns=["z"]))
    late = pd.DataFrame([[0.1, 0.2]], index=["late"], columns=["x", "y"])
    assert np.isfinite(posterior.ranking(late)["sd"]).all()


def test_iterations_that_did_not_converge_are_told_with_every_answer() -> None:
    data = problem("none", False)
    with pytest.raises(InferenceError, match="iterations_not_converged"):
        Exact(conditional_ranking, fixed=FIXED, max_iterations=1).run(0, data)
    posterior = Exact(conditional_ranking, fixed=FIXED, max_iterations=1, throw=False).run(0, data)
    with pytest.warns(InferenceWarning, match="iterations_not_converged"):
        posterior.mean()
    with pytest.warns(InferenceWarning):
        posterior.ranking("n2")


def test_iterations_are_watched_ended_and_started_from() -> None:
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


def test_what_is_refused() -> None:
    data = problem("symmetric")
    with pytest.raises(UnsupportedProgramError, match="no evidence"):
        Exact(conditional_ranking).run(0, data)
    fitted = Exact(conditional_ranking, fixed=FIXED).run(0, data)  # with all of them known there is an answer
    np.testing.assert_allclose(fitted.mean(), fitted.mean().T, atol=1e-9)
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


@pytest.mark.parametrize(
    ("symmetry", "loss"),
    [pytest.param("none", "ranking", marks=pytest.mark.slow), ("reciprocal", "regression")],
)
def test_nuts_agrees(symmetry: str, loss: Any) -> None:
    """Means within 5 Monte Carlo standard errors at hyperparameters known; 72 numbers, false alarms below 1 in 10 000."""
    from numpyro.infer import MCMC, NUTS

    from relpref.infer import noncentered

    data = problem(symmetry)
    exact = Exact(conditional_ranking, fixed=FIXED).run(0, data, loss=loss)
    with jax.enable_x64(True):
        program: Any = numpyro.handlers.condition(
            noncentered(partial(conditional_ranking, loss=loss)),
            data={k: jnp.asarray(v) for k, v in FIXED.items()},
        )
        sampler = MCMC(NUTS(program), num_warmup=300, num_samples=3000, progress_bar=False)
        sampler.run(jax.random.key(0), data)
        draws = np.asarray(sampler.get_samples()["score"]).reshape(-1, 6, 6)
    if symmetry == "reciprocal":
        draws = 0.5 * (draws - draws.transpose(0, 2, 1))
    from numpyro.diagnostics import effective_sample_size

    apart = ~np.eye(6, dtype=bool) if symmetry == "reciprocal" else np.ones((6, 6), dtype=bool)
    seen, mean, sd = draws[:, apart], exact.mean().to_numpy()[apart], exact.sd().to_numpy()[apart]
    error = seen.std(axis=0) / np.sqrt(effective_sample_size(seen[None]))
    assert np.all(np.abs(seen.mean(axis=0) - mean) <= 5 * error)
    assert np.all(np.abs(np.log(seen.std(axis=0) / sd)) < 0.12)


def test_a_singular_kernel() -> None:
    posterior = Exact(
        partial(conditional_ranking, node_kernel=Linear(shared_lengthscale=True)),
        fixed={"attributes_amplitude": 1.0, "noise": 0.3},
    ).run(0, problem())
    assert np.isfinite(posterior.sd().to_numpy()).all()
