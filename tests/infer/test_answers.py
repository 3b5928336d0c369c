"""Answers of every kind under the engines: against integration, central differences, and the truth
of generated data.
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from pandas.testing import assert_frame_equal, assert_series_equal
from scipy import special, stats

from relpref import PreferenceData
from relpref.errors import DataError, StorageError, UnknownLabelError
from relpref.infer import EP, from_samples
from relpref.kernels import Precomputed
from relpref.likelihoods import Logistic, Probit, ProbitComparison
from relpref.likelihoods.chances import ROUNDING
from relpref.models import preference_gp
from relpref.posterior.gaussian import MixtureBelief

LABELS = ["a", "b", "c"]
COVARIANCE = np.array([[1.5, 0.3, -0.2], [0.3, 1.0, 0.4], [-0.2, 0.4, 2.0]])
TABLE = pd.DataFrame(
    {
        "first": list("abcabcab"),
        "second": list("bcabaacc"),
        "winner": ["a", "", "c", "b", "", "c", "a", "c"],
        "tie": [False, True, False, False, True, False, False, False],
        "strength": [1, None, 3, 1, None, 2, 2, 1],
        "rater": list("xyxyxyzx"),
        "shown_first": ["a", "c", None, "b", "a", "c", "a", "c"],
        "count": [1, 1, 2, 1, 1, 1, 1, 3],
    }
)
# By kind: the columns, the program's options, and the hyperparameters.
COMMON = {"rater_noise": np.array([0.7, 1.3, 2.0]), "position_bias": 0.4}
KINDS: dict[str, tuple[pd.DataFrame, dict[str, Any], dict[str, Any]]] = {
    "graded": (TABLE, {}, {"tie_margin": 0.4, "strength_steps": np.array([0.6, 0.9]), **COMMON}),
    "logistic": (
        TABLE[~TABLE["tie"]].drop(columns=["strength", "tie"]),
        {"likelihood": Logistic()},
        COMMON,
    ),
    "logistic lapses": (
        TABLE[~TABLE["tie"]].drop(columns=["strength", "tie"]),
        {"likelihood": Logistic(lapse=True)},
        {"lapse": 0.12, **COMMON},
    ),
    "rao-kupper": (
        TABLE,
        {"likelihood": Logistic()},
        {"tie_margin": 0.6, "strength_steps": np.array([0.9, 1.2]), **COMMON},
    ),
    "davidson": (
        TABLE.drop(columns=["strength"]),
        {"likelihood": Logistic(ties="davidson")},
        {"tie_margin": 0.7, **COMMON},
    ),
    "lapses": (
        TABLE.drop(columns=["strength"]),
        {"likelihood": Probit(lapse=True)},
        {"tie_margin": 0.4, "lapse": 0.12, **COMMON},
    ),
    "soft": (
        TABLE.drop(columns=["winner", "tie", "strength"]).assign(
            probability=[0.9, 0.4, 0.1, 0.55, 0.8, 0.97, 0.7, 0.3]
        ),
        {},
        {"soft_noise": 0.6, **COMMON},
    ),
}


def data_of(kind: str) -> PreferenceData:
    items = pd.DataFrame({"height": [0.0, 1.0, 3.0]}, index=LABELS)
    return PreferenceData.from_tables(items, KINDS[kind][0])


def options_of(kind: str) -> dict[str, Any]:
    return {"attribute_kernel": Precomputed(COVARIANCE), "individual": False, **KINDS[kind][1]}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: Any) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def fitted(kind: str) -> Any:
    fixed = {"attributes_amplitude": 1.0, **KINDS[kind][2]}
    return EP(preference_gp, fixed=fixed).run(0, data_of(kind), **options_of(kind))


def log_chance(
    kind: str, parameters: Any, z: Any, scale: Any, tie: Any = False, strength: Any = None
) -> Any:
    """Log probability of an answer at shifted gaps z, by scipy and the definitions."""
    lapse = parameters.get("lapse", 0.0)
    if kind.startswith("logistic"):
        return np.log(lapse / 2 + (1 - lapse) * special.expit(z / scale))
    if kind == "davidson":
        odds = np.exp(np.outer([1, 0, -1], 0.5 * z / scale))
        odds[1] *= np.expm1(parameters["tie_margin"] / scale)
        return np.log(odds[1 if tie else 0] / odds.sum(axis=0))
    cdf = special.expit if kind == "rao-kupper" else special.ndtr
    steps = [] if strength is None else parameters.get("strength_steps", [])
    ends = np.r_[parameters["tie_margin"] + np.cumsum(np.r_[0, steps]), np.inf]
    grade = 0 if tie else 1 if strength is None else strength
    low = ends[grade - 1] if grade else -ends[0]
    chance = cdf((ends[grade] - z) / scale) - cdf((low - z) / scale)
    if lapse:
        chance = lapse / 3 + (1 - lapse) * chance
    with np.errstate(divide="ignore"):
        return np.log(chance)


def log_likelihood(kind: str, utility: Any) -> Any:
    """Log probability of all answers at each utility vector."""
    answers: Any = data_of(kind).comparisons
    parameters, total = KINDS[kind][2], np.zeros(len(utility))
    for row, count in enumerate(answers.count):
        z = utility[:, answers.winner[row]] - utility[:, answers.loser[row]]
        z = z + parameters["position_bias"] * answers.shown_first[row]
        scale = parameters["rater_noise"][answers.rater[row]]
        if kind == "soft":
            report = special.ndtri(answers.probability[row])
            sd = np.hypot(scale * parameters["soft_noise"], ROUNDING)
            log = stats.norm.logpdf(report, z, sd) - stats.norm.logpdf(report)
        else:
            tie = answers.tie is not None and answers.tie[row]
            strength = None if answers.strength is None else answers.strength[row]
            log = log_chance(kind, parameters, z, scale, tie, strength)
        total += count * log
    return total


def test_against_integration(kind: str, fitted: Any, on_a_grid: Any) -> None:
    """Utilities, evidence, and predictions for a rater and a position and for none."""
    likelihood, axis = partial(log_likelihood, kind), np.linspace(-5.5, 5.5, 45)
    utility, weight, mean, sd, log_evidence = on_a_grid(COVARIANCE, likelihood, axis)
    loose = kind != "soft"  # where EP is exact
    assert_allclose(fitted.mean(), mean, rtol=0, atol=(0.02 if loose else 1e-5) * sd.max())
    # Without log-concavity EP is a little less accurate: an answer may be a lapse or not, which is
    # no Gaussian.
    assert_allclose(fitted.sd(), sd, rtol=0.03 if "lapses" in kind else 0.02 if loose else 1e-5)
    assert abs(fitted.log_evidence - log_evidence) <= (0.05 if loose else 1e-5)
    parameters = KINDS[kind][2]
    for asked, scale, shift in (({}, 1.0, 0.0), ({"rater": "z"}, 2.0, -0.4)):
        z = utility[:, 0] - utility[:, 2] + shift
        if kind == "soft":
            chance = special.ndtr(z / np.hypot(1, parameters["soft_noise"] * scale))
        else:
            chance = np.exp(log_chance(kind, parameters, z, scale))
        both = {**asked, "shown_first": ["c", "c"]} if asked else {}
        found = fitted.prefer([("a", "c"), ("c", "a")], **both)
        assert abs(found["probability"][0] - weight @ chance) <= 0.005
        assert ("tie" in found) == ("tie_margin" in parameters)
        total = found["probability"].sum() + (found["tie"][0] if "tie" in found else 0.0)
        assert abs(total - 1) <= 1e-12


def test_a_rater_for_each_pair(kind: str, fitted: Any) -> None:
    pairs = [("a", "c"), ("c", "a"), ("a", "b"), ("b", "c")]
    asked: list[Any] = ["z", None, "x", float("nan")]
    found = fitted.prefer(pairs, rater=asked)
    for row, (pair, rater) in enumerate(zip(pairs, ["z", None, "x", None], strict=True)):
        assert_series_equal(
            found.iloc[row], fitted.prefer(*pair, rater=rater).iloc[0], check_names=False
        )
    assert_frame_equal(fitted.prefer(pairs, rater=["y"] * 4), fitted.prefer(pairs, rater="y"))
    with pytest.raises(
        DataError, match="rater has 3 labels for 4 questions; give one for each, or one for all"
    ):
        fitted.prefer(pairs, rater=["x", "y", "z"])
    with pytest.raises(
        UnknownLabelError,
        match=r"rater\[2\]: 'yy' has given no answer.*give None for a typical one",
    ):
        fitted.prefer(pairs, rater=["x", None, "yy", "z"])


def test_the_saved_posterior_predicts_alike(kind: str, fitted: Any, reloaded: Any) -> None:
    asked: dict[str, Any] = {"rater": "y", "shown_first": ["a"]}
    expected = fitted.prefer([("a", "b")], **asked)
    read = reloaded(fitted)
    assert read.prefer([("a", "b")], **asked).equals(expected)
    assert read.data.comparisons.columns.keys() == fitted.data.comparisons.columns.keys()
    assert read.data.comparisons.raters == ("x", "y", "z")


@pytest.mark.parametrize("kind", ["graded"], indirect=True)
def test_draws_predict_alike(kind: str, fitted: Any) -> None:
    asked: dict[str, Any] = {"rater": "y", "shown_first": ["a"]}
    expected = fitted.prefer([("a", "b")], **asked)
    size = 4000
    draws = {name: np.ones(size) for name in ("attributes_amplitude", "rater_spread")}
    draws["utility"] = fitted.sample(size)
    draws |= {
        site: np.repeat(np.asarray(value)[None], size, axis=0)
        for site, value in KINDS[kind][2].items()
    }
    drawn: Any = from_samples(draws, preference_gp, data_of(kind), **options_of(kind))
    found = drawn.prefer([("a", "b")], **asked)
    assert abs(found["probability"][0] - expected["probability"][0]) <= 0.02


def test_a_mixture_predicts_with_the_parameters_of_each_component(fitted: Any, kind: str) -> None:
    fixed = {name: np.asarray(value, float) for name, value in KINDS[kind][2].items()}
    other = {name: value * 1.5 for name, value in fixed.items()}
    alone = [replace(fitted, hyperparameters=values) for values in (fixed, other)]
    mixture = replace(
        fitted,
        belief=MixtureBelief(
            np.stack([fitted.mean()] * 2), np.stack([fitted.covariance()] * 2), np.full(2, 0.5)
        ),
        hyperparameter_draws={
            name: np.stack([fixed[name], other[name]]) for name in fixed if name != "tie_margin"
        },
    )
    # One that is fixed has no draws.
    alone[1] = replace(
        alone[1], hyperparameters={**other, **{n: v for n, v in fixed.items() if n == "tie_margin"}}
    )
    asked: dict[str, Any] = {"rater": "z", "shown_first": ["b"]}
    each = [one.prefer([("a", "b")], **asked)["probability"][0] for one in alone]
    assert abs(mixture.prefer([("a", "b")], **asked)["probability"][0] - np.mean(each)) <= 1e-12
    assert abs(each[0] - each[1]) > 1e-4


def test_what_cannot_be_asked(fitted: Any) -> None:
    with pytest.raises(
        UnknownLabelError, match="rater: 'zz' has given no answer; nearest: 'z'; leave rater out"
    ):
        fitted.prefer([("a", "b")], rater="zz")
    with pytest.raises(DataError, match=r"shown_first\[0\] is 'c', which is not in the pair"):
        fitted.prefer([("a", "b")], shown_first=["c"])
    with pytest.raises(DataError, match="shown_first has 1 labels for 2 pairs"):
        fitted.prefer([("a", "b"), ("b", "c")], shown_first=["a"])


def test_plain_answers_have_no_raters_or_positions(posterior: Any) -> None:
    pair = [tuple(posterior.data.labels[:2])]
    with pytest.raises(DataError, match="answers do not say who gave them"):
        posterior.prefer(pair, rater="x")
    with pytest.raises(DataError, match="do not say which item was shown first"):
        posterior.prefer(pair, shown_first=[pair[0][0]])


@dataclass(frozen=True)
class Sharp:
    """A likelihood of one's own: plain answers with half the noise."""

    def parameters(self, answers: Any) -> dict[str, Any]:
        return {}

    def value(self, answers: Any) -> Any:
        return jnp.ones(answers.winner.shape, jnp.int32)

    def __call__(self, gap: Any, answers: Any, **parameters: Any) -> Any:
        return ProbitComparison(gap, scale=0.5)


def test_a_likelihood_of_ones_own(posterior: Any, tmp_path: Path) -> None:
    pair = [tuple(posterior.data.labels[:2])]
    own = replace(posterior, likelihood=Sharp())
    expected = special.ndtr(
        posterior.prefer(pair)["gap_mean"] / np.hypot(0.5, posterior.prefer(pair)["gap_sd"])
    )
    assert_allclose(own.prefer(pair)["probability"], expected)
    with pytest.raises(StorageError, match="the likelihood Sharp cannot be stored"):
        own.save(tmp_path / "run.nc")
    run = EP(preference_gp, throw=False, fixed={"attributes_amplitude": 1.0}, max_sweeps=1)
    options: Any = {"attribute_kernel": Precomputed(COVARIANCE), "likelihood": Sharp()}
    found: Any = run.run(0, data_of("logistic"), **options)
    assert found.likelihood == Sharp()


def test_one_step_for_all_strengths() -> None:
    """As a scalar prior of one's own gives it."""
    given = {
        "tie_margin": 0.4,
        "strength_steps": 0.5,
        "rater_noise": np.ones(3),
        "position_bias": 0.0,
    }
    answers = data_of("graded").comparisons
    parameters = {name: jnp.asarray(value) for name, value in given.items()}
    likelihood: Any = Probit()(jnp.zeros(answers.winner.shape), answers, **parameters)
    assert_allclose(likelihood.thresholds, [0.4, 0.9, 1.4], rtol=1e-6)


def test_a_column_that_the_likelihood_does_not_use_is_refused() -> None:
    with pytest.raises(
        DataError, match=r"Logistic\(ties='davidson'\) does not use the column 'strength'"
    ):
        EP(preference_gp).run(0, data_of("graded"), likelihood=Logistic(ties="davidson"))
    with pytest.raises(DataError, match=r"Logistic\(\) does not use the column 'probability'"):
        EP(preference_gp).run(0, data_of("soft"), likelihood=Logistic())
    with pytest.raises(DataError, match="ties is 'glenn'; it is 'rao-kupper' or 'davidson'"):
        Logistic(ties="glenn")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="give an instance"):
        EP(preference_gp).run(0, data_of("graded"), likelihood=Logistic)
