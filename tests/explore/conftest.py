"""Posteriors that nobody had to fit: a Gaussian belief beside tables of answers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref.data import PreferenceData
from relpref.infer import UtilityPosterior
from relpref.likelihoods import Probit
from relpref.posterior.gaussian import GaussianBelief

NUM_ITEMS = 9


@pytest.fixture(scope="session")
def labels() -> list[str]:
    return [f"e{row}" for row in range(NUM_ITEMS)]


@pytest.fixture(scope="session")
def make() -> Callable[..., UtilityPosterior]:
    """A posterior from moments, or from random ones, of as many items as there are labels."""

    def make(
        labels: list[Any],
        seed: int = 0,
        *,
        mean: Any = None,
        covariance: Any = None,
        answers: Any = None,
        likelihood: Any = None,
        **hyperparameters: Any,
    ) -> UtilityPosterior:
        n = len(labels)
        rng = np.random.default_rng(seed)
        factor = rng.standard_normal((n, n))
        if covariance is None:
            covariance = factor @ factor.T / n + 0.05 * np.eye(n)
        if mean is None:
            mean = rng.standard_normal(n)
        if answers is None:
            answers = pd.DataFrame({"winner": labels[:2], "loser": labels[1:3], "count": [1, 3]})
        items = pd.DataFrame({"x": np.zeros(n)}, index=pd.Index(labels, dtype=object))
        return UtilityPosterior(
            belief=GaussianBelief(np.asarray(mean, float), np.asarray(covariance, float)),
            slices={"utility": slice(0, n)},
            parts={},
            hyperparameters=hyperparameters,
            log_evidence=None,
            info={"engine": "EP", "result": "converged"},
            sites={},
            key=np.array([0, 7], dtype=np.uint32),
            data=PreferenceData.from_tables(items, answers),
            likelihood=Probit() if likelihood is None else likelihood,
        )

    return make


@pytest.fixture(scope="session")
def posterior(make: Callable[..., UtilityPosterior], labels: list[str]) -> UtilityPosterior:
    return make(labels)
