"""A hundred queries, each a problem of its own, on two processes."""

from __future__ import annotations

import resource
import time

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.measure import table
from benchmarks.reproduce.neighbours import nearest_neighbours
from relpref import PreferenceData

TITLE = "A hundred queries of 150 documents and 200 pairs, hyperparameters included"
NOTES = (
    "Documents have 25 attributes and a nearest-neighbour graph. Each query is fitted by itself, "
    "with hyperparameters of its own: two\n"
    "amplitudes, a lengthscale and a range. Start of the worker processes and compilation included."
)
QUERIES, DOCUMENTS, ATTRIBUTES, PAIRS = 100, 150, 25, 200
SCHEDULER = "processes:2"


def run(repeats: int) -> str:
    """Time one pass; repeats would only show that compiled code is faster."""
    from joblib.externals.loky import get_reusable_executor

    from relpref.infer import EP, fit_many
    from relpref.kernels import SquaredExponential
    from relpref.models import xpgp

    drawn = [query(seed) for seed in range(QUERIES)]
    before = _cpu_seconds()
    start = time.perf_counter()
    kernel = SquaredExponential(shared_lengthscale=True)
    found = dict(
        fit_many(
            EP(xpgp, hyperparameters="maximize"),
            [data for data, _ in drawn],
            scheduler=SCHEDULER,
            attribute_kernel=kernel,
        )
    )
    wall = time.perf_counter() - start
    get_reusable_executor().shutdown()  # CPU time of processes counts when they have ended
    agreed = [
        pd.Series(posterior.mean()).corr(pd.Series(drawn[at][1]), method="spearman")
        for at, posterior in found.items()
    ]
    row = [SCHEDULER, f"{wall:.1f}", f"{_cpu_seconds() - before:.1f}", f"{np.mean(agreed):.3f}"]
    return table(
        ["scheduler", "wall, s", "CPU, s", "rank correlation with the true utilities"], [row]
    )


def query(seed: int) -> tuple[PreferenceData, NDArray[np.float64]]:
    """The data of a query, and the true utilities of its documents."""
    rng = np.random.default_rng(seed)
    attributes = pd.DataFrame(rng.standard_normal((DOCUMENTS, ATTRIBUTES))).add_prefix("x")
    utilities = attributes.to_numpy() @ rng.standard_normal(ATTRIBUTES) / 2 + rng.standard_normal(
        DOCUMENTS
    )
    first, second = np.triu_indices(DOCUMENTS, 1)
    asked = rng.choice(first.size, PAIRS, replace=False)
    first, second = first[asked], second[asked]
    wins = rng.standard_normal(PAIRS) < utilities[first] - utilities[second]
    answers = pd.DataFrame(
        {"winner": np.where(wins, first, second), "loser": np.where(wins, second, first)}
    )
    relations = {"similar": nearest_neighbours(attributes)}
    return PreferenceData.from_tables(attributes, answers, relations), utilities


def _cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
