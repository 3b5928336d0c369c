"""Every kind of relation and kernel in one model, through the engine, newcomers and files."""

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from relpref.data import PreferenceData, Relation
from relpref.infer import EP
from relpref.kernels import (
    Diffusion,
    HiddenCommonCause,
    Matern52,
    RelationVectors,
)
from relpref.models import xpgp

OLD = [f"e{row}" for row in range(10)]
NEW = [f"n{row}" for row in range(4)]
KERNELS = {
    "near": HiddenCommonCause(method="cliques"),
    "cites": Diffusion(),
    "cites_linked": HiddenCommonCause(),
    "drinks": RelationVectors(Matern52(shared_lengthscale=True)),
}
HYPERPARAMETERS = {
    "attributes_amplitude": 1.1,
    "attributes_lengthscale": np.array([0.8, 1.7]),
    "near_amplitude": 0.9,
    "cites_linking_amplitude": 0.8,
    "cites_linking_time": 0.3,
    "cites_linked_amplitude": 0.7,
    "drinks_amplitude": 1.2,
    "drinks_lengthscale": 1.5,
    "walks_amplitude": 0.6,
    "walks_range": 1.4,
}
OPTIONS: dict[str, Any] = {
    "cites": {"kind": "directed"},
    "drinks": {"kind": "bipartite", "max_degree": 8},
    "walks": {"kind": "directed", "form": "random_walk"},
}


def table(rows: Any) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["source", "target"])


def random_links(rng: Any, sources: Any, targets: Any, size: int) -> Any:
    pairs = [(source, target) for source in sources for target in targets if source != target]
    return [pairs[row] for row in rng.choice(len(pairs), size=size, replace=False)]


RNG = np.random.default_rng(0)
ITEMS = pd.DataFrame(RNG.standard_normal((14, 2)), index=[*OLD, *NEW], columns=["x", "y"])
ANSWERS = pd.DataFrame(random_links(RNG, OLD, OLD, 20), columns=["winner", "loser"])
LINKS: dict[str, Any] = {
    "near": [*pairwise(OLD), ("e0", "e4"), ("e1", "e5")],
    "cites": random_links(RNG, OLD, OLD, 18),
    "drinks": random_links(RNG, OLD, ["tea", "milk", "gin", "rum"], 16),
    "walks": random_links(RNG, OLD, OLD, 14),
}
NEW_LINKS: dict[str, Any] = {
    "near": [("n0", "e3"), ("n1", "n0"), ("n2", "e5"), ("n2", "e6")],
    "cites": [*random_links(RNG, NEW, OLD, 6), *random_links(RNG, OLD, NEW, 4), ("n0", "n1")],
    "drinks": [
        *random_links(RNG, NEW, ["tea", "gin", "mead"], 5),
        ("n3", "water"),
        ("n0", "water"),
    ],
    "walks": [*random_links(RNG, NEW, OLD, 4), ("e3", "n1")],
}


def data(items: pd.DataFrame, links: dict[str, Any]) -> PreferenceData:
    relations = {
        name: Relation(table(rows), **OPTIONS.get(name, {})) for name, rows in links.items()
    }
    return PreferenceData.from_tables(items, ANSWERS, relations).with_cliques("near")


def fit(known: PreferenceData, *, scaled: bool = False) -> Any:
    engine = EP(xpgp, fixed=HYPERPARAMETERS, tol=1e-10)
    kernels: Any = {"attribute_kernel": Matern52(), "relation_kernels": KERNELS}
    scales: Any = {"standardize": scaled, "normalize": scaled, "individual": False}
    return engine.run(0, known, **kernels, **scales)


@pytest.fixture(scope="module")
def posterior() -> Any:
    return fit(data(ITEMS.loc[OLD], LINKS))


@pytest.mark.slow
@pytest.mark.parametrize("brought", ["attributes", "links", "both"])
def test_many_newcomers_at_once(brought: str, posterior: Any) -> None:
    items = ITEMS.copy()
    if brought == "links":
        items.loc[NEW] = 0.0
    new_links = {} if brought == "attributes" else NEW_LINKS
    after = posterior.extend(
        items.loc[NEW], {name: table(rows) for name, rows in new_links.items()}
    )
    joined = {name: rows + new_links.get(name, []) for name, rows in LINKS.items()}
    from_the_start = fit(data(items, joined))
    assert_allclose(after.mean(), from_the_start.mean(), rtol=0, atol=1e-6)
    assert_allclose(after.covariance(), from_the_start.covariance(), rtol=0, atol=1e-6)
    assert abs(after.log_evidence - from_the_start.log_evidence) <= 1e-6


def test_files_keep_relations_and_kernels(posterior: Any, reloaded: Any) -> None:
    read = reloaded(posterior)
    assert read.origin.kwargs["relation_kernels"] == KERNELS
    assert read.origin.kwargs["attribute_kernel"] == Matern52()
    for name, links in posterior.data.links.items():
        again = read.data.links[name]
        assert again.targets == links.targets
        for option in ("kind", "form", "hubs", "max_degree", "teleport"):
            assert getattr(again.relation, option) == getattr(links.relation, option)
    newcomers = (ITEMS.loc[NEW], {name: table(rows) for name, rows in NEW_LINKS.items()})
    assert_array_equal(read.extend(*newcomers).mean(), posterior.extend(*newcomers).mean())
