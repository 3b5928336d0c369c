"""All experiments, by name."""

from __future__ import annotations

from benchmarks.reproduce.classifiers import (
    cut_features,
    dishes,
    drug_target,
    landmarks,
    submodular,
    sushi,
)
from benchmarks.reproduce.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    one.EXPERIMENT.name: one.EXPERIMENT
    for one in (dishes, sushi, drug_target, landmarks, cut_features, submodular)
}
