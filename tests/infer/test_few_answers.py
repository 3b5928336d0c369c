"""Few answers about items with several attributes."""

import numpy as np
import pandas as pd

import relpref
from relpref.kernels import SquaredExponential


def test_linear_utilities_are_learned_from_few_answers() -> None:
    """The seeds are fixed; over many seeds the mean difference is 0.05 nats or more
    (`benchmarks.few_answers`).
    """
    gains = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        labels = np.array([f"e{row}" for row in range(60)])
        attributes, weights = rng.standard_normal((60, 5)), rng.standard_normal(5)
        utility = attributes @ weights * 2 / np.linalg.norm(weights)
        pairs = np.stack([rng.permutation(60)[:2] for _ in range(315)])
        wins = np.diff(utility[pairs])[:, 0] < rng.standard_normal(len(pairs))
        named = [
            tuple(pair) for pair in labels[np.where(wins[:, None], pairs, pairs[:, ::-1])].tolist()
        ]
        items = pd.DataFrame(attributes, index=labels).add_prefix("x")
        losses = [
            -np.log(
                relpref.fit(items, named[:15], attribute_kernel=kernel)
                .prefer(named[15:])["probability"]
                .to_numpy()
            ).mean()
            for kernel in (None, SquaredExponential())
        ]
        gains.append(losses[1] - losses[0])
    assert np.mean(gains) >= 0.03
