"""The evidence of relations: its gradient, its maximum, and NUTS on the same program."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from relpref import RelationData
from relpref.infer import Exact
from relpref.infer.call import Call
from relpref.infer.exact.engine import evaluation
from relpref.infer.exact.structure import find_structure
from relpref.infer.sites import Sites
from relpref.models import conditional_ranking


@pytest.mark.parametrize(
    ("symmetry", "complete", "loss"),
    [
        ("none", True, "ranking"),
        ("none", False, "ranking"),
        ("reciprocal", True, "regression"),
        ("symmetric", False, "regression"),
    ],
)
def test_evidence_gradient(problem: Any, symmetry: str, complete: bool, loss: str) -> None:
    data = problem(symmetry, complete)
    with jax.enable_x64(True):
        call, arrays = Call.split(conditional_ranking, (data,), {"loss": loss})
        structure = find_structure(call, arrays, {})
        assert (structure.symmetry, structure.values.complete, structure.loss) == (
            symmetry,
            complete,
            loss,
        )
        evaluate = evaluation(structure)
        sites = Sites(jnp.zeros(0), jnp.zeros(0))
        at = {name: jnp.asarray(value) + 0.1 for name, value in structure.program.medians.items()}
        gradient = evaluate(at, sites).gradient
        for name, value in at.items():
            for entry in np.ndindex(value.shape):
                step = np.zeros(value.shape)
                step[entry] = 1e-5
                ends = [evaluate({**at, name: value + sign * step}, sites) for sign in (1, -1)]
                rise = [float(end.log_evidence + end.log_prior) for end in ends]
                assert (rise[0] - rise[1]) / 2e-5 == pytest.approx(
                    float(gradient[name][entry]), abs=1e-6
                )


@pytest.mark.parametrize(
    ("symmetry", "loss"),
    [
        ("none", "ranking"),
        ("none", "regression"),
        ("symmetric", "regression"),
        ("reciprocal", "regression"),
    ],
)
def test_the_evidence_of_edges_is_that_of_the_closed_form(
    problem: Any, symmetry: Any, loss: Any
) -> None:
    from relpref.infer.exact.domain import Domain
    from relpref.infer.exact.solve import RelationProblem

    kernel = np.cov(np.random.default_rng(0).normal(size=(6, 20)))
    nodes = Domain(tuple(range(6)), None, lambda _: kernel)
    closed = RelationProblem(nodes, nodes, problem(symmetry).values, loss, symmetry)
    by_form, by_edges = closed.direct(0.3), closed.direct(0.3).by_edges()
    assert by_edges.log_evidence() == pytest.approx(by_form.log_evidence(), abs=1e-9)
    expected, gradient = by_form.evidence_gradient(), by_edges.evidence_gradient()
    assert_allclose(gradient.left + gradient.right, expected.left + expected.right, atol=1e-8)
    assert gradient.noise == pytest.approx(expected.noise, abs=1e-8)
    everyone = nodes.ask()
    assert_allclose(by_edges.mean(everyone, everyone), by_form.mean(everyone, everyone), atol=1e-10)


@pytest.mark.parametrize("seed", [0, 2])
def test_labels_without_noise_have_an_answer(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = pd.DataFrame(rng.normal(size=(12, 2)), columns=["x", "y"])
    weights = rng.normal(size=(2, 2))
    labels = nodes.to_numpy() @ (weights - weights.T) @ nodes.to_numpy().T
    data = RelationData.from_tables(nodes, labels, symmetry="reciprocal")
    posterior = Exact(conditional_ranking).run(0, data, loss="regression")
    assert posterior.hyperparameters["noise"] < 1e-4
    assert_allclose(posterior.mean(), labels, atol=1e-3)


@pytest.mark.slow
def test_incomplete_labels_without_noise_are_solved_directly() -> None:
    rng = np.random.default_rng(0)
    nodes = pd.DataFrame(rng.normal(size=(14, 2)), columns=["x", "y"])
    labels = np.sin(nodes.to_numpy() @ rng.normal(size=(2, 2)) @ nodes.to_numpy().T)
    known = np.where(rng.random((14, 14)) < 0.3, np.nan, labels)
    posterior = Exact(conditional_ranking).run(
        0, RelationData.from_tables(nodes, known), loss="regression"
    )
    assert posterior.info["solver"] == "factor of the edges' kernel"
    gap = np.abs(posterior.mean().to_numpy() - known)
    assert np.nanmax(gap) < 0.02


@pytest.mark.parametrize("loss", ["regression", "ranking"])
def test_the_precision_of_a_label_is_what_the_dual_makes_of_it(loss: Any) -> None:
    from relpref.infer.exact.closed import KroneckerSystem
    from relpref.linalg import symmetric_eigen

    rng = np.random.default_rng(3)
    left, right = (
        symmetric_eigen(x @ x.T, "kernel")
        for x in (rng.normal(size=(3, 3)), rng.normal(size=(4, 4)))
    )

    def dual(labels: Any) -> Any:
        return KroneckerSystem(left, right, labels, loss).solve(0.7).dual.ravel()

    precision = np.stack([dual(unit.reshape(3, 4)) for unit in np.eye(12)])
    assert_allclose(precision, precision.T, atol=1e-12)
    fit = KroneckerSystem(left, right, rng.normal(size=(3, 4)), loss).solve(0.7)
    rows, columns = np.divmod(np.arange(12), 4)
    assert_allclose(fit.label_precision(rows, columns), np.diagonal(precision), rtol=1e-9)
    for node in range(3):
        block = precision[4 * node : 4 * node + 4, 4 * node : 4 * node + 4]
        assert_allclose(fit.node_precision(node), block, atol=1e-10)
