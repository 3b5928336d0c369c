"""Every kind of relation and answer, and graphs that are hard: without matrices of all items as
with them.
"""

from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from relpref.data import PreferenceData, Relation
from relpref.infer import EP
from relpref.models import xpgp

N, M = 80, 40
LABELS = [f"e{row}" for row in range(N)]
ATTRIBUTES = {
    "attributes_amplitude": 1.2,
    "attributes_lengthscale": 1.5,
    "attributes_linear_share": 0.5,
    "individual_amplitude": 0.6,
}


def links(seed: int, number: int = 160) -> pd.DataFrame:
    source, target = np.random.default_rng(seed).integers(0, N, (2, number))
    other = source != target
    names = np.array(LABELS)
    return pd.DataFrame({"source": names[source][other], "target": names[target][other]})


def owners(seed: int, number: int = 120, targets: int = 25) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    source, target = rng.integers(0, N, number), rng.integers(0, targets, number)
    return pd.DataFrame(
        {"source": np.array(LABELS)[source], "target": [f"owner {at}" for at in target]}
    )


def answers(labels: list[str] = LABELS, number: int = M, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    first = rng.integers(0, len(labels), number)
    second = (first + rng.integers(1, len(labels), number)) % len(labels)
    names = np.array(labels, dtype=object)
    return pd.DataFrame({"winner": names[first], "loser": names[second]})


def graded_answers() -> pd.DataFrame:
    """Ties, strengths, raters and positions."""
    rng = np.random.default_rng(2)
    plain = answers()
    tie = rng.random(M) < 0.2
    winner = plain["winner"].where(~tie, "")
    table = pd.DataFrame(
        {"first": plain["winner"], "second": plain["loser"], "winner": winner, "tie": tie}
    )
    table["strength"] = np.where(tie, np.nan, rng.integers(1, 4, M))
    table["rater"] = rng.choice(list("xyz"), M)
    table["shown_first"] = np.where(rng.random(M) < 0.5, plain["winner"], None)
    table["count"] = rng.choice([1, 1, 2], M)
    return table


GRADED = {
    "tie_margin": 0.4,
    "strength_steps": np.array([0.6, 0.9]),
    "rater_noise": np.array([0.7, 1.3, 2.0]),
    "position_bias": 0.4,
}
RELATIONS: dict[str, Any] = {
    "cites": Relation(links(3), kind="directed"),
    "walks": Relation(links(3), kind="directed", form="random_walk"),
    "owner": Relation(owners(4), kind="bipartite"),
    "akin": links(6, 60),
}
SCALES = {
    "cites_linking_amplitude": 0.8,
    "cites_linking_range": 0.9,
    "cites_linked_amplitude": 1.1,
    "cites_linked_range": 0.6,
    "walks_amplitude": 0.8,
    "walks_range": 3.0,
    "owner_amplitude": 1.3,
    "owner_range": 1.2,
    "akin_amplitude": 1.2,
    "akin_range": 1.5,
}


@pytest.mark.slow
@pytest.mark.parametrize("graded", [False, True])
def test_relations_and_answers_of_every_kind(graded: bool) -> None:
    """To a thousandth of a standard deviation."""
    rng = np.random.default_rng(0)
    items = pd.DataFrame(rng.standard_normal((N, 2)), index=LABELS, columns=["x", "y"])
    data = PreferenceData.from_tables(items, graded_answers() if graded else answers(), RELATIONS)
    fixed = {**ATTRIBUTES, **SCALES, **(GRADED if graded else {})}
    one, other = (
        cast(Any, EP(xpgp, fixed=fixed, structure=structure).run(0, data))
        for structure in ("dense", "sparse")
    )
    assert other.info["structure"] == "sparse"
    assert np.max(np.abs(other.mean() - one.mean()) / one.sd()) < 1e-3
    assert np.max(np.abs(other.sd() / one.sd() - 1)) < 1e-3
    assert other.log_evidence == pytest.approx(one.log_evidence, abs=1e-3)
