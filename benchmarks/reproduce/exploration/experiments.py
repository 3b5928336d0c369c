"""All experiments, by name."""

from __future__ import annotations

from benchmarks.reproduce.experiment import Experiment
from benchmarks.reproduce.exploration import selection, simulators

EXPERIMENTS: dict[str, Experiment] = {
    one.EXPERIMENT.name: one.EXPERIMENT for one in (simulators, selection)
}
