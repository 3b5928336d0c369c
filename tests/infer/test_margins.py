"""Tie margins by item: their maximum and their scale, against brute force, NUTS and the truth of
simulated data.
"""

from itertools import combinations
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from numpyro.infer import MCMC, NUTS
from scipy import stats
from scipy.special import ndtr

import relpref
from relpref import PreferenceData
from relpref.errors import DataError, UnsupportedProgramError
from relpref.explore import next_pairs
from relpref.infer import EP, Laplace, noncentered
from relpref.infer.plates import _LOG_SCALES, _scale, settled
from relpref.infer.program import Program
from relpref.likelihoods import Logistic, Probit
from relpref.models import preference_gp
from relpref.report.page import render

BY_ITEM = Probit(margins="item")


def chances(utility: Any, margin: Any) -> tuple[Any, Any]:
    """Pairs of positions, and the probabilities of win, loss and tie, shape (k, 3)."""
    pairs = np.array(list(combinations(range(len(utility)), 2)))
    first, second = pairs.T
    gap, within = utility[first] - utility[second], 0.5 * margin[first] * margin[second]
    won, lost = ndtr(gap - within), ndtr(-gap - within)
    return pairs, np.stack([won, lost, 1 - won - lost], axis=1)


def simulated(
    seed: int, spread: float, items: int = 12, votes: int = 60
) -> tuple[Any, Any, PreferenceData]:
    """Utilities, margins of items and so many votes on each pair."""
    rng = np.random.default_rng(seed)
    utility, margin = rng.normal(0, 0.7, items), np.exp(spread * rng.normal(size=items))
    pairs, probability = chances(utility, margin)
    seen = rng.multinomial(votes, probability)
    table = pd.DataFrame(
        {
            "first": np.tile(pairs[:, 0], 3),
            "second": np.tile(pairs[:, 1], 3),
            "result": np.repeat([1.0, 0.0, 0.5], len(pairs)),
            "count": seen.T.ravel(),
        }
    ).query("count > 0")
    return utility, margin, PreferenceData.from_tables(list(range(items)), table)


def fitted(
    data: PreferenceData, likelihood: Any = BY_ITEM, engine: Any = EP, **options: Any
) -> Any:
    options = {"hyperparameters": "maximize", **options}
    return engine(preference_gp, **options).run(0, data, progress_bar=False, likelihood=likelihood)


@pytest.mark.parametrize("spread", [0.6, 0.0])
@pytest.mark.parametrize("engine", [EP, Laplace])
def test_margins_and_their_scale_are_found(engine: Any, spread: float) -> None:
    """From 4000 votes, and nothing where all margins are the same."""
    utility, margin, data = simulated(3, spread)
    found = fitted(data, engine=engine)
    assert found.info["evaluations"] < 120
    if not spread:
        assert found.hyperparameters["item_margin_spread"] < 0.12
    else:
        assert found.hyperparameters["item_margin_spread"] == pytest.approx(
            np.std(np.log(margin)), rel=0.4
        )
        error = np.log(found.hyperparameters["item_margin"] / margin)
        assert np.std(error) < 0.15
    pairs, probability = chances(utility, margin)
    ties = found.prefer([tuple(pair) for pair in pairs.tolist()])["tie"]
    np.testing.assert_allclose(ties, probability[:, 2], atol=0.08)


def test_a_scale_is_the_median_of_its_posterior() -> None:
    """What is said of entries being Gaussian, by the density of all of them together."""
    rng = np.random.default_rng(2)
    root = rng.normal(size=(6, 6))
    curvature, seen = root @ root.T + 0.1 * np.eye(6), rng.normal(0, 0.7, 6)
    with jax.enable_x64(True):
        program = settled(
            Program.of(preference_gp, (simulated(1, 0.5)[2],), {"likelihood": BY_ITEM}), True
        )
        assert program.scales == (("item_margin", "item_margin_spread"),)
        found = _scale(program, "item_margin_spread", curvature, curvature @ seen)
    scales = np.exp(_LOG_SCALES)
    noise = np.linalg.inv(curvature)
    log_density = [
        stats.multivariate_normal(cov=s**2 * np.eye(6) + noise).logpdf(seen) for s in scales
    ]
    log_density = log_density + stats.halfnorm(scale=0.75).logpdf(scales) + np.log(scales)
    below = np.cumsum(np.exp(log_density - np.max(log_density)))
    assert found == pytest.approx(scales[np.searchsorted(below, 0.5 * below[-1])], rel=0.02)


def test_of_few_answers_margins_are_nearly_the_same() -> None:
    """And predictions nearly those of one margin for all."""
    _, _, data = simulated(5, 0.0, votes=1)
    own, common = fitted(data), fitted(data, Probit())
    pairs = list(combinations(range(12), 2))
    np.testing.assert_allclose(own.prefer(pairs)["tie"], common.prefer(pairs)["tie"], atol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "likelihood", [BY_ITEM, Logistic(margins="item"), Logistic(ties="davidson", margins="item")]
)
def test_against_nuts(likelihood: Any) -> None:
    """NUTS averages over margins and over their scale, which is known here."""
    _, _, data = simulated(4, 0.5, items=7, votes=50)
    found = fitted(data, likelihood, hyperparameters="integrate")
    sampler: Any = MCMC(
        NUTS(noncentered(preference_gp)), num_warmup=700, num_samples=3000, progress_bar=False
    )
    with jax.enable_x64(True):
        sampler.run(jax.random.key(0), data, likelihood=likelihood)
    drawn = {name: np.asarray(value) for name, value in sampler.get_samples().items()}
    logs = np.log(drawn["item_margin"])
    error = (np.log(found.hyperparameters["item_margin"]) - logs.mean(axis=0)) / logs.std(axis=0)
    assert np.abs(error).max() < 0.5
    low, high = np.quantile(drawn["item_margin_spread"], [0.25, 0.75])
    assert low < found.hyperparameters["item_margin_spread"] < high
    gaps = drawn["utility"] - drawn["utility"].mean(axis=1, keepdims=True)
    ranking = found.ranking().sort_index()
    assert np.abs((ranking["mean"] - gaps.mean(axis=0)) / gaps.std(axis=0)).max() < 0.2
    assert np.all((ranking["sd"] / gaps.std(axis=0)).between(0.8, 1.2))
    spread = np.log(
        found.hyperparameter_draws["item_margin"]
    )  # less what the common margin has, too
    spread, logs = (each - each.mean(axis=1, keepdims=True) for each in (spread, logs))
    sds = np.sqrt([np.cov(one, aweights=found.belief.weights) for one in spread.T])
    assert np.all(np.abs(np.log(sds / logs.std(axis=0))) < 0.3)


@pytest.mark.slow
def test_intervals_cover() -> None:
    """Differences of utilities in simulations with everything drawn from its prior."""
    inside = []
    for seed in range(150):
        rng = np.random.default_rng(1000 + seed)
        utility, _, data = simulated(seed, abs(0.75 * rng.normal()), items=8, votes=6)
        found = fitted(data, throw=False, hyperparameters="integrate")
        drawn = found.sample(1000)
        below = np.mean(drawn[:, 0] - drawn[:, 1] < utility[0] - utility[1])
        inside.append(0.1 < below < 0.9)
    assert np.mean(inside) == pytest.approx(0.8, abs=0.09)


def test_they_go_with_the_items(tmp_path: Path) -> None:
    """Kept in files, cut with the items, named in reports and tables, and those of nobody where
    pairs are drawn.
    """
    _, _, data = simulated(3, 0.6)
    found = fitted(data)
    margins = found.hyperparameters["item_margin"]
    some = found.subset([7, 2, 9])
    np.testing.assert_array_equal(
        some.hyperparameters["item_margin"], margins[list(some.data.labels)]
    )
    np.testing.assert_allclose(some.prefer(2, 9)["tie"], found.prefer(2, 9)["tie"], rtol=1e-6)
    found.save(tmp_path / "run")
    np.testing.assert_array_equal(
        relpref.load(tmp_path / "run").hyperparameters["item_margin"], margins
    )
    assert "item 4" in render(found)
    later = found.update(pd.DataFrame({"winner": [1], "loser": [2], "tie": [True]}))
    assert later.hyperparameters["item_margin"].shape == (12,)
    assert len(next_pairs(found, 3, repeats=100)) == 3
    assert found.to_datatree()["posterior"]["item_margin"].dims[-1] == "item"


def test_raters_are_averaged_over_beside_them() -> None:
    rng = np.random.default_rng(0)
    first, rater = rng.integers(6, size=300), rng.integers(5, size=300)
    second = (first + rng.integers(1, 6, 300)) % 6
    table = {"winner": first, "loser": second, "rater": rater, "tie": rng.random(300) < 0.3}
    data = PreferenceData.from_tables(list(range(6)), pd.DataFrame(table))
    found = fitted(data)
    assert found.info["averaged"] == ["rater_noise"]
    assert found.hyperparameters["item_margin"].shape == (6,)


def test_what_they_need() -> None:
    data = PreferenceData.from_tables(
        list("abc"), pd.DataFrame({"winner": list("ab"), "loser": list("bc")})
    )
    with pytest.raises(
        DataError, match=r"Probit\(margins='item'\) is for answers with the column 'tie'"
    ):
        fitted(data)
    with pytest.raises(
        DataError, match="margins is 'items'; it is 'common', 'rater', 'item' or 'both'"
    ):
        Probit(margins="items")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedProgramError, match="'item_margin' has an entry for each item"):
        fitted(simulated(3, 0.6)[2], structure="sparse")
