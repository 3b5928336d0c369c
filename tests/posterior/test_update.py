"""A posterior with more answers, or without some, is that of a full fit; quick updates are near it
and factorise nothing.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import relpref
from relpref.data import PreferenceData
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer import EP, Laplace, from_samples
from relpref.models import xpgp
from relpref.posterior import quick

MORE = pd.DataFrame({"winner": ["e3", "e1", "e3"], "loser": ["e7", "e2", "e7"], "count": [1, 1, 2]})


def distance(one: Any, other: Any) -> float:
    """Largest difference of means and covariances."""
    first, second = one.belief, other.belief
    gaps = (first.mean() - second.mean(), first.covariance() - second.covariance())
    return float(max(abs(gap).max() for gap in gaps))


@pytest.fixture(scope="module")
def updated(posterior: Any) -> Any:
    return posterior.update(MORE)


def test_an_update_is_a_full_fit_with_the_same_hyperparameters(
    updated: Any, posterior: Any, fit: Any, data: PreferenceData
) -> None:
    answers = data.to_tables()[1]
    whole = data.with_comparisons(pd.concat([answers, MORE]))
    pd.testing.assert_frame_equal(updated.data.to_tables()[1], whole.to_tables()[1])
    afresh = fit(updated.data)
    assert distance(updated, afresh) < 1e-6
    assert updated.log_evidence == pytest.approx(afresh.log_evidence, abs=1e-6)
    assert updated.hyperparameters.keys() == posterior.hyperparameters.keys()
    assert updated.data.num_answers == posterior.data.num_answers + 4
    pd.testing.assert_frame_equal(updated.explain(), afresh.explain(), atol=1e-6)
    assert len(updated.sites["precision"]) == updated.data.num_comparisons


def test_answers_can_be_withdrawn(updated: Any, posterior: Any) -> None:
    back = updated.update(withdraw=MORE)
    assert distance(back, posterior) < 1e-6
    assert back.data.num_comparisons == posterior.data.num_comparisons
    quickly = updated.update(withdraw=MORE, quick=True)
    assert distance(quickly.update(), posterior) < 1e-6
    assert_array_equal(quickly.data.count, posterior.data.count)


def test_a_quick_update_is_near_the_full_one_and_undone_nearly(
    updated: Any, posterior: Any
) -> None:
    quickly = posterior.update(MORE, quick=True)
    assert quickly.info["quick_answers"] == 4
    assert distance(quickly, updated) < 0.1 * distance(updated, posterior)
    assert off(quickly.update(withdraw=MORE, quick=True), posterior) < 0.02
    new = posterior.update([("e3", "e7")], quick=True)
    assert off(new.update(withdraw=[("e3", "e7")], quick=True), posterior) < 0.02
    assert distance(quickly.update(), updated) < 1e-6
    with pytest.raises(DataError, match=r"call update\(\) first"):
        quickly.explain()


def test_a_quick_update_of_a_sure_gaussian_site_is_exact(posterior: Any) -> None:
    """Sites multiplied in and divided out by rank-one changes against the inverse of the sum of
    precisions.
    """
    moving, site = quick.RankOne(posterior.belief), np.array([[0.7], [-0.4]])
    row = np.array([2, 9]), np.array([1.0, -1.0])
    moving.add(row, site)
    ends = np.zeros(posterior.belief.size)
    ends[[2, 9]] = 1, -1
    precision = np.linalg.inv(posterior.belief.covariance())
    covariance = np.linalg.inv(precision + 0.7 * np.outer(ends, ends))
    assert_allclose(moving.belief().covariance(), covariance, atol=1e-9)
    mean = covariance @ (precision @ posterior.belief.mean() - 0.4 * ends)
    assert_allclose(moving.belief().mean(), mean, atol=1e-9)
    moving.add(row, -site)
    assert_allclose(moving.belief().covariance(), posterior.belief.covariance(), atol=1e-12)


def errors(one: Any, exact: Any, pairs: Any) -> tuple[float, float]:
    """Largest error of a mean, in sds, and of an sd, relative: of utilities less their average, and
    of the gaps of pairs.
    """
    means, sds = [], []
    for each in (one.belief, exact.belief):
        centred, gaps = each.centred(), each.differences(*pairs)
        means.append(np.concatenate([centred.mean(), gaps.mean]))
        sds.append(np.concatenate([centred.sd(), gaps.sd]))
    moved = np.abs(means[0] - means[1]) / sds[1]
    return float(moved.max()), float(np.abs(sds[0] / sds[1] - 1).max())


def off(one: Any, exact: Any) -> float:
    """Largest error of utilities and of compared pairs."""
    return max(errors(one, exact, (one.data.winner, one.data.loser)))


def plain(number: int) -> list[tuple[str, str]]:
    rng = np.random.default_rng(1)
    ends = (rng.choice(12, 2, replace=False) for _ in range(number))
    return [(f"e{first}", f"e{second}") for first, second in ends]


@pytest.mark.parametrize(
    "answers", [[("e0", f"e{row}") for row in (7, 8, 9)], plain(8)], ids=["hub", "plain"]
)
def test_the_error_of_quick_updates_is_estimated(
    answers: Any, posterior: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick, "_SWEEPS", 0)
    assert estimate(posterior) < 1e-6
    found = posterior
    for answer in answers:
        found = found.update([answer], quick=np.inf)
        error = off(found, found.update())
        assert 0.7 * error < found.info["quick_error"] < 3 * error
    assert found.info["quick_answers"] == len(answers)
    assert error > 0.02  # or nothing was estimated


def estimate(posterior: Any) -> float:
    """The error of a posterior of one Gaussian, by one more sweep."""
    known = {name: np.asarray(value)[None] for name, value in posterior.hyperparameters.items()}
    sites = np.stack([posterior.sites[name] for name in ("precision", "shift")])[:, None]
    given = posterior.data.comparisons, sites, posterior.belief
    return quick.settled(posterior.likelihood, known, *given)[2]


def accurate(one: Any, exact: Any) -> bool:
    """Whether all means are within 0.05 sds, and all sds within 3 %."""
    moved, ratio = errors(one, exact, np.triu_indices(one.belief.size, 1))
    return moved < 0.05 and ratio < 0.03


def test_quick_updates_stay_near_full_ones(posterior: Any) -> None:
    found = posterior
    for answer in plain(10):
        found = found.update([answer], quick=True)
        assert found.info["quick_error"] < 0.02 and accurate(found, found.update())
    assert found.quick_answers == 10


@pytest.mark.parametrize("columns", [[], pytest.param(["rater", "tie"], marks=pytest.mark.slow)])
def test_few_answers_of_a_session_need_a_full_update(columns: list[str]) -> None:
    """The questions and answers of a loop, on a mixture over hyperparameters."""
    rng = np.random.default_rng(2)
    items = pd.DataFrame(rng.standard_normal((10, 2)), list("abcdefghij"), ["x", "y"])
    utility = items["x"] + 0.5 * rng.standard_normal(10)

    def answer(first: str, second: str) -> dict[str, Any]:
        gap = utility[first] - utility[second] + rng.standard_normal()
        winner, loser = (first, second) if gap > 0 else (second, first)
        row = {"winner": winner, "loser": loser, "rater": rng.choice(["ann", "ben"])}
        return row | {"tie": abs(gap) < 0.4}

    pairs = [rng.choice(items.index, 2, replace=False) for _ in range(20)]
    names = ["winner", "loser", *columns]
    table = pd.DataFrame([answer(*pair) for pair in pairs])[names]
    found = relpref.fit(items, table, check=False)
    assert len(found.belief.weights) > 10
    fully = 0
    for _ in range(20):
        question = found.next_pairs(1, repeats=3).iloc[0]
        table = pd.DataFrame([answer(question["first"], question["second"])])[names]
        found = found.update(table, quick=True)
        fully += not found.quick_answers
    assert fully <= 2 and accurate(found, found.update())


def test_a_quick_update_factorises_nothing(posterior: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is traced by JAX, nor factorised by NumPy, except the rows whose variances a sweep
    follows.
    """

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a matrix was factorised")

    solve = np.linalg.solve

    def few(matrix: Any, other: Any) -> Any:
        assert matrix.shape[-1] == 5
        return solve(matrix, other)

    monkeypatch.setattr(quick, "_ROWS", 5)
    monkeypatch.setattr(quick, "_outside", refuse)
    monkeypatch.setattr(jax, "eval_shape", refuse)
    monkeypatch.setattr(np.linalg, "solve", few)
    for module, name in (
        (np.linalg, "cholesky"),
        (np.linalg, "inv"),
        (np.linalg, "eigh"),
    ):
        monkeypatch.setattr(module, name, refuse)
    monkeypatch.setattr(EP, "run_from", refuse)
    assert posterior.update(MORE, quick=np.inf).quick_answers


def test_ties_bring_their_hyperparameter(posterior: Any, data: PreferenceData) -> None:
    tie = pd.DataFrame({"winner": ["e1"], "loser": ["e2"], "tie": [True]})
    tied = posterior.update(tie)
    assert tied.hyperparameters["tie_margin"] == pytest.approx(0.6745, abs=1e-4)  # of a half-normal
    assert tied.info["guessed"] == ["tie_margin"]
    assert "tie" in tied.prefer([("e1", "e2")])
    # The margin is one of all answers: they are learned in full.
    quickly = posterior.update(tie, quick=np.inf)
    assert distance(quickly, tied) == 0 and not quickly.quick_answers
    assert tied.update(tie, quick=True).quick_answers == 1
    table = data.to_tables()[1].assign(rater="ann")
    with pytest.raises(DataError, match="'rater'"):
        posterior.update(table)


def test_hyperparameters_are_fitted_on_schedule(posterior: Any) -> None:
    answers = posterior.data.num_answers
    assert not posterior.refit_is_due(answers + answers // 4 - 1)
    assert posterior.refit_is_due(answers + answers // 4 + 1)
    few = posterior.update(MORE, hyperparameters="schedule")
    for name, value in posterior.hyperparameters.items():
        assert_array_equal(few.hyperparameters[name], value)
    assert few.info["answers_at_fit"] == answers


@pytest.mark.slow
def test_hyperparameters_are_fitted_from_where_they_are(maximised: Any) -> None:
    few = maximised.update(MORE, hyperparameters="schedule")
    rest = MORE.assign(count=[6, 5, 7])
    many = few.update(rest, hyperparameters="schedule")
    afresh = EP(xpgp, hyperparameters="maximize").run(0, many.data)
    for name, value in afresh.hyperparameters.items():
        assert_allclose(many.hyperparameters[name], value, rtol=0.02)
    assert many.info["evaluations"] < afresh.info["evaluations"]  # from where they were
    assert "answers_at_fit" not in many.info


def test_a_prior_can_be_updated(make_data: Callable[..., PreferenceData], fit: Any) -> None:
    """From nothing to one answer and back."""
    items, _, relations = make_data(0).to_tables()
    data = PreferenceData.from_tables(items, relations=relations)
    prior = fit(data)
    assert np.all(prior.belief.mean() == 0)
    first = prior.update([("e3", "e7")])
    assert first.ranking().loc["e3", "mean"] > first.ranking().loc["e7", "mean"]
    assert distance(first.update(withdraw=[("e3", "e7")]), prior) < 1e-9


@pytest.mark.slow
def test_laplace_is_updated_too(data: PreferenceData, hyperparameters: dict[str, Any]) -> None:
    laplace = Laplace(xpgp, fixed=hyperparameters)
    posterior: Any = laplace.run(0, data)
    found = posterior.update(MORE)
    assert distance(found, laplace.run(0, found.data)) < 1e-6
    # A site that matches moments is not one at a mode, but nearer to it than nothing.
    assert distance(posterior.update(MORE, quick=True), found) < 0.5 * distance(posterior, found)


def test_what_cannot_be_updated_says_so(
    data: PreferenceData, posterior: Any, updated: Any, samples: dict[str, Any]
) -> None:
    sampled: Any = from_samples(samples, xpgp, data)
    with pytest.raises(UnsupportedProgramError, match="EP or Laplace"):
        sampled.update(MORE)
    with pytest.raises(DataError, match="e3: there is no such file"):
        posterior.update("e3")
    with pytest.raises(DataError, match="quick=True keeps them"):
        posterior.update(MORE, quick=True, hyperparameters="refit")
    with pytest.raises(DataError, match=r"'e3', 'e7'.*taken back 4 times and was given 3"):
        updated.update(withdraw=[("e3", "e7")] * 4)
    with pytest.raises(DataError, match="taken back 1 times and was given 0"):
        posterior.update(withdraw=[("e7", "e3")], quick=True)


@pytest.mark.parametrize("seed", [6, 8])
def test_sites_of_points_are_known_up_to_the_tolerance_of_points(seed: int) -> None:
    """Answers given several times have small sites, of which that tolerance is a large share."""
    rng, labels = np.random.default_rng(seed), list("abcde")
    items = pd.DataFrame({"price": [1, 2, 3, 4, rng.normal()]}, index=labels)
    pairs = [rng.choice(5, 2, replace=False) for _ in range(6)]
    answers = pd.DataFrame(
        [(labels[i], labels[j], int(rng.integers(1, 7))) for i, j in pairs],
        columns=["winner", "loser", "count"],
    )
    links = {"near": [("a", "b"), ("b", "c"), ("d", "e")]}
    posterior = relpref.fit(items, answers, links, check=False)
    number = posterior.update([("a", "e")], quick=True).data.num_answers
    assert number == posterior.data.num_answers + 1


@pytest.mark.slow
def test_a_program_of_other_predictors_is_refused_quick_updates(data: PreferenceData) -> None:
    import numpyro

    from relpref.likelihoods import ProbitComparison

    def program(data: PreferenceData) -> None:
        utility = numpyro.sample(
            "utility", numpyro.distributions.Normal(0, 1).expand([12]).to_event(1)
        )
        gap = 2 * (utility[data.winner] - utility[data.loser])
        with numpyro.handlers.scale(scale=data.count):
            numpyro.sample("answer", ProbitComparison(gap), obs=1)

    posterior: Any = EP(program).run(0, data)
    with pytest.raises(UnsupportedProgramError, match="leave quick out"):
        posterior.update(MORE, quick=True)
    assert posterior.update(MORE).data.num_answers == data.num_answers + 4


@pytest.mark.parametrize(
    ("column", "hyperparameter"),
    [
        ({"strength": [1, 2, 3] * 10}, {"strength_steps": [0.5, 0.5]}),
        ({"probability": [0.6, 0.7, 0.9] * 10}, {"soft_noise": 0.7}),
    ],
    ids=["strength", "probability"],
)
@pytest.mark.slow
def test_rows_that_are_no_answers_are_possible_ones(
    column: Any, hyperparameter: Any, make_data: Any, fit: Any, hyperparameters: dict[str, Any]
) -> None:
    data = make_data(0)
    table = data.to_tables()[1].assign(**column)
    if "probability" in column:
        table = table.rename(columns={"winner": "first", "loser": "second"})
    known = hyperparameters | hyperparameter
    posterior = fit(data.with_comparisons(table), known)
    assert distance(posterior.update(), posterior) < 1e-6
    more = table.iloc[:2]
    found = posterior.update(more)
    assert distance(found, fit(found.data, known)) < 1e-6
    assert distance(posterior.update(more, quick=True).update(), found) < 1e-6
