"""A million votes, of which a row counts thousands."""

import numpy as np
import pandas as pd
from scipy.special import ndtr

from relpref import PreferenceData
from relpref.infer import EP
from relpref.models import xpgp

MARGIN = 0.4


def votes(items: int, number: int, seed: int) -> pd.DataFrame:
    """Aggregated votes with ties."""
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
    return table[table["count"] > 0]


def test_hyperparameters_of_a_million_votes_are_found_and_averaged_over() -> None:
    items = 12
    table = votes(items, 1_000_000, 1)
    links = pd.DataFrame({"source": range(0, items, 2), "target": range(1, items, 2)})
    data = PreferenceData.from_tables(list(range(items)), table, {"family": links})
    posterior = EP(xpgp).run(0, data)
    assert posterior.info["gradient_norm"] < 0.3
    assert posterior.info["effective_points"] > 5
    assert abs(posterior.hyperparameters["tie_margin"] - MARGIN) < 0.01
