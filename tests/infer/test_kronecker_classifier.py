"""The classifier of edges against a Gaussian process on edges, written out, and another expectation
propagation.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from numpyro.infer.util import log_density

from relpref import RelationData
from relpref.errors import DataError
from relpref.infer import EP
from relpref.kernels import Linear, Precomputed
from relpref.models import edge_landmarks, kronecker_classifier

RNG = np.random.default_rng(3)
NODES = pd.DataFrame(RNG.normal(size=(5, 2)), index=list("abcde"), columns=["x", "y"])
OBJECTS = pd.DataFrame(RNG.normal(size=(3, 2)), index=list("uvw"), columns=["x", "y"])
NEW = pd.DataFrame(RNG.normal(size=(2, 2)), index=["new", "newer"], columns=["x", "y"])
LENGTHSCALES = {"attributes_lengthscale": [1.1, 0.7], "object_attributes_lengthscale": [0.6, 1.4]}
AMPLITUDE, INTERCEPT_SD = 1.8, 2.0
SIGNS = {"none": 0.0, "symmetric": 1.0, "reciprocal": -1.0}


def relation(symmetry: str = "none") -> RelationData:
    """Ten known edges, or the ten pairs of five nodes."""
    rng = np.random.default_rng(0)
    if symmetry == "none":
        labels = rng.integers(0, 2, (5, 3)).astype(float)
        labels[np.arange(5), [2, 0, 1, 2, 1]] = np.nan
        return RelationData.from_tables(NODES, labels, OBJECTS)
    upper = np.triu(rng.integers(0, 2, (5, 5)).astype(float), 1)
    lower = np.tril(np.ones((5, 5)), -1) - upper.T if symmetry == "reciprocal" else upper.T
    labels = upper + lower
    labels[np.diag_indices(5)] = np.nan
    return RelationData.from_tables(NODES, labels, symmetry=symmetry)  # type: ignore[arg-type]


def lengthscales(data: RelationData) -> dict[str, Any]:
    both = data.objects is not None
    return {
        name: value for name, value in LENGTHSCALES.items() if both or not name.startswith("object")
    }


def written_out(data: RelationData, edges: Any, other: Any) -> NDArray[np.float64]:
    """The kernel between edges, one by one."""

    def between(nodes: Any, site: str) -> Any:
        points = nodes.standardized_attributes() / np.array(LENGTHSCALES[site])
        return lambda i, j: np.exp(-0.5 * np.sum((points[i] - points[j]) ** 2))

    left = between(data.nodes, "attributes_lengthscale")
    right = left if data.objects is None else between(data.objects, "object_attributes_lengthscale")
    sign = SIGNS[data.symmetry]
    found = np.empty((len(edges[0]), len(other[0])))
    for i, (v, w) in enumerate(zip(*edges, strict=True)):
        for j, (a, b) in enumerate(zip(*other, strict=True)):
            found[i, j] = left(v, a) * right(w, b)
            if sign:
                found[i, j] = 0.5 * (found[i, j] + sign * left(v, b) * left(w, a))
    return found


def known(data: RelationData) -> tuple[Any, Any, Any]:
    """Each edge once: its ends, and whether its label is the higher one."""
    chosen = data.values.rows < data.values.columns if data.objects is None else slice(None)
    return data.values.rows[chosen], data.values.columns[chosen], data.values.values[chosen] > 0


@pytest.mark.slow
@pytest.mark.parametrize("symmetry", SIGNS)
def test_all_edges_as_landmarks_are_the_process_itself(
    symmetry: str, expectation_propagation: Any
) -> None:
    data = relation(symmetry)
    values = lengthscales(data)
    landmarks = edge_landmarks(data, values=values)
    assert len(landmarks) == 10 and landmarks.error == pytest.approx(0, abs=1e-9)
    engine = EP(kronecker_classifier, fixed=values | {"amplitude": AMPLITUDE})
    found: Any = engine.run(0, data, landmarks=landmarks)

    # Asked about: known and new nodes on either side, in either direction.
    both = data.objects is not None
    larger = data.extended(NEW, NEW if both else None)
    asked = np.array([0, 1, 5, 6, 5]), np.array([1, 3, 2, 4, 0] if both else [1, 4, 2, 1, 6])
    rows, columns, outcome = known(data)
    edges = np.append(rows, asked[0]), np.append(columns, asked[1])
    # The intercept is one more part of the process.
    covariance = (
        AMPLITUDE**2 * written_out(larger, edges, edges)
        + (symmetry != "reciprocal") * INTERCEPT_SD**2
    )
    projection = np.where(outcome, 1.0, -1.0)[:, None] * np.eye(10, 15)
    truth = expectation_propagation(covariance, projection)
    assert found.log_evidence == pytest.approx(truth.log_evidence, abs=1e-7)

    latent = found.latent(larger.asking(*asked))
    assert_allclose(latent["mean"], truth.mean[10:], atol=1e-7)
    assert_allclose(latent["sd"], np.sqrt(np.diagonal(truth.covariance)[10:]), atol=1e-7)
    probability = found.predict_proba(larger.asking(*asked))[1]
    back = found.predict_proba(larger.asking(*asked[::-1]))[1] if not both else probability
    assert_allclose(back, 1 - probability if symmetry == "reciprocal" else probability, atol=1e-12)


@pytest.mark.parametrize("symmetry", ["symmetric", "reciprocal"])
def test_a_relation_known_in_full_is_traced_like_any_other(symmetry: Any) -> None:
    data = relation(symmetry)
    labels = data.values.mean_matrix + data.shift
    labels[np.diag_indices(5)] = data.shift
    full = RelationData.from_tables(NODES, labels, symmetry=symmetry)
    assert full.values.complete and full.distinct is not None
    landmarks = edge_landmarks(full, values=lengthscales(full))
    fixed = {name: jnp.asarray(value) for name, value in lengthscales(full).items()}
    sites = fixed | {"amplitude": jnp.asarray(AMPLITUDE), "weight": jnp.ones((1, len(landmarks)))}
    if symmetry == "symmetric":
        sites["intercept"] = jnp.zeros(1)

    def density(data: Any) -> Any:
        return log_density(kronecker_classifier, (data,), {"landmarks": landmarks}, sites)[0]

    with jax.enable_x64(True):
        assert jax.eval_shape(density, full).shape == ()


def test_the_landmarks_are_those_of_the_kernel_at_the_medians() -> None:
    """The means are taken where a prior has no quantiles."""
    data = relation()
    gammas = {name: dist.Gamma(2.0, 4.0).expand([2]).to_event(1) for name in LENGTHSCALES}
    for priors, value in ((None, np.sqrt(2)), (gammas, 0.5)):
        landmarks = edge_landmarks(data, 4, priors=priors)
        values = {name: np.full(2, value) for name in LENGTHSCALES}
        again = edge_landmarks(data, 4, values=values)
        assert landmarks.rows.tolist() == again.rows.tolist()
        assert landmarks.error == pytest.approx(again.error)
        assert 0 < landmarks.error < 1 and len(landmarks) == 4


def test_labels_of_other_kinds_are_refused_where_they_stand() -> None:
    labels = np.full((5, 3), np.nan)
    labels[0] = 0, 1, 2
    with pytest.raises(
        DataError, match=r"the label of \('a', 'w'\) is 2; a classifier takes 0 and 1$"
    ):
        edge_landmarks(RelationData.from_tables(NODES, labels, OBJECTS))
    square = np.zeros((5, 5))
    with pytest.raises(
        DataError, match=r"the label of \('a', 'b'\) is 0; .* -1 and 1; leave ties out"
    ):
        edge_landmarks(RelationData.from_tables(NODES, square, symmetry="reciprocal"))
    games = pd.DataFrame({"source": ["a", "b"], "target": ["b", "c"], "value": [1.0, -1.0]})
    assert len(edge_landmarks(RelationData.from_tables(NODES, games, symmetry="reciprocal"))) == 2


def test_what_does_not_exist_is_refused() -> None:
    data = relation()
    with pytest.raises(
        DataError,
        match="values names the site 'range'.*there are attributes_lengthscale, "
        "object_attributes_lengthscale",
    ):
        edge_landmarks(data, values={"range": 1.0})
    with pytest.raises(DataError, match="object_kernel is given"):
        edge_landmarks(relation("symmetric"), object_kernel=Linear())
    with pytest.raises(DataError, match="no edge varies"):
        edge_landmarks(data, node_kernel=Precomputed(np.zeros((5, 5))))
    with pytest.raises(DataError, match="not positive semidefinite"):
        edge_landmarks(data, node_kernel=Precomputed(np.diag([1.0, -1.0, 1.0, 1.0, 1.0])))


def test_what_would_not_fit_is_refused_before_landmarks_are_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("relpref.limits.available_memory", lambda: 10 * 8.0 * 10 * 4)
    assert len(edge_landmarks(relation(), 4)) == 4
    with pytest.raises(
        DataError, match="a classifier of 10 edges with up to 5 landmarks needs .* of memory"
    ):
        edge_landmarks(relation(), 5)
    with pytest.raises(DataError, match="10 edges with up to 10 landmarks"):
        edge_landmarks(relation())


def test_only_nodes_that_begin_with_the_known_ones_can_be_asked_about() -> None:
    known = relation()
    matrix = np.full((5, 3), np.nan)
    matrix[known.values.rows, known.values.columns] = known.values.values
    known.extended(NEW).asking(np.array([6]), np.array([0])).asked_of(known)
    RelationData.from_tables(NODES, np.ones((5, 3)), OBJECTS).asked_of(known)
    for message, nodes, objects, labels in (
        ("its nodes do not begin with", NODES[::-1], OBJECTS, matrix[::-1]),
        ("its nodes do not begin with", NODES[1:], OBJECTS, matrix[1:]),
        ("its objects do not begin with", NODES, OBJECTS[:2], matrix[:, :2]),
        ("the attributes of its nodes are not those", NODES[["y", "x"]], OBJECTS, matrix),
        (
            "standardized otherwise",
            pd.concat([NODES, NEW]),
            OBJECTS,
            np.vstack([matrix, np.ones((2, 3))]),
        ),
        ("of another kind", NODES, None, np.ones((5, 5))),
    ):
        with pytest.raises(DataError, match=message):
            RelationData.from_tables(nodes, labels, objects).asked_of(known)
