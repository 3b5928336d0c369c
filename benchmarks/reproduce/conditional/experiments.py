"""All experiments, by name."""

from __future__ import annotations

from benchmarks.reproduce.conditional import (
    digits,
    drug_target,
    early_stopping,
    games,
    newsgroups,
    scaling,
)
from benchmarks.reproduce.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    one.EXPERIMENT.name: one.EXPERIMENT
    for one in (games, newsgroups, early_stopping, drug_target, digits, scaling)
}
