"""The scikit-learn face of the classifier of rankings."""

import pickle
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from relpref.classifiers import RankingGPClassifier
from relpref.data import Rankings
from relpref.data_loaders import rank_dishes
from relpref.errors import DataError
from relpref.infer import ClassPosterior
from relpref.kernels import kendall_kernel
from relpref.kernels.ranking import LandmarkFeatures, SampledMallows

FIXED = {"amplitude": 2.0}
KINDS = {
    "full": lambda rankings: rankings,
    "top-k": lambda rankings: rankings.top(3),
    "exhaustive": lambda rankings: rankings.coarsened(3, rng_key=0),
    "non-exhaustive": lambda rankings: rankings.subset(4, rng_key=0),
}


def users(kind: str = "full", seed: int = 0, number: int = 60) -> Rankings:
    return KINDS[kind](rank_dishes(number, 0.3, seed))


def truth(rankings: Rankings) -> list[Any]:
    assert rankings.label is not None
    return [rankings.classes[code] for code in rankings.label]


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("kendall", "full"),
        ("cut", "full"),
        ("concave", "full"),
        pytest.param("mallows", "full", marks=pytest.mark.slow),
        ("kendall", "non-exhaustive"),
        ("cut", "non-exhaustive"),
        ("concave", "non-exhaustive"),
        pytest.param("mallows", "non-exhaustive", marks=pytest.mark.slow),
    ],
)
def test_two_kinds_of_eaters(kernel: str, kind: str) -> None:
    train, test = users(kind), users(kind, 1)
    fixed = FIXED | ({"concentration": 0.1} if kernel == "mallows" else {})
    model = RankingGPClassifier(kernel, fixed=fixed, landmarks=30).fit(train)
    probability = model.predict_proba(test)
    assert probability.shape == (60, 2) and model.n_features_in_ == 8
    assert_allclose(probability.sum(axis=1), 1)
    assert model.classes_.tolist() == ["juicy", "sweet"] == list(train.classes)
    # 60 tosses of a fair coin give more than 75 % with a probability below 1e-4.
    assert model.score(test, truth(test)) > 0.75
    # Of eight items all placements are gone through, for cut features; linear extensions are
    # sampled.
    assert (model.sampling_error_ > 0) == ((kernel, kind) == ("mallows", "non-exhaustive"))
    assert model.sampling_error_ <= 0.05
    assert (model.landmark_error_ > 0) == (kernel == "mallows") and model.landmark_error_ < 0.8


def test_too_few_landmarks_are_no_secret() -> None:
    data = rank_dishes(30, 1.0)
    with pytest.warns(
        UserWarning, match=r"landmarks leave out \d\d % of the prior variance of the 30 training"
    ):
        model = RankingGPClassifier("kendall", fixed=FIXED, landmarks=4).fit(data)
    assert model.landmark_error_ > 0.3


def test_kendall_landmarks_are_computed_before() -> None:
    train, test = users("non-exhaustive", number=30), users("non-exhaustive", 1, 30)
    chosen = RankingGPClassifier("kendall", landmarks=7).treatment(train)
    seen, _ = chosen.prepare(test)
    landmarks: Any = chosen.computed
    assert seen.features is not None and seen.residual is not None
    cross, corner = (
        kendall_kernel(part, landmarks.landmarks) for part in (test, landmarks.landmarks)
    )
    assert_allclose(
        seen.features @ seen.features.T, cross @ np.linalg.solve(corner, cross.T), atol=1e-10
    )
    own = seen.residual + np.square(seen.features).sum(axis=1)
    assert_allclose(own, np.diag(kendall_kernel(test)), atol=1e-10)


@pytest.mark.slow
def test_as_many_samples_as_the_tolerance_asks_for() -> None:
    """And new rankings are seen with the samples of the training rankings."""
    train, test = users("non-exhaustive", number=16), users("non-exhaustive", 1, 16)
    found = {}
    for tolerance in (0.9, 0.03):
        model = RankingGPClassifier("mallows", landmarks=16, tol=tolerance, random_state=3)
        chosen = model.treatment(train, 0.1)
        seen, error = chosen.prepare(test)
        assert 0 < error <= tolerance
        computed: Any = chosen.computed
        assert seen.features is not None and seen.residual is not None
        sampled = SampledMallows(0.1, computed.kernel.samples, 3)
        expected, _ = LandmarkFeatures(sampled, computed.landmarks).features(test)
        assert_allclose(seen.features, expected.values, atol=1e-12)
        assert_allclose(seen.residual, np.asarray(expected.residual), atol=1e-12)
        found[tolerance] = computed.kernel.samples
    assert 32 == found[0.9] < found[0.03]


@pytest.mark.slow
def test_the_concentration_is_learned() -> None:
    mallows = RankingGPClassifier("mallows", landmarks=60).fit(users())
    assert 0 < mallows.posterior_.hyperparameters["concentration"] < 1
    assert mallows.landmark_error_ < 1e-9  # every one is a landmark


def test_as_scikit_learn_wants_it() -> None:
    data = users()
    model = RankingGPClassifier("cut", fixed=FIXED)
    assert clone(model).get_params() == model.get_params()
    labels = truth(data)
    scores = cross_val_score(model, data, labels, cv=3)
    assert scores.shape == (3,) and scores.mean() > 0.75
    fitted = model.fit(data, labels)
    again = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(again.predict_proba(data), fitted.predict_proba(data))
    assert fitted.predict(data[:3]).dtype == fitted.classes_.dtype
    assert isinstance(fitted.posterior_, ClassPosterior)
    numbers = RankingGPClassifier(fixed=FIXED).fit(data, [label == "sweet" for label in labels])
    assert numbers.classes_.dtype == bool and numbers.predict(data).dtype == bool


@pytest.mark.slow
def test_saved_with_its_landmarks(reloaded: Any) -> None:
    train, test = users(), users(seed=1)
    model = RankingGPClassifier("mallows", fixed=FIXED | {"concentration": 0.1}, landmarks=30).fit(
        train
    )
    loaded = reloaded(model.posterior_)
    assert_array_equal(loaded.predict_proba(test), model.predict_proba(test))


def _mallows(concentration: float) -> RankingGPClassifier:
    return RankingGPClassifier("mallows", fixed={"concentration": concentration})


def test_refusals() -> None:
    data, labels = users(), truth(users())
    for message, model, given in (
        ("X is a list; give Rankings", RankingGPClassifier(), [["a", "b"]]),
        (
            "kernel is 'spearman'; it is one of 'kendall', 'cut', 'concave', 'mallows'",
            RankingGPClassifier("spearman"),
            data,
        ),
        ("engine is 'nuts'; it is 'ep' or 'laplace'", RankingGPClassifier(engine="nuts"), data),
        ("landmarks is 0", RankingGPClassifier("mallows", landmarks=0), data),
        ("fixed names weight", RankingGPClassifier(fixed={"weight": np.zeros((1, 28))}), data),
        *(
            (f"concentration is {value}", _mallows(value), users(kind))
            for value in (-1.0, np.nan)
            for kind in ("full", "non-exhaustive")
        ),
        (
            "belong to kernel='cut' and 'concave'; kernel is 'kendall'",
            RankingGPClassifier(lengthscale="learn"),
            data,
        ),
        (
            "y is missing, and the rankings carry no labels",
            RankingGPClassifier(),
            data.without_labels(),
        ),
        (
            "lengthscale to be learned takes rankings that place every item",
            RankingGPClassifier("cut", lengthscale="learn"),
            users("non-exhaustive"),
        ),
    ):
        with pytest.raises(DataError, match=message):
            model.fit(given)  # type: ignore[arg-type]
    for one_class in (data.with_labels(["sweet"] * 60), data[::2]):
        with pytest.raises(DataError, match="all rankings are of the class 'sweet'"):
            RankingGPClassifier().fit(one_class)
    with pytest.raises(DataError, match="priors names the concentration, which cannot be learned"):
        RankingGPClassifier("mallows", priors={"concentration": dist.HalfNormal()}).fit(
            users("non-exhaustive")
        )
    fitted = RankingGPClassifier("mallows", fixed=FIXED | {"concentration": 0.1}, landmarks=30).fit(
        data, labels
    )
    with pytest.raises(DataError, match="this kernel takes rankings that place every item"):
        fitted.predict_proba(users("non-exhaustive"))
