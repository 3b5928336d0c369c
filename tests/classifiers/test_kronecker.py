"""The estimator of edges: against scikit-learn on the edges' kernel written out, in every setting,
and with bad input.
"""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from pandas.testing import assert_frame_equal
from sklearn.base import clone

from relpref.classifiers import KroneckerGPClassifier
from relpref.errors import DataError
from relpref.kernels import Precomputed

RNG = np.random.default_rng(1)
DRUGS = pd.DataFrame(RNG.normal(size=(6, 2)), index=list("abcdef"), columns=["x", "y"])
TARGETS = pd.DataFrame(RNG.normal(size=(4, 2)), index=list("uvwx"), columns=["x", "y"])
NEW_DRUGS = pd.DataFrame(RNG.normal(size=(3, 2)), index=["a", "new", "newer"], columns=["x", "y"])
NEW_TARGETS = pd.DataFrame(RNG.normal(size=(2, 2)), index=["t", "tt"], columns=["x", "y"])
RELATION = pd.DataFrame(
    RNG.integers(0, 2, (6, 4)).astype(float), index=DRUGS.index, columns=TARGETS.index
)
RELATION = RELATION.mask(RNG.uniform(size=RELATION.shape) < 0.25)
FIXED = {"amplitude": 1.5, "intercept": [0.0]}


def gaussian(left: Any, right: Any) -> Any:
    return np.exp(-0.5 * np.sum((np.asarray(left)[:, None] - np.asarray(right)) ** 2, axis=2))


def fitted(**options: Any) -> KroneckerGPClassifier:
    given = {"kernel": "gaussian", "gamma": 0.5, "fixed": FIXED, "landmarks": None, **options}
    return KroneckerGPClassifier(**given).fit(DRUGS, RELATION, TARGETS)


@pytest.fixture(scope="module")
def ep() -> KroneckerGPClassifier:
    return fitted()


@pytest.mark.slow
def test_kernels_by_name_as_function_and_as_matrix_are_one(ep: KroneckerGPClassifier) -> None:
    questions: list[tuple[Any, Any]] = [
        (None, None),
        (NEW_DRUGS, ["x", "u"]),
        (NEW_DRUGS, NEW_TARGETS),
    ]
    expected = [ep.predict_proba(*question) for question in questions]
    assert expected[1].index.tolist() == ["a", "new", "newer"] and expected[1].columns.tolist() == [
        "x",
        "u",
    ]
    assert_allclose(ep.predict_proba(["c", "a"], None), expected[0].loc[["c", "a"]], atol=1e-12)
    function = fitted(kernel=gaussian, gamma=None)
    matrix = clone(ep).set_params(kernel="precomputed")
    drugs, targets = (pd.DataFrame(gaussian(of, of), of.index, of.index) for of in (DRUGS, TARGETS))
    matrix.fit(drugs, RELATION, targets.iloc[:, ::-1])  # the order of columns does not matter
    rows = [
        pd.DataFrame(gaussian(new, old), new.index, old.index)
        for new, old in ((NEW_DRUGS, DRUGS), (NEW_TARGETS, TARGETS))
    ]
    for (nodes, objects), found in zip(questions, expected, strict=True):
        assert_frame_equal(function.predict_proba(nodes, objects), found)
        given = (
            rows[0] if nodes is NEW_DRUGS else nodes,
            rows[1] if objects is NEW_TARGETS else objects,
        )
        assert_frame_equal(matrix.predict_proba(*given), found)


def test_many_edges_are_predicted_piece_by_piece(
    ep: KroneckerGPClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ep.predict_proba()
    monkeypatch.setattr("relpref.posterior.classes._NUMBERS", 7 * len(ep.landmarks_))
    assert_frame_equal(ep.predict_proba(), whole, rtol=1e-12)
    assert ep.predict_proba([], ["u"]).shape == (0, 1)
    labels = ep.predict()
    assert ((whole > 0.5) == (labels == 1)).all(axis=None) and set(np.unique(labels)) == {0, 1}


def test_its_posterior_is_saved_and_loaded(ep: KroneckerGPClassifier, reloaded: Any) -> None:
    loaded = reloaded(ep.posterior_)
    assert_frame_equal(loaded.predict_proba(), ep.posterior_.predict_proba())
    assert loaded.predict_proba().index.names == ["source", "target"]


@pytest.mark.slow
def test_few_landmarks_say_what_they_leave_out(ep: KroneckerGPClassifier) -> None:
    assert ep.landmarks_.error == pytest.approx(
        0, abs=1e-9
    ) and ep.landmark_error_ == pytest.approx(0, abs=1e-9)
    with pytest.warns(
        UserWarning, match=r"^2 landmarks leave out \d\d% .* or None for the exact process"
    ) as noticed:
        few = fitted(landmarks=2)
    assert noticed[0].filename == __file__
    assert len(few.landmarks_) == 2 and 0.3 < few.landmarks_.error < 0.9
    assert few.landmark_error_ == pytest.approx(few.landmarks_.error, abs=1e-9)


STRENGTH = np.linspace(2.0, -2.0, 5)[:, None]
GAMES = np.where(STRENGTH > STRENGTH.T, 1.0, -1.0) + np.diag(np.full(5, np.nan))


@pytest.mark.slow
def test_a_reciprocal_relation() -> None:
    estimator = KroneckerGPClassifier(
        "gaussian", gamma=0.5, symmetry="reciprocal", fixed={"amplitude": 2.0}
    )
    estimator.fit(STRENGTH, GAMES)
    assert estimator.classes_.tolist() == [-1, 1] and isinstance(estimator.predict(), np.ndarray)
    found = estimator.predict_proba()
    assert_allclose(found + found.T, 1.0, atol=1e-12)
    assert found[0, 1] > 0.5 and estimator.predict()[1, 0] == -1
    new = np.array([[1.7], [0.3]])
    among = estimator.predict_proba(new, new)
    assert_allclose(among, estimator.predict_proba(new, new.copy()), atol=1e-12)
    assert among[0, 1] > 0.5 and among[0, 0] == pytest.approx(0.5, abs=1e-12)


def test_what_a_matrix_cannot_say_is_refused() -> None:
    kernel, row = gaussian(STRENGTH, STRENGTH), gaussian(np.array([[0.7]]), STRENGTH)
    games = KroneckerGPClassifier("precomputed", symmetry="reciprocal", fixed={"amplitude": 2.0})
    games.fit(kernel, GAMES)
    with pytest.raises(
        DataError, match="nothing of new nodes among themselves, .* include them in the"
    ):
        games.predict_proba(row, row)
    with pytest.raises(DataError, match="new node 0: the known ones explain .* not of one kernel"):
        games.predict_proba(2 * row, [0])
    games.fit(kernel + np.diag(np.arange(5)), GAMES)
    with pytest.raises(DataError, match=r"how much a new node varies, .* \(1 to 5\); include"):
        games.predict_proba(row, [0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "mcmc"}, "engine is 'mcmc'; it is 'ep' or 'laplace'"),
        ({"link": "cloglog"}, "link is 'cloglog'"),
        ({"kernel": Precomputed(np.eye(6))}, "kernel='precomputed' and the matrix as nodes"),
        ({"kernel": "cubic"}, "there is no kernel 'cubic'"),
        ({"symmetry": "symmetric"}, "only a relation of one set of nodes"),
        ({"landmarks": 0}, "landmarks is 0; give 1 or more edges, or None for the exact process"),
        (
            {"fixed": {"weight": np.zeros((1, 18))}},
            "fixed names weight, which is the latent function itself",
        ),
    ],
)
def test_options_that_do_not_exist(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        fitted(**options)


def test_relations_that_cannot_be_learned_from() -> None:
    estimator = KroneckerGPClassifier()
    with pytest.raises(
        DataError, match="all labels are 1; a classifier needs edges of both classes"
    ):
        estimator.fit(DRUGS, np.ones((6, 4)), TARGETS)
    with pytest.raises(DataError, match="kernel matrix of the nodes is indefinite"):
        KroneckerGPClassifier("precomputed").fit(np.diag([1.0, -1.0]), np.eye(2))
