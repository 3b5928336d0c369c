"""All experiments, by name."""

from __future__ import annotations

from benchmarks.reproduce.conditional import early_stopping, games, newsgroups
from benchmarks.reproduce.conditional.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    one.name: one for one in (games.EXPERIMENT, newsgroups.EXPERIMENT, early_stopping.EXPERIMENT)
}
