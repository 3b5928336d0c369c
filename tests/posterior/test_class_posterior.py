from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from pandas.testing import assert_frame_equal
from scipy.special import expit, ndtr
from scipy.stats import kstest
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import DotProduct

import relpref
from relpref.data import Rankings
from relpref.errors import DataError, UnknownLabelError, UnsupportedProgramError
from relpref.infer import EP, ClassPosterior, Laplace, from_samples
from relpref.kernels import GivenFeatures, Landmarks, Mallows
from relpref.models import ranking_classifier
from relpref.posterior.gaussian import GaussianBelief, MixtureBelief

GIVEN = GivenFeatures()
ITEMS = ["ale", "beer", "cider", "stout"]


def rankings(number: int, classes: int, seed: int) -> Rankings:
    """Rankers whose class follows from where they put the items, with noise; the features are the
    positions.
    """
    rng = np.random.default_rng(seed)
    places = np.argsort(rng.random((number, 4)), axis=1)
    orders = [[ITEMS[item] for item in np.argsort(row)] for row in places]
    values = (places - 1.5) / 1.5
    direction = np.random.default_rng(99).normal(size=(4, classes))
    scores = values @ direction + 0.5 * rng.gumbel(size=(number, classes))
    data = Rankings.from_orders(orders, items=ITEMS).with_features(values)
    return data.with_labels([f"class {c}" for c in np.argmax(scores, axis=1)])


DATA, NEW = rankings(40, 3, 0), rankings(15, 3, 1)


@pytest.fixture(scope="module")
def posterior() -> Any:
    engine: Any = EP(ranking_classifier, fixed={"amplitude": 1.5}, check=False)
    return engine.run(0, DATA, kernel=GIVEN)


def test_probabilities(posterior: ClassPosterior) -> None:
    table = posterior.predict_proba(NEW)
    assert list(table.columns) == ["class 0", "class 1", "class 2"]
    assert list(table.index) == list(NEW.rankers)
    assert table.index.name == "ranker" and (table > 0).all(axis=None)
    assert_allclose(table.sum(axis=1), 1, rtol=1e-12)
    assert posterior.predict(NEW).tolist() == table.idxmax(axis=1).tolist()
    assert list(posterior.latent(NEW).columns) == [
        (m, c) for m in ("mean", "sd") for c in table.columns[:-1]
    ]
    assert_frame_equal(posterior.predict_proba(), posterior.predict_proba(DATA))
    other = NEW.with_labels(["something else"] * len(NEW))
    assert_frame_equal(posterior.predict_proba(other), table)
    label: Any = NEW.label
    assert (posterior.predict(NEW) == [NEW.classes[c] for c in label]).mean() > 0.5


def test_latents_of_a_mixture_vary_within_and_between(posterior: ClassPosterior) -> None:
    before: Any = posterior.belief
    step = np.random.default_rng(0).normal(size=before.size)
    places = np.stack([before.location - step, before.location + step])
    mixed = MixtureBelief(places, np.stack([before.scale] * 2), np.full(2, 0.5))
    alone, ahead, both = (
        replace(posterior, belief=belief).latent(NEW)
        for belief in (before, GaussianBelief(places[1], before.scale), mixed)
    )
    assert_allclose(both["mean"], alone["mean"], atol=1e-12)
    between = (ahead["mean"] - alone["mean"]) ** 2
    assert_allclose(both["sd"] ** 2, alone["sd"] ** 2 + between, rtol=1e-10)


def test_each_decision_is_a_binary_classifier_of_those_who_came_to_it(
    posterior: ClassPosterior,
) -> None:
    """The second decision, learned alone from the rankers of the two later classes."""
    label: Any = DATA.label
    later = DATA[label > 0].with_labels([DATA.classes[code] for code in label[label > 0]])
    engine: Any = EP(ranking_classifier, fixed={"amplitude": 1.5}, check=False)
    alone = engine.run(0, later, kernel=GIVEN)
    both = posterior.latent(NEW).xs("class 1", axis=1, level=1)
    assert_allclose(alone.latent(NEW), both, atol=1e-6)
    table, first = posterior.predict_proba(NEW), alone.predict_proba(NEW)
    assert_allclose(table["class 1"], (1 - table["class 0"]) * first["class 1"], atol=1e-6)


def test_against_scikit_learn() -> None:
    """Laplace with the logit is what scikit-learn's classifier is; its intercept is a kernel's
    constant.
    """
    data = rankings(60, 2, 2)
    assert data.features is not None and data.label is not None
    fixed = {"amplitude": 1.3}
    ours = Laplace(ranking_classifier, fixed=fixed).run(0, data, kernel=GIVEN, link="logit")
    kernel = DotProduct(sigma_0=2.0 / 1.3, sigma_0_bounds="fixed") * 1.3**2
    theirs = GaussianProcessClassifier(kernel, optimizer=None).fit(data.features, data.label)
    new = rankings(15, 2, 3)
    assert isinstance(ours, ClassPosterior) and new.features is not None
    mean, sd = theirs.base_estimator_.latent_mean_and_variance(new.features)
    assert_allclose(ours.latent(new)["mean"], mean, atol=1e-6)
    assert_allclose(ours.latent(new)["sd"] ** 2, sd, atol=1e-6)
    # scikit-learn approximates the average over the latent; draws do not: 15 probabilities, within
    # five standard errors.
    draws = mean + np.sqrt(sd) * np.random.default_rng(0).normal(size=(20000, 1))
    assert_allclose(
        ours.predict_proba(new)["class 1"], expit(draws).mean(axis=0), atol=5 * 0.5 / 141
    )
    assert ours.log_evidence is not None
    assert abs(ours.log_evidence - theirs.log_marginal_likelihood_value_) < 1e-6


@pytest.mark.slow
def test_items_of_new_rankings_may_come_in_any_order(posterior: Any) -> None:
    fixed, features = {"amplitude": 1.5, "intercept": np.zeros(2)}, NEW.features
    assert features is not None
    by_pairs: Any = EP(ranking_classifier, fixed=fixed, check=False).run(0, DATA)
    turned = Rankings.from_orders(NEW.orders(), items=ITEMS[::-1], rankers=NEW.rankers)
    assert_frame_equal(by_pairs.predict_proba(turned), by_pairs.predict_proba(NEW))
    with pytest.raises(DataError, match="features that were computed for items in another order"):
        posterior.predict_proba(turned.with_features(features))


def test_saved_and_loaded(reloaded: Any) -> None:
    """Its data are given by keyword."""
    engine: Any = EP(ranking_classifier, fixed={"amplitude": 1.5}, check=False)
    posterior = engine.run(0, data=DATA, kernel=GIVEN)
    loaded = reloaded(posterior)
    assert isinstance(loaded, ClassPosterior) and repr(loaded) == repr(posterior)
    assert_frame_equal(loaded.predict_proba(NEW), posterior.predict_proba(NEW))


def test_arviz_has_the_decisions(posterior: ClassPosterior) -> None:
    tree = posterior.to_arviz(40)
    decision = tree["posterior_predictive"]["decision"]
    assert decision.dims[2:] == ("example", "class")
    assert decision.coords["class"].values.tolist() == ["class 0", "class 1"]
    label = tree["log_likelihood"]["label"]  # one observation for each example
    assert label.dims[2:] == ("example",) and np.all(label.values < 0)
    table = posterior.predict_proba(DATA)
    assert DATA.label is not None
    chosen = table.to_numpy()[np.arange(40), DATA.label]
    assert_allclose(np.exp(label.values).mean(axis=(0, 1)), chosen, atol=0.1)


def test_refusals(posterior: ClassPosterior) -> None:
    with pytest.raises(
        DataError, match="the classes of the rankings are only 'yes'; a classifier needs two"
    ):
        EP(ranking_classifier).run(0, DATA.with_labels(["yes"] * 40))
    with pytest.raises(
        DataError, match=r"the classes of the rankings are none; .* rankings.with_labels"
    ):
        EP(ranking_classifier).run(0, Rankings.from_orders([ITEMS]).with_features([[1.0]]))
    for examples, error, message in (
        (Rankings.from_orders([ITEMS]), DataError, "carry no features"),
        (
            Rankings.from_orders([ITEMS]).with_features([[1.0]]),
            DataError,
            "has 2 values of 'weight' at these examples and had 8",
        ),
        (
            Rankings.from_orders([["porter", "ale"]]).with_features([[1.0] * 4]),
            UnknownLabelError,
            "porter",
        ),
        ([ITEMS], DataError, "data is a list; this posterior classifies Rankings"),
    ):
        with pytest.raises(error, match=message):
            posterior.predict_proba(examples)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedProgramError, match="does not know its program"):
        replace(posterior, origin=None).predict_proba(NEW)
    with pytest.raises(DataError, match="link is 'tanh'"):
        EP(ranking_classifier).run(0, DATA, link="tanh")


@pytest.mark.slow
def test_engines_agree() -> None:
    """EP with hyperparameters integrated out against numpyro's own inference on the same
    program.
    """
    from numpyro.infer import MCMC, NUTS

    from relpref.infer import noncentered

    with jax.enable_x64(True):
        kernel = NUTS(noncentered(ranking_classifier))
        mcmc = MCMC(kernel, num_warmup=300, num_samples=1000, progress_bar=False)
        mcmc.run(jax.random.key(0), DATA, kernel=GIVEN)
    sampled = from_samples(mcmc.get_samples(), ranking_classifier, DATA, kernel=GIVEN)
    engine = EP(ranking_classifier, hyperparameters="nuts", draws=60, warmup=60)
    integrated = engine.run(0, DATA, kernel=GIVEN)
    assert isinstance(sampled, ClassPosterior) and isinstance(integrated, ClassPosterior)
    gap = sampled.predict_proba(NEW) - integrated.predict_proba(NEW)
    assert np.abs(gap.to_numpy()).max() < 0.03


def test_nobody_is_classified_and_many_are_in_blocks(
    posterior: ClassPosterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert posterior.predict_proba(NEW[:0]).shape == (0, 3)
    whole = posterior.predict_proba(rankings(20, 3, 6))
    monkeypatch.setattr("relpref.posterior.classes._NUMBERS", 1)  # blocks of 16
    assert_frame_equal(posterior.predict_proba(rankings(20, 3, 6)), whole, rtol=1e-12)


def test_features_that_move_are_checked_on_request() -> None:
    """They are computed for each component, not for each draw."""
    few = DATA[:8]
    kernel = Landmarks(Mallows(), few[:3])
    posterior = EP(ranking_classifier, check=True).run(0, few, kernel=kernel)
    assert "effective draws" in posterior.info["check"]


def test_a_program_that_cannot_be_stored(tmp_path: Path) -> None:
    data = rankings(40, 3, 0)
    own = EP(lambda data: ranking_classifier(data, kernel=GIVEN), fixed={"amplitude": 1.5}).run(
        0, data
    )
    own.save(tmp_path / "own.nc")
    with pytest.raises(UnsupportedProgramError, match="does not know its program"):
        relpref.load(tmp_path / "own.nc").predict_proba(NEW)  # type: ignore[union-attr]


@pytest.mark.slow
def test_latent_functions_are_calibrated() -> None:
    """300 simulations at known hyperparameters, some variance left to each ranking alone; false
    alarm 1e-3.
    """
    rng = np.random.default_rng(7)
    values, new = DATA.features, NEW[[0]].features
    assert values is not None and new is not None
    amplitude, residual = 1.5, 0.3
    plain = Rankings.from_orders(DATA.orders(), items=ITEMS).with_features(
        values, np.full(40, residual)
    )
    asked = NEW[[0]].with_features(new, [residual])
    engine = EP(ranking_classifier, fixed={"amplitude": amplitude}, check=False)
    pit = []
    for _ in range(300):
        weight, intercept = amplitude * rng.normal(size=(4, 2)), 2.0 * rng.normal(size=2)
        own = amplitude * np.sqrt(residual) * rng.normal(size=(41, 2))
        latent = np.concatenate([values, new]) @ weight + intercept + own
        on = latent[:40] + rng.normal(size=(40, 2)) > 0
        label = np.where(on[:, 0], np.where(on[:, 1], 2, 1), 0)
        data = plain.with_labels(label.tolist(), classes=[0, 1, 2])
        posterior = engine.run(0, data, kernel=GIVEN)
        assert isinstance(posterior, ClassPosterior)
        table = posterior.latent(asked)
        pit += [ndtr((latent[40, c] - table["mean", c]) / table["sd", c]).item() for c in (0, 1)]
    assert kstest(pit[::2], "uniform").pvalue > 1e-3
    assert kstest(pit[1::2], "uniform").pvalue > 1e-3
