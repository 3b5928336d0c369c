"""Ties with logistic noise: against maximum likelihood by scipy where answers are many, and NUTS
where they are few.
"""

from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from numpyro.infer import MCMC, NUTS
from scipy import optimize, special

from relpref import PreferenceData
from relpref.infer import EP, from_samples, noncentered
from relpref.likelihoods import Logistic
from relpref.models import preference_gp

UTILITIES = np.array([-1.2, -0.4, 0.0, 0.3, 1.3])
MARGIN = 0.8
TIES: Any = ["rao-kupper", "davidson"]


def chances(ties: str, gap: Any, margin: float) -> Any:
    """Of first, tie and second, by their definitions."""
    if ties == "rao-kupper":
        first, second = special.expit(gap - margin), special.expit(-gap - margin)
        return np.stack([first, 1 - first - second, second])
    odds = np.stack([np.exp(gap / 2), np.full_like(gap, np.expm1(margin)), np.exp(-gap / 2)])
    return odds / odds.sum(axis=0)


def simulated(ties: str, number: int) -> tuple[PreferenceData, Any]:
    """Answers to every pair equally often, and how often each of the three was given, shape (3,
    pairs).
    """
    rng = np.random.default_rng(7)
    first, second = np.triu_indices(len(UTILITIES), 1)
    given = rng.multinomial(number, chances(ties, UTILITIES[first] - UTILITIES[second], MARGIN).T).T
    table = pd.DataFrame(
        {
            "winner": np.concatenate([first, first, second]),
            "loser": np.concatenate([second, second, first]),
            "tie": np.repeat([False, True, False], len(first)),
            "count": np.concatenate([given[0], given[1], given[2]]),
        }
    )
    items = pd.DataFrame(index=range(len(UTILITIES)))
    return PreferenceData.from_tables(items, table[table["count"] > 0]), given


@pytest.mark.parametrize("ties", TIES)
def test_many_answers_agree_with_maximum_likelihood(ties: Any) -> None:
    data, given = simulated(ties, 400)
    first, second = np.triu_indices(len(UTILITIES), 1)

    def loss(x: Any) -> float:
        gap = np.r_[0, x[:-1]][first] - np.r_[0, x[:-1]][second]
        return -float(np.sum(given * np.log(chances(ties, gap, np.exp(x[-1])))))

    best = optimize.minimize(loss, np.zeros(len(UTILITIES)), tol=1e-9).x
    prior = {"individual_amplitude": 30.0}
    engine = EP(preference_gp, hyperparameters="maximize", fixed=prior)
    found: Any = engine.run(0, data, progress_bar=False, likelihood=Logistic(ties=ties))
    gaps = found.mean() - found.mean()[0]
    np.testing.assert_allclose(gaps[1:], best[:-1], atol=0.01)
    np.testing.assert_allclose(found.hyperparameters["tie_margin"], np.exp(best[-1]), rtol=0.01)
    asked = found.prefer(list(zip(first, second, strict=True)))
    expected = chances(
        ties, np.r_[0, best[:-1]][first] - np.r_[0, best[:-1]][second], np.exp(best[-1])
    )
    np.testing.assert_allclose(asked[["probability", "tie"]].to_numpy().T, expected[:2], atol=0.005)


@pytest.mark.slow
def test_the_evidence_knows_which_model_the_answers_are_from() -> None:
    for ties, other in (TIES, TIES[::-1]):
        data, _ = simulated(ties, 2000)
        fits: Any = [
            EP(preference_gp, hyperparameters="maximize").run(
                0, data, progress_bar=False, likelihood=Logistic(ties=each)
            )
            for each in (ties, other)
        ]
        assert fits[0].log_evidence > fits[1].log_evidence + 3


@pytest.mark.slow
@pytest.mark.parametrize("ties", TIES)
def test_nuts_agrees(ties: Any) -> None:
    data, _ = simulated(ties, 3)
    likelihood = Logistic(ties=ties)
    sampler = MCMC(
        NUTS(noncentered(preference_gp)), num_warmup=500, num_samples=4000, progress_bar=False
    )
    sampler.run(jax.random.key(0), data, likelihood=likelihood)
    drawn: Any = from_samples(sampler.get_samples(), preference_gp, data, likelihood=likelihood)
    found: Any = EP(preference_gp).run(0, data, progress_bar=False, likelihood=likelihood)
    pair = [(4, 0), (3, 1), (2, 0)]
    one, other = found.prefer(pair), drawn.prefer(pair)
    np.testing.assert_allclose(one["gap_mean"], other["gap_mean"], atol=0.1 * other["gap_sd"].max())
    np.testing.assert_allclose(one["gap_sd"], other["gap_sd"], rtol=0.12)
    np.testing.assert_allclose(one["tie"], other["tie"], atol=0.02)
