"""The inside of the engines, gold problems, and relations of one shape."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

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
