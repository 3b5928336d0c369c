"""Expectation propagation on lists against importance sampling with their exact probability, see tests/gold/make_lists.py."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

GOLD = Path(__file__).parents[1] / "gold"
MADE = runpy.run_path(str(GOLD / "make_lists.py"))
CASES = [(kind, size, seed) for kind, size in MADE["KINDS"] for seed in MADE["SEEDS"]]


@pytest.fixture(scope="module")
def exact() -> Any:
    return dict(np.load(GOLD / "lists.npz"))


@pytest.mark.parametrize(("kind", "size", "seed"), CASES)
def test_against_importance_sampling(exact: Any, kind: str, size: int, seed: int) -> None:
    """Large choices are the hardest: a Gaussian is one side of many cut off by planes."""
    posterior = MADE["fitted"](kind, size, seed)
    true = {name: exact[f"{kind} {size} {seed} {name}"] for name in ("mean", "sd", "log_evidence", "error")}
    hard = kind == "choice" and size > 5
    shift = np.abs(posterior.mean(site="utility") - true["mean"]) / true["sd"]
    assert shift.max() < (0.08 if hard else 0.05)
    assert posterior.sd(site="utility") == pytest.approx(true["sd"], rel=0.15 if hard else 0.1)
    assert posterior.log_evidence == pytest.approx(float(true["log_evidence"]), abs=0.03 * MADE["LISTS"])
