"""Input that the conditional ranker cannot use is named, or converted, and never gives a plausible
number.
"""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from relpref import RelationData
from relpref.errors import DataError, InferenceError, UnknownLabelError
from relpref.infer import Exact
from relpref.linalg import nearest_semidefinite
from relpref.models import conditional_ranking
from relpref.rls import ConditionalRanker

# Features as they are, and a λ that does not depend on the labels.
Ranker = partial(ConditionalRanker, standardize=False, regularization=1.0)

RNG = np.random.default_rng(9)
NODES, NEW = RNG.normal(size=(12, 2)), RNG.normal(size=(3, 2))
RELATION = RNG.normal(size=(12, 12))


def indefinite() -> Any:
    matrix = RNG.normal(size=(12, 12))
    return matrix + matrix.T


@pytest.mark.parametrize("gaps", [True, False])
def test_an_indefinite_kernel_is_named_also_by_the_iterations(gaps: bool) -> None:
    relation = RELATION.copy()
    if gaps:
        relation[0, :3] = np.nan
    kernel = indefinite()
    message = "kernel matrix of the nodes is indefinite.*nearest_semidefinite"
    with pytest.raises(DataError, match=message):
        Ranker("precomputed", solver="cg", regularization=1e-3).fit(kernel, relation)
    # A large λ hides it from the iterations; the uncertainty would be nonsense.
    hidden = Ranker("precomputed", solver="cg", regularization=200.0).fit(kernel, relation)
    with pytest.raises(DataError, match=message):
        hidden.posterior_.sd()
    good = Ranker("precomputed", solver="cg").fit(nearest_semidefinite(kernel), relation)
    assert (good.posterior_.sd() >= 0).all().all()


def test_a_tolerance_out_of_reach_is_no_solution() -> None:
    with pytest.raises(InferenceError, match="breakdown.*wider tolerance"):
        Ranker("gaussian", solver="cg", tol=1e-18).fit(NODES, RELATION)
    for options, words in (({"tol": -1.0}, "tol is -1.0"), ({"max_iter": 0}, "max_iter.* is 0")):
        with pytest.raises(DataError, match=words):
            Ranker("gaussian", solver="cg", **options).fit(NODES, RELATION)


@pytest.mark.parametrize("solver", ["closed", "cg"])
@pytest.mark.parametrize(
    "form", [sparse.csr_matrix, sparse.coo_array, pd.DataFrame, np.ndarray.tolist]
)
def test_features_of_single_precision_and_in_any_form(form: Any, solver: str) -> None:
    nodes, new = NODES.astype(np.float32), NEW.astype(np.float32)
    for kernel in ("linear", "gaussian"):
        options: dict[str, Any] = {"kernel": kernel, "gamma": 0.5, "solver": solver, "tol": 1e-12}
        double = Ranker(**options).fit(nodes.astype(np.float64), RELATION)
        single = Ranker(**options).fit(form(nodes), RELATION)
        assert single.posterior_.nodes.thin == (kernel == "linear")
        assert_allclose(single.predict(form(new)), double.predict(new.astype(float)), atol=1e-10)
        assert_allclose(
            single.posterior_.sd(form(new)), double.posterior_.sd(new.astype(float)), atol=1e-8
        )
        assert_allclose(single.predict([3, 1], [5]), double.predict([3, 1], [5]), atol=1e-10)


def test_options_of_kernels_reach_a_kernel_or_are_refused() -> None:
    def scaled(left: Any, right: Any, scale: float) -> Any:
        return scale * left @ right.T

    def times(left: Any, right: Any, factor: float) -> Any:
        return factor * left @ right.T

    objects, two, half = RNG.normal(size=(12, 3)), {"scale": 2.0}, {"factor": 0.5}
    gaussian: dict[str, Any] = {"object_kernel": "gaussian", "object_kernel_params": two}
    for kernel, options, given, message in (
        ("linear", {"kernel_params": two, "solver": "cg"}, None, "params .*kernel='linear'"),
        ("linear", gaussian, objects, "object_kernel_params .*kernel='gaussian'"),
        (scaled, {"kernel_params": two, "object_kernel_params": two}, None, "objects are not"),
    ):
        with pytest.raises(DataError, match=message):
            Ranker(kernel, **options).fit(NODES, RELATION, given)
    plain = Ranker("linear").fit(NODES, RELATION, objects).predict()
    for ranker in (
        Ranker(scaled, kernel_params=two, object_kernel=times, object_kernel_params=half),
        Ranker("linear", object_kernel=scaled, object_kernel_params={"scale": 1.0}),
        Ranker(scaled, kernel_params=two, regularization=4.0),
    ):
        predicted = ranker.fit(NODES, RELATION, objects).predict()
        assert_allclose(predicted, plain, atol=1e-10)


def test_labels_and_columns_occur_once() -> None:
    twice = pd.DataFrame(NODES, index=["a", "b", *"cdefghijka"], columns=["x", "y"])
    with pytest.raises(DataError, match="node 11.*'a' was already used at node 0"):
        Ranker().fit(twice, RELATION)
    with pytest.raises(DataError, match="column 'x' occurs more than once"):
        Ranker().fit(pd.DataFrame(NODES, columns=["x", "x"]), RELATION)
    ranker = Ranker().fit(pd.DataFrame(NODES, columns=["x", "y"]), RELATION)
    for columns in (["x", "x"], ["x", "z"]):
        with pytest.raises(DataError, match="the known ones have 'x', 'y'"):
            ranker.predict(pd.DataFrame(NEW, columns=columns))


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (pd.DataFrame({"x": list("abcdefghijkl")}), "features of the nodes.*numbers"),
        ([[1.0, 2.0]] * 11 + [[1.0]], "features of the nodes.*numbers"),
        (np.where(np.arange(24).reshape(12, 2) == 7, np.nan, 1.0), "nan.*row 3, column 1"),
        (np.ones((12, 2, 2)), "shape"),
        (np.ones((12, 0)), "shape"),
        (None, "shape"),
    ],
)
def test_features_that_are_none(nodes: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        Ranker().fit(nodes, RELATION)


def test_questions_that_make_no_sense() -> None:
    tuples = pd.DataFrame(NODES, columns=["x", "y"])
    tuples.index = pd.Index(["a", *[("n", i) for i in range(11)]], tupleize_cols=False)
    ranker = Ranker("gaussian").fit(tuples, RELATION)
    assert list(ranker.predict(["a", ("n", 3)]).index) == ["a", ("n", 3)]
    with pytest.raises(UnknownLabelError, match="'b'"):
        ranker.predict(["b", ("n", 3)])
    for new, words in (
        (np.ones((2, 3)), "new nodes have 3 features; the known ones have 2"),
        (sparse.csr_array(np.ones((2, 3))), "new nodes have 3 features; the known ones have 2"),
        ([[1.0, 2.0], [1.0]], "features of new nodes.*numbers"),
        (np.ones((0, 2)), "there are no new nodes"),
        (np.array(3.0), "is one label"),
        ([["x", "y"]], "features of new nodes.*numbers"),
        (np.array([[1.0, np.inf]]), "inf.*row 0, column 1"),
    ):
        with pytest.raises(DataError, match=words):
            ranker.predict(new)
    kernel = Ranker("precomputed").fit(NODES @ NODES.T, RELATION)
    with pytest.raises(DataError, match="new nodes have 2 kernel values; 12 are needed"):
        kernel.predict(NEW)


def test_the_number_of_features_of_a_program() -> None:
    data = RelationData.from_tables(pd.DataFrame(NODES, columns=["x", "y"]), RELATION)
    fixed = {"attributes_amplitude": 1.0, "attributes_lengthscale": 1.0, "noise": 0.5}
    posterior = Exact(conditional_ranking, fixed=fixed).run(0, data)
    with pytest.raises(DataError, match="new nodes have 3 features; the known ones have 2"):
        posterior.mean(np.ones((2, 3)))


def test_memory_of_the_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    """A complete symmetric ranking of 12 nodes needs more than its kernel matrices."""
    problem = Ranker(symmetry="symmetric").problem(NODES, RELATION + RELATION.T)
    assert problem.nodes.gram.shape == (12, 12)
    monkeypatch.setattr("relpref.limits.available_memory", lambda: 5 * 8.0 * 144)
    with pytest.raises(DataError, match="conjugate gradients of 144 edges .* needs .* of memory"):
        problem.iterate(1.0)
