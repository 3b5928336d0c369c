"""Expectation propagation on lists against importance sampling with their exact probability, see
tests/gold/make_lists.py.
"""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

GOLD = Path(__file__).parents[1] / "gold"
MADE = runpy.run_path(str(GOLD / "make_lists.py"))
# The errors that are allowed: of means in sds, of sds relatively, of the log evidence for each
# list. Of 20 problems each the largest are
# 0.018, 0.044 and 0.009 for orders, 0.026, 0.060 and 0.014 for choices of 3 to 5, 0.049, 0.076 and 0.022 for those of 6 to 8, and 0.018,
# 0.051 and 0.009 for the best and the worst. Large choices are the hardest: a Gaussian is one side of many cut off by planes.
EASY, HARD = (0.03, 0.065, 0.015), (0.06, 0.085, 0.025)


@pytest.fixture(scope="module")
def exact() -> Any:
    return dict(np.load(GOLD / "lists.npz"))


def check(exact: Any, kind: str, size: int, seed: int) -> None:
    posterior, at = MADE["fitted"](kind, size, seed), MADE["SEEDS"].index(seed)
    mean, sd, log_evidence = (
        exact[f"{kind} {size} {name}"][at] for name in ("mean", "sd", "log_evidence")
    )
    in_means, in_sds, in_evidence = HARD if kind == "choice" and size > 5 else EASY
    assert np.abs((posterior.mean(site="utility") - mean) / sd).max() < in_means
    assert posterior.sd(site="utility") == pytest.approx(sd, rel=in_sds)
    assert posterior.log_evidence == pytest.approx(
        float(log_evidence), abs=in_evidence * MADE["LISTS"]
    )


@pytest.mark.parametrize(("kind", "size"), MADE["KINDS"])
def test_against_importance_sampling(exact: Any, kind: str, size: int) -> None:
    """The references' own errors are at most 0.01 sds of a mean, and 0.001 nats for each list."""
    assert exact[f"{kind} {size} error"].max() < 0.01
    assert exact[f"{kind} {size} evidence_error"].max() < 0.001 * MADE["LISTS"]
    assert exact[f"{kind} {size} ess"].min() > 4000
    check(exact, kind, size, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "size"), MADE["KINDS"])
def test_all_of_them(exact: Any, kind: str, size: int) -> None:
    for seed in MADE["SEEDS"]:
        check(exact, kind, size, seed)
