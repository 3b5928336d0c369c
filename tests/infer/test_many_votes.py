"""A million votes, of which a row counts thousands."""

from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import logsumexp, ndtr
from scipy.stats import multivariate_t

from relpref import PreferenceData
from relpref.infer import EP
from relpref.models import xpgp

MARGIN = 0.4


def votes(items: int, number: int, seed: int) -> tuple[pd.DataFrame, Any, Any]:
    """Aggregated votes with ties; pairs, shape (k, 2), and wins of the first, of the second and
    ties, shape (k, 3).
    """
    rng = np.random.default_rng(seed)
    utility = rng.normal(0, 0.7, items)
    pairs = np.stack(np.triu_indices(items, 1), axis=1)
    gap = utility[pairs[:, 0]] - utility[pairs[:, 1]]
    lost, won = ndtr(-MARGIN - gap), ndtr(gap - MARGIN)
    sizes = rng.multinomial(number, rng.dirichlet(np.full(len(pairs), 0.3)))
    counts = rng.multinomial(sizes, np.stack([won, lost, 1 - won - lost], axis=1))
    table = pd.DataFrame(
        {
            "first": np.tile(pairs[:, 0], 3),
            "second": np.tile(pairs[:, 1], 3),
            "result": np.repeat([1.0, 0.0, 0.5], len(pairs)),
            "count": counts.T.ravel(),
        }
    )
    return table[table["count"] > 0], pairs, counts


def test_posterior_and_evidence_of_huge_counts_are_those_of_importance_sampling() -> None:
    items = 8
    table, pairs, counts = votes(items, 300_000, 0)
    posterior = EP(xpgp, fixed={"individual_amplitude": 1.0, "tie_margin": MARGIN}).run(
        0, PreferenceData.from_tables(list(range(items)), table)
    )
    assert posterior.data.count.max() > 5000

    def log_density(utility: Any) -> Any:
        gap = utility[..., pairs[:, 0]] - utility[..., pairs[:, 1]]
        lost, won = ndtr(-MARGIN - gap), ndtr(gap - MARGIN)
        chances = np.stack([won, lost, 1 - won - lost], axis=-1)
        prior = -0.5 * np.sum(utility**2 + np.log(2 * np.pi), axis=-1)
        return prior + np.sum(counts * np.log(chances), axis=(-1, -2))

    mean, covariance = posterior.belief.mean(), posterior.belief.covariance()
    mode = minimize(lambda u: -log_density(u), mean, method="BFGS").x
    proposal = multivariate_t(mode, covariance, df=8, seed=1)
    draws = proposal.rvs(20_000)
    log_weights = log_density(draws) - proposal.logpdf(draws)
    weights = np.exp(log_weights - logsumexp(log_weights))
    assert 1 / np.sum(weights**2) > 5000
    exact = weights @ draws
    sds = np.sqrt(weights @ np.square(draws - exact))
    np.testing.assert_allclose((mean - exact) / sds, 0, atol=0.03)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), sds, rtol=0.03)
    evidence = logsumexp(log_weights) - np.log(len(draws))
    assert posterior.log_evidence is not None
    assert abs(posterior.log_evidence - evidence) < 0.03


def test_hyperparameters_of_a_million_votes_are_found_and_averaged_over() -> None:
    items = 20
    table, _, _ = votes(items, 1_000_000, 1)
    links = pd.DataFrame({"source": range(0, items, 2), "target": range(1, items, 2)})
    data = PreferenceData.from_tables(list(range(items)), table, {"family": links})
    posterior = EP(xpgp).run(0, data)
    assert posterior.info["gradient_norm"] < 0.3
    assert posterior.info["effective_points"] > 0.5 * posterior.info["points"]
    assert abs(posterior.hyperparameters["tie_margin"] - MARGIN) < 0.01
