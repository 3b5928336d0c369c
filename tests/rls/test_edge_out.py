"""Hold-outs against stored answers and against training again without the labels left out."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from relpref.data.relation_data import SIGN, RelationValues
from relpref.errors import DataError, InferenceError
from relpref.infer.exact.domain import Domain
from relpref.infer.exact.solve import RelationProblem
from relpref.kernels import Side
from relpref.rls import (
    leave_column_out,
    leave_edge_out,
    leave_nodes_out,
    leave_object_pairs_out,
    leave_row_out,
)

GOLD = Path(__file__).parents[1] / "gold" / "rls.npz"
LAMBDAS = [1e-6, 0.3, 20.0]
TOLERANCE = 1e-7  # at λ = 1e-6; the retraining that is compared with is no more exact


def domain(name: str, features: Any, gamma: float = 0.5) -> Domain:
    def kernel(left: Any, right: Any = None) -> Any:
        right = left if right is None else right
        return np.exp(-gamma * np.sum((left[:, None] - right) ** 2, axis=-1))

    return Domain(tuple(f"{name}{i}" for i in range(len(features))), features, kernel, name)


def problem(
    loss: str = "regression", symmetry: str = "none", p: int = 6, m: int = 7, **options: Any
) -> RelationProblem:
    """Labels with a structure that can be learned, and noise."""
    rng = np.random.default_rng(1)
    nodes = domain("node", rng.standard_normal((p, 3)))
    objects = nodes if symmetry != "none" else domain("object", rng.standard_normal((m, 3)))
    labels = nodes.features @ rng.standard_normal((3, 3)) @ objects.features.T
    labels += 0.3 * rng.standard_normal(labels.shape) + 3.0 * rng.standard_normal((len(labels), 1))
    sign = SIGN[symmetry]
    labels = labels if not sign else labels + sign * labels.T
    if options.pop("incomplete", False):
        gone = rng.uniform(size=labels.shape) < 0.15
        labels[gone | gone.T if sign else gone] = np.nan
    values = RelationValues.of_matrix(labels)
    return RelationProblem(nodes, objects, values, loss=loss, symmetry=symmetry, **options)  # type: ignore[arg-type]


def retrained(of: RelationProblem, regularization: float, out: Any, offsets: bool = True) -> Any:
    """Scores of the pairs ``out``, a mask (p, m), from all other labels by the full system."""
    values = of.values
    left, right = Side.training(of.nodes.gram), Side.training(of.objects.gram)
    kept = ~out[values.rows, values.columns]
    edges = values.rows[kept], values.columns[kept]
    asked_rows, asked_columns = np.nonzero(out)
    gram = of.kernel.matrix(left, right, *edges, *edges) + regularization * np.eye(int(kept.sum()))
    cross = of.kernel.matrix(left, right, asked_rows, asked_columns, *edges)
    y = values.values[kept]
    if of.loss == "regression":
        return cross @ np.linalg.solve(gram, y)
    present = np.unique(edges[0])
    flat = (edges[0][:, None] == present).astype(float)
    system = np.block([[gram, flat], [flat.T, np.zeros((len(present), len(present)))]])
    solution = np.linalg.solve(system, np.append(y, np.zeros(len(present))))
    scores = cross @ solution[: len(y)]
    if offsets:
        scores += (asked_rows[:, None] == present).astype(float) @ solution[len(y) :]
    return scores


def mask(shape: tuple[int, int], *pairs: tuple[Any, Any]) -> Any:
    out = np.zeros(shape, dtype=bool)
    for pair in pairs:
        out[pair] = True
    return out


def test_gold() -> None:
    gold = np.load(GOLD)
    both = domain("node", gold["nodes"], float(gold["node_gamma"]))
    values = RelationValues.of_matrix(gold["relation"])
    given = RelationProblem(both, both, values, loss="regression")
    found = leave_edge_out(given, list(gold["kron_regularization"]))
    assert_allclose(found[-1], gold["kron_in_sample_loo_last"], atol=1e-10)


ALL = slice(None)


@pytest.mark.parametrize(
    "leave, loss, symmetry, places",
    [
        (leave_edge_out, "regression", "none", [(0, 0), (3, 5), (5, 2)]),
        (leave_edge_out, "ranking", "none", [(0, 0), (3, 5), (5, 2)]),
        (leave_edge_out, "regression", "symmetric", [(0, 1), (4, 2), (3, 3)]),
        (leave_edge_out, "regression", "reciprocal", [(0, 1), (4, 2), (3, 3)]),
        (leave_row_out, "regression", "none", [(0, ALL), (4, ALL)]),
        (leave_row_out, "ranking", "none", [(0, ALL), (4, ALL)]),
        (leave_column_out, "regression", "none", [(ALL, 0), (ALL, 6)]),
        (leave_column_out, "ranking", "none", [(ALL, 0), (ALL, 6)]),
    ],
)
def test_closed_forms_are_retraining(leave: Any, loss: str, symmetry: str, places: Any) -> None:
    given = problem(loss, symmetry)
    for held_out, regularization in zip(leave(given, LAMBDAS), LAMBDAS, strict=True):
        for place in places:
            gone = mask(given.values.shape, place)
            if symmetry != "none":  # both directions leave together
                gone |= gone.T
            scores = np.full(gone.shape, np.nan)
            scores[gone] = retrained(given, regularization, gone)
            expected = scores[place]
            if leave is leave_row_out and loss == "ranking":
                expected = expected - expected.mean()
            assert_allclose(held_out[place], expected, atol=TOLERANCE)


@pytest.mark.parametrize("symmetry", ["none", "symmetric", "reciprocal"])
def test_some_edges_are_those_among_all(symmetry: str) -> None:
    given, some = problem("regression", symmetry), np.array([(4, 2), (3, 3), (2, 4), (0, 1)])
    expected = leave_edge_out(given, LAMBDAS)[:, some[:, 0], some[:, 1]]
    found = leave_edge_out(given, LAMBDAS, some)
    assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_what_all_objects_share_ranks_none() -> None:
    # Their kernel is a million larger than what tells them apart, as of features far from the
    # origin.
    given = problem("ranking")
    near = given.objects.kernel
    far = replace(given.objects, kernel=lambda *sides: near(*sides) + 1e6)
    found = leave_row_out(replace(given, objects=far), [0.3])
    assert_allclose(found, leave_row_out(given, [0.3]), atol=1e-6)


@pytest.mark.parametrize(
    "loss, symmetry",
    [
        ("regression", "none"),
        ("ranking", "none"),
        ("regression", "symmetric"),
        ("regression", "reciprocal"),
    ],
)
def test_two_objects_of_a_node(loss: str, symmetry: str) -> None:
    given = problem(loss, symmetry)
    p, m = given.values.shape
    labels = given.values.matrix
    for found, regularization in zip(leave_object_pairs_out(given, LAMBDAS), LAMBDAS, strict=True):
        for v in (0, 4):
            right = []
            for w, z in combinations([w for w in range(m) if symmetry == "none" or w != v], 2):
                gone = mask((p, m), (v, w), (v, z))
                if symmetry != "none":
                    gone |= gone.T
                scores = np.full((p, m), np.nan)
                scores[gone] = retrained(given, regularization, gone)
                right.append((scores[v, w] > scores[v, z]) == (labels[v, w] > labels[v, z]))
            assert found.values[v] == pytest.approx(np.mean(right), abs=1e-12)


def test_pairs_with_equal_labels_do_not_count() -> None:
    given = problem()
    matrix = given.values.matrix.copy()
    matrix[:2] = np.ones(7), np.repeat([0.0, 1.0], [3, 4])
    changed = replace(given, values=RelationValues.of_matrix(matrix))
    (found,) = leave_object_pairs_out(changed, [0.3])
    assert np.flatnonzero(np.isnan(found.values)).tolist() == [0]
    assert found.values[1] * 12 == pytest.approx(round(found.values[1] * 12))


CASES = [
    ("regression", "none", "kronecker"),
    ("ranking", "none", "kronecker"),
    ("ranking", "none", "cartesian"),
    ("regression", "symmetric", "kronecker"),
    ("ranking", "reciprocal", "kronecker"),
    ("regression", "symmetric", "mlpk"),
]


@pytest.mark.parametrize("loss, symmetry, pairs", CASES)
@pytest.mark.parametrize("incomplete", [False, True])
@pytest.mark.parametrize("setting", [2, 3, 4])
def test_new_nodes_in_folds(
    loss: str, symmetry: str, pairs: str, incomplete: bool, setting: int
) -> None:
    given = problem(loss, symmetry, p=7, m=7, pair_kernel=pairs, incomplete=incomplete)
    folds = np.array([0, 1, 2, 0, 1, 2, 0])
    found = leave_nodes_out(
        given,
        [5.0, 0.5],
        rows=folds if setting != 3 else None,
        columns=folds if setting != 2 else None,
        tol=1e-11,
    )
    same = given.nodes is given.objects
    for v, w in [(0, 1), (3, 2), (6, 0), (1, 5), (2, 2)]:
        gone = mask(given.values.shape)
        if setting != 3:
            gone[folds == folds[v]] = True
        if setting != 2:
            gone[:, folds == folds[w]] = True
        if same:
            gone |= gone.T
        place = np.flatnonzero(np.flatnonzero(gone) == v * 7 + w)[0]
        expected = retrained(given, 0.5, gone, offsets=False)[place]
        assert_allclose(found[1, v, w], expected, atol=1e-8)


@pytest.mark.parametrize("symmetry", ["symmetric", "reciprocal"])
def test_leaks_are_refused(symmetry: Any) -> None:
    leave: Any
    mirrored = problem("regression", symmetry)
    for leave in (leave_row_out, leave_column_out):
        with pytest.raises(DataError, match="leaves out both; use leave_nodes_out"):
            leave(mirrored, [1.0])
    untold = RelationProblem(mirrored.nodes, mirrored.objects, mirrored.values, loss="ranking")
    for leave in (leave_edge_out, leave_row_out, leave_column_out, leave_object_pairs_out):
        with pytest.raises(DataError, match=f"the labels are {symmetry}, but symmetry is 'none'"):
            leave(untold, [1.0])


def test_refusals() -> None:
    given, part = problem(), problem(incomplete=True)
    folds = np.arange(6) % 2
    both, ended = {"rows": folds, "columns": 1 - folds}, {"rows": folds, "max_iterations": 2}
    leave: Any
    for leave, args, options, message in (
        (leave_row_out, (part, [1.0]), {}, "need a completely observed relation"),
        (leave_edge_out, (given, [0.0]), {}, "regularization is 0"),
        (leave_edge_out, (given, [1.0], [0, 1]), {}, "a row and a column for each"),
        (leave_edge_out, (given, [1.0], [(0, 7)]), {}, "there are 6 x 7"),
        (leave_object_pairs_out, (problem(m=2), [1.0]), {}, "there are 2 objects"),
        (leave_nodes_out, (given, [1.0]), {}, "no folds"),
        (leave_nodes_out, (given, [1.0]), {"rows": 0 * folds}, "1 of them distinct"),
        (leave_nodes_out, (problem(symmetry="symmetric"), [1.0]), both, "the same fold numbers"),
        (leave_nodes_out, (part, [1.0]), ended, "max_iterations after 2 iterations"),
    ):
        with pytest.raises((DataError, InferenceError), match=message):
            leave(*args, **options)
