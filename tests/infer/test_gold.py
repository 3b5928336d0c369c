from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relpref.data import PreferenceData
from relpref.infer import EP
from relpref.kernels import Precomputed
from relpref.models import xpgp

RAW = {"standardize": False, "normalize": False, "individual": False}
UNIT = {"attributes_amplitude": 1.0}


def run(
    data: PreferenceData, fixed: Any, space: Any = "auto", structure: Any = "auto", **kernels: Any
) -> Any:
    engine = EP(xpgp, fixed=fixed, space=space, structure=structure)
    return engine.run(0, data, **RAW, **kernels)


def from_columns(problem: Any) -> dict[str, Any]:
    return {
        "attributes_amplitude": problem["amp_attribute"],
        "attributes_lengthscale": problem["lengthscale"],
        "links_amplitude": problem["amp_relation"],
        "links_range": problem["iota"],
    }


def check(posterior: Any, problem: Any, probability: float = 0.012) -> None:
    assert posterior.info["result"] == "converged"
    assert np.max(np.abs(posterior.mean() - problem["mean"]) / problem["sd"]) <= 0.03
    assert np.max(np.abs(posterior.sd() / problem["sd"] - 1)) <= 0.05
    pairs = [(f"e{i}", f"e{j}") for i, j in problem["query_pairs"]]
    difference = posterior.prefer(pairs)["probability"] - problem["probability"]
    assert np.max(np.abs(difference)) <= probability
    assert abs(posterior.log_evidence - problem["log_evidence"]) <= 0.35


@pytest.mark.parametrize("structure", ["dense", pytest.param("sparse", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("name", "probability"), [("mixed_n100", 0.012), ("attributes_n60", 0.012), ("hub_n40", 0.018)]
)
def test_attributes_and_links(
    gold: Callable[[str], Any],
    gold_data: Callable[[Any], PreferenceData],
    name: str,
    probability: float,
    structure: str,
) -> None:
    problem = gold(name)
    posterior = run(gold_data(problem), from_columns(problem), structure=structure)
    check(posterior, problem, probability)


@pytest.mark.slow
def test_a_relation_without_matrices(
    gold: Callable[[str], Any], gold_data: Callable[[Any], PreferenceData]
) -> None:
    problem = gold("graph_n80")
    fixed = {
        name: value for name, value in from_columns(problem).items() if name.startswith("links")
    }
    check(run(gold_data(problem).without_attributes(), fixed, structure="sparse"), problem)


@pytest.mark.parametrize(
    ("name", "space", "probability"),
    [
        ("graph_n80", "observation", 0.012),
        ("hub_n40", "latent", 0.018),
        ("hub_n40", "observation", 0.018),
    ],
)
def test_a_given_covariance(
    gold: Callable[[str], Any],
    gold_data: Callable[[Any], PreferenceData],
    name: str,
    space: str,
    probability: float,
) -> None:
    """It is that of a relation, or of attributes."""
    problem, related = gold(name), name == "graph_n80"
    data, kernel = gold_data(problem), Precomputed(problem["K"])
    if related:
        found = run(
            data.without_attributes(),
            {"links_amplitude": 1.0},
            space,
            relation_kernels={"links": kernel},
        )
    else:
        found = run(data.without_relation("links"), UNIT, space, attribute_kernel=kernel)
    check(found, problem, probability)
    assert found.info["space"] == space
