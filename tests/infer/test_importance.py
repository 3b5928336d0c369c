"""Hyperparameters averaged over by weighted points: against exact integrals, grids and NUTS."""

from itertools import product
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from numpyro.infer import Predictive
from scipy.special import expit, logsumexp, ndtr, softmax

import relpref
from benchmarks.ours import data_of
from benchmarks.problems import related
from relpref import PreferenceData
from relpref.infer import EP, Laplace, UtilityPosterior, importance
from relpref.infer.importance import (
    Coordinates,
    Evaluated,
    importance_points,
    inverse_root,
    judged,
)
from relpref.kernels import GaussianProcess
from relpref.likelihoods import Probit
from relpref.linalg import Dense, NamedSum
from relpref.models import xpgp
from relpref.models.preference import repeated
from relpref.posterior.points import interval
from relpref.result import InferenceWarning

_NUMBER = 8
_LABELS = [f"e{at}" for at in range(_NUMBER)]
_OVERLAP = np.exp(-0.5 * np.subtract.outer(np.arange(_NUMBER), np.arange(_NUMBER)) ** 2.0)
_PRIOR = dist.HalfNormal(2.0)


def two_parts(data: PreferenceData) -> None:
    """Utilities as the sum of a smooth part and one for each item, with an amplitude each."""
    smooth, own = numpyro.sample("smooth", _PRIOR), numpyro.sample("own", _PRIOR)
    parts = {"smooth": Dense(smooth**2 * _OVERLAP), "own": Dense(own**2 * np.eye(_NUMBER))}
    utility = numpyro.sample("utility", GaussianProcess(NamedSum(parts)))
    answers = data.comparisons
    gap = utility[answers.winner] - utility[answers.loser]
    with numpyro.plate("comparison", len(answers.winner)), repeated(answers.count):
        numpyro.sample(
            "answer", Probit()(gap, answers), obs=Probit().value(answers) if data.answered else None
        )


def _answers(number: int, rater: bool = False) -> PreferenceData:
    rng = np.random.default_rng(1)
    utility = np.linspace(1.5, -1.5, _NUMBER)
    first = rng.integers(0, _NUMBER, number)
    second = (first + rng.integers(1, _NUMBER, number)) % _NUMBER
    wins = utility[first] - utility[second] + rng.normal(size=number) > 0
    names = np.array(_LABELS)
    table = pd.DataFrame(
        {
            "winner": names[np.where(wins, first, second)],
            "loser": names[np.where(wins, second, first)],
        }
    )
    if rater:
        table["rater"] = np.where(rng.uniform(size=number) < 0.5, "a", "b")
    return PreferenceData.from_tables(pd.DataFrame({"x": np.arange(_NUMBER)}, index=_LABELS), table)


@pytest.fixture(scope="module")
def data() -> PreferenceData:
    return _answers(12)


@pytest.fixture(scope="module")
def posterior(data: PreferenceData) -> Any:
    return EP(two_parts, hyperparameters="integrate").run(0, data)


@pytest.fixture(scope="module")
def grid(data: PreferenceData) -> Any:
    """The mixture over Gauss-Legendre nodes in the priors' quantiles: the exact integral, to 0.01
    sds and 1 % of an sd (against 20 nodes).
    """
    levels, weights = np.polynomial.legendre.leggauss(8)
    values = np.asarray(_PRIOR.icdf((levels + 1) / 2))
    smooth, own = np.meshgrid(values, values)
    draws = {"smooth": smooth.ravel(), "own": own.ravel()}
    log_weights = np.log(np.outer(weights, weights).ravel() / 4)
    return EP(two_parts).run_at_draws(draws, 0, data, prior_log_weights=log_weights)


def test_few_weighted_draws_are_warned_about(data: PreferenceData) -> None:
    draws = {"smooth": np.array([0.5, 1.0, 1.5]), "own": np.array([0.5, 0.5, 0.5])}
    weights = np.array([0.0, -4.0, -4.0])
    with pytest.warns(InferenceWarning, match=r"of 3 weighted hyperparameters are effective"):
        EP(two_parts).run_at_draws(draws, 0, data, prior_log_weights=weights)


def test_the_average_is_that_of_a_grid(posterior: UtilityPosterior, grid: UtilityPosterior) -> None:
    sd = grid.sd()
    assert_allclose((posterior.mean() - grid.mean()) / sd, 0.0, atol=0.03)
    assert_allclose(posterior.sd() / sd, 1.0, atol=0.03)
    assert posterior.log_evidence is not None
    assert posterior.log_evidence == pytest.approx(grid.log_evidence, abs=0.03)


def test_the_key_changes_nothing_and_info_says_what_was_done(
    data: PreferenceData, posterior: UtilityPosterior
) -> None:
    again = EP(two_parts, hyperparameters="integrate").run(1, data)
    assert_array_equal(again.belief.weights, posterior.belief.weights)
    assert_array_equal(again.sd(), posterior.sd())
    assert posterior.info["hyperparameters"] == "integrate"
    assert posterior.info["points"] == len(posterior.belief.weights) <= 40
    assert posterior.info["effective_points"] > 4
    assert posterior.info["directions"] == 2
    assert "held" not in posterior.info


def test_laplace_averages_too(data: PreferenceData, posterior: UtilityPosterior) -> None:
    other = Laplace(two_parts, hyperparameters="integrate").run(0, data)
    assert other.info["directions"] == 2
    assert np.corrcoef(other.mean(), posterior.mean())[0, 1] > 0.99


def test_nothing_to_average_over_leaves_one_gaussian(data: PreferenceData) -> None:
    known = EP(two_parts, hyperparameters="integrate", fixed={"smooth": 1.0, "own": 0.3})
    posterior = known.run(0, data)
    assert len(posterior.belief.weights) == 1
    assert "points" not in posterior.info


@pytest.mark.parametrize(
    ("most", "points", "word"), [(7, [1], "maximum"), (10, range(5, 11), "memory")]
)
def test_mixtures_are_smaller_where_memory_is_short(
    most: int, points: Any, word: str, data: PreferenceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importance, "MAX_NUMBERS_OF_POINTS", most * _NUMBER**2)
    posterior = EP(two_parts, hyperparameters="integrate").run(0, data)
    assert len(posterior.belief.weights) in points
    assert word in posterior.info["integration"]


def test_many_items_are_averaged_over(
    data: PreferenceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are few points, each of which keeps one matrix of the items."""
    monkeypatch.setattr(importance, "_MANY", _NUMBER - 1)
    posterior = EP(two_parts, hyperparameters="integrate").run(0, data)
    points = len(posterior.belief.weights)
    assert 3 <= points == posterior.info["points"] <= importance.FEWEST_POINTS
    kept = sum(value.nbytes for value in posterior.arrays()[0].values())
    assert kept < 2 * points * 8 * _NUMBER**2


def test_a_saved_mixture_keeps_its_weights(posterior: UtilityPosterior, tmp_path: Any) -> None:
    posterior.save(tmp_path / "posterior.nc")
    again: Any = relpref.load(tmp_path / "posterior.nc")
    assert_array_equal(again.belief.weights, posterior.belief.weights)
    assert_array_equal(again.prior_log_weights, posterior.prior_log_weights)
    assert_array_equal(again.mean(), posterior.mean())
    assert again.log_evidence == posterior.log_evidence


def test_an_answer_multiplies_weights_by_its_probability(posterior: UtilityPosterior) -> None:
    pair = ("e2", "e4")
    before = posterior.belief.differences(np.array([2]), np.array([4]))
    each = ndtr(before.means[:, 0] / np.sqrt(1 + before.variances[:, 0]))
    after = posterior.update([pair])
    expected = posterior.belief.weights * each
    assert_allclose(after.belief.weights, expected / expected.sum(), rtol=0.1, atol=0.003)
    assert after.log_evidence is not None
    assert posterior.log_evidence is not None
    gained = after.log_evidence - posterior.log_evidence
    assert gained == pytest.approx(np.log(expected.sum()), abs=0.02)
    assert gained == pytest.approx(
        np.log(posterior.prefer([pair])["probability"].iloc[0]), abs=0.02
    )


def test_noise_of_raters_is_held() -> None:
    """Where its prior has no quantiles, so that it is not averaged over."""
    data = _answers(12, rater=True)
    engine = EP(relpref.models.xpgp, hyperparameters="integrate")
    found = engine.run(0, data, priors={"rater_noise": dist.Gamma(4.0, 4.0)})
    assert found.info["held"] == ["rater_noise"] and "averaged" not in found.info
    assert found.log_evidence is None
    assert np.ptp(found.hyperparameter_draws["rater_noise"], axis=0).max() == 0


def test_hyperparameters_that_are_all_held_are_at_their_maximum() -> None:
    data = _answers(12, rater=True)
    fixed = {
        "attributes_amplitude": 1.0,
        "attributes_lengthscale": 1.0,
        "attributes_linear_share": 0.5,
        "individual_amplitude": 0.3,
    }
    priors = {"rater_noise": dist.Gamma(4.0, 4.0)}
    found = EP(relpref.models.xpgp, fixed=fixed).run(0, data, priors=priors)
    assert len(found.belief.weights) == 1
    assert found.info["held"] == ["rater_noise"]
    assert "rater" in found.info["integration"]


def _gaussian(precision: NDArray[np.float64], mean: NDArray[np.float64]) -> Any:
    """Evidence times prior of a Gaussian form, with its gradient."""

    def evaluate(places: NDArray[np.float64], need: str) -> list[Evaluated]:
        offs = places - mean
        return [
            Evaluated(float(-0.5 * off @ precision @ off), 0.0, -precision @ off, None)
            for off in offs
        ]

    return evaluate


def _points(evaluate: Any, mode: Any, scalars: int, start: Any = None) -> Any:
    """Around a mode, whose evidence is ``start`` where ``evaluate`` fails there."""
    size, places = len(mode), np.arange(len(mode))
    names = ["s"] * size
    given = Coordinates(names, [None] * size, places[:scalars], places[scalars:], [])
    (start,) = start or evaluate(mode[None], "gradient")
    program: Any = SimpleNamespace(layout=SimpleNamespace(log_concave=True), members=None)
    return importance_points(program, evaluate, given, mode, start, 10_000, lambda *counts: None)


@pytest.mark.parametrize(("size", "scalars"), [(1, 1), (2, 1), (3, 3), (4, 4), (5, 3), (6, 2)])
def test_a_gaussian_is_integrated_over(size: int, scalars: int) -> None:
    """Nearly exactly, but for what a lattice leaves out far from the maximum."""
    rng = np.random.default_rng(size)
    root = rng.normal(size=(size, size))
    precision = root @ root.T + 0.7 * np.eye(size)
    mean = rng.normal(size=size)
    evaluate = _gaussian(precision, mean)
    points = _points(evaluate, mean, scalars)
    exact = 0.5 * size * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(precision)[1]
    assert points.log_evidence == pytest.approx(exact, abs=0.02)
    evidences = np.array([_height(evaluate, x) for x in points.vectors])
    log_weights = points.prior_log_weights + evidences
    assert logsumexp(log_weights) == pytest.approx(points.log_evidence)
    weights = np.exp(log_weights - logsumexp(log_weights))
    whitened = (points.vectors - mean) @ np.linalg.cholesky(precision)
    assert_allclose(weights @ whitened, 0.0, atol=0.01)
    assert_allclose((whitened.T * weights) @ whitened, np.eye(size), atol=0.05)


@pytest.mark.parametrize("size", [3, 4, 5, 6])
def test_the_rule_is_of_degree_five(size: int) -> None:
    """Its moments are those of a standard normal vector; of few corners, those of two axes and of
    degree 3; of corners alone, those of degree 3, and of very few of them, of degree 2.
    """

    def height(places: NDArray[np.float64], need: str) -> Any:
        levels = -0.5 * np.sum(places**2, axis=1) - 0.5 * size * np.log(2 * np.pi)
        return places, [None] * len(places), levels

    plain = importance._Axes(np.zeros(size), np.eye(size), np.ones(size), np.full(size, 1e-9))
    for most, most_degree, of_two in ((60, 5, 5), (36, 3, 5), (16, 3, 3), (8, 3 - (size > 4), 2)):
        rule = importance._symmetric(height, plain, most)
        weights, places = np.exp(rule.log_weights), rule.places
        assert most > 36 or len(weights) <= most
        for powers in product(range(6), repeat=size):
            degree, axes = sum(powers), sum(power > 0 for power in powers)
            if degree <= max(most_degree, of_two if axes < 3 else 0) and axes < 5:
                exact = np.prod([_MOMENTS[power] for power in powers])
                assert weights @ np.prod(places**powers, axis=1) == pytest.approx(exact, abs=1e-6)
        assert rule.share == pytest.approx(1.0)


_MOMENTS = (1, 0, 1, 0, 3, 0)  # of a standard normal variable


def test_places_where_the_engine_fails_are_left_out() -> None:
    """Of a rule, half of them, its center among them; nothing remains where all fail."""
    evaluate = _gaussian(np.eye(3), np.zeros(3))

    def failing(places: NDArray[np.float64], need: str) -> list[Evaluated | None]:
        evaluated = evaluate(places, need)
        return [
            one if place.sum() > 0.3 else None for one, place in zip(evaluated, places, strict=True)
        ]

    start = evaluate(np.zeros((1, 3)), "gradient")
    points = _points(failing, np.zeros(3), 3, start)
    assert points.info["failed_points"] + points.info["points"] == 15
    assert np.all(np.isfinite(points.prior_log_weights))
    nothing = _points(lambda places, need: [None] * len(places), np.zeros(3), 3, start)
    assert nothing.results == []


def test_nine_directions_against_weighted_draws_of_the_prior() -> None:
    """Four attributes and a relation; with six directions a mean was .45 sds off, an sd 23 %."""
    problem = related(8, 15, held_out=0, seed=0)
    data = data_of(problem.attributes, problem.comparisons, problem.links)
    engine = EP(xpgp, check=False)
    posterior: Any = engine.run(0, data)
    assert posterior.info["directions"] == 9 and "held" not in posterior.info
    number, names = 1000, posterior.hyperparameter_draws
    with jax.enable_x64(True):
        sites = Predictive(xpgp, num_samples=number)(jax.random.key(0), data)
    draws = {name: np.asarray(sites[name]) for name in names}
    equal = np.full(number, -np.log(number))
    exact: Any = engine.run_at_draws(draws, 0, data, prior_log_weights=equal)
    assert exact.info["effective_points"] > 500  # means within .045 sds
    first, second = np.triu_indices(8, 1)
    (mean, sd), (exact_mean, exact_sd) = (
        (each.belief.differences(first, second).mean, each.belief.differences(first, second).sd)
        for each in (posterior, exact)
    )
    assert_allclose((mean - exact_mean) / exact_sd, 0, atol=0.12)
    assert_allclose(sd, exact_sd, rtol=0.07)


@pytest.mark.parametrize("size", range(3, 11))
def test_the_rule_has_the_moments_of_the_normal_distribution(size: int) -> None:
    for most in (100, 36, 16)[: 3 if size <= 8 else 2]:
        flat = importance._Axes(np.zeros(size), np.eye(size), np.ones(size), np.full(size, 1e-9))

        def height(places: Any, need: str) -> Any:
            return places, [None] * len(places), -0.5 * np.sum(places**2, axis=1)

        rule = importance._symmetric(height, flat, most)
        weights, u = softmax(rule.log_weights), rule.places
        assert len(weights) <= 53 and rule.share == pytest.approx(1.0)
        assert_allclose(weights @ u, 0, atol=1e-6)
        assert_allclose((u.T * weights) @ u, np.eye(size), atol=1e-6)
        assert_allclose(np.einsum("k,ki,kj,kl", weights, u, u, u), 0, atol=1e-6)
        if most > 16:
            assert_allclose(weights @ u**4, 3, atol=1e-6)
            squares = (np.square(u).T * weights) @ np.square(u)
            assert_allclose(squares, np.ones((size, size)) + 2 * np.eye(size), atol=1e-6)


@pytest.mark.parametrize("scalars", [2, 0])
def test_more_than_ten_directions_keep_the_steepest_at_the_maximum(scalars: int) -> None:
    precision = np.diag([3.0, 4.0, 1.0, 2.0, 50.0, 60.0, 70.0, 1.5, 2.0, 2.0, 3.0, 3.0])
    points = _points(_gaussian(precision, np.zeros(12)), np.zeros(12), scalars)
    spread = np.ptp(points.vectors, axis=0)
    assert np.all(np.delete(spread, [5, 6]) > 0)
    assert_allclose(spread[[5, 6]], 0.0, atol=1e-9)
    assert points.info["held"] == ["s"]
    exact = 6 * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(precision)[1]
    assert points.log_evidence == pytest.approx(exact, abs=0.02)


def test_points_reach_the_tails() -> None:
    """Intervals of 95 % of two dozen points hold that much of a skewed posterior, whose flat tail
    is that of the prior.
    """
    line = np.linspace(-8.0, 8.0, 801)
    mass = np.exp(_log_skewed(line))
    mass /= mass.sum()

    def evaluate(places: NDArray[np.float64], need: str) -> list[Evaluated | None]:
        slopes = -places - 12 * expit(2 * places)
        heights = _log_skewed(places).sum(axis=1)
        return [
            Evaluated(float(each), 0.0, slope, None)
            for each, slope in zip(heights, slopes, strict=True)
        ]

    mode, levels = np.full(2, line[np.argmax(mass)]), (0.5, 0.8, 0.9, 0.95)
    points = _points(evaluate, mode, 2)
    weights = np.exp(points.prior_log_weights + _log_skewed(points.vectors).sum(axis=1))
    for place in points.vectors.T:
        ends = [interval(place, weights / weights.sum(), level) for level in levels]
        held = [mass[(line > lower) & (line < upper)].sum() for lower, upper in ends]
        assert_allclose(held, levels, atol=0.03)


def _log_skewed(place: NDArray[np.float64]) -> Any:
    return -0.5 * place**2 - 6 * np.logaddexp(0, 2 * place)


def _height(evaluate: Any, x: NDArray[np.float64]) -> float:
    (found,) = evaluate(x[None], "level")
    return float(found.log_evidence)


def test_uneven_weights_warn_and_name_the_remedy() -> None:
    uneven = np.r_[4.0, np.zeros(35)]
    with pytest.warns(InferenceWarning, match="only 2.* of 36 weighted.*nuts"):
        judged(uneven)
    heavy = np.log(np.random.default_rng(0).pareto(1 / 0.9, 400) + 1)
    with pytest.warns(InferenceWarning, match="Pareto's k.*nuts"):
        info = judged(heavy)
    assert info["pareto_k"] == pytest.approx(0.9, abs=0.15)
    assert judged(np.zeros(36)) == {"points": 36, "effective_points": pytest.approx(36.0)}


@pytest.mark.parametrize("steepest", [3.0, 1e19])
def test_the_spread_is_that_of_the_curvature(steepest: float) -> None:
    """Also where curvatures differ by more than a Cholesky factor bears: labels almost without
    noise have such evidences.
    """
    axes, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))
    hessian = (axes * np.array([0.5, 2.0, steepest])) @ axes.T
    root = inverse_root(hessian, 0.1)
    assert np.all(np.isfinite(root))
    if steepest < 1e6:
        assert_allclose(root @ root.T, np.linalg.inv(hessian), rtol=1e-9)


def test_directions_that_are_too_flat_are_not_believed() -> None:
    root = inverse_root(np.diag([1e-8, 4.0]), 0.1)
    assert_allclose(root @ root.T, np.diag([10.0, 0.25]), atol=1e-12)


def test_what_has_no_curvature_is_not_spread_by_it() -> None:
    assert_array_equal(inverse_root(np.full((2, 2), np.nan), 0.1), np.eye(2))
