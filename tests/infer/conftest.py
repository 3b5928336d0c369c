"""The inside of the engines, gold problems, and relations of one shape."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from relpref.data import PreferenceData, RelationData


@pytest.fixture(scope="session")
def gold() -> Callable[[str], Any]:
    folder = Path(__file__).parents[1] / "gold"

    def read(name: str) -> Any:
        with np.load(folder / f"ep_{name}.npz") as file:
            return {key: file[key] for key in file.files}

    return read


@pytest.fixture(scope="session")
def gold_data() -> Callable[[Any], PreferenceData]:
    """A gold problem as data; relation and attributes always given, whichever the answer is
    about.
    """

    def make(problem: Any) -> PreferenceData:
        names = [f"e{row}" for row in range(len(problem["attributes"]))]
        items = pd.DataFrame(problem["attributes"], index=names).add_prefix("x")
        winner, loser = problem["comparisons"].T
        label = np.array(names, dtype=object)
        comparisons = pd.DataFrame({"winner": label[winner], "loser": label[loser]})
        row, column = np.nonzero(np.triu(problem["adjacency"]))
        links = pd.DataFrame(
            {
                "source": label[row],
                "target": label[column],
                "weight": problem["adjacency"][row, column],
            }
        )
        return PreferenceData.from_tables(items, comparisons, {"links": links})

    return make


class Grid(NamedTuple):
    """Utilities on a grid, their posterior weights and moments, and the log evidence."""

    utility: Any
    weight: Any
    mean: Any
    sd: Any
    log_evidence: float


@pytest.fixture(scope="session")
def on_a_grid() -> Callable[..., Grid]:
    """Integrates the likelihood of three utilities over a grid of their whitened values."""

    def integrate(covariance: Any, log_likelihood: Callable[[Any], Any], axis: Any) -> Grid:
        white = np.stack(np.meshgrid(axis, axis, axis), axis=-1).reshape(-1, 3)
        utility = white @ np.linalg.cholesky(covariance).T
        log_weight = log_likelihood(utility) + norm.logpdf(white).sum(axis=1)
        total = logsumexp(log_weight)
        weight = np.exp(log_weight - total)
        mean = weight @ utility
        sd = np.sqrt(weight @ (utility - mean) ** 2)
        return Grid(utility, weight, mean, sd, total + 3 * np.log(axis[1] - axis[0]))

    return integrate


@pytest.fixture(scope="session")
def problem() -> Any:
    """Makes relations of nodes with two attributes, whose labels are noise."""

    def make(symmetry: Any = "none", complete: bool = True, n: int = 6) -> RelationData:
        rng = np.random.default_rng(5)
        nodes = pd.DataFrame(
            rng.normal(size=(n, 2)), index=[f"n{i}" for i in range(n)], columns=["x", "y"]
        )
        labels = rng.normal(size=(n, n))
        if symmetry != "none":
            labels = 0.5 * (labels + {"symmetric": 1, "reciprocal": -1}[symmetry] * labels.T)
        if not complete:
            unknown = rng.random((n, n)) < 0.3
            labels[unknown | (unknown.T if symmetry != "none" else False)] = np.nan
        return RelationData.from_tables(nodes, labels, symmetry=symmetry)

    return make
